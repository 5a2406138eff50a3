"""Cubes computed by the worker processes of a cluster, through every door."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from traceback import format_exception
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import gridref
from tests.expiring import SECRET, bearer_only
from tests.http_server import Site, serving

distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning"),
    pytest.mark.filterwarnings("ignore:The specified chunks separate the stored chunks"),
]

N_DAYS = (31, 28, 31)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cube")
    random = np.random.default_rng(0)
    paths = [folder / f"{month}.nc" for month in range(len(N_DAYS))]
    for path, n_days in zip(paths, N_DAYS, strict=True):
        with h5py.File(path, "w") as file:
            data = random.normal(size=(n_days, 40, 50)).astype("f4")
            v = file.create_dataset("v", data=data, chunks=(1, 40, 50), compression=1, shuffle=True)
            v.dims[0].label = "time"
    gridref.build(paths, folder / "cube.gridref", concat_dim="phony_dim_0")
    return folder / "cube.gridref"


def values_by_h5py(catalog: Path) -> Any:
    parts = []
    for month in range(len(N_DAYS)):
        with h5py.File(catalog.parent / f"{month}.nc") as file:
            parts.append(file["v"][...])
    return np.concatenate(parts)


DOORS: dict[str, Callable[[Path], xr.Dataset]] = {
    "address": lambda catalog: xr.open_zarr(
        f"gridref::file://{catalog}", storage_options={"chunks": {"phony_dim_0": 20}}
    ),
    "portable address": lambda catalog: xr.open_zarr(
        f"gridref::file://{catalog}",
        storage_options={"view": "portable", "chunks": {"phony_dim_0": 20}},
    ),
    "store": lambda catalog: xr.open_zarr(gridref.open_store(catalog, chunks={"phony_dim_0": 20})),
    "engine": lambda catalog: xr.open_dataset(catalog, chunks={"phony_dim_0": 20}),
    "group": lambda catalog: xr.open_dataset(
        gridref.open_catalog(catalog), engine="gridref", chunks={"phony_dim_0": 20}
    ),
}


@pytest.mark.long(but=1)
@pytest.mark.parametrize("door", DOORS)
def test_workers_compute_what_h5py_reads(client: Any, catalog: Path, door: str) -> None:
    v = DOORS[door](catalog)["v"]
    expected = values_by_h5py(catalog)
    assert len(v.chunks[0]) > 1
    whole, highest = client.compute([v, v.isel(phony_dim_0=slice(3, None, 7)).max("phony_dim_0")])
    assert np.array_equal(whole.result().values, expected)
    assert np.array_equal(highest.result().values, expected[3::7].max(axis=0))


def test_stores_arrays_and_groups_travel(client: Any, catalog: Path) -> None:
    import zarr

    expected = values_by_h5py(catalog)
    store = gridref.open_store(catalog)
    opened = gridref.open_catalog(catalog)
    travelling = {
        "store": (lambda store: zarr.open_group(store, mode="r")["v"][5:9], store),
        "zarr array": (lambda array: array[5:9], zarr.open_group(store, mode="r")["v"]),
        "virtual array": (lambda array: np.asarray(array[5:9]), opened["v"]),
        "lazy dataset": (lambda ds: ds["v"][5:9].values, xr.open_dataset(catalog)),
    }
    for name, (read, argument) in travelling.items():
        found = client.submit(read, argument, pure=False).result()
        assert np.array_equal(found, expected[5:9]), name


def test_a_worker_refuses_a_catalog_that_was_built_anew(client: Any, tmp_path: Path) -> None:
    def build(value: int) -> None:
        with h5py.File(tmp_path / f"{value}.h5", "w") as file:
            file["v"] = np.full(10, value)
        shutil.rmtree(tmp_path / "cube.gridref", ignore_errors=True)
        gridref.build(tmp_path / f"{value}.h5", tmp_path / "cube.gridref")

    build(1)
    ds = xr.open_zarr(f"gridref::file://{tmp_path / 'cube.gridref'}", chunks=None).chunk()
    build(2)
    with pytest.raises(RuntimeError, match="deserialization") as raised:
        client.compute(ds["v"].sum()).result()
    assert "the catalog was rebuilt after" in "".join(format_exception(raised.value))


def test_workers_ask_for_new_credentials(client: Any, catalog: Path, tmp_path: Path) -> None:
    site = Site.of_folder(catalog.parent)
    site.refuses = bearer_only(1)
    secret = SECRET  # what is of this module, workers cannot import

    def provider() -> dict[str, str]:
        return {"token": f"{secret}-{time.time_ns()}"}

    def read(array: Any) -> Any:
        first = np.asarray(array[:1])
        time.sleep(1.1)
        return np.concatenate([first, np.asarray(array[1:])])

    with serving(site):
        urls = [f"{site.url}/{catalog.parent.name}/{month}.nc" for month in range(len(N_DAYS))]
        options = {"http": {"credential_provider": provider}}
        cube = tmp_path / "cube.gridref"
        gridref.build(
            urls,
            cube,
            "phony_dim_0",
            storage_options=options,
            run=gridref.RunOptions(executor=client),
        )
        ds = xr.open_dataset(cube, chunks={"phony_dim_0": 20}, storage_options=options)
        whole, waited = (
            client.compute(ds["v"]),
            client.submit(read, gridref.open_catalog(cube, storage_options=options)["v"]),
        )
        expected = values_by_h5py(catalog)
        assert np.array_equal(whole.result().values, expected)
        assert np.array_equal(waited.result(), expected)
