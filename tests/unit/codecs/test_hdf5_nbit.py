from __future__ import annotations

import h5py
import numpy as np
import pytest
from h5py import h5d, h5p, h5s, h5t, h5z

from gridref.codecs import decode_chunk
from gridref.errors import DecodeError
from gridref.model.encoding import Codec, Encoding, bytes_codec
from tests.unit.codecs.support import dataset_encoding, dataset_filters, same_bits, stored_chunks


def packed(file, tid, values, chunks=None):
    """A dataset of the given datatype with the N-Bit filter."""
    creation = h5p.create(h5p.DATASET_CREATE)
    creation.set_chunk(chunks or values.shape)
    creation.set_filter(h5z.FILTER_NBIT, h5z.FLAG_MANDATORY, ())
    space = h5s.create_simple(values.shape)
    dataset = h5py.Dataset(h5d.create(file.id, b"packed", tid, space, creation))
    dataset.id.write(h5s.ALL, h5s.ALL, np.ascontiguousarray(values))
    return dataset


def check(dataset, encoded=None):
    encoded = encoded or dataset_encoding(dataset)
    values = dataset[...]
    for raw, mask, place in stored_chunks(dataset):
        decoded = decode_chunk(raw, encoded, filter_mask=mask)
        cut = tuple(slice(0, part.stop - part.start) for part in place)
        assert same_bits(decoded[cut], values[place])
        with pytest.raises(DecodeError, match="hdf5_nbit"):
            decode_chunk(raw[: len(raw) - 2], encoded, filter_mask=mask)


def integer(size, signed, big_endian, precision, offset):
    names = {1: "I8", 2: "I16", 4: "I32", 8: "I64"}
    name = f"STD_{names[size] if signed else names[size].replace('I', 'U')}"
    # HDF5 converts big-endian integers of one byte without extending their sign, but h5py cannot
    # tell them from little-endian ones.
    tid = getattr(h5t, f"{name}{'BE' if big_endian and size > 1 else 'LE'}").copy()
    tid.set_precision(precision)
    tid.set_offset(offset)
    return tid


@pytest.mark.parametrize("big_endian", [False, True])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(
    ("size", "precision", "offset"),
    [
        (1, 2, 0),
        (1, 3, 2),
        (1, 7, 1),
        (2, 9, 0),
        (2, 8, 5),
        (2, 15, 1),
        (4, 1, 31),
        (4, 16, 5),
        (4, 17, 0),
        (4, 31, 1),
        (8, 34, 3),
        (8, 35, 7),
        (8, 33, 0),
        (8, 63, 1),
    ],
)
def test_integers(file, size, signed, big_endian, precision, offset):
    low = -(1 << precision - 1) if signed else 0
    rng = np.random.default_rng(0)
    values = rng.integers(low, low + (1 << precision), (5, 13), f"{'i' if signed else 'u'}8")
    values = values.astype(f"{'i' if signed else 'u'}{size}")
    check(packed(file, integer(size, signed, big_endian, precision, offset), values, (3, 5)))


@pytest.mark.parametrize("dtype", ["i1", ">i2", "<f4", ">f8"])
def test_nothing_to_pack(file, dtype):
    values = np.arange(20).astype(dtype).reshape(4, 5)
    dataset = packed(file, h5t.py_create(np.dtype(dtype)), values)
    assert dataset_filters(dataset)[0][1][1] == 1
    raw, mask, _ = next(stored_chunks(dataset))
    np.testing.assert_array_equal(decode_chunk(raw, dataset_encoding(dataset), None, mask), values)


FLOATS = [
    # size, sign, exponent position and bits, mantissa position and bits, precision, offset, bias
    (4, (26, 20, 6, 7, 13), 20, 7, 31),
    (4, (31, 23, 8, 0, 23), 32, 0, 100),
    (4, (19, 12, 7, 0, 12), 20, 0, 63),
    (8, (50, 40, 10, 5, 35), 46, 5, 511),
    (2, (15, 7, 8, 0, 7), 16, 0, 127),
]


@pytest.mark.parametrize("order", [h5t.ORDER_LE, h5t.ORDER_BE])
@pytest.mark.parametrize(("size", "fields", "precision", "offset", "bias"), FLOATS)
def test_floats(file, size, fields, precision, offset, bias, order):
    tid = (h5t.IEEE_F64LE if size == 8 else h5t.IEEE_F32LE).copy()
    tid.set_fields(*fields)
    tid.set_offset(offset)
    tid.set_precision(precision)
    tid.set_size(size)
    tid.set_ebias(bias)
    tid.set_order(order)
    values = np.array(
        [
            0.0,
            -0.0,
            1,
            -1,
            3.14159,
            1e-3,
            -2.5e4,
            1e9,
            np.inf,
            -np.inf,
            2.0**-31,
            1.5e-10,
            65504,
            7,
        ],
        "f8" if size == 8 else "f4",
    ).reshape(2, 7)
    creation = h5p.create(h5p.DATASET_CREATE)
    creation.set_chunk(values.shape)
    creation.set_filter(h5z.FILTER_NBIT, h5z.FLAG_MANDATORY, ())
    space = h5s.create_simple(values.shape)
    dataset = h5py.Dataset(h5d.create(file.id, b"packed", tid, space, creation))
    dataset.id.write(h5s.ALL, h5s.ALL, values)
    raw, mask, _ = next(stored_chunks(dataset))
    found = dataset[...]
    encoded = dataset_encoding(dataset)
    big_endian = order == h5t.ORDER_BE
    if not encoded.codecs[0].name.startswith("gridref"):
        # HDF5's own float types, apart from the bias, which h5py's dtype does not show.
        return
    chain = (
        encoded.codecs[0],
        bytes_codec(np.dtype(f"u{size}"), big_endian=big_endian),
        *encoded.codecs[2:],
    )
    native = found.dtype.newbyteorder("=")
    decoded = decode_chunk(raw, Encoding(values.shape, native, chain), None, mask)
    np.testing.assert_array_equal(decoded, found)
    assert (np.signbit(decoded) == np.signbit(found)).all()


