from __future__ import annotations

import gzip
import itertools
import math
import os
import zlib

import h5py
import numpy as np
import pytest
import zarr

import gridref
import gridref.serve.pages
from gridref.api.readable import reader_for
from gridref.errors import ReadError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Codec, EdgePolicy, Encoding, bytes_codec
from gridref.model.indexing import flip, getitem
from gridref.model.joining import concatenate, lay_out
from gridref.model.manifest import ChunkManifest
from gridref.model.projection import SliceProjection
from gridref.serve.object_reader import ObjectReader
from gridref.serve.objects import KeySpace
from gridref.serve.pages import (
    PAGE_CHUNKS,
    DecodedSegment,
    RewrappedSegment,
    _cut_at,
    native_references,
    page_coords_of,
    page_shape,
    plan_page,
)
from gridref.serve.plan import AxisPieces
from gridref.serve.views import View, ViewOptions
from gridref.testing.builders import chunked_array

# Keys of native chunks, resolved by pages of neighbours

VALUES = np.arange(40 * 30, dtype="i4").reshape(40, 30)
NATIVE = ViewOptions(View.NATIVE)


def cube() -> KeySpace:
    parts = [chunked_array(VALUES, (2, 2), ("t", "x"), absent=gone) for gone in ((), (3, 200))]
    return KeySpace(VirtualGroup({"a": concatenate(parts, 0)}), NATIVE)


@pytest.mark.parametrize(
    "grid_shape", [(), (1,), (1000,), (40, 15), (3, 1000), (7, 1, 5), (0, 4), (2, 3, 4, 5, 6)]
)
def test_pages_hold_whole_rows_within_bounds(grid_shape):
    shape = page_shape(grid_shape)
    assert math.prod(shape) <= PAGE_CHUNKS
    assert all(1 <= n <= max(1, extent) for n, extent in zip(shape, grid_shape, strict=True))
    whole = [n == max(1, extent) for n, extent in zip(shape, grid_shape, strict=True)]
    cut = [axis for axis, is_whole in enumerate(whole) if not is_whole]
    assert all(shape[axis] == 1 for axis in range(cut[-1] if cut else 0))


def test_every_key_is_what_its_own_lookup_says():
    space = cube()
    view = space.array_view("a")
    assert view is not None
    n_pages = set()
    for coords in np.ndindex(*view.metadata.grid.grid_shape):
        alone = native_references(view, coords, (1, 1))
        found = space.resolve(f"a/c/{coords[0]}/{coords[1]}")
        n_pages.add(page_coords_of(view, coords))
        assert (found is not None) == alone.present[0]
        if found is not None:
            start = int(alone.offset[0])
            data = alone.literals[0][start : start + int(alone.length[0])]
            assert found.segments[0].data == data
            assert (found.variable, found.coords) == ("a", coords)
    assert len(n_pages) == 3


def test_a_page_is_looked_up_once(monkeypatch):
    calls = []
    monkeypatch.setattr(
        "gridref.serve.objects.plan_page", lambda *a: calls.append(a) or plan_page(*a)
    )
    space = cube()
    assert space.peek("a/c/0/0") is None
    for x in range(15):
        space.resolve(f"a/c/0/{x}")
    assert len(calls) == 1
    assert space.peek("a/c/1/4") is not None
    assert space.peek("a/c/1/4").etag == space.resolve("a/c/1/4").etag
    assert space.peek("a/c/1/15") is None  # beyond the grid, though its place is on the page
    assert space.peek("a/c/99/0") is None


def test_decoded_chunks_are_planned_once_a_page(monkeypatch):
    calls = []
    planned = gridref.serve.pages.plan_read
    monkeypatch.setattr("gridref.serve.pages.plan_read", lambda *a: calls.append(a) or planned(*a))
    options = ViewOptions(View.PORTABLE, chunks={"t": 3, "x": 7})  # straddle stored chunks
    space = KeySpace(cube().group, options)
    reader = ObjectReader(reader_for())
    assert space.peek("a/c/0/0") is None
    for t in range(27):
        for x in range(5):
            key = f"a/c/{t}/{x}"
            held = space.resolve(key)
            assert held is not None
            assert space.peek(key).etag == held.etag
            reader.read(held)
    assert len(calls) == 1


