"""What is encoded by anyone is decoded to the same; what is broken is an error or harmless."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from contextlib import suppress

import google_crc32c
import hypothesis.strategies as st
import imagecodecs
import numcodecs
import numpy as np
from hypothesis import assume, given
from hypothesis.extra import numpy as npst

from gridref.codecs import decode_chunk, encode_chunk
from gridref.errors import DecodeError
from gridref.model.encoding import Codec, Encoding, bytes_codec, transpose_codec

ELEMENT_BYTES = 4


# name, encoder, whether every change of the stored bytes is found out
CODECS = {
    "gzip": (Codec("gzip"), gzip.compress, False),
    "zlib": (Codec("numcodecs.zlib"), zlib.compress, True),
    "zstd": (Codec("zstd"), numcodecs.Zstd(checksum=True).encode, False),
    "blosc": (Codec("blosc"), numcodecs.Blosc("lz4").encode, False),
    "bz2": (Codec("numcodecs.bz2"), bz2.compress, True),
    "lzma": (Codec("numcodecs.lzma"), lzma.compress, True),
    "lz4": (Codec("numcodecs.lz4"), numcodecs.LZ4().encode, False),
    "crc32c": (
        Codec("crc32c"),
        lambda data: data + google_crc32c.value(data).to_bytes(4, "little"),
        True,
    ),
    "crc32": (Codec("numcodecs.crc32"), numcodecs.CRC32().encode, True),
    "adler32": (Codec("numcodecs.adler32"), numcodecs.Adler32().encode, True),
    "fletcher32": (Codec("numcodecs.fletcher32"), numcodecs.Fletcher32().encode, True),
    "jenkins": (Codec("numcodecs.jenkins_lookup3"), numcodecs.JenkinsLookup3().encode, True),
    "shuffle": (
        Codec.of("numcodecs.shuffle", elementsize=ELEMENT_BYTES),
        numcodecs.Shuffle(ELEMENT_BYTES).encode,
        False,
    ),
    "lzf": (
        Codec.of("gridref.hdf5_lzf", cd_values=[4, 261, 1 << 20]),
        imagecodecs.lzf_encode,
        False,
    ),
    "lz4h5": (Codec("gridref.hdf5_lz4"), imagecodecs.lz4h5_encode, False),
    "bzip2": (Codec("gridref.hdf5_bzip2"), bz2.compress, True),
    "lzw": (Codec("gridref.tiff_lzw"), imagecodecs.lzw_encode, False),
    "packbits": (Codec("gridref.tiff_packbits"), imagecodecs.packbits_encode, False),
    "bitorder": (Codec("gridref.tiff_bitorder"), imagecodecs.bitorder_encode, False),
}


def compressible(min_size=1):
    """Arrays of few different values, so that all compressors find something to do."""
    return npst.arrays(
        "<i4",
        npst.array_shapes(min_dims=1, max_dims=3, max_side=40),
        elements=st.sampled_from([0, 1, 2, -1, 1 << 30]),
    ).filter(lambda values: values.size >= min_size)


@given(compressible(), st.sampled_from(sorted(CODECS)))
def test_round_trip(values, name):
    codec, encode, _ = CODECS[name]
    # Some compressors give up on what they cannot make smaller.
    assume(name != "lzf" or values.nbytes > 64)
    stored = bytes(encode(values.tobytes()))
    assume(name != "lzf" or stored)
    encoded = Encoding(values.shape, values.dtype, (bytes_codec(values.dtype), codec))
    np.testing.assert_array_equal(decode_chunk(stored, encoded), values)


@given(compressible(), st.lists(st.sampled_from(sorted(set(CODECS) - {"lzf"})), max_size=4))
def test_round_trip_of_chains(values, names):
    data = values.tobytes()
    for name in names:
        data = bytes(CODECS[name][1](data)) if name != "shuffle" else _shuffled(data)
    chain = (bytes_codec(values.dtype), *(CODECS[name][0] for name in names))
    # What decodes to an unknown size may be cut or padded by these.
    assume(not {"lzw", "packbits"} & set(names[:-1]) or len(names) < 2)
    encoded = Encoding(values.shape, values.dtype, chain)
    for out in (None, np.empty_like(values)):
        np.testing.assert_array_equal(decode_chunk(data, encoded, out=out), values)


def _shuffled(data):
    """Shuffle as HDF5 does it: bytes behind the last whole element stay where they are."""
    whole = len(data) // ELEMENT_BYTES * ELEMENT_BYTES
    planes = np.frombuffer(data, "u1", whole).reshape(-1, ELEMENT_BYTES).T
    return planes.tobytes() + data[whole:]


@st.composite
def _damage(draw, stored):
    """The stored bytes with bytes changed, or cut."""
    kind = draw(st.sampled_from(["flip", "cut", "zero"]))
    if kind == "cut":
        return stored[: draw(st.integers(0, len(stored) - 1))]
    position = draw(st.integers(0, len(stored) - 1))
    change = draw(st.integers(1, 255)) if kind == "flip" else stored[position]
    broken = bytearray(stored)
    broken[position] ^= change
    return bytes(broken)


@given(compressible(8), st.sampled_from(sorted(CODECS)), st.data())
def test_damage_is_an_error_or_harmless(values, name, data):
    codec, encode, is_checked = CODECS[name]
    stored = bytes(encode(values.tobytes()))
    assume(stored)
    broken = data.draw(_damage(stored))
    assume(broken != stored)
    encoded = Encoding(values.shape, values.dtype, (bytes_codec(values.dtype), codec))
    decoded = None
    with suppress(DecodeError):
        decoded = decode_chunk(broken, encoded)
    if decoded is None:
        return
    assert decoded.shape == values.shape
    assert decoded.dtype == values.dtype
    if is_checked:
        np.testing.assert_array_equal(decoded, values)


DTYPES = (
    npst.boolean_dtypes()
    | npst.integer_dtypes(endianness="=")
    | npst.unsigned_integer_dtypes(endianness="=")
    | npst.floating_dtypes(endianness="=")
    | npst.complex_number_dtypes(endianness="=", sizes=(64, 128))
    | npst.byte_string_dtypes(min_len=1, max_len=5)
    | npst.unicode_string_dtypes(endianness="=", min_len=1, max_len=5)
)


@given(
    npst.arrays(DTYPES, npst.array_shapes(min_dims=1, max_dims=4, max_side=6)),
    st.sampled_from(["little", "big"]),
    st.data(),
)
def test_any_dtype_order_and_transposition(values, endian, data):
    order = tuple(data.draw(st.permutations(range(values.ndim))))
    serial = Codec.of("bytes", endian=endian)
    stored = encode_chunk(np.ascontiguousarray(values.transpose(order)), (serial,))
    encoded = Encoding(values.shape, values.dtype, (transpose_codec(order), serial))
    decoded = decode_chunk(stored, encoded)
    assert decoded.dtype == values.dtype
    assert np.ascontiguousarray(decoded).tobytes() == values.tobytes()


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), min_size=1),
    st.data(),
)
def test_texts(texts, data):
    values = np.array(texts, np.dtypes.StringDType())
    codec = (Codec("vlen-utf8"),)
    encoded = Encoding(values.shape, values.dtype, codec)
    stored = encode_chunk(values, codec)
    assert decode_chunk(stored, encoded).tolist() == texts
    broken = data.draw(_damage(stored))
    with suppress(DecodeError):
        assert decode_chunk(broken, encoded).shape == values.shape


@given(
    st.integers(1, 64).flatmap(
        lambda width: st.tuples(
            st.just(width),
            st.integers(0, 64 - width),
            st.lists(st.integers(0, (1 << width) - 1), min_size=1, max_size=40),
            st.booleans(),
        )
    )
)
def test_nbit_of_any_width(drawn):
    """The bits of all elements follow each other, the most significant one first."""
    width, offset, numbers, big_endian = drawn
    bits = "".join(f"{number:0{width}b}" for number in numbers)
    stored = int(bits, 2) << (-len(bits) % 8)
    raw = stored.to_bytes(-(-len(bits) // 8), "big")
    cd_values = [8, 0, len(numbers), 1, 8, int(big_endian), width, offset]
    codec = Codec.of("gridref.hdf5_nbit", cd_values=cd_values)
    wanted = np.array([number << offset for number in numbers], "u8")
    chain = (bytes_codec(wanted.dtype, big_endian=big_endian), codec)
    np.testing.assert_array_equal(
        decode_chunk(raw, Encoding(wanted.shape, wanted.dtype, chain)), wanted
    )


@given(st.binary(max_size=300), st.sampled_from(sorted(CODECS)))
def test_nonsense_is_an_error_or_harmless(raw, name):
    encoded = Encoding((5, 7), np.dtype("i4"), (bytes_codec(np.dtype("i4")), CODECS[name][0]))
    with suppress(DecodeError):
        assert decode_chunk(raw, encoded).shape == (5, 7)
