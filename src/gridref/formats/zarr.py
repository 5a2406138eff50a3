"""Zarr v3 and v2 stores as sources: plain, rectilinear and sharded arrays.

`scan_files` reads the metadata of all groups and arrays below the root, consolidated or not, and
returns the group with a finding for each node. That of v2 is first converted to v3. The arrays
refer to the store's chunks, and to the inner chunks of shards, whose indexes are read once. Dates
and durations become int64 with units of the CF conventions.

Sources: Zarr v3 core specification and its ``sharding-indexed`` codec, version 1.0; Zarr v2
specification, "Metadata" and "Data type encoding"; numcodecs' configurations.
"""

from __future__ import annotations

import base64
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gridref.codecs import decode_chunk, why_not
from gridref.errors import (
    DecodeError,
    InvalidRequestError,
    Place,
    ScanError,
    SourceFormatError,
    UnsupportedFeatureError,
)
from gridref.formats.chunks import (
    ChunkFiles,
    StoreFiles,
    array_name,
    check_chunk_files,
    read_each,
    scattered_chunks,
)
from gridref.formats.location import Location
from gridref.formats.metadata import attributes_from_json, dimension_names, json_object
from gridref.formats.scanner import Findings, ScanOptions, check_element_size, located
from gridref.limits import MAX_GROUP_DEPTH
from gridref.model.array import VirtualArray, VirtualGroup, path_in, zero_of
from gridref.model.blocks import BlockTable
from gridref.model.conventions import numpy_time_attributes
from gridref.model.encoding import (
    ARRAY_TO_BYTES,
    Codec,
    Encoding,
    blosc_codec,
    bytes_codec,
    transpose_codec,
)
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from gridref.model.scan_report import Fate
from gridref.model.shard import MISSING_CHUNK
from gridref.model.zarr_metadata import (
    ArrayMetadata,
    check_separator,
    integers_of,
    scalar_of,
)
from gridref.typing import Int64Array

# The hierarchy


_NO_METADATA = "no group and no array: it has no zarr.json, .zgroup or .zarray of its own"


def scan(location: Location, options: ScanOptions) -> VirtualGroup:
    """Describe a store; raises as `gridref.formats.scan` does."""
    return scan_files(StoreFiles.at(location, options), options)


def scan_files(files: ChunkFiles, options: ScanOptions) -> VirtualGroup:
    """Describe a Zarr v3 or v2 hierarchy, wherever its keys are kept.

    Parameters
    ----------
    files
        Its keys: of metadata, of chunks, and of shards with chunks in them.

    Returns
    -------
    VirtualGroup
        A hierarchy that is one array becomes a group with that array, named as the folder.
    """
    found = _Scan(files)
    root = found.node("")
    if root is None:
        raise SourceFormatError("no Zarr metadata is there", Place(source=files.url))
    if isinstance(root, _ArrayNode):
        group = found.group_of({array_name(files.url): root}, {}, {}, "")
    else:
        found.consolidated = root.consolidated
        group = found.group(root, "")
    return group.with_changes(report=found.findings.report(options))


def folders_of(keys: Iterable[str]) -> dict[str, dict[str, None]]:
    """The folders right below each folder of keys, as deep as groups may be nested."""
    folders: dict[str, dict[str, None]] = {}
    for key in keys:
        start = 0
        for _ in range(MAX_GROUP_DEPTH + 2):
            stop = key.find("/", start)
            if stop <= start:  # the end, or no name
                break
            folders.setdefault(key[: max(0, start - 1)], {})[key[start:stop]] = None
            start = stop + 1
    return folders


@dataclass(frozen=True)
class _ArrayNode:
    path: str
    metadata: ArrayMetadata | ScanError


@dataclass(frozen=True)
class _GroupNode:
    attrs: Mapping[str, Any]
    consolidated: Mapping[str, Mapping[str, Any]] | None = None


