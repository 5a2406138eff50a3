"""Unpack variables whose scale, offset or fill differ between inputs (CF conventions, 8.1).

Where all inputs pack alike, values stay packed. Where they do not, every block is unpacked with its
own numbers, and the array holds floats, with NaN where the file says "no data". The dtype of the
floats is the one that xarray decodes to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gridref.combine.columns import Column, Kind, Notes, value_keys, value_text
from gridref.errors import NotRepresentableError, UnsupportedFeatureError
from gridref.model.array import VirtualArray
from gridref.model.encoding import Encoding, Unpacking
from gridref.model.joining import recast

PACKING_ATTRIBUTES = ("scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned")


@dataclass(frozen=True)
class Packing:
    """What the attributes of a variable say about its stored numbers.

    Attributes
    ----------
    scale, offset
        Factor and offset, None where there is none.
    fills
        Stored values that mean "no data", without NaN.
    unsigned
        Whether integers are to be read as unsigned, or signed; None leaves them.
    """

    scale: float | None = None
    offset: float | None = None
    fills: frozenset[float | int] = frozenset()
    unsigned: bool | None = None

    @classmethod
    def of(cls, array: VirtualArray) -> Packing:
        """Read the attributes of an array.

        Raises
        ------
        UnsupportedFeatureError
            If a factor or offset is not a number.
        """
        attrs, dtype = array.attrs, array.dtype
        unsigned = _unsigned(attrs.get("_Unsigned"), dtype)
        fills = _fills(attrs.get("_FillValue"), dtype, unsigned)
        fills |= _missing(attrs.get("missing_value"), dtype, unsigned)
        return cls(
            _number(attrs, "scale_factor"),
            _number(attrs, "add_offset"),
            frozenset(fills),
            unsigned,
        )

    @property
    def is_trivial(self) -> bool:
        """Whether stored numbers are the values."""
        return self == Packing()

    @property
    def is_exact(self) -> bool:
        """Whether values are the same in whatever precision they are worked out."""
        return self.scale is None and self.offset is None

    def __str__(self) -> str:
        parts = []
        if self.scale is not None:
            parts.append(f"scale_factor {self.scale:.9g}")
        if self.offset is not None:
            parts.append(f"add_offset {self.offset:.9g}")
        if self.fills:
            parts.append(f"fill {', '.join(f'{fill:.9g}' for fill in sorted(self.fills))}")
        if self.unsigned is not None:
            parts.append("unsigned" if self.unsigned else "signed")
        return ", ".join(parts) or "not packed"


def _number(attrs: Mapping[str, Any], name: str) -> float | None:
    """A number of an attribute, the first of several; None without the attribute.

    Raises
    ------
    UnsupportedFeatureError
        If it is not a number: nobody can say what the stored values mean.
    """
    if attrs.get(name) is None:
        return None
    numbers = np.asarray(attrs[name]).reshape(-1)
    if numbers.dtype.kind not in "biuf" or not numbers.size:
        raise UnsupportedFeatureError(
            f"{name} is {value_text(attrs[name])!r}, which is not a number"
        )
    return float(numbers[0])


def _unsigned(value: Any, dtype: np.dtype[Any]) -> bool | None:
    """Whether ``_Unsigned`` changes how the stored integers are read."""
    text = value_text(value).lower()
    if text == "true" and dtype.kind == "i":
        return True
    return False if text == "false" and dtype.kind == "u" else None


def _fills(value: Any, dtype: np.dtype[Any], unsigned: bool | None) -> set[float | int]:
    if value is None:
        return set()
    declared = np.asarray(value).reshape(-1)
    if declared.dtype.kind not in "biuf":
        return set()
    if unsigned is not None and declared.dtype.kind in "iu":
        kind = "u" if unsigned else "i"
        declared = declared.astype(dtype).view(f"{kind}{dtype.itemsize}")
    return {fill for fill in declared.tolist() if fill == fill}


def _missing(value: Any, dtype: np.dtype[Any], unsigned: bool | None) -> set[float | int]:
    """Values of ``missing_value``, which xarray compares with what ``_Unsigned`` makes of integers.

    A -1 so is none of the integers from 0 to 255 (``xarray.coding.variables``, ``CFMaskCoder``).
    """
    declared = _fills(value, dtype, None)
    if unsigned is None:
        return declared
    limits = np.iinfo(f"{'u' if unsigned else 'i'}{dtype.itemsize}")
    return {fill for fill in declared if limits.min <= fill <= limits.max}


def float_dtype(array: VirtualArray, packing: Packing) -> np.dtype[Any]:
    """The dtype that xarray decodes a variable to (``xarray.coding.variables``)."""
    dtype, attrs = array.dtype, array.attrs
    if packing.scale is None and packing.offset is None:
        if dtype.kind == "f":
            return dtype
        return np.dtype("f4" if dtype.itemsize <= 2 else "f8")
    scale, offset = (
        None if attrs.get(name) is None else np.asarray(attrs[name]).dtype
        for name in ("scale_factor", "add_offset")
    )
    if offset is None:
        return np.dtype(scale) if scale is not None and scale.kind == "f" else np.dtype("f8")
    conforming = scale == offset and offset in (np.dtype("f4"), np.dtype("f8"))
    if not conforming or (dtype.kind in "iu" and dtype.itemsize == 4):
        return np.dtype("f8")
    return np.dtype(offset)


def _precision(kind: Kind) -> np.dtype[Any]:
    return float_dtype(kind.array, Packing.of(kind.array))


_BAND_PACKING = ("scales", "offsets")
"""GDAL's numbers for each band, as rasterio and rioxarray name them: nothing here unpacks them."""


