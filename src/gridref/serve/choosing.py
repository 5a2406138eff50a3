"""Choose between the files of an array and its overlays, for one selection. Pure.

`choose` estimates how long a selection takes from the files alone, and with each overlay: its part
of the selection from the overlay, the rest from the files. No table is read for that. All numbers
that the estimate needs are in ``gridref.json``, and `COSTS` says what requests and bytes cost.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import starmap

import numpy as np

from gridref.errors import NotRepresentableError
from gridref.model.array import Overlay, VirtualArray
from gridref.model.indexing import isel
from gridref.model.overlay import Box, Stored, common, without
from gridref.model.placing import lay_out
from gridref.model.projection import AxisSelection, Progression
from gridref.typing import Int64Array

# What reading costs. Estimates, never measured: the same selection is always read in the same way


@dataclass(frozen=True)
class Costs:
    """What requests and bytes cost.

    Attributes
    ----------
    latency
        Seconds until a request is answered.
    at_once
        Requests side by side.
    bandwidth
        Bytes a second, of all requests together.
    decoded
        Decoded bytes a second, of all cores together.
    merge_gap
        Ranges of an object with fewer bytes between them are one request.
    """

    latency: float
    at_once: int
    bandwidth: float
    decoded: float
    merge_gap: int


_N_CORES = os.cpu_count() or 1
NEAR = Costs(40e-6, _N_CORES, 2e9, 0.6e9 * _N_CORES, 16 * 2**10)
"""Of a local disk."""
FAR = Costs(30e-3, 64, 100e6, 0.6e9 * _N_CORES, 256 * 2**10)
"""Of a server."""
CHUNK_SECONDS = 10e-6
"""What each chunk costs in Python."""
MERGED_BYTES = 16 * 2**20
"""Size of the largest merged request."""
WORTH = 0.8
"""An overlay is used if it takes less than this part of the time that files take."""
MOST_PARTS = 32
"""Boxes that a selection may be cut into to use an overlay."""


@dataclass(frozen=True)
class Estimate:
    """What reading a selection from one layout costs.

    Attributes
    ----------
    n_chunks, n_requests
        Stored chunks to decode, and requests to send.
    stored_bytes, decoded_bytes
        Bytes to fetch and to decode.
    seconds
        How long that takes.
    """

    n_chunks: int = 0
    n_requests: int = 0
    stored_bytes: int = 0
    decoded_bytes: int = 0
    seconds: float = 0.0

    def __add__(self, other: Estimate) -> Estimate:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Estimate(*(a + b for a, b in pairs))


def estimate(stored: Stored, itemsize: int, selections: Sequence[AxisSelection]) -> Estimate:
    """Estimate what a selection of a layout costs, by the chunks and objects it touches."""
    n_chunks = math.prod(map(n_touched, selections, stored.chunk_shape))
    n_objects = math.prod(map(n_touched, selections, stored.object_shape))
    return _estimate(stored, itemsize, n_chunks, n_objects)


def _estimate(stored: Stored, itemsize: int, n_chunks: int, n_objects: int) -> Estimate:
    costs = FAR if stored.is_far else NEAR
    # Chunks of an object that are read are evenly apart, as far as is known here.
    shapes = zip(stored.object_shape, stored.chunk_shape, strict=True)
    held = math.prod(-(-whole // part) for whole, part in shapes)
    gap = stored.chunk_bytes * (held * n_objects / n_chunks - 1)
    n_requests = n_chunks
    if gap <= costs.merge_gap:
        of_object = math.ceil(n_chunks / n_objects * stored.chunk_bytes / MERGED_BYTES)
        n_requests = min(n_chunks, n_objects * max(1, of_object))
    stored_bytes = n_chunks * stored.chunk_bytes
    decoded_bytes = n_chunks * math.prod(stored.chunk_shape) * itemsize
    seconds = (
        costs.latency * math.ceil(n_requests / costs.at_once)
        + stored_bytes / costs.bandwidth
        + decoded_bytes / costs.decoded
        + n_chunks * CHUNK_SECONDS
    )
    return Estimate(n_chunks, n_requests, int(stored_bytes), decoded_bytes, seconds)


def n_touched(selection: AxisSelection, length: int) -> int:
    """Number of stretches of a length along an axis that hold any selected element."""
    if isinstance(selection, Progression):
        last = selection.start + selection.step * (selection.count - 1)
        return min(selection.count, last // length - selection.start // length + 1)
    return len(np.unique(selection // length))


# Parts of a selection, each of which one layout answers


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a selection, and the array that answers for it.

    Attributes
    ----------
    array
        The array of the files, or a sheet of an overlay.
    selections
        What is read of that array.
    places
        Along each axis where that is in the whole selection: the place of the first element of a
        slice, or of each element of a list.
    in_files
        What would be read of the files instead.
    """

    array: VirtualArray
    selections: tuple[AxisSelection, ...]
    places: tuple[int | Int64Array, ...]
    in_files: tuple[AxisSelection, ...]