class _Scan:
    def __init__(self, files: ChunkFiles) -> None:
        self.files = files
        self.consolidated: Mapping[str, Mapping[str, Any]] | None = None
        self.findings = Findings(files.url)

    def node(self, path: str) -> _ArrayNode | _GroupNode | None:
        head = f"{path}/" if path else ""
        document = self._document(f"{head}zarr.json")
        if document is not None:
            return self._node_v3(path, document)
        document = self._document(f"{head}.zarray")
        if document is not None:
            return self._array_v2(path, document, self._document(f"{head}.zattrs") or {})
        group = self._document(f"{head}.zgroup")
        if group is None:
            return None
        merged = None if path else self._document(".zmetadata")
        attrs = self._document(f"{head}.zattrs") or {}
        return _GroupNode(attrs, None if merged is None else merged.get("metadata"))

    def group(self, node: _GroupNode, path: str) -> VirtualGroup:
        arrays: dict[str, _ArrayNode] = {}
        groups: dict[str, VirtualGroup] = {}
        for name in self._children(path):
            below = path_in(path, name)
            try:
                child = self.node(below)
            except UnsupportedFeatureError as error:
                self.findings.refuse(f"/{below}", error)
                continue
            if isinstance(child, _ArrayNode):
                arrays[name] = child
            elif child is None:
                self.findings.note(f"/{below}", Fate.SKIPPED, _NO_METADATA)
            elif not self.findings.is_too_deep(below):
                groups[name] = self.group(child, below)
        return self.group_of(arrays, groups, node.attrs, path)

    def group_of(
        self,
        nodes: Mapping[str, _ArrayNode],
        groups: Mapping[str, VirtualGroup],
        attrs: Mapping[str, Any],
        path: str,
    ) -> VirtualGroup:
        phony: dict[int, list[str]] = {}
        arrays: dict[str, VirtualArray] = {}
        for name, node in nodes.items():
            below = f"/{path}/{name}" if path else f"/{name}"
            with located(Place(source=self.files.url, variable=below)):
                try:
                    arrays[name] = self._array(node, phony)
                    self.findings.note(below, Fate.TAKEN)
                except UnsupportedFeatureError as error:
                    self.findings.refuse(below, error)
        return VirtualGroup(arrays, dict(groups), attributes_from_json(attrs, None))

    def _array(self, node: _ArrayNode, phony: dict[int, list[str]]) -> VirtualArray:
        if isinstance(node.metadata, ScanError):
            raise node.metadata
        metadata = node.metadata
        dims = dimension_names(metadata.dims, metadata.grid.shape, phony)
        metadata = replace(metadata, attrs=attributes_from_json(metadata.attrs, metadata.dtype))
        return virtual_array(self.files, node.path, metadata, dims)

    def _children(self, path: str) -> list[str]:
        if self.consolidated is None:
            return self.files.folders(path)
        return sorted(name for name in self._folders.get(path, ()) if not name.startswith(".z"))

    @cached_property
    def _folders(self) -> Mapping[str, Mapping[str, None]]:
        """The children in the consolidated metadata; in Zarr v3 the keys are paths of groups."""
        return folders_of(f"{key}/" for key in self.consolidated or ())

    def _node_v3(self, path: str, document: Mapping[str, Any]) -> _ArrayNode | _GroupNode:
        if document.get("node_type") == "group":
            merged = document.get("consolidated_metadata") or {}
            documents = merged.get("metadata") if not path else None
            return _GroupNode(document.get("attributes", {}), documents or None)
        try:
            return _ArrayNode(path, ArrayMetadata.from_json(document))
        except InvalidRequestError as error:
            return _ArrayNode(path, UnsupportedFeatureError(error.reason))

    def _array_v2(
        self, path: str, document: Mapping[str, Any], attrs: Mapping[str, Any]
    ) -> _ArrayNode:
        try:
            return _ArrayNode(path, array_metadata_v2(document, attrs))
        except ScanError as error:
            return _ArrayNode(path, error)

    def _document(self, key: str) -> Mapping[str, Any] | None:
        """A metadata document, from the consolidated ones if there are any."""
        if self.consolidated is not None:
            if key in self.consolidated:
                return self.consolidated[key]
            return self.consolidated.get(key.removesuffix("/zarr.json"))
        data = self.files.get(key)
        return None if data is None else json_object(data, self.files.address(key))


# Dates and durations as integers with CF units


