"""`gridref.open_mfdataset` beside `xarray.open_mfdataset`, on the same files and arguments."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.api import kept_scans
from gridref.errors import CombineError, InvalidRequestError, SkippedFilesWarning

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

DAYS = {"units": "days since 2001-01-01", "calendar": "standard"}
PACKED = {"scale_factor": 0.1, "add_offset": 20.0, "_FillValue": np.int16(-9), "dtype": "i2"}


def part(number: int) -> xr.Dataset:
    values = np.round(20 + 10.0 * number + np.arange(6.0).reshape(2, 3), 1)
    values[0, 0] = np.nan
    ds = xr.Dataset(
        {
            "t": (("time", "lat"), values, {"units": "K"}),
            "mask": (("lat",), np.array([1, 2, 3], "i4")),
            "name": (("lat",), np.array(["a", "b", "c"], object)),
        },
        {
            "time": ("time", np.arange(2) + 2 * number, DAYS),
            "lat": [1.0, 2, 3],
            "height": (("lat",), [5.0, 6, 7 + number]),
            "level": ((), 9.0),
        },
        {"title": "a test", "number": number},
    )
    ds["t"].encoding = PACKED
    return ds


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts")
    for number in range(3):
        part(number).to_netcdf(folder / f"part{number}.nc")
    return folder


@pytest.fixture
def files(written: Path, tmp_path: Path) -> list[Path]:
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return sorted(tmp_path.glob("part*.nc"))


def changed(ds: xr.Dataset) -> xr.Dataset:
    name = os.path.basename(ds.encoding["source"])
    ds = ds.rename(t="temperature").drop_vars("name").isel(lat=slice(None, None, 2))
    return ds.assign_attrs(source=name).assign_coords(level=int(name[4]))


NESTED: dict[str, Any] = {"combine": "nested", "concat_dim": "time"}
CASES: list[dict[str, Any]] = [
    {},
    {"decode_times": False},
    {"mask_and_scale": False},
    {"drop_variables": ["name", "height"]},
    {"drop_variables": "height", "coords": "minimal", "compat": "equals"},  # which differs
    {"data_vars": "minimal", "coords": "minimal", "compat": "override"},
    {"data_vars": "minimal", "coords": "all"},
    {"data_vars": "different", "coords": "different", "compat": "equals"},
    {"combine_attrs": "drop_conflicts"},
    {"combine_attrs": "drop"},
    {"join": "exact"},
    {"attrs_file": 1},
    {"preprocess": changed},
    NESTED,
    {**NESTED, "data_vars": "minimal", "coords": "minimal", "compat": "override"},
    {**NESTED, "preprocess": changed},
    {**NESTED, "concat_dim": "run", "preprocess": lambda ds: ds.isel(time=0, drop=True)},
    {**NESTED, "preprocess": lambda ds: ds[["t"]].sel(lat=[1, 3])},
]


def assert_as_xarray(files: Any, **options: Any) -> xr.Dataset:
    found = gridref.open_mfdataset(files, **options)
    assert not any(variable.chunks for variable in found.variables.values())
    with xr.open_mfdataset(files, **options) as expected:
        xr.testing.assert_identical(found.compute(), expected.compute())
        assert set(found.coords) == set(expected.coords)
        for name, variable in expected.variables.items():
            assert found[name].dtype == variable.dtype, name
    return found


def in_every_process(options: dict[str, Any]) -> str:
    """The name of a case; functions have another address in each process."""
    return re.sub(r" at 0x\w+", "", str(options))


@pytest.mark.parametrize("options", CASES, ids=in_every_process)
def test_it_gives_what_xarray_gives(files: list[Path], options: dict[str, Any]) -> None:
    if "attrs_file" in options:
        options = {"attrs_file": str(files[options["attrs_file"]])}
    assert_as_xarray(files, **options)


def test_defaults_to_come_are_those_of_xarray(files: list[Path]) -> None:
    with xr.set_options(use_new_combine_kwarg_defaults=True):
        assert_as_xarray(files[:1] * 1)
        assert_as_xarray(files, preprocess=lambda ds: ds.drop_vars("height"))


def test_files_in_any_order_and_as_a_pattern(files: list[Path], tmp_path: Path) -> None:
    assert_as_xarray(files[::-1])
    assert_as_xarray(f"{tmp_path}/part*.nc")


def test_lists_of_lists(tmp_path: Path) -> None:
    rows = []
    for row in range(2):
        rows.append([])
        for column in range(2):
            ds = part(column).drop_vars(["mask", "name", "height"])
            ds["t"] = ds["t"] + 100 * row
            ds.to_netcdf(tmp_path / f"{row}{column}.nc")
            rows[-1].append(str(tmp_path / f"{row}{column}.nc"))
    assert_as_xarray(rows, combine="nested", concat_dim=["run", "time"])


def test_labels_and_variables_that_some_files_lack(tmp_path: Path) -> None:
    one, other = part(0).drop_vars("height"), part(1).drop_vars(["height", "mask", "name"])
    one.to_netcdf(tmp_path / "0.nc")
    other.isel(lat=slice(0, 2)).to_netcdf(tmp_path / "1.nc")
    files = sorted(tmp_path.glob("*.nc"))
    keep = {"preprocess": lambda ds: ds[["t"]]}
    assert_as_xarray(files, **keep)
    assert_as_xarray(files, join="inner", **keep)
    for call in (gridref.open_mfdataset, xr.open_mfdataset):
        with pytest.raises((xr.AlignmentError, ValueError)):
            call(files, join="exact", **keep)


def test_what_does_not_fit_is_an_error_of_both(tmp_path: Path) -> None:
    part(0).to_netcdf(tmp_path / "0.nc")
    (part(0) * 2).to_netcdf(tmp_path / "1.nc")
    files = sorted(tmp_path.glob("*.nc"))
    for call in (gridref.open_mfdataset, xr.open_mfdataset):
        with pytest.raises(ValueError, match=r"t: |dimension"):
            call(files)
    with pytest.raises(CombineError) as error:
        gridref.open_mfdataset(files)
    assert isinstance(error.value, xr.MergeError)


def test_a_file_of_static_variables_beside_a_series(tmp_path: Path) -> None:
    part(0)[["mask", "name"]].drop_vars(["time", "height"], errors="ignore").rename(
        mask="orog"
    ).to_netcdf(tmp_path / "fx.nc")
    for number in range(2):
        part(number)[["t"]].to_netcdf(tmp_path / f"t{number}.nc")
    assert_as_xarray(sorted(tmp_path.glob("*.nc")))


def test_advice_names_options_that_the_call_has(tmp_path: Path) -> None:
    for number in range(2):
        values = np.arange(4.0) + 10 * number
        xr.Dataset({"v": ("step", values)}).to_netcdf(tmp_path / f"{number}.nc")
        ds = part(number).drop_vars("height")
        ds = ds.assign(area=("lat", ds["lat"].values + number))
        ds.to_netcdf(tmp_path / f"area{number}.nc")
    plain, areas = sorted(tmp_path.glob("?.nc")), sorted(tmp_path.glob("area?.nc"))
    with pytest.raises(CombineError, match=r"concat_dim=... and combine='nested' stacks the files"):
        gridref.open_mfdataset(plain)
    for dim in ("step", "file"):
        assert_as_xarray(plain, concat_dim=dim, combine="nested")
    kept = {"data_vars": "minimal", "coords": "minimal"}
    with pytest.raises(
        CombineError, match=r"area: .*; data_vars='different' or coords='different'"
    ):
        gridref.open_mfdataset(areas, **kept)
    assert_as_xarray(areas, **{**kept, "data_vars": "different"})
    with pytest.raises(CombineError, match=r"gridref.build with layout=Ragged\(\) keeps all"):
        gridref.open_mfdataset([plain[0], shorter(plain[1])])


def shorter(path: Path) -> Path:
    with xr.open_dataset(path) as ds:
        ds.isel(step=slice(2)).to_netcdf(path.with_name("short.nc"))
    return path.with_name("short.nc")


def test_a_group_of_each_file(tmp_path: Path) -> None:
    for number in range(3):
        part(number).to_netcdf(tmp_path / f"{number}.nc", group="model/daily")
    assert_as_xarray(sorted(tmp_path.glob("*.nc")), group="model/daily")


def test_chunks_are_for_dask(files: list[Path]) -> None:
    ds = gridref.open_mfdataset(files, chunks={"time": 3})
    assert ds["t"].chunks == ((3, 3), (3,))
    with xr.open_mfdataset(files) as expected:
        xr.testing.assert_identical(ds.compute(), expected.compute())


def test_files_that_fail_are_left_out_if_asked(files: list[Path], tmp_path: Path) -> None:
    bad = tmp_path / "part3.nc"
    bad.write_bytes(files[0].read_bytes()[:500])
    with pytest.raises(gridref.errors.ScanError, match="part3"):
        gridref.open_mfdataset([*files, bad])
    with pytest.warns(SkippedFilesWarning, match="part3"):
        found = gridref.open_mfdataset([*files, bad], errors="warn")
    with xr.open_mfdataset(files) as expected:
        xr.testing.assert_identical(found.compute(), expected.compute())


def test_wrong_arguments_are_refused(files: list[Path]) -> None:
    with pytest.raises(InvalidRequestError, match="combine='nested'"):
        gridref.open_mfdataset(files, concat_dim="time")
    with pytest.raises(InvalidRequestError, match="attrs_file is not one of the files"):
        gridref.open_mfdataset(files[:2], attrs_file=files[2])
    with pytest.raises(InvalidRequestError, match="compatt"):
        gridref.open_mfdataset(files, compatt="equals")


@pytest.mark.parametrize(
    "change",
    [
        lambda ds: ds,
        lambda ds: ds.rename(t="temperature", lat="latitude"),
        lambda ds: ds.drop_vars(["mask", "name"]),
        lambda ds: ds.isel(time=slice(1, 5, 2), lat=[2, 0]),
        lambda ds: ds.sel(time="2001-01-03"),
        lambda ds: ds.assign_attrs(title="other").assign_coords(run=7),
        lambda ds: ds.assign(double=ds["mask"] * 2),
    ],
)
def test_what_a_user_made_of_it_is_kept(
    files: list[Path], tmp_path: Path, change: Callable[[xr.Dataset], xr.Dataset]
) -> None:
    made = change(gridref.open_mfdataset(files))
    made.gridref.save(tmp_path / "cube.gridref")
    with xr.open_mfdataset(files) as ds, xr.open_dataset(tmp_path / "cube.gridref") as kept:
        name = "t" if "t" in kept else "temperature"
        assert kept.gridref.plan().loc[name, "n_files"] > 0  # references, no copies
        xr.testing.assert_identical(kept.load(), change(ds).compute())


def test_values_that_a_user_computed_are_kept_by_value(files: list[Path], tmp_path: Path) -> None:
    def change(ds: xr.Dataset) -> xr.Dataset:
        return ds[["t"]].transpose("lat", "time").assign(double=ds["t"] * 2)

    change(gridref.open_mfdataset(files)).gridref.save(tmp_path / "cube.gridref")
    with xr.open_mfdataset(files) as ds, xr.open_dataset(tmp_path / "cube.gridref") as kept:
        xr.testing.assert_identical(kept.load(), change(ds).compute())


def test_dropped_attributes_change_no_values(files: list[Path], tmp_path: Path) -> None:
    gridref.build(
        files,
        tmp_path / "cube.gridref",
        combine=gridref.CombineOptions(combine_attrs="drop", variables="different"),
    )
    how = {"data_vars": "minimal", "combine_attrs": "drop"}
    with xr.open_mfdataset(files, **how) as ds, xr.open_dataset(tmp_path / "cube.gridref") as cube:
        xr.testing.assert_equal(cube.load(), ds.load())


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"scale_factor": 0.25}, id="scale-corrected"),
        pytest.param({"add_offset": -3.5}, id="offset-added"),
        pytest.param({"_FillValue": np.int16(4)}, id="fill-corrected"),
        pytest.param({"missing_value": np.int16(5)}, id="missing-added"),
        pytest.param({"_Unsigned": "true"}, id="unsigned-added"),
        pytest.param({"scale_factor": None}, id="scale-deleted"),
        pytest.param({"scale_factor": None, "units": "days since 1999-01-01"}, id="times-made"),
        pytest.param({"long_name": None}, id="name-deleted"),
    ],
)
def test_values_stay_when_attributes_are_corrected(
    tmp_path: Path, change: Mapping[str, Any]
) -> None:
    packed = xr.Dataset({"v": ("x", np.arange(-2, 6, dtype="i2"), {"long_name": "value"})})
    packed["v"].attrs |= {"scale_factor": 0.5, "_FillValue": np.int16(-1)}
    packed.to_netcdf(tmp_path / "part.nc")

    def corrected(ds: xr.Dataset) -> xr.Dataset:
        attrs = {**ds["v"].attrs, **change}
        ds["v"].attrs = {name: value for name, value in attrs.items() if value is not None}
        return xr.decode_cf(ds)

    bare = {"mask_and_scale": False, "decode_times": False}
    with xr.open_dataset(tmp_path / "part.nc", **bare) as ds:
        expected = corrected(ds).load()
    for name in ("cube", "bare"):
        with xr.open_dataset(tmp_path / "part.nc", engine="gridref", **bare) as ds:
            shown = corrected(ds) if name == "cube" else corrected(ds).drop_encoding()
            shown.gridref.save(tmp_path / name)
        with xr.open_dataset(tmp_path / name, engine="gridref") as kept:
            assert kept.gridref.plan().loc["v", "n_files"] == 1  # a reference, no copy
            if name == "cube" or "_Unsigned" not in change:
                xr.testing.assert_identical(kept.load(), expected)


def test_encodings_for_other_files_change_no_values(files: list[Path], tmp_path: Path) -> None:
    with xr.open_dataset(files[0], engine="gridref") as ds:
        expected = ds.load()
    with xr.open_dataset(files[0], engine="gridref") as ds:
        ds["t"].encoding |= {"scale_factor": 8.0, "add_offset": 1.0, "_FillValue": np.int16(0)}
        ds.gridref.save(tmp_path / "first.gridref")
        ds.drop_encoding().gridref.save(tmp_path / "second.gridref")
    for name in ("first", "second"):
        with xr.open_dataset(tmp_path / f"{name}.gridref") as kept:
            xr.testing.assert_equal(kept.load(), expected)


def test_the_engine_opens_files_for_xarray(files: list[Path]) -> None:
    for options in ({}, NESTED, {"preprocess": changed}):
        with (
            xr.open_mfdataset(files, engine="gridref", **options) as found,
            xr.open_mfdataset(files, engine="netcdf4", **options) as expected,
        ):
            xr.testing.assert_identical(found.compute(), expected.compute())


def test_trees_of_many_files(tmp_path: Path) -> None:
    for number in range(3):
        path = tmp_path / f"{number}.nc"
        part(number).drop_vars("height").to_netcdf(path)
        part(number)[["t"]].drop_vars(["height", "level"]).to_netcdf(path, group="below", mode="a")
    files = sorted(tmp_path.glob("*.nc"))
    for options in ({}, {"concat_dim": "time"}):
        tree = gridref.open_mfdatatree(files, **options)
        for group in ("/", "/below"):
            how = {"data_vars": "minimal", "coords": "minimal", "compat": "override"}
            with xr.open_mfdataset(files, group=group, **how) as expected:
                xr.testing.assert_equal(tree[group].to_dataset().compute(), expected.compute())
    tree = gridref.open_mfdatatree(
        files, preprocess=lambda tree: tree.map_over_datasets(lambda ds: ds.isel(lat=[0]))
    )
    assert tree["below/t"].shape == (6, 1)
    tree.gridref.save(tmp_path / "cube.gridref")
    with xr.open_datatree(tmp_path / "cube.gridref") as kept:
        xr.testing.assert_identical(kept.load(), tree.load())


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    "name", ["ecearth_tas_uneven", "inm_rlds_uneven", "roms_his_4", "sam0_siconc_uneven"]
)
def test_real_files(shared_data: Path, name: str) -> None:
    files = sorted((shared_data / "families" / name).iterdir())
    how = {"data_vars": "minimal", "coords": "minimal", "compat": "override"}
    if name == "roms_his_4":
        how |= {"combine": "nested", "concat_dim": "ocean_time"}
    assert_as_xarray(files, **how)


# Scans that are kept


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder, where every scan is worth keeping."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kept_scans, "_WORTH_SECONDS", 0.0)
    return tmp_path / "cache" / "gridref" / "scans"


def kept(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if path.is_file())


def test_files_that_have_not_changed_are_not_scanned_again(files: list[Path], cache: Path) -> None:
    gridref.open_mfdataset(files)
    first = kept(cache)
    assert len(first) == 3
    found = gridref.open_mfdataset(files)
    assert kept(cache) == first
    with xr.open_mfdataset(files) as expected:
        xr.testing.assert_identical(found.compute(), expected.compute())
    (part(1) * 2).to_netcdf(files[1])
    with xr.open_mfdataset(files) as expected:
        found = gridref.open_mfdataset(files)
        xr.testing.assert_identical(found.compute(), expected.compute())


def test_quick_scans_and_those_not_wanted_are_not_kept(
    files: list[Path], cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gridref.open_mfdataset(files, work=False)
    assert not kept(cache)
    gridref.open_mfdataset(files, work=tmp_path / "mine")
    assert not kept(cache)
    assert len(kept(tmp_path / "mine")) == 3
    monkeypatch.setattr(kept_scans, "_WORTH_SECONDS", 1000.0)
    gridref.open_mfdataset(files)
    assert not kept(cache)


def test_the_folder_is_bounded(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        part(number).to_netcdf(tmp_path / f"{number}.nc")
    gridref.open_mfdataset(sorted(tmp_path.glob("*.nc")))
    n_bytes = max(path.stat().st_size for path in kept(cache))
    for path in kept(cache):
        path.unlink()
    monkeypatch.setattr(kept_scans, "_MOST_BYTES", 10 * n_bytes)
    monkeypatch.setattr(kept_scans, "_FOLDERS", 10)  # each holds one
    gridref.open_mfdataset(sorted(tmp_path.glob("*.nc")))
    for folder in cache.iterdir():
        assert sum(path.stat().st_size for path in folder.iterdir()) <= n_bytes


def test_where_no_folder_can_be_written_nothing_is_kept(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert kept_scans.user_folder() is None
    with xr.open_mfdataset(files) as expected:
        xr.testing.assert_identical(gridref.open_mfdataset(files).compute(), expected.compute())
