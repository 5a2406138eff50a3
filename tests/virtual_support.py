"""What virtual variables hold, for comparison with what other readers return undecoded."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from gridref.faces.xarray.duck_array import VirtualDuckArray

__all__ = ["stored"]


def stored(array: xr.DataArray) -> NDArray[Any]:
    """Elements as they are in the file; those of a loaded variable as they are."""
    data = array.variable.data
    return data.load() if isinstance(data, VirtualDuckArray) else np.asarray(data)
