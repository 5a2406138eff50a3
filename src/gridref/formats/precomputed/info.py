"""Read the file ``info`` of a neuroglancer volume: data type, channels and scales.

Source: Neuroglancer's documentation, "Neuroglancer Precomputed Volume Format" and "Neuroglancer
Precomputed Sharded Format". Axes are in the order x, y, z there, and z, y, x here: elements are
stored with x varying fastest.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gridref.errors import ScanError, SourceFormatError, UnsupportedFeatureError
from gridref.limits import beyond, limits

DATA_TYPES = frozenset({"uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "float32"})
_KINDS = ("image", "segmentation")
_MOST = 2**53
"""Integers beyond it are not exact in JSON."""

type Triple[T] = tuple[T, T, T]


@dataclass(frozen=True)
class Sharding:
    """Parameters of shards: how the id of a chunk becomes numbers of a shard and minishard.

    Attributes
    ----------
    preshift_bits
        Low bits of the id that are dropped before hashing.
    minishard_bits, shard_bits
        Bits of the hash that are the number of the minishard, and those above them of the shard.
    is_hashed
        Whether ids are hashed by MurmurHash3 (x86, 128 bits), or taken as they are.
    has_gzip_index, has_gzip_data
        Whether minishard indexes and chunks are gzip-compressed.
    """

    preshift_bits: int
    minishard_bits: int
    shard_bits: int
    is_hashed: bool
    has_gzip_index: bool
    has_gzip_data: bool


@dataclass(frozen=True)
class Scale:
    """One resolution of a volume, its axes in the order z, y, x.

    Attributes
    ----------
    key
        Folder of its chunks, below that of the volume.
    shape
        Voxels along each axis.
    offset
        Number of the first voxel along each axis.
    resolution
        Size of a voxel in nanometres.
    chunk_shape
        Shape of a chunk; those at the end are cut.
    encoding
        How chunks are encoded.
    block_shape
        Shape of the blocks of compressed segmentations; None for other encodings.
    sharding
        Parameters of its shards; None if each chunk is a file.
    """

    key: str
    shape: Triple[int]
    offset: Triple[int]
    resolution: Triple[float]
    chunk_shape: Triple[int]
    encoding: str
    block_shape: Triple[int] | None
    sharding: Sharding | None

    @property
    def grid_shape(self) -> Triple[int]:
        """Chunks along each axis."""
        z, y, x = (
            -(-extent // length)
            for extent, length in zip(self.shape, self.chunk_shape, strict=True)
        )
        return z, y, x


@dataclass(frozen=True)
class Volume:
    """What an ``info`` describes.

    Attributes
    ----------
    kind
        ``"image"`` or ``"segmentation"``.
    dtype
        Of the voxels.
    n_channels
        Values of a voxel.
    scales
        The scales, finest first; an error for each that cannot be read.
    attrs
        Other texts, like the folder of meshes.
    """

    kind: str
    dtype: np.dtype[Any]
    n_channels: int
    scales: tuple[Scale | ScanError, ...]
    attrs: Mapping[str, str]


def read_info(data: bytes) -> Volume:
    """Understand an ``info``."""
    try:
        document = json.loads(data)
    except ValueError as error:
        raise SourceFormatError(f"info is not JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("scales"), list):
        raise SourceFormatError("info lists no scales")
    what = document.get("@type", "neuroglancer_multiscale_volume")
    if what != "neuroglancer_multiscale_volume":
        raise UnsupportedFeatureError(f"info describes no volume but {_shown(what)}")
    name = str(document.get("data_type")).lower()
    if name not in DATA_TYPES:
        raise UnsupportedFeatureError(f"data type {_shown(document.get('data_type'))} is not known")
    dtype = np.dtype(name)
    n_channels = _integer(document.get("num_channels"), "num_channels", 1)
    if not document["scales"]:
        raise SourceFormatError("info lists no scales")
    kind = document.get("type", "image")
    texts = {key: value for key, value in document.items() if isinstance(value, str)}
    return Volume(
        kind if kind in _KINDS else "image",
        dtype,
        n_channels,
        tuple(_scale_or_error(each, dtype, n_channels) for each in document["scales"]),
        {key: value for key, value in texts.items() if key not in ("@type", "data_type")},
    )


def _scale_or_error(document: Any, dtype: np.dtype[Any], n_channels: int) -> Scale | ScanError:
    try:
        if not isinstance(document, dict):
            raise SourceFormatError(f"a scale is {_shown(document)}")
        scale = _scale(document)
        largest = math.prod(map(min, scale.shape, scale.chunk_shape)) * n_channels * dtype.itemsize
        if largest > limits().decoded_bytes:
            raise UnsupportedFeatureError(beyond("decoded_bytes", f"a chunk has {largest} bytes"))
        return scale
    except ScanError as error:
        return error


def _scale(document: Mapping[str, Any]) -> Scale:
    key, sizes = document.get("key"), document.get("chunk_sizes")
    if not isinstance(key, str) or not key.strip("/"):
        raise SourceFormatError(f"the key of a scale is {_shown(key)}")
    if key.startswith("/") or "://" in key or ".." in key.split("/"):
        raise UnsupportedFeatureError(f"its chunks are in another folder, {_shown(key)}")
    if not isinstance(sizes, list) or not sizes:
        raise SourceFormatError(f"chunk_sizes are {_shown(sizes)}")
    encoding = document.get("encoding")
    if not isinstance(encoding, str):
        raise SourceFormatError(f"the encoding is {_shown(encoding)}")
    blocks = None
    if encoding == "compressed_segmentation":
        blocks = _integers(document, "compressed_segmentation_block_size", 1)
    return Scale(
        key.strip("/"),
        _integers(document, "size", 0),
        _integers({"voxel_offset": [0, 0, 0], **document}, "voxel_offset", -_MOST),
        _resolution(document.get("resolution")),
        _integers({"chunk_sizes": sizes[0]}, "chunk_sizes", 1),
        encoding,
        blocks,
        _sharding(document.get("sharding")),
    )


def _sharding(document: Any) -> Sharding | None:
    if document is None:
        return None
    if not isinstance(document, dict):
        raise SourceFormatError(f"sharding is {_shown(document)}")
    if document.get("@type") != "neuroglancer_uint64_sharded_v1":
        raise UnsupportedFeatureError(f"sharding is of type {_shown(document.get('@type'))}")
    minishard_bits = _integer(document.get("minishard_bits"), "minishard_bits", 0, 60)
    return Sharding(
        _integer(document.get("preshift_bits"), "preshift_bits", 0, 64),
        minishard_bits,
        _integer(document.get("shard_bits"), "shard_bits", 0, 64 - minishard_bits),
        _choice(document, "hash", ("identity", "murmurhash3_x86_128"), "") == 1,
        _choice(document, "minishard_index_encoding", ("raw", "gzip"), "raw") == 1,
        _choice(document, "data_encoding", ("raw", "gzip"), "raw") == 1,
    )


def _choice(document: Mapping[str, Any], key: str, choices: tuple[str, str], default: str) -> int:
    """Which of two values a parameter has."""
    value = document.get(key, default)
    if value not in choices:
        raise UnsupportedFeatureError(f"{key} of the sharding is {_shown(value)}")
    return choices.index(value)


def _integers(document: Mapping[str, Any], key: str, least: int) -> Triple[int]:
    """A value for each axis, in the order z, y, x."""
    values = document.get(key)
    if not isinstance(values, list) or len(values) != 3:
        raise SourceFormatError(f"{key} is {_shown(values)}, not three integers")
    x, y, z = (_integer(value, key, least) for value in values)
    return z, y, x


def _integer(value: Any, key: str, least: int, most: int = _MOST) -> int:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not least <= value <= most or value != int(value):
        raise SourceFormatError(f"{key} is {_shown(value)}, not an integer from {least} to {most}")
    return int(value)


def _resolution(values: Any) -> Triple[float]:
    numbers = values if isinstance(values, list) and len(values) == 3 else [None]
    if not all(
        isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MOST
        for value in numbers
    ):
        raise SourceFormatError(f"resolution is {_shown(values)}, not three positive numbers")
    x, y, z = map(float, numbers)
    return z, y, x


def _shown(value: Any) -> str:
    return repr(value)[:100]
