"""Dates and durations as the integers that they are stored as, with CF units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gridref.errors import UnsupportedFeatureError

__all__ = ["without_times"]

_UNITS = {
    "D": "days",
    "h": "hours",
    "m": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
}


def without_times(
    dtype: np.dtype[Any], fill_value: Any, attrs: Mapping[str, Any]
) -> tuple[np.dtype[Any], Any, dict[str, Any]]:
    """Dtype, fill value and attributes of an array, as int64 if it holds dates or durations.

    Not-a-time becomes ``_FillValue``.

    Raises
    ------
    UnsupportedFeatureError
        For units that CF does not know.
    """
    if dtype.kind not in "mM":
        return dtype, fill_value, dict(attrs)
    unit, count = np.datetime_data(dtype)
    if unit not in _UNITS or count != 1:
        raise UnsupportedFeatureError(f"the data type {dtype} has no CF units")
    name = _UNITS[unit]
    units = {"units": name if dtype.kind == "m" else f"{name} since 1970-01-01"}
    if dtype.kind == "M":
        units["calendar"] = "proleptic_gregorian"
    rest = {key: value for key, value in attrs.items() if key != "_FillValue"}
    missing = np.int64(np.iinfo(np.int64).min)
    fill = np.asarray(fill_value).view(np.int64)[()]
    return np.dtype(np.int64), fill, {**rest, **units, "_FillValue": missing}
