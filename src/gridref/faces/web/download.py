"""Choose the content of a file for download: a part of an array, and what belongs to it."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import MissingPackageError
from gridref.faces.web.earth import upward
from gridref.faces.web.levels import Level
from gridref.faces.web.look import GivenUpError, chunk_bytes, line_cuts, selection_of
from gridref.faces.web.part import Along, RefusedError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.reference_systems import referred_names, text_of
from gridref.serve.reader import Reader

MOST_ELEMENTS = 2**26
"""Elements of each variable of a file."""
MOST_CHUNK_BYTES = 2**33
"""Decoded bytes of the chunks that are read for each variable."""
_PIECE_BYTES = 2**25
"""Decoded bytes of chunks that are read before they are written."""

type GoesOn = Callable[[], bool]
type Places = tuple[slice, ...]


class NotHereError(RefusedError):
    """The server lacks a package that writes such files."""

    status = 501

    @classmethod
    def of(cls, error: MissingPackageError) -> NotHereError:
        """From the error that names the package."""
        return cls(f"this server cannot make the file: {error}")


@dataclass(frozen=True)
class Part:
    """What is taken of an array.

    Attributes
    ----------
    chosen
        Elements along each dimension; numbers where it is one, and the dimension is left out.
    """

    path: str
    array: VirtualArray
    chosen: tuple[Along, ...]

    @property
    def axes(self) -> list[int]:
        """Those dimensions of the array that the part has."""
        return [axis for axis, along in enumerate(self.chosen) if isinstance(along, range)]

    def along(self, axis: int) -> range:
        """The elements along one of `axes`."""
        along = self.chosen[axis]
        assert isinstance(along, range)
        return along

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of its dimensions."""
        return tuple(self.array.dims[axis] for axis in self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of its dimensions."""
        return tuple(len(self.along(axis)) for axis in self.axes)

    def check(self) -> None:
        """Raise if the part is too large.

        Raises
        ------
        RefusedError
            If it has too many elements, or needs too many chunks.
        """
        n = math.prod(self.shape)
        if n > MOST_ELEMENTS:
            raise RefusedError(
                f"this part of {self.path} has {n} elements, and a file has at most"
                f" {MOST_ELEMENTS}: ask for a smaller part, or for every tenth element along a"
                " dimension (::10 in at=)"
            )
        n_bytes = chunk_bytes(self.array, selection_of(self.chosen))
        if n_bytes > MOST_CHUNK_BYTES:
            raise RefusedError(
                f"this part of {self.path} needs chunks of {n_bytes} bytes, and a file may need"
                f" {MOST_CHUNK_BYTES}: ask for a smaller part"
            )

    def pieces(self, reader: Reader, goes_on: GoesOn) -> Iterator[tuple[Places, NDArray[Any]]]:
        """The elements, cut where chunks are so that each is read once, and their places.

        Raises
        ------
        GivenUpError
            If `goes_on` says that nobody waits any more.
        ReadError
            If a chunk cannot be read.
        """
        cuts = {a: line_cuts(self.array, self.chosen, a, _PIECE_BYTES) for a in self.axes}
        cut = max(cuts, key=lambda axis: len(cuts[axis]), default=None)
        for start, stop in itertools.pairwise([0, 1] if cut is None else cuts[cut]):
            if not goes_on():
                raise GivenUpError
            chosen = [*self.chosen]
            if cut is not None:
                chosen[cut] = self.along(cut)[start:stop]
            places = (slice(start, stop) if axis == cut else slice(None) for axis in self.axes)
            yield tuple(places), reader.read(self.array, selection_of(chosen), name=self.path)

    def read(self, reader: Reader, goes_on: GoesOn) -> NDArray[Any]:
        """All elements at once; see `pieces`."""
        values = np.empty(self.shape, self.array.dtype)
        for places, piece in self.pieces(reader, goes_on):
            values[places] = piece
        return values


@dataclass(frozen=True)
class Selected:
    """A part of an array, and the same part of what belongs to it.

    Attributes
    ----------
    others
        Coordinates, bounds and grid mappings, by name.
    attrs
        Attributes of the array's group.
    """

    part: Part
    others: Mapping[str, Part]
    coordinates: frozenset[str]
    attrs: Mapping[str, Any]

    @classmethod
    def of(cls, group: VirtualGroup, path: str, chosen: tuple[Along, ...]) -> Selected:
        """What a file of a part of an array holds.

        Coordinates are those that xarray gives the array, those of groups above it that label its
        dimensions, and latitudes and longitudes beside it. What these and the array name as bounds
        or grid mapping comes along.

        Raises
        ------
        RefusedError
            If the part is too large.
        """
        array = group[path]
        assert isinstance(array, VirtualArray)
        own = path.rpartition("/")[0]
        holder = group[own] if own else group
        assert isinstance(holder, VirtualGroup)
        at = dict(zip(array.dims, chosen, strict=True))
        lengths = dict(zip(array.dims, array.shape, strict=True))
        others: dict[str, Part] = {}

        def take(paths: Iterable[str | None], *, is_label: bool) -> None:
            for each in paths:
                name = (each or "").rpartition("/")[2]
                found = group[each] if each else None
                if not isinstance(found, VirtualArray) or each == path or name in others:
                    continue
                sized = list(zip(found.dims, found.shape, strict=True))
                fits = all(0 < n == lengths.get(dim, n) for dim, n in sized)
                if fits and (set(found.dims) <= set(at) or not is_label):
                    others[name] = Part(
                        str(each), found, tuple(at.get(d, range(n)) for d, n in sized)
                    )

        level = Level.of(group, path)
        listed = _listed(holder)
        names = [n for n, each in holder.arrays.items() if n in listed or each.dims == (n,)]
        take((f"{own}/{name}".lstrip("/") for name in names), is_label=True)
        take((*level.coordinates, *level.located_by), is_label=True)
        coordinates = frozenset(others)
        for _ in range(2):  # what bounds name in their turn
            referring = [array, *(each.array for each in others.values())]
            take((upward(group, path, n) for n in referred_names(referring)), is_label=False)
        selected = cls(Part(path, array, chosen), others, coordinates, holder.attrs)
        for part in (selected.part, *others.values()):
            part.check()
        return selected

    @property
    def name(self) -> str:
        """The array's name."""
        return self.part.path.rpartition("/")[2]


def _listed(holder: VirtualGroup) -> set[str]:
    """Names that a group, or any array in it, lists as coordinates."""
    attrs = (holder.attrs, *(array.attrs for array in holder.arrays.values()))
    return {name for each in attrs for name in text_of(each, "coordinates").split()}


def plain_attribute(value: Any) -> Any:
    """An attribute as files have them: numbers and texts, alone or in a row; others as JSON."""
    if isinstance(value, str | bytes | np.generic | np.ndarray):
        return value
    row = value if isinstance(value, list | tuple) else [value]
    kinds = {bool(isinstance(each, str)) for each in row}
    is_plain = all(isinstance(each, str | int | float | np.number) for each in row)
    has_bool = any(isinstance(each, bool) for each in row)
    if row and is_plain and len(kinds) == 1 and not has_bool:
        return value
    return json.dumps(value, default=str)
