"""What tells files apart beside their dimensions: never the first file's value for all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import gridref

ANGLES = (0.5, 1.5, 2.5, 4.0, 6.0)


def sweep(path: Path, angle: float) -> Path:
    """A sweep of a weather radar in a file of its own, as ODIM_H5 has it (OPERA, version 2.2)."""
    with h5py.File(path, "w") as file:
        file.create_group("dataset1/where").attrs["elangle"] = angle
        what = file.create_group("dataset1/data1/what")
        what.attrs["gain"], what.attrs["offset"] = 0.5 if angle < 4 else 0.25, -32.0
        what.attrs["quantity"] = np.bytes_("DBZH")
        numbers = (np.arange(12).reshape(3, 4) + 10 * angle).astype("u1")
        file.create_dataset("dataset1/data1/data", data=numbers, chunks=(3, 4))
    return path


def volumes(folder: Path, name: str) -> list[Path]:
    """Two volumes of five elevations; `name` takes the minute and the number of the sweep."""
    return [
        sweep(folder / name.format(5 * volume + number, volume, number), angle)
        for volume in range(2)
        for number, angle in enumerate(ANGLES)
    ]


def assert_told(catalog: Path, files: list[Path], dims: tuple[str, ...]) -> None:
    """Each file's numbers lie where its own elevation and gain do, as h5py reads them."""
    group = gridref.open_catalog(catalog)
    arrays = group.all_arrays()
    data, angles, gains = (
        arrays[f"dataset1/{path}"] for path in ("data1/data", "where/elangle", "data1/what/gain")
    )
    assert (angles.dims, gains.dims, data.dims[: len(dims)]) == (dims, dims, dims)
    assert "elangle" not in group.groups["dataset1"].groups["where"].attrs
    found = sorted(
        (angle, gain, cell.tolist())
        for angle, gain, cell in zip(
            angles[...].ravel(), gains[...].ravel(), data[...].reshape(-1, 3, 4), strict=True
        )
    )
    expected = []
    for path in files:
        with h5py.File(path) as file:
            angle = file["dataset1/where"].attrs["elangle"]
            gain = file["dataset1/data1/what"].attrs["gain"]
            expected.append((angle, gain, file["dataset1/data1/data"][...].tolist()))
    assert found == sorted(expected)
    with xr.open_dataset(catalog, group="dataset1/where", engine="gridref") as ds:
        assert "elangle" in ds.coords


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("rad_20240601T00{0:02d}00.h5", ("time",)),
        ("rad_20240601T00{0:02d}00_el{2}.h5", ("time",)),
        ("rad_20240601T000{1}00_el{2}.h5", ("time", "el")),
    ],
)
def test_sweeps_of_several_elevations(tmp_path: Path, name: str, dims: tuple[str, ...]) -> None:
    files = volumes(tmp_path, name)
    gridref.build(files, tmp_path / "cube.gridref")
    assert_told(tmp_path / "cube.gridref", files, dims)
    group = gridref.open_catalog(tmp_path / "cube.gridref")
    if "_el" in name:
        assert group.arrays["el"].dims == dims[-1:]
        assert set(group.arrays["el"][...].tolist()) == set(range(5))


@pytest.mark.parametrize("n_first", [1, 2, 5])
@pytest.mark.parametrize(
    ("name", "options", "dims"),
    [
        (
            "rad_20240601T00{0:02d}00.h5",
            {"stack": "time", "pattern": "rad_{time:%Y%m%dT%H%M%S}.h5"},
            ("time",),
        ),
        (
            "rad_20240601T000{1}00_el{2}.h5",
            {"pattern": "rad_{time:%Y%m%dT%H%M%S}_el{el:d}.h5"},
            ("time", "el"),
        ),
    ],
)
def test_attributes_that_differ_in_files_that_come_later(
    tmp_path: Path, name: str, options: dict[str, Any], dims: tuple[str, ...], n_first: int
) -> None:
    files = volumes(tmp_path, name)
    gridref.build(files[:n_first], tmp_path / "cube.gridref", **options)
    gridref.open_catalog(tmp_path / "cube.gridref").append(files[n_first:])
    assert_told(tmp_path / "cube.gridref", files, dims)


def test_attributes_that_differ_between_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridref.combine.concatenation.BATCH_GROUPS", 3)
    files = volumes(tmp_path, "rad_20240601T00{0:02d}00.h5")
    files = [sweep(tmp_path / f"rad_2024060{day}T000000.h5", 0.5) for day in (2, 3, 4)] + files
    pattern = "rad_{time:%Y%m%dT%H%M%S}.h5"
    gridref.build(files, tmp_path / "cube.gridref", stack="time", pattern=pattern)
    assert_told(tmp_path / "cube.gridref", files, ("time",))


