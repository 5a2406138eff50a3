"""Neuroglancer precomputed volumes: folders of chunk files or shards, in several scales.

A volume is a virtual group. Its groups ``0``, ``1``, ... are the scales in the order of the file
``info``, as OME-Zarr names the levels of an image; the root describes them by its ``multiscales``.
Elements are stored with x varying fastest and channels slowest, so arrays have the dimensions
channel, z, y, x, and bytes stay as they are. Axes are in the order x, y, z in ``info``, and z, y, x
here.

Chunks are files, named by the voxels that they hold, or in shards: files that hold many chunks
each, with an index in two steps. A chunk has a number, its id. The id, hashed or not, tells its
shard and its minishard. A shard begins with the places of the indexes of its minishards, and the
index of a minishard lists ids with the places of their chunks. `ShardManifest` reads indexes when
rows are taken, and only those of the minishards that hold the rows: a volume of millions of chunks
is scanned without reading any.

Source: Neuroglancer's documentation, "Neuroglancer Precomputed Volume Format" (also for "Compressed
morton code") and "Neuroglancer Precomputed Sharded Format"; MurmurHash3 by A. Appleby (x86, 128
bits).
"""

from __future__ import annotations

import itertools
import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.cache import LRU, cache_bytes
from gridref.codecs.stage import decompressed
from gridref.errors import Place, ScanError, SourceFormatError, UnsupportedFeatureError
from gridref.formats.chunks import (
    StoreFiles,
    check_chunk_files,
    check_chunks,
    edge_policy,
    scattered_chunks,
)
from gridref.formats.location import Location
from gridref.formats.scanner import Findings, ScanOptions, located
from gridref.io import SourcePool, note_opened
from gridref.io.ahead import in_threads
from gridref.limits import beyond, limits
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Codec, bytes_codec, shared_encoding
from gridref.model.grid import chunk_counts
from gridref.model.manifest import ChunkManifest, Manifest, Source
from gridref.model.ome_zarr import Placement, placed_image_attributes

# A volume as a group


_DIMS = ("channel", "z", "y", "x")
_UNIT = "nm"
_CODECS: dict[str, tuple[str, tuple[str, ...], tuple[int, ...]]] = {
    "jpeg": ("gridref.precomputed_jpeg", ("uint8",), (1, 3)),
    "png": ("gridref.precomputed_png", ("uint8", "uint16"), (1, 2, 3, 4)),
    "jxl": ("gridref.precomputed_jpegxl", ("uint8",), (1, 3, 4)),
    "compressed_segmentation": ("gridref.compressed_segmentation", ("uint32", "uint64"), ()),
}
"""Codec, data types and numbers of channels of each encoding; any number where none is given."""


def scan(location: Location, options: ScanOptions) -> VirtualGroup:
    """Describe a volume: a group for each scale; raises as `gridref.formats.scan` does."""
    files = StoreFiles.at(location, options)
    place = Place(source=files.address("info"))
    if location.file is None:
        data = files.get("info")
    else:
        note_opened(location.folder)  # a kept scan of ``info`` alone would not notice other chunks
        data = location.file.read_many([0], [location.file.size])[0]
    if data is None:
        raise SourceFormatError("there is no file info", place)
    with located(place):
        volume = read_info(data)
    findings = Findings(files.url)
    groups: dict[str, VirtualGroup] = {}
    for number, scale in enumerate(volume.scales):
        path = f"/{number}/{volume.kind}"
        with findings.taking(path):
            if isinstance(scale, ScanError):
                raise scale
            groups[str(number)] = _scale_group(files, volume, scale)
    name = files.url.rpartition("/")[2]
    attrs = {**volume.attrs, **_multiscales(name, volume, groups)}
    return VirtualGroup(groups=groups, attrs=attrs, report=findings.report(options))


