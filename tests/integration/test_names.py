"""Names that mean something else to readers: shown otherwise or refused, and never left out."""

from __future__ import annotations

import json

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.adapters.http import create_app
from gridref.errors import (
    InvalidRequestError,
    NotRepresentableError,
    SourceFormatError,
    UnsupportedFeatureError,
)
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
    gridref.write_catalog(gridref.VirtualGroup({name: array}), catalog)
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
        with pytest.raises(InvalidRequestError, match="more than there is memory"):
            group[name][...]


def test_elements_of_very_many_bytes_are_refused(tmp_path):
    array = {"shape": [4], "chunks": [2], "dtype": "<U99999999", "fill_value": 0, "order": "C"}
    array |= {"filters": None, "compressor": None, "zarr_format": 2}
    path = tmp_path / "refs.json"
    refs = {".zgroup": json.dumps({"zarr_format": 2}), "v/.zarray": json.dumps(array)}
    path.write_text(json.dumps({"version": 1, "refs": refs}))
    with pytest.raises(UnsupportedFeatureError, match="elements of 399999996 bytes"):
        gridref.scan(path)