def without_times(
    dtype: np.dtype[Any], fill_value: Any, attrs: Mapping[str, Any]
) -> tuple[np.dtype[Any], Any, dict[str, Any]]:
    """Dtype, fill value and attributes of an array, as int64 if it holds dates or durations.

    Not-a-time becomes ``_FillValue``.
    """
    if dtype.kind not in "mM":
        return dtype, fill_value, dict(attrs)
    units = numpy_time_attributes(dtype)
    if units is None:
        raise UnsupportedFeatureError(f"the data type {dtype} has no CF units")
    rest = {key: value for key, value in attrs.items() if key != "_FillValue"}
    missing = np.int64(np.iinfo(np.int64).min)
    fill = np.asarray(fill_value).view(np.int64)[()]
    return np.dtype(np.int64), fill, {**rest, **units, "_FillValue": missing}


# The array


def virtual_array(
    files: ChunkFiles, path: str, metadata: ArrayMetadata, dims: Sequence[str]
) -> VirtualArray:
    """Describe an array: find its chunk files, and read its shard indexes.

    Parameters
    ----------
    dims
        Names of the dimensions.
    """
    check_element_size(metadata.dtype)
    chain = split_chain(metadata.codecs, _any_chunk_shape(metadata.grid))
    for codec in chain.codecs:
        reason = why_not(codec)
        if reason is not None:
            raise UnsupportedFeatureError(reason)
    ranges = chunk_ranges(files, path, metadata)
    if chain.levels and (ranges.source < 0).any():
        raise UnsupportedFeatureError("shards are kept inline in the references")
    for codec, order in chain.levels:
        ranges = inner_ranges(files, ranges, codec, order)
    grid = metadata.grid
    if chain.levels:
        grid = ChunkGrid.regular(grid.shape, chain.chunk_shape)
    dtype, fill, attrs = without_times(metadata.dtype, metadata.fill_value, metadata.attrs)
    outer, table, encodings = _blocks(grid, chain, dtype)
    return VirtualArray(
        outer,
        dtype,
        fill,
        tuple(dims),
        attrs,
        encodings,
        (_manifest(ranges, grid),),
        table,
    )


def _any_chunk_shape(grid: ChunkGrid) -> tuple[int, ...]:
    return tuple(int(axis.run_lengths[0]) for axis in grid.axes)


def chunk_ranges(files: ChunkFiles, path: str, metadata: ArrayMetadata) -> ChunkRanges:
    """The files of all existing chunks (or shards), whole."""
    grid = metadata.grid
    check_chunk_files(grid.n_chunks)
    head = f"{path}/" if path else ""
    keys = {f"{head}{metadata.chunk_key(k)}": k for k in np.ndindex(*grid.grid_shape)}
    stored_coords: list[tuple[int, ...]] = []
    sources: dict[Source, int] = {}
    literals: list[bytes] = []
    rows: list[tuple[int, int, int]] = []
    n_inline = 0
    for key, held, offset, length in files.ranges(list(keys), path) if keys else ():
        stored_coords.append(keys[key])
        if isinstance(held, bytes):
            rows.append((-1, n_inline, len(held)))
            literals.append(held)
            n_inline += len(held)
        else:
            rows.append((sources.setdefault(held, len(sources)), offset, length))
    grid_coords = np.array(stored_coords, np.int64).reshape(len(stored_coords), grid.ndim)
    number, offsets, lengths = np.array(rows, np.int64).reshape(len(rows), 3).T
    coords, shape = np.zeros_like(grid_coords), np.zeros_like(grid_coords)
    for at, axis in enumerate(grid.axes):
        coords[:, at] = axis.starts(grid_coords[:, at])
        shape[:, at] = axis.chunk_lengths(grid_coords[:, at])
    return ChunkRanges(tuple(sources), number, offsets, lengths, coords, shape, b"".join(literals))


def _manifest(ranges: ChunkRanges, grid: ChunkGrid) -> ChunkManifest:
    """One row for each chunk, in C order of the grid."""
    row = np.zeros(len(ranges.source), np.int64)
    inside = np.ones(len(ranges.source), bool)
    for number, axis in enumerate(grid.axes):
        # A shard may hold chunks that are beyond the array.
        element = ranges.coords[:, number]
        inside &= element < axis.extent
        at = axis.locate(np.where(element < axis.extent, element, 0)) if axis.extent else element
        row = row * axis.n_chunks + at
    source = ranges.source[inside]
    return scattered_chunks(
        grid.n_chunks,
        row[inside],
        ranges.sources,
        ranges.inline,
        source=np.maximum(source, 0),
        offset=ranges.offset[inside],
        length=ranges.length[inside],
        state=np.where(source < 0, ChunkState.INLINE, ChunkState.RANGE),
    )


