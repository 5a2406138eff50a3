"""``missing_value`` with ``_Unsigned``: whatever it is, all doors read what xarray reads."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.faces.http import create_app
from tests.uvicorn_server import running

MISSING = (
    np.float64(-1.0), np.float32(-1.5), np.float64(254.5), np.inf, -np.inf, np.nan,
    np.float64(1e30), np.int16(255), np.int16(-1), np.float64([-1.0]),
)  # fmt: skip
VIEWS = ("direct", "portable")
STORED = np.array([0, 1, 100, 127, -1, -128, -2], "i1")


def made(path: Path, dtype: str, unsigned: str | None, missing: object, scale: float) -> Path:
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(7.0) + 7 * (scale != 0.5)
        file["x"].make_scale("x")
        data = file.create_dataset("v", data=STORED.astype(dtype), chunks=(3,))
        data.dims[0].attach_scale(file["x"])
        data.attrs["missing_value"] = missing
        data.attrs["scale_factor"] = np.float64(scale)
        if unsigned is not None:
            data.attrs["_Unsigned"] = unsigned
    return path


@pytest.mark.long(but=2)
@pytest.mark.filterwarnings("ignore")  # xarray's, of what it makes of such values
@pytest.mark.parametrize("dtype", ["i1", "u1"])
@pytest.mark.parametrize("unsigned", ["true", "false", None])
@pytest.mark.parametrize("n_files", [1, 2])
def test_doors_read_what_xarray_reads(tmp_path, dtype, unsigned, n_files):
    """Of two files, packings differ, and gridref unpacks."""
    catalogs, expected = {}, {}
    for number, missing in enumerate(MISSING):
        files = [
            made(tmp_path / f"{number}-{scale}.nc", dtype, unsigned, missing, scale)
            for scale in (0.5, 0.25)[:n_files]
        ]
        expected[str(number)] = np.concatenate([xr.open_dataset(file)["v"] for file in files])
        catalogs[str(number)] = tmp_path / f"{number}.gridref"
        gridref.build(files, catalogs[str(number)], "x")
    with running(create_app({name: str(address) for name, address in catalogs.items()})) as url:
        for name, catalog in catalogs.items():
            doors = {
                view: gridref.open_store(catalog, view=view) for view in ("direct", "portable")
            }
            if n_files == 1:
                doors["native"] = gridref.open_store(catalog, view="native")
            doors |= {"url": f"gridref::file://{catalog}", "http": f"{url}/{name}/portable"}
            read = {
                door: xr.open_zarr(store, chunks=None, consolidated=False)["v"].values
                for door, store in doors.items()
            }
            read["engine"] = xr.open_dataset(catalog, engine="gridref")["v"].values
            for door, values in read.items():
                assert values.dtype == expected[name].dtype, (door, name)
                assert np.array_equal(values, expected[name], equal_nan=True), (door, name)


INFINITE = (
    {"missing_value": np.inf},
    {"missing_value": -np.inf, "_FillValue": np.float32(1)},
    {"missing_value": np.array([np.inf, -1.0])},
    {"missing_value": np.array([np.nan, -1.0])},
    {"missing_value": np.array([2.0, np.inf, np.nan]), "_FillValue": np.float32(np.nan)},
    {"missing_value": np.array([2.0, np.inf]), "_FillValue": np.float32(1e30)},
    {"missing_value": np.float32(2), "_FillValue": np.float32(np.inf)},
)


@pytest.mark.filterwarnings("ignore")  # xarray's, of several fill values
@pytest.mark.parametrize("number", range(len(INFINITE)))
@pytest.mark.parametrize("scale", [None, 0.5])
def test_missing_values_of_floats_that_are_not_finite(tmp_path, number, scale):
    """JSON has no such numbers, and the texts in their place equal no element."""
    with h5py.File(tmp_path / "a.nc", "w") as file:
        data = file.create_dataset("v", data=np.float32([0, 1, 2, -1, 1e30, np.inf, -np.inf]))
        data.attrs.update(INFINITE[number] | ({} if scale is None else {"scale_factor": scale}))
    expected = xr.open_dataset(tmp_path / "a.nc", engine="h5netcdf", phony_dims="sort")["v"]
    for view in ("auto", "portable"):
        store = gridref.open_store(gridref.scan(tmp_path / "a.nc"), view=view)
        read = xr.open_zarr(store, chunks=None, consolidated=False)["v"]
        np.testing.assert_array_equal(read.values, expected.values)
        assert read.dtype == expected.dtype
