"""Read series: values along one dimension, at one place of the others or as means over a box."""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import GridrefError, InvalidRequestError
from gridref.faces.web.look import Read, chunk_bytes, line_cuts, selection_of
from gridref.faces.web.meaning import NUMBERS, Meaning
from gridref.faces.web.part import Along, Labels, RefusedError
from gridref.model.array import VirtualArray

SERIES_BYTES = 2**36
"""Decoded bytes of the chunks that are read for a series."""
MOST_ELEMENTS = 10_000_000
"""Elements of a series."""
BOX_ELEMENTS = 2**24
"""Elements that one mean is of."""
_BATCH_BYTES = 2**25
"""Decoded bytes of chunks that are read before values are sent."""
_BATCH_ELEMENTS = 2**22
"""Elements that are read before values are sent."""


@dataclass(frozen=True)
class Series:
    """What a series takes of an array.

    Attributes
    ----------
    chosen
        Elements along each dimension: numbers, or ranges that means are over.
    axis
        The dimension that the series is along; its elements are a range.
    labels
        Its labels; None if it has none.
    """

    array: VirtualArray
    path: str
    chosen: tuple[Along, ...]
    axis: int
    labels: Labels | None

    def __post_init__(self) -> None:
        if self.array.dtype.kind not in NUMBERS:
            raise InvalidRequestError(f"a series is of numbers; values are {self.array.dtype}")
        if len(self.along) > MOST_ELEMENTS:
            raise RefusedError(
                f"a series has at most {MOST_ELEMENTS} elements, and this one {len(self.along)}:"
                " ask for a range of them"
            )
        if self.n_each > BOX_ELEMENTS:
            raise RefusedError(
                f"a mean is of at most {BOX_ELEMENTS} elements, and this box has {self.n_each}:"
                " ask for a smaller box"
            )
        if self.n_bytes > SERIES_BYTES:
            raise RefusedError(
                f"this series needs chunks of {self.n_bytes} bytes, and may decode {SERIES_BYTES}:"
                " ask for less of it, or write an overlay for series (gridref rechunk)"
            )

    @property
    def along(self) -> range:
        """The elements of the series."""
        along = self.chosen[self.axis]
        assert isinstance(along, range)
        return along

    @property
    def box(self) -> tuple[int, ...]:
        """The other dimensions that have ranges."""
        ranges = [axis for axis, along in enumerate(self.chosen) if isinstance(along, range)]
        return tuple(axis for axis in ranges if axis != self.axis)

    @property
    def n_each(self) -> int:
        """Elements that each value is of."""
        return int(np.prod([len(self._range(axis)) for axis in self.box], dtype=object))

    def _range(self, axis: int) -> range:
        along = self.chosen[axis]
        assert isinstance(along, range)
        return along

    @property
    def n_bytes(self) -> int:
        """Decoded bytes of all chunks that are read."""
        return chunk_bytes(self.array, selection_of(self.chosen))

    def batches(self, read: Read) -> Iterator[tuple[int, NDArray[Any]]]:
        """The number of the first value of each batch, and its values; NaN where there is none."""
        meaning = Meaning.of(self.array)
        ranges = sorted((*self.box, self.axis))
        others = tuple(n for n, axis in enumerate(ranges) if axis != self.axis)
        cuts = line_cuts(self.array, self.chosen, self.axis, _BATCH_BYTES)
        for start, stop in _shorter(cuts, max(1, _BATCH_ELEMENTS // self.n_each)):
            chosen = [*self.chosen]
            chosen[self.axis] = self.along[start:stop]
            values = meaning.unpacked(read(self.array, selection_of(chosen)))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # of means of nothing
                yield start, np.nanmean(values, others, np.float64) if others else values


def _shorter(cuts: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    for start, stop in itertools.pairwise(cuts):
        for first in range(start, stop, most):
            yield first, min(stop, first + most)


def numbers_of(values: NDArray[Any]) -> list[float | None]:
    """Values with the fewest digits that no other number of their type has; None for none."""
    texts = values.astype(str).tolist()
    return [float(text) if text not in ("nan", "inf", "-inf") else None for text in texts]


def as_lines(series: Series, read: Read, told: Callable[[GridrefError], str]) -> Iterator[bytes]:
    """A series as lines of JSON: what it is, its values batch by batch, and its end.

    `told` says what a reader may know of an error, which ends it.
    """
    head = {
        "array": series.path,
        "along": series.array.dims[series.axis],
        "n": len(series.along),
        "first": series.along.start,
        "step": series.along.step,
        "units": str(series.array.attrs.get("units", "")),
        "mean_of": series.n_each,
        "chunk_bytes": series.n_bytes,
    }
    yield _line(head)
    try:
        for start, values in series.batches(read):
            labels = _labels(series, start, len(values))
            yield _line({"start": start, "labels": labels, "values": numbers_of(values)})
    except GridrefError as error:
        yield _line({"error": told(error)})
        return
    yield _line({"done": True})


def as_csv(series: Series, read: Read) -> Iterator[bytes]:
    """A series as CSV (RFC 4180): labels and values; those that are missing are empty."""
    names = [series.array.dims[series.axis], series.path]
    yield (",".join(map(_quoted, names)) + "\r\n").encode()
    for start, values in series.batches(read):
        labels = _labels(series, start, len(values))
        rows = zip(labels, numbers_of(values), strict=True)
        yield "".join(f"{label},{'' if n is None else n}\r\n" for label, n in rows).encode()


def _labels(series: Series, start: int, n: int) -> list[str | float | int | None]:
    """The labels of some values: dates, numbers, or the numbers of the elements."""
    along = series.along[start : start + n]
    labels = series.labels
    if labels is None:
        return list(along)
    if labels.is_time:
        return [labels.words(number) for number in along]
    return list(numbers_of(labels.values[along.start : along.stop : along.step]))


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, allow_nan=False).encode() + b"\n"


def _quoted(text: str) -> str:
    return f'"{text.replace(chr(34), 2 * chr(34))}"' if set(text) & set('",\r\n') else text
