"""WEBKNOSSOS datasets (WKW): a group for each layer, an array for each magnification.

``datasource-properties.json`` names the layers, their bounding boxes in voxels of magnification 1,
their magnifications, and the size of a voxel. Without it, what is scanned is one magnification.
Voxels of a magnification are placed at the centre of those that they stand for.

A magnification is a grid of files, each a shard whose blocks are stored chunks. Files that are
absent hold zeros. Voxels are in Fortran order, the channel fastest.

A header has 16 bytes: ``WKW``, version (uint8, 1), side lengths of blocks in voxels and of files in
blocks as powers of two (4 bits each), kind of blocks (uint8: raw, LZ4, LZ4HC), type of voxels
(uint8), bytes of a voxel with all channels (uint8), and the place of the first block (uint64,
little-endian; 0 in ``header.wkw``). Compressed files have a jump table behind it: the end of each
block (uint64). Blocks are in Morton order, x fastest.

Sources: https://github.com/scalableminds/webknossos-wrap,
https://docs.webknossos.org/webknossos/data/concepts.html, and the files that the library
``webknossos`` writes.
"""

from __future__ import annotations

import itertools
import json
import math
import posixpath
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gridref.errors import Place, SourceFormatError, UnsupportedFeatureError
from gridref.formats.chunks import StoreFiles, read_each
from gridref.formats.location import Location
from gridref.formats.scanner import Findings, ScanOptions, located
from gridref.limits import beyond, limits
from gridref.model.array import VirtualArray, VirtualGroup, zero_of
from gridref.model.blocks import MISSING_BLOCK, BlockTable
from gridref.model.encoding import Codec, Encoding, bytes_codec, transpose_codec
from gridref.model.grid import ChunkGrid
from gridref.model.manifest import ChunkManifest, Source
from gridref.model.ome_zarr import Placement, placed_image_attributes
from gridref.secrets import shown_address
from gridref.typing import Int64Array

# Datasets and layers


_PROPERTIES = "datasource-properties.json"
_UNITS = "nanometer"
"""Where no unit is stated."""


def scan(location: Location, options: ScanOptions) -> VirtualGroup:
    """Describe a dataset, or one magnification; raises as `gridref.formats.scan` does."""
    files = StoreFiles.at(location, options)
    findings = Findings(files.url)
    data = files.get(_PROPERTIES)
    if data is None:
        name = files.url.rpartition("/")[2] or "array"
        arrays: dict[str, VirtualArray] = {}
        with findings.taking(f"/{name}"):
            arrays[name], _ = array_of(files, "", None, {})
        return VirtualGroup(arrays, report=findings.report(options))
    try:
        properties = json.loads(data)
        layers = list(properties["dataLayers"])
        voxel = _voxel(properties.get("scale"))
        name = str((properties.get("id") or {}).get("name", ""))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        place = Place(source=files.address(_PROPERTIES))
        raise SourceFormatError(f"it describes no layers: {error!r}", place) from error
    groups: dict[str, VirtualGroup] = {}
    for layer in layers:
        label = str(layer.get("name")) if isinstance(layer, Mapping) else str(layer)[:100]
        with findings.refusing(f"/{label}"):
            if label in ("", ".", "..") or "/" in label:
                raise UnsupportedFeatureError(f"{label[:100]!r} cannot be the name of a group")
            groups[label] = _layer(files, label, layer, voxel, findings)
    attrs = {"name": name} if name else {}
    return VirtualGroup({}, groups, attrs, report=findings.report(options))


def _voxel(scale: Any) -> tuple[Any, str] | None:
    """Size of a voxel of magnification 1, and its unit."""
    unit = _UNITS
    if isinstance(scale, Mapping):
        scale, unit = scale.get("factor"), str(scale.get("unit", _UNITS))
    if scale is None:
        return None
    size = np.array(scale, float)
    if size.shape != (3,) or not (np.isfinite(size) & (size > 0)).all():
        raise ValueError("scale is no size of a voxel")
    return size, unit


