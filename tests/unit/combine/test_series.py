"""Mosaics of several labels: where inputs lie along them, and where they are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gridref.combine import CombineOptions, combine, combine_mosaic
from gridref.combine.mosaic import Plane, labels_of
from gridref.combine.values import Values
from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly


def test_labels_have_places_along_each_dimension() -> None:
    held = {"t": [np.array([5, 9]), np.array([7])], "z": [np.array(["b"]), np.array(["a"])]}
    spans = np.array([[[0, 2], [0, 3]], [[1, 3], [0, 3]]])
    plane = Plane.of(("y", "x"), spans, held)
    along = {dim: [plane.runs[dim].file.tolist(), plane.runs[dim].place.tolist()] for dim in held}
    assert along == {"t": [[0, 0, 1], [0, 2, 1]], "z": [[0, 1], [1, 0]]}
    extents = {dim: runs.extent for dim, runs in plane.runs.items()}
    assert extents == {"t": 3, "z": 2, "y": 3, "x": 3}
    assert plane.growing == ("t", "z", "y", "x")


def test_a_value_of_each_input_is_missing_where_no_input_has_its_labels() -> None:
    tiles = []
    for t, z, cloud in ((5, 1, 30), (7, 2, 40)):
        whole = tile(t, 0, 1)
        more = {"z": VirtualArray.from_numpy(np.array(z), ())}
        more["cloud"] = VirtualArray.from_numpy(np.array(cloud, "i2"), ())
        tiles.append(whole.with_changes(arrays={**whole.arrays, **more}))
    done = combine_mosaic(tiles, stack=["t", "z"], read=read_slowly)
    assert done.group is not None, done.problems
    shown = done.group.arrays["cloud"]
    assert shown.dims == ("t", "z")
    np.testing.assert_array_equal(read_slowly(shown), [[30, np.nan], [np.nan, 40]])


def tile(labels: Any, column: int, value: int, **attrs: Any) -> VirtualGroup:
    own = np.asarray(labels)
    dims = ("t",) * own.ndim
    data = np.full((*own.shape, 2, 2), value, "u1")
    mapping = {"GeoTransform": f"{column * 20} 10 0 0 0 -10"}
    return VirtualGroup(
        {
            "t": VirtualArray.from_numpy(own, dims, attrs),
            "v": chunked_array(data, data.shape, (*dims, "y", "x"), attrs={"grid_mapping": "m"}),
            "m": VirtualArray.from_numpy(np.array(0), [], mapping),
        }
    )


def laid(*tiles: VirtualGroup) -> Any:
    done = combine_mosaic(tiles, stack=["t"], read=read_slowly)
    assert done.group is not None, done.problems
    values = read_slowly(done.group.arrays["v"])
    assert done.group.arrays["v"].dims == ("t", "y", "x")
    return read_slowly(done.group.arrays["t"]).tolist(), values[:, 0].astype(float).tolist()


def test_inputs_of_one_label_lie_beside_each_other() -> None:
    labels, rows = laid(tile(7, 1, 4), tile(5, 0, 1), tile(5, 1, 2), tile(7, 0, 3))
    assert labels == [5, 7]
    assert rows == [[1, 1, 2, 2], [3, 3, 4, 4]]


def test_inputs_of_several_labels_are_cut_where_others_come_between() -> None:
    labels, rows = laid(tile([5, 9], 0, 1), tile([7], 0, 2))
    assert labels == [5, 7, 9]
    assert rows == [[1, 1], [2, 2], [1, 1]]


def test_inputs_with_falling_labels_are_turned() -> None:
    labels, rows = laid(falling([9, 5], [1, 2]), falling([8, 7, 6], [3, 4, 5]))
    assert labels == [5, 6, 7, 8, 9]
    assert [row[0] for row in rows] == [2, 5, 4, 3, 1]


def falling(labels: list[int], values: list[int]) -> VirtualGroup:
    data = np.broadcast_to(np.array(values, "u1")[:, np.newaxis, np.newaxis], (len(values), 2, 2))
    whole = tile(labels, 0, 0)
    array = chunked_array(data, data.shape, ("t", "y", "x"), attrs={"grid_mapping": "m"})
    return whole.with_changes(arrays={**whole.arrays, "v": array})


@pytest.mark.parametrize("overlap", ["raise", "first", "last"])
def test_labels_that_repeat_within_an_input_are_told(overlap: Any) -> None:
    options = CombineOptions(overlap=overlap)
    done = combine_mosaic([falling([5, 5], [1, 2])], stack=["t"], read=read_slowly, options=options)
    if overlap == "raise":
        (problem,) = done.problems
        assert (problem.cause, problem.variable) == ("overlap", "t")
        assert "labels repeat within a file" in problem.message
        return
    assert done.group is not None
    assert read_slowly(done.group.arrays["t"]).tolist() == [5]
    assert read_slowly(done.group.arrays["v"])[0, 0, 0] == {"first": 1, "last": 2}[overlap]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (VirtualGroup(), "no label along 't'"),
        (tile(np.array([[1]]), 0, 1), "no label along 't'"),
        (tile(5, 0, 1, units="days since 2000-01-01"), "its units are 'days since 2000-01-01'"),
        (tile(5, 0, 1, calendar="noleap"), "its calendar are 'noleap'"),
    ],
    ids=range(4),
)
def test_labels_that_cannot_be_compared(second: VirtualGroup, message: str) -> None:
    if "t" in second.arrays and second.arrays["t"].ndim == 2:
        second = VirtualGroup({"t": chunked_array(np.array([[1]]), (1, 1), ("t", "s"))})
    with pytest.raises(InvalidRequestError, match=message):
        labels_of([tile(5, 0, 1), second], ("t",), Values(read_slowly))


# Times and units that come out as they were


def column(values: Any, units: str, dtype: str, **attrs: Any) -> VirtualGroup:
    data = np.array(values, dtype)
    return VirtualGroup(
        {"t": chunked_array(data, data.shape, ("t",), attrs={"units": units, **attrs})}
    )


@pytest.mark.parametrize(
    ("first", "second", "dtype"),
    [
        ([0.0, np.nan], [0.5, np.nan], "f4"),
        ([0.0, 1.0], [0.5, np.nan], "f4"),
        ([0.0, 1.0], [1e9 + 0.5, 2.0], "f8"),
        ([0.0, np.nan], [1e9 + 0.5, 2.0], "f8"),
    ],
)
def test_times_keep_the_first_dtype_where_it_holds_them(
    first: Any, second: Any, dtype: str
) -> None:
    parts = [
        column(first, "hours since 2000-01-01", "f4"),
        column(second, "hours since 2000-01-02", "f8"),
    ]
    done = combine(parts, "t", read=read_slowly, options=CombineOptions(overlap="keep"))
    assert done.group is not None, done.problems
    found = done.group.arrays["t"]
    np.testing.assert_array_equal(read_slowly(found), [*first, *(np.array(second) + 24)])


def test_units_that_mean_the_same_are_told() -> None:
    parts = [
        VirtualGroup({"v": chunked_array(np.arange(2), (2,), ("t",), attrs={"units": units})})
        for units in ("1", "none")
    ]
    options = CombineOptions(convert_units=lambda unit, target: (1.0, 0.0))
    done = combine(parts, "t", read=read_slowly, options=options)
    assert done.group is not None
    (drift,) = done.report.of_cause("units")
    assert drift.resolution == "they mean the same; the first file's"
    assert done.group.arrays["v"].dtype == np.dtype("i8")