def test_attributes_of_variables(tmp_path: Path) -> None:
    for day, gain in enumerate((0.5, 0.25, 0.5)):
        ds = xr.Dataset({"counts": (("time", "x"), [[1, 2], [3, 4]], {"gain": gain})})
        ds = ds.assign_coords(time=("time", [2 * day, 2 * day + 1]), x=[0, 1])
        ds.to_netcdf(tmp_path / f"{day}.nc")
    gridref.build(tmp_path / "*.nc", tmp_path / "cube.gridref", "time")
    with xr.open_dataset(tmp_path / "cube.gridref") as ds:
        assert "gain" not in ds["counts"].attrs
        assert ds["counts_gain"].dims == ("time",)
        assert ds.coords["counts_gain"].values.tolist() == [0.5, 0.5, 0.25, 0.25, 0.5, 0.5]


def test_an_attribute_that_some_files_lack(tmp_path: Path) -> None:
    for day, attrs in enumerate(({"member": 3}, {}, {"member": 4})):
        ds = xr.Dataset({"t": ("time", [day])}, {"time": [day]}, attrs)
        ds.to_netcdf(tmp_path / f"{day}.nc")
    gridref.build(tmp_path / "*.nc", tmp_path / "cube.gridref", "time")
    with xr.open_dataset(tmp_path / "cube.gridref", decode_times=False) as ds:
        np.testing.assert_array_equal(ds["member"].values, [3, np.nan, 4])


def test_attributes_that_say_the_same_stay_attributes(tmp_path: Path) -> None:
    for day in range(3):
        ds = xr.Dataset({"t": ("time", [day])}, {"time": [day]}, {"member": 3, "history": str(day)})
        ds.to_netcdf(tmp_path / f"{day}.nc")
    group = gridref.build(tmp_path / "*.nc", tmp_path / "cube.gridref", "time")
    assert set(group.arrays) == {"t", "time"}
    assert (group.attrs["member"], group.attrs["history"]) == (3, "0")


def days_named(folder: Path, *names: str) -> list[Path]:
    for number, name in enumerate(names):
        xr.Dataset({"t": ("x", [number, number + 1])}).to_netcdf(folder / name)
    return [folder / name for name in names]


@pytest.mark.parametrize("asked", [False, True])
def test_parts_of_names_that_a_pattern_hides(tmp_path: Path, asked: bool) -> None:
    files = days_named(
        tmp_path, "a_20240101_low_x1.nc", "a_20240102_high_x2.nc", "a_20240103_low_x3.nc"
    )
    options = {"stack": "time", "pattern": "a_{time:%Y%m%d}_{_}_{_}.nc"} if asked else {}
    gridref.build(files, tmp_path / "cube.gridref", **options)
    with xr.open_dataset(tmp_path / "cube.gridref") as ds:
        assert ds["t"].dims == ("time", "x")
        assert set(ds.coords) == {"time", "part1"}  # the other one differs with every file
        assert ds["part1"].values.tolist() == ["low", "high", "low"]
    later = days_named(tmp_path, "a_20240104_high_x4.nc")
    gridref.open_catalog(tmp_path / "cube.gridref").append(later)
    with xr.open_dataset(tmp_path / "cube.gridref") as ds:
        assert ds["part1"].values.tolist() == ["low", "high", "low", "high"]


def test_parts_of_names_of_files_with_times_of_their_own(tmp_path: Path) -> None:
    for number in range(4):
        ds = xr.Dataset({"t": (("time", "x"), [[number, 1]])}, {"time": [number]})
        ds.to_netcdf(tmp_path / f"v{number}_sweep_{number % 2}.nc")
    gridref.build(tmp_path / "*.nc", tmp_path / "cube.gridref")
    with xr.open_dataset(tmp_path / "cube.gridref", decode_times=False) as ds:
        assert ds["t"].dims == ("time", "x")
        assert ds.coords["sweep"].dims == ("time",)
        assert ds["sweep"].values.tolist() == [0, 1, 0, 1]


def test_folders_of_years_and_months_hide_nothing(tmp_path: Path) -> None:
    for folder in ("2023/12", "2024/01"):
        (tmp_path / folder).mkdir(parents=True)
    names = ["2023/12/a_20231230.nc", "2023/12/a_20231231.nc", "2024/01/a_20240101.nc"]
    files = days_named(tmp_path, *names)
    group = gridref.build(files, tmp_path / "cube.gridref")
    assert set(group.arrays) == {"t", "time"}


def test_single_values_that_differ_lie_along_the_dimension(tmp_path: Path) -> None:
    for day in range(3):
        ds = xr.Dataset({"t": ("time", [day]), "angle": ((), [0.5, 1.5, 0.5][day])})
        ds.assign_coords(time=[day]).to_netcdf(tmp_path / f"{day}.nc")
    gridref.build(tmp_path / "*.nc", tmp_path / "cube.gridref", "time")
    with xr.open_dataset(tmp_path / "cube.gridref", decode_times=False) as ds:
        assert ds["angle"].values.tolist() == [0.5, 1.5, 0.5]
