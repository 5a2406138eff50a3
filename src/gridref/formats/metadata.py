"""What several formats share: documents, attributes, names of dimensions, fill values, text.

`json_object` and `parsed_xml` parse documents. `attributes_from_json` turns JSON into the values
that it stands for. `dimension_names` names the dimensions that have no name. `DEFAULT_FILLS` and
`decoded` are rules of netCDF.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

from gridref.errors import Place, SourceFormatError


def json_object(data: bytes, address: str) -> Mapping[str, Any]:
    """The JSON object of a metadata document."""
    try:
        document = json.loads(data)
    except ValueError as error:
        raise SourceFormatError(f"not JSON: {error}", Place(source=address)) from error
    if not isinstance(document, dict):
        raise SourceFormatError("not a JSON object", Place(source=address))
    return document


def parsed_xml(document: bytes, name: str) -> ET.Element:
    """The root of an XML document, which errors call `name`.

    One that declares a document type is refused: its entities could expand without limit.
    """
    if b"<!DOCTYPE" in document or b"\0" in document:  # the latter may be the former in UTF-16
        raise SourceFormatError(f"{name} declares a document type, which is not read")
    try:
        return ET.fromstring(document)
    except (ET.ParseError, ValueError, LookupError) as error:
        raise SourceFormatError(f"{name} is not XML: {error}") from error


def attributes_from_json(attrs: Mapping[str, Any], dtype: np.dtype[Any] | None) -> dict[str, Any]:
    """Attributes with lists of numbers as arrays, and ``_FillValue`` as an element.

    Parameters
    ----------
    dtype
        Dtype of the array; None for a group.
    """
    result = {name: _value(value) for name, value in attrs.items()}
    if dtype is not None and "_FillValue" in attrs:
        fill = _fill_value(attrs["_FillValue"], dtype)
        if fill is None:
            del result["_FillValue"]
        else:
            result["_FillValue"] = fill
    return result


def _value(value: Any) -> Any:
    if isinstance(value, list) and value:
        kinds = {type(item) for item in value}
        if kinds <= {int} or kinds <= {int, float}:
            return np.array(value)
    return value


def _fill_value(value: Any, dtype: np.dtype[Any]) -> Any:
    """The form of xarray: floats are base64 of the little-endian float64, complex a pair."""
    if isinstance(value, np.generic):  # of Zarr v2
        return value
    try:
        if dtype.kind in "fc":
            parts = value if isinstance(value, list) else [value]
            numbers = [_float(part) for part in parts]
            return dtype.type(complex(*numbers) if dtype.kind == "c" else numbers[0])
        if dtype.kind in "biu":
            return np.asarray(value, dtype)[()]
    except (TypeError, ValueError, OverflowError, struct.error, binascii.Error):
        return None
    return value


def _float(value: Any) -> float:
    if isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity"):
        (number,) = struct.unpack("<d", base64.standard_b64decode(value))
        return float(number)
    return float(value)


def dimension_names(
    given: tuple[str | None, ...] | None, shape: tuple[int, ...], phony: dict[int, list[str]]
) -> tuple[str, ...]:
    """Names of an array's dimensions; those without one get phony ones, as netCDF tools give them.

    Parameters
    ----------
    phony
        Names given so far in the group, by length; it grows.
    """
    names: list[str] = []
    for axis, length in enumerate(shape):
        name = given[axis] if given is not None and axis < len(given) else None
        if not isinstance(name, str) or not name or name in names:
            pool = phony.setdefault(length, [])
            name = next((other for other in pool if other not in names), None)
            if name is None:
                name = f"phony_dim_{sum(map(len, phony.values()))}"
                pool.append(name)
        names.append(name)
    return tuple(names)


# Rules of netCDF


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