def compound():
    inner = h5t.create(h5t.COMPOUND, 6)
    inner.insert(b"p", 0, integer(2, False, True, 11, 0))
    inner.insert(b"q", 2, integer(4, False, False, 5, 0))
    tid = h5t.create(h5t.COMPOUND, 44)
    tid.insert(b"a", 0, integer(4, False, False, 19, 0))
    tid.insert(b"name", 4, _text(5))
    tid.insert(b"f", 12, h5t.IEEE_F64BE)
    tid.insert(b"array", 20, h5t.array_create(integer(2, False, False, 7, 0), (2, 3)))
    tid.insert(b"inner", 32, h5t.array_create(inner, (2,)))
    return tid


def _text(size):
    tid = h5t.C_S1.copy()
    tid.set_size(size)
    return tid


def test_compounds_of_arrays_and_compounds(file):
    dtype = np.dtype(
        [
            ("a", "u4"),
            ("name", "S5"),
            ("f", "f8"),
            ("array", "u2", (2, 3)),
            ("inner", [("p", "u2"), ("q", "u4")], (2,)),
        ]
    )
    rng = np.random.default_rng(0)
    values = np.zeros(11, dtype)
    values["a"] = rng.integers(0, 1 << 19, 11)
    values["name"] = [f"n{index}" for index in range(11)]
    values["f"] = rng.normal(size=11)
    values["array"] = rng.integers(0, 128, (11, 2, 3))
    values["inner"]["p"] = rng.integers(0, 1 << 11, (11, 2))
    values["inner"]["q"] = rng.integers(0, 32, (11, 2))
    creation = h5p.create(h5p.DATASET_CREATE)
    creation.set_chunk((4,))
    creation.set_filter(h5z.FILTER_NBIT, h5z.FLAG_MANDATORY, ())
    space = h5s.create_simple(values.shape)
    dataset = h5py.Dataset(h5d.create(file.id, b"packed", compound(), space, creation))
    dataset[...] = values
    assert dataset_filters(dataset)[0][1][1] == 0
    check(
        dataset,
        Encoding((4,), dataset.dtype, (Codec("bytes"), *dataset_encoding(dataset).codecs[1:])),
    )
    np.testing.assert_array_equal(dataset[...], values)


def test_arrays(file):
    tid = h5t.array_create(integer(4, False, True, 13, 0), (3, 2))
    values = np.random.default_rng(0).integers(0, 1 << 13, (5, 3, 2), "u4")
    creation = h5p.create(h5p.DATASET_CREATE)
    creation.set_chunk((5,))
    creation.set_filter(h5z.FILTER_NBIT, h5z.FLAG_MANDATORY, ())
    dataset = h5py.Dataset(h5d.create(file.id, b"packed", tid, h5s.create_simple((5,)), creation))
    memory = h5t.array_create(h5t.NATIVE_UINT32, (3, 2))
    dataset.id.write(h5s.ALL, h5s.ALL, values, mtype=memory)
    raw, mask, _ = next(stored_chunks(dataset))
    number, cd_values = dataset_filters(dataset)[0]
    assert number == 5
    codec = Codec.of("gridref.hdf5_nbit", cd_values=list(cd_values))
    chain = (bytes_codec(values.dtype, big_endian=True), codec)
    decoded = decode_chunk(raw, Encoding((5, 3, 2), values.dtype, chain), None, mask)
    np.testing.assert_array_equal(decoded, values)


def test_another_number_of_elements():
    codec = Codec.of("gridref.hdf5_nbit", cd_values=[8, 0, 6, 1, 4, 0, 16, 0])
    chain = (bytes_codec(np.dtype("i4")), codec)
    with pytest.raises(DecodeError, match="6 elements of 4 bytes are not 28"):
        decode_chunk(bytes(20), Encoding((7,), np.dtype("i4"), chain))


@pytest.mark.parametrize(("offset", "size"), [(0, 4), (0, 8), (2, 8), (4, 8)])
def test_compounds_of_one_member_and_a_gap(file, offset, size):
    """The member is a number, but elements are longer than it."""
    kind = np.dtype({"names": ["a"], "formats": ["<i4"], "offsets": [offset], "itemsize": size})
    values = np.zeros((6, 5), kind)
    values["a"] = np.arange(30).reshape(6, 5) - 9
    dataset = packed(file, h5t.py_create(kind), values, (4, 5))
    encoded = dataset_encoding(dataset)
    for raw, mask, place in stored_chunks(dataset):
        decoded = decode_chunk(raw, encoded, filter_mask=mask)
        cut = tuple(slice(0, part.stop - part.start) for part in place)
        np.testing.assert_array_equal(decoded[cut]["a"], values[place]["a"])
