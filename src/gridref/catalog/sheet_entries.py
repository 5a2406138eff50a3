"""Entries of overlays and overviews in a catalog's description, and of the sheets they consist of.

A sheet is what one call wrote of a box of an array: real Zarr v3 arrays, in a folder of its own.
Their stored chunks are the rows of a part of the sheet's own, which no array of the catalog counts
into. Overlays and overviews are lists of sheets with a coverage, which counts in elements of the
array.

A sheet of an overlay is one Zarr v3 array: another layout of the same elements. An overview is an
array at some coarser levels: its sheets have a Zarr v3 array for each level, in folders ``1``,
``2``, ... of one folder. The JSON form is specified in ``docs/catalog-features.md``.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self

from gridref.catalog.entries import ArrayEntry, PartEntry
from gridref.catalog.values import UNLESS_EMPTY
from gridref.model.encoding import Encoding
from gridref.model.grid import ChunkGrid
from gridref.model.overlay import (
    Coords,
    Cover,
    common,
    cover_of_level,
    factors_of,
    is_covered,
    level_shape,
    paths_of_levels,
)

# Sheets, and what consists of them

MOST_COVERS = 64
"""Most boxes of an overlay that complete sheets cover, and most of other sheets.

If there are more, the smallest ones are dropped."""
INSIDE = "overlays"
"""The folder of overlays in a catalog, unless another one is asked for."""
NAMES = re.compile(r"[0-9a-f]{16}")
"""Names of overlays, and of sheets."""


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """What one call wrote of a box of an array.

    Attributes
    ----------
    name
        Its folder, below that of its overlay or overview.
    shape
        Shape of the box.
    content
        Hash of the array's content when it was begun: the same call then continues it.
    part
        Tables of its chunks; None while it is being written.
    prefixes
        Beginnings of the addresses of its shards, which the tables count into.
    n_objects, stored_bytes
        Number of shards, and stored size of their chunks.

    Raises
    ------
    ValueError
        For shapes of different ranks, or tables that contradict them.
    """

    name: str
    shape: Coords
    content: str
    part: PartEntry | None = None
    prefixes: tuple[str, ...] = ()
    n_objects: int = 0
    stored_bytes: int = 0

    @property
    def stored(self) -> Iterable[tuple[Coords, Encoding]]:
        """Shape of the shards, and encoding of the chunks, of each of its arrays."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        shards = [n for lengths, _ in self.stored for n in lengths]
        numbers = (*self.shape, *shards, self.n_objects, self.stored_bytes)
        if 0 in shards or max(numbers) >= 2**62:
            raise ValueError(f"a sheet is {self!r}")
        ranks = {rank for each, encoding in self.stored for rank in (len(each), encoding.ndim)}
        if ranks != {len(self.shape)}:
            raise ValueError(f"a sheet of shape {self.shape} with arrays of rank {ranks}")
        if not NAMES.fullmatch(self.name):
            raise ValueError(f"a sheet is called {self.name!r}")
        if self.part is not None and self.part.checksums is None and self.n_objects:
            raise ValueError("a sheet without checksums")


@dataclass(frozen=True, kw_only=True)
class Covering[S: Sheet]:
    """Sheets, and which elements of an array they are made of.

    Attributes
    ----------
    id
        Its name: no other one ever has it.
    array
        Path of the array.
    to
        The folder of its sheets, absolute or relative to the catalog.
    codec
        Name of the codec that was asked for.
    sheets, coverage
        What it holds, and where. The boxes of a sheet that is still being written may overlap
        others: they are not read yet.

    Raises
    ------
    ValueError
        For boxes that overlap or reach beyond their sheet, or too many of anything.
    """

    id: str
    array: str
    to: str
    codec: str
    sheets: tuple[S, ...] = ()
    coverage: tuple[Cover, ...] = ()

    @property
    def ndim(self) -> int:
        """Rank of the array."""
        raise NotImplementedError

    def __post_init__(self) -> None:
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

    @property
    def written_size(self) -> tuple[int, int]:
        """Number of shards of sheets that are complete, and stored size of their chunks."""
        complete = [sheet for sheet in self.sheets if sheet.part is not None]
        return sum(s.n_objects for s in complete), sum(s.stored_bytes for s in complete)

    @property
    def is_unfinished(self) -> bool:
        """Whether a sheet was begun and is not finished."""
        return any(sheet.part is None for sheet in self.sheets)

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
        """The same with the largest boxes of another coverage, without unused sheets."""
        complete: list[Cover] = []
        begun: list[Cover] = []
        for cover in sorted(coverage, key=lambda cover: -cover.n_elements):
            (begun if self.sheets[cover.sheet].part is None else complete).append(cover)
        largest = [*complete[:MOST_COVERS], *begun[:MOST_COVERS]]
        kept = sorted(largest, key=lambda cover: (cover.sheet, cover.start))
        used = sorted({cover.sheet for cover in kept})
        sheets = tuple(self.sheets[number] for number in used)
        renumbered = tuple(replace(each, sheet=used.index(each.sheet)) for each in kept)
        return replace(self, sheets=sheets, coverage=renumbered)


