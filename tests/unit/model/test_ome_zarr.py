"""What OME-Zarr's attributes say of images."""

from __future__ import annotations

import itertools

import pytest

from gridref.model.ome_zarr import image_attributes

UNITS = [("µm", "micrometer"), ("um", "micrometer"), ("nm", "nanometer"), ("m", "meter")]
UNITS += [("ms", "millisecond"), ("s", "second"), ("km", "kilometer"), ("cm", "centimeter")]
UNITS += [("pixel", "pixel"), ("xm", "xm"), ("mx", "mx"), ("", None), ("inch", "inch")]


@pytest.mark.parametrize(("unit", "expected"), UNITS)
def test_units_of_pixels_have_the_names_of_udunits(unit: str, expected: str | None) -> None:
    sizes = {"x": (0.5, unit)}
    made = image_attributes("", ["0", "1"], [(8, 6), (4, 2)], ["y", "x"], sizes)
    assert made is not None
    (image,) = made["ome"]["multiscales"]
    assert image["name"] == "image"
    assert image["axes"][1].get("unit") == expected
    assert "unit" not in image["axes"][0]
    scales = [level["coordinateTransformations"][0]["scale"] for level in image["datasets"]]
    assert scales == [[1.0, 0.5], [2.0, 1.5]]


NAMES = {"t": "time", "c": "channel", "z": "space", "y": "space", "x": "space", "q": ""}


@pytest.mark.parametrize("rank", range(1, 6))
def test_axes_are_time_another_one_and_space_or_there_are_none(rank: int) -> None:
    """Of all orders of axes, those of the specification (0.5, "axes" metadata)."""
    for dims in itertools.permutations(NAMES, rank):
        kinds = [NAMES[dim] for dim in dims]
        n_space = kinds.count("space")
        before = kinds[: len(kinds) - n_space]
        allowed = n_space in (2, 3) and "space" not in before and len(before) < 3
        allowed = allowed and before.count("time") < 2 and "time" not in before[1:]
        allowed = allowed and (len(before) < 2 or before[0] == "time")
        made = image_attributes("a", ["0"], [(1,) * rank], dims, {})
        assert (made is not None) == allowed, dims
        if made is not None:
            axes = made["ome"]["multiscales"][0]["axes"]
            assert [axis["name"] for axis in axes] == list(dims)
            assert [axis.get("type", "") for axis in axes] == kinds
