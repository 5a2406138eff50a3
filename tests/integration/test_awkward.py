"""Ragged rows as Awkward Arrays, against numpy and xarray."""

from __future__ import annotations

from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.errors import InvalidRequestError
from gridref.faces.ragged import awkward

LENGTHS = (5, 12, 1, 7)


def write_drifters(folder: Path, group: str | None = None) -> list[xr.Dataset]:
    """Drifters of differing length: packed temperatures, some missing, and times."""
    written = []
    for number, length in enumerate(LENGTHS):
        sst = 280 + np.random.default_rng(number).integers(0, 90, length) / 10
        sst[length // 2] = np.nan
        profile = np.arange(3 * length, dtype="f4").reshape(length, 3) + number
        time = np.datetime64("2024-01-01", "ns") + np.arange(length) * np.timedelta64(1, "h")
        drifter = xr.Dataset(
            {"sst": ("obs", sst), "profile": (("obs", "depth"), profile)},
            {"time": ("obs", time)},
            {"featureType": "trajectory"},
        )
        packing = {"dtype": "i2", "scale_factor": 0.1, "add_offset": 280.0, "_FillValue": -1}
        path = folder / f"drifter_{number}.nc"
        drifter.to_netcdf(path, group=group, encoding={"sst": packing})
        written.append(xr.load_dataset(path, group=group))
    return written


@pytest.fixture
def drifters(tmp_path: Path) -> tuple[list[xr.Dataset], gridref.Catalog]:
    written = write_drifters(tmp_path)
    gridref.build(str(tmp_path / "*.nc"), tmp_path / "a.gridref", layout=gridref.Ragged())
    return written, gridref.open_catalog(tmp_path / "a.gridref")


@pytest.mark.parametrize("name", ["sst", "time", "profile"])
@pytest.mark.parametrize(
    "rows", [None, slice(1, 3), slice(-1, None), slice(2, 2), slice(None, None, -2), slice(0, 99)]
)
def test_rows_are_those_of_the_files(
    drifters: tuple[list[xr.Dataset], gridref.Catalog], name: str, rows: slice | None
) -> None:
    written, catalog = drifters
    expected = written[rows or slice(None)]
    found = catalog.awkward(name, rows=rows)
    assert len(found) == len(expected)
    for own, file in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ak.to_numpy(own), file[name].values)


def test_rows_in_a_group(tmp_path: Path) -> None:
    written = write_drifters(tmp_path, "model/surface")
    gridref.build(str(tmp_path / "*.nc"), tmp_path / "a.gridref", layout=gridref.Ragged())
    found = gridref.open_catalog(tmp_path / "a.gridref").awkward("model/surface/sst")
    assert ak.num(found).to_list() == list(LENGTHS)
    np.testing.assert_array_equal(ak.to_numpy(found[3]), written[3].sst.values)


def test_a_file_that_is_ragged_itself(tmp_path: Path) -> None:
    counts = ("row", np.array([2, 0, 3]), {"sample_dimension": "obs"})
    xr.Dataset({"v": ("obs", np.arange(5.0)), "n": counts}).to_netcdf(tmp_path / "a.nc")
    assert awkward(gridref.scan(tmp_path / "a.nc"), "v").to_list() == [[0, 1], [], [2, 3, 4]]


def test_what_has_no_rows(tmp_path: Path) -> None:
    xr.Dataset({"v": ("obs", np.arange(5.0))}).to_netcdf(tmp_path / "a.nc")
    group = gridref.scan(tmp_path / "a.nc")
    with pytest.raises(InvalidRequestError, match="nothing counts the samples of 'v' along 'obs'"):
        awkward(group, "v")
    with pytest.raises(InvalidRequestError, match="no variable 'w'"):
        awkward(group, "w")