def _blocks(
    grid: ChunkGrid, chain: Chain, dtype: np.dtype[np.generic]
) -> tuple[ChunkGrid, BlockTable, tuple[Encoding, ...]]:
    """One block for each box of equal chunks: a regular grid is one block."""
    strides = [math.prod(grid.grid_shape[axis + 1 :]) for axis in range(grid.ndim)]
    outer = ChunkGrid(tuple(GridAxis.from_edges(_run_extents(axis)) for axis in grid.axes))
    encodings: dict[Encoding, int] = {}
    columns: list[list[list[int]]] = [[], [], []]
    numbers: list[int] = []
    runs = [range(len(axis.run_lengths)) if axis.extent else range(0) for axis in grid.axes]
    for run_ids in itertools.product(*runs):
        chunk_shape = tuple(int(a.run_lengths[r]) for a, r in zip(grid.axes, run_ids, strict=True))
        encoding = Encoding(chunk_shape, dtype, chain.codecs)
        numbers.append(encodings.setdefault(encoding, len(encodings)))
        first = [int(a.run_counts[:r].sum()) for a, r in zip(grid.axes, run_ids, strict=True)]
        columns[0].append([sum(k * n for k, n in zip(first, strides, strict=True))])
        columns[1].append(strides)
        extents = [int(_run_extents(a)[r]) for a, r in zip(grid.axes, run_ids, strict=True)]
        columns[2].append(extents)
    n_blocks, ndim = len(numbers), grid.ndim
    first_row, stride, stored = (
        np.array(column, np.int64).reshape(n_blocks, width)
        for column, width in zip(columns, (1, ndim, ndim), strict=True)
    )
    zeros = np.zeros((n_blocks, ndim), np.int64)
    table = BlockTable(
        np.array(numbers, np.int32),
        np.zeros(n_blocks, np.int32),
        first_row.reshape(-1),
        stride,
        stored,
        zeros,
        zeros + 1,
    )
    return (
        outer,
        table,
        tuple(encodings) or (Encoding(_any_chunk_shape(grid), dtype, chain.codecs),),
    )


def _run_extents(axis: GridAxis) -> Int64Array:
    """Elements in each run of equal chunks; the last one ends at the end of the axis."""
    stops = np.minimum(np.cumsum(axis.run_lengths * axis.run_counts), axis.extent)
    return np.diff(stops, prepend=0) if axis.extent else np.zeros(0, np.int64)


# The inner chunks of shards


_INDEX_OVERHEAD = {"bytes": 0, "crc32c": 4, "transpose": 0}


@dataclass(frozen=True)
class Chain:
    """A codec chain taken apart at its ``sharding_indexed`` codecs.

    Attributes
    ----------
    codecs
        Chain of the innermost chunks, with the transpositions around the shards before it.
    levels
        The sharding codecs, outermost first, and the order of the axes that each sees.
    chunk_shape
        Shape of the innermost chunks, along the axes of the array.
    """

    codecs: tuple[Codec, ...]
    levels: tuple[tuple[Codec, tuple[int, ...]], ...]
    chunk_shape: tuple[int, ...]


def split_chain(codecs: Sequence[Codec], chunk_shape: Sequence[int]) -> Chain:
    """Take a chain apart.

    Inner chunks have byte ranges only if nothing but transpositions is before a sharding codec, and
    nothing after it.
    """
    order = tuple(range(len(chunk_shape)))
    levels: list[tuple[Codec, tuple[int, ...]]] = []
    shape, chain = tuple(chunk_shape), list(codecs)
    while any(codec.name == "sharding_indexed" for codec in chain):
        at = next(i for i, codec in enumerate(chain) if codec.name in ARRAY_TO_BYTES)
        if chain[at].name != "sharding_indexed" or len(chain) > at + 1:
            raise UnsupportedFeatureError("shards are compressed as a whole")
        for codec in chain[:at]:
            if codec.name != "transpose":
                raise UnsupportedFeatureError(f"the codec {codec.name} stands before sharding")
            order = tuple(order[axis] for axis in codec.configuration["order"])
        levels.append((chain[at], order))
        inner = chain[at].configuration["chunk_shape"]
        shape = tuple(int(inner[order.index(axis)]) for axis in range(len(order)))
        chain = [Codec.from_json(document) for document in chain[at].configuration["codecs"]]
    front = (transpose_codec(order),) if levels and order != tuple(range(len(order))) else ()
    return Chain((*front, *chain), tuple(levels), shape)


