"""Bad files, lost sources and broken catalogs: a specific error of ours, never a fill value."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr

import gridref
from gridref.errors import (
    CatalogCorruptError,
    CatalogNotFoundError,
    CatalogVersionError,
    CombineError,
    DecodeError,
    GridrefError,
    InvalidRequestError,
    LeftOutWarning,
    ReadError,
    SourceChangedError,
    SourceFormatError,
    SourceUnavailableError,
)
from tests.by_name import by_name
from tests.command import run_command
from tests.integration.archives import write_months

Read = Callable[[Path], object]

READERS: dict[str, Read] = {
    "fsspec": lambda catalog: xr.open_zarr(f"gridref::file://{catalog}", chunks=None)["tas"].values,
    "store": lambda catalog: np.asarray(
        zarr.open_group(gridref.open_store(catalog), mode="r")["tas"][...]
    ),
    "engine": lambda catalog: xr.open_dataset(catalog)["tas"].values,
}


@pytest.fixture
def archive(tmp_path: Path) -> tuple[list[Path], Path]:
    files = write_months(tmp_path, lengths=[31, 28, 30])
    catalog = tmp_path / "cube.gridref"
    gridref.build(files, catalog, "time")
    return files, catalog


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"<!DOCTYPE html><html>404</html>", "HTML"),
        (b"CDF\x01" + bytes(20) + b"\xff" * 200, "NetCDF3 header"),
        (b"\x1f\x8b\x08\x00" + bytes(200), "gzip-compressed"),
        (b"PK\x03\x04" + bytes(200), "zip"),
        (bytes(range(50, 250)), "unknown bytes"),
    ],
)
def test_files_of_other_formats(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "strange.nc"
    path.write_bytes(content)
    with pytest.raises(SourceFormatError, match=message) as caught:
        gridref.scan(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("kept", [0.001, 0.2, 0.5, 0.9, 0.999])
def test_truncated_files(archive: tuple[list[Path], Path], kept: float) -> None:
    files, _ = archive
    size = files[0].stat().st_size
    os.truncate(files[0], int(size * kept))
    with pytest.raises(SourceFormatError) as caught:
        gridref.scan(files[0])
    assert str(files[0]) in str(caught.value)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailableError, match=r"nothing\.nc"):
        gridref.scan(tmp_path / "nothing.nc")


def test_a_pattern_that_matches_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"\*\.nc"):
        gridref.build(str(tmp_path / "*.nc"), tmp_path / "cube.gridref", "time")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidRequestError, match="empty"):
        gridref.build(tmp_path / "empty", tmp_path / "cube.gridref", "time")


@pytest.mark.parametrize("face", list(READERS))
def test_a_source_that_vanished(archive: tuple[list[Path], Path], face: str) -> None:
    files, catalog = archive
    files[1].unlink()
    with pytest.raises(SourceUnavailableError) as caught:
        READERS[face](catalog)
    assert str(files[1]) in str(caught.value)
    assert "variable " in str(caught.value)


@pytest.mark.parametrize("face", list(READERS))
def test_a_source_that_shrank(archive: tuple[list[Path], Path], face: str) -> None:
    files, catalog = archive
    os.truncate(files[1], files[1].stat().st_size // 2)
    with pytest.raises(SourceChangedError) as caught:
        READERS[face](catalog)
    assert str(files[1]) in str(caught.value)


@pytest.mark.parametrize("face", list(READERS))
def test_a_corrupted_chunk(archive: tuple[list[Path], Path], face: str) -> None:
    files, catalog = archive
    with h5py.File(files[1]) as file:
        where = file["tas"].id.get_chunk_info(0)
    status = files[1].stat()
    with files[1].open("r+b") as raw:
        raw.seek(where.byte_offset + 10)
        raw.write(b"\xff" * 40)
    os.utime(files[1], ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(DecodeError) as caught:
        READERS[face](catalog)
    text = str(caught.value)
    assert str(files[1]) in text
    assert "tas" in text
    assert f"bytes {where.byte_offset}-{where.byte_offset + where.size}" in text
    assert "chunk (0, 0, 0)" in text


def test_a_range_beyond_the_end(archive: tuple[list[Path], Path]) -> None:
    """A reference that lies: the file is as scanned, but the range is not inside it."""
    files, _ = archive
    array = gridref.scan(files[0]).arrays["tas"]
    (manifest,) = array.manifests
    lying = manifest.take(np.arange(manifest.n_rows))
    lying.offset[3] = files[0].stat().st_size - 5
    store = gridref.open_store(
        gridref.VirtualGroup({"tas": array.with_changes(manifests=(lying,))})
    )
    with pytest.raises(ReadError) as caught:
        np.asarray(zarr.open_group(store, mode="r")["tas"][...])
    assert str(files[0]) in str(caught.value)
    assert str(int(lying.offset[3])) in str(caught.value)


def test_no_catalog(tmp_path: Path) -> None:
    with pytest.raises(CatalogNotFoundError, match="nothing"):
        gridref.open_store(tmp_path / "nothing.gridref")
    with pytest.raises(CatalogNotFoundError, match="nothing"):
        xr.open_zarr(f"gridref::file://{tmp_path}/nothing.gridref")


def test_unknown_format_version(archive: tuple[list[Path], Path]) -> None:
    _, catalog = archive
    root = catalog / "gridref.json"
    document = json.loads(root.read_text())
    version = next(key for key in document if "version" in key)
    document[version] = 999
    root.write_text(json.dumps(document))
    with pytest.raises(CatalogVersionError, match="999"):
        gridref.open_catalog(catalog)


def test_broken_root_file(archive: tuple[list[Path], Path]) -> None:
    _, catalog = archive
    root = catalog / "gridref.json"
    root.write_text(root.read_text()[:200])
    with pytest.raises(CatalogCorruptError, match=r"gridref\.json"):
        gridref.open_catalog(catalog)


@pytest.mark.parametrize("table", ["sources", "blocks", "chunks"])
@pytest.mark.parametrize("harm", ["cut", "removed", "emptied"])
def test_broken_tables(archive: tuple[list[Path], Path], table: str, harm: str) -> None:
    _, catalog = archive
    (path,) = catalog.glob(f"*{table}*.parquet")
    if harm == "removed":
        path.unlink()
    else:
        os.truncate(path, path.stat().st_size // 2 if harm == "cut" else 0)
    for read in READERS.values():
        with pytest.raises(CatalogCorruptError) as caught:
            read(catalog)
        assert path.name in str(caught.value)


def test_bad_input_files_of_all_kinds(shared_data: Path) -> None:
    """An error of ours, or an answer; never a crash, never another exception."""
    paths = [
        path
        for folder in ("bad_input", "not_hdf5")
        for path in sorted((shared_data / folder).rglob("*"))
        if path.is_file()
    ]
    assert len(paths) > 20
    for path in paths:
        group = scan_or_refusal(path)
        if isinstance(group, str):
            assert str(path) in group
        else:
            with suppress(ReadError):
                differences = gridref.verify(group).differences
                assert all(each.message.startswith("codec ") for each in differences), path


def scan_or_refusal(path: Path) -> gridref.VirtualGroup | str:
    try:
        return gridref.scan(path, on_unsupported="skip")
    except GridrefError as error:
        return str(error)


def file_with_damage(path: Path, name: str, start: int = 0) -> Path:
    """Labels, variables along them and a scalar, the named one of which is outside of the file."""
    with h5py.File(path, "w") as file:
        file["t"] = np.arange(3.0) + start
        file["t"].make_scale("t")
        file["lat"] = np.arange(3.0)
        for variable in ("v", "w"):
            file[variable] = np.arange(3.0) + 10
            file[variable].attrs["coordinates"] = "lat"
        file["mask"] = np.int32(77)
        for variable in ("v", "w", "lat"):
            file[variable].dims[0].attach_scale(file["t"])
        place = struct.pack("<QQ", file[name].id.get_offset(), file[name].nbytes) if name else b""
    if name:
        raw = path.read_bytes()
        assert raw.count(place) == 1
        path.write_bytes(raw.replace(place, struct.pack("<Q", 1 << 40) + place[8:]))
    return path


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", ["mask", "w"])
def test_an_array_that_alone_is_corrupt_is_left_out(tmp_path: Path, name: str) -> None:
    """As h5py, which opens all others of these files."""
    path = file_with_damage(tmp_path / "a.h5", name)
    with pytest.warns(LeftOutWarning, match=f"/{name}: .*the data reaches beyond the end"):
        group = gridref.scan(path)
    told = [(finding.path, str(finding.fate)) for finding in group.report.skipped]
    assert told == [(f"/{name}", "damaged")]
    with h5py.File(path) as file:
        readable = {}
        for member in file:
            with suppress(KeyError):
                readable[member] = file[member][()]
    assert readable.keys() == group.arrays.keys() == {"t", "lat", "v", "w", "mask"} - {name}
    for member, values in readable.items():
        np.testing.assert_array_equal(group[member][...], values)
    with pytest.warns(LeftOutWarning):
        opened = xr.open_dataset(path, engine="gridref")
    assert name not in opened
    with pytest.warns(LeftOutWarning):
        assert name not in gridref.build(path, tmp_path / "cube").arrays
    done = run_command("build", path, "-o", tmp_path / "again")
    assert f"damaged /{name}: the data reaches" in " ".join(done.stderr.split())


@pytest.mark.parametrize("name", ["t", "lat"])
def test_corrupt_labels_end_the_scan(tmp_path: Path, name: str) -> None:
    path = file_with_damage(tmp_path / "a.h5", name)
    with pytest.raises(SourceFormatError, match=f"beyond the end .*variable /{name}"):
        gridref.scan(path)
    assert name not in gridref.scan(path, on_unsupported="skip").arrays


@pytest.mark.parametrize("options", [{}, {"join": "outer"}, {"join": "inner"}], ids=str)
def test_what_is_corrupt_in_one_file_is_not_absent(tmp_path: Path, options: dict[str, str]) -> None:
    """Filled in, its place would read as missing values."""
    sound = file_with_damage(tmp_path / "a.h5", "")
    corrupt = file_with_damage(tmp_path / "b.h5", "w", 3)
    for files in ([sound, corrupt], [corrupt, sound]):
        with pytest.raises(
            CombineError, match=r"w: it is corrupt in these files.*beyond the end"
        ) as caught:
            gridref.build(files, tmp_path / "cube", "t", **by_name(**options))
        (problem,) = (p for p in caught.value.problems if p.cause == "variable-damaged")
        assert problem.sources == (str(corrupt),)
    cube = gridref.build(
        files,
        tmp_path / "cube",
        "t",
        scan=gridref.ScanOptions(on_unsupported="skip"),
        combine=gridref.CombineOptions(join="outer"),
    )
    np.testing.assert_array_equal(cube["w"][...], [10, 11, 12, np.nan, np.nan, np.nan])


def test_a_catalog_is_not_a_zarr_directory(archive: tuple[list[Path], Path]) -> None:
    """A plain Zarr reader must not open it and read fill values."""
    _, catalog = archive
    with pytest.raises(FileNotFoundError, match="No group found"):
        zarr.open_group(str(catalog), mode="r")


def test_something_else_is_not_overwritten(archive: tuple[list[Path], Path]) -> None:
    files, _ = archive
    target = files[0].parent / "precious"
    target.mkdir()
    (target / "thesis.txt").write_text("years of work")
    with pytest.raises(GridrefError, match="precious"):
        gridref.build(files, target, "time")
    assert (target / "thesis.txt").read_text() == "years of work"
    shutil.rmtree(target)
