"""Work for threads: chunks of one file, in the order in which they lie there, not too many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gridref.cache import LRU
from gridref.model.array import VirtualArray
from gridref.model.encoding import Encoding, bytes_codec
from gridref.model.joining import lay_out
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from gridref.serve import tasks as module
from gridref.serve.plan import look_up, plan_read
from gridref.serve.tasks import Task, tasks_of

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
