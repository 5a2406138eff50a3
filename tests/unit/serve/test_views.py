"""Which view an array gets, and of what chunks and shards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gridref.errors import NotRepresentableError
from gridref.model.array import VirtualArray
from gridref.model.encoding import Codec, EdgePolicy, Encoding, Unpacking, bytes_codec
from gridref.model.grid import ChunkGrid
from gridref.model.indexing import getitem
from gridref.model.joining import concatenate, lay_out
from gridref.model.manifest import ChunkManifest
from gridref.serve import views
from gridref.serve.grids import has_uneven_shuffle, native_grid, one_encoding
from gridref.serve.views import View, ViewOptions, show, why_not_zarr
from gridref.testing.builders import chunked_array

AUTO = ViewOptions(View.AUTO)


def cut(shape: tuple[int, ...], chunks: tuple[int, ...], dtype: str = "u1") -> VirtualArray:
    n_chunks = int(np.prod([-(-n // length) for n, length in zip(shape, chunks, strict=True)]))
    encoding = Encoding(chunks, np.dtype(dtype), (bytes_codec(np.dtype(dtype)),))
    return VirtualArray.of_one_block(
        shape,
        np.dtype(dtype),
        encoding=encoding,
        manifest=ChunkManifest.missing(n_chunks),
        dims=("t", "x", "y")[: len(shape)],
    )


def part(n: int, length: int, **options: Any) -> VirtualArray:
    return chunked_array(np.arange(n, dtype="i4"), (length,), ("t",), **options)


@pytest.mark.parametrize(
    ("array", "view"),
    [
        (cut((32, 2**13), (1, 2**13)), View.NATIVE),
        (cut((32, 2**13 - 1), (1, 2**13 - 1)), View.PORTABLE),
        (cut((31, 2**13 - 1), (1, 2**13 - 1)), View.NATIVE),
        (cut((31, 8), (1, 8)), View.NATIVE),
        (cut((33, 2**12), (1, 2**12), "u2"), View.NATIVE),
        (cut((33, 2**12 - 1), (1, 2**12 - 1), "u2"), View.PORTABLE),
    ],
)
def test_many_tiny_chunks_are_put_together(array: VirtualArray, view: View) -> None:
    shown = show(array, AUTO)
    assert shown.view is view
    assert ("tiny" in shown.reason) == (view is View.PORTABLE)
    assert show(array, ViewOptions(View.NATIVE)).view is View.NATIVE
    assert show(array, ViewOptions(View.AUTO, shards="auto")).view is View.NATIVE


def test_other_chunks_are_shown_only_decoded() -> None:
    array = cut((8, 6), (2, 3))
    assert show(array, ViewOptions(View.AUTO, chunks={"t": 4})).view is View.PORTABLE
    assert show(array, ViewOptions(View.AUTO, chunks={"z": 4})).view is View.NATIVE
    assert show(array, ViewOptions(View.AUTO, chunks={})).view is View.NATIVE


@pytest.mark.parametrize(
    ("array", "view"),
    [
        (part(8, 2), View.DIRECT),
        (part(0, 2), View.PORTABLE),
        (chunked_array(np.array(1), (), ()), View.PORTABLE),
    ],
)
def test_what_has_no_direct_view_is_decoded(array: VirtualArray, view: View) -> None:
    assert show(array, ViewOptions(View.DIRECT)).view is view


@pytest.mark.parametrize(
    ("array", "chunks", "as_stored"),
    [
        (part(8, 2), {"t": 2}, True),
        (part(8, 2), {"t": 4}, False),
        (part(8, 2, big_endian=True), {"t": 2}, False),
        (part(8, 2, compressed=True), {"t": 2}, False),
        (part(7, 2), {"t": 2}, True),
        (part(7, 2, edge=EdgePolicy.TRUNCATED), {"t": 2}, False),
        (concatenate([part(8, 2), part(8, 2, compressed=True)], 0), {"t": 2}, False),
    ],
)
def test_plain_chunks_are_sent_as_they_are_stored(
    array: VirtualArray, chunks: dict[str, int], as_stored: bool
) -> None:
    shown = show(array, ViewOptions(View.PORTABLE, chunks=chunks))
    assert shown.as_stored == as_stored
    assert show(array, ViewOptions(View.PORTABLE, chunks=chunks, compressor="gzip")).as_stored is (
        False
    )


@pytest.mark.parametrize(
    ("array", "chunks", "below"),
    [
        (cut((8, 6), (2, 3)), {"t": 2, "x": 3}, 1),
        (cut((8, 6), (2, 3)), {"t": 3, "x": 3}, 2),
        (cut((8, 6), (2, 3)), {"t": 8, "x": 6}, 8),
        (cut((8, 6), (2, 3)), {"t": 1, "x": 1}, 1),
        (cut((0, 6), (2, 3)), {"t": 2, "x": 6}, 6),
        (concatenate([cut((8, 6), (2, 3)), cut((8, 6), (1, 6))], 0), {"t": 4, "x": 6}, 8),
    ],
)
def test_how_many_stored_chunks_a_chunk_touches(
    array: VirtualArray, chunks: dict[str, int], below: int
) -> None:
    assert show(array, ViewOptions(View.PORTABLE, chunks=chunks)).stored_chunks_below == below


def test_keys_lie_inside_the_grid() -> None:
    shown = show(cut((8, 6), (2, 3)), ViewOptions(View.NATIVE))
    inside = {(t, x) for t in range(-1, 6) for x in range(-1, 4) if shown.chunk_exists_at((t, x))}
    assert inside == {(t, x) for t in range(4) for x in range(2)}
    assert not shown.chunk_exists_at((0,))
    assert not shown.chunk_exists_at((0, 0, 0))


def test_where_the_chunks_of_a_box_are_referenced() -> None:
    tiles = [chunked_array(np.full((4, 3), n, "i4"), (2, 3), ("t", "x")) for n in range(2)]
    laid = lay_out(tiles, [[0, 0], [4, 3]], [8, 6])
    shown = show(laid, ViewOptions(View.NATIVE))
    block, row = shown.locate((0, 0), (4, 2))
    assert block.tolist() == [0, 1, 0, 1, 2, 3, 2, 3]
    assert row.tolist() == [0, -1, 1, -1, -1, 0, -1, 1]
    block, row = shown.locate((1, 0), (2, 1))
    assert (block.tolist(), row.tolist()) == ([0, 2], [1, -1])
    direct = show(laid, ViewOptions(View.DIRECT))
    assert direct.chunk_codecs == (bytes_codec(np.dtype("i4")),)
    assert show(laid, ViewOptions(View.PORTABLE)).chunk_codecs == (bytes_codec(np.dtype("i4")),)


def shards_of(array: VirtualArray, **options: Any) -> tuple[list[list[int]], str]:
    shown = show(array, ViewOptions(options.pop("view", View.NATIVE), **options))
    grid = shown.metadata.grid
    return [axis.edges().tolist() for axis in grid.axes], shown.shard_reason


def test_shards_that_are_asked_for() -> None:
    array = cut((8, 6), (2, 3))
    assert shards_of(array, shards={"t": 4}) == ([[4, 4], [6]], "")
    assert shards_of(array, shards={"t": 2, "x": 3}) == ([[2] * 4, [3, 3]], "")
    assert shards_of(array, shards={"t": 6, "x": 6}) == ([[6, 2], [6]], "")
    assert shards_of(array, shards="blocks") == ([[8], [6]], "")
    edges, reason = shards_of(array, shards={"t": 3})
    assert edges == [[2] * 4, [3, 3]]
    assert "3 is not divisible by the chunk length 2 (dimension 't')" in reason


def test_what_cannot_have_shards_says_why() -> None:
    uneven = concatenate([part(6, 4), part(4, 4)], 0)
    assert "uneven" in shards_of(uneven, view=View.AUTO, grid="rectilinear", shards="auto")[1]
    assert "scalar" in shards_of(chunked_array(np.array(1), (), ()), shards="auto")[1]
    squeezed = {"view": View.PORTABLE, "compressor": "gzip", "shards": "auto"}
    assert "encoded sizes" in shards_of(part(8, 2), **squeezed)[1]
    assert shards_of(part(8, 2, compressed=True), shards="blocks") == ([[8]], "")
    blocks = concatenate([part(8, 4), part(4, 4), part(8, 4)], 0)
    assert "regular grids only" in shards_of(blocks, shards="blocks")[1]
    assert shards_of(blocks, shards="blocks", grid="rectilinear") == ([[8, 4, 8]], "")


@pytest.mark.parametrize(
    ("most_bytes", "most_chunks", "lengths"),
    [
        (1, 100, [2, 3]),
        (23, 100, [2, 3]),
        (24, 100, [2, 6]),
        (47, 100, [2, 6]),
        (48, 100, [4, 6]),
        (72, 100, [6, 6]),
        (10**6, 100, [8, 6]),
        (10**6, 4, [4, 6]),
        (10**6, 1, [2, 3]),
    ],
)
def test_shards_of_a_size(
    monkeypatch: pytest.MonkeyPatch, most_bytes: int, most_chunks: int, lengths: list[int]
) -> None:
    monkeypatch.setattr(views, "SHARD_BYTES", most_bytes)
    monkeypatch.setattr(views, "MAX_AUTO_CHUNKS", most_chunks)
    shown = show(cut((8, 6), (2, 3), "u2"), ViewOptions(View.NATIVE, shards="auto"))
    assert [axis.uniform_length for axis in shown.metadata.grid.axes] == lengths


def test_shards_may_overhang_the_array(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "SHARD_BYTES", 1600)
    options = ViewOptions(View.PORTABLE, shards="auto")
    shown = show(cut((10, 100), (1, 99), "f4"), options)
    assert [axis.uniform_length for axis in shown.metadata.grid.axes] == [2, 198]


def test_which_types_zarr_lacks() -> None:
    assert why_not_zarr(part(4, 2)) is None
    odd = cut((4,), (2,), "V3").with_changes(dtype=np.dtype([("a", "O")]))
    assert why_not_zarr(odd)


# The native view: stored chunks untouched


def refusal(array: VirtualArray) -> str:
    with pytest.raises(NotRepresentableError) as caught:
        native_grid(array, one_encoding(array))
    return caught.value.reason


I4 = np.dtype("<i4")


def coded(*codecs: Codec, **options: Any) -> VirtualArray:
    dtype = options.pop("dtype", I4)
    encoding = Encoding((2,), I4, (bytes_codec(I4), *codecs), **options)
    manifest = ChunkManifest.missing(2)
    return VirtualArray.of_one_block(
        (4,), dtype, encoding=encoding, manifest=manifest, dims=("t",), fill_value=7
    )


def test_what_cannot_be_shown_untouched_says_why() -> None:
    assert "differ in encoding" in refusal(
        concatenate([part(4, 2), part(4, 2, big_endian=True)], 0)
    )
    assert "no file holds" in refusal(part(0, 2))
    assert "before each chunk" in refusal(coded(prefix=b"head"))
    assert "converted" in refusal(coded(unpacking=Unpacking(scale=2.0)))
    assert "converted" in refusal(coded(dtype=np.dtype("i8")))
    assert "fill value" in refusal(coded(fill=np.array(8, I4).tobytes()))
    assert one_encoding(coded(fill=np.array(7, I4).tobytes())).fill is not None
    assert "gridref.szip" in refusal(coded(Codec("gridref.szip")))
    assert "reversed" in refusal(getitem(part(8, 2), np.s_[::-1]))
    assert "steps" in refusal(getitem(part(8, 2), np.s_[::2]))
    assert "begins inside" in refusal(getitem(part(8, 4), np.s_[2:]))
    assert "overhangs" in refusal(concatenate([part(6, 4), part(4, 4)], 0))


def native_edges(array: VirtualArray) -> list[int]:
    return native_grid(array, one_encoding(array)).axes[0].edges().tolist()


def test_the_grid_of_the_stored_chunks() -> None:
    short = {"edge": EdgePolicy.TRUNCATED}
    assert native_edges(part(8, 4)) == [4, 4]
    assert native_edges(part(6, 4)) == [4, 2]
    assert native_edges(concatenate([part(8, 4), part(6, 4)], 0)) == [4, 4, 4, 2]
    assert native_edges(concatenate([part(8, 4), part(6, 3)], 0)) == [4, 4, 3, 3]
    for first, edges in ((4, [4]), (6, [4, 2]), (7, [4, 3]), (8, [4, 4])):
        files = [part(first, 4, **short), part(5, 4, **short)]
        assert native_edges(concatenate(files, 0)) == [*edges, 4, 1]
    assert native_edges(getitem(part(8, 4), np.s_[4:])) == [4]
    assert native_edges(getitem(part(10, 4), np.s_[4:])) == [4, 2]
    assert native_edges(getitem(part(10, 4), np.s_[:8])) == [4, 4]


def test_a_window_that_begins_behind_chunks_ends_where_they_end() -> None:
    array = part(10, 4, edge=EdgePolicy.TRUNCATED)
    window = array.with_changes(
        grid=ChunkGrid.regular((6,), (6,)), blocks=replace(array.blocks, origin=np.array([[4]]))
    )
    (axis,) = native_grid(window, one_encoding(window)).axes
    assert axis.chunk_lengths([0, 1]).tolist() == [4, 2]


SHUFFLE = Codec.of("numcodecs.shuffle", elementsize=4)
ZLIB = Codec.of("numcodecs.zlib", level=1)


@pytest.mark.parametrize(
    ("codecs", "uneven"),
    [
        ((), False),
        ((SHUFFLE,), False),
        ((SHUFFLE, ZLIB), False),
        ((ZLIB, SHUFFLE), True),
        ((Codec("numcodecs.fletcher32"), SHUFFLE), True),
        ((Codec.of("transpose", order=(0,)), SHUFFLE), False),
        ((Codec.of("numcodecs.shuffle", elementsize=3),), True),
        ((Codec.of("numcodecs.shuffle", elementsize=2),), False),
        ((Codec.of("numcodecs.shuffle", elementsize=8),), True),
    ],
)
def test_what_is_shuffled_by_parts_of_elements(codecs: tuple[Codec, ...], uneven: bool) -> None:
    array = coded(*codecs)
    assert has_uneven_shuffle(array.encodings[0]) == uneven
    shown = show(array, ViewOptions(View.NATIVE))
    names = [codec.name for codec in shown.chunk_codecs]
    assert ("gridref.shuffle" in names) == uneven
    assert bool(shown.why_needs_package) == uneven
    assert len(names) == 1 + len(codecs)
    assert show(array, AUTO).view is (View.PORTABLE if uneven else View.NATIVE)
