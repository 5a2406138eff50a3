"""Bad files, sources that fail, broken catalogs: a specific error of ours, never a fill value."""

from __future__ import annotations

import os
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import h5py
import numpy as np
import pytest
import xarray as xr
import zarr
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.implementations.zip import ZipFileSystem

import gridref
from gridref.api.readable import reader_for
from gridref.errors import (
    CatalogCorruptError,
    CatalogNotFoundError,
    CombineError,
    DecodeError,
    GridrefError,
    LeftOutWarning,
    NotRepresentableError,
    ReadError,
    SourceChangedError,
    SourceFormatError,
    SourceUnavailableError,
    UnsupportedFeatureError,
)
from gridref.io import RetryPolicy, SourcePool, describe_source
from gridref.model.manifest import Source
from gridref.serve.reader import never_absent
from tests.attack_doors import DOORS, Read, told_at_a_door
from tests.by_name import by_name
from tests.command import run_code, run_command
from tests.http_server import RANGE_FAULTS, Site, serving
from tests.integration.archives import unnoticed, write_hdf5, write_months

ReadCatalog = Callable[[Path], object]

READERS: dict[str, ReadCatalog] = {
    "fsspec": lambda catalog: xr.open_zarr(f"gridref::file://{catalog}", chunks=None)["tas"].values,
    "store": lambda catalog: np.asarray(
        zarr.open_group(gridref.open_store(catalog), mode="r")["tas"][...]
    ),
    "engine": lambda catalog: xr.open_dataset(catalog)["tas"].values,
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three months, and a catalog that finds them wherever the folder is."""
    folder = tmp_path_factory.mktemp("months")
    files = write_months(folder, lengths=[31, 28, 30])
    gridref.build(files, folder / "cube.gridref", "time", relative=True)
    return folder


@pytest.fixture
def archive(written: Path, tmp_path: Path) -> tuple[list[Path], Path]:
    folder = shutil.copytree(written, tmp_path / "months")
    return sorted(folder.glob("*.nc")), folder / "cube.gridref"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"<!DOCTYPE html><html>404</html>", "HTML"),
        (b"CDF\x01" + bytes(20) + b"\xff" * 200, "NetCDF3 header"),
        (b"\x1f\x8b\x08\x00" + bytes(200), "gzip-compressed"),
        (b"PK\x03\x04" + bytes(200), "zip"),
        (bytes(range(50, 250)), "unknown bytes"),
        (bytes(5000), "zeros"),
        (b"\x89HDF\r\n\x1a\n", "HDF5"),
    ],
)
def test_files_of_other_formats(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "strange.nc"
    path.write_bytes(content)
    with pytest.raises(SourceFormatError, match=message) as caught:
        gridref.scan(path)
    assert str(path) in str(caught.value)


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
    with unnoticed(files[1]) as raw:
        raw.seek(where.byte_offset + 10)
        raw.write(b"\xff" * 40)
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


@pytest.mark.parametrize(
    ("table", "harm"), [("sources", "cut"), ("blocks", "emptied"), ("chunks", "removed")]
)
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
            differences = gridref.verify(group).differences
            assert all(d.is_file or d.message.startswith("codec ") for d in differences), path


def scan_or_refusal(path: Path) -> gridref.VirtualGroup | str:
    try:
        return gridref.scan(path, on_unsupported="skip")
    except GridrefError as error:
        return str(error)


def test_a_file_that_does_not_exist_is_named_with_what_is_near(tmp_path: Path) -> None:
    file_with_damage(tmp_path / "daily.h5", "v")
    for name, near in {
        "dayly.h5": ": did you mean 'daily.h5'?",
        "x": ": check the address",
    }.items():
        with pytest.raises(SourceUnavailableError) as refused:
            gridref.scan(tmp_path / name)
        assert refused.value.reason == f"the file does not exist{near}"
        assert f"the file does not exist{near}" in run_command("doctor", tmp_path / name).stdout


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


def test_something_else_is_not_overwritten(archive: tuple[list[Path], Path]) -> None:
    files, _ = archive
    target = files[0].parent / "precious"
    target.mkdir()
    (target / "thesis.txt").write_text("years of work")
    with pytest.raises(GridrefError, match="precious"):
        gridref.build(files, target, "time")
    assert (target / "thesis.txt").read_text() == "years of work"
    shutil.rmtree(target)


VALUES = np.random.default_rng(3).integers(1, 2**31, (40, 50)).astype("i4")


def write(path: Path) -> Path:
    """A file whose values are none of its fill value."""
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=VALUES, chunks=(10, 20), compression="gzip", shuffle=True)
    return path


def assert_refused(read: Read, catalog: Path) -> None:
    """Whether a door says that reading failed."""
    with told_at_a_door(GridrefError):
        read(catalog, "a")


@pytest.mark.parametrize("door", DOORS)
def test_an_archive_that_vanished(tmp_path: Path, door: str) -> None:
    archive, catalog = tmp_path / "x.zip", tmp_path / "cube.gridref"
    with zipfile.ZipFile(archive, "w") as file:
        file.write(write(tmp_path / "a.nc"), "a.nc")
    gridref.build([f"zip://a.nc::file://{archive}"], catalog)
    np.testing.assert_array_equal(DOORS[door](catalog, "a"), VALUES)
    archive.unlink()
    ZipFileSystem.clear_instance_cache()  # as in a new process
    assert_refused(DOORS[door], catalog)
    archive.write_bytes(b"PK\x05\x06 cut")
    assert_refused(DOORS[door], catalog)


def test_threads_share_an_archive(tmp_path: Path) -> None:
    content = np.arange(200_000, dtype="<u4").tobytes()
    (tmp_path / "a.bin").write_bytes(content)
    with tarfile.open(tmp_path / "x.tar", "w") as file:
        file.add(tmp_path / "a.bin", "a.bin")
    pool, source = SourcePool(), Source(f"tar://a.bin::file://{tmp_path}/x.tar", len(content))

    def read(number: int) -> bool:
        start = number * 997 % 700_000
        return bytes(pool.read(source, start, 5000)) == content[start : start + 5000]

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(read, range(600)))


class Breaking(MemoryFileSystem):
    """A filesystem that raises what it is told to, in place of bytes."""

    protocol = "breaking"
    store: dict[str, Any] = {}  # noqa: RUF012 - fsspec's own
    pseudo_dirs = [""]  # noqa: RUF012
    error: Exception | None = None

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(path.replace("breaking://", "memory://"))

    def cat_file(self, path: str, start: Any = None, end: Any = None, **kwargs: Any) -> bytes:
        if Breaking.error is not None:
            raise Breaking.error
        return super().cat_file(path, start, end, **kwargs)

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        if Breaking.error is not None:
            raise Breaking.error
        return super().info(path, **kwargs)


@pytest.fixture(scope="module")
def breaking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog of a file on a filesystem that breaks."""
    folder = tmp_path_factory.mktemp("breaking")
    fsspec.register_implementation("breaking", Breaking, clobber=True)
    fsspec.filesystem("breaking").pipe_file("/in/a.nc", write(folder / "a.nc").read_bytes())
    gridref.build(["breaking://in/a.nc"], folder / "cube.gridref")
    return folder / "cube.gridref"


@pytest.mark.long(but=14)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError("a.nc"),
        KeyError("a.nc"),
        IsADirectoryError("a.nc"),
        NotADirectoryError("a.nc"),
        zipfile.BadZipFile("no zip"),
        RecursionError(),
        ValueError("no size"),
    ],
    ids=repr,
)
def test_no_exception_of_a_filesystem_reads_as_fill(
    breaking: Path, door: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Breaking, "error", error)
        assert_refused(DOORS[door], breaking)
    np.testing.assert_array_equal(DOORS[door](breaking, "a"), VALUES)


