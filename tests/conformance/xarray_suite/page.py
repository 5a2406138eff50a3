"""The tables of ``docs/conformance.md``.

``python -m tests.conformance.xarray_suite.page`` runs the suites and writes them.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.conformance.xarray_suite.exceptions import EXCEPTIONS, exception_of, suite_and_test

__all__ = ["PAGE", "SUITES", "counted", "listed", "rows_of", "tables"]

HERE = Path(__file__).parent
SUITES = (HERE / "test_backends.py", HERE / "test_datatree.py")
PAGE = HERE.parents[2] / "docs" / "conformance.md"
START, STOP = "<!-- made by the tests: start -->", "<!-- made by the tests: stop -->"
_DOORS = ("Engine", "Zarr", "Virtual")

Outcomes = Mapping[str, Counter[str]]
"""Number of tests by class and outcome."""


class _Outcomes:
    """What came of each test."""

    def __init__(self) -> None:
        self.found: dict[str, Counter[str]] = defaultdict(Counter)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        name = suite_and_test(report.nodeid).partition("::")[0]
        if report.skipped:
            is_listed = hasattr(report, "wasxfail") and exception_of(report.nodeid)
            word = "exceptions" if is_listed else "skipped"
        else:
            word = report.outcome
        self.found[name][word] += 1


def listed(nodeids: Iterable[str]) -> tuple[Counter[str], Counter[str]]:
    """Tests by class, and tests by the reason of the exception that they are."""
    ids = list(nodeids)
    reasons = Counter(found.reason for found in map(exception_of, ids) if found)
    return Counter(suite_and_test(nodeid).partition("::")[0] for nodeid in ids), reasons


def counted(text: str) -> dict[str, tuple[int, ...]]:
    """The numbers of a page by class: tests, passed, skipped, exceptions."""
    rows = re.findall(r"^\| `(Test\w+)` \|.*?((?:\| \d+ ){4})\|$", text, re.MULTILINE)
    return {name: tuple(map(int, re.findall(r"\d+", numbers))) for name, numbers in rows}


def rows_of(reasons: Counter[str]) -> list[str]:
    """The table of exceptions."""
    shown = []
    for exception in EXCEPTIONS:
        tests = " ".join(f"`{pattern}`" for pattern in exception.tests)
        shown.append(f"| {reasons[exception.reason]} | {exception.reason} | {tests} |")
    return ["| tests | why they cannot apply | which |", "|---|---|---|", *shown]


def tables(outcomes: Outcomes, suites: Mapping[str, str], reasons: Counter[str]) -> str:
    """Both tables of the page."""
    lines = [
        "| class | of xarray | through | tests | passed | skipped | exceptions |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, suite in suites.items():
        door = next(door for door in _DOORS if name.startswith(f"Test{door}"))
        counts = [outcomes[name][word] for word in ("passed", "skipped", "exceptions")]
        numbers = " | ".join(map(str, (sum(counts), *counts)))
        lines.append(f"| `{name}` | `{suite}` | {door.lower()} | {numbers} |")
    return "\n".join([*lines, "", *rows_of(reasons)])


def main() -> int:
    """Run the suites and write the page."""
    plugin, seen = _Outcomes(), _Collected()
    status = pytest.main(["-q", "-W", "ignore", *map(str, SUITES)], [plugin, seen])
    if status == 0:
        text = PAGE.read_text(encoding="utf-8")
        head, tail = text.partition(START)[0], text.partition(STOP)[2]
        body = tables(plugin.found, seen.suites, listed(seen.nodeids)[1])
        PAGE.write_text(f"{head}{START}\n{body}\n{STOP}{tail}", encoding="utf-8")
    return int(status)


class _Collected:
    """The tests, and from which class of xarray each of our classes takes them."""

    def __init__(self) -> None:
        self.nodeids: list[str] = []
        self.suites: dict[str, str] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            cls = getattr(item, "cls", None)
            if cls is not None:
                self.nodeids.append(item.nodeid)
                self.suites.setdefault(cls.__name__, cls.__mro__[2].__name__)


if __name__ == "__main__":
    sys.exit(main())
