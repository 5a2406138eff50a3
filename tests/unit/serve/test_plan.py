from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gridref
from gridref.errors import InvalidRequestError, ReadError
from gridref.io import SourcePool
from gridref.model.array import VirtualArray
from gridref.model.encoding import Codec, Encoding, bytes_codec
from gridref.model.reshaping import broadcast_axis
from gridref.serve.plan import plan_points, runs_of
from gridref.serve.reader import Reader
from gridref.testing.builders import chunked_array

# Points grouped by the stored chunks that hold them


def two_files() -> tuple[VirtualArray, np.ndarray]:
    values = [np.arange(35).reshape(5, 7), 100 + np.arange(21).reshape(3, 7)]
    parts = [chunked_array(part, (2, 3), ("t", "x")) for part in values]
    return gridref.concat(parts, "t"), np.concatenate(values)


@pytest.mark.parametrize(
    ("t", "x", "n_pieces"),
    [
        ([0, 2, 0, 2], [0, 0, 0, 0], 2),
        ([0, 0, 0, 0], [0, 3, 0, 3], 2),
        ([0, 5, 0, 5], [0, 0, 0, 0], 2),
        ([0, 2, 5, 7, 0, 2, 5, 7], [0, 3, 0, 3, 3, 0, 3, 0], 8),
        ([4, 4, 1], [6, 5, 6], 3),
        ([0, 7, 1, 1, 5], [0, 6, 2, 2, 0], 3),
    ],
)
def test_points_of_one_chunk_are_together_in_whatever_order(
    t: list[int], x: list[int], n_pieces: int
) -> None:
    array, values = two_files()
    plan = plan_points(array, (np.array(t), np.array(x)))
    assert len(plan.block) == len(plan.chunk) == n_pieces
    assert plan.splits[-1] == len(t)
    assert (np.diff(plan.splits) > 0).all()
    assert sorted(plan.out_index.tolist()) == [*range(len(t))]
    found = Reader(SourcePool()).read_points(array, (t, x))
    assert found.tolist() == values[t, x].tolist()


@pytest.mark.parametrize("coords", [([0],), ([0], [0, 1]), ([8], [0]), ([0], [-1]), ([0], [7]), ()])
def test_bad_points(coords: tuple[list[int], ...]) -> None:
    with pytest.raises(InvalidRequestError):
        plan_points(two_files()[0], coords)


# The bytes that a part of an uncompressed chunk needs

I4 = np.dtype("i4")


def encoding(shape: tuple[int, ...], *codecs: Codec) -> Encoding:
    return Encoding(shape, I4, (bytes_codec(I4), *codecs))


@given(st.data())
def test_runs_hold_exactly_what_numpy_selects(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    values = np.arange(np.prod(shape), dtype=I4).reshape(shape)
    kind = data.draw(st.sampled_from(["slices", "mesh", "points"]))
    indices = [st.lists(st.integers(0, n - 1), min_size=1, max_size=4) for n in shape]
    index: tuple[Any, ...]
    if kind == "slices":
        index = tuple(
            slice(a, a + data.draw(st.integers(1, n)), data.draw(st.integers(1, 3)))
            for n in shape
            for a in [data.draw(st.integers(0, n - 1))]
        )
    elif kind == "mesh":
        index = np.ix_(*(data.draw(entry) for entry in indices))
    else:
        index = tuple(np.array([data.draw(st.integers(0, n - 1)) for _ in "abc"]) for n in shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gridref.serve.plan.RUN_BYTES", 0)
        runs = runs_of(encoding(shape), shape, values.nbytes, index)
    expected = values[index]
    if runs is None:
        assert expected.nbytes > values.nbytes
        return
    raw = values.tobytes()
    got = b"".join(raw[at : at + runs.n_bytes] for at in runs.offset.tolist())
    assert np.array_equal(np.frombuffer(got, I4).reshape(runs.shape), expected)


def test_whole_rows_are_one_run() -> None:
    shape = (1000, 500, 500)
    runs = runs_of(encoding(shape), shape, 10**9, (slice(3, 40), slice(None), slice(None)))
    assert runs is not None
    assert (runs.offset.tolist(), runs.n_bytes) == ([3 * 10**6], 37 * 10**6)


@pytest.mark.parametrize(
    ("codecs", "n_bytes", "index"),
    [
        ((Codec("crc32c"),), 4 * 10**6, (slice(0, 1), slice(0, 1))),
        ((), 4 * 10**6 - 1, (slice(0, 1), slice(0, 1))),
        ((), 4 * 10**6, (slice(None), slice(0, 999))),
    ],
    ids=["encoded", "short", "nearly all"],
)
def test_read_whole(codecs: Any, n_bytes: int, index: Any) -> None:
    assert runs_of(encoding((1000, 1000), *codecs), (1000, 1000), n_bytes, index) is None


@pytest.mark.parametrize("dtype", ["<f8", ">i2"])
def test_parts_of_a_contiguous_variable_of_a_file(tmp_path: Path, dtype: str) -> None:
    values = np.arange(2 * 10**5).reshape(50, 40, 100).astype(dtype)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["v"] = values
    array = gridref.scan(tmp_path / "a.h5")["v"]
    reader = Reader(SourcePool())
    for index in (
        ...,
        (slice(3, 40),),
        (7, slice(2, 9)),
        (slice(None), slice(0, 12)),
        (slice(5, 20), slice(30, 40), slice(None)),
        (slice(None), slice(1, None, 2), 5),
        (slice(None, None, -1),),
        (np.array([1, 1, 30]), slice(None), slice(90, 95)),
    ):
        assert np.array_equal(reader.read(array, index), values[index])


def test_one_element_shown_several_times_is_not_read_in_place(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(1, 300, 200))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["v"] = values
        file["behind"] = np.zeros(10**6)
    group = gridref.scan(tmp_path / "a.h5")
    array = broadcast_axis(group["v"], 0, 3)
    assert np.array_equal(Reader(SourcePool()).read(array), np.repeat(values, 3, axis=0))


def test_a_file_that_was_cut_is_never_read_in_place(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["v"] = np.ones(10**5)
    array = gridref.scan(tmp_path / "a.h5")["v"]
    with open(tmp_path / "a.h5", "r+b") as opened:
        opened.truncate(5 * 10**5)
    with pytest.raises(ReadError):
        Reader(SourcePool(identity="skip")).read(array)
