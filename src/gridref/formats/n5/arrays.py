"""Turn a dataset of an N5 container into a virtual array.

Dimensions are in the order of ``attributes.json``, the fastest one first, as tensorstore shows
them. Each block is a file with a header, which the codec ``n5_default`` checks.

Source: https://github.com/saalfeldlab/n5 (file-system specification).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.chunk_files import StoreFiles, check_chunk_files, whole_files
from gridref.formats.json_metadata import attributes_from_json
from gridref.model.array import VirtualArray
from gridref.model.encoding import Codec, Encoding, bytes_codec, transpose_codec

_DATA_TYPES = frozenset(
    ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"]
)
_SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")
_BLOSC_NAMES = frozenset({"blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd"})
_OWN = frozenset({"dimensions", "blockSize", "dataType", "compression", "compressionType"})
_MOST_DIMENSIONS = 32
_MOST_BLOCK_BYTES = 2**31
"""The specification's limit."""


def is_dataset(attrs: Mapping[str, Any]) -> bool:
    """Whether these are the attributes of a dataset; else they are those of a group."""
    return "dimensions" in attrs and "dataType" in attrs


def array_of(
    files: StoreFiles, path: str, attrs: Mapping[str, Any], dims: Sequence[str]
) -> VirtualArray:
    """Describe a dataset: find the files of its blocks.

    Parameters
    ----------
    path
        Path of the dataset; empty if it is the whole container.
    attrs
        Its ``attributes.json``.
    dims
        Names of its dimensions.

    Raises
    ------
    SourceFormatError
        If the attributes are none of a dataset.
    UnsupportedFeatureError
        For types and compressions that cannot be read, or too many blocks.
    """
    shape, block_shape = shape_of(attrs), _lengths(attrs, "blockSize", 1)
    if len(block_shape) != len(shape):
        raise SourceFormatError(f"blockSize {list(block_shape)} for {len(shape)} dimensions")
    dtype = _dtype(attrs["dataType"])
    if math.prod(block_shape) * dtype.itemsize > _MOST_BLOCK_BYTES:
        raise SourceFormatError(f"blocks of shape {list(block_shape)} are larger than 2 GiB")
    counts = [-(-length // block) for length, block in zip(shape, block_shape, strict=True)]
    check_chunk_files(math.prod(counts))
    head = f"{path}/" if path else ""
    names = (map(str, range(count)) for count in counts)
    keys = [head + "/".join(key) for key in itertools.product(*names)]
    return VirtualArray.of_one_block(
        shape,
        dtype,
        encoding=Encoding(block_shape, dtype, (_block_codec(attrs, dtype, len(shape)),)),
        manifest=whole_files(files, keys, path),
        dims=dims,
        attrs=attributes_from_json({k: v for k, v in attrs.items() if k not in _OWN}, None),
    )


def shape_of(attrs: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape of a dataset, checked."""
    return _lengths(attrs, "dimensions", 0)


def _lengths(attrs: Mapping[str, Any], name: str, least: int) -> tuple[int, ...]:
    lengths = attrs.get(name)
    if not isinstance(lengths, list) or not 0 < len(lengths) <= _MOST_DIMENSIONS:
        raise SourceFormatError(f"{name} is {str(lengths)[:100]}, expected a list of lengths")
    if not all(type(length) is int and least <= length < 2**63 for length in lengths):
        raise SourceFormatError(f"{name} is {str(lengths)[:100]}, expected whole numbers")
    return tuple(lengths)


def _dtype(name: Any) -> np.dtype[Any]:
    if name not in _DATA_TYPES:
        raise UnsupportedFeatureError(f"the data type {str(name)[:100]!r} is not read")
    dtype: np.dtype[Any] = np.dtype(name)
    return dtype


def _block_codec(attrs: Mapping[str, Any], dtype: np.dtype[Any], ndim: int) -> Codec:
    inside = [
        transpose_codec(tuple(range(ndim))[::-1]),
        bytes_codec(dtype, big_endian=True),
        *_compressors(attrs, dtype),
    ]
    return Codec.of("n5_default", codecs=[codec.to_json() for codec in inside])


def _compressors(attrs: Mapping[str, Any], dtype: np.dtype[Any]) -> list[Codec]:
    """The compressor of blocks; before version 2 of N5 only its name was stated."""
    settings = attrs.get("compression", {"type": attrs.get("compressionType", "gzip")})
    kind = settings.get("type") if isinstance(settings, Mapping) else settings
    if kind == "raw":
        return []
    if kind == "gzip" and isinstance(settings, Mapping) and settings.get("useZlib") is True:
        return [Codec("numcodecs.zlib")]
    if kind == "blosc" and isinstance(settings, Mapping):
        return [_blosc(settings, dtype)]
    plain = {
        "gzip": Codec.of("gzip", level=6),
        "bzip2": Codec.of("numcodecs.bz2"),
        "xz": Codec.of("numcodecs.lzma"),
        "zstd": Codec.of("zstd", level=3, checksum=False),
        "lz4": Codec("gridref.n5_lz4"),
    }
    if kind not in plain:
        raise UnsupportedFeatureError(f"the compression {str(kind)[:100]!r} is not read")
    return [plain[kind]]


def _blosc(settings: Mapping[str, Any], dtype: np.dtype[Any]) -> Codec:
    """Blosc says in each block how it is compressed: these settings are for other readers."""
    name, level, shuffle = (settings.get(key) for key in ("cname", "clevel", "shuffle"))
    return Codec.of(
        "blosc",
        cname=name if name in _BLOSC_NAMES else "blosclz",
        clevel=level if level in range(10) else 5,
        shuffle=_SHUFFLES[shuffle] if shuffle in (0, 1, 2) else _SHUFFLES[0],
        typesize=dtype.itemsize,
        blocksize=0,
    )
