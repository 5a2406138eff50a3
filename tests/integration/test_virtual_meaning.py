"""Virtual datasets that differ in packing, units or times are never mixed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.errors import CombineError
from gridref.faces.xarray.duck_array import NoValuesError, VirtualDuckArray

LAID: dict[str, Any] = {"data_vars": "minimal", "coords": "minimal", "compat": "override"}


def write_packed(path: Path, values: list[float], offset: float, x: float = 0) -> xr.Dataset:
    ds = xr.Dataset({"t": ("x", values)}, {"x": x + np.arange(float(len(values)))})
    packing = {"dtype": "i2", "scale_factor": 0.5, "add_offset": offset, "_FillValue": -9}
    ds.to_netcdf(path, encoding={"t": packing})
    return gridref.open_virtual_dataset(path)


def write_days(path: Path, start: str, since: str, *, bounds: bool = True) -> xr.Dataset:
    days = np.datetime64(start, "ns") + np.arange(3) * np.timedelta64(1, "D")
    ds = xr.Dataset({"v": ("time", np.arange(3.0))}, {"time": days})
    if bounds:
        ds["time_bnds"] = (("time", "nv"), np.stack([days, days + np.timedelta64(1, "D")], 1))
        ds.time.attrs["bounds"] = "time_bnds"
    ds.to_netcdf(path, encoding={"time": {"units": since, "dtype": "i4"}})
    return ds


def through_catalog(virtual: xr.Dataset, folder: Path) -> xr.Dataset:
    virtual.gridref.save(folder / "cube.gridref")
    return xr.open_dataset(folder / "cube.gridref", engine="gridref").load()


@pytest.fixture
def packings(tmp_path: Path) -> list[xr.Dataset]:
    """The same stored numbers, 8 K apart."""
    return [
        write_packed(tmp_path / f"{offset}.nc", [offset + 1, offset + 2.5, offset + 7], offset)
        for offset in (270.0, 278.0)
    ]


@pytest.mark.parametrize("compat", ["equals", "no_conflicts", "identical", "broadcast_equals"])
def test_merge_of_two_packings_compares_values(packings: list[xr.Dataset], compat: Any) -> None:
    with pytest.raises(xr.MergeError, match="conflicting values"):
        xr.merge(packings, compat=compat, join="exact")


def test_merge_of_equal_values_keeps_one(packings: list[xr.Dataset], tmp_path: Path) -> None:
    same = write_packed(tmp_path / "same.nc", [271, 272.5, 277], 260.0)
    merged = xr.merge([packings[0], same], compat="no_conflicts", join="exact")
    assert isinstance(merged.t.variable.data, VirtualDuckArray)
    assert through_catalog(merged, tmp_path).t.values.tolist() == [271, 272.5, 277]


def test_combine_first_fills_nothing_in(packings: list[xr.Dataset], tmp_path: Path) -> None:
    one, other = packings
    with pytest.raises(NoValuesError):
        one.combine_first(other)
    apart = one.combine_first(other.rename(t="u"))
    found = through_catalog(apart, tmp_path)
    assert found.t.values.tolist() == [271, 272.5, 277]
    assert found.u.values.tolist() == [279, 280.5, 285]


@pytest.mark.parametrize("data_vars", ["all", "minimal", "different"])
def test_concat_of_two_packings_is_refused(packings: list[xr.Dataset], data_vars: Any) -> None:
    with pytest.raises(CombineError, match="packed differently"):
        xr.concat(
            packings, "x", data_vars=data_vars, coords="minimal", join="exact", compat="equals"
        )
    with pytest.raises(CombineError, match="packed differently") as raised:
        xr.combine_nested(packings, "x", join="exact", **LAID)
    names = [Path(name).name for name in raised.value.problems[0].sources]
    assert names == ["270.0.nc", "278.0.nc"]
    with pytest.raises(CombineError, match="packed differently"):
        xr.concat(packings, "run", coords="minimal", join="exact", compat="override")


def test_dropped_packing_comes_back(packings: list[xr.Dataset], tmp_path: Path) -> None:
    first = packings[0]
    for stripped in (first.drop_attrs(), xr.concat([first], "x", combine_attrs="drop", **LAID)):
        assert through_catalog(stripped, tmp_path).t.values.tolist() == [271, 272.5, 277]
    first.t.attrs["add_offset"] = 0.0
    assert through_catalog(first, tmp_path).t.values.tolist() == [1, 2.5, 7]


@pytest.mark.parametrize(
    "values",
    [np.arange(6, dtype="i4").reshape(2, 3), np.array([["a", "bc"]], object), np.array([b"ab"])],
)
def test_what_was_opened_twice_is_equal(tmp_path: Path, values: np.ndarray) -> None:
    dims = ("y", "z")[-values.ndim :]
    ds = xr.Dataset({"v": (dims, values), "f": ("w", [1.0, np.nan])})
    ds.to_netcdf(tmp_path / "a.nc")
    ds.to_netcdf(tmp_path / "b.nc")
    one, again, other = (gridref.open_virtual_dataset(tmp_path / f"{n}.nc") for n in "aab")
    assert one.equals(again)
    assert one.identical(again)
    assert one.equals(other)
    assert xr.merge([one, other], compat="no_conflicts", join="exact").equals(one)
    ds["v"] = (dims, np.full_like(values, values.reshape(-1)[0]))
    ds.to_netcdf(tmp_path / "c.nc")
    unlike = gridref.open_virtual_dataset(tmp_path / "c.nc")
    assert one.equals(unlike) == bool((ds.v.values == values).all())


@pytest.mark.parametrize("data_vars", ["different", "minimal", "all"])
@pytest.mark.parametrize("kind", ["i4", "U2"])
def test_variables_that_are_equal_keep_their_dimensions(
    tmp_path: Path, data_vars: Any, kind: str
) -> None:
    for number in range(2):
        values = np.array([3, 4, 5]).astype(kind)
        xr.Dataset(
            {"v": ("time", [1.0 * number]), "same": ("x", values), "other": ("x", [number] * 3)},
            {"time": [number]},
        ).to_netcdf(tmp_path / f"{number}.nc")
    files = [tmp_path / "0.nc", tmp_path / "1.nc"]
    how: dict[str, Any] = {"data_vars": data_vars, "coords": "minimal", "join": "exact"}
    virtual = [gridref.open_virtual_dataset(file) for file in files]
    loaded = [xr.load_dataset(file) for file in files]
    if data_vars == "minimal":
        virtual, loaded = ([ds.drop_vars("other") for ds in part] for part in (virtual, loaded))
    found = xr.concat(virtual, "time", compat="equals", **how)
    wanted = xr.concat(loaded, "time", compat="equals", **how)
    assert {n: v.dims for n, v in found.variables.items()} == {
        n: v.dims for n, v in wanted.variables.items()
    }
    xr.testing.assert_equal(through_catalog(found, tmp_path), wanted)


SINCE = ["days since 2000-01-01", "days since 2001-01-01"]


@pytest.mark.parametrize(
    "options", [{"loadable_variables": ["v"]}, {"loadable_variables": []}, {"decode_times": False}]
)
def test_undecoded_dates_are_not_mixed(tmp_path: Path, options: dict[str, Any]) -> None:
    for number, since in enumerate(SINCE):
        write_days(tmp_path / f"{number}.nc", f"2001-01-0{1 + 3 * number}", since)
    files = [tmp_path / "0.nc", tmp_path / "1.nc"]
    parts = [gridref.open_virtual_dataset(file, **options) for file in files]
    with pytest.raises(CombineError, match=r"different dates|units differ") as raised:
        xr.concat(parts, "time", join="exact", **LAID)
    assert [Path(name).name for name in raised.value.problems[0].sources] == ["0.nc", "1.nc"]
    again = [
        gridref.open_virtual_dataset(files[0], **options).isel(time=slice(k, k + 1)) for k in (0, 2)
    ]
    joined = xr.concat(again, "time", join="exact", **LAID)
    expected = xr.load_dataset(files[0]).isel(time=[0, 2])
    xr.testing.assert_equal(through_catalog(joined, tmp_path), expected)


def test_undecoded_labels_are_labels(tmp_path: Path) -> None:
    write_days(tmp_path / "a.nc", "2001-01-01", SINCE[1])
    write_days(tmp_path / "b.nc", "2001-01-01", SINCE[0])
    raw, other = (
        gridref.open_virtual_dataset(tmp_path / f"{name}.nc", decode_times=False) for name in "ab"
    )
    assert raw.time.values.tolist() == [0, 1, 2]
    assert raw.sel(time=[2, 0]).time.values.tolist() == [2, 0]
    assert raw.isel(time=[1]).rename(time="t").t.values.tolist() == [1]
    with pytest.raises(CombineError, match="different dates"):
        xr.align(raw, other, join="outer")
    with pytest.raises(ValueError, match="time"):
        xr.align(raw, other, join="exact")
    loaded = gridref.open_virtual_dataset(
        tmp_path / "a.nc", decode_times=False, loadable_variables=["time", "time_bnds"]
    )
    assert loaded.time_bnds.values.tolist() == [[0, 1], [1, 2], [2, 3]]


@pytest.mark.parametrize("times", ["same units", "hours", "microseconds", "dropped", "renamed"])
def test_bounds_keep_their_dates(tmp_path: Path, times: str) -> None:
    expected = write_days(tmp_path / "a.nc", "2001-01-01", SINCE[0])
    virtual = gridref.open_virtual_dataset(tmp_path / "a.nc")
    new = {
        "same units": np.array(["2005-05-05", "2005-05-06", "2005-05-08"], "M8[ns]"),
        "hours": np.array(["2005-05-05T01", "2005-05-06T02", "2005-05-08T03"], "M8[ns]"),
        "microseconds": np.datetime64("2005-05-05T01:02:03.000004", "ns")
        + np.arange(3) * np.timedelta64(7, "us"),
    }
    bounds = expected.time_bnds.values
    if times in new:
        assigned = virtual.assign_coords(time=("time", new[times], {"bounds": "time_bnds"}))
        found = through_catalog(assigned, tmp_path)
        np.testing.assert_array_equal(found.time.values, new[times])
    elif times == "dropped":
        found = through_catalog(virtual.drop_vars("time"), tmp_path)
    else:
        found = through_catalog(virtual.rename(time="t", time_bnds="t_bnds"), tmp_path)
    np.testing.assert_array_equal(found["t_bnds" if times == "renamed" else "time_bnds"], bounds)


def test_coordinates_that_fit_no_variable_stay_coordinates(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        for name, extent in (("x", 2), ("y", 3)):
            file.createDimension(name, extent)
        file.createVariable("v", "f8", ("x",))[:] = [1, 2]
        file.createVariable("area", "f8", ("y",))[:] = [3, 4, 5]
        file.coordinates = "area"
    virtual = gridref.open_virtual_dataset(tmp_path / "a.nc")
    assert set(virtual.coords) == {"area"}
    found = through_catalog(virtual.assign_coords(extra=("w", [1.0, 2.0])), tmp_path)
    assert set(found.coords) == {"area", "extra"}
    references = virtual.gridref.to_kerchunk()
    (tmp_path / "refs.json").write_text(json.dumps(references))
    options = {"fo": str(tmp_path / "refs.json")}
    shown = xr.open_zarr("reference://", storage_options=options, consolidated=False)
    assert set(shown.coords) == {"area"}


@pytest.mark.parametrize("marked", [True, False])
def test_timedeltas_are_what_xarray_decodes(tmp_path: Path, marked: bool) -> None:
    """With a ``dtype`` attribute they are timedelta64, with units alone as xarray decides."""
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("lead", 3)
        lead = file.createVariable("lead", "i4", ("lead",))
        lead[:] = [0, 6, 12]
        lead.units = "hours"
        if marked:
            lead.setncattr("dtype", "timedelta64[ns]")
    expected = xr.load_dataset(tmp_path / "a.nc")
    virtual = gridref.open_virtual_dataset(tmp_path / "a.nc")
    assert virtual.lead.dtype == expected.lead.dtype
    xr.testing.assert_identical(virtual.lead.drop_encoding(), expected.lead.drop_encoding())
    xr.testing.assert_equal(
        through_catalog(virtual.isel(lead=[0, 2]), tmp_path), expected.isel(lead=[0, 2])
    )


def test_datasets_know_their_file(tmp_path: Path) -> None:
    write_days(tmp_path / "a.nc", "2001-01-01", SINCE[0])
    write_days(tmp_path / "b.nc", "2001-01-04", SINCE[0])
    assert gridref.open_virtual_dataset(tmp_path / "a.nc").encoding["source"].endswith("a.nc")
    seen: list[str] = []

    def preprocess(ds: xr.Dataset) -> xr.Dataset:
        seen.append(Path(ds.encoding["source"]).name)
        return ds.expand_dims(origin=[seen[-1]])

    cube = gridref.open_virtual_mfdataset(
        [[tmp_path / "a.nc"], [tmp_path / "b.nc"]],
        ["origin", "time"],
        combine="nested",
        preprocess=preprocess,
        join="override",
        compat="override",
    )
    assert seen == ["a.nc", "b.nc"]
    assert cube.origin.values.tolist() == ["a.nc", "b.nc"]
