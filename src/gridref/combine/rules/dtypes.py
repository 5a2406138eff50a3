"""Find a dtype that holds the values of all inputs if their dtypes differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from gridref.combine.columns import Column, Notes
from gridref.errors import Message, Option


def resolve_dtype(column: Column, notes: Notes) -> np.dtype[Any] | None:
    """The common dtype; None where there is none, which is noted as a problem."""
    dtypes = list(dict.fromkeys(kind.array.dtype for kind in column.kinds))
    if len(dtypes) == 1:
        return dtypes[0]
    cases = column.cases(lambda kind: str(kind.array.dtype))
    common = _common(dtypes)
    if common is None:
        notes.conflict("dtype-differs", column.path, "dtypes", cases, "they have no common one")
        return None
    if not all(_holds(common, dtype) for dtype in dtypes) and not notes.options.lossy:
        advice = Message(
            f"{common} does not hold all values; ", Option("lossy", True), " rounds them to it"
        )
        notes.conflict("dtype-differs", column.path, "dtypes", cases, advice)
        return None
    notes.drift("dtype", column.path, cases, f"promoted to {common}")
    return common


def _common(dtypes: list[np.dtype[Any]]) -> np.dtype[Any] | None:
    if len(dtypes) == 1:
        return dtypes[0]
    names = {dtype.names for dtype in dtypes}
    if names != {None}:
        return _common_compound(dtypes) if len(names) == 1 else None
    kinds = {dtype.kind for dtype in dtypes}
    if not (kinds <= set("biufc") or (len(kinds) == 1 and kinds <= set("SUmM"))):
        return None
    if "b" in kinds and len(kinds) > 1:
        return None
    return np.result_type(*dtypes)


def _common_compound(dtypes: list[np.dtype[Any]]) -> np.dtype[Any] | None:
    """Member by member: strings, for example, are as wide as the longest of each file."""
    members = []
    for name in dtypes[0].names or ():
        parts = [dtype[name] for dtype in dtypes]
        common = _common(list(dict.fromkeys(part.base for part in parts)))
        if common is None or len({part.shape for part in parts}) > 1:
            return None
        members.append((name, common, parts[0].shape))
    return np.dtype(members)


def _holds(wide: np.dtype[Any], narrow: np.dtype[Any]) -> bool:
    """Whether every value of one dtype is one of another."""
    if narrow.kind in "iu" and wide.kind in "fc":
        part = wide if wide.kind == "f" else np.dtype(f"f{wide.itemsize // 2}")
        bits = np.iinfo(narrow).bits - (narrow.kind == "i")
        return bool(bits <= np.finfo(part).nmant + 1)
    return np.can_cast(narrow, wide, "safe")
