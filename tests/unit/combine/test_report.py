"""Reports of drift, in words and as numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gridref.combine import Combination, Drift, DriftReport
from gridref.combine.columns import source_name
from gridref.combine.report import DriftCase, file_ranges, grouped
from gridref.errors import CombineError, Problem
from gridref.model.array import VirtualGroup
from gridref.model.scan_report import LEFT_OUT, Fate, Finding, ScanReport
from gridref.testing.builders import chunked_array


@pytest.mark.parametrize(
    ("ranges", "n_files", "text"),
    [
        (((0, 0),), 5, "file 1"),
        (((0, 2),), 5, "files 1 to 3"),
        (((0, 4),), 5, "files 1 to 5"),
        (((2, 4),), 5, "file 3 onward"),
        (((2, 3),), 5, "files 3 to 4"),
        (((4, 4),), 5, "file 5"),
        (((0, 0), (2, 4)), 5, "file 1, file 3 onward"),
        (((0, 0), (2, 2), (4, 5)), 9, "file 1, file 3, files 5 to 6"),
        (((0, 0), (2, 2), (4, 5), (7, 8)), 9, "file 1, file 3, files 5 to 6 and 2 more"),
        (((0, 0), (2, 2), (4, 5), (7, 7), (9, 11)), 99, "file 1, file 3, files 5 to 6 and 4 more"),
    ],
)
def test_files_in_words(ranges: tuple[tuple[int, int], ...], n_files: int, text: str) -> None:
    assert DriftCase("v", ranges).where(n_files) == text


def test_neighbouring_files_are_one_range() -> None:
    for numbers in itertools.chain.from_iterable(
        itertools.combinations(range(6), n) for n in range(7)
    ):
        ranges = file_ranges((number, number) for number in numbers)
        assert [n for low, high in ranges for n in range(low, high + 1)] == [*numbers]
        assert all(high + 1 < low for (_, high), (low, _) in itertools.pairwise(ranges))


DRIFT = Drift.of("packing", "t", {"one": [2, 0, 1], "two": [3]}, "unpacked")


def test_drifts_in_words_and_json() -> None:
    assert [case.ranges for case in DRIFT.cases] == [((0, 2),), ((3, 3),)]
    assert DRIFT.text(5) == "t: files 1 to 3: one; file 4: two -> unpacked"
    many = Drift.of("x", "", {str(n): [n] for n in range(22)}, "kept")
    assert (len(many.cases), many.n_cases) == (20, 22)
    assert many.text(22).startswith("/: file 1: 0; file 2: 1; ")
    assert many.text(22).endswith("; 2 more values -> kept")
    assert "more values" not in Drift.of("x", "", {"a": [0]}, "kept", 1).text(1)
    assert Drift.of("x", "", {"a": [0]}, "kept", 9).n_cases == 9
    assert DRIFT.to_json() == {
        "cause": "packing",
        "variable": "t",
        "resolution": "unpacked",
        "n_cases": 2,
        "cases": [{"value": "one", "files": [[0, 2]]}, {"value": "two", "files": [[3, 3]]}],
    }


def test_reports_in_words() -> None:
    files = ("a", "b", "c", "d")
    other = Drift.of("gap", "x", {"jump": [3]}, "left")
    same = Drift.of("packing", "u", {"one": [0]}, LEFT_OUT)
    report = DriftReport((DRIFT, other, same), files)
    assert str(report).splitlines() == [
        "packing",
        f"  {DRIFT.text(4)}",
        f"  {same.text(4)}",
        "gap",
        f"  {other.text(4)}",
    ]
    assert str(DriftReport((), ())) == "0 files, no drift"
    assert str(DriftReport((), ("a",))) == "1 file, no drift"
    assert str(DriftReport((), files)) == "4 files, no drift"
    assert (len(report), [*report]) == (3, [DRIFT, other, same])
    assert report.of_cause("packing") == (DRIFT, same)
    assert report.left_out == (same,)
    assert report.to_json()["files"] == [*files]
    assert [drift["cause"] for drift in report.to_json()["drifts"]] == ["packing", "gap", "packing"]


def test_rows_name_the_first_and_the_last_file() -> None:
    report = DriftReport((DRIFT,), ("a", "b", "c", "d"))
    one, two = report.rows()
    assert (one["n_files"], one["first_file"], one["last_file"]) == (3, "a", "c")
    assert (two["n_files"], two["first_file"], two["last_file"]) == (1, "d", "d")
    assert (one["cause"], one["variable"], one["value"]) == ("packing", "t", "one")
    (one,) = report.rows("d")  # what stands for a catalog differs from itself in nothing
    assert (one["n_files"], one["first_file"], one["last_file"]) == (3, "a", "c")
    one, two = report.rows("a")
    assert (one["n_files"], one["first_file"], one["last_file"]) == (2, "b", "c")
    assert two["n_files"] == 1


@pytest.mark.parametrize(
    ("n_files", "n_drifts", "n_problems", "text"),
    [
        (1, 1, 1, "1 file, 1 drift, 1 problem"),
        (2, 0, 2, "2 files, 0 drifts, 2 problems"),
        (0, 2, 0, "0 files, 2 drifts, 0 problems"),
    ],
)
def test_combinations_in_words(n_files: int, n_drifts: int, n_problems: int, text: str) -> None:
    report = DriftReport((DRIFT,) * n_drifts, ("a",) * n_files)
    done = Combination(VirtualGroup(), report, (Problem("overlap", "m"),) * n_problems)
    assert done.summary == text
    if n_problems:
        with pytest.raises(CombineError) as caught:
            done.unwrap()
        assert len(caught.value.problems) == n_problems
    else:
        assert done.unwrap() is done.group


def test_what_is_left_out_is_told_by_the_group() -> None:
    one = Drift.of("variable-missing", "u", {"there": [0], "missing": [1]}, LEFT_OUT)
    two = Drift.of("dtype", "w", {"no common one": [1]}, LEFT_OUT)
    done = Combination(VirtualGroup(), DriftReport((DRIFT, one, two), ("a", "b")))
    told = done.telling_what_is_left_out()
    assert told.group is not None
    assert [*told.group.report] == [
        Finding("/u", Fate.SKIPPED, "some files lack it", "b"),
        Finding("/w", Fate.SKIPPED, "no common one", "b"),
    ]
    plain = Combination(VirtualGroup(), DriftReport((DRIFT,), ("a", "b")))
    assert plain.telling_what_is_left_out() is plain
    nothing = Combination(None, done.report)
    assert nothing.telling_what_is_left_out() is nothing


def test_problems_of_one_cause_stand_beside_each_other() -> None:
    one = Problem("overlap", "m", "v", ("a",))
    other = Problem("units-differ", "m", "v", ("a",))
    two = Problem("overlap", "n", "w", ("b",))
    assert grouped([one, other, two]) == (one, two, other)
    assert grouped([]) == ()


def test_findings_in_words_and_by_what_became_of_them() -> None:
    taken = [Finding("/x", Fate.TAKEN, "", "a"), Finding("/y", Fate.TAKEN, "", "a")]
    skipped = Finding("/s", Fate.SKIPPED, "why")
    failed = Finding("f", Fate.FAILED, "gone")
    report = ScanReport((*taken, skipped, failed), 3, 40)
    assert (report.skipped, report.failed) == ((skipped,), (failed,))
    assert str(skipped) == "/s: skipped (why)"
    assert str(taken[0]) == "/x: taken"
    both = ScanReport.joined([report, report])
    assert (both.n_requests, both.n_bytes, len([*both])) == (6, 80, 8)


def test_the_source_of_a_group_is_that_of_its_report_first() -> None:
    array = chunked_array(np.arange(4), (2,), ("x",))
    findings = [Finding("/a", Fate.TAKEN, "", ""), Finding("/b", Fate.TAKEN, "", "one.nc")]
    report = ScanReport((*findings, Finding("/c", Fate.TAKEN, "", "two.nc")))
    assert source_name(VirtualGroup({"a": array}, report=report)) == "one.nc"
    assert source_name(VirtualGroup()) is None
