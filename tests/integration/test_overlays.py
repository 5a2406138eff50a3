"""Overlays: written once, read in place of the files where that is faster, and never stale."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import random
import shutil
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import h5py
import httpx
import numpy as np
import pytest
import xarray as xr
import zarr
from numpy.typing import NDArray

import gridref
import gridref.serve.reader
from gridref.api.rewriting import writer
from gridref.catalog.document import digest_of
from gridref.errors import (
    BlockPendingError,
    CatalogCorruptError,
    InvalidRequestError,
    NotRepresentableError,
    OverlayNotUsedWarning,
    SourceChangedError,
    SourceUnavailableError,
)
from gridref.faces.http import create_app
from gridref.faces.picture import human_bytes
from tests.command import run_code, run_command
from tests.http_server import Site, serving
from tests.integration.archives import write_hdf5
from tests.integration.overlay_archive import Archive
from tests.integration.test_icechunk import opened as session_of
from tests.s3_server import s3_bucket
from tests.uvicorn_server import BROWSER, rows_of, running

SERIES = {"time": -1, "lat": 5, "lon": 5}


def write_map_file(path: Path, first: int, values: NDArray[Any], **attrs: Any) -> None:
    """Write a file of maps, one chunk each."""
    n_maps, n_rows, n_columns = values.shape
    labels = {"time": first + np.arange(n_maps), "lat": np.arange(n_rows) * 1.0}
    labels["lon"] = np.arange(n_columns) * 1.0
    storage = {"chunks": (1, n_rows, n_columns), "compression": "gzip"}
    write_hdf5(path, labels, {"tas": ([*labels], values, attrs, storage)})


class Cube:
    """Six files of four maps, and a catalog of them."""

    def __init__(self, folder: Path, values: NDArray[Any] | None = None) -> None:
        self.folder = folder
        if values is None:
            values = np.random.default_rng(0).random((24, 12, 14)).astype("f4")
        self.values = values
        for number in range(6):
            self.write(number, values[4 * number : 4 * number + 4])
        self.files = sorted(folder.glob("*.nc"))
        self.url = str(folder / "cube.gridref")
        gridref.build([*map(str, self.files)], self.url, concat_dim="time")

    def write(self, number: int, values: NDArray[Any]) -> str:
        path = self.folder / f"file{number:03d}.nc"
        write_map_file(path, 4 * number, values)
        return str(path)

    def open(self, **options: Any) -> gridref.Catalog:
        return gridref.open_catalog(self.url, **options)

    def objects(self) -> list[Path]:
        """The shards."""
        return sorted(Path(self.url).glob("overlays/*/*/c.*"))


@pytest.fixture
def cube(tmp_path: Path) -> Cube:
    return Cube(tmp_path)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Cube:
    """A cube that no test alters."""
    return Cube(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def two_overlays(tmp_path_factory: pytest.TempPathFactory) -> Cube:
    """A cube that no test alters, with an overlay of series, and one of blocks."""
    cube = Cube(tmp_path_factory.mktemp("cube"))
    cube.open().rechunk("tas", SERIES).rechunk("tas", {"time": 6, "lat": 4, "lon": 7})
    return cube


def read_without_warnings(catalog: gridref.Catalog, selection: Any = None) -> NDArray[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", OverlayNotUsedWarning)
        return catalog["tas"].read(selection)


def special(dtype: str) -> NDArray[Any]:
    """Values of a dtype whose bits are easily lost."""
    random = np.random.default_rng(1)
    n_bytes = 24 * 12 * 14 * np.dtype(dtype).itemsize
    raw = random.integers(0, 256, n_bytes, np.uint8)
    return raw.view(dtype).reshape(24, 12, 14)


@pytest.mark.parametrize(
    "dtype",
    ["<f4", ">f4", "S3", *(pytest.param(d, marks=pytest.mark.long) for d in ("<f8", "<i2", "u1"))],
)
def test_elements_are_the_same_bit_for_bit(tmp_path: Path, dtype: str) -> None:
    values = special(dtype)  # random bits: NaN of any payload, -0.0, subnormal numbers
    values.reshape(-1)[:100] = values.reshape(-1)[0]
    if dtype == "S3":
        values = np.char.replace(values, b"\0", b"x")
    cube = Cube(tmp_path, values)
    cube.open().rechunk("tas", SERIES)
    got = read_without_warnings(cube.open(overlay=0))
    native = values.astype(values.dtype.newbyteorder("="))
    assert (got.dtype, got.tobytes()) == (native.dtype, native.tobytes())


@pytest.mark.parametrize(
    "codec",
    ["shuffle-zstd", *(pytest.param(c, marks=pytest.mark.long) for c in ("blosc", "gzip", "none"))],
)
def test_a_sheet_is_a_zarr_array(cube: Cube, codec: str) -> None:
    """zarr-python reads the folder of a sheet as it is."""
    cube.open().rechunk("tas", SERIES, codec=codec)
    folder = cube.objects()[0].parent
    np.testing.assert_array_equal(zarr.open_array(folder, mode="r")[...], cube.values)
    np.testing.assert_array_equal(read_without_warnings(cube.open(overlay=0)), cube.values)


def test_every_door_reads_from_the_overlay(
    two_overlays: Cube, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, values = two_overlays.open(overlay=0), two_overlays.values
    used: list[object] = []
    for name in ("plan_with_overlays", "plan_points_with_overlays"):
        plan = getattr(gridref.serve.reader, name)

        def noting(*asked: Any, plan: Any = plan) -> Any:
            planned, choice = plan(*asked)
            used.extend([] if choice is None else [choice])
            return planned, choice

        monkeypatch.setattr(gridref.serve.reader, name, noting)
    doors: dict[str, Callable[[], Any]] = {
        "catalog": lambda: opened["tas"][:, 3, 4],
        "engine": lambda: opened.to_xarray()["tas"][:, 3, 4].values,
        "direct": lambda: xr.open_zarr(gridref.open_store(opened))["tas"][:, 3, 4].values,
        "portable": lambda: (
            xr.open_zarr(gridref.open_store(opened, view="portable"))["tas"][:, 3, 4].values
        ),
    }
    for door, read in doors.items():
        used.clear()
        np.testing.assert_array_equal(read(), values[:, 3, 4], err_msg=door)
        assert used, door
    points = {dim: xr.DataArray([1, 2, 3], dims="p") for dim in ("time", "lat", "lon")}
    used.clear()
    shown = xr.open_zarr(gridref.open_store(opened))["tas"].isel(points)
    np.testing.assert_array_equal(shown.values, values[[1, 2, 3], [1, 2, 3], [1, 2, 3]])
    assert used


def test_overlays_of_parts_of_an_array_answer_together(cube: Cube) -> None:
    for start in (0, 8, 16):
        cube.open().rechunk("tas", SERIES, where={"time": slice(start, start + 7)})
    catalog = cube.open()
    costs = catalog.explain("tas", lat=3, lon=4).to_pylist()
    assert [row["layout"] for row in costs if row["chosen"]] == [f"overlay {n}" for n in range(3)]
    selection = (slice(None, None, -1), 3, [4, 2])
    np.testing.assert_array_equal(
        read_without_warnings(catalog, selection), cube.values[::-1, 3][:, [4, 2]]
    )
    for shard in cube.objects()[:2]:
        shard.unlink()
    ids = " or ".join(each.id for each in catalog.overlays())
    with pytest.warns(OverlayNotUsedWarning, match=f"overlay {ids} cannot be read"):
        got = cube.open()["tas"].read((slice(None), 3, 4))
    np.testing.assert_array_equal(got, cube.values[:, 3, 4])


def test_a_series_costs_few_requests(two_overlays: Cube) -> None:
    requests = {}
    for overlay in ("auto", "none"):
        opened = two_overlays.open(overlay=overlay)
        np.testing.assert_array_equal(opened["tas"][:, 3, 4], two_overlays.values[:, 3, 4])
        requests[overlay] = opened["tas"].access.sources.reader.ranges.n_requests
    assert requests == {"auto": 1, "none": 6}


def on_server(cube: Cube) -> Site:
    """The files and a catalog of them, as a server has them."""
    url = str(cube.folder / "site.gridref")
    files = [*map(str, cube.files)]
    gridref.build(files, url, concat_dim="time", relative=True, identity="size")
    catalog = gridref.open_catalog(url).rechunk("tas", SERIES)
    for name in ("time", "lat", "lon"):
        catalog = catalog.rechunk(name, {name: -1})
        assert catalog.report.lines[0].endswith("in the catalog, each stored chunk decoded once")
    return Site.of_folder(cube.folder)


def test_a_first_series_on_a_server_costs_few_requests(
    cube: Cube, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels, and the tables of overlays, come with the root file."""
    monkeypatch.setattr("gridref.serve.choosing.WORTH", 100.0)  # overlays, also of so few files
    doors: dict[str, Callable[[str], Any]] = {
        "catalog": lambda url: gridref.open_catalog(url, allow="*")["tas"][:, 3, 4],
        "engine": lambda url: xr.open_dataset(url, engine="gridref", allow="*")["tas"][:, 3, 4],
        "open_zarr": lambda url: xr.open_zarr(gridref.open_store(url, allow="*"))["tas"][:, 3, 4],
    }
    n_requests = {}
    with serving(on_server(cube)) as site:
        for door, read in doors.items():
            before = len(site.requests)
            found = read(f"{site.url}/{cube.folder.name}/site.gridref")
            np.testing.assert_array_equal(found, cube.values[:, 3, 4])
            if isinstance(found, xr.DataArray):
                assert found["time"].values.tolist() == [*range(24)]
                assert (float(found["lat"]), float(found["lon"])) == (3, 4)
            n_requests[door] = len(site.requests) - before
    assert n_requests == {"catalog": 2, "engine": 3, "open_zarr": 2}