def _scale_group(files: StoreFiles, volume: Volume, scale: Scale) -> VirtualGroup:
    """The array of a scale, with the places of voxels along its axes."""
    arrays = {volume.kind: _array(files, volume, scale)}
    axes = zip(_DIMS[1:], scale.shape, scale.offset, scale.resolution, strict=True)
    for dim, length, offset, size in axes:
        if length <= limits().coordinates:
            places = (np.arange(length) + (offset + 0.5)) * size
            arrays[dim] = VirtualArray.from_numpy(places, (dim,), {"units": _UNIT})
    return VirtualGroup(arrays)


def _array(files: StoreFiles, volume: Volume, scale: Scale) -> VirtualArray:
    """Describe a scale: find its chunks."""
    codecs = _codecs(volume, scale)
    manifest: Manifest
    if scale.sharding is None:
        manifest, has_gzip = chunk_files(files, scale)
    else:
        manifest, has_gzip = (
            shard_manifest(files, scale, scale.sharding),
            scale.sharding.has_gzip_data,
        )
    if has_gzip:
        codecs = (*codecs, Codec.of("gzip", level=1))
    shape = (volume.n_channels, *scale.shape)
    chunk_shape = (volume.n_channels, *scale.chunk_shape)
    return VirtualArray.of_one_block(
        shape,
        volume.dtype,
        encoding=shared_encoding(
            chunk_shape, volume.dtype, codecs, edge_policy(shape, chunk_shape)
        ),
        manifest=manifest,
        dims=_DIMS,
        attrs={"key": scale.key, "resolution": np.array(scale.resolution[::-1])},
    )


def _codecs(volume: Volume, scale: Scale) -> tuple[Codec, ...]:
    """The codec of an encoding, which arranges voxels as they are in memory."""
    if scale.encoding == "raw":
        return (bytes_codec(volume.dtype),)
    if scale.encoding not in _CODECS:
        raise UnsupportedFeatureError(f"the encoding {scale.encoding[:100]!r} is not decoded")
    name, dtypes, channels = _CODECS[scale.encoding]
    if volume.dtype.name not in dtypes or volume.n_channels not in (
        channels or [volume.n_channels]
    ):
        raise UnsupportedFeatureError(
            f"the encoding {scale.encoding} has no {volume.dtype} of {volume.n_channels} channels"
        )
    if scale.block_shape is not None:
        return (Codec.of(name, block_shape=list(scale.block_shape)),)
    return (Codec(name),)


def _multiscales(name: str, volume: Volume, groups: Mapping[str, VirtualGroup]) -> dict[str, Any]:
    """The attributes of OME-Zarr, with the places and sizes of voxels that ``info`` states."""
    levels = {}
    for key in groups:
        scale = volume.scales[int(key)]
        assert isinstance(scale, Scale)
        first = [
            (offset + 0.5) * size
            for offset, size in zip(scale.offset, scale.resolution, strict=True)
        ]
        levels[f"{key}/{volume.kind}"] = Placement([1.0, *scale.resolution], [0.0, *first])
    if not levels:
        return {}
    return placed_image_attributes(name, levels, _DIMS, dict.fromkeys(_DIMS[1:], _UNIT)) or {}


# The file info


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
        z, y, x = chunk_counts(self.shape, self.chunk_shape)
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


# Chunks that are a file each
#
# ``0-64_64-128_0-30`` has voxels 0 to 64 along x, 64 to 128 along y, and 0 to 30 along z. Files are
# listed where the filesystem can list. Others, like web servers, are asked for each chunk, and
# those that answer "not found" are absent. Some writers compress files and name them ``*.gz``.


_GZIP = ".gz"
_UNREAD = ("br", "zst", "zstd", "xz", "lzma", "bz2")


def chunk_files(files: StoreFiles, scale: Scale) -> tuple[ChunkManifest, bool]:
    """Find the files of all chunks.

    Returns
    -------
    tuple
        Their manifest, in C order of the grid, and whether any file is compressed; the filter mask
        then says which are not.
    """
    counts = scale.grid_shape
    n_chunks = math.prod(counts)
    if n_chunks > limits().chunk_rows:
        raise UnsupportedFeatureError(beyond("chunk_rows", f"it has {n_chunks} chunks"))
    found = _found(files, scale) if n_chunks else {}
    check_chunks(n_chunks, len(found))
    row = np.fromiter(found, np.int64, len(found))
    held = list(found.values())
    is_plain = np.array([not name.endswith(_GZIP) for name, _ in held], bool)
    has_gzip = not bool(is_plain.all())
    manifest = scattered_chunks(
        n_chunks,
        row,
        [each for _, each in held],
        source=np.arange(len(held)),
        length=[each.size_bytes or 0 for _, each in held],
        filter_mask=is_plain & has_gzip,
    )
    return manifest, has_gzip


