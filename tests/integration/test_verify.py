"""Verifying: values and labels of files of every kind are compared, and summaries are checked."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import fsspec
import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import gridref
from gridref.api.catalog import write_catalog
from gridref.api.verify import verify
from gridref.api.verify_labels import NOT_READ
from gridref.errors import MissingPackageError
from gridref.faces.cli.app import app
from gridref.faces.exports.kerchunk import to_kerchunk
from gridref.formats.registry import scan
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.blocks import BlockTable
from gridref.model.indexing import flip, isel
from gridref.model.joining import concatenate
from gridref.model.reshaping import transpose
from tests import b2nd_files, n5_files, precomputed_files, wkw_files
from tests.by_name import by_name
from tests.command import run_command
from tests.http_server import Site, serving
from tests.integration.archives import unnoticed, write_tile
from tests.shared_data import shared_hdf5_files

DAYS = "days since 2000-01-01"
KINDS = {"sea": 0, "land": 1, "ice": 2}


def write_file(path: Path, number: int) -> Path:
    """A file of two days, with labels of all kinds."""
    with netCDF4.Dataset(path, "w") as file:
        for name, size in {"time": 2, "lat": 3, "lon": 3, "nv": 2}.items():
            file.createDimension(name, size)

        def put(name: str, dims: tuple[str, ...], values: Any, dtype: Any = "f8", **attrs: Any):
            variable = file.createVariable(name, dtype, dims)
            variable.setncatts(attrs)
            variable[:] = values

        days = 2.0 * number + np.arange(2.0)
        put("time", ("time",), days, units=DAYS, calendar="standard", bounds="time_bnds")
        put("time_bnds", ("time", "nv"), days[:, None] + [0, 1])
        put("lat", ("lat",), [10.0, 20, 30], units="degrees_north")
        put("lon", ("lon",), [1.0, 2, 3], units="degrees_east")
        put("area", ("lat", "lon"), np.arange(9.0).reshape(3, 3))
        put("seen", ("time",), days + 0.25, units="days since 1999-12-31")
        put("elangle", (), 1.5, units="degree")
        values = np.arange(18.0).reshape(2, 3, 3) + 100 * number
        put("t", ("time", "lat", "lon"), values, "f4", coordinates="area seen", units="K")
        enum = file.createEnumType("u1", "kind_t", KINDS)
        put("kind", ("time", "lat"), np.arange(6).reshape(2, 3) % 3, enum)
    return path


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [write_file(tmp_path / f"{number}.nc", number) for number in range(3)]


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog that no test alters."""
    folder = tmp_path_factory.mktemp("right")
    files = [write_file(folder / f"{number}.nc", number) for number in range(3)]
    gridref.build(files, folder / "right.gridref", "time")
    return folder / "right.gridref"


@pytest.fixture
def cube(right: Path) -> VirtualGroup:
    return gridref.open_catalog(right)


def relabelled(name: str, change: Callable[[np.ndarray], Any]) -> Callable[[Any], Any]:
    """Other values of a coordinate, kept inline."""

    def altered(group: VirtualGroup) -> VirtualGroup:
        array = group.arrays[name]
        values = np.asarray(change(group[name][...]), array.dtype)
        made = VirtualArray.from_numpy(values, array.dims, array.attrs)
        return group.with_changes(arrays={**group.arrays, name: made})

    return altered


def described(name: str, **attrs: Any) -> Callable[[Any], Any]:
    """Other attributes of an array."""

    def altered(group: VirtualGroup) -> VirtualGroup:
        array = group.arrays[name]
        made = array.with_changes(attrs={**array.attrs, **attrs})
        return group.with_changes(arrays={**group.arrays, name: made})

    return altered


def moved(name: str, change: Callable[[VirtualArray], VirtualArray]) -> Callable[[Any], Any]:
    """Other places of the same stored chunks."""

    def altered(group: VirtualGroup) -> VirtualGroup:
        made = change(group.arrays[name]).with_changes(attrs=group.arrays[name].attrs)
        return group.with_changes(arrays={**group.arrays, name: made})

    return altered


