"""How long chunks and shards become: never longer than wanted, and never shorter than need be."""

from __future__ import annotations

import math

import numpy as np
import pytest
import zarr

import gridref
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import EdgePolicy, Encoding, bytes_codec
from gridref.model.grid import GridAxis
from gridref.model.joining import concatenate
from gridref.model.manifest import ChunkManifest, Source
from gridref.serve import views
from gridref.serve.grids import _file_length, block_chunks, native_grid, portable_grid


def cut(shape: tuple[int, ...], chunks: tuple[int, ...], dtype: str = "f4") -> VirtualArray:
    """An array of which nothing is held, of any size."""
    n_chunks = math.prod(-(-n // length) for n, length in zip(shape, chunks, strict=True))
    encoding = Encoding(chunks, np.dtype(dtype), (bytes_codec(np.dtype(dtype)),))
    return VirtualArray.of_one_block(
        shape,
        np.dtype(dtype),
        encoding=encoding,
        manifest=ChunkManifest.missing(n_chunks),
        dims=("t", "y", "x")[-len(shape) :],
    )


@pytest.mark.parametrize("dtype", ["u1", "f4", "f8"])
@pytest.mark.parametrize("most", [1, 400, 800, 801, 4000, 79_999, 80_000, 10**9])
@pytest.mark.parametrize(
    ("shape", "chunks"), [((100, 10, 20), (1, 10, 20)), ((64, 50), (8, 7)), ((999,), (10,))]
)
def test_blocks_for_dask_are_as_large_as_may_be(
    shape: tuple[int, ...], chunks: tuple[int, ...], most: int, dtype: str
) -> None:
    found = block_chunks(cut(shape, chunks, dtype), most)
    assert [sum(lengths) for lengths in found] == list(shape)
    itemsize = np.dtype(dtype).itemsize
    largest = [max(lengths) for lengths in found]
    n_bytes = math.prod(largest) * itemsize
    smallest = all(n <= max(1, unit) for n, unit in zip(largest, chunks, strict=True))
    assert n_bytes <= most or smallest
    if n_bytes < math.prod(shape) * itemsize:
        # One more stored chunk along the axis that was cut last would be too much.
        axis = max(axis for axis, n in enumerate(largest) if n < shape[axis])
        grown = n_bytes // largest[axis] * (largest[axis] + chunks[axis])
        assert grown > most
    for axis, lengths in enumerate(found):
        assert all(n % chunks[axis] == 0 for n in lengths[:-1])


@pytest.mark.parametrize(
    ("edges", "length"),
    [
        ([5, 5, 5], 5),
        ([5, 5, 3], 5),
        ([5, 3], 5),
        ([3, 5], None),
        ([5, 4, 5], None),
        ([4, 5, 5], None),
        ([5, 5, 6], None),
        ([5], None),
        ([1, 1], 1),
    ],
)
def test_files_are_alike_but_for_the_last(edges: list[int], length: int | None) -> None:
    assert _file_length(GridAxis.from_edges(edges)) == length


@pytest.mark.parametrize(
    ("shape", "chunks", "shards"),
    [
        ((10, 100), (1, 100), (4, 100)),
        ((10, 100), (1, 10), (4, 100)),
        ((10, 100), (10, 100), (10, 100)),
        ((10, 100), (1, 99), (2, 198)),
        ((5,), (5,), (5,)),
        ((3, 3), (1, 1), (3, 3)),
    ],
)
def test_shards_grow_from_the_last_axis(
    monkeypatch: pytest.MonkeyPatch,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    shards: tuple[int, ...],
) -> None:
    monkeypatch.setattr(views, "SHARD_BYTES", 1600)
    group = VirtualGroup({"v": cut(shape, chunks)})
    store = gridref.open_store(group, "portable", shards="auto")
    array = zarr.open_group(store, mode="r")["v"]
    assert array.shards == shards


@pytest.mark.parametrize("extent", [0, 1, 2, 9])
@pytest.mark.parametrize("asked", [1, 2, 3, 100])
def test_lengths_that_were_asked_for(extent: int, asked: int) -> None:
    grid = portable_grid(cut((extent,), (4,)), {"x": asked}, rectilinear=False, grow=False)
    assert grid.axes[0].uniform_length == max(1, min(asked, extent))


@pytest.mark.parametrize("first", [4, 6, 7, 8])
def test_files_whose_last_chunks_are_cut(first: int) -> None:
    """Chunks of 4 elements: the last of a file has what is left, so that the grid is uneven."""
    parts = []
    for n in (first, 5):
        dtype = np.dtype("u1")
        encoding = Encoding((4,), dtype, (bytes_codec(dtype),), EdgePolicy.TRUNCATED)
        sizes = [min(4, n - start) for start in range(0, n, 4)]
        manifest = ChunkManifest.from_columns(
            [Source("/nowhere")],
            offset=np.cumsum([0, *sizes[:-1]]),
            length=np.array(sizes),
        )
        parts.append(
            VirtualArray.of_one_block(
                (n,), dtype, encoding=encoding, manifest=manifest, dims=("x",)
            )
        )
    whole = concatenate(parts, 0)
    edges = native_grid(whole, whole.encodings[0]).axes[0].edges().tolist()
    assert edges == [min(4, first - start) for start in range(0, first, 4)] + [4, 1]
