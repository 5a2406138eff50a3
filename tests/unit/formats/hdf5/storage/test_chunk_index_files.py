"""Every chunked dataset of every shared HDF5 file: our walk against the HDF5 library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import pytest

from gridref.errors import GridrefError
from tests.hdf5_bytes import LocalReader
from tests.shared_data import shared_files
from tests.unit.formats.hdf5.storage.chunk_index_oracle import (
    assert_direct_reads_agree,
    is_listed_rightly,
    rows_by_library,
    rows_of,
    walk,
)

# Written by an unreleased version of the library, which numbered chunks in another way: some lie
# outside of the dataset for every release, which then reads fill values there.
MISNUMBERED = {
    "qkoziol__hdf5__h5fc_ext1_f.h5": {"/DSET_EA"},
    "qkoziol__hdf5__h5fc_ext1_i.h5": {"/DSET_EA"},
    "qkoziol__hdf5__h5fc_ext2_sf.h5": {"/DSET_EA"},
    "qkoziol__hdf5__h5fc_ext_none.h5": {"/DSET_EA"},
}


@pytest.mark.long(but=20)
@pytest.mark.parametrize("path", shared_files("hdf5/**/*", "netcdf4/**/*", "families/**/*"))
def test_good_files(path: Path) -> None:
    if not _can_be_opened(path):
        pytest.skip("not an HDF5 file that h5py opens")
    misnumbered = set()
    with h5py.File(path, "r") as file, LocalReader(path) as reader:
        for dataset in _chunked_datasets(file):
            if dataset.name in MISNUMBERED.get(path.name, ()):
                table, _ = walk(dataset, reader)
                assert 0 < table.n_stored < dataset.id.get_num_chunks()
                assert_direct_reads_agree(dataset, reader, table)
                misnumbered.add(dataset.name)
                continue
            _compare(dataset, reader)
    assert misnumbered == MISNUMBERED.get(path.name, set())


@pytest.mark.parametrize("path", shared_files("bad_input/**/*"))
def test_bad_files(path: Path) -> None:
    """An error of ours, or what the library says."""
    if not _can_be_opened(path):
        pytest.skip("not an HDF5 file that h5py opens")
    with h5py.File(path, "r") as file, LocalReader(path) as reader:
        for dataset in _chunked_datasets(file):
            try:
                walk(dataset, reader)
            except GridrefError:
                continue
            _compare(dataset, reader)


def _compare(dataset: h5py.Dataset, reader: LocalReader) -> None:
    table, layout = walk(dataset, reader)
    assert table.n_stored == dataset.id.get_num_chunks()
    assert_direct_reads_agree(dataset, reader, table, most=50)
    if is_listed_rightly(dataset, layout) and not layout.partial_chunks_unfiltered:
        assert rows_of(table) == rows_by_library(dataset, table.grid_shape)


def _can_be_opened(path: Path) -> bool:
    try:
        if not h5py.is_hdf5(path):
            return False
        h5py.File(path, "r").close()
    except OSError:
        return False
    return True


def _chunked_datasets(file: h5py.File) -> Iterator[h5py.Dataset]:
    """All of them, each once, as far as the library can reach them."""
    pending: list[h5py.Group] = [file]
    seen: set[int] = set()
    while pending:
        group = pending.pop()
        for name in _or_none(lambda group=group: list(group)) or ():
            found = _or_none(lambda group=group, name=name: group[name])
            address = _or_none(lambda found=found: h5py.h5o.get_info(found.id).addr)
            if address is None or address in seen or found.file.filename != file.filename:
                continue
            seen.add(address)
            if isinstance(found, h5py.Group):
                pending.append(found)
            elif isinstance(found, h5py.Dataset) and found.chunks is not None:
                yield found


def _or_none(call: Callable[[], Any]) -> Any:
    """What the library answers, or None if it fails on a broken file."""
    try:
        return call()
    except (AttributeError, KeyError, OSError, RuntimeError, ValueError, TypeError):
        return None
