"""Coordinates of a remote file, fetched with its metadata where combining will compare them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from gridref.errors import GridrefError
from gridref.io import ScanFile, current_at_hand
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.manifest import ChunkManifest, ChunkState
from gridref.model.referring import referred_names

__all__ = ["keep_coordinates"]

_MOST_BYTES, _MOST_CHUNKS = 64 * 2**10, 16
"""Of a coordinate that is worth it."""


def keep_coordinates(group: VirtualGroup, file: ScanFile) -> None:
    """Keep the stored bytes of the coordinates of a remote file, where a reader waits for them.

    Read together they take one request, or none where they lie in what was fetched; and those of
    files beside it come along with their metadata. That they cannot be read is for the reader to
    say.
    """
    at_hand = current_at_hand()
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
    for manifest in array.manifests if n_chunks <= _MOST_CHUNKS else ():
        rows = manifest.take(np.arange(manifest.n_rows))
        rows = rows.take(np.flatnonzero(rows.state == ChunkState.RANGE))
        if rows.n_rows and rows.stored_bytes <= _MOST_BYTES:
            yield rows
