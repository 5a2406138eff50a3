"""Values that a condition asks for, read only where a catalog knows that there may be some."""

from __future__ import annotations

import operator

import numpy as np
import xarray as xr

from gridref.adapters.xarray.written_groups import virtual_array_of
from gridref.catalog.finding import Bound, boxes, parse_condition
from gridref.errors import InvalidRequestError

__all__ = ["values_where"]

_HOLDS = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
}
_PACKING = {"_FillValue", "missing_value", "scale_factor", "add_offset", "_Unsigned"}


def values_where(array: xr.DataArray, condition: str) -> xr.DataArray:
    """``array.where(array > 310)``, in memory, of a virtual array: see `GridrefAccessor.where`."""
    bounds = parse_condition(condition)
    virtual = virtual_array_of(array.variable)
    if virtual is None:
        raise InvalidRequestError(f"{array.name} is loaded, not virtual: use where(), it is there")
    raw = sorted(_PACKING.intersection(array.attrs))
    if raw or array.dtype.kind not in "iuf":
        why = f"has {', '.join(raw)} as attributes" if raw else f"is shown as {array.dtype}"
        raise InvalidRequestError(
            f"{array.name} {why}: what is known of values is of numbers, unpacked"
            " (mask_and_scale=True), and not of times"
        )
    nothing = xr.DataArray(np.zeros(0, array.dtype))
    filled = np.full(array.shape, np.nan, _kept(nothing, bounds).dtype)
    for box in boxes(virtual, bounds) if array.size else ():
        filled[tuple(box[str(dim)] for dim in array.dims)] = _kept(array.isel(box), bounds).values
    return array.copy(data=filled)


def _kept(array: xr.DataArray, bounds: list[Bound]) -> xr.DataArray:
    """What a piece holds where all bounds hold."""
    piece = array.load()
    for bound in bounds:
        piece = piece.where(_HOLDS[bound.operator](array, bound.number))
    return piece