def in_order(*starts: int) -> Callable[[VirtualArray], VirtualArray]:
    """The days of the files in another order."""

    def change(array: VirtualArray) -> VirtualArray:
        axis = array.dims.index("time")
        parts = [isel(array, {axis: slice(start, start + 2)}) for start in starts]
        return concatenate(parts, axis)

    return change


MISLABELLED = {
    "two files' labels swapped": ("time", relabelled("time", lambda v: v[[2, 3, 0, 1, 4, 5]])),
    "shifted": ("time", relabelled("time", lambda v: v + 1)),
    "shifted by a second": ("time", relabelled("time", lambda v: v + 1 / 86_400)),
    "reversed": ("time", relabelled("time", lambda v: v[::-1])),
    "one file's for all": ("time", relabelled("time", lambda v: v[[0, 1, 0, 1, 0, 1]])),
    "stored labels of other files": ("time", moved("time", in_order(2, 0, 4))),
    "a variable of other files": ("time", moved("t", in_order(0, 4, 2))),
    "another day to count from": ("time", described("time", units="days since 2000-01-02")),
    "hours, not days": ("time", described("time", units="hours since 2000-01-01")),
    "another calendar": ("time", described("time", calendar="360_day")),
    "latitudes shifted": ("lat", relabelled("lat", lambda v: v + 5)),
    "latitudes reversed": ("lat", relabelled("lat", lambda v: v[::-1])),
    "rows reversed under them": ("lat", moved("t", lambda array: flip(array, 1))),
    "one file upside down": (
        "lat",
        moved(
            "t",
            lambda array: concatenate(
                [flip(isel(array, {0: slice(0, 2)}), 1), isel(array, {0: slice(2, 6)})], 0
            ),
        ),
    ),
    "other units": ("lat", described("lat", units="radian")),
    "a scale where none is": ("lat", described("lat", scale_factor=2.0)),
    "dimensions swapped": (
        "lat",
        moved("t", lambda array: transpose(array, (0, 2, 1)).with_changes(dims=array.dims)),
    ),
    "bounds of other days": ("time_bnds", relabelled("time_bnds", lambda v: v[::-1])),
    "a second coordinate": ("seen", relabelled("seen", lambda v: v + 1)),
    "a time that is missing": (
        "seen",
        relabelled("seen", lambda v: np.where(v == 2.25, np.nan, v)),
    ),
    "that of two dimensions": ("area", relabelled("area", lambda v: v.T)),
    "another elevation": ("elangle", relabelled("elangle", lambda v: v + 1)),
    "other names of numbers": ("kind", described("kind", flag_meanings="land sea ice")),
    "units of the values": ("t", described("t", units="degC")),
    "a scale of the values": ("t", described("t", scale_factor=0.5)),
}


def test_right_labels_pass(right: Path) -> None:
    result = gridref.verify(right, all=True)
    assert [str(difference) for difference in result.differences] == []
    assert result.n_labels > 3 * (2 + 3 + 3)
    assert result.not_compared == ()
    assert gridref.verify(right).n_labels > 0
    shown = CliRunner().invoke(app, ["verify", str(right), "--all"])
    assert shown.exit_code == 0, shown.output
    assert f"{result.n_labels} labels compared: none differs" in shown.output
    assert "stored chunks to compare: 0.0 MB, read twice" in shown.output


@pytest.mark.long(but=8)
@pytest.mark.parametrize("what", list(MISLABELLED))
def test_wrong_labels_fail(cube: VirtualGroup, tmp_path: Path, what: str) -> None:
    name, alter = MISLABELLED[what]
    write_catalog(alter(cube), tmp_path / "wrong.gridref")
    result = gridref.verify(tmp_path / "wrong.gridref", all=True)
    assert not result.ok
    assert name in {difference.place.variable for difference in result.differences}
    assert not gridref.verify(tmp_path / "wrong.gridref").ok


def test_wrong_labels_end_the_command_with_status_1(cube: VirtualGroup, tmp_path: Path) -> None:
    alter = MISLABELLED["latitudes shifted"][1]
    write_catalog(alter(cube), tmp_path / "wrong.gridref")
    shown = CliRunner().invoke(
        app, ["verify", str(tmp_path / "wrong.gridref"), "--all"], env={"COLUMNS": "300"}
    )
    assert shown.exit_code == 1
    assert "3 of 3 labels differ: 15.0 instead of 10.0" in shown.output
    assert "labels compared: 3 coordinates differ" in shown.output


