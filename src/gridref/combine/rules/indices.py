"""Shift the index variables of ragged arrays, which count along a dimension that grows.

CF conventions, 9.3.3 "Contiguous ragged array representation" (row sizes need no change) and 9.3.4
"Indexed ragged array representation" (the index variable counts instances).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from gridref.combine.columns import Column, Notes
from gridref.combine.rules.packing import Packing
from gridref.combine.values import Values
from gridref.model.array import VirtualArray


def shift_indices(
    columns: Mapping[str, Column],
    lengths: Mapping[str, Mapping[int, int]],
    notes: Notes,
    values: Values,
) -> dict[str, Column]:
    """Shift index variables by the length of what they point into, in the files before."""
    result = dict(columns)
    for name, column in columns.items():
        dim = counts_along(column, notes)
        if dim not in lengths:
            continue
        if not all(values.available(array) for array in column.arrays):
            message = f"it counts along {dim!r} and has to be shifted, but nothing can read it"
            notes.problem("index-shift", column.path, message, column.files)
            continue
        result[name] = _shifted(column, lengths[dim], values)
        notes.drift(
            "index-shift", column.path, {f"counts along {dim}": list(column.files)}, "shifted"
        )
    return result


def counts_along(column: Column, notes: Notes) -> str:
    """The dimension whose elements an index variable counts; empty for other variables."""
    named = notes.options.index_variables.get(column.name)
    dim = named or column.first.attrs.get("instance_dimension")
    return dim if isinstance(dim, str) and column.first.dtype.kind in "iu" else ""


def refuse_moved(columns: Iterable[Column], dim: str, notes: Notes) -> None:
    """Note index variables that are not laid file after file: their shift is unknown."""
    for column in columns:
        message = (
            f"it counts along {dim!r}, whose elements are left out or put in another order by their"
            " labels: give files in the order of their labels, without repeats"
        )
        notes.problem("index-shift", column.path, message, column.files)


def _shifted(column: Column, lengths: Mapping[int, int], values: Values) -> Column:
    starts: dict[int, int] = {}
    total = 0
    for file in range(max([*lengths, *column.files]) + 1):
        starts[file] = total
        total += lengths.get(file, 0)
    arrays = []
    for file, array in zip(column.files, column.arrays, strict=True):
        data = values.of(array).astype(np.int64)
        valid = np.ones(data.shape, bool)
        for fill in Packing.of(array).fills:
            valid &= data != fill
        shifted = np.where(valid, data + starts[file], data)
        dtype = array.dtype if total <= np.iinfo(array.dtype).max else np.dtype(np.int64)
        arrays.append(VirtualArray.from_numpy(shifted.astype(dtype), array.dims, array.attrs))
    return column.with_arrays(arrays)