@dataclass(frozen=True, eq=False)
class ChunkRanges:
    """Byte ranges of chunks or shards.

    Attributes
    ----------
    source
        int64 (n,), index into `sources`; -1 for a range of `inline`.
    offset, length
        int64 (n,), the byte range.
    coords
        int64 (n, ndim), first element along each axis.
    shape
        int64 (n, ndim), shape.
    inline
        Bytes that are in the metadata themselves.
    """

    sources: tuple[Source, ...]
    source: Int64Array
    offset: Int64Array
    length: Int64Array
    coords: Int64Array
    shape: Int64Array
    inline: bytes = b""

    def place(self, number: int) -> Place:
        """The place of one of them."""
        start = int(self.offset[number])
        url = self.sources[int(self.source[number])].url
        return Place(source=url, start=start, stop=start + int(self.length[number]))


def inner_ranges(
    files: ChunkFiles, shards: ChunkRanges, codec: Codec, order: tuple[int, ...]
) -> ChunkRanges:
    """The ranges of the chunks inside shards, by one request for each shard.

    Parameters
    ----------
    files
        Reads the indexes.
    codec
        Their ``sharding_indexed`` codec.
    order
        For each axis of the codec's chunk shape, the number of the array's axis.
    """
    inner: Int64Array = np.array(
        [codec.configuration["chunk_shape"][order.index(axis)] for axis in range(len(order))],
        np.int64,
    )
    index_codecs = tuple(Codec.from_json(e) for e in codec.configuration["index_codecs"])
    counts = shards.shape // inner
    size = np.prod(counts, axis=1) * 16 + _overhead(index_codecs)
    short = np.flatnonzero(shards.length < size)
    if len(short):
        raise SourceFormatError("shorter than its shard index", shards.place(int(short[0])))
    at_start = codec.configuration.get("index_location", "end") == "start"
    start = shards.offset + (0 if at_start else shards.length - size)
    sources = [shards.sources[number] for number in shards.source.tolist()]
    parts = read_each(files.pool, sources, start, size)
    contents = [
        _entries(shards, number, data, tuple(counts[number].tolist()), index_codecs, order)
        for number, data in enumerate(parts)
    ]
    return _joined(shards, contents, inner)


def _overhead(codecs: Sequence[Codec]) -> int:
    unknown = [codec.name for codec in codecs if codec.name not in _INDEX_OVERHEAD]
    if unknown:
        raise UnsupportedFeatureError(f"shard indexes are encoded with {', '.join(unknown)}")
    return sum(_INDEX_OVERHEAD[codec.name] for codec in codecs)


def _entries(
    shards: ChunkRanges,
    number: int,
    data: bytes,
    counts: tuple[int, ...],
    codecs: tuple[Codec, ...],
    order: tuple[int, ...],
) -> tuple[Int64Array, Int64Array]:
    """Coords in the shard, and (offset, size), of the chunks that a shard holds."""
    stored = tuple(counts[axis] for axis in order)
    try:
        index = decode_chunk(data, Encoding((*stored, 2), np.dtype("u8"), codecs))
    except DecodeError as error:
        place = shards.place(number)
        raise SourceFormatError(f"bad shard index: {error.reason}", place) from error
    entries = index.transpose((*np.argsort(order), len(order))).reshape(math.prod(counts), 2)
    missing = entries == MISSING_CHUNK
    one_sided = missing[:, 0] != missing[:, 1]
    held = np.flatnonzero(~missing[:, 0] & ~missing[:, 1])
    limit = np.uint64(shards.length[number])
    offset, size = entries[held, 0], entries[held, 1]
    outside = (offset > limit) | (size > limit) | (size > limit - np.minimum(offset, limit))
    if one_sided.any() or outside.any():
        fault = "marks a chunk missing on one side" if one_sided.any() else "points outside of it"
        raise SourceFormatError(f"the shard's index {fault}", shards.place(number))
    # numpy unravels nothing into no dimensions.
    coords = (
        np.stack(np.unravel_index(held, counts), axis=1) if counts else np.empty((len(held), 0))
    )
    ranges = np.stack([offset, size], axis=1).astype(np.int64)
    return coords.astype(np.int64), ranges


