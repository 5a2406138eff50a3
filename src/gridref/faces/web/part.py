"""Find which part of an array a request asks for, by numbers of its elements or by labels; read it.

``at=3,10:20,::8`` gives a number, or a range, for each dimension, as slices of Python.
``time=2023-05-01`` gives the element whose label is nearest, ``lat=40/50`` those with labels
between two. A dimension that is not named is taken whole where the answer spreads along it, else at
its first element.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import cftime
import numpy as np
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError, number_of
from gridref.faces.web.meaning import date_of, units_of_dates
from gridref.model.array import VirtualArray
from gridref.model.conventions import compass_of, is_time_like, text_of
from gridref.model.projection import SliceProjection
from gridref.serve.plan import ReadPlan, plan_with_overlays
from gridref.serve.reader import Reader

type Along = int | range
"""The number of one element along a dimension, or the numbers of several."""
type ReadLabels = Callable[[int], Labels | None]
"""Reads the labels of a dimension, by its number; None where there are none."""


class RefusedError(Exception):
    """What is asked for is more than an answer may cost; `status` is that of HTTP.

    The text says what it would cost, and what to ask for instead.
    """

    status = 413


@dataclass(frozen=True, eq=False)
class Labels:
    """The labels of a dimension.

    Attributes
    ----------
    name
        The dimension.
    values
        float64, as numbers of their units.
    """

    name: str
    values: NDArray[np.float64]
    attrs: Mapping[str, Any]

    @property
    def nbytes(self) -> int:
        """Size in bytes, for caches."""
        return self.values.nbytes

    @property
    def is_time(self) -> bool:
        """Whether they are dates."""
        return is_time_like(self.attrs)

    def words(self, number: int) -> str:
        """A label, as a request may give it."""
        value = float(self.values[number])
        date = date_of(value, self.attrs) if self.is_time else None
        return date or (f"{value:.0f}" if value.is_integer() else f"{value:.9g}")

    def found(self, text: str) -> Along:
        """The element, or elements, that a text asks for.

        Raises
        ------
        InvalidRequestError
            If there is no such label.
        """
        first, separator, last = text.partition("/")
        if separator:
            return self._between(self._number(first), self._number(last), text)
        return self._nearest(self._number(text), text)

    def _number(self, text: str) -> float:
        if self.is_time:
            return _date_number(text, self.attrs)
        try:
            value = float(text)
        except ValueError:
            value = np.nan
        if not np.isfinite(value):
            raise InvalidRequestError(f"{self.name}={text!r} is not a number")
        return value

    def _nearest(self, wanted: float, text: str) -> int:
        values = self.values
        apart = np.abs(self._turned(values, wanted) - wanted)
        if not np.isfinite(apart).any():
            raise InvalidRequestError(f"dimension {self.name} has no labels that are numbers")
        number = int(np.nanargmin(apart))
        if apart[number] > self._reach(number) * (1 + 1e-9):
            raise InvalidRequestError(f"{self.name} has no label near {text!r}: {self._ends()}")
        return number

    def _reach(self, number: int) -> float:
        """How far off a label may be asked for: as far as the next one is, at most."""
        values = self.values
        beside = values[max(0, number - 1) : number + 2]
        steps = np.abs(np.diff(beside))
        return float(steps.max()) if len(steps) else 1e-6 * max(1.0, abs(float(values[number])))

    def _between(self, first: float, last: float, text: str) -> range:
        low, high = sorted((first, last))
        values = self._turned(self.values, (low + high) / 2)
        (inside,) = np.nonzero((values >= low) & (values <= high))
        if not len(inside):
            raise InvalidRequestError(f"{self.name} has no labels in {text!r}: {self._ends()}")
        start, stop = int(inside[0]), int(inside[-1]) + 1
        if stop - start != len(inside):
            raise InvalidRequestError(
                f"the labels of {self.name} in {text!r} do not follow each other: give their"
                " numbers with at="
            )
        return range(start, stop)

    def _turned(self, values: NDArray[np.float64], wanted: float) -> NDArray[np.float64]:
        """Degrees of longitude, turned so that they are within half a circle of the one wanted."""
        if compass_of(self.attrs) != "E":
            return values
        return values + 360 * np.round((wanted - values) / 360)

    def _ends(self) -> str:
        return f"they are from {self.words(0)} to {self.words(len(self.values) - 1)}"


_TIME = r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2}(?:\.\d{1,6})?))?)?Z?"
_DATE = re.compile(rf"(-?\d{{1,6}})(?:-(\d{{1,2}})(?:-(\d{{1,2}})(?:[T ]{_TIME})?)?)?", re.ASCII)


def _date_number(text: str, attrs: Mapping[str, Any]) -> float:
    """A date of ISO 8601, which may leave out what is small, in the units of a coordinate."""
    match = _DATE.fullmatch(text.strip())
    if match is None:
        raise InvalidRequestError(f"{text!r} is not a date: write 2023-05-01 or 2023-05-01T12:00")
    year, month, day, hour, minute = (
        int(part or least) for part, least in zip(match.groups()[:5], (1, 1, 1, 0, 0), strict=True)
    )
    second, _, fraction = (match[6] or "0").partition(".")
    parts = year, month, day, hour, minute, int(second), int(fraction.ljust(6, "0"))
    calendar = text_of(attrs, "calendar") or "standard"
    units, per_unit = units_of_dates(attrs)
    try:
        date = cftime.datetime(*parts, calendar=calendar)
        return float(cftime.date2num(date, units, calendar)) * per_unit
    except (ValueError, OverflowError) as error:
        raise InvalidRequestError(f"{text!r} is not a date of this calendar: {error}") from error


def part_of(
    dims: Sequence[str],
    shape: Sequence[int],
    query: Mapping[str, list[str]],
    labels: ReadLabels,
    *,
    others: Collection[str] = (),
    whole: Collection[str] = (),
) -> tuple[Along, ...]:
    """Which elements of an array a query asks for, along each dimension.

    Parameters
    ----------
    others
        What else the query may say.
    whole
        Dimensions that are taken whole where the query says nothing of them.

    Raises
    ------
    InvalidRequestError
        If there are no such elements, or the query says what nobody knows.
    """
    if 0 in shape:
        raise InvalidRequestError(f"the array has no elements: its shape is {tuple(shape)}")
    found: list[Along] = [
        range(length) if dim in whole else 0 for dim, length in zip(dims, shape, strict=True)
    ]
    for name, texts in query.items():
        if name in others:
            continue
        if name == "at":
            found = _numbered(texts[-1], dims, shape)
        elif name not in dims:
            there = ", ".join(sorted({*others, "at", *dims}))
            raise InvalidRequestError(
                f"there is no dimension or option {name!r}: there are {there}"
            )
    for axis, dim in enumerate(dims):
        if dim in query and dim not in others and dim != "at":
            known = labels(axis)
            if known is None:
                raise InvalidRequestError(f"dimension {dim} has no labels: give numbers with at=")
            found[axis] = known.found(query[dim][-1])
    return tuple(found)


_NUMBER = re.compile(r"\d{1,18}", re.ASCII)


def _numbered(text: str, dims: Sequence[str], shape: Sequence[int]) -> list[Along]:
    parts = text.split(",")
    if len(parts) != len(dims):
        raise InvalidRequestError(
            f"at={text!r} has {number_of(len(parts), 'part')}, but the dimensions are"
            f" {', '.join(dims)}"
        )
    return [_along(*each) for each in zip(parts, dims, shape, strict=True)]


def _along(text: str, dim: str, length: int) -> Along:
    parts = text.strip().split(":")
    if (
        len(parts) > 3
        or any(each and not _NUMBER.fullmatch(each) for each in parts)
        or parts == [""]
    ):
        raise InvalidRequestError(f"{text!r} for {dim}: write a number, or a range like 10:20")
    first, *others = (int(each) if each else None for each in parts)
    if not others:
        if first is None or first >= length:
            raise InvalidRequestError(
                f"{dim} has {number_of(length, 'element')}, so there is no {first}"
            )
        return first
    last, step = (*others, None)[:2]
    if step == 0:
        raise InvalidRequestError(f"{text!r} for {dim}: a step is 1 or more")
    chosen = range(length)[first:last:step]
    if not chosen:
        raise InvalidRequestError(f"{text!r} takes no element of {dim}, which has {length}")
    return chosen


# The elements, read in pieces

MOST_PIECE_BYTES = 2**25
"""Decoded bytes of chunks that are read before values are passed on, or nobody waits any more."""

type GoesOn = Callable[[], bool]
"""Whether a client still waits for the answer."""
type Places = tuple[slice, ...]


class GivenUpError(Exception):
    """Nobody waits for the answer any more."""


@dataclass(frozen=True)
class Part:
    """Some elements of an array.

    Attributes
    ----------
    chosen
        Elements along each dimension; the part lacks those dimensions where it is one number.
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

    def with_along(self, axis: int, along: Along) -> Part:
        """The part with other elements along a dimension."""
        return replace(self, chosen=(*self.chosen[:axis], along, *self.chosen[axis + 1 :]))

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of its dimensions."""
        return tuple(self.array.dims[axis] for axis in self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of its dimensions."""
        return tuple(len(self.along(axis)) for axis in self.axes)

    @property
    def selection(self) -> tuple[int | slice, ...]:
        """As readers take it."""
        return tuple(
            slice(along.start, along.stop, along.step) if isinstance(along, range) else along
            for along in self.chosen
        )

    @cached_property
    def _plan(self) -> ReadPlan:
        plan, _ = plan_with_overlays(self.array, self.selection)
        return plan

    @property
    def n_bytes(self) -> int:
        """Decoded bytes of all stored chunks that are read for it, at most."""
        return sum(cross.n_pieces * _largest(cross.array) for cross in self._plan.crosses)

    def cuts(self, axis: int) -> list[int]:
        """Where to cut it along a dimension: at edges of chunks, so that none is read twice.

        Between two cuts are chunks of about `MOST_PIECE_BYTES`, decoded, or one row of them that is
        larger.
        """
        pieces = [cross.axes[axis].pieces for cross in self._plan.crosses]
        starts = [each.out_start for each in pieces if isinstance(each, SliceProjection)]
        lines = np.unique(np.concatenate([np.zeros(1, np.int64), *starts]))
        at_once = max(1, len(lines) * MOST_PIECE_BYTES // max(1, self.n_bytes))
        return [*lines[::at_once].tolist(), len(self.along(axis))]

    def pieces(self, reader: Reader, goes_on: GoesOn) -> Iterator[tuple[Places, NDArray[Any]]]:
        """The elements, cut where chunks are so that each is read once, and their places.

        Raises
        ------
        GivenUpError
            If `goes_on` says that nobody waits any more.
        ReadError
            If a chunk cannot be read.
        """
        cuts = {axis: self.cuts(axis) for axis in self.axes}
        cut = max(cuts, key=lambda axis: len(cuts[axis]), default=None)
        for start, stop in itertools.pairwise([0, 1] if cut is None else cuts[cut]):
            if not goes_on():
                raise GivenUpError
            piece = self if cut is None else self.with_along(cut, self.along(cut)[start:stop])
            places = (slice(start, stop) if axis == cut else slice(None) for axis in self.axes)
            yield tuple(places), reader.read(self.array, piece.selection, name=self.path)

    def read(self, reader: Reader, goes_on: GoesOn) -> NDArray[Any]:
        """All elements at once; see `pieces`."""
        values = np.empty(self.shape, self.array.dtype)
        for places, piece in self.pieces(reader, goes_on):
            values[places] = piece
        return values


def _largest(array: VirtualArray) -> int:
    """Bytes of the largest chunk, decoded."""
    sizes = [math.prod(each.chunk_shape) * each.dtype.itemsize for each in array.encodings]
    return max(sizes, default=0)
