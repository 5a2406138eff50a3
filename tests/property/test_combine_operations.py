"""Random chains of operations on virtual arrays equal the same chains on numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gridref.model.array import VirtualArray
from gridref.model.encoding import EdgePolicy
from gridref.model.indexing import getitem
from gridref.model.joining import concatenate, stack
from gridref.model.reshaping import broadcast_axis, expand_dims, squeeze, transpose
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly
from gridref.workflows.opening import reader_for

DTYPES = ["i2", "i4", "f4", "f8", "u1"]
MAX_ELEMENTS = 3000
READER = reader_for()


@st.composite
def pairs(draw: st.DrawFn, shape: tuple[int, ...] | None = None, dtype: str | None = None) -> Any:
    """A virtual array of one block, and its values."""
    if shape is None:
        shape = tuple(draw(st.lists(st.integers(0, 7), min_size=1, max_size=3)))
    chosen = np.dtype(dtype or draw(st.sampled_from(DTYPES)))
    size = int(np.prod(shape))
    start = draw(st.integers(0, 50))
    values = (np.arange(start, start + size) % 120).astype(chosen).reshape(shape)
    chunks = [draw(st.integers(1, 5)) for _ in shape]
    fill = draw(st.integers(0, 9))
    n_chunks = int(np.prod([-(-n // c) for n, c in zip(shape, chunks, strict=True)]))
    absent = draw(st.sets(st.integers(0, max(0, n_chunks - 1)), max_size=2)) if n_chunks else set()
    array = chunked_array(
        values,
        chunks,
        [f"d{axis}" for axis in range(len(shape))],
        edge=draw(st.sampled_from(EdgePolicy)),
        big_endian=draw(st.booleans()),
        compressed=draw(st.booleans()),
        fill_value=chosen.type(fill),
        absent=absent,
    )
    return array, read_slowly(array)


def entries(extent: int) -> st.SearchStrategy[Any]:
    options = [st.slices(extent), st.lists(st.integers(0, extent - 1), max_size=6)]
    if extent == 0:
        return st.just(slice(None))
    return st.one_of(*options, st.integers(-extent, extent - 1))


def numpy_orthogonal(values: np.ndarray, key: list[Any]) -> np.ndarray:
    for axis in range(len(key) - 1, -1, -1):
        entry = key[axis]
        index = np.asarray(entry, np.int64) if isinstance(entry, list) else entry
        values = values[(slice(None),) * axis + (index,)]
    return values


@st.composite
def steps(draw: st.DrawFn, array: VirtualArray, values: np.ndarray) -> Any:
    """One more operation on both."""
    kinds = ["index", "expand", "transpose", "concat", "broadcast", "stack"]
    kind = draw(st.sampled_from(kinds))
    ndim = values.ndim
    if kind == "expand" and ndim < 4:
        axis = draw(st.integers(0, ndim))
        name = f"new{draw(st.uuids(version=4)).hex[:8]}"
        return expand_dims(array, axis, name), np.expand_dims(values, axis)
    if kind == "transpose":
        order = draw(st.permutations(range(ndim)))
        return transpose(array, order), values.transpose(order)
    if kind == "broadcast" and 1 in values.shape:
        axis = values.shape.index(1)
        if draw(st.booleans()):
            return squeeze(array, [axis]), values.squeeze(axis)
        n = draw(st.integers(1, 3))
        return broadcast_axis(array, axis, n), np.repeat(values, n, axis)
    if kind == "concat" and ndim and values.size < MAX_ELEMENTS:
        axis = draw(st.integers(0, ndim - 1))
        shape = list(values.shape)
        shape[axis] = draw(st.integers(0, 4))
        other, more = draw(pairs(tuple(shape)))
        both = [array, other] if draw(st.booleans()) else [other, array]
        joined = [values, more] if both[0] is array else [more, values]
        dims = both[0].dims
        return concatenate([item.replace(dims=dims) for item in both], axis), np.concatenate(
            joined, axis
        )
    if kind == "stack" and ndim < 4 and values.size < MAX_ELEMENTS:
        axis = draw(st.integers(0, ndim))
        name = f"new{draw(st.uuids(version=4)).hex[:8]}"
        return stack([array, array], axis, name), np.stack([values, values], axis)
    key = [draw(entries(extent)) for extent in values.shape]
    return getitem(array, tuple(key)), numpy_orthogonal(values, key)


@given(st.data())
def test_chains_of_operations_equal_numpy(data: st.DataObject) -> None:
    array, values = data.draw(pairs())
    for _ in range(data.draw(st.integers(1, 5))):
        array, values = data.draw(steps(array, values))
        assert array.shape == values.shape
        assert array.dtype == values.dtype
    np.testing.assert_array_equal(read_slowly(array), values)
    np.testing.assert_array_equal(READER.read(array), values)
