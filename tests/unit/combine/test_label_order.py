"""Labels of several files brought in one order, against a slow way of doing it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from gridref.combine import Along, CombineOptions, Hypercube, combine
from gridref.combine.boxes import Runs
from gridref.combine.columns import label_text
from gridref.combine.labels import LabelOrder, Places, fall
from gridref.combine.rules.joined_labels import reindex
from gridref.combine.values import same_values
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly
from tests.short_series import combined, series

FILES = (7, 3, 5)
"""Numbers of files, in no order."""
CASES: list[tuple[list[int], ...]] = [
    ([0, 1, 2], [1, 2, 3]),
    ([0, 1, 2], [1]),
    ([1], [0, 1, 2]),
    ([2, 1, 0], [3, 2, 1]),
    ([0, 2, 4], [1, 3]),
    ([0], [0], [0]),
    ([0, 1], [4, 5], [1, 4]),
    ([3, 2], [1], [2, 1]),
    ([2, 0, 1], [1, 2]),
    ([5], [4], [5]),
]


def shown(
    labels: tuple[list[int], ...], lacks: dict[int, list[bool]], keep_last: bool
) -> list[tuple[int, int]]:
    """File and place of one element of each label, in order."""
    best: dict[int, tuple[Any, int, int]] = {}
    for number, part in enumerate(labels):
        for place, label in enumerate(part):
            missing = lacks.get(FILES[number], [False] * len(part))[place]
            rank = (missing, -number if keep_last else number, place)
            if label not in best or rank < best[label][0]:
                best[label] = (rank, FILES[number], place)
    order = sorted(best, reverse=fall([np.array(part) for part in labels]))
    return [best[label][1:] for label in order]


@pytest.mark.parametrize("keep_last", [False, True])
@pytest.mark.parametrize("labels", CASES, ids=str)
def test_each_label_is_shown_once(labels: tuple[list[int], ...], keep_last: bool) -> None:
    arrays = [np.array(part) for part in labels]
    order = LabelOrder(arrays, FILES[: len(labels)], keep_last, {9: 4})
    holes: list[dict[int, list[bool]]] = [{}, {7: [False] * len(labels[0])}]
    for number, part in enumerate(labels):
        holes += [
            {FILES[number]: list(mask)} for mask in itertools.product([0, 1], repeat=len(part))
        ]
    for lacks in holes:
        masks = {file: np.array(mask, bool) for file, mask in lacks.items()}
        runs = order.runs(masks)
        assert sorted(runs.file) == runs.file.tolist()
        columns = (runs.place, runs.file, runs.start, runs.count)
        pieces = sorted(zip(*(column.tolist() for column in columns), strict=True))
        n_labels = len(shown(labels, lacks, keep_last))
        assert pieces[-1] == (n_labels, 9, 0, 4)
        assert runs.extent == n_labels + 4
        assert [at for at, *_ in pieces[1:]] == [at + n for at, _, _, n in pieces[:-1]]
        found = [(file, k) for _, file, start, n in pieces[:-1] for k in range(start, start + n)]
        assert found == shown(labels, lacks, keep_last)
        for (_, one, start, n), (_, other, next_start, _) in itertools.pairwise(pieces[:-1]):
            assert (one, start + n) != (other, next_start)  # as few as can be


@pytest.mark.parametrize("falls", [False, True])
def test_runs_are_neighbours_in_the_labels_and_in_the_file(falls: bool) -> None:
    other = np.array([5, 3, 4], np.int64)
    for n in range(6):
        for chosen in itertools.combinations(range(6), n):
            places = np.array(chosen[::-1] if falls else chosen, np.int64)
            runs = Runs.of_places({2: other, 3: places, 7: other}, 6)
            assert (runs.extent, runs.file.tolist()) == (6, sorted(runs.file.tolist()))
            mine = runs.file == 3
            got = np.full(6, -1)
            columns = (runs.start, runs.step, runs.count, runs.place)
            for start, step, count, place in zip(*(c[mine].tolist() for c in columns), strict=True):
                got[place : place + count] = start + step * np.arange(count)
            expected = np.full(6, -1)
            expected[places] = np.arange(n)
            assert got.tolist() == expected.tolist()
            assert mine.sum() == sum(k - 1 not in chosen for k in chosen)
            assert runs.place[runs.file == 7].tolist() == [4, 3, 5]


@pytest.mark.parametrize(
    ("label", "attrs", "text"),
    [
        (np.float64(1.5), {"units": "K"}, "1.5"),
        (np.int32(31), {"units": "days since 2000-01-01"}, "2000-02-01"),
        (np.float64(0.5), {"units": "days since 2000-01-01"}, "2000-01-01T12:00:00"),
        (np.int64(-1), {"units": "hours since 1970-01-01"}, "1969-12-31T23:00:00"),
        (np.int32(3), {"units": "days since 2000-01-01", "calendar": "noleap"}, None),
        (np.float64("nan"), {"units": "days since 2000-01-01"}, None),
        (np.int64(10**9), {"units": "days since 2000-01-01"}, "1000000000"),
        (np.str_("a"), {"units": "days since 2000-01-01"}, "a days since 2000-01-01"),
        (np.str_("a"), {}, "a"),
    ],
)
def test_labels_in_words(label: Any, attrs: dict[str, str], text: str | None) -> None:
    assert label_text(label, attrs) == (f"{label} {attrs['units']}" if text is None else text)


def test_spans_of_labels_in_words() -> None:
    attrs = {"units": "days since 2000-01-01"}
    coordinate = VirtualArray.from_numpy(np.arange(6), ["time"], attrs)
    places = Places(coordinate, {}, np.arange(6))
    assert places.text(0, 1) == "time 2000-01-01"
    assert places.text(0, 2) == "time 2000-01-01 to 2000-01-02"
    assert places.text(3, 6) == "time 2000-01-04 to 2000-01-06"


INDICES = [
    [0, 1, 2, 3],
    [3, 1],
    [-1, -1],
    [-1, 0, -1, 3, 2, -1],
    [0, 0, -1, 0],
    [],
    [2, -1],
    [-1, 2],
]


@pytest.mark.parametrize("indices", INDICES, ids=str)
@pytest.mark.parametrize("dim", ["x", "y"])
def test_places_that_a_file_lacks_are_missing(indices: list[int], dim: str) -> None:
    values = np.arange(16, dtype="i4").reshape(4, 4)
    array = chunked_array(values, (2, 3), ("x", "y"), attrs={"k": 1}, fill_value=-9)
    found = reindex(array, dim, np.array(indices, np.int64), -7)
    expected = np.take(values, np.maximum(indices, 0).astype(int), "xy".index(dim))
    moved = np.moveaxis(expected, "xy".index(dim), 0)
    moved[np.array(indices, int) < 0] = -7
    assert read_slowly(found).tolist() == expected.tolist()
    assert (found.dims, found.attrs["k"]) == (("x", "y"), 1)


def numbered(labels: Any, first: int = 0) -> VirtualGroup:
    return series(labels, first + np.arange(len(labels), dtype="i2"))


def reports(*labels: Any, **options: Any) -> list[str]:
    groups = [numbered(part, 10 * number) for number, part in enumerate(labels)]
    done = combined(*groups, **options)
    if done.group is None:
        return [problem.cause for problem in done.problems]
    return [drift.cause for drift in done.report]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (([0, 1], [2, 3]), []),
        (([0, 1], [1, 2]), ["overlap"]),
        (([3, 2], [1, 0]), []),
        (([3, 2], [2, 1]), ["overlap"]),
        (([2, 3], [0, 1]), ["order"]),
        (([0, 1], [3, 2]), ["order"]),
        (([1, 0], [2, 3]), ["order"]),
        (([0, 2], [1, 3]), ["order"]),
        (([0], [0]), ["overlap"]),
        (([1], [0]), []),
        (([0, 0], [1, 2]), ["overlap"]),
        (([0, 1], [2, 3], [1.5, 9]), ["order"]),
        (([0, 1], [2.6, 3.6]), ["gap"]),
        (([0, 1], [2.5, 3.5]), []),
        (([1, 0], [-1.6, -2.6]), ["gap"]),
        ((["a", "b"], ["x", "y"]), []),
        ((["a", "c"], ["b", "d"]), ["order"]),
    ],
    ids=str,
)
def test_what_is_said_of_the_order_of_labels(labels: Any, expected: list[str]) -> None:
    kind = "S1" if isinstance(labels[0][0], str) else "f8"
    assert reports(*(np.array(part, kind) for part in labels)) == expected


def test_texts_and_numbers_have_no_order() -> None:
    assert reports(np.array([0.0, 1.0]), np.array(["2", "3"])) == ["dtype-differs"]


def by_label(*labels: Any) -> tuple[list[Any], list[tuple[str, str]]]:
    """Labels of the result, where each value is ten times its label; and what is said of them."""
    kind = "S1" if isinstance(labels[0][0], str) else "f8"
    groups = [numbered(np.array(part, kind), 10 * number) for number, part in enumerate(labels)]
    done = combine(groups, Along(("x",), by_label=True), read=read_slowly)
    assert done.group is not None
    given = [
        (label, 10 * number + i) for number, part in enumerate(labels)
        for i, label in enumerate(np.array(part, kind).tolist())
    ]  # fmt: skip
    found = read_slowly(done.group.arrays["x"]).tolist()
    values = read_slowly(done.group.arrays["v"]).tolist()
    assert sorted(zip(found, values, strict=True)) == sorted(given)  # each keeps its label
    return found, [(drift.cause, drift.resolution) for drift in done.report]


@pytest.mark.parametrize("batch", [1024, 2])
@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (([2, 3], [0, 1]), [0, 1, 2, 3]),
        (([5], [4], [6]), [4, 5, 6]),
        (([2], [1]), [1, 2]),
        (([4, 3], [1, 0], [6, 5]), [6, 5, 4, 3, 1, 0]),
        (([4, 5], [0, 2], [1, 3]), [0, 1, 2, 3, 4, 5]),
        (([6, 7], [0, 1], [4, 5], [2, 3], [8]), [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ((["c", "d"], ["a", "b"]), [b"a", b"b", b"c", b"d"]),
    ],
    ids=str,
)
def test_files_are_placed_by_their_labels(
    labels: Any, expected: list[Any], batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridref.combine.combining.BATCH_GROUPS", batch)
    found, said = by_label(*labels)
    assert found == expected
    assert ("order", "placed by label") in said


@pytest.mark.parametrize("labels", [([3, 2], [0, 1]), ([1, 0, 2], [3, 4]), ([5, 3, 4], [0, 1])])
def test_labels_that_say_no_order_leave_the_given_one(labels: Any) -> None:
    found, said = by_label(*labels)
    assert found == [label for part in labels for label in part]
    assert said == [("order", "order kept")]


def test_labels_that_cannot_be_compared_leave_the_given_order() -> None:
    groups = [numbered(np.array([2.0, np.nan])), numbered(np.array([0.0, 1.0]), 10)]
    done = combine(groups, Along(("x",), by_label=True), read=read_slowly)
    assert done.group is not None
    assert read_slowly(done.group.arrays["v"]).tolist() == [0, 1, 10, 11]
    assert [(drift.cause, drift.resolution) for drift in done.report] == [("labels", "order kept")]


def test_labels_that_repeat_may_be_kept() -> None:
    groups = [numbered([0, 1]), numbered([1, 2], 10)]
    for rule, expected in (("keep", [0, 1, 10, 11]), ("first", [0, 1, 11]), ("last", [0, 10, 11])):
        done = combine(groups, "x", read=read_slowly, options=CombineOptions(overlap=rule))
        assert done.group is not None
        assert read_slowly(done.group.arrays["v"]).tolist() == expected


def test_labels_that_interleave_too_often_are_not_cut_into_pieces() -> None:
    """Four pieces a file, and a thousand, are as many as may be."""
    for n, fits in ((504, True), (505, False)):
        even, odd = 2 * np.arange(n), np.append(2 * np.arange(n) + 1, 0)
        labels = [np.sort(even), odd]
        groups = [numbered(part) for part in labels]
        done = combine(groups, "x", read=read_slowly, options=CombineOptions(overlap="first"))
        assert (done.group is not None) == fits


def test_inputs_without_labels_add_nothing_to_a_cube() -> None:
    def field(t: list[int]) -> VirtualGroup:
        values = np.array(t, "i4")[:, np.newaxis] * 10 + np.arange(2, dtype="i4")
        chunks = (max(1, len(t)), 2)
        return VirtualGroup(
            {
                "t": chunked_array(np.array(t, "i4"), chunks[:1], ("t",)),
                "x": chunked_array(np.arange(2, dtype="i4"), chunks[1:], ("x",)),
                "v": chunked_array(values, chunks, ("t", "x")),
            }
        )

    done = combine([field([]), field([1]), field([0])], Hypercube(("t", "x")), read=read_slowly)
    assert done.group is not None
    assert read_slowly(done.group.arrays["v"]).tolist() == [[0, 1], [10, 11]]


@pytest.mark.parametrize(
    ("second", "expected"),
    [([20, 30], [10, 20, 30]), ([21, 30], None)],
)
def test_what_does_not_grow_is_put_together_by_its_labels(
    second: list[int], expected: list[int] | None
) -> None:
    def part(t: int, x: list[int], w: list[int]) -> VirtualGroup:
        values = np.array([x], "f4") + 100 * t
        return VirtualGroup(
            {
                "x": chunked_array(np.array(x, "i4"), (2,), ("x",)),
                "w": chunked_array(np.array(w, "f8"), (2,), ("x",)),
                "v": chunked_array(values, (1, 2), ("t", "x")),
            }
        )

    groups = [part(0, [1, 2], [10, 20]), part(1, [2, 3], second)]
    done = combine(groups, "t", read=read_slowly, options=CombineOptions(join="outer"))
    if expected is None:
        assert [problem.cause for problem in done.problems] == ["values-differ"]
        return
    assert done.group is not None, done.problems
    assert read_slowly(done.group.arrays["w"]).tolist() == expected
    np.testing.assert_array_equal(
        read_slowly(done.group.arrays["v"]), [[1, 2, np.nan], [np.nan, 102, 103]]
    )


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ([1.0, np.nan], [1.0, np.nan], True),
        ([1.0, np.nan], [1.0, 2.0], False),
        ([1.0], [1], True),
        ([1.0], ["a"], False),
        (["a"], [1.0], False),
        (["a"], ["a"], True),
        ([1], [[1]], False),
        ([1j, np.nan], [1j, np.nan], True),
        ([], [], True),
    ],
    ids=range(9),
)
def test_values_that_are_the_same(one: Any, other: Any, same: bool) -> None:
    assert same_values(np.array(one), np.array(other)) is same


def test_elements_that_are_counted_stay_in_their_order() -> None:
    """An index variable is shifted by the files before: where labels move elements, it is wrong."""

    def counted(labels: list[float]) -> VirtualGroup:
        first = VirtualArray.from_numpy(np.arange(len(labels), dtype="i4"), ("x",))
        label = VirtualArray.from_numpy(np.array(labels), ("x",))
        return VirtualGroup({"x": label, "first": first})

    rules = CombineOptions(index_variables={"first": "x"})
    moved = [counted([3, 4]), counted([0, 1, 2])]
    done = combine(moved, Along(("x",), by_label=True), read=read_slowly, options=rules)
    assert done.group is not None
    assert read_slowly(done.group.arrays["x"]).tolist() == [3, 4, 0, 1, 2]
    assert read_slowly(done.group.arrays["first"]).tolist() == [0, 1, 2, 3, 4]
    cube = combine(moved, Hypercube(("x",)), read=read_slowly, options=rules)
    assert [problem.cause for problem in cube.problems] == ["index-shift"]
    cube = combine(moved[::-1], Hypercube(("x",)), read=read_slowly, options=rules)
    assert cube.group is not None
    assert read_slowly(cube.group.arrays["first"]).tolist() == [0, 1, 2, 3, 4]
    both = [counted([0, 1]), counted([1, 2])]
    first = CombineOptions(index_variables={"first": "x"}, overlap="first")
    done = combine(both, "x", read=read_slowly, options=first)
    assert [problem.cause for problem in done.problems] == ["index-shift"]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([[3, 2, 1], [6, 5]], True),
        ([[3, 2, 1], [4]], True),
        ([[3, 2, 1], [4, 5]], False),
        ([[3, 2], [4, 4]], False),
        ([[1], [2]], False),
        ([], False),
        ([[1, 2]], False),
    ],
)
def test_labels_fall_where_those_of_every_file_do(labels: list[list[int]], expected: bool) -> None:
    assert fall([np.array(part) for part in labels]) is expected
