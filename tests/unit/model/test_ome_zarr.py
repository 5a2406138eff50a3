"""What OME-Zarr's attributes say of images."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gridref.model.ome_zarr import (
    Channel,
    axes_order,
    axis_type,
    image_attributes,
    omero,
    plate_attributes,
    well_attributes,
)

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


@pytest.mark.parametrize(
    ("dims", "ordered"),
    [
        ("yx", "yx"),
        ("xy", "yx"),
        ("xyz", "zyx"),
        ("czyxt", "tczyx"),
        ("yxc", "cyx"),
        ("tt", "tt"),
        ("cyxc", "cyxc"),
        ("yxq", "yxq"),
        ("qxy", "qxy"),
        ("", ""),
    ],
)
def test_axes_are_brought_to_their_places(dims: str, ordered: str) -> None:
    assert "".join(dims[axis] for axis in axes_order(dims)) == ordered
    assert sorted(axes_order(dims)) == [*range(len(dims))]


def test_what_axes_are_called() -> None:
    found = {name: axis_type(name) for name in ("time", "channel", "sample", "z", "lat")}
    assert found == {
        "time": "time",
        "channel": "channel",
        "sample": "channel",
        "z": "space",
        "lat": None,
    }


@pytest.mark.parametrize(
    ("dtype", "bits", "window"),
    [
        ("u1", None, (0, 255)),
        ("i2", None, (-32768, 32767)),
        ("u2", 12, (0, 4095)),
        ("u2", 16, (0, 65535)),
        ("u2", 20, (0, 65535)),
        ("f4", None, None),
    ],
)
def test_windows_are_the_range_of_the_values(
    dtype: str, bits: int | None, window: tuple[int, int] | None
) -> None:
    shown = omero([Channel("a")], np.dtype(dtype), bits)
    (entry,) = shown["channels"]
    if window is None:
        assert "window" not in entry
        return
    low, high = window
    assert entry["window"] == {"min": low, "max": high, "start": low, "end": high}


def test_channels_have_colors() -> None:
    alone = omero([Channel("a")], np.dtype("f4"))
    assert alone["rdefs"] == {"model": "greyscale"}
    assert alone["channels"] == [{"label": "a", "color": "FFFFFF", "active": True}]
    many = omero([*(Channel(str(n)) for n in range(7)), Channel("b", "123456")], np.dtype("f4"))
    assert many["rdefs"] == {"model": "color"}
    colors = [entry["color"] for entry in many["channels"]]
    assert colors == [
        *("FF0000", "00FF00", "0000FF", "FF00FF", "00FFFF", "FFFF00", "FF0000"),
        "123456",
    ]
    assert [entry["label"] for entry in many["channels"]] == [*map(str, range(7)), "b"]


def test_wells_lie_in_the_rows_and_columns_of_their_plate() -> None:
    wells = [("B", "10"), ("A", "2"), ("AA", "2")]
    plate = plate_attributes("p", wells, 4)["ome"]["plate"]
    assert [row["name"] for row in plate["rows"]] == ["A", "B", "AA"]
    assert [column["name"] for column in plate["columns"]] == ["2", "10"]
    found = [(well["path"], well["rowIndex"], well["columnIndex"]) for well in plate["wells"]]
    assert found == [("B/10", 1, 1), ("A/2", 0, 0), ("AA/2", 2, 0)]
    assert (plate["name"], plate["field_count"]) == ("p", 4)
    images = well_attributes(["0", "1"])["ome"]["well"]["images"]
    assert images == [{"path": "0"}, {"path": "1"}]
