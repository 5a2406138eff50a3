"""A slow reader that does the obvious: the oracle for every faster one.

It loops over blocks and over their stored chunks, puts each stored array together, and indexes it.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.codecs import decode_chunk
from gridref.model.array import VirtualArray
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.encoding import EdgePolicy, Encoding, Unpacking
from gridref.model.grid import region_of
from gridref.model.manifest import ChunkManifest, ChunkState

__all__ = ["read_slowly"]


def read_slowly(array: VirtualArray) -> NDArray[Any]:
    """Read all elements of an array. Sources must be local files."""
    out = np.empty(array.shape, array.dtype)
    grid = array.grid
    for block, coords in enumerate(np.ndindex(*grid.grid_shape)):
        start = grid.start(coords)
        shape = grid.data_shape(coords)
        block_slices = region_of(start, shape)
        if array.blocks.encoding[block] == MISSING_BLOCK:
            out[block_slices] = array.fill_value
        else:
            out[block_slices] = _read_block(array, block, shape)
    return out


def _read_block(array: VirtualArray, block: int, shape: tuple[int, ...]) -> NDArray[Any]:
    table = array.blocks
    encoding = array.encodings[table.encoding[block]]
    indices = [
        origin + step * np.arange(n)
        for origin, step, n in zip(table.origin[block], table.step[block], shape, strict=True)
    ]
    stored_shape = tuple(table.stored_shape[block].tolist())
    for index, extent in zip(indices, stored_shape, strict=True):
        if index.min() < 0 or index.max() >= extent:
            raise AssertionError(f"window {index} outside of a stored array of {stored_shape}")
    stored = np.empty(stored_shape, array.dtype)
    hit = [
        sorted({int(element) // n for element in index})
        for index, n in zip(indices, encoding.chunk_shape, strict=True)
    ]
    for chunk in itertools.product(*hit):
        row = int(table.first_row[block] + (np.array(chunk, np.int64) @ table.row_stride[block]))
        low = [k * n for k, n in zip(chunk, encoding.chunk_shape, strict=True)]
        data_shape = [
            min(n, extent - a)
            for n, extent, a in zip(encoding.chunk_shape, stored_shape, low, strict=True)
        ]
        rows = array.manifests[table.manifest[block]].take(np.array([row]))
        full = data_shape if encoding.edge is EdgePolicy.TRUNCATED else encoding.chunk_shape
        values = _chunk_values(array, encoding, rows, tuple(full))
        part = values[tuple(slice(0, n) for n in data_shape)]
        stored[region_of(low, data_shape)] = part
    return stored[np.ix_(*indices)] if indices else stored


def _chunk_values(
    array: VirtualArray, encoding: Encoding, rows: ChunkManifest, shape: tuple[int, ...]
) -> NDArray[Any]:
    mask = 0 if rows.filter_mask is None else int(rows.filter_mask[0])
    if rows.state[0] == ChunkState.MISSING:
        if encoding.fill is None:
            return np.full(shape, array.fill_value, array.dtype)
        fill = np.frombuffer(encoding.fill, encoding.dtype)[0]
        values = np.full(shape, fill, encoding.dtype)
    elif rows.state[0] == ChunkState.INLINE:
        values = decode_chunk(rows.inline_bytes(0), encoding, shape, mask)
    else:
        source = Path(rows.sources[int(rows.source[0])].url)
        with source.open("rb") as file:
            file.seek(int(rows.offset[0]))
            values = decode_chunk(file.read(int(rows.length[0])), encoding, shape, mask)
    if encoding.unpacking is not None:
        values = _unpacked(values, encoding.unpacking)
    return values.astype(array.dtype)


def _unpacked(values: NDArray[Any], unpacking: Unpacking) -> NDArray[Any]:
    if unpacking.unsigned is not None:
        values = values.view(f"{'u' if unpacking.unsigned else 'i'}{values.dtype.itemsize}")
    result = values.astype(unpacking.dtype)
    absent = np.zeros(values.shape, bool)
    for fill in unpacking.fill_values:
        absent |= result == np.dtype(unpacking.dtype).type(fill)
    if unpacking.scale is not None:
        result = (result * unpacking.scale).astype(unpacking.dtype)
    if unpacking.offset is not None:
        result = (result + unpacking.offset).astype(unpacking.dtype)
    result[absent] = np.nan
    return result
