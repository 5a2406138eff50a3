"""References in Parquet, as kerchunk and fsspec write them."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.reference import LazyReferenceMapper

import gridref
from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.io import SourcePool
from gridref.model.manifest import ChunkState
from gridref.serve.reader import Reader
from tests.by_kerchunk import hdf5_references

VALUES = np.random.default_rng(0).normal(size=(23, 7)).astype("f4")


def read(array):
    return Reader(SourcePool()).read(array)


def zarray(shape, chunks, **changes):
    return {
        "zarr_format": 2,
        "shape": shape,
        "chunks": chunks,
        "dtype": "<i2",
        "compressor": None,
        "filters": None,
        "order": "C",
        "fill_value": 9,
        **changes,
    }


def write(folder, references, record_size=4):
    """References as fsspec writes them."""
    pytest.importorskip("kerchunk")
    mapper = LazyReferenceMapper.create(
        str(folder), fs=LocalFileSystem(), record_size=record_size, engine="pyarrow"
    )
    for key in sorted(references):
        mapper[key] = references[key]
    mapper.flush()
    return folder


def test_what_kerchunk_makes_of_hdf5(tmp_path):
    path = tmp_path / "data.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=VALUES, chunks=(4, 3), compression="gzip", shuffle=True)
        file["g/scalar"] = np.int32(7)
    folder = write(tmp_path / "refs.parq", hdf5_references(path)["refs"])
    assert len(list((folder / "v").iterdir())) == 5
    group = gridref.scan(folder)
    np.testing.assert_array_equal(read(group["v"]), VALUES)
    assert read(group["g/scalar"]) == 7
    catalog = tmp_path / "c.gridref"
    gridref.build(folder, catalog)
    np.testing.assert_array_equal(read(gridref.open_catalog(catalog)["v"]), VALUES)


def test_every_kind_of_reference(tmp_path):
    (tmp_path / "whole.bin").write_bytes(np.array([1, 2], "<i2").tobytes())
    (tmp_path / "part.bin").write_bytes(b"xx" + np.array([3, 4], "<i2").tobytes() + b"yy")
    folder = write(
        tmp_path / "refs.parq",
        {
            ".zgroup": json.dumps({"zarr_format": 2}),
            "v/.zarray": json.dumps(zarray([18], [2])),
            "v/.zattrs": json.dumps({"_ARRAY_DIMENSIONS": ["x"]}),
            "v/0": [str(tmp_path / "whole.bin")],
            "v/1": ["part.bin", 2, 4],
            "v/2": b"\5\0\6\0",
            "v/8": ["whole.bin", 0, 4],
        },
    )
    assert not (folder / "v/refs.1.parq").exists()
    array = gridref.scan(folder)["v"]
    assert read(array).tolist() == [1, 2, 3, 4, 5, 6, *[9] * 10, 1, 2]
    assert array.dims == ("x",)
    states = array.manifests[0].state.tolist()
    assert states[:4] == [
        ChunkState.RANGE,
        ChunkState.RANGE,
        ChunkState.INLINE,
        ChunkState.MISSING,
    ]


def test_what_the_layout_cannot_count_is_refused(tmp_path):
    documents = {
        "has slashes": {"v/.zarray": zarray([4], [2], dimension_separator="/")},
        "Zarr v2; this is v3": {"v/zarr.json": {"zarr_format": 3}},
        "no metadata of an array": {"v/.zarray": {"shape": [4], "chunks": [0]}},
    }
    for number, (message, metadata) in enumerate(documents.items()):
        folder = tmp_path / f"{number}.parq"
        folder.mkdir()
        document = {"metadata": {".zgroup": {"zarr_format": 2}, **metadata}, "record_size": 10}
        (folder / ".zmetadata").write_text(json.dumps(document))
        with pytest.raises(
            (UnsupportedFeatureError, SourceFormatError), match=message.replace("has ", "")
        ):
            gridref.scan(folder)


def test_a_damaged_file_is_an_error(tmp_path):
    references = {
        ".zgroup": json.dumps({"zarr_format": 2}),
        "v/.zarray": json.dumps(zarray([4], [2])),
        "v/0": b"\5\0\6\0",
    }
    folder = write(tmp_path / "refs.parq", references)
    assert read(gridref.scan(folder)["v"]).tolist() == [5, 6, 9, 9]
    part = folder / "v/refs.0.parq"
    assert pq.ParquetFile(part).metadata.num_rows == 4
    part.write_bytes(part.read_bytes()[:-3])
    with pytest.raises(SourceFormatError, match=r"not a Parquet file.*refs\.0\.parq"):
        gridref.scan(folder)
