"""Published hostile HDF5 files: refused, or equal to h5py, at every door, in 10 s and 1 GB each."""

import pytest

from tests.fuzz.hostile_files import try_files


@pytest.mark.timeout(1200)
def test_published_hostile_files(shared_data):
    files = sorted(path for path in (shared_data / "cve").iterdir() if "cve-" in path.name)
    assert len(files) > 60
    outcomes = try_files(files)
    assert {name: broke for name, (broke, _) in outcomes.items() if broke} == {}
    assert sum(n_arrays for _, n_arrays in outcomes.values()) > 10
