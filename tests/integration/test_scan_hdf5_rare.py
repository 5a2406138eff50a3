"""What few programs write into HDF5 files: as h5py reads it, or refused by name."""

from __future__ import annotations

import ctypes
import io
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest
from numpy.typing import NDArray

from gridref.errors import UnsupportedFeatureError
from gridref.formats.hdf5.format.checksum import lookup3
from gridref.formats.registry import scan
from tests.hdf5_oracle import scanned_rightly
from tests.unit.formats.hdf5.storage.chunk_index_oracle import hdf5_library

# ---- FCIDECOMP (filter 32018): JPEG-LS ----------------------------------------------------


def image(shape: tuple[int, ...], code: str) -> NDArray[Any]:
    """Pixels that JPEG-LS makes smaller, different in each component."""
    noise = np.random.default_rng(3).integers(0, 9, shape)
    return (np.indices(shape).sum(0) * 2 + noise).astype(code)


@pytest.mark.parametrize("code", ["u1", "i1", "u2", "i2"])
@pytest.mark.parametrize("shape", [(40, 30), (1, 4000), (4000, 1), (1, 40, 30), (40, 30, 3)])
def test_jpegls_of_one_component(tmp_path: Path, shape: tuple[int, ...], code: str) -> None:
    write_jpegls(tmp_path / "a.h5", image(shape, code))
    scanned_rightly(tmp_path / "a.h5")


@pytest.mark.parametrize("code", ["u1", "u2"])
@pytest.mark.parametrize(
    "shape", [(2, 40, 30), (3, 40, 30), (4, 40, 30), (3, 40, 3), (3, 1, 4000), (3, 4000, 1)]
)
def test_jpegls_of_several_components_gives_planes(
    tmp_path: Path, shape: tuple[int, ...], code: str
) -> None:
    write_jpegls(tmp_path / "a.h5", image(shape, code))
    with h5py.File(tmp_path / "a.h5") as file:
        mask, raw = file["v"].id.read_direct_chunk((0, 0, 0))
    assert (mask, raw[:4]) == (0, b"\xff\xd8\xff\xf7")
    scanned_rightly(tmp_path / "a.h5")


def write_jpegls(path: Path, values: NDArray[Any]) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=values, chunks=values.shape, **hdf5plugin.FciDecomp())


# ---- Scale-Offset ------------------------------------------------------------------------


@pytest.mark.parametrize("has_fill", [0, 1, 2, 255, 0xFFFFFFFF])
@pytest.mark.parametrize(("code", "factor"), [("i4", 0), ("u2", 0), ("f4", 2)])
def test_only_one_says_that_scaleoffset_has_a_fill_value(
    tmp_path: Path, code: str, factor: int, has_fill: int
) -> None:
    values = np.arange(30).astype(code)
    values[::7] = 99
    with h5py.File(tmp_path / "a.h5", "w", libver="earliest") as file:
        dataset = file.create_dataset(
            "v", data=values, chunks=(10,), scaleoffset=factor, fillvalue=99
        )
        words = np.array(dataset.id.get_create_plist().get_filter(0)[2], "<u4")
    data = (tmp_path / "a.h5").read_bytes()
    assert words[7] == 1
    changed = words.copy()
    changed[7] = has_fill
    (tmp_path / "a.h5").write_bytes(data.replace(words.tobytes(), changed.tobytes()))
    scanned_rightly(tmp_path / "a.h5")


@pytest.mark.parametrize("code", ["i1", "u1", "i2", ">i4", "u4", "i8", "u8"])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_scaleoffset_of_all_bits_stores_integers_as_they_are(
    tmp_path: Path, code: str, more: int
) -> None:
    values = (np.arange(30) * 3).astype(code)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        width = 8 * values.dtype.itemsize + more
        file.create_dataset("v", data=values, chunks=(10,), scaleoffset=width)
    scanned_rightly(tmp_path / "a.h5")


