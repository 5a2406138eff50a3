"""Pieces of a plan with the references of their stored chunks: all that reading needs to know."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gridref.model.array import VirtualArray
from gridref.model.encoding import Encoding
from gridref.model.manifest import ChunkManifest, ChunkState
from gridref.model.projection import SliceProjection
from gridref.serve.plan import CrossProduct, PieceBatch, PieceSet, is_missing_block
from gridref.typing import Int64Array

__all__ = ["LookedUp", "ManifestRows", "identify", "look_up"]


@dataclass(frozen=True, eq=False)
class ManifestRows:
    """Pieces that lie in one manifest.

    Attributes
    ----------
    members
        int64, numbers of the pieces in their batch.
    rows
        The reference of each one's stored chunk.
    """

    members: Int64Array
    rows: ChunkManifest


@dataclass(frozen=True, eq=False)
class LookedUp[Pieces: PieceSet]:
    """Pieces of a plan, with their references.

    Attributes
    ----------
    pieces
        A part of the plan.
    batch
        Some of its pieces.
    references
        By manifest. Pieces of blocks that no file holds are in none.
    """

    pieces: Pieces
    batch: PieceBatch
    references: tuple[ManifestRows, ...]


def look_up[Pieces: PieceSet](pieces: Pieces, batch: PieceBatch) -> LookedUp[Pieces]:
    """Look up the stored chunks of a batch of pieces."""
    return LookedUp(pieces, batch, tuple(_references(pieces.array, batch)))


def _references(array: VirtualArray, batch: PieceBatch) -> Iterator[ManifestRows]:
    present = np.flatnonzero(~is_missing_block(batch))
    if not len(present):
        return
    order = present[np.argsort(batch.manifest[present], kind="stable")]
    numbers = batch.manifest[order]
    for members in np.split(order, np.flatnonzero(numbers[1:] != numbers[:-1]) + 1):
        manifest = array.manifests[int(batch.manifest[members[0]])]
        yield ManifestRows(members, manifest.take(batch.row[members]))


def identify(looked_up: Iterable[LookedUp[CrossProduct]], digest: hashlib.blake2b) -> None:
    """Add to a digest all that the elements of pieces depend on.

    That is which elements of which stored chunks go where, what these chunks are, and how they are
    decoded. Names of sources count by what they are, not by where they stand in a catalog.
    """
    for part in looked_up:
        for axis in part.pieces.axes:
            assert isinstance(axis.pieces, SliceProjection)
            pieces = axis.pieces
            _add(digest, pieces.start, pieces.step, pieces.count, pieces.out_start)
        _add(digest, part.batch.piece, part.batch.shape)
        for references in part.references:
            used, numbers = np.unique(part.batch.encoding[references.members], return_inverse=True)
            _add(digest, references.members, numbers)
            for number in used.tolist():
                digest.update(_encoding_identity(part.pieces.array.encodings[number]))
            _identify_rows(references.rows, digest)


def _identify_rows(rows: ChunkManifest, digest: hashlib.blake2b) -> None:
    in_file = rows.state == ChunkState.RANGE
    used, numbers = np.unique(rows.source[in_file], return_inverse=True)
    for number in used.tolist():
        digest.update(rows.sources[number].identity.encode())
    _add(digest, numbers, rows.offset[in_file], rows.length, rows.state)
    if rows.filter_mask is not None and rows.filter_mask.any():
        _add(digest, rows.filter_mask)
    for row in np.flatnonzero(rows.state == ChunkState.INLINE).tolist():
        digest.update(rows.inline_bytes(row))


@lru_cache(maxsize=256)
def _encoding_identity(encoding: Encoding) -> bytes:
    return repr(encoding).encode()


def _add(digest: hashlib.blake2b, *columns: NDArray[np.generic]) -> None:
    for column in columns:
        digest.update(len(column).to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(column))
