"""CF unpacking of decoded values, in the order and precision in which xarray does it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.model.encoding import Unpacking

__all__ = ["unpack"]


def unpack(values: NDArray[Any], unpacking: Unpacking) -> NDArray[Any]:
    """Unpack stored values: mask, then multiply, then add (CF conventions 8.1, 2.5.1).

    Parameters
    ----------
    values
        Stored values of any shape.
    unpacking
        How they are packed.

    Returns
    -------
    numpy.ndarray
        Of `Unpacking.dtype`; NaN where a stored value means "no data".
    """
    stored = values
    if unpacking.unsigned is not None and stored.dtype.kind in "iu":
        kind = "u" if unpacking.unsigned else "i"
        stored = stored.astype(f"{kind}{stored.dtype.itemsize}")
    result = stored.astype(unpacking.dtype)
    absent = np.zeros(stored.shape, bool)
    for fill_value in unpacking.fill_values:
        absent |= result == fill_value
    with np.errstate(all="ignore"):  # what is masked may overflow
        if unpacking.scale is not None:
            result *= unpacking.scale
        if unpacking.offset is not None:
            result += unpacking.offset
    result[absent] = np.nan
    return result
