"""``gridref.json``: all of a catalog but its rows. Specified in ``docs/catalog-format.md``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from gridref.catalog.damage import refusing_damage
from gridref.catalog.values import (
    attributes_from_json,
    dtype_from_json,
    dtype_to_json,
    encoding_from_json,
    encoding_to_json,
    scalar_from_json,
    scalar_to_json,
    value_to_json,
)
from gridref.errors import (
    CatalogCorruptError,
    CatalogVersionError,
    GridrefError,
    InvalidRequestError,
    Place,
)
from gridref.model.array import VirtualArray
from gridref.model.encoding import Encoding
from gridref.model.enumeration import Enumeration
from gridref.model.grid import ChunkGrid, GridAxis

__all__ = [
    "FORMAT_NAME",
    "FORMAT_VERSIONS",
    "ROOT_FILE",
    "ArrayEntry",
    "CatalogDocument",
    "ChunkCounts",
    "GroupEntry",
    "Interned",
    "RowRange",
    "TableEntry",
    "array_entry",
]

ROOT_FILE = "gridref.json"
FORMAT_NAME = "gridref-catalog"
FORMAT_VERSIONS = (1,)
"""Format versions that can be read; the last one is written."""

type SourceUrls = Literal["absolute", "relative"]


def _check_counts(record: Any) -> None:
    """Refuse counts that are no counts: members called ``n_``, ``first_`` or ``_bytes``."""
    for name, value in vars(record).items():
        counts = name.startswith(("n_", "first_")) or name.endswith("_bytes")
        if counts and (type(value) is not int or not 0 <= value < 2**63):
            raise ValueError(f"{name} is {value!r}")


@dataclass(frozen=True)
class TableEntry:
    """One Parquet file: its name in the catalog, number of rows, size and SHA-256."""

    file: str
    n_rows: int
    n_bytes: int
    sha256: str

    def __post_init__(self) -> None:
        if not isinstance(self.file, str) or not isinstance(self.sha256, str):
            raise ValueError(f"a table is called {self.file!r}, and its hash {self.sha256!r}")
        _check_counts(self)


@dataclass(frozen=True)
class RowRange:
    """Rows of a table that belong to one array."""

    first_row: int
    n_rows: int

    def __post_init__(self) -> None:
        _check_counts(self)


@dataclass(frozen=True)
class ChunkCounts:
    """What the chunk rows of an array are: counts by state, bytes in files and inline."""

    n_ranges: int = 0
    n_inline: int = 0
    n_missing: int = 0
    stored_bytes: int = 0
    has_filter_masks: bool = False

    def __post_init__(self) -> None:
        _check_counts(self)


@dataclass(frozen=True)
class ArrayEntry:
    """An array: members as in its JSON form, axes and encodings by number."""

    document: Mapping[str, Any]
    blocks: RowRange
    chunks: RowRange
    counts: ChunkCounts

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            **self.document,
            "blocks": asdict(self.blocks),
            "chunks": {**asdict(self.chunks), **asdict(self.counts)},
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> ArrayEntry:
        """Read the JSON form."""
        rest = {name: value for name, value in document.items() if name not in ("blocks", "chunks")}
        chunks = dict(document["chunks"])
        rows = RowRange(int(chunks.pop("first_row")), int(chunks.pop("n_rows")))
        return cls(rest, RowRange(**document["blocks"]), rows, ChunkCounts(**chunks))

    def parts(self, shared: Interned) -> dict[str, Any]:
        """What a `VirtualArray` is made of, but its manifests and blocks."""
        dtype = dtype_from_json(self.document["data_type"])
        grid = ChunkGrid(tuple(shared.axes[i] for i in self.document["axes"]))
        if list(grid.shape) != self.document["shape"]:
            raise ValueError(f"axes of {grid.shape} for the shape {self.document['shape']}")
        return {
            "grid": grid,
            "dtype": dtype,
            "fill_value": scalar_from_json(self.document["fill_value"], dtype),
            "dims": tuple(self.document["dimension_names"]),
            "attrs": attributes_from_json(self.document["attributes"]),
            "encodings": tuple(shared.encodings[i] for i in self.document["encodings"]),
            "enumeration": _enumeration_from_json(self.document.get("enumeration")),
        }


@dataclass(frozen=True)
class GroupEntry:
    """A group: its attributes, what is in it by name, and its dimensions that may grow."""

    attrs: Mapping[str, Any]
    groups: Mapping[str, GroupEntry]
    arrays: Mapping[str, ArrayEntry]
    unlimited_dims: frozenset[str] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        unlimited = sorted(self.unlimited_dims)
        return {
            "node_type": "group",
            "attributes": self.attrs,
            **({"unlimited_dims": unlimited} if unlimited else {}),
            "arrays": {name: array.to_json() for name, array in self.arrays.items()},
            "groups": {name: group.to_json() for name, group in self.groups.items()},
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> GroupEntry:
        """Read the JSON form."""
        return cls(
            document["attributes"],
            {name: cls.from_json(group) for name, group in document["groups"].items()},
            {name: ArrayEntry.from_json(array) for name, array in document["arrays"].items()},
            frozenset(map(str, document.get("unlimited_dims", ()))),
        )


@dataclass
class Interned:
    """Axes and encodings that arrays refer to by number, each kept once."""

    axes: list[GridAxis] = field(default_factory=list)
    encodings: list[Encoding] = field(default_factory=list)
    _axis_numbers: dict[GridAxis, int] = field(default_factory=dict)
    _encoding_numbers: dict[Encoding, int] = field(default_factory=dict)

    def axis(self, axis: GridAxis) -> int:
        """Number of an axis, added if it is new."""
        if axis not in self._axis_numbers:
            self._axis_numbers[axis] = len(self.axes)
            self.axes.append(axis)
        return self._axis_numbers[axis]

    def encoding(self, encoding: Encoding) -> int:
        """Number of an encoding, added if it is new."""
        if encoding not in self._encoding_numbers:
            self._encoding_numbers[encoding] = len(self.encodings)
            self.encodings.append(encoding)
        return self._encoding_numbers[encoding]

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "axes": [{"extent": axis.extent, "edges": axis.to_json()} for axis in self.axes],
            "encodings": [encoding_to_json(encoding) for encoding in self.encodings],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Interned:
        """Read the JSON form."""
        return cls(
            [GridAxis.from_json(axis["edges"], axis["extent"]) for axis in document["axes"]],
            [encoding_from_json(encoding) for encoding in document["encodings"]],
        )


def array_entry(
    array: VirtualArray,
    path: str,
    shared: Interned,
    blocks: RowRange,
    chunks: RowRange,
    counts: ChunkCounts,
) -> ArrayEntry:
    """Describe an array, adding its axes and encodings to `shared`.

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
    return ArrayEntry(document, blocks, chunks, counts)


