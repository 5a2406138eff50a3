"""Programs that some tests need, and work as a user without privileges."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from tests.shared_data import ROOT

WEB = ROOT / "web"
VIEWER = ROOT / "src/gridref/faces/web/built/viewer.js"


def program(*names: str) -> str:
    """The path of the first of these programs that is there; skips the running test without one."""
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        skip_or_fail(names[0], "it is not on PATH")
    return path


def skip_or_fail(name: str, reason: str) -> NoReturn:
    """Skip the running test, or fail it where the program is required."""
    if name in os.environ.get("GRIDREF_REQUIRE_PROGRAMS", "").split():
        pytest.fail(f"{name}: {reason}, and GRIDREF_REQUIRE_PROGRAMS names it", pytrace=False)
    pytest.skip(f"needs {name}: {reason}")


def npm_package(name: str) -> Path:
    """The folder of a package that `web/package.json` names."""
    folder = WEB / "node_modules" / name
    if not folder.is_dir():
        skip_or_fail("npm", f"`make assets` has not installed {name}")
    return folder


def built_viewer() -> None:
    """Skip the running test unless the viewer is built from what is in `web/` now."""
    inputs = [WEB / "package.json", WEB / "build.mjs", *WEB.glob("viewer/**/*.js")]
    if not VIEWER.exists() or VIEWER.stat().st_mtime < max(p.stat().st_mtime for p in inputs):
        skip_or_fail("npm", "`make assets` has not built the viewer from what is in web/ now")


def write_why_skipped(reporter: pytest.TerminalReporter) -> None:
    """Write how many tests were skipped for each reason."""
    told = [report.longrepr for report in reporter.getreports("skipped")]
    reasons = Counter(each[2].removeprefix("Skipped: ") for each in told if isinstance(each, tuple))
    if reasons:
        reporter.section("skipped tests", sep="-")
    for reason, n_tests in reasons.most_common():
        reporter.write_line(f"{n_tests:5} {reason}")


class Skipped:
    """Writes the tests that were skipped for want of a program to a file, one a line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tests: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            _, _, reason = report.longrepr
            if reason.startswith("Skipped: needs "):
                self._tests.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._path.write_text("".join(f"{each}\n" for each in self._tests))


NOBODY = 65534


@contextmanager
def unprivileged() -> Iterator[None]:
    """Root, who may do everything, is another user meanwhile."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


@contextmanager
def reachable_folder() -> Iterator[Path]:
    """A new folder that other users get to: pytest's are the user's own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        yield folder
