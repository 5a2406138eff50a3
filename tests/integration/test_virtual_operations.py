"""Every public method of xarray on virtual datasets: it arranges and is right, or is refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.faces.xarray.duck_array import NoValuesError, VirtualDuckArray

pytestmark = pytest.mark.filterwarnings("ignore")

Method = Callable[[Any], Any]


def write(path: Path) -> Path:
    """Packed, masked, plain, string and time-like variables, with bounds and coordinates."""
    random = np.random.default_rng(1)
    packed = random.integers(200, 300, (6, 4, 5)).astype("f8") / 2
    packed[2, 1, 3] = np.nan
    plain = random.normal(size=(6, 4, 5)).astype("f4")
    days = np.datetime64("2001-03-01", "ns") + np.arange(6) * np.timedelta64(1, "D")
    ds = xr.Dataset(
        {
            "packed": (("time", "lat", "lon"), packed, {"units": "K"}),
            "plain": (("time", "lat", "lon"), plain),
            "count": (("time", "lat"), random.integers(0, 9, (6, 4)).astype("i4")),
            "moment": (("time",), days + np.timedelta64(6, "h")),
            "time_bnds": (("time", "nv"), np.stack([days, days + np.timedelta64(1, "D")], 1)),
        },
        {
            "time": ("time", days, {"bounds": "time_bnds"}),
            "lat": [10.0, 20, 30, 40],
            "lon": [0.0, 1, 2, 3, 4],
            "height": (("lat",), np.array([5, 3, 8, 1], "i2")),
            "level": ((), 7.0),
        },
    )
    encoding: dict[str, Any] = {
        "packed": {
            "dtype": "i2",
            "scale_factor": 0.5,
            "add_offset": 100.0,
            "_FillValue": np.int16(-9),
            "chunksizes": (2, 4, 3),
            "zlib": True,
        },
        "moment": {"units": "hours since 2001-01-01", "dtype": "i4"},
        "time": {"units": "days since 2000-01-01", "dtype": "i4"},
        "plain": {"_FillValue": None},
    }
    ds.to_netcdf(path, encoding=encoding)
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("operations") / "a.nc")


def as_values(virtual: Any, folder: Path) -> Any:
    """What readers of the virtual object see: it goes through a catalog."""
    dataset = virtual if isinstance(virtual, xr.Dataset) else virtual.to_dataset()
    dataset.gridref.save(folder / "cube.gridref")
    found = xr.open_dataset(folder / "cube.gridref", engine="gridref").load()
    return found if isinstance(virtual, xr.Dataset) else found[virtual.name]


ARRANGED: dict[str, Method] = {
    "isel": lambda ds: ds.isel(time=slice(1, 5, 2), lat=[3, 0]),
    "isel scalar": lambda ds: ds.isel(time=-1),
    "isel points": lambda ds: ds.isel(
        lat=xr.DataArray([0, 2], dims="p"), lon=xr.DataArray([1, 4], dims="p")
    ),
    "sel": lambda ds: ds.sel(lat=slice(15, 40), time="2001-03"),
    "sel nearest": lambda ds: ds.sel(lat=[12, 28], method="nearest"),
    "loc": lambda ds: ds.loc[{"lon": [1.0, 3.0]}],
    "head": lambda ds: ds.head(time=2),
    "tail": lambda ds: ds.tail(lat=1),
    "thin": lambda ds: ds.thin(lon=2),
    "transpose": lambda ds: ds.transpose("lon", "lat", "time", ..., missing_dims="ignore"),
    "expand_dims": lambda ds: ds.expand_dims(member=2),
    "squeeze": lambda ds: ds.isel(lat=[1]).squeeze(),
    "rename": lambda ds: ds.rename(lat="y"),
    "rename_vars": lambda ds: ds.rename({"height": "h"}),
    "swap_dims": lambda ds: ds.swap_dims(lat="height"),
    "set_coords": lambda ds: ds.reset_coords("height", drop=True),
    "drop_vars": lambda ds: ds.drop_vars("height"),
    "drop_sel": lambda ds: ds.drop_sel(lat=20),
    "drop_isel": lambda ds: ds.drop_isel(lon=[0, 1]),
    "drop_attrs": lambda ds: ds.drop_attrs(deep=False),
    "reindex": lambda ds: ds.reindex(lat=[5.0, 20, 40], lon=[4.0, 9, 1, 0]),
    "reindex time": lambda ds: ds.reindex(time=ds.time.values[[0, 3]]),
    "reindex_like": lambda ds: ds.reindex_like(xr.Dataset(coords={"lat": [40.0, 41]})),
    "reindex nearest": lambda ds: ds.reindex(lat=[12.0, 39], method="nearest"),
    "sortby": lambda ds: ds.sortby("lat", ascending=False),
    "roll": lambda ds: ds.roll(lon=2),
    "shift": lambda ds: (
        ds.reset_coords(drop=True)[["packed", "plain"]].shift(lat=1)
        if isinstance(ds, xr.Dataset)
        else ds.shift(lat=1)
    ),
    "pad": lambda ds: (
        (ds[["packed", "plain"]] if isinstance(ds, xr.Dataset) else ds)
        .drop_vars(["height", "lat", "time", "lon"], errors="ignore")
        .pad(lat=(1, 2))
    ),
    "pad edge": lambda ds: (
        (ds[["packed", "count"]] if isinstance(ds, xr.Dataset) else ds)
        .drop_vars(["height", "lat", "time", "lon"], errors="ignore")
        .pad(lat=1, mode="edge")
    ),
    "broadcast_like": lambda ds: ds.broadcast_like(xr.DataArray(np.zeros(2), dims="extra")),
    "stack": lambda ds: ds.reset_coords(drop=True).stack(z=("lat", "lon")).reset_index("z"),
    "assign_coords": lambda ds: ds.assign_coords(lon=ds.lon + 180),
    "assign_attrs": lambda ds: ds.assign_attrs(note="x"),
    "copy": lambda ds: ds.copy(deep=True),
    "convert_calendar": lambda ds: ds.convert_calendar("standard"),
    "where rows": lambda ds: (
        ds[["packed"]].where(ds.lat > 15) if isinstance(ds, xr.Dataset) else ds.where(ds.lat > 15)
    ),
    "coarsen construct": lambda ds: (
        (ds[["packed"]] if isinstance(ds, xr.Dataset) else ds)
        .reset_coords(drop=True)
        .coarsen(time=2)
        .construct(time=("a", "b"))
    ),
    "groupby piece": lambda ds: dict(iter(ds.groupby("time.day")))[np.int64(3)],
}


@pytest.mark.long(but=40)
@pytest.mark.parametrize("name", ARRANGED)
@pytest.mark.parametrize("variable", [None, "packed", "plain"])
def test_what_arranges_is_right(
    path: Path, tmp_path: Path, name: str, variable: str | None
) -> None:
    virtual, expected = gridref.open_virtual_dataset(path), xr.open_dataset(path).load()
    if variable is not None:
        virtual, expected = virtual[variable], expected[variable]
    change = ARRANGED[name]
    found, wanted = change(virtual), change(expected)
    arrays = found.data_vars.values() if isinstance(found, xr.Dataset) else [found]
    assert all(isinstance(array.variable.data, VirtualDuckArray) for array in arrays)
    xr.testing.assert_equal(as_values(found, tmp_path), wanted)


ARGUMENTS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "clip": ((0, 1), {}),
    "where": ((lambda da: da > 3,), {}),
    "isin": (([1, 2],), {}),
    "fillna": ((0,), {}),
    "combine_first": ((xr.DataArray(np.zeros((6, 4, 5)), dims=("time", "lat", "lon")),), {}),
    "diff": (("time",), {}),
    "shift": ((), {"lat": 1, "fill_value": 0}),
    "pad": ((), {"lat": 1, "constant_values": 0}),
    "reindex": ((), {"lat": [1.0], "fill_value": 0}),
    "differentiate": (("lat",), {}),
    "integrate": (("lat",), {}),
    "cumulative_integrate": (("lat",), {}),
    "interp": ((), {"lat": [12.0]}),
    "interp_like": ((xr.DataArray([1.0], {"lat": [12.0]}, "lat"),), {}),
    "interpolate_na": (("time",), {}),
    "quantile": ((0.5,), {}),
    "rank": (("time",), {}),
    "dot": ((xr.DataArray(np.ones(4), dims="lat"),), {}),
    "polyfit": (("time", 1), {}),
    "curvefit": (("time", lambda x, a: a * x), {}),
    "map": ((np.sqrt,), {}),
    "reduce": ((np.sum,), {}),
    "astype": (("i4",), {}),
    "argmax": ((), {"dim": "time"}),
    "argmin": ((), {"dim": "time"}),
    "idxmax": (("time",), {}),
    "idxmin": (("time",), {}),
    "ffill": (("time",), {}),
    "bfill": (("time",), {}),
    "dropna": (("time",), {}),
    "searchsorted": ((1,), {}),
    "to_netcdf": ((), {}),
}
COMPUTING = [
    "all", "any", "argmax", "argmin", "argsort", "astype", "clip", "combine_first",
    "conj", "conjugate", "count", "cumprod", "cumsum", "cumulative_integrate",
    "diff", "differentiate", "dot", "dropna", "fillna", "idxmax", "idxmin",
    "integrate", "interpolate_na", "isin", "isnull", "item", "map",
    "max", "mean", "median", "min", "pad", "polyfit", "prod", "quantile", "reduce",
    "reindex", "round", "searchsorted", "shift", "std", "sum", "to_dataframe", "to_netcdf",
    "to_numpy", "to_series", "to_dict", "to_masked_array", "var", "where",
]  # fmt: skip


@pytest.mark.parametrize("name", COMPUTING)
@pytest.mark.parametrize("kind", [xr.DataArray, xr.Dataset])
def test_what_computes_is_refused(path: Path, name: str, kind: type) -> None:
    if not hasattr(kind, name):
        return
    virtual: Any = gridref.open_virtual_dataset(path)[["packed"]]
    virtual = virtual if kind is xr.Dataset else virtual.packed
    arguments, options = ARGUMENTS.get(name, ((), {}))
    with pytest.raises(NoValuesError, match="needs values"):
        getattr(virtual, name)(*arguments, **options)


MATHS: list[Method] = [
    lambda da: da + 1,
    lambda da: 2 * da,
    lambda da: da - da.isel(time=0),
    lambda da: da > 280,
    lambda da: da == da,
    lambda da: da != da,
    lambda da: -da,
    abs,
    np.sqrt,
    lambda da: float(da[0, 0, 0]),
    lambda da: int(da[0, 0, 0]),
    lambda da: bool(da[0, 0, 0]),
    lambda da: da.values,
    lambda da: da.groupby("time.day").mean(),
    lambda da: da.resample(time="2D").mean(),
    lambda da: da.rolling(time=2).mean(),
    lambda da: da.coarsen(time=2).max(),
    lambda da: da.weighted(xr.DataArray(np.ones(4), dims="lat")).mean(),
    lambda da: da.cumulative("time").sum(),
    lambda da: da.chunk(time=2).mean().compute(),
    lambda da: xr.where(da > 3, da, 0),
    lambda da: xr.where(da.lat > 15, da, 0),
    xr.zeros_like,
    lambda da: xr.full_like(da, 5),
    lambda da: xr.corr(da, da),
    lambda da: xr.dot(da, da),
    lambda da: xr.apply_ufunc(np.abs, da),
    lambda da: da.__setitem__((0, 0, 0), 5),
    lambda da: da.where(da.lat > 15, 0),
    lambda da: da.real + 1,
    lambda da: da.notnull().values,
    lambda da: da.notnull().sum(),
    lambda da: da.notnull() & True,
]


@pytest.mark.parametrize("compute", MATHS)
def test_arithmetic_is_refused(path: Path, compute: Method) -> None:
    packed = gridref.open_virtual_dataset(path).packed
    with pytest.raises(NoValuesError, match="needs values"):
        compute(packed)


NEITHER = {
    "chunk": "dask's arrays of virtual ones, refused when they are computed",
    "notnull": "a condition: what is done with it is refused",
    "from_dict": "makes new objects",
    "from_iris": "makes new objects",
    "from_series": "makes new objects",
    "from_dataframe": "makes new objects",
    "load_store": "makes new objects",
}


@pytest.mark.parametrize("kind", [xr.DataArray, xr.Dataset])
@pytest.mark.parametrize("variable", ["packed", "moment"])
def test_no_method_gives_stored_numbers(path: Path, kind: type, variable: str) -> None:
    """Whatever is called, with known or no arguments: no numpy array of packed numbers appears."""
    virtual: Any = gridref.open_virtual_dataset(path)[[variable]]
    virtual = virtual if kind is xr.Dataset else virtual[variable]
    called = 0
    for name, _ in inspect.getmembers(kind, callable):
        if name.startswith("_") or name in NEITHER:
            continue
        arguments, options = ARGUMENTS.get(name, ((), {}))
        found = None
        with suppress(Exception):  # refused, or called wrongly
            found = getattr(virtual.copy(), name)(*arguments, **options)
        called += found is not None
        array = found[variable] if isinstance(found, xr.Dataset) and variable in found else found
        if isinstance(array, xr.DataArray) and array.name == variable:
            assert isinstance(array.variable.data, VirtualDuckArray), name
        assert not isinstance(array, np.ndarray | float | int) or isinstance(array, bool), name
    assert called > 20


def test_gaps_of_another_variable_mask_nothing(tmp_path: Path) -> None:
    values = xr.Dataset({"a": ("x", [1.0, 2, 3]), "b": ("x", [np.nan, 2, 3])})
    values.to_netcdf(tmp_path / "gaps.nc")
    virtual = gridref.open_virtual_dataset(tmp_path / "gaps.nc")
    for mask in (virtual.b.notnull(), virtual.b[::-1].notnull()):
        for masked in (virtual.a, virtual):
            with pytest.raises(NoValuesError, match=r"np\.where needs values"):
                masked.where(mask)
    xr.testing.assert_identical(virtual.b.where(virtual.b.notnull()), virtual.b)