# Pieces of a page, cut where its chunks end


def elements(axis: AxisPieces) -> dict[int, tuple[int, int, int]]:
    """Block, stored chunk and place in it of every output element."""
    pieces = axis.pieces
    assert isinstance(pieces, SliceProjection)
    return {
        int(pieces.out_start[p]) + k: (
            int(axis.block[p]),
            int(pieces.chunk[p]),
            int(pieces.start[p] + k * pieces.step[p]),
        )
        for p in range(len(pieces))
        for k in range(int(pieces.count[p]))
    }


COUNTS = [(1,), (4,), (3, 1, 2), (7, 3), (1, 1, 1), (2, 5, 1)]
STEPS = [1, -1, 3, 0]


@pytest.mark.parametrize("order", ["as they lie", "turned round"])
@pytest.mark.parametrize("counts", COUNTS)
def test_each_piece_lies_in_one_chunk_and_nothing_moves(
    counts: tuple[int, ...], order: str
) -> None:
    n, total = len(counts), sum(counts)
    pieces = SliceProjection(
        np.arange(n) + 5,
        np.arange(n) + 20,
        np.resize(np.array(STEPS), n),
        np.array(counts),
        np.cumsum([0, *counts[:-1]]),
    )
    axis = AxisPieces(np.arange(n) + 2, pieces)
    if order == "turned round":
        turned = np.arange(n)[::-1]
        axis = AxisPieces(axis.block[turned], pieces.take(turned))
    inner = range(1, total)
    for n_cuts in range(3):
        for at in itertools.combinations(inner, n_cuts):
            edges = np.array([0, *at, total])
            cut, splits = _cut_at(axis, edges)
            assert elements(cut) == elements(axis)
            assert isinstance(cut.pieces, SliceProjection)
            assert (cut.pieces.count > 0).all()
            for k, (low, high) in enumerate(itertools.pairwise(edges.tolist())):
                part = AxisPieces(
                    cut.block[splits[k] : splits[k + 1]],
                    cut.pieces.take(np.arange(splits[k], splits[k + 1])),
                )
                assert sorted(elements(part)) == [*range(low, high)]
            assert len(cut.pieces) == len({*edges[:-1].tolist(), *pieces.out_start.tolist()})


def test_pieces_that_fill_a_part_of_the_page() -> None:
    """The other cross products of the page fill the rest."""
    pieces = SliceProjection(*map(np.array, ([0, 1], [0, 0], [1, 1], [2, 2], [3, 5])))
    cut, splits = _cut_at(AxisPieces(np.array([0, 0]), pieces), np.array([0, 2, 4, 6, 8, 10]))
    assert isinstance(cut.pieces, SliceProjection)
    assert cut.pieces.out_start.tolist() == [3, 4, 5, 6]
    assert cut.pieces.count.tolist() == [1, 1, 1, 1]
    assert splits.tolist()[:5] == [0, 0, 1, 3, 4]


# Portable gzip chunks made of stored zlib ones: another wrapper around the same deflate data

STORED = np.arange(11 * 7, dtype="i4").reshape(11, 7)
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


