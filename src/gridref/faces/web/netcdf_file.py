"""Write a part of an array, with its coordinates, as a NetCDF4 file.

Stored numbers and attributes stay as they are: what reads the file unpacks them as it does those of
the original.

Sources: NetCDF, "Attribute Conventions"; CF conventions 1.11, 5 (``coordinates``); xarray,
``VariableCoder`` (``dtype = "bool"`` for booleans).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import GridrefError, InvalidRequestError
from gridref.extras import missing_package
from gridref.faces.web.download import GoesOn, NotHereError, Part, Selected, plain_attribute
from gridref.serve.reader import Reader

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
    fill = kept.pop("_FillValue", None)
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
    is_number = dtype.kind in "iuf" and fill is not None
    fillvalue = stored.type(np.ravel(fill)[0]) if is_number else None
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
