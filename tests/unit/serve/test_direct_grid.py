"""The pieces of the direct view, and how zarr writes copies of it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gridref.model.array import VirtualArray
from gridref.model.encoding import Codec, Encoding, Unpacking, bytes_codec
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.model.joining import concatenate, lay_out
from gridref.model.manifest import ChunkManifest
from gridref.serve.grids import (
    DEFAULT_COMPRESSOR,
    _copied_codecs,
    _grown,
    _stored_length,
    _super_chunks,
    direct_codec,
    direct_grid,
)
from gridref.testing.builders import chunked_array

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


def test_the_commonest_stored_length_counts_by_elements() -> None:
    def part(extent: int, length: int) -> VirtualArray:
        return chunked_array(np.zeros(extent, "i4"), (length,), ("t",))

    assert _stored_length(concatenate([part(8, 2), part(6, 3)], 0), 0) == 2
    assert _stored_length(concatenate([part(6, 2), part(9, 3)], 0), 0) == 3
    assert _stored_length(concatenate([part(6, 2), part(6, 3)], 0), 0) == 2
    assert _stored_length(concatenate([part(2, 2), part(1, 9)], 0), 0) == 2
    assert _stored_length(part(0, 4), 0) == 1
    assert _stored_length(part(3, 4), 0) == 3


def test_blocks_that_are_cut_across_count_alike() -> None:
    def tile(length: int) -> VirtualArray:
        return chunked_array(np.zeros((6, 6), "i4"), (length, length), ("t", "x"))

    rows = [concatenate([tile(a), tile(b)], 0) for a, b in ((3, 2), (2, 3))]
    assert _stored_length(concatenate(rows, 1), 0) == 2
    rows = [concatenate([tile(a), tile(b)], 0) for a, b in ((3, 2), (3, 3))]
    assert _stored_length(concatenate(rows, 1), 1) == 3


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
