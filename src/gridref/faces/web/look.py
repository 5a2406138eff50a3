"""Take a plane of an array at lower resolution, in bounded time.

A picture has a thousand elements a side, and an array may have a hundred times as many. What is
read for it is bounded: of an array without overviews chunks are left out, if there are too many.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError
from gridref.faces.web.meaning import NUMBERS
from gridref.faces.web.part import Part, RefusedError

MOST_ALONG = 2048
"""Elements a side of a look; also those up to which the viewer shows an array without one."""
USUAL_ALONG = 1024
LOOK_BYTES = 2**29
"""Decoded bytes of the chunks that are read for a look: about a second."""
MOST_LOOK_BYTES = 2**33
"""The same for one whose steps are asked for."""
_LEAST_ALONG = 200
"""So many elements the shorter side keeps, if it has them."""


def look_at(part: Part, most: int = USUAL_ALONG, most_bytes: int = LOOK_BYTES) -> Part:
    """Plan a look at a part of an array: the same part, or every so many elements of it.

    Parameters
    ----------
    part
        Ranges along two dimensions, which are rows and columns.
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
    if part.array.dtype.kind not in NUMBERS:
        raise InvalidRequestError(f"a look shows numbers; values here are {part.array.dtype}")
    if len(part.axes) != 2:
        raise InvalidRequestError(
            f"a look has two dimensions; at= gives ranges along {len(part.axes)}, like 10:20 or :"
        )
    if any(part.along(axis).step > 1 for axis in part.axes):
        return _as_asked(part)
    times = max(math.ceil(side / most) for side in part.shape)
    look = part
    for axis, side in zip(part.axes, part.shape, strict=True):
        # One step for both sides keeps shapes; but of a long and thin plane the short side is kept.
        own = max(math.ceil(side / most), min(times, side // _LEAST_ALONG), 1)
        look = _coarser(look, axis, own)
    return _affordable(look, most_bytes)


def _coarser(look: Part, axis: int, times: int) -> Part:
    """The same with fewer elements along a dimension: the middle ones of so many each."""
    along = look.along(axis)
    return look.with_along(axis, along[min((times - 1) // 2, len(along) - 1) :: times])


def _as_asked(look: Part) -> Part:
    """The look, if it is within the bounds."""
    if max(look.shape) > MOST_ALONG:
        raise RefusedError(f"a look has at most {MOST_ALONG} elements a side: leave out more")
    if look.n_bytes > MOST_LOOK_BYTES:
        raise RefusedError(
            f"this look needs chunks of {look.n_bytes} bytes, and may decode {MOST_LOOK_BYTES}:"
            " leave the steps out of at=, and the server finds some"
        )
    return look


def _affordable(look: Part, most_bytes: int) -> Part:
    """The look, coarser along the side where that spares most, until it is within the bound."""
    cost = look.n_bytes
    while cost > most_bytes:
        sides = [axis for axis in look.axes if len(look.along(axis)) > 1]
        if not sides:
            raise RefusedError(
                f"one element here is in a chunk of {cost} bytes, more than the {most_bytes} that"
                " a look may decode: ask for the chunk itself, under portable"
            )
        coarser = [_coarser(look, axis, 2) for axis in sides]
        look = min(coarser, key=lambda each: (each.n_bytes, -min(each.shape)))
        cost = look.n_bytes
    return look


# What travels

_TRAVELLING: dict[str, np.dtype[Any]] = {"bool": np.dtype("u1"), "float16": np.dtype("f4")}
"""In place of types that are no columns of JavaScript."""


def encoded(look: Part, values: NDArray[Any]) -> bytes:
    """A look as it travels: length of a JSON header (uint32), the header, and the values.

    The values are little-endian, row by row, sorted by the place of their bytes: first the lowest
    byte of each, then the next one. That makes them a third smaller when they are compressed.
    """
    dtype = _TRAVELLING.get(values.dtype.name, values.dtype).newbyteorder("<")
    stored = np.ascontiguousarray(values, dtype)
    header: dict[str, Any] = {"array": look.path, "dtype": dtype.name, "shape": look.shape}
    for side, axis in zip(("rows", "columns"), look.axes, strict=True):
        along = look.along(axis)
        header[side] = {
            "dimension": look.array.dims[axis],
            "first": along.start,
            "step": along.step,
        }
    head = json.dumps(header).encode()
    planes = stored.view(np.uint8).reshape(-1, dtype.itemsize).T
    return len(head).to_bytes(4, "little") + head + planes.tobytes()
