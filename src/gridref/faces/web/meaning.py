"""Interpret stored numbers by the CF conventions: packing, missing values and valid range.

``web/viewer/meaning.js`` says the same for browsers. Source: CF conventions 1.11, 2.5.1 and 8.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.model.array import VirtualArray

NUMBERS = "biuf"


@dataclass(frozen=True)
class Meaning:
    """How to read stored numbers.

    Attributes
    ----------
    lack
        What negative numbers lack that stand for large ones (``_Unsigned``).
    missing
        Numbers that stand for none.
    low, high
        The valid range, before unpacking.
    scale, offset
        What unpacks.
    flags
        Numbers that stand for categories; empty where there are none.
    """

    lack: float
    missing: tuple[float, ...]
    low: float
    high: float
    scale: float
    offset: float
    flags: tuple[float, ...]

    @classmethod
    def of(cls, array: VirtualArray) -> Meaning:
        """The meaning that an array states."""
        attrs, dtype = array.attrs, array.dtype
        is_unsigned = str(attrs.get("_Unsigned", "")).lower() == "true" and dtype.kind == "i"
        lack = 2.0 ** (8 * dtype.itemsize) if is_unsigned else 0.0

        def numbers(name: str) -> list[float]:
            return [n + lack if n < 0 else n for n in _numbers(attrs, name)]

        low, high = [*numbers("valid_range"), np.nan, np.nan][:2]
        low = next(iter(numbers("valid_min")), -np.inf) if np.isnan(low) else low
        high = next(iter(numbers("valid_max")), np.inf) if np.isnan(high) else high
        return cls(
            lack,
            tuple(sorted({*numbers("_FillValue"), *numbers("missing_value")})),
            low,
            high,
            next(iter(_numbers(attrs, "scale_factor")), 1.0),
            next(iter(_numbers(attrs, "add_offset")), 0.0),
            tuple(_numbers(attrs, "flag_values")),
        )

    def unpacked(self, stored: NDArray[Any]) -> NDArray[np.floating[Any]]:
        """Numbers as people count them; NaN where there is none.

        They are of 32 bits where stored numbers of 32 bits are not packed, else of 64.
        """
        is_single = stored.dtype == np.float32 and (self.scale, self.offset) == (1.0, 0.0)
        values: NDArray[np.floating[Any]] = (
            stored.astype(np.float32) if is_single else stored.astype(np.float64)
        )
        if self.lack:
            values[values < 0] += self.lack
        absent = np.zeros(values.shape, bool)
        for number in self.missing:
            absent |= values == values.dtype.type(number)
        if np.isfinite(self.low) or np.isfinite(self.high):
            absent |= (values < self.low) | (values > self.high)
        if not is_single and (self.scale, self.offset) != (1.0, 0.0):
            values = values * self.scale + self.offset
        values[absent] = np.nan
        return values


def _numbers(attrs: Mapping[str, Any], name: str) -> list[float]:
    """An attribute as finite numbers; attributes may be anything."""
    try:
        found = np.asarray(attrs[name]).astype(np.float64).ravel()
    except (KeyError, TypeError, ValueError):
        return []
    return [float(number) for number in found[:256] if np.isfinite(number)]
