"""Virtual datasets and trees do what xarray does, and stay virtual."""

from __future__ import annotations

import json
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray

import gridref
from gridref.errors import CombineError, InvalidRequestError, NotRepresentableError
from gridref.faces.xarray.duck_array import NoValuesError, VirtualDuckArray

HOW = {
    "data_vars": "minimal",
    "coords": "minimal",
    "compat": "override",
    "combine_attrs": "override",
}


@pytest.fixture(scope="module")
def files(sample_data: Path) -> list[str]:
    return sorted(map(str, sample_data.glob("daily_*.nc")))


@pytest.fixture(scope="module")
def parts(files: list[str]) -> list[xr.Dataset]:
    return [gridref.open_virtual_dataset(file) for file in files]


@pytest.fixture(scope="module")
def truth(files: list[str]) -> xr.Dataset:
    raw = [xr.open_dataset(file, mask_and_scale=False) for file in files]
    return xr.concat(raw, "time", join="override", **HOW).load()


@pytest.fixture(scope="module")
def cube(parts: list[xr.Dataset]) -> xr.Dataset:
    return xr.concat(parts, "time", join="override", **HOW)


def assert_same(virtual: xr.Dataset, expected: xr.Dataset, *names: str) -> None:
    for name in names or ("tas", "pr"):
        assert isinstance(virtual[name].variable.data, VirtualDuckArray), name
        assert virtual[name].dims == expected[name].dims
        np.testing.assert_array_equal(virtual[name].data.load(), expected[name].values)


def test_index_coordinates_are_loaded_and_decoded(parts: list[xr.Dataset]) -> None:
    first = parts[0]
    assert first.time.dtype.kind == "M"
    assert isinstance(first.tas.variable.data, VirtualDuckArray)
    assert "virtual" in repr(first)


def test_concat_is_exact(cube: xr.Dataset, truth: xr.Dataset) -> None:
    assert_same(cube, truth, "tas", "pr", "lat_bnds")
    assert cube.time.equals(truth.time)


def test_combine_by_coords_orders(parts: list[xr.Dataset], truth: xr.Dataset) -> None:
    combined = xr.combine_by_coords(parts[::-1], join="override", **HOW)
    assert_same(combined, truth)
    assert combined.time.equals(truth.time)


def test_combine_nested_over_two_dimensions(parts: list[xr.Dataset], truth: xr.Dataset) -> None:
    rows = [[part.isel(lat=slice(0, 7)), part.isel(lat=slice(7, None))] for part in parts[:3]]
    tiles = [[tile[["tas", "pr"]] for tile in row] for row in rows]
    combined = xr.combine_nested(tiles, ["time", "lat"], join="override", **HOW)
    n_days = combined.sizes["time"]
    assert_same(combined, truth.isel(time=slice(0, n_days)))


@pytest.mark.parametrize(
    "selection",
    [
        {"time": slice(3, 400, 7), "lat": [1, 3, 5], "lon": slice(None, None, -1)},
        {"time": [5, 1, 300], "lat": [0, 2], "lon": 3},
        {"time": 77},
        {"time": -1, "lat": 0, "lon": 0},
        {"time": slice(0, 0)},
    ],
)
def test_indexing_stays_virtual(
    cube: xr.Dataset, truth: xr.Dataset, selection: dict[str, object]
) -> None:
    assert_same(cube.isel(selection), truth.isel(selection))


def test_merge_and_reindex(cube: xr.Dataset, truth: xr.Dataset) -> None:
    merged = xr.merge([cube[["tas"]], cube[["pr"]]], compat="override", join="override")
    assert_same(merged, truth)
    lat = np.concatenate([truth.lat.values[2:5], [12.25]])
    wide = cube[["tas"]].reindex(lat=lat)
    expected = truth[["tas"]].reindex(lat=lat)
    assert_same(wide, expected, "tas")


def test_stacking_along_a_new_dimension(parts: list[xr.Dataset], truth: xr.Dataset) -> None:
    firsts = [part[["tas"]].isel(time=0, drop=True) for part in parts]
    stacked = xr.concat(firsts, "month", join="override", compat="override", coords="minimal")
    starts = np.cumsum([0, *(part.sizes["time"] for part in parts[:-1])])
    assert isinstance(stacked.tas.variable.data, VirtualDuckArray)
    np.testing.assert_array_equal(stacked.tas.data.load(), truth.tas.values[starts])


