"""Checksums of stored chunks: every changed byte is told, through every door."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

import gridref
from gridref.catalog.writing import PART_FILE
from gridref.errors import (
    CatalogCorruptError,
    CatalogVersionError,
    ChecksumError,
    InvalidRequestError,
)
from gridref.faces.cli.app import app
from tests.attack_doors import DOORS, told_at_a_door
from tests.http_server import Site, serving
from tests.integration.archives import assert_shows, flip, month, write_hdf5
from tools.fuzz.catalog_attack import sign

NAMES = ("packed", "plain", "whole")
"""Compressed chunks, chunks as they are, and contiguous data of which parts are read."""

N_CHUNKS = 4 + 4 + 1 + 1
"""In a file, with those of its labels."""


def make_file(path: Path, number: int = 0) -> Path:
    rng = np.random.default_rng(number)
    kinds: dict[str, dict[str, Any]] = {
        "packed": {"chunks": (2, 300), "compression": "gzip"},
        "plain": {"chunks": (2, 300)},
        "whole": {},
    }
    arrays = {
        name: (["time"], rng.integers(0, 50, (4, 600), "i4"), {}, storage)
        for name, storage in kinds.items()
    }
    return write_hdf5(path, {"time": np.arange(4.0) + 4 * number}, arrays)


def last_byte(path: Path, name: str) -> int:
    """The last byte of an array that is stored."""
    with h5py.File(path) as file:
        data = file[name].id
        if data.get_create_plist().get_layout() != h5py.h5d.CHUNKED:
            return int(data.get_offset() + data.get_storage_size() - 1)
        infos = [data.get_chunk_info(i) for i in range(data.get_num_chunks())]
        return max(info.byte_offset + info.size - 1 for info in infos)


@pytest.fixture
def site() -> Iterator[Site]:
    with serving(Site()) as site:
        yield site


@pytest.mark.long(but=8)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", NAMES)
def test_a_changed_bit_is_told_at_every_door(tmp_path, door, name):
    file = make_file(tmp_path / "a.nc")
    gridref.build(file, tmp_path / "cube", checksums=True)
    with h5py.File(file) as original:
        expected = original[name][...]
    assert np.array_equal(DOORS[door](tmp_path / "cube", name), expected)
    flip(file, last_byte(file, name))
    with told_at_a_door(ChecksumError):
        DOORS[door](tmp_path / "cube", name)


@pytest.mark.parametrize("door", DOORS)
def test_a_server_that_sends_other_bytes_as_the_same_is_found_out(tmp_path, site, door):
    file = make_file(tmp_path / "a.nc")
    site.files, site.etags = {"/a.nc": file.read_bytes()}, {"/a.nc": '"v1"'}
    gridref.build(f"{site.url}/a.nc", tmp_path / "cube", checksums=True)
    expected = DOORS[door](tmp_path / "cube", "packed")
    flip(file, last_byte(file, "packed"))
    site.files = {"/a.nc": file.read_bytes()}
    with told_at_a_door(ChecksumError):
        DOORS[door](tmp_path / "cube", "packed")
    flip(file, last_byte(file, "packed"))
    site.files = {"/a.nc": file.read_bytes()}
    assert np.array_equal(DOORS[door](tmp_path / "cube", "packed"), expected)


def test_the_error_names_file_variable_chunk_and_bytes(tmp_path):
    file = make_file(tmp_path / "a.nc")
    gridref.build(file, tmp_path / "cube", checksums=True)
    with h5py.File(file) as original:
        info = original["packed"].id.get_chunk_info_by_coord((2, 300))
    flip(file, info.byte_offset + 5)
    catalog = gridref.open_catalog(tmp_path / "cube")
    for selection in ((...,), (slice(2, 4), slice(300, 600)), (3, 599)):
        with pytest.raises(ChecksumError, match="CRC-32C") as raised:
            catalog["packed"][selection]
        place = raised.value.place
        assert (place.source, place.variable, place.chunk) == (str(file), "packed", (1, 1))
        assert (place.start, place.stop) == (info.byte_offset, info.byte_offset + info.size)
    with h5py.File(file) as original:
        assert np.array_equal(catalog["packed"][:2], original["packed"][:2])


def test_parts_of_chunks_are_read_right(tmp_path):
    file = make_file(tmp_path / "a.nc")
    gridref.build(file, tmp_path / "cube", checksums=True)
    catalog = pickle.loads(pickle.dumps(gridref.open_catalog(tmp_path / "cube")))
    with h5py.File(file) as original:
        for name in NAMES:
            for key in ((1, slice(10, 20)), (slice(0, 4, 3), slice(5, 600, 7)), (3, 599), (...,)):
                assert np.array_equal(catalog[name][key], original[name][key]), (name, key)


def test_what_build_returns_checks_too(tmp_path):
    file = make_file(tmp_path / "a.nc")
    group = gridref.build(file, tmp_path / "cube", checksums=True)
    flip(file, last_byte(file, "plain"))
    with pytest.raises(ChecksumError):
        group["plain"][...]


def test_without_checksums_nothing_is_added_and_nothing_told(tmp_path):
    file = make_file(tmp_path / "a.nc")
    gridref.build(file, tmp_path / "lean")
    gridref.build(file, tmp_path / "checked", checksums=True)
    lean, checked = (gridref.open_catalog(tmp_path / name) for name in ("lean", "checked"))
    assert (lean.info.n_checksums, checked.info.n_checksums) == (0, N_CHUNKS)
    assert lean.info.digest == checked.info.digest
    assert not list((tmp_path / "lean").glob("checksums-*"))
    root = json.loads((tmp_path / "lean" / "gridref.json").read_text())
    assert root["features"] == []
    assert "checksums" not in root["snapshot"]["parts"][0]


def test_the_feature_is_named_so_that_older_readers_refuse(tmp_path):
    gridref.build(make_file(tmp_path / "a.nc"), tmp_path / "cube", checksums=True)
    path = tmp_path / "cube" / "gridref.json"
    root = json.loads(path.read_text())
    assert root["features"] == ["chunk-checksums"]
    root["features"] = ["chunk-checksums", "of tomorrow"]
    sign(root)
    path.write_text(json.dumps(root))
    with pytest.raises(CatalogVersionError, match="of tomorrow"):
        gridref.open_catalog(tmp_path / "cube")


def test_files_that_are_added_get_checksums(tmp_path):
    files = [make_file(tmp_path / f"{number}.nc", number) for number in range(3)]
    gridref.build(files[:1], tmp_path / "cube", "time", checksums=True)
    catalog = gridref.open_catalog(tmp_path / "cube").append(files[1:])
    assert catalog.info.n_checksums == 3 * N_CHUNKS
    flip(files[2], last_byte(files[2], "packed"))
    for opened in (catalog, gridref.open_catalog(tmp_path / "cube")):
        assert opened["packed"][:8].shape == (8, 600)
        with pytest.raises(ChecksumError):
            opened["packed"][8:]
    flip(files[2], last_byte(files[2], "packed"))
    make_file(files[2], 2)
    after = gridref.open_catalog(tmp_path / "cube").refresh()
    assert after.info.n_checksums == after.info.n_chunks
    assert after["packed"][8:].shape == (4, 600)


def test_checksums_stay_when_parts_become_one(tmp_path, monkeypatch):
    monkeypatch.setattr("gridref.catalog.commit.MERGED_PARTS", 4)
    months = [month(tmp_path, number) for number in range(8)]
    gridref.build(months[:1], tmp_path / "cube", "time", checksums=True)
    catalog = gridref.open_catalog(tmp_path / "cube")
    for file in months[1:]:
        catalog = catalog.append(file)
    assert len(catalog.parts) < 6
    assert all(part.checksums is not None for part in catalog.snapshot.parts)
    assert_shows(tmp_path / "cube", months)
    assert {file.name for file in (tmp_path / "cube").glob("*.parquet")} >= {
        part.checksums.file for part in catalog.snapshot.parts if part.checksums is not None
    }
    named = [f for f in (tmp_path / "cube").glob("*.parquet") if not PART_FILE.match(f.name)]
    assert named == []


def test_verify_reads_the_table_of_checksums(tmp_path):
    file = make_file(tmp_path / "a.nc")
    gridref.build(file, tmp_path / "cube", checksums=True)
    assert gridref.verify(tmp_path / "cube", all=True).ok
    (table,) = (tmp_path / "cube").glob("checksums-*")
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 1
    table.write_bytes(content)
    with pytest.raises(CatalogCorruptError):
        gridref.verify(tmp_path / "cube")


def test_verify_records_them_in_a_catalog_that_is_there(tmp_path):
    file = make_file(tmp_path / "a.nc")
    gridref.build(file, tmp_path / "cube")
    before = gridref.open_catalog(tmp_path / "cube")
    checked = gridref.verify(tmp_path / "cube", all=True, checksums=True)
    assert (checked.ok, checked.n_checksums) == (True, N_CHUNKS)
    catalog = gridref.open_catalog(tmp_path / "cube")
    assert (catalog.info.n_checksums, catalog.info.digest) == (N_CHUNKS, before.info.digest)
    assert [commit.operation for commit in catalog.history()] == ["checksums", "write"]
    flip(file, last_byte(file, "plain"))
    with pytest.raises(ChecksumError):
        catalog["plain"].read()


def test_verify_records_what_parts_lack_and_nothing_twice(tmp_path):
    files = [make_file(tmp_path / f"{number}.nc", number) for number in range(3)]
    gridref.build(files[:1], tmp_path / "cube", "time")
    gridref.open_catalog(tmp_path / "cube").append(files[1])
    assert gridref.verify(tmp_path / "cube", checksums=True).n_checksums == 2 * N_CHUNKS
    opened = gridref.open_catalog(tmp_path / "cube").append(files[2])
    assert opened.info.n_checksums == opened.info.n_chunks == 3 * N_CHUNKS
    assert gridref.verify(tmp_path / "cube", checksums=True).n_checksums == 0
    operations = [commit.operation for commit in opened.history()]
    assert operations == ["append", "checksums", "append", "write"]
    for file in files:
        flip(file, last_byte(file, "packed"))
        with pytest.raises(ChecksumError):
            opened["packed"][...]
        flip(file, last_byte(file, "packed"))


def test_former_versions_of_files_need_no_checksums(tmp_path):
    """The tables that a commit wrote still name files that were refreshed or removed since."""
    files = [make_file(tmp_path / f"{number}.nc", number) for number in range(3)]
    catalog = gridref.build(files, tmp_path / "cube", "time")
    catalog = catalog.remove(files[2])
    files[2].unlink()
    make_file(files[0], 0)
    catalog = catalog.refresh().take_checksums()
    assert catalog.info.n_checksums == catalog.info.n_chunks == 2 * N_CHUNKS
    assert catalog.take_checksums().info.snapshot == catalog.info.snapshot
    assert gridref.verify(tmp_path / "cube", all=True, checksums=True).ok
    flip(files[1], last_byte(files[1], "packed"))
    with pytest.raises(ChecksumError):
        catalog["packed"][...]


def test_of_what_differs_from_its_source_nothing_is_recorded(tmp_path, monkeypatch):
    file = make_file(tmp_path / "a.nc")
    gridref.build(file, tmp_path / "cube")
    monkeypatch.setattr("gridref.api.verify._difference", lambda got, expected: "differs")
    checked = gridref.verify(tmp_path / "cube", checksums=True)
    assert (checked.ok, checked.n_checksums) == (False, 0)
    assert gridref.open_catalog(tmp_path / "cube").info.n_checksums == 0


def test_checksums_are_not_recorded_in_what_is_no_catalog(tmp_path):
    group = gridref.build(make_file(tmp_path / "a.nc"), tmp_path / "cube")
    snapshot = gridref.open_catalog(tmp_path / "cube").info.snapshot
    for address, former in ((group, None), ("refs.json", None), (tmp_path / "cube", snapshot)):
        with pytest.raises(InvalidRequestError, match="give its address"):
            gridref.verify(address, checksums=True, snapshot=former)


def test_the_command_verifies_and_records(tmp_path):
    gridref.build(make_file(tmp_path / "a.nc"), tmp_path / "cube")
    told = CliRunner().invoke(app, ["verify", str(tmp_path / "cube"), "--all", "--checksums"])
    assert told.exit_code == 0, told.output
    assert f"checksums recorded: {N_CHUNKS} stored chunks" in " ".join(told.output.split())
    assert gridref.open_catalog(tmp_path / "cube").info.n_checksums == N_CHUNKS


def test_the_command_builds_with_checksums(tmp_path):
    file = make_file(tmp_path / "a.nc")
    told = CliRunner().invoke(
        app, ["build", str(file), "-o", str(tmp_path / "cube"), "--checksums"]
    )
    assert told.exit_code == 0, told.output
    told = CliRunner().invoke(app, ["info", str(tmp_path / "cube")])
    assert f"checksums: {N_CHUNKS} stored chunks" in told.output
    told = CliRunner().invoke(app, ["export", str(tmp_path / "cube"), str(tmp_path / "r.json")])
    assert told.exit_code == 0, told.output
    assert f"checksums of {N_CHUNKS} chunks are left out" in " ".join(told.output.split())