def test_copies_of_tables_are_in_the_root_file_only(cube: Cube) -> None:
    """Else each commit of a growing archive would add them to the history."""
    catalog = cube.open().rechunk("tas", SERIES).rechunk("time", {"time": -1})
    of_then = catalog.info.snapshot
    root = Path(cube.url) / "gridref.json"
    n_copies = root.read_text().count('"copies"')
    assert n_copies == 2
    catalog = catalog.append(cube.write(6, np.ones((4, 12, 14), "f4")))
    assert '"copies"' in root.read_text()
    former = gzip.decompress((root.parent / f"snapshot-{of_then}.json.gz").read_bytes())
    assert b'"overlays"' in former
    assert b'"copies"' not in former
    then = gridref.open_catalog(cube.url, snapshot=of_then, overlay=0)
    np.testing.assert_array_equal(read_without_warnings(then), cube.values)
    back = catalog.rollback(of_then)
    assert root.read_text().count('"copies"') == n_copies
    assert back["time"].read().tolist() == [*range(24)]
    np.testing.assert_array_equal(read_without_warnings(cube.open(overlay=0)), cube.values)


def test_labels_follow_an_archive_that_grows(cube: Cube) -> None:
    catalog = cube.open().rechunk("time", {"time": -1})
    assert [each.n_objects for each in catalog.overlays()] == [0]
    assert not (Path(cube.url) / "overlays").exists()
    catalog = catalog.append(cube.write(6, np.ones((4, 12, 14), "f4")))
    assert catalog.overlays()[0].covered == pytest.approx(24 / 28)
    catalog = catalog.rechunk("time")
    assert catalog.overlays()[0].covered == 1
    for path in [*cube.files, cube.folder / "file006.nc"]:  # labels are in the catalog
        path.touch()
    shown = gridref.open_catalog(cube.url, overlay=0)["time"]
    with pytest.raises(SourceChangedError):
        shown.read()
    assert cube.open().refresh().rechunk("time")["time"].read().tolist() == [*range(28)]


def test_the_digest_and_the_files_stay(cube: Cube) -> None:
    before = cube.open()
    hashes = [path.read_bytes() for path in cube.files]
    after = before.rechunk("tas", SERIES)
    assert after.info.digest == before.info.digest
    assert [*after.diff(before)] == []
    assert [path.read_bytes() for path in cube.files] == hashes


def test_appended_steps_come_from_files_until_the_next_call(cube: Cube) -> None:
    cube.open().rechunk("tas", SERIES)
    more = np.full((4, 12, 14), 7, "f4")
    appended = cube.open().append(cube.write(6, more))
    (info,) = appended.overlays()
    assert info.covered == pytest.approx(24 / 28)
    whole = np.concatenate([cube.values, more])
    np.testing.assert_array_equal(read_without_warnings(cube.open(overlay=0)), whole)
    updated = appended.rechunk("tas")
    (info,) = updated.overlays()
    assert (info.covered, info.n_sheets) == (1, 2)
    assert updated.report.lines[0].startswith("tas: 4x12x14 in chunks of 4x5x5")
    np.testing.assert_array_equal(read_without_warnings(cube.open(overlay=0)), whole)


def test_a_replaced_file_is_a_hole(cube: Cube) -> None:
    cube.open().rechunk("tas", SERIES)
    cube.values[8:12] = 5
    cube.write(2, cube.values[8:12])
    with pytest.raises(SourceChangedError):  # as the files alone would
        cube.open(overlay=0)["tas"].read()
    np.testing.assert_array_equal(cube.open(overlay=0)["tas"][:8], cube.values[:8])
    refreshed = cube.open().refresh()
    (info,) = refreshed.overlays()
    assert info.covered == pytest.approx(20 / 24)
    np.testing.assert_array_equal(read_without_warnings(cube.open(overlay=0)), cube.values)
    cube.files[0].unlink()  # the overlay has all of it, but it is asked for
    with pytest.raises(SourceUnavailableError):
        cube.open(overlay=0)["tas"].read()


