"""Numbers that stand for something: classes keep their meaning, and missing ones are missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.errors import CombineError
from gridref.faces.http import create_app
from tests.by_name import by_name
from tests.integration.archives import write_hdf5
from tests.uvicorn_server import running

SURFACE = {"land": 0, "sea": 1}
SWAPPED = {"sea": 0, "land": 1}
VALUES = np.array([[0, 1, 1], [1, 0, 0]], "i1")


def write(
    path: Path,
    names: Mapping[str, int] | None,
    *,
    time: int = 0,
    x: Sequence[float] = (0, 1, 2),
    values: Any = VALUES,
    own_flags: bool | None = None,
    **encoding: Any,
) -> str:
    """A file whose numbers are named by an enumeration, by CF flags, or (None) by both."""
    with netCDF4.Dataset(path, "w") as file:
        for dim, labels in {"time": [time], "y": [0, 1], "x": x}.items():
            file.createDimension(dim, len(labels))
            file.createVariable(dim, "f8", (dim,))[:] = labels
        kind: Any = "i1"
        if names is not None and own_flags is not True:
            kind = file.createEnumType("i1", "surface_t", names)
        variable = file.createVariable("surface", kind, ("time", "y", "x"), **encoding)
        if values is not None:
            variable[0] = values
        if names is not None and own_flags is not False:
            variable.flag_values = np.array(list(names.values()), "i1")
            variable.flag_meanings = " ".join(names)
    return str(path)


def words_of(path: str, names: Mapping[str, int]) -> np.ndarray[Any, Any]:
    """What the elements of a file are called, as netCDF4 reads its numbers."""
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        by_number = {number: name for name, number in names.items()}
        return np.vectorize(lambda number: by_number.get(number, "?"))(file["surface"][:])


def words_in(found: xr.DataArray) -> np.ndarray[Any, Any]:
    """What the elements of a cube are called, by its attributes."""
    names = dict(zip(found.attrs["flag_values"], found.attrs["flag_meanings"].split(), strict=True))
    return np.vectorize(lambda number: names.get(number, "?"))(found.values)


def opened(catalog: Path, door: str) -> xr.Dataset:
    if door == "zarr":
        return xr.open_zarr(f"gridref::{catalog}", chunks=None, mask_and_scale=False).load()
    ds = xr.open_dataset(catalog, engine="gridref", mask_and_scale=False).load()
    enum = ds.surface.encoding.get("dtype", ds.surface.dtype).metadata
    if enum and "enum" in enum:
        names = enum["enum"]
        flags = {"flag_values": list(names.values()), "flag_meanings": " ".join(names)}
        ds.surface.attrs = flags | ds.surface.attrs
    return ds


LAYOUTS: dict[str, dict[str, Any]] = {
    "concat": {"concat_dim": "time"},
    "cube": {"concat_dim": ["time", "x"]},
    "by_coords": {"combine": "by_coords"},
    "stack": {"stack": "run"},
}


@pytest.mark.long(but=16)
@pytest.mark.parametrize("own_flags", [True, False, None], ids=["flags", "enum", "both"])
@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize(
    "names",
    [SWAPPED, {"land": 1, "sea": 2}, {"sea": 1, "ice": 2, "land": 0}, {"ice": 2}],
    ids="-".join,
)
def test_names_are_those_of_each_file(
    tmp_path: Path, names: dict[str, int], layout: str, own_flags: bool | None
) -> None:
    values = np.resize([*names.values()], VALUES.shape)
    time = 0 if layout == "stack" else 1
    files = [
        write(tmp_path / "0.nc", SURFACE, own_flags=own_flags),
        write(tmp_path / "1.nc", names, time=time, values=values, own_flags=own_flags),
    ]
    catalog = tmp_path / "c.gridref"
    gridref.build(files, catalog, **by_name(**LAYOUTS[layout]))
    expected = np.stack([words_of(files[0], SURFACE)[0], words_of(files[1], names)[0]])
    for door in ("zarr", "gridref"):
        found = opened(catalog, door).surface
        np.testing.assert_array_equal(words_in(found).reshape(expected.shape), expected)
    assert gridref.verify(catalog, all=True).ok
    report = gridref.plan(files, **by_name(**LAYOUTS[layout])).report
    assert [drift.variable for drift in report.of_cause("flags")] == ["surface"]


@pytest.mark.parametrize("layout", ["concat", "cube"])
@pytest.mark.parametrize("own_flags", [True, False], ids=["flags", "enum"])
@pytest.mark.parametrize(
    "second",
    [
        {"names": {"land": 0, "lake": 1}},
        {"names": {"ice": 0, "sea": 1, "land": 2}},
        {"names": SWAPPED, "fill_value": 1},
        {"names": {"sea": 0, "land": 1, "lake": 5}, "third": {"land": 0, "sea": 1, "ice": 5}},
    ],
    ids=str,
)
def test_numbers_that_mean_two_things_are_a_problem(
    tmp_path: Path, second: dict[str, Any], own_flags: bool, layout: str
) -> None:
    second = dict(second)
    third = second.pop("third", SURFACE)
    files = [
        write(tmp_path / "0.nc", SURFACE, own_flags=own_flags),
        write(tmp_path / "1.nc", time=1, own_flags=own_flags, **second),
        write(tmp_path / "2.nc", third, time=2, own_flags=own_flags),
    ]
    plan = gridref.plan(files, **by_name(**LAYOUTS[layout]))
    assert [problem.cause for problem in plan.problems] == ["flags-differ"]
    assert "surface" in str(plan.problems[0])
    assert "1.nc" in str(plan.problems[0])
    gridref.build(
        files, tmp_path / "c.gridref", **by_name(**LAYOUTS[layout], combine_attrs="drop_conflicts")
    )
    found = xr.open_zarr(f"gridref::{tmp_path / 'c.gridref'}", chunks=None).surface
    assert not {"flag_values", "flag_meanings"} & found.attrs.keys()


def test_files_that_name_nothing(tmp_path: Path) -> None:
    files = [
        write(tmp_path / "0.nc", SURFACE, own_flags=True),
        write(tmp_path / "1.nc", None, time=1),
    ]
    assert not gridref.plan(files, "time").problems
    parts = [gridref.open_virtual_dataset(file) for file in files]
    assert xr.concat(parts, "time").surface.attrs["flag_meanings"] == "land sea"
    files.append(write(tmp_path / "2.nc", SWAPPED, time=2, own_flags=True))
    (problem,) = gridref.plan(files, "time").problems
    assert "some files do not name their numbers" in problem.message


def test_chunks_that_a_file_does_not_hold_keep_their_meaning(tmp_path: Path) -> None:
    for k, names in enumerate((SURFACE, SWAPPED)):
        path = tmp_path / f"h{k}.h5"
        with h5py.File(path, "w") as file:
            data = file.create_dataset("surface", (1, 4), "i1", chunks=(1, 2), fillvalue=0)
            data[0, :2] = 1
            data.attrs["flag_values"] = np.array(list(names.values()), "i1")
            data.attrs["flag_meanings"] = " ".join(names)
    group = gridref.concat(
        [gridref.scan(str(tmp_path / f"h{k}.h5")) for k in range(2)], "phony_dim_0"
    )
    assert group["surface"][...].tolist() == [[1, 1, 0, 0], [0, 0, 1, 1]]


@pytest.mark.parametrize("batch", [1, 2, 1024])
def test_many_files_have_the_names_of_the_first(
    tmp_path: Path, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridref.combine.combining.BATCH_GROUPS", batch)
    turned = {"land": 1, "ice": 0, "sea": 2}
    every = [SURFACE, SWAPPED, {"ice": 2}, SWAPPED, turned, SURFACE | {"ice": 2}]
    files = [
        write(
            tmp_path / f"{k}.nc",
            names,
            time=k,
            values=np.resize([*names.values()], VALUES.shape),
            own_flags=True,
        )
        for k, names in enumerate(every)
    ]
    gridref.build(files, tmp_path / "c.gridref", "time")
    found = opened(tmp_path / "c.gridref", "zarr").surface
    expected = np.concatenate([words_of(*each) for each in zip(files, every, strict=True)])
    np.testing.assert_array_equal(words_in(found), expected)


def test_files_that_are_appended_keep_their_meaning(tmp_path: Path) -> None:
    every = [SURFACE, SWAPPED, {"ice": 2, "land": 0}]
    files = [
        write(tmp_path / f"{k}.nc", names, time=k, values=VALUES * 0 + names["land"])
        for k, names in enumerate(every)
    ]
    gridref.build(files[:1], tmp_path / "c.gridref", "time")
    for file in files[1:]:
        gridref.open_catalog(tmp_path / "c.gridref").append(file)
    for door in ("zarr", "gridref"):
        assert (words_in(opened(tmp_path / "c.gridref", door).surface) == "land").all()
    clashing = write(tmp_path / "3.nc", {"land": 0, "lake": 1}, time=3)
    with pytest.raises(CombineError, match="names of its numbers differ"):
        gridref.open_catalog(tmp_path / "c.gridref").append(clashing)


def test_masks_of_bits_are_not_renumbered(tmp_path: Path) -> None:
    def bits(k: int, names: Mapping[str, int]) -> str:
        path = write(tmp_path / f"{k}.nc", None, time=k)
        with netCDF4.Dataset(path, "a") as file:
            file["surface"].flag_masks = np.array(list(names.values()), "i1")
            file["surface"].flag_meanings = " ".join(names)
        return path

    one, more = bits(0, {"cloud": 1, "snow": 2}), bits(1, {"cloud": 1, "ice": 4})
    gridref.build([one, more], tmp_path / "c.gridref", "time")
    attrs = opened(tmp_path / "c.gridref", "zarr").surface.attrs
    assert attrs["flag_meanings"] == "cloud snow ice"
    assert list(attrs["flag_masks"]) == [1, 2, 4]
    other = bits(2, {"snow": 1, "cloud": 2})
    assert [p.cause for p in gridref.plan([one, other], "time").problems] == ["flags-differ"]


@pytest.mark.parametrize("own_flags", [True, False], ids=["flags", "enum"])
def test_mosaics_keep_the_meaning_of_each_tile(tmp_path: Path, own_flags: bool) -> None:
    every = [SURFACE, SWAPPED]
    files = []
    for k, names in enumerate(every):
        path = write(tmp_path / f"{k}.nc", names, x=np.arange(3) + 3 * k, own_flags=own_flags)
        with netCDF4.Dataset(path, "a") as file:
            file["x"].standard_name = "projection_x_coordinate"
            file["y"].standard_name = "projection_y_coordinate"
        files.append(path)
    gridref.build(files, tmp_path / "c.gridref", layout=gridref.Mosaic())
    expected = np.concatenate([words_of(*each) for each in zip(files, every, strict=True)], axis=2)
    for door in ("zarr", "gridref"):
        found = opened(tmp_path / "c.gridref", door).surface
        np.testing.assert_array_equal(words_in(found).reshape(expected.shape), expected)


@pytest.mark.parametrize("own_flags", [True, False], ids=["flags", "enum"])
def test_xarray_does_not_concatenate_unlike_names(tmp_path: Path, own_flags: bool) -> None:
    files = [
        write(tmp_path / f"{k}.nc", names, time=k, own_flags=own_flags)
        for k, names in enumerate((SURFACE, SWAPPED, SURFACE))
    ]
    parts = [gridref.open_virtual_dataset(file) for file in files]
    with pytest.raises(CombineError, match="names of stored numbers differ"):
        xr.concat(parts[:2], "time")
    assert xr.concat(parts[::2], "time").surface.attrs["flag_meanings"] == "land sea"


def test_names_that_do_not_fit_their_numbers_are_not_mixed(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{k}.nc", None, time=k) for k in range(2)]
    for file, number in zip(files, (0, 1), strict=True):
        with netCDF4.Dataset(file, "a") as opened_file:
            opened_file["surface"].flag_values = ", ".join(str(number + k) for k in range(100))
            opened_file["surface"].flag_meanings = "land sea"
    (problem,) = gridref.plan(files, "time").problems
    assert problem.cause == "flags-differ"
    assert not gridref.plan([files[0], files[0]], layout=gridref.Stack("run")).problems


def test_names_in_another_order_are_the_same(tmp_path: Path) -> None:
    orders = (SURFACE, dict(reversed(SURFACE.items())))
    files = [write(tmp_path / f"{k}.nc", names, time=k) for k, names in enumerate(orders)]
    assert not gridref.plan(files, "time").report.of_cause("flags")
    gridref.build(files, tmp_path / "c.gridref", "time")
    expected = np.concatenate([words_of(file, SURFACE) for file in files])
    for door in ("zarr", "gridref"):
        np.testing.assert_array_equal(
            words_in(opened(tmp_path / "c.gridref", door).surface), expected
        )


MISSING = (
    np.float64(-1.0), np.float32(-1.5), np.float64(254.5), np.inf, -np.inf, np.nan,
    np.float64(1e30), np.int16(255), np.int16(-1), np.float64([-1.0]),
)  # fmt: skip
VIEWS = ("direct", "portable")
STORED = np.array([0, 1, 100, 127, -1, -128, -2], "i1")


def made(path: Path, dtype: str, unsigned: str | None, scale: float) -> Path:
    """A variable for each missing value."""
    attrs: dict[str, object] = {"scale_factor": np.float64(scale)}
    attrs |= {} if unsigned is None else {"_Unsigned": unsigned}
    labels = {"x": np.arange(7.0) + 7 * (scale != 0.5)}
    variables = {
        f"v{number}": (
            ["x"],
            STORED.astype(dtype),
            {**attrs, "missing_value": missing},
            {"chunks": (3,)},
        )
        for number, missing in enumerate(MISSING)
    }
    return write_hdf5(path, labels, variables)


@pytest.mark.long(but=2)
@pytest.mark.filterwarnings("ignore")  # xarray's, of what it makes of such values
@pytest.mark.parametrize("dtype", ["i1", "u1"])
@pytest.mark.parametrize("unsigned", ["true", "false", None])
@pytest.mark.parametrize("n_files", [1, 2])
def test_doors_read_what_xarray_reads(tmp_path, dtype, unsigned, n_files):
    """Of two files, packings differ, and gridref unpacks."""
    scales = (0.5, 0.25)[:n_files]
    files = [made(tmp_path / f"{scale}.nc", dtype, unsigned, scale) for scale in scales]
    catalog = tmp_path / "cube.gridref"
    gridref.build(files, catalog, "x")
    parts = [xr.open_dataset(file) for file in files]
    expected = {
        f"v{number}": np.concatenate([part[f"v{number}"] for part in parts])
        for number in range(len(MISSING))
    }
    doors = {view: gridref.open_store(catalog, view=view) for view in VIEWS}
    if n_files == 1:
        doors["native"] = gridref.open_store(catalog, view="native")
    with running(create_app({"cube": str(catalog)})) as url:
        doors |= {"url": f"gridref::file://{catalog}", "http": f"{url}/cube/portable"}
        read = {
            door: xr.open_zarr(store, chunks=None, consolidated=False).load()
            for door, store in doors.items()
        }
    read["engine"] = xr.open_dataset(catalog, engine="gridref")
    for door, dataset in read.items():
        for name, values in expected.items():
            assert dataset[name].dtype == values.dtype, (door, name)
            assert np.array_equal(dataset[name].values, values, equal_nan=True), (door, name)


INFINITE = (
    {"missing_value": np.inf},
    {"missing_value": -np.inf, "_FillValue": np.float32(1)},
    {"missing_value": np.array([np.inf, -1.0])},
    {"missing_value": np.array([np.nan, -1.0])},
    {"missing_value": np.array([2.0, np.inf, np.nan]), "_FillValue": np.float32(np.nan)},
    {"missing_value": np.array([2.0, np.inf]), "_FillValue": np.float32(1e30)},
    {"missing_value": np.float32(2), "_FillValue": np.float32(np.inf)},
)


@pytest.mark.filterwarnings("ignore")  # xarray's, of several fill values
@pytest.mark.parametrize("number", range(len(INFINITE)))
@pytest.mark.parametrize("scale", [None, 0.5])
def test_missing_values_of_floats_that_are_not_finite(tmp_path, number, scale):
    """JSON has no such numbers, and the texts in their place equal no element."""
    with h5py.File(tmp_path / "a.nc", "w") as file:
        data = file.create_dataset("v", data=np.float32([0, 1, 2, -1, 1e30, np.inf, -np.inf]))
        data.attrs.update(INFINITE[number] | ({} if scale is None else {"scale_factor": scale}))
    expected = xr.open_dataset(tmp_path / "a.nc", engine="h5netcdf", phony_dims="sort")["v"]
    for view in ("auto", "portable"):
        store = gridref.open_store(gridref.scan(tmp_path / "a.nc"), view=view)
        read = xr.open_zarr(store, chunks=None, consolidated=False)["v"]
        np.testing.assert_array_equal(read.values, expected.values)
        assert read.dtype == expected.dtype


def write_texts(path: Path, time: int, x: Sequence[float], fill: str) -> str:
    with netCDF4.Dataset(path, "w") as file:
        for dim, labels in {"time": [time], "x": x}.items():
            file.createDimension(dim, len(labels))
            file.createVariable(dim, "f8", (dim,))[:] = labels
        variable = file.createVariable("name", str, ("time", "x"), fill_value=fill)
        variable[0] = np.array(["a", fill, "b"], object)
    return str(path)


def test_gaps_of_texts_are_missing_texts(tmp_path: Path) -> None:
    files = [write_texts(tmp_path / f"{n}.nc", n, range(n, n + 3), "none") for n in range(2)]
    combine = gridref.CombineOptions(join="outer")
    gridref.build(files, tmp_path / "a.gridref", concat_dim="time", combine=combine)
    found = xr.open_dataset(tmp_path / "a.gridref", engine="gridref")["name"]
    opened = [xr.open_dataset(file) for file in files]
    expected = xr.concat(opened, "time", join="outer")["name"]
    assert expected.isnull().sum() == 4
    xr.testing.assert_equal(found.load(), expected)


def test_texts_that_mean_missing_in_one_file_only_are_a_problem(tmp_path: Path) -> None:
    files = [
        write_texts(tmp_path / f"{n}.nc", n, range(3), fill)
        for n, fill in enumerate(["none", "nil"])
    ]
    with pytest.raises(CombineError, match="texts for missing values are not replaced"):
        gridref.build(files, tmp_path / "a.gridref", concat_dim="time")
