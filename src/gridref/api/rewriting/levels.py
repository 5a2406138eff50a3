"""Write coarser levels of an array as Zarr v3 arrays with shards, all of them in one pass.

Each element is made from a window of elements, never from the rounded elements of a finer level:
for means, sums and counts go from level to level. Sums are added in one order, whatever box of the
image is given, so that the same elements always give the same mean.

The array is divided into *tiles*: boxes of whole windows of the coarsest level. A shard of each
level is made of one tile, so a tile that is in memory gives one object of every level, and what one
run has written of a tile, the next one keeps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.api.rewriting.plan import (
    Resources,
    RewritePlan,
    Unit,
    plan_rewrite,
    view_to_write,
)
from gridref.api.rewriting.writer import (
    ObjectWriter,
    Sink,
    WrittenObject,
    write_units,
    written_array,
)
from gridref.model.array import VirtualArray
from gridref.model.conventions import MissingValues
from gridref.model.encoding import Encoding, bytes_codec
from gridref.model.grid import ChunkGrid
from gridref.model.manifest import ChunkManifest, Source
from gridref.model.overlay import factors_of, level_shape
from gridref.serve.reader import Reader
from gridref.serve.views import ArrayView

# How elements are made

METHODS = ("mean", "min", "max", "mode", "nearest")
"""How an element is made of its window; missing values do not count, except for ``nearest``."""
_STRIP_ELEMENTS = 2**20
"""Elements that are worked on at a time: what is made of them on the way fits in a cache."""

Values = NDArray[Any]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Coarsening:
    """How levels are made.

    Attributes
    ----------
    method
        One of `METHODS`.
    factors
        Length of the windows of level 1 along each axis.
    meant, dtype
        Dtype that elements are meant as, and that of the levels.
    """

    method: str
    factors: tuple[int, ...]
    n_levels: int
    missing: MissingValues
    meant: np.dtype[Any]
    dtype: np.dtype[Any]

    def windows(self, level: int) -> tuple[int, ...]:
        """Lengths of the windows of a level."""
        return factors_of(self.factors, level)

    def levels(self, values: Values) -> list[Values]:
        """All levels of a box of elements that begins with a window of the coarsest one."""
        made = [
            np.empty(level_shape(values.shape, self.windows(level)), self.dtype)
            for level in range(1, self.n_levels + 1)
        ]
        for box in _strips(values.shape, self.windows(self.n_levels)):
            meant = values[box].view(self.meant)
            for level, coarse in enumerate(self._of_strip(meant), 1):
                place = (
                    slice(part.start // n, part.start // n + k)
                    for part, n, k in zip(box, self.windows(level), coarse.shape, strict=True)
                )
                made[level - 1][tuple(place)] = coarse.view(self.dtype)
        return made

    def _of_strip(self, values: Values) -> Iterator[Values]:
        if self.method == "nearest":
            yield from (self._nearest(values, level) for level in range(1, self.n_levels + 1))
        elif self.method == "mode":
            yield from (self._mode(values, level) for level in range(1, self.n_levels + 1))
        elif self.method == "mean":
            yield from self._means(values)
        else:
            yield from self._extremes(values)

    @property
    def _written(self) -> np.dtype[Any]:
        """Dtype of the levels as it is meant."""
        is_alike = self.dtype.kind in "iu" and self.meant.kind in "iu"
        return self.meant if is_alike else self.dtype

    # Methods

    def _nearest(self, values: Values, level: int) -> Values:
        """The element in the middle of each window; of an even one, the one behind it."""
        for axis, window in enumerate(self.windows(level)):
            if window > 1:
                extent = values.shape[axis]
                low = np.arange(0, extent, window)
                middle = low + np.minimum(window, extent - low) // 2
                values = np.take(values, middle, axis)
        return values

    def _mode(self, values: Values, level: int) -> Values:
        """The most frequent element of each window; of several, the least."""
        known, codes = np.unique(values, return_inverse=True, equal_nan=True)
        none = self.missing.among(known)
        n_known = len(known)
        codes = codes.reshape(values.shape)
        if none is not None:
            codes = np.where(none[codes], n_known, codes)
        sorted_codes = np.sort(_side_by_side(codes, self.windows(level), n_known), axis=-1)
        at = np.arange(sorted_codes.shape[-1])
        begins = np.ones(sorted_codes.shape, bool)
        begins[..., 1:] = sorted_codes[..., 1:] != sorted_codes[..., :-1]
        length = at - np.maximum.accumulate(np.where(begins, at, 0), axis=-1)
        length[sorted_codes == n_known] = -1
        best = np.take_along_axis(sorted_codes, length.argmax(axis=-1)[..., None], -1)[..., 0]
        mode: Values = np.append(known, self.missing.shown_as(values.dtype))[best]
        return mode

    def _extremes(self, values: Values) -> Iterator[Values]:
        """The least or greatest value of each window, from level to level."""
        choose: Any = np.minimum if self.method == "min" else np.maximum
        none = self.missing.among(values)
        if none is not None:
            limits = np.iinfo if values.dtype.kind in "iu" else np.finfo
            neutral = limits(values.dtype).max if self.method == "min" else limits(values.dtype).min
            if values.dtype.kind == "f":
                neutral = np.inf if self.method == "min" else -np.inf
            values = np.where(none, values.dtype.type(neutral), values)
        for _ in range(self.n_levels):
            values = self._joined(values, choose)
            if none is None:
                yield values
                continue
            none = self._joined(none, np.logical_and)
            yield np.where(none, self.missing.shown_as(values.dtype), values)

    def _means(self, values: Values) -> Iterator[Values]:
        """The mean of the values of each window, from sums and counts."""
        none = self.missing.among(values)
        count = np.ones(values.shape, np.int32) if none is None else (~none).astype(np.int32)
        if none is not None:
            values = np.where(none, values.dtype.type(0), values)
        sums = _summands(values)
        for _ in range(self.n_levels):
            sums = [self._joined(each, np.add) for each in sums]
            count = self._joined(count, np.add)
            mean = _quotient(sums, np.maximum(count, 1), self._written)
            if none is not None:
                mean = np.where(count == 0, self.missing.shown_as(self._written), mean)
            yield mean.astype(self._written, copy=False)

    def _joined(self, values: Values, join: Any) -> Values:
        """One level coarser: the elements of each window joined in order, axis by axis."""
        for axis, factor in enumerate(self.factors):
            if factor == 1:
                continue
            head = (slice(None),) * axis
            coarse = values[(*head, slice(0, None, factor))].copy()
            for offset in range(1, min(factor, values.shape[axis])):
                further = values[(*head, slice(offset, None, factor))]
                inside = (*head, slice(0, further.shape[axis]))
                coarse[inside] = join(coarse[inside], further)
            values = coarse
        return values


def _strips(shape: Sequence[int], windows: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Boxes of whole windows that a box is cut into along its first axes."""
    lengths = list(shape)
    for axis, window in enumerate(windows):
        others = math.prod(lengths) // max(1, lengths[axis])
        fitting = max(1, _STRIP_ELEMENTS // max(1, others * window))
        lengths[axis] = min(shape[axis], fitting * window)
    cuts = [range(0, extent, max(1, n)) for extent, n in zip(shape, lengths, strict=True)]
    for start in itertools.product(*cuts):
        yield tuple(
            slice(low, min(low + n, extent))
            for low, n, extent in zip(start, lengths, shape, strict=True)
        )


def _side_by_side(codes: NDArray[np.intp], windows: Sequence[int], beyond: int) -> Values:
    """The elements of each window along a last axis; `beyond` where the last windows end."""
    shape = level_shape(codes.shape, windows)
    behind = [
        (0, n * window - extent)
        for n, window, extent in zip(shape, windows, codes.shape, strict=True)
    ]
    padded = np.pad(codes, behind, constant_values=beyond)
    split = padded.reshape([n for pair in zip(shape, windows, strict=True) for n in pair])
    order = (*range(0, split.ndim, 2), *range(1, split.ndim, 2))
    return split.transpose(order).reshape(*shape, math.prod(windows))


def _summands(values: Values) -> list[Values]:
    """What is summed up: of long integers the upper and the lower half, whose sums are exact."""
    if values.dtype.kind == "f":
        return [values.astype(np.float64)]
    if values.dtype.itemsize < 8:
        return [values.astype(np.int64)]
    upper = (values >> values.dtype.type(32)).astype(np.int64)
    lower = (values & values.dtype.type(0xFFFFFFFF)).astype(np.int64)
    return [upper, lower]


def _quotient(sums: Sequence[Values], count: Values, dtype: np.dtype[Any]) -> Values:
    """Sums by counts, rounded once; of integers halves to the even one."""
    if dtype.kind == "f":
        with np.errstate(all="ignore"):
            total = sums[0].astype(np.float64)
            for lower in sums[1:]:
                total = total * 2.0**32 + lower
            mean: Values = (total / count).astype(dtype)
            return mean
    whole, rest = np.divmod(sums[0], count)
    for lower in sums[1:]:  # what is left of the upper half is below 2**63 with the lower one
        more, rest = np.divmod((rest << 32) + lower, count)
        whole = whole.astype(dtype) * dtype.type(2**32) + more.astype(dtype)
    is_odd = (whole & whole.dtype.type(1)).astype(bool)
    up = (2 * rest > count) | ((2 * rest == count) & is_odd)
    rounded: Values = (whole + up.astype(whole.dtype)).astype(dtype)
    return rounded


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
) -> list[tuple[WrittenObject, ...]]:
    """Write the levels into folders ``1``, ``2``, ... of a sink; objects that are there are kept.

    Raises
    ------
    ReadError
        If a chunk cannot be read.
    InvalidRequestError, SourceUnavailableError
        If an object cannot be written.
    """
    tiles = plan.tiles
    source = ObjectWriter(tiles, reader, sink, "", path)
    levels = [
        ObjectWriter(replace(tiles, view=view, unit_bytes=0), reader, sink, f"{level}/", path)
        for level, view in enumerate(plan.views, 1)
    ]

    def read(numbered: tuple[int, Unit]) -> tuple[Unit, NDArray[Any] | None]:
        number, unit = numbered
        are_there = [each.look_for(unit) for each in levels]
        return unit, None if all(are_there) else source.values(number, unit)

    def put(unit: Unit, values: NDArray[Any], coords: tuple[int, ...]) -> None:
        made = plan.coarsening.levels(values[source.inside(unit, coords)])
        for writer, coarse in zip(levels, made, strict=True):
            writer.put(coords, coarse)

    write_units(tiles, tiles.units(), read, put, progress)
    return [each.written().objects for each in levels]


def written_levels(
    plan: LevelsPlan,
    written: Sequence[tuple[WrittenObject, ...]],
    source_of: Callable[[WrittenObject], Source],
) -> Mapping[int, VirtualArray]:
    """What was written, by number of the level, as arrays."""
    pairs = enumerate(zip(plan.views, written, strict=True), 1)
    return {level: written_array(view, objects, source_of) for level, (view, objects) in pairs}
