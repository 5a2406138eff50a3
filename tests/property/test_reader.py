"""What the planner and reader return equals plain numpy indexing, at every rank, by every view."""

from __future__ import annotations

from typing import Any

import numpy as np
import zarr
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gridref.adapters.zarr.store import open_store
from gridref.errors import InvalidRequestError
from gridref.io import SourcePool
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import EdgePolicy
from gridref.model.indexing import isel
from gridref.model.joining import concatenate
from gridref.serve.reader import Reader
from gridref.testing.builders import chunked_array

WINDOWS = [slice(None), slice(1, None), slice(None, None, -1), slice(0, -1, 2)]


@st.composite
def arrays(draw: st.DrawFn, max_rank: int = 5) -> tuple[VirtualArray, NDArray[Any]]:
    """A virtual array of one to three files along an axis, cut and flipped, and its values."""
    rank = draw(st.integers(0, max_rank))
    longest = 9 if rank <= 2 else 5 if rank == 3 else 3
    shape = [draw(st.integers(1, longest)) for _ in range(rank)]
    dims = [f"d{axis}" for axis in range(rank)]
    axis = draw(st.integers(0, rank - 1)) if rank else 0
    parts, values = [], []
    for number in range(draw(st.integers(1, 3)) if rank else 1):
        if rank:
            shape[axis] = draw(st.integers(1, longest))
        part = np.arange(np.prod(shape, dtype=int), dtype="i4").reshape(shape) + 10_000 * number
        chunk_shape = [draw(st.integers(1, extent + 2)) for extent in shape]
        edge = draw(st.sampled_from(EdgePolicy))
        counts = [-(-extent // n) for extent, n in zip(shape, chunk_shape, strict=True)]
        absent = draw(st.sets(st.integers(0, int(np.prod(counts, dtype=int)) - 1), max_size=1))
        array = chunked_array(
            part,
            chunk_shape,
            dims,
            edge=edge,
            big_endian=draw(st.booleans()),
            compressed=draw(st.booleans()),
            fill_value=np.int32(-1),
            absent=absent,
        )
        filled = np.array(part)
        for lost in absent:
            coords = np.unravel_index(lost, counts) if counts else ()
            filled[
                tuple(slice(k * n, (k + 1) * n) for k, n in zip(coords, chunk_shape, strict=True))
            ] = -1
        parts.append(array)
        values.append(filled)
    whole = concatenate(parts, axis) if rank else parts[0]
    expected = np.concatenate(values, axis=axis) if rank else values[0]
    if rank and draw(st.booleans()):
        window = tuple(
            draw(
                st.sampled_from(
                    [slice(None), slice(1, None), slice(None, None, -1), slice(0, -1, 2)]
                )
            )
            for _ in range(rank)
        )
        whole, expected = isel(whole, dict(zip(dims, window, strict=True))), expected[window]
    return whole, expected


def entries(extent: int) -> st.SearchStrategy[Any]:
    bound = st.none() | st.integers(-extent - 2, extent + 2)
    slices = st.builds(slice, bound, bound, st.none() | st.integers(-4, 4).filter(bool))
    if not extent:
        return slices
    index = st.integers(-extent, extent - 1)
    several = st.lists(index, max_size=5).map(lambda found: np.array(found, dtype=np.int64))
    return slices | index | several


def by_numpy(values: NDArray[Any], selection: tuple[Any, ...]) -> NDArray[Any]:
    """Orthogonal indexing, one axis after the other."""
    axis = 0
    for entry in selection:
        values = values[(slice(None),) * axis + (entry,)]
        axis += 0 if isinstance(entry, int) else 1
    return values


@given(st.data())
def test_any_selection_at_any_rank(data: st.DataObject) -> None:
    array, expected = data.draw(arrays())
    selection = tuple(data.draw(entries(extent)) for extent in array.shape)
    cache_bytes = data.draw(st.sampled_from([0, 10_000]))
    got = Reader(SourcePool(), cache_bytes=cache_bytes).read(array, selection)
    wanted = by_numpy(expected, selection)
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    assert np.array_equal(got, wanted)


@given(st.data())
def test_every_view_by_zarr_python(data: st.DataObject) -> None:
    array, expected = data.draw(arrays(max_rank=3))
    group = VirtualGroup({"x": array})
    for view in ("auto", "portable"):
        for rectilinear in (False, True):
            with zarr.config.set({"array.rectilinear_chunks": rectilinear}):
                shown = zarr.open_group(open_store(group, view), mode="r")["x"]
                assert np.array_equal(np.asarray(shown[...]), expected)


@given(arrays(), st.integers(1, 4), st.sampled_from(["gzip", "zstd"]))
def test_portable_chunks_of_any_shape(
    case: tuple[VirtualArray, NDArray[Any]], length: int, compressor: str
) -> None:
    array, expected = case
    chunks = dict.fromkeys(array.dims, length)
    store = open_store(VirtualGroup({"x": array}), "portable", chunks=chunks, compressor=compressor)
    shown = zarr.open_group(store, mode="r")["x"]
    assert np.array_equal(np.asarray(shown[...]), expected)


@given(st.data())
def test_bad_selections_are_refused(data: st.DataObject) -> None:
    array, _ = data.draw(arrays())
    reader = Reader(SourcePool())
    for selection in ((0,) * (array.ndim + 1), (..., ...), "x", 10**6):
        try:
            reader.read(array, selection)
        except InvalidRequestError:
            continue
        raise AssertionError(selection)


@given(st.data())
def test_many_tiny_chunks_at_once(data: st.DataObject) -> None:
    """Chunks that are delivered together: enough of them, and uncompressed."""
    shape = data.draw(st.sampled_from([(61,), (40, 7), (9, 8, 3)]))
    values = np.arange(np.prod(shape), dtype="f8").reshape(shape)
    chunk_shape = [data.draw(st.integers(1, 3)) for _ in shape]
    array = chunked_array(
        values,
        chunk_shape,
        [f"d{axis}" for axis in range(len(shape))],
        edge=data.draw(st.sampled_from(EdgePolicy)),
        big_endian=data.draw(st.booleans()),
    )
    selection = tuple(data.draw(entries(extent)) for extent in shape)
    got = Reader(SourcePool()).read(array, selection)
    assert np.array_equal(got, by_numpy(values, selection))
