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
import xarray as xr
from numpy.typing import NDArray

import gridref
from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.bytes import lookup3
from gridref.formats.registry import scan
from gridref.testing.reference_reader import read_slowly
from tests.hdf5_oracle import read_original, scanned_rightly, why_different
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


# ---- Groups whose links are compressed -------------------------------------------------------

needs_library = pytest.mark.skipif(hdf5_library() is None, reason="HDF5 library not found")


def called(name: str, *arguments: Any) -> None:
    """Call a function of the HDF5 library that h5py does not offer."""
    library = hdf5_library()
    assert library is not None
    assert getattr(library, name)(*arguments) >= 0


def compressed_group(file: h5py.File, name: str, *filters: tuple[int, ...]) -> h5py.Group:
    """A group that keeps its links in a heap, with filters on it."""
    creation = h5py.h5p.create(h5py.h5p.GROUP_CREATE)
    identifier = ctypes.c_int64(creation.id)
    for number, *values in filters:
        parameters = (ctypes.c_uint * len(values))(*values)
        n_values = ctypes.c_size_t(len(values))
        called("H5Pset_filter", identifier, number, ctypes.c_uint(0), n_values, parameters)
    called("H5Pset_link_phase_change", identifier, ctypes.c_uint(0), ctypes.c_uint(0))
    return h5py.Group(h5py.h5g.create(file.id, name.encode(), gcpl=creation))


DEFLATE, FLETCHER = (1, 6), (3,)