def test_files_that_are_the_same_again(cube: Cube) -> None:
    """What is written then has the content, and the box, of a sheet that is there."""
    cube.open().rechunk("tas", SERIES)
    (sheet,) = {path.parent for path in cube.objects()}
    kept = [(path, path.read_bytes(), path.stat().st_mtime_ns) for path in cube.files[:5]]
    for number in range(5):
        cube.write(number, np.zeros((4, 12, 14), "f4"))
    cube.open().refresh()
    for path, content, mtime_ns in kept:
        path.write_bytes(content)
        os.utime(path, ns=(mtime_ns, mtime_ns))
    catalog = cube.open().refresh()
    assert catalog.overlays()[0].covered == pytest.approx(4 / 24)
    assert catalog.rechunk("tas").overlays()[0].covered == 1
    assert len({path.parent for path in cube.objects()} - {sheet}) == 1
    np.testing.assert_array_equal(read_without_warnings(cube.open(overlay=0)), cube.values)


@pytest.mark.long
def test_a_small_archive_that_grows_keeps_few_sheets(tmp_path: Path) -> None:
    values = np.arange(24 * 12 * 14, dtype="f4").reshape(24, 12, 14)
    cube = Cube(tmp_path, values)
    catalog = cube.open().rechunk("tas", SERIES)
    for number in range(6, 26):
        more = np.full((4, 12, 14), number, "f4")
        values = np.concatenate([values, more])
        catalog = catalog.append(cube.write(number, more)).rechunk("tas")
        assert catalog.overlays()[0].n_sheets <= 8
    assert catalog.overlays()[0].covered == 1
    np.testing.assert_array_equal(read_without_warnings(cube.open(overlay=0)), values)


@pytest.mark.long
def test_an_array_of_very_many_pieces_is_covered_as_far_as_can_be_listed(tmp_path: Path) -> None:
    """Every second step is still to come: 70 boxes."""
    files = []
    for number in range(70):
        path = tmp_path / f"file{number:03d}.nc"
        write_map_file(path, 2 * number, np.full((1, 4, 5), number, "f4"))
        files.append(str(path))
    url = str(tmp_path / "cube.gridref")
    gridref.build(files[:1], url, concat_dim="time")
    gridref.open_catalog(url).declare("time", np.arange(140))
    catalog = gridref.open_catalog(url).append(files[1:])
    catalog = catalog.rechunk("tas", {"time": -1, "lat": 4, "lon": 5})
    assert catalog.overlays()[0].covered == pytest.approx(64 / 140)
    shown = gridref.open_catalog(url, overlay=0)["tas"].read()
    files_alone = gridref.open_catalog(url, overlay="none")["tas"].read()
    np.testing.assert_array_equal(shown, files_alone)


def test_an_amending_catalog_can_be_rechunked(cube: Cube) -> None:
    cube.open().amend().rechunk("tas", SERIES)
    np.testing.assert_array_equal(read_without_warnings(cube.open(overlay=0)), cube.values)


def test_an_interrupted_call_is_continued(cube: Cube) -> None:
    def interrupt(done: int, of: int) -> None:
        raise KeyboardInterrupt

    shards = {"time": 24, "lat": 5, "lon": 5}
    with pytest.raises(KeyboardInterrupt):
        cube.open().rechunk("tas", SERIES, shards=shards, progress=interrupt)
    (info,) = cube.open().overlays()
    assert (info.is_unfinished, info.covered) == (True, 0)
    there = {path: path.stat().st_mtime_ns for path in cube.objects()}
    assert there
    np.testing.assert_array_equal(cube.open(overlay=0)["tas"][...], cube.values)
    done = cube.open().rechunk("tas", SERIES, shards=shards)
    assert "of them by an earlier run" in done.report.lines[0]
    assert {path: path.stat().st_mtime_ns for path in there} == there
    (info,) = done.overlays()
    assert (info.is_unfinished, info.covered, info.n_sheets) == (False, 1, 1)
    np.testing.assert_array_equal(read_without_warnings(cube.open(overlay=0)), cube.values)


def test_a_part_of_an_array_by_labels(cube: Cube) -> None:
    where = ["--where", "lat=3:6", "--where", "time=4/"]
    done = run_command("rechunk", cube.url, "tas", "--chunks", "time=-1", *where)
    assert done.returncode == 0, done.stderr
    assert "lat 3 to 6" in run_command("info", cube.url).stdout
    (info,) = cube.open().overlays()
    assert info.covered == pytest.approx(20 / 24 * 4 / 12)
    assert info.where == {"lat": (3, 6), "time": (4, None)}
    np.testing.assert_array_equal(read_without_warnings(cube.open(overlay=0)), cube.values)


def test_changes_by_others_meanwhile(cube: Cube) -> None:
    """An append and a replacement while the sheet is being written."""
    more = np.full((4, 12, 14), 7, "f4")
    cube.values[:4] = 3

    pending = [1]

    def meanwhile(done: int, of: int) -> None:
        if pending:
            pending.pop()
            cube.write(0, cube.values[:4])
            cube.open().refresh()
            cube.open().append(cube.write(6, more))

    catalog = cube.open().rechunk("tas", SERIES, memory="260MB", progress=meanwhile)
    whole = np.concatenate([cube.values, more])
    assert catalog.overlays()[0].covered == 1  # what changed was written after
    np.testing.assert_array_equal(read_without_warnings(cube.open(overlay=0)), whole)


def test_pending_elements_are_not_covered(cube: Cube) -> None:
    cube.open().declare("time", np.arange(28))
    cube.open().rechunk("tas", SERIES)
    assert cube.open().overlays()[0].covered == pytest.approx(24 / 28)
    with pytest.raises(BlockPendingError):
        cube.open(overlay=0, pending="raise")["tas"].read()
    got = cube.open(overlay=0, pending="raise")["tas"][:24]
    np.testing.assert_array_equal(got, cube.values)


def test_where_needs_no_bounds_that_are_still_to_come(tmp_path: Path) -> None:
    time = xr.Variable("time", [0.0, 1.0], {"units": "days since 2000-01-01", "bounds": "edges"})
    edges = ("time", "end"), [[0.0, 1.0], [1.0, 2.0]]
    file, folder = tmp_path / "a.nc", tmp_path / "cube"
    xr.Dataset({"v": ("time", [1, 2]), "edges": edges}, {"time": time}).to_netcdf(
        file, engine="netcdf4", encoding={"edges": {"_FillValue": None}}
    )
    catalog = gridref.build(file, folder, "time")
    catalog = catalog.declare("time", np.datetime64("2000-01-01") + np.arange(4))
    catalog = catalog.rechunk("v", {"time": 2}, where={"time": slice("2000-01-01", "2000-01-02")})
    assert catalog.overlays()[0].covered == 0.5


