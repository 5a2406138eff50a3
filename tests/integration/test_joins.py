"""What xarray calls joining, merging and comparing means the same for virtual datasets."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.errors import CombineError
from gridref.faces.xarray.duck_array import VirtualDuckArray
from gridref.model.array import VirtualArray
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly
from tests.by_name import by_name

JOINS = ["outer", "inner", "left", "right"]
GRIDS: dict[str, tuple[list[float], ...]] = {
    "wider": ([10, 20, 30], [0, 10, 20, 30, 40], [10, 20, 30]),
    "shifted": ([10, 20, 30], [20, 30, 40], [30, 40, 50]),
    "falling": ([30, 20, 10], [40, 30, 20], [30, 20, 10, 0]),
    "finer": ([0, 10, 20], [0, 5, 10, 15, 20], [20]),
    "apart": ([1, 2], [3, 4], [5, 6]),
    "unsorted": ([3, 1, 2], [2, 3, 1], [1, 5, 3]),
}

ENCODINGS: dict[str, dict[str, Any]] = {
    "f4": {"dtype": "f4"},
    "packed": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -9},
    "i4": {"dtype": "i4"},
}


def write(
    folder: Path,
    grids: Sequence[Sequence[float]],
    encoding: dict[str, Any] | None = None,
    *,
    lons: Sequence[Sequence[float]] | None = None,
    static: bool = False,
) -> list[Path]:
    files = []
    for number, lat in enumerate(grids):
        lon = [1.0, 2.0] if lons is None else lons[number]
        time = [2 * number, 2 * number + 1]
        shape = (2, len(lat), len(lon))
        data = np.arange(np.prod(shape)).reshape(shape) % 50 + 10.0 * number
        ds = xr.Dataset(
            {"t": (("time", "lat", "lon"), data)},
            {"time": time, "lat": np.asarray(lat, "f8"), "lon": np.asarray(lon, "f8")},
        )
        if static:
            ds["height"] = ("lat", 2.0 * ds.lat.values, {"units": "m"})
        path = folder / f"{number}.nc"
        ds.to_netcdf(path, encoding={"t": encoding or {}})
        files.append(path)
    return files


def expected_of(files: list[Path], **options: Any) -> xr.Dataset:
    how = {"combine": "nested", "concat_dim": "time", "data_vars": "minimal", "coords": "minimal"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with xr.open_mfdataset(files, **how | options) as found:
            return found.load()


def cube_of(files: list[Path], folder: Path, **options: Any) -> xr.Dataset:
    catalog = folder / "cube.gridref"
    gridref.build(files, catalog, "time", **by_name(overwrite=True, **options))
    return xr.open_zarr(f"gridref::{catalog}", chunks=None).load()


def assert_same(found: xr.Dataset, expected: xr.Dataset) -> None:
    assert set(found.variables) == set(expected.variables)
    for name, variable in expected.variables.items():
        assert found[name].dims == variable.dims
        np.testing.assert_array_equal(found[name].values, variable.values, str(name))


@pytest.mark.long(but=12)
@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize(
    ("grids", "encoding"),
    [*product(GRIDS, ["packed"]), *product(["wider", "apart"], ["f4", "i4"])],
)
def test_unlike_grids_are_joined_like_xarray(
    tmp_path: Path, join: str, grids: str, encoding: str
) -> None:
    files = write(tmp_path, GRIDS[grids], ENCODINGS[encoding])
    expected = expected_of(files, join=join, compat="override")
    assert_same(cube_of(files, tmp_path, join=join), expected)


@pytest.mark.parametrize("join", JOINS)
def test_two_dimensions_at_once(tmp_path: Path, join: str) -> None:
    files = write(tmp_path, GRIDS["shifted"], lons=[[1, 2], [2, 3, 4], [0, 1, 2]])
    expected = expected_of(files, join=join, compat="override")
    assert_same(cube_of(files, tmp_path, join=join), expected)


@pytest.mark.parametrize("join", JOINS)
def test_variables_without_the_dimension_are_put_together(tmp_path: Path, join: str) -> None:
    files = write(tmp_path, GRIDS["wider"], static=True)
    expected = expected_of(files, join=join, compat="no_conflicts")
    assert_same(cube_of(files, tmp_path, join=join), expected)
    first = expected_of(files, join=join, compat="override")
    assert_same(cube_of(files, tmp_path, join=join, compat="override"), first)


def test_variables_that_contradict_each_other_are_a_problem(tmp_path: Path) -> None:
    files = write(tmp_path, GRIDS["wider"], static=True)
    with xr.open_dataset(files[1]) as ds:
        changed = ds.load().assign(height=ds.height + 1)
    changed.to_netcdf(files[1])
    with pytest.raises(CombineError, match="height: its values differ"):
        cube_of(files, tmp_path, join="outer")


def test_overriding_takes_the_first_labels(tmp_path: Path) -> None:
    files = write(tmp_path, [[10, 20], [10.001, 20.001], [10, 20]])
    expected = expected_of(files, join="override", compat="override")
    assert_same(cube_of(files, tmp_path, join="override"), expected)
    unlike = write(tmp_path, [[10, 20], [10, 20, 30]])
    with pytest.raises(CombineError, match="sizes along"):
        cube_of(unlike, tmp_path, join="override")


@pytest.mark.parametrize("labels", [[10.0, 10.0], [10.0, np.nan]])
def test_labels_that_repeat_or_are_none_are_not_joined(tmp_path: Path, labels: list[float]) -> None:
    files = write(tmp_path, [[10.0, 20.0], labels])
    with pytest.raises(CombineError, match="lat: its labels differ"):
        cube_of(files, tmp_path, join="outer")


def test_exact_is_the_default(tmp_path: Path) -> None:
    files = write(tmp_path, GRIDS["shifted"])
    with pytest.raises(CombineError, match=r"lat: .*differ"):
        cube_of(files, tmp_path)


@pytest.mark.parametrize("join", JOINS)
def test_drift_of_packing_and_grid_together(tmp_path: Path, join: str) -> None:
    (tmp_path / "b").mkdir()
    one = write(tmp_path, GRIDS["shifted"][:1], ENCODINGS["packed"])
    two = write(tmp_path / "b", GRIDS["shifted"][1:], {"dtype": "i4", "_FillValue": 99})
    files = [*one, *two]
    expected = expected_of(files, join=join, compat="override")
    assert_same(cube_of(files, tmp_path, join=join, overlap="keep"), expected)


@pytest.mark.parametrize("join", JOINS)
def test_batches_join_like_one(tmp_path: Path, join: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gridref.combine.combining.BATCH_GROUPS", 2)
    grids = [*GRIDS["wider"], *GRIDS["shifted"]]
    files = write(tmp_path, grids, static=True)
    expected = expected_of(files, join=join, compat="no_conflicts")
    assert_same(cube_of(files, tmp_path, join=join), expected)


def test_joined_labels_are_reported(tmp_path: Path) -> None:
    files = write(tmp_path, GRIDS["wider"])
    report = gridref.plan(files, "time", combine=gridref.CombineOptions(join="outer")).report
    (drift,) = report.of_cause("labels")
    assert drift.variable == "lat"
    assert [case.ranges for case in drift.cases] == [((0, 0), (2, 2)), ((1, 1),)]
    assert drift.resolution == "join='outer': 5 labels, 0.0 to 40.0"


def test_labels_of_the_root_hold_in_groups(tmp_path: Path) -> None:
    files = []
    for number, lat in enumerate(([1.0, 2.0], [2.0, 3.0])):
        below = xr.Dataset({"v": (("time", "lat"), [[10.0 * number, 10.0 * number + 1]])})
        root = xr.Dataset(coords={"lat": lat, "time": [number]})
        path = tmp_path / f"{number}.nc"
        xr.DataTree.from_dict({"/": root, "/g": below}).to_netcdf(path)
        files.append(path)
    tree = gridref.open_virtual_datatree(files, "time", join="outer")
    assert tree.lat.values.tolist() == [1, 2, 3]
    np.testing.assert_array_equal(tree["g/v"].values, [[0, 1, np.nan], [np.nan, 10, 11]])


def test_groups_with_labels_of_their_own_are_left_alone() -> None:
    def part(number: int, *lats: list[float], bare: bool = False) -> gridref.VirtualGroup:
        def level(lat: list[float], labelled: bool) -> dict[str, VirtualArray]:
            rows = np.arange(float(len(lat)))[np.newaxis] + 10 * number
            arrays = {"v": chunked_array(rows, (1, 2), ("time", "lat"))}
            if labelled:
                arrays["lat"] = VirtualArray.from_numpy(np.array(lat), ("lat",))
            return arrays

        root, below = lats
        inner = gridref.VirtualGroup(level(below, not bare))
        return gridref.VirtualGroup(level(root, True), {"g": inner})

    for bare in (False, True):
        grids = [
            part(0, [1.0, 2], [7.0, 8, 9], bare=bare),
            part(1, [2.0, 1], [7.0, 8, 9], bare=bare),
        ]
        for join in ("exact", "outer"):
            cube = gridref.concat(grids, "time", join=join)
            assert read_slowly(cube["v"]).tolist() == [[0, 1], [11, 10]]
            assert read_slowly(cube["g/v"]).tolist() == [[0, 1, 2], [10, 11, 12]]
        grids[1] = part(1, [2.0, 3], [7.0, 8, 9], bare=bare)
        cube = gridref.concat(grids, "time", join="outer")
        np.testing.assert_array_equal(read_slowly(cube["v"]), [[0, 1, np.nan], [np.nan, 10, 11]])
        assert read_slowly(cube["g/v"]).tolist() == [[0, 1, 2], [10, 11, 12]]


# What open_virtual_mfdataset takes over from xarray


@pytest.mark.parametrize("rule", ["minimal", "different", "all"])
@pytest.mark.parametrize("what", ["data_vars", "coords"])
def test_repeating_variables_without_the_dimension(tmp_path: Path, rule: str, what: str) -> None:
    files = []
    for number in range(3):
        static = xr.Dataset(
            {
                "t": (("time", "x"), np.full((2, 3), number, "f4")),
                "same": ("x", [1.0, 2, 3]),
                "other": ("x", [1.0, 2, 3 + (rule == "different") * number]),
            },
            {"time": [2 * number, 2 * number + 1]},
        )
        ds = static.set_coords(["same", "other"]) if what == "coords" else static
        ds.to_netcdf(tmp_path / f"{number}.nc")
        files.append(tmp_path / f"{number}.nc")
    options = {"data_vars": "minimal", "coords": "minimal"} | {what: rule}
    found = gridref.open_virtual_mfdataset(files, "time", combine="nested", **options)
    expected = expected_of(files, compat="equals", join="exact", **options)
    for name in ("t", "same", "other"):
        assert found[name].dims == expected[name].dims, name
        np.testing.assert_array_equal(found[name].values, expected[name].values)
    assert set(found.coords) == set(expected.coords)


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("combine", ["nested", "by_coords"])
def test_joins_of_virtual_datasets(tmp_path: Path, join: str, combine: Any) -> None:
    files = write(tmp_path, GRIDS["falling"])
    dim = "time" if combine == "nested" else None
    if combine == "by_coords":
        files = [files[2], files[0], files[1]]
    found = gridref.open_virtual_mfdataset(files, "time", combine=combine, join=join)
    ordered = sorted(files)
    assert isinstance(found.t.variable.data, VirtualDuckArray)
    assert_same(found.load(), expected_of(ordered, join=join, compat="override"))
    assert dim in (None, "time")


@pytest.mark.parametrize("rule", ["override", "drop", "drop_conflicts"])
def test_attributes_are_combined_like_xarray(tmp_path: Path, rule: str) -> None:
    files = write(tmp_path, [[10, 20]] * 2)
    for number, path in enumerate(files):
        with xr.open_dataset(path) as ds:
            changed = ds.load().assign_attrs(title="x", n=number)
        changed.t.attrs |= {"units": "K", "source": f"s{number}"} | ({"late": 1} if number else {})
        changed.to_netcdf(path)
    found = gridref.open_virtual_mfdataset(files, "time", combine="nested", combine_attrs=rule)
    expected = expected_of(files, combine_attrs=rule, join="exact", compat="override")
    assert found.attrs == expected.attrs
    names = {"units", "source", "late"}
    assert {key: value for key, value in found.t.attrs.items() if key in names} == {
        key: value for key, value in expected.t.attrs.items() if key in names
    }
    for strict in ("identical", "no_conflicts"):
        with pytest.raises(CombineError, match="attributes"):
            gridref.open_virtual_mfdataset(files, "time", combine="nested", combine_attrs=strict)


@pytest.mark.parametrize(
    "layout",
    [
        {"concat_dim": "time"},
        {"combine": "by_coords"},
        {"concat_dim": ["time"], "combine": "by_coords"},
    ],
    ids=str,
)
def test_overriding_variables_leaves_labels_of_dimensions(
    tmp_path: Path, layout: dict[str, Any]
) -> None:
    reversed_labels = [[10, 20, 30], [30, 20, 10]]
    files = write(tmp_path, reversed_labels, static=True)
    gridref.build(files, tmp_path / "a.gridref", **by_name(**layout, compat="override"))
    cube = xr.open_zarr(f"gridref::{tmp_path / 'a.gridref'}", chunks=None)
    for path in files:
        with xr.open_dataset(path) as own:
            assert_same(cube.sel(time=own.time, lat=own.lat)[["t"]].load(), own[["t"]].load())
    assert gridref.plan(files, **by_name(**layout, compat="override")).report.of_cause("direction")
    files = write(tmp_path, [[10, 20, 30], [15, 25, 35]])
    with pytest.raises(CombineError, match=r"lat: its labels differ .*join='outer'"):
        gridref.build(files, tmp_path / "b.gridref", **by_name(**layout, compat="override"))
