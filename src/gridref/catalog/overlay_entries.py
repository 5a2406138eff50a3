"""Entries of overlays in a catalog's description.

An overlay is a list of sheets and its coverage. A sheet is a Zarr v3 array that one call wrote, in
a folder of its own. Its stored chunks are the rows of a part of its own, which no array of the
catalog counts into. The JSON form is specified in ``docs/catalog-format.md``.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from gridref.catalog.entries import ArrayEntry, PartEntry
from gridref.catalog.values import encoding_from_json, encoding_to_json
from gridref.model.encoding import Encoding
from gridref.model.grid import ChunkGrid
from gridref.model.overlay import Coords, Cover, common

MOST_OVERLAYS = 256
"""Overlays of a catalog; `begun` refuses more."""
MOST_COVERS = 64
"""Boxes of an overlay by sheets that are complete, and as many of others.

Of more, the smallest ones are dropped."""
type Label = str | int | float | None
"""A label as JSON has it; None for no bound."""
type Where = Mapping[str, tuple[Label, Label]]
"""First and last label along some dimensions."""
INSIDE = "overlays"
"""The folder of overlays in a catalog, unless another one is asked for."""
COPIED = ("sources", "chunks", "checksums")
"""The tables of a sheet that reading takes, and that may be in the root file."""
NAMES = re.compile(r"[0-9a-f]{16}")
"""Names of overlays, and of sheets."""


@dataclass(frozen=True)
class SheetEntry:
    """A sheet: elements of an array that were written once.

    Attributes
    ----------
    name
        Its folder, below that of its overlay.
    shape, shards
        Shape of the sheet, and of its shards.
    encoding
        That of its chunks.
    content
        Hash of the array's content when it was begun: the same call then continues it.
    part
        Tables of its chunks; None while it is being written.
    prefixes
        Beginnings of the addresses of its shards, which the tables count into.
    n_objects, stored_bytes
        Number of shards, and stored size of its chunks.
    copies
        Content of its tables that are small, by kind, which spares readers requests for them.

    Raises
    ------
    ValueError
        For shapes of different ranks, tables of another number of chunks, or copies that differ.
    """

    name: str
    shape: Coords
    shards: Coords
    encoding: Encoding
    content: str
    part: PartEntry | None = None
    prefixes: tuple[str, ...] = ()
    n_objects: int = 0
    stored_bytes: int = 0
    copies: Mapping[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        numbers = (*self.shape, *self.shards, self.n_objects, self.stored_bytes)
        if not all(type(n) is int and 0 <= n < 2**62 for n in numbers) or 0 in self.shards:
            raise ValueError(f"a sheet is {self!r}")
        if len({len(self.shape), len(self.shards), self.encoding.ndim}) > 1:
            raise ValueError(f"a sheet of shape {self.shape} with shards of {self.shards}")
        if not NAMES.fullmatch(self.name):
            raise ValueError(f"a sheet is called {self.name!r}")
        part = self.part
        if part is not None and part.chunks.n_rows != self.grid.n_chunks:
            raise ValueError(f"{part.chunks.n_rows} rows of {self.grid.n_chunks} chunks")
        if part is not None and part.checksums is None and self.n_objects:
            raise ValueError("a sheet without checksums")
        for kind, content in self.copies.items():
            table = None if kind not in COPIED or part is None else getattr(part, kind)
            if table is None or hashlib.sha256(content).hexdigest() != table.sha256:
                raise ValueError(f"the copy of a table of {kind} is not the table")

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
            "name": self.name,
            "shape": list(self.shape),
            "shards": list(self.shards),
            "encoding": encoding_to_json(self.encoding),
            "content": self.content,
            "part": None if self.part is None else self.part.to_json(),
            "prefixes": list(self.prefixes),
            "n_objects": self.n_objects,
            "stored_bytes": self.stored_bytes,
            **({"copies": copies} if copies else {}),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SheetEntry:
        part = document["part"]
        return cls(
            str(document["name"]),
            tuple(document["shape"]),
            tuple(document["shards"]),
            encoding_from_json(document["encoding"]),
            str(document["content"]),
            None if part is None else PartEntry.from_json(part),
            tuple(map(str, document["prefixes"])),
            document["n_objects"],
            document["stored_bytes"],
            {
                str(kind): b64decode(content, validate=True)
                for kind, content in document.get("copies", {}).items()
            },
        )


class Covering:
    """What overlays and overviews share: sheets, and which elements of an array they are made of.

    Attributes
    ----------
    id
        Its name: no other one ever has it.
    array
        Path of the array.
    to
        The folder of its sheets, absolute or relative to the catalog.
    sheets, coverage
        What it holds, and where. The boxes of a sheet that is still being written may overlap
        others: they are not read yet.
    """

    id: str
    array: str
    to: str
    sheets: tuple[Any, ...]
    coverage: tuple[Cover, ...]

    @property
    def ndim(self) -> int:
        """Rank of the array."""
        raise NotImplementedError

    def check(self) -> None:
        """Refuse boxes that overlap or reach beyond their sheet, or too many of anything.

        Raises
        ------
        ValueError
            Saying which.
        """
        if not NAMES.fullmatch(self.id):
            raise ValueError(f"an overlay is called {self.id!r}")
        if len(self.coverage) > 2 * MOST_COVERS or len(self.sheets) > 2 * MOST_COVERS:
            raise ValueError(f"{len(self.coverage)} boxes of {len(self.sheets)} sheets")
        ranks = {self.ndim, *(len(sheet.shape) for sheet in self.sheets)}
        ranks |= {len(cover.start) for cover in self.coverage}
        if len(ranks) > 1:
            raise ValueError("an overlay of different ranks")
        for cover in self.coverage:
            if cover.sheet >= len(self.sheets):
                raise ValueError(f"a box of sheet {cover.sheet} of {len(self.sheets)}")
            stops = [high for _, high in cover.sheet_box]
            if any(a > b for a, b in zip(stops, self.sheets[cover.sheet].shape, strict=True)):
                raise ValueError(f"a box reaches beyond its sheet: {cover!r}")
        for one, other in itertools.combinations(self.served, 2):
            if common(one.box, other.box) is not None:
                raise ValueError(f"boxes of an overlay overlap: {one!r}, {other!r}")

    @property
    def served(self) -> tuple[Cover, ...]:
        """The coverage by sheets that are complete."""
        return tuple(c for c in self.coverage if self.sheets[c.sheet].part is not None)

    def check_array(self, entry: ArrayEntry) -> None:
        """Refuse boxes outside of the array.

        Raises
        ------
        ValueError
            If there are any.
        """
        shape = entry.document["shape"]
        if self.ndim != len(shape):
            raise ValueError(f"an overlay of rank {self.ndim} for the shape {shape}")
        for cover in self.coverage:
            if any(high > n for (_, high), n in zip(cover.box, shape, strict=True)):
                raise ValueError(f"an overlay reaches beyond its array: {cover!r}")

    def covering(self, coverage: Iterable[Cover]) -> Self:
        """The same with another coverage, of which the largest boxes stay; unused sheets go."""
        complete: list[Cover] = []
        begun: list[Cover] = []
        for cover in sorted(coverage, key=lambda cover: -cover.n_elements):
            (begun if self.sheets[cover.sheet].part is None else complete).append(cover)
        largest = [*complete[:MOST_COVERS], *begun[:MOST_COVERS]]
        kept = sorted(largest, key=lambda cover: (cover.sheet, cover.start))
        used = sorted({cover.sheet for cover in kept})
        sheets = tuple(self.sheets[number] for number in used)
        renumbered = tuple(replace(each, sheet=used.index(each.sheet)) for each in kept)
        own: Any = self
        changed: Self = replace(own, sheets=sheets, coverage=renumbered)
        return changed


@dataclass(frozen=True)
class OverlayEntry(Covering):
    """An overlay of an array.

    Attributes
    ----------
    id
        Its name: no other overlay ever has it.
    array
        Path of the array.
    to
        The folder of its sheets, absolute or relative to the catalog.
    chunks
        Chunk lengths that were asked for, along each dimension; -1 for all of it.
    where
        Bounds of the labels that were asked for, by dimension.
    codec
        Name of the codec that was asked for.
    sheets, coverage
        What it holds, and where.

    Raises
    ------
    ValueError
        For boxes that overlap or reach beyond their sheet, or too many of anything.
    """

    id: str
    array: str
    to: str
    chunks: Coords
    where: Where
    codec: str
    sheets: tuple[SheetEntry, ...] = ()
    coverage: tuple[Cover, ...] = ()

    def __post_init__(self) -> None:
        if not all(type(n) is int and n >= -1 for n in self.chunks):
            raise ValueError(f"an overlay with chunks of {self.chunks!r}")
        self.check()

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
        return {
            "id": self.id,
            "array": self.array,
            "to": self.to,
            "chunks": list(self.chunks),
            "where": {dim: list(bounds) for dim, bounds in self.where.items()},
            "codec": self.codec,
            "sheets": [sheet.to_json() for sheet in self.sheets],
            "coverage": [asdict(cover) for cover in self.coverage],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> OverlayEntry:
        return cls(
            str(document["id"]),
            str(document["array"]),
            str(document["to"]),
            tuple(document["chunks"]),
            {str(dim): _bounds(each) for dim, each in document["where"].items()},
            str(document["codec"]),
            tuple(map(SheetEntry.from_json, document["sheets"])),
            coverage_from_json(document["coverage"]),
        )


def coverage_from_json(document: Iterable[Any]) -> tuple[Cover, ...]:
    """Boxes from their JSON form."""
    return tuple(
        Cover(each["sheet"], tuple(each["first"]), tuple(each["start"]), tuple(each["shape"]))
        for each in document
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
    if len(overlays) > MOST_OVERLAYS or len({each.id for each in overlays}) < len(overlays):
        raise ValueError(f"{len(overlays)} overlays, or two of one name")
    for overlay in overlays:
        if overlay.array not in arrays:
            raise ValueError(f"an overlay of {overlay.array!r}, which is not there")
        overlay.check_array(arrays[overlay.array])
    return overlays
