"""What operations leave behind: no more chunks, blocks and manifests than are shown."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gridref.errors import InvalidRequestError, NotRepresentableError
from gridref.model import indexing
from gridref.model.array import VirtualArray
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.encoding import EdgePolicy
from gridref.model.grid import ChunkGrid
from gridref.model.indexing import arithmetic_runs, getitem, isel, split_blocks
from gridref.model.joining import (
    cast_scalar,
    common_dtype,
    compacted,
    concatenate,
    lay_out,
    missing_array,
    missing_like,
    recast,
    same_scalar,
)
from gridref.model.listing import ChunkListing, touched_chunks
from gridref.model.reshaping import broadcast_axis, expand_dims, squeeze, transpose
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly


def line(n: int, length: int, **options: Any) -> VirtualArray:
    return chunked_array(np.arange(n, dtype="i4"), (length,), ("x",), **options)


SLICES = [
    slice(start, stop, step)
    for start, stop in itertools.product([None, 0, 1, 3, 4, -1, -3], [None, 0, 1, 4, 5, -1, -2])
    for step in (1, 2, 3, 5, -1, -2, -4)
]


@pytest.mark.parametrize("edge", EdgePolicy)
@pytest.mark.parametrize(("n", "length"), [(6, 2), (7, 3), (5, 5), (4, 1), (3, 4)])
def test_slices_keep_the_chunks_that_they_show(n: int, length: int, edge: EdgePolicy) -> None:
    array = line(n, length, edge=edge)
    for key in SLICES:
        found = getitem(array, key)
        expected = np.arange(n)[key]
        assert read_slowly(found).tolist() == expected.tolist()
        if not expected.size:
            assert (found.n_blocks, found.encodings, found.manifests) == (0, (), ())
            continue
        blocks = found.blocks
        low, high = int(expected.min()) // length, int(expected.max()) // length
        assert blocks.first_row.tolist() == [low]
        stored = min(n, (high + 1) * length) - low * length
        assert blocks.stored_shape.tolist() == [[stored]]
        assert blocks.origin.tolist() == [[int(expected[0]) - low * length]]
        step = 1 if expected.size == 1 else int(expected[1] - expected[0])
        assert blocks.step.tolist() == [[step]]
        first, last = touched_chunks(found)
        assert (first.tolist(), last.tolist()) == ([[0]], [[high - low]])


def test_runs_are_as_long_as_can_be() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        n = int(rng.integers(0, 9))
        indices = rng.integers(0, 8, n) if n % 2 else np.cumsum(rng.integers(-1, 3, n))
        block = np.sort(rng.integers(0, 3, n)) if n % 3 else indices // 4
        first, count = arithmetic_runs(indices, block)
        assert count.sum() == n
        assert first.tolist() == [0, *np.cumsum(count)[:-1].tolist()][: len(first)]
        for start, length in zip(first.tolist(), count.tolist(), strict=True):
            run = indices[start : start + length]
            assert len({*block[start : start + length].tolist()}) == 1
            assert len({*np.diff(run).tolist()}) <= 1
            if start + length < n and block[start + length] == block[start]:
                steps = {*np.diff(indices[start : start + length + 1]).tolist()}
                assert len(steps) > 1, (indices, block)


@pytest.mark.parametrize(("n_runs", "fits"), [(3, True), (4, False)])
def test_so_many_runs_can_be(monkeypatch: pytest.MonkeyPatch, n_runs: int, fits: bool) -> None:
    monkeypatch.setattr(indexing, "MAX_RUNS", 3)
    array = line(40, 40)
    indices = np.concatenate([[10 * run, 10 * run + 1, 10 * run + 2] for run in range(n_runs)])
    if fits:
        assert isel(array, {"x": indices}).n_blocks == n_runs
    else:
        with pytest.raises(NotRepresentableError, match="more than 3 runs"):
            isel(array, {"x": indices})


def test_what_no_block_uses_is_dropped() -> None:
    parts = [line(4, 2), line(4, 2, big_endian=True), line(4, 2, compressed=True)]
    whole = concatenate(parts, 0)
    assert (len(whole.encodings), len(whole.manifests)) == (3, 3)
    for part in range(3):
        found = getitem(whole, np.s_[4 * part : 4 * part + 4])
        assert found.encodings == parts[part].encodings
        assert found.manifests == (whole.manifests[part],)
        assert found.blocks.encoding.tolist() == found.blocks.manifest.tolist() == [0]
    both = getitem(whole, np.s_[np.array([9, 1])])
    assert both.blocks.encoding.tolist() == [1, 0]
    laid = lay_out([line(2, 2)], [[2]], [6])
    missing = getitem(laid, np.s_[:2])
    assert missing.encodings == ()
    assert missing.blocks.encoding.tolist() == [MISSING_BLOCK]
    assert missing.blocks.manifest.tolist() == [0]
    assert missing.blocks.stored_shape.tolist() == [[0]]
    assert getitem(laid, np.s_[1:3]).blocks.encoding.tolist() == [MISSING_BLOCK, 0]


@pytest.mark.parametrize("starts", [[2], [0, 2], [2, 2], [6], [9], [], [1, 3, 5]])
def test_blocks_are_cut_where_asked(starts: list[int]) -> None:
    array = line(6, 2)
    found = split_blocks(array, 0, np.array(starts, np.int64))
    inside = sorted({start for start in starts if 0 < start < 6})
    assert found.grid.axes[0].edges().tolist() == np.diff([0, *inside, 6]).tolist()
    assert (found is array) == (not inside)
    assert read_slowly(found).tolist() == [*range(6)]


@pytest.mark.parametrize(
    "join",
    [
        lambda: concatenate([], 0),
        lambda: concatenate([line(4, 2)], 1),
        lambda: concatenate([line(4, 2)], -1),
        lambda: concatenate([expand_dims(line(n, 2), 0, "t") for n in (4, 5)], 0),
        lambda: concatenate([expand_dims(line(n, 2), 1, "t") for n in (4, 5)], 1),
        lambda: common_dtype([line(2, 2), chunked_array(np.zeros(2, "M8[s]"), (2,), ("x",))]),
        lambda: expand_dims(line(4, 2), 2, "t"),
        lambda: expand_dims(line(4, 2), -1, "t"),
        lambda: expand_dims(line(4, 2), 0, "x"),
        lambda: squeeze(line(2, 2), [0]),
        lambda: broadcast_axis(line(2, 2), 0, 3),
        lambda: transpose(line(2, 2), (0, 0)),
        lambda: isel(line(2, 2), {"y": 0}),
        lambda: isel(line(2, 2), {"x": 2}),
    ],
    ids=range(14),
)
def test_what_cannot_be_is_refused(join: Any) -> None:
    with pytest.raises(InvalidRequestError):
        join()


def test_inputs_of_nothing_add_nothing() -> None:
    assert concatenate([line(0, 2), line(0, 2)], 0).shape == (0,)
    joined = concatenate([line(0, 2), line(3, 2), line(0, 2)], 0)
    assert joined.n_blocks == 1
    assert read_slowly(joined).tolist() == [0, 1, 2]
    assert concatenate([line(3, 2)], 0).shape == (3,)


def test_of_inputs_of_nothing_not_even_the_encoding_stays() -> None:
    odd = chunked_array(np.zeros(0, "i4"), (2,), ("x",), big_endian=True)
    part = line(3, 2)
    joined = concatenate([odd, part, odd], 0)
    assert joined.encodings == part.encodings
    assert joined.manifests == part.manifests
    assert concatenate([odd, odd], 0).encodings == odd.encodings


@pytest.mark.parametrize("edge", EdgePolicy)
@pytest.mark.parametrize("place", range(5))
def test_one_place_of_a_window_is_taken_out_of_its_chunk(place: int, edge: EdgePolicy) -> None:
    """The last chunk is short where edges are truncated."""
    array = chunked_array(np.arange(10, dtype="i4").reshape(5, 2), (2, 2), ("y", "x"), edge=edge)
    window = array.with_changes(
        grid=ChunkGrid.regular((1, 2), (1, 2)),
        blocks=replace(array.blocks, origin=np.array([[place, 0]])),
    )
    assert read_slowly(window).tolist() == [[2 * place, 2 * place + 1]]
    assert read_slowly(squeeze(window, [0])).tolist() == [2 * place, 2 * place + 1]


def test_arrays_that_no_file_holds() -> None:
    array = missing_array((2, 0), np.dtype("f4"), dims=("x", "y"), fill_value=np.nan)
    assert (array.shape, array.n_blocks) == ((2, 0), 0)
    like = missing_like(line(4, 2), 0, 3, 7)
    assert (like.shape, like.dims, like.n_blocks) == ((3,), ("x",), 1)
    assert read_slowly(like).tolist() == [7, 7, 7]


@pytest.mark.parametrize(
    ("one", "other", "code", "same"),
    [
        (0.0, -0.0, "f8", False),
        (np.nan, np.nan, "f4", True),
        (1, 1.0, "f4", True),
        (1, 2, "i4", False),
        ("a", "a", "T", True),
        ("a", "b", "T", False),
    ],
)
def test_fill_values_are_the_same_by_their_bits(
    one: Any, other: Any, code: str, same: bool
) -> None:
    dtype = np.dtype(np.dtypes.StringDType()) if code == "T" else np.dtype(code)
    assert same_scalar(one, other, dtype) == same
    assert same_scalar(cast_scalar(one, dtype), one, dtype)


def test_another_dtype_keeps_what_is_absent() -> None:
    array = line(6, 2, absent=(1,), fill_value=-9)
    wide = recast(array, np.dtype("f8"), np.float64("nan"))
    assert read_slowly(wide).tolist() == [0, 1, -9, -9, 4, 5]
    assert wide.dtype == "f8"
    assert recast(array, array.dtype, np.int32(-9)) is array
    laid = lay_out([array], [[2]], [10])
    other = recast(laid, np.dtype("i8"), np.int64(7))
    assert read_slowly(other).tolist() == [-9, -9, 0, 1, -9, -9, 4, 5, -9, -9]
    assert other.blocks.encoding.tolist() == [1, 0, 1]
    assert other.blocks.step.tolist() == [[1], [1], [1]]
    assert other.blocks.origin.tolist() == [[0], [0], [0]]
    assert other.blocks.stored_shape.tolist() == [[2], [6], [2]]
    assert read_slowly(missing_like(other, 0, 1, other.fill_value)).tolist() == [7]
    text = VirtualArray.from_numpy(np.array(["a"]), ["x"])
    with pytest.raises(NotRepresentableError):
        recast(line(2, 2), np.dtype(np.dtypes.StringDType()), "")
    assert recast(text, text.dtype, text.fill_value) is text


def test_one_small_manifest_stays() -> None:
    array = line(4, 2)
    assert compacted(array) is array


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_new_axis_changes_no_codecs_of_plain_elements(axis: int) -> None:
    values = np.arange(6, dtype="i4").reshape(2, 3)
    plain = chunked_array(values, (2, 2), ("y", "x"), compressed=True)
    wide = expand_dims(plain, axis, "t")
    assert wide.encodings[0].codecs == plain.encodings[0].codecs
    assert wide.encodings[0].chunk_shape[axis] == 1
    assert squeeze(wide, [axis]).encodings == plain.encodings
    turned = expand_dims(transpose(plain, (1, 0)), axis, "t")
    assert read_slowly(turned).tolist() == np.expand_dims(values.T, axis).tolist()


@pytest.mark.parametrize("n_rows", [1, 2, 3, 100])
def test_listings_in_pieces_are_the_whole_one(n_rows: int) -> None:
    laid = lay_out([line(5, 2), getitem(line(9, 2), np.s_[::-4])], [[0], [7]], [12])
    listing = ChunkListing(laid)
    whole = listing.rows(0, listing.n_rows)
    parts = [*listing.pieces(n_rows)]
    for name in ("block", "index", "chunk", "stored", "row"):
        got = np.concatenate([getattr(part, name) for part in parts])
        assert got.tolist() == getattr(whole, name).tolist()
    held = [range(int(a[0]), int(b[0])) for a, b in zip(*whole.bounds, strict=True)]
    assert [element for part in held for element in part] == [*range(12)]
    assert all(len(part) <= n_rows for part in parts)
