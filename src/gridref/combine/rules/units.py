"""Convert units that differ between inputs, if the caller asks for it.

Without that, different units are a problem. Input are numbers and their bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gridref.combine.columns import Column, Kind, Notes, value_text
from gridref.combine.rules.packing import Packing, float_dtype, rescaled, without_packing
from gridref.errors import Message, Option
from gridref.model.array import VirtualArray
from gridref.model.encoding import Unpacking
from gridref.model.joining import recast
from gridref.model.reference_systems import text_of
from gridref.model.times import is_time_like

Factor = tuple[float, float]
_SAME: Factor = (1.0, 0.0)


def resolve_units(columns: Mapping[str, Column], notes: Notes) -> dict[str, Column]:
    """Convert numbers, and their bounds, to the first file's units, or note a problem."""
    result = dict(columns)
    for name, column in columns.items():
        factors = _factors(column, notes)
        if not factors:
            continue
        by_file = {
            file: factors[_units(kind)] for kind in column.kinds for file in column.files_of(kind)
        }
        target = str(column.first.attrs["units"])
        for member in [name, *_bounds_of(column, columns)]:
            result[member] = _rescaled_column(result[member], by_file, target)
    return result


def _units(kind: Kind) -> str:
    return str(kind.array.attrs.get("units"))


def _bounds_of(column: Column, columns: Mapping[str, Column]) -> list[str]:
    """Bounds that have no units of their own (CF conventions, 7.1): they are in the column's."""
    names = dict.fromkeys(text_of(kind.array.attrs, "bounds") for kind in column.kinds)
    return [
        name
        for name in names
        if name in columns and not any("units" in kind.array.attrs for kind in columns[name].kinds)
    ]


def _factors(column: Column, notes: Notes) -> dict[str, Factor]:
    """Factor and offset of every unit of a column; none where nothing is to be changed."""
    units = {_units(kind) for kind in column.kinds if "units" in kind.array.attrs}
    if len(units) < 2 or any(is_time_like(kind.array.attrs) for kind in column.kinds):
        return {}
    cases = column.cases(lambda kind: value_text(kind.array.attrs.get("units")))
    convert = notes.options.convert_units
    target = str(column.first.attrs.get("units"))
    if not callable(convert):
        advice: str = Message(
            Option("convert_units", True), ", or a converter, converts them to the first file's"
        )
    else:
        factor_of = {unit: _SAME if unit == target else convert(unit, target) for unit in units}
        factors = {unit: pair for unit, pair in factor_of.items() if pair is not None}
        advice = _obstacle(column, factor_of)
        if not advice and all(pair == _SAME for pair in factors.values()):
            notes.drift("units", column.path, cases, "they mean the same; the first file's")
            return {}
        if not advice:
            notes.drift("units", column.path, cases, f"converted to {target}")
            return factors
    notes.conflict("units-differ", column.path, "units", cases, advice)
    return {}


def _obstacle(column: Column, factor_of: Mapping[str, Factor | None]) -> str:
    """Why units cannot be converted; empty where they can."""
    if None in factor_of.values():
        return "they cannot be converted"
    if any("units" not in kind.array.attrs for kind in column.kinds):
        return "files without units cannot be converted"
    if any(kind.array.dtype.kind not in "biuf" for kind in column.kinds):
        return "only numbers can be converted"
    shifted = any(pair is not None and pair[1] for pair in factor_of.values())
    if shifted and any(_is_difference(kind.array.attrs) for kind in column.kinds):
        return "differences have no zero to shift: convert them before combining"
    return ""


def _is_difference(attrs: Mapping[str, Any]) -> bool:
    """Whether values are differences or spreads (CF conventions, 3.1.2 and appendix E)."""
    methods = str(attrs.get("cell_methods", ""))
    return "difference" in str(attrs.get("units_metadata", "")) or any(
        method in methods for method in ("standard_deviation", "range", "variance")
    )


def _rescaled_column(column: Column, by_file: Mapping[int, Factor], target: str) -> Column:
    dtype = np.result_type(
        *(float_dtype(kind.array, Packing.of(kind.array)) for kind in column.kinds)
    )
    arrays = [
        _converted(array, by_file.get(file, _SAME), target, dtype)
        for file, array in zip(column.files, column.arrays, strict=True)
    ]
    return column.with_arrays(arrays)


def _converted(
    array: VirtualArray, factor: Factor, target: str, dtype: np.dtype[Any]
) -> VirtualArray:
    """Unpacked floats in other units: the packing's scale and offset take in those of the units."""
    packing = Packing.of(array)
    scale, offset = packing.scale, packing.offset
    if factor != _SAME:
        scale = (1.0 if scale is None else scale) * factor[0]
        offset = (0.0 if offset is None else offset) * factor[0] + factor[1]
    unpacking = Unpacking(
        scale, offset, tuple(sorted(packing.fills)), packing.unsigned, str(np.dtype(dtype))
    )
    floats = recast(array, dtype, dtype.type(np.nan))
    encodings = floats.encodings
    if unpacking != Unpacking(dtype=str(dtype)):
        encodings = tuple(rescaled(encoding, unpacking) for encoding in encodings)
    attrs = without_packing(array.attrs, dtype)
    if "units" in attrs:
        attrs["units"] = target
    return floats.with_changes(encodings=encodings, attrs=attrs)
