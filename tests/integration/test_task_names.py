"""Names of dask's tasks: results of a catalog are not taken for those of one built anew there."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
from dask.base import tokenize

import gridref
from gridref.errors import CatalogError

pytestmark = pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")

SHAPE = (10, 3)


class Rebuilt:
    """A catalog of one file of equal values, which can be built anew in its place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.catalog = folder / "cube.gridref"
        self.url = f"gridref::file://{self.catalog}"
        self.build(1)

    def build(self, value: int) -> None:
        path = self.folder / f"{value}.h5"
        with h5py.File(path, "w") as file:
            file["v"] = np.full(SHAPE, value, "f4")
        shutil.rmtree(self.catalog, ignore_errors=True)
        gridref.build(path, self.catalog)


@pytest.fixture
def rebuilt(tmp_path: Path) -> Rebuilt:
    return Rebuilt(tmp_path)


OPENED: dict[str, Callable[[Rebuilt], xr.Dataset]] = {
    "store": lambda r: xr.open_zarr(gridref.open_store(r.catalog), chunks={}),
    "store, chunked later": lambda r: xr.open_zarr(
        gridref.open_store(r.catalog), chunks=None
    ).chunk(),
    "address, chunked later": lambda r: xr.open_zarr(r.url, chunks=None).chunk(),
    "engine": lambda r: xr.open_dataset(r.catalog, chunks={}),
    "engine, chunked later": lambda r: xr.open_dataset(r.catalog).chunk(),
    "engine, opened catalog": lambda r: xr.open_dataset(
        gridref.open_catalog(r.catalog), engine="gridref", chunks={}
    ),
}


@pytest.mark.parametrize("way", OPENED)
def test_a_rebuilt_catalog_has_tasks_of_other_names(rebuilt: Rebuilt, way: str) -> None:
    first = OPENED[way](rebuilt)["v"]
    assert first.data.name == OPENED[way](rebuilt)["v"].data.name
    rebuilt.build(2)
    second = OPENED[way](rebuilt)["v"]
    assert second.data.name != first.data.name
    assert (second.values == 2).all()


def test_views_have_tasks_of_other_names(rebuilt: Rebuilt) -> None:
    def name(**options: Any) -> str:
        store = gridref.open_store(rebuilt.catalog, **options)
        return str(xr.open_zarr(store, chunks={})["v"].data.name)

    assert len({name(), name(view="portable"), name(chunks={"phony_dim_0": 3})}) == 3


def test_a_changed_group_is_no_longer_its_catalog(rebuilt: Rebuilt) -> None:
    whole = gridref.open_catalog(rebuilt.catalog)
    part = whole["v"].isel(phony_dim_0=slice(0, 5))  # type: ignore[union-attr]
    less = whole.with_changes(arrays={"v": part})
    assert tokenize(gridref.open_store(less)) != tokenize(gridref.open_store(whole))
    assert tokenize(less) != tokenize(whole)


@pytest.mark.parametrize("way", ["store, chunked later", "address, chunked later"])
def test_pickles_do_not_read_what_was_built_anew(rebuilt: Rebuilt, way: str) -> None:
    pickled = pickle.dumps(OPENED[way](rebuilt))
    assert (pickle.loads(pickled)["v"].values == 1).all()
    rebuilt.build(2)
    with pytest.raises(CatalogError, match="rebuilt after"):
        pickle.loads(pickled)