def _found(files: StoreFiles, scale: Scale) -> dict[int, tuple[str, Source]]:
    """Name and file of each chunk that is there, by its row."""
    listed = files.listed(scale.key)
    if listed is not None:
        return _rows_of(listed.items(), scale)
    check_chunk_files(math.prod(scale.grid_shape))
    names = list(_names(scale))
    found = files.named(scale.key, names)
    return _rows_of(
        (found or files.named(scale.key, [f"{name}{_GZIP}" for name in names])).items(), scale
    )


def _names(scale: Scale) -> Iterable[str]:
    """The names of all chunks, in C order of the grid."""
    axes = zip(scale.shape, scale.offset, scale.chunk_shape, strict=True)
    along = [
        [_span(number, *axis) for number in range(*chunk_counts(axis[:1], axis[2:]))]
        for axis in axes
    ]
    return (f"{x}_{y}_{z}" for z, y, x in itertools.product(*along))


def _span(number: int, extent: int, offset: int, length: int) -> str:
    """The voxels of a chunk along an axis."""
    start = number * length
    return f"{offset + start}-{offset + min(start + length, extent)}"


def _rows_of(files: Iterable[tuple[str, Source]], scale: Scale) -> dict[int, tuple[str, Source]]:
    """Sort files to chunks by their names; those of other names are no chunks."""
    found: dict[int, tuple[str, Source]] = {}
    unread: dict[int, str] = {}
    for name, source in files:
        stem, dot, suffix = name.partition(".")
        row = _row_of(stem, scale)
        if row is None:
            continue
        if not dot or (dot + suffix == _GZIP and row not in found):
            found[row] = name, source
        elif suffix in _UNREAD:
            unread[row] = name
    lost = [name for row, name in unread.items() if row not in found]
    if lost:  # not absent, so that it must not read as zero
        raise UnsupportedFeatureError(f"the compression of the chunk file {lost[0]!r} is not read")
    return found


def _row_of(name: str, scale: Scale) -> int | None:
    """The row of the chunk of a name; None if there is none.

    With chunks of 64 voxels from voxel 10 on, ``74-138`` is number (74 - 10) / 64 = 1.
    """
    row = 0
    spans = name.split("_")
    if len(spans) != 3:
        return None
    axes = zip(
        reversed(spans), scale.shape, scale.offset, scale.chunk_shape, scale.grid_shape, strict=True
    )
    for span, extent, offset, length, count in axes:
        first = span[: span.find("-", 1)]
        if not first.removeprefix("-").isdecimal():
            return None
        number = (int(first) - offset) // length
        if not 0 <= number < count or span != _span(number, extent, offset, length):
            return None
        row = row * count + number
    return row


type Ids = NDArray[np.uint64]

_ENTRY_BYTES = 16
_PAGE_BITS = 12
"""The beginning of a shard is read in pieces of 64 KiB, the places of so many minishards."""
_KEPT_BYTES = 256
"""At least what an index takes in the cache."""


# From rows of a manifest to shards


def chunk_ids(grid_shape: Triple[int], rows: NDArray[np.int64]) -> Ids:
    """The compressed Morton code of chunks: bits of x, y and z in turn, without those always 0.

    Parameters
    ----------
    grid_shape
        Chunks along z, y, x.
    rows
        int64 (n,), numbers of chunks in C order of the grid.
    """
    along = [each.astype(np.uint64) for each in np.unravel_index(rows, grid_shape)[::-1]]
    ids: Ids = np.zeros(len(rows), np.uint64)
    bit = 0
    for level in range(max(grid_shape).bit_length()):
        for place, count in zip(along, grid_shape[::-1], strict=True):
            if 1 << level < count:
                ids |= (place >> np.uint64(level) & np.uint64(1)) << np.uint64(bit)
                bit += 1
    return ids


