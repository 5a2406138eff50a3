"""Messages that objects share, and attributes in fractal heaps, against h5py."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from h5py import h5f, h5p

from gridref import scan
from gridref.errors import SourceFormatError
from gridref.formats.hdf5.attributes import dense_attribute_messages
from gridref.formats.hdf5.bytes import Hdf5Bytes, read_superblock
from gridref.formats.hdf5.headers import HeaderMessage, SharedMessages, read_header
from gridref.testing.reference_reader import read_slowly
from tests.hdf5_bytes import BufferReader, LocalReader
from tests.hdf5_oracle import read_original

DATASPACE, DATATYPE, FILL, ATTRIBUTE_INFO, ATTRIBUTE = 0x01, 0x03, 0x05, 0x15, 0x0C
KINDS_OF_INDEXES = (0x0002 | 0x0008 | 0x0020 | 0x0800, 0x1000)
POINT = np.dtype([("first_member", "i4"), ("second_member", "f8"), ("third", "S10")])


def create_sharing(path: Path, latest: bool) -> h5py.File:
    """A file that shares messages; h5py itself cannot ask for that."""
    library: Any = ctypes.CDLL(h5p.__file__)
    creation, access = h5p.create(h5p.FILE_CREATE), h5p.create(h5p.FILE_ACCESS)
    number, index = ctypes.c_int64(creation.id), ctypes.c_uint
    assert library.H5Pset_shared_mesg_nindexes(number, index(2)) >= 0
    for which, kinds in enumerate(KINDS_OF_INDEXES):
        done = library.H5Pset_shared_mesg_index(number, index(which), index(kinds), index(10))
        assert done >= 0
    if latest:
        access.set_libver_bounds(h5f.LIBVER_LATEST, h5f.LIBVER_LATEST)
    return h5py.File(h5f.create(bytes(path), h5f.ACC_TRUNC, creation, access))


def make_sharing(path: Path, latest: bool, n_datasets: int) -> None:
    rows = np.arange(72).reshape(8, 9)
    fill = np.array((1, 2.5, b"x"), POINT)
    with create_sharing(path, latest) as file:
        for number in range(n_datasets):
            table = file.create_dataset(f"t{number}", (3, 4), POINT, fillvalue=fill)
            for name in range(12):
                table.attrs[f"a{name}"] = np.arange(20.0) * name
            table.attrs["text"] = "a string of some length" * 5
            kept = file.create_dataset(
                f"c{number}", data=rows, chunks=(4, 4), compression=5, fillvalue=7
            )
            kept.attrs["x"] = np.arange(30)


@pytest.mark.parametrize("latest", [False, True])
@pytest.mark.parametrize("n_datasets", [2, 40])
def test_messages_in_the_heaps_of_the_file(tmp_path: Path, latest: bool, n_datasets: int) -> None:
    path = tmp_path / "a.h5"
    make_sharing(path, latest, n_datasets)
    with LocalReader(path) as reader, h5py.File(path) as file:
        view = read_superblock(reader)
        header = read_header(view, h5py.h5o.get_info(file["c1"].id).addr)
        assert {message.kind for message in header.messages if message.is_shared} >= {
            *(DATASPACE, DATATYPE, FILL)
        }
    group = scan(path)
    assert len(group.arrays) == 2 * n_datasets
    for name, array in group.arrays.items():
        read = read_slowly(array)
        np.testing.assert_array_equal(read, read_original(str(path), name))
        with h5py.File(path) as file:
            expected = dict(file[name].attrs)
        assert list(array.attrs) == list(expected)
        for key, value in expected.items():
            np.testing.assert_array_equal(array.attrs[key], value)


def view_of(path: Path) -> Hdf5Bytes:
    return read_superblock(BufferReader(path.read_bytes()))


def test_committed_datatypes(tmp_path: Path) -> None:
    for libver in ("earliest", "latest"):
        path = tmp_path / f"{libver}.h5"
        with h5py.File(path, "w", libver=libver) as file:
            file["type"] = POINT
            file.create_dataset("x", (2,), file["type"])
            address = h5py.h5o.get_info(file["type"].id).addr
            dataset = h5py.h5o.get_info(file["x"].id).addr
        view = view_of(path)
        message = read_header(view, dataset).first(DATATYPE)
        assert message is not None
        assert message.is_shared
        shared = SharedMessages(view)
        found = shared.resolved(message)
        assert found == read_header(view, address).first(DATATYPE)
        assert shared.resolved(message) is found  # looked up once
        assert shared.resolved(found) is found


def test_what_is_shared_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["x"] = 1
        group = h5py.h5o.get_info(file.id).addr
    view = view_of(path)
    at_group = b"\3\2" + group.to_bytes(8, "little")
    for body in (at_group, b"\3\1" + bytes(8), b"\2\0", b"\3\2" + b"\xff" * 8):
        with pytest.raises(SourceFormatError):
            SharedMessages(view).resolved(HeaderMessage(DATATYPE, body, 0, is_shared=True))


# ---- attributes in fractal heaps --------------------------------------------------------


@pytest.mark.parametrize("libver", ["v108", "latest"])
@pytest.mark.parametrize("n_attributes", [9, 30, 700])
@pytest.mark.parametrize("track_order", [False, True])
def test_dense_attributes(
    tmp_path: Path, libver: str, n_attributes: int, track_order: bool
) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=(libver, "latest")) as file:
        owner = file.create_dataset("x", (2,), track_order=track_order)
        for number in range(n_attributes):
            size = 1 + 97 * number % 4000 if number % 50 else 9000  # some are huge objects
            owner.attrs.create(f"n{number * 7919 % 701}", np.full(size, number % 100, "i1"))
        for number in range(0, n_attributes, 7):
            del owner.attrs[f"n{number * 7919 % 701}"]
        expected = {name: len(value) for name, value in owner.attrs.items()}
        address = h5py.h5o.get_info(owner.id).addr
    view = view_of(path)
    header = read_header(view, address)
    info = header.first(ATTRIBUTE_INFO)
    assert info is not None
    _, bodies = dense_attribute_messages(SharedMessages(view), info.data)
    assert len(bodies) == len(expected)
    assert header.tracks_attribute_order == track_order
    attrs = scan(path).arrays["x"].attrs
    assert list(attrs) == list(expected)
    assert {name: np.size(value) for name, value in attrs.items()} == expected
