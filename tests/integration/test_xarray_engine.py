"""Catalogs through the xarray engine: datasets are those of xarray's own engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr

import gridref

STRINGS = np.array(["alpha", "", "ä 日本", "x" * 300], object)


def netcdf_of_strings(path: Path) -> Path:
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 4)
        file.createDimension("y", 2)
        file.createVariable("line", str, ("x",))[:] = STRINGS
        file.createVariable("x", str, ("x",))[:] = np.array(["d", "c", "b", "a"], object)
        file.createVariable("square", str, ("x", "y"))[:] = np.stack([STRINGS, STRINGS], axis=1)
        file.createVariable("scalar", str, ())[...] = "one"
        file.createVariable("number", "f4", ("x",))[:] = np.arange(4)
    return path


@pytest.mark.parametrize("engine", ["netcdf4", "h5netcdf"])
def test_strings_of_variable_length(tmp_path: Path, engine: Any) -> None:
    source = netcdf_of_strings(tmp_path / "a.nc")
    catalog = tmp_path / "a.gridref"
    gridref.write_catalog(gridref.scan(source), catalog)
    with xr.open_dataset(source, engine=engine) as expected, xr.open_dataset(catalog) as got:
        xr.testing.assert_identical(got.load(), expected.load())
        for name in expected.variables:
            assert got[name].dtype == expected[name].dtype
            assert got[name].dtype.metadata == expected[name].dtype.metadata
        assert type(got.indexes["x"]) is type(expected.indexes["x"])
        assert got.indexes["x"].dtype == expected.indexes["x"].dtype
        assert got.sel(x="c")["line"].item() == ""
        assert got["line"][2].item() == "ä 日本"
