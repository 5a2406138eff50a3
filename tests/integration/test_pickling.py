"""What travels to workers is pickled whole, while other threads read it."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, override

import cloudpickle
import h5py
import numpy as np
import pytest
import xarray as xr
import zarr

import gridref


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cube")
    for number, length in enumerate((3, 2, 4)):
        with h5py.File(folder / f"{number}.nc", "w") as file:
            values = np.random.default_rng(number).random((length, 5))
            v = file.create_dataset("v", data=values, chunks=(1, 5), compression=1)
            file["time"] = np.arange(length) + 10 * number
            file["time"].make_scale("time")
            v.dims[0].attach_scale(file["time"])
    gridref.build(folder, folder / "cube.gridref", "time")
    return folder / "cube.gridref"


DOORS: dict[str, Callable[[Path], Any]] = {
    "array": lambda catalog: gridref.open_catalog(catalog)["v"],
    "catalog": gridref.open_catalog,
    "store": gridref.open_store,
    "zarr": lambda catalog: zarr.open_group(gridref.open_store(catalog), mode="r")["v"],
    "direct": lambda catalog: zarr.open_group(gridref.open_store(catalog, view="direct"), mode="r"),
    "engine": xr.open_dataset,
    "chunks": lambda catalog: xr.open_dataset(catalog, chunks={}),
    "address": lambda catalog: xr.open_zarr(f"gridref::file://{catalog}"),
    "files": lambda catalog: gridref.open_mfdataset(catalog.parent / "*.nc"),
    "virtual": lambda catalog: gridref.open_virtual_dataset(catalog.parent / "0.nc"),
}


class Recorder(cloudpickle.Pickler):
    """Notes which classes of gridref are pickled by the dictionary of their objects."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())
        self.kinds: set[type] = set()

    @override
    def reducer_override(self, obj: Any) -> Any:
        kind: Any = type(obj)
        if (
            kind.__module__.startswith("gridref")
            and kind.__reduce__ is object.__reduce__
            and kind.__getstate__ is object.__getstate__
        ):
            self.kinds.add(kind)
        return super().reducer_override(obj)


@pytest.mark.parametrize("door", DOORS)
def test_nothing_that_travels_grows_when_it_is_read(catalog: Path, door: str) -> None:
    recorder = Recorder()
    recorder.dump(DOORS[door](catalog))
    for kind in recorder.kinds:
        members = {name: member for each in kind.__mro__ for name, member in vars(each).items()}
        cached = [name for name, own in members.items() if isinstance(own, cached_property)]
        assert not cached, f"{kind.__name__} must be Picklable, as it caches {cached}"


class Reading:
    """An attribute that reads its array while it is pickled, as another thread may."""

    def __init__(self) -> None:
        self.array: Any = None

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        _ = self.array[1:3]
        return str, ()


def test_an_array_is_pickled_while_it_is_read(catalog: Path) -> None:
    reading = Reading()
    opened = gridref.open_catalog(catalog)["v"]
    reading.array = array = opened.with_changes(attrs={"reading": reading})
    travelled = pickle.loads(pickle.dumps(array))
    assert np.array_equal(travelled[...], opened[...])
    assert travelled.attrs == {"reading": ""}