def test_variables_that_some_datasets_lack_are_missing_there(
    parts: list[xr.Dataset], truth: xr.Dataset
) -> None:
    names = [["tas", "pr"], ["tas"]]
    pieces = [slice(0, 3), slice(3, 6)]
    found, expected = (
        xr.concat([ds[own].isel(time=at) for own, at in zip(names, pieces, strict=True)], "time")
        for ds in (parts[0], truth)
    )
    assert_same(found, expected)
    assert np.isnan(found.pr.data.load()[3:]).all()


def test_values_load_up_to_a_limit(files: list[str]) -> None:
    small = [gridref.open_virtual_dataset(file, load_limit=1000).tas[:20] for file in files[:2]]
    with pytest.raises(InvalidRequestError, match="limit of 1000"):
        small[0].variable.equals(small[1].variable)
    large = [gridref.open_virtual_dataset(file).tas[:20] for file in files[:2]]
    assert not large[0].variable.equals(large[1].variable)


def test_catalog_and_back(cube: xr.Dataset, files: list[str], tmp_path: Path) -> None:
    address = str(tmp_path / "cube.gridref")
    cube.gridref.save(address)
    with xr.open_mfdataset(
        files, combine="nested", concat_dim="time", join="override", **HOW
    ) as expected:
        xr.testing.assert_equal(xr.open_dataset(address).load(), expected.load())


