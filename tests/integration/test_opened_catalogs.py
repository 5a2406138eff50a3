"""Opened catalogs are combined, selected and written again like scanned files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.api.catalog import write_catalog

N_YEARS = 3


@pytest.fixture(scope="module")
def catalogs(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], list[Path]]:
    """One file a year, and a catalog of each; chunks differ from year to year."""
    folder = tmp_path_factory.mktemp("years")
    files, catalogs = [], []
    for year in range(N_YEARS):
        rng = np.random.default_rng(year)
        dataset = xr.Dataset(
            {
                "tas": (("time", "y", "x"), rng.normal(size=(5, 4, 6)).astype("f4")),
                "area": (("y", "x"), np.arange(24.0).reshape(4, 6)),
            },
            coords={
                "time": ("time", np.arange(5) + 5 * year, {"units": "days since 2000-01-01"}),
                "x": np.arange(6),
            },
        )
        files.append(folder / f"{year}.nc")
        chunks = {"tas": {"chunksizes": (2 + year, 4, 3), "zlib": True}}
        dataset.to_netcdf(files[-1], engine="h5netcdf", encoding=chunks)
        catalogs.append(folder / f"{year}.gridref")
        write_catalog(gridref.scan(files[-1]), catalogs[-1])
    return files, catalogs


def assert_opens_as(group: gridref.VirtualGroup, expected: xr.Dataset, folder: Path) -> None:
    write_catalog(group, folder / "all.gridref")
    with xr.open_dataset(folder / "all.gridref", engine="gridref") as shown:
        xr.testing.assert_identical(shown.load(), expected)


def test_along_a_dimension(catalogs: tuple[list[Path], list[Path]], tmp_path: Path) -> None:
    """Alone, and with a file between them."""
    files, paths = catalogs
    opened = [gridref.open_catalog(path) for path in paths]
    with xr.open_mfdataset(files, engine="h5netcdf", data_vars="minimal", coords="minimal") as all_:
        for second in (opened[1], gridref.scan(files[1])):
            group = gridref.concat([opened[0], second, opened[2]], "time")
            assert_opens_as(group, all_.load(), tmp_path)


def test_along_a_new_dimension(catalogs: tuple[list[Path], list[Path]], tmp_path: Path) -> None:
    files, paths = catalogs
    opened = [gridref.open_catalog(path).arrays["tas"] for path in paths]
    array = gridref.concat(opened, "year")
    tas = [xr.open_dataset(file, engine="h5netcdf").tas.variable for file in files]
    expected = xr.Dataset({"tas": xr.Variable.concat(tas, "year")})
    assert_opens_as(gridref.VirtualGroup({"tas": array}), expected, tmp_path)


def test_shells_offer_what_is_for_users(catalogs: tuple[list[Path], list[Path]]) -> None:
    offered = {name for name in dir(gridref.open_catalog(catalogs[1][0])) if name[0] != "_"}
    assert {"append", "arrays", "export", "find", "info", "to_xarray", "verify"} <= offered
    assert not {"decided_trust", "levels", "opener", "parts"} & offered
