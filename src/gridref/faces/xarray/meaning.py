"""The meaning of stored numbers, and whether several virtual arrays agree in it.

Everything that concatenates virtual arrays, replaces one by another or fills one makes this check:
packing (CF conventions, 8.1), units (3.1), reference dates (4.4) and names of numbers (3.5).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gridref.combine.columns import array_source
from gridref.combine.rules.flags import named_numbers
from gridref.combine.rules.packing import Packing, float_dtype
from gridref.errors import CombineError, InvalidRequestError, Problem
from gridref.model.array import VirtualArray
from gridref.model.conventions import TimeBase, is_time_like
from gridref.model.joining import cast_scalar, recast

ADVICE = "gridref.open_virtual_mfdataset and gridref.concat resolve that"


def shows_values(array: VirtualArray) -> bool:
    """Whether stored elements are the values: neither packed nor times counted from a date."""
    plain = Packing.of(array).is_trivial or array.dtype.kind not in "biufc"
    return plain and not is_time_like(array.attrs) and "dtype" not in array.attrs


def is_no_data(array: VirtualArray, value: Any) -> bool:
    """Whether a scalar stands for "no data" beside the stored elements of an array."""
    if np.ndim(value) or array.dtype.kind not in "biufc":
        return False
    scalar = np.asarray(value)
    if scalar.dtype.kind not in "biufc":
        return False
    return bool(scalar != scalar) or scalar.item() in Packing.of(array).fills


def check_alike(arrays: Sequence[VirtualArray]) -> None:
    """Raise if stored numbers to be combined do not mean the same.

    Raises
    ------
    CombineError
        If packing, units, reference dates or names of numbers differ: xarray keeps one file's
        attributes for all.
    """
    problems = differences(arrays)
    if problems:
        raise CombineError(problems)


def differences(arrays: Sequence[VirtualArray]) -> list[Problem]:
    """How the stored numbers of arrays differ in what they mean; nothing where they do not."""
    names = [", ".join(named_numbers(array)) for array in arrays]
    meanings = (
        ("packing-differs", "stored numbers are packed differently", map(_packing_text, arrays)),
        ("units-differ", "units differ", _unit_texts(arrays)),
        ("flags-differ", "names of stored numbers differ", filter(None, names)),
    )
    problems = []
    for cause, message, texts in meanings:
        distinct = list(dict.fromkeys(texts))
        if len(distinct) > 1:
            shown = f"{message}: {'; '.join(distinct[:4])}; {ADVICE}"
            problems.append(Problem(cause, shown, sources=files_of(arrays)))
    return problems


def files_of(arrays: Sequence[VirtualArray]) -> tuple[str, ...]:
    """The files of arrays, each once."""
    return tuple(name for name in dict.fromkeys(map(array_source, arrays)) if name is not None)


def _packing_text(array: VirtualArray) -> str:
    """What decides how stored numbers become values, in words."""
    if array.dtype.kind not in "biuf":
        return "not packed"
    packing = Packing.of(array)
    text = str(packing)
    if not packing.is_exact:
        text += f", in {float_dtype(array, packing)}"
    if packing.unsigned is not None:
        text += f" {array.dtype}"
    return f"{text}, {array.attrs['dtype']}" if "dtype" in array.attrs else text


def _unit_texts(arrays: Sequence[VirtualArray]) -> list[str]:
    """Units that differ. No unit is one where others count times, and goes with any other."""
    units: dict[TimeBase | str, str] = {}
    for array in arrays:
        text = f"{array.attrs.get('units', '')} {array.attrs.get('calendar', '')}".strip()
        text = text if "units" in array.attrs else ""
        units.setdefault(TimeBase.of(array.attrs) or text, text)
    times = any(is_time_like(array.attrs) for array in arrays)
    return [text or "none" for text in units.values() if text or times]


def promoted(array: VirtualArray, dtype: np.dtype[Any]) -> VirtualArray:
    """The same stored numbers in a wider dtype, as xarray asks for where it fills in.

    Raises
    ------
    InvalidRequestError
        If the numbers, or the values that readers make of them, would not be the same.
    """
    wider = recast(array, dtype, cast_scalar(array.fill_value, dtype))
    packing = Packing.of(array)
    if not _holds(array.dtype, dtype) or (dtype.kind not in "fc" and not shows_values(array)):
        raise InvalidRequestError(f"stored {array.dtype} cannot become {dtype} without a change")
    if packing.unsigned is not None:
        reason = f"stored {array.dtype} that count as {'un' * packing.unsigned}signed"
        raise InvalidRequestError(f"{reason} cannot become {dtype}")
    if not packing.is_exact and float_dtype(array, packing) != float_dtype(wider, packing):
        reason = f"packed {array.dtype} would be unpacked in another precision as {dtype}"
        raise InvalidRequestError(reason)
    return wider


def _holds(stored: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Whether a cast keeps numbers: widening, or integers to the floats that xarray takes."""
    if np.can_cast(stored, wanted, "safe"):
        return True
    return stored.kind in "iu" and wanted.kind in "fc" and wanted.itemsize >= 8
