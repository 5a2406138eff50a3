"""Archives whose units differ, from files to values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import gridref
from gridref import concat
from gridref.errors import CombineError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.conventions import MissingValues
from gridref.testing.reference_reader import read_slowly

PACKED = {"t": {"dtype": "i2", "scale_factor": 0.01, "add_offset": 5.0, "_FillValue": -999}}


def write(path: Path, start: int, values: Any, attrs: dict[str, str], **options: Any) -> Path:
    days = ("time", np.arange(start, start + len(values)), {"units": "days since 2000-01-01"})
    ds = xr.Dataset({"t": ("time", np.asarray(values), attrs)}, {"time": days})
    ds.to_netcdf(path, **options)
    return path


def test_kelvin_and_celsius(tmp_path: Path) -> None:
    kelvin, celsius = np.float32([280.1, np.nan, 282.3]), np.array([7.25, np.nan, -3.5])
    files = [
        write(tmp_path / "a.nc", 0, kelvin, {"units": "K"}),
        write(tmp_path / "b.nc", 3, celsius, {"units": "degC"}, encoding=PACKED),
    ]
    with pytest.raises(CombineError, match="convert_units"):
        gridref.build(files, tmp_path / "c.gridref", "time")
    gridref.build(
        files, tmp_path / "c.gridref", "time", combine=gridref.CombineOptions(convert_units=True)
    )
    cube = xr.open_zarr(f"gridref::{tmp_path / 'c.gridref'}", chunks=None)
    expected = np.concatenate([kelvin.astype("f8"), celsius + 273.15])
    np.testing.assert_allclose(cube.t.values, expected, rtol=1e-14)
    assert cube.t.attrs["units"] == "K"
    assert gridref.plan(files, "time").problems
    assert not gridref.plan(
        files, "time", combine=gridref.CombineOptions(convert_units=True)
    ).problems
    virtual = gridref.open_virtual_mfdataset(files, "time", convert_units=True)
    np.testing.assert_allclose(np.asarray(virtual.t.data), expected, rtol=1e-14)


def group(values: Any, units: str | None, **attrs: Any) -> VirtualGroup:
    data = VirtualArray.from_numpy(
        np.asarray(values), ("time",), {**attrs, **({"units": units} if units else {})}
    )
    return VirtualGroup({"t": data})


def celsius_to_kelvin(unit: str, target: str) -> tuple[float, float]:
    return (1.0, 273.15) if unit == "degC" else (1.0, -273.15)


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"cell_methods": "time: standard_deviation"}, "no zero"),
        ({"units_metadata": "temperature: difference"}, "no zero"),
    ],
)
def test_differences_are_not_shifted(attrs: dict[str, str], message: str) -> None:
    groups = [group([1.0], "K", **attrs), group([2.0], "degC", **attrs)]
    with pytest.raises(CombineError, match=message):
        concat(groups, "time", convert_units=celsius_to_kelvin)


def test_files_without_units_are_not_guessed() -> None:
    groups = [group([1.0], "K"), group([2.0], "degC"), group([3.0], None)]
    with pytest.raises(CombineError, match="without units"):
        concat(groups, "time", convert_units=celsius_to_kelvin)


def test_units_that_mean_the_same_leave_values_packed() -> None:
    groups = [group(np.int16([n]), units) for n, units in enumerate(["m s-1", "m/s"])]
    joined = concat(groups, "time", convert_units=lambda unit, target: (1.0, 0.0))
    assert joined.arrays["t"].dtype == np.dtype("i2")


def test_bounds_follow() -> None:
    groups = []
    for factor, units in ((1.0, "Pa"), (0.01, "hPa")):
        edges = np.array([[100.0, 300.0]]) * factor
        arrays = {
            "p": VirtualArray.from_numpy(
                edges.mean(axis=1), ("p",), {"units": units, "bounds": "edges"}
            ),
            "edges": VirtualArray.from_numpy(edges, ("p", "side")),
        }
        groups.append(VirtualGroup(arrays))
    joined = concat(groups, "p", overlap="keep", convert_units=lambda unit, target: (100.0, 0.0))
    np.testing.assert_allclose(read_slowly(joined.arrays["edges"]), [[100.0, 300.0]] * 2)
    np.testing.assert_allclose(read_slowly(joined.arrays["p"]), [200.0] * 2)


def test_units_that_differ_inside_and_between_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gridref.combine.combining.BATCH_GROUPS", 2)
    units = ["K", "K", "degC", "K"]
    values = [280.0, 281.0, 7.0, 283.0]
    groups = [group([value], unit) for value, unit in zip(values, units, strict=True)]
    joined = concat(iter(groups), "time", convert_units=celsius_to_kelvin)
    np.testing.assert_allclose(read_slowly(joined.arrays["t"]), [280.0, 281.0, 280.15, 283.0])


@pytest.mark.parametrize("factor", [(1.0, 273.15), (1.0, 0.5), (5 / 9, 255.25), (0.25, 0.0)])
@pytest.mark.parametrize(
    "packing",
    [
        {},
        {"scale_factor": 0.5},
        {"add_offset": 2.75},
        {"scale_factor": 0.125, "add_offset": -3.5, "_FillValue": np.int16(-9)},
    ],
    ids=str,
)
def test_packed_numbers_in_other_units(
    factor: tuple[float, float], packing: dict[str, Any]
) -> None:
    """Scale and offset of the file, then those of the units."""
    stored = np.array([0, 1, -9, 300, -2000], "i2")
    groups = [group([1.0, 2.0], "K"), group(stored, "other", **packing)]
    found = concat(groups, "time", convert_units=lambda unit, target: factor).arrays["t"]
    inner = stored * packing.get("scale_factor", 1.0) + packing.get("add_offset", 0.0)
    expected = inner * factor[0] + factor[1]
    if "_FillValue" in packing:
        expected[stored == -9] = np.nan
    np.testing.assert_allclose(read_slowly(found), [1.0, 2.0, *expected], rtol=1e-12)
    assert found.attrs["units"] == "K"


def test_durations_in_other_units_convert_by_themselves() -> None:
    def lasting(values: Any, units: str) -> VirtualGroup:
        data = VirtualArray.from_numpy(np.asarray(values), ("step",), {"units": units})
        return VirtualGroup({"step": data, "v": VirtualArray.from_numpy(np.ones(2), ("step",))})

    for parts, expected, units in (
        ([([0, 1], "days"), ([25, 48], "hours")], [0, 24, 25, 48], "hours"),
        ([([1, 2], "hours"), ([1, 2], "days")], [1, 2, 24, 48], "hours"),
        ([([0.25, 0.5], "h"), ([1.0, 2.0], "hour")], [0.25, 0.5, 1, 2], "h"),
        ([([0, 1], "days"), ([86400.5, 86401], "s")], [0, 86400e3, 86400.5e3, 86401e3],
         "milliseconds"),
    ):  # fmt: skip
        done = concat([lasting(*part) for part in parts], "step", read=read_slowly)
        assert read_slowly(done.arrays["step"]).tolist() == expected
        assert done.arrays["step"].attrs["units"] == units
    with pytest.raises(CombineError, match="units differ"):
        concat([lasting([0, 1], "days"), lasting([2, 3], "km")], "step", read=read_slowly)


def test_fields_of_durations_are_converted_when_asked_only() -> None:
    def lasting(units: str) -> VirtualGroup:
        field = VirtualArray.from_numpy(np.ones((1, 2)), ("time", "x"), {"units": units})
        return VirtualGroup({"sunshine": field})

    with pytest.raises(CombineError, match="convert_units"):
        concat([lasting("h"), lasting("min")], "time", read=read_slowly)


NS = 1_700_000_000 * 10**9 + np.arange(5)
NO_TIME = np.iinfo("i8").min


@pytest.mark.parametrize("is_index", [False, True])
@pytest.mark.parametrize(
    ("dtype", "first", "second", "units"),
    [
        pytest.param("i4", ([0, 1], -999), ([3, -1], -1), ("days", "days"), id="same unit"),
        pytest.param("i4", ([0, -1], -1), ([3, 23], -1), ("hours", "hours"), id="the fill value"),
        pytest.param("f8", ([0, 1], -1), ([22, 23], -1), ("hours", "hours"), id="of floats"),
        pytest.param("i8", (NS[:2], None), (NS[2:4], NO_TIME), ("nanoseconds",) * 2, id="64 bits"),
        pytest.param("i8", (NS[:2], None), ([1, NO_TIME], NO_TIME), ("nanoseconds",) * 2, id="NaT"),
    ],
)
def test_times_that_are_missing_otherwise(
    tmp_path: Path, dtype: str, first: Any, second: Any, units: Any, is_index: bool
) -> None:
    """A fill value of one file is a time in another one, or becomes one in other units."""
    dim, files, expected = "t" if is_index else "x", [], []
    dates = ["2000-1-1", {"d": "2000-01-01", "h": "1999-12-31", "n": "2000-1-1"}[units[0][0]]]
    for number, (values, fill) in enumerate((first, second)):
        attrs = {"units": f"{units[number]} since {dates[number]}"}
        attrs |= {} if fill is None else {"_FillValue": np.array(fill, dtype)[()]}
        path = tmp_path / f"{number}.nc"
        ds = xr.Dataset({"t": (dim, np.array(values, dtype), attrs), "v": (dim, [1.0, 2.0])})
        ds.to_netcdf(path, encoding={"v": {"_FillValue": None}})
        files.append(path)
        expected.append(xr.open_dataset(path).t.values)
    gridref.build(files, tmp_path / "c.gridref", dim, order="given")
    cube = xr.open_dataset(tmp_path / "c.gridref", engine="gridref")
    assert np.array_equal(cube.t.values, np.concatenate(expected), equal_nan=True)


def test_times_that_some_files_lack(tmp_path: Path) -> None:
    times = ("x", NS, {"units": "nanoseconds since 1970-01-01"})
    xr.Dataset({"t": times}, {"x": range(5)}).to_netcdf(tmp_path / "a.nc")
    xr.Dataset({"v": ("x", NS)}, {"x": range(5, 10)}).to_netcdf(tmp_path / "b.nc")
    join = gridref.CombineOptions(join="outer")
    gridref.build([*tmp_path.glob("*.nc")], tmp_path / "c.gridref", "x", combine=join)
    found = xr.open_dataset(tmp_path / "c.gridref", engine="gridref").t.values
    assert np.array_equal(found[:5], NS.astype("M8[ns]"))
    assert np.isnat(found[5:]).all()


@pytest.mark.parametrize(("scale", "unit"), [(20.0, "m"), (10.0, "km")])
def test_ranges_of_stored_numbers_do_not_hold_for_values(
    tmp_path: Path, scale: float, unit: str
) -> None:
    """0 to 100 as stored are 0 to 1000: overviews took all but the first tenth for missing."""
    for day, (factor, units) in enumerate(((10.0, "m"), (scale, unit))):
        attrs = {"units": units, "scale_factor": factor, "valid_range": np.array([0, 100], "i2")}
        ds = xr.Dataset({"t": (("time", "x"), np.array([[50, 100]], "i2"), attrs)}, {"time": [day]})
        ds.to_netcdf(tmp_path / f"{day}.nc")
    convert = gridref.CombineOptions(convert_units=True)
    catalog = gridref.build(f"{tmp_path}/*.nc", tmp_path / "cube", "time", combine=convert)
    array = catalog.arrays["t"]
    assert "valid_range" not in array.attrs
    assert MissingValues.of(array).among(catalog["t"][:]) is None
    assert catalog["t"][0].tolist() == [500, 1000]
