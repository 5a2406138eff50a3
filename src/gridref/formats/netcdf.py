"""Rules of netCDF that hold for several formats: default fill values, and text."""

from __future__ import annotations

from typing import Any

import numpy as np

DEFAULT_FILLS: dict[np.dtype[Any], Any] = {
    np.dtype(code): np.array(fill, code)[()]
    for code, fill in {
        "i1": -127,
        "S1": b"\0",
        "i2": -32767,
        "i4": -2147483647,
        "f4": 9.969209968386869e36,
        "f8": 9.969209968386869e36,
        "u1": 255,
        "u2": 65535,
        "u4": 4294967295,
        "i8": -9223372036854775806,
        "u8": 18446744073709551614,
    }.items()
}
"""What elements read as that were never written: ``NC_FILL_BYTE`` and so on of ``netcdf.h``."""


def decoded(raw: bytes) -> str:
    """Text in UTF-8, or else in Latin-1."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")
