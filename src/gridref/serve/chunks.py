"""The virtual object of one chunk."""

from __future__ import annotations

import json
import math

from gridref.serve.presence import digest_of, held_below, native_references
from gridref.serve.rewrap import rewrapped
from gridref.serve.segments import DecodedSegment, LiteralSegment, SourceSegment, VirtualObject
from gridref.serve.views import ArrayView, View

__all__ = ["chunk_object"]


def chunk_object(path: str, view: ArrayView, coords: tuple[int, ...]) -> VirtualObject | None:
    """What answers for a chunk of a view without shards; None where the chunk is missing.

    Parameters
    ----------
    path
        Path of the array, for messages.
    view
        The view.
    coords
        Chunk coords inside the grid.
    """
    if view.view is View.NATIVE:
        return _native_object(path, view, coords)
    return _portable_object(path, view, coords)


def _native_object(path: str, view: ArrayView, coords: tuple[int, ...]) -> VirtualObject | None:
    found = native_references(view, coords, (1,) * len(coords))
    if not found.present[0]:
        return None
    number, offset, length = int(found.source[0]), int(found.offset[0]), int(found.length[0])
    if number < 0:
        data = found.literals[-1 - number][offset : offset + length]
        return VirtualObject((LiteralSegment(data),), digest_of(data), path, coords)
    segment = SourceSegment(found.sources[number], offset, length)
    return VirtualObject((segment,), digest_of(repr(segment).encode()), path, coords)


def _portable_object(path: str, view: ArrayView, coords: tuple[int, ...]) -> VirtualObject | None:
    held, identity = held_below(view, coords, (1,) * len(coords))
    if not held.all():
        return None
    etag = digest_of(identity.encode(), repr(coords).encode(), view_identity(view))
    stored = rewrapped(view, coords)
    if stored is not None:
        return VirtualObject((stored,), digest_of(etag.encode(), b"rewrapped"), path, coords)
    plain = [codec.name for codec in view.metadata.codecs] == ["bytes"]
    size = math.prod(view.metadata.grid.chunk_shape(coords)) * view.array.dtype.itemsize
    segment = DecodedSegment(view, coords, size if plain else None)
    return VirtualObject((segment,), etag, path, coords)


def view_identity(view: ArrayView) -> bytes:
    """What of a view the bytes of its decoded chunks depend on."""
    array = view.array
    document = view.metadata.to_json()
    return json.dumps(
        [document[name] for name in ("data_type", "chunk_grid", "codecs", "fill_value")]
        + [array.dtype.str, array.grid.to_json()]
    ).encode()
