"""Stored zlib chunks shown as gzip: put into another wrapper, not compressed again."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gridref.model.array import VirtualArray
from gridref.model.encoding import Codec, Encoding, bytes_codec
from gridref.model.manifest import ChunkManifest, ChunkState
from gridref.serve.lookup import LookedUp
from gridref.serve.plan import CrossProduct, PieceBatch
from gridref.serve.segments import LiteralSegment, RewrappedSegment, SourceSegment
from gridref.serve.views import ArrayView

__all__ = ["rewrapped"]


def rewrapped(
    view: ArrayView, coords: tuple[int, ...], below: Sequence[LookedUp[CrossProduct]]
) -> RewrappedSegment | None:
    """The stored chunk that a chunk of a portable gzip view is, but for its wrapper.

    Only a chunk that has all of a stored chunk's elements in their order and encoding qualifies.
    What overhangs the array may differ: no reader shows it.

    Parameters
    ----------
    view
        A portable view without shards.
    coords
        Coords of the chunk, inside the grid.
    below
        The stored chunks that it is made of.

    Returns
    -------
    RewrappedSegment or None
        None where the chunk has to be encoded.
    """
    if [codec.name for codec in view.metadata.codecs] != ["bytes", "gzip"]:
        return None
    array = view.array
    if len(below) != 1 or len(below[0].batch) != 1 or not below[0].references:
        return None
    (part,) = below
    batch = part.batch
    shape = view.metadata.grid.chunk_shape(coords)
    encoding = array.encodings[int(batch.encoding[0])]
    whole = tuple(batch.shape[0].tolist()) == shape and _in_order(part.pieces, batch)
    alike = view.metadata.dtype == array.dtype
    if not whole or not alike or not _is_zlib_only(array, encoding):
        return None
    held = _held(part.references[0].rows)
    if held is None:
        return None
    n_bytes = math.prod(shape) * array.dtype.itemsize
    raw = Encoding((n_bytes,), np.dtype("u1"), (Codec("bytes"), encoding.codecs[1]))
    return RewrappedSegment(held, raw)


def _in_order(cross: CrossProduct, batch: PieceBatch) -> bool:
    """Whether a piece begins where its stored chunk does, and goes the same way."""
    return all(
        (part.start or 0) == 0 and (part.step or 1) == 1 for part in cross.in_chunk(batch.piece[0])
    )


def _is_zlib_only(array: VirtualArray, encoding: Encoding) -> bool:
    return (
        [codec.name for codec in encoding.codecs] == ["bytes", "numcodecs.zlib"]
        and encoding.codecs[0] == bytes_codec(array.dtype)
        and encoding.dtype == array.dtype
        and encoding.unpacking is None
        and not encoding.prefix
    )


def _held(row: ChunkManifest) -> SourceSegment | LiteralSegment | None:
    """The stored bytes; None where the chunk is missing or was left uncompressed."""
    masked = row.filter_mask is not None and bool(row.filter_mask[0])
    if masked or row.state[0] == ChunkState.MISSING:
        return None
    if row.state[0] == ChunkState.INLINE:
        return LiteralSegment(row.inline_bytes(0))
    return SourceSegment(row.sources[int(row.source[0])], int(row.offset[0]), int(row.length[0]))
