"""Entries of overviews in a catalog's description.

An overview is an array at some coarser levels. A sheet of it is what one call made of a box of the
array: a Zarr v3 array for each level, in folders ``1``, ``2``, ... of one folder. Their chunks are
the rows of a part of the sheet's own. The coverage counts in elements of the array, as that of an
overlay does. The JSON form is specified in ``docs/catalog-format.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gridref.catalog.entries import ArrayEntry, PartEntry
from gridref.catalog.overlay_entries import NAMES, Covering, coverage_from_json
from gridref.catalog.values import encoding_from_json, encoding_to_json
from gridref.model.encoding import Encoding
from gridref.model.grid import ChunkGrid
from gridref.model.levels import (
    cover_of_level,
    factors_of,
    is_covered,
    level_shape,
    paths_of_levels,
)
from gridref.model.overlay import Coords, Cover

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

    def to_json(self) -> dict[str, Any]:
        return {"shards": list(self.shards), "encoding": encoding_to_json(self.encoding)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> LevelEntry:
        return cls(tuple(document["shards"]), encoding_from_json(document["encoding"]))


@dataclass(frozen=True)
class LevelSheet:
    """What one call made of a box of an array.

    Attributes
    ----------
    name
        Its folder, below that of its overview.
    shape
        Shape of the box.
    content
        Hash of the array's content when it was begun: the same call then continues it.
    levels
        How its levels are stored, the finest first.
    part
        Tables of the chunks of all levels; None while it is being written.
    prefixes
        Beginnings of the addresses of its shards, which the tables count into.
    n_objects, stored_bytes
        Number of shards, and stored size of their chunks.

    Raises
    ------
    ValueError
        For shapes of different ranks.
    """

    name: str
    shape: Coords
    content: str
    levels: tuple[LevelEntry, ...]
    part: PartEntry | None = None
    prefixes: tuple[str, ...] = ()
    n_objects: int = 0
    stored_bytes: int = 0

    def __post_init__(self) -> None:
        shards = [n for level in self.levels for n in level.shards]
        numbers = (*self.shape, *shards, self.n_objects, self.stored_bytes)
        if not all(type(n) is int and 0 <= n < 2**62 for n in numbers) or 0 in shards:
            raise ValueError(f"a sheet is {self!r}")
        ranks = {len(each.shards) for each in self.levels} | {e.encoding.ndim for e in self.levels}
        if ranks != {len(self.shape)}:
            raise ValueError(f"a sheet of shape {self.shape} with levels of rank {ranks}")
        if not NAMES.fullmatch(self.name):
            raise ValueError(f"a sheet is called {self.name!r}")
        if self.part is not None and self.part.checksums is None and self.n_objects:
            raise ValueError("a sheet without checksums")

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "shape": list(self.shape),
            "content": self.content,
            "levels": [level.to_json() for level in self.levels],
            "part": None if self.part is None else self.part.to_json(),
            "prefixes": list(self.prefixes),
            "n_objects": self.n_objects,
            "stored_bytes": self.stored_bytes,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> LevelSheet:
        part = document["part"]
        return cls(
            str(document["name"]),
            tuple(document["shape"]),
            str(document["content"]),
            tuple(map(LevelEntry.from_json, document["levels"])),
            None if part is None else PartEntry.from_json(part),
            tuple(map(str, document["prefixes"])),
            document["n_objects"],
            document["stored_bytes"],
        )


@dataclass(frozen=True)
class OverviewEntry(Covering):
    """An overview of an array, which has at most one.

    Attributes
    ----------
    id
        Its name: no other overview ever has it.
    array
        Path of the array.
    to
        The folder of its sheets, absolute or relative to the catalog.
    factors
        How much coarser each level is than the one before, along each dimension.
    n_levels
        Number of levels.
    method
        How elements are made.
    missing
        What was no value when it was made: `MissingValues.key`.
    codec
        Name of the codec that was asked for.
    sheets, coverage
        What it holds, and of which elements of the array that is made.

    Raises
    ------
    ValueError
        For boxes that overlap or reach beyond their sheet, or too many of anything.
    """

    id: str
    array: str
    to: str
    factors: Coords
    n_levels: int
    method: str
    missing: str
    codec: str
    sheets: tuple[LevelSheet, ...] = ()
    coverage: tuple[Cover, ...] = ()

    def __post_init__(self) -> None:
        is_bounded = type(self.n_levels) is int and 1 <= self.n_levels <= MOST_LEVELS
        known = all(type(n) is int and 1 <= n <= MOST_FACTOR for n in self.factors)
        if not is_bounded or not known or not any(n > 1 for n in self.factors):
            raise ValueError(f"an overview of {self.n_levels} levels by {self.factors!r}")
        if any(len(sheet.levels) != self.n_levels for sheet in self.sheets):
            raise ValueError("a sheet with other levels than its overview")
        self.check()

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

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "array": self.array,
            "to": self.to,
            "factors": list(self.factors),
            "n_levels": self.n_levels,
            "method": self.method,
            "missing": self.missing,
            "codec": self.codec,
            "sheets": [sheet.to_json() for sheet in self.sheets],
            "coverage": [asdict(cover) for cover in self.coverage],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> OverviewEntry:
        return cls(
            str(document["id"]),
            str(document["array"]),
            str(document["to"]),
            tuple(document["factors"]),
            document["n_levels"],
            str(document["method"]),
            str(document["missing"]),
            str(document["codec"]),
            tuple(map(LevelSheet.from_json, document["sheets"])),
            coverage_from_json(document["coverage"]),
        )


def checked_overviews(
    document: Iterable[Any], arrays: Mapping[str, ArrayEntry]
) -> tuple[OverviewEntry, ...]:
    """Read the overviews of a snapshot from their JSON form.

    Raises
    ------
    ValueError
        If anything of them contradicts itself or the arrays.
    """
    overviews = tuple(map(OverviewEntry.from_json, document))
    if len(overviews) > MOST_OVERVIEWS or len({each.array for each in overviews}) < len(overviews):
        raise ValueError(f"{len(overviews)} overviews, or two of one array")
    for overview in overviews:
        if overview.array not in arrays:
            raise ValueError(f"an overview of {overview.array!r}, which is not there")
        overview.check_array(arrays[overview.array])
    return overviews


def grid_of(entry: LevelEntry, sheet: LevelSheet, windows: Coords) -> ChunkGrid:
    """Of the chunks of a level of a sheet."""
    return ChunkGrid.regular(level_shape(sheet.shape, windows), entry.encoding.chunk_shape)
