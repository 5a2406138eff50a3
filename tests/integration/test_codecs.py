"""Codecs: those that other readers know, uneven shuffles, and many tiny chunks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import h5py
import hdf5plugin
import numcodecs
import numpy as np
import pytest
import tifffile
import xarray as xr
import zarr
from astropy.io import fits

import gridref
from gridref.codecs import pipeline
from gridref.errors import DecodeError, NotRepresentableError
from gridref.faces.exports.kerchunk import to_kerchunk
from gridref.serve import reader as module
from tests.shared_data import shared_files

READ = """
import json, sys, warnings
sys.modules["gridref"] = None
warnings.simplefilter("ignore")
import imagecodecs.zarr, numpy, zarr
imagecodecs.zarr.register_codecs()
for line in sys.stdin:
    copy, name, saved = json.loads(line)
    array = zarr.open_group(copy, mode="r")[name]
    numpy.save(saved, array[...])
    print(array.metadata.codecs[-1].to_dict()["name"], flush=True)
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


Reading = Callable[[str, str], tuple[np.ndarray, str]]


@pytest.fixture(scope="module")
def read_without_gridref() -> Iterator[Reading]:
    """Values of an array, and the name of its last codec."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", READ]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:

        def read(copy: str, name: str) -> tuple[np.ndarray, str]:
            saved = f"{copy}.npy"
            print(json.dumps([copy, name, saved]), file=process.stdin, flush=True)
            codec = process.stdout.readline().strip()
            return np.load(saved), codec

        yield read


@pytest.mark.long(but=1)
@pytest.mark.parametrize("codec", HDF5)
def test_filters_of_hdf5(read_without_gridref: Reading, tmp_path: Path, codec: str) -> None:
    source = tmp_path / "a.h5"
    with h5py.File(source, "w") as file:
        file.create_dataset("v", data=INTS, chunks=(20, 10), **HDF5[codec])
    values, name = read_without_gridref(native_copy(source, tmp_path), "v")
    assert name == codec
    np.testing.assert_array_equal(values, INTS)


@pytest.mark.long
def test_differences_along_rows_of_tiff(read_without_gridref: Reading, tmp_path: Path) -> None:
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
def test_tiles_of_fits(
    read_without_gridref: Reading, tmp_path: Path, compression: str, codec: str, dtype: str
) -> None:
    source, values = tmp_path / "a.fits", INTS.astype(dtype)
    tiles = fits.CompImageHDU(values, compression_type=compression, tile_shape=(20, 15))
    fits.HDUList([fits.PrimaryHDU(), tiles]).writeto(source)
    found, name = read_without_gridref(native_copy(source, tmp_path), "HDU1")
    assert name == codec
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("source", shared_files("tiff/features/*minisblack-1c-5b*"))
def test_packed_integers_of_tiff(
    read_without_gridref: Reading, tmp_path: Path, source: Path
) -> None:
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


def test_programs_open_catalogs_without_an_import(path: Path, tmp_path: Path) -> None:
    gridref.build([path], tmp_path / "c.gridref")
    code = (
        "import sys, xarray as xr, zarr\n"
        "assert 'gridref' not in sys.modules\n"
        f"url = 'gridref::file://{tmp_path}/c.gridref'\n"
        "for options in ({'gridref': {'view': 'native'}}, None):\n"
        "    print(xr.open_zarr(url, chunks=None, storage_options=options).v.values.tolist())\n"
        "print(zarr.open_group(url, mode='r')['v'].metadata.codecs[0].to_dict()['name'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(VALUES.tolist())] * 2 + ["gridref.direct"]


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


SHAPE, CHUNKS = (3, 95, 128), (1, 10, 15)


def filled(path: Path, values: Any, **options: Any) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=values, chunks=CHUNKS, **options)


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "i2", "u1", "c16"])
@pytest.mark.parametrize(
    "options",
    [
        {"compression": "gzip"},
        {"compression": "gzip", "shuffle": True},
        {"compression": "gzip", "shuffle": True, "fletcher32": True},
        {"shuffle": True},
        {"fletcher32": True},
        {"compression": "lzf", "shuffle": True},
        {**hdf5plugin.Zstd(), "shuffle": True},
        {**hdf5plugin.Blosc()},
    ],
    ids=[
        "gzip",
        "shuffle",
        "fletcher32",
        "shuffle-alone",
        "fletcher32-alone",
        "lzf",
        "zstd",
        "blosc",
    ],
)
def test_values_are_those_of_h5py(
    tmp_path: Path, options: Any, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = (np.arange(np.prod(SHAPE)).reshape(SHAPE) // 7 % 101 // 9).astype(dtype)
    filled(tmp_path / "a.h5", values, **options)
    gridref.build(str(tmp_path / "a.h5"), str(tmp_path / "a.gridref"))
    n_together = []
    deliver = module.deliver_stacked
    monkeypatch.setattr(
        module,
        "deliver_stacked",
        lambda task, *others: (n_together.append(len(task.members)), deliver(task, *others))[1],
    )
    array = gridref.open_catalog(tmp_path / "a.gridref")["v"]
    for part in (np.s_[:], np.s_[1], np.s_[:, 3:88, 20:], np.s_[2, ::2, ::-1], np.s_[1:, 40]):
        np.testing.assert_array_equal(array[part], values[part])
    assert sum(n_together) > 3 * 9 * 8  # all but those at the edges, at least once


def test_the_damaged_chunk_is_named_and_others_are_read(tmp_path: Path) -> None:
    values = np.random.default_rng(3).random(SHAPE).astype("f4")
    filled(tmp_path / "a.h5", values, compression="gzip", shuffle=True)
    with h5py.File(tmp_path / "a.h5") as file:
        info = file["v"].id.get_chunk_info_by_coord((1, 20, 30))
    content = bytearray((tmp_path / "a.h5").read_bytes())
    content[info.byte_offset + 5 : info.byte_offset + 40] = bytes(35)
    (tmp_path / "a.h5").write_bytes(content)
    gridref.build(str(tmp_path / "a.h5"), str(tmp_path / "a.gridref"))
    array = gridref.open_catalog(tmp_path / "a.gridref")["v"]
    with pytest.raises(DecodeError) as caught:
        array[...]
    assert caught.value.place.chunk == (1, 2, 2)
    assert (caught.value.place.start, caught.value.place.stop) == (
        info.byte_offset,
        info.byte_offset + info.size,
    )
    np.testing.assert_array_equal(array[2], values[2])


def test_chunks_whose_filters_were_left_out_are_decoded_alone(tmp_path: Path) -> None:
    values = np.random.default_rng(3).random(SHAPE).astype("f4")
    filled(tmp_path / "a.h5", values, compression="gzip")
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["v"].id.write_direct_chunk((0, 10, 15), values[0, 10:20, 15:30].tobytes(), 1)
    gridref.build(str(tmp_path / "a.h5"), str(tmp_path / "a.gridref"))
    found = gridref.open_catalog(tmp_path / "a.gridref")["v"][...]
    np.testing.assert_array_equal(found, values)


def test_chunks_of_another_size_are_refused() -> None:
    encoding = pipeline.Encoding((4,), np.dtype("f4"), (pipeline.bytes_codec(np.dtype("f4")),))
    with pytest.raises(DecodeError):
        pipeline.decode_together([bytes(16), bytes(15)], encoding, (4,))
