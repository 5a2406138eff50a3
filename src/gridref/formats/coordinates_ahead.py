"""Coordinates of remote files, fetched along with the metadata.

Combining files compares their coordinates. `keep_coordinates` fetches the stored bytes of small
coordinates during the scan and keeps them, so that combining sends no further requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from gridref.errors import GridrefError
from gridref.io import ScanFile, current_context
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.manifest import ChunkManifest, ChunkState, RunManifest
from gridref.model.reference_systems import referred_names

_MOST_BYTES, _MOST_CHUNKS = 64 * 2**10, 16
"""Largest coordinate to fetch ahead."""
_MOST_RECORDS, _MOST_SPAN_BYTES = 1024, 256 * 2**10
"""The same where it is in records: all bytes from the first one to the last one are fetched."""


def keep_coordinates(group: VirtualGroup, file: ScanFile) -> None:
    """Keep the stored bytes of the coordinates of a remote file, if a reader will need them.

    Reading them together takes one request, or none if they are in bytes already fetched. The
    coordinates of files beside it are then fetched with their metadata. If they cannot be read,
    the reader will report it.
    """
    at_hand = current_context().at_hand
    if at_hand is None or not file.is_remote:
        return
    wanted = [
        rows for _, part in group.walk() for array in _coordinates(part) for rows in _rows(array)
    ]
    offsets = [int(start) for rows in wanted for start in rows.offset]
    lengths = [int(n_bytes) for rows in wanted for n_bytes in rows.length]
    if offsets and all(rows.sources == (file.source,) for rows in wanted):
        with suppress(GridrefError):
            at_hand.keep(file.source, offsets, file.read_many(offsets, lengths))


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