def _layer(
    files: StoreFiles,
    name: str,
    layer: Any,
    voxel: tuple[Any, str] | None,
    findings: Findings,
) -> VirtualGroup:
    """A layer; a magnification that is refused is noted, and left out."""
    if not isinstance(layer, Mapping):
        raise SourceFormatError("it is no description of a layer")
    form = layer.get("dataFormat", "wkw")
    if form != "wkw":
        raise UnsupportedFeatureError(
            f"the layer is in the format {str(form)[:100]}: scan its folder"
        )
    mags = layer.get("mags", layer.get("wkwResolutions"))
    if not isinstance(mags, list):
        raise SourceFormatError("it lists no magnifications")
    arrays: dict[str, VirtualArray] = {}
    boxes: dict[str, tuple[Corner, Box]] = {}
    for each in mags:
        mag = _magnification(each)
        folder = _folder(files, name, mag, each)
        with findings.taking(f"/{name}/{folder}"):
            path = _path(each) or f"{name}/{folder}"
            box = _box(layer.get("boundingBox"), mag)
            arrays[folder], box = array_of(files, path, box, {"mag": np.array(mag)})
            boxes[folder] = mag, box
    attrs = {key: layer[key] for key in ("category", "elementClass") if key in layer}
    return VirtualGroup(arrays, {}, {**attrs, **_image(name, boxes, voxel)})


def _magnification(entry: Any) -> Corner:
    stated = entry.get("mag", entry.get("resolution")) if isinstance(entry, Mapping) else entry
    along = [stated] * 3 if isinstance(stated, int) else stated
    if not isinstance(along, list) or len(along) != 3:
        raise SourceFormatError(f"{str(entry)[:100]} is no magnification")
    if not all(type(n) is int and 0 < n < 2**31 for n in along):
        raise SourceFormatError(f"{str(entry)[:100]} is no magnification")
    return along[0], along[1], along[2]


def _folder(files: StoreFiles, layer: str, mag: Corner, entry: Any) -> str:
    """Name of the folder of a magnification: ``2``, or ``2-2-1``."""
    long = "-".join(map(str, mag))
    if len(set(mag)) > 1:
        return long
    short = str(mag[0])
    is_long = files.get(f"{layer}/{short}/header.wkw") is None
    return long if is_long and files.get(f"{layer}/{long}/header.wkw") is not None else short


def _path(entry: Any) -> str:
    """The folder that an entry states, in the dataset; empty if it states none."""
    stated = entry.get("path") if isinstance(entry, Mapping) else None
    if stated is None:
        return ""
    path = posixpath.normpath(str(stated))
    if "://" in str(stated) or path.startswith(("/", "..")):
        raise UnsupportedFeatureError(
            f"its voxels are outside of the dataset, in {shown_address(str(stated))[:200]!r}:"
            " scan that folder"
        )
    return path


