"""Broken chunk indexes: an error of ours or the right answer, in bounded time and memory."""

from __future__ import annotations

import math
import re
import struct
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridref.errors import GridrefError, SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.bytes import Hdf5Bytes, lookup3, read_superblock
from gridref.formats.hdf5.chunks import ChunkTable, IndexRequest, walk_chunks
from gridref.formats.hdf5.headers import ChunkedLayout, ChunkIndexKind
from gridref.formats.registry import scan
from tests.hdf5_bytes import BufferReader, read_data_layout
from tests.unit.formats.hdf5.chunks_oracle import is_filtered, rows_of
from tests.work import FEWER, counted_work

MOST_LINES = 50_000
MOST_BYTES = 64 << 20


class TracingReader(BufferReader):
    """Notes which bytes were read."""

    def __init__(self, buffer: bytes) -> None:
        super().__init__(buffer)
        self.is_read = np.zeros(len(buffer), bool)

    def read(self, offset: int, length: int) -> bytes:
        self.is_read[offset : offset + length] = True
        return super().read(offset, length)

    def read_many(self, offsets: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        for offset, length in zip(offsets, lengths, strict=True):
            self.is_read[offset : offset + length] = True
        return super().read_many(offsets, lengths)


@dataclass(frozen=True)
class Good:
    """A good file, what is known of its dataset, and the bytes that say so."""

    data: bytes = field(repr=False)
    header_address: int
    layout: ChunkedLayout
    dataset: dict[str, Any]
    rows: list[tuple[int, int, int, int]] = field(repr=False)
    positions: list[int] = field(repr=False)

    @property
    def is_checksummed(self) -> bool:
        return self.layout.kind != ChunkIndexKind.BTREE_V1


CASES: dict[str, dict[str, Any]] = {
    "btree1": {"shape": (60, 40), "chunks": (1, 3), "libver": "earliest"},
    "btree1-filtered": {
        "shape": (60, 40),
        "chunks": (1, 3),
        "libver": "earliest",
        "compression": "gzip",
    },
    "single": {"shape": (60, 40), "chunks": (60, 40), "compression": "gzip"},
    "fixed": {"shape": (60, 40), "chunks": (7, 9)},
    "fixed-paged": {"shape": (60, 40), "chunks": (1, 1), "compression": "gzip"},
    "extensible": {"shape": (400,), "chunks": (1,), "maxshape": (None,)},
    "extensible-paged": {"shape": (400_000,), "chunks": (1,), "maxshape": (None,), "dtype": "i1"},
    "btree2": {"shape": (60, 40), "chunks": (1, 3), "maxshape": (None, None)},
    "btree2-filtered": {
        "shape": (60, 40),
        "chunks": (1, 3),
        "maxshape": (None, None),
        "compression": "gzip",
    },
}


@cache
def good(name: str) -> Good:
    options = {"dtype": "i4"} | CASES[name]
    libver = options.pop("libver", "latest")
    with h5py.File("a.h5", "w", driver="core", backing_store=False, libver=libver) as file:
        dataset = file.create_dataset("data", **options)
        if dataset.size > 100_000:  # few of its many pages
            for place in (0, 1, dataset.size // 2, dataset.size - 1):
                dataset[place] = 5
        else:
            dataset[...] = np.arange(dataset.size).reshape(dataset.shape).astype(dataset.dtype)
        file.flush()
        data = file.id.get_file_image()
        address = h5py.h5o.get_info(dataset.id).addr
        known = {
            "shape": dataset.shape,
            "max_shape": dataset.maxshape,
            "is_filtered": is_filtered(dataset),
        }
    reader = TracingReader(data)
    file_bytes = read_superblock(reader)
    layout = read_data_layout(file_bytes, address)
    assert isinstance(layout, ChunkedLayout)
    rows = rows_of(walk_chunks(IndexRequest(file_bytes, layout, **known)))
    positions = np.flatnonzero(reader.is_read).tolist()
    return Good(data, address, layout, known, rows, positions)


@contextmanager
def within_bounds(*, in_memory: bool = True) -> Iterator[None]:
    if in_memory:
        tracemalloc.start()
    try:
        with counted_work() as work:
            yield
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert work.n_lines < MOST_LINES
    assert peak < MOST_BYTES


def result_of(call: Callable[[], Any], *, in_memory: bool) -> Any:
    """What the call returns, or None if it raises as it should."""
    with within_bounds(in_memory=in_memory):
        try:
            return call()
        except (SourceFormatError, UnsupportedFeatureError):
            return None


def assert_possible(table: ChunkTable, size_bytes: int) -> None:
    rows = rows_of(table)
    assert len({row[0] for row in rows}) == len(rows) <= math.prod(table.grid_shape)
    for number, offset, length, _ in rows:
        assert 0 <= number < table.n_chunks
        assert 0 <= offset < offset + length <= size_bytes


def check(case: Good, data: bytes) -> None:
    """Both steps on broken data, the second one also after a good first one."""
    try:
        file = read_superblock(BufferReader(data))
    except GridrefError:
        return
    # Tracing memory makes long pages slow, and they are no larger than others.
    in_memory = len(case.rows) < 2000
    layout = result_of(lambda: read_data_layout(file, case.header_address), in_memory=in_memory)
    for known in [case.layout] if layout == case.layout else [case.layout, layout]:
        if not isinstance(known, ChunkedLayout):
            continue
        table = result_of(
            lambda known=known: walk_chunks(IndexRequest(file, known, **case.dataset)),
            in_memory=in_memory,
        )
        if table is None:
            continue
        assert_possible(table, len(data))
        if case.is_checksummed and data[:64] == case.data[:64]:
            assert rows_of(table) == case.rows


@pytest.mark.long(but=2)
@pytest.mark.parametrize("name", CASES)
@FEWER
@given(data=st.data())
def test_flipped_bytes(name: str, data: st.DataObject) -> None:
    case = good(name)
    broken = bytearray(case.data)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.sampled_from(case.positions))
        broken[position] ^= data.draw(st.integers(1, 255))
    check(case, bytes(broken))


@pytest.mark.long(but=2)
@pytest.mark.parametrize("name", CASES)
@FEWER
@given(data=st.data())
def test_overwritten_numbers(name: str, data: st.DataObject) -> None:
    """Numbers that are likely to be special: addresses of other things, undefined ones, ..."""
    case = good(name)
    broken = bytearray(case.data)
    position = data.draw(st.sampled_from(case.positions))
    near = st.sampled_from(case.positions)
    special = st.sampled_from([0, 1, 2**16 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, len(broken)])
    value = data.draw(near | special)
    width = data.draw(st.sampled_from([1, 2, 4, 8]))
    broken[position : position + width] = (value % 256**width).to_bytes(width, "little")
    check(case, bytes(broken))


@pytest.mark.parametrize("name", CASES)
@FEWER
@given(data=st.data())
def test_cut_files(name: str, data: st.DataObject) -> None:
    case = good(name)
    size = data.draw(st.integers(0, len(case.data) - 1))
    check(case, case.data[:size])


def test_btree_in_a_circle() -> None:
    case = good("btree1")
    root = case.layout.index_address
    assert root is not None
    data = bytearray(case.data)
    level = data[root + 5]
    assert level == 1
    entry = 8 + 8 * 3 + 8
    for deeper in (1, 200):
        data[root + 5] = deeper
        for index in range(5):
            child = root + 24 + index * entry + entry - 8
            data[child : child + 8] = root.to_bytes(8, "little")
        with pytest.raises(SourceFormatError, match="level"):
            _walk(case, bytes(data))


def test_btree_with_all_children_the_same() -> None:
    """Levels decrease, but the tree would be larger than the file."""
    n_levels, n_entries = 40, 64
    entry = struct.pack("<II2QQ", 4, 0, 0, 0, 0)
    nodes = b""
    node_bytes = 24 + n_entries * len(entry)
    for level in reversed(range(n_levels)):
        below = (n_levels - level) * node_bytes
        child = struct.pack("<II2QQ", 4, 0, 0, 0, below)
        nodes += struct.pack("<4sBBHQQ", b"TREE", 1, level, n_entries, 0, 0) + child * n_entries
    layout = ChunkedLayout(ChunkIndexKind.BTREE_V1, (1,), 4, 0)
    file = Hdf5Bytes(BufferReader(nodes), 0, 8, 8)
    refused = r"larger than the file|enclose|out of order"
    with within_bounds(), pytest.raises(SourceFormatError, match=refused):
        walk_chunks(
            IndexRequest(file, layout, shape=(10**9,), max_shape=(10**9,), is_filtered=False)
        )


def test_nodes_with_more_entries_than_expected() -> None:
    for name in ("btree1", "btree1-filtered"):
        case = good(name)
        file = replace(read_superblock(BufferReader(case.data)), chunk_btree_k=1)
        assert rows_of(walk_chunks(IndexRequest(file, case.layout, **case.dataset))) == case.rows


def test_inner_nodes_without_entries_hold_no_chunks() -> None:
    node = struct.pack("<4sBBHQQ", b"TREE", 1, 2, 0, 0, 0)
    layout = ChunkedLayout(ChunkIndexKind.BTREE_V1, (1,), 4, 0)
    file = Hdf5Bytes(BufferReader(node + bytes(4096)), 0, 8, 8)
    table = walk_chunks(IndexRequest(file, layout, shape=(9,), max_shape=(9,), is_filtered=False))
    assert table.n_stored == 0


def test_keys_out_of_order() -> None:
    case = good("btree1")
    data = bytearray(case.data)
    leaf = next(at for at in case.positions if data[at : at + 6] == b"TREE\x01\x00")
    entry = 8 + 8 * 3 + 8
    first, second = (slice(leaf + 24 + n * entry, leaf + 24 + (n + 1) * entry) for n in (3, 4))
    data[first], data[second] = data[second], data[first]
    with pytest.raises(SourceFormatError, match="out of order") as caught:
        _walk(case, bytes(data))
    assert caught.value.place.start == case.layout.index_address


def test_object_header_in_a_circle() -> None:
    header = struct.pack("<BBHII4x", 1, 0, 1, 1, 24)
    continuation = struct.pack("<HHB3xQQ", 0x10, 16, 0, 64, 24)
    data = (header + continuation).ljust(64, b"\0") + continuation + bytes(100)
    with within_bounds(), pytest.raises(SourceFormatError, match="circle"):
        read_data_layout(Hdf5Bytes(BufferReader(data), 0, 8, 8), 0)


def test_wrong_checksum_is_named() -> None:
    case = good("fixed")
    data = bytearray(case.data)
    address = case.layout.index_address
    assert address is not None
    data[address + 7] ^= 1
    with pytest.raises(SourceFormatError, match="checksum") as caught:
        _walk(case, bytes(data))
    assert caught.value.place.start == address


@pytest.mark.parametrize(
    ("name", "signature", "version_at", "n_bytes"),
    [("fixed", b"FAHD", 4, 28), ("extensible", b"EAHD", 4, 72), ("btree2", b"BTHD", 4, 38)],
)
def test_unknown_versions_are_refused(
    name: str, signature: bytes, version_at: int, n_bytes: int
) -> None:
    case = good(name)
    address = case.layout.index_address
    assert address is not None
    data = bytearray(case.data)
    assert data[address : address + 4] == signature
    data[address + version_at] = 7
    stop = address + n_bytes - 4
    data[stop : stop + 4] = lookup3(bytes(data[address:stop])).to_bytes(4, "little")
    with pytest.raises(UnsupportedFeatureError, match="version 7"):
        _walk(case, bytes(data))


@pytest.mark.parametrize("name", ["fixed", "btree1", "btree1-filtered"])
def test_overlapping_and_outlying_chunks(name: str) -> None:
    case = good(name)
    data = bytearray(case.data)
    places = [at for _, at, _, _ in case.rows]
    first, second = (
        _position_of(data, place.to_bytes(8, "little"), case.positions) for place in places[:2]
    )
    data[first : first + 8] = data[second : second + 8]
    with pytest.raises(SourceFormatError, match=r"overlap|checksum"):
        _walk(case, bytes(data))
    data[first : first + 8] = (len(data) - 1).to_bytes(8, "little")
    with pytest.raises(SourceFormatError, match=r"outside of the file|checksum"):
        _walk(case, bytes(data))


def _position_of(data: bytes, wanted: bytes, positions: list[int]) -> int:
    known = set(positions)
    at = data.find(wanted)
    while at not in known:
        at = data.find(wanted, at + 1)
        assert at >= 0
    return at


def _walk(case: Good, data: bytes) -> ChunkTable:
    return walk_chunks(
        IndexRequest(read_superblock(BufferReader(data)), case.layout, **case.dataset)
    )


@pytest.mark.parametrize("in_leaf", [True, False])
def test_btree_v1_keys_that_hide_chunks(tmp_path: Path, in_leaf: bool) -> None:
    """HDF5 finds no chunk that lies outside of the keys around it, and reads fill values."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(200.0), chunks=(2,))
    whole = path.read_bytes()
    with h5py.File(path) as file:
        n_levels = max(whole[m.start() + 5] for m in re.finditer(rb"TREE\x01", whole))
    assert n_levels == 1
    level = 0 if in_leaf else 1
    (start, *_) = (m.start() for m in re.finditer(rb"TREE\x01" + bytes([level]), whole))
    n_entries = int.from_bytes(whole[start + 6 : start + 8], "little")
    last_key = start + 24 + n_entries * 32
    broken = bytearray(whole)
    broken[last_key + 8 : last_key + 24] = bytes(16)
    path.write_bytes(broken)
    with pytest.raises(SourceFormatError, match="do not enclose"):
        scan(path)
