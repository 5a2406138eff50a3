"""Accessors and openers for xarray, and the names of dask's tasks."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from dask.base import tokenize

import gridref
from gridref.errors import CatalogError, InvalidRequestError
from tests.shared_data import shared_files

SAMPLES = Path(__file__).parents[2] / "sample_data"
MONTHS = [SAMPLES / f"daily_2023-{month:02}.nc" for month in (1, 2, 3)]


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("accessors") / "cube.gridref"
    gridref.build(MONTHS, path, "time")
    return path


def by_gridref(data: Any, **options: Any) -> xr.Dataset:
    return xr.open_dataset(data, engine="gridref", **options)


@pytest.mark.parametrize("path", shared_files("netcdf4/realistic/*"))
def test_engine_opens_single_files(path: Path) -> None:
    expected = xr.open_dataset(path, engine="netcdf4").load()
    xr.testing.assert_identical(by_gridref(path).load(), expected)
    xr.testing.assert_identical(by_gridref(f"file://{path}").load(), expected)


def test_engine_opens_lists_globs_and_catalogs_alike(catalog: Path) -> None:
    expected = xr.open_dataset(catalog).load()
    assert expected.sizes["time"] == 90
    for files in ([*MONTHS], [*map(str, MONTHS)], str(SAMPLES / "daily_2023-0[123].nc")):
        xr.testing.assert_identical(by_gridref(files, concat_dim="time").load(), expected)
    tree = xr.open_datatree(MONTHS[0], engine="gridref")
    xr.testing.assert_identical(tree.to_dataset().load(), by_gridref(MONTHS[0]).load())
    for data in (catalog / "gridref.json", gridref.open_catalog(catalog)):
        xr.testing.assert_identical(by_gridref(data).load(), expected)


def test_engine_refuses_options_of_something_else(catalog: Path) -> None:
    with pytest.raises(
        InvalidRequestError, match=r"concat_dim: these options are for files, and this is a catalog"
    ):
        by_gridref(catalog, concat_dim="time")
    with pytest.raises(InvalidRequestError, match=r"snapshot= is for catalogs"):
        by_gridref(MONTHS[0], snapshot="v1")
    with pytest.raises(InvalidRequestError, match=r"did you mean 'concat_dim'"):
        by_gridref(MONTHS, concat_dimension="time")


def test_catalogs_open_as_virtual_datasets(catalog: Path) -> None:
    for opened in (catalog, gridref.open_catalog(catalog)):
        virtual = gridref.open_virtual_dataset(opened)
        files = gridref.open_virtual_mfdataset(MONTHS, "time")
        assert virtual["tas"].identical(files["tas"])
        assert virtual.gridref.nbytes == files.gridref.nbytes


def test_selections_of_opened_catalogs_are_written_by_reference(
    catalog: Path, tmp_path: Path
) -> None:
    part = xr.open_dataset(catalog)[["tas", "pr"]].isel(time=slice(35, 80), lat=slice(4, None, 2))
    part.gridref.save(tmp_path / "part.gridref")
    written = xr.open_dataset(tmp_path / "part.gridref")
    pd.testing.assert_frame_equal(written.gridref.plan(), part.gridref.plan())
    assert written.gridref.plan()["n_files"].to_dict() == {"tas": 2, "pr": 2}
    xr.testing.assert_identical(written.load(), part.load())


def test_gigabytes_are_not_kept_unasked(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("v", (3000, 1000), "f8", chunks=(100, 1000))
    lazy = xr.open_dataset(tmp_path / "a.h5", engine="h5netcdf", phony_dims="sort")
    for dataset in (lazy, by_gridref(tmp_path / "a.h5", chunks={})):
        with pytest.raises(InvalidRequestError, match=r"'v' is not virtual.*24000000 bytes"):
            dataset.gridref.save(tmp_path / "b.gridref")


def test_plans_count_what_a_selection_touches(catalog: Path) -> None:
    cube = xr.open_dataset(catalog)
    with h5py.File(MONTHS[0]) as file:
        chunks = [file["tas"].id.get_chunk_info(k) for k in range(file["tas"].id.get_num_chunks())]
        # Chunks of 9 x 12 x 16: the second and third of 4 in time, the first of 2 in latitude.
        touched = [c for c in chunks if 9 <= c.chunk_offset[0] < 27 and c.chunk_offset[1] == 0]
    plan = cube.isel(time=slice(10, 20), lat=slice(0, 5)).gridref.plan()
    assert plan.loc["tas"].to_dict() == {
        "n_chunks": 6,
        "n_missing": 0,
        "n_bytes": sum(c.size for c in touched),
        "n_files": 1,
    }
    whole = gridref.open_virtual_dataset(catalog).gridref.plan()
    assert whole.loc["tas", "n_files"] == 3
    assert cube.load().gridref.plan().empty


def test_maps_are_drawn_of_virtual_variables(catalog: Path) -> None:
    virtual = gridref.open_virtual_dataset(catalog)
    chunk_map = virtual.gridref.chunk_map("tas", width=500)
    assert "<svg" in chunk_map._repr_svg_()
    assert "tas" in chunk_map.caption
    with pytest.raises(InvalidRequestError, match="time is not virtual; there are"):
        virtual.gridref.chunk_map("time")


def test_sizes_are_those_of_the_stored_elements(catalog: Path) -> None:
    virtual = gridref.open_virtual_dataset(catalog)[["tas"]]
    assert virtual.gridref.nbytes == 90 * 20 * 40 * 4


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
    less, least = (
        whole.with_changes(arrays={"v": each})
        for each in (part, part.isel(phony_dim_0=slice(0, 2)))
    )
    assert len({tokenize(gridref.open_store(group)) for group in (whole, less, least)}) == 3
    assert tokenize(less) != tokenize(whole)


@pytest.mark.parametrize("way", ["store, chunked later", "address, chunked later"])
def test_pickles_do_not_read_what_was_built_anew(rebuilt: Rebuilt, way: str) -> None:
    pickled = pickle.dumps(OPENED[way](rebuilt))
    assert (pickle.loads(pickled)["v"].values == 1).all()
    rebuilt.build(2)
    with pytest.raises(CatalogError, match="rebuilt after"):
        pickle.loads(pickled)
