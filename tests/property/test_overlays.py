"""Overlays answer for exactly the elements that they cover, whatever is selected."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gridref.api.readable import SourceAccess, Sources, reader_for
from gridref.model.array import Overlay, VirtualArray
from gridref.model.encoding import Encoding, bytes_codec
from gridref.model.manifest import ChunkManifest
from gridref.model.overlay import Cover, Stored, merged, moved, without
from gridref.serve.choosing import Choice
from gridref.serve.plan import plan_points_with_overlays, plan_with_overlays
from tests.work import FEWER

BY_OVERLAY = 10_000
"""Added to the elements in sheets, to see which layout answered."""


def chunked(values: NDArray[Any], chunk_shape: tuple[int, ...]) -> VirtualArray:
    """An array of chunks that are kept inline."""
    counts = [-(-n // k) for n, k in zip(values.shape, chunk_shape, strict=True)]
    padded = np.zeros([n * k for n, k in zip(counts, chunk_shape, strict=True)], values.dtype)
    padded[tuple(map(slice, values.shape))] = values
    chunks = [
        padded[tuple(slice(i * k, (i + 1) * k) for i, k in zip(at, chunk_shape, strict=True))]
        for at in np.ndindex(*counts)
    ]
    encoding = Encoding(chunk_shape, values.dtype, (bytes_codec(values.dtype),))
    manifest = ChunkManifest.from_inline([chunk.tobytes() for chunk in chunks])
    dims = "tyxabc"[: values.ndim]
    return VirtualArray.of_one_block(
        values.shape, values.dtype, encoding=encoding, manifest=manifest, dims=dims
    )


def shapes(ndim: int, most: int = 9) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.integers(1, most), min_size=ndim, max_size=ndim).map(tuple)


@st.composite
def covers(draw: st.DrawFn, shape: tuple[int, ...], n: int = 4) -> list[Cover]:
    """Boxes in an array that do not overlap, of two sheets; each at its place plus one."""
    found: list[Cover] = []
    taken = np.zeros(shape, bool)
    for _ in range(draw(st.integers(0, n))):
        start = tuple(draw(st.integers(0, extent - 1)) for extent in shape)
        size = tuple(draw(st.integers(1, e - low)) for e, low in zip(shape, start, strict=True))
        box = tuple(slice(a, a + b) for a, b in zip(start, size, strict=True))
        if not taken[box].any():
            taken[box] = True
            first = tuple(low + 1 for low in start)
            found.append(Cover(draw(st.integers(0, 1)), first, start, size))
    return found


def mask_of(coverage: Any, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """How many boxes each element of an array is in."""
    counts = np.zeros(shape, np.int64)
    for cover in coverage:
        counts[tuple(slice(*along) for along in cover.box)] += 1
    return counts


@st.composite
def with_overlay(draw: st.DrawFn) -> tuple[VirtualArray, NDArray[np.int64]]:
    """An array with a forced overlay, and what has to be read of it."""
    shape = draw(st.integers(1, 3).flatmap(shapes))
    values = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
    coverage = draw(covers(shape))
    sheet = np.zeros([n + 2 for n in shape], np.int64)
    sheet[tuple(slice(1, n + 1) for n in shape)] = values + BY_OVERLAY
    sheets = tuple(chunked(sheet, draw(shapes(len(shape), 4))) for _ in range(2))
    array = chunked(values, draw(shapes(len(shape), 4)))
    stored = Stored((1,) * len(shape), shape, 8.0, False)
    overlay = Overlay("o", sheets, tuple(coverage), stored, stored, is_forced=True)
    expected = np.where(mask_of(coverage, shape), values + BY_OVERLAY, values)
    return array.with_changes(overlays=(overlay,)), expected


@st.composite
def along(draw: st.DrawFn, extent: int) -> Any:
    """What is selected of an axis."""
    kind = draw(st.sampled_from(["slice", "slice", "integer", "list", "mask"]))
    if kind == "integer":
        return draw(st.integers(-extent, extent - 1))
    if kind == "list":
        return np.array(draw(st.lists(st.integers(0, extent - 1), max_size=6)), np.int64)
    if kind == "mask":
        return np.array(draw(st.lists(st.booleans(), min_size=extent, max_size=extent)))
    bound = st.none() | st.integers(-extent - 1, extent + 1)
    return slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, 3, -1, -2])))


def orthogonal(values: NDArray[Any], selection: tuple[Any, ...]) -> NDArray[Any]:
    """What numpy selects along each axis by itself."""
    for axis, index in reversed([*enumerate(selection)]):
        values = values[(slice(None),) * axis + (index,)]
    return values


@given(st.data())
def test_covered_elements_come_from_the_overlay_and_others_from_the_files(data: Any) -> None:
    array, expected = data.draw(with_overlay())
    selection = tuple(data.draw(along(extent)) for extent in array.shape)
    got = reader_for().read(array, selection)
    np.testing.assert_array_equal(got, orthogonal(expected, selection))


@FEWER
@given(st.data())
def test_selected_arrays_keep_what_is_covered_of_them(data: Any) -> None:
    """Slices without gaps and integers keep overlays; of all others the files are read."""
    array, expected = data.draw(with_overlay())
    values = reader_for().read(array.with_changes(overlays=()))
    selection: dict[str, Any] = {}
    keeps = True
    for dim, extent in zip(array.dims, array.shape, strict=True):
        chosen = data.draw(along(extent))
        if data.draw(st.booleans()):
            selection[dim] = chosen
            is_plain = isinstance(chosen, int) or (
                isinstance(chosen, slice) and chosen.step in (None, 1)
            )
            keeps = keeps and is_plain
    keeps = keeps and not all(isinstance(selection.get(dim), int) for dim in array.dims)
    selected = SourceAccess(Sources()).isel(array, selection)
    indices = tuple(selection.get(dim, slice(None)) for dim in array.dims)
    wanted = orthogonal(expected if keeps else values, indices)
    np.testing.assert_array_equal(reader_for().read(selected), wanted)


@given(st.data())
def test_covered_points_come_from_the_overlay_and_others_from_the_files(data: Any) -> None:
    array, expected = data.draw(with_overlay())
    n_points = data.draw(st.integers(0, 8))
    coords = [
        np.array([data.draw(st.integers(0, n - 1)) for _ in range(n_points)], np.int64)
        for n in array.shape
    ]
    got = reader_for().read_points(array, coords)
    np.testing.assert_array_equal(got, expected[tuple(coords)])


@st.composite
def with_several(draw: st.DrawFn) -> tuple[VirtualArray, list[NDArray[np.int64]]]:
    """An array that has slow files and up to three overlays, and what each of these covers."""
    shape = draw(st.integers(1, 2).flatmap(shapes))
    values = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
    slow = Stored((1,) * len(shape), (1,) * len(shape), 1e9, True)
    overlays, masks = [], []
    for number in range(draw(st.integers(2, 3))):
        coverage = draw(covers(shape))
        sheet = np.zeros([n + 2 for n in shape], np.int64)
        sheet[tuple(slice(1, n + 1) for n in shape)] = values + BY_OVERLAY * (number + 1)
        sheets = tuple(chunked(sheet, draw(shapes(len(shape), 4))) for _ in range(2))
        fast = Stored((2,) * len(shape), shape, 8.0, draw(st.booleans()))
        overlays.append(Overlay(str(number), sheets, tuple(coverage), fast, slow))
        masks.append(mask_of(coverage, shape))
    array = chunked(values, draw(shapes(len(shape), 4)))
    return array.with_changes(overlays=tuple(overlays)), masks


def check_layouts(
    got: NDArray[np.int64], masks: list[NDArray[np.int64]], chosen: Choice[Any] | None
) -> None:
    """Elements come from a chosen overlay that covers them, or else from the files."""
    used = set() if chosen is None else {int(each.id) for each in chosen.overlays}
    covers_it = {k + 1: mask.astype(bool) for k, mask in enumerate(masks) if k in used}
    layouts = got // BY_OVERLAY
    nobody = ~np.any([*covers_it.values(), np.zeros(got.shape, bool)], axis=0)
    np.testing.assert_array_equal(layouts == 0, nobody)
    for number, mask in covers_it.items():
        assert mask[layouts == number].all()
        assert (layouts == number).any()
    assert set(np.unique(layouts)) <= {0, *covers_it}


@FEWER
@given(st.data())
def test_what_one_overlay_lacks_comes_from_others(data: Any) -> None:
    array, masks = data.draw(with_several())
    selection = tuple(data.draw(along(extent)) for extent in array.shape)
    got = reader_for().read(array, selection)
    values = np.arange(array.size).reshape(array.shape)
    np.testing.assert_array_equal(got % BY_OVERLAY, orthogonal(values, selection))
    _, chosen = plan_with_overlays(array, selection)
    check_layouts(got, [orthogonal(mask, selection) for mask in masks], chosen)


@FEWER
@given(st.data())
def test_points_that_one_overlay_lacks_come_from_others(data: Any) -> None:
    array, masks = data.draw(with_several())
    n_points = data.draw(st.integers(1, 8))
    coords = [
        np.array([data.draw(st.integers(0, n - 1)) for _ in range(n_points)], np.int64)
        for n in array.shape
    ]
    got = reader_for().read_points(array, coords)
    values = np.arange(array.size).reshape(array.shape)
    np.testing.assert_array_equal(got % BY_OVERLAY, values[tuple(coords)])
    _, chosen = plan_points_with_overlays(array, coords)
    check_layouts(got, [mask[tuple(coords)] for mask in masks], chosen)


@given(st.data())
def test_boxes_are_cut_and_merged_as_masks_are(data: Any) -> None:
    shape = data.draw(st.integers(1, 3).flatmap(shapes))
    coverage = data.draw(covers(shape))
    mask = mask_of(coverage, shape)
    assert mask_of(merged(coverage), shape).tolist() == mask.tolist()
    whole = tuple((0, n) for n in shape)
    rest = np.zeros(shape, np.int64)
    for box in without(whole, [cover.box for cover in coverage]):
        rest[tuple(slice(*each) for each in box)] += 1
    assert (rest + mask == 1).all()


@given(st.data())
def test_moved_coverage_holds_the_same_elements(data: Any) -> None:
    """Each element of an array knows which one of the sheet it is, before and after."""
    shape = data.draw(st.integers(1, 3).flatmap(shapes))
    coverage = data.draw(covers(shape))
    moves = data.draw(covers(shape))  # element i is now what i + 1 was
    before = np.full([n + 2 for n in shape], -1)
    numbers = np.arange(math.prod(n + 2 for n in shape)).reshape([n + 2 for n in shape])
    for cover in coverage:
        box = tuple(slice(*each) for each in cover.box)
        before[box] = numbers[tuple(slice(*each) for each in cover.sheet_box)] * 2 + cover.sheet
    expected = np.full(shape, -1)
    for move in moves:
        box = tuple(slice(*each) for each in move.box)
        expected[box] = before[tuple(slice(*each) for each in move.sheet_box)]
    got = np.full(shape, -1)
    for cover in moved(coverage, moves):
        box = tuple(slice(*each) for each in cover.box)
        assert (got[box] == -1).all()
        got[box] = numbers[tuple(slice(*each) for each in cover.sheet_box)] * 2 + cover.sheet
    np.testing.assert_array_equal(got, expected)
