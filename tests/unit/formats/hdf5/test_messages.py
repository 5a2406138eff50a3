"""Dataspace, fill value and filter pipeline messages, of all versions."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
from h5py import h5p
from hypothesis import given
from hypothesis import strategies as st

from gridref.errors import ScanError, SourceFormatError, UnsupportedFeatureError
from gridref.formats import ScanOptions
from gridref.formats.hdf5.arrays import external_files, fill_value, stored_fill
from gridref.formats.hdf5.bytes import Hdf5Bytes
from gridref.formats.hdf5.datatypes import element_type, read_datatype
from gridref.formats.hdf5.files import Location, OpenFile, find_object, open_file
from gridref.formats.hdf5.filters import filter_codecs, read_filters
from gridref.formats.hdf5.headers import (
    Dataspace,
    HeaderMessage,
    SharedMessages,
    data_layout_of,
    read_dataspace,
)
from gridref.formats.hdf5.tree import DatasetNode, dataset_node
from gridref.io import open_for_scan
from tests.hdf5_bytes import BufferReader

LIBVERS = ["earliest", "latest"]
FILE = Hdf5Bytes(BufferReader(bytes(4096)), 0, 8, 8)


def node_of(file: OpenFile, name: str) -> DatasetNode:
    found = find_object(file, name.encode())
    assert isinstance(found, Location)
    return dataset_node(found, name, f"/{name}")


def extents(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)


# ---- dataspaces -------------------------------------------------------------------------

ENDLESS = (1 << 64) - 1


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"\1\0\0\0" + bytes(4), Dataspace((), ())),
        (b"\1\2\0\0" + bytes(4) + extents(3, 4), Dataspace((3, 4), (3, 4))),
        (b"\1\1\1\0" + bytes(4) + extents(3, ENDLESS), Dataspace((3,), (None,))),
        (b"\2\0\0\0", Dataspace((), ())),
        (b"\2\0\0\2", Dataspace(None, ())),
        (b"\2\2\1\1" + extents(3, 0, 9, ENDLESS), Dataspace((3, 0), (9, None))),
    ],
)
def test_dataspaces(message: bytes, expected: Dataspace) -> None:
    assert read_dataspace(message, 8) == expected


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"\1", "cut off"),
        (b"\3\0\0\0", "unknown version 3"),
        (b"\2\x21\0\1" + extents(*[1] * 33), "33 dimensions"),
        (b"\2\2\0\1" + extents(1), "cut off"),
        (b"\2\1\1\1" + extents(5, 4), "larger than"),
        (b"\2\1\0\1" + extents(1 << 63), "declares the extents"),
    ],
)
def test_corrupt_dataspaces(message: bytes, reason: str) -> None:
    with pytest.raises(SourceFormatError, match=reason):
        read_dataspace(message, 8)


@pytest.mark.parametrize("libver", LIBVERS)
def test_dataspaces_of_files(tmp_path: Path, libver: str) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        file["scalar"] = 1
        file["null"] = h5py.Empty("i4")
        file["fixed"] = np.zeros((2, 0, 3))
        file.create_dataset("growing", (2, 3), "i4", maxshape=(None, 9), chunks=(1, 1))
        expected = {name: (file[name].shape, file[name].maxshape) for name in file}
    with open_file(open_for_scan(path), ScanOptions()) as opened:
        for name, (shape, maxshape) in expected.items():
            node = node_of(opened, name)
            assert (node.shape, node.maxshape) == (shape, maxshape or ())


# ---- filters ----------------------------------------------------------------------------


@pytest.mark.parametrize("libver", LIBVERS)
def test_filters_are_those_that_h5py_lists(tmp_path: Path, libver: str) -> None:
    path = tmp_path / "a.h5"
    settings: dict[str, dict[str, Any]] = {
        "none": {},
        "deflate": {"compression": "gzip", "compression_opts": 7},
        "all": {"compression": "lzf", "shuffle": True, "fletcher32": True},
        "scaled": {"scaleoffset": 3},
        "plugin": {"compression": 32015, "compression_opts": (3,), "shuffle": True},
    }
    with h5py.File(path, "w", libver=libver) as file:
        for name, options in settings.items():
            if name == "plugin" and not h5py.h5z.filter_avail(32015):
                continue
            file.create_dataset(name, (10,), "i4", chunks=(5,), **options)
        expected = {}
        for name in file:
            creation = file[name].id.get_create_plist()
            filters = [creation.get_filter(index) for index in range(creation.get_nfilters())]
            expected[name] = [(number, tuple(values)) for number, _, values, _ in filters]
    with open_file(open_for_scan(path), ScanOptions()) as opened:
        for name, filters in expected.items():
            header = node_of(opened, name).header
            found = opened.shared.decoded(header, 0x0B, read_filters) or ()
            assert [(entry.number, entry.values) for entry in found] == filters


def test_unknown_filters_are_named() -> None:
    for version in (1, 2):
        name = b"someone's\0".ljust(16 if version == 1 else 10, b"\0")
        message = bytes([version, 1]) + (bytes(6) if version == 1 else b"")
        message += struct.pack("<4H", 400, 10, 0, 1) + name + struct.pack("<I", 5)
        message += bytes(4) if version == 1 else b""
        (entry,) = read_filters(message)
        assert entry == (400, "someone's", (5,))
        with pytest.raises(UnsupportedFeatureError, match="filter 400 \\(someone's\\)"):
            filter_codecs((entry,))


@given(message=st.binary(max_size=60))
def test_any_bytes_are_filters_or_refused(message: bytes) -> None:
    try:
        read_filters(message)
    except SourceFormatError:
        return


# ---- fill values ------------------------------------------------------------------------


def node_with(kind: int, message: bytes) -> DatasetNode:
    """A dataset with one message."""

    class File:
        bytes = FILE
        shared = SharedMessages(FILE)

    only = HeaderMessage(kind, message, 0, is_shared=False)
    header = SimpleNamespace(first=lambda wanted: only if wanted == kind else None)
    made: Any = DatasetNode("x", "/x", File(), (0, 0), (), (), None, header)  # type: ignore[arg-type]
    return made


SHORT = element_type(b"\x10\x08\0\0\2\0\0\0\0\0\x10\0")
VALUE = struct.pack("<Ih", 2, -7)


@pytest.mark.parametrize(
    ("kind", "message", "expected"),
    [
        (0x04, VALUE, -7),
        (0x04, bytes(4), 0),
        (0x05, b"\1\2\2\1" + VALUE, -7),
        (0x05, b"\1\2\2\0" + bytes(4), 0),
        (0x05, b"\1\2\2\1\xff\xff\xff\xff", 0),
        (0x05, b"\2\2\2\1" + VALUE, -7),
        (0x05, b"\2\2\2\0", 0),
        (0x05, b"\2\2\1\1" + VALUE, 0),  # never written
        (0x05, b"\3\x2a" + VALUE, -7),
        (0x05, b"\3\x1a", 0),
        (0x05, b"\3\x26" + VALUE, 0),  # never written
        (0x0D, b"", 0),
    ],
)
def test_fill_value_messages(kind: int, message: bytes, expected: int) -> None:
    value = fill_value(node_with(kind, message), SHORT)
    assert (value, value.dtype) == (expected, np.dtype("i2"))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"\3\x3a" + VALUE, "both defined and undefined"),
        (b"\4\0\0\0", "unknown version 4"),
        (b"\3\x2a\xff\0\0\0abc", "cut off"),
        (b"\3\x2a\3\0\0\0abc", "has 3 bytes, an element has 2"),
    ],
)
def test_corrupt_fill_values(message: bytes, reason: str) -> None:
    with pytest.raises(SourceFormatError, match=reason):
        fill_value(node_with(0x05, message), SHORT)


@given(message=st.binary(max_size=40))
def test_any_bytes_are_a_fill_value_or_refused(message: bytes) -> None:
    try:
        stored_fill(node_with(0x05, message))
    except SourceFormatError:
        return


# ---- layouts and datatypes of damaged messages ------------------------------------------


@given(message=st.binary(max_size=60))
def test_any_bytes_are_a_layout_or_refused(message: bytes) -> None:
    try:
        data_layout_of(FILE, [HeaderMessage(0x08, message, 0, is_shared=False)], 0)
    except ScanError:
        return


def test_datatypes_behind_other_bytes() -> None:
    """Messages of old headers are padded."""
    message = b"\x10\x08\0\0\2\0\0\0\0\0\x10\0"
    assert read_datatype(message) == read_datatype(message + bytes(4))


def test_external_files_without_an_end(tmp_path: Path) -> None:
    creation = h5p.create(h5p.DATASET_CREATE)
    creation.set_external(b"part.bin", 4, h5py.h5f.UNLIMITED)
    (tmp_path / "part.bin").write_bytes(bytes(4) + np.arange(6, dtype="<i2").tobytes())
    with h5py.File(tmp_path / "a.h5", "w") as file:
        space = h5py.h5s.create_simple((6,))
        h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I16LE, space, creation)
    with open_file(open_for_scan(tmp_path / "a.h5"), ScanOptions()) as opened:
        (part,) = external_files(node_of(opened, "x"))
    assert part == ("part.bin", 4, ENDLESS)
