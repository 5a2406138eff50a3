"""Entries of a catalog's description: segments, tables, parts, groups and arrays.

Every entry has a JSON form, which is specified in ``docs/catalog-format.md``. Values that arrays
share (axes, encodings, layouts) are kept once and referred to by number (`Interned`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gridref.catalog.values import (
    UNLESS_EMPTY,
    attributes_from_json,
    dtype_from_json,
    dtype_to_json,
    encoding_from_json,
    encoding_to_json,
    record_from_json,
    record_to_json,
    scalar_from_json,
    scalar_to_json,
    value_to_json,
)
from gridref.errors import GridrefError, InvalidRequestError, Place
from gridref.limits import MAX_GROUP_DEPTH
from gridref.model.array import Enumeration, VirtualArray, check_name, path_in
from gridref.model.encoding import Encoding
from gridref.model.grid import ChunkGrid, GridAxis, region_of

# Segments: rows of parts that hold the blocks of an array. Pure

type Layout = tuple[Segment, ...]
"""The blocks of an array: boxes of blocks of parts. Where there is none, blocks are missing."""

Coords = tuple[int, ...]


@dataclass(frozen=True)
class Segment:
    """A box of an array's blocks in a part, and its place in the array.

    Attributes
    ----------
    part
        Number of the part.
    first
        Its first block among those that the part holds of the array.
    start
        Its first block among those of the array.
    shape
        Number of blocks along each dimension.

    Raises
    ------
    ValueError
        For numbers that are none, or ranks that differ.
    """

    part: int
    first: Coords
    start: Coords
    shape: Coords

    def __post_init__(self) -> None:
        numbers = (self.part, *self.first, *self.start, *self.shape)
        ranks = {len(self.first), len(self.start), len(self.shape)}
        if len(ranks) > 1 or not all(type(n) is int and 0 <= n < 2**31 for n in numbers):
            raise ValueError(f"a segment is {self!r}")

    @property
    def n_blocks(self) -> int:
        return math.prod(self.shape)

    @property
    def source_box(self) -> tuple[slice, ...]:
        """Its blocks among those of the part."""
        return region_of(self.first, self.shape)

    @property
    def box(self) -> tuple[slice, ...]:
        """Its blocks among those of the array."""
        return region_of(self.start, self.shape)

    def check_inside(self, source: Coords, target: Coords) -> None:
        """Refuse a box that reaches out of grids of so many blocks."""
        for first, grid in ((self.first, source), (self.start, target)):
            stops = [low + n for low, n in zip(first, self.shape, strict=True)]
            if any(stop > n for stop, n in zip(stops, grid, strict=True)):
                raise ValueError(f"blocks {first} and following of {grid}: {self.shape}")

    def through(self, layout: Layout) -> Layout:
        """The part of a layout in the box at `first`, moved to the place of this segment."""
        cut = (self._within(each) for each in layout)
        return tuple(segment for segment in cut if segment is not None)

    def _within(self, other: Segment) -> Segment | None:
        """The blocks of another segment that are among this one's source blocks."""
        spans = [
            (max(start, first), min(start + length, first + n))
            for start, length, first, n in zip(
                other.start, other.shape, self.first, self.shape, strict=True
            )
        ]
        if any(low >= high for low, high in spans):
            return None
        lows = [low for low, _ in spans]
        return Segment(
            other.part,
            _sum(other.first, lows, other.start),
            _sum(self.start, lows, self.first),
            tuple(high - low for low, high in spans),
        )

    def to_json(self) -> dict[str, Any]:
        first = {"first": list(self.first)} if any(self.first) else {}
        return {
            "part": self.part, **first, "start": list(self.start), "shape": list(self.shape)
        }  # fmt: skip

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Segment:
        start, shape = tuple(document["start"]), tuple(document["shape"])
        first = tuple(document.get("first", (0,) * len(start)))
        return cls(document["part"], first, start, shape)


def whole(part: int, grid_shape: Coords) -> Layout:
    """The layout of an array that is in one part."""
    zeros = (0,) * len(grid_shape)
    if 0 in grid_shape:
        return ()
    return (Segment(part, zeros, zeros, grid_shape),)


def _sum(origin: Coords, at: Sequence[int], less: Coords) -> Coords:
    """``origin + at - less``."""
    return tuple(o + a - b for o, a, b in zip(origin, at, less, strict=True))


