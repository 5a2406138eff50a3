"""Invariants: what must be equal in two virtual arrays or groups with the same meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.encoding import Encoding
from gridref.model.manifest import ChunkManifest, ChunkState

__all__ = ["assert_same_array", "assert_same_group", "assert_same_value", "select"]


def select(values: NDArray[Any], selection: tuple[Any, ...]) -> NDArray[Any]:
    """Select from a numpy array as gridref does: orthogonally, one axis after the other.

    Parameters
    ----------
    values
        The elements.
    selection
        One entry for each axis: a slice, an integer, which drops the axis, several, or a mask.
    """
    axis = 0
    for index in selection:
        values = values[(slice(None),) * axis + (index,)]
        axis += 0 if isinstance(index, int) else 1
    return values


def assert_same_group(got: VirtualGroup, expected: VirtualGroup) -> None:
    """Two groups are the same: arrays and groups, their order, and attributes with their types.

    Raises
    ------
    AssertionError
        If they differ.
    """
    assert_same_value(dict(got.attrs), dict(expected.attrs))
    assert list(got.arrays) == list(expected.arrays)
    assert list(got.groups) == list(expected.groups)
    for name, array in expected.arrays.items():
        assert_same_array(got.arrays[name], array)
    for name, group in expected.groups.items():
        assert_same_group(got.groups[name], group)


def assert_same_array(got: VirtualArray, expected: VirtualArray) -> None:
    """Two arrays are the same, whatever manifests the rows of their chunks stand in.

    Raises
    ------
    AssertionError
        If they differ in grid, dtype, names, attributes, fill value, encodings or blocks, or if a
        block touches other chunks.
    """
    assert got.grid == expected.grid
    assert got.dtype == expected.dtype
    assert got.dims == expected.dims
    assert got.enumeration == expected.enumeration
    assert_same_value(dict(got.attrs), dict(expected.attrs))
    if expected.dtype.kind == "T":
        assert got.fill_value == expected.fill_value
    else:
        fills = [np.asarray(array.fill_value, array.dtype) for array in (got, expected)]
        assert _bits(fills[0]) == _bits(fills[1])
    _assert_same_encodings(got.encodings, expected.encodings)
    for name in ("encoding", "row_stride", "stored_shape", "origin", "step"):
        column = getattr(got.blocks, name)
        assert column.dtype == getattr(expected.blocks, name).dtype
        assert np.array_equal(column, getattr(expected.blocks, name)), name
    shapes = map(expected.grid.data_shape, np.ndindex(*expected.grid.grid_shape))
    for block, shape in enumerate(shapes):
        if expected.blocks.encoding[block] != MISSING_BLOCK:
            _assert_same_rows(*(_rows_of(array, block, shape) for array in (got, expected)))


def _bits(values: NDArray[Any]) -> list[bytes]:
    """What elements consist of, without the gaps between members of compounds."""
    if values.dtype.names is None:
        return [values.tobytes()]
    return [part for name in values.dtype.names for part in _bits(values[name])]


def _assert_same_encodings(got: tuple[Encoding, ...], expected: tuple[Encoding, ...]) -> None:
    for one, other in zip(got, expected, strict=True):
        for name in ("chunk_shape", "dtype", "codecs", "edge", "prefix", "fill"):
            assert getattr(one, name) == getattr(other, name)
        assert_same_value(
            None if one.unpacking is None else vars(one.unpacking),
            None if other.unpacking is None else vars(other.unpacking),
        )


def _rows_of(array: VirtualArray, block: int, shape: tuple[int, ...]) -> ChunkManifest:
    """The chunk references that a block's window touches, in C order."""
    table = array.blocks
    chunk_shape = np.array(array.encodings[table.encoding[block]].chunk_shape, np.int64)
    last = table.origin[block] + table.step[block] * (np.array(shape, np.int64) - 1)
    low = np.minimum(table.origin[block], last) // chunk_shape
    high = np.maximum(table.origin[block], last) // chunk_shape
    coords = [low + np.array(k, np.int64) for k in np.ndindex(*(high - low + 1).tolist())]
    rows = [int(table.first_row[block] + k @ table.row_stride[block]) for k in coords]
    taken: ChunkManifest = array.manifests[table.manifest[block]].take(np.array(rows, np.int64))
    return taken


def _assert_same_rows(got: ChunkManifest, expected: ChunkManifest) -> None:
    assert np.array_equal(got.state, expected.state)
    for row, state in enumerate(expected.state.tolist()):
        if state == ChunkState.MISSING:
            continue
        assert got.length[row] == expected.length[row]
        assert _mask_of(got, row) == _mask_of(expected, row)
        if state == ChunkState.INLINE:
            assert got.inline_bytes(row) == expected.inline_bytes(row)
        else:
            assert got.offset[row] == expected.offset[row]
            assert got.sources[got.source[row]] == expected.sources[expected.source[row]]


def _mask_of(manifest: ChunkManifest, row: int) -> int:
    return 0 if manifest.filter_mask is None else int(manifest.filter_mask[row])


def assert_same_value(got: Any, expected: Any) -> None:
    """Two attributes are the same in type, dtype, shape and bits.

    Raises
    ------
    AssertionError
        If they differ.
    """
    assert type(got) is type(expected)
    if isinstance(expected, np.ndarray | np.generic):
        assert got.dtype == expected.dtype
        assert got.shape == expected.shape
        assert got.tolist() == expected.tolist() or got.tobytes() == expected.tobytes()
    elif isinstance(expected, Mapping):
        assert list(got) == list(expected)
        for name in expected:
            assert_same_value(got[name], expected[name])
    elif isinstance(expected, list | tuple):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_same_value(one, other)
    else:
        assert repr(got) == repr(expected)
