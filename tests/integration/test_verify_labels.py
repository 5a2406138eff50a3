"""Cubes whose labels are not those of their files fail to verify, and right ones pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
from typer.testing import CliRunner

import gridref
from gridref.api.catalog import write_catalog
from gridref.faces.cli.app import app
from gridref.faces.exports.kerchunk import to_kerchunk
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.indexing import flip, isel
from gridref.model.joining import concatenate
from gridref.model.reshaping import transpose
from tests.by_name import by_name
from tests.raster_tiles import write_tile

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


@pytest.fixture
def cube(files: list[Path], tmp_path: Path) -> VirtualGroup:
    return gridref.build(files, tmp_path / "right.gridref", "time")


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
    "that of two dimensions": ("area", relabelled("area", lambda v: v.T)),
    "another elevation": ("elangle", relabelled("elangle", lambda v: v + 1)),
    "other names of numbers": ("kind", described("kind", flag_meanings="land sea ice")),
    "units of the values": ("t", described("t", units="degC")),
    "a scale of the values": ("t", described("t", scale_factor=0.5)),
}


def test_right_labels_pass(cube: VirtualGroup, tmp_path: Path) -> None:
    result = gridref.verify(tmp_path / "right.gridref", all=True)
    assert [str(difference) for difference in result.differences] == []
    assert result.n_labels > 3 * (2 + 3 + 3)
    assert result.not_compared == ()
    assert gridref.verify(tmp_path / "right.gridref").n_labels > 0
    shown = CliRunner().invoke(app, ["verify", str(tmp_path / "right.gridref"), "--all"])
    assert shown.exit_code == 0, shown.output
    assert f"{result.n_labels} labels compared: none differs" in shown.output


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
    assert "labels compared: 3 coordinates of files differ" in shown.output


@pytest.fixture
def mosaic(tmp_path: Path) -> VirtualGroup:
    tiles = [
        write_tile(tmp_path / f"{row}{column}.tif", 32 * row, 32 * column, (32, 32), overviews=True)
        for row in range(2)
        for column in range(2)
    ]
    return gridref.build(tiles, tmp_path / "right.gridref", layout=gridref.Mosaic())


def test_pixels_are_where_their_georeference_says(mosaic: VirtualGroup, tmp_path: Path) -> None:
    result = gridref.verify(tmp_path / "right.gridref", all=True)
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


def test_exports_are_compared_too(cube: VirtualGroup, tmp_path: Path) -> None:
    to_kerchunk(cube, tmp_path / "right.json")
    assert gridref.verify(tmp_path / "right.json", all=True).ok
    wrong = MISLABELLED["latitudes shifted"][1](cube)
    to_kerchunk(wrong, tmp_path / "wrong.json")
    assert not gridref.verify(tmp_path / "wrong.json", all=True).ok
