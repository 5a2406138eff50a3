"""Virtual datasets under xarray's own operations, and the way to catalogs and references."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.errors import CombineError, InvalidRequestError, NotRepresentableError
from gridref.faces.xarray.duck_array import VirtualDuckArray

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


def test_labels_select(cube: xr.Dataset, truth: xr.Dataset) -> None:
    key = {"time": slice("2023-03-05", "2023-04-09"), "lat": slice(-30, 40)}
    assert_same(cube.sel(key), truth.sel(key))


def test_rearranging_stays_virtual(cube: xr.Dataset, truth: xr.Dataset) -> None:
    for change in (
        lambda ds: ds.transpose("lon", "time", "lat", ...),
        lambda ds: ds[["tas", "pr"]].expand_dims(member=3),
        lambda ds: ds[["tas", "pr"]].expand_dims("run", axis=1).squeeze("run"),
        lambda ds: ds.isel(time=[4]).squeeze("time"),
        lambda ds: ds.rename(time="t", tas="tas").rename(t="time"),
        lambda ds: ds.assign_coords(lon=ds.lon - 180),
        lambda ds: ds[["tas", "pr"]].broadcast_like(xr.DataArray(np.zeros(2), dims="extra")),
    ):
        assert_same(change(cube), change(truth))


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


def test_open_virtual_mfdataset_nested(files: list[str], truth: xr.Dataset) -> None:
    cube = gridref.open_virtual_mfdataset(
        files, "time", combine="nested", preprocess=lambda ds: ds.isel(lat=slice(0, 5))
    )
    assert_same(cube, truth.isel(lat=slice(0, 5)))


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


def test_xarray_concat_of_unlike_packing_is_refused(tmp_path: Path) -> None:
    for number, scale in enumerate((0.01, 0.1)):
        xr.Dataset({"t": ("x", np.linspace(270, 280, 5))}).to_netcdf(
            tmp_path / f"{number}.nc", encoding={"t": {"dtype": "i2", "scale_factor": scale}}
        )
    parts = [gridref.open_virtual_dataset(tmp_path / f"{number}.nc") for number in range(2)]
    with pytest.raises(CombineError, match="packed differently"):
        xr.concat(parts, "x")


def test_tree(shared_data: Path) -> None:
    family = shared_data / "families" / "gpm_2aku_136_137"
    file = min(family.iterdir())
    tree = gridref.open_virtual_datatree(file)
    expected = xr.open_datatree(file, mask_and_scale=False, decode_times=False, engine="netcdf4")
    path = "NS/SLV/zFactorCorrected"
    np.testing.assert_array_equal(tree[path].data.load(), expected[path].values)
    again = tree.gridref.to_group()
    assert set(again.all_arrays()) == set(gridref.scan(str(file)).all_arrays())


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