def check_entries(
    entries: Iterable[Covering[Any]], arrays: Mapping[str, ArrayEntry], most: int
) -> None:
    """Refuse overlays or overviews that contradict each other or the arrays of a snapshot.

    Raises
    ------
    ValueError
        If there are more than `most`, two of one name, or some without their array.
    """
    every = list(entries)
    if len(every) > most or len({each.id for each in every}) < len(every):
        raise ValueError(f"{len(every)} overlays or overviews, or two of one name")
    for each in every:
        if each.array not in arrays:
            raise ValueError(f"an overlay of {each.array!r}, which is not there")
        each.check_array(arrays[each.array])


# Overlays

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
    copies: Mapping[str, bytes] = field(default_factory=dict, metadata=UNLESS_EMPTY)

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

    sheets: tuple[SheetEntry, ...] = ()
    chunks: tuple[Annotated[int, -1], ...]
    where: Where

    def __post_init__(self) -> None:
        for label in itertools.chain.from_iterable(self.where.values()):
            if not isinstance(label, str | int | float | None):
                raise ValueError(f"a label of an overlay is {label!r}")
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


# Overviews

MOST_OVERVIEWS = 4096
"""Overviews of a catalog."""
MOST_LEVELS = 16
"""Levels of an overview."""
MOST_FACTOR = 64
"""How much coarser the first level may be."""
MOST_WINDOW = 2**24
"""Elements that an element of the coarsest level may be made of: sums of more could overflow."""


@dataclass(frozen=True)
class LevelEntry:
    """How a level of a sheet is stored.

    Attributes
    ----------
    shards
        Shape of its shards.
    encoding
        That of its chunks.
    """

    shards: Coords
    encoding: Encoding


@dataclass(frozen=True, kw_only=True)
class LevelSheet(Sheet):
    """A sheet of an overview: some levels of a box of an array.

    Attributes
    ----------
    levels
        How its levels are stored, the finest first. Its part has the chunks of all of them.
    """

    levels: tuple[LevelEntry, ...]

    @property
    def stored(self) -> Iterable[tuple[Coords, Encoding]]:
        return [(level.shards, level.encoding) for level in self.levels]


@dataclass(frozen=True, kw_only=True)
class OverviewEntry(Covering[LevelSheet]):
    """An overview of an array, which has at most one.

    Its coverage gives the elements of the array that it is made from.

    Attributes
    ----------
    factors
        How much coarser each level is than the one before, along each dimension.
    n_levels
        Number of levels.
    method
        How elements are made.
    missing
        What was no value when it was made: `MissingValues.key`.
    """

    sheets: tuple[LevelSheet, ...] = ()
    factors: Coords
    n_levels: int
    method: str
    missing: str

    def __post_init__(self) -> None:
        known = all(1 <= n <= MOST_FACTOR for n in self.factors) and max(self.factors) > 1
        if not known or not 1 <= self.n_levels <= MOST_LEVELS:
            raise ValueError(f"an overview of {self.n_levels} levels by {self.factors!r}")
        if any(len(sheet.levels) != self.n_levels for sheet in self.sheets):
            raise ValueError("a sheet with other levels than its overview")
        super().__post_init__()

    @property
    def ndim(self) -> int:
        return len(self.factors)

    @property
    def paths(self) -> list[str]:
        """Where its levels are shown: ``overview_1/image``, ..."""
        return list(paths_of_levels(self.array, self.n_levels))

    def windows(self, level: int) -> Coords:
        """Lengths of the windows of a level."""
        return factors_of(self.factors, level)

    def level_covers(self, level: int, shape: Coords) -> tuple[Cover, ...]:
        """The elements of a level that it has of an array with a shape."""
        found = (
            cover_of_level(each, self.windows(level), shape, self.sheets[each.sheet].shape)
            for each in self.served
        )
        return tuple(cover for cover in found if cover is not None)

    def is_whole(self, shape: Coords) -> bool:
        """Whether it has all elements of all levels."""
        return all(
            is_covered(self.level_covers(level, shape), level_shape(shape, self.windows(level)))
            for level in range(1, self.n_levels + 1)
        )
