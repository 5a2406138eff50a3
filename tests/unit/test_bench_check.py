"""`make bench-check`: a loss fails, noise does not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import _check
from benchmarks.__main__ import NAMES
from benchmarks._figures import Figure

JOB = "door.whole_array"
ROWS = [
    Figure("read", 2.0),
    Figure("read: requests", 50, unit="requests"),
    Figure("read one", 7, unit="s"),
]


def runs_of(*runs: list[Figure]) -> Iterator[list[Figure]]:
    """What the job finds, run by run; the last one again and again."""
    yield from runs
    while True:
        yield runs[-1]


@pytest.mark.parametrize(
    ("runs", "lost"),
    [
        pytest.param([[Figure("read", 1.65)]], "", id="a little slower"),
        pytest.param([[Figure("read", 1.55)]], "read", id="a loss"),
        pytest.param([[Figure("read", 0.5)], [Figure("read", 1.9)]], "", id="noise, once"),
        pytest.param([[Figure("read", n)] for n in (1, 1.5, 1.61)], "", id="noise, twice"),
        pytest.param([[Figure("read", n)] for n in (1, 1, 1, 2)], "read", id="more than noise"),
        pytest.param(
            [[Figure("read: requests", 60, unit="requests")]], "", id="some more requests"
        ),
        pytest.param(
            [[Figure("read: requests", 65, unit="requests")]], "read: requests", id="more requests"
        ),
        pytest.param([[Figure("read: requests", 5, unit="requests")]], "", id="fewer requests"),
        pytest.param([[Figure("read one", 70, unit="s")]], "", id="seconds of another machine"),
        pytest.param([[Figure("new", 0.1)]], "", id="never kept"),
    ],
)
def test_losses(
    runs: list[list[Figure]],
    lost: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept = tmp_path / "kept.json"
    monkeypatch.setattr(_check, "take_two_cores", lambda: None)
    _check.keep(ROWS, _check.machine(), kept)
    found = runs_of(*runs)
    monkeypatch.setattr(_check, "measured", lambda job: next(found))

    assert _check.main([JOB, "--kept", str(kept)]) == (1 if lost else 0)

    said = capsys.readouterr()
    assert said.err == (f"More than 20% lost: {lost}\n" if lost else "")
    assert len(said.out.splitlines()) == 2  # the machine, and a line for the row
    assert ("LOST" in said.out) == bool(lost)


def test_a_job_that_fails_is_told_and_others_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(job: _check.Job) -> list[Figure]:
        if job.name != JOB:
            raise RuntimeError(f"{job.name} lacks a program")
        return ROWS

    kept = tmp_path / "kept.json"
    monkeypatch.setattr(_check, "take_two_cores", lambda: None)
    monkeypatch.setattr(_check, "measured", measured)
    assert _check.main(["serve", JOB, "--keep", "--kept", str(kept)]) == 1
    assert "serve lacks a program" in capsys.readouterr().out
    assert len(_check.kept_for(_check.machine(), kept)[0]) == len(ROWS)


def test_rows_that_are_kept_replace_those_of_before(tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    _check.keep(ROWS, "two cores", file)
    _check.keep([Figure("read", 3.14159, ">= 4", own="5 ms")], "two cores", file)
    _check.keep([Figure("read", 9)], "four cores", file)
    rows, of = _check.kept_for("two cores", file)
    assert (of, rows["read"]["now"], rows["read one"]["now"]) == ("two cores", 3.14, 7)
    assert _check.kept_for("unknown", file) == (rows, "two cores")
    page = (
        "# Speed\n| a | of | own | now | aim | why | date |\n| read | b | 1 | 2 | 3 | c | old |\n"
    )
    date = rows["read"]["date"]
    shown = page.replace("1 | 2 | 3 | c | old", f"5 ms | 3.14 | >= 4 | c | {date}")
    assert _check.with_figures(page, rows) == shown


def test_the_command_measures_and_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.json"
    monkeypatch.setattr(_check, "take_two_cores", lambda: None)
    assert _check.main(["projection", "--kept", str(kept), "--keep"]) == 0
    (rows,) = json.loads(kept.read_text()).values()
    ((row, entry),) = rows.items()
    assert entry["now"] > 0
    said = capsys.readouterr().out
    assert re.search(rf"{re.escape(row)} +kept +- +now +{entry['now']:g}\n", said)


def test_the_page_shows_what_is_kept() -> None:
    page = _check.PAGE.read_text(encoding="utf-8")
    (kept,) = json.loads(_check.KEPT.read_text(encoding="utf-8")).values()
    assert _check.with_figures(page, kept) == page
    shown = {text.split("|")[1].strip() for text in page.splitlines() if text.count("|") > 7}
    assert len(shown & set(kept)) > 30
    modules = set(re.findall(r"`benchmarks\.(\w+)`", page))
    assert {job.module for job in _check.JOBS} <= modules <= set(NAMES)
