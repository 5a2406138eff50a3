"""What the README promises: differing chunks, codecs, packing and time units are never refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

import gridref

FILES: list[dict[str, Any]] = [
    {"n": 5, "chunks": (2, 3), "codec": {"zlib": True}, "units": "days since 2000-01-01",
     "packing": {"dtype": "i2", "scale_factor": 0.01, "add_offset": 273.15, "_FillValue": -999}},
    {"n": 3, "chunks": (3, 4), "codec": {"zlib": True, "shuffle": True, "fletcher32": True},
     "units": "hours since 1999-12-31", "packing": {"dtype": "f8", "_FillValue": -1.0}},
    {"n": 7, "chunks": (4, 2), "codec": {"compression": "lzf"},
     "units": "seconds since 1970-01-01",
     "packing": {"dtype": "i4", "scale_factor": 0.5, "add_offset": 200.0, "_FillValue": 7}},
    {"n": 4, "chunks": (1, 4), "codec": {}, "units": "minutes since 2000-01-01 06:00",
     "packing": {"dtype": "u1", "scale_factor": 2.0, "add_offset": 100.0, "_FillValue": 255}},
]  # fmt: skip
"""Files that agree in nothing but their variable."""


def write(path: Path, first_day: int, kind: dict[str, Any]) -> Path:
    days = np.datetime64("2000-01-01", "ns") + np.arange(kind["n"]) * np.timedelta64(1, "D")
    values = np.random.default_rng(first_day).uniform(270, 290, (kind["n"], 4))
    values[1, 2] = np.nan
    ds = xr.Dataset({"t": (("time", "x"), values)}, {"time": days + np.timedelta64(first_day, "D")})
    encoding = {
        "t": {"chunksizes": kind["chunks"], **kind["packing"], **kind["codec"]},
        "time": {"units": kind["units"], "dtype": "i8"},
    }
    ds.to_netcdf(path, engine="h5netcdf", encoding=encoding)
    return path


def test_never_refused_for_chunks_codecs_packing_or_time_units(tmp_path: Path) -> None:
    files, day = [], 0
    for number, kind in enumerate(FILES):
        files.append(write(tmp_path / f"{number}.nc", day, kind))
        day += kind["n"]
    gridref.build(files, tmp_path / "cube.gridref", "time")
    cube = xr.open_zarr(f"gridref::{tmp_path / 'cube.gridref'}", chunks=None).load()
    options: dict[str, Any] = {"combine": "nested", "concat_dim": "time", "engine": "h5netcdf"}
    with xr.open_mfdataset(files, **options) as expected:
        np.testing.assert_array_equal(cube.t.values, expected.t.values)
        np.testing.assert_array_equal(cube.time.values, expected.time.values)
    assert np.isnan(cube.t.values).sum() == len(FILES)