@pytest.mark.parametrize("error", [KeyError("x"), FileNotFoundError("x"), IndexError("x")])
def test_nothing_that_means_absent_leaves_a_read(error: Exception) -> None:
    with pytest.raises(ReadError) as caught, never_absent():
        raise error
    assert caught.value.__cause__ is error


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    content = write(tmp_path / "a.nc").read_bytes()
    with serving(Site({"/a.nc": content}, {"/a.nc": '"v1"'})) as running:
        yield running


@pytest.mark.long(but=3)
@pytest.mark.parametrize("door", DOORS)
def test_wrong_answers_to_ranges(site: Site, tmp_path: Path, door: str) -> None:
    catalog = tmp_path / "cube.gridref"
    gridref.build([f"{site.url}/a.nc"], catalog)
    for fault in RANGE_FAULTS:
        site.fault = fault
        assert_refused(DOORS[door], catalog)
    site.fault = None
    np.testing.assert_array_equal(DOORS[door](catalog, "a"), VALUES)


@pytest.mark.parametrize("fault", RANGE_FAULTS)
def test_nothing_of_a_wrong_answer_is_kept(site: Site, tmp_path: Path, fault: str) -> None:
    catalog, reader = tmp_path / "cube.gridref", reader_for()
    gridref.build([f"{site.url}/a.nc"], catalog)
    array = gridref.open_catalog(catalog).arrays["a"]
    site.fault = fault
    with pytest.raises(ReadError, match=r"a\.nc"):
        reader.read(array, ...)
    site.fault = None
    np.testing.assert_array_equal(reader.read(array, ...), VALUES)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("fault", [name for name in RANGE_FAULTS if name != "of a longer file"])