# ---- Chunks outside of the extent ----------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}], ids=["plain", "gzip"])
@pytest.mark.parametrize("extent", [(20, 30), (9, 30), (20, 11), (9, 11), (1, 1)], ids=str)
@pytest.mark.parametrize(
    ("libver", "maxshape"),
    [
        ("earliest", (None, None)),
        ("latest", (50, 60)),
        ("latest", (None, 60)),
        ("latest", (50, None)),
        ("latest", (None, None)),
    ],
    ids=["B-tree 1", "fixed array", "extensible array", "turned extensible array", "B-tree 2"],
)
def test_chunks_outside_of_the_extent_are_not_looked_for(
    tmp_path: Path,
    libver: str,
    maxshape: tuple[int | None, ...],
    extent: tuple[int, int],
    options: dict[str, Any],
) -> None:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", libver=libver) as file:
        file.create_dataset(
            "v",
            data=np.arange(1, 601).reshape(20, 30),
            chunks=(3, 4),
            maxshape=maxshape,
            fillvalue=-1,
            **options,
        )
        address = h5py.h5o.get_info(file["v"].id).addr
    path = tmp_path / "a.h5"
    path.write_bytes(with_extent(buffer.getvalue(), address, (20, 30), extent))
    with h5py.File(path) as file:
        assert file["v"].shape == extent
        assert file["v"].id.get_num_chunks() == 7 * 8  # a proper resize would have removed some
    scanned_rightly(path)


def with_extent(
    data: bytes, address: int, before: tuple[int, ...], after: tuple[int, ...]
) -> bytes:
    """A file in which the extent of the dataset whose header is at `address` is another one."""
    changed = bytearray(data)
    at = data.index(np.array(before, "<u8").tobytes(), address)
    changed[at : at + 8 * len(after)] = np.array(after, "<u8").tobytes()
    if data[address : address + 4] == b"OHDR":
        flags = data[address + 5]
        width = 1 << (flags & 3)
        size_at = address + 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
        stop = size_at + width + int.from_bytes(data[size_at : size_at + width], "little")
        assert at < stop
        changed[stop : stop + 4] = lookup3(bytes(changed[address:stop])).to_bytes(4, "little")
    return bytes(changed)


# ---- Refused by name -----------------------------------------------------------------------


@pytest.mark.skipif(hdf5_library() is None, reason="HDF5 library not found")
def test_compressed_links_are_refused_by_name(tmp_path: Path) -> None:
    library = hdf5_library()
    assert library is not None
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        creation = h5py.h5p.create(h5py.h5p.GROUP_CREATE)
        identifier = ctypes.c_int64(creation.id)
        assert library.H5Pset_deflate(identifier, ctypes.c_uint(6)) >= 0
        assert library.H5Pset_link_phase_change(identifier, ctypes.c_uint(0), ctypes.c_uint(0)) >= 0
        group = h5py.Group(h5py.h5g.create(file.id, b"compressed", gcpl=creation))
        group["inside"] = 1
        file["beside"] = 2
    with pytest.raises(UnsupportedFeatureError, match="the fractal heap is filtered") as caught:
        scan(tmp_path / "a.h5")
    assert caught.value.place.variable == "/compressed"
    skipped = scan(tmp_path / "a.h5", on_unsupported="skip")
    assert list(skipped.all_arrays()) == ["beside"]


def test_compounds_with_strings_of_variable_length_are_refused_by_name(tmp_path: Path) -> None:
    dtype = np.dtype([("name", h5py.string_dtype()), ("n", "i4")])
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["people"] = np.array([("Ada", 1), ("Grace", 2)], dtype)
        file["beside"] = 2
    with pytest.raises(UnsupportedFeatureError, match="compounds with members that are") as caught:
        scan(tmp_path / "a.h5")
    assert caught.value.place.variable == "/people"
    skipped = scan(tmp_path / "a.h5", on_unsupported="skip")
    assert list(skipped.all_arrays()) == ["beside"]
