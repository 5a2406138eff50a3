"""What the tests of codecs share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from gridref.model.encoding import Codec, Encoding, bytes_codec

FILTER_NAMES = {
    4: "szip",
    5: "nbit",
    6: "scaleoffset",
    307: "bzip2",
    32000: "lzf",
    32004: "lz4",
    32008: "bitshuffle",
    32013: "zfp",
    32018: "jpegls",
    32019: "jpeg",
    32022: "bitgroom",
    32023: "granularbr",
    32026: "blosc2",
}


def encoding(
    values: NDArray[Any], *codecs: Codec, before: tuple[Codec, ...] = (), big_endian: bool = False
) -> Encoding:
    """An encoding of chunks like `values`, with a ``bytes`` codec."""
    serial = bytes_codec(values.dtype, big_endian=big_endian)
    return Encoding(values.shape, values.dtype, (*before, serial, *codecs))


def filter_codec(number: int, values: tuple[int, ...]) -> Codec | None:
    """The codec of an HDF5 filter; None if there is none."""
    simple = {
        1: Codec("numcodecs.zlib"),
        2: Codec.of("numcodecs.shuffle", elementsize=values[0] if values else 1),
        3: Codec("numcodecs.fletcher32"),
        32001: Codec("blosc"),
        32015: Codec("zstd"),
    }
    if number in FILTER_NAMES:
        return Codec.of(f"gridref.hdf5_{FILTER_NAMES[number]}", cd_values=list(values))
    return simple.get(number)


def dataset_filters(dataset: h5py.Dataset) -> list[tuple[int, tuple[int, ...]]]:
    """Numbers and client data values of a dataset's filters."""
    creation = dataset.id.get_create_plist()
    entries = [creation.get_filter(index) for index in range(creation.get_nfilters())]
    return [(entry[0], tuple(entry[2])) for entry in entries]


def type_codecs(tid: Any) -> tuple[Codec, ...]:
    """The array -> array codecs of a datatype that numpy has no dtype for."""
    if isinstance(tid, h5py.h5t.TypeIntegerID):
        precision, offset = tid.get_precision(), tid.get_offset()
        if (precision, offset) != (8 * tid.get_size(), 0):
            return (Codec.of("gridref.hdf5_integer", precision=precision, offset=offset),)
    if isinstance(tid, h5py.h5t.TypeFloatID):
        sign, exponent, exponent_bits, mantissa, mantissa_bits = tid.get_fields()
        if (exponent_bits, mantissa_bits) not in {(5, 10), (8, 23), (11, 52)}:
            norms = {h5py.h5t.NORM_IMPLIED: "implied", h5py.h5t.NORM_MSBSET: "set"}
            codec = Codec.of(
                "gridref.hdf5_float",
                size=tid.get_size(),
                sign_position=sign,
                exponent_position=exponent,
                exponent_bits=exponent_bits,
                exponent_bias=tid.get_ebias(),
                mantissa_position=mantissa,
                mantissa_bits=mantissa_bits,
                normalization=norms.get(tid.get_norm(), "none"),
            )
            return (codec,)
    return ()


def dataset_encoding(dataset: h5py.Dataset) -> Encoding | None:
    """The encoding of a chunked dataset's chunks; None where a codec is missing."""
    codecs = [filter_codec(*entry) for entry in dataset_filters(dataset)]
    if dataset.chunks is None or dataset.dtype.hasobject or None in codecs:
        return None
    dtype = dataset.dtype
    big_endian = dtype.byteorder == ">"
    native = dtype if dtype.names else dtype.newbyteorder("=")
    chain = (bytes_codec(native, big_endian=big_endian), *(codec for codec in codecs if codec))
    chain = (*type_codecs(dataset.id.get_type()), *chain)
    return Encoding(dataset.chunks, native, chain)


def stored_chunks(
    dataset: h5py.Dataset, limit: int = 8
) -> Iterator[tuple[bytes, int, tuple[slice, ...]]]:
    """Bytes, filter mask and place of the first chunks of a dataset."""
    for index in range(min(dataset.id.get_num_chunks(), limit)):
        info = dataset.id.get_chunk_info(index)
        if info.byte_offset is None:
            continue
        mask, raw = dataset.id.read_direct_chunk(info.chunk_offset)
        place = tuple(
            slice(start, min(start + length, extent))
            for start, length, extent in zip(
                info.chunk_offset, dataset.chunks, dataset.shape, strict=True
            )
        )
        yield raw, mask, place


def same_bits(found: NDArray[Any], wanted: NDArray[Any]) -> bool:
    """Whether two arrays hold the same bits, apart from padding inside of structured elements."""
    if found.shape != wanted.shape:
        return False
    if wanted.dtype.names:
        return all(same_bits(found[name], wanted[name]) for name in wanted.dtype.names)
    order = wanted.dtype.newbyteorder("=")
    native, theirs = wanted.astype(order), found.astype(order)
    return found.dtype in (order, wanted.dtype) and theirs.tobytes() == native.tobytes()


def image_like(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> NDArray[Any]:
    """Smooth values with some noise, of any numeric dtype."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    smooth = np.cumsum(rng.normal(size=int(np.prod(shape)))).reshape(shape)
    if dtype.kind == "b":
        return smooth > 0
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        span = min(limits.max // 2, 1000)
        return (np.clip(smooth * 3, -span, span) + (span if dtype.kind == "u" else 0)).astype(dtype)
    if dtype.kind == "c":
        return (smooth + 1j * smooth[::-1]).astype(dtype)
    return np.round(smooth, 2).astype(dtype)
