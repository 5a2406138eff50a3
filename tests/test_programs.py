"""Tests of the helpers for programs: absent ones never pass unnoticed where they are required."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.programs import Skipped, program
from tests.shared_data import ROOT


def test_the_first_program_that_is_there_is_taken() -> None:
    assert Path(program("gridref-no-such-program", "sh")).name == "sh"


def test_absent_programs_skip_unless_they_are_required(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("GRIDREF_REQUIRE_PROGRAMS", "curl nginx")
    with pytest.raises(pytest.skip.Exception, match="needs npm: it is not on PATH"):
        program("npm")
    with pytest.raises(pytest.fail.Exception, match="nginx: it is not on PATH"):
        program("nginx")


def test_the_skipped_tests_are_listed(tmp_path: Path) -> None:
    def report(name: str, reason: str) -> pytest.TestReport:
        where = (__file__, 1, f"Skipped: {reason}")
        return pytest.TestReport(name, (__file__, 1, name), {}, "skipped", where, "setup")

    skipped = Skipped(tmp_path / "skipped")
    skipped.pytest_runtest_logreport(report("a.py::a[x y]", "needs curl: it is not on PATH"))
    skipped.pytest_runtest_logreport(report("a.py::b", "not run: it needs a release"))
    skipped.pytest_sessionfinish()
    assert (tmp_path / "skipped").read_text() == "a.py::a[x y]\n"


def test_ci_requires_what_it_installs() -> None:
    text = (ROOT / ".ci/run").read_text()
    (installed,) = re.findall(r"^install_missing (.*)$", text, re.MULTILINE)
    (required,) = re.findall(r'^programs="(.*)"', text, re.MULTILINE)
    assert "\nexport GRIDREF_REQUIRE_PROGRAMS=$programs\n" in text
    assert installed.split()[::2] == required.split()
