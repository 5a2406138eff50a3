"""Labels that files store in unlike forms, or do not have: what they mean places files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.errors import CombineError


def written(path: Path, ds: xr.Dataset, **encoding: Any) -> Path:
    ds.to_netcdf(path, encoding=encoding)
    return path


def opened(catalog: Path) -> xr.Dataset:
    return xr.open_dataset(catalog, engine="gridref")


# Packed numbers, each file with its own scale and offset


@pytest.mark.parametrize(
    "how",
    [
        {"layout": gridref.Mosaic()},
        {"layout": "by_coords"},
        {"concat_dim": "y"},
        {"concat_dim": ["y", "x"]},
        {},
    ],
    ids=str,
)
def test_stored_numbers_of_labels_are_alike_and_labels_are_not(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    files = []
    for number, offset in enumerate((40.0, 0.0)):
        packed = {"dtype": "i2", "scale_factor": 10.0, "add_offset": offset}
        ds = xr.Dataset(
            {"v": (("y", "x"), np.full((4, 3), number, "f4"))},
            {"y": offset + 10.0 * np.arange(4), "x": 5.0 * np.arange(3)},
        )
        files.append(written(tmp_path / f"{number}.nc", ds, y=packed))
    gridref.build(files, tmp_path / "c.gridref", **how)
    expected = xr.combine_by_coords([xr.open_dataset(file) for file in files])
    xr.testing.assert_equal(opened(tmp_path / "c.gridref"), expected)


# Texts of variable length, as xarray and netCDF4 write them


def of_stations(path: Path, time: int, names: list[str]) -> Path:
    values = 10.0 * time + np.arange(float(len(names)))
    coords = {"time": [time], "station": np.array(names, object)}
    return written(path, xr.Dataset({"v": (("time", "station"), values[np.newaxis])}, coords))


@pytest.mark.parametrize("join", ["outer", "inner", "left", "right"])
def test_texts_are_joined(tmp_path: Path, join: Any) -> None:
    files = [
        of_stations(tmp_path / "a.nc", 0, ["Oslo", "Bergen"]),
        of_stations(tmp_path / "b.nc", 1, ["a station with a long name", "Oslo"]),
    ]
    options = gridref.CombineOptions(join=join)
    gridref.build(files, tmp_path / "c.gridref", "time", combine=options)
    expected = xr.concat([xr.open_dataset(file) for file in files], "time", join=join)
    xr.testing.assert_equal(opened(tmp_path / "c.gridref"), expected)


def test_texts_that_repeat_are_a_problem(tmp_path: Path) -> None:
    files = [
        written(tmp_path / f"{n}.nc", xr.Dataset({"v": ("s", [n])}, {"s": np.array(["x"], object)}))
        for n in range(2)
    ]
    with pytest.raises(CombineError, match="labels occur more than once: x;"):
        gridref.build(files, tmp_path / "c.gridref", "s")


def test_texts_place_files_of_a_cube(tmp_path: Path) -> None:
    members = ["r1", "r2", "a member that comes later"]
    files = [
        written(
            tmp_path / f"{member}_{time}.nc",
            xr.Dataset({"v": ("time", [float(time)])}, {"member": member, "time": [time]}),
        )
        for member in members
        for time in range(2)
    ]
    gridref.build(files[:4], tmp_path / "c.gridref", ["member", "time"])
    gridref.open_catalog(tmp_path / "c.gridref").append(files[4:])
    cube = opened(tmp_path / "c.gridref")
    assert cube.member.values.tolist() == sorted(members)
    assert cube.v.values.tolist() == [[0, 1]] * 3


# Files without labels, beside others whose labels differ


@pytest.mark.parametrize("n", [3, 4])
def test_a_file_without_labels(tmp_path: Path, n: int) -> None:
    """As in xarray: it has to have as many elements as there are labels in the end."""
    files = []
    for time, lat in enumerate(([1.0, 2, 3], [3.0, 1, 2], None)):
        ds = xr.Dataset({"v": (("time", "lat"), np.random.default_rng(time).random((1, 3)))})
        if lat is None:
            ds = ds.pad(lat=(0, n - 3), constant_values=0.0)
        coords = {"time": [time]} | ({} if lat is None else {"lat": lat})
        files.append(written(tmp_path / f"{time}.nc", ds.assign_coords(coords)))
    join = gridref.CombineOptions(join="outer")
    if n == 4:
        with pytest.raises(CombineError, match=r"no labels along 'lat'.*2\.nc"):
            gridref.build(files, tmp_path / "c.gridref", "time", combine=join)
        return
    gridref.build(files, tmp_path / "c.gridref", "time", combine=join)
    datasets = [xr.open_dataset(file) for file in files]
    expected = xr.concat(datasets, "time", join="outer", data_vars="all")
    xr.testing.assert_equal(opened(tmp_path / "c.gridref"), expected)
