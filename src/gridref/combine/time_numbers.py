"""Arithmetic on the numbers of time coordinates: exact, or not done.

Integers are changed by integer arithmetic, floats where the sum has no rounding error (the error
term of Knuth's TwoSum, The Art of Computer Programming 2, 4.2.2), and otherwise as whole ticks of
the coarsest unit, from seconds to nanoseconds, that holds every value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.combine.calendars import GREGORIAN_START_NS, TimeBase
from gridref.combine.packing import Packing
from gridref.combine.values import Values
from gridref.model.array import VirtualArray

__all__ = [
    "NO_TIME",
    "TimePart",
    "all_gregorian",
    "factors",
    "in_ticks",
    "in_units",
    "sums_exactly",
]

_INT64 = np.iinfo(np.int64)

NO_TIME = int(_INT64.min)
"""What integers hold where there is no time."""


@dataclass(frozen=True, eq=False)
class TimePart:
    """One file's part of a time coordinate or of its bounds."""

    column: int
    position: int
    base: TimeBase
    array: VirtualArray


def _valid(part: TimePart, values: Values) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Values, and which of them are times."""
    data = values.of(part.array)
    valid = np.ones(data.shape, bool) if data.dtype.kind != "f" else ~np.isnan(data)
    for fill in Packing.of(part.array).fills:
        valid &= data != fill
    return data, valid


def all_gregorian(parts: Sequence[TimePart], values: Values) -> bool:
    """Whether no time is before the Gregorian calendar's first day, 1582-10-15."""
    for part in parts:
        data, valid = _valid(part, values)
        if valid.any():
            first = data[valid].min()
            if int(first * 1.0) * part.base.unit_ns + part.base.epoch_ns < GREGORIAN_START_NS:
                return False
    return True


def factors(base: TimeBase, target: TimeBase) -> tuple[int, int]:
    """Factor and offset, in the target's units, that turn times of one base into those of another.

    Hours since 1970-01-02, in minutes since 1970-01-01: the factor is 60, the offset 1440.
    """
    return base.unit_ns // target.unit_ns, (base.epoch_ns - target.epoch_ns) // target.unit_ns


def sums_exactly(part: TimePart, target: TimeBase, values: Values) -> bool:
    """Whether scaling and shifting in float64 never rounds."""
    if any(encoding.unpacking is not None for encoding in part.array.encodings):
        return False  # shifted already, with other files: one sum more might round
    ratio, shift = factors(part.base, target)
    dtype = part.array.dtype
    if dtype.kind in "iu" and dtype.itemsize <= 4:
        return 2**32 * ratio + abs(shift) < 2**53
    data, valid = _valid(part, values)
    if dtype.kind in "iu":
        largest = (
            max(abs(int(data[valid].min())), abs(int(data[valid].max()))) if valid.any() else 0
        )
        return largest * ratio + abs(shift) < 2**53
    wide = np.where(valid, data, 0).astype(np.float64)
    return _sum_without_rounding(wide, valid, ratio, float(shift)) is not None


def in_units(
    part: TimePart, target: TimeBase, values: Values, *, has_fill: bool
) -> NDArray[Any] | None:
    """Values in the target's units, in the file's own kind of number; None if that would round."""
    data, valid = _valid(part, values)
    if not has_fill and data.dtype.kind != "f" and not valid.all():
        return None
    ratio, rest = divmod(part.base.unit_ns, target.unit_ns)
    shift, shift_rest = divmod(part.base.epoch_ns - target.epoch_ns, target.unit_ns)
    if rest or (shift_rest and data.dtype.kind != "f"):
        return None
    if data.dtype.kind in "iu":
        return _scaled_integers(data, valid, ratio, shift)
    delta = shift + shift_rest / target.unit_ns
    if shift_rest and delta * target.unit_ns != shift * target.unit_ns + shift_rest:
        return None
    wide = np.where(valid, data, 0).astype(np.float64)
    return _sum_without_rounding(wide, valid, ratio, delta)


def _sum_without_rounding(
    wide: NDArray[np.float64], valid: NDArray[np.bool_], ratio: int, delta: float
) -> NDArray[np.float64] | None:
    """``wide * ratio + delta``, NaN where not valid; None if any step would round."""
    scaled = wide * ratio
    total = scaled + delta
    back = total - scaled
    error = (scaled - (total - back)) + (delta - back)
    if (error[valid] != 0).any() or (scaled / ratio != wide).any() or not _exact(scaled, ratio):
        return None
    return np.where(valid, total, np.nan)


def _exact(scaled: NDArray[np.float64], ratio: int) -> bool:
    """Whether products with a ratio are surely exact: whole numbers below 2^53, or no product."""
    return ratio == 1 or bool(
        ((scaled == np.rint(scaled)) & (np.abs(scaled) < 2.0**53) & (ratio < 2**53)).all()
    )


def _scaled_integers(
    data: NDArray[Any], valid: NDArray[np.bool_], ratio: int, shift: int
) -> NDArray[np.int64] | None:
    held = data[valid]
    if held.size:
        ends = (int(held.min()) * ratio + shift, int(held.max()) * ratio + shift)
        extreme = max(map(abs, (*ends, ends[0] - shift, ends[1] - shift, shift)))
        if extreme > _INT64.max:
            return None
    result = np.full(data.shape, NO_TIME, np.int64)
    result[valid] = held.astype(np.int64) * ratio + shift
    return result


def in_ticks(part: TimePart, target: TimeBase, values: Values) -> NDArray[np.int64] | None:
    """Values as whole ticks of the target; None if they are none."""
    data, valid = _valid(part, values)
    shift = part.base.epoch_ns - target.epoch_ns
    if data.dtype.kind == "f":
        nanoseconds = _whole_nanoseconds(np.where(valid, data, 0), part.base)
        if nanoseconds is None:
            return None
        whole: NDArray[Any] = nanoseconds
        ratio = 1
    else:
        whole, ratio = data, part.base.unit_ns
    common = np.gcd.reduce(whole[valid].astype(np.int64)) if valid.any() else 0
    if (int(common) * ratio) % target.unit_ns or shift % target.unit_ns:
        return None
    if ratio % target.unit_ns:
        if ratio != 1:
            return None
        return _scaled_integers(whole // target.unit_ns, valid, 1, shift // target.unit_ns)
    return _scaled_integers(whole, valid, ratio // target.unit_ns, shift // target.unit_ns)


def _whole_nanoseconds(data: NDArray[Any], base: TimeBase) -> NDArray[np.int64] | None:
    """Floating times as the nanoseconds that readers show; None if they are too many.

    xarray cuts times of the standard calendars at the nanosecond, cftime rounds others to the
    microsecond.
    """
    wide = data.astype(np.float64)
    if base.calendar in ("standard", "proleptic_gregorian"):
        ns = np.trunc(wide * base.unit_ns)
    else:
        ns = np.rint(wide * (base.unit_ns / 1000)) * 1000
    return None if (np.abs(ns) >= 2.0**63).any() else ns.astype(np.int64)