def _joined(
    shards: ChunkRanges, contents: list[tuple[Int64Array, Int64Array]], inner: Int64Array
) -> ChunkRanges:
    ndim = len(inner)
    owner = np.repeat(np.arange(len(contents)), [len(coords) for coords, _ in contents])
    coords: Int64Array = np.concatenate(
        [np.zeros((0, ndim), np.int64), *(coords for coords, _ in contents)]
    )
    ranges = np.concatenate([np.zeros((0, 2), np.int64), *(ranges for _, ranges in contents)])
    return ChunkRanges(
        shards.sources,
        shards.source[owner],
        shards.offset[owner] + ranges[:, 0],
        ranges[:, 1],
        shards.coords[owner] + coords * inner,
        np.repeat(inner[np.newaxis], len(owner), axis=0),
    )


# Zarr v2 array metadata as that of v3


_BYTES_FILTERS = {"shuffle", "fletcher32", "zlib", "gzip", "zstd", "blosc", "lz4", "bz2", "lzma"}
_BYTES_FILTERS |= {"crc32", "crc32c", "adler32", "jenkins_lookup3"}
_BYTES_FILTERS.add("grib")  # kerchunk's, which asks eccodes
ARRAY_FILTERS = {
    "delta": ("dtype", "astype"),
    "fixedscaleoffset": ("dtype", "astype"),
    "quantize": ("dtype", "astype"),
    "astype": ("decode_dtype", "encode_dtype"),
    "bitround": (),
    "packbits": (),
}
"""Filters of arrays: the names of their input and output dtypes."""


def array_metadata_v2(document: Mapping[str, Any], attrs: Mapping[str, Any]) -> ArrayMetadata:
    """The content of ``.zarray`` and ``.zattrs`` in the form of v3.

    The dtype may be a datetime64 or timedelta64. The fill value, if there is one, also becomes the
    attribute ``_FillValue``, as xarray does for a v2 array.
    """
    if document.get("zarr_format") != 2:
        raise SourceFormatError(f"zarr_format {document.get('zarr_format')!r} in a .zarray")
    try:
        shape, chunks = integers_of(document["shape"]), integers_of(document["chunks"])
        filters = list(document.get("filters") or [])
        stored = _dtype(document["dtype"], filters)
        check_element_size(stored)
        order = document["order"]
        if order not in ("C", "F"):
            raise ValueError(f"the order {order!r:.80}")
        codecs = _codecs(stored, filters, document.get("compressor"), order, len(shape))
        dtype = stored.newbyteorder("=") if stored.kind != "T" else stored
        rest = dict(attrs)
        dims = rest.pop("_ARRAY_DIMENSIONS", None)
        fill = _fill_value(document.get("fill_value"), stored)
        # An empty text, which zarr-python writes unasked, stays a text.
        is_stated = document.get("fill_value") is not None and dtype.kind in "biufc"
        if is_stated or (dtype.kind in "UT" and str(fill)):
            rest.setdefault("_FillValue", fill)
        separator = document.get("dimension_separator") or "."
        check_separator(separator)
        # Arrays without elements may have chunks of no length.
        grid = ChunkGrid.regular(shape, [length or 1 for length in chunks])
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise SourceFormatError(f"bad Zarr v2 array metadata: {error!r}") from error
    names = None if dims is None else tuple(dims)
    return ArrayMetadata(dtype, grid, codecs, fill, names, rest, separator, "")


def _dtype(declared: Any, filters: list[Any]) -> np.dtype[Any]:
    if isinstance(declared, list):
        fields: Any = [(field[0], *map(_hashable, field[1:])) for field in declared]
        structure: np.dtype[Any] = np.dtype(fields)
        return structure
    dtype: np.dtype[Any] = np.dtype(declared)
    if dtype.kind != "O":
        return dtype
    if filters and filters[0]["id"] == "vlen-utf8":
        return np.dtype(np.dtypes.StringDType())
    ids = [codec["id"] for codec in filters]
    raise UnsupportedFeatureError(f"Python objects, encoded by the filters {ids}, are not read")


def _hashable(part: Any) -> Any:
    if isinstance(part, list) and part and isinstance(part[0], list):
        return [(field[0], *map(_hashable, field[1:])) for field in part]
    return tuple(part) if isinstance(part, list) else part


