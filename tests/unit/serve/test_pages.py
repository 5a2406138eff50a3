"""Keys of native chunks, resolved by pages of neighbours."""

from __future__ import annotations

import math

import numpy as np
import pytest

import gridref.serve.pages
from gridref.api.readable import reader_for
from gridref.model.array import VirtualGroup
from gridref.model.joining import concatenate
from gridref.serve.object_reader import ObjectReader
from gridref.serve.objects import KeySpace
from gridref.serve.pages import (
    PAGE_CHUNKS,
    native_references,
    page_coords_of,
    page_shape,
    plan_page,
)
from gridref.serve.views import View, ViewOptions
from gridref.testing.builders import chunked_array

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
