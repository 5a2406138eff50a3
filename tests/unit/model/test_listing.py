"""Listings of chunks, of every short window and step; the values of a read by names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gridref
from gridref.api.catalog import write_catalog
from gridref.errors import InvalidRequestError
from gridref.model import joining
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.indexing import getitem
from gridref.model.joining import cast_scalar, compacted, concatenate
from gridref.model.listing import ChunkListing
from gridref.model.projection import Progression
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly
from gridref.testing.strategies import arrays, selections

N = 11
STEPS = [1, 2, 5, -1, -3]


@pytest.mark.parametrize("length", [1, 2, 4, 20])
@pytest.mark.parametrize("step", STEPS)
def test_a_chunk_is_listed_with_the_elements_that_it_holds(length: int, step: int) -> None:
    """Of every window of an axis: element by element, from which stored chunk it is read."""
    whole = chunked_array(np.arange(N, dtype="i2"), (length,), ("x",))
    for start in range(N):
        for stop in range(start + 1, N + 1):
            window = slice(start, stop)
            shown = getitem(getitem(whole, (window,)), (slice(None, None, step),))
            expected = (np.arange(N)[window][::step] // length).tolist()
            found: dict[int, int] = {}
            for listed in ChunkListing(shown).pieces(3):
                (first, last), rows = listed.bounds, listed.row.tolist()
                for place, (a, b) in enumerate(zip(first[:, 0], last[:, 0], strict=True)):
                    assert a < b
                    found |= dict.fromkeys(range(int(a), int(b)), rows[place])
            assert [found[index] for index in range(len(found))] == expected


@pytest.mark.parametrize("lengths", [[[3, 2], [4, 1]], [[1], [5]], [[2, 2, 2], [1, 1]]])
def test_chunks_are_counted_over_blocks_of_two_axes(lengths: list[list[int]]) -> None:
    rows, columns = lengths
    blocks = [
        concatenate([chunked_array(np.zeros((n, m), "u1"), (2, 3), ("y", "x")) for m in columns], 1)
        for n in rows
    ]
    listing = ChunkListing(concatenate(blocks, 0))
    for axis, own in enumerate(lengths):
        chunk = (2, 3)[axis]
        starts = np.cumsum([0, *own[:-1]]).tolist()
        firsts = np.cumsum([0, *(-(-n // chunk) for n in own[:-1])]).tolist()
        assert np.unique(listing.first_element[:, axis]).tolist() == starts
        assert np.unique(listing.first_chunk[:, axis]).tolist() == firsts


@settings(max_examples=15)
@given(st.data())
def test_blocks_that_no_file_holds_are_all_alike(data: st.DataObject) -> None:
    """Whatever is selected, they say nothing of a stored array: tables of the same are the same."""
    array = data.draw(arrays())
    keys = tuple(data.draw(selections(extent, keep=True)) for extent in array.shape)
    for found in (getitem(array, keys), concatenate([array, array], 0) if array.ndim else array):
        blocks = found.blocks
        missing = blocks.encoding == MISSING_BLOCK
        for name in ("first_row", "row_stride", "stored_shape", "origin"):
            assert not getattr(blocks, name)[missing].any(), name
        assert (blocks.step[missing] == 1).all()


@pytest.mark.parametrize("selection", [slice(3, 3), slice(5, 2), slice(9, None), slice(0, 3, -1)])
def test_nothing_is_selected_in_one_way(selection: slice) -> None:
    assert Progression.from_slice(selection, 9) == Progression(0, 1, 0)


CASTS = [
    (3, "i2", 3),
    (3.0, "i8", 3),
    (np.float32(0.1), "f8", float(np.float32(0.1))),
    (0.1, "f4", float(np.float32(0.1))),
    (True, "u1", 1),
    (b"ab", "S3", b"ab"),
    ("ab", "U3", "ab"),
    (np.datetime64("2020-01-01"), "M8[s]", np.datetime64("2020-01-01T00:00:00")),
]


@pytest.mark.parametrize(("value", "code", "expected"), CASTS, ids=[each[1] for each in CASTS])
def test_fill_values_become_scalars_of_the_dtype(value: Any, code: str, expected: Any) -> None:
    found = cast_scalar(value, np.dtype(code))
    assert found == expected
    assert np.asarray(found).dtype.kind == np.dtype(code).kind
    assert isinstance(found, np.generic)


@pytest.mark.parametrize(("value", "expected"), [("ab", "ab"), (3, "3"), (np.str_("x"), "x")])
def test_fill_values_of_texts_are_texts(value: Any, expected: str) -> None:
    found = cast_scalar(value, np.dtype(np.dtypes.StringDType()))
    assert found == expected
    assert type(found) is str


@pytest.mark.parametrize("large", [[], [0], [1], [2], [0, 2], [1, 2], [0, 1, 2]])
@pytest.mark.parametrize("n_small", [3])
def test_small_manifests_become_one(
    monkeypatch: pytest.MonkeyPatch, large: list[int], n_small: int
) -> None:
    monkeypatch.setattr(joining, "SMALL_MANIFEST_ROWS", 8)
    parts = []
    for number in range(n_small):
        n = 9 + number if number in large else 6 + number
        parts.append(chunked_array(np.arange(n, dtype="i4") + 10_000 * number, (1,), ("x",)))
    whole = concatenate(parts, 0)
    found = compacted(whole)
    assert len(found.manifests) == len(large) + (
        1 if len(large) <= n_small - 2 else n_small - len(large)
    )
    assert (found is whole) == (len(large) > n_small - 2)
    np.testing.assert_array_equal(read_slowly(found), read_slowly(whole))


def test_reads_by_name_and_by_place(tmp_path: Path) -> None:
    values = np.arange(24).reshape(2, 3, 4)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["v"] = values
        for axis, name in enumerate("tyx"):
            file[name] = np.arange(values.shape[axis])
            file[name].make_scale(name)
            file["v"].dims[axis].attach_scale(file[name])
    write_catalog(gridref.scan(tmp_path / "a.h5"), tmp_path / "a.gridref")
    array = gridref.open_catalog(tmp_path / "a.gridref")["v"]
    np.testing.assert_array_equal(array.read(), values)
    np.testing.assert_array_equal(array.read(np.s_[1, :, ::2]), values[1, :, ::2])
    np.testing.assert_array_equal(array.read(y=1), values[:, 1])
    np.testing.assert_array_equal(array.read(x=slice(1, 3), t=0), values[0, :, 1:3])
    with pytest.raises(InvalidRequestError, match="not both"):
        array.read(np.s_[0], y=1)
    for call in (array.read, array.isel):
        with pytest.raises(InvalidRequestError, match="z"):
            call(z=1)
    with pytest.raises(InvalidRequestError, match="made in memory"):
        chunked_array(values, (1, 1, 1), ("t", "y", "x")).read()