def test_a_pool_never_takes_them(site: Site, fault: str, known: bool) -> None:
    source = describe_source(f"{site.url}/a.nc")
    pool = SourcePool(retry=RetryPolicy(2, 0.01), identity="check" if known else "skip")
    site.fault = fault
    with pytest.raises(ReadError, match=r"bytes 600-700"):
        pool.read(source, 600, 100)


def test_several_parts_are_never_taken_for_one_range(site: Site, tmp_path: Path) -> None:
    gridref.build([f"{site.url}/a.nc"], tmp_path / "cube")
    site.fault = "several parts"
    refused = r"several parts .*a\.nc"
    with pytest.raises(SourceUnavailableError, match=refused):
        gridref.scan(f"{site.url}/a.nc")
    with pytest.raises(SourceUnavailableError, match=refused):
        gridref.open_catalog(tmp_path / "cube")["a"][...]


def test_no_more_is_read_than_was_asked_for(site: Site) -> None:
    source = describe_source(f"{site.url}/a.nc")
    site.fault = "endless"
    with pytest.raises(SourceUnavailableError):
        SourcePool().read(source, 600, 100)
    assert site.n_sent < 64 * 2**20


def test_a_zarr_store_whose_server_fails_has_no_missing_chunks(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "s", mode="w", zarr_format=2)
    group.create_array("v", shape=(4,), chunks=(2,), dtype="i4")[:] = [1, 2, 3, 4]
    zarr.consolidate_metadata(tmp_path / "s")
    files = {
        f"/s.zarr/{path.relative_to(tmp_path / 's')}": path.read_bytes()
        for path in (tmp_path / "s").rglob("*")
        if path.is_file()
    }
    with serving(Site(files)) as site:
        array = gridref.scan(f"{site.url}/s.zarr").arrays["v"]
        np.testing.assert_array_equal(reader_for().read(array, ...), [1, 2, 3, 4])
        site.failing = {"/s.zarr/v/1": 503}
        with pytest.raises(SourceUnavailableError, match=r"s\.zarr/v/1"):
            gridref.scan(f"{site.url}/s.zarr")
        site.failing = {"/s.zarr/.zmetadata": 403}
        with pytest.raises(SourceUnavailableError, match="permission"):
            gridref.scan(f"{site.url}/s.zarr")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_pipes_devices_and_directories_are_refused_at_once(tmp_path: Path) -> None:
    catalog, source = tmp_path / "cube.gridref", write(tmp_path / "a.nc")
    gridref.build([source], catalog)
    source.unlink()
    for make in (os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)):
        make(source)
        for read in DOORS.values():
            assert_refused(read, catalog)
        with pytest.raises(GridrefError, match=r"a\.nc"):
            gridref.scan(source)
        os.rmdir(source) if source.is_dir() else source.unlink()
    for name in ["gridref.json", *(path.name for path in catalog.glob("chunks-*"))]:
        kept = (catalog / name).read_bytes()
        (catalog / name).unlink()
        os.mkfifo(catalog / name)
        with pytest.raises(GridrefError, match="pipe"):
            DOORS["own reader"](catalog, "a")
        (catalog / name).unlink()
        (catalog / name).write_bytes(kept)


