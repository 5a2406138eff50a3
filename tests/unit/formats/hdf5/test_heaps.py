"""The global heap: what it holds, and what becomes of corrupt collections."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridref.errors import SourceFormatError
from gridref.formats.hdf5.bytes import Hdf5Bytes
from gridref.formats.hdf5.heaps import GlobalHeap
from tests.hdf5_bytes import BufferReader


def packed(index: int, body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return struct.pack("<HHIQ", index, 1, 0, size) + body.ljust(-(-len(body) // 8) * 8, b"\0")


def collection(*objects: bytes, size: int | None = None) -> bytes:
    body = b"".join(objects)
    return b"GCOL\1\0\0\0" + struct.pack("<Q", 16 + len(body) if size is None else size) + body


def heap_of(data: bytes) -> GlobalHeap:
    return GlobalHeap(Hdf5Bytes(BufferReader(data), 0, 8, 8))


def pointer(length: int, address: int, index: int) -> bytes:
    return struct.pack("<IQI", length, address, index)


def test_items_and_texts() -> None:
    heap = heap_of(bytes(64) + collection(packed(1, b"abc\0def"), packed(7, b"xyz")))
    pointers = pointer(7, 64, 1) + pointer(3, 64, 7) + pointer(0, 64, 9) + pointer(5, 0, 1)
    assert list(heap.items(pointers, 4, 1)) == [b"abc\0def", b"xyz", b"", b""]
    assert list(heap.texts(pointers, 4)) == [b"abc", b"xyz", b"", b""]
    assert list(heap.items(pointer(1, 64, 7), 1, 2)) == [b"xy"]
    assert heap.object(64, 7) == b"xyz"


def test_free_space_is_passed_over() -> None:
    free = struct.pack("<HHIQ", 0, 0, 0, 32) + bytes(16)
    heap = heap_of(bytes(8) + collection(packed(1, b"a"), free, packed(2, b"b")))
    assert heap.object(8, 2) == b"b"


@pytest.mark.parametrize(
    "objects",
    [
        (packed(0, b""),),  # free space of no size: the library goes in circles
        (packed(1, b"", length=1 << 60),),
        (packed(1, b"", length=(1 << 64) - 8),),
        (b"\1",),
        (),
    ],
)
def test_objects_that_are_not_there(objects: tuple[bytes, ...]) -> None:
    heap = heap_of(bytes(8) + collection(*objects) + bytes(64))
    with pytest.raises(SourceFormatError, match="object 1 of the global heap is not there"):
        heap.object(8, 1)
    with pytest.raises(SourceFormatError, match="object 1 of the global heap is not there"):
        list(heap.items(pointer(4, 8, 1), 1, 1))


@pytest.mark.parametrize("data", [b"", b"GCOL", b"GCOL\2" + bytes(99), bytes(4096)])
def test_no_collection(data: bytes) -> None:
    with pytest.raises(SourceFormatError):
        heap_of(data).object(0, 1)


def test_collections_beyond_the_file() -> None:
    with pytest.raises(SourceFormatError, match="outside of the file"):
        heap_of(collection(packed(1, b"a"), size=1 << 40)).object(0, 1)


def test_elements_that_are_cut_off() -> None:
    with pytest.raises(SourceFormatError, match="take 32 bytes, and 20 are there"):
        list(heap_of(bytes(64)).items(bytes(20), 2, 1))


def test_the_same_bytes_cannot_be_used_without_end(limited: Callable[[str], None]) -> None:
    limited("read_bytes=1")
    heap = heap_of(bytes(8) + collection(packed(1, bytes(2000))))
    with pytest.raises(SourceFormatError, match="more than it can hold"):
        for _ in heap.items(pointer(2000, 8, 1) * 1000, 1000, 1):
            pass


def test_collections_are_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRIDREF_CACHE_BYTES", "8192")
    one = collection(packed(1, bytes(4000)))
    heap = heap_of(one * 9)
    for _ in range(2):
        for number in range(9):
            assert heap.object(number * len(one), 1) == bytes(4000)


@given(body=st.binary(max_size=200), index=st.integers(0, 3))
def test_any_bytes_end(body: bytes, index: int) -> None:
    try:
        heap_of(collection(body)).object(0, index)
    except SourceFormatError:
        return
