"""Which chunks may hold values that a condition asks for, by what is known of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gridref.catalog.statistics import ChunkStatistics, statistics_of
from gridref.catalog.tables import ROW_GROUP_ROWS
from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray
from gridref.model.listing import NO_ROW, ChunkListing
from gridref.typing import Int64Array

__all__ = ["Bound", "boxes", "parse_condition"]

_BOUND = re.compile(r"\s*(<=|>=|==|<|>)\s*(\S+)\s*$")


@dataclass(frozen=True)
class Bound:
    """A comparison with a number.

    Attributes
    ----------
    operator
        ``<``, ``<=``, ``>``, ``>=`` or ``==``.
    number
        What is compared with.
    """

    operator: str
    number: float

    def may_hold(self, known: ChunkStatistics) -> NDArray[np.bool_]:
        """Whether chunks may have an element for which it is true.

        Arrays of float32 are compared with the number in float32, as numpy does: chunks for which
        that makes a difference may.
        """
        low, high = sorted((self.number, float(np.float32(self.number))))
        greatest, least = known.greatest, known.least
        found = {
            ">": greatest > low,
            ">=": greatest >= low,
            "<": least < high,
            "<=": least <= high,
            "==": (greatest >= low) & (least <= high),
        }
        return found[self.operator] | ~known.is_known


def parse_condition(condition: str) -> list[Bound]:
    """Comparisons that all have to hold, out of ``"> 270 and <= 280"``.

    Raises
    ------
    InvalidRequestError
        If it is not of this form.
    """
    bounds = []
    for text in condition.split(" and "):
        match = _BOUND.match(text)
        number = _number(match[2]) if match else None
        if match is None or number is None:
            raise InvalidRequestError(
                f"a condition is written like '> 310', or '>= 0 and < 1', got {condition!r}"
            )
        bounds.append(Bound(match[1], number))
    return bounds


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if np.isnan(number) else number


def boxes(array: VirtualArray, bounds: list[Bound]) -> Iterator[dict[str, slice]]:
    """Elements, by dimension, of the chunks for which all bounds may hold, neighbours joined.

    Raises
    ------
    InvalidRequestError
        If nothing is known of any chunk.
    """
    n_known, found = 0, []
    is_missing = _holds_no_value(array)
    listing = ChunkListing(array)
    for listed in listing.pieces(ROW_GROUP_ROWS):
        known = statistics_of(listed)
        may = np.logical_and.reduce([bound.may_hold(known) for bound in bounds])
        if is_missing:
            may &= listed.row != NO_ROW
        n_known += int(known.is_known.sum())
        start, stop = listed.bounds
        found.append((start[may], stop[may]))
    if not n_known:
        raise InvalidRequestError(
            "nothing is known of its values: catalog.scan_values(), or gridref stats --scan-values,"
            " looks at them"
        )
    starts, stops = _joined(*map(np.concatenate, zip(*found, strict=True)))
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        yield dict(zip(array.dims, map(slice, start, stop), strict=True))


def _joined(start: Int64Array, stop: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Boxes after each other that lie side by side along one dimension as one, each (n, ndim)."""
    for axis in reversed(range(start.shape[1])):
        others = np.delete(np.arange(start.shape[1]), axis)
        alike = (start[1:, others] == start[:-1, others]).all(axis=1)
        alike &= (stop[1:, others] == stop[:-1, others]).all(axis=1)
        apart = ~(alike & (start[1:, axis] == stop[:-1, axis]))
        heads = np.flatnonzero(np.concatenate([[True], apart]))[: len(start)]
        tails = np.append(heads[1:] - 1, len(start) - 1)[: len(heads)]
        start, stop = start[heads], stop[tails]
    return start, stop


def _holds_no_value(array: VirtualArray) -> bool:
    """Whether the fill value, as which what is missing reads, is no valid value."""
    fill = array.fill_value
    if array.dtype.kind == "f" and np.isnan(fill):
        return True
    named = (array.attrs.get(name) for name in ("_FillValue", "missing_value"))
    marks = [np.asarray(mark) for mark in named if mark is not None]
    return any(mark.dtype.kind != "V" and bool(np.any(mark == fill)) for mark in marks)