def _box(bounds: Any, mag: Corner) -> Box | None:
    """The bounding box of a layer in voxels of a magnification; None if none is stated."""
    if bounds is None:
        return None
    try:
        first = [bounds["topLeft"][axis] for axis in range(3)]
        size = [bounds[name] for name in ("width", "height", "depth")]
    except (IndexError, KeyError, TypeError) as error:
        raise SourceFormatError(f"its bounding box is {str(bounds)[:200]}") from error
    if not all(type(n) is int and 0 <= n < 2**40 for n in (*first, *size)) or 0 in size:
        raise SourceFormatError(f"its bounding box is {str(bounds)[:200]}")
    start = [low // m for low, m in zip(first, mag, strict=True)]
    stop = [-(-(low + n) // m) for low, n, m in zip(first, size, mag, strict=True)]
    return Box((start[0], start[1], start[2]), (stop[0], stop[1], stop[2]))


def _image(
    name: str,
    boxes: Mapping[str, tuple[Corner, Box]],
    voxel: tuple[Any, str] | None,
) -> dict[str, Any]:
    """The attribute ``ome`` of a layer; nothing if it has no arrays, or voxels no size."""
    if voxel is None or not boxes:
        return {}
    size, unit = voxel
    levels = {}
    for path, (mag, box) in boxes.items():
        centre = np.array(box.start) * mag + (np.array(mag) - 1) / 2
        levels[path] = Placement([1.0, *(size * mag).tolist()], [0.0, *(size * centre).tolist()])
    return placed_image_attributes(name, levels, DIMS, dict.fromkeys(DIMS[1:], unit)) or {}


# Magnifications


DIMS = ("c", "x", "y", "z")
"""As the library ``wkw`` shows voxels."""

type Corner = tuple[int, int, int]
"""Numbers along x, y and z."""

_KEY = re.compile(r"z(\d{1,9})/y(\d{1,9})/x(\d{1,9})\.wkw")


@dataclass(frozen=True)
class Box:
    """Voxels of a magnification, half-open."""

    start: Corner
    stop: Corner


def array_of(
    files: StoreFiles, path: str, box: Box | None, attrs: Mapping[str, Any]
) -> tuple[VirtualArray, Box]:
    """Describe a magnification, and say which voxels the array shows.

    Parameters
    ----------
    path
        Its folder in the dataset; empty if it is the whole of it.
    box
        The voxels to show; None for those of all files that are there.
    attrs
        Attributes of the array; its first voxel is added as ``offset``.
    """
    head = f"{path}/" if path else ""
    data = files.get(f"{head}header.wkw")
    if data is None:
        raise SourceFormatError("it has no header.wkw")
    header = Header.from_bytes(data)
    sources = _sources(files, head, header, box)
    if box is None:
        box = _box_of_all(sources, header)
    grid, table = _blocks(sources, header, box)
    encoding = _encoding(header)
    array = VirtualArray(
        grid,
        header.dtype,
        zero_of(header.dtype),
        DIMS,
        {**attrs, "offset": np.array(box.start)},
        (encoding,),
        (_manifest(files, list(sources.values()), header),),
        table,
    )
    return array, box


def _encoding(header: Header) -> Encoding:
    length = header.block_length
    codecs = [transpose_codec((3, 2, 1, 0)), bytes_codec(header.dtype)]
    if not header.is_compressed:
        return Encoding((header.n_channels, length, length, length), header.dtype, tuple(codecs))
    # An LZ4 block without the decoded size that numcodecs writes before it.
    return Encoding(
        (header.n_channels, length, length, length),
        header.dtype,
        (*codecs, Codec("numcodecs.lz4")),
        prefix=header.block_bytes.to_bytes(4, "little"),
    )


# Files


def _sources(files: StoreFiles, head: str, header: Header, box: Box | None) -> dict[Corner, Source]:
    """The files that are there, by their number along x, y and z."""
    keys = files.keys_below(head.rstrip("/"))
    ranges = None if box is None else _file_ranges(header, box)
    if keys is not None:
        found = {key: _KEY.fullmatch(key.removeprefix(head)) for key in keys}
        numbers = {key: _corner(match.groups()) for key, match in found.items() if match}
    elif ranges is not None:
        _check_blocks(math.prod(map(len, ranges)))
        corners = itertools.product(*ranges)
        numbers = {f"{head}z{z}/y{y}/x{x}.wkw": (x, y, z) for x, y, z in corners}
    else:
        raise SourceFormatError(
            "the server lists no files: scan the dataset's datasource-properties.json, which says"
            " where its voxels are"
        )
    if ranges is not None:
        numbers = {
            key: corner
            for key, corner in numbers.items()
            if all(number in along for number, along in zip(corner, ranges, strict=True))
        }
    n_rows = len(numbers) * header.n_blocks
    if n_rows > limits().chunk_rows:
        raise UnsupportedFeatureError(beyond("chunk_rows", f"{n_rows} blocks"))
    sources = files.sources(sorted(numbers), head.rstrip("/"))
    return {numbers[key]: source for key, source in sources.items()}


def _corner(z_y_x: tuple[str, ...]) -> Corner:
    z, y, x = map(int, z_y_x)
    return x, y, z


def _file_ranges(header: Header, box: Box) -> list[range]:
    """Numbers of the files along each axis that a box touches."""
    length = header.file_length
    pairs = zip(box.start, box.stop, strict=True)
    return [range(start // length, -(-stop // length)) for start, stop in pairs]


def _box_of_all(sources: Mapping[Corner, Source], header: Header) -> Box:
    if not sources:
        raise SourceFormatError("it holds no files")
    x, y, z = zip(*sources, strict=True)
    length = header.file_length
    return Box(
        (min(x) * length, min(y) * length, min(z) * length),
        ((max(x) + 1) * length, (max(y) + 1) * length, (max(z) + 1) * length),
    )


def _check_blocks(n_blocks: int) -> None:
    if n_blocks > limits().virtual_blocks:
        raise UnsupportedFeatureError(beyond("virtual_blocks", f"places of {n_blocks} files"))


def _manifest(files: StoreFiles, sources: list[Source], header: Header) -> ChunkManifest:
    """Rows of all blocks of each file, in C order."""
    for source in sources:
        if (source.size_bytes or 0) < header.index_bytes:
            raise SourceFormatError("it ends inside of its header", Place(source=source.url))
    size = header.index_bytes
    parts = read_each(files.pool, sources, [0] * len(sources), [size] * len(sources))
    offset = np.zeros((len(sources), header.n_blocks), np.int64)
    length = np.zeros_like(offset)
    for number, (source, data) in enumerate(zip(sources, parts, strict=True)):
        with located(Place(source=source.url)):
            ranges = header.block_ranges(data, source.size_bytes or 0)
            offset[number], length[number] = ranges
    return ChunkManifest.from_columns(
        sources,
        source=np.repeat(np.arange(len(sources)), header.n_blocks),
        offset=offset.reshape(-1),
        length=length.reshape(-1),
    )


# Blocks of the array, one for each file


def _blocks(
    sources: Mapping[Corner, Source], header: Header, box: Box
) -> tuple[ChunkGrid, BlockTable]:
    """A block for each place of a file in the box, whether the file is there or not."""
    ranges, length = _file_ranges(header, box), header.file_length
    counts = [len(along) for along in ranges]
    n_blocks = math.prod(counts)
    _check_blocks(n_blocks)
    edges: list[Any] = [[header.n_channels]]
    starts = []
    for along, first, last in zip(ranges, box.start, box.stop, strict=True):
        begins = np.maximum(np.array(along) * length, first)
        ends = np.minimum((np.array(along) + 1) * length, last)
        edges.append(ends - begins)
        starts.append(begins - np.array(along) * length)
    origin = np.zeros((n_blocks, 4), np.int64)
    origin[:, 1:] = np.stack(np.meshgrid(*starts, indexing="ij"), axis=-1).reshape(-1, 3)
    number = np.full(counts, -1, np.int64)
    for file, corner in enumerate(sources):
        number[tuple(n - along.start for n, along in zip(corner, ranges, strict=True))] = file
    number = number.reshape(-1)
    side = header.file_blocks
    rows = np.ones((n_blocks, 1), np.int64)
    table = BlockTable(
        np.where(number < 0, MISSING_BLOCK, 0).astype(np.int32),
        np.zeros(n_blocks, np.int32),
        np.maximum(number, 0) * header.n_blocks,
        rows * np.array([header.n_blocks, side * side, side, 1]),
        rows * np.array([header.n_channels, length, length, length]),
        origin,
        np.ones((n_blocks, 4), np.int64),
    )
    return ChunkGrid.from_edges(edges), table


# Headers of files


HEADER_BYTES = 16
_HEADER = struct.Struct("<3sBBBBBQ")
_RAW, _LZ4, _LZ4HC = 1, 2, 3
_TYPES = dict(enumerate(("u1", "u2", "u4", "u8", "f4", "f8", "i1", "i2", "i4", "i8"), 1))


@dataclass(frozen=True)
class Header:
    """How the files of a magnification are made.

    Attributes
    ----------
    block_length
        Voxels along an axis of a block.
    file_blocks
        Blocks along an axis of a file.
    is_compressed
        Whether blocks are LZ4 blocks.
    n_channels
        Values of a voxel.
    stated
        The bytes that are equal in all files.
    """

    block_length: int
    file_blocks: int
    is_compressed: bool
    dtype: np.dtype[np.generic]
    n_channels: int
    stated: bytes

    @classmethod
    def from_bytes(cls, data: bytes) -> Header:
        """Read a header."""
        if len(data) < HEADER_BYTES or data[:3] != b"WKW":
            raise SourceFormatError("it has no WKW header")
        _, version, lengths, kind, voxel, n_bytes, _ = _HEADER.unpack_from(data)
        if version != 1:
            raise UnsupportedFeatureError(f"version {version} of WKW is not read")
        if kind not in (_RAW, _LZ4, _LZ4HC) or voxel not in _TYPES:
            raise UnsupportedFeatureError(f"blocks of kind {kind} with voxels of type {voxel}")
        dtype: np.dtype[np.generic] = np.dtype(_TYPES[voxel])
        if n_bytes == 0 or n_bytes % dtype.itemsize:
            raise SourceFormatError(f"voxels of {n_bytes} bytes do not hold values of {dtype}")
        block, blocks = 1 << (lengths & 15), 1 << (lengths >> 4)
        header = cls(block, blocks, kind != _RAW, dtype, n_bytes // dtype.itemsize, data[3:8])
        if header.block_bytes > limits().decoded_bytes:
            raise UnsupportedFeatureError(f"its blocks have {header.block_bytes} bytes each")
        return header

    @property
    def block_bytes(self) -> int:
        return self.n_channels * self.dtype.itemsize * self.block_length**3

    @property
    def file_length(self) -> int:
        """Voxels along an axis of a file."""
        return self.block_length * self.file_blocks

    @property
    def n_blocks(self) -> int:
        """Blocks of a file."""
        return self.file_blocks**3

    @property
    def index_bytes(self) -> int:
        """Bytes at the beginning of a file that say where its blocks are."""
        return HEADER_BYTES + (8 * self.n_blocks if self.is_compressed else 0)

    def block_ranges(self, data: bytes, file_bytes: int) -> tuple[Int64Array, Int64Array]:
        """Offset and length of each block of a file, in C order of x, y and z.

        Parameters
        ----------
        data
            The first `index_bytes` of the file.
        """
        if data[:3] != b"WKW" or data[3:8] != self.stated:
            raise SourceFormatError("its header differs from header.wkw")
        (first,) = struct.unpack_from("<Q", data, 8)
        if self.is_compressed:
            ends = np.frombuffer(data, "<u8", self.n_blocks, HEADER_BYTES)
        else:
            if first + self.n_blocks * self.block_bytes > file_bytes:
                raise SourceFormatError(f"its blocks do not fit into {file_bytes} bytes")
            ends = np.uint64(first) + np.arange(1, self.n_blocks + 1, dtype="u8") * np.uint64(
                self.block_bytes
            )
        starts = np.concatenate([np.array([first], "u8"), ends[:-1]])
        if first < self.index_bytes or int(ends.max()) > file_bytes or (ends <= starts).any():
            raise SourceFormatError("its jump table points outside of it, or backwards")
        order = morton_order(self.file_blocks)
        offset = starts.astype(np.int64)[order]
        return offset, ends.astype(np.int64)[order] - offset


def morton_order(side: int) -> Int64Array:
    """Morton numbers of the cells of a cube in C order of x, y and z; x has the lowest bit."""
    along = np.arange(side, dtype=np.int64)
    spread = np.zeros(side, np.int64)
    for bit in range(side.bit_length()):
        spread |= (along >> bit & 1) << 3 * bit
    cells = spread[:, None, None] | spread[:, None] << 1 | spread << 2
    return cells.reshape(-1)
