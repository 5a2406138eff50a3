"""Find numbers that mean the same in all inputs: packing, dtypes, and fill values of gaps.

Where all inputs pack alike (CF conventions, 8.1), values stay packed. Where scale, offset or fill
differ, every block is unpacked with its own numbers, and the array holds floats, with NaN where the
file says "no data". The dtype of the floats is the one that xarray decodes to.

A gap, where an input lacks a variable, reads as "no data". A variable without a fill value becomes
floats with NaN. Padded 64-bit integers get a fill value instead, as floats do not hold all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gridref.combine.columns import Column, Kind, Notes, value_keys, value_text
from gridref.errors import Message, NotRepresentableError, Option, UnsupportedFeatureError
from gridref.model.array import VirtualArray, zero_of
from gridref.model.conventions import (
    BOUNDS,
    PACKING_ATTRIBUTES,
    is_scaled,
    is_time_like,
    meant_dtype,
)
from gridref.model.encoding import Encoding, Unpacking
from gridref.model.joining import recast
from gridref.model.scan_report import LEFT_OUT, Fate

_PACKED_TWICE = "values that are unpacked already are packed once more"


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
        meant = meant_dtype(array)
        fills = _fills(attrs.get("_FillValue"), dtype, meant)
        fills |= _missing(attrs.get("missing_value"), dtype, meant)
        return cls(
            _number(attrs, "scale_factor"),
            _number(attrs, "add_offset"),
            frozenset(fills),
            None if meant == dtype else meant.kind == "u",
        )

    @property
    def is_trivial(self) -> bool:
        """Whether stored numbers are the values."""
        return self == Packing()

    def unpacking(self, dtype: np.dtype[Any]) -> Unpacking:
        """The same for reading, by arithmetic in a floating dtype."""
        fills = tuple(sorted(self.fills))
        return Unpacking(self.scale, self.offset, fills, self.unsigned, str(dtype))

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


def _fills(value: Any, dtype: np.dtype[Any], meant: np.dtype[Any]) -> set[float | int]:
    if value is None:
        return set()
    declared = np.asarray(value).reshape(-1)
    if declared.dtype.kind not in "biuf":
        return set()
    if meant != dtype and declared.dtype.kind in "iu":
        declared = declared.astype(dtype).view(meant)
    return {fill for fill in declared.tolist() if fill == fill}


def _missing(value: Any, dtype: np.dtype[Any], meant: np.dtype[Any]) -> set[float | int]:
    """Values of ``missing_value``, which xarray compares with what ``_Unsigned`` makes of integers.

    A -1 so is none of the integers from 0 to 255 (``xarray.coding.variables``, ``CFMaskCoder``).
    """
    declared = _fills(value, dtype, dtype)
    if meant == dtype:
        return declared
    limits = np.iinfo(meant)
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


_BAND_PACKING = ("scales", "offsets"), "numbers of single bands are not unpacked"
"""GDAL's numbers for each band, as rasterio and rioxarray name them."""
_NO_TEXT = ("_FillValue", "missing_value"), "texts for missing values are not replaced"


def _attribute_text(name: str, kind: Kind) -> str:
    return value_text(kind.array.attrs.get(name))


def resolve_packing(column: Column, notes: Notes) -> Column | None:
    """Unpack every block with its own numbers where inputs are packed differently.

    Equal numbers of different types count as different where values are rounded otherwise. None
    where numbers of single bands or texts for missing values differ, which is noted as a problem.
    """
    names, what = _NO_TEXT if column.first.dtype.kind == "T" else _BAND_PACKING
    for name in names:
        if value_keys([kind.array.attrs.get(name) for kind in column.kinds]) is not None:
            cases = column.cases(partial(_attribute_text, name))
            advice = f"{what}: combine alike files"
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
    known: _Known = {}

    def change(kind: Kind, array: VirtualArray) -> VirtualArray:
        return unpacked(array, Packing.of(kind.array), dtype, known)

    return column.map_kinds(change)


type _Known = dict[tuple[Encoding, Unpacking], Encoding]


def unpacked(
    array: VirtualArray, packing: Packing, dtype: np.dtype[Any], known: _Known
) -> VirtualArray:
    """An array of unpacked floats over the same stored chunks."""
    if not packing.is_trivial and any(each.unpacking is not None for each in array.encodings):
        raise NotRepresentableError(_PACKED_TWICE)
    floats = as_floats(array, dtype, packing.unpacking(float_dtype(array, packing)), known)
    return floats.with_changes(attrs=without_packing(array.attrs, dtype))


def as_meant(array: VirtualArray) -> VirtualArray:
    """An array of the numbers that it means; the same if stored ones have no scale and sign."""
    packing = Packing.of(array) if array.dtype.kind in "biuf" else Packing()
    if packing.is_exact and packing.unsigned is None:
        return array
    return unpacked(array, packing, float_dtype(array, packing), {})


def as_floats(
    array: VirtualArray, dtype: np.dtype[Any], unpacking: Unpacking, known: _Known
) -> VirtualArray:
    """Read the same stored chunks as floats, unpacked after any unpacking that they have already.

    Parameters
    ----------
    known
        The encodings that others got, filled here: similar files share one.
    """
    fill = array.fill_value
    is_missing = bool(fill != fill) or fill in unpacking.fill_values
    floats = recast(array, dtype, dtype.type(np.nan), keeps_absent=is_missing)
    if unpacking == Unpacking(dtype=unpacking.dtype):
        return floats
    for encoding in floats.encodings:
        if (encoding, unpacking) not in known:
            known[encoding, unpacking] = rescaled(encoding, unpacking)
    encodings = tuple(known[encoding, unpacking] for encoding in floats.encodings)
    return floats.with_changes(encodings=encodings)


def rescaled(encoding: Encoding, unpacking: Unpacking) -> Encoding:
    """The encoding with values unpacked so, after any unpacking that it has already.

    Raises
    ------
    NotRepresentableError
        If values that are unpacked already are packed once more.
    """
    inner = encoding.unpacking
    if inner is None:
        return replace(encoding, unpacking=unpacking)
    if unpacking.fill_values or unpacking.unsigned is not None:
        raise NotRepresentableError(_PACKED_TWICE)
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
    """Attributes of the unpacked floats, without ranges of stored numbers (CF conventions, 8.1)."""
    gone = {*PACKING_ATTRIBUTES}
    if is_scaled(attrs):
        gone |= {name for name in BOUNDS if np.asarray(attrs.get(name)).dtype.kind in "iu"}
    kept = {name: value for name, value in attrs.items() if name not in gone}
    return {**kept, "_FillValue": dtype.type(np.nan)}


# One dtype


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


# Gaps of variables that some inputs lack

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
    is_time = is_time_like(column.first.attrs)  # which floats may not hold
    column, fill = with_padding(column) if is_time else _with_fill(column)
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
    declared = array.attrs.get("_FillValue", array.attrs.get("missing_value"))
    if dtype.kind not in "biuf":
        return declared if dtype.kind == "T" and isinstance(declared, str) else zero_of(dtype)
    packing = Packing.of(array)
    if declared is not None and packing.fills:
        with np.errstate(invalid="ignore"):
            fill = np.asarray(declared).reshape(-1)[0].astype(dtype)
        if dtype.kind == "f" or fill.view(meant_dtype(array)).item() in packing.fills:
            return fill
    return dtype.type(np.nan) if dtype.kind == "f" else None
