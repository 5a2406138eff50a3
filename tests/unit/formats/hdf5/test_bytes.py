"""Superblocks of all versions, files that HDF5 would not open, and checksums."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

import h5py
import numpy as np
import pytest
from h5py import h5f, h5p
from hypothesis import given
from hypothesis import strategies as st

from gridref import scan
from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.bytes import lookup3, lookup3_rows, read_superblock
from gridref.formats.hdf5.headers import read_header
from tests.hdf5_bytes import BufferReader


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        # From the self-test of lookup3.c.
        (b"", 0xDEADBEEF),
        (b"Four score and seven years ago", 0x17770551),
    ],
)
def test_known_values(data: bytes, expected: int) -> None:
    assert lookup3(data) == expected


@given(st.lists(st.binary(min_size=1, max_size=70), min_size=1, max_size=40))
def test_many_at_once(blocks: list[bytes]) -> None:
    width = max(len(block) for block in blocks) + 3
    rows = np.frombuffer(b"".join(block.ljust(width, b"\xff") for block in blocks), np.uint8)
    lengths = np.array([len(block) for block in blocks])
    found = lookup3_rows(rows.reshape(len(blocks), width), lengths)
    assert found.tolist() == [lookup3(block) for block in blocks]


def test_equal_lengths() -> None:
    for length in range(1, 40):
        rows = np.random.default_rng(length).integers(0, 256, (5, length), dtype=np.uint8)
        found = lookup3_rows(rows, np.full(5, length))
        assert found.tolist() == [lookup3(row.tobytes()) for row in rows], length


VERSIONS = {"earliest": 0, "v108": 2, "latest": 3}


def written(path: Path, libver: str, user_block: int = 0) -> bytes:
    latest = "latest" if libver == "earliest" else libver
    bounds = (libver, latest)
    with h5py.File(path, "w", libver=bounds, userblock_size=user_block) as file:
        file["x"] = range(100)
        file.attrs["title"] = "a file"
    return path.read_bytes()


@pytest.mark.parametrize("libver", VERSIONS)
@pytest.mark.parametrize("user_block", [0, 512, 4096])
def test_where_the_root_group_lies(tmp_path: Path, libver: str, user_block: int) -> None:
    path = tmp_path / "a.h5"
    data = written(path, libver, user_block)
    file = read_superblock(BufferReader(data))
    assert data[user_block + 8] == VERSIONS[libver]
    assert file.base_address == user_block
    with h5py.File(path) as opened:
        assert file.root == h5py.h5o.get_info(opened.id).addr
    assert read_header(file, file.root).messages
    assert file.end_address == len(data) - user_block


def test_many_group_entries(tmp_path: Path) -> None:
    """Version 1 is written where the B-trees of chunks are of another size than usual."""
    path = tmp_path / "a.h5"
    properties = h5p.create(h5p.FILE_CREATE)
    library, number = ctypes.CDLL(h5p.__file__), ctypes.c_int64(properties.id)
    assert library.H5Pset_istore_k(number, ctypes.c_uint(5)) >= 0
    assert library.H5Pset_sym_k(number, ctypes.c_uint(2), ctypes.c_uint(3)) >= 0
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_libver_bounds(h5f.LIBVER_EARLIEST, h5f.LIBVER_LATEST)
    with h5py.File(h5f.create(bytes(path), h5f.ACC_TRUNC, properties, access)) as file:
        for number in range(100):
            file.create_dataset(f"d{number}", (40,), chunks=(1,))[:] = number
    assert path.read_bytes()[8] == 1
    assert len(scan(path).arrays) == 100


@pytest.mark.parametrize("libver", VERSIONS)
@pytest.mark.parametrize("user_block", [0, 512])
def test_files_shorter_than_they_say(tmp_path: Path, libver: str, user_block: int) -> None:
    path = tmp_path / "a.h5"
    data = written(path, libver, user_block)
    path.write_bytes(data[:-1])
    with pytest.raises(OSError, match="truncated"):
        h5py.File(path)
    with pytest.raises(
        SourceFormatError, match=f"truncated: it has {len(data) - 1} of {len(data)}"
    ):
        scan(path)
    path.write_bytes(data + b"more")
    assert scan(path).arrays


@pytest.mark.parametrize("libver", ["v108", "latest"])
@pytest.mark.parametrize("place", [9, 20, 36, 44])
def test_checksums(tmp_path: Path, libver: str, place: int) -> None:
    path = tmp_path / "a.h5"
    data = bytearray(written(path, libver))
    data[place] ^= 4
    path.write_bytes(data)
    with pytest.raises(OSError, match="nable to"):
        h5py.File(path)
    with pytest.raises(SourceFormatError):
        scan(path)


@pytest.mark.parametrize("place", [9, 10, 12])
def test_versions_that_are_always_zero(tmp_path: Path, place: int) -> None:
    path = tmp_path / "a.h5"
    data = bytearray(written(path, "earliest"))
    data[place] = 7
    path.write_bytes(data)
    with pytest.raises(OSError, match="nable to"):
        h5py.File(path)
    with pytest.raises(SourceFormatError, match="version"):
        scan(path)


def test_files_that_a_writer_did_not_close(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    data = bytearray(written(path, "latest"))
    data[11] |= 1
    data[44:48] = struct.pack("<I", lookup3(bytes(data[:44])))
    path.write_bytes(data)
    with pytest.raises(SourceFormatError, match="h5clear"):
        scan(path)


@pytest.mark.parametrize("libver", [h5f.LIBVER_EARLIEST, h5f.LIBVER_LATEST])
@pytest.mark.parametrize(
    ("driver", "first", "tool"),
    [("family", "part%d", "h5repart"), ("split", "part", "h5repack")],
)
def test_files_of_several_parts(
    tmp_path: Path, libver: int, driver: str, first: str, tool: str
) -> None:
    properties = h5p.create(h5p.FILE_ACCESS)
    properties.set_libver_bounds(libver, h5f.LIBVER_LATEST)
    if driver == "family":
        properties.set_fapl_family(1000, h5p.DEFAULT)
    else:
        properties.set_fapl_split(b"", h5p.DEFAULT, b"-r.h5", h5p.DEFAULT)
    name = str(tmp_path / first)
    with h5py.File(h5f.create(name.encode(), h5f.ACC_TRUNC, fapl=properties)) as file:
        file["x"] = range(1000)
    part = name.replace("%d", "0")
    with pytest.raises(OSError, match=r"nable to|truncated"):
        h5py.File(part)
    with pytest.raises(UnsupportedFeatureError, match=f"wrote several files.*{tool}"):
        scan(part)