@pytest.fixture(scope="module")
def mosaic(tmp_path_factory: pytest.TempPathFactory) -> VirtualGroup:
    folder = tmp_path_factory.mktemp("mosaic")
    tiles = [
        write_tile(folder / f"{row}{column}.tif", 32 * row, 32 * column, (32, 32), overviews=True)
        for row in range(2)
        for column in range(2)
    ]
    return gridref.build(tiles, folder / "right.gridref", layout=gridref.Mosaic())


def test_pixels_are_where_their_georeference_says(mosaic: VirtualGroup) -> None:
    result = gridref.verify(mosaic, all=True)
    assert [str(difference) for difference in result.differences] == []
    n_pixels = 4 * (32 + 32)
    assert result.n_labels >= n_pixels
    assert {path.rpartition("/")[2] for path, _ in result.not_compared} == {"band", "spatial_ref"}


@pytest.mark.parametrize(
    ("name", "alter"),
    [
        ("x", relabelled("x", lambda v: v + 15)),
        ("y", relabelled("y", lambda v: v[::-1])),
        ("x", relabelled("x", lambda v: np.roll(v, 32))),
        ("y", moved("band_data", lambda array: flip(array, 1))),
        (
            "x",
            moved(
                "band_data",
                lambda array: concatenate(
                    [isel(array, {2: slice(32, 64)}), isel(array, {2: slice(0, 32)})], 2
                ),
            ),
        ),
    ],
)
def test_pixels_elsewhere_fail(
    mosaic: VirtualGroup, tmp_path: Path, name: str, alter: Callable[[Any], Any]
) -> None:
    write_catalog(alter(mosaic), tmp_path / "wrong.gridref")
    result = gridref.verify(tmp_path / "wrong.gridref", all=True)
    assert name in {difference.place.variable for difference in result.differences}


def write_step(path: Path, run: int, step: int, units: str = "hours") -> Path:
    """A file of one step of a forecast, all of whose coordinates are scalars."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 2)
        hours = {"hours": 1, "days": 24}[units]
        for name, value, unit in (
            ("time", run, "hours since 2000-01-01"),
            ("step", step / hours, units),
            ("valid_time", run + step, "hours since 2000-01-01"),
        ):
            variable = file.createVariable(name, "f8", ())
            variable.units = unit
            variable[:] = value
        file.createVariable("t", "f4", ("x",))[:] = run + step
        file["t"].coordinates = "time step valid_time"
    return path


@pytest.mark.parametrize("name", ["time", "step", "valid_time"])
def test_scalars_of_files_are_labels(tmp_path: Path, name: str) -> None:
    files = [
        write_step(tmp_path / f"{run}_{step}.nc", run, step) for run in (0, 6) for step in (0, 1)
    ]
    groups = [gridref.scan(path) for path in files]
    rows = [gridref.concat(groups[start : start + 2], "step") for start in (0, 2)]
    cube = gridref.concat(rows, "time", variables="different")
    assert gridref.verify(cube, all=True).ok
    altered = relabelled(name, lambda v: v + 1)(cube)
    found = gridref.verify(altered, all=True)
    assert name in {difference.place.variable for difference in found.differences}
    altered = described(name, units="days since 1900-01-01" if name != "step" else "days")(cube)
    assert not gridref.verify(altered, all=True).ok


@pytest.mark.parametrize("form", ["NETCDF4", "NETCDF3_64BIT_OFFSET"])
def test_times_of_appended_files_count_from_other_dates(tmp_path: Path, form: Any) -> None:
    """They are written anew in the cube's unit, and kept inline beside a single file."""
    files = []
    for day, (unit, count) in enumerate((("days", 1), ("hours", 24), ("days", 1))):
        files.append(tmp_path / f"{day}.nc")
        with netCDF4.Dataset(files[-1], "w", format=form) as file:
            file.createDimension("time", None)
            time = file.createVariable("time", "f8", ("time",))
            time.units = f"{unit} since 2024-01-01"
            time[:] = [day * count]
            file.createVariable("v", "f4", ("time",))[:] = [day]
    gridref.build(files[:2], tmp_path / "a.gridref")
    gridref.open_catalog(tmp_path / "a.gridref").append(files[2:])
    cube = gridref.open_catalog(tmp_path / "a.gridref")
    assert cube["time"].attrs["units"] == "seconds since 2024-01-01"
    assert gridref.verify(cube, all=True).ok
    for wrong in (relabelled("time", lambda v: v + 1), described("time", units="days since 2024")):
        found = gridref.verify(wrong(cube), all=True)
        assert {difference.place.variable for difference in found.differences} == {"time"}


