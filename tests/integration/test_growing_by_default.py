"""A catalog of one file grows as a second file shows, without an option."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import gridref
from gridref.errors import CombineError, UnclearLayoutError
from gridref.faces.cli import app

DAYS = {"units": "days since 2001-01-01", "calendar": "standard"}


def days(first: int, n: int = 2, **coords: object) -> xr.Dataset:
    values = np.arange(first, first + n)[:, None] + np.arange(3) / 10
    times = ("time", np.arange(first, first + n), DAYS)
    return xr.Dataset({"t": (("time", "x"), values)}, {"time": times, "x": [0, 1, 2], **coords})


def along(folder: Path) -> list[Path]:
    for first in (0, 2, 4):
        days(first).to_netcdf(folder / f"part{first}.nc")
    return sorted(folder.iterdir())


def backwards(folder: Path) -> list[Path]:
    return along(folder)[::-1]


def scalars(folder: Path) -> list[Path]:
    for day in range(3):
        ds = days(day, 1).isel(time=0)
        ds["time"].attrs["standard_name"] = "time"
        ds.to_netcdf(folder / f"one{day}.nc")
    return sorted(folder.iterdir())


def dates(folder: Path) -> list[Path]:
    for day in range(3):
        days(day, 1).isel(time=0, drop=True).to_netcdf(folder / f"t_2001010{day + 1}.nc")
    return sorted(folder.iterdir())


def records(folder: Path) -> list[Path]:
    for first in range(3):
        ds = days(first).drop_vars("time")
        ds.to_netcdf(folder / f"run{first}.nc", unlimited_dims=["time"])
    return sorted(folder.iterdir())


def members(folder: Path) -> list[Path]:
    for member in (1, 2, 3):
        (days(0) * member).to_netcdf(folder / f"r{member}.nc")
    return sorted(folder.iterdir())


@pytest.mark.parametrize("kind", [along, backwards, scalars, dates, records, members])
@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "together"])
def test_files_are_added_as_they_would_be_built(
    kind: Callable[[Path], list[Path]], at_once: bool, tmp_path: Path
) -> None:
    (tmp_path / "files").mkdir()
    first, *later = kind(tmp_path / "files")
    gridref.build(first, tmp_path / "cube.gridref")
    for files in [later] if at_once else [[file] for file in later]:
        gridref.open_catalog(tmp_path / "cube.gridref").append(files)
    gridref.build([first, *later], tmp_path / "whole.gridref")
    with (
        xr.open_dataset(tmp_path / "cube.gridref") as grown,
        xr.open_dataset(tmp_path / "whole.gridref") as whole,
        xr.open_mfdataset(
            sorted([first, *later]), combine="nested", concat_dim="n", join="outer"
        ) as parts,
    ):
        xr.testing.assert_identical(grown.load(), whole.load())
        if kind in (scalars, dates, members):
            assert grown["t"].shape == parts["t"].shape
            np.testing.assert_array_equal(grown["t"].values, parts["t"].values)
        else:
            expected = [xr.open_dataset(file)["t"].values for file in sorted([first, *later])]
            np.testing.assert_array_equal(grown["t"].values, np.concatenate(expected))
    one, other = (gridref.open_catalog(tmp_path / f"{name}.gridref") for name in ("cube", "whole"))
    assert one.info.digest == other.info.digest


def test_several_answers_are_listed_and_asked_for(tmp_path: Path) -> None:
    for day in ("010203", "010204"):
        days(0, 1).isel(time=0, drop=True).to_netcdf(tmp_path / f"run_{day}.nc")
    first, second = sorted(tmp_path.iterdir())
    catalog = tmp_path / "cube.gridref"
    gridref.build(first, catalog)
    with pytest.raises(UnclearLayoutError, match="fit several layouts") as error:
        gridref.open_catalog(catalog).append(second)
    assert gridref.open_catalog(catalog).arrays["t"].shape == (3,)
    grown = gridref.open_catalog(catalog).append(second, **error.value.choices[0])
    assert grown.arrays["t"].shape == (2, 3)


def test_what_does_not_fit_is_a_problem_and_nothing_is_written(tmp_path: Path) -> None:
    first, second, _ = along(tmp_path)
    xr.open_dataset(second).load().assign_coords(x=[0, 1, 5]).to_netcdf(tmp_path / "other.nc")
    catalog = tmp_path / "cube.gridref"
    before = gridref.build(first, catalog)
    with pytest.raises(CombineError):
        gridref.open_catalog(catalog).append(tmp_path / "other.nc")
    assert gridref.open_catalog(catalog).arrays["t"].shape == before.arrays["t"].shape


def test_the_command_adds_without_an_option(tmp_path: Path) -> None:
    first, *later = map(str, along(tmp_path))
    catalog = str(tmp_path / "cube.gridref")
    for arguments in (["build", first, "-o", catalog], ["append", catalog, *later]):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
    with xr.open_dataset(catalog) as ds, xr.open_mfdataset([first, *later]) as expected:
        xr.testing.assert_equal(ds.load(), expected.load())