def _id_bits(grid_shape: Triple[int]) -> int:
    """Bits of the largest id."""
    return sum(max(0, count - 1).bit_length() for count in grid_shape)


def minishards(sharding: Sharding, ids: Ids) -> Ids:
    """The minishard of each id: the number of its shard, then, in the low bits, that inside it."""
    bits = sharding.minishard_bits + sharding.shard_bits
    shift = sharding.preshift_bits
    shifted = ids >> np.uint64(shift) if shift < 64 else np.zeros_like(ids)
    hashed = _murmur(shifted) if sharding.is_hashed else shifted
    return hashed & np.uint64(2**bits - 1)


def _murmur(ids: Ids) -> Ids:
    """The low 64 bits of MurmurHash3 (x86, 128 bits) of 8 bytes, with seed 0."""
    c1, c2, c3, length = map(np.uint32, (0x239B961B, 0xAB0E9789, 0x38B34AE5, 8))
    low, high = ids.astype(np.uint32), (ids >> np.uint64(32)).astype(np.uint32)
    h1 = _rotated(low * c1, 15) * c2 ^ length
    h2 = _rotated(high * c2, 16) * c3 ^ length
    h1 = h1 + h2 + length + length
    h2 = h2 + h1
    h3 = h4 = h1 + length
    h1, h2, h3, h4 = map(_mixed, (h1, h2, h3, h4))
    h1 = h1 + h2 + h3 + h4
    h2 = h2 + h1
    return h2.astype(np.uint64) << np.uint64(32) | h1


def _rotated(values: NDArray[np.uint32], n_bits: int) -> NDArray[np.uint32]:
    return values << np.uint32(n_bits) | values >> np.uint32(32 - n_bits)