@dataclass(frozen=True, eq=False)
class Choice:
    """How a selection is read with an overlay.

    Attributes
    ----------
    overlay
        The overlay.
    parts
        Its parts of the selection, then those of the files. Together they are all of it, once.
    n_covered
        How many of the parts are the overlay's.
    estimate
        What reading all parts costs.
    """

    overlay: Overlay
    parts: tuple[Part, ...]
    n_covered: int
    estimate: Estimate


def choose(array: VirtualArray, selections: Sequence[AxisSelection]) -> Choice | None:
    """The overlay to read a selection with, which is not empty; None for the files alone."""
    forced = array.forced_overlay
    if forced is not None:
        return _with(array, forced, selections)
    itemsize = array.dtype.itemsize
    candidates = array.overlays
    if not candidates:
        return None
    limit = WORTH * estimate(candidates[0].files, itemsize, selections).seconds
    candidates = tuple(e for e in candidates if _of_one_chunk(e.stored, itemsize) < limit)
    choices = [choice for each in candidates if (choice := _with(array, each, selections))]
    best = min(choices, key=lambda choice: choice.estimate.seconds, default=None)
    return best if best is not None and best.estimate.seconds < limit else None


@lru_cache(maxsize=1024)
def _of_one_chunk(stored: Stored, itemsize: int) -> float:
    """The least that reading any of a layout takes, in seconds."""
    return _estimate(stored, itemsize, 1, 1).seconds


def estimates(
    array: VirtualArray, files: Stored, selections: Sequence[AxisSelection]
) -> tuple[tuple[str | None, Estimate], ...]:
    """What a selection costs from the files (None), and with each overlay that covers any of it."""
    choices = [choice for each in array.overlays if (choice := _with(array, each, selections))]
    from_files = estimate(files, array.dtype.itemsize, selections)
    return (None, from_files), *((each.overlay.id, each.estimate) for each in choices)


def _with(
    array: VirtualArray, overlay: Overlay, selections: Sequence[AxisSelection]
) -> Choice | None:
    """How a selection is read with an overlay; None where it covers nothing, or in many pieces."""
    bounds = tuple(map(_bounds, selections))
    covered: list[Part] = []
    boxes: list[Box] = []
    for cover in overlay.coverage:
        box = common(cover.box, bounds)
        part = None if box is None else _cut(array, selections, box)
        if box is not None and part is not None:
            shifted = map(_shifted, part.selections, cover.shift)
            sheet = overlay.sheets[cover.sheet]
            covered.append(replace(part, array=sheet, selections=tuple(shifted)))
            boxes.append(box)
            if len(boxes) > MOST_PARTS:
                return None
    if not covered:
        return None
    outside = without(bounds, boxes)
    if len(outside) > 4 * MOST_PARTS:
        return None
    rest = [part for box in outside if (part := _cut(array, selections, box)) is not None]
    if len(covered) + len(rest) > MOST_PARTS:
        return None
    itemsize = array.dtype.itemsize
    of_overlay = [estimate(overlay.stored, itemsize, part.selections) for part in covered]
    of_files = [estimate(overlay.files, itemsize, part.selections) for part in rest]
    total = sum([*of_overlay, *of_files], Estimate())
    return Choice(overlay, (*covered, *rest), len(covered), total)


def _bounds(selection: AxisSelection) -> tuple[int, int]:
    """The least interval that holds all selected elements."""
    if isinstance(selection, Progression):
        return selection.start, selection.start + selection.step * (selection.count - 1) + 1
    return int(selection.min()), int(selection.max()) + 1