def _attribute_text(name: str, kind: Kind) -> str:
    return value_text(kind.array.attrs.get(name))


def resolve_packing(column: Column, notes: Notes) -> Column | None:
    """Unpack every block with its own numbers where inputs are packed differently.

    Equal numbers of different types count as different where values are rounded otherwise. None
    where numbers of single bands differ, which is noted as a problem.
    """
    for name in _BAND_PACKING:
        if value_keys([kind.array.attrs.get(name) for kind in column.kinds]) is not None:
            cases = column.cases(partial(_attribute_text, name))
            advice = "numbers of single bands are not unpacked: combine alike files"
            notes.conflict("packing-differs", column.path, name, cases, advice)
            return None
    kinds = [kind for kind in column.kinds if kind.array.dtype.kind in "biuf"]
    if len(kinds) < len(column.kinds) or len(kinds) < 2:
        return column
    packings = [Packing.of(kind.array) for kind in kinds]
    signed = {packing.unsigned for packing in packings} != {None}
    dtypes = {kind.array.dtype for kind in kinds}
    if len(set(packings)) == 1 and not (signed and len(dtypes) > 1):
        if packings[0].is_exact or len({_precision(kind) for kind in kinds}) == 1:
            return column
        cases = column.cases(lambda kind: f"{packings[0]}, in {_precision(kind)}")
    else:
        cases = column.cases(lambda kind: str(Packing.of(kind.array)))
    result = unpack_all(column)
    notes.drift(
        "packing",
        column.path,
        cases,
        f"each file is unpacked with its own numbers: {result.first.dtype} with NaN",
    )
    return result


def unpack_all(column: Column) -> Column:
    """Unpack all blocks to floats with NaN, each with the numbers of its own file."""
    dtype = np.result_type(
        *(float_dtype(kind.array, Packing.of(kind.array)) for kind in column.kinds)
    )
    known: dict[tuple[Encoding, Unpacking | None], Encoding] = {}

    def change(kind: Kind, array: VirtualArray) -> VirtualArray:
        return unpacked(array, Packing.of(kind.array), dtype, known)

    return column.map_kinds(change)


def unpacked(
    array: VirtualArray,
    packing: Packing,
    dtype: np.dtype[Any],
    known: dict[tuple[Encoding, Unpacking | None], Encoding],
) -> VirtualArray:
    """An array of unpacked floats over the same stored chunks."""
    unpacking = None
    if not packing.is_trivial:
        unpacking = Unpacking(
            packing.scale,
            packing.offset,
            tuple(sorted(packing.fills)),
            packing.unsigned,
            str(float_dtype(array, packing)),
        )
    floats = recast(array, dtype, dtype.type(np.nan))
    encodings = []
    for encoding in floats.encodings:
        key = (encoding, unpacking)
        if key not in known:
            known[key] = _with_unpacking(encoding, unpacking)
        encodings.append(known[key])
    return floats.with_changes(
        encodings=tuple(encodings), attrs=without_packing(array.attrs, dtype)
    )


def _with_unpacking(encoding: Encoding, unpacking: Unpacking | None) -> Encoding:
    if unpacking is None:
        return encoding
    if encoding.unpacking is not None:
        raise NotRepresentableError("values that are unpacked already are packed once more")
    return replace(encoding, unpacking=unpacking)


def rescaled(encoding: Encoding, unpacking: Unpacking) -> Encoding:
    """The encoding with values unpacked so, after any unpacking that it has already.

    Raises
    ------
    NotRepresentableError
        If values that are unpacked already are packed once more.
    """
    inner = encoding.unpacking
    if inner is None:
        return _with_unpacking(encoding, unpacking)
    if unpacking.fill_values or unpacking.unsigned is not None:
        raise NotRepresentableError("values that are unpacked already are packed once more")
    if unpacking.scale is None and unpacking.offset is None:
        return replace(encoding, unpacking=replace(inner, dtype=unpacking.dtype))
    scale = 1.0 if unpacking.scale is None else unpacking.scale
    offset = 0.0 if unpacking.offset is None else unpacking.offset
    both = replace(
        inner,
        scale=scale * (1.0 if inner.scale is None else inner.scale),
        offset=offset + scale * (0.0 if inner.offset is None else inner.offset),
        dtype=unpacking.dtype,
    )
    return replace(encoding, unpacking=both)


def without_packing(attrs: Mapping[str, Any], dtype: np.dtype[Any]) -> dict[str, Any]:
    """Attributes of the unpacked floats."""
    kept = {name: value for name, value in attrs.items() if name not in PACKING_ATTRIBUTES}
    return {**kept, "_FillValue": dtype.type(np.nan)}
