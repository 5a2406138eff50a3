"""Choose the content of a file for download, a part of an array and what belongs to it; as NetCDF4.

In a NetCDF4 file, stored numbers and attributes stay as they are: what reads the file unpacks them
as it does those of the original.

Sources: NetCDF, "Attribute Conventions"; CF conventions 1.11, 5 (``coordinates``); xarray,
``VariableCoder`` (``dtype = "bool"`` for booleans).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import GridrefError, InvalidRequestError, MissingPackageError
from gridref.extras import missing_package
from gridref.faces.web.earth import upward
from gridref.faces.web.levels import Level
from gridref.faces.web.meaning import groups_around
from gridref.faces.web.part import GoesOn, Part, RefusedError
from gridref.model.array import VirtualArray, VirtualGroup, path_in
from gridref.model.conventions import listed_coordinates, referred_names, stored_fill
from gridref.serve.reader import Reader

MOST_ELEMENTS = 2**26
"""Elements of each variable of a file."""
MOST_CHUNK_BYTES = 2**33
"""Decoded bytes of the chunks that are read for each variable."""


class NotHereError(RefusedError):
    """The server lacks a package that writes such files."""

    status = 501

    @classmethod
    def of(cls, error: MissingPackageError) -> NotHereError:
        """From the error that names the package."""
        return cls(f"this server cannot make the file: {error}")


def _check(part: Part) -> None:
    """Raise if a part has too many elements, or needs too many chunks."""
    n, n_bytes = math.prod(part.shape), part.n_bytes
    if n > MOST_ELEMENTS:
        raise RefusedError(
            f"this part of {part.path} has {n} elements, and a file has at most"
            f" {MOST_ELEMENTS}: ask for a smaller part, or for every tenth element along a"
            " dimension (::10 in at=)"
        )
    if n_bytes > MOST_CHUNK_BYTES:
        raise RefusedError(
            f"this part of {part.path} needs chunks of {n_bytes} bytes, and a file may need"
            f" {MOST_CHUNK_BYTES}: ask for a smaller part"
        )


@dataclass(frozen=True)
class Selected:
    """A part of an array, and the same part of what belongs to it.

    Attributes
    ----------
    others
        Coordinates, bounds and grid mappings, by name.
    """

    part: Part
    others: Mapping[str, Part]
    coordinates: frozenset[str]
    attrs: Mapping[str, Any]

    @classmethod
    def of(cls, group: VirtualGroup, part: Part) -> Selected:
        """What a file of a part of an array holds.

        Coordinates are those that xarray gives the array, those of groups above it that label its
        dimensions, and latitudes and longitudes beside it. What these and the array name as bounds
        or grid mapping comes along.

        Raises
        ------
        RefusedError
            If the part is too large.
        """
        path, array = part.path, part.array
        own, holder = next(groups_around(group, path))
        at = dict(zip(array.dims, part.chosen, strict=True))
        lengths = dict(zip(array.dims, array.shape, strict=True))
        others: dict[str, Part] = {}

        def take(paths: Iterable[str | None], *, is_label: bool) -> None:
            for each in paths:
                name = (each or "").rpartition("/")[2]
                found = group[each] if each else None
                if not isinstance(found, VirtualArray) or each == path or name in others:
                    continue
                sized = list(zip(found.dims, found.shape, strict=True))
                fits = all(0 < n == lengths.get(dim, n) for dim, n in sized)
                if fits and (set(found.dims) <= set(at) or not is_label):
                    others[name] = Part(
                        str(each), found, tuple(at.get(d, range(n)) for d, n in sized)
                    )

        level = Level.of(group, path)
        listed = listed_coordinates(holder.arrays.values(), holder.attrs)
        names = [n for n, each in holder.arrays.items() if n in listed or each.is_index(n)]
        take((path_in(own, name) for name in names), is_label=True)
        take((*level.coordinates, *level.located_by), is_label=True)
        coordinates = frozenset(others)
        for _ in range(2):  # what bounds name in their turn
            referring = [array, *(each.array for each in others.values())]
            take((upward(group, path, n) for n in referred_names(referring)), is_label=False)
        for each in (part, *others.values()):
            _check(each)
        return cls(part, others, coordinates, holder.attrs)

    @property
    def name(self) -> str:
        """The array's name."""
        return self.part.path.rpartition("/")[2]


