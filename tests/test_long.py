"""Tests of the marker ``long``: what ``make test`` leaves out, and that it leaves nothing more."""

from __future__ import annotations

import re

import pytest

from tests.shared_data import ROOT

pytest_plugins = ["pytester"]

MODULE = """
import pytest

@pytest.mark.long
def test_exhaustive(): pass

@pytest.mark.long(but=3)
@pytest.mark.parametrize("b", [0, 1])
@pytest.mark.parametrize("a", range(6))
def test_product(a, b): pass

@pytest.mark.long(but=3)
@pytest.mark.parametrize("a", range(2))
def test_few(a): pass

def test_quick(): pass
"""


@pytest.fixture
def module(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest(
        "import pytest\nfrom tests.long import spare_quick_cases\n"
        "@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_collection_modifyitems(items): spare_quick_cases(items)\n"
    )
    pytester.makeini(
        "[pytest]\nmarkers = long(but=n): left out\nasyncio_default_fixture_loop_scope = function"
    )
    pytester.makepyfile(test_module=MODULE)
    return pytester


def names(run: pytest.RunResult) -> list[str]:
    return [name for line in run.outlines for name in re.findall(r"^test_module.py::(\S+)", line)]


def test_make_test_takes_a_sample_and_make_test_all_the_rest(module: pytest.Pytester) -> None:
    arguments = ["--collect-only", "-q"]
    every = names(module.runpytest_inprocess(*arguments))
    quick = names(module.runpytest_inprocess(*arguments, "-m", "not long"))
    rest = names(module.runpytest_inprocess(*arguments, "-m", "long"))
    sample = ["test_product[0-0]", "test_product[2-0]", "test_product[4-0]"]
    assert quick == [*sample, "test_few[0]", "test_few[1]", "test_quick"]
    assert sorted(quick + rest) == sorted(every)


def test_a_case_that_is_named_is_run(module: pytest.Pytester) -> None:
    named = ["test_module.py::test_product[0-1]", "test_module.py::test_few[1]"]
    run = module.runpytest_inprocess("-m", "not long", *named)
    run.assert_outcomes(passed=2)


def test_ci_runs_what_make_test_leaves_out() -> None:
    """In three parts: quick tests, those of them that were skipped, and long ones."""
    makefile, ci = (ROOT / "Makefile").read_text(), (ROOT / ".ci/run").read_text()
    assert re.search(r'^test:.*\n(?:.*\n)?\t.*pytest .*-m "not long"', makefile, re.MULTILINE)
    assert re.findall(r"make (test(?:-all)? .*)", ci) == [
        "test ARGS=--skipped-to=build/skipped",
        "test ARGS=@build/skipped",
        "test-all ARGS='-m long'",
    ]
