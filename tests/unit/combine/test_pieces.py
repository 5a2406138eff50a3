"""Pieces of combining against plain arithmetic: cells that nothing fills, keys, no-data."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridref.combine.boxes import Cells
from gridref.combine.columns import source_name, value_keys
from gridref.combine.georeference import read_raster
from gridref.combine.labels import fall
from gridref.combine.rules.dtypes import _common
from gridref.combine.rules.gaps import no_data_of
from gridref.combine.values import Values, content_key
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.joining import concatenate
from gridref.model.scan_report import Fate, Finding, ScanReport
from gridref.testing.builders import chunked_array

SPANS = st.tuples(st.integers(0, 5), st.integers(1, 3)).map(lambda at: (at[0], at[0] + at[1]))


@settings(max_examples=60)
@given(
    st.integers(1, 3).flatmap(lambda n: st.lists(st.tuples(*[SPANS] * n), min_size=1, max_size=4)),
    st.lists(st.integers(0, 2), min_size=4, max_size=4),
)
def test_holes_are_what_no_box_holds(boxes: list[Any], files: list[int]) -> None:
    shape = [9] * len(boxes[0])
    cells = Cells.of(np.array(boxes, np.int64), np.array(files[: len(boxes)]), shape)
    held = np.zeros(shape, int)
    clashes = []
    for number, box in enumerate(boxes):
        part = held[tuple(slice(*span) for span in box)]
        if any(files[owner - 1] != files[number] for owner in part[part > 0].tolist()):
            clashes.append(number)
        part[part == 0] = number + 1
    assert [number for number, _ in cells.clashes] == clashes
    assert all(first < number for number, first in cells.clashes)
    assert all(files[first] != files[number] for number, first in cells.clashes)
    holes = list(cells.holes())
    found = np.zeros(shape, int)
    for hole in holes:
        assert all(start < stop for start, stop in hole)
        found[tuple(slice(*span) for span in hole)] += 1
    np.testing.assert_array_equal(found, held == 0)
    for one, other in itertools.permutations(holes, 2):
        assert one[:-1] != other[:-1] or one[-1][1] != other[-1][0]


SCALARS: list[Any] = [
    np.float32("nan"),
    np.float64("nan"),
    np.float64(0.0),
    np.float64(-0.0),
    np.int16(0),
    np.int32(0),
    0,
    0.0,
    False,
    "a",
    "b",
    np.str_("a"),
    [1, 2],
    [1, 2.0],
    np.array([1, 2]),
    np.array([1, 3]),
    np.array([[1, 2]]),
    np.array(["a"], object),
    np.array(["a", "b"], np.dtypes.StringDType()),
    None,
    b"a",
    np.bytes_(b"b"),
]


@pytest.mark.parametrize("first", range(len(SCALARS)))
def test_keys_are_those_of_equal_values(first: int) -> None:
    one = SCALARS[first]
    assert value_keys([one]) is None
    assert value_keys([one, one, one]) is None
    for second, other in enumerate(SCALARS):
        alike = first == second or {first, second} == {9, 11}  # a string of numpy is one
        for values in ([one, other], [one, one, other], [other, one, one]):
            keys = value_keys(values)
            assert (keys is None) == alike, values
            if keys is not None:
                same = [value is values[0] for value in values]
                assert [key == keys[0] for key in keys] == same


@pytest.mark.parametrize("n", [2, 3])
def test_numbers_that_differ_in_one_place(n: int) -> None:
    for place in range(n):
        values = [np.int32(5)] * n
        values[place] = np.int32(6)
        keys = value_keys(values)
        assert keys is not None
        assert len(set(keys)) == 2


def labelled(code: str, **attrs: Any) -> VirtualArray:
    return chunked_array(np.zeros(3, code), (3,), ("x",), attrs=attrs)


@pytest.mark.parametrize(
    ("code", "attrs", "expected"),
    [
        ("i2", {}, None),
        ("i2", {"_FillValue": np.int16(-9)}, np.int16(-9)),
        ("i2", {"_FillValue": np.array([-9], "i2")}, np.int16(-9)),
        ("i2", {"missing_value": np.int16(7)}, np.int16(7)),
        ("i2", {"missing_value": np.array([7, 8], "i2")}, np.int16(7)),
        ("i2", {"_FillValue": np.int16(1), "missing_value": np.int16(7)}, np.int16(1)),
        ("f4", {"_FillValue": np.float32(1e20)}, np.float32(1e20)),
        ("S3", {}, b""),
        ("?", {}, None),
    ],
    ids=str,
)
def test_what_says_no_data(code: str, attrs: dict[str, Any], expected: Any) -> None:
    found = no_data_of(labelled(code, **attrs))
    assert found == expected
    assert type(found) is type(expected) or code == "S3"


@pytest.mark.parametrize("code", ["f4", "f8"])
def test_floats_say_nan(code: str) -> None:
    found = no_data_of(labelled(code))
    assert np.isnan(found)
    assert found.dtype == code


def inline(values: Any) -> VirtualArray:
    return VirtualArray.from_numpy(np.asarray(values), ["x"])


def test_inline_arrays_share_a_key_where_values_are_equal() -> None:
    key = content_key(inline([1, 2, 3]))
    assert key is not None
    assert key == content_key(inline([1, 2, 3]))
    for other in ([1, 2, 4], [1, 2], [1.0, 2.0, 3.0]):
        assert content_key(inline(other)) not in (None, key)
    assert content_key(concatenate([inline([1]), inline([2])], 0)) is None
    kinds = [chunked_array(np.arange(4), (2,), ("x",), big_endian=big) for big in (False, True)]
    joined = concatenate(kinds, 0)
    assert content_key(joined) is None


def test_the_source_of_a_group_is_that_of_its_report_first() -> None:
    array = chunked_array(np.arange(4), (2,), ("x",))
    findings = [Finding("/a", Fate.TAKEN, "", ""), Finding("/b", Fate.TAKEN, "", "one.nc")]
    report = ScanReport((*findings, Finding("/c", Fate.TAKEN, "", "two.nc")))
    assert source_name(VirtualGroup({"a": array}, report=report)) == "one.nc"
    assert source_name(VirtualGroup()) is None


TRANSFORM = {"GeoTransform": "100 10 0 500 0 -20"}


@pytest.mark.parametrize("before", [(), ("x",), ("y",), ("t",), ("t", "x")])
def test_the_size_of_a_raster_is_that_of_an_array_with_both_axes(before: tuple[str, ...]) -> None:
    arrays = {"crs": VirtualArray.from_numpy(np.array(0), [], attrs=TRANSFORM)}
    sizes = {"t": 2, "y": 3, "x": 4}
    for number, dims in enumerate([before, ("t", "x", "y")]):
        values = np.zeros([sizes[dim] for dim in dims], "u1")
        attrs = {"grid_mapping": "crs"} if len(dims) > 2 else {}
        array = chunked_array(values, values.shape, dims, attrs=attrs)
        arrays[f"v{number}"] = array
    raster: Any = read_raster(VirtualGroup(arrays), "a.tif", "x", "y")
    numbers = (raster.x0, raster.dx, raster.y0, raster.dy, raster.n_rows, raster.n_columns)
    assert numbers == (100, 10, 500, -20, 3, 4)


COMPOUNDS: list[tuple[Any, Any, Any]] = [
    ([("a", "S3"), ("n", "i4")], [("a", "S5"), ("n", "i2")], [("a", "S5"), ("n", "i4")]),
    ([("a", "S3", (2,))], [("a", "S4", (2,))], [("a", "S4", (2,))]),
    ([("a", "S3", (2,))], [("a", "S4", (3,))], None),
    ([("a", "S3")], [("b", "S3")], None),
    ([("a", "S3")], [("a", "i4")], None),
    ([("a", "V3"), ("b", "f4")], [("a", "V3"), ("b", "f8")], [("a", "V3"), ("b", "f8")]),
    ([("a", [("b", "S1")])], [("a", [("b", "S2")])], [("a", [("b", "S2")])]),
    ([("a", "S3")], "S3", None),
]


@pytest.mark.parametrize(("one", "other", "expected"), COMPOUNDS, ids=range(len(COMPOUNDS)))
def test_compounds_are_joined_member_by_member(one: Any, other: Any, expected: Any) -> None:
    dtypes = [np.dtype(one), np.dtype(other)]
    for order in (dtypes, dtypes[::-1]):
        found = _common(order)
        assert found == (None if expected is None else np.dtype(expected))


@pytest.mark.parametrize("step", [(2.0, -3.0), (-0.5, 0.25), (1e-3, 1e3)])
@pytest.mark.parametrize("crs", [{}, {"GeoTransform": "7 1 0 7 0 1"}])
def test_rasters_that_only_labels_place(step: tuple[float, float], crs: dict[str, str]) -> None:
    """Labels are centres of pixels; where a transform says otherwise, they count."""
    labels = [100 + dx * np.arange(n) for dx, n in zip(step, (4, 3), strict=True)]
    arrays = {
        "x": VirtualArray.from_numpy(labels[0], ["x"]),
        "y": VirtualArray.from_numpy(labels[1], ["y"]),
        "v": chunked_array(np.zeros((3, 4), "u1"), (3, 4), ("y", "x")),
        "crs": VirtualArray.from_numpy(np.array(0), [], attrs=crs),
    }
    arrays["v"] = arrays["v"].with_changes(attrs={"grid_mapping": "crs"})
    found: Any = read_raster(VirtualGroup(arrays), "a.nc", "x", "y", Values(None))
    assert found.by_labels
    assert (found.x0, found.dx) == pytest.approx((100 - step[0] / 2, step[0]))
    assert (found.y0, found.dy) == pytest.approx((100 - step[1] / 2, step[1]))
    assert (found.n_rows, found.n_columns) == (3, 4)
    labels[0][1] += step[0] / 2
    arrays["x"] = VirtualArray.from_numpy(labels[0], ["x"])
    uneven: Any = read_raster(VirtualGroup(arrays), "a.nc", "x", "y", Values(None))
    assert uneven.cause == "off-grid"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([[3, 2, 1], [6, 5]], True),
        ([[3, 2, 1], [4]], True),
        ([[3, 2, 1], [4, 5]], False),
        ([[3, 2], [4, 4]], False),
        ([[1], [2]], False),
        ([], False),
        ([[1, 2]], False),
    ],
)
def test_labels_fall_where_those_of_every_file_do(labels: list[list[int]], expected: bool) -> None:
    assert fall([np.array(part) for part in labels]) is expected
