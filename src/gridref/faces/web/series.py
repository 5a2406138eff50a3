"""Read series: values along one dimension, at one place of the others or as means over a box."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import GridrefError, InvalidRequestError
from gridref.faces.web.meaning import NUMBERS, Meaning
from gridref.faces.web.part import Labels, Part, RefusedError
from gridref.serve.reader import Reader

SERIES_BYTES = 2**36
"""Decoded bytes of the chunks that are read for a series."""
MOST_ELEMENTS = 10_000_000
"""Elements of a series."""
BOX_ELEMENTS = 2**24
"""Elements that one mean is of."""
_BATCH_ELEMENTS = 2**22
"""Elements that are read before values are sent."""


@dataclass(frozen=True)
class Series:
    """What a series takes of an array.

    Attributes
    ----------
    part
        Its elements; ranges along other dimensions than `axis` are those that means are over.
    axis
        The dimension that the series is along; its elements are a range.
    labels
        Its labels; None if it has none.
    """

    part: Part
    axis: int
    labels: Labels | None

    def __post_init__(self) -> None:
        dtype, n, n_bytes = self.part.array.dtype, len(self.along), self.part.n_bytes
        if dtype.kind not in NUMBERS:
            raise InvalidRequestError(f"a series is of numbers; values are {dtype}")
        if n > MOST_ELEMENTS:
            raise RefusedError(
                f"a series has at most {MOST_ELEMENTS} elements, and this one {n}:"
                " ask for a range of them"
            )
        if self.n_each > BOX_ELEMENTS:
            raise RefusedError(
                f"a mean is of at most {BOX_ELEMENTS} elements, and this box has {self.n_each}:"
                " ask for a smaller box"
            )
        if n_bytes > SERIES_BYTES:
            raise RefusedError(
                f"this series needs chunks of {n_bytes} bytes, and may decode {SERIES_BYTES}:"
                " ask for less of it, or write an overlay for series (gridref rechunk)"
            )

    @property
    def along(self) -> range:
        """The elements of the series."""
        return self.part.along(self.axis)

    @property
    def n_each(self) -> int:
        """Elements that each value is of."""
        return math.prod(self.part.shape) // len(self.along)

    def batches(self, reader: Reader) -> Iterator[tuple[int, NDArray[Any]]]:
        """The number of the first value of each batch, and its values; NaN where there is none."""
        part, meaning = self.part, Meaning.of(self.part.array)
        others = tuple(n for n, axis in enumerate(part.axes) if axis != self.axis)
        for start, stop in _shorter(part.cuts(self.axis), max(1, _BATCH_ELEMENTS // self.n_each)):
            piece = part.with_along(self.axis, self.along[start:stop])
            stored = reader.read(part.array, piece.selection, name=part.path)
            if not others:
                yield start, meaning.counted(stored)
                continue
            values = meaning.unpacked(stored)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # of means of nothing
                yield start, np.nanmean(values, others, np.float64)


def _shorter(cuts: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    for start, stop in itertools.pairwise(cuts):
        for first in range(start, stop, most):
            yield first, min(stop, first + most)


def numbers_of(values: NDArray[Any]) -> list[float | int | None]:
    """Values with the fewest digits that no other number of their type has; None for none."""
    if values.dtype == object:
        return [number if isinstance(number, int) else None for number in values.tolist()]
    texts = values.astype(str).tolist()
    return [float(text) if text not in ("nan", "inf", "-inf") else None for text in texts]


def as_lines(
    series: Series, reader: Reader, told: Callable[[GridrefError], str]
) -> Iterator[bytes]:
    """A series as lines of JSON: what it is, its values batch by batch, and its end.

    `told` says what a reader may know of an error, which ends it.
    """
    head = {
        "array": series.part.path,
        "along": series.part.array.dims[series.axis],
        "n": len(series.along),
        "first": series.along.start,
        "step": series.along.step,
        "units": str(series.part.array.attrs.get("units", "")),
        "mean_of": series.n_each,
        "chunk_bytes": series.part.n_bytes,
    }
    yield _line(head)
    try:
        for start, values in series.batches(reader):
            labels = _labels(series, start, len(values))
            yield _line({"start": start, "labels": labels, "values": numbers_of(values)})
    except GridrefError as error:
        yield _line({"error": told(error)})
        return
    yield _line({"done": True})


def as_csv(series: Series, reader: Reader) -> Iterator[bytes]:
    """A series as CSV (RFC 4180): labels and values; those that are missing are empty."""
    names = [series.part.array.dims[series.axis], series.part.path]
    yield (",".join(map(_quoted, names)) + "\r\n").encode()
    for start, values in series.batches(reader):
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