# Tables, parts, groups and arrays, and what arrays share


def _extent(value: Any) -> int:
    """The length of a dimension; refuses numbers that only equal one, like 2.0."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"the extent of an axis is {value!r}")
    return value


def _check_items(name: str, items: Any, kind: type) -> None:
    """Refuse what is no list of texts, or of numbers that count from 0 on."""
    is_list = isinstance(items, list) and all(type(item) is kind for item in items)
    if not is_list or (kind is int and min(items, default=0) < 0):
        raise ValueError(f"{name} are {items!r}")


@dataclass(frozen=True)
class TableEntry:
    """One Parquet file: its name in the catalog, number of rows, size and SHA-256."""

    file: str
    n_rows: int
    n_bytes: int
    sha256: str


@dataclass(frozen=True)
class ArrayRows:
    """The rows of one array in a part.

    Attributes
    ----------
    grid_shape
        Its blocks, which are there in C order.
    first_block, first_chunk, n_chunks
        Rows of the tables of blocks and chunks.
    content
        Hash of these blocks; see `gridref.catalog.writing`.
    """

    grid_shape: tuple[int, ...]
    first_block: int
    first_chunk: int
    n_chunks: int
    counts: ChunkCounts
    content: str = ""

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return math.prod(self.grid_shape)

    def check_inside(self, n_blocks: int, n_chunks: int) -> None:
        """Refuse rows beyond tables of so many blocks and chunks."""
        ends = (self.first_block + self.n_blocks, self.first_chunk + self.n_chunks)
        if ends[0] > n_blocks or ends[1] > n_chunks:
            raise ValueError(f"rows up to {ends} of {n_blocks} blocks and {n_chunks} chunks")


@dataclass(frozen=True)
class PartEntry:
    """Tables that one commit wrote: rows of any arrays, which count into each other.

    Attributes
    ----------
    checksums
        The table of checksums of the chunks, if any were taken.
    statistics
        What is known of the values in the chunks, row by row; None for nothing.
    unused
        Numbers of sources that no array of the snapshot uses any more.

    Raises
    ------
    ValueError
        If there are not as many statistics as chunks.
    """

    sources: TableEntry
    blocks: TableEntry
    chunks: TableEntry
    checksums: TableEntry | None = field(default=None, metadata=UNLESS_EMPTY)
    statistics: TableEntry | None = field(default=None, metadata=UNLESS_EMPTY)
    unused: tuple[int, ...] = field(default=(), metadata=UNLESS_EMPTY)

    def __post_init__(self) -> None:
        if self.statistics is not None and self.statistics.n_rows != self.chunks.n_rows:
            raise ValueError(f"{self.statistics.n_rows} statistics of {self.chunks.n_rows} chunks")

    @property
    def optional(self) -> dict[str, TableEntry]:
        """Those tables that not every part has, by name."""
        found = {name: getattr(self, name) for name in _OPTIONAL_TABLES}
        return {name: table for name, table in found.items() if table is not None}

    @property
    def tables(self) -> tuple[TableEntry, ...]:
        """Its tables: of sources, blocks and chunks, and others if there are any."""
        return self.sources, self.blocks, self.chunks, *self.optional.values()


_OPTIONAL_TABLES = ("checksums", "statistics")


@dataclass(frozen=True)
class ChunkCounts:
    """What the chunk rows of an array are: counts by state, bytes in files and inline."""

    n_ranges: int = 0
    n_inline: int = 0
    n_missing: int = 0
    stored_bytes: int = 0
    has_filter_masks: bool = False

    @property
    def n_chunks(self) -> int:
        """All of them."""
        return self.n_ranges + self.n_inline + self.n_missing

    def plus(self, other: ChunkCounts) -> ChunkCounts:
        """The counts of both."""
        return ChunkCounts(
            self.n_ranges + other.n_ranges,
            self.n_inline + other.n_inline,
            self.n_missing + other.n_missing,
            self.stored_bytes + other.stored_bytes,
            self.has_filter_masks or other.has_filter_masks,
        )


@dataclass(frozen=True)
class ArrayEntry:
    """An array: members as in its JSON form; axes, encodings and layout by number.

    Attributes
    ----------
    document
        Its description, as in a Zarr v3 ``zarr.json``, with numbers of axes and encodings.
    content
        Hash of its blocks and chunk rows; empty where the format knew none.

    Raises
    ------
    ValueError
        If a member is of another type than the format says.
    """

    document: Mapping[str, Any]
    layout: int
    counts: ChunkCounts
    content: str

    def __post_init__(self) -> None:
        for name in ("axes", "encodings"):
            _check_items(name, self.document[name], int)
        _check_items("dimension_names", self.document["dimension_names"], str)
        if not isinstance(self.document["attributes"], Mapping):
            raise ValueError(f"attributes are {self.document['attributes']!r}")

    def to_json(self) -> dict[str, Any]:
        own = {
            "layout": self.layout,
            "chunks": record_to_json(self.counts),
            "content": self.content,
        }
        return {**self.document, **own}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> ArrayEntry:
        own = ("layout", "chunks", "content")
        rest = {name: value for name, value in document.items() if name not in own}
        layout, counts = document["layout"], record_from_json(ChunkCounts, document["chunks"])
        if type(layout) is not int or layout < 0:
            raise ValueError(f"layout is {layout!r}")
        return cls(rest, layout, counts, str(document["content"]))

    def described(self, shared: Interned) -> dict[str, Any]:
        """What a `VirtualArray` is made of, but its manifests and blocks."""
        dtype = dtype_from_json(self.document["data_type"])
        grid = shared.grid(self.document["axes"])
        if list(grid.shape) != self.document["shape"]:
            raise ValueError(f"axes of {grid.shape} for the shape {self.document['shape']}")
        return {
            "grid": grid,
            "dtype": dtype,
            "fill_value": scalar_from_json(self.document["fill_value"], dtype),
            "dims": tuple(self.document["dimension_names"]),
            "attrs": attributes_from_json(self.document["attributes"]),
            "encodings": shared.encodings_of(self.document["encodings"]),
            "enumeration": _enumeration_from_json(self.document.get("enumeration")),
        }


@dataclass(frozen=True)
class GroupEntry:
    """A group: its attributes, what is in it by name, and its dimensions that may grow."""

    attrs: Mapping[str, Any] = field(default_factory=dict)
    groups: Mapping[str, GroupEntry] = field(default_factory=dict)
    arrays: Mapping[str, ArrayEntry] = field(default_factory=dict)
    unlimited_dims: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for name in (*self.arrays, *self.groups):
            check_name(name)

    def all_arrays(self, path: str = "") -> dict[str, ArrayEntry]:
        """Every array at any depth by path, in the order of `VirtualGroup.all_arrays`."""
        found = {path_in(path, name): array for name, array in self.arrays.items()}
        for name, group in self.groups.items():
            found |= group.all_arrays(path_in(path, name))
        return found

    def to_json(self) -> dict[str, Any]:
        return {
            **self._own(),
            "arrays": {name: array.to_json() for name, array in self.arrays.items()},
            "groups": {name: group.to_json() for name, group in self.groups.items()},
        }

    def described(self) -> dict[str, Any]:
        """The tree of groups in JSON, with the names of arrays only."""
        groups = {name: group.described() for name, group in self.groups.items()}
        return {**self._own(), "arrays": list(self.arrays), "groups": groups}

    def _own(self) -> dict[str, Any]:
        unlimited = sorted(self.unlimited_dims)
        return {
            "node_type": "group",
            "attributes": self.attrs,
            **({"unlimited_dims": unlimited} if unlimited else {}),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any], depth: int = 0) -> GroupEntry:
        """Read the JSON form; `depth` is that of the group."""
        if depth > MAX_GROUP_DEPTH:
            raise ValueError(f"groups are nested more than {MAX_GROUP_DEPTH} deep")
        return cls(
            document["attributes"],
            {name: cls.from_json(below, depth + 1) for name, below in document["groups"].items()},
            {name: ArrayEntry.from_json(array) for name, array in document["arrays"].items()},
            frozenset(map(str, document.get("unlimited_dims", ()))),
        )


@dataclass
class Interned:
    """Axes, encodings and layouts that arrays refer to by number, each kept once."""

    axes: list[GridAxis] = field(default_factory=list)
    encodings: list[Encoding] = field(default_factory=list)
    layouts: list[Layout] = field(default_factory=list)
    _numbers: dict[Any, int] = field(default_factory=dict)
    _grids: dict[tuple[int, ...], ChunkGrid] = field(default_factory=dict)
    _together: dict[tuple[int, ...], tuple[Encoding, ...]] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        return Interned, (self.axes, self.encodings, self.layouts)

    def grid(self, axes: Sequence[int]) -> ChunkGrid:
        """The grid of some axes: one object for all arrays that have it."""
        grid = self._grids.get(tuple(axes))
        return grid or self._grids.setdefault(
            tuple(axes), ChunkGrid(tuple(self.axes[i] for i in axes))
        )

    def encodings_of(self, numbers: Sequence[int]) -> tuple[Encoding, ...]:
        """Some of the encodings: one tuple for all arrays that have these."""
        found = self._together.get(tuple(numbers))
        return found or self._together.setdefault(
            tuple(numbers), tuple(self.encodings[i] for i in numbers)
        )

    def check_numbers(self, entries: Iterable[ArrayEntry]) -> None:
        """Refuse numbers of what is not there."""
        for name, items in (("axes", self.axes), ("encodings", self.encodings)):
            used = {number for entry in entries for number in entry.document[name]}
            if max(used, default=-1) >= len(items):
                raise ValueError(f"there is not a number {max(used)} of {len(items)} {name}")

    def axis(self, axis: GridAxis) -> int:
        """Number of an axis, added if it is new."""
        return self._number(axis, self.axes)

    def encoding(self, encoding: Encoding) -> int:
        """Number of an encoding, added if it is new."""
        return self._number(encoding, self.encodings)

    def layout(self, layout: Layout) -> int:
        """Number of a layout, added if it is new."""
        return self._number(layout, self.layouts)

    def _number(self, item: Any, items: list[Any]) -> int:
        number = self._numbers.setdefault(item, len(items))
        if number == len(items):
            items.append(item)
        return number

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "axes": [{"extent": axis.extent, "edges": axis.to_json()} for axis in self.axes],
            "encodings": [encoding_to_json(encoding) for encoding in self.encodings],
            "layouts": [[segment.to_json() for segment in layout] for layout in self.layouts],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Interned:
        return cls(
            [
                GridAxis.from_json(axis["edges"], _extent(axis["extent"]))
                for axis in document["axes"]
            ],
            [encoding_from_json(encoding) for encoding in document["encodings"]],
            [tuple(map(Segment.from_json, layout)) for layout in document["layouts"]],
        )


def array_entry(
    array: VirtualArray,
    path: str,
    shared: Interned,
    layout: Layout,
    counts: ChunkCounts,
    content: str,
) -> ArrayEntry:
    """Describe an array, adding its axes, encodings and layout to `shared`.

    Raises
    ------
    InvalidRequestError
        For a dtype or attribute that a catalog cannot keep.
    """
    try:
        document = {
            "node_type": "array",
            "shape": list(array.shape),
            "data_type": dtype_to_json(array.dtype),
            "fill_value": scalar_to_json(array.fill_value, array.dtype),
            "dimension_names": list(array.dims),
            "attributes": attributes_to_json(array.attrs, path),
            "axes": [shared.axis(axis) for axis in array.grid.axes],
            "encodings": [shared.encoding(encoding) for encoding in array.encodings],
            **_enumeration_to_json(array.enumeration),
        }
    except GridrefError as error:
        raise error.located(Place(variable=path)) from None
    return ArrayEntry(document, shared.layout(layout), counts, content)


def _enumeration_to_json(enumeration: Enumeration | None) -> dict[str, Any]:
    if enumeration is None:
        return {}
    members = [list(member) for member in enumeration.members]
    flags = {"own_flags": True} if enumeration.own_flags else {}
    return {"enumeration": {"name": enumeration.name, "members": members, **flags}}


def _enumeration_from_json(document: Mapping[str, Any] | None) -> Enumeration | None:
    if document is None:
        return None
    members = tuple((str(name), int(value)) for name, value in document["members"])
    return Enumeration(str(document["name"]), members, document.get("own_flags", False))


def attributes_to_json(attrs: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The JSON form of attributes."""
    document = {}
    for name, value in attrs.items():
        try:
            document[str(name)] = value_to_json(value)
        except InvalidRequestError as error:
            raise InvalidRequestError(
                f"attribute {name!r}: {error.reason}", Place(variable=path)
            ) from error
    return document
