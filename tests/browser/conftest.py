"""Chromium, and the sample cube served."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gridref
from gridref.faces.http import create_app
from tests.browser.visits import Visit, chromium
from tests.programs import built_viewer
from tests.uvicorn_server import running


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Chromium. With its driver an event loop runs: no longer than these tests do."""
    built_viewer()
    with chromium() as started:
        yield started


@pytest.fixture(scope="package")
def tab(browser: Any) -> Iterator[Visit]:
    """A tab for one test after the other: a new one is a new process."""
    opened = Visit(browser)
    yield opened
    opened.close()


@pytest.fixture
def visit(tab: Visit) -> Iterator[Visit]:
    """A tab on which nothing may go wrong."""
    tab.begin()
    yield tab
    violations = tab.violations()
    assert not violations
    assert not tab.problems


@pytest.fixture(scope="session")
def cube(sample_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The catalog of the sample files."""
    catalog = tmp_path_factory.mktemp("catalogs") / "cube.gridref"
    gridref.build(sorted(sample_data.glob("*.nc")), catalog, "time")
    return catalog


@pytest.fixture
def of_a_lost_file(sample_data: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a server of a catalog whose only file is gone since it began."""
    file = shutil.copy(sample_data / "daily_2023-01.nc", tmp_path / "gone.nc")
    gridref.build([file], tmp_path / "one.gridref", "time")
    with running(create_app([tmp_path / "one.gridref"], access_log=False)) as url:
        Path(file).unlink()
        yield url


@pytest.fixture(scope="session")
def served(cube: Path) -> Iterator[str]:
    """The address of a server that shows it."""
    with running(create_app([cube], access_log=False)) as url:
        yield url