@needs_library
@pytest.mark.parametrize(
    "filters", [(DEFLATE,), (FLETCHER,), (DEFLATE, FLETCHER)], ids=["gzip", "sum", "both"]
)
@pytest.mark.parametrize(("n_links", "length"), [(1, 1), (40, 9), (800, 900)])
def test_compressed_links(
    tmp_path: Path, n_links: int, length: int, filters: tuple[Any, ...]
) -> None:
    """One block, several, and blocks below indirect ones; a long name is an object of its own."""
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        group = compressed_group(file, "compressed", *filters)
        file["shared"] = np.arange(5)
        for number in range(n_links):
            group[f"{number:05}{'x' * length}"] = file["shared"]
        for times in (5000, 6000):
            group["long" * times] = times
        long = set(group) - {name for name in group if len(name) < 1000}
    group = scan(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5") as file:
        assert set(group.groups["compressed"].arrays) == set(file["compressed"])
    assert long <= set(group.groups["compressed"].arrays)


@needs_library
def test_a_filter_of_links_that_is_not_known_is_named(tmp_path: Path) -> None:
    """The same file with the number of deflate changed, and the checksum of the heap's header."""
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        compressed_group(file, "compressed", DEFLATE)["inside"] = 1
        file["beside"] = 2
    data = bytearray((tmp_path / "a.h5").read_bytes())
    start = data.index(b"FRHP")
    at = data.index(b"\2\1\1\0", start) + 2  # version 2, one filter, which is deflate
    stop = at + 10  # its number, flags, number of values, and value
    data[at : at + 2] = (200).to_bytes(2, "little")
    data[stop : stop + 4] = lookup3(bytes(data[start:stop])).to_bytes(4, "little")
    (tmp_path / "a.h5").write_bytes(data)
    with pytest.raises(UnsupportedFeatureError, match=r"filter 200 .* cannot be decoded") as caught:
        scan(tmp_path / "a.h5")
    assert caught.value.place.variable == "/compressed"
    skipped = scan(tmp_path / "a.h5", on_unsupported="skip")
    assert list(skipped.all_arrays()) == ["beside"]


# ---- Metadata cache images -----------------------------------------------------------------


class ImageSettings(ctypes.Structure):
    """``H5AC_cache_image_config_t``."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("generate_image", ctypes.c_bool),
        ("save_resize_status", ctypes.c_bool),
        ("entry_ageout", ctypes.c_int),
    )


def with_or_without_image(path: Path, userblock: int = 0, *, image: bool) -> h5py.File:
    """A new file, in which HDF5 will keep an image of its metadata cache."""
    access, creation = (h5py.h5p.create(k) for k in (h5py.h5p.FILE_ACCESS, h5py.h5p.FILE_CREATE))
    access.set_libver_bounds(h5py.h5f.LIBVER_LATEST, h5py.h5f.LIBVER_LATEST)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    creation.set_userblock(userblock)
    settings = ImageSettings(1, image, False, -1)
    called("H5Pset_mdc_image_config", ctypes.c_int64(access.id), ctypes.byref(settings))
    return h5py.File(h5py.h5f.create(bytes(path), fcpl=creation, fapl=access))


def write_some(file: h5py.File) -> None:
    file.attrs["title"] = "imaged"
    values = np.arange(3000).reshape(60, 50)
    file.create_dataset("z", data=values, chunks=(7, 9), compression=4, maxshape=(None, None))
    file["texts"] = np.array(["a", "bc", ""], object)
    file["plain"] = np.arange(10)


@needs_library
@pytest.mark.parametrize("userblock", [0, 512])
def test_images_of_the_metadata_cache(tmp_path: Path, userblock: int) -> None:
    """Object headers, indexes and heaps are in the image; in their places they may be missing."""
    with with_or_without_image(tmp_path / "a.h5", userblock, image=True) as file:
        write_some(file)
    data = (tmp_path / "a.h5").read_bytes()
    assert b"OHDR" not in data[data.index(b"OHDR", userblock + 100) + 4 : data.index(b"MDCI")]
    group = scanned_rightly(tmp_path / "a.h5")
    assert set(group.arrays) == {"z", "texts", "plain"}
    assert group.attrs == {"title": "imaged"}


@needs_library
def test_images_of_large_groups(tmp_path: Path) -> None:
    """HDF5 2.0 cannot read what it writes here; 1.10 can. So the file without an image is read."""
    for name in ("imaged", "plain"):
        with with_or_without_image(tmp_path / f"{name}.h5", image=name == "imaged") as file:
            write_some(file)
            group = file.create_group("many")
            for number in range(30):
                group[f"d{number}"] = np.arange(number)
                group.attrs[f"a{number}"] = "v" * number
    assert b"MDCI" in (tmp_path / "imaged.h5").read_bytes()
    imaged, plain = scan(tmp_path / "imaged.h5"), scanned_rightly(tmp_path / "plain.h5")
    assert imaged.attrs == plain.attrs
    assert imaged.groups["many"].attrs == plain.groups["many"].attrs
    arrays = imaged.all_arrays()
    assert list(arrays) == list(plain.all_arrays())
    for path, expected in plain.all_arrays().items():
        assert why_different(read_slowly(arrays[path]), read_slowly(expected)) is None


@needs_library
def test_damaged_images_are_refused(tmp_path: Path) -> None:
    with with_or_without_image(tmp_path / "a.h5", image=True) as file:
        write_some(file)
    data = bytearray((tmp_path / "a.h5").read_bytes())
    data[data.index(b"MDCI") + 100] ^= 1
    (tmp_path / "a.h5").write_bytes(data)
    with pytest.raises(SourceFormatError, match="checksum of the image of the metadata cache"):
        scan(tmp_path / "a.h5")


# ---- Compounds with strings of variable length -------------------------------------------------

TEXT = h5py.string_dtype()
PERSON = np.dtype(
    [("name", TEXT), ("n", ">i4"), ("tags", TEXT, (2,)), ("home", [("town", TEXT), ("x", "f8")])]
)


def people() -> NDArray[Any]:
    values = np.zeros(4, PERSON)
    values["name"] = ["Ada", "Grace \u00e9", "", "x" * 300]
    values["n"] = [1, -2, 3, 4]
    values["tags"] = [["a", "bcd"], ["", "c"], ["d", ""], ["", ""]]
    values["home"]["town"] = ["q", "", "w", "e"]
    values["home"]["x"] = np.arange(4) / 3
    return values


def write_people(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["people"] = people()
        file.create_dataset("chunked", data=people(), chunks=(3,), compression="gzip")
        file.create_dataset("unwritten", (3,), PERSON)
        file.create_dataset("none", (0,), PERSON)
        file.create_dataset("one", data=people()[1], dtype=PERSON)
        file.create_dataset("pairs", data=people().reshape(2, 2))
        to = np.dtype([("to", h5py.ref_dtype), ("n", "i4")])
        links = file.create_dataset("links", (2,), to)
        links[0] = file["people"].ref, 1


def test_compounds_with_strings_of_variable_length(tmp_path: Path) -> None:
    write_people(tmp_path / "a.h5")
    group = scanned_rightly(tmp_path / "a.h5")
    assert group["people"].dtype["name"] == "S300"
    assert read_slowly(group["links"])["to"].tolist() == [b"/people", b""]
    raw = b"\xff\xfe not UTF-8"
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["x"] = np.array([(raw,)], [("name", TEXT)])
    assert read_slowly(scanned_rightly(tmp_path / "b.h5")["x"])["name"].tolist() == [raw]


def test_they_go_through_the_doors(tmp_path: Path) -> None:
    write_people(tmp_path / "a.h5")
    gridref.build([tmp_path / "a.h5"], tmp_path / "a.gridref")
    shown = xr.open_dataset(tmp_path / "a.gridref", engine="gridref")
    for name, values in shown.data_vars.items():
        assert why_different(values.to_numpy(), read_original(str(tmp_path / "a.h5"), name)) is None


def test_strings_of_joined_compounds_are_as_wide_as_the_longest(tmp_path: Path) -> None:
    kind = np.dtype([("name", TEXT), ("n", "i4"), ("raw", "V2")])
    names = [["Ada", "Bob"], ["Grace Hopper", ""]]
    for number, each in enumerate(names):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file["t"] = np.arange(2) + 2.0 * number
            file["t"].make_scale("t")
            values = np.zeros(2, kind)
            values["name"], values["n"] = each, number
            file["people"] = values
            file["people"].dims[0].attach_scale(file["t"])
    gridref.build([tmp_path / "0.h5", tmp_path / "1.h5"], tmp_path / "a.gridref", concat_dim="t")
    expected = [name.encode() for each in names for name in each]
    shown = xr.open_dataset(tmp_path / "a.gridref", engine="gridref")["people"]
    assert shown.to_numpy()["name"].tolist() == expected
    served = xr.open_zarr(gridref.open_store(tmp_path / "a.gridref"), consolidated=False)["people"]
    assert served.to_numpy()["name"].tolist() == expected
    assert served.to_numpy()["n"].tolist() == [0, 0, 1, 1]


# ---- Refused by name -----------------------------------------------------------------------


def test_compounds_with_sequences_are_refused_by_name(tmp_path: Path) -> None:
    dtype = np.dtype([("name", TEXT), ("n", h5py.vlen_dtype("i4"))])
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("people", (2,), dtype)
        file["beside"] = 2
    with pytest.raises(UnsupportedFeatureError, match="compounds with members that are") as caught:
        scan(tmp_path / "a.h5")
    assert caught.value.place.variable == "/people"
    skipped = scan(tmp_path / "a.h5", on_unsupported="skip")
    assert list(skipped.all_arrays()) == ["beside"]


def test_long_strings_of_compounds_are_kept_up_to_a_bound(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.array([("y" * 5000, 1)] + [("", 2)] * 99, [("name", TEXT), ("n", "i4")])
    with pytest.raises(UnsupportedFeatureError, match=r"raise max_inline_bytes .now 499999."):
        scan(tmp_path / "a.h5", max_inline_bytes=499_999)
    assert scan(tmp_path / "a.h5", max_inline_bytes=600_000)["x"].dtype["name"] == "S5000"
