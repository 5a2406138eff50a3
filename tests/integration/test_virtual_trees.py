"""Files with groups, combined group by group."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.errors import CombineError, InvalidRequestError
from gridref.faces.xarray.duck_array import VirtualDuckArray
from tests.virtual_support import stored


def write(path: Path, start: int, n: int, *, forecast: bool = True) -> Path:
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


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [write(tmp_path / f"{k}.nc", 4 * k, 4 if k < 2 else 3) for k in range(3)]


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


def test_many_files_group_by_group(files: list[Path]) -> None:
    tree = gridref.open_virtual_datatree(files, "time")
    parts = [xr.open_datatree(path, engine="netcdf4", mask_and_scale=False) for path in files]
    assert_same_trees(tree, parts, "time")
    assert isinstance(tree["model/q"].variable.data, VirtualDuckArray)
    assert tree["model/q"].attrs["scale_factor"] == 0.5
    assert len(tree.encoding["drift"].files) == 3


def test_xarray_concatenates_virtual_trees(files: list[Path]) -> None:
    trees = [gridref.open_virtual_datatree(path) for path in files]
    how: dict[str, Any] = {"data_vars": "minimal", "coords": "minimal", "compat": "override"}
    joined = xr.concat(trees, "time", join="override", **how)
    parts = [xr.open_datatree(path, engine="netcdf4", mask_and_scale=False) for path in files]
    assert_same_trees(joined, parts, "time")
    assert isinstance(joined["model/q"].variable.data, VirtualDuckArray)


def test_trees_go_to_catalogs(files: list[Path], tmp_path: Path) -> None:
    catalog = tmp_path / "cube.gridref"
    gridref.open_virtual_datatree(f"{tmp_path}/*.nc", "time").gridref.save(catalog)
    found = xr.open_datatree(gridref.open_store(catalog), engine="zarr")
    parts = [xr.open_datatree(path, engine="netcdf4") for path in files]
    assert_same_trees(found, parts, "time")


def test_trees_go_to_kerchunk_references(files: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "refs.json"
    gridref.open_virtual_datatree(files[0]).gridref.to_kerchunk(path)
    below = xr.open_datatree(files[0], engine="netcdf4")["model"].to_dataset(inherit=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = xr.open_zarr("reference://", group="model", storage_options={"fo": str(path)})
        xr.testing.assert_equal(found.load(), below.load())


def test_groups_that_some_files_lack(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{k}.nc", 4 * k, 4, forecast=k != 1) for k in range(3)]
    with pytest.raises(CombineError, match="model/forecast/p: some files lack it"):
        gridref.open_virtual_datatree(files, "time")
    tree = gridref.open_virtual_datatree(files, "time", join="outer")
    p = np.arange(4) * 2.0
    np.testing.assert_array_equal(
        stored(tree["model/forecast/p"]), np.concatenate([p, np.full(4, np.nan), p])
    )
    (drift,) = tree.encoding["drift"]
    assert (drift.variable, drift.cause) == ("model/forecast/p", "variable-missing")


def test_stacking_trees(files: list[Path]) -> None:
    tree = gridref.open_virtual_datatree(files[:2], "member", join="override")
    parts = [xr.open_datatree(path, engine="netcdf4", mask_and_scale=False) for path in files[:2]]
    for name in ("t", "model/q", "model/forecast/p"):
        expected = np.stack([part[name].values for part in parts])
        assert tree[name].dims[0] == "member"
        np.testing.assert_array_equal(stored(tree[name]), expected)


def test_preprocessing_and_dropping(files: list[Path]) -> None:
    tree = gridref.open_virtual_datatree(
        files,
        "time",
        preprocess=lambda part: part.isel(time=slice(1, None)),
        drop_variables=["p"],
    )
    parts = [
        xr.open_datatree(path, engine="netcdf4", mask_and_scale=False).isel(time=slice(1, None))
        for path in files
    ]
    assert "p" not in tree["model/forecast"].variables
    np.testing.assert_array_equal(
        stored(tree["model/q"]), np.concatenate([part["model/q"].values for part in parts])
    )
    assert isinstance(tree["model/q"].variable.data, VirtualDuckArray)


def test_several_files_need_a_dimension(files: list[Path]) -> None:
    with pytest.raises(InvalidRequestError, match="3 files need a dimension"):
        gridref.open_virtual_datatree(files)
    with pytest.raises(InvalidRequestError, match="join='no' is none of"):
        gridref.open_virtual_datatree(files, "time", join="no")


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
