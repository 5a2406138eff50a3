"""Every chunk of every real HDF5 file, as gridref's own reader reads it and as h5py does."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridref.api.verify import verify
from gridref.formats.registry import scan
from tests.shared_data import shared_files

pytest.importorskip("hdf5plugin", reason="reads the files' filters for h5py")

NOT_HDF5 = {".tif", ".tiff", ".bin", ".dat"}
REASONS = (
    "its values are inline and name no file",
    "no file holds some of its chunks",
    "the file has no such dataset",  # its chunks lie in another file, under another name
    "h5py cannot open its source",  # an external raw file
    "its dataset has another shape",
    "the file's own time is shorter than its dimension",  # which grew after it was written
    "the files have no such variable",  # its labels are worked out of attributes
    "cannot read it with h5py: Can't synchronously read data (can't open directory",  # no filter
)
SLOW = {  # tens of thousands of tiny chunks
    "jamesmudd__jhdf__chunked_v4_datasets.hdf5",
    "jamesmudd__jhdf__fixed_array_paged_datasets.hdf5",
}


# The first file of each family: the others are written in the same way.
FAMILIES = {file.values[0].parent: file for file in reversed(shared_files("families/*/*"))}
FILES = [*shared_files("hdf5/**/*", "netcdf4/**/*"), *FAMILIES.values()]


@pytest.mark.long(but=12)
@pytest.mark.parametrize("path", FILES)
def test_every_chunk_is_as_h5py_reads_it(path: Path) -> None:
    if path.suffix in NOT_HDF5:
        pytest.skip("no HDF5 file")
    found = verify(scan(path, on_unsupported="skip"), all=path.name not in SLOW)
    assert [str(difference) for difference in found.differences] == []
    unknown = [pair for pair in found.not_compared if not pair[1].startswith(REASONS)]
    assert unknown == []
