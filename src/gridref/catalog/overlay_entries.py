"""Entries of overlays in a catalog's description: other layouts of elements of an array.

A sheet of an overlay is one Zarr v3 array. The JSON form is specified in
``docs/catalog-format.md``.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gridref.catalog.entries import ArrayEntry
from gridref.catalog.sheet_entries import Covering, Sheet, check_entries
from gridref.catalog.values import encoding_from_json, encoding_to_json
from gridref.model.encoding import Encoding
from gridref.model.grid import ChunkGrid
from gridref.model.overlay import Coords

MOST_OVERLAYS = 256
"""Overlays of a catalog; `begun` refuses more."""
type Label = str | int | float | None
"""A label as JSON has it; None for no bound."""
type Where = Mapping[str, tuple[Label, Label]]
"""First and last label along some dimensions."""
COPIED = ("sources", "chunks", "checksums")
"""The tables of a sheet that reading takes, and that may be in the root file."""


@dataclass(frozen=True, kw_only=True)
class SheetEntry(Sheet):
    """A sheet of an overlay: elements of an array that were written once.

    Attributes
    ----------
    shards
        Shape of its shards.
    encoding
        That of its chunks.
    copies
        Content of its tables that are small, by kind, which spares readers requests for them.

    Raises
    ------
    ValueError
        As a `Sheet`; also for tables of another number of chunks, or copies that differ.
    """

    shards: Coords
    encoding: Encoding
    copies: Mapping[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        part = self.part
        if part is not None and part.chunks.n_rows != self.grid.n_chunks:
            raise ValueError(f"{part.chunks.n_rows} rows of {self.grid.n_chunks} chunks")
        for kind, content in self.copies.items():
            table = None if kind not in COPIED or part is None else getattr(part, kind)
            if table is None or hashlib.sha256(content).hexdigest() != table.sha256:
                raise ValueError(f"the copy of a table of {kind} is not the table")

    @property
    def stored(self) -> Iterable[tuple[Coords, Encoding]]:
        return ((self.shards, self.encoding),)

    @property
    def chunks(self) -> Coords:
        """Shape of its chunks."""
        return self.encoding.chunk_shape

    @property
    def held(self) -> dict[str, bytes]:
        """Content of tables by the names of their files."""
        return {getattr(self.part, kind).file: content for kind, content in self.copies.items()}

    @property
    def grid(self) -> ChunkGrid:
        """Of its chunks."""
        return ChunkGrid.regular(self.shape, self.encoding.chunk_shape)

    def to_json(self) -> dict[str, Any]:
        copies = {kind: b64encode(each).decode() for kind, each in self.copies.items()}
        return {
            **super().to_json(),
            "shards": list(self.shards),
            "encoding": encoding_to_json(self.encoding),
            **({"copies": copies} if copies else {}),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SheetEntry:
        return cls.read(
            document,
            shards=tuple(document["shards"]),
            encoding=encoding_from_json(document["encoding"]),
            copies={
                str(kind): b64decode(content, validate=True)
                for kind, content in document.get("copies", {}).items()
            },
        )


@dataclass(frozen=True, kw_only=True)
class OverlayEntry(Covering[SheetEntry]):
    """An overlay of an array.

    Attributes
    ----------
    chunks
        Chunk lengths that were asked for, along each dimension; -1 for all of it.
    where
        Bounds of the labels that were asked for, by dimension.
    """

    chunks: Coords
    where: Where

    def __post_init__(self) -> None:
        if not all(type(n) is int and n >= -1 for n in self.chunks):
            raise ValueError(f"an overlay with chunks of {self.chunks!r}")
        super().__post_init__()

    @property
    def ndim(self) -> int:
        return len(self.chunks)

    @property
    def former(self) -> OverlayEntry:
        """As former snapshots have it, which are seldom read: without copies of tables."""
        return replace(self, sheets=tuple(replace(sheet, copies={}) for sheet in self.sheets))

    def with_copies(self, known: Mapping[str, SheetEntry]) -> OverlayEntry:
        """With the copies of tables that sheets of the same names and tables have."""
        found = ((sheet, known.get(sheet.name, sheet)) for sheet in self.sheets)
        return replace(
            self,
            sheets=tuple(
                replace(sheet, copies=other.copies) if other.part == sheet.part else sheet
                for sheet, other in found
            ),
        )

    def to_json(self) -> dict[str, Any]:
        where = {dim: list(bounds) for dim, bounds in self.where.items()}
        return {**super().to_json(), "chunks": list(self.chunks), "where": where}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> OverlayEntry:
        return cls.read(
            document,
            chunks=tuple(document["chunks"]),
            where={str(dim): _bounds(each) for dim, each in document["where"].items()},
            sheets=tuple(map(SheetEntry.from_json, document["sheets"])),
        )


def _bounds(document: Any) -> tuple[Label, Label]:
    low, high = document
    if not all(isinstance(each, str | int | float | None) for each in (low, high)):
        raise ValueError(f"labels of an overlay are {document!r}")
    return low, high


def checked_overlays(
    document: Iterable[Any], arrays: Mapping[str, ArrayEntry]
) -> tuple[OverlayEntry, ...]:
    """Read the overlays of a snapshot from their JSON form.

    Raises
    ------
    ValueError
        If anything of them contradicts itself or the arrays.
    """
    overlays = tuple(map(OverlayEntry.from_json, document))
    check_entries(overlays, arrays, MOST_OVERLAYS)
    return overlays
