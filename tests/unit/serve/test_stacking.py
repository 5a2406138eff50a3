"""Which small chunks are delivered together, and that what is delivered is theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gridref.model.array import VirtualArray
from gridref.model.encoding import Codec, EdgePolicy, Encoding, bytes_codec
from gridref.model.joining import concatenate
from gridref.model.manifest import ChunkManifest
from gridref.serve.plan import PieceSet, look_up, plan_points, plan_read
from gridref.serve.tasks import LEAST_PIECES, MOST_CHUNK_BYTES, Task, deliver_stacked, together
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


def task_of(pieces: PieceSet) -> Task:
    (batch,) = pieces.batches(10**6)
    (references,) = look_up(pieces, batch).references
    return Task(pieces, batch, references.members, references.rows)


def stacked(array: VirtualArray, selection: Any = None) -> list[int]:
    (cross,) = plan_read(array, selection).crosses
    return together(task_of(cross))[0].tolist()


LONGER = np.array([4] * (LEAST_PIECES - 1) + [5])


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (inline(LEAST_PIECES), LEAST_PIECES),
        (inline(LEAST_PIECES - 1), 0),
        (inline(LEAST_PIECES, MOST_CHUNK_BYTES), LEAST_PIECES),
        (inline(LEAST_PIECES, MOST_CHUNK_BYTES + 1), 0),
        (inline(LEAST_PIECES, codecs=(bytes_codec(U1), Codec("crc32c"))), LEAST_PIECES),
        (inline(LEAST_PIECES, prefix=b"head"), 0),
        (inline(LEAST_PIECES, masks=np.ones(LEAST_PIECES, np.uint32)), 0),
        (inline(LEAST_PIECES + 1, length=[*LONGER, 4]), LEAST_PIECES),
        (inline(LEAST_PIECES, length=LONGER), 0),
        (inline(LEAST_PIECES, length=np.full(LEAST_PIECES, 3)), 0),
        (inline(LEAST_PIECES, length=np.full(LEAST_PIECES, 5)), 0),
    ],
    ids=[
        *("enough", "too few", "large", "too large", "encoded", "prefixed", "masked"),
        *("one longer", "then too few", "all short", "all long"),
    ],
)
def test_small_chunks_that_are_alike_are_delivered_together(
    array: VirtualArray, expected: int
) -> None:
    assert len(stacked(array)) == expected


def test_only_slices_are_delivered_together() -> None:
    array = inline(2 * LEAST_PIECES)
    assert stacked(array, slice(1, None, 2))
    assert not stacked(array, np.arange(0, array.size, 4))
    points = plan_points(array, (np.arange(0, array.size, 4),))
    assert not len(together(task_of(points))[0])


def test_encoded_chunks_are_if_all_of_them_is_wanted() -> None:
    codecs = (bytes_codec(U1), Codec("crc32c"))
    array = inline(2 * LEAST_PIECES, codecs=codecs)
    assert stacked(array, slice(3, -1)) == [*range(1, 2 * LEAST_PIECES - 1)]
    assert not stacked(array, slice(None, None, 2))


def test_chunks_of_several_shapes_or_encodings_are_not() -> None:
    values = np.arange(4 * LEAST_PIECES + 2, dtype="u1")
    short = chunked_array(values, (4,), ("x",), edge=EdgePolicy.TRUNCATED)
    assert stacked(short) == [*range(LEAST_PIECES)]
    two = [
        chunked_array(np.arange(2 * LEAST_PIECES, dtype="<i4"), (2,), ("x",), big_endian=big)
        for big in (False, True)
    ]
    mixed = concatenate(two, 0)
    (cross,) = plan_read(mixed).crosses
    (batch,) = cross.batches(10**6)
    rows = look_up(cross, batch).references[0].rows
    members = np.arange(LEAST_PIECES - 2, 2 * LEAST_PIECES - 2)
    task = Task(cross, batch, members, rows.take(np.zeros(LEAST_PIECES, np.int64)))
    assert not len(together(task)[0])


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
    task = task_of(plan.crosses[0])
    data = [task.rows.inline_bytes(row) for row in range(task.rows.n_rows)]
    out = np.full(plan.shape, -1, "i2")
    deliver_stacked(task, data, out)
    np.testing.assert_array_equal(plan.finish(out), values[selection])
