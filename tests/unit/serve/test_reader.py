from __future__ import annotations

import copy
import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from numpy.typing import NDArray

import gridref
from gridref.codecs import decode_chunk
from gridref.errors import ReadError, ShortReadError
from gridref.io import SourcePool
from gridref.model.array import VirtualArray
from gridref.model.indexing import isel
from gridref.model.joining import concatenate
from gridref.serve.plan import LEAST_BYTES
from gridref.serve.reader import Reader, Scratch
from gridref.serve.tasks import Chunk
from gridref.testing.builders import chunked_array

# Stored chunks that several threads want, and where their elements are decoded to


class Decodes:
    """Counts chunks that are decoded, slowly."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.n = 0
        self._lock = threading.Lock()
        patch.setattr("gridref.serve.tasks.decode_chunk", self._decode)

    def _decode(self, *arguments: Any) -> NDArray[Any]:
        with self._lock:
            self.n += 1
        time.sleep(0.05)
        return decode_chunk(*arguments)


@pytest.fixture
def decodes(monkeypatch: pytest.MonkeyPatch) -> Decodes:
    return Decodes(monkeypatch)


@pytest.fixture
def values() -> NDArray[Any]:
    return np.random.default_rng(0).integers(0, 100, (4, 60, 60))


@pytest.fixture
def array(tmp_path: Path, values: NDArray[Any]) -> VirtualArray:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("v", data=values, chunks=(2, 30, 60), compression="gzip", shuffle=True)
    return gridref.scan(tmp_path / "a.h5")["v"]


@pytest.mark.parametrize("cache_bytes", [0, 10**7])
def test_a_chunk_that_threads_need_parts_of_is_decoded_once(
    array: VirtualArray, values: NDArray[Any], decodes: Decodes, cache_bytes: int
) -> None:
    reader = Reader(SourcePool(), cache_bytes=cache_bytes)
    start = threading.Barrier(8)

    def read(x: int) -> bool:
        start.wait()
        return np.array_equal(reader.read(array, (..., x)), values[..., x])

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(read, range(8)))
    assert decodes.n == 4
    reader.read(array, (0, 0, 0))
    assert decodes.n == (4 if cache_bytes else 5)


def test_what_is_kept_is_copied_without_threads(
    array: VirtualArray, values: NDArray[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridref.serve.tasks.TASK_BYTES", (2000, 2000))
    used: set[str] = set()
    deliver = Chunk.deliver

    def noting(*arguments: Any) -> bool:
        used.add(threading.current_thread().name)
        return deliver(*arguments)

    monkeypatch.setattr("gridref.serve.tasks.Chunk.deliver", noting)
    reader = Reader(SourcePool(), cache_bytes=10**7)
    assert np.array_equal(reader.read(array, (..., slice(0, 50))), values[..., :50])
    assert all(name.startswith("gridref-read") for name in used)
    used.clear()
    assert np.array_equal(reader.read(array, (..., slice(9, 60))), values[..., 9:])
    assert used == {threading.current_thread().name}


def test_a_chunk_of_which_all_is_wanted_is_not_kept(
    array: VirtualArray, values: NDArray[Any], decodes: Decodes
) -> None:
    reader = Reader(SourcePool(), cache_bytes=10**7)
    assert np.array_equal(reader.read(array), values)
    assert len(reader.cache) == 0
    assert decodes.n == 4


def test_what_is_kept_is_not_memory_of_a_result(tmp_path: Path, values: NDArray[Any]) -> None:
    """One read takes chunks whole, and then parts of the same chunks."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("v", data=values, chunks=(2, 60, 60), compression="gzip")
    array = gridref.scan(tmp_path / "a.h5")["v"]
    reader = Reader(SourcePool(), cache_bytes=10**7)
    result = reader.read(concatenate([array, isel(array, {0: slice(1, 4)})], 0))
    assert np.array_equal(result, np.concatenate([values, values[1:]]))
    result[...] = -1
    assert len(reader.cache) == 1
    assert np.array_equal(reader.read(array), values)


