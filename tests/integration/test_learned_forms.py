"""What is told of a file does not depend on which files this process has scanned before."""

from __future__ import annotations

import pytest

from tests.cold_scans import all_caches, described
from tests.shared_data import missing_reason, shared_data_folder, skip_or_fail


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    "folder", ["netcdf4", "tiff", "ome_tiff", "hdf5", "families", "bad_input", "cve"]
)
def test_files_scan_the_same_alone_and_after_others(folder: str) -> None:
    reason = missing_reason()
    if reason is not None:
        skip_or_fail(reason)
    paths = sorted(path for path in (shared_data_folder() / folder).rglob("*") if path.is_file())
    described(paths[0])  # so that all modules are loaded
    alone = {}
    for path in paths:
        for clear in all_caches():
            clear()
        alone[path] = described(path)
    for order in (paths, paths[::-1]):
        for path in order:
            assert described(path) == alone[path], f"{path}, after others"