@pytest.mark.parametrize(
    ("year", "calendar", "message"),
    [
        (3000, "proleptic_gregorian", ""),
        (1000, "proleptic_gregorian", "1000-01-01 00:00:00 instead of 1000-01-06 00:00:00"),
        (1000, "julian", "calendar 'julian' instead of 'standard'"),
    ],
)
@pytest.mark.filterwarnings("ignore:Unable to decode time axis")
def test_calendars_differ_before_1582(
    tmp_path: Path, year: int, calendar: str, message: str
) -> None:
    times = xr.Variable("x", [0.0, 1.5], {"units": f"days since {year}-01-01"})
    data = xr.Dataset({"v": ("x", [1.0, 2], {"coordinates": "seen"}), "seen": times})
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    altered = described("seen", calendar=calendar)(gridref.scan(tmp_path / "a.nc"))
    found = gridref.verify(altered, all=True).differences
    assert [message in str(difference) for difference in found] == [True] * bool(message)


def test_one_elevation_for_all_fails(files: list[Path], tmp_path: Path) -> None:
    """Ten sweeps of several elevations are not those of the first one."""
    with netCDF4.Dataset(files[1], "a") as file:
        file["elangle"][:] = 3.0
    scanned = [gridref.scan(path) for path in files]
    of_first = scanned[0].arrays["elangle"]
    alike = [group.with_changes(arrays={**group.arrays, "elangle": of_first}) for group in scanned]
    result = gridref.verify(gridref.concat(alike, "time"), all=True)
    (difference,) = result.differences
    assert difference.place.variable == "elangle"
    assert str(files[1]) in str(difference)
    right = gridref.concat(scanned, "time", variables="different")
    result = gridref.verify(right, all=True)
    assert (result.ok, result.not_compared) == (True, ())
    swapped = relabelled("elangle", lambda v: np.roll(v, 2))(right)
    found = gridref.verify(swapped, all=True)
    assert {difference.place.variable for difference in found.differences} == {"elangle"}


def test_what_an_option_took_is_listed(files: list[Path], tmp_path: Path) -> None:
    with netCDF4.Dataset(files[1], "a") as file:
        file["lat"][:] = [11.0, 21, 31]
        file["area"][:] = 7.0
    options: dict[str, Any] = {"join": "override", "compat": "override"}
    gridref.build(files, tmp_path / "cube.gridref", "time", **by_name(**options))
    result = gridref.verify(tmp_path / "cube.gridref", all=True)
    assert result.ok
    reasons = dict(result.not_compared)
    assert "join='override'" in reasons["lat"]
    assert "compat='override'" in reasons["area"]


def test_labels_in_groups_are_compared(files: list[Path], tmp_path: Path) -> None:
    for number, path in enumerate(files):
        with netCDF4.Dataset(path, "a") as file:
            file.kind = "first" if number < 2 else "other"
    cube = gridref.build(files, tmp_path / "right.gridref", "time", layout=gridref.Groups("kind"))
    right = gridref.verify(tmp_path / "right.gridref", all=True)
    assert (right.ok, right.n_labels) == (True, 72)
    wrong = relabelled("time", lambda v: v + 1)(cube.groups["first"])
    altered = cube.with_changes(groups={**cube.groups, "first": wrong})
    found = {d.place.variable for d in gridref.verify(altered, all=True).differences}
    assert found == {"first/time"}


