"""Sizes 0 and 1, nothing held, and what comes up only at edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gridref.errors import InvalidRequestError, NotRepresentableError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.grid import GridAxis
from gridref.model.indexing import getitem, split_blocks
from gridref.model.joining import concatenate, lay_out
from gridref.model.projection import Progression, project_slice
from gridref.model.scan_report import ScanReport
from gridref.model.zarr_metadata import data_type_to_json, is_struct
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly

CUBE = np.arange(2 * 3 * 4, dtype="i4").reshape(2, 3, 4)


def cube(values: np.ndarray = CUBE) -> VirtualArray:
    return chunked_array(values, (1, 2, 3)[: values.ndim], ("t", "y", "x")[: values.ndim])


KEYS: list[Any] = [
    np.s_[...],
    np.s_[..., 1:],
    np.s_[1:, ...],
    np.s_[..., 0:0],
    np.s_[0:1, ..., ::-1],
    np.s_[1:, ..., 1:, 2:],
    np.s_[:, :, :, ...],
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_dots_stand_for_as_many_axes_as_are_left(key: Any) -> None:
    np.testing.assert_array_equal(read_slowly(getitem(cube(), key)), CUBE[key])


@pytest.mark.parametrize("shape", [(0,), (1,), (0, 3), (3, 0), (1, 1), (0, 0), ()])
def test_arrays_of_nothing_and_of_one(shape: tuple[int, ...]) -> None:
    values = np.ones(shape, "i2")
    array = cube(values)
    assert read_slowly(array).shape == shape
    assert array.size == values.size
    np.testing.assert_array_equal(read_slowly(lay_out([array], [[0] * len(shape)], shape)), values)
    for axis in range(len(shape)):
        joined = concatenate([array, array], axis)
        np.testing.assert_array_equal(read_slowly(joined), np.concatenate([values] * 2, axis))
        flipped = getitem(array, (slice(None),) * axis + (slice(None, None, -1),))
        np.testing.assert_array_equal(read_slowly(flipped), np.flip(values, axis))


@pytest.mark.parametrize("selection", [Progression(-1, 1, 2), Progression(9, 1, 2)])
def test_elements_outside_of_an_axis(selection: Progression) -> None:
    with pytest.raises(InvalidRequestError, match="of an axis of 10"):
        project_slice(GridAxis.uniform(10, 2), selection)


def test_cuts_where_a_block_begins_or_the_array_ends_change_nothing() -> None:
    array = concatenate([cube(), cube()], 0)
    assert split_blocks(array, 0, np.array([0, 2, 4])) is array
    assert split_blocks(array, 0, np.array([1, 2])).grid.axes[0].edges().tolist() == [1, 1, 2]


def test_a_structure_of_nothing_has_no_data_type() -> None:
    assert not is_struct(np.dtype([]))
    with pytest.raises(NotRepresentableError):
        data_type_to_json(np.dtype([]))
    assert is_struct(np.dtype([("a", "u1")]))


@pytest.mark.parametrize(
    ("lengths", "counts", "message"),
    [([2, 2], [3, -1], "run count must be >= 0, got -1"), ([2, 0], [1, 1], "got 0"),
     ([2], [1, 1], "differ in number")],
)  # fmt: skip
def test_runs_that_are_none(lengths: list[int], counts: list[int], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        GridAxis.from_runs(lengths, counts)


def test_arrays_made_in_memory_know_of_nothing_to_read_with() -> None:
    with pytest.raises(InvalidRequestError, match="made in memory"):
        cube().isel(t=0)


def test_a_report_of_nothing_is_empty() -> None:
    report = ScanReport(())
    assert list(report.findings) == []
    assert VirtualGroup({"a": cube()}).report.findings == ()
