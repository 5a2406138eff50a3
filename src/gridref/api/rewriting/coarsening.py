"""Make coarser levels of an image: each element from a window of elements. Pure.

All levels are made from the elements themselves, never from the rounded elements of a finer level:
for means, sums and counts go from level to level. Sums are added in one order, whatever box of the
image is given, so that the same elements always give the same mean.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.model.conventions import MissingValues
from gridref.model.overlay import factors_of, level_shape

METHODS = ("mean", "min", "max", "mode", "nearest")
"""How an element is made of its window; missing values do not count, except for ``nearest``."""
_STRIP_ELEMENTS = 2**20
"""Elements that are worked on at a time: what is made of them on the way fits in a cache."""

Values = NDArray[Any]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Coarsening:
    """How levels are made.

    Attributes
    ----------
    method
        One of `METHODS`.
    factors
        Length of the windows of level 1 along each axis.
    n_levels
        Number of levels.
    missing
        Which elements are no values.
    meant, dtype
        Dtype that elements are meant as, and that of the levels.
    """

    method: str
    factors: tuple[int, ...]
    n_levels: int
    missing: MissingValues
    meant: np.dtype[Any]
    dtype: np.dtype[Any]

    def windows(self, level: int) -> tuple[int, ...]:
        """Lengths of the windows of a level."""
        return factors_of(self.factors, level)

    def levels(self, values: Values) -> list[Values]:
        """All levels of a box of elements that begins with a window of the coarsest one."""
        made = [
            np.empty(level_shape(values.shape, self.windows(level)), self.dtype)
            for level in range(1, self.n_levels + 1)
        ]
        for box in _strips(values.shape, self.windows(self.n_levels)):
            meant = values[box].view(self.meant)
            for level, coarse in enumerate(self._of_strip(meant), 1):
                place = (
                    slice(part.start // n, part.start // n + k)
                    for part, n, k in zip(box, self.windows(level), coarse.shape, strict=True)
                )
                made[level - 1][tuple(place)] = coarse.view(self.dtype)
        return made

    def _of_strip(self, values: Values) -> Iterator[Values]:
        if self.method == "nearest":
            yield from (self._nearest(values, level) for level in range(1, self.n_levels + 1))
        elif self.method == "mode":
            yield from (self._mode(values, level) for level in range(1, self.n_levels + 1))
        elif self.method == "mean":
            yield from self._means(values)
        else:
            yield from self._extremes(values)

    @property
    def _written(self) -> np.dtype[Any]:
        """Dtype of the levels as it is meant."""
        is_alike = self.dtype.kind in "iu" and self.meant.kind in "iu"
        return self.meant if is_alike else self.dtype

    # Methods

    def _nearest(self, values: Values, level: int) -> Values:
        """The element in the middle of each window; of an even one, the one behind it."""
        for axis, window in enumerate(self.windows(level)):
            if window > 1:
                extent = values.shape[axis]
                low = np.arange(0, extent, window)
                middle = low + np.minimum(window, extent - low) // 2
                values = np.take(values, middle, axis)
        return values

    def _mode(self, values: Values, level: int) -> Values:
        """The most frequent element of each window; of several, the least."""
        known, codes = np.unique(values, return_inverse=True, equal_nan=True)
        none = self.missing.among(known)
        n_known = len(known)
        codes = codes.reshape(values.shape)
        if none is not None:
            codes = np.where(none[codes], n_known, codes)
        sorted_codes = np.sort(_side_by_side(codes, self.windows(level), n_known), axis=-1)
        at = np.arange(sorted_codes.shape[-1])
        begins = np.ones(sorted_codes.shape, bool)
        begins[..., 1:] = sorted_codes[..., 1:] != sorted_codes[..., :-1]
        length = at - np.maximum.accumulate(np.where(begins, at, 0), axis=-1)
        length[sorted_codes == n_known] = -1
        best = np.take_along_axis(sorted_codes, length.argmax(axis=-1)[..., None], -1)[..., 0]
        mode: Values = np.append(known, self.missing.shown_as(values.dtype))[best]
        return mode

    def _extremes(self, values: Values) -> Iterator[Values]:
        """The least or greatest value of each window, from level to level."""
        choose: Any = np.minimum if self.method == "min" else np.maximum
        none = self.missing.among(values)
        if none is not None:
            limits = np.iinfo if values.dtype.kind in "iu" else np.finfo
            neutral = limits(values.dtype).max if self.method == "min" else limits(values.dtype).min
            if values.dtype.kind == "f":
                neutral = np.inf if self.method == "min" else -np.inf
            values = np.where(none, values.dtype.type(neutral), values)
        for _ in range(self.n_levels):
            values = self._joined(values, choose)
            if none is None:
                yield values
                continue
            none = self._joined(none, np.logical_and)
            yield np.where(none, self.missing.shown_as(values.dtype), values)

    def _means(self, values: Values) -> Iterator[Values]:
        """The mean of the values of each window, from sums and counts."""
        none = self.missing.among(values)
        count = np.ones(values.shape, np.int32) if none is None else (~none).astype(np.int32)
        if none is not None:
            values = np.where(none, values.dtype.type(0), values)
        sums = _summands(values)
        for _ in range(self.n_levels):
            sums = [self._joined(each, np.add) for each in sums]
            count = self._joined(count, np.add)
            mean = _quotient(sums, np.maximum(count, 1), self._written)
            if none is not None:
                mean = np.where(count == 0, self.missing.shown_as(self._written), mean)
            yield mean.astype(self._written, copy=False)

    def _joined(self, values: Values, join: Any) -> Values:
        """One level coarser: the elements of each window joined in order, axis by axis."""
        for axis, factor in enumerate(self.factors):
            if factor == 1:
                continue
            head = (slice(None),) * axis
            coarse = values[(*head, slice(0, None, factor))].copy()
            for offset in range(1, min(factor, values.shape[axis])):
                further = values[(*head, slice(offset, None, factor))]
                inside = (*head, slice(0, further.shape[axis]))
                coarse[inside] = join(coarse[inside], further)
            values = coarse
        return values


def _strips(shape: Sequence[int], windows: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Boxes of whole windows that a box is cut into along its first axes."""
    lengths = list(shape)
    for axis, window in enumerate(windows):
        others = math.prod(lengths) // max(1, lengths[axis])
        fitting = max(1, _STRIP_ELEMENTS // max(1, others * window))
        lengths[axis] = min(shape[axis], fitting * window)
    cuts = [range(0, extent, max(1, n)) for extent, n in zip(shape, lengths, strict=True)]
    for start in itertools.product(*cuts):
        yield tuple(
            slice(low, min(low + n, extent))
            for low, n, extent in zip(start, lengths, shape, strict=True)
        )


def _side_by_side(codes: NDArray[np.intp], windows: Sequence[int], beyond: int) -> Values:
    """The elements of each window along a last axis; `beyond` where the last windows end."""
    shape = level_shape(codes.shape, windows)
    behind = [
        (0, n * window - extent)
        for n, window, extent in zip(shape, windows, codes.shape, strict=True)
    ]
    padded = np.pad(codes, behind, constant_values=beyond)
    split = padded.reshape([n for pair in zip(shape, windows, strict=True) for n in pair])
    order = (*range(0, split.ndim, 2), *range(1, split.ndim, 2))
    return split.transpose(order).reshape(*shape, math.prod(windows))


def _summands(values: Values) -> list[Values]:
    """What is summed up: of long integers the upper and the lower half, whose sums are exact."""
    if values.dtype.kind == "f":
        return [values.astype(np.float64)]
    if values.dtype.itemsize < 8:
        return [values.astype(np.int64)]
    upper = (values >> values.dtype.type(32)).astype(np.int64)
    lower = (values & values.dtype.type(0xFFFFFFFF)).astype(np.int64)
    return [upper, lower]


def _quotient(sums: Sequence[Values], count: Values, dtype: np.dtype[Any]) -> Values:
    """Sums by counts, rounded once; of integers halves to the even one."""
    if dtype.kind == "f":
        with np.errstate(all="ignore"):
            total = sums[0].astype(np.float64)
            for lower in sums[1:]:
                total = total * 2.0**32 + lower
            mean: Values = (total / count).astype(dtype)
            return mean
    whole, rest = np.divmod(sums[0], count)
    for lower in sums[1:]:  # what is left of the upper half is below 2**63 with the lower one
        more, rest = np.divmod((rest << 32) + lower, count)
        whole = whole.astype(dtype) * dtype.type(2**32) + more.astype(dtype)
    is_odd = (whole & whole.dtype.type(1)).astype(bool)
    up = (2 * rest > count) | ((2 * rest == count) & is_odd)
    rounded: Values = (whole + up.astype(whole.dtype)).astype(dtype)
    return rounded