def plain_attribute(value: Any) -> Any:
    """An attribute as files have them: numbers and texts, alone or in a row; others as JSON."""
    if isinstance(value, str | bytes | np.generic | np.ndarray):
        return value
    row = value if isinstance(value, list | tuple) else [value]
    kinds = {bool(isinstance(each, str)) for each in row}
    is_plain = all(isinstance(each, str | int | float | np.number) for each in row)
    has_bool = any(isinstance(each, bool) for each in row)
    if row and is_plain and len(kinds) == 1 and not has_bool:
        return value
    return json.dumps(value, default=str)


# NetCDF

_TEXT = np.dtype("O", metadata={"vlen": str})
"""The dtype by which h5netcdf writes texts of any length."""
_CACHE_BYTES = 2**26
"""HDF5's cache of chunks: those that two pieces share are compressed once."""
_LEAST_COMPRESSED = 2**10
"""Elements; what is smaller is stored as it is."""


def check_netcdf(selected: Selected) -> None:
    """Raise if NetCDF cannot hold it.

    Raises
    ------
    InvalidRequestError
        If it has no such type.
    NotHereError
        Without h5netcdf.
    """
    try:
        import h5netcdf  # noqa: F401
    except ImportError as error:
        raise NotHereError.of(missing_package("writing NetCDF", error)) from error
    dtype = selected.part.array.dtype
    if not _is_held(dtype):
        raise InvalidRequestError(f"NetCDF has no type for values that are {dtype}")


def _is_held(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "STU" or (
        dtype.kind in "biuf" and dtype.itemsize <= np.dtype("f8").itemsize
    )


def write_netcdf(path: str, selected: Selected, reader: Reader, goes_on: GoesOn) -> None:
    """Write the file.

    Raises
    ------
    InvalidRequestError
        If NetCDF cannot hold a name, or an attribute.
    ReadError
        If a chunk cannot be read.
    """
    import h5netcdf

    parts = {selected.name: selected.part, **selected.others}
    try:
        with h5netcdf.File(path, "w", rdcc_nbytes=_CACHE_BYTES) as file:
            for name, value in selected.attrs.items():
                file.attrs[name] = plain_attribute(value)
            for name, part in parts.items():
                if _is_held(part.array.dtype):
                    _write(file, name, part, _attributes(name, selected), reader, goes_on)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, GridrefError):
            raise
        raise InvalidRequestError(
            f"NetCDF cannot hold a name or an attribute of {selected.part.path}: {error}"
        ) from error


def _attributes(name: str, selected: Selected) -> dict[str, Any]:
    """Attributes of a variable; the array names all of its coordinates."""
    parts = {selected.name: selected.part, **selected.others}
    attrs = dict(parts[name].array.attrs)
    if name != selected.name:
        return attrs
    attrs.pop("coordinates", None)
    dims = set(selected.part.dims)
    named = [
        other
        for other, part in selected.others.items()
        if other in selected.coordinates and part.dims != (other,) and set(part.dims) <= dims
    ]
    return {**attrs, "coordinates": " ".join(named)} if named else attrs


def _write(
    file: Any, name: str, part: Part, attrs: Mapping[str, Any], reader: Reader, goes_on: GoesOn
) -> None:
    dtype, dims, shape = part.array.dtype, part.dims, part.shape
    kept = dict(attrs)
    kept.pop("_FillValue", None)
    if dtype.kind == "b":
        kept["dtype"] = "bool"
    if dtype.kind == "S" and dtype.itemsize > 1:
        dims, shape = (*dims, f"string{dtype.itemsize}"), (*shape, dtype.itemsize)
    for dim, length in zip(dims, shape, strict=True):
        if dim not in file.dimensions:
            file.dimensions[dim] = length
    stored = _stored_dtype(dtype)
    is_large = dtype.kind in "biuf" and np.prod(shape, dtype=float) >= _LEAST_COMPRESSED
    packing = {"compression": "gzip", "compression_opts": 1, "shuffle": True} if is_large else {}
    fillvalue = stored_fill(attrs, stored) if dtype.kind in "iuf" else None
    made = file.create_variable(name, dims, stored, fillvalue=fillvalue, **packing)
    for key, value in kept.items():
        made.attrs[key] = plain_attribute(value)
    for places, values in part.pieces(reader, goes_on):
        made[places or ...] = _stored(values, stored)


def _stored_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind in "TU":
        return _TEXT
    others = {"b": "i1", "S": "S1"}
    name = "f4" if dtype == np.float16 else others.get(dtype.kind)
    return np.dtype(name) if name else dtype


def _stored(values: NDArray[Any], dtype: np.dtype[Any]) -> Any:
    values = np.asarray(values)
    if dtype.kind == "S" and values.dtype.itemsize > 1:
        return np.ascontiguousarray(values)[..., None].view("S1")
    return values.astype(object if dtype == _TEXT else dtype)
