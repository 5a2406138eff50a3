"""Files for catalogs that grow, and what such catalogs show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray as xr

import gridref


def month(folder: Path, number: int, **changes: Any) -> Path:
    """One file of five days a month, the first of which has the number 5 * number."""
    rng = np.random.default_rng(number)
    values = rng.normal(280, 10, (5, 4, 6)).astype(changes.get("dtype", "f4"))
    dataset = xr.Dataset(
        {"tas": (("time", "lat", "lon"), values), "area": (("lat", "lon"), np.ones((4, 6)))},
        coords={
            "time": ("time", np.arange(5) + 5 * number, {"units": "days since 2000-01-01"}),
            "lat": ("lat", np.arange(4.0) + changes.get("shift", 0)),
            "lon": ("lon", np.arange(6.0)),
        },
        attrs={"title": "days"},
    )
    path = folder / f"{changes.get('name', f'{number:03}')}.nc"
    encoding = {"tas": {"chunksizes": (2, 4, 3), "zlib": True}}
    dataset.to_netcdf(path, engine="h5netcdf", encoding=encoding, unlimited_dims=["time"])
    return path


def steps(folder: Path, labels: list[float], **attrs: Any) -> Path:
    """A file whose coordinate has some labels, and nothing else that is shared."""
    path = folder / f"{len(list(folder.iterdir())):03}.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["time"] = np.array(labels)
        file["time"].attrs.update(attrs)
        file["time"].make_scale("time")
        file["v"] = np.array(labels) * 10
        file["v"].dims[0].attach_scale(file["time"])
    return path


def built(files: list[Path], catalog: Path) -> gridref.VirtualGroup:
    gridref.build(files, catalog, "time")
    return gridref.open_catalog(catalog)


def files_in(catalog: Path) -> set[str]:
    return {path.name for path in catalog.iterdir() if path.suffix == ".parquet"}


def assert_shows(catalog: Path | str, files: list[Path]) -> None:
    """What xarray shows of the files themselves, decoded by netCDF's library."""
    with (
        xr.open_dataset(catalog, engine="gridref") as shown,
        xr.open_mfdataset(
            files, engine="netcdf4", data_vars="minimal", coords="minimal", compat="override",
            join="exact", combine="nested", concat_dim="time",
        ) as expected,
    ):  # fmt: skip
        xr.testing.assert_identical(shown.load(), expected.load())
