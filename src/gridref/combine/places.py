"""Where the labels of each input lie among those of all of them, along one dimension."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.combine.calendars import DAY_NS, TimeBase, is_time_like
from gridref.combine.columns import Column, Notes
from gridref.combine.overlaps import comparable_labels, fall
from gridref.combine.values import Values
from gridref.model.array import VirtualArray
from gridref.typing import Int64Array

__all__ = ["Places", "find_places", "label_text"]

_UNIX_EPOCH_NS = 2_440_588 * DAY_NS
"""1970-01-01, as `TimeBase` counts: the Julian day number of its noon."""


@dataclass(frozen=True, eq=False)
class Places:
    """The labels of a dimension, and where those of each input are among them.

    Attributes
    ----------
    coordinate
        All labels: rising, or falling where those of every input do.
    by_file
        For each input that has the dimension, the place of each of its labels.
    labels
        The values of the coordinate.
    """

    coordinate: VirtualArray
    by_file: Mapping[int, Int64Array]
    labels: NDArray[Any]
    _runs: dict[int, Sequence[tuple[slice, int]]] = field(default_factory=dict, repr=False)

    @property
    def extent(self) -> int:
        """Number of labels."""
        return len(self.labels)

    def runs(self, file: int) -> Sequence[tuple[slice, int]]:
        """Parts of an input whose labels are neighbours: which elements, and their first place."""
        if file not in self._runs:  # asked for each variable of each file
            self._runs[file] = tuple(self._runs_of(self.by_file[file]))
        return self._runs[file]

    def _runs_of(self, places: Int64Array) -> Iterator[tuple[slice, int]]:
        n = len(places)
        falls = n > 1 and places[0] > places[-1]
        ordered = places[::-1] if falls else places
        heads = [0, *(np.flatnonzero(np.diff(ordered) != 1) + 1).tolist()] if n else []
        for start, stop in itertools.pairwise([*heads, n]):
            last = n - 1 - stop
            own = slice(n - 1 - start, last if last >= 0 else None, -1)
            yield (own if falls else slice(start, stop)), int(ordered[start])

    def text(self, start: int, stop: int) -> str:
        """Some of the labels in words: ``time 2001-01 to 2001-03``."""
        attrs = self.coordinate.attrs
        first, last = (label_text(self.labels[at], attrs) for at in (start, stop - 1))
        (dim,) = self.coordinate.dims
        return f"{dim} {first}" + (f" to {last}" if stop - start > 1 else "")


def label_text(label: Any, attrs: Mapping[str, Any]) -> str:
    """A label in words; a number that counts time as a date, where the calendar is everyday's."""
    base = TimeBase.of(attrs) if isinstance(label, np.number) else None
    real = base is not None and base.calendar in ("standard", "proleptic_gregorian")
    if base is None or not real or not math.isfinite(label):
        return f"{label} {attrs['units']}" if is_time_like(attrs) else str(label)
    moment = base.epoch_ns - _UNIX_EPOCH_NS + round(label.item() * base.unit_ns)
    if abs(moment) >= 2**63:
        return str(label)
    text = str(np.datetime64(moment, "ns").astype("M8[s]"))
    return text.removesuffix("T00:00:00")


def find_places(column: Column, values: Values, notes: Notes) -> Places | None:
    """Put the labels of all inputs in order, each once; None where a problem is noted."""
    labels = comparable_labels(column, values)
    if labels is None:
        message = "its labels cannot be compared: they are missing, NaN, or of several kinds"
        notes.problem("labels-differ", column.path, message, column.files, drop=False)
        return None
    repeating = [
        file
        for file, own in zip(column.files, labels, strict=True)
        if len(np.unique(own)) < len(own)
    ]
    if repeating:
        message = "labels repeat within a file: select one of each first"
        notes.problem("overlap", column.path, message, repeating, drop=False)
        return None
    every = np.unique(np.concatenate(labels))
    if fall(labels):
        every = every[::-1]
    order = np.argsort(every, kind="stable")
    by_file = {
        file: order[np.searchsorted(every, own, sorter=order)]
        for file, own in zip(column.files, labels, strict=True)
    }
    first = column.first
    coordinate = VirtualArray.from_numpy(every, first.dims, first.attrs, first.fill_value)
    return Places(coordinate, by_file, every)