# Dropping and pruning
def test_dropped_overlays_are_removed_by_prune(cube: Cube) -> None:
    catalog = cube.open().rechunk("tas", SERIES).rechunk("tas", {"time": 6, "lat": 12})
    first, second = (info.id for info in catalog.overlays())
    catalog = catalog.drop_overlay("tas", 0)
    assert [info.id for info in catalog.overlays()] == [second]
    assert len({path.parent for path in cube.objects()}) == 2
    plan = catalog.prune(grace_seconds=0, dry_run=True)
    assert {sheet.split("/")[1] for sheet in plan.sheets} == {first}
    catalog.prune(grace_seconds=0)
    assert not (Path(cube.url) / "overlays" / first).exists()
    np.testing.assert_array_equal(read_without_warnings(cube.open(overlay=0)), cube.values)
    with pytest.raises(InvalidRequestError, match="no overlay 1; there are 0"):
        catalog.drop_overlay("tas", 1)


def test_prune_removes_nothing_that_gridref_did_not_write(cube: Cube, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    victim = outside / ("a" * 16) / ("b" * 16)
    victim.mkdir(parents=True)
    (victim / "c.0.0").write_text("precious")
    (Path(cube.url) / "overlays").symlink_to(outside)
    kept = Path(cube.url) / "notes.txt"
    kept.write_text("mine")
    cube.open().prune(grace_seconds=0)
    assert (victim / "c.0.0").read_text() == "precious"
    assert kept.read_text() == "mine"


# Damage and strangers
def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[10] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def swapped(path: Path) -> None:
    """Another shard of the same size in its place."""
    other = next(p for p in sorted(path.parent.glob("c.*")) if p != path)
    content = bytearray(other.read_bytes())
    size = path.stat().st_size
    path.write_bytes((content + bytes(size))[:size])


@pytest.mark.parametrize("damage", [flipped, cut, swapped, Path.unlink])
def test_damaged_objects_give_the_values_of_the_files(
    cube: Cube, damage: Callable[[Path], None]
) -> None:
    shards = {"time": 24, "lat": 5, "lon": 5}
    cube.open().rechunk("tas", SERIES, shards=shards)
    damage(cube.objects()[0])
    said = "were read instead: an object of it (is|has) .*; drop the overlay, and write it again"
    with pytest.warns(OverlayNotUsedWarning, match=said) as warned:
        got = cube.open(overlay=0)["tas"].read()
    assert "refresh" not in str(warned[0].message)  # the advice for a file of the archive
    np.testing.assert_array_equal(got, cube.values)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OverlayNotUsedWarning)  # once is enough
        cube.open(overlay=0)["tas"].read()
    differences = cube.open().verify(all=True).differences
    assert differences
    assert all(each.message.startswith("overlay ") for each in differences)


def test_verify_compares_overlays_with_files(plain: Cube, two_overlays: Cube) -> None:
    of_files, found = (each.open().verify(all=True) for each in (plain, two_overlays))
    assert found.ok
    assert found.n_values == of_files.n_values + 2 * plain.values.size


