"""The virtual object of one chunk that is decoded, or re-wrapped, on the way."""

from __future__ import annotations

import json
import math

from gridref.serve.presence import digest_of, held_below
from gridref.serve.rewrap import rewrapped
from gridref.serve.segments import DecodedSegment, VirtualObject
from gridref.serve.views import ArrayView

__all__ = ["portable_chunk", "view_identity"]


def portable_chunk(path: str, view: ArrayView, coords: tuple[int, ...]) -> VirtualObject | None:
    """What answers for a chunk of a portable view without shards; None where it is missing.

    Parameters
    ----------
    path
        Path of the array, for messages.
    view
        The view.
    coords
        Chunk coords inside the grid.
    """
    held, identity = held_below(view, coords, (1,) * len(coords))
    if not held.all():
        return None
    etag = digest_of(identity.encode(), repr(coords).encode(), view_identity(view))
    stored = rewrapped(view, coords)
    if stored is not None:
        return VirtualObject((stored,), digest_of(etag.encode(), b"rewrapped"), path, coords)
    plain = [codec.name for codec in view.chunk_codecs] == ["bytes"]
    size = math.prod(view.metadata.grid.chunk_shape(coords)) * view.metadata.dtype.itemsize
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
