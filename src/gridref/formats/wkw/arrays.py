"""Turn a magnification of a WKW layer into a virtual array: one outer block for each file.

Files that are absent hold zeros. Blocks of a file are its stored chunks; voxels are in Fortran
order, the channel fastest.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gridref.errors import Place, ScanError, SourceFormatError, UnsupportedFeatureError
from gridref.formats.chunk_files import StoreFiles
from gridref.formats.wkw.header import Header
from gridref.limits import beyond, limits
from gridref.model.array import VirtualArray, zero_of
from gridref.model.blocks import MISSING_BLOCK, BlockTable
from gridref.model.encoding import Codec, Encoding, bytes_codec, transpose_codec
from gridref.model.grid import ChunkGrid
from gridref.model.manifest import ChunkManifest, Source

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

    Raises
    ------
    SourceFormatError
        For bad headers and jump tables, and where no file can be found.
    UnsupportedFeatureError
        For unknown kinds of voxels and blocks, and more of them than the limits.
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
    parts = files.read_each(sources, [0] * len(sources), [size] * len(sources))
    offset = np.zeros((len(sources), header.n_blocks), np.int64)
    length = np.zeros_like(offset)
    for number, (source, data) in enumerate(zip(sources, parts, strict=True)):
        try:
            ranges = header.block_ranges(data, source.size_bytes or 0)
        except ScanError as error:
            error.located(Place(source=source.url))
            raise
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