def test_verify_finds_values_that_differ(cube: Cube, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sheet that is whole, with checksums, and wrong."""
    encode = writer.encode_bytes_codecs

    def wrong(elements: Any, codecs: Any) -> bytes:
        return encode((np.frombuffer(elements, "<f4") + 1).tobytes(), codecs)

    monkeypatch.setattr(writer, "encode_bytes_codecs", wrong)
    cube.open().rechunk("tas", SERIES)
    monkeypatch.undo()
    (first, *_) = cube.open().verify(all=True).differences
    assert "values differ" in first.message


def test_local_files_are_checked_beside_those_of_a_server(cube: Cube) -> None:
    url = str(cube.folder / "mixed.gridref")
    with serving(Site.of_folder(cube.folder)) as site:
        far = [f"{site.url}/{cube.folder.name}/{file.name}" for file in cube.files[:3]]
        gridref.build([*far, *map(str, cube.files[3:])], url, concat_dim="time")
        gridref.open_catalog(url).rechunk("tas", SERIES)
        before = len(site.requests)
        opened = gridref.open_catalog(url, overlay=0)
        np.testing.assert_array_equal(read_without_warnings(opened), cube.values)
        assert len(site.requests) == before
        cube.write(4, cube.values[:4])
        with pytest.raises(SourceChangedError):
            gridref.open_catalog(url, overlay=0)["tas"].read()


def test_a_copy_of_the_folder_reads_from_its_own_overlay(cube: Cube, tmp_path: Path) -> None:
    """`cp -r` gives files new times of change."""
    cube.open().rechunk("tas", SERIES)
    copy = tmp_path / "copy.gridref"
    shutil.copytree(cube.url, copy, copy_function=shutil.copyfile)
    for path in Path(cube.url).glob("overlays/*/*/c.*"):
        path.unlink()
    opened = gridref.open_catalog(copy, overlay=0)
    np.testing.assert_array_equal(read_without_warnings(opened), cube.values)


def test_a_strangers_overlay_elsewhere_is_not_opened(
    cube: Cube, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    cube.open().rechunk("tas", SERIES, to=elsewhere)
    assert sorted(elsewhere.glob("*/*/c.*"))
    np.testing.assert_array_equal(read_without_warnings(cube.open(overlay=0)), cube.values)
    monkeypatch.setenv("GRIDREF_STATE", str(elsewhere / "of-somebody-else"))
    allowed = [str(path) for path in cube.files]
    with pytest.warns(OverlayNotUsedWarning, match="SourceNotAllowedError"):
        got = cube.open(overlay=0, allow=allowed)["tas"].read()
    np.testing.assert_array_equal(got, cube.values)
    with pytest.raises(InvalidRequestError, match="to write there, give chunks"):
        cube.open(allow=allowed).rechunk("tas")


def _spoiled(root: dict[str, Any], change: Callable[[dict[str, Any]], object]) -> bytes:
    """A root file with another overlay, and the checksum that fits."""
    change(root["snapshot"]["overlays"][0])
    rest = {name: value for name, value in root.items() if name != "checksum"}
    return json.dumps({**rest, "checksum": digest_of(rest)}).encode()


HOSTILE: dict[str, Callable[[dict[str, Any]], object]] = {
    "outside of the array": lambda o: o["coverage"][0].update(start=[1, 0, 0]),
    "outside of the sheet": lambda o: o["coverage"][0].update(first=[0, 0, 1]),
    "negative": lambda o: o["coverage"][0].update(start=[-1, 0, 0]),
    "huge": lambda o: o["coverage"][0].update(shape=[2**63, 12, 14]),
    "not a number": lambda o: o["coverage"][0].update(start=["0", 0, 0]),
    "another rank": lambda o: o["coverage"][0].update(start=[0], first=[0], shape=[1]),
    "twice": lambda o: o["coverage"].append(dict(o["coverage"][0])),
    "many boxes": lambda o: o["coverage"].extend([dict(o["coverage"][0])] * 100),
    "no such sheet": lambda o: o["coverage"][0].update(sheet=7),
    "no such array": lambda o: o.update(array="pr"),
    "a name that leads elsewhere": lambda o: o.update(id="../../etc"),
    "a sheet that leads elsewhere": lambda o: o["sheets"][0].update(name="../../../etc/x"),
    "more chunks than rows": lambda o: o["sheets"][0].update(shape=[24, 12, 140]),
    "a table of another directory": lambda o: o["sheets"][0]["part"]["chunks"].update(
        file="../other/chunks.parquet"
    ),
    "no checksums": lambda o: o["sheets"][0]["part"].pop("checksums"),
    "chunks of nothing": lambda o: o["sheets"][0].update(shards=[0, 0, 0]),
    "no list": lambda o: o.update(coverage=None),
    "a copy of another table": lambda o: o["sheets"][0]["copies"].update(chunks="AAAA"),
    "a copy of no table": lambda o: o["sheets"][0]["copies"].update(blocks="AAAA"),
    "copies that are no text": lambda o: o["sheets"][0]["copies"].update(chunks=["AAAA"]),
    "copies that are no object": lambda o: o["sheets"][0].update(copies=["chunks"]),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_overlays_are_refused_when_a_catalog_is_opened(
    two_overlays: Cube, tmp_path: Path, kind: str
) -> None:
    catalog = shutil.copytree(two_overlays.url, tmp_path / "cube.gridref")
    path = catalog / "gridref.json"
    path.write_bytes(_spoiled(json.loads(path.read_bytes()), HOSTILE[kind]))
    said = "not in the catalog" if kind == "a table of another directory" else None
    with pytest.raises(CatalogCorruptError, match=said):
        gridref.open_catalog(catalog)


# Requests that cannot be met
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"chunks": {"tim": -1}}, "did you mean 'time'"),
        ({"chunks": {"time": 0}}, "is no length of time"),
        ({"chunks": {"time": -1}, "memory": "1MB"}, "memory"),
        ({"chunks": {"time": -1}, "memory": "much"}, "is not a size: write 500MB"),
        ({"chunks": {"time": -1}, "codec": "zip"}, "codec"),
        ({"chunks": {"time": -1}, "where": {"lat": slice(50, 60)}}, "selects no labels"),
        ({"chunks": None}, "no overlay to bring up to date"),
    ],
)
def test_requests_that_cannot_be_met_leave_the_catalog(
    plain: Cube, asked: dict[str, Any], said: str
) -> None:
    before = plain.open().info.snapshot
    with pytest.raises(InvalidRequestError, match=said):
        plain.open().rechunk("tas", **asked)
    assert plain.open().info.snapshot == before


def test_more_overlays_than_a_catalog_may_have(cube: Cube, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gridref.catalog.written_overlays.MOST_OVERLAYS", 2)
    cube.open().rechunk("tas", SERIES).rechunk("time", {"time": -1})
    with pytest.raises(InvalidRequestError, match="has 2 overlays, the most it may have"):
        cube.open().rechunk("tas", {"time": 6})
    assert len(cube.open().rechunk("tas").overlays()) == 2


def test_large_chunks_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.nc"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("x", shape=(10_000, 2000), dtype="f4", chunks=(10, 2000))
        data[0] = 1
    gridref.build(str(path), str(tmp_path / "c.gridref"))
    catalog = gridref.open_catalog(tmp_path / "c.gridref")
    with pytest.raises(InvalidRequestError, match="takes 80 MB, and one point would read all"):
        catalog.rechunk("x", {"phony_dim_0": -1, "phony_dim_1": -1})


def test_shards_fit_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.nc"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("x", shape=(1000, 200, 200), dtype="f4", chunks=(1, 200, 200))
        data[0] = 1
    gridref.build(str(path), str(tmp_path / "c.gridref"))
    catalog = gridref.open_catalog(tmp_path / "c.gridref")
    chunks = {"phony_dim_0": 100, "phony_dim_1": 10, "phony_dim_2": 10}
    n_bytes = {}
    for memory in ("300MB", "1GB"):
        line = catalog.rechunk("x", chunks, memory=memory, dry_run=True).report.lines[0]
        lengths = line.rpartition("shards of ")[2].split("x")
        n_bytes[memory] = 4 * np.prod([*map(int, lengths)])
    assert n_bytes["300MB"] <= (300 - 200) * 10**6 / 8 < n_bytes["1GB"] <= (1000 - 200) * 10**6 / 8


def test_a_build_in_place_says_that_overlays_are_empty(cube: Cube) -> None:
    cube.open().rechunk("tas", SERIES)
    built = gridref.build([*map(str, cube.files)], cube.url, concat_dim="time", overwrite=True)
    said = (
        "overlays of tas cover no element of the new catalog; gridref rechunk --update writes them"
    )
    assert any(line.startswith(said) for line in built.report.lines)
    assert cube.open().overlays()[0].covered == 0
    assert cube.open().rechunk("tas").overlays()[0].covered == 1
    assert cube.open(overlay=0)["tas"].read().tobytes() == cube.values.tobytes()


@pytest.mark.parametrize("overlay", ["sometimes", -1, True, 1.5])
def test_unknown_policies_are_refused(plain: Cube, overlay: Any) -> None:
    with pytest.raises(InvalidRequestError, match="overlay"):
        plain.open(overlay=overlay)


def test_a_dry_run_writes_nothing(plain: Cube) -> None:
    before = sorted(os.listdir(plain.url))
    report = plain.open().rechunk("tas", SERIES, dry_run=True).report
    assert report.lines[0] == "tas: 24x12x14 in chunks of 24x5x5, shards of 24x15x15"
    assert report.lines[1].startswith("24 stored chunks, each decoded once; at most ")
    assert sorted(os.listdir(plain.url)) == before


# Random changes
@pytest.mark.parametrize(
    ("seed", "n_changes"), [(1, 12), pytest.param(2, 100, marks=pytest.mark.long)]
)
def test_no_value_is_stale_whatever_changes(tmp_path: Path, seed: int, n_changes: int) -> None:
    archive = Archive(tmp_path, seed)
    for _ in range(n_changes):
        archive.step()
    assert archive.n_covered


def test_write_list_update_and_drop(cube: Cube) -> None:
    done = run_command("rechunk", cube.url, "tas", "--chunks", "time=-1,lat=5,lon=5")
    assert done.returncode == 0, done.stderr
    assert "tas: 24x12x14 in chunks of 24x5x5: 0.0154 MB in 1 shard, each" in done.stderr
    shown = run_command("info", cube.url).stdout
    assert "tas: overlay 0, chunks all x 5 x 5, 100 % covered" in shown
    assert "tas: overlay 0, chunks all x 5 x 5" in run_command("info", cube.url, "tas").stdout
    appended = run_command("append", cube.url, cube.write(6, np.ones((4, 12, 14), "f4")))
    assert "tas: overlay 0, chunks all x 5 x 5, 85.7 % covered" in appended.stderr
    assert "85.7 % covered" in run_command("info", cube.url).stdout
    updated = run_command("rechunk", cube.url, "tas", "--update")
    assert "tas: 4x12x14 in chunks of 4x5x5" in updated.stderr
    (listed,) = json.loads(run_command("info", cube.url, "--json").stdout)["overlays"]
    assert (listed["covered"], listed["n_sheets"]) == (1, 2)
    dropped = run_command("rechunk", cube.url, "tas", "--drop", "0")
    assert dropped.returncode == 0
    assert "overlay" not in run_command("info", cube.url).stdout
    pruned = run_command("prune", cube.url, "--grace", "0s")
    assert "2 folders of overlays" in pruned.stdout
    assert not cube.objects()


def test_shards_of_overviews_are_no_sources(cube: Cube) -> None:
    before = run_command("info", cube.url).stdout.splitlines()
    (told,) = (line for line in before if " sources, " in line)
    assert run_command("overviews", cube.url, "tas").returncode == 0
    shown = run_command("info", cube.url).stdout
    assert "overview_1" in shown
    assert told in shown.splitlines()


def test_costs_of_a_selection(two_overlays: Cube) -> None:
    url = two_overlays.url
    shown = run_command("info", url, "tas", "--select", "time=:,lat=7,lon=9").stdout
    files, overlay, _ = shown.splitlines()[1:]
    assert files.split()[:3] == ["files", "24", "6"]
    assert overlay.split()[:4] == ["overlay", "0", "1", "1"]
    assert overlay.rstrip().endswith("chosen")
    rows = json.loads(run_command("info", url, "tas", "--select", "time=3", "--json").stdout)
    assert [row["chosen"] for row in rows] == [True, False, False]
    done = run_command("info", url, "tas", "--select", "lat=north")
    assert "positions are written like lat=7" in done.stderr
    assert "name it after the catalog" in run_command("info", url, "--select", "lat=7").stderr


def test_watching_keeps_overlays_and_overviews_up_to_date(cube: Cube) -> None:
    catalog = gridref.open_catalog(cube.url).rechunk("tas", {"time": -1, "lat": 5, "lon": 5})
    catalog.overviews("tas", levels=1, method="max", codec="zstd")
    arrived = cube.write(6, np.ones((4, 12, 14), "f4"))
    done = run_command("watch", cube.url, arrived, "--once", "--rechunk")
    assert done.returncode == 0, done.stderr
    after = gridref.open_catalog(cube.url)
    (info,) = after.overlays()
    assert (info.covered, info.n_sheets) == (1, 2)
    (levels,) = after.list_overviews()
    assert (levels.is_shown, levels.method, levels.n_levels) == (True, "max", 1)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["tas"], 2, "nothing to do: give one of --chunks LENGTHS, --update or --drop N"),
        (["tas", "--update", "--drop", "0"], 2, "nothing to do"),
        (["tas", "--update"], 1, "no overlay to bring up to date; --chunks ... writes one"),
        (["pr", "--chunks", "time=-1"], 1, "no array 'pr'"),
        (["tas", "--chunks", "time=-1", "--where", "lat"], 1, "labels are written like lat=40:60"),
        (["tas", "--chunks", "time=-1", "--memory", "1MB"], 1, "--memory 1MB is too little"),
    ],
)
def test_commands_that_cannot_be_done(
    plain: Cube, arguments: list[str], status: int, said: str
) -> None:
    done = run_command("rechunk", plain.url, *arguments)
    assert done.returncode == status
    assert said in done.stderr.replace("\n", " ")


def lengths(variable: xr.DataArray) -> tuple[tuple[int, ...], ...]:
    """Chunk lengths of a variable that was opened with ``chunks={}``."""
    assert variable.chunks is not None
    return variable.chunks


def zarr_by_address(url: str, **options: Any) -> xr.Dataset:
    return xr.open_zarr(f"gridref::file://{url}", storage_options=options, chunks={})


def zarr_by_store(url: str, **options: Any) -> xr.Dataset:
    return xr.open_zarr(gridref.open_store(url, **options), chunks={})


def engine(url: str, **options: Any) -> xr.Dataset:
    return xr.open_dataset(url, engine="gridref", chunks={}, **options)


def tree(url: str, **options: Any) -> xr.Dataset:
    return xr.open_datatree(url, engine="gridref", chunks={}, **options).to_dataset()


def opened(url: str, **options: Any) -> xr.Dataset:
    return gridref.open_catalog(url).to_xarray(chunks={}, **options)


@pytest.mark.parametrize("door", [engine, tree, opened, zarr_by_store, zarr_by_address])
def test_an_overlay_by_its_number_gives_chunks_and_values(
    two_overlays: Cube, door: Callable[..., xr.Dataset]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shown = {
            which: door(two_overlays.url, overlay=which)["tas"] for which in (0, 1, "none", "check")
        }
    for variable in shown.values():
        np.testing.assert_array_equal(variable.values, two_overlays.values)
    assert (
        lengths(shown["check"]) == lengths(shown["none"]) == lengths(door(two_overlays.url)["tas"])
    )
    for which, chunks in ((0, (24, 5, 5)), (1, (6, 4, 7))):
        pieces = zip(lengths(shown[which]), chunks, two_overlays.values.shape, strict=True)
        assert all(max(along) == extent or max(along) % n == 0 for along, n, extent in pieces)


def test_dask_gets_chunks_of_an_overlay(two_overlays: Cube) -> None:
    assert lengths(engine(two_overlays.url)["tas"]) == ((4,) * 6, (12,), (14,))
    assert lengths(engine(two_overlays.url, overlay=0)["tas"]) == ((24,), (12,), (14,))  # a shard
    asked = xr.open_dataset(two_overlays.url, engine="gridref", overlay=0, chunks={"lat": "auto"})
    np.testing.assert_array_equal(asked["tas"].values, two_overlays.values)


def test_pieces_of_the_direct_view_are_whole_chunks_of_an_overlay(
    two_overlays: Cube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridref.serve.grids.SUPER_CHUNK_BYTES", 24 * 5 * 10 * 4)
    for options, pieces in (({}, ((4,) * 6, (12,), (14,))), ({"overlay": 0}, (24, 5, 10))):
        shown = lengths(zarr_by_store(two_overlays.url, **options)["tas"])
        assert tuple(max(along) for along in shown) == tuple(map(np.max, pieces))


def test_what_is_opened_reads_the_overlay_that_was_asked_for(tmp_path: Path) -> None:
    cube = Cube(tmp_path)
    catalog = cube.open().rechunk("tas", SERIES)
    without = catalog.to_xarray(overlay="none")
    with_it = cube.open(overlay="none").to_xarray(overlay=0)
    for path in cube.objects():
        path.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(without["tas"].values, cube.values)
    with pytest.warns(OverlayNotUsedWarning, match=catalog.overlays()[0].id):
        np.testing.assert_array_equal(with_it["tas"].values, cube.values)


def test_pickles_keep_the_overlay(two_overlays: Cube) -> None:
    store = gridref.open_store(two_overlays.url, overlay=1)
    again = pickle.loads(pickle.dumps(store))
    assert again == store != gridref.open_store(two_overlays.url)
    filesystem = fsspec.filesystem("gridref", fo=two_overlays.url, overlay=1)
    for each in (
        xr.open_zarr(again),
        xr.open_zarr(pickle.loads(pickle.dumps(filesystem)).get_mapper()),
    ):
        np.testing.assert_array_equal(each["tas"].values, two_overlays.values)
    for space in (again.space, pickle.loads(pickle.dumps(filesystem)).space):
        assert [each.is_forced for each in space.group["tas"].overlays] == [True]


# One layout alone: chunks as they are stored in it
def by_store(url: str, path: Path, **options: Any) -> zarr.Array:
    """The native view of a store."""
    return zarr.open_group(gridref.open_store(url, "native", **options), mode="r")["tas"]


def by_http(url: str, path: Path, **options: Any) -> zarr.Array:
    """The native view over HTTP, all of which is read before the server goes."""
    with running(create_app([url], **options)) as address:
        array = zarr.open_group(f"{address}/cube/native", mode="r")["tas"]
        return zarr.create_array({}, data=array[...], chunks=array.chunks)


def by_kerchunk(url: str, path: Path, **options: Any) -> zarr.Array:
    """References to the chunks, read by fsspec."""
    document = gridref.open_catalog(url, **options).export(None, zarr_format=3)
    filesystem = fsspec.filesystem("reference", fo=document, asynchronous=True)
    return zarr.open_group(zarr.storage.FsspecStore(filesystem, read_only=True), mode="r")["tas"]


def by_icechunk(url: str, path: Path, **options: Any) -> zarr.Array:
    """References in an Icechunk repository."""
    gridref.open_catalog(url, **options).export(path, to="icechunk")
    return zarr.open_group(session_of(path).store, mode="r")["tas"]


@pytest.mark.parametrize("door", [by_store, by_http, by_kerchunk, by_icechunk])
def test_an_overlay_by_its_number_is_shown_as_it_is_stored(
    two_overlays: Cube, tmp_path: Path, door: Callable[..., zarr.Array]
) -> None:
    for options, chunks in (({}, (1, 12, 14)), ({"overlay": 0}, (24, 5, 5))):
        shown = door(two_overlays.url, tmp_path / str(len(options)), **options)
        assert shown.chunks == chunks
        np.testing.assert_array_equal(shown[...], two_overlays.values)


def test_clients_choose_an_overlay_by_the_address(two_overlays: Cube) -> None:
    catalog = two_overlays.open()
    catalog.tag("before")
    with (
        running(create_app([two_overlays.url])) as address,
        httpx.Client(base_url=address) as client,
    ):

        def chunks(name: str, view: str = "native") -> tuple[int, ...]:
            array = zarr.open_group(f"{address}/{name}/{view}", mode="r")["tas"]
            np.testing.assert_array_equal(array[...], two_overlays.values)
            return array.chunks

        assert chunks("cube") == chunks("cube@overlay=none") == (1, 12, 14)
        assert chunks("cube@overlay=0") == chunks("cube@before@overlay=0") == (24, 5, 5)
        assert chunks("cube@overlay=1") == (6, 4, 7)
        assert chunks("cube@overlay=0", "portable") == (24, 15, 15)  # its shards
        shown = client.get("/cube/native/tas/zarr.json", params={"overlay": "0"})
        assert shown.json() == client.get("/cube@overlay=0/native/tas/zarr.json").json()
        series = [
            client.get("/cube/series/tas?at=:,3,4", params={"overlay": each}).text
            for each in ("none", "0")
        ]
        assert series[0].splitlines()[1:] == series[1].splitlines()[1:]
        refusals = {"2": "no array of cube has an overlay 2"}
        refusals |= dict.fromkeys(("best", "", "-1", "9" * 5000), "must be")
        for asked, reason in refusals.items():
            refused = client.get("/cube/native/tas/zarr.json", params={"overlay": asked})
            assert (refused.status_code, reason in refused.text) == (400, True), refused.text


def test_commands_name_an_overlay(two_overlays: Cube, tmp_path: Path) -> None:
    done = run_command("export", two_overlays.url, str(tmp_path / "refs.json"), "--overlay", "1")
    assert done.returncode == 0, done.stderr
    filesystem = fsspec.filesystem("reference", fo=str(tmp_path / "refs.json"), asynchronous=True)
    shown = zarr.open_group(zarr.storage.FsspecStore(filesystem, read_only=True), mode="r")["tas"]
    assert shown.chunks == (6, 4, 7)
    np.testing.assert_array_equal(shown[...], two_overlays.values)
    with pytest.raises(InvalidRequestError, match="overlay=2 is of no array"):
        two_overlays.open(overlay=2).export(tmp_path / "none.json")
    assert not (tmp_path / "none.json").exists()


def test_an_overlay_of_several_sheets(tmp_path: Path) -> None:
    """Appended steps are in a sheet of their own, whose chunks follow those of the first."""
    cube = Cube(tmp_path)
    cube.open().rechunk("tas", {"time": 4, "lat": 4, "lon": 7})
    more = np.arange(4 * 12 * 14, dtype="f4").reshape(4, 12, 14)
    cube.open().append(cube.write(6, more))
    with pytest.raises(NotRepresentableError, match=r"overlay \w+ holds 85.7 % of its elements"):
        zarr.open_group(gridref.open_store(cube.url, "native", overlay=0), mode="r")
    shown = gridref.open_store(cube.url, overlay=0, view="portable")
    whole = np.concatenate([cube.values, more])
    np.testing.assert_array_equal(xr.open_zarr(shown)["tas"].values, whole)
    assert cube.open().rechunk("tas").overlays()[0].n_sheets == 2
    shown = zarr.open_group(gridref.open_store(cube.url, "native", overlay=0), mode="r")["tas"]
    assert shown.chunks == (4, 4, 7)
    np.testing.assert_array_equal(shown[...], whole)


@pytest.mark.parametrize("door", [engine, zarr_by_store, zarr_by_address])
def test_unknown_choices_are_refused(two_overlays: Cube, door: Callable[..., xr.Dataset]) -> None:
    with pytest.raises(InvalidRequestError, match="overlay"):
        door(two_overlays.url, overlay="sometimes")


def test_files_and_groups_in_memory_have_no_overlays(two_overlays: Cube) -> None:
    with pytest.raises(InvalidRequestError, match="overlay= is for catalogs"):
        xr.open_dataset(two_overlays.files[0], engine="gridref", overlay=0)
    with pytest.raises(InvalidRequestError, match="overlay=0 is for catalogs"):
        gridref.open_store(gridref.scan(two_overlays.files[0]), overlay=0)


# What lists them
def test_pages_list_the_overlays_of_an_array(tmp_path: Path) -> None:
    cube = Cube(tmp_path)
    catalog = cube.open().rechunk("tas", SERIES)
    catalog = catalog.rechunk("tas", {"time": 6}, where={"lat": slice(3, 6)})
    first = catalog.overlays()[0]
    size = f"{human_bytes(first.n_bytes)} in 1 object"
    with running(create_app([cube.url])) as address:
        for path in ("cube", "cube/array/tas"):
            rows = rows_of(httpx.get(f"{address}/{path}", headers=BROWSER).text)
            assert rows[0] == ["tas 0", "all x 5 x 5", "all", "100 %", size]
            assert rows[1][:4] == ["tas 1", "6 x any x any", "lat 3 to 6", "33.3 %"]
        assert rows_of(httpx.get(f"{address}/cube/array/lat", headers=BROWSER).text) == []


def test_an_overlay_of_local_files_on_s3(cube: Cube) -> None:
    """A call that was interrupted goes on, and objects must be the ones that were written."""

    def interrupt(done: int, of: int) -> None:
        raise KeyboardInterrupt

    with s3_bucket() as bucket:
        options = {"storage_options": bucket.options}
        where = {"to": "s3://archive/overlays"}
        with pytest.raises(KeyboardInterrupt):
            cube.open(**options).rechunk("tas", SERIES, progress=interrupt, **where)
        catalog = cube.open(**options).rechunk("tas", SERIES, **where)
        assert "1 of them by an earlier run" in catalog.report.lines[0]
        assert catalog.overlays()[0].to == "s3://archive/overlays"
        opened = cube.open(overlay=0, **options)
        np.testing.assert_array_equal(read_without_warnings(opened), cube.values)
        listed = bucket.client.list_objects_v2(Bucket="archive")["Contents"]
        shard = next(each["Key"] for each in listed if "/c." in each["Key"])
        body = bucket.client.get_object(Bucket="archive", Key=shard)["Body"].read()
        bucket.client.put_object(Bucket="archive", Key=shard, Body=body[::-1])
        with pytest.warns(OverlayNotUsedWarning, match="SourceChangedError"):
            got = cube.open(overlay=0, **options)["tas"].read()
        np.testing.assert_array_equal(got, cube.values)


def test_prune_removes_objects_on_s3_that_no_snapshot_names(cube: Cube) -> None:
    with s3_bucket() as bucket:
        options = {"storage_options": bucket.options}
        url = "s3://archive/cube.gridref"
        gridref.build([*map(str, cube.files)], url, concat_dim="time", **options)
        catalog = gridref.open_catalog(url, **options)
        catalog = catalog.rechunk("tas", SERIES).rechunk("tas", {"time": 6})
        dropped, kept = (info.id for info in catalog.overlays())
        note = f"cube.gridref/overlays/{dropped}/notes.txt"
        bucket.client.put_object(Bucket="archive", Key=note, Body=b"mine")

        def objects(overlay: str) -> list[str]:
            prefix = f"cube.gridref/overlays/{overlay}/"
            found = bucket.client.list_objects_v2(Bucket="archive", Prefix=prefix)
            return [each["Key"] for each in found.get("Contents", [])]

        assert len(objects(dropped)) == len(objects(kept)) + 1 == 3
        catalog = catalog.drop_overlay("tas", 0)
        assert catalog.prune(grace_seconds=3600).sheets == ()
        pruned = catalog.prune(grace_seconds=0)
        assert [sheet.split("/")[1] for sheet in pruned.sheets] == [dropped]
        assert (objects(dropped), len(objects(kept))) == ([note], 2)
        opened = gridref.open_catalog(url, overlay=0, **options)
        np.testing.assert_array_equal(read_without_warnings(opened), cube.values)


@pytest.mark.long
def test_a_catalog_on_s3_with_its_files_and_overlays(
    cube: Cube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridref.serve.choosing.WORTH", 100.0)  # overlays, also of so few files
    with s3_bucket() as bucket:
        options = {"storage_options": bucket.options}
        for path in cube.files:
            bucket.client.upload_file(str(path), "archive", path.name)
        files = [f"s3://archive/{path.name}" for path in cube.files]
        url = "s3://archive/cube.gridref"
        gridref.build(files, url, concat_dim="time", **options)
        catalog = gridref.open_catalog(url, **options).rechunk("tas", SERIES)
        assert catalog.overlays()[0].covered == 1
        np.testing.assert_array_equal(
            read_without_warnings(gridref.open_catalog(url, overlay=0, **options)), cube.values
        )
        # A file that was replaced behind the catalog's back: asked only if that is wanted.
        bucket.client.upload_file(str(cube.files[1]), "archive", cube.files[0].name)
        shown = gridref.open_catalog(url, **options)
        np.testing.assert_array_equal(shown["tas"][:, 3, 4], cube.values[:, 3, 4])
        with pytest.raises(SourceChangedError):
            gridref.open_catalog(url, overlay="check", **options)["tas"][:, 3, 4]


RECHUNK = """
import os, sys
import gridref

left = int(sys.argv[2])

def dying(call):
    def made(*args, **options):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), 9)
        return call(*args, **options)
    return made

