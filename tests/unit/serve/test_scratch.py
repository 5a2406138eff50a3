"""Memory that is used again once no array lies in it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zarr

import gridref
from gridref.io import SourcePool
from gridref.serve.plan import LEAST_BYTES
from gridref.serve.reader import Reader, Scratch
from gridref.testing.builders import chunked_array

F4 = np.dtype("f4")
SHAPE = (4, LEAST_BYTES // 4)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_memory_is_used_again_when_nothing_refers_to_it() -> None:
    scratch = Scratch()
    first = scratch.empty(SHAPE, F4)
    at, part = address(first), first[1:, ::2]
    del first
    assert scratch.n_bytes == 0
    assert address(scratch.empty(SHAPE, F4)) != at
    part[...] = 1
    scratch.empty(SHAPE, F4)[...] = 2
    assert (part == 1).all()
    del part
    assert scratch.n_bytes >= 4 * LEAST_BYTES
    assert at in {address(array) for array in [scratch.empty(SHAPE, F4) for _ in range(3)]}


def test_no_more_is_kept_than_allowed() -> None:
    scratch = Scratch(8 * LEAST_BYTES)
    arrays = [scratch.empty(SHAPE, F4) for _ in range(5)]
    del arrays
    assert scratch.n_bytes == 8 * LEAST_BYTES
    too_large = scratch.empty((9, LEAST_BYTES), np.dtype("u1"))
    del too_large
    assert scratch.n_bytes <= 8 * LEAST_BYTES


@pytest.mark.parametrize("dtype", ["i4,f8", "O", "S5"])
def test_other_elements_than_numbers_lie_in_memory_of_their_own(dtype: str) -> None:
    scratch = Scratch()
    assert scratch.empty((LEAST_BYTES,), np.dtype(dtype)).shape == (LEAST_BYTES,)
    assert scratch.n_bytes == 0


def test_threads_never_share_memory() -> None:
    scratch = Scratch(16 * LEAST_BYTES)

    def work(number: int) -> bool:
        array = scratch.empty(SHAPE, F4)
        array[...] = number
        return bool((array == number).all())

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(200)))
    assert scratch.n_bytes <= 16 * LEAST_BYTES


def test_results_stay_what_they_are() -> None:
    values = np.arange(2 * LEAST_BYTES, dtype="i4").reshape(4, -1)
    array = chunked_array(values, (1, LEAST_BYTES // 4), ("y", "x"))
    shown = zarr.open_group(gridref.open_store(gridref.VirtualGroup({"v": array})), mode="r")["v"]
    reader = Reader(SourcePool())
    got = [shown[...] for _ in range(3)]
    held = [reader.read(array, slice(k, None), is_copied=True)[:1] for k in range(3)]
    for k in range(3):
        assert np.array_equal(got[k], values)
        assert np.array_equal(held[k], values[k : k + 1])
