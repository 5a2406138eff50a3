"""Portable gzip chunks made of stored zlib ones: another wrapper around the same deflate data."""

from __future__ import annotations

import gzip
import os
import zlib

import h5py
import numpy as np
import pytest
import zarr

import gridref
from gridref.codecs import encode_chunk, gzip_from_zlib
from gridref.errors import ReadError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Codec, EdgePolicy, Encoding, bytes_codec
from gridref.model.indexing import flip, getitem
from gridref.model.joining import concatenate
from gridref.model.manifest import ChunkManifest
from gridref.serve.objects import KeySpace
from gridref.serve.pages import DecodedSegment, RewrappedSegment
from gridref.serve.views import View, ViewOptions
from gridref.testing.builders import chunked_array

VALUES = np.arange(11 * 7, dtype="i4").reshape(11, 7)
CHUNKS = {"t": 4, "x": 3}
GZIP = ViewOptions(View.PORTABLE, compressor="gzip", chunks=CHUNKS)


def segment_of(array: VirtualArray, key: str, options: ViewOptions = GZIP) -> object:
    found = KeySpace(VirtualGroup({"a": array}), options).resolve(f"a/c/{key}")
    assert found is not None
    (segment,) = found.segments
    return segment


def test_the_deflate_data_is_the_stored_one(tmp_path, monkeypatch):
    path = tmp_path / "a.h5"
    values = np.random.default_rng(0).normal(size=(9, 8)).astype("f4").round(1)
    with h5py.File(path, "w") as file:
        data = file.create_dataset("v", data=values, chunks=(4, 4), compression="gzip")
        (offset, size) = data.id.get_chunk_info(3).byte_offset, data.id.get_chunk_info(3).size
    stored = path.read_bytes()[offset : offset + size]
    store = gridref.open_store(
        gridref.scan(path),
        "portable",
        compressor="gzip",
        chunks={"phony_dim_0": 4, "phony_dim_1": 4},
    )

    def refuse(*_: object) -> bytes:
        raise AssertionError("something is compressed")

    monkeypatch.setattr("gridref.serve.object_reader.encode_chunk", refuse)
    key = store.space.resolve("v/c/1/1")
    served = store.reader.read(key)
    assert served[10:-8] == stored[2:-4]
    assert len(served) == key.n_bytes == size + 12
    assert gzip.decompress(served) == zlib.decompress(stored)
    assert store.reader.read(key, 3, 20) == served[3:20]
    np.testing.assert_array_equal(zarr.open_group(store, mode="r")["v"][...], values)


def test_the_size_is_known_without_reading():
    array = chunked_array(VALUES, (4, 3), ("t", "x"), compressed=True)
    found = KeySpace(VirtualGroup({"a": array}), GZIP).resolve("a/c/2/2")
    assert found is not None
    segment = found.segments[0]
    assert isinstance(segment, RewrappedSegment)
    assert found.n_bytes == segment.held.n_bytes + 12


@pytest.mark.parametrize("edge", list(EdgePolicy))
@pytest.mark.parametrize("dtype", ["i4", "u1", "f8", "S3", [("a", "<f4"), ("b", "S2")]])
def test_every_chunk_decodes_to_the_same(edge, dtype):
    values = VALUES.astype("u1").view("u1").astype("i4")
    if isinstance(dtype, list):
        records = np.zeros(VALUES.shape, dtype)
        records["a"], records["b"] = VALUES, VALUES.astype("S2")
        values = records
    else:
        values = values.astype(dtype)
    array = chunked_array(values, (4, 3), ("t", "x"), compressed=True, edge=edge)
    store = gridref.open_store(
        VirtualGroup({"a": array}), "portable", compressor="gzip", chunks=CHUNKS
    )
    kinds = {type(segment_of(array, f"{t}/{x}")) for t in range(2) for x in range(2)}
    assert kinds == {RewrappedSegment}
    np.testing.assert_array_equal(zarr.open_group(store, mode="r")["a"][...], values)


