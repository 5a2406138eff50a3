"""Fixtures and hypothesis profiles for all tests."""

from __future__ import annotations

import gc
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

# netCDF4 names its own plugins to child processes, and h5py cannot use those.
os.environ.pop("HDF5_PLUGIN_PATH", None)

# First of all: the plugins bind to the HDF5 library that was loaded first, and netCDF4 has its own.
import hdf5plugin  # noqa: F401
import pytest
from hypothesis import HealthCheck, Phase, settings

from gridref.limits import limits
from tests import long, programs
from tests.shared_data import missing_reason, shared_data_folder, skip_or_fail

# Machines that are shared make single examples slow now and then, so no profile has a deadline.
settings.register_profile(
    "default", max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
# The same examples on every run: what CI says is about the change. `make fuzz` tries new ones.
settings.register_profile(
    "ci", settings.get_profile("default"), max_examples=100, print_blob=True, derandomize=True
)
settings.register_profile(
    "thorough", settings.get_profile("default"), max_examples=5000, print_blob=True
)
# `make mutate` runs the same examples on each mutant, and only asks whether one fails.
settings.register_profile(
    "mutation",
    settings.get_profile("default"),
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
)
# No machine loses its power in a test: what is written need not be on the disk before it goes on.
os.fsync = lambda descriptor: None
# httpx reads all certificates at each call, in 20 ms. No server of the tests needs them.
ssl.create_default_context = cache(ssl.create_default_context)
# What this user built is remembered in a folder of the tests, not in that of whoever runs them.
_STATE = tempfile.TemporaryDirectory(prefix="gridref-tests-")
os.environ["GRIDREF_STATE"] = _STATE.name
os.environ["XDG_CACHE_HOME"] = str(Path(_STATE.name, "cache"))  # scans are kept there
os.environ.pop("GRIDREF_ALLOW", None)
os.environ.pop("GRIDREF_LIMITS", None)

settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Sets the limits of this process, as the environment gives them before it starts."""

    def set_limits(text: str) -> None:
        monkeypatch.setenv("GRIDREF_LIMITS", text)
        limits.cache_clear()

    yield set_limits
    monkeypatch.undo()
    limits.cache_clear()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--skipped-to",
        type=Path,
        metavar="FILE",
        help="write the tests that were skipped for want of a program to FILE; @FILE runs them",
    )
    parser.addoption(
        "--and-tests-of",
        type=Path,
        metavar="FILE",
        help="with -m long: run also the tests that FILE lists",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.option.skipped_to and not hasattr(config, "workerinput"):
        config.pluginmanager.register(programs.Skipped(config.option.skipped_to))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    programs.write_why_skipped(terminalreporter)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return long.has_no_long_test(collection_path, config) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    long.mark_long(items, config)


def pytest_collection_finish() -> None:
    """Have garbage collected seldom, and never in what lasts: all tests and modules."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of shared test data: real files, see its README."""
    reason = missing_reason()
    if reason is not None:
        skip_or_fail(reason)
    return shared_data_folder()


@pytest.fixture(scope="session")
def sample_data() -> Path:
    """The repository's own sample files."""
    return Path(__file__).resolve().parents[1] / "sample_data"


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("missing_shared_data"):
        (reason,) = mark.args
        if mark.kwargs["wrong"]:
            pytest.fail(reason, pytrace=False)
        skip_or_fail(reason)