def test_exports_are_compared_too(cube: VirtualGroup, right: Path, tmp_path: Path) -> None:
    to_kerchunk(cube, tmp_path / "right.json")
    assert gridref.verify(tmp_path / "right.json", all=True, allow=right.parent).ok
    wrong = MISLABELLED["latitudes shifted"][1](cube)
    to_kerchunk(wrong, tmp_path / "wrong.json")
    assert not gridref.verify(tmp_path / "wrong.json", all=True, allow=right.parent).ok


def write_n5(folder: Path) -> Path:
    path = n5_files.write_attributes(folder / "a.n5", n5="2.0.0")
    n5_files.write_dataset(path / "em" / "raw", n5_files.numbers("uint16"))
    return path


def write_wkw(folder: Path) -> Path:
    voxels = wkw_files.voxels("u2", (3, 32, 16, 16))
    return wkw_files.write_mag(folder / "1", ((16, 0, 32), voxels), kind="LZ4")


def write_b2nd(folder: Path) -> Path:
    return b2nd_files.write_array(folder / "a.b2nd", b2nd_files.numbers(">i2"))


def write_sparse(folder: Path) -> Path:
    return b2nd_files.write_array(folder / "a.b2nd", b2nd_files.numbers(), sparse=True)


def write_precomputed(folder: Path, **options: Any) -> Path:
    values = precomputed_files.voxels("u2", (2, 13, 18, 21))
    coarse = np.ascontiguousarray(values[:, :, ::2, ::2])
    return precomputed_files.write_volume(
        folder / "a.precomputed", values, coarse, offset=(5, 0, 40), **options
    )


def write_shards(folder: Path) -> Path:
    return write_precomputed(folder, sharding=precomputed_files.sharding())


WRITERS: dict[str, tuple[Callable[[Path], Path], int, str]] = {
    "N5": (write_n5, 9, "tensorstore"),
    "WKW": (write_wkw, 128, "wkw"),
    "b2nd": (write_b2nd, 6, "blosc2"),
    "sparse b2nd": (write_sparse, 6, "blosc2"),
    "precomputed": (write_precomputed, 26, "tensorstore"),
    "precomputed in shards": (write_shards, 26, "tensorstore"),
}
"""What writes a volume, how many chunks it has, and what reads it."""


@pytest.mark.parametrize("kind", WRITERS)
def test_every_chunk_is_as_its_library_reads_it(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, n_chunks, package = WRITERS[kind]
    group = gridref.scan(write(tmp_path))
    result = gridref.verify(group, all=True)
    assert (result.ok, result.n_chunks, result.not_compared) == (True, n_chunks, ())
    array = next(a for a in group.all_arrays().values() if a.ndim > 1)
    backwards = np.arange(array.manifests[0].n_rows)[::-1]
    wrong = array.with_changes(manifests=(array.manifests[0].take(backwards),))
    assert gridref.verify(VirtualGroup({"v": array}), all=True).ok
    assert not gridref.verify(VirtualGroup({"v": wrong}), all=True).ok
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=f"comparing with .*{package}"):
        gridref.verify(group)


@pytest.mark.parametrize("kind", WRITERS)
def test_volumes_on_servers_are_compared(tmp_path: Path, kind: str) -> None:
    write, n_chunks, _ = WRITERS[kind]
    path = write(tmp_path)
    url = f"memory://verify/{kind.replace(' ', '-')}/{path.name}"
    fsspec.filesystem("memory").put(str(path), url, recursive=True)
    address = {"WKW": "/header.wkw", "sparse b2nd": "/chunks.b2frame"}.get(kind, "")
    result = gridref.verify(gridref.scan(url + address), all=True)
    assert (result.ok, result.n_chunks, result.not_compared) == (True, n_chunks, ())


