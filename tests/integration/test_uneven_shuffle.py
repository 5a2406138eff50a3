"""netCDF-C takes the checksum (fletcher32) first, and then shuffles it along with the elements."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import h5py
import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr

import gridref
from gridref.faces.exports.kerchunk import to_kerchunk

VALUES = np.arange(12.0).reshape(4, 3) * 1.1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "checked.nc"
    checked = {"fletcher32": True, "zlib": True, "shuffle": True, "chunksizes": (2, 2)}
    xr.Dataset({"v": (("y", "x"), VALUES)}).to_netcdf(
        path, engine="netcdf4", encoding={"v": checked}
    )
    with h5py.File(path) as file:
        filters = file["v"].id.get_create_plist()
        assert [filters.get_filter(n)[0] for n in range(3)] == [3, 2, 1]
    return path


@pytest.mark.parametrize("view", ["direct", "native", "portable", "auto"])
def test_every_view_reads_it(path: Path, view: str) -> None:
    store = gridref.open_store(gridref.scan(path), view=view)
    np.testing.assert_array_equal(xr.open_zarr(store, chunks=None).v.values, VALUES)


def test_the_native_view_needs_no_import(path: Path, tmp_path: Path) -> None:
    gridref.build([path], tmp_path / "c.gridref")
    code = (
        "import xarray as xr, sys\n"
        "assert 'gridref' not in sys.modules\n"
        "options = {'gridref': {'view': 'native'}}\n"
        f"url = 'gridref::file://{tmp_path}/c.gridref'\n"
        "print(xr.open_zarr(url, chunks=None, storage_options=options).v.values.tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(VALUES.tolist())


def test_references_hold_it_decoded(path: Path) -> None:
    refs = to_kerchunk(gridref.scan(path))["refs"]
    assert "shuffle" not in refs["v/.zarray"]
    with pytest.raises(gridref.errors.NotRepresentableError, match="parts of elements"):
        to_kerchunk(gridref.scan(path), inline_limit=0)


def test_copies_are_compressed_and_checked(path: Path, tmp_path: Path) -> None:
    with xr.open_zarr(gridref.open_store(gridref.scan(path)), chunks=None) as dataset:
        dataset.to_zarr(tmp_path / "copy.zarr")
    copy = zarr.open_array(tmp_path / "copy.zarr" / "v", mode="r")
    np.testing.assert_array_equal(copy[...], VALUES)
    names = str(copy.metadata.codecs)
    assert "zlib" in names
    assert "fletcher32" in names
    assert "gridref" not in names


def test_whatever_zarr_writes_with_it_comes_back() -> None:
    codec = {"name": "gridref.shuffle", "configuration": {"elementsize": 4}}
    values = np.arange(7, dtype="<i2")
    array = zarr.create_array({}, data=values, chunks=(7,), filters=None, compressors=[codec])
    np.testing.assert_array_equal(array[...], values)


@pytest.mark.parametrize("view", ["direct", "native", "portable", "auto"])
def test_a_store_that_leaves_the_size_of_elements_out(tmp_path: Path, view: str) -> None:
    """numcodecs takes 4 bytes then."""
    array = zarr.create_array(
        tmp_path / "s.zarr",
        data=np.arange(24, dtype="i4").reshape(4, 6),
        chunks=(2, 6),
        filters=[numcodecs.Shuffle(elementsize=4)],
        zarr_format=2,
    )
    expected = array[...]
    metadata = tmp_path / "s.zarr" / ".zarray"
    document = json.loads(metadata.read_text())
    del document["filters"][0]["elementsize"]
    metadata.write_text(json.dumps(document))
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "s.zarr", mode="r")[...], expected)
    store = gridref.open_store(gridref.scan(tmp_path / "s.zarr"), view=view)
    [(_, found)] = zarr.open_group(store, mode="r").members()
    np.testing.assert_array_equal(found[...], expected)
