"""VirtualiZarr's accessor on our virtual datasets, and what to use in its place."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import virtualizarr
import xarray as xr

import gridref
from gridref.errors import InvalidRequestError

pytestmark = pytest.mark.filterwarnings("ignore:Attempting to write an entirely non-virtual")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    values = np.arange(60.0).reshape(6, 10)
    dataset = xr.Dataset(
        {"plain": (("t", "x"), values), "packed": (("t", "x"), values)}, {"t": np.arange(6)}
    )
    packing = {"dtype": "i2", "scale_factor": 0.5, "add_offset": 1.0, "_FillValue": -1}
    dataset.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding={"packed": packing})
    return tmp_path / "a.nc"


def icechunk_store() -> Any:
    repository = icechunk.Repository.create(icechunk.in_memory_storage())
    return repository.writable_session("main").store


WRITERS: dict[str, Callable[[Any, Path], Any]] = {
    "dict": lambda ds, folder: ds.vz.to_kerchunk(),
    "Zarr v3": lambda ds, folder: ds.vz.to_kerchunk(zarr_format=3),
    "JSON": lambda ds, folder: ds.vz.to_kerchunk(folder / "refs.json", format="json"),
    "Parquet": lambda ds, folder: ds.vz.to_kerchunk(folder / "refs.parq", format="parquet"),
    "icechunk": lambda ds, folder: ds.vz.to_icechunk(icechunk_store()),
    "icechunk tree": lambda ds, folder: xr.DataTree(ds).vz.to_icechunk(icechunk_store()),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_its_writers_never_take_packed_numbers_for_values(
    path: Path, tmp_path: Path, writer: str
) -> None:
    dataset = gridref.open_virtual_dataset(path)[["packed"]]
    with pytest.raises(InvalidRequestError, match=r"ds\.gridref\.save\(path\)"):
        WRITERS[writer](dataset, tmp_path)
    assert not (tmp_path / "refs.json").exists()


def test_what_the_docs_propose_is_written(path: Path) -> None:
    dataset = gridref.open_virtual_dataset(path)
    references = gridref.interchange.to_virtualizarr(dataset.gridref.to_group()).vz.to_kerchunk()
    assert references["refs"]["plain/0.0"][0].endswith("a.nc")


@pytest.mark.parametrize("writer", ["dict", "Zarr v3", "JSON", "icechunk", "icechunk tree"])
def test_loaded_variables_are_written(path: Path, tmp_path: Path, writer: str) -> None:
    names = ["plain", "packed", "t"]
    dataset = gridref.open_virtual_dataset(path, loadable_variables=names)
    WRITERS[writer](dataset, tmp_path)


@pytest.mark.parametrize("from_catalog", [False, True])
def test_paths_are_renamed(path: Path, from_catalog: bool) -> None:
    opened = path
    if from_catalog:
        gridref.build([path], opened := path.with_name("a.gridref"))
    dataset = gridref.open_virtual_dataset(opened)
    asked = []
    moved = shutil.move(path, path.with_name("moved.nc"))

    def new(old: str) -> str:
        asked.append(old)
        return old.replace("/a.nc", "/moved.nc")

    renamed = dataset.gridref.rename_paths(new)
    assert set(asked) == {path.as_uri()}
    np.testing.assert_array_equal(np.asarray(renamed["plain"].data), np.arange(60.0).reshape(6, 10))
    references = renamed.gridref.to_kerchunk()["refs"]
    assert {held[0] for held in references.values() if isinstance(held, list)} == {str(moved)}
    everywhere = dataset.gridref.rename_paths(str(moved))
    np.testing.assert_array_equal(everywhere["plain"].data, renamed["plain"].data)
    assert not isinstance(dataset["plain"].data, virtualizarr.manifests.ManifestArray)


def test_copies_by_xarray_are_not_refused(path: Path, tmp_path: Path) -> None:
    dataset = gridref.open_virtual_dataset(path)[["plain"]]
    dataset.to_zarr(tmp_path / "copy.zarr", zarr_format=3, consolidated=False)
    with xr.open_zarr(tmp_path / "copy.zarr", consolidated=False) as copy:
        np.testing.assert_array_equal(copy.plain.values, np.arange(60.0).reshape(6, 10))
