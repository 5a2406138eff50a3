"""Labels that a scan keeps: their values are those that h5py reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from gridref.formats import kept_elements, scan
from gridref.io import AtHand, working
from gridref.model.indexing import flip

WAYS: dict[str, dict[str, Any]] = {
    "contiguous": {"data": np.arange(24) * 0.5},
    "big endian": {"data": np.arange(24, dtype=">i2")},
    "one chunk": {"data": np.arange(24), "chunks": (24,)},
    "a chunk longer than the array": {"data": np.arange(24), "chunks": (512,), "maxshape": (None,)},
    "compressed": {
        "data": np.arange(24) * 0.1,
        "chunks": (100,),
        "maxshape": (None,),
        "compression": "gzip",
        "shuffle": True,
        "fletcher32": True,
    },
}
UNUSUAL: dict[str, dict[str, Any]] = {
    "several chunks": {"data": np.arange(24), "chunks": (5,)},
    "no values": {"shape": (24,), "dtype": "f4"},
    "two dimensions": {"data": np.arange(24).reshape(4, 6)},
}


def write(path: Path, **dataset: Any) -> Path:
    with h5py.File(path, "w") as file:
        label = file.create_dataset("x", **dataset)
        label.make_scale("x")
    return path


@pytest.mark.parametrize("way", WAYS)
def test_kept_labels_are_those_of_the_file(tmp_path: Path, way: str) -> None:
    path = write(tmp_path / "file.h5", **WAYS[way])
    with h5py.File(path) as file:
        expected = file["x"][:]
    with working(at_hand=AtHand()):
        label = scan(path).arrays["x"]
        path.unlink()  # it is not opened again
        kept = kept_elements(label)
        assert kept is not None
        np.testing.assert_array_equal(kept, expected)
        assert kept.dtype == label.dtype
        assert kept_elements(flip(label, 0)) is None


@pytest.mark.parametrize("way", UNUSUAL)
def test_the_reader_reads_all_others(tmp_path: Path, way: str) -> None:
    path = write(tmp_path / "file.h5", **UNUSUAL[way])
    with working(at_hand=AtHand()):
        assert kept_elements(scan(path).arrays["x"]) is None


def test_nothing_is_kept_beyond_the_call_that_scans(tmp_path: Path) -> None:
    path = write(tmp_path / "file.h5", **WAYS["contiguous"])
    with working(at_hand=AtHand()):
        label = scan(path).arrays["x"]
        assert kept_elements(label) is not None
    assert kept_elements(label) is None


def test_damaged_labels_are_left_to_the_reader(tmp_path: Path) -> None:
    path = write(tmp_path / "file.h5", **WAYS["compressed"])
    with h5py.File(path) as file:
        chunk = file["x"].id.get_chunk_info(0)
    with open(path, "r+b") as raw:
        raw.seek(chunk.byte_offset + 10)
        raw.write(b"\xff\xff\xff")
    with working(at_hand=AtHand()):
        assert kept_elements(scan(path).arrays["x"]) is None