def _codecs(
    dtype: np.dtype[Any], filters: list[Any], compressor: Any, order: str, ndim: int
) -> tuple[Codec, ...]:
    chain = [transpose_codec(tuple(range(ndim))[::-1])] if order == "F" and ndim > 1 else []
    behind = [*filters, *([compressor] if compressor else [])]
    if dtype.kind == "T":
        chain.append(Codec("vlen-utf8"))
        behind = behind[1:]
    else:
        while behind and behind[0]["id"] in ARRAY_FILTERS:
            codec, dtype = _array_codec(behind.pop(0), dtype)
            chain.append(codec)
        chain.append(bytes_codec(dtype, big_endian=_is_big_endian(dtype)))
    return (*chain, *(_bytes_codec(document, dtype) for document in behind))


def _array_codec(document: Mapping[str, Any], dtype: np.dtype[Any]) -> tuple[Codec, np.dtype[Any]]:
    """The v3 name of a filter that works on arrays, and its output dtype."""
    settings = {key: value for key, value in document.items() if key != "id"}
    name = str(document["id"])
    codec = Codec.of(f"numcodecs.{name}", **settings)
    if name == "packbits":
        return codec, np.dtype(np.uint8)
    if not ARRAY_FILTERS[name]:
        return codec, dtype
    taken, made = ARRAY_FILTERS[name]
    if np.dtype(settings[taken]) != dtype:
        raise UnsupportedFeatureError(
            f"the filter {name} of {settings[taken]} stands behind {dtype}"
        )
    return codec, np.dtype(settings.get(made) or settings[taken])


def _is_big_endian(dtype: np.dtype[Any]) -> bool:
    if dtype.names is None or dtype.fields is None:
        return dtype.subdtype[0].str[0] == ">" if dtype.subdtype else dtype.str[0] == ">"
    members = [dtype.fields[name][0] for name in dtype.names]
    orders = {_is_big_endian(m) for m in members if m.base.itemsize > 1 and m.base.kind != "S"}
    if len(orders) > 1:
        raise UnsupportedFeatureError("fields of both byte orders in one data type are not read")
    return orders == {True}


def _bytes_codec(document: Mapping[str, Any], dtype: np.dtype[Any]) -> Codec:
    """The v3 name of a filter or compressor that works on bytes."""
    settings = {key: value for key, value in document.items() if key != "id"}
    name = str(document["id"])
    if name == "gzip":
        return Codec.of("gzip", level=settings.get("level", 1))
    if name == "zstd":
        return Codec.of(
            "zstd", level=settings.get("level", 0), checksum=settings.get("checksum", False)
        )
    if name == "blosc":
        shuffle = settings.get("shuffle", 1)
        if shuffle == -1:
            shuffle = 2 if dtype.itemsize == 1 else 1
        names = {"cname": "lz4", "clevel": 5, "blocksize": 0}
        given = {name: settings.get(name, default) for name, default in names.items()}
        return blosc_codec(**given, shuffle=shuffle, typesize=dtype.itemsize)
    if name not in _BYTES_FILTERS:
        raise UnsupportedFeatureError(f"the filter {name} is not read")
    return Codec.of(f"numcodecs.{name}", **settings)


def _fill_value(document: Any, stored: np.dtype[Any]) -> Any:
    """The fill value; null, which leaves it undefined, becomes zero or NaT as in zarr-python."""
    if stored.kind == "T":
        return "" if document in (None, 0) else str(document)
    dtype = stored.newbyteorder("=")
    if dtype.kind in "mM":
        count = np.iinfo(np.int64).min if document in (None, "NaT") else int(document)
        return np.asarray(count, np.int64).view(dtype)[()]
    if document is None:
        return zero_of(dtype)
    if dtype.kind in "SV":
        raw = base64.standard_b64decode(document) if isinstance(document, str) else b""
        if dtype.kind == "S":
            return np.asarray(raw, dtype)[()]
        return np.frombuffer(raw.ljust(dtype.itemsize, b"\0"), stored).astype(dtype)[0]
    if dtype.kind == "c" and isinstance(document, list):
        return dtype.type(complex(float(document[0]), float(document[1])))
    if dtype.kind == "f" and isinstance(document, str):
        return dtype.type(float(document))
    return scalar_of(document, dtype)