for name in ("fsync", "link", "makedirs", "open", "replace", "unlink"):
    setattr(os, name, dying(getattr(os, name)))
each = {"time": -1, "lat": 5, "lon": 5}
gridref.open_catalog(sys.argv[1]).rechunk("tas", each, shards=each)
"""


@pytest.mark.long
@pytest.mark.parametrize("seed", range(int(os.environ.get("N_KILLS", "2"))))
def test_a_killed_writer_is_continued(cube: Cube, seed: int) -> None:
    """At any moment: reads stay right, and the same call ends with the same overlay."""
    moments = random.Random(seed)
    for _ in range(4):
        assert run_code(RECHUNK, cube.url, moments.randint(1, 15)).returncode == -signal.SIGKILL
        np.testing.assert_array_equal(read_without_warnings(cube.open(overlay=0)), cube.values)
    catalog = cube.open().rechunk("tas", SERIES, shards={"time": -1, "lat": 5, "lon": 5})
    (info,) = catalog.overlays()
    assert (info.covered, info.n_sheets, info.n_objects) == (1, 1, 9)
    assert {path.name for path in cube.objects()[0].parent.iterdir()} == {
        "zarr.json", *(path.name for path in cube.objects())
    }  # fmt: skip
    np.testing.assert_array_equal(read_without_warnings(cube.open(overlay=0)), cube.values)