@pytest.mark.parametrize("kind", WRITERS)
def test_volumes_along_a_new_dimension_are_compared(tmp_path: Path, kind: str) -> None:
    write, n_chunks, _ = WRITERS[kind]
    folders = [tmp_path / f"t{number}" for number in range(2)]
    paths = []
    for folder in folders:
        folder.mkdir()
        paths.append(write(folder))
    labels = gridref.Labels(f"t{{time:d}}/{paths[0].name}")
    gridref.build(paths, tmp_path / "a.gridref", layout=gridref.Stack("time", labels))
    result = gridref.verify(tmp_path / "a.gridref", all=True)
    assert (result.ok, result.n_chunks) == (True, 2 * n_chunks)
    assert {path for path, _ in result.not_compared} == {"time"}


@pytest.mark.parametrize("write", [write_precomputed, write_shards])
def test_places_of_voxels_are_labels(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    scale = gridref.scan(write(tmp_path)).groups["1"]
    assert gridref.verify(scale, all=True).n_labels > 0
    y = scale.arrays["y"]
    moved = VirtualArray.from_numpy(y[...] + 4, y.dims, y.attrs)
    result = gridref.verify(scale.with_changes(arrays={**scale.arrays, "y": moved}), all=True)
    assert {(each.is_label, each.place.variable) for each in result.differences} == {(True, "y")}


def test_chunks_that_no_file_holds_are_listed(tmp_path: Path) -> None:
    values = np.zeros((12,), "u1")
    values[:6] = 7
    path = n5_files.write_dataset(tmp_path / "v", values, (3,))
    group = gridref.scan(path)
    array = group.arrays["v"]
    gap = array.with_changes(blocks=BlockTable.missing(array.n_blocks, array.ndim))
    for held, n_chunks in ((array, 2), (gap, 0), (concatenate([gap, array], 0), 2)):
        result = gridref.verify(group.with_changes(arrays={"v": held}), all=True)
        assert (result.ok, result.n_chunks) == (True, n_chunks)
        ((name, reason),) = result.not_compared
        assert (name, reason.startswith("no file holds some of its chunks")) == ("v", True)


def test_a_sample_of_a_sparse_array_has_chunks_that_are_there(tmp_path: Path) -> None:
    values = np.zeros((2_000,), "u1")
    values[[100, 1_234]] = 7  # in two files
    path = n5_files.write_dataset(tmp_path / "v", values, (2,))
    result = gridref.verify(gridref.scan(path))
    assert (result.ok, result.n_chunks) == (True, 2)


def test_files_that_are_named_like_chunks_are_none(tmp_path: Path) -> None:
    """A file of HDF5 in a folder of another format's names is compared with h5py."""
    with h5py.File(tmp_path / "0", "w") as file:
        file["v"] = np.arange(5)
    (tmp_path / "attributes.json").write_text("{}")
    result = gridref.verify(gridref.scan(tmp_path / "0"), all=True)
    assert (result.ok, result.n_chunks) == (True, 1)


@pytest.fixture
def small_cube(tmp_path: Path) -> Path:
    for number in range(3):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file.create_dataset("v", data=np.arange(40) + 100 * number, chunks=(10,))
    gridref.build(tmp_path / "[01].h5", tmp_path / "cube.gridref", "phony_dim_0")
    return tmp_path / "cube.gridref"


def verified(cube: Path, *options: object) -> CompletedProcess[str]:
    return run_command("verify", cube, "--quiet", *options)


def told(done: CompletedProcess[str]) -> str:
    return " ".join(done.stdout.split())


def written(cube: Path, *options: object) -> Path:
    done = verified(cube, "--summary", cube.parent / "s.json", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.replace("\n", "").endswith("s.json")
    return cube.parent / "s.json"


def test_a_summary_says_what_was_compared(small_cube: Path) -> None:
    document = json.loads(written(small_cube, "--all").read_text())
    info = gridref.open_catalog(small_cube).info
    result = gridref.verify(small_cube, all=True)
    assert document["catalog"] == {
        "digest": info.digest, "snapshot": info.snapshot,
        "n_sources": 2, "n_blocks": info.n_blocks, "n_chunks": 8,
    }  # fmt: skip
    compared = document["compared"]
    assert (compared["all"], compared["n_chunks"], compared["n_values"]) == (True, 8, 80)
    assert compared["n_arrays"] == result.n_arrays
    assert compared["not_compared"] == [list(each) for each in result.not_compared]
    assert document["versions"]["h5py"] == version("h5py")
    assert document["versions"]["gridref"] == version("gridref")
    own = document.pop("digest")
    plain = json.dumps(document, sort_keys=True, separators=(",", ":"))
    assert own == f"sha256:{hashlib.sha256(plain.encode()).hexdigest()}"


def test_a_mirror_is_checked(small_cube: Path, tmp_path: Path) -> None:
    summary = written(small_cube, "--all")
    mirror = tmp_path / "mirror.gridref"
    shutil.copytree(small_cube, mirror)
    for options in ((), ("--all",)):
        done = verified(mirror, "--against", summary, *options)
        assert done.returncode == 0, done.stderr
        assert gridref.open_catalog(small_cube).info.digest in done.stdout.replace("\n", "")
    with serving(Site({"/s.json": summary.read_bytes()}, {"/s.json": '"1"'})) as site:
        done = verified(mirror, "--against", f"{site.url}/s.json")
        assert done.returncode == 0, done.stderr


def test_another_catalog_is_refused(small_cube: Path, tmp_path: Path) -> None:
    summary = written(small_cube)
    gridref.open_catalog(small_cube).append(tmp_path / "2.h5")
    done = verified(small_cube, "--against", summary)
    assert done.returncode == 1
    assert "differs digest: sha256:" in told(done)
    assert "differs files: 3 here, 2 in the summary" in told(done)
    assert "differs stored chunks: 12 here, 8 in the summary" in told(done)


def test_values_are_compared_again(small_cube: Path, tmp_path: Path) -> None:
    summary = written(small_cube)
    path = tmp_path / "1.h5"
    status = path.stat()
    with h5py.File(path) as file:
        offset = file["v"].id.get_chunk_info(0).byte_offset
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)
    assert path.stat().st_size == status.st_size
    done = verified(small_cube, "--against", summary)
    assert done.returncode == 1
    assert "cannot read 1 file: the file changed since it was scanned" in told(done)


def test_counts_of_the_same_catalog(small_cube: Path) -> None:
    summary = written(small_cube, "--all")
    document = json.loads(summary.read_text())
    document["compared"]["n_values"] += 1
    rest = {name: value for name, value in document.items() if name != "digest"}
    plain = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    rest["digest"] = f"sha256:{hashlib.sha256(plain.encode()).hexdigest()}"
    summary.write_text(json.dumps(rest))
    done = verified(small_cube, "--against", summary, "--all")
    assert done.returncode == 1
    assert "values compared: 80 here, 81 in the summary" in told(done)


def test_what_is_no_summary_is_refused(small_cube: Path, tmp_path: Path) -> None:
    summary = written(small_cube)
    changed = summary.read_text().replace('"n_chunks": 8', '"n_chunks": 9', 1)
    cases = {"changed.json": (changed, "was changed after it was written")}
    cases |= {
        f"{number}.json": (text, "write one with gridref verify CATALOG --summary FILE")
        for number, text in enumerate(("[]", "[" * 100_000))
    }
    for name, (text, words) in cases.items():
        (tmp_path / name).write_text(text)
        done = verified(small_cube, "--against", tmp_path / name)
        assert done.returncode == 1
        assert words in " ".join(done.stderr.split()), name
    done = verified(small_cube, "--summary", tmp_path / "x.json", "--checksums")
    assert done.returncode == 1
    assert "record them first" in " ".join(done.stderr.split())
    assert verified(small_cube, "--checksums").returncode == 0
    written(small_cube)  # as that message says


def damage(path: Path, name: str) -> None:
    """Write zeros over all chunks of a dataset. The time of change stays."""
    with h5py.File(path) as file:
        own = file[name].id
        chunks = [own.get_chunk_info(number) for number in range(own.get_num_chunks())]
    with unnoticed(path) as raw:
        for chunk in chunks:
            raw.seek(chunk.byte_offset)
            raw.write(bytes(chunk.size))


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A cube of eight files, and five of them broken. The first file holds ``lat`` and ``lon``."""
    files = [write_file(tmp_path / f"{number}.nc", number) for number in range(8)]
    for path in files:
        with netCDF4.Dataset(path, "a") as file:
            file.createVariable("more", "i4", ("time",), zlib=True)[:] = [1, 2]
    gridref.build(files, tmp_path / "cube.gridref", "time")
    files[0].unlink()
    with files[1].open("r+b") as stream:
        stream.truncate(3000)
    os.utime(files[2])
    files[3].unlink()
    files[3].mkdir()
    damage(files[6], "more")
    return tmp_path / "cube.gridref"


def test_every_broken_file_is_reported_once(broken: Path) -> None:
    result = gridref.open_catalog(broken).verify(all=True)
    assert not result.ok
    failed = {Path(str(d.place.source)).name: d.message for d in result.differences if d.is_file}
    (damaged,) = (each for each in result.differences if not each.is_file)
    assert len(failed) == 4
    assert "does not exist" in failed["0.nc"]
    assert "now 3000" in failed["1.nc"]
    assert "last modified" in failed["2.nc"]
    assert "directory" in failed["3.nc"]
    assert damaged.message.startswith("codec numcodecs.zlib: ")
    assert (damaged.place.variable, damaged.place.chunk) == ("more", (0,))
    assert str(damaged.place.source).endswith("/6.nc")
    assert not damaged.is_label
    unread = {path for path, reason in result.not_compared if reason == NOT_READ}
    assert unread == {"lat", "lon", "area", "elangle"}  # which the first file holds for all
    # Each of the other four: t, kind, time, time_bnds, seen; and labels time, time_bnds, seen.
    assert result.n_values == 4 * (18 + 6 + 2 + 4 + 2) + 3 * 2  # and of three more
    assert result.n_labels == 4 * (2 + 4 + 2)


def test_the_command_groups_broken_files_by_reason(broken: Path) -> None:
    done = verified(broken, "--all")
    assert done.returncode == 1
    assert not done.stderr
    assert "cannot read 1 file: the file does not exist" in told(done)
    assert "/0.nc" in told(done)
    assert "4 files cannot be read" in told(done)
    assert "differs codec numcodecs.zlib: " in told(done)
    assert "1 chunk differs" in told(done)
    done = verified(broken, "--all", "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert not found["ok"]
    whole = [Path(each["file"]).name for each in found["differences"] if not each["variable"]]
    assert sorted(whole) == ["0.nc", "1.nc", "2.nc", "3.nc"]


def test_files_that_a_server_refuses_share_a_reason(tmp_path: Path) -> None:
    for number in range(25):
        write_file(tmp_path / f"{number}.nc", number)
    site = Site({f"/{n}.nc": (tmp_path / f"{n}.nc").read_bytes() for n in range(25)})
    with serving(site):
        gridref.build([f"{site.url}{name}" for name in site.files], tmp_path / "c.gridref", "time")
        site.forbidden = set(site.files)
        done = verified(tmp_path / "c.gridref", "--all")
    assert done.returncode == 1
    assert told(done).count("no permission to read the file") == 1
    assert "cannot read 25 files: no permission" in told(done)
    assert "5 more: --json lists all" in told(done)


def test_differences_that_are_not_printed_are_counted(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("v", data=np.arange(240), chunks=(10,), compression="gzip")
    gridref.build(tmp_path / "a.h5", tmp_path / "cube.gridref")
    damage(tmp_path / "a.h5", "v")
    done = verified(tmp_path / "cube.gridref", "--all")
    assert done.returncode == 1
    assert told(done).count("differs codec") == 20
    assert "4 more: --json lists all" in told(done)
    assert "24 chunks differ" in told(done)


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
FAMILIES = {file.values[0].parent: file for file in reversed(shared_hdf5_files("families/*/*"))}
FILES = [*shared_hdf5_files("hdf5/**/*", "netcdf4/**/*"), *FAMILIES.values()]


@pytest.mark.long(but=12)
@pytest.mark.parametrize("path", FILES)
def test_every_chunk_is_as_h5py_reads_it(path: Path) -> None:
    found = verify(scan(path, on_unsupported="skip"), all=path.name not in SLOW)
    assert [str(difference) for difference in found.differences] == []
    unknown = [pair for pair in found.not_compared if not pair[1].startswith(REASONS)]
    assert unknown == []
