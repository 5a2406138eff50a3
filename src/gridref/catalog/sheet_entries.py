"""Entries of sheets in a catalog's description, and of what consists of them.

A sheet is what one call wrote of a box of an array: real Zarr v3 arrays, in a folder of its own.
Their stored chunks are the rows of a part of the sheet's own, which no array of the catalog counts
into. Overlays and overviews are lists of sheets with a coverage. The JSON form is specified in
``docs/catalog-format.md``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from gridref.catalog.entries import ArrayEntry, PartEntry
from gridref.model.encoding import Encoding
from gridref.model.overlay import Coords, Cover, common

MOST_COVERS = 64
"""Boxes of an overlay by sheets that are complete, and as many of others.

Of more, the smallest ones are dropped."""
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
        if not all(type(n) is int and 0 <= n < 2**62 for n in numbers) or 0 in shards:
            raise ValueError(f"a sheet is {self!r}")
        ranks = {rank for each, encoding in self.stored for rank in (len(each), encoding.ndim)}
        if ranks != {len(self.shape)}:
            raise ValueError(f"a sheet of shape {self.shape} with arrays of rank {ranks}")
        if not NAMES.fullmatch(self.name):
            raise ValueError(f"a sheet is called {self.name!r}")
        if self.part is not None and self.part.checksums is None and self.n_objects:
            raise ValueError("a sheet without checksums")

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "shape": list(self.shape),
            "content": self.content,
            "part": None if self.part is None else self.part.to_json(),
            "prefixes": list(self.prefixes),
            "n_objects": self.n_objects,
            "stored_bytes": self.stored_bytes,
        }

    @classmethod
    def read(cls, document: Mapping[str, Any], **own: Any) -> Self:
        """A sheet from its JSON form, with the members that only its kind has."""
        part = document["part"]
        return cls(
            name=str(document["name"]),
            shape=tuple(document["shape"]),
            content=str(document["content"]),
            part=None if part is None else PartEntry.from_json(part),
            prefixes=tuple(map(str, document["prefixes"])),
            n_objects=document["n_objects"],
            stored_bytes=document["stored_bytes"],
            **own,
        )


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

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "array": self.array,
            "to": self.to,
            "codec": self.codec,
            "sheets": [sheet.to_json() for sheet in self.sheets],
            "coverage": [asdict(cover) for cover in self.coverage],
        }

    @classmethod
    def read(cls, document: Mapping[str, Any], **own: Any) -> Self:
        """An overlay or overview from its JSON form, with what only its kind has."""
        return cls(
            id=str(document["id"]),
            array=str(document["array"]),
            to=str(document["to"]),
            codec=str(document["codec"]),
            coverage=tuple(
                Cover(
                    each["sheet"], tuple(each["first"]), tuple(each["start"]), tuple(each["shape"])
                )
                for each in document["coverage"]
            ),
            **own,
        )


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
