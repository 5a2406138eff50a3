"""All stored elements of a dataset, read at the scan."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.codecs import decode_chunk
from gridref.errors import DecodeError, Place, SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.format.data_layout import DataLayout
from gridref.formats.hdf5.objects.dtypes import ElementType
from gridref.formats.hdf5.objects.tree import DatasetNode
from gridref.formats.hdf5.storage.fill import stored_fill
from gridref.formats.hdf5.storage.layouts import Stored, stored_chunks
from gridref.formats.options import ScanOptions
from gridref.io import open_for_scan
from gridref.model.encoding import EdgePolicy
from gridref.model.grid import chunk_counts
from gridref.model.manifest import ChunkManifest, ChunkState

__all__ = ["read_elements"]

_MAX_CHUNK_BYTES, _MAX_DECODED_BYTES = 1 << 28, 1 << 30
_BATCH_BYTES = 1 << 24


def read_elements(
    dataset: DatasetNode, element: ElementType, layout: DataLayout, options: ScanOptions
) -> bytes:
    """The bytes of all elements in C order, as they are stored before filters are applied.

    Raises
    ------
    SourceFormatError
        If the file is corrupt there.
    UnsupportedFeatureError
        If they cannot be read.
    """
    opaque = ElementType(np.dtype(f"V{element.itemsize}"), subshape=element.subshape)
    shape = (dataset.shape or ()) + element.subshape
    values = np.zeros(shape, opaque.dtype)
    fill = stored_fill(dataset)
    if len(fill) == math.prod(element.subshape) * element.itemsize:
        values[...] = np.frombuffer(fill, opaque.dtype).reshape(element.subshape)
    stored = stored_chunks(dataset, opaque, layout, options)
    if stored is not None and values.size:
        _fill_in(values, stored, dataset, options)
    return values.tobytes()


def _fill_in(
    values: NDArray[Any], stored: Stored, dataset: DatasetNode, options: ScanOptions
) -> None:
    """Decode all chunks into `values`."""
    encoding, manifest = stored
    lengths = encoding.chunk_shape
    chunk_bytes = math.prod(lengths) * values.itemsize
    n_stored = int(np.count_nonzero(manifest.state != ChunkState.MISSING))
    most = max(_MAX_DECODED_BYTES, 8 * values.nbytes)
    if chunk_bytes > _MAX_CHUNK_BYTES or n_stored * chunk_bytes > most:
        raise UnsupportedFeatureError(
            f"chunks of shape {lengths} are too large to be read at the scan"
        )
    grid = chunk_counts(values.shape, lengths)
    for row, data in _chunks(manifest, dataset, options):
        coords = tuple(int(coord) for coord in np.unravel_index(row, grid)) if grid else ()
        window = tuple(
            slice(coord * length, min(n, (coord + 1) * length))
            for coord, length, n in zip(coords, lengths, values.shape, strict=True)
        )
        inside = tuple(part.stop - part.start for part in window)
        shape = inside if encoding.edge is EdgePolicy.TRUNCATED else lengths
        mask = 0 if manifest.filter_mask is None else int(manifest.filter_mask[row])
        try:
            chunk = decode_chunk(data, encoding, shape, mask)
        except DecodeError as error:
            place = Place(chunk=coords)
            raise SourceFormatError(f"a chunk cannot be decoded: {error.reason}", place) from error
        values[window] = chunk[tuple(slice(0, n) for n in inside)]


def _chunks(
    manifest: ChunkManifest, dataset: DatasetNode, options: ScanOptions
) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each stored chunk, not many of them in memory at once."""
    for row in np.flatnonzero(manifest.state == ChunkState.INLINE).tolist():
        yield row, manifest.inline_bytes(row)
    for number, source in enumerate(manifest.sources):
        rows = np.flatnonzero((manifest.state == ChunkState.RANGE) & (manifest.source == number))
        if not len(rows):
            continue
        if source == dataset.file.source:
            yield from _ranges(manifest, rows, dataset.file.scan_file)
        else:
            with open_for_scan(source.url, options.storage_options) as file:
                yield from _ranges(manifest, rows, file)


def _ranges(
    manifest: ChunkManifest, rows: NDArray[np.int64], file: Any
) -> Iterator[tuple[int, bytes]]:
    offsets, lengths = manifest.offset[rows], manifest.length[rows]
    batches = np.cumsum(lengths) // _BATCH_BYTES
    for batch in np.unique(batches):
        chosen = batches == batch
        pieces = file.read_many(offsets[chosen].tolist(), lengths[chosen].tolist())
        yield from zip(rows[chosen].tolist(), pieces, strict=True)
