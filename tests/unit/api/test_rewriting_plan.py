"""How an array is cut into units: as few decodes as the memory allows."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from gridref.api.rewriting.plan import (
    CODECS,
    Resources,
    plan_rewrite,
    shard_shape_for,
    view_to_write,
)
from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray
from gridref.model.encoding import Encoding, bytes_codec
from gridref.model.grid import ChunkGrid
from gridref.model.joining import concatenate
from gridref.model.manifest import ChunkManifest
from gridref.testing.builders import chunked_array

MB = 10**6


def unread(shape, chunk_shape):
    """An array of float32 whose chunks are nowhere: a plan reads none."""
    dtype = np.dtype("f4")
    n_chunks = math.prod(-(-n // k) for n, k in zip(shape, chunk_shape, strict=True))
    dims = "tyx"[: len(shape)]
    encoding = Encoding(chunk_shape, dtype, (bytes_codec(dtype),))
    manifest = ChunkManifest.missing(n_chunks)
    return VirtualArray.of_one_block(shape, dtype, encoding=encoding, manifest=manifest, dims=dims)


def planned(array, chunk_shape, shard_shape=None, memory=1000 * MB, **others):
    view = view_to_write(array, ChunkGrid.regular(array.shape, chunk_shape), shard_shape, "zstd")
    return plan_rewrite(view, Resources(memory, **others))


def counted(plan):
    """How often units touch stored chunks, counted one by one."""
    n_decoded = 0
    for unit in plan.units():
        touched = [
            {k // length for k in range(part.start, part.stop)}
            for part, length in zip(
                unit.region, plan.view.array.encodings[0].chunk_shape, strict=True
            )
        ]
        n_decoded += math.prod(map(len, touched))
    return n_decoded


@pytest.mark.parametrize(
    ("stored", "chunks", "shards"),
    [
        ((1, 60, 80), (40, 7, 5), (40, 14, 20)),
        ((3, 20, 80), (1, 60, 80), None),
        ((7, 11, 13), (4, 5, 6), (8, 10, 12)),
        ((40, 1, 80), (9, 9, 9), (18, 18, 18)),
    ],
)
@pytest.mark.parametrize("most_bytes", [10_000, 100_000, 10**6])
def test_units_cover_the_array_once_and_decodes_are_counted(stored, chunks, shards, most_bytes):
    array = unread((40, 60, 80), stored)
    needed = 2 * (17 * MB + 4 * math.prod(stored)) + 8 * math.prod(shards or chunks)
    plan = planned(array, chunks, shards, 200 * MB + needed + 2 * most_bytes, n_threads=1)
    seen = np.zeros(array.shape, int)
    objects = []
    for unit in plan.units():
        seen[unit.region] += 1
        objects += unit.objects()
        assert seen[unit.region].nbytes // 2 <= plan.unit_bytes
    assert (seen == 1).all()
    assert sorted(objects) == list(np.ndindex(*plan.view.metadata.grid.grid_shape))
    assert plan.n_units == len(list(plan.units()))
    assert plan.n_decoded == counted(plan)
    assert plan.n_stored == math.prod(-(-n // k) for n, k in zip(array.shape, stored, strict=True))


def test_maps_become_series_with_as_few_decodes_as_any_other_unit_needs():
    array = unread((1000, 100, 200), (1, 100, 200))
    least = planned(array, (1000, 10, 10), (1000, 10, 20), n_threads=1)
    assert least.n_decoded == least.n_stored == 1000
    # With less memory, brute force over all units of whole shards finds nothing better.
    for memory in (245, 250, 260, 280, 300):
        plan = planned(array, (1000, 10, 10), (1000, 10, 20), memory * MB, n_threads=1)
        assert plan.peak_bytes <= memory * MB
        most = (memory * MB - (plan.peak_bytes - 2 * plan.unit_bytes)) // 2
        fewest = min(
            1000 * math.ceil(10 / rows) * math.ceil(10 / columns)
            for rows, columns in itertools.product(range(1, 11), repeat=2)
            if 1000 * 10 * rows * 20 * columns * 4 <= most
        )
        assert fewest <= plan.n_decoded == counted(plan) <= 1.6 * fewest


def test_too_little_memory_names_the_least():
    array = unread((1000, 100, 200), (1, 100, 200))
    with pytest.raises(InvalidRequestError, match="memory='210MB' is too little") as caught:
        planned(array, (1000, 100, 200), (1000, 100, 200), 210 * MB)
    least = int(str(caught.value).split("takes ")[1].split("MB")[0])
    plan = planned(array, (1000, 100, 200), (1000, 100, 200), least * MB)
    assert plan.peak_bytes <= least * MB
    with pytest.raises(InvalidRequestError):
        planned(array, (1000, 100, 200), (1000, 100, 200), (least - 1) * MB)


@pytest.mark.parametrize("memory", [240, 300, 500, 1000, 4000])
@pytest.mark.parametrize("n_threads", [1, 2, 16])
@pytest.mark.parametrize("is_streamed", [True, False])
def test_the_peak_is_below_the_memory(memory, n_threads, is_streamed):
    array = unread((1000, 200, 200), (10, 200, 200))
    plan = planned(
        array,
        (100, 20, 20),
        (100, 20, 40),
        memory * MB,
        n_threads=n_threads,
        n_requests=64,
        is_streamed=is_streamed,
    )
    assert plan.peak_bytes <= memory * MB
    assert 1 <= plan.n_threads <= n_threads
    assert plan.n_threads <= plan.n_requests <= 64


def test_uneven_chunks_are_grouped():
    blocks = [unread((length, 50), (length, 50)) for length in (31, 28, 31, 30)]
    array = concatenate(blocks, 0)
    grid = ChunkGrid.from_edges([[31, 28, 31, 30], [50]])
    plan = plan_rewrite(view_to_write(array, grid, None, "none"), Resources(1000 * MB))
    assert plan.n_decoded == plan.n_stored == 4
    assert sorted(c for unit in plan.units() for c in unit.objects()) == [(k, 0) for k in range(4)]


def test_scalars_and_empty_arrays():
    scalar = chunked_array(np.array(3.0), (), ())
    (unit,) = plan_rewrite(
        view_to_write(scalar, ChunkGrid(()), None, "blosc"), Resources(500 * MB)
    ).units()
    assert list(unit.objects()) == [()]
    empty = planned(unread((0, 5), (1, 5)), (2, 2))
    assert (empty.n_units, list(empty.units()), empty.n_decoded) == (0, [], 0)


def test_shards_grow_along_the_last_axes():
    chunks = ChunkGrid.regular((10_000, 2000, 4000), (10_000, 20, 20))
    assert shard_shape_for(chunks, 4, 640 * MB) == (10_000, 20, 800)
    assert shard_shape_for(chunks, 4, MB) == (10_000, 20, 20)
    small = ChunkGrid.regular((10, 10), (1, 1))
    assert shard_shape_for(small, 8) == (10, 10)
    assert shard_shape_for(ChunkGrid.regular((10**6, 10**6), (1, 1)), 1) == (1, 16130)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("dtype", ["i1", "f8", "c16", "S3", "U2", "M8[s]", "V5"])
def test_codecs_fit_the_dtype(codec, dtype):
    array = chunked_array(np.zeros(4, dtype), (2,), ("x",))
    view = view_to_write(array, ChunkGrid.regular((4,), (2,)), None, codec)
    for each in view.metadata.codecs[1:]:
        size = each.configuration.get("typesize", each.configuration.get("elementsize", 1))
        assert np.dtype(dtype).itemsize % size == 0
