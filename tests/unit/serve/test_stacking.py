"""Which small chunks are delivered together, and that what is delivered is theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gridref.model.array import VirtualArray
from gridref.model.encoding import Codec, EdgePolicy, Encoding, bytes_codec
from gridref.model.joining import concatenate
from gridref.model.manifest import ChunkManifest
from gridref.serve.plan import look_up, plan_points, plan_read
from gridref.serve.tasks import LEAST_PIECES, MOST_CHUNK_BYTES, can_stack, deliver_stacked
from gridref.testing.builders import chunked_array

U1 = np.dtype("u1")


def inline(
    n_chunks: int,
    chunk_bytes: int = 4,
    *,
    length: Any = None,
    codecs: tuple[Codec, ...] = (bytes_codec(U1),),
    prefix: bytes = b"",
    masks: Any = None,
) -> VirtualArray:
    """Chunks of `chunk_bytes` bytes each, that say they are stored in `length`."""
    return VirtualArray.of_one_block(
        (n_chunks * chunk_bytes,),
        U1,
        encoding=Encoding((chunk_bytes,), U1, codecs, prefix=prefix),
        manifest=ChunkManifest.from_columns(
            (),
            offset=np.arange(n_chunks) * chunk_bytes,
            length=np.full(n_chunks, chunk_bytes) if length is None else length,
            state=2,
            filter_mask=masks,
            inline=bytes(2 * n_chunks * chunk_bytes),
        ),
        dims=("x",),
    )


def stacks(array: VirtualArray, selection: Any = None) -> bool:
    (cross,) = plan_read(array, selection).crosses
    (batch,) = cross.batches(10**6)
    (references,) = look_up(cross, batch).references
    return bool(can_stack(cross, batch, references.members, references.rows))


LONGER = np.array([4] * (LEAST_PIECES - 1) + [5])


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (inline(LEAST_PIECES), True),
        (inline(LEAST_PIECES - 1), False),
        (inline(LEAST_PIECES, MOST_CHUNK_BYTES), True),
        (inline(LEAST_PIECES, MOST_CHUNK_BYTES + 1), False),
        (inline(LEAST_PIECES, codecs=(bytes_codec(U1), Codec("crc32c"))), False),
        (inline(LEAST_PIECES, prefix=b"head"), False),
        (inline(LEAST_PIECES, masks=np.ones(LEAST_PIECES, np.uint32)), False),
        (inline(LEAST_PIECES, length=LONGER), False),
        (inline(LEAST_PIECES, length=np.full(LEAST_PIECES, 3)), False),
        (inline(LEAST_PIECES, length=np.full(LEAST_PIECES, 5)), False),
    ],
    ids=[
        *("enough", "too few", "large", "too large", "encoded", "prefixed", "masked"),
        *("one longer", "all short", "all long"),
    ],
)
def test_alike_small_plain_chunks_are_delivered_together(
    array: VirtualArray, expected: bool
) -> None:
    assert stacks(array) == expected


def test_only_slices_are_delivered_together() -> None:
    array = inline(2 * LEAST_PIECES)
    assert stacks(array, slice(1, None, 2))
    assert not stacks(array, np.arange(0, array.size, 4))
    points = plan_points(array, (np.arange(0, array.size, 4),))
    (batch,) = points.batches(10**6)
    (references,) = look_up(points, batch).references
    assert not can_stack(points, batch, references.members, references.rows)


def test_chunks_of_several_shapes_or_encodings_are_not() -> None:
    values = np.arange(4 * LEAST_PIECES + 2, dtype="u1")
    short = chunked_array(values, (4,), ("x",), edge=EdgePolicy.TRUNCATED)
    assert not stacks(short)
    assert stacks(short, slice(0, -2))
    two = [
        chunked_array(np.arange(2 * LEAST_PIECES, dtype="<i4"), (2,), ("x",), big_endian=big)
        for big in (False, True)
    ]
    mixed = concatenate(two, 0)
    (cross,) = plan_read(mixed).crosses
    (batch,) = cross.batches(10**6)
    rows = look_up(cross, batch).references[0].rows
    members = np.arange(LEAST_PIECES - 2, 2 * LEAST_PIECES - 2)
    assert not can_stack(cross, batch, members, rows.take(np.zeros(LEAST_PIECES, np.int64)))


@pytest.mark.parametrize(
    "selection",
    [
        np.s_[:, :],
        np.s_[1:, 2:],
        np.s_[::2, 1::3],
        np.s_[3:17, ::-1],
        np.s_[5, :],
        np.s_[1:2, 4:5],
    ],
)
def test_pieces_of_every_kind_go_where_they_belong(selection: Any) -> None:
    values = np.arange(20 * 18, dtype="<i2").reshape(20, 18)
    array = chunked_array(values, (3, 4), ("y", "x"), big_endian=True)
    plan = plan_read(array, selection)
    (cross,) = plan.crosses
    (batch,) = cross.batches(10**6)
    looked_up = look_up(cross, batch)
    (references,) = looked_up.references
    data = [references.rows.inline_bytes(row) for row in range(references.rows.n_rows)]
    out = np.full(plan.shape, -1, "i2")
    deliver_stacked(cross, batch, references.members, data, out)
    np.testing.assert_array_equal(plan.finish(out), values[selection])