@pytest.mark.parametrize(
    ("array", "key"),
    [
        (chunked_array(VALUES, (4, 3), ("t", "x")), "0/0"),
        (chunked_array(VALUES, (4, 3), ("t", "x"), compressed=True, big_endian=True), "0/0"),
        (
            # declared padded, as the grid is regular, but stored short
            chunked_array(VALUES, (4, 3), ("t", "x"), compressed=True, edge=EdgePolicy.TRUNCATED),
            "2/0",
        ),
        (flip(chunked_array(VALUES, (4, 3), ("t", "x"), compressed=True), 0), "0/0"),
        (
            getitem(chunked_array(VALUES, (4, 3), ("t", "x"), compressed=True), slice(2, None)),
            "0/0",
        ),
        (
            # padded inside the cube: the next block's elements belong there
            concatenate([chunked_array(VALUES, (4, 3), ("t", "x"), compressed=True)] * 2, 0),
            "2/0",
        ),
    ],
    ids=["plain", "big-endian", "short edge", "reversed", "cut", "padded inside"],
)
def test_other_chunks_are_encoded(array, key):
    assert isinstance(segment_of(array, key), DecodedSegment)


@pytest.mark.parametrize("axis", [0, 1])
def test_whole_chunks_that_are_turned_round_are_encoded(axis):
    whole = chunked_array(VALUES[:8, :6], (4, 3), ("t", "x"), compressed=True)
    assert isinstance(segment_of(whole, "0/0"), RewrappedSegment)
    assert isinstance(segment_of(flip(whole, axis), "0/0"), DecodedSegment)


def test_other_chunk_shapes_and_compressors_are_encoded():
    array = chunked_array(VALUES, (4, 3), ("t", "x"), compressed=True)
    for options in (
        ViewOptions(View.PORTABLE, compressor="gzip", chunks={"t": 2, "x": 3}),
        ViewOptions(View.PORTABLE, compressor="gzip", chunks={"t": 8, "x": 3}),
        ViewOptions(View.PORTABLE, compressor="zstd", chunks=CHUNKS),
        ViewOptions(View.PORTABLE, chunks=CHUNKS),
    ):
        assert isinstance(segment_of(array, "0/0", options), DecodedSegment)


def test_shuffled_and_unfiltered_chunks_are_encoded():
    raw = zlib.compress(bytes(16))
    zlib_codec = Codec.of("numcodecs.zlib", level=1)
    shuffle = Codec.of("numcodecs.shuffle", elementsize=4)
    for codecs, mask in (((shuffle, zlib_codec), 0), ((zlib_codec,), 1)):
        array = VirtualArray.of_one_block(
            (4,),
            np.dtype("i4"),
            encoding=Encoding((4,), np.dtype("i4"), (bytes_codec(np.dtype("i4")), *codecs)),
            manifest=ChunkManifest.from_columns(
                (), offset=0, length=len(raw), state=2, filter_mask=mask, inline=raw
            ),
            dims=("x",),
        )
        options = ViewOptions(View.PORTABLE, compressor="gzip", chunks={"x": 4})
        assert isinstance(segment_of(array, "0", options), DecodedSegment)


@pytest.mark.parametrize("n_behind", [0, 1, 2, 5, 300])
def test_what_follows_a_stream_is_left_out(n_behind):
    values = np.arange(50, dtype="u1")
    stream = zlib.compress(values.tobytes(), 6) + b"\7" * n_behind
    member = gzip_from_zlib(stream, values)
    assert gzip.decompress(member) == values.tobytes()
    assert len(member) == len(stream) + 12
    if not n_behind:
        assert len(member) == len(encode_chunk(values, (Codec("bytes"), Codec.of("gzip", level=6))))


def test_a_damaged_chunk_is_an_error(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("v", data=VALUES, chunks=(4, 3), compression="gzip")
        info = data.id.get_chunk_info(0)
    group = gridref.scan(path)
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(info.byte_offset + 6)
        file.write(b"\xff\xff\xff")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    chunks = {"phony_dim_0": 4, "phony_dim_1": 3}
    store = gridref.open_store(group, "portable", compressor="gzip", chunks=chunks)
    with pytest.raises(ReadError, match=rf"a\.h5.*v, chunk.*{info.byte_offset}-"):
        store.reader.read(store.space.resolve("v/c/0/0"))
