from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gridref.codecs import decode_chunk
from gridref.errors import DecodeError
from gridref.model.encoding import Codec, Encoding, bytes_codec
from tests.unit.codecs.support import dataset_encoding, same_bits, stored_chunks


def check(dataset):
    encoded = dataset_encoding(dataset)
    values = dataset[...]
    widths = set()
    for raw, mask, place in stored_chunks(dataset):
        if not mask & 1:
            widths.add(int.from_bytes(raw[:4], "little"))
        decoded = decode_chunk(raw, encoded, filter_mask=mask)
        cut = tuple(slice(0, part.stop - part.start) for part in place)
        assert same_bits(decoded[cut], values[place])
        with pytest.raises(DecodeError):
            decode_chunk(raw[:20], encoded, filter_mask=mask)
    return widths


@pytest.mark.parametrize("dtype", ["<i1", ">i2", "<i4", ">i8", "<u1", ">u2", "<u4", ">u8"])
@pytest.mark.parametrize("fill", [None, 0, 7])
def test_integers(file, dtype, fill):
    rng = np.random.default_rng(0)
    for spread in (0, 1, 5, 100):
        values = rng.integers(20, 21 + spread, (5, 13)).astype(dtype)
        if np.dtype(dtype).kind == "i":
            values -= 50
        if fill is not None:
            values[1, 2:7] = fill
        options = {"chunks": (3, 5), "scaleoffset": 0, "fillvalue": fill}
        check(file.create_dataset(f"spread {spread}", data=values, **options))


@pytest.mark.parametrize("dtype", ["<i4", ">u8", "<f4", "<f8"])
@pytest.mark.parametrize("n_bytes", [0, 1, 3, 8, 9, 255])
def test_minimum_of_some_bytes(file, dtype, n_bytes):
    values = np.arange(1_000_000, 1_000_015).reshape(3, 5).astype(dtype)
    dataset = file.create_dataset("v", data=values, chunks=(3, 5), scaleoffset=3)
    (raw, _, _) = next(iter(stored_chunks(dataset)))
    dataset.id.write_direct_chunk((0, 0), raw[:4] + bytes([n_bytes]) + raw[5:])
    check(dataset)


@pytest.mark.parametrize("n_bits", [1, 5, 8, 13, 16, 31])
def test_integers_of_a_given_number_of_bits(file, n_bits):
    values = np.random.default_rng(0).integers(0, 1 << n_bits, (5, 13)).astype("i4")
    assert check(file.create_dataset("v", data=values, chunks=(3, 5), scaleoffset=n_bits)) == {
        n_bits
    }


@pytest.mark.parametrize("dtype", ["<i1", ">i2", "<u4", ">u8", "<i8", ">i4"])
def test_integers_that_need_all_their_bits(file, dtype):
    limits = np.iinfo(dtype)
    values = np.random.default_rng(0).integers(
        limits.min, limits.max, (5, 13), dtype[1:], endpoint=True
    )
    values[::3, ::5], values[1::3, 1::5] = limits.min, limits.max
    dataset = file.create_dataset("v", data=values.astype(dtype), chunks=(3, 5), scaleoffset=0)
    assert check(dataset) == {8 * limits.dtype.itemsize}


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8"])
@pytest.mark.parametrize("fill", [None, -999.9])
@pytest.mark.parametrize("decimals", [0, 1, 3, 6])
def test_floats(file, dtype, fill, decimals):
    rng = np.random.default_rng(0)
    values = rng.normal(scale=30, size=(50, 13)).astype(dtype)
    if fill is not None:
        values[1:20, 2:7] = fill
    check(
        file.create_dataset("v", data=values, chunks=(30, 5), scaleoffset=decimals, fillvalue=fill)
    )


def test_floats_that_do_not_shrink(file):
    values = np.random.default_rng(0).normal(scale=1e6, size=(50, 13)).astype("f4")
    check(file.create_dataset("v", data=values, chunks=(30, 5), scaleoffset=6))


def test_constant_floats(file):
    values = np.full((5, 13), 2.5, "f8")
    check(file.create_dataset("v", data=values, chunks=(5, 13), scaleoffset=3))


def test_a_fill_value_is_stated_by_the_number_1(file):
    """By any other one, its bits are those of the largest distance, as for HDF5."""
    values = np.array([5, 6, 7, 99], "i4")
    options = {"chunks": (4,), "scaleoffset": 0, "fillvalue": 99}
    dataset = file.create_dataset("v", data=values, **options)
    check(dataset)
    encoded = dataset_encoding(dataset)
    *before, codec = encoded.codecs
    stated = list(codec.configuration["cd_values"])
    assert stated[7] == 1
    stated[7] = 2
    other = replace(encoded, codecs=(*before, Codec.of(codec.name, cd_values=stated)))
    raw, mask, _ = next(stored_chunks(dataset))
    np.testing.assert_array_equal(decode_chunk(raw, other, filter_mask=mask), [5, 6, 7, 8])


def test_below_other_filters(file):
    values = np.random.default_rng(0).integers(0, 99, (5, 13)).astype("i4")
    check(
        file.create_dataset(
            "v", data=values, chunks=(3, 5), scaleoffset=0, shuffle=True, compression="gzip"
        )
    )


def test_headers_that_make_no_sense():
    codec = Codec.of("gridref.hdf5_scaleoffset", cd_values=[2, 0, 6, 0, 4, 1, 0, 0])
    encoded = Encoding((6,), np.dtype("i4"), (bytes_codec(np.dtype("i4")), codec))
    for width in (33, 40, 1 << 31):
        with pytest.raises(DecodeError, match=f"{width} bits for each element of 32"):
            decode_chunk(width.to_bytes(4, "little") + bytes(60), encoded)
    with pytest.raises(DecodeError, match="6 elements of int32 are not 28"):
        decode_chunk(bytes(60), encoded, (7,))
