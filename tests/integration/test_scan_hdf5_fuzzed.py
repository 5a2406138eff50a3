"""What fuzzing the HDF5 scanner found, made again from whole files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.registry import scan
from tests.property.test_scan_hdf5_fuzz import intact
from tools.fuzz.hdf5_mutations import checked_spans, mend

SCAN = """
import sys
from gridref import scan
from gridref.errors import GridrefError
try:
    scan(sys.argv[1], on_unsupported="skip")
except GridrefError as error:
    print(type(error).__name__, error)
"""
WIDTH = 110  # of the doubling table, inside a fractal heap's header


def broken(path: Path, signature: bytes, place: int, value: bytes) -> None:
    """A file whose first structure of a kind has other bytes in it, and the right checksum."""
    data = bytearray(intact("latest"))
    spans = checked_spans(bytes(data))
    start = data.index(signature) + place
    assert data[start : start + len(value)] != value
    data[start : start + len(value)] = value
    mend(data, spans)
    path.write_bytes(data)


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    ("signature", "place", "value"),
    [
        (b"FRHP", WIDTH, bytes(2)),  # the library divides by it
        (b"FRHP", WIDTH + 2, bytes(8)),
        (b"FRHP", WIDTH + 10, bytes(8)),
        (b"FRHP", WIDTH + 18, b"\xff\xff"),
        (b"FRHP", WIDTH + 22, b"\x7f" * 6),
        (b"FRHP", WIDTH + 30, b"\xff\xff"),
        (b"BTHD", 10, b"\1\0"),
        (b"BTHD", 12, b"\xff\0"),
        (b"BTHD", 22, b"\2"),  # the root lies nowhere
        (b"BTHD", 24, bytes(2)),
    ],
)
def test_corrupt_dense_storage_does_not_end_the_process(
    tmp_path: Path, signature: bytes, place: int, value: bytes
) -> None:
    path = tmp_path / "a.h5"
    broken(path, signature, place, value)
    command = [sys.executable, "-c", SCAN, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_variable_length_strings_of_gigabytes_each_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=["a", "bb"], dtype=h5py.string_dtype())
    data = bytearray(path.read_bytes())
    size = data.index(b"\x19\x01\x01\x00\x10\x00\x00\x00") + 4
    data[size : size + 4] = (1 << 31).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(SourceFormatError, match="bytes each"):
        scan(path)


def test_compounds_of_no_elements_are_attributes(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    datatype = np.dtype([("number", "i4"), ("name", h5py.string_dtype())])
    with h5py.File(path, "w") as file:
        file.attrs.create("none", np.zeros(0, datatype), dtype=datatype)
    assert scan(path).attrs == {"none": []}


def test_a_class_that_is_no_text_makes_no_dimension_scale(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    values = [np.zeros((), [("number", "i4")]), np.arange(3), np.void(b"abc"), ["a", "b"]]
    with h5py.File(path, "w") as file:
        for number, value in enumerate(values):
            file[f"v{number}"] = np.arange(3)
            file[f"v{number}"].attrs["CLASS"] = value
    group = scan(path, on_unsupported="skip")
    assert [array.dims for array in group.arrays.values()] == [("phony_dim_0",)] * len(values)


def test_elements_of_a_gigabyte_are_refused(tmp_path: Path) -> None:
    """Half a kilobyte: no data was written."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("a", (2,), "V1342177285")
    with pytest.raises(UnsupportedFeatureError, match="elements of 1342177285 bytes, more than"):
        scan(path)


def test_a_chunk_tree_that_is_out_of_order_is_refused(tmp_path: Path) -> None:
    """HDF5 searches it by halves, and reads fill values where it finds nothing."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        data = file.create_dataset("a", (4, 4), "i4", chunks=(2, 2), maxshape=(None, None))
        data[...] = 1
    content = bytearray(path.read_bytes())
    spans = checked_spans(bytes(content))
    third = content.index(b"BTLF") + 6 + 2 * 24
    assert content[third + 8 : third + 16] == (1).to_bytes(8, "little")
    content[third + 10] = 1
    mend(content, spans)
    path.write_bytes(content)
    with h5py.File(path) as file:
        assert file["a"][3, 3] == 0
    with pytest.raises(SourceFormatError, match="out of order"):
        scan(path)


def test_a_key_beyond_the_grid_that_hides_chunks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file.create_dataset("a", (8,), "i4", chunks=(1,))[...] = 1
    content = bytearray(path.read_bytes())
    leaf = content.index(b"TREE\1\0")
    sixth = leaf + 24 + 5 * 32 + 8
    assert content[sixth : sixth + 8] == (5).to_bytes(8, "little")
    content[sixth + 2] = 1
    path.write_bytes(content)
    with h5py.File(path) as file:
        assert file["a"][...].tolist() == [1] * 5 + [0] * 3
    with pytest.raises(SourceFormatError, match="out of order"):
        scan(path)
