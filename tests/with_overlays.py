"""Run suites with an overlay of every array: ``make overlay-suites``.

A plugin of pytest. Each catalog that a test builds gets overlays of its arrays, and reads use them
wherever they cover anything. Each such read is compared with the files. The run fails if a value
differs, if an overlay answers for a local file that changed, or if an error appears that is none
without overlays. Tests that count files, tables, snapshots or requests, or that expect an error
where an overlay still has the values, are listed: that differs by design.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

import gridref
from gridref.errors import (
    OverlayNotUsedWarning,
    ReadError,
    SourceChangedError,
    SourceNotAllowedError,
    SourceUnavailableError,
)
from gridref.io import is_local
from gridref.model.array import VirtualArray
from gridref.serve import choosing
from gridref.serve.plan import plan_points_with_overlays, plan_with_overlays
from gridref.serve.reader import Reader

MOST_BYTES = 10**8
_OF_VALUES = ("Arrays are not", "Not equal to tolerance", "are not identical", "are not equal")
"""What comparisons of numpy and xarray say of values that differ."""


class WithOverlays:
    """What happened in reads that used overlays, and to the tests."""

    def __init__(self) -> None:
        self.n_written = self.n_compared = 0
        self.wrong: list[str] = []
        self.by_design: dict[str, list[str]] = {}
        self.errors: list[str] = []

    # Overlays of all that is built

    def build(self, files: Any, catalog: Any, *args: Any, **options: Any) -> Any:
        """`gridref.build`, and an overlay of each array."""
        built = _BUILD(files, catalog, *args, **options)
        own = {name: options[name] for name in ("storage_options", "allow") if name in options}
        opened = gridref.open_catalog(catalog, **own)
        for path, array in opened.all_arrays().items():
            if _is_fit(array):
                try:
                    opened = opened.rechunk(path, dict.fromkeys(array.dims, -1))
                    self.n_written += 1
                except ReadError as error:  # of a file that cannot be read
                    if "/overlays/" in (error.place.source or ""):
                        self.wrong.append(f"an overlay cannot be written: {error}")
        return built

    # Reads, compared with the files

    def read(self, reader: Reader, array: VirtualArray, selection: Any, **options: Any) -> Any:
        """`Reader.read`, compared with the files where it used an overlay."""
        values = _READ(reader, array, selection, **options)
        if array.overlays and options.get("out") is None:
            self.compare(
                plan_with_overlays(array, selection)[1],
                values,
                lambda: _READ(reader, array.with_changes(overlays=()), selection),
            )
        return values

    def points(self, reader: Reader, array: VirtualArray, coords: Any, **options: Any) -> Any:
        """`Reader.read_points`, compared in the same way."""
        values = _POINTS(reader, array, coords, **options)
        if array.overlays:
            self.compare(
                plan_points_with_overlays(array, coords)[1],
                values,
                lambda: _POINTS(reader, array.with_changes(overlays=()), coords),
            )
        return values

    def compare(self, choice: Any, values: Any, from_files: Any) -> None:
        """Compare what a read with an overlay gave with the files."""
        if choice is None:
            return
        self.n_compared += 1
        try:
            expected = from_files()
        except (SourceChangedError, SourceNotAllowedError, SourceUnavailableError) as error:
            first = choice.overlays[0]
            is_near = first.checks_files and is_local(error.place.source or "")
            if is_near or first.asks_servers:
                self.wrong.append(f"an overlay answers where the files say: {error}")
        except gridref.errors.GridrefError:
            pass  # a damaged file, whose values the overlay still has
        else:
            if np.asarray(values).tobytes() != np.asarray(expected).tobytes():
                self.wrong.append(f"overlay {choice.overlays[0].id} has other values")

    # What becomes of tests

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Generator[None, Any, Any]:
        report = yield
        self.errors += [f"{item.nodeid}: {each}" for each in self.wrong]
        self.wrong.clear()
        if report.failed:
            error = call.excinfo.value
            text = str(error)
            is_count = isinstance(error, AssertionError | pytest.fail.Exception)
            # A test that looks into the folder of a catalog itself finds more there.
            is_count |= not any(_PACKAGE in str(entry.path) for entry in call.excinfo.traceback)
            if is_count and not any(words in text for words in _OF_VALUES):
                said = (text.strip().splitlines() or [""])[0][:100]
                self.by_design.setdefault(item.nodeid.partition("[")[0], []).append(said)
                report.outcome = "passed"
            else:
                self.errors.append(f"{item.nodeid}: {type(error).__name__}: {text[:300]}")
        return report

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.errors or not self.n_compared:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif session.exitstatus == pytest.ExitCode.TESTS_FAILED:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        write = terminalreporter.write_line
        write(f"{self.n_written} overlays, {self.n_compared} reads with them compared with files")
        write(f"differs by design: {sum(map(len, self.by_design.values()))}")
        for name, said in self.by_design.items():
            write(f"  {name} ({len(said)}): {said[0]}")
        write(f"WRONG: {len(self.errors)}")
        for each in self.errors:
            write(f"  {each}")


def _is_fit(array: VirtualArray) -> bool:
    """Whether an overlay of an array can be had at little cost."""
    is_there = array.ndim > 0 and array.size > 0 and array.dtype.kind not in "TOV"
    return is_there and math.prod(array.shape) * array.dtype.itemsize < MOST_BYTES


_PACKAGE = os.path.dirname(gridref.__file__)
_BUILD, _READ, _POINTS = gridref.build, Reader.read, Reader.read_points


def pytest_configure(config: pytest.Config) -> None:
    """Put overlays below all that the tests do."""
    plugin = WithOverlays()
    config.pluginmanager.register(plugin, "with-overlays")
    choosing.WORTH = 1e12  # whatever they cost
    gridref.build = plugin.build

    def read(self: Reader, array: VirtualArray, selection: Any = None, **options: Any) -> Any:
        return plugin.read(self, array, selection, **options)

    def points(self: Reader, array: VirtualArray, coords: Any, **options: Any) -> Any:
        return plugin.points(self, array, coords, **options)

    Reader.read, Reader.read_points = read, points  # type: ignore[method-assign]
    warnings.simplefilter("always", OverlayNotUsedWarning)