@pytest.mark.parametrize("edge", list(EdgePolicy))
@pytest.mark.parametrize("dtype", ["i4", "u1", "f8", "S3", [("a", "<f4"), ("b", "S2")]])
def test_every_chunk_decodes_to_the_same(edge, dtype):
    values = STORED.astype("u1").view("u1").astype("i4")
    if isinstance(dtype, list):
        records = np.zeros(STORED.shape, dtype)
        records["a"], records["b"] = STORED, STORED.astype("S2")
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
        (chunked_array(STORED, (4, 3), ("t", "x")), "0/0"),
        (chunked_array(STORED, (4, 3), ("t", "x"), compressed=True, big_endian=True), "0/0"),
        (
            # declared padded, as the grid is regular, but stored short
            chunked_array(STORED, (4, 3), ("t", "x"), compressed=True, edge=EdgePolicy.TRUNCATED),
            "2/0",
        ),
        (flip(chunked_array(STORED, (4, 3), ("t", "x"), compressed=True), 0), "0/0"),
        (
            getitem(chunked_array(STORED, (4, 3), ("t", "x"), compressed=True), slice(2, None)),
            "0/0",
        ),
        (
            # padded inside the cube: the next block's elements belong there
            concatenate([chunked_array(STORED, (4, 3), ("t", "x"), compressed=True)] * 2, 0),
            "2/0",
        ),
    ],
    ids=["plain", "big-endian", "short edge", "reversed", "cut", "padded inside"],
)
def test_other_chunks_are_encoded(array, key):
    assert isinstance(segment_of(array, key), DecodedSegment)


@pytest.mark.parametrize("axis", [0, 1])
def test_whole_chunks_that_are_turned_round_are_encoded(axis):
    whole = chunked_array(STORED[:8, :6], (4, 3), ("t", "x"), compressed=True)
    assert isinstance(segment_of(whole, "0/0"), RewrappedSegment)
    assert isinstance(segment_of(flip(whole, axis), "0/0"), DecodedSegment)


def test_other_chunk_shapes_and_compressors_are_encoded():
    array = chunked_array(STORED, (4, 3), ("t", "x"), compressed=True)
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


def test_a_damaged_chunk_is_an_error(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("v", data=STORED, chunks=(4, 3), compression="gzip")
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


# Entity tags of chunks that hold different things, though they are made of the same parts

ONE, TWO = np.array([1, 2], "i4"), np.array([3, 4], "i4")


def held(values: np.ndarray, **options: object) -> VirtualArray:
    return chunked_array(values, (2,), ("t",), **options)


def tag(array: VirtualArray, **options: object) -> str:
    view = ViewOptions(View.PORTABLE, chunks={"t": 4}, **options)
    found = KeySpace(VirtualGroup({"a": array}), view).resolve("a/c/0")
    assert found is not None
    return found.etag


PAIRS = {
    "order of blocks": ([held(ONE), held(TWO)], [held(TWO), held(ONE)]),
    "byte order of one": ([held(ONE), held(ONE, big_endian=True)], [held(ONE)] * 2),
    "which is which": (
        [held(ONE), held(ONE, compressed=True)],
        [held(ONE, compressed=True), held(ONE)],
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_parts_in_another_order_are_another_object(name: str) -> None:
    one, other = (concatenate(parts, 0) for parts in PAIRS[name])
    assert tag(one) != tag(other)
    assert tag(one) == tag(concatenate(PAIRS[name][0], 0))


def test_where_nothing_is_held_counts() -> None:
    first = lay_out([held(ONE)], [[0]], [4])
    last = lay_out([held(ONE)], [[2]], [4])
    assert tag(first) != tag(last)
    assert tag(first) == tag(lay_out([held(ONE)], [[0]], [4]))


def test_chunks_that_a_file_lacks_count() -> None:
    four = np.concatenate([ONE, ONE])
    tags = {tag(held(four, absent=absent)) for absent in ([], [0], [1])}
    assert len(tags) == 3


def test_the_value_of_what_is_missing_counts() -> None:
    assert tag(lay_out([held(ONE, fill_value=7)], [[0]], [4])) != tag(
        lay_out([held(ONE, fill_value=8)], [[0]], [4])
    )


def test_compressed_answers_have_tags_of_their_own() -> None:
    assert tag(held(ONE)) != tag(held(ONE), compressor="gzip")
