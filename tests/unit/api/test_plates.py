"""Images laid out by wells and fields."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gridref.api.layout.plates import PlateImage, combine_plate
from gridref.combine import Combination
from gridref.model.array import VirtualGroup
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly


def pixels(value: int, shape: tuple[int, ...] = (4, 6), dims: str = "yx") -> Any:
    return chunked_array(np.full(shape, value, "u1"), shape, tuple(dims))


def image(well: str, field: int, value: int = 0, **options: Any) -> PlateImage:
    group = VirtualGroup({"image": pixels(value, **options)})
    return PlateImage(well[0], well[1:], field, f"{well}f{field}.tif", group)


def at(done: Combination, path: str) -> VirtualGroup:
    assert done.group is not None, done.problems
    group = done.group
    for name in path.split("/"):
        group = group.groups[name]
    return group


def test_each_image_lies_in_its_well() -> None:
    images = [image("B10", 1, 5), image("A2", 2, 2), image("A2", 1, 1), image("B2", 1, 3)]
    done = combine_plate(images, name="p")
    assert done.group is not None
    assert [*done.group.groups] == ["A", "B", "cube"]
    assert [*at(done, "A/2").groups] == ["1", "2"]
    assert [*at(done, "B").groups] == ["2", "10"]
    held = {
        path: int(read_slowly(at(done, path).arrays["image"]).max())
        for path in ("A/2/1", "A/2/2", "B/10/1", "B/2/1")
    }
    assert held == {"A/2/1": 1, "A/2/2": 2, "B/10/1": 5, "B/2/1": 3}
    plate = done.group.attrs["ome"]["plate"]
    assert (plate["name"], plate["field_count"]) == ("p", 2)
    assert [well["path"] for well in plate["wells"]] == ["A/2", "B/2", "B/10"]
    well = at(done, "A/2").attrs["ome"]["well"]
    assert well["images"] == [{"path": "1"}, {"path": "2"}]
    assert len(done.report) == 0


def test_all_images_as_one_array() -> None:
    done = combine_plate(
        [image("A1", 1, 1), image("A1", 2, 2), image("B12", 1, 3), image("B12", 2, 4)]
    )
    cube = at(done, "cube")
    assert read_slowly(cube.arrays["well"]).tolist() == ["A01", "B12"]
    assert read_slowly(cube.arrays["field"]).tolist() == [1, 2]
    found = read_slowly(cube.arrays["image"])
    assert found.shape == (2, 2, 4, 6)
    assert found[:, :, 0, 0].tolist() == [[1, 2], [3, 4]]


def test_images_of_other_sizes_are_no_one_array() -> None:
    done = combine_plate([image("A1", 1), image("A2", 1, shape=(5, 6))])
    assert done.group is not None
    assert "cube" not in done.group.groups
    (drift,) = done.report
    assert drift.cause == "plate"


@pytest.mark.parametrize(
    ("images", "cause", "words"),
    [
        ([image("A1", 1), image("A1", 1)], "overlap", "field 1 of well A1 is in 2 files"),
        (
            [image("A1", 1), image("B2", 3, dims="yq")],
            "dimensions-differ",
            "no image with the axes",
        ),
        ([PlateImage("A", "1", 1, "a.tif", VirtualGroup())], "dimensions-differ", "no image"),
    ],
)
def test_what_is_no_image_of_a_plate(images: list[PlateImage], cause: str, words: str) -> None:
    done = combine_plate(images)
    assert done.group is None
    (problem,) = done.problems
    assert (problem.cause, words in problem.message) == (cause, True)
    assert problem.sources[0].endswith("tif")


def test_planes_of_one_field_lie_along_their_labels() -> None:
    planes = []
    for c in (1, 0):
        label = chunked_array(np.array(c), (), ())
        group = VirtualGroup({"image": pixels(10 + c), "c": label})
        planes.append(PlateImage("A", "1", 0, f"c{c}.tif", group))
    done = combine_plate(planes, dims=["c"])
    field = at(done, "A/1/0")
    assert field.arrays["image"].dims == ("c", "y", "x")
    assert read_slowly(field.arrays["image"])[:, 0, 0].tolist() == [10, 11]
    described = field.attrs["ome"]
    assert [axis["name"] for axis in described["multiscales"][0]["axes"]] == ["c", "y", "x"]
    labels = [channel["label"] for channel in described["omero"]["channels"]]
    assert labels == ["channel 0", "channel 1"]
    twice = combine_plate([planes[0], planes[0]], dims=["c"])
    assert twice.group is None


def test_pyramids_and_sizes_of_pixels() -> None:
    scale = [{"type": "scale", "scale": [0.5, 0.25]}]
    axes = [{"name": "y", "unit": "micrometer"}, {"name": "x"}]
    own = {"multiscales": [{"axes": axes, "datasets": [{"coordinateTransformations": scale}]}]}
    levels = {str(n): VirtualGroup({"image": pixels(n, (4 >> n, 6 >> n))}) for n in range(2)}
    whole = VirtualGroup(groups=levels, attrs={"ome": own})
    done = combine_plate([PlateImage("A", "1", 0, "a.tif", whole)])
    assert at(done, "A/1/0").attrs["ome"] == own  # described already
    cube = at(done, "cube").arrays["image"]
    assert cube.shape == (1, 1, 4, 6)
    bare = whole.with_changes(attrs={})
    described = at(combine_plate([PlateImage("A", "1", 0, "a.tif", bare)]), "A/1/0").attrs["ome"]
    sets = described["multiscales"][0]["datasets"]
    assert [each["path"] for each in sets] == ["0/image", "1/image"]
    assert [each["coordinateTransformations"][0]["scale"] for each in sets] == [
        [1.0, 1.0],
        [2.0, 2.0],
    ]
    assert "omero" not in described
    plane = VirtualGroup(
        {"image": pixels(1), "z": chunked_array(np.array(0), (), ())}, attrs={"ome": own}
    )
    done = combine_plate([PlateImage("A", "1", 0, "a.tif", plane)], dims=["z"])
    image_of = at(done, "A/1/0").attrs["ome"]["multiscales"][0]
    assert image_of["axes"][1] == {"name": "y", "type": "space", "unit": "micrometer"}
    (level,) = image_of["datasets"]
    assert level["coordinateTransformations"][0]["scale"] == [1.0, 0.5, 0.25]
    broken = plane.with_changes(attrs={"ome": {"multiscales": []}})
    done = combine_plate([PlateImage("A", "1", 0, "a.tif", broken)], dims=["z"])
    (level,) = at(done, "A/1/0").attrs["ome"]["multiscales"][0]["datasets"]
    assert level["coordinateTransformations"][0]["scale"] == [1.0, 1.0, 1.0]
