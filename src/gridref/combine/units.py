"""Units that differ between inputs: a problem, or converted where that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from gridref.combine.calendars import is_time_like
from gridref.combine.columns import Column, Kind, Notes, value_text
from gridref.combine.packing import Packing, float_dtype, without_packing
from gridref.model.array import VirtualArray
from gridref.model.encoding import Unpacking
from gridref.model.joining import recast

__all__ = ["resolve_units"]


def resolve_units(columns: Mapping[str, Column], notes: Notes) -> dict[str, Column]:
    """Bring numbers on the first file's units, or note that they differ."""
    return {name: _resolve(column, notes) for name, column in columns.items()}


def _resolve(column: Column, notes: Notes) -> Column:
    units = {str(kind.array.attrs["units"]) for kind in column.kinds if "units" in kind.array.attrs}
    if len(units) < 2 or any(is_time_like(kind.array.attrs) for kind in column.kinds):
        return column
    cases = column.cases(lambda kind: value_text(kind.array.attrs.get("units")))
    convert = notes.options.convert_units
    if convert is None:
        advice = "a converter given as convert_units brings them on the first's"
        notes.conflict("units-differ", column.path, "units", cases, advice)
        return column
    target = str(column.first.attrs.get("units"))
    factors: dict[str, tuple[float, float]] = {}
    for unit in units:
        pair = (1.0, 0.0) if unit == target else convert(unit, target)
        if pair is None:
            notes.conflict("units-differ", column.path, "units", cases, "they cannot be converted")
            return column
        factors[unit] = pair
    notes.drift("units", column.path, cases, f"converted to {target}")
    dtype = np.result_type(
        *(float_dtype(kind.array, Packing.of(kind.array)) for kind in column.kinds)
    )

    def change(kind: Kind, array: VirtualArray) -> VirtualArray:
        factor = factors.get(str(kind.array.attrs.get("units")), (1.0, 0.0))
        return _converted(array, factor, target, dtype)

    return column.map_kinds(change)


def _converted(
    array: VirtualArray, factor: tuple[float, float], target: str, dtype: np.dtype[np.float64]
) -> VirtualArray:
    """Unpacked floats in other units: the packing's scale and offset take in those of the units."""
    packing = Packing.of(array)
    scale, offset = packing.scale, packing.offset
    if factor != (1.0, 0.0):
        scale = (1.0 if scale is None else scale) * factor[0]
        offset = (0.0 if offset is None else offset) * factor[0] + factor[1]
    unpacking = Unpacking(
        scale, offset, tuple(sorted(packing.fills)), packing.unsigned, str(np.dtype(dtype))
    )
    floats = recast(array, dtype, dtype.type(np.nan))
    encodings = tuple(
        replace(encoding, unpacking=unpacking)
        if unpacking != Unpacking(dtype=str(dtype))
        else encoding
        for encoding in floats.encodings
    )
    attrs = {**without_packing(array.attrs, dtype), "units": target}
    return floats.replace(encodings=encodings, attrs=attrs)
