"""A listing says of every element which chunk holds it, and of every chunk where it is."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gridref.catalog.listing import list_chunks
from gridref.model.array import VirtualArray
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.listing import NO_ROW, ChunkListing
from gridref.testing.strategies import arrays
from tests.work import FEWER


def row_of_each_element(array: VirtualArray) -> dict[tuple[int, ...], tuple[int, int]]:
    """Block and manifest row of every element, worked out one by one from what a block means."""
    found = {}
    for element in itertools.product(*map(range, array.shape)):
        coords = tuple(
            int(axis.locate(index)) for axis, index in zip(array.grid.axes, element, strict=True)
        )
        block = int(np.ravel_multi_index(coords, array.grid.grid_shape)) if element else 0
        if array.blocks.encoding[block] == MISSING_BLOCK:
            found[element] = (block, NO_ROW)
            continue
        lengths = array.encodings[array.blocks.encoding[block]].chunk_shape
        row = int(array.blocks.first_row[block])
        for axis, start in enumerate(array.grid.start(coords)):
            stored = int(array.blocks.origin[block, axis]) + int(array.blocks.step[block, axis]) * (
                element[axis] - start
            )
            row += stored // lengths[axis] * int(array.blocks.row_stride[block, axis])
        found[element] = (block, row)
    return found


@FEWER
@given(arrays(), st.integers(1, 9))
def test_every_element_is_in_the_chunk_that_lists_it(array: VirtualArray, n_rows: int) -> None:
    expected = row_of_each_element(array)
    found = {}
    chunks = set()
    for listed in ChunkListing(array).pieces(n_rows):
        start, stop = listed.bounds
        for i in range(len(listed)):
            box = [range(a, b) for a, b in zip(start[i].tolist(), stop[i].tolist(), strict=True)]
            chunks.add(tuple(listed.chunk[i].tolist()))
            for element in itertools.product(*box):
                assert element not in found
                found[element] = (int(listed.block[i]), int(listed.row[i]))
    assert found == expected
    rows = sum(len(listed) for listed in ChunkListing(array).pieces(1000))
    assert len(chunks) == rows or array.axis_tables is None


@FEWER
@given(arrays())
def test_rows_say_what_the_manifest_says(array: VirtualArray) -> None:
    table = list_chunks({"a": array}).read_all()
    listing = ChunkListing(array)
    listed = listing.rows(0, listing.n_rows)
    assert table.num_rows == len(listed)
    for row, block, number in zip(
        table.to_pylist(), listed.block.tolist(), listed.row.tolist(), strict=True
    ):
        if number == NO_ROW:
            assert (row["state"], row["stored_bytes"], row["source"]) == ("missing", 0, None)
            continue
        manifest = array.manifests[array.blocks.manifest[block]].take(np.array([number]))
        assert row["state"] == ("missing", "range", "inline")[int(manifest.state[0])]
        assert row["stored_bytes"] == (0 if row["state"] == "missing" else manifest.length[0])
        if row["state"] == "range":
            held = (manifest.sources[manifest.source[0]].url, manifest.offset[0])
            assert (row["source"], row["offset"]) == held
        else:
            assert row["source"] is row["offset"] is row["length"] is None
