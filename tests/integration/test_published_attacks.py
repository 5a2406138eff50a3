"""Published hostile HDF5 files: refused, or equal to h5py, at every door, in 10 s and 1 GB each."""

import pytest

from tools.fuzz.hostile_files import try_files


@pytest.mark.timeout(1200)
def test_published_hostile_files(shared_data):
    found = (shared_data / "cve").iterdir()
    files = sorted(p for p in found if p.suffix in ("", ".h5") and p.name != "COPYING")
    assert len(files) > 130
    outcomes = try_files(files)
    assert {name: broke for name, (broke, _) in outcomes.items() if broke} == {}
    assert sum(n_arrays for _, n_arrays in outcomes.values()) > 10
