"""Names that mean something else to readers: shown otherwise or refused, and never left out."""

from __future__ import annotations

import json

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr

import gridref
from gridref.api.catalog import write_catalog
from gridref.errors import (
    InvalidRequestError,
    NotRepresentableError,
    SourceFormatError,
    UnsupportedFeatureError,
)
from gridref.faces.http import create_app
from tests.attack_doors import DOORS, RAW
from tests.uvicorn_server import running

ZARR_DOORS = [name for name in DOORS if name not in ("own reader", "engine")]


def made(path, *names):
    with h5py.File(path, "w") as file:
        for number, name in enumerate(names):
            file[name] = np.arange(3) + number
    return path


@pytest.mark.parametrize("name", ["zarr.json", ".zarray", ".zgroup", ".zattrs"])
def test_names_of_metadata_are_shown_encoded(tmp_path, name):
    catalog = tmp_path / "cube"
    gridref.build(made(tmp_path / "a.h5", name, "other"), catalog)
    shown = name.replace(".", "%2E")
    for view in ("portable", "native", "direct"):
        store = gridref.open_store(catalog, view=view)
        opened = xr.open_zarr(store, chunks=None, **RAW)
        assert opened[shown].values.tolist() == [0, 1, 2]
        assert opened["other"].values.tolist() == [1, 2, 3]
    with running(create_app({"a": str(catalog)})) as url:
        opened = xr.open_zarr(f"{url}/a/portable", chunks=None, **RAW)
        assert len(opened) == 2
        for variable in opened.values():
            first = 1 if variable.name == "other" else 0
            assert variable.values.tolist() == [first, first + 1, first + 2]


@pytest.mark.parametrize("name", ["..", "."])
def test_ways_up_are_refused_by_zarr_views(tmp_path, name):
    catalog = tmp_path / "cube"
    file = made(tmp_path / "a.h5", "x")
    array = gridref.scan(file).arrays["x"]
    write_catalog(gridref.VirtualGroup({name: array}), catalog)
    assert DOORS["own reader"](catalog, name).tolist() == [0, 1, 2]
    for view in ("portable", "native", "direct"):
        with pytest.raises(NotRepresentableError, match="way up"):
            gridref.open_store(catalog, view=view)


def test_what_netcdf_renamed_is_told_by_the_beginning(tmp_path):
    file = made(tmp_path / "a.nc", "x_nc4_non_coord_y", "_nc4_non_coord__nc4_non_coord_b")
    with netCDF4.Dataset(file) as original:
        assert list(gridref.scan(file).arrays) == list(original.variables)


def test_two_variables_of_one_name_are_refused(tmp_path):
    file = made(tmp_path / "a.nc", "_nc4_non_coord_a", "a")
    with pytest.raises(UnsupportedFeatureError, match="netCDF renames it to a"):
        gridref.scan(file)
    assert gridref.scan(file, on_unsupported="skip").arrays["a"][:].tolist() == [1, 2, 3]


def file_with_scales(path):
    """A scalar scale, one that is longer than its axis, and one of a group above."""
    with h5py.File(path, "w") as file:
        file["image"] = np.arange(12.0).reshape(3, 4)
        file["line"] = np.arange(5)
        file["x"], file["y"], file["x_1"] = 2.5, np.arange(7.0), 1
        for name, axes in {"x": [("image", 1), ("line", 0)], "y": [("image", 0)]}.items():
            file[name].make_scale(name)
            for variable, axis in axes:
                file[variable].dims[axis].attach_scale(file[name])
        file["g/a"], file["g/b"] = np.arange(2), np.arange(3)
        for variable in ("g/a", "g/b"):
            file[variable].dims[0].attach_scale(file["y"])
    return path


def test_dimensions_that_xarray_cannot_hold_have_names_of_their_own(tmp_path):
    file, catalog = file_with_scales(tmp_path / "a.h5"), tmp_path / "cube"
    built = gridref.build(file, catalog)
    told = [f"{f.path}: {f.reason}" for f in built.report if f.fate == "renamed"]
    assert told == [
        "/g/y: named 'y_1' where its length is 3, because it has another length elsewhere",
        "/y: named 'y_1' where its length is 3, because it has another length elsewhere",
        "/x: named 'x_2' where its length is 4, because a scalar has its name",
        "/x: named 'x_3' where its length is 5, because a scalar has its name",
    ]
    stores = {view: gridref.open_store(catalog, view=view) for view in ("native", "portable")}
    opened = [
        xr.open_dataset(file, engine="gridref"),
        xr.open_dataset(catalog, engine="gridref"),
        *(xr.open_zarr(store, consolidated=False) for store in stores.values()),
        gridref.open_virtual_dataset(file, loadable_variables=["image", "line", "x", "y", "x_1"]),
    ]
    with h5py.File(file) as handle:
        for dataset in opened:
            dims = {name: variable.dims for name, variable in dataset.variables.items()}
            named = {"image": ("y_1", "x_2"), "line": ("x_3",), "y": ("y",), "x": (), "x_1": ()}
            assert dims == named
            for name in dims:
                np.testing.assert_array_equal(dataset[name].values, handle[name][()])
    tree = xr.open_datatree(catalog, engine="gridref", group="g")
    assert [tree[name].dims for name in "ab"] == [("y",), ("y_1",)]
    assert gridref.verify(catalog).ok


