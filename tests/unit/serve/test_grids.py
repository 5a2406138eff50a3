from __future__ import annotations

import math

import numpy as np
import pytest

from gridref.errors import NotRepresentableError
from gridref.model.array import VirtualArray
from gridref.model.encoding import Codec, Encoding, Unpacking, bytes_codec
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.model.indexing import getitem
from gridref.model.joining import concatenate, lay_out
from gridref.model.manifest import ChunkManifest
from gridref.serve.grids import (
    DEFAULT_COMPRESSOR,
    _copied_codecs,
    _file_length,
    _grown,
    _super_chunks,
    block_chunks,
    direct_codec,
    direct_grid,
    native_grid,
    portable_grid,
)
from gridref.testing.builders import chunked_array

# Which chunks the decoded views show


def cut(shape: tuple[int, ...], chunks: tuple[int, ...], dtype: str = "u1") -> VirtualArray:
    """An array of which nothing is held, of any size."""
    n_chunks = int(np.prod([-(-n // length) for n, length in zip(shape, chunks, strict=True)]))
    encoding = Encoding(chunks, np.dtype(dtype), (bytes_codec(np.dtype(dtype)),))
    dims = ("t", "x", "y")[: len(shape)]
    manifest = ChunkManifest.missing(n_chunks)
    return VirtualArray.of_one_block(
        shape, np.dtype(dtype), encoding=encoding, manifest=manifest, dims=dims
    )


def edges(array: VirtualArray, *, grow: bool = False, rectilinear: bool = False, **chunks: int):
    grid = portable_grid(array, chunks, rectilinear=rectilinear, grow=grow)
    return [axis.edges().tolist() for axis in grid.axes]


def test_stored_chunks_are_kept_where_they_are_even() -> None:
    assert edges(cut((10, 7), (4, 3))) == [[4, 4, 2], [3, 3, 1]]
    assert edges(concatenate([cut((8,), (4,)), cut((6,), (4,))], 0)) == [[4, 4, 4, 2]]


def test_uneven_ones_are_kept_only_for_readers_that_know_them() -> None:
    array = concatenate([cut((6,), (4,)), cut((5,), (4,))], 0)
    assert edges(array, rectilinear=True) == [[4, 2, 4, 1]]
    assert edges(array) == [[4, 4, 3]]


def test_blocks_that_begin_inside_a_chunk_or_in_steps_have_equal_chunks() -> None:
    assert edges(getitem(cut((12,), (4,)), np.s_[1:]), rectilinear=True) == [[4, 4, 3]]
    assert edges(getitem(cut((12,), (4,)), np.s_[::2]), rectilinear=True) == [[2, 2, 2]]
    assert edges(getitem(cut((12,), (4,)), np.s_[::-3]), rectilinear=True) == [[1, 1, 1, 1]]
    assert edges(getitem(cut((12,), (4,)), np.s_[::8]), rectilinear=True) == [[1, 1]]


def test_the_commonest_length_counts_by_elements_and_the_shortest_of_several() -> None:
    parts = [cut((4,), (2,)), cut((3,), (3,)), cut((4,), (2,))]
    assert edges(concatenate(parts, 0)) == [[2, 2, 2, 2, 2, 1]]
    assert edges(concatenate([cut((6,), (3,)), cut((6,), (2,))], 0)) == [[2] * 6]
    assert edges(concatenate([cut((8,), (2,)), cut((6,), (3,))], 0)) == [[2] * 7]
    assert edges(concatenate([cut((6,), (2,)), cut((9,), (3,))], 0)) == [[3] * 5]
    assert edges(concatenate([cut((2,), (2,)), cut((1,), (9,))], 0)) == [[2, 1]]
    assert edges(cut((3,), (4,))) == [[3]]


def test_what_is_asked_for_goes_before_what_is_stored() -> None:
    assert edges(cut((10, 7), (4, 3)), t=5) == [[5, 5], [3, 3, 1]]
    assert edges(cut((10, 7), (4, 3)), t=99) == [[10], [3, 3, 1]]


@pytest.mark.parametrize("grow", [False, True])
def test_nothing_and_scalars(grow: bool) -> None:
    empty = portable_grid(cut((0, 7), (4, 3)), {}, rectilinear=False, grow=grow)
    assert empty.shape == (0, 7)
    assert empty.n_chunks == 0
    assert portable_grid(cut((0,), (4,)), {"t": 3}, rectilinear=False, grow=grow).n_chunks == 0
    assert edges(cut((), ()), grow=grow) == []
    assert edges(cut((1,), (1,)), grow=grow) == [[1]]


def test_tiny_chunks_grow_along_the_last_axis_first() -> None:
    assert edges(cut((100, 2000), (1, 1000)), grow=True) == [[100], [2000]]
    # 2**20 bytes are all of the last axis (2**11) and 2**9 of the first.
    assert edges(cut((1024, 2**11), (1, 16)), grow=True) == [[512, 512], [2048]]
    assert edges(cut((1024, 2**11), (1, 16), "u2"), grow=True) == [[256] * 4, [2048]]
    assert edges(cut((2, 2**13), (1, 2**13)), grow=True) == [[1, 1], [2**13]]
    assert edges(cut((2, 2**13 - 1), (1, 2**13 - 1)), grow=True) == [[2], [2**13 - 1]]
    assert edges(cut((100, 2000), (1, 1000)), grow=False) == [[1] * 100, [1000, 1000]]


def test_elements_without_bytes_do_not_count_as_nothing() -> None:
    assert edges(cut((2**14,), (2,), "S0"), grow=True) == [[2**14]]


def test_blocks_are_cut_along_stored_chunks_only_if_too_large() -> None:
    array = concatenate([cut((100, 10), (7, 10)), cut((50, 10), (7, 10))], 0)
    assert block_chunks(array, 1000) == ((100, 50), (10,))
    assert block_chunks(array, 999) == ((98, 2, 50), (10,))
    assert block_chunks(array, 10) == ((*(7,) * 14, 2, *(7,) * 7, 1), (10,))
    assert block_chunks(cut((0, 3), (2, 2)), 1) == ((), (3,))


# The direct view: the largest pieces of at most 128 MiB; an element of x takes 1 MiB here


def rows(extent: int, chunk: int) -> VirtualArray:
    return cut((extent, 2**20), (chunk, 2**20))


def super_rows(array: VirtualArray) -> int:
    return direct_grid(array, {}).axes[0].uniform_length


def test_what_fits_is_one_piece() -> None:
    assert super_rows(rows(128, 24)) == 128
    assert super_rows(rows(129, 24)) == 72


def test_pieces_are_whole_files_or_equal_parts_of_files() -> None:
    assert super_rows(concatenate([rows(30, 7)] * 6, 0)) == 90
    assert super_rows(concatenate([rows(720, 16)] * 3, 0)) == 80
    assert super_rows(concatenate([rows(720, 32)] * 3, 0)) == 128


def test_a_stored_chunk_that_is_too_large_is_one_piece() -> None:
    assert super_rows(rows(600, 200)) == 200


def test_empty_arrays_have_pieces_of_one() -> None:
    assert direct_grid(cut((0, 5), (4, 5)), {}).shape == (0, 5)
    assert direct_grid(cut((0, 5), (4, 5)), {}).n_chunks == 0


def test_lengths_that_were_asked_for_are_kept() -> None:
    assert direct_grid(rows(600, 16), {"t": 10}).axes[0].uniform_length == 10


# The native view


def test_blocks_whose_chunks_differ_across_have_no_grid_of_stored_chunks() -> None:
    def tile(length: int) -> VirtualArray:
        return chunked_array(np.zeros((6, 6), "u1"), (length, length), ("t", "x"))

    crossed = [concatenate([tile(a), tile(b)], 0) for a, b in ((2, 3), (3, 2))]
    array = concatenate(crossed, 1)
    with pytest.raises(NotRepresentableError, match="blocks are cut differently"):
        native_grid(array, array.encodings[0])
    assert edges(array) == [[2] * 6, [2] * 6]
    fewer = [concatenate([tile(a), tile(b)], 0) for a, b in ((3, 2), (3, 3))]
    assert edges(concatenate(fewer, 1)) == [[3] * 4, [3] * 4]


# The pieces of the direct view, and how zarr writes copies of it

I4 = np.dtype("<i4")


def coded(
    codecs: tuple[Codec, ...],
    shape: tuple[int, ...] = (8,),
    chunks: tuple[int, ...] = (4,),
    dtype: str = "<i4",
    stored: str | None = None,
    unpacking: Unpacking | None = None,
) -> VirtualArray:
    n_chunks = math.prod(-(-n // length) for n, length in zip(shape, chunks, strict=True))
    return VirtualArray.of_one_block(
        shape,
        np.dtype(dtype),
        encoding=Encoding(chunks, np.dtype(stored or dtype), codecs, unpacking=unpacking),
        manifest=ChunkManifest.missing(n_chunks),
        dims=("t", "y", "x")[: len(shape)],
    )


@pytest.mark.parametrize("unit", [1, 2, 3, 7])
@pytest.mark.parametrize("most", [1, 6, 7, 20, 21])
def test_pieces_are_near_one_size_and_no_larger_than_may_be(unit: int, most: int) -> None:
    for extent in range(1, 60):
        if extent <= most:
            assert _grown(extent, unit, None, most) == extent
            continue
        length = _grown(extent, unit, None, most)
        n_pieces = -(-extent // length)
        assert length % unit == 0
        assert length <= max(unit, most)
        # As few as there can be, and then as small as so many can be.
        assert n_pieces == math.ceil(math.ceil(extent / unit) / max(1, most // unit))
        assert length == unit or -(-extent // (length - unit)) > n_pieces


@pytest.mark.parametrize(
    ("extent", "unit", "file_length", "most", "length"),
    [
        (100, 1, 10, 100, 100),
        (100, 1, 10, 99, 50),
        (100, 1, 10, 35, 30),
        (100, 1, 10, 10, 10),
        (100, 1, 10, 9, 5),  # halves of files
        (100, 1, 10, 5, 5),
        (100, 1, 10, 4, 2),
        (100, 5, 10, 5, 5),
        (96, 1, 12, 4, 4),  # thirds
        (96, 2, 12, 4, 4),
        (96, 5, 12, 6, 5),  # chunks that straddle files: those count
        (99, 1, 11, 6, 6),  # nothing cuts a file of 11 into equal parts near 6
        (22, 1, 11, 1, 1),
        (26, 1, 13, 4, 1),  # parts of a quarter of what may be
        (26, 1, 13, 5, 5),  # and no smaller ones
    ],
)
def test_files_are_kept_or_cut_into_equal_parts(
    extent: int, unit: int, file_length: int, most: int, length: int
) -> None:
    assert _grown(extent, unit, file_length, most) == length


def lengths(shape: tuple[int, ...], chunks: tuple[int, ...], most: int, **asked: int) -> list[int]:
    named = tuple(asked.get(dim) for dim in ("t", "y", "x")[: len(shape)])
    grid = ChunkGrid(tuple(GridAxis.uniform(n, n or 1) for n in shape))
    found = _super_chunks(grid, chunks, named, most)
    return [axis.uniform_length for axis in found.axes]


def test_pieces_grow_from_the_last_axis() -> None:
    assert lengths((9, 8, 6), (1, 2, 3), 6) == [1, 2, 3]
    assert lengths((9, 8, 6), (1, 2, 3), 12) == [1, 2, 6]
    assert lengths((9, 8, 6), (1, 2, 3), 24) == [1, 4, 6]
    assert lengths((9, 8, 6), (1, 2, 3), 48) == [1, 8, 6]
    assert lengths((9, 8, 6), (1, 2, 3), 47) == [1, 4, 6]
    assert lengths((9, 8, 6), (1, 2, 3), 48 * 3) == [3, 8, 6]
    assert lengths((9, 8, 6), (1, 2, 3), 10**9) == [9, 8, 6]
    assert lengths((9, 8, 6), (20, 20, 20), 1) == [9, 8, 6]
    assert lengths((0, 8), (1, 2), 4) == [1, 4]


def test_what_was_asked_for_does_not_grow() -> None:
    assert lengths((9, 8, 6), (1, 2, 3), 48, x=2) == [3, 8, 2]
    assert lengths((9, 8, 6), (1, 2, 3), 48, x=100, t=2) == [2, 4, 6]
    assert lengths((9, 8, 6), (1, 2, 3), 48, t=1, y=1, x=1) == [1, 1, 1]


PLAIN = bytes_codec(I4)
ZLIB = Codec.of("numcodecs.zlib", level=3)
FLETCHER = Codec("numcodecs.fletcher32")
SHUFFLE = Codec.of("numcodecs.shuffle", elementsize=4)


@pytest.mark.parametrize(
    ("codecs", "copied"),
    [
        ((PLAIN,), (PLAIN,)),
        ((PLAIN, ZLIB), (PLAIN, ZLIB)),
        ((PLAIN, FLETCHER, SHUFFLE, ZLIB), (PLAIN, SHUFFLE, ZLIB, FLETCHER)),
        ((PLAIN, Codec("gridref.reverse")), (PLAIN,)),
        ((PLAIN, Codec("gridref.szip")), (PLAIN, DEFAULT_COMPRESSOR)),
        ((PLAIN, ZLIB, Codec("gridref.szip")), (PLAIN, DEFAULT_COMPRESSOR)),
    ],
)
def test_copies_are_written_as_the_stored_chunks_if_zarr_can(
    codecs: tuple[Codec, ...], copied: tuple[Codec, ...]
) -> None:
    assert _copied_codecs(coded(codecs)) == copied


def test_converted_values_are_copied_compressed_where_they_were() -> None:
    packing = Unpacking(scale=2.0)
    for stored, unpacking in (("<i2", None), ("<f4", packing), ("<i2", packing)):
        plain = coded((bytes_codec(np.dtype(stored)),), (8,), (4,), "<f4", stored, unpacking)
        assert _copied_codecs(plain) == (bytes_codec(np.dtype("<f4")),)
    squeezed = coded((bytes_codec(np.dtype("<i2")), ZLIB), (8,), (4,), "<f4", "<i2", packing)
    assert _copied_codecs(squeezed) == (bytes_codec(np.dtype("<f4")), DEFAULT_COMPRESSOR)


def test_the_commonest_encoding_is_taken() -> None:
    def part(**options: bool) -> VirtualArray:
        return chunked_array(np.arange(4, dtype="i4"), (4,), ("t",), **options)

    def is_compressed(*parts: VirtualArray) -> bool:
        return len(_copied_codecs(concatenate(parts, 0))) == 2

    assert not is_compressed(part(), part(compressed=True), part())
    assert is_compressed(part(compressed=True), part(), part(compressed=True))
    assert is_compressed(part(), part(compressed=True), part(compressed=True))


def test_blocks_that_no_file_holds_do_not_count() -> None:
    values = np.arange(4, dtype="i4")
    held = [
        chunked_array(values, (4,), ("t",), compressed=compressed)
        for compressed in (False, True, True)
    ]
    assert len(_copied_codecs(lay_out(held, [[4], [8], [16]], [40]))) == 2
    assert _copied_codecs(lay_out(held[:1], [[4]], [40])) == (PLAIN,)


@pytest.mark.parametrize(
    ("shape", "chunks", "inner"),
    [
        ((2**15,), (2**14,), (2**14,)),  # 64 KiB: kept
        ((2**15,), (2**14 - 1,), (2**15,)),  # less: the piece
        ((4, 2**14), (1, 2**14), (1, 2**14)),
        ((4, 2**13), (1, 2**13), (4, 2**13)),
    ],
)
def test_tiny_stored_chunks_are_not_kept_in_copies(
    shape: tuple[int, ...], chunks: tuple[int, ...], inner: tuple[int, ...]
) -> None:
    array = coded((PLAIN,), shape, chunks)
    codec = direct_codec(array, direct_grid(array, {}))
    assert tuple(codec.configuration["chunk_shape"]) == inner
    assert [each["name"] for each in codec.configuration["codecs"]] == ["bytes"]


# How long chunks and shards become: never longer than wanted, and never shorter than need be


@pytest.mark.parametrize("dtype", ["u1", "f8"])
@pytest.mark.parametrize("most", [1, 400, 800, 801, 79_999, 80_000, 10**9])
@pytest.mark.parametrize(
    ("shape", "chunks"), [((100, 10, 20), (1, 10, 20)), ((64, 50), (8, 7)), ((999,), (10,))]
)
def test_blocks_for_dask_are_as_large_as_may_be(
    shape: tuple[int, ...], chunks: tuple[int, ...], most: int, dtype: str
) -> None:
    found = block_chunks(cut(shape, chunks, dtype), most)
    assert [sum(lengths) for lengths in found] == list(shape)
    itemsize = np.dtype(dtype).itemsize
    largest = [max(lengths) for lengths in found]
    n_bytes = math.prod(largest) * itemsize
    smallest = all(n <= max(1, unit) for n, unit in zip(largest, chunks, strict=True))
    assert n_bytes <= most or smallest
    if n_bytes < math.prod(shape) * itemsize:
        # One more stored chunk along the axis that was cut last would be too much.
        axis = max(axis for axis, n in enumerate(largest) if n < shape[axis])
        grown = n_bytes // largest[axis] * (largest[axis] + chunks[axis])
        assert grown > most
    for axis, lengths in enumerate(found):
        assert all(n % chunks[axis] == 0 for n in lengths[:-1])


@pytest.mark.parametrize(
    ("edges", "length"),
    [
        ([5, 5, 5], 5),
        ([5, 5, 3], 5),
        ([5, 3], 5),
        ([3, 5], None),
        ([5, 4, 5], None),
        ([4, 5, 5], None),
        ([5, 5, 6], None),
        ([5], None),
        ([1, 1], 1),
    ],
)
def test_files_are_alike_but_for_the_last(edges: list[int], length: int | None) -> None:
    assert _file_length(GridAxis.from_edges(edges)) == length


@pytest.mark.parametrize("extent", [0, 1, 2, 9])
@pytest.mark.parametrize("asked", [1, 2, 3, 100])
def test_lengths_that_were_asked_for(extent: int, asked: int) -> None:
    grid = portable_grid(cut((extent,), (4,)), {"t": asked}, rectilinear=False, grow=False)
    assert grid.axes[0].uniform_length == max(1, min(asked, extent))
