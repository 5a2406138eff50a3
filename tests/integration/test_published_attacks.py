"""Published hostile HDF5 files: refused, or equal to h5py, at every door, in 10 s and 1 GB each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.fuzz.hostile_files import try_files


@pytest.fixture
def files(shared_data: Path) -> list[Path]:
    found = (shared_data / "cve").iterdir()
    return sorted(p for p in found if p.suffix in ("", ".h5") and p.name != "COPYING")


def test_some_published_hostile_files(files: list[Path]) -> None:
    outcomes = try_files(files[::20])
    assert {name: broke for name, (broke, _) in outcomes.items() if broke} == {}


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_published_hostile_files(files: list[Path]) -> None:
    assert len(files) > 130
    outcomes = try_files(files)
    assert {name: broke for name, (broke, _) in outcomes.items() if broke} == {}
    assert sum(n_arrays for _, n_arrays in outcomes.values()) > 10
