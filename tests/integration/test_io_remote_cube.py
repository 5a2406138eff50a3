"""Files behind HTTP, combined, kept in a catalog, and read through every face."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref import concat
from gridref.catalog.commit import write_catalog
from gridref.errors import SourceChangedError, SourceUnavailableError
from tests.http_server import Site, serving


@pytest.fixture
def cube(tmp_path: Path) -> Iterator[tuple[Site, str, xr.Dataset]]:
    rng = np.random.default_rng(0)
    parts = [
        xr.Dataset(
            {"tas": (("time", "x"), rng.random((length, 40)).astype("f4"))},
            coords={"time": np.arange(length) + start},
        )
        for length, start in ((31, 0), (28, 31))
    ]
    site = Site()
    for i, part in enumerate(parts):
        path = tmp_path / f"{i}.nc"
        encoding = {"tas": {"zlib": True, "chunksizes": (10, 40)}}
        part.to_netcdf(path, encoding=encoding, engine="h5netcdf")
        site.files[f"/{i}.nc"] = path.read_bytes()
        site.etags[f"/{i}.nc"] = f'"{i}"'
    with serving(site) as running:
        groups = [gridref.scan(f"{running.url}/{i}.nc") for i in range(len(parts))]
        catalog = tmp_path / "c.gridref"
        write_catalog(concat(groups, "time"), catalog)
        yield running, str(catalog), xr.concat(parts, "time")


FACES = {
    "store": lambda catalog: xr.open_zarr(
        gridref.open_store(catalog), consolidated=False, zarr_format=3, chunks=None
    ),
    "filesystem": lambda catalog: xr.open_zarr(f"gridref::file://{catalog}", chunks=None),
    "engine": lambda catalog: xr.open_dataset(catalog, engine="gridref"),
}


def test_a_point_of_a_large_contiguous_variable_costs_little(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((40, 300, 200))
    with h5py.File(tmp_path / "large.h5", "w") as file:
        file["v"] = values
    raw = (tmp_path / "large.h5").read_bytes()
    with serving(Site({"/large.h5": raw}, {"/large.h5": '"1"'})) as site:
        gridref.build(f"{site.url}/large.h5", tmp_path / "c.gridref")
        for opened in (
            xr.open_dataset(tmp_path / "c.gridref"),
            xr.open_zarr(f"gridref::file://{tmp_path / 'c.gridref'}", chunks=None),
        ):
            site.requests.clear()
            assert opened["v"][7, 8, 9].values == values[7, 8, 9]
            assert np.array_equal(opened["v"][3:5].values, values[3:5])
            data = [asked for asked in site.requests if asked[1] == "/large.h5"]
            assert [method for method, _, _ in data] == ["GET", "GET"]
            sizes = [1 - eval(str(wanted).removeprefix("bytes=")) for _, _, wanted in data]
            assert sizes == [8, 2 * 300 * 200 * 8]


@pytest.mark.parametrize("face", FACES)
def test_every_face_reads_the_same(cube: tuple[Site, str, xr.Dataset], face: str) -> None:
    _, catalog, expected = cube
    opened = FACES[face](catalog)
    assert np.array_equal(opened["tas"].values, expected["tas"].values)
    picked = opened["tas"][25:40:3, 5]
    assert np.array_equal(picked.values, expected["tas"].values[25:40:3, 5])


@pytest.mark.long(but=4)
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("harm", ["changed", "lost", "emptied", "refused"])
def test_a_harmed_source_is_an_error_and_never_fill_values(
    cube: tuple[Site, str, xr.Dataset], face: str, harm: str
) -> None:
    site, catalog, _ = cube
    if harm == "changed":
        site.etags["/1.nc"] = '"another"'
    elif harm == "lost":
        del site.files["/1.nc"]
    elif harm == "emptied":
        site.files["/1.nc"] = b""
    else:
        site.statuses = [403] * 1000
    error = SourceChangedError if harm in ("changed", "emptied") else SourceUnavailableError
    with pytest.raises(error, match=r"file http://127\.0\.0\.1:\d+/\d\.nc"):
        # Opening reads the coordinate, of which each file holds a part.
        _ = FACES[face](catalog)["tas"].values
    store = gridref.open_store(catalog)
    opened = xr.open_zarr(
        store, consolidated=False, zarr_format=3, chunks=None, drop_variables=["time"]
    )
    with pytest.raises(error, match="variable tas"):
        _ = opened["tas"][-1].values
