"""Variables without the dimension: put along a new one, repeated along it, or kept once."""

from __future__ import annotations

from collections.abc import Mapping

from gridref.combine.columns import Column, Notes
from gridref.combine.packing import Packing, unpack_all
from gridref.combine.values import Values, content_key, same_values
from gridref.model.array import VirtualArray
from gridref.model.reshaping import broadcast_axis, expand_dims

__all__ = ["repeated_along", "stack_columns", "static_array"]

_REFERRING = (
    "coordinates",
    "bounds",
    "climatology",
    "grid_mapping",
    "cell_measures",
    "ancillary_variables",
)


def stack_columns(columns: Mapping[str, Column], dim: str, notes: Notes) -> dict[str, Column]:
    """Give data variables a new leading dimension of length 1.

    Coordinates and what other variables refer to stay as they are; a scalar of the dimension's own
    name becomes its coordinate.
    """
    referred = _referred(columns)
    result = {}
    for name, column in columns.items():
        array = column.first
        is_label = name == dim and array.ndim == 0
        coordinate = array.dims == (name,) or name in referred or array.ndim == 0
        if is_label or not coordinate or notes.options.variables == "all":
            stacked = [expand_dims(entry, 0, dim) for entry in column.arrays]
            result[name] = column.with_arrays(stacked)
        else:
            result[name] = column
    return result


def _referred(columns: Mapping[str, Column]) -> set[str]:
    names: set[str] = set()
    for column in columns.values():
        for attribute in _REFERRING[:4]:
            text = column.first.attrs.get(attribute)
            if isinstance(text, str):
                names.update(word.rstrip(":") for word in text.split())
    return names


def repeated_along(column: Column, dim: str, lengths: Mapping[int, int], axis: int = 0) -> Column:
    """Repeat the arrays that lack a dimension along it, as long as it is in their file."""
    arrays = list(column.arrays)
    for place, file in enumerate(column.files):
        array = arrays[place]
        if dim not in array.dims:
            at = min(axis, array.ndim)
            arrays[place] = broadcast_axis(expand_dims(array, at, dim), at, lengths.get(file, 1))
    return column.with_arrays(arrays)


def static_array(column: Column, values: Values, notes: Notes) -> list[int] | None:
    """Files in which a variable without the dimension has other values than in the first.

    Values that are packed differently are compared unpacked. Where values cannot be had, metadata
    decide.

    Returns
    -------
    list of int or None
        None where the variables cannot be compared, which is noted as a problem.
    """
    kinds = {kind.array.dtype.kind for kind in column.kinds}
    numbers = set("biufc")
    if len(kinds) > 1 and not kinds <= numbers:
        cases = column.cases(lambda kind: str(kind.array.dtype))
        notes.conflict("dtype-differs", column.path, "dtypes", cases, "they cannot be compared")
        return None
    compared = column
    if kinds <= set("biuf") and len({Packing.of(kind.array) for kind in column.kinds}) > 1:
        compared = unpack_all(column)
        cases = column.cases(lambda kind: str(Packing.of(kind.array)))
        notes.drift(
            "packing", column.path, cases, "values are compared unpacked; the first is kept"
        )
    if not values.available(compared.first):
        return []
    return [
        file
        for file, array in zip(compared.files, compared.arrays, strict=True)
        if not _same(compared.first, array, values)
    ]


def _same(first: VirtualArray, other: VirtualArray, values: Values) -> bool:
    if other is first or not values.available(other):
        return True
    key = content_key(first)
    if key is not None and key == content_key(other):
        return True
    if _bare(other) == _bare(first):
        return True
    return same_values(values.of(first), values.of(other))


def _bare(array: VirtualArray) -> object:
    """The same manifests and blocks: an array beside itself under other metadata."""
    blocks = array.blocks
    return (
        tuple(map(id, array.manifests)),
        array.encodings,
        array.shape,
        *(getattr(blocks, name).tobytes() for name in ("first_row", "origin", "step")),
    )
