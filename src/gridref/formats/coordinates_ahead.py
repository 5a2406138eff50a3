"""Fetch coordinates together with the metadata.

Combining files compares their coordinates. `keep_coordinates` fetches the stored bytes of small
coordinates during the scan and keeps them, so that combining sends no further requests. Of local
files it keeps the labels of dimensions. `kept_elements` decodes what is kept of an array: a local
file need not be opened again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import GridrefError
from gridref.io import AtHand, ScanFile, current_context
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.conventions import referred_names
from gridref.model.encoding import EdgePolicy
from gridref.model.manifest import ChunkManifest, ChunkState, RunManifest

_RANGE = ChunkState.RANGE
_MOST_BYTES, _MOST_CHUNKS = 64 * 2**10, 16
"""Largest coordinate to fetch ahead."""
_MOST_RECORDS, _MOST_SPAN_BYTES = 1024, 256 * 2**10
"""The same where it is in records: all bytes from the first one to the last one are fetched."""


def keep_coordinates(group: VirtualGroup, file: ScanFile) -> None:
    """Keep the stored bytes of the coordinates of a file, if a reader will need them.

    Reading those of a remote file together takes one request, or none if they are in bytes already
    fetched. The coordinates of files beside it are then fetched with their metadata. If they cannot
    be read, the reader will report it.
    """
    at_hand = current_context().at_hand
    if at_hand is None:
        return
    if not file.is_remote:
        _keep_labels(group, file, at_hand)
        return
    wanted = [
        rows for _, part in group.walk() for array in _coordinates(part) for rows in _rows(array)
    ]
    offsets = [int(start) for rows in wanted for start in rows.offset]
    lengths = [int(n_bytes) for rows in wanted for n_bytes in rows.length]
    if offsets and all(rows.sources == (file.source,) for rows in wanted):
        with suppress(GridrefError):
            at_hand.keep(file.source, offsets, file.read_many(offsets, lengths))


def _keep_labels(group: VirtualGroup, file: ScanFile, at_hand: AtHand) -> None:
    """Keep the stored bytes of labels that are a single chunk of a local file."""
    for _, part in group.walk():
        for name, array in part.arrays.items():
            if array.dims != (name,) or len(array.manifests) != 1:
                continue
            rows = array.manifests[0]
            if not isinstance(rows, ChunkManifest) or rows.n_rows != 1 or rows.state[0] != _RANGE:
                continue
            offset, n_bytes = int(rows.offset[0]), int(rows.length[0])
            if rows.sources == (file.source,) and n_bytes <= _MOST_BYTES:
                with suppress(GridrefError):
                    at_hand.keep(file.source, [offset], file.read_many([offset], [n_bytes]))


def _coordinates(group: VirtualGroup) -> Iterator[VirtualArray]:
    referred = referred_names(group.arrays.values())
    for name, array in group.arrays.items():
        if array.dims == (name,) or name in referred:
            yield array


def _rows(array: VirtualArray) -> Iterator[ChunkManifest]:
    """The stored chunks of a small array."""
    n_chunks = sum(manifest.n_rows for manifest in array.manifests)
    in_records = all(
        isinstance(each, RunManifest) and each.n_rows * each.stride <= _MOST_SPAN_BYTES
        for each in array.manifests
    )
    most = _MOST_RECORDS if in_records else _MOST_CHUNKS
    for manifest in array.manifests if n_chunks <= most else ():
        rows = manifest.take(np.arange(manifest.n_rows))
        rows = rows.take(np.flatnonzero(rows.state == ChunkState.RANGE))
        if rows.n_rows and rows.stored_bytes <= _MOST_BYTES:
            yield rows


def kept_elements(array: VirtualArray) -> NDArray[Any] | None:
    """The elements of an array along one dimension, if they are one chunk that a scan kept.

    None for all others, and for any error: a reader then reports it.
    """
    at_hand = current_context().at_hand
    if at_hand is None or array.ndim != 1 or not len(array.manifests) == array.n_blocks == 1:
        return None
    rows, blocks, encoding = array.manifests[0], array.blocks, array.encodings[0]
    if not isinstance(rows, ChunkManifest) or rows.n_rows != 1 or rows.state[0] != _RANGE:
        return None
    (source, *others), stored_size = rows.sources, int(blocks.stored_shape[0, 0])
    if others or source.chunk_checksums is not None or rows.filter_mask is not None:
        return None
    if encoding.unpacking is not None or encoding.dtype != array.dtype:
        return None
    if blocks.origin.any() or blocks.step[0, 0] != 1 or array.shape != (stored_size,):
        return None
    parts = at_hand.parts(source, [int(rows.offset[0])], [int(rows.length[0])])
    if parts is None:
        return None
    from gridref.codecs import decode_chunk

    is_cut = encoding.edge is EdgePolicy.TRUNCATED
    try:
        values = decode_chunk(parts[0], encoding, (stored_size,) if is_cut else None)
    except GridrefError:
        return None
    return values[:stored_size] if len(values) >= stored_size else None
