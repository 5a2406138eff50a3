"""Attributes of HDF5 objects, as xarray with h5netcdf presents them.

Sizes of one become scalars, strings become ``str``, arrays of strings lists; the attributes by
which netCDF4 keeps its own records are set apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import ScanError, SourceFormatError
from gridref.scan.hdf5.attribute_messages import StoredAttribute, stored_attributes
from gridref.scan.hdf5.conversion import converted
from gridref.scan.hdf5.dataspace import read_dataspace
from gridref.scan.hdf5.dtypes import ElementType, Form, element_type
from gridref.scan.hdf5.files import OpenFile
from gridref.scan.hdf5.object_header import ObjectHeader
from gridref.scan.hdf5.shared_messages import resolved

__all__ = ["ObjectAttributes", "decoded", "heap_values", "read_attributes"]

_RECORDS = frozenset(
    {
        b"CLASS",
        b"NAME",
        b"DIMENSION_LIST",
        b"REFERENCE_LIST",
        b"_Netcdf4Dimid",
        b"_Netcdf4Coordinates",
        b"_nc3_strict",
        b"_NCProperties",
    }
)
"""What netCDF4 and the HDF5 dimension scales write for themselves."""

_UNREAD = frozenset({b"REFERENCE_LIST", b"_nc3_strict", b"_NCProperties"})
_KEPT_AS_BYTES = frozenset({b"_FillValue", b"missing_value"})


@dataclass(frozen=True)
class ObjectAttributes:
    """Attributes of a group or dataset.

    Attributes
    ----------
    public
        What a user sees.
    records
        netCDF4's own, by name; ``DIMENSION_LIST`` as a list of lists of addresses, which are what
        references to objects are.
    unreadable
        Names of attributes that have no value here, and why.
    """

    public: dict[str, Any] = field(default_factory=dict)
    records: dict[str, Any] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)


def read_attributes(file: OpenFile, header: ObjectHeader) -> ObjectAttributes:
    """Read all attributes of an object.

    Parameters
    ----------
    file
        The file that it lies in.
    header
        Its header.

    Raises
    ------
    SourceFormatError, UnsupportedFeatureError
        If attributes cannot even be told apart.
    """
    try:
        return _read(file, header)
    except ScanError as error:
        raise error.located(file.place()) from error.__cause__


def _read(file: OpenFile, header: ObjectHeader) -> ObjectAttributes:
    result = ObjectAttributes()
    stored: Iterable[StoredAttribute] = stored_attributes(file.bytes, header.messages)
    if not header.tracks_attribute_order:
        stored = sorted(stored, key=lambda attribute: attribute.name)
    for attribute in stored:
        if attribute.name in _UNREAD:
            continue
        text = attribute.name.decode("utf-8", "backslashreplace")
        shape = _shape(attribute, file)
        try:
            value = _value(attribute, shape, file)
        except ScanError as error:
            result.unreadable[text] = str(error)
            continue
        (result.records if attribute.name in _RECORDS else result.public)[text] = value
    return result


def _shape(attribute: StoredAttribute, file: OpenFile) -> tuple[int, ...] | None:
    message = attribute.dataspace
    try:
        space = resolved(file.bytes, message).data
        return read_dataspace(space, file.bytes.length_bytes).shape
    except ScanError as error:
        raise error.located(file.bytes.place(message.address, len(message.data))) from None


def _value(attribute: StoredAttribute, shape: tuple[int, ...] | None, file: OpenFile) -> Any:
    name, data = attribute.name, attribute.data
    element = element_type(resolved(file.bytes, attribute.datatype).data)
    if shape is None:
        return _empty(element)
    count = math.prod(shape) * math.prod(element.subshape)
    if count * element.itemsize > len(data):
        raise SourceFormatError(
            f"the attribute has {len(data)} of {count * element.itemsize} bytes"
        )
    full = shape + element.subshape
    if element.text:
        if element.form is Form.TEXT:
            return _unwrapped(_shaped([*map(decoded, file.heap.texts(data, count))], full))
        raw = np.frombuffer(data, element.dtype, count).reshape(full)
        return _unwrapped(_fixed(raw, element, name))
    if element.form in (Form.STORED, Form.CONVERTED):
        return _unwrapped(converted(data, element, count).reshape(full)[()])
    if name == b"DIMENSION_LIST" and element.base is not None:
        width = file.bytes.offset_bytes
        return [_addresses(item, width) for item in file.heap.items(data, count, width)]
    return _unwrapped(_shaped(heap_values(data, element, count, file), full))


def _addresses(item: bytes, width: int) -> list[int]:
    """Object references, which are addresses of object headers."""
    return [
        int.from_bytes(item[start : start + width], "little")
        for start in range(0, len(item), width)
    ]


def _unwrapped(value: Any) -> Any:
    """The one element of what has a length of one."""
    if isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim):
        return value[0] if len(value) == 1 else value
    return value


def _empty(element: ElementType) -> Any:
    """A null dataspace is how netCDF4 writes an empty string."""
    if element.text:
        return "" if element.dtype.itemsize == 1 else []
    return np.array([], element.dtype)


def _shaped(values: list[Any], shape: tuple[int, ...]) -> Any:
    return values if shape else values[0]


def _fixed(raw: NDArray[Any], element: ElementType, name: bytes) -> Any:
    """Strings of fixed length; arrays of single characters are left bytes, as in netCDF4."""
    if element.dtype.itemsize == 1 and raw.size > 1:
        return raw.tolist()
    items = raw.reshape(-1).tolist()
    if element.padding == "terminated":
        items = [item.partition(b"\0")[0] for item in items]
    elif element.padding == "spaces":
        items = [item.rstrip(b" ") for item in items]
    keep_bytes = element.dtype.itemsize == 1 and name in _KEPT_AS_BYTES
    return _shaped(items if keep_bytes else [*map(decoded, items)], raw.shape)


def decoded(item: bytes) -> str:
    """A string as netCDF tools read it."""
    try:
        return item.decode("utf-8")
    except UnicodeDecodeError:
        return item.decode("latin-1")


def heap_values(data: bytes, element: ElementType, count: int, file: OpenFile) -> list[Any]:
    """Values of elements that hold something of a heap, or references.

    Variable-length sequences become arrays or lists, references paths, and compounds dictionaries.
    """
    match element.form:
        case Form.TEXT:
            return [*map(decoded, file.heap.texts(data, count))]
        case Form.REFERENCE:
            size = element.itemsize
            return [
                file.paths.referenced(data[start : start + size], region=element.region)
                for start in range(0, count * size, size)
            ]
        case Form.RAGGED if element.base is not None:
            size = element.base.itemsize * math.prod(element.base.subshape)
            items = file.heap.items(data, count, size)
            return [_several(item, element.base, len(item) // size, file) for item in items]
        case Form.MIXED:
            return _dictionaries(data, element, count, file)
    return [*converted(data, element, count)]


def _several(data: bytes, element: ElementType, count: int, file: OpenFile) -> Any:
    """Elements as an array if they can be one, else as a list."""
    count *= math.prod(element.subshape)
    if element.form in (Form.STORED, Form.CONVERTED):
        return converted(data, element, count).reshape(-1, *element.subshape)
    return heap_values(data, element, count, file)


def _dictionaries(data: bytes, element: ElementType, count: int, file: OpenFile) -> list[Any]:
    rows = np.frombuffer(data, np.uint8, count * element.itemsize).reshape(count, -1)
    columns = []
    for member in element.members:
        start, n_each = member.offset, member.n_elements
        part = rows[:, start : start + n_each * member.element.itemsize].tobytes()
        values = _several(part, replace(member.element, subshape=()), count * n_each, file)
        if member.element.subshape:
            values = [values[row * n_each : (row + 1) * n_each] for row in range(count)]
        columns.append([decoded(v) if isinstance(v, bytes) else v for v in values])
    names = [member.name for member in element.members]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
