"""CF unpacking: stored values as physical values, in the order and precision of xarray."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.model.encoding import Unpacking


def unpack(values: NDArray[Any], unpacking: Unpacking) -> NDArray[Any]:
    """Turn packed values into physical ones, in the order and precision of xarray.

    The values are converted to the result's dtype, then compared with the fill values, then scaled,
    then shifted, each step rounding to that dtype (CF conventions, sections 2.5.1 and 8.1; NetCDF
    Best Practices for ``_Unsigned``).

    Parameters
    ----------
    values
        Stored values of any integer or floating dtype.

    Returns
    -------
    numpy.ndarray
        A new array of dtype ``unpacking.dtype`` and the shape of `values`.
    """
    fills = unpacking.fill_values
    kind, size = values.dtype.kind, values.dtype.itemsize
    if (kind, unpacking.unsigned) in {("i", True), ("u", False)}:
        other = np.dtype(f"{'u' if kind == 'i' else 'i'}{size}")
        stored, values = values.dtype, values.astype(other)
        fills = tuple(_wrapped(fill, stored, other) for fill in fills)
    with np.errstate(all="ignore"):
        unpacked = values.astype(unpacking.dtype)
        masked = [unpacked == np.float64(fill) for fill in fills if fill == fill]
        if masked:
            unpacked[np.logical_or.reduce(masked)] = np.nan
        if unpacking.scale is not None:
            unpacked *= _factor(unpacking.scale, unpacked.dtype)
        if unpacking.offset is not None:
            unpacked += _factor(unpacking.offset, unpacked.dtype)
    return unpacked


def renumber(values: NDArray[Any], pairs: Sequence[Sequence[int]]) -> NDArray[Any]:
    """A copy of integers in which each number of a pair has become the other one."""
    shown = values.copy()
    for number, other in pairs:
        shown[values == number] = other
    return shown


def _wrapped(fill: float, stored: np.dtype[Any], dtype: np.dtype[Any]) -> float:
    """A stored integer read with the other signedness; what cannot be stored stays as it is."""
    storable = np.iinfo(stored)
    if not storable.min <= fill <= storable.max or fill != int(fill):
        return fill
    limits = np.iinfo(dtype)
    return (int(fill) - int(limits.min)) % (1 << dtype.itemsize * 8) + int(limits.min)


def _factor(number: float, dtype: np.dtype[Any]) -> Any:
    """A factor for numpy: in the array's precision, if that loses nothing."""
    narrow = dtype.type(number)
    return narrow if float(narrow) == float(number) else np.float64(number)
