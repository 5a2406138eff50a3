"""Entries of overviews in a catalog's description.

An overview is an array at some coarser levels. A sheet of it is what one call made of a box of the
array: a Zarr v3 array for each level, in folders ``1``, ``2``, ... of one folder. Their chunks are
the rows of a part of the sheet's own. The coverage counts in elements of the array, as that of an
overlay does. The JSON form is specified in ``docs/catalog-format.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gridref.catalog.entries import ArrayEntry
from gridref.catalog.sheet_entries import Covering, Sheet, check_entries
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

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "levels": [level.to_json() for level in self.levels]}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> LevelSheet:
        return cls.read(document, levels=tuple(map(LevelEntry.from_json, document["levels"])))


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

    factors: Coords
    n_levels: int
    method: str
    missing: str

    def __post_init__(self) -> None:
        is_bounded = type(self.n_levels) is int and 1 <= self.n_levels <= MOST_LEVELS
        known = all(type(n) is int and 1 <= n <= MOST_FACTOR for n in self.factors)
        if not is_bounded or not known or not any(n > 1 for n in self.factors):
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

    def to_json(self) -> dict[str, Any]:
        return {
            **super().to_json(),
            "factors": list(self.factors),
            "n_levels": self.n_levels,
            "method": self.method,
            "missing": self.missing,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> OverviewEntry:
        return cls.read(
            document,
            factors=tuple(document["factors"]),
            n_levels=document["n_levels"],
            method=str(document["method"]),
            missing=str(document["missing"]),
            sheets=tuple(map(LevelSheet.from_json, document["sheets"])),
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
    check_entries(overviews, arrays, MOST_OVERVIEWS)
    if len({each.array for each in overviews}) < len(overviews):
        raise ValueError("two overviews of one array")
    return overviews


def grid_of(entry: LevelEntry, sheet: LevelSheet, windows: Coords) -> ChunkGrid:
    """Of the chunks of a level of a sheet."""
    return ChunkGrid.regular(level_shape(sheet.shape, windows), entry.encoding.chunk_shape)