def test_scalars_of_netcdf_may_have_the_name_of_a_dimension(tmp_path):
    file = tmp_path / "a.nc"
    with netCDF4.Dataset(file, "w") as handle:
        handle.createDimension("t", None)
        handle.createVariable("t", "i4", ())[...] = 7
        handle.createVariable("v", "f4", ("t",))[...] = [1, 2]
    dataset = xr.open_dataset(file, engine="gridref")
    assert dataset.v.dims == ("t_1",)
    assert dataset.encoding["unlimited_dims"] == {"t_1"}
    assert (int(dataset.t), dataset.v.values.tolist()) == (7, [1, 2])


def test_dimensions_of_zarr_groups_have_names_of_their_own(tmp_path):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("v", data=np.arange(3), dimension_names=["x"])
    group.create_array("w", data=np.arange(4), dimension_names=["x"])
    dataset = xr.open_dataset(tmp_path / "a.zarr", engine="gridref")
    assert {name: dataset[name].dims for name in "vw"} == {"v": ("x",), "w": ("x_1",)}


def test_groups_that_are_nested_too_deep_are_refused(tmp_path):
    path = tmp_path / "deep.h5"
    with h5py.File(path, "w") as file:
        file["/".join("g" * 250) + "/v"] = 1
        file["w"] = [1]
    with pytest.raises(UnsupportedFeatureError, match="200 deep"):
        gridref.scan(path)
    left_out = gridref.scan(path, on_unsupported="skip")
    assert list(left_out.all_arrays()) == ["w"]
    assert "200 deep" in left_out.report.skipped[0].reason


@pytest.mark.long(but=1)
@pytest.mark.timeout(20)
@pytest.mark.parametrize("depth", [250, 1500, 3000])
def test_references_that_are_nested_too_deep_are_refused(tmp_path, depth):
    group = json.dumps({"zarr_format": 2})
    refs = {".zgroup": group, **{f"{'g/' * n}.zgroup": group for n in range(1, depth)}}
    path = tmp_path / "refs.json"
    path.write_text(json.dumps({"version": 1, "refs": refs}))
    with pytest.raises(UnsupportedFeatureError, match="200 deep"):
        gridref.scan(path)
    (tmp_path / "z.zarr").mkdir()
    below = {"zarr_format": 3, "node_type": "group"}
    documents = {"/".join("g" * n): below for n in range(1, depth)}
    root = {"zarr_format": 3, "node_type": "group", "attributes": {}}
    root["consolidated_metadata"] = {"kind": "inline", "metadata": documents}
    (tmp_path / "z.zarr" / "zarr.json").write_text(json.dumps(root))
    with pytest.raises((UnsupportedFeatureError, SourceFormatError), match="200 deep"):
        gridref.scan(tmp_path / "z.zarr")


def test_an_array_larger_than_memory_is_an_error_of_ours(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("v", (0, 2**62), "i8", chunks=(1, 1000), maxshape=(None, None))
        file.create_dataset("w", (2**59,), "i8", chunks=(1000,))
        many = 800_000_000_000_000
        file.create_dataset("x", (many, 0), "u1", chunks=(1000, 1), maxshape=(None, 2))
    group = gridref.scan(path)
    assert group["x"][...].shape == (many, 0)
    assert group["w"][2**58 : 2**58 + 2].tolist() == [0, 0]
    assert group["v"][:, :5].shape == (0, 5)
    for name in ("v", "w"):
        with pytest.raises(InvalidRequestError, match="more than the available memory"):
            group[name][...]


def test_elements_of_very_many_bytes_are_refused(tmp_path):
    array = {"shape": [4], "chunks": [2], "dtype": "<U99999999", "fill_value": 0, "order": "C"}
    array |= {"filters": None, "compressor": None, "zarr_format": 2}
    path = tmp_path / "refs.json"
    refs = {".zgroup": json.dumps({"zarr_format": 2}), "v/.zarray": json.dumps(array)}
    path.write_text(json.dumps({"version": 1, "refs": refs}))
    with pytest.raises(UnsupportedFeatureError, match="elements of 399999996 bytes"):
        gridref.scan(path)
