"""Attributes in the JSON form that xarray reads back from a Zarr v3 array.

Source of the forms: ``FillValueCoder`` in ``xarray/backends/zarr.py``, ``CFMaskCoder`` in
``xarray/coding/variables.py``.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.model.reference_systems import text_of


def attributes_to_json(attrs: Mapping[str, Any], dtype: np.dtype[Any] | None) -> dict[str, Any]:
    """Attributes in the JSON form that xarray reads back from a Zarr v3 array.

    ``_FillValue`` takes xarray's own form (floats as base64 of the little-endian float64). xarray
    has none for text: there it becomes a ``missing_value``, which masks the same elements; of byte
    strings, which no JSON value equals, it is left out. A value that masks nothing is left out,
    too, like a text or a fraction as the fill value of integers. Strict JSON has no NaN:
    non-finite numbers become ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``, and a
    ``missing_value`` of NaN, which adds nothing, is left out. No element equals such a text: an
    infinite ``missing_value`` of floats is written as ``_FillValue``, whose value it takes over.

    Parameters
    ----------
    attrs
        Attributes with numpy values.
    dtype
        Dtype of the array as the view shows it; None for a group.
    """
    if dtype is not None:
        attrs = _with_finite_missing(attrs, dtype)
    result = {
        name: attribute_from_numpy(value)
        for name, value in attrs.items()
        if not (name == "_FillValue" and dtype is not None)
        and not (name == "missing_value" and _is_nan(value))
    }
    if dtype is None or "_FillValue" not in attrs:
        return result
    fills = np.asarray(attrs["_FillValue"]).reshape(-1)
    if dtype.kind in "UT":
        result.setdefault("missing_value", attribute_from_numpy(attrs["_FillValue"]))
    elif dtype.kind in "biufc" and fills.dtype.kind in "biufc" and len(fills):
        fill = _reinterpreted(fills, dtype, text_of(attrs, "_Unsigned"))[0]
        if dtype.kind not in "iu" or float(fill.real).is_integer():
            result["_FillValue"] = _xarray_fill_value(fill, dtype)
    return result


def _with_finite_missing(attrs: Mapping[str, Any], dtype: np.dtype[Any]) -> Mapping[str, Any]:
    """The same missing values, without a ``missing_value`` that is infinite."""
    missing = np.asarray(attrs.get("missing_value")).reshape(-1)
    if dtype.kind not in "iuf" or missing.dtype.kind != "f" or np.isfinite(missing).all():
        return attrs
    rest = {name: value for name, value in attrs.items() if name != "missing_value"}
    fills = np.asarray(attrs.get("_FillValue", np.nan)).reshape(-1)[:1]
    if dtype.kind == "f" and fills.dtype.kind in "iuf":
        marks = np.concatenate([fills, missing]).astype(np.float64)
        infinite = np.unique(marks[np.isinf(marks)])
        if len(infinite) == 1:
            rest["_FillValue"], missing = infinite[0], marks
    finite = missing[np.isfinite(missing)]
    if len(finite):
        rest["missing_value"] = finite[0] if len(finite) == 1 else finite
    return rest if len(rest) > 0 and rest.keys() & {"missing_value", "_FillValue"} else attrs


def _reinterpreted(fills: NDArray[Any], dtype: np.dtype[Any], unsigned: object) -> NDArray[Any]:
    """Fill values with the sign of ``_Unsigned``: xarray casts them, and may not overflow."""
    if dtype.kind not in "iu" or fills.dtype.kind not in "iu":
        return fills
    if dtype.kind == "u" and unsigned == "false":
        return fills.astype(dtype).astype(f"i{dtype.itemsize}")
    return fills.astype(dtype) if dtype.kind == "i" and unsigned == "true" else fills


def attribute_from_numpy(value: Any) -> Any:
    """A strict JSON value of an attribute's numpy, str, bytes or list value."""
    if isinstance(value, np.ndarray):
        return attribute_from_numpy(value.tolist())
    if isinstance(value, np.generic):
        return attribute_from_numpy(value.item())
    if isinstance(value, list | tuple):
        return [attribute_from_numpy(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): attribute_from_numpy(item) for key, item in value.items()}
    if isinstance(value, bytes):
        return (
            value.decode("utf-8", errors="surrogateescape")
            .encode("utf-8", errors="backslashreplace")
            .decode()
        )
    if isinstance(value, complex):
        return [attribute_from_numpy(value.real), attribute_from_numpy(value.imag)]
    if isinstance(value, float) and not math.isfinite(value):
        return float_to_json(np.float64(value))
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


def float_to_json(value: Any) -> float | str:
    """A float as Zarr v3 writes it; NaNs with a payload as hexadecimal bits."""
    if math.isnan(value):
        bits = np.asarray(value).view(f"u{value.dtype.itemsize}")[()]
        plain = np.asarray(np.nan, value.dtype).view(bits.dtype)[()]
        return "NaN" if bits == plain else f"0x{int(bits):0{2 * value.dtype.itemsize}x}"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(value)


def _is_nan(value: Any) -> bool:
    array = np.asarray(value)
    return bool(array.dtype.kind == "f" and np.isnan(array).all())


def _xarray_fill_value(value: Any, dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "b":
        return bool(value)
    if dtype.kind in "iu":
        return int(value.real)

    def packed(number: float) -> str:
        return base64.standard_b64encode(struct.pack("<d", number)).decode()

    if dtype.kind == "c":
        return [packed(float(value.real)), packed(float(value.imag))]
    return packed(float(value.real))
