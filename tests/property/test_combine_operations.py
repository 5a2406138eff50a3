"""Random chains of operations on virtual arrays equal the same chains on numpy arrays.

Arrays in memory, and arrays of catalogs that were written and opened again before every operation.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import fsspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gridref.api.readable import reader_for
from gridref.catalog import open_catalog
from gridref.catalog.commit import write_catalog
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import EdgePolicy
from gridref.model.indexing import flip, getitem, pruned, split_blocks
from gridref.model.joining import compacted, concatenate, recast
from gridref.model.reshaping import broadcast_axis, expand_dims, squeeze, transpose
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly

DTYPES = ["i2", "i4", "f4", "f8", "u1"]
MAX_ELEMENTS = 3000
READER = reader_for()


def in_memory(array: VirtualArray) -> VirtualArray:
    return array


def opened(array: VirtualArray) -> VirtualArray:
    """The array of a catalog that holds nothing else: its rows are not read yet."""
    url = f"memory://operations/{uuid.uuid4().hex}"
    write_catalog(VirtualGroup({"x": array}), url)
    return open_catalog(url).arrays["x"]


KEPT = st.sampled_from([in_memory, opened])


@pytest.fixture
def catalogs() -> Iterator[None]:
    yield
    filesystem = fsspec.filesystem("memory")
    if filesystem.exists("/operations"):
        filesystem.rm("/operations", recursive=True)


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
    kinds = ["index", "flip", "expand", "transpose", "concat", "broadcast", "stack", "same"]
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
        other = draw(KEPT)(other)
        both = [array, other] if draw(st.booleans()) else [other, array]
        joined = [values, more] if both[0] is array else [more, values]
        dims = both[0].dims
        return concatenate([item.with_changes(dims=dims) for item in both], axis), np.concatenate(
            joined, axis
        )
    if kind == "stack" and ndim < 4 and values.size < MAX_ELEMENTS:
        axis = draw(st.integers(0, ndim))
        name = f"new{draw(st.uuids(version=4)).hex[:8]}"
        both = [expand_dims(array, axis, name)] * 2
        return concatenate(both, axis), np.stack([values, values], axis)
    if kind == "flip" and ndim:
        axis = draw(st.integers(0, ndim - 1))
        return flip(array, axis), np.flip(values, axis)
    if kind == "same":
        return draw(ways_to_change_nothing(array)), values
    key = [draw(entries(extent)) for extent in values.shape]
    return getitem(array, tuple(key)), numpy_orthogonal(values, key)


@st.composite
def ways_to_change_nothing(draw: st.DrawFn, array: VirtualArray) -> VirtualArray:
    """Operations that lay blocks and manifests otherwise, and leave values and fill as they are."""
    if array.ndim and draw(st.booleans()):
        axis = draw(st.integers(0, array.ndim - 1))
        return split_blocks(array, axis, np.array(draw(st.lists(st.integers(-1, 8))), np.int64))
    other_fill = array.dtype.type(77)
    there_and_back = recast(recast(array, array.dtype, other_fill), array.dtype, array.fill_value)
    return draw(st.sampled_from([compacted(array), pruned(array), there_and_back]))


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.usefixtures("catalogs")
def test_chains_of_operations_equal_numpy(data: st.DataObject) -> None:
    """Each operation is on an array in memory, or on one of a catalog."""
    array, values = data.draw(pairs())
    for _ in range(data.draw(st.integers(1, 5))):
        array, values = data.draw(steps(data.draw(KEPT)(array), values))
        assert array.shape == values.shape
        assert array.dtype == values.dtype
    np.testing.assert_array_equal(read_slowly(array), values)
    np.testing.assert_array_equal(READER.read(array), values)
