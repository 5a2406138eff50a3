"""Fill the gaps of variables that some inputs lack.

A gap reads as "no data". A variable without a fill value becomes floats with NaN. Padded 64-bit
integers get a fill value instead, as floats do not hold all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gridref.combine.columns import Column, Notes
from gridref.combine.rules.packing import Packing, unpack_all
from gridref.errors import Message, Option
from gridref.model.array import VirtualArray, zero_of
from gridref.model.scan_report import LEFT_OUT, Fate

_FILL_VALUES = {"int64": -9223372036854775806, "uint64": 18446744073709551614}


def note_damaged(notes: Notes) -> None:
    """Note arrays that are corrupt in some files and not in others: they are not absent there."""
    damaged = [(n, f) for n, g in enumerate(notes.inputs) for f in g.report.with_fate(Fate.DAMAGED)]
    for path in dict.fromkeys(finding.path.strip("/") for _, finding in damaged):
        if any(path in group for group in notes.inputs):
            files = [n for n, finding in damaged if finding.path.strip("/") == path]
            reason = next(f.reason for _, f in damaged if f.path.strip("/") == path)
            message: str = Message(
                f"it is corrupt in these files and intact in others: {reason}; restore these "
                "files. ",
                Option("on_unsupported", "skip"),
                " treats it as absent there",
            )
            notes.problem("variable-damaged", path, message, files)


def lacking_files(column: Column, lengths: Mapping[int, int]) -> list[int]:
    """Files that have rows along the dimension, but not the variable."""
    if len(column.files) == len(lengths):
        return []
    having = set(column.files)
    return [file for file, extent in sorted(lengths.items()) if extent and file not in having]


def fill_for_gaps(
    column: Column, lacking: Sequence[int], named: str, notes: Notes, *, covered: bool
) -> tuple[Column, Any] | None:
    """What to show where files lack a variable, as the rule for that says.

    Parameters
    ----------
    lacking
        Files that have the places along the dimension, but not the variable.
    named
        The dimension, whose own labels cannot be made up.
    covered
        Whether other files hold the variable in all places of those that lack it.

    Returns
    -------
    tuple or None
        The column, unpacked to floats if need be, and the fill value that gaps read as (None where
        there are none). None where the variable is left out or cannot be filled.
    """
    if not lacking:
        return column, None
    if _have_no_samples(column, lacking, notes):
        return column, column.first.dtype.type(0)
    rule = notes.options.join
    if rule in ("exact", "override"):
        message: str = Message(
            "some files lack it; ",
            Option("join", "outer"),
            " shows missing blocks there, ",
            Option("join", "inner"),
            " leaves the variable out of all",
        )
        notes.problem("variable-missing", column.path, message, lacking)
        return None
    cases = {"there": list(column.files), "missing": list(lacking)}
    if rule == "inner":
        notes.drift("variable-missing", column.path, cases, LEFT_OUT)
        return None
    if column.name == named:
        message = "the files lack labels along the dimension, so gaps cannot be placed"
        notes.problem("variable-missing", column.path, message, lacking)
        return None
    if covered:
        notes.drift("variable-missing", column.path, cases, "taken from the files that have it")
        return column, None
    column, fill = _with_fill(column)
    notes.drift("variable-missing", column.path, cases, f"missing blocks read as {fill!r}")
    return column, fill


def _have_no_samples(column: Column, lacking: Sequence[int], notes: Notes) -> bool:
    """Whether a variable counts samples, and files without it have none there."""
    sample = column.first.attrs.get("sample_dimension")
    path = column.path.rpartition("/")[0]
    return isinstance(sample, str) and not any(
        sample in array.dims and own.rpartition("/")[0] == path
        for file in lacking
        for own, array in notes.inputs[file].all_arrays().items()
    )


def _with_fill(column: Column) -> tuple[Column, Any]:
    """A value that says "no data" in the array, unpacking it to floats where it has none."""
    fill = no_data_of(column.first)
    if fill is not None:
        return column, fill
    floats = unpack_all(column)
    return floats, floats.first.dtype.type(np.nan)


def with_padding(column: Column) -> tuple[Column, Any]:
    """A column, and the value that says "no data" where none of its files holds anything.

    Integers that have none become floats, but for those of 64 bits, which floats cannot hold: they
    get netCDF's default fill value (``NC_FILL_INT64`` in its header ``netcdf.h``).
    """
    dtype = column.first.dtype
    if str(dtype) not in _FILL_VALUES or no_data_of(column.first) is not None:
        return _with_fill(column)
    fill = dtype.type(_FILL_VALUES[str(dtype)])
    filled = column.map_kinds(
        lambda _, array: array.with_changes(attrs={**array.attrs, "_FillValue": fill})
    )
    return filled, fill


def no_data_of(array: VirtualArray) -> Any:
    """The stored value that says "no data" in an array; None for integers that have none."""
    dtype = array.dtype
    if dtype.kind in "SUT" or dtype.kind not in "biuf":
        return zero_of(dtype)
    declared = array.attrs.get("_FillValue", array.attrs.get("missing_value"))
    if declared is not None and Packing.of(array).fills:
        return np.asarray(declared).reshape(-1)[0].astype(dtype)
    return dtype.type(np.nan) if dtype.kind == "f" else None