def _cut(array: VirtualArray, selections: Sequence[AxisSelection], box: Box) -> Part | None:
    """The selected elements in a box, as a part; None for nothing."""
    inside: list[AxisSelection] = []
    places: list[int | Int64Array] = []
    for selection, (low, high) in zip(selections, box, strict=True):
        if isinstance(selection, Progression):
            start, step = selection.start, selection.step
            first = max(0, -((start - low) // step))
            stop = min(selection.count, -((start - high) // step))
            if first >= stop:
                return None
            inside.append(Progression(start + step * first, step, stop - first))
            places.append(first)
        else:
            (at,) = np.nonzero((selection >= low) & (selection < high))
            if not len(at):
                return None
            inside.append(selection[at])
            places.append(at)
    return Part(array, tuple(inside), tuple(places), tuple(inside))


def _shifted(selection: AxisSelection, by: int) -> AxisSelection:
    if isinstance(selection, Progression):
        return replace(selection, start=selection.start + by)
    return selection + by


# Points: not a cross product of axes, so they are counted one by one


@dataclass(frozen=True, eq=False)
class PointPart:
    """Some points, and the array that answers for them.

    Attributes
    ----------
    array
        The array of the files, or a sheet of an overlay.
    coords
        Their places in that array, along each axis.
    places
        Their places among all points.
    """

    array: VirtualArray
    coords: tuple[Int64Array, ...]
    places: Int64Array


@dataclass(frozen=True, eq=False)
class PointChoice:
    """How points are read with an overlay.

    Attributes
    ----------
    overlay
        The overlay.
    parts
        Its points, and then those of the files.
    in_files
        Places of its points along each axis of the array.
    """

    overlay: Overlay
    parts: tuple[PointPart, ...]
    in_files: tuple[Int64Array, ...]


def choose_points(array: VirtualArray, coords: Sequence[Int64Array]) -> PointChoice | None:
    """The overlay to read points with, at least one; None for the files alone."""
    itemsize = array.dtype.itemsize
    forced = array.forced_overlay
    if forced is not None:
        return _points_with(array, forced, coords)[0]
    limit = WORTH * _of_points(array.overlays[0].files, itemsize, coords)
    candidates = [e for e in array.overlays if _of_one_chunk(e.stored, itemsize) < limit]
    found = [_points_with(array, overlay, coords) for overlay in candidates]
    choices = [(seconds, choice) for choice, seconds in found if choice is not None]
    least, best = min(choices, key=lambda pair: pair[0], default=(limit, None))
    return best if least < limit else None


def _points_with(
    array: VirtualArray, overlay: Overlay, coords: Sequence[Int64Array]
) -> tuple[PointChoice | None, float]:
    """How points are read with an overlay, None where it covers none, and the seconds it takes."""
    itemsize = array.dtype.itemsize
    left = np.ones(len(coords[0]), bool)
    parts: list[PointPart] = []
    seconds = 0.0
    for cover in overlay.coverage:
        inside = left.copy()
        for along, (low, high) in zip(coords, cover.box, strict=True):
            inside &= (along >= low) & (along < high)
        (places,) = np.nonzero(inside)
        if len(places):
            own = tuple(c[places] + by for c, by in zip(coords, cover.shift, strict=True))
            parts.append(PointPart(overlay.sheets[cover.sheet], own, places))
            seconds += _of_points(overlay.stored, itemsize, own)
            left &= ~inside
    if not parts:
        return None, 0.0
    (places,) = np.nonzero(left)
    if len(places):
        rest = tuple(along[places] for along in coords)
        parts.append(PointPart(array, rest, places))
        seconds += _of_points(overlay.files, itemsize, rest)
    in_files = tuple(along[~left] for along in coords)
    return PointChoice(overlay, tuple(parts), in_files), seconds


def _of_points(stored: Stored, itemsize: int, coords: Sequence[Int64Array]) -> float:
    """Seconds that points of a layout take."""

    def n_touched_by(shape: Sequence[int]) -> int:
        cells = np.stack([along // n for along, n in zip(coords, shape, strict=True)], axis=1)
        return len(np.unique(cells, axis=0))

    n_chunks, n_objects = map(n_touched_by, (stored.chunk_shape, stored.object_shape))
    return _estimate(stored, itemsize, n_chunks, n_objects).seconds


# An overlay alone, without the files


def laid_out(array: VirtualArray) -> VirtualArray:
    """An array whose stored chunks are those of the overlay that all reads are to use, if any.

    Raises
    ------
    NotRepresentableError
        If that overlay does not hold all elements.
    """
    overlay = array.forced_overlay
    if overlay is None:
        return array
    n_held = sum(cover.n_elements for cover in overlay.coverage)
    if n_held < array.size:
        raise NotRepresentableError(
            f"overlay {overlay.id} holds {100 * n_held / array.size:.3g} % of its elements;"
            " rechunk writes the rest"
        )
    parts = [
        isel(overlay.sheets[cover.sheet], dict(enumerate(starmap(slice, cover.sheet_box))))
        for cover in overlay.coverage
    ]
    corners = [cover.start for cover in overlay.coverage]
    whole = lay_out(parts, corners, array.shape, fill_value=array.fill_value)
    layout = {name: getattr(whole, name) for name in ("grid", "encodings", "manifests", "blocks")}
    return array.with_changes(**layout)
