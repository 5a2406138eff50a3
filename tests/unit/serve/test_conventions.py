"""Where pixels lie, as the Zarr conventions say it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gridref.api.readable import reader_for
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.serve.conventions import with_conventions
from gridref.testing.builders import chunked_array

pytest.importorskip("zarr_cm")

READ = reader_for().read
TURNED = "100 10 2 50 3 -20"  # x0, dx by column, dx by row, y0, dy by column, dy by row


def mapping(transform: str | None = TURNED) -> VirtualArray:
    attrs = {} if transform is None else {"GeoTransform": transform}
    return chunked_array(np.array(0), (), (), attrs=attrs)


def band(*shape: int, dims: str = "tyx", named: str | None = "spatial_ref") -> VirtualArray:
    attrs = {} if named is None else {"grid_mapping": named}
    return chunked_array(np.zeros(shape, "i2"), shape, tuple(dims), attrs=attrs)


def spatial(attrs: Any) -> dict[str, Any]:
    return {key.removeprefix("spatial:"): attrs[key] for key in attrs if key.startswith("spatial:")}


def test_pixels_of_a_turned_grid() -> None:
    arrays = {"v": band(4, 3, dims="yx"), "other": band(5, dims="z"), "spatial_ref": mapping()}
    shown = with_conventions(VirtualGroup(arrays), READ)
    said = spatial(shown.attrs)
    assert said["dimensions"] == ["y", "x"]
    assert said["shape"] == [4, 3]
    assert said["transform"] == [10, 2, 100, 3, -20, 50]
    # corners: (100, 50), (130, 59), (108, -30), (138, -21)
    assert said["bbox"] == [100, -30, 138, 59]
    assert spatial(shown.arrays["v"].attrs) == said
    assert spatial(shown.arrays["other"].attrs) == {}
    assert spatial(shown.arrays["spatial_ref"].attrs) == {}
    assert not any(key.startswith("proj:") for key in shown.attrs)


def test_other_arrays_of_the_same_plane_lie_there_too() -> None:
    arrays = {
        "v": band(2, 4, 3),
        "w": band(4, 3, dims="yx", named=None),
        "u": band(3, 4, dims="xy", named=None),
        "crs": mapping(),
    }
    arrays["v"] = arrays["v"].with_changes(attrs={"grid_mapping": "crs"})
    shown = with_conventions(VirtualGroup(arrays), READ)
    assert spatial(shown.attrs)["shape"] == [4, 3]
    assert [name for name, array in shown.arrays.items() if spatial(array.attrs)] == ["v", "w"]


@pytest.mark.parametrize(
    "arrays",
    [
        {"v": band(4, 3, dims="yx")},
        {"v": band(4, 3, dims="yx"), "spatial_ref": mapping(None)},
        {"v": band(4, 3, dims="yx", named=None), "spatial_ref": mapping()},
        {"v": band(4, dims="y"), "spatial_ref": mapping()},
        {"v": band(4, 3, dims="yx", named="where"), "where": mapping()},
    ],
    ids=["no mapping", "no transform", "not named", "a line", "another name"],
)
def test_groups_that_do_not_say_where_they_lie_are_left_as_they_are(arrays: Any) -> None:
    group = VirtualGroup(arrays)
    assert with_conventions(group, READ) is group


def test_each_level_of_a_pyramid_says_where_it_lies() -> None:
    levels = {
        str(n): VirtualGroup({"v": band(n, n, dims="yx"), "spatial_ref": mapping()}) for n in (4, 2)
    }
    levels["none"] = VirtualGroup({"v": band(3, dims="x", named=None)})
    layout = [{"asset": f"{name}/v", "scale": 1} for name in (*levels, "gone")] + [{}]
    group = VirtualGroup({}, attrs={"multiscales": {"layout": layout, "k": 1}}, groups=levels)
    shown = with_conventions(group, READ)
    pyramid = shown.attrs["multiscales"]
    assert pyramid["k"] == 1
    assert [each.get("spatial:shape") for each in pyramid["layout"]] == [
        *([4, 4], [2, 2]),
        *(None, None, None),
    ]
    assert [each.get("scale") for each in pyramid["layout"]] == [1, 1, 1, 1, None]
    assert all(each["spatial:transform"][0] == 10 for each in pyramid["layout"][:2])
    assert spatial(shown.attrs) == {}
    assert spatial(shown.groups["4"].attrs)["shape"] == [4, 4]


STRAIGHT = "100 10 0 50 0 -20"


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        pytest.param([105, 115, 125], [40, 20, 0, -20], (10, 100, -20, 50), id="as stated"),
        pytest.param([107, 117, 127], [40, 20, 0, -20], (10, 100, -20, 50), id="rounded"),
        pytest.param([105, 115, 122], [40, 20, 0, -12], (10, 100, -20, 50), id="cut pixels"),
        pytest.param([105, 115, 125], [-20, 0, 20, 40], (10, 100, 20, -30), id="from the south"),
        pytest.param([115, 125, 135], [20, 0, -20, -40], (10, 110, -20, 30), id="moved"),
        pytest.param([105, 125, 145], [40, 0, -40, -80], (20, 95, -40, 60), id="in steps"),
        pytest.param([105, 115, 122], [-20, 0, 20, 32], (10, 100, 20, -30), id="cut, from south"),
        pytest.param([105, 115, 135], [40, 20, 0, -20], None, id="uneven"),
        pytest.param([105, 115, 125], [40, 40, 40, 40], None, id="all alike"),
    ],
)
def test_labels_count_where_they_contradict_the_transform(
    x: list[int], y: list[int], expected: tuple[int, ...] | None
) -> None:
    arrays = {"v": band(4, 3, dims="yx"), "spatial_ref": mapping(STRAIGHT)}
    for name, labels in (("x", x), ("y", y)):
        arrays[name] = chunked_array(np.array(labels, "f8"), (len(labels),), (name,))
    shown = with_conventions(VirtualGroup(arrays), READ)
    found = spatial(shown.attrs).get("transform")
    assert (found and (*found[:3:2], *found[4:])) == expected


def test_one_label_moves_its_pixel() -> None:
    arrays = {"v": band(1, 1, dims="yx"), "spatial_ref": mapping(STRAIGHT)}
    arrays["x"] = chunked_array(np.array([205.0]), (1,), ("x",))
    shown = with_conventions(VirtualGroup(arrays), READ)
    assert spatial(shown.attrs)["transform"] == [10, 0, 200, 0, -20, 50]


@pytest.mark.parametrize("attrs", [{"units": "km"}, {"scale_factor": 0.5}])
def test_labels_in_other_terms_than_the_transform_do_not_count(attrs: dict[str, Any]) -> None:
    arrays = {"v": band(1, 2, dims="yx"), "spatial_ref": mapping(STRAIGHT)}
    arrays["x"] = chunked_array(np.array([1.0, 2.0]), (2,), ("x",), attrs=attrs)
    shown = with_conventions(VirtualGroup(arrays), READ)
    assert spatial(shown.attrs)["transform"] == [10, 0, 100, 0, -20, 50]
