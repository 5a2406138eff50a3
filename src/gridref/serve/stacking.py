"""Many alike chunks of plain bytes, decoded and delivered at once instead of one by one.

Archives of a few bytes a chunk (time axes with a chunk length of 1, say) would otherwise spend all
their time in the interpreter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from gridref.codecs import decode_chunk, unpack
from gridref.model.encoding import Encoding
from gridref.model.manifest import ChunkManifest
from gridref.model.projection import SliceProjection
from gridref.serve.plan import CrossProduct, PieceBatch, PieceSet
from gridref.typing import Int64Array

__all__ = ["can_stack", "deliver_stacked"]


LEAST_PIECES = 16
MOST_CHUNK_BYTES = 4096
"""Larger chunks gain nothing: their time goes into copying."""


def can_stack(
    cross: PieceSet, batch: PieceBatch, members: Int64Array, rows: ChunkManifest
) -> TypeGuard[CrossProduct]:
    """Whether pieces can be delivered by `deliver_stacked`.

    They can if all are selected by slices and held by small chunks of one encoding, without any
    codec but ``bytes``, of one decoded shape and stored length.
    """
    if len(members) < LEAST_PIECES or rows.length[0] > MOST_CHUNK_BYTES:
        return False
    if not isinstance(cross, CrossProduct):
        return False
    if not all(isinstance(axis.pieces, SliceProjection) for axis in cross.axes):
        return False
    encoding = cross.array.encodings[int(batch.encoding[members[0]])]
    return (
        [codec.name for codec in encoding.codecs] == ["bytes"]
        and not encoding.prefix
        and rows.filter_mask is None
        and bool((rows.length == rows.length[0]).all())
        and bool((batch.encoding[members] == batch.encoding[members[0]]).all())
        and bool((batch.shape[members] == batch.shape[members[0]]).all())
        and int(rows.length[0]) == _chunk_bytes(encoding, batch.shape[members[0]])
    )


def _chunk_bytes(encoding: Encoding, shape: Int64Array) -> int:
    return int(np.prod(shape)) * encoding.dtype.itemsize


def deliver_stacked(
    cross: CrossProduct,
    batch: PieceBatch,
    members: Int64Array,
    data: Sequence[bytes | memoryview],
    out: NDArray[Any],
) -> None:
    """Decode chunks as one array with an axis in front, and copy their elements to the output.

    Parameters
    ----------
    data
        The chunks' bytes back to back, in any number of buffers.
    """
    encoding = cross.array.encodings[int(batch.encoding[members[0]])]
    shape = (len(members), *batch.shape[members[0]].tolist())
    stacked = decode_chunk(b"".join(data), replace(encoding, chunk_shape=shape), shape)
    pieces = batch.piece[members]
    for alike in _alike(cross, pieces):
        values = stacked[(alike, *cross.in_chunk(pieces[alike[0]]))]
        if encoding.unpacking is not None:
            values = unpack(values, encoding.unpacking)
        out[_mesh(cross, pieces[alike])] = values


def _alike(cross: CrossProduct, pieces: Int64Array) -> list[Int64Array]:
    """Groups of pieces that take the same elements of their chunks."""
    columns = [
        column[pieces[:, axis]]
        for axis, along in enumerate(cross.axes)
        if isinstance(along.pieces, SliceProjection)
        for column in (along.pieces.start, along.pieces.step, along.pieces.count)
    ]
    if not columns:
        return [np.arange(len(pieces))]
    table = np.stack(columns, axis=1)
    if (table == table[0]).all():
        return [np.arange(len(pieces))]
    _, group = np.unique(table, axis=0, return_inverse=True)
    order = np.argsort(group, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(group[order])) + 1)


def _mesh(cross: CrossProduct, pieces: Int64Array) -> tuple[Int64Array, ...]:
    """Places in the output of every element of alike pieces: one index array an axis."""
    ndim = len(cross.axes)
    mesh = []
    for axis, along in enumerate(cross.axes):
        assert isinstance(along.pieces, SliceProjection)
        count = int(along.pieces.count[pieces[0, axis]])
        starts = along.pieces.out_start[pieces[:, axis]]
        shape = [len(pieces)] + [1] * ndim
        shape[1 + axis] = count
        mesh.append((starts[:, np.newaxis] + np.arange(count)).reshape(shape))
    return tuple(mesh)
