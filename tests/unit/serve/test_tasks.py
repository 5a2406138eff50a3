from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gridref.cache import LRU
from gridref.model.array import VirtualArray
from gridref.model.encoding import Codec, EdgePolicy, Encoding, bytes_codec
from gridref.model.joining import concatenate, lay_out
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from gridref.serve import tasks as module
from gridref.serve.plan import PieceSet, look_up, plan_points, plan_read
from gridref.serve.tasks import (
    LEAST_PIECES,
    MOST_CHUNK_BYTES,
    Task,
    deliver_stacked,
    tasks_of,
    together,
)
from gridref.testing.builders import chunked_array

# Work for threads: chunks of one file, in the order in which they lie there, not too many

I4 = np.dtype("<i4")
SOURCES = (Source("/a"), Source("/b"))
NONE_KEPT = LRU[Any](0)


def array_of(rows: list[tuple[int, int, int, int]], **options: Any) -> VirtualArray:
    """One chunk of one element for each source, offset, length and state."""
    source, offset, length, state = (np.array(column) for column in zip(*rows, strict=True))
    manifest = ChunkManifest.from_columns(
        SOURCES, source=source, offset=offset, length=length, state=state, inline=bytes(100)
    )
    encoding = Encoding((1,), I4, (bytes_codec(I4),), **options)
    return VirtualArray.of_one_block(
        (len(rows),), I4, encoding=encoding, manifest=manifest, dims=("x",), fill_value=-1
    )


def cut(array: VirtualArray, n_tasks: int = 1) -> tuple[list[Task], np.ndarray]:
    out = np.full(array.shape, 99, I4)
    found = [
        task
        for cross in plan_read(array).crosses
        for batch in cross.batches(10**6)
        for task in tasks_of(look_up(cross, batch), out, n_tasks, NONE_KEPT)
    ]
    return found, out


RANGE, INLINE, MISSING = ChunkState.RANGE, ChunkState.INLINE, ChunkState.MISSING
ROWS = [
    (0, 40, 4, RANGE),
    (1, 8, 4, RANGE),
    (0, 0, 4, MISSING),
    (0, 12, 4, RANGE),
    (0, 0, 4, INLINE),
    (1, 4, 4, RANGE),
    (0, 4, 4, INLINE),
]


def test_a_task_is_of_one_file_in_its_order() -> None:
    found, out = cut(array_of(ROWS))
    assert [task.source for task in found] == [SOURCES[0], SOURCES[1], None]
    assert [task.members.tolist() for task in found] == [[3, 0], [5, 1], [4, 6]]
    assert [task.rows.offset.tolist() for task in found] == [[12, 40], [4, 8], [0, 4]]
    assert out.tolist() == [99, 99, -1, 99, 99, 99, 99]


def test_what_a_missing_chunk_holds_is_written_at_once() -> None:
    fill = np.array([5], I4).tobytes()
    found, out = cut(array_of([(0, 0, 4, MISSING)] * 2, fill=fill))
    assert found == []
    assert out.tolist() == [5, 5]


def test_blocks_that_no_file_holds_have_the_fill_value() -> None:
    found, out = cut(lay_out([array_of(ROWS[:1])], [[2]], [4]))
    assert [task.rows.offset.tolist() for task in found] == [[40]]
    assert out.tolist() == [-1, -1, 99, -1]


def sizes(found: list[Task]) -> list[int]:
    return [int(task.rows.length.sum()) for task in found]


LENGTHS = [5, 1, 4, 10, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("least", "most", "n_tasks", "expected"),
    [
        (1, 10**6, 1, [28]),
        (1, 10**6, 28, [5, 1, 4, 10, 2, 2, 2, 2]),
        (1, 10**6, 3, [10, 10, 8]),  # 9 bytes each
        (14, 10**6, 28, [20, 8]),
        (1, 5, 1, [5, 5, 10, 6, 2]),
        (1, 100, 2, [20, 8]),
    ],
)
def test_tasks_end_behind_so_many_bytes(
    monkeypatch: pytest.MonkeyPatch, least: int, most: int, n_tasks: int, expected: list[int]
) -> None:
    monkeypatch.setattr(module, "TASK_BYTES", (least, most))
    starts = np.cumsum([0, *LENGTHS[:-1]]).tolist()
    rows = [(0, at, n, int(RANGE)) for at, n in zip(starts, LENGTHS, strict=True)]
    assert sizes(cut(array_of(rows), n_tasks)[0]) == expected