def test_kerchunk_references_are_read_by_zarr(files: list[str], tmp_path: Path) -> None:
    path = tmp_path / "refs.json"
    gridref.open_virtual_dataset(files[0]).gridref.to_kerchunk(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = xr.open_zarr("reference://", storage_options={"fo": str(path)}).load()
    xr.testing.assert_equal(found, xr.open_dataset(files[0]).load())


def test_kerchunk_refuses_with_the_reason(cube: xr.Dataset) -> None:
    with pytest.raises(NotRepresentableError, match=r"(?s)tas: .*overhangs"):
        cube.gridref.to_kerchunk()


def test_open_virtual_mfdataset_orders_and_reports(files: list[str], truth: xr.Dataset) -> None:
    cube = gridref.open_virtual_mfdataset(files[::-1])
    assert cube.time.equals(truth.time)
    assert_same(cube, truth)
    assert len(cube.encoding["drift"].files) == len(files)
    static = [name for name, v in truth.variables.items() if "time" not in v.dims]
    assert static
    assert not [name for name in static if "time" in cube[name].dims]


def write_tiles(folder: Path, time: list[float], lat: list[float]) -> list[Path]:
    """One file of one step and one row for each place."""
    files = []
    for step in time:
        for row in lat:
            path = folder / f"{len(files)}.nc"
            xr.Dataset(
                {"t": (("time", "lat", "lon"), np.full((1, 2, 3), 100 * step + row))},
                {"time": [step], "lat": [row, row - 1], "lon": [1.0, 2, 3]},
            ).to_netcdf(path)
            files.append(path)
    return files


@pytest.mark.parametrize("shuffle", [1, -1, 2])
def test_labels_that_fall_are_ordered_like_xarray(tmp_path: Path, shuffle: int) -> None:
    files = write_tiles(tmp_path, [1, 2], [30, 28, 26])
    order = files[::shuffle] + ([] if abs(shuffle) == 1 else files[1::shuffle])
    with xr.open_mfdataset(order, **HOW | {"compat": "no_conflicts"}) as expected:
        assert expected.lat.values.tolist() == [30, 29, 28, 27, 26, 25]
        found = gridref.open_virtual_mfdataset(order)
        assert found.lat.values.tolist() == expected.lat.values.tolist()
        assert found.time.values.tolist() == expected.time.values.tolist()
        np.testing.assert_array_equal(found.t.values, expected.t.values)


def test_drift_of_tiles_names_its_files(tmp_path: Path) -> None:
    files = write_tiles(tmp_path, [1, 2, 3], [30, 28])
    for number in (1, 4):
        with xr.open_dataset(files[number]) as ds:
            changed = ds.load().assign(t=ds.t.assign_attrs(note=f"n{number}"))
        changed.to_netcdf(files[number])
    found = gridref.open_virtual_mfdataset(files).encoding["drift"]
    assert found.files == tuple(map(str, files))
    cases = {case.value: case.ranges for drift in found for case in drift.cases}
    assert cases["note = n1"] == ((1, 1),)
    assert cases["note = n4"] == ((4, 4),)
    grid = [files[0:2], files[2:4], files[4:6]]
    nested = gridref.open_virtual_mfdataset(grid, ["time", "lat"], combine="nested")
    assert {c.value: c.ranges for d in nested.encoding["drift"] for c in d.cases} == cases


def test_files_say_which_dimensions_grow_and_which_coordinates_belong_where(tmp_path: Path) -> None:
    written = xr.Dataset(
        {"a": ("t", [0.0, 1.0]), "b": ("t", [2.0, 3.0])},
        {"lat": ("t", [4.0, 5.0]), "lon": ("t", [6.0, 7.0])},
    )
    written["a"].encoding["coordinates"] = "lat"
    written["b"].encoding["coordinates"] = "lat"
    written.to_netcdf(tmp_path / "a.nc", unlimited_dims=["t"])
    virtual = gridref.open_virtual_dataset(tmp_path / "a.nc")
    group = virtual.assign_coords(new=("t", [8.0, 9.0])).gridref.to_group()
    assert group.unlimited_dims == {"t"}
    assert [group[name].attrs["coordinates"] for name in "ab"] == ["lat", "lat"]
    assert group.attrs["coordinates"].split() == ["lon", "new"]
    without = virtual.drop_vars("lat").isel(t=0).gridref.to_group()
    assert without.unlimited_dims == set()
    assert "coordinates" not in without["a"].attrs


def test_a_multi_index_is_refused_by_its_name(tmp_path: Path) -> None:
    values = xr.Dataset(
        {"v": (("y", "x"), np.arange(6.0).reshape(2, 3))}, {"y": [1, 2], "x": range(3)}
    )
    values.to_netcdf(tmp_path / "a.nc")
    stacked = gridref.open_virtual_dataset(tmp_path / "a.nc").stack(z=("y", "x"))
    with pytest.raises(InvalidRequestError, match=r"'z' .*MultiIndex.*reset_index"):
        stacked.gridref.to_group()
    stacked.reset_index("z").gridref.save(tmp_path / "cube.gridref")
    with xr.open_dataset(tmp_path / "cube.gridref") as kept:
        xr.testing.assert_equal(kept.load(), values.stack(z=("y", "x")).reset_index("z"))


FILES = 3


def write_many(folder: Path, kind: str) -> list[Path]:
    """Files of two days each; what has no time is the same, or differs, in the data or coords."""
    paths = []
    for number in range(FILES):
        ds = xr.Dataset(
            {
                "t": (("time", "lat"), 10.0 * number + np.arange(6.0).reshape(2, 3)),
                "mask": (("lat",), np.array([1, 2, 3], "i4") + (number if kind == "data" else 0)),
                "name": (("lat",), np.array(["a", "b", "c"], object)),
                "scalar": ((), 4.0 + (number if kind == "data" else 0)),
            },
            {
                "time": np.arange(2.0) + 2 * number,
                "lat": [1.0, 2, 3],
                "height": (("lat",), [5.0, 6, 7 + (number if kind == "coords" else 0)]),
                "level": ((), 9.0),
                "step": (("time",), np.arange(2) + 10 * number),
            },
        )
        paths.append(folder / f"{kind}{number}.nc")
        ds.to_netcdf(paths[-1])
    return paths


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Files of each kind."""
    folder = tmp_path_factory.mktemp("mfdataset")
    return {kind: write_many(folder, kind) for kind in ("same", "data", "coords")}


def outcome(call: Any) -> xr.Dataset | None:
    """What a call returns; None where it says that the files do not fit."""
    try:
        result = call()
    except (xr.MergeError, xr.AlignmentError, ValueError):
        return None
    assert isinstance(result, xr.Dataset)
    return result


RULES: list[Any] = ["minimal", "different", "all"]
CASES = list(product(["data", "coords"], [*RULES, ["mask", "scalar"]], [*RULES, ["height"]]))


@pytest.mark.long(but=24)
@pytest.mark.parametrize(("kind", "data_vars", "coords"), CASES)
@pytest.mark.parametrize("how", ["by_coords", "nested", "new"])
def test_it_does_what_xarray_does(
    many: dict[str, list[Path]],
    tmp_path: Path,
    kind: str,
    data_vars: Any,
    coords: Any,
    how: str,
) -> None:
    files = many[kind]
    options: dict[str, Any] = {
        "data_vars": data_vars,
        "coords": coords,
        "join": "exact",
        "compat": "equals",
        "combine": "by_coords" if how == "by_coords" else "nested",
    }
    if how != "by_coords":
        options["concat_dim"] = "time" if how == "nested" else "run"

    def first_days(ds: xr.Dataset) -> xr.Dataset:
        return ds.isel(time=0, drop=True).drop_vars(["step"], errors="ignore")

    if how == "new":
        options["preprocess"] = first_days
    wanted = outcome(lambda: xr.open_mfdataset(files, **options).load())
    found = outcome(lambda: gridref.open_virtual_mfdataset(files, **options))
    assert (found is None) == (wanted is None)
    if found is None or wanted is None:
        return
    found.gridref.save(tmp_path / "cube.gridref")
    shown = xr.open_dataset(tmp_path / "cube.gridref", engine="gridref").load()
    assert set(shown.coords) == set(wanted.coords)
    xr.testing.assert_equal(shown.drop_vars("run", errors="ignore"), wanted.transpose(*shown.dims))


@pytest.mark.parametrize("rule", ["minimal", "different", "all"])
def test_labels_are_joined_and_never_repeated(tmp_path: Path, rule: Any) -> None:
    for number in range(2):
        xr.Dataset(
            {"t": (("time", "lat"), np.ones((1, 2)))}, {"time": [number], "lat": [1.0, 2 + number]}
        ).to_netcdf(tmp_path / f"{number}.nc")
    files = [tmp_path / "0.nc", tmp_path / "1.nc"]
    call: dict[str, Any] = {"concat_dim": "time", "combine": "nested", "join": "exact"}
    for error in (CombineError, xr.MergeError, xr.AlignmentError, ValueError):
        with pytest.raises(error, match="lat"):
            gridref.open_virtual_mfdataset(files, data_vars=rule, coords=rule, **call)
    with pytest.raises(xr.AlignmentError):
        xr.open_mfdataset(files, data_vars=rule, coords="minimal", compat="equals", **call)


def test_lists_name_variables(many: dict[str, list[Path]]) -> None:
    files = many["same"]
    with pytest.raises(InvalidRequestError, match="data_vars has no variable 'maks'"):
        gridref.open_virtual_mfdataset(files, data_vars=["maks"])
    with pytest.raises(InvalidRequestError, match="coords has no variable 'mask'"):
        gridref.open_virtual_mfdataset(files, coords=["mask"])
    with pytest.raises(InvalidRequestError, match="is none of"):
        gridref.open_virtual_mfdataset(files, data_vars="some")
    tree = gridref.open_virtual_datatree(files, "time", data_vars=["mask"])
    assert tree.mask.dims == ("time", "lat")
    assert tree.scalar.dims == ()


def test_a_level_of_one_list_needs_no_dimension(many: dict[str, list[Path]]) -> None:
    files = many["same"]
    found = gridref.open_virtual_mfdataset([files], [None, "time"], combine="nested")
    assert found.identical(gridref.open_virtual_mfdataset(files, "time", combine="nested"))
    with pytest.raises(InvalidRequestError, match="concat_dim for each level"):
        gridref.open_virtual_mfdataset(files, [None], combine="nested")


@pytest.mark.parametrize(
    "labels", [gridref.Labels("{lat:d}.nc"), gridref.Labels(sources={"lat": "attribute:lat"})]
)
def test_files_in_the_order_given_have_no_labels(many: dict[str, list[Path]], labels: Any) -> None:
    files = many["same"]
    with pytest.raises(InvalidRequestError, match=r"leave out layout=Labels\("):
        gridref.open_virtual_mfdataset(files, "time", combine="nested", layout=labels)


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


def write_tree(path: Path, start: int, n: int, *, forecast: bool = True) -> Path:
    """Days at the root, that the groups below share; levels of a group's own."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "days since 2000-01-01"
        time[:] = np.arange(start, start + n)
        file.createVariable("t", "f4", ("time",), chunksizes=(2,))[:] = np.arange(n) + start
        model = file.createGroup("model")
        model.createDimension("level", 3)
        model.createVariable("level", "i4", ("level",))[:] = [1000, 850, 500]
        q = model.createVariable("q", "i2", ("time", "level"), chunksizes=(3, 2), zlib=True)
        q.scale_factor, q.add_offset = 0.5, 3.0
        q.set_auto_maskandscale(False)
        q[:] = np.arange(3 * n).reshape(n, 3) + start
        if forecast:
            below = model.createGroup("forecast")
            below.createVariable("p", "f8", ("time",))[:] = np.arange(n) * 2.0
    return path


@pytest.fixture(scope="module")
def tree_files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("trees")
    return [write_tree(folder / f"{k}.nc", 4 * k, 4 if k < 2 else 3) for k in range(3)]


def assert_same_trees(found: xr.DataTree, parts: list[xr.DataTree], dim: str) -> None:
    """Every group holds what xarray concatenates out of the files' groups."""
    assert set(found.groups) == set(parts[0].groups)
    for path in parts[0].groups:
        pieces = [part[path].to_dataset(inherit=False) for part in parts]
        own = found[path].to_dataset(inherit=False)
        assert set(own.variables) == set(pieces[0].variables), path
        if not any(dim in piece.dims for piece in pieces):
            continue
        expected = xr.concat(
            pieces, dim, data_vars="minimal", coords="minimal", compat="override", join="override"
        )
        for name, variable in expected.variables.items():
            assert own[name].dims == variable.dims
            np.testing.assert_array_equal(stored(own[name]), variable.values, f"{path}/{name}")


def test_many_files_group_by_group(tree_files: list[Path]) -> None:
    tree = gridref.open_virtual_datatree(tree_files, "time")
    parts = [xr.open_datatree(path, engine="netcdf4", mask_and_scale=False) for path in tree_files]
    assert_same_trees(tree, parts, "time")
    assert isinstance(tree["model/q"].variable.data, VirtualDuckArray)
    assert tree["model/q"].attrs["scale_factor"] == 0.5
    assert len(tree.encoding["drift"].files) == 3


def test_xarray_concatenates_virtual_trees(tree_files: list[Path]) -> None:
    trees = [gridref.open_virtual_datatree(path) for path in tree_files]
    how: dict[str, Any] = {"data_vars": "minimal", "coords": "minimal", "compat": "override"}
    joined = xr.concat(trees, "time", join="override", **how)
    parts = [xr.open_datatree(path, engine="netcdf4", mask_and_scale=False) for path in tree_files]
    assert_same_trees(joined, parts, "time")
    assert isinstance(joined["model/q"].variable.data, VirtualDuckArray)


def test_trees_go_to_catalogs(tree_files: list[Path], tmp_path: Path) -> None:
    catalog = tmp_path / "cube.gridref"
    gridref.open_virtual_datatree(f"{tree_files[0].parent}/*.nc", "time").gridref.save(catalog)
    found = xr.open_datatree(gridref.open_store(catalog), engine="zarr")
    parts = [xr.open_datatree(path, engine="netcdf4") for path in tree_files]
    assert_same_trees(found, parts, "time")


def test_trees_go_to_kerchunk_references(tree_files: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "refs.json"
    gridref.open_virtual_datatree(tree_files[0]).gridref.to_kerchunk(path)
    below = xr.open_datatree(tree_files[0], engine="netcdf4")["model"].to_dataset(inherit=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = xr.open_zarr("reference://", group="model", storage_options={"fo": str(path)})
        xr.testing.assert_equal(found.load(), below.load())


def test_groups_that_some_files_lack(tmp_path: Path) -> None:
    files = [write_tree(tmp_path / f"{k}.nc", 4 * k, 4, forecast=k != 1) for k in range(3)]
    with pytest.raises(CombineError, match="model/forecast/p: some files lack it"):
        gridref.open_virtual_datatree(files, "time")
    tree = gridref.open_virtual_datatree(files, "time", join="outer")
    p = np.arange(4) * 2.0
    np.testing.assert_array_equal(
        stored(tree["model/forecast/p"]), np.concatenate([p, np.full(4, np.nan), p])
    )
    (drift,) = tree.encoding["drift"]
    assert (drift.variable, drift.cause) == ("model/forecast/p", "variable-missing")


def test_stacking_trees(tree_files: list[Path]) -> None:
    tree = gridref.open_virtual_datatree(tree_files[:2], "member", join="override")
    parts = [
        xr.open_datatree(path, engine="netcdf4", mask_and_scale=False) for path in tree_files[:2]
    ]
    for name in ("t", "model/q", "model/forecast/p"):
        expected = np.stack([part[name].values for part in parts])
        assert tree[name].dims[0] == "member"
        np.testing.assert_array_equal(stored(tree[name]), expected)


def test_preprocessing_and_dropping(tree_files: list[Path]) -> None:
    tree = gridref.open_virtual_datatree(
        tree_files,
        "time",
        preprocess=lambda part: part.isel(time=slice(1, None)),
        drop_variables=["p"],
    )
    parts = [
        xr.open_datatree(path, engine="netcdf4", mask_and_scale=False).isel(time=slice(1, None))
        for path in tree_files
    ]
    assert "p" not in tree["model/forecast"].variables
    np.testing.assert_array_equal(
        stored(tree["model/q"]), np.concatenate([part["model/q"].values for part in parts])
    )
    assert isinstance(tree["model/q"].variable.data, VirtualDuckArray)


def test_several_files_need_a_dimension(tree_files: list[Path]) -> None:
    with pytest.raises(InvalidRequestError, match="3 files need a dimension"):
        gridref.open_virtual_datatree(tree_files)
    with pytest.raises(InvalidRequestError, match="join='no' is none of"):
        gridref.open_virtual_datatree(tree_files, "time", join="no")


def test_granules_of_real_groups(shared_data: Path) -> None:
    files = sorted((shared_data / "families" / "tempo_single").iterdir())
    options = {"join": "inner", "conflicts": "skip"}
    tree = gridref.open_virtual_datatree(files, "mirror_step", **options)
    raw = {"engine": "netcdf4", "mask_and_scale": False, "decode_times": False}
    parts = [xr.open_groups(path, **raw) for path in files]
    for name in ("time", "latitude", "longitude"):
        pieces = [part["/geolocation"][name].values for part in parts]
        np.testing.assert_array_equal(stored(tree[f"geolocation/{name}"]), np.concatenate(pieces))
    assert not tree["support_data"].data_vars


def test_ragged_groups_of_real_files(shared_data: Path) -> None:
    """Swaths whose dimensions have made-up names, numbered otherwise in each file."""
    files = sorted((shared_data / "families" / "gpm_2aku_136_137").iterdir())
    scanned = gridref.scan(files[0]).all_arrays().values()
    along = sorted({d for a in scanned for d, n in zip(a.dims, a.shape, strict=True) if n == 136})
    tree = gridref.open_virtual_datatree(files, along, join="inner", compat="override")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raw = {"engine": "netcdf4", "mask_and_scale": False, "decode_times": False}
        parts = [xr.open_groups(path, **raw) for path in files]
    compared = 0
    for path in parts[1]:
        for name, variable in parts[1][path].data_vars.items():
            if path == "/":
                continue
            pieces = [parts[0][path][name].values, variable.values]
            found = stored(tree[f"{path}/{name}"])
            np.testing.assert_array_equal(found, np.concatenate(pieces), f"{path}/{name}")
            compared += 1
    assert compared == 21


def stored(array: xr.DataArray) -> NDArray[Any]:
    """Elements as they are in the file; those of a loaded variable as they are."""
    data = array.variable.data
    return data.load() if isinstance(data, VirtualDuckArray) else np.asarray(data)
