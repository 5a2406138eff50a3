"""Turn an array of a Zarr store into a virtual array, with its times.

`virtual_array` takes the files of a store and the metadata of an array, and returns an array that
refers to the store's chunks. Dates and durations become int64 with units of the CF conventions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gridref.codecs import why_not
from gridref.errors import UnsupportedFeatureError
from gridref.formats.chunk_files import ChunkFiles, check_chunk_files
from gridref.formats.damage import check_element_size
from gridref.formats.zarr.shards import Chain, ChunkRanges, inner_ranges, split_chain
from gridref.model.array import VirtualArray
from gridref.model.blocks import BlockTable
from gridref.model.encoding import Encoding
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from gridref.model.zarr_metadata import ArrayMetadata
from gridref.typing import Int64Array

# Dates and durations as integers with CF units

_UNITS = {
    "D": "days",
    "h": "hours",
    "m": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
}


def without_times(
    dtype: np.dtype[Any], fill_value: Any, attrs: Mapping[str, Any]
) -> tuple[np.dtype[Any], Any, dict[str, Any]]:
    """Dtype, fill value and attributes of an array, as int64 if it holds dates or durations.

    Not-a-time becomes ``_FillValue``.
    """
    if dtype.kind not in "mM":
        return dtype, fill_value, dict(attrs)
    unit, count = np.datetime_data(dtype)
    if unit not in _UNITS or count != 1:
        raise UnsupportedFeatureError(f"the data type {dtype} has no CF units")
    name = _UNITS[unit]
    units = {"units": name if dtype.kind == "m" else f"{name} since 1970-01-01"}
    if dtype.kind == "M":
        units["calendar"] = "proleptic_gregorian"
    rest = {key: value for key, value in attrs.items() if key != "_FillValue"}
    missing = np.int64(np.iinfo(np.int64).min)
    fill = np.asarray(fill_value).view(np.int64)[()]
    return np.dtype(np.int64), fill, {**rest, **units, "_FillValue": missing}


# The array


def virtual_array(
    files: ChunkFiles, path: str, metadata: ArrayMetadata, dims: Sequence[str]
) -> VirtualArray:
    """Describe an array: find its chunk files, and read its shard indexes.

    Parameters
    ----------
    dims
        Names of the dimensions.

    Raises
    ------
    SourceFormatError
        For a bad shard index.
    UnsupportedFeatureError
        For codecs that cannot be decoded, or too many chunks.
    """
    check_element_size(metadata.dtype)
    chain = split_chain(metadata.codecs, _any_chunk_shape(metadata.grid))
    for codec in chain.codecs:
        reason = why_not(codec)
        if reason is not None:
            raise UnsupportedFeatureError(reason)
    ranges = chunk_ranges(files, path, metadata)
    if chain.levels and (ranges.source < 0).any():
        raise UnsupportedFeatureError("shards are kept inline in the references")
    for codec, order in chain.levels:
        ranges = inner_ranges(files, ranges, codec, order)
    grid = metadata.grid
    if chain.levels:
        grid = ChunkGrid.regular(grid.shape, chain.chunk_shape)
    dtype, fill, attrs = without_times(metadata.dtype, metadata.fill_value, metadata.attrs)
    outer, table, encodings = _blocks(grid, chain, dtype)
    return VirtualArray(
        outer,
        dtype,
        fill,
        tuple(dims),
        attrs,
        encodings,
        (_manifest(ranges, grid),),
        table,
    )


def _any_chunk_shape(grid: ChunkGrid) -> tuple[int, ...]:
    return tuple(int(axis.run_lengths[0]) for axis in grid.axes)


def chunk_ranges(files: ChunkFiles, path: str, metadata: ArrayMetadata) -> ChunkRanges:
    """The files of all existing chunks (or shards), whole."""
    grid = metadata.grid
    check_chunk_files(grid.n_chunks)
    head = f"{path}/" if path else ""
    keys = {f"{head}{metadata.chunk_key(k)}": k for k in np.ndindex(*grid.grid_shape)}
    stored_coords: list[tuple[int, ...]] = []
    sources: dict[Source, int] = {}
    literals: list[bytes] = []
    rows: list[tuple[int, int, int]] = []
    n_inline = 0
    for key, held, offset, length in files.ranges(list(keys), path) if keys else ():
        stored_coords.append(keys[key])
        if isinstance(held, bytes):
            rows.append((-1, n_inline, len(held)))
            literals.append(held)
            n_inline += len(held)
        else:
            rows.append((sources.setdefault(held, len(sources)), offset, length))
    grid_coords = np.array(stored_coords, np.int64).reshape(len(stored_coords), grid.ndim)
    number, offsets, lengths = np.array(rows, np.int64).reshape(len(rows), 3).T
    coords, shape = np.zeros_like(grid_coords), np.zeros_like(grid_coords)
    for at, axis in enumerate(grid.axes):
        coords[:, at] = axis.starts(grid_coords[:, at])
        shape[:, at] = axis.chunk_lengths(grid_coords[:, at])
    return ChunkRanges(tuple(sources), number, offsets, lengths, coords, shape, b"".join(literals))


def _manifest(ranges: ChunkRanges, grid: ChunkGrid) -> ChunkManifest:
    """One row for each chunk, in C order of the grid."""
    row = np.zeros(len(ranges.source), np.int64)
    inside = np.ones(len(ranges.source), bool)
    for number, axis in enumerate(grid.axes):
        # A shard may hold chunks that are beyond the array.
        element = ranges.coords[:, number]
        inside &= element < axis.extent
        at = axis.locate(np.where(element < axis.extent, element, 0)) if axis.extent else element
        row = row * axis.n_chunks + at
    source, offset, length, state = (np.zeros(grid.n_chunks, np.int64) for _ in range(4))
    source[row[inside]] = ranges.source[inside]
    offset[row[inside]] = ranges.offset[inside]
    length[row[inside]] = ranges.length[inside]
    is_inline = ranges.source[inside] < 0
    state[row[inside]] = np.where(is_inline, ChunkState.INLINE, ChunkState.RANGE)
    return ChunkManifest.from_columns(
        ranges.sources,
        source=np.maximum(source, 0),
        offset=offset,
        length=length,
        state=state,
        inline=ranges.inline,
    )


def _blocks(
    grid: ChunkGrid, chain: Chain, dtype: np.dtype[np.generic]
) -> tuple[ChunkGrid, BlockTable, tuple[Encoding, ...]]:
    """One block for each box of equal chunks: a regular grid is one block."""
    strides = [math.prod(grid.grid_shape[axis + 1 :]) for axis in range(grid.ndim)]
    outer = ChunkGrid(tuple(GridAxis.from_edges(_run_extents(axis)) for axis in grid.axes))
    encodings: dict[Encoding, int] = {}
    columns: list[list[list[int]]] = [[], [], []]
    numbers: list[int] = []
    runs = [range(len(axis.run_lengths)) if axis.extent else range(0) for axis in grid.axes]
    for run_ids in itertools.product(*runs):
        chunk_shape = tuple(int(a.run_lengths[r]) for a, r in zip(grid.axes, run_ids, strict=True))
        encoding = Encoding(chunk_shape, dtype, chain.codecs)
        numbers.append(encodings.setdefault(encoding, len(encodings)))
        first = [int(a.run_counts[:r].sum()) for a, r in zip(grid.axes, run_ids, strict=True)]
        columns[0].append([sum(k * n for k, n in zip(first, strides, strict=True))])
        columns[1].append(strides)
        extents = [int(_run_extents(a)[r]) for a, r in zip(grid.axes, run_ids, strict=True)]
        columns[2].append(extents)
    n_blocks, ndim = len(numbers), grid.ndim
    first_row, stride, stored = (
        np.array(column, np.int64).reshape(n_blocks, width)
        for column, width in zip(columns, (1, ndim, ndim), strict=True)
    )
    zeros = np.zeros((n_blocks, ndim), np.int64)
    table = BlockTable(
        np.array(numbers, np.int32),
        np.zeros(n_blocks, np.int32),
        first_row.reshape(-1),
        stride,
        stored,
        zeros,
        zeros + 1,
    )
    return (
        outer,
        table,
        tuple(encodings) or (Encoding(_any_chunk_shape(grid), dtype, chain.codecs),),
    )


def _run_extents(axis: GridAxis) -> Int64Array:
    """Elements in each run of equal chunks; the last one ends at the end of the axis."""
    stops = np.minimum(np.cumsum(axis.run_lengths * axis.run_counts), axis.extent)
    return np.diff(stops, prepend=0) if axis.extent else np.zeros(0, np.int64)
