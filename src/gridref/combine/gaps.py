"""Variables that some inputs lack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gridref.combine.columns import Column, Notes
from gridref.combine.packing import Packing, unpack_all
from gridref.model.array import VirtualArray, zero_of
from gridref.model.joining import missing_array

__all__ = ["fill_gaps", "lacking_files", "no_data_of"]


def lacking_files(column: Column, lengths: Mapping[int, int]) -> list[int]:
    """Files that have rows along the dimension, but not the variable."""
    if len(column.files) == len(lengths):
        return []
    having = set(column.files)
    return [file for file, extent in sorted(lengths.items()) if extent and file not in having]


def fill_gaps(
    column: Column, dim: str, lengths: Mapping[int, int], notes: Notes
) -> tuple[Column, Any] | None:
    """Put missing blocks where files lack a variable, as the rule for that says.

    Returns
    -------
    tuple or None
        The column with all files, and the fill value that missing blocks read as (None where there
        are none). None where the variable is left out or cannot be filled.
    """
    lacking = lacking_files(column, lengths)
    if not lacking:
        return column, None
    rule = notes.options.join
    if rule in ("exact", "override"):
        message = "some files lack it; join='outer' fills in, join='inner' leaves it out"
        notes.problem("variable-missing", column.path, message, lacking)
        return None
    cases = {"there": list(column.files), "missing": lacking}
    if rule == "inner":
        notes.drift("variable-missing", column.path, cases, "left out")
        return None
    if column.name == dim:
        message = "files without labels along the dimension cannot be filled in"
        notes.problem("variable-missing", column.path, message, lacking)
        return None
    column, fill = _with_fill(column)
    notes.drift("variable-missing", column.path, cases, f"missing blocks read as {fill!r}")
    template = column.first
    axis = template.dims.index(dim)
    having = dict(zip(column.files, column.arrays, strict=True))
    files = sorted([*having, *lacking])
    arrays = [
        having[file] if file in having else _gap(template, axis, lengths[file], fill)
        for file in files
    ]
    return Column(column.name, column.path, files, arrays), fill


def _with_fill(column: Column) -> tuple[Column, Any]:
    """A value that says "no data" in the array, unpacking it to floats where it has none."""
    fill = no_data_of(column.first)
    if fill is not None:
        return column, fill
    floats = unpack_all(column)
    return floats, floats.first.dtype.type(np.nan)


def no_data_of(array: VirtualArray) -> Any:
    """The stored value that says "no data" in an array; None for integers that have none."""
    dtype = array.dtype
    if dtype.kind in "SUT" or dtype.kind not in "biuf":
        return zero_of(dtype)
    declared = array.attrs.get("_FillValue", array.attrs.get("missing_value"))
    if declared is not None and Packing.of(array).fills:
        return np.asarray(declared).reshape(-1)[0].astype(dtype)
    return dtype.type(np.nan) if dtype.kind == "f" else None


def _gap(template: VirtualArray, axis: int, extent: int, fill: Any) -> VirtualArray:
    shape = (*template.shape[:axis], extent, *template.shape[axis + 1 :])
    return missing_array(
        shape, template.dtype, dims=template.dims, fill_value=fill, attrs=template.attrs
    )
