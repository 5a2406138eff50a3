"""Write coarser levels of an array as Zarr v3 arrays with shards, all of them in one pass.

The array is divided into *tiles*: boxes of whole windows of the coarsest level. A shard of each
level is made of one tile, so a tile that is in memory gives one object of every level, and what one
run has written of a tile, the next one keeps.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from numpy.typing import NDArray

from gridref.api.rewriting.coarsening import Coarsening
from gridref.api.rewriting.plan import (
    Resources,
    RewritePlan,
    Unit,
    plan_rewrite,
    view_to_write,
)
from gridref.api.rewriting.writer import ObjectWriter, Rewritten, Sink, written_array
from gridref.io.ahead import DaemonThreads, map_ahead
from gridref.model.array import VirtualArray
from gridref.model.encoding import Encoding, bytes_codec
from gridref.model.grid import ChunkGrid
from gridref.model.manifest import ChunkManifest
from gridref.model.overlay import level_shape
from gridref.serve.reader import Reader
from gridref.serve.views import ArrayView

# How levels are laid out

_TILE_ELEMENTS = 2**24
"""Elements of a tile: 4096 by 4096 of an image."""
_TILE_BYTES = 2**26
"""Size up to which tiles of long elements grow."""
_CHUNK_ELEMENTS = 2**18
"""Elements of a chunk: 512 by 512 of an image; several images of a series if they are small."""


def tile_shape(
    shape: Sequence[int], item_bytes: int, factors: Sequence[int], n_levels: int
) -> tuple[int, ...]:
    """Elements of the array that one shard of each level is made of.

    Whole windows of the coarsest level along the axes that get coarser, and a power of two of them;
    along the others as many elements as fit.
    """
    coarse = [axis for axis, factor in enumerate(factors) if factor > 1]
    most = min(_TILE_ELEMENTS, _TILE_BYTES // item_bytes)
    side = most ** (1 / len(coarse))
    lengths = [1] * len(shape)
    for axis in coarse:
        window = factors[axis] ** n_levels
        n_windows = min(side // window, -(-shape[axis] // window))
        lengths[axis] = window << max(0, math.ceil(math.log2(max(1, n_windows))))
        if lengths[axis] > side and lengths[axis] > window:
            lengths[axis] //= 2
    return _filled(lengths, shape, coarse, most)


def _filled(
    lengths: list[int], shape: Sequence[int], coarse: Sequence[int], most_elements: int
) -> tuple[int, ...]:
    """Lengths doubled along the axes that stay as they are, the last ones first, up to a size."""
    for axis in reversed([axis for axis in range(len(lengths)) if axis not in coarse]):
        while lengths[axis] < shape[axis] and 2 * _inside(lengths, shape) <= most_elements:
            lengths[axis] *= 2
    return tuple(lengths)


def _inside(lengths: Sequence[int], shape: Sequence[int]) -> int:
    return math.prod(map(min, lengths, shape))


def chunk_shape(
    shard: Sequence[int], shape: Sequence[int], factors: Sequence[int]
) -> tuple[int, ...]:
    """Chunks of a shard of a level: about square along the axes that get coarser.

    Along the others they are one element long, or more where that makes small chunks. All lengths
    divide those of the shard.
    """
    coarse = [axis for axis, factor in enumerate(factors) if factor > 1]
    side = max(1, round(_CHUNK_ELEMENTS ** (1 / len(coarse))))
    lengths = [1] * len(shard)
    for axis in coarse:
        most = min(side, shard[axis])
        lengths[axis] = next(n for n in range(most, 0, -1) if shard[axis] % n == 0)
    extents = [min(n, extent) for n, extent in zip(shard, shape, strict=True)]
    return _filled(lengths, extents, coarse, _CHUNK_ELEMENTS)


@dataclass(frozen=True, eq=False)
class LevelsPlan:
    """How the levels of an array are written.

    Attributes
    ----------
    coarsening
        How they are made.
    views
        The Zarr array of each level, the finest first.
    tiles
        How the array is read: the objects of this rewrite are the tiles.
    """

    coarsening: Coarsening
    views: tuple[ArrayView, ...]
    tiles: RewritePlan


def plan_levels(
    array: VirtualArray, coarsening: Coarsening, codec: str, resources: Resources
) -> LevelsPlan:
    """Plan how levels of an array are written with few decodes.

    Raises
    ------
    InvalidRequestError
        If the memory is too little for one tile.
    NotRepresentableError
        If Zarr has no data type for the elements.
    """
    factors = coarsening.factors
    tile = tile_shape(array.shape, array.dtype.itemsize, factors, coarsening.n_levels)
    views = []
    for level in range(1, coarsening.n_levels + 1):
        windows = coarsening.windows(level)
        shape = level_shape(array.shape, windows)
        shard = tuple(n // window for n, window in zip(tile, windows, strict=True))
        chunks = chunk_shape(shard, shape, factors)
        unwritten = unwritten_level(array, shape, chunks, coarsening)
        grid = ChunkGrid.regular(shape, chunks)
        views.append(view_to_write(unwritten, grid, shard, codec, key_separator="."))
    tiles = view_to_write(array, ChunkGrid.regular(array.shape, tile), None, "none")
    # Tiles are no objects that a disk could hold between two passes.
    return LevelsPlan(
        coarsening, tuple(views), plan_rewrite(tiles, replace(resources, has_disk=False))
    )


def unwritten_level(
    array: VirtualArray, shape: tuple[int, ...], chunks: tuple[int, ...], coarsening: Coarsening
) -> VirtualArray:
    """A level with its dimensions and dtype, before anything is written."""
    is_alike = coarsening.dtype == array.dtype
    return VirtualArray.of_one_block(
        shape,
        coarsening.dtype,
        encoding=Encoding(chunks, coarsening.dtype, (bytes_codec(coarsening.dtype),)),
        manifest=ChunkManifest.missing(0),
        dims=array.dims,
        fill_value=array.fill_value if is_alike else coarsening.dtype.type(0),
    )


# Writing


def write_levels(
    plan: LevelsPlan,
    reader: Reader,
    sink: Sink,
    *,
    path: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Rewritten]:
    """Write the levels into folders ``1``, ``2``, ... of a sink; objects that are there are kept.

    Raises
    ------
    ReadError
        If a chunk cannot be read.
    InvalidRequestError, SourceUnavailableError
        If an object cannot be written.
    """
    begun, tiles = time.perf_counter(), plan.tiles
    reader = Reader(reader.ranges, n_threads=tiles.n_threads, n_requests=tiles.n_requests)
    source = ObjectWriter(tiles, reader, sink, "", path)
    levels = [
        ObjectWriter(replace(tiles, view=view, unit_bytes=0), reader, sink, f"{level}/", path)
        for level, view in enumerate(plan.views, 1)
    ]

    def read(numbered: tuple[int, Unit]) -> tuple[Unit, NDArray[Any] | None]:
        number, unit = numbered
        missing = [each.is_missing(unit) for each in levels]
        return unit, source.values(number, unit) if any(missing) else None

    def put(unit: Unit, values: NDArray[Any], coords: tuple[int, ...]) -> None:
        made = plan.coarsening.levels(values[source.inside(unit, coords)])
        for writer, coarse in zip(levels, made, strict=True):
            writer.put_object(coords, coarse)

    with DaemonThreads(1) as ahead, DaemonThreads(tiles.n_threads) as writers:
        for done, (unit, values) in enumerate(map_ahead(ahead, read, enumerate(tiles.units()), 2)):
            if values is not None:
                put_one = partial(put, unit, values)
                for _ in map_ahead(writers, put_one, list(unit.objects()), 2 * tiles.n_threads):
                    pass
                del put_one
            del values  # the memory is for the unit that is read next
            if progress is not None:
                progress(done + 1, tiles.n_units)
    seconds = time.perf_counter() - begun
    return [replace(each.written(seconds), n_decoded=source.n_decoded) for each in levels]


def written_levels(
    plan: LevelsPlan, written: Sequence[Rewritten], source_of: Callable[..., Any]
) -> Mapping[int, VirtualArray]:
    """What was written, by number of the level, as arrays."""
    pairs = itertools.count(1), plan.views, written
    return {
        level: written_array(view, done.objects, source_of)
        for level, view, done in zip(*pairs, strict=False)
    }
