"""Find how missing elements read, if a DMR++ document states it exactly.

The writer (``get_value_as_string`` of ``build_dmrpp_util.cc`` of the BES) prints floats with six
digits, and the bytes of big-endian numbers as if they were little-endian. An attribute
``_FillValue`` of the same value has all its digits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gridref.formats.dmrpp.document import number
from gridref.formats.dmrpp.types import ElementType
from gridref.formats.netcdf import DEFAULT_FILLS

_UNKNOWN = "unsupported-"
_DIGITS = 6
_DEFAULT_PRINTED = "9.96921e+36"
"""netCDF's default fill value of floats, with six digits."""


def exact_fill(text: str | None, element: ElementType, attribute: Any) -> Any:
    """The fill value of elements, or None if it is not known exactly.

    Parameters
    ----------
    text
        The ``fillValue`` of the document; None if it has none.
    attribute
        The attribute ``_FillValue``; None if there is none.
    """
    dtype = element.dtype
    own = attribute if getattr(attribute, "dtype", None) == dtype else None
    if text is None:
        return own
    if text.startswith(_UNKNOWN):
        return None
    if dtype.kind == "T":
        return text
    try:
        if dtype.kind == "S":
            raw = text.encode("latin-1")
            return np.bytes_(raw) if len(raw) <= dtype.itemsize else None
        if dtype.names is None:
            return _number(text, dtype, own, element.is_big_endian)
        return _record(text.split(), dtype, element.is_big_endian)
    except (ValueError, UnicodeEncodeError):  # it is none of its type
        return None


def _record(words: list[str], dtype: np.dtype[Any], is_big_endian: bool) -> Any:
    """A value for each number of a structure; a zero alone is for all."""
    value = np.zeros((), dtype)
    if words == ["0"]:
        return value[()]
    for name in dtype.names or ():
        base, shape = dtype[name].base, dtype[name].shape
        taken, words = words[: math.prod(shape)], words[math.prod(shape) :]
        numbers = [_number(word, base, None, is_big_endian) for word in taken]
        if None in numbers:
            return None
        value[name] = np.array(numbers, base).reshape(shape)
    return value[()]


def _number(text: str, dtype: np.dtype[Any], own: Any, is_big_endian: bool) -> Any:
    if dtype.kind == "b":
        return np.bool_(int(text))
    value = number(text, dtype)
    if own is not None and own in (value, value.byteswap()):
        return own
    if is_big_endian and value.byteswap().tobytes() != value.tobytes():
        return None
    if dtype.kind != "f":
        return value
    if own is not None and f"{own:.{_DIGITS}g}" == f"{value:.{_DIGITS}g}":
        return own
    if text == _DEFAULT_PRINTED:
        return dtype.type(DEFAULT_FILLS[np.dtype("f8")])
    digits = text.lower().partition("e")[0].strip("+-").replace(".", "").strip("0")
    return value if len(digits) < _DIGITS else None