def _enumeration_to_json(enumeration: Enumeration | None) -> dict[str, Any]:
    if enumeration is None:
        return {}
    members = [list(member) for member in enumeration.members]
    return {"enumeration": {"name": enumeration.name, "members": members}}


def _enumeration_from_json(document: Mapping[str, Any] | None) -> Enumeration | None:
    if document is None:
        return None
    members = tuple((str(name), int(value)) for name, value in document["members"])
    return Enumeration(str(document["name"]), members)


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


@dataclass(frozen=True)
class CatalogDocument:
    """The whole of ``gridref.json``.

    Attributes
    ----------
    root
        The tree of groups and arrays.
    shared
        Axes and encodings.
    tables
        The tables ``sources``, ``blocks`` and ``chunks``.
    source_urls
        Whether URLs of sources are stored relative to the catalog where possible.
    created_by
        Name and version of the writer.
    extra
        JSON values of the application's own.
    format_version
        Version of the format that it is written in.
    """

    root: GroupEntry
    shared: Interned
    tables: Mapping[str, TableEntry]
    source_urls: SourceUrls
    created_by: str
    extra: Mapping[str, Any]
    format_version: int = FORMAT_VERSIONS[-1]

    @property
    def digest(self) -> str:
        """SHA-256 of the content: tables and descriptions, whatever the files are called."""
        content = {
            **self._content(),
            "tables": {name: table.sha256 for name, table in self.tables.items()},
        }
        return _digest(content)

    def _content(self) -> dict[str, Any]:
        return {
            "source_urls": self.source_urls,
            "extra": self.extra,
            **self.shared.to_json(),
            "root": self.root.to_json(),
        }

    def to_bytes(self) -> bytes:
        """The bytes of ``gridref.json``."""
        return (
            _dump(
                {
                    "format": FORMAT_NAME,
                    "format_version": self.format_version,
                    "created_by": self.created_by,
                    "digest": self.digest,
                    "tables": {name: asdict(table) for name, table in self.tables.items()},
                    **self._content(),
                }
            )
            + b"\n"
        )

    @classmethod
    def from_bytes(cls, content: bytes, address: str) -> tuple[CatalogDocument, str]:
        """Read the file: the document, and the digest it states.

        Raises
        ------
        CatalogVersionError
            For a format version that is not known.
        CatalogCorruptError
            For anything else that is wrong.
        """
        place = Place(source=address)
        document = _parse(content, place)
        with refusing_damage("the catalog's description", place):
            if _stated_digest(document) != document["digest"]:
                raise ValueError("its content is not that of its digest")
            catalog = cls(
                GroupEntry.from_json(document["root"]),
                Interned.from_json(document),
                {name: TableEntry(**table) for name, table in document["tables"].items()},
                document["source_urls"],
                document["created_by"],
                document["extra"],
                document["format_version"],
            )
            missing = {"sources", "blocks", "chunks"} - set(catalog.tables)
            if missing:
                raise ValueError(f"no table {', '.join(sorted(missing))}")
            return catalog, str(document["digest"])


def _stated_digest(document: Mapping[str, Any]) -> str:
    """The digest of a root file, out of what stands in it."""
    members = ("source_urls", "extra", "axes", "encodings", "root")
    described = {name: document.get(name) for name in members}
    tables = {name: table["sha256"] for name, table in document["tables"].items()}
    return _digest({**described, "tables": tables})


def _digest(content: Mapping[str, Any]) -> str:
    return f"sha256:{hashlib.sha256(_dump(content)).hexdigest()}"


def _parse(content: bytes, place: Place) -> dict[str, Any]:
    """The JSON object, of a known format version."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError, MemoryError) as error:
        raise CatalogCorruptError(
            f"the catalog's description is not JSON, or cut ({error}): build the catalog again",
            place,
        ) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT_NAME:
        raise CatalogCorruptError(
            f'not the description of a catalog: its "format" is not "{FORMAT_NAME}"', place
        )
    version = document.get("format_version")
    if type(version) is not int or version not in FORMAT_VERSIONS:
        known = ", ".join(map(str, FORMAT_VERSIONS))
        raise CatalogVersionError(
            f"catalog of format version {version!r}, written by {document.get('created_by')!r};"
            f" this gridref knows version {known}. Install the gridref that wrote it, or rebuild",
            place,
        )
    return document


def _dump(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, allow_nan=False, separators=(",", ":"), sort_keys=False).encode()
