"""Native views whose codecs imagecodecs has, read by zarr-python without gridref."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fsspec
import h5py
import hdf5plugin
import numpy as np
import pytest
import tifffile
from astropy.io import fits

import gridref
from gridref.errors import NotRepresentableError
from tests.shared_data import shared_files

READ = """
import sys, warnings
sys.modules["gridref"] = None
warnings.simplefilter("ignore")
import imagecodecs.zarr, numpy, zarr
imagecodecs.zarr.register_codecs()
array = zarr.open_group(sys.argv[1], mode="r")[sys.argv[2]]
print(array.metadata.codecs[-1].to_dict()["name"], file=sys.stderr)
numpy.save(sys.argv[3], array[...])
"""

INTS = np.arange(40 * 30, dtype="i4").reshape(40, 30) // 7
HDF5 = {
    "imagecodecs_lz4h5": hdf5plugin.LZ4(),
    "imagecodecs_szip": {"compression": "szip", "compression_opts": ("nn", 10)},
    "numcodecs.bz2": hdf5plugin.BZip2(),
}


def native_copy(source: Path, folder: Path) -> str:
    """The native view of a file's catalog, as objects in a folder."""
    gridref.build([source], folder / "a.gridref")
    view = fsspec.filesystem("gridref", fo=str(folder / "a.gridref"), view="native")
    view.get("", str(folder / "copy"), recursive=True)
    return str(folder / "copy")


def read_without_gridref(copy: str, name: str) -> tuple[np.ndarray, str]:
    """Values of an array, and the name of its last codec."""
    saved = f"{copy}.npy"
    command = [sys.executable, "-c", READ, copy, name, saved]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return np.load(saved), done.stderr.splitlines()[-1]


@pytest.mark.long(but=1)
@pytest.mark.parametrize("codec", HDF5)
def test_filters_of_hdf5(tmp_path: Path, codec: str) -> None:
    source = tmp_path / "a.h5"
    with h5py.File(source, "w") as file:
        file.create_dataset("v", data=INTS, chunks=(20, 10), **HDF5[codec])
    values, name = read_without_gridref(native_copy(source, tmp_path), "v")
    assert name == codec
    np.testing.assert_array_equal(values, INTS)


@pytest.mark.long
def test_differences_along_rows_of_tiff(tmp_path: Path) -> None:
    source = tmp_path / "a.tif"
    tifffile.imwrite(source, INTS.astype("u2"), compression="zlib", predictor=2, tile=(16, 16))
    values, _ = read_without_gridref(native_copy(source, tmp_path), "image")
    np.testing.assert_array_equal(values, INTS.astype("u2"))


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    ("compression", "codec"),
    [("RICE_1", "imagecodecs_rcomp"), ("HCOMPRESS_1", "imagecodecs_hcomp")],
)
@pytest.mark.parametrize("dtype", ["u1", "i2", "u2", "i4"])
def test_tiles_of_fits(tmp_path: Path, compression: str, codec: str, dtype: str) -> None:
    source, values = tmp_path / "a.fits", INTS.astype(dtype)
    tiles = fits.CompImageHDU(values, compression_type=compression, tile_shape=(20, 15))
    fits.HDUList([fits.PrimaryHDU(), tiles]).writeto(source)
    found, name = read_without_gridref(native_copy(source, tmp_path), "HDU1")
    assert name == codec
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("source", shared_files("tiff/features/*minisblack-1c-5b*"))
def test_packed_integers_of_tiff(tmp_path: Path, source: Path) -> None:
    copy = native_copy(source, tmp_path)
    with tifffile.TiffFile(source) as file:
        expected = file.asarray()
    values, name = read_without_gridref(copy, "image")
    assert name == "imagecodecs_packints"
    np.testing.assert_array_equal(values, expected)


def test_readers_get_decoded_chunks_unless_they_ask(tmp_path: Path) -> None:
    source = tmp_path / "a.h5"
    with h5py.File(source, "w") as file:
        file.create_dataset("v", data=INTS, chunks=(20, 10), **hdf5plugin.LZ4())
        file.create_dataset("lzf", data=INTS, chunks=(20, 10), compression="lzf")
    gridref.build([source], tmp_path / "a.gridref")
    view = fsspec.filesystem("gridref", fo=str(tmp_path / "a.gridref"))
    assert b"imagecodecs" not in view.cat_file("v/zarr.json")
    native = fsspec.filesystem("gridref", fo=str(tmp_path / "a.gridref"), view="native")
    with pytest.raises(NotRepresentableError, match=r"no Zarr reader knows .*gridref\.hdf5_lzf"):
        native.cat_file("lzf/zarr.json")
