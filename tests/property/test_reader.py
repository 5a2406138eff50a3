"""What the planner and reader return equals plain numpy indexing, at every rank, by every view."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError
from gridref.faces.zarr.store import open_store
from gridref.io import SourcePool
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import EdgePolicy
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from gridref.serve.reader import Reader
from gridref.testing.builders import chunked_array
from gridref.testing.invariants import select
from gridref.testing.strategies import arrays_with_values, selections
from tests.work import FEWER


@given(st.data())
def test_any_selection_at_any_rank(data: st.DataObject) -> None:
    array, expected = data.draw(arrays_with_values())
    selection = tuple(data.draw(selections(extent)) for extent in array.shape)
    cache_bytes = data.draw(st.sampled_from([0, 10_000]))
    got = Reader(SourcePool(), cache_bytes=cache_bytes).read(array, selection)
    wanted = select(expected, selection)
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    assert np.array_equal(got, wanted)


@FEWER
@given(st.data())
def test_any_selection_of_chunks_in_files(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Chunks of which parts are read, and that are read in place, however small."""
    array, expected = data.draw(arrays_with_values())
    parts = (st.just(slice(None)) | selections(extent) for extent in array.shape)
    selection = tuple(map(data.draw, parts))
    path = tmp_path_factory.mktemp("chunks") / "chunks"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gridref.serve.reader.LEAST_BYTES", 1)
        patch.setattr("gridref.serve.plan.RUN_BYTES", data.draw(st.sampled_from([0, 16])))
        got = Reader(SourcePool()).read(_in_a_file(array, path), selection)
    assert np.array_equal(got, select(expected, selection))


@given(st.data())
def test_any_points(data: st.DataObject) -> None:
    array, expected = data.draw(
        arrays_with_values(min_rank=1).filter(lambda case: case[0].size > 0)
    )
    n_points = data.draw(st.integers(0, 7))
    coords = tuple(
        np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=n_points, max_size=n_points)))
        for n in array.shape
    )
    got = Reader(SourcePool()).read_points(array, coords)
    assert np.array_equal(got, expected[tuple(along.astype(int) for along in coords)])
    for axis, n in enumerate(array.shape):
        for outside in (-1, n):
            wrong = [np.zeros(1, int)] * array.ndim
            wrong[axis] = np.array([outside])
            with pytest.raises(InvalidRequestError, match="out of bounds"):
                Reader(SourcePool()).read_points(array, wrong)


def _in_a_file(array: VirtualArray, path: Path) -> VirtualArray:
    """The same array, its inline chunks as ranges of a file."""
    manifests, payload = [], b""
    for manifest in array.manifests:
        rows = manifest.take(np.arange(manifest.n_rows))
        inline = rows.state == ChunkState.INLINE
        manifests.append(
            ChunkManifest.from_columns(
                [Source(str(path))],
                offset=rows.offset + len(payload),
                length=rows.length,
                state=np.where(inline, ChunkState.RANGE, rows.state),
            )
        )
        payload += rows.inline
    path.write_bytes(payload + b"behind")
    return array.with_changes(manifests=tuple(manifests))


@FEWER
@given(st.data())
def test_every_view_by_zarr_python(data: st.DataObject) -> None:
    array, expected = data.draw(arrays_with_values(max_rank=3))
    group = VirtualGroup({"x": array})
    for view in ("auto", "portable"):
        for rectilinear in (False, True):
            with zarr.config.set({"array.rectilinear_chunks": rectilinear}):
                shown = zarr.open_group(open_store(group, view), mode="r")["x"]
                assert np.array_equal(np.asarray(shown[...]), expected)


@FEWER
@given(arrays_with_values(), st.integers(1, 4), st.sampled_from(["gzip", "zstd"]))
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
    array, _ = data.draw(arrays_with_values())
    reader = Reader(SourcePool())
    for selection in ((0,) * (array.ndim + 1), (..., ...), "x", 10**6):
        try:
            reader.read(array, selection)
        except InvalidRequestError:
            continue
        raise AssertionError(selection)


@FEWER
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
    selection = tuple(data.draw(selections(extent)) for extent in shape)
    got = Reader(SourcePool()).read(array, selection)
    assert np.array_equal(got, select(values, selection))