_PROGRAM = """
import gc, sys
from pathlib import Path
import fsspec.asyn, h5py
sys.path.insert(0, sys.argv[2])
from gridref.formats.hdf5 import original
from tests.http_server import Site, serving

class Circle:
    def __init__(self, space):
        self.itself, self.space = self, space

def litter():
    Circle(spaces.pop())
    loop.call_later(0.0005, litter)

path = Path(sys.argv[1])
original.WHOLE_BYTES = 0  # h5py reads the file piece by piece, as it reads a large one
spaces = [h5py.h5s.create_simple((3,)) for _ in range(20_000)]
gc.set_threshold(1)
with serving(Site({"/a.nc": path.read_bytes()}, {"/a.nc": '"v1"'})) as site:
    loop = fsspec.asyn.get_loop()
    loop.call_soon_threadsafe(litter)
    original.OriginalFile(f"{site.url}/a.nc").read("v3")
assert gc.isenabled()
print(len(spaces))
"""


def test_garbage_on_the_thread_that_reads_blocks_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with h5py.File(path, "w") as file:
        for number in range(20):
            file.create_dataset(f"v{number}", data=np.zeros((40, 50)), chunks=(20, 25))
    done = run_code(_PROGRAM, path, Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout
    assert int(done.stdout) < 19_990, "no garbage was made while reading"


ODD: dict[str, Any] = {
    "texts": ["a", "b"],
    "number": 5,
    "nothing": np.zeros(0),
    "numbers": np.array([[1.5, 2], [3, 4]]),
    "pair": np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
}
NAMES = (
    "units", "standard_name", "axis", "calendar", "grid_mapping", "coordinates", "bounds",
    "climatology", "missing_value", "_Unsigned", "instance_dimension", "crs_wkt", "GeoTransform",
    "long_name", "cell_methods",
)  # fmt: skip


def files(folder: Path, variable: str, attrs: dict[str, Any]) -> list[Path]:
    """Two files whose variable has odd attributes; where it is the time, it has usual units."""
    paths = [folder / f"{number}.h5" for number in range(2)]
    for number, path in enumerate(paths):
        time = np.arange(2.0) + 2 * number, {"units": "days since 2000-01-01"}
        write_hdf5(path, {"time": time}, {"v": (["time"], np.arange(4, dtype="i2").reshape(2, 2))})
        with h5py.File(path, "a") as file:
            file[variable].attrs.update(attrs)
    return paths


@pytest.mark.long(but=2)
@pytest.mark.filterwarnings("ignore::xarray.SerializationWarning")
@pytest.mark.parametrize("variable", ["time", "v"])
@pytest.mark.parametrize("odd", ODD)
def test_files_with_odd_attributes_are_combined_or_refused(
    tmp_path: Path, variable: str, odd: str
) -> None:
    for name in NAMES:
        paths = files(tmp_path, variable, {name: ODD[odd]})
        catalog = tmp_path / f"{name}.gridref"
        gridref.build(paths, catalog, "time")
        group = gridref.open_catalog(catalog)
        np.testing.assert_array_equal(group.arrays["v"][...], np.tile([[0, 1], [2, 3]], (2, 1)))
        with suppress(GridrefError):
            gridref.interchange.to_stac(group, datetime="2000-01-01")


@pytest.mark.parametrize("name", ["scale_factor", "add_offset"])
@pytest.mark.parametrize("odd", ["texts", "nothing", "pair"])
def test_a_factor_that_is_no_number_is_refused(tmp_path: Path, name: str, odd: str) -> None:
    paths = files(tmp_path, "time", {name: ODD[odd]})
    with pytest.raises(UnsupportedFeatureError, match=f"{name} is .*, which is not a number"):
        gridref.plan(paths, concat_dim="time")


def test_what_xarray_cannot_decode_is_told(tmp_path: Path) -> None:
    paths = files(tmp_path, "time", {"calendar": ["a", "b"]})
    with pytest.raises(NotRepresentableError, match="xarray does not decode it"):
        gridref.open_virtual_mfdataset(paths, concat_dim="time", combine="nested")
