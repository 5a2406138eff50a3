"""Read a plane of an array at lower resolution, in bounded time.

A picture has a thousand elements a side, and an array may have a hundred times as many. What is
read for it is bounded: of an array without overviews chunks are left out, if there are too many.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError
from gridref.faces.web.meaning import NUMBERS
from gridref.faces.web.part import Along, RefusedError
from gridref.model.array import VirtualArray
from gridref.model.projection import SliceProjection
from gridref.serve.plan import plan_with_overlays

MOST_ALONG = 2048
"""Elements a side of a look; also those up to which the viewer shows an array without one."""
USUAL_ALONG = 1024
LOOK_BYTES = 2**29
"""Decoded bytes of the chunks that are read for a look: about a second."""
MOST_LOOK_BYTES = 2**33
"""The same for one whose steps are asked for."""
_BAND_BYTES = 2**25
"""Decoded bytes after which a look is given up if nobody waits for it any more."""
_LEAST_ALONG = 200
"""So many elements the shorter side keeps, if it has them."""

type Read = Callable[[VirtualArray, Any], NDArray[Any]]


class GivenUpError(Exception):
    """Nobody waits for the answer any more."""


@dataclass(frozen=True)
class Look:
    """What a look takes of an array.

    Attributes
    ----------
    array
        The array.
    chosen
        Elements along each dimension, numbers where it is one.
    rows, columns
        The dimensions of the picture.
    """

    array: VirtualArray
    chosen: tuple[Along, ...]
    rows: int
    columns: int

    @property
    def selection(self) -> tuple[int | slice, ...]:
        """As readers take it."""
        return selection_of(self.chosen)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.along(self.rows)), len(self.along(self.columns))

    def along(self, axis: int) -> range:
        """The elements along one of its sides."""
        along = self.chosen[axis]
        assert isinstance(along, range)
        return along

    def coarser(self, axis: int, times: int) -> Look:
        """The same with fewer elements along a dimension: the middle ones of so many each."""
        along = self.along(axis)
        return self._with(axis, along[min((times - 1) // 2, len(along) - 1) :: times])

    def _with(self, axis: int, along: range) -> Look:
        chosen = tuple(along if each == axis else old for each, old in enumerate(self.chosen))
        return replace(self, chosen=chosen)

    @property
    def n_bytes(self) -> int:
        """Decoded bytes of all chunks that it touches."""
        return chunk_bytes(self.array, self.selection)

    def bands(self) -> Iterator[Look]:
        """Parts of it, cut where chunks are, of about `_BAND_BYTES` each."""
        sides = (self.rows, self.columns)
        cuts = {axis: line_cuts(self.array, self.chosen, axis, _BAND_BYTES) for axis in sides}
        axis = max(cuts, key=lambda each: len(cuts[each]))
        for start, stop in itertools.pairwise(cuts[axis]):
            yield self._with(axis, self.along(axis)[start:stop])

    def read(self, read: Read, go_on: Callable[[], bool]) -> NDArray[Any]:
        """The elements, (rows, columns).

        Raises
        ------
        GivenUpError
            If `go_on` says so.
        ReadError
            If a chunk cannot be read.
        """
        parts, cut = [], self.rows
        for band in self.bands():
            if not go_on():
                raise GivenUpError
            parts.append(read(self.array, band.selection))
            cut = (
                self.rows if band.along(self.columns) == self.along(self.columns) else self.columns
            )
        axis = int((cut == self.columns) == (self.rows < self.columns))
        values = np.concatenate(parts, axis)
        return values if self.rows < self.columns else values.T


def selection_of(chosen: Sequence[Along]) -> tuple[int | slice, ...]:
    """A part of an array, as readers take it."""
    return tuple(
        slice(along.start, along.stop, along.step) if isinstance(along, range) else along
        for along in chosen
    )


def chunk_bytes(array: VirtualArray, selection: tuple[int | slice, ...]) -> int:
    """Decoded bytes of all stored chunks that are read for a selection, at most."""
    plan, _ = plan_with_overlays(array, selection)
    return sum(cross.n_pieces * _largest(cross.array) for cross in plan.crosses)


def _largest(array: VirtualArray) -> int:
    """Bytes of the largest chunk, decoded."""
    sizes = [math.prod(each.chunk_shape) * each.dtype.itemsize for each in array.encodings]
    return max(sizes, default=0)


def line_cuts(
    array: VirtualArray, chosen: Sequence[Along], axis: int, most_bytes: int
) -> list[int]:
    """Where to cut a part along a dimension: at edges of chunks, so that none is read twice.

    Between two cuts are chunks of about `most_bytes`, decoded, or one row of them that is larger.
    """
    along = chosen[axis]
    assert isinstance(along, range)
    selection = selection_of(chosen)
    plan, _ = plan_with_overlays(array, selection)
    pieces = [cross.axes[axis].pieces for cross in plan.crosses]
    starts = [each.out_start for each in pieces if isinstance(each, SliceProjection)]
    lines = np.unique(np.concatenate([np.zeros(1, np.int64), *starts]))
    at_once = max(1, len(lines) * most_bytes // max(1, chunk_bytes(array, selection)))
    return [*lines[::at_once].tolist(), len(along)]


def look_at(
    array: VirtualArray,
    chosen: Sequence[Along],
    most: int = USUAL_ALONG,
    most_bytes: int = LOOK_BYTES,
) -> Look:
    """Plan a look at a part of an array.

    Parameters
    ----------
    array
        The array.
    chosen
        Elements along each dimension: ranges along two of them, which are rows and columns.
    most
        Elements a side, at most.
    most_bytes
        Decoded bytes of its chunks, at most.

    Raises
    ------
    InvalidRequestError
        If that is no plane of numbers.
    RefusedError
        If even one element of it costs too much.
    """
    if array.dtype.kind not in NUMBERS:
        raise InvalidRequestError(f"a look shows numbers; values here are {array.dtype}")
    sides = [axis for axis, along in enumerate(chosen) if isinstance(along, range)]
    if len(sides) != 2:
        raise InvalidRequestError(
            f"a look has two dimensions; at= gives ranges along {len(sides)}, like 10:20 or :"
        )
    look = Look(array, tuple(chosen), *sides)
    if any(look.along(axis).step > 1 for axis in sides):
        return _as_asked(look)
    times = max(math.ceil(side / most) for side in look.shape)
    for axis, side in zip(sides, look.shape, strict=True):
        # One step for both sides keeps shapes; but of a long and thin plane the short side is kept.
        look = look.coarser(axis, max(math.ceil(side / most), min(times, side // _LEAST_ALONG), 1))
    return _affordable(look, most_bytes)


def _as_asked(look: Look) -> Look:
    """The look, if it is within the bounds."""
    if max(look.shape) > MOST_ALONG:
        raise RefusedError(f"a look has at most {MOST_ALONG} elements a side: leave out more")
    if look.n_bytes > MOST_LOOK_BYTES:
        raise RefusedError(
            f"this look needs chunks of {look.n_bytes} bytes, and may decode {MOST_LOOK_BYTES}:"
            " leave the steps out of at=, and the server finds some"
        )
    return look


def _affordable(look: Look, most_bytes: int) -> Look:
    """The look, coarser along the side where that spares most, until it is within the bound."""
    cost = look.n_bytes
    while cost > most_bytes:
        sides = [
            axis for axis, n in zip((look.rows, look.columns), look.shape, strict=True) if n > 1
        ]
        if not sides:
            raise RefusedError(
                f"one element here is in a chunk of {cost} bytes, more than the {most_bytes} that"
                " a look may decode: ask for the chunk itself, under portable"
            )
        coarser = [look.coarser(axis, 2) for axis in sides]
        look = min(coarser, key=lambda each: (each.n_bytes, -min(each.shape)))
        cost = look.n_bytes
    return look


# What travels

_TRAVELLING: dict[str, np.dtype[Any]] = {"bool": np.dtype("u1"), "float16": np.dtype("f4")}
"""In place of types that are no columns of JavaScript."""


def encoded(look: Look, path: str, values: NDArray[Any]) -> bytes:
    """A look as it travels: length of a JSON header (uint32), the header, and the values.

    The values are little-endian, row by row, sorted by the place of their bytes: first the lowest
    byte of each, then the next one. That makes them a third smaller when they are compressed.
    """
    dtype = _TRAVELLING.get(values.dtype.name, values.dtype).newbyteorder("<")
    stored = np.ascontiguousarray(values, dtype)
    rows, columns = (look.along(axis) for axis in (look.rows, look.columns))
    header = {
        "array": path,
        "dtype": dtype.name,
        "shape": look.shape,
        "rows": {"dimension": look.array.dims[look.rows], "first": rows.start, "step": rows.step},
        "columns": {
            "dimension": look.array.dims[look.columns],
            "first": columns.start,
            "step": columns.step,
        },
    }
    head = json.dumps(header).encode()
    planes = stored.view(np.uint8).reshape(-1, dtype.itemsize).T
    return len(head).to_bytes(4, "little") + head + planes.tobytes()
