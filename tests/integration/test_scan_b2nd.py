"""Blosc2 arrays: everything that the library ``blosc2`` reads in them, or a refusal."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import blosc2
import numpy as np
import pytest
import xarray as xr
import zarr

import gridref
from gridref.codecs.blosc2 import Blosc2Header
from gridref.errors import (
    DecodeError,
    GridrefError,
    NotRepresentableError,
    SourceFormatError,
    UnsupportedFeatureError,
)
from gridref.model.array import VirtualArray
from gridref.model.manifest import ChunkManifest, ChunkState
from tests.b2nd_files import SHAPE, numbers, read_array, write_array
from tests.http_server import Site, serving

CODECS = {codec.name: codec for codec in blosc2.compressor_list()}
FILTERS = {
    "none": [blosc2.Filter.NOFILTER],
    "shuffle": [blosc2.Filter.SHUFFLE],
    "bitshuffle": [blosc2.Filter.BITSHUFFLE],
    "two": [blosc2.Filter.SHUFFLE, blosc2.Filter.BITSHUFFLE],
}


def only(path: Any, **options: Any) -> VirtualArray:
    (array,) = gridref.scan(path, **options).arrays.values()
    return array


# ---- values, against blosc2 -------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec(tmp_path: Path, codec: str, sparse: bool) -> None:
    values = numbers()
    path = write_array(tmp_path / "a.b2nd", values, codec=CODECS[codec], sparse=sparse)
    group = gridref.scan(path)
    np.testing.assert_array_equal(group.arrays["a"][...], read_array(path))
    np.testing.assert_array_equal(group.arrays["a"][2:9, ::-1, 1], values[2:9, ::-1, 1])
    shown = zarr.open_group(gridref.open_store(group), mode="r")["a"]
    np.testing.assert_array_equal(shown[...], values)
    with pytest.raises(NotRepresentableError, match=r"gridref\.b2nd"):
        zarr.open_group(gridref.open_store(group, "native"), mode="r")["a"]


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("dtype", ["<f8", ">i2"])
def test_every_filter(tmp_path: Path, dtype: str, filters: str) -> None:
    path = write_array(tmp_path / "a.b2nd", numbers(dtype), filters=FILTERS[filters])
    np.testing.assert_array_equal(only(path)[...], read_array(path))


@pytest.mark.parametrize(
    "dtype",
    [
        "|b1",
        "|i1",
        "|u1",
        "<i2",
        "<u2",
        "<i4",
        "<u4",
        "<i8",
        "<u8",
        "<f2",
        "<f4",
        "<f8",
        "<c8",
        "<c16",
        ">i4",
        ">f8",
        "|S3",
        "<U2",
    ],
)
def test_every_type(tmp_path: Path, dtype: str) -> None:
    path = write_array(tmp_path / "a.b2nd", numbers().astype(dtype))
    expected = read_array(path)
    array = only(path)
    assert array.dtype == expected.dtype.newbyteorder("=")
    np.testing.assert_array_equal(array[...], expected)


@pytest.mark.parametrize(
    ("shape", "chunks", "blocks"),
    [
        ((1,), (1,), (1,)),
        ((17,), (5,), (2,)),
        ((4, 6), (4, 6), (4, 6)),
        ((9, 9), (4, 5), (4, 1)),
        ((3, 1, 2, 5), (2, 1, 2, 3), (1, 1, 2, 2)),
    ],
)
def test_every_shape(
    tmp_path: Path, shape: tuple[int, ...], chunks: tuple[int, ...], blocks: tuple[int, ...]
) -> None:
    path = write_array(tmp_path / "a.b2nd", numbers("<i2", shape), chunks, blocks)
    np.testing.assert_array_equal(only(path)[...], read_array(path))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("shape", [(), (0,), (0, 4), (3, 0, 2)])
def test_arrays_of_one_element_and_of_none(
    tmp_path: Path, shape: tuple[int, ...], sparse: bool
) -> None:
    blosc2.full(shape, 5, dtype="i4", urlpath=str(tmp_path / "a.b2nd"), contiguous=not sparse)
    array = only(tmp_path / "a.b2nd")
    assert array.shape == shape
    np.testing.assert_array_equal(array[...], read_array(tmp_path / "a.b2nd"))


def states(array: VirtualArray) -> list[int]:
    (manifest,) = array.manifests
    assert isinstance(manifest, ChunkManifest)
    return np.unique(manifest.state).tolist()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("value", "dtype", "state"),
    [
        (0, "f4", ChunkState.MISSING),
        (0, "i2", ChunkState.MISSING),
        (7, "i4", ChunkState.RANGE),
        (np.nan, "f4", ChunkState.RANGE),
    ],
)
def test_chunks_of_one_repeated_value(
    tmp_path: Path, value: float, dtype: str, state: ChunkState, sparse: bool
) -> None:
    path = tmp_path / "a.b2nd"
    shape, chunks, blocks = (9, 8), (4, 4), (3, 2)
    make = blosc2.full if value else lambda shape, value, **more: blosc2.zeros(shape, **more)
    make(
        shape,
        value,
        dtype=dtype,
        chunks=chunks,
        blocks=blocks,
        urlpath=str(path),
        contiguous=not sparse,
    )
    array = only(path)
    assert states(array) == [state]
    np.testing.assert_array_equal(array[...], read_array(path))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_nan_that_only_offsets_state(tmp_path: Path, dtype: str, sparse: bool) -> None:
    path = tmp_path / "a.b2nd"
    options: dict[str, Any] = {"chunks": (4, 4), "blocks": (3, 2), "contiguous": not sparse}
    array = blosc2.nans((9, 8), dtype=dtype, urlpath=str(path), **options)
    array[:4, :4] = 3
    shown = only(path)
    assert ChunkState.INLINE in states(shown)
    np.testing.assert_array_equal(shown[...], read_array(path))


def test_what_was_never_written_is_zero(tmp_path: Path) -> None:
    """blosc2 returns what is in memory."""
    path = write_array(tmp_path / "a.b2nd", numbers() + 1)
    header = Blosc2Header(path.read_bytes())
    changed(path, header.header_bytes + 31, ">B", 4 << 4)
    values = only(path)[...]
    assert (values[:4, :4] == 0).all()
    np.testing.assert_array_equal(values[4:], numbers()[4:] + 1)
    shape, options = (9, 8), {"chunks": (4, 4), "blocks": (2, 2)}
    blosc2.uninit(shape, dtype="i4", urlpath=str(tmp_path / "b.b2nd"), **options)
    assert (only(tmp_path / "b.b2nd")[...] == 0).all()


def test_chunks_that_were_written_again(tmp_path: Path) -> None:
    path = write_array(tmp_path / "a.b2nd", numbers())
    array = blosc2.open(str(path), mode="a")
    array[5:, 2:] = np.ascontiguousarray(numbers(seed=9)[5:, 2:])
    array.resize((13, 7, 5))
    array[9:] = numbers("<i4", (4, 7, 5), seed=2)
    np.testing.assert_array_equal(only(path)[...], read_array(path))


def test_vlmeta_are_attributes(tmp_path: Path) -> None:
    attrs = {
        "units": "nm",
        "level": 3,
        "scale": [0.5, 2.0],
        "nested": {"a": [1, -1, None, True, "é"]},
        "large": 2**40,
        "negative": -(2**40),
        "long": "x" * 70_000,
        "bytes": b"\0\1",
        "nothing": None,
    }
    path = write_array(tmp_path / "a.b2nd", numbers(), attrs=attrs)
    shown = dict(only(path).attrs)
    np.testing.assert_array_equal(shown.pop("scale"), [0.5, 2.0])
    left_out = ("scale", "bytes", "nothing")
    assert shown == {name: value for name, value in attrs.items() if name not in left_out}


# ---- servers and series -----------------------------------------------------------------


def test_requests(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((64, 64, 64))
    path = write_array(tmp_path / "a.b2nd", values, (16, 16, 16), (8, 8, 8))
    with serving(Site({"/a.b2nd": path.read_bytes()})) as site:
        array = only(f"{site.url}/a.b2nd")
        assert len(site.requests) <= 3
        site.requests.clear()
        np.testing.assert_array_equal(array[:16, :16, 20:30], values[:16, :16, 20:30])
        assert len(site.requests) == 1


def test_a_remote_sparse_frame_by_its_header(tmp_path: Path) -> None:
    path = write_array(tmp_path / "a.b2nd", numbers(), sparse=True)
    files = {f"/a.b2nd/{file.name}": file.read_bytes() for file in path.iterdir()}
    with serving(Site(files)) as site:
        group = gridref.scan(f"{site.url}/a.b2nd/chunks.b2frame")
        np.testing.assert_array_equal(group.arrays["a"][...], numbers())


def test_a_series_is_built_appended_and_read(tmp_path: Path) -> None:
    values = [numbers(seed=number) for number in range(3)]
    paths = [tmp_path / f"t{n}" / "v.b2nd" for n in range(3)]
    for path, each in zip(paths, values, strict=True):
        path.parent.mkdir()
        write_array(path, each)
    catalog = str(tmp_path / "series.gridref")
    layout = gridref.Stack("time", gridref.Labels("t{time:d}/v"))
    gridref.build(paths[:2], catalog, layout=layout)
    gridref.open_catalog(catalog).append(paths[2:])
    opened = xr.open_zarr(f"gridref::file://{catalog}")
    np.testing.assert_array_equal(opened["v"].values, np.stack(values))


# ---- what is refused --------------------------------------------------------------------


def test_what_is_no_array_of_values(tmp_path: Path) -> None:
    plain = blosc2.SChunk(chunksize=100, data=bytes(1000), urlpath=str(tmp_path / "s.b2nd"))
    assert plain.nchunks == 10
    with pytest.raises(UnsupportedFeatureError, match="without dimensions"):
        gridref.scan(tmp_path / "s.b2nd")
    one = blosc2.open(str(write_array(tmp_path / "one.b2nd", numbers())))
    (one + one).save(urlpath=str(tmp_path / "lazy.b2nd"))
    with pytest.raises(UnsupportedFeatureError, match="values are computed"):
        gridref.scan(tmp_path / "lazy.b2nd")


@pytest.mark.parametrize("dtype", ["<M8[s]", "<m8[ns]", "i4,f8"])
def test_types_that_are_refused(tmp_path: Path, dtype: str) -> None:
    values = np.zeros(SHAPE, dtype)
    path = write_array(tmp_path / "a.b2nd", values)
    with pytest.raises(UnsupportedFeatureError, match="data type"):
        gridref.scan(path)
    assert not gridref.scan(path, on_unsupported="skip").arrays


def test_the_filter_delta_is_refused(tmp_path: Path) -> None:
    """C-Blosc2 itself does not return what was written."""
    delta = [blosc2.Filter.DELTA, blosc2.Filter.SHUFFLE]
    path = write_array(tmp_path / "a.b2nd", numbers("<i8"), filters=delta)
    with pytest.raises(UnsupportedFeatureError, match="delta"):
        gridref.scan(path)
    path = write_array(tmp_path / "b.b2nd", numbers("<i8"))
    header = Blosc2Header(path.read_bytes())
    changed(path, header.header_bytes + 16, ">B", 3)
    with pytest.raises(DecodeError, match="delta"):
        only(path)[...]


def changed(path: Path, at: int, form: str, number: int) -> None:
    data = bytearray(path.read_bytes())
    struct.pack_into(form, data, at, number)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("at", "form", "number", "message"),
    [
        (1, ">B", 0, "found"),
        (11, ">i", 2**30, "header states"),
        (11, ">i", 40, "dimensions"),
        (16, ">q", 5, "header states 5 bytes"),
        (30, ">q", 5, "does not state"),
        (39, ">q", 2**50, "header states"),
        (39, ">q", 3, "offsets|trailer|outside"),
        (48, ">i", 2, "data type"),
        (58, ">i", 2, "does not state"),
    ],
)
def test_headers_that_are_refused(
    tmp_path: Path, at: int, form: str, number: int, message: str
) -> None:
    path = write_array(tmp_path / "a.b2nd", numbers())
    changed(path, at, form, number)
    with pytest.raises(GridrefError) as caught:
        gridref.scan(path)
    assert at == 1 or re.search(message, str(caught.value))


def dimensions_at(path: Path) -> int:
    """Where the shape begins."""
    return path.read_bytes().index(b"\x97\x00\x03\x93") + 4


@pytest.mark.parametrize(
    ("number", "form", "value"),
    [(0, ">q", -1), (0, ">q", 2**60), (3, ">i", 0), (3, ">i", 2**30), (6, ">i", 0), (6, ">i", 99)],
)
def test_extents_that_are_refused(tmp_path: Path, number: int, form: str, value: int) -> None:
    path = write_array(tmp_path / "a.b2nd", numbers())
    shape = [9 * k + 1 for k in range(3)]
    places = [*shape, *(29 + 5 * k for k in range(3)), *(45 + 5 * k for k in range(3))]
    at = dimensions_at(path) + places[number]
    before = Blosc2Header(path.read_bytes()).extents()
    changed(path, at, form, value)
    after = Blosc2Header(path.read_bytes()).extents()
    assert after[number // 3][number % 3] == value != before[number // 3][number % 3]
    with pytest.raises(GridrefError):
        gridref.scan(path)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_frame_cut_at_every_byte(tmp_path: Path, sparse: bool) -> None:
    values = numbers("<i2", (3,))
    path = write_array(tmp_path / "a.b2nd", values, (2,), (2,), sparse=sparse, attrs={"n": 1})
    for file in sorted(path.iterdir()) if sparse else [path]:
        whole = file.read_bytes()
        for n_bytes in range(len(whole)):
            file.write_bytes(whole[:n_bytes])
            with pytest.raises(GridrefError):
                only(path)[...]
        file.write_bytes(whole)
    np.testing.assert_array_equal(only(path)[...], values)


def test_a_sparse_frame_without_one_of_its_files(tmp_path: Path) -> None:
    path = write_array(tmp_path / "a.b2nd", numbers() + 1, sparse=True)
    (path / "00000003.chunk").unlink()
    with pytest.raises(SourceFormatError, match=r"00000003\.chunk"):
        gridref.scan(path)


def test_a_chunk_of_another_size(tmp_path: Path) -> None:
    path = write_array(tmp_path / "a.b2nd", numbers() + 1)
    header = Blosc2Header(path.read_bytes())
    changed(path, header.header_bytes + 4, "<I", 2**31)
    with pytest.raises(DecodeError, match="decodes to 2147483648 bytes"):
        only(path)[...]
