"""Choose between the files of an array and its overlays, for one selection. Pure.

`choose` estimates how long a selection takes from the files alone, and with each overlay: its part
of the selection from the overlay, the rest from the files. No table is read for that. All numbers
that the estimate needs are in ``gridref.json``, and `COSTS` says what requests and bytes cost.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import starmap
from typing import Self

import numpy as np

from gridref.errors import NotRepresentableError
from gridref.model.array import Overlay, VirtualArray
from gridref.model.indexing import isel
from gridref.model.joining import lay_out
from gridref.model.overlay import Box, Stored, common, without
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


# What is read of each layout


@dataclass(frozen=True, eq=False)
class Part[W: AxisSelection]:
    """A part of a selection, or of points, and the array that answers for it.

    Attributes
    ----------
    array
        The array of the files, or a sheet of an overlay.
    wanted
        Along each axis what is read of that array: a selection, or the places of points.
    places
        Where that is in the whole. Of a selection along each axis: the place of the first element
        of a slice, or of each element of a list. Of points one entry: their places among all.
    in_files
        What would be read of the files instead.
    estimate
        What that costs.
    """

    array: VirtualArray
    wanted: tuple[W, ...]
    places: tuple[int | Int64Array, ...]
    in_files: tuple[W, ...]
    estimate: Estimate = Estimate()

    def placed_in(self, whole: Self) -> Self:
        """The same part of what another part is of."""
        both = zip(whole.places, self.places, strict=True)
        return replace(self, places=tuple(starmap(_place_in, both)))


@dataclass(frozen=True, eq=False)
class Choice[W: AxisSelection]:
    """How a selection, or points, are read with overlays.

    Attributes
    ----------
    parts
        What they answer for, then what the files do. Together that is everything, once.
    n_covered
        How many of the parts are the overlays'.
    """

    overlays: tuple[Overlay, ...]
    parts: tuple[Part[W], ...]
    n_covered: int

    @cached_property
    def estimate(self) -> Estimate:
        """What reading all parts costs."""
        return sum((part.estimate for part in self.parts), Estimate())


def choose(
    array: VirtualArray, selections: Sequence[AxisSelection]
) -> Choice[AxisSelection] | None:
    """The overlays to read a selection with, which is not empty; None for the files alone."""
    forced = array.forced_overlay
    if forced is not None:
        return _with(array, forced, selections)
    if not array.overlays:
        return None
    from_files = estimate(array.overlays[0].files, array.dtype.itemsize, selections)
    return _fastest(array, array.overlays, selections, from_files, _with)


def choose_points(array: VirtualArray, coords: Sequence[Int64Array]) -> Choice[Int64Array] | None:
    """The overlays to read points with, at least one; None for the files alone."""
    forced = array.forced_overlay
    if forced is not None:
        return _points_with(array, forced, coords)
    from_files = _of_points(array.overlays[0].files, array.dtype.itemsize, coords)
    return _fastest(array, array.overlays, coords, from_files, _points_with)


def estimates(
    array: VirtualArray, files: Stored, selections: Sequence[AxisSelection]
) -> tuple[tuple[str | None, Estimate], ...]:
    """What a selection costs from the files (None), and with each overlay that covers any of it."""
    choices = [choice for each in array.overlays if (choice := _with(array, each, selections))]
    from_files = estimate(files, array.dtype.itemsize, selections)
    return (None, from_files), *((each.overlays[0].id, each.estimate) for each in choices)


def _fastest[W: AxisSelection](
    array: VirtualArray,
    overlays: Sequence[Overlay],
    wanted: Sequence[W],
    from_files: Estimate,
    read_with: Callable[[VirtualArray, Overlay, Sequence[W]], Choice[W] | None],
) -> Choice[W] | None:
    """How something is read with the fastest overlay, and its rest with others; None if slow."""
    limit, itemsize = WORTH * from_files.seconds, array.dtype.itemsize
    candidates = [each for each in overlays if _of_one_chunk(each.stored, itemsize) < limit]
    choices = [choice for each in candidates if (choice := read_with(array, each, wanted))]
    if not choices:
        return None
    best, *others = sorted(choices, key=lambda choice: choice.estimate.seconds)
    for other in others:
        if len(best.parts) > best.n_covered:
            best = _filled(array, best, other.overlays[0], read_with)
    return best if best.estimate.seconds < limit else None


def _filled[W: AxisSelection](
    array: VirtualArray,
    choice: Choice[W],
    overlay: Overlay,
    read_with: Callable[[VirtualArray, Overlay, Sequence[W]], Choice[W] | None],
) -> Choice[W]:
    """A choice whose parts of the files are read with one more overlay where that is faster."""
    covered: list[Part[W]] = [*choice.parts[: choice.n_covered]]
    rest: list[Part[W]] = []
    for part in choice.parts[choice.n_covered :]:
        inner = read_with(array, overlay, part.in_files)
        if inner is None or inner.estimate.seconds >= part.estimate.seconds:
            rest.append(part)
            continue
        placed = [each.placed_in(part) for each in inner.parts]
        covered += placed[: inner.n_covered]
        rest += placed[inner.n_covered :]
    if len(covered) == choice.n_covered or len(covered) + len(rest) > MOST_PARTS:
        return choice
    return Choice((*choice.overlays, overlay), (*covered, *rest), len(covered))


@lru_cache(maxsize=1024)
def _of_one_chunk(stored: Stored, itemsize: int) -> float:
    """The least that reading any of a layout takes, in seconds."""
    return _estimate(stored, itemsize, 1, 1).seconds


# Selections: a box of an overlay, or of the rest, is a part


def _with(
    array: VirtualArray, overlay: Overlay, selections: Sequence[AxisSelection]
) -> Choice[AxisSelection] | None:
    """How a selection is read with an overlay; None where it covers nothing, or in many pieces."""
    bounds = tuple(map(_bounds, selections))
    itemsize = array.dtype.itemsize
    covered: list[Part[AxisSelection]] = []
    boxes: list[Box] = []
    for cover in overlay.coverage:
        box = common(cover.box, bounds)
        part = None if box is None else _cut(array, selections, box)
        if box is not None and part is not None:
            shifted = tuple(map(_shifted, part.wanted, cover.shift))
            cost = estimate(overlay.stored, itemsize, shifted)
            sheet = overlay.sheets[cover.sheet]
            covered.append(replace(part, array=sheet, wanted=shifted, estimate=cost))
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
    rest = [replace(p, estimate=estimate(overlay.files, itemsize, p.wanted)) for p in rest]
    return Choice((overlay,), (*covered, *rest), len(covered))


def _bounds(selection: AxisSelection) -> tuple[int, int]:
    """The least interval that holds all selected elements."""
    if isinstance(selection, Progression):
        return selection.start, selection.start + selection.step * (selection.count - 1) + 1
    return int(selection.min()), int(selection.max()) + 1


def _cut(
    array: VirtualArray, selections: Sequence[AxisSelection], box: Box
) -> Part[AxisSelection] | None:
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


def _place_in(first: int | Int64Array, place: int | Int64Array) -> int | Int64Array:
    """A place in a part, whose elements are from `first` or at these places, in the whole."""
    return first + place if isinstance(first, int) else first[place]


def _shifted(selection: AxisSelection, by: int) -> AxisSelection:
    if isinstance(selection, Progression):
        return replace(selection, start=selection.start + by)
    return selection + by


# Points: not a cross product of axes, so they are counted one by one


def _points_with(
    array: VirtualArray, overlay: Overlay, coords: Sequence[Int64Array]
) -> Choice[Int64Array] | None:
    """How points are read with an overlay; None where it covers none."""
    left = np.ones(len(coords[0]), bool)
    parts: list[Part[Int64Array]] = []

    def add(of: VirtualArray, stored: Stored, shift: Sequence[int], places: Int64Array) -> None:
        in_files = tuple(along[places] for along in coords)
        own = tuple(along + by for along, by in zip(in_files, shift, strict=True))
        cost = _of_points(stored, array.dtype.itemsize, own)
        parts.append(Part(of, own, (places,), in_files, cost))

    for cover in overlay.coverage:
        inside = left.copy()
        for along, (low, high) in zip(coords, cover.box, strict=True):
            inside &= (along >= low) & (along < high)
        if inside.any():
            add(overlay.sheets[cover.sheet], overlay.stored, cover.shift, np.flatnonzero(inside))
            left &= ~inside
    if not parts:
        return None
    n_covered = len(parts)
    if left.any():
        add(array, overlay.files, (0,) * array.ndim, np.flatnonzero(left))
    return Choice((overlay,), tuple(parts), n_covered)


def _of_points(stored: Stored, itemsize: int, coords: Sequence[Int64Array]) -> Estimate:
    """What points of a layout cost."""

    def n_touched_by(shape: Sequence[int]) -> int:
        cells = np.stack([along // n for along, n in zip(coords, shape, strict=True)], axis=1)
        return len(np.unique(cells, axis=0))

    n_chunks, n_objects = map(n_touched_by, (stored.chunk_shape, stored.object_shape))
    return _estimate(stored, itemsize, n_chunks, n_objects)


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
