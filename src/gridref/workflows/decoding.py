"""Variables decoded by the CF conventions, as xarray shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from gridref.model.array import VirtualArray

__all__ = ["coordinate_names", "decoded", "decoded_labels"]


def coordinate_names(arrays: Mapping[str, VirtualArray], attrs: Mapping[str, Any]) -> set[str]:
    """Coordinates of a group: labels of dimensions, and what ``coordinates`` attributes name.

    See the CF conventions, 5; `attrs` are those of the group.
    """
    texts = [array.attrs.get("coordinates") for array in arrays.values()]
    texts.append(attrs.get("coordinates"))
    words = {word for text in texts if isinstance(text, str) for word in text.split()}
    labels = {name for name, array in arrays.items() if array.dims == (name,)}
    return labels | (words & set(arrays))


def decoded(name: str, variable: xr.Variable, *, decode_times: bool) -> xr.Variable:
    """A variable as xarray shows it, in memory."""
    shown = xr.conventions.decode_cf_variable(name, variable, decode_times=decode_times)
    return shown.load()


def decoded_labels(dim: str, raw: NDArray[Any], array: VirtualArray) -> NDArray[Any]:
    """Labels along a dimension as xarray shows them, out of what is stored."""
    variable = xr.Variable((dim,), raw, dict(array.attrs))
    return np.asarray(decoded(dim, variable, decode_times=True).values)
