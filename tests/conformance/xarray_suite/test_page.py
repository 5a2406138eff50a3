"""``docs/conformance.md`` shows the tests that there are, and the exceptions that are listed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conformance.xarray_suite.exceptions import EXCEPTIONS
from tests.conformance.xarray_suite.page import PAGE, SUITES, counted, listed, rows_of

ROOT = PAGE.parents[1]
HOW = "run `python -m tests.conformance.xarray_suite.page`"


def names_of_tests(request: pytest.FixtureRequest) -> list[str]:
    """Those of the suites: of this run, if it has all of them, else collected for the purpose."""
    options, of_this_run = request.config, request.session.items
    chosen = (options.option.keyword, options.option.deselect)
    every = options.option.markexpr in ("", "long")  # the suites are all marked
    if every and not any(chosen) and not any("::" in argument for argument in options.args):
        files = {str(item.path) for item in of_this_run}
        if {str(path) for path in SUITES} <= files:
            names = [item.nodeid for item in of_this_run if str(item.path) in map(str, SUITES)]
            return [name for name in names if "::Test" in name]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-W", "ignore"]
    command += map(str, SUITES)
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    return [line for line in done.stdout.splitlines() if "::Test" in line]


@pytest.mark.long
def test_page_is_that_of_the_tests(request: pytest.FixtureRequest) -> None:
    tests, reasons = listed(names_of_tests(request))
    text = PAGE.read_text(encoding="utf-8")
    numbers = counted(text)
    assert {name: row[0] for name, row in numbers.items()} == tests, HOW
    assert all(row[0] == sum(row[1:]) for row in numbers.values()), HOW
    assert sum(row[3] for row in numbers.values()) == sum(reasons.values()), HOW
    assert "\n".join(rows_of(reasons)) in text, HOW
    unused = [exception.tests for exception in EXCEPTIONS if not reasons[exception.reason]]
    assert not unused
