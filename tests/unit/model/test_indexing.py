"""Selections, reshapings and joins of virtual arrays against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray
from gridref.model.blocks import MISSING_BLOCK, common_along
from gridref.model.encoding import EdgePolicy
from gridref.model.indexing import getitem, isel
from gridref.model.joining import concatenate, missing_array, recast
from gridref.model.reshaping import broadcast_axis, expand_dims, squeeze, transpose
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly

VALUES = np.arange(23 * 7, dtype=np.int32).reshape(23, 7)


def array(values: Any = VALUES, chunks: Any = (5, 3), **options: Any) -> VirtualArray:
    return chunked_array(
        np.asarray(values), chunks, ("time", "x", "y")[: np.ndim(values)], **options
    )


@pytest.mark.parametrize("edge", list(EdgePolicy))
@pytest.mark.parametrize(
    "key",
    [
        (slice(None), slice(None)),
        (slice(7, 19),),
        (slice(7, 19, 4), slice(1, None, 2)),
        (slice(None, None, -1), slice(5, 1, -3)),
        (slice(22, None), slice(6, None)),
        (slice(4, 4),),
        (3, slice(None)),
        (slice(None), -1),
        (22, 6),
        (Ellipsis, 2),
        ([0, 1, 2, 10, 12, 14, 3, 3, 3, 22],),
        (np.arange(23) % 3 == 0, [6, 0]),
        ([],),
    ],
)
def test_selections_equal_numpy(key: tuple[Any, ...], edge: EdgePolicy) -> None:
    expected = VALUES
    entries = key if Ellipsis not in [k for k in key if k is Ellipsis] else (slice(None), key[1])
    for axis, entry in reversed(list(enumerate(entries))):
        index = np.asarray(entry, np.int64) if isinstance(entry, list) else entry
        expected = expected[(slice(None),) * axis + (index,)]
    result = getitem(array(edge=edge), key)
    assert result.shape == expected.shape
    np.testing.assert_array_equal(read_slowly(result), expected)


@pytest.mark.parametrize(
    "selection", [{"y": 0}, {"time": 23}, {"time": 0.5}, {"time": slice(0, 1, 0)}]
)
def test_bad_selections_are_refused(selection: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        isel(array(), selection)


def test_transpose_composes_and_undoes_itself() -> None:
    values = np.arange(4 * 5 * 6).reshape(4, 5, 6)
    start = array(values, (3, 2, 4))
    turned = transpose(transpose(start, (2, 0, 1)), (1, 0, 2))
    np.testing.assert_array_equal(read_slowly(turned), values.transpose(2, 0, 1).transpose(1, 0, 2))
    back = transpose(turned, np.argsort([0, 2, 1]).tolist())
    assert back.dims == start.dims
    assert back.encodings == start.encodings


@pytest.mark.parametrize("edge", list(EdgePolicy))
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_axes_come_and_go(axis: int, edge: EdgePolicy) -> None:
    turned = transpose(array(edge=edge), (1, 0))
    wide = expand_dims(turned, axis, "member")
    np.testing.assert_array_equal(read_slowly(wide), np.expand_dims(VALUES.T, axis))
    repeated = broadcast_axis(wide, axis, 3)
    np.testing.assert_array_equal(
        read_slowly(repeated), np.repeat(np.expand_dims(VALUES.T, axis), 3, axis)
    )
    back = squeeze(wide, [axis])
    assert back.encodings == turned.encodings
    one = getitem(repeated, (*[slice(None)] * axis, 1))
    np.testing.assert_array_equal(read_slowly(one), VALUES.T)


def test_concatenation_keeps_each_blocks_chunks_order_and_codecs() -> None:
    parts = [
        array(VALUES, (5, 3)),
        array(VALUES[:0], (4, 4)),
        array(VALUES[:4] + 1000, (4, 4), big_endian=True),
        array(VALUES[:9] - 7, (2, 7), compressed=True, edge=EdgePolicy.TRUNCATED),
    ]
    joined = concatenate(parts, 0)
    assert joined.grid.axes[0].edges().tolist() == [23, 4, 9]
    expected = np.concatenate([read_slowly(part) for part in parts])
    np.testing.assert_array_equal(read_slowly(joined), expected)


def test_different_outer_grids_are_cut_to_their_common_refinement() -> None:
    wide = concatenate([array(VALUES[:, :4]), array(VALUES[:, 4:])], 1)
    other = concatenate([array(VALUES[:, :2]), array(VALUES[:, 2:])], 1)
    joined = concatenate([wide, other, array()], 0)
    assert joined.grid.axes[1].edges().tolist() == [2, 2, 3]
    np.testing.assert_array_equal(read_slowly(joined), np.concatenate([VALUES] * 3))
    assert joined.axis_tables is None or joined.n_blocks == 9


def test_concatenation_along_an_inner_axis_orders_blocks() -> None:
    tall = concatenate([array(), array() if False else array(VALUES[:3])], 0)
    side = array(np.concatenate([VALUES, VALUES[:3]]) * 2, (4, 2))
    joined = concatenate([tall, side, tall], 1)
    both = np.concatenate([VALUES, VALUES[:3]])
    np.testing.assert_array_equal(read_slowly(joined), np.concatenate([both, both * 2, both], 1))


def test_dtypes_promote_and_fill_values_stay_each_arrays_own() -> None:
    short = array(VALUES.astype(np.int16), fill_value=np.int16(-5), absent=[0, 3])
    long = array(VALUES, fill_value=np.int32(70_000), absent=[1])
    gap = missing_array((2, 7), np.dtype(np.int32), dims=("time", "x"), fill_value=np.int32(9))
    parts = [short, long, gap]
    joined = concatenate(parts, 0)
    assert joined.dtype == np.int32
    expected = np.concatenate([read_slowly(part) for part in parts])
    np.testing.assert_array_equal(read_slowly(joined), expected)
    again = concatenate([long, joined], 0)
    np.testing.assert_array_equal(read_slowly(again), np.concatenate([read_slowly(long), expected]))


def test_missing_blocks_stay_missing_where_the_fill_value_is_the_same() -> None:
    gap = missing_array((2, 7), np.dtype(np.int32), dims=("time", "x"), fill_value=np.int32(0))
    joined = concatenate([array(), gap], 0)
    assert joined.blocks.encoding.tolist() == [0, MISSING_BLOCK]
    tail = isel(joined, {"time": slice(24, None, -1)})
    np.testing.assert_array_equal(
        read_slowly(tail), np.concatenate([np.zeros((2, 7)), VALUES[::-1]])
    )
    np.testing.assert_array_equal(read_slowly(isel(joined, {"time": 24})), np.zeros(7))
    wide = broadcast_axis(expand_dims(gap, 0, "m"), 0, 4)
    np.testing.assert_array_equal(read_slowly(wide), np.zeros((4, 2, 7)))


def test_arrays_are_stacked_along_an_inserted_axis() -> None:
    parts = [array(VALUES * k, (5 + k, 3)) for k in range(4)]
    for axis in range(3):
        stacked = concatenate([expand_dims(part, axis, "member") for part in parts], axis)
        assert stacked.dims[axis] == "member"
        np.testing.assert_array_equal(
            read_slowly(stacked), np.stack([VALUES * k for k in range(4)], axis)
        )


def test_recast_refuses_a_fill_value_that_the_stored_dtype_lacks() -> None:
    with pytest.raises(InvalidRequestError):
        concatenate([array(), array(VALUES[:, :3])], 0)
    strings = VirtualArray.from_numpy(np.array([b"ab", b"c"]), ("x",))
    wider = recast(strings, np.dtype("S5"), b"")
    assert read_slowly(wider).tolist() == [b"ab", b"c"]


def test_axes_are_counted_from_the_end_too() -> None:
    values = np.arange(4 * 5 * 6).reshape(4, 5, 6)
    turned = transpose(array(values, (3, 2, 4)), (-1, 0, -2))
    assert turned.dims == ("y", "time", "x")
    np.testing.assert_array_equal(read_slowly(turned), values.transpose(2, 0, 1))


@pytest.mark.parametrize("order", [(0, 0), (0,), (0, 2), (0, -3)])
def test_what_permutes_no_axes_is_refused(order: tuple[int, ...]) -> None:
    with pytest.raises(InvalidRequestError, match="does not permute 2 axes"):
        transpose(array(), order)


@pytest.mark.parametrize("row", [0, 4, 5, 19, 20, 22])
@pytest.mark.parametrize("edge", list(EdgePolicy))
def test_one_row_of_every_chunk_can_be_taken(row: int, edge: EdgePolicy) -> None:
    """Chunks cut short at the end of an axis hold fewer elements than the others."""
    both = concatenate([array(edge=edge, compressed=True), array(edge=edge)], 0)
    for shift in (0, 23):
        one = getitem(both, (row + shift,))
        assert one.dims == ("x",)
        np.testing.assert_array_equal(read_slowly(one), VALUES[row])
        np.testing.assert_array_equal(read_slowly(expand_dims(one, 1, "z"))[:, 0], VALUES[row])


def test_what_present_blocks_agree_on() -> None:
    """A block that is missing says nothing, wherever it stands."""
    values = np.array([[9, 1, 1], [2, 2, 9], [3, 9, 3]])
    present = values != 9
    assert common_along(values, present, 0).tolist() == [1, 2, 3]
    assert common_along(values, np.ones((3, 3), bool), 0) is None
    assert common_along(values.T, present.T, 1).tolist() == [1, 2, 3]
