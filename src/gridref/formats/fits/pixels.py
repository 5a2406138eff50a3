"""Find what the pixels of an image mean: dtype, packing, dimensions and attributes.

Sources: FITS standard 4.0, sections 4.4.2.5 "Keywords that describe arrays" (BSCALE, BZERO, BLANK),
5.2.5 "Unsigned integers" and 8 "World coordinate systems"; CF conventions 1.11, section 8.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gridref.errors import SourceFormatError
from gridref.formats.fits.header import UNNAMED, is_of_storage
from gridref.model.encoding import Codec

_DTYPES = {8: "u1", 16: "i2", 32: "i4", 64: "i8", -32: "f4", -64: "f8"}
_UNSIGNED = {(8, -128): "i1", (16, 1 << 15): "u2", (32, 1 << 31): "u4", (64, 1 << 63): "u8"}
"""The dtypes that BITPIX and BZERO stand for where BSCALE is 1."""
_NAMED_AXES = ("z", "y", "x")

_OF_PIXELS = re.compile(
    r"B(UNIT|TYPE|LANK)|DATAM(IN|AX)|EXT(NAME|VER|LEVEL)|WCS(AXES|NAME)[A-Z]?"
    r"|C(TYPE|UNIT|RPIX|RVAL|DELT|ROTA|RDER|SYER|NAME)\d+[A-Z]?|(PC|CD|PV|PS)\d+_\d+[A-Z]?"
    r"|(LONPOLE|LATPOLE|RADESYS|RADECSYS|EQUINOX|EPOCH|SPECSYS|SSYSOBS|SSYSSRC|VELOSYS|ZSOURCE"
    r"|VELANGL|VELREF|RESTFRE?Q|RESTWAV)[A-Z]?|[AB]P?_(ORDER|DMAX|\d+_\d+)"
)
_PACKING = ("scale_factor", "add_offset", "_FillValue")


@dataclass(frozen=True)
class Pixels:
    """The elements of an image.

    Attributes
    ----------
    stored
        Their dtype in the file, in native byte order.
    dtype
        The dtype that they stand for: another one by the conventions for unsigned integers.
    codecs
        The array -> array codecs between both.
    fill_value
        What absent elements of a cube read as.
    packing
        ``scale_factor``, ``add_offset`` and ``_FillValue`` as CF has them.
    """

    stored: np.dtype[Any]
    dtype: np.dtype[Any]
    codecs: tuple[Codec, ...]
    fill_value: Any
    packing: Mapping[str, Any]


def pixels_of(cards: Mapping[str, Any], bits: int) -> Pixels:
    """The elements that a header describes, which are stored in so many bits (BITPIX)."""
    stored = np.dtype(_DTYPES[bits])
    scale, zero = _number(cards, "BSCALE", 1), _number(cards, "BZERO", 0)
    blank = cards.get("BLANK") if bits > 0 else None
    if type(blank) not in (int, type(None)):
        raise SourceFormatError(f"BLANK is {str(blank)[:50]!r}, not an integer")
    unsigned = _UNSIGNED.get((bits, int(zero))) if scale == 1 and zero == int(zero) else None
    if unsigned is not None:
        dtype = np.dtype(unsigned)
        fill = _in(dtype, None if blank is None else blank + int(zero))
        packing = {} if fill is None else {"_FillValue": fill}
        codecs = (_unsigned_codec(stored, dtype, int(zero)),)
        return Pixels(stored, dtype, codecs, dtype.type(0) if fill is None else fill, packing)
    fill = _in(stored, blank)
    packing = {} if fill is None else {"_FillValue": fill}
    if (scale, zero) != (1, 0):  # in the dtype that astropy computes in
        factor = np.float64 if bits in (32, 64, -64) else np.float32
        with np.errstate(over="ignore"):
            packing |= {"scale_factor": factor(scale), "add_offset": factor(zero)}
    if fill is None:
        fill = stored.type(np.nan) if bits < 0 else stored.type(0)
    return Pixels(stored, stored, (), fill, packing)


def _number(cards: Mapping[str, Any], keyword: str, default: int) -> float:
    value = cards.get(keyword, default)
    if type(value) not in (int, float) or not np.isfinite(float(value)):
        raise SourceFormatError(f"{keyword} is {str(value)[:50]!r}, not a number")
    return value  # type: ignore[no-any-return]


def _in(dtype: np.dtype[Any], value: int | None) -> Any:
    """The value as a number of a dtype; None if it is none, so that no pixel can have it."""
    known = value is not None and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max
    return dtype.type(value) if known else None


def _unsigned_codec(stored: np.dtype[Any], dtype: np.dtype[Any], zero: int) -> Codec:
    """Adds BZERO; what numcodecs computes in float64 is exact up to 32 bits."""
    if dtype.itemsize == 8:
        return Codec("gridref.fits_unsigned")
    little = {"dtype": dtype.newbyteorder("<").str, "astype": stored.newbyteorder("<").str}
    return Codec.of("numcodecs.fixedscaleoffset", offset=zero, scale=1, **little)


def dims_of(n_axes: int) -> tuple[str, ...]:
    """``z``, ``y``, ``x`` for the last three axes, as kerchunk names them; then ``axis4``."""
    further = tuple(f"axis{number}" for number in range(n_axes, len(_NAMED_AXES), -1))
    return further + _NAMED_AXES[max(0, len(_NAMED_AXES) - n_axes) :]


def attributes_of(cards: Mapping[str, Any]) -> dict[str, Any]:
    """All keywords but those that say how the data are stored."""
    attrs = {
        keyword: value
        for keyword, value in cards.items()
        if not is_of_storage(keyword) and keyword not in _PACKING
    }
    if attrs.get("EXTNAME") == UNNAMED:
        del attrs["EXTNAME"]
    return attrs


@lru_cache(maxsize=4096)
def is_of_pixels(keyword: str) -> bool:
    """Whether a keyword describes the array of its HDU, not the file: WCS, SIP, units."""
    return _OF_PIXELS.fullmatch(keyword) is not None
