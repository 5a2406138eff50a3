"""Cubes computed by the worker processes of a cluster, through every door."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from traceback import format_exception
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import gridref

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
    assert "the catalog was built anew since" in "".join(format_exception(raised.value))