def test_what_is_kept_does_not_keep_the_catalog(array: VirtualArray, values: NDArray[Any]) -> None:
    reader = Reader(SourcePool(), cache_bytes=10**7)
    for number in range(3):
        other = array.with_changes(manifests=tuple(map(copy.copy, array.manifests)))
        assert np.array_equal(reader.read(other, (..., number)), values[..., number])
        assert len(reader.cache) == 4 * (number + 1)
        manifests = list(map(weakref.ref, other.manifests))
        del other
        gc.collect()
        assert [each() for each in manifests] == [None]


def test_what_one_thread_cannot_load_another_one_tries(
    array: VirtualArray, values: NDArray[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chunk that failed may be another one of the same read."""
    begun = threading.Event()

    def decode(data: Any, encoding: Any, *rest: Any) -> NDArray[Any]:
        if threading.current_thread() is first:
            begun.set()
            time.sleep(0.1)
            raise ReadError("out of luck")
        return decode_chunk(data, encoding, *rest)

    monkeypatch.setattr("gridref.serve.tasks.decode_chunk", decode)
    reader = Reader(SourcePool(), n_threads=1, cache_bytes=10**7)
    failures: list[str] = []

    def fail() -> None:
        try:
            reader.read(array, (0, 0, 0))
        except ReadError as error:
            failures.append(str(error))

    first = threading.Thread(target=fail)
    first.start()
    begun.wait()
    assert reader.read(array, (0, 0, 1)) == values[0, 0, 1]
    first.join()
    assert len(failures) == 1
    assert "out of luck" in failures[0]


def test_many_callers_decode_in_their_own_threads(
    array: VirtualArray, values: NDArray[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    names: set[str] = set()

    def decode(*arguments: Any) -> NDArray[Any]:
        names.add(threading.current_thread().name.rpartition("_")[0])
        time.sleep(0.02)
        return decode_chunk(*arguments)

    monkeypatch.setattr("gridref.serve.tasks.decode_chunk", decode)
    monkeypatch.setattr("gridref.serve.tasks.TASK_BYTES", (1, 1))
    monkeypatch.setattr("gridref.serve.reader._N_CORES", 1)
    reader = Reader(SourcePool())
    assert np.array_equal(reader.read(array), values)
    assert names == {"gridref-read"}
    with ThreadPoolExecutor(8, thread_name_prefix="caller") as threads:
        for got in threads.map(lambda _: reader.read(array), range(8)):
            assert np.array_equal(got, values)
    assert names == {"gridref-read", "caller"}


@pytest.mark.parametrize(
    "index",
    [
        (...,),
        (slice(0, 2), slice(30, 60)),
        (slice(None), slice(None), slice(None, None, -1)),
        (slice(None, None, -1),),
        (slice(None), slice(0, 30), [*range(60)]),
        (1, slice(0, 30)),
        (slice(1, 4), slice(10, 50)),
    ],
)
def test_whole_chunks_in_any_place_of_the_output(
    array: VirtualArray, values: NDArray[Any], index: tuple[Any, ...]
) -> None:
    assert np.array_equal(Reader(SourcePool()).read(array, index), values[index])


def test_tiny_chunks_read_together_still_say_which_one_is_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "tiny.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=np.arange(200), chunks=(2,))
    array = gridref.scan(path)["v"]
    reader = Reader(SourcePool(identity="skip"))
    assert np.array_equal(reader.read(array), np.arange(200))
    offset = array.manifests[0].offset
    last = int(np.argmax(offset))
    start = int(offset[last])
    path.open("r+b").truncate(start + 5)
    with pytest.raises(ShortReadError) as raised:
        reader.read(array, name="v")
    place = raised.value.place
    assert (place.variable, place.chunk, place.start, place.stop) == (
        "v",
        (last,),
        start,
        start + 16,
    )


# Memory that is used again once no array lies in it

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