def _mixed(values: NDArray[np.uint32]) -> NDArray[np.uint32]:
    values = (values ^ values >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    values = (values ^ values >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return values ^ values >> np.uint32(16)


# The indexes


class ShardIndexes:
    """Reads indexes of minishards, and keeps those used last. Thread-safe; pickled without them.

    Parameters
    ----------
    sharding
        The parameters.
    grid_shape
        Chunks of the scale along z, y, x: no index lists more.
    """

    def __init__(self, sharding: Sharding, grid_shape: Triple[int], pool: SourcePool) -> None:
        self._sharding = sharding
        self._n_chunks = math.prod(grid_shape)
        self._largest_id = np.uint64(2 ** _id_bits(grid_shape) - 1)
        self._pool = pool
        self._begin = _ENTRY_BYTES << sharding.minishard_bits
        self._kept = LRU[Ids](cache_bytes())

    def read(self, shards: Sequence[tuple[Source, int, Ids]]) -> list[list[Ids]]:
        """Indexes of some minishards, one request after the other in each shard.

        Parameters
        ----------
        shards
            The file of each shard, its number, and the numbers of its minishards.

        Returns
        -------
        list
            By shard and minishard uint64 (3, n): ids, first bytes and sizes of the chunks.
        """
        return list(in_threads(lambda shard: self._of_shard(*shard), shards))

    def _of_shard(self, source: Source, shard: int, numbers: Ids) -> list[Ids]:
        wanted = numbers.tolist()
        found = {number: self._kept.get((shard, number)) for number in wanted}
        missing = [number for number, index in found.items() if index is None]
        places = self._places(source, shard, missing)
        filled = [number for number in missing if places[number][1]]
        starts, sizes = [places[n][0] for n in filled], [places[n][1] for n in filled]
        parts = dict(zip(filled, self._pool.read_ranges(source, starts, sizes), strict=True))
        for number in missing:
            start, size = places[number]
            place = Place(source=source.url, start=start, stop=start + size)
            index: Ids = np.zeros((3, 0), np.uint64)
            if number in parts:
                index = self._parsed(bytes(parts[number]), source, place)
                own = np.uint64(shard << self._sharding.minishard_bits | number)
                is_own = minishards(self._sharding, index[0]) == own
                if not is_own.all() or (index[0] > self._largest_id).any():
                    reason = "the index of a minishard lists a chunk that cannot be in it"
                    raise SourceFormatError(reason, place)
            found[number] = self._kept.put((shard, number), index, index.nbytes + _KEPT_BYTES)
        return [index for index in found.values() if index is not None]

    def _places(
        self, source: Source, shard: int, numbers: Sequence[int]
    ) -> dict[int, tuple[int, int]]:
        """First byte and size of the indexes of minishards."""
        size = source.size_bytes
        place = Place(source=source.url, start=0, stop=self._begin)
        if size is None or size < self._begin:
            raise SourceFormatError(f"a shard of {size} bytes ends inside of its index", place)
        pages = {
            page: self._page(source, shard, page)
            for page in {number >> _PAGE_BITS for number in numbers}
        }
        places: dict[int, tuple[int, int]] = {}
        for number in numbers:
            start, stop = pages[number >> _PAGE_BITS][number % 2**_PAGE_BITS].tolist()
            if start != stop and not start < stop <= size - self._begin:
                raise SourceFormatError("the index of a shard points outside of it", place)
            places[number] = self._begin + start, stop - start
        return places

    def _page(self, source: Source, shard: int, page: int) -> Ids:
        """uint64 (minishards, 2), begin and end of their indexes behind the index of the shard."""
        kept = self._kept.get((shard, "page", page))
        if kept is not None:
            return kept
        start = page * _ENTRY_BYTES << _PAGE_BITS
        n_bytes = min(self._begin - start, _ENTRY_BYTES << _PAGE_BITS)
        entries = np.frombuffer(self._pool.read(source, start, n_bytes), "<u8").reshape(-1, 2)
        return self._kept.put((shard, "page", page), entries, entries.nbytes + _KEPT_BYTES)

    def _parsed(self, data: bytes, source: Source, place: Place) -> Ids:
        """An index: differences of ids, gaps between chunks, and their sizes."""
        most = min(24 * self._n_chunks, limits().decoded_bytes)
        if self._sharding.has_gzip_index:
            try:
                data = decompressed(lambda: zlib.decompressobj(wbits=31), data, most)
            except (ValueError, zlib.error) as error:
                raise SourceFormatError(f"the index of a minishard: {error}", place) from error
        if len(data) % 24 or len(data) > most:
            raise SourceFormatError(f"the index of a minishard has {len(data)} bytes", place)
        ids, gaps, sizes = np.frombuffer(data, "<u8").reshape(3, -1)
        ids = np.cumsum(ids, dtype=np.uint64)
        stops = np.cumsum(gaps + sizes, dtype=np.uint64)
        room = np.uint64((source.size_bytes or 0) - self._begin)
        if ((sizes > room) | (stops > room) | (stops < sizes)).any():
            raise SourceFormatError("the index of a minishard points outside of its shard", place)
        if len(np.unique(ids)) < len(ids):
            raise SourceFormatError("the index of a minishard lists a chunk twice", place)
        return np.stack([ids, stops - sizes + np.uint64(self._begin), sizes])


# The manifest


@dataclass(frozen=True, eq=False)
class ShardManifest:
    """The chunks of a scale in shards: a `Manifest` whose rows are read on demand.

    Attributes
    ----------
    numbers
        The place of each of them in `sources`, by its number.
    grid_shape
        Chunks along z, y, x.
    """

    sources: tuple[Source, ...]
    numbers: Mapping[int, int]
    grid_shape: Triple[int]
    sharding: Sharding
    indexes: ShardIndexes

    @property
    def n_rows(self) -> int:
        return math.prod(self.grid_shape)

    @property
    def has_filter_masks(self) -> bool:
        """False: no chunk has filters switched off."""
        return False

    def with_sources(self, sources: tuple[Source, ...]) -> ShardManifest:
        """The same chunks of other files."""
        return replace(self, sources=sources)

    def take(self, rows: NDArray[np.int64]) -> ChunkManifest:
        """The given rows, in the given order, in memory."""
        ids = chunk_ids(self.grid_shape, np.asarray(rows, np.int64))
        source, (known, start, size) = self._held(np.unique(minishards(self.sharding, ids)))
        if not len(known):
            return ChunkManifest.missing(len(ids))
        order = np.argsort(known)
        at = order[np.minimum(np.searchsorted(known, ids, sorter=order), len(known) - 1)]
        is_there = known[at] == ids
        held = at[is_there]
        columns = {"source": source[held], "offset": start[held], "length": size[held]}
        return scattered_chunks(len(ids), is_there, self.sources, **columns)

    def _held(self, used: Ids) -> tuple[NDArray[np.int64], Ids]:
        """The chunks in some minishards: numbers of their sources, and uint64 (3, n)."""
        bits = self.sharding.minishard_bits
        shards, first = np.unique(used >> np.uint64(bits), return_index=True)
        inside = np.split(used & np.uint64(2**bits - 1), first[1:])
        wanted = [
            (self.sources[number], shard, numbers)
            for shard, numbers in zip(shards.tolist(), inside, strict=True)
            if (number := self.numbers.get(shard)) is not None
        ]
        found = self.indexes.read(wanted) if wanted else []
        parts: list[Ids] = [np.zeros((3, 0), np.uint64), *(i for each in found for i in each)]
        sizes = [sum(index.shape[1] for index in each) for each in found]
        source = np.repeat([self.numbers[shard] for _, shard, _ in wanted], sizes)
        return source.astype(np.int64), np.concatenate(parts, axis=1)


def shard_manifest(files: StoreFiles, scale: Scale, sharding: Sharding) -> ShardManifest:
    """Find the shards of a scale, without reading any."""
    n_chunks, n_bits = math.prod(scale.grid_shape), _id_bits(scale.grid_shape)
    if n_chunks > limits().chunk_rows or n_bits > 64:
        raise UnsupportedFeatureError(beyond("chunk_rows", f"it has {n_chunks} chunks"))
    found = _shards(files, scale, sharding, n_bits)
    pool = SourcePool(files.storage_options)
    return ShardManifest(
        tuple(found.values()),
        {number: place for place, number in enumerate(found)},
        scale.grid_shape,
        sharding,
        ShardIndexes(sharding, scale.grid_shape, pool),
    )


def _shards(files: StoreFiles, scale: Scale, sharding: Sharding, n_bits: int) -> dict[int, Source]:
    """The shards that are there, by number."""
    n_digits = max(1, -(-sharding.shard_bits // 4))
    found = files.listed(scale.key)
    if found is None:
        numbers = _possible(scale, sharding, n_bits)
        names = [f"{number:0{n_digits}x}" for number in numbers]
        found = files.named(scale.key, [f"{name}.shard" for name in names])
        found = found or files.named(scale.key, [f"{name}.index" for name in names])
    if any(name.endswith(".index") for name in found):
        raise UnsupportedFeatureError("its shards are of the old form, .index and .data files")
    digits = {name: name.removesuffix(".shard") for name in found if name.endswith(".shard")}
    by_number = {
        int(text, 16): found[name]
        for name, text in digits.items()
        if len(text) == n_digits and not set(text) - set("0123456789abcdef")
    }
    return {n: source for n, source in by_number.items() if not n >> sharding.shard_bits}


def _possible(scale: Scale, sharding: Sharding, n_bits: int) -> Sequence[int]:
    """The numbers of shards that chunks of the scale may be in."""
    n_chunks = math.prod(scale.grid_shape)
    left = n_bits - sharding.preshift_bits - sharding.minishard_bits
    bits = sharding.shard_bits if sharding.is_hashed else min(sharding.shard_bits, max(0, left))
    if n_chunks >> bits:
        check_chunk_files(2**bits)
        return range(2**bits)
    check_chunk_files(n_chunks)
    ids = chunk_ids(scale.grid_shape, np.arange(n_chunks))
    shards = minishards(sharding, ids) >> np.uint64(sharding.minishard_bits)
    return [int(shard) for shard in np.unique(shards)]