def test_tasks_have_no_more_than_so_many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TASK_PIECES", 3)
    found, _ = cut(array_of([(0, 4 * n, 4, int(RANGE)) for n in range(7)]))
    assert [task.members.tolist() for task in found] == [[0, 1, 2], [3, 4, 5], [6]]


def test_the_chunk_that_holds_a_byte() -> None:
    ((task,), _) = cut(array_of([(0, 10, 4, int(RANGE)), (0, 14, 2, int(RANGE))]))
    found = {byte: task.place_at(byte).chunk for byte in range(9, 17)}
    assert found == {9: None, **dict.fromkeys(range(10, 14), (0,)), 14: (1,), 15: (1,), 16: None}
    assert task.place_at(None).chunk is None
    place = task.place_at(15)
    assert (place.source, place.start, place.stop) == ("/a", 14, 16)
    alone = task.part(np.array([1]))
    assert (alone.members.tolist(), alone.rows.offset.tolist()) == ([1], [14])
    ((inline,), _) = cut(array_of([(0, 0, 4, int(INLINE))]))
    (chunk,) = inline.chunks()
    assert (chunk.place.chunk, chunk.place.source) == ((0,), None)


def chunk_of(selection: Any, values: np.ndarray | None = None) -> tuple[module.Chunk, np.ndarray]:
    """The first chunk of 4 elements that a selection of 8 takes, and the output."""
    manifest = ChunkManifest.from_columns(SOURCES[:1], offset=np.array([0, 16]), length=16)
    array = VirtualArray.of_one_block(
        (8,),
        I4,
        encoding=Encoding((4,), I4, (bytes_codec(I4),)),
        manifest=manifest,
        dims=("x",),
    )
    plan = plan_read(array, selection)
    (cross,) = plan.crosses
    (batch,) = cross.batches(10)
    out = np.zeros(plan.shape, I4)
    task = next(iter(tasks_of(look_up(cross, batch), out, 1, NONE_KEPT)))
    return next(task.chunks()), out


@pytest.mark.parametrize(
    ("selection", "is_whole"),
    [
        (np.s_[:], True),
        (np.s_[:4], True),
        (np.s_[1:], False),
        (np.s_[:3], False),
        (np.s_[:4:2], False),
        (np.s_[::-1], True),  # the output is turned round in the end
        (np.arange(4), False),
    ],
)
def test_whether_all_of_a_chunk_is_wanted_in_its_order(selection: Any, is_whole: bool) -> None:
    assert chunk_of(selection)[0].is_whole() == is_whole


def test_elements_are_decoded_to_where_they_lie_in_the_output_if_they_can() -> None:
    chunk, out = chunk_of(np.s_[:])
    memory = chunk.memory(out, (4,))
    assert memory is not None
    assert np.shares_memory(memory, out[:4])
    assert chunk.memory(out, (3,)) is None
    assert chunk.memory(out.astype("f4"), (4,)) is None
    assert chunk.memory(np.zeros(16, I4)[::2], (4,)) is None
    chunk, out = chunk_of(np.array([0, 2, 5]))
    assert chunk.memory(out, (2,)) is None


def test_delivering_tells_whether_that_was_all() -> None:
    values = np.array([3, 1, 4, 1], I4)
    for selection, was_all in ((np.s_[:], True), (np.s_[1:3], False), (np.s_[:1], False)):
        chunk, out = chunk_of(selection)
        assert chunk.deliver(values, out) == was_all
        assert out[: len(values[selection])].tolist() == values[selection].tolist()


def test_chunks_of_several_manifests_are_kept_apart() -> None:
    (one, _), (same, _) = chunk_of(np.s_[:]), chunk_of(np.s_[:])
    assert one.key == one.key
    assert hash(one.key) == hash(one.key)
    assert one.key != same.key


# Which small chunks are delivered together, and that what is delivered is theirs

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
