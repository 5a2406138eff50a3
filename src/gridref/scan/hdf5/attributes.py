"""Attributes of HDF5 objects, as xarray with h5netcdf presents them.

Sizes of one become scalars, strings become ``str``, arrays of strings lists; the attributes by
which netCDF4 keeps its own records are set apart.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import h5py
import numpy as np
from h5py import h5, h5a, h5p, h5r
from numpy.typing import NDArray

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.scan.hdf5.attribute_messages import StoredAttribute, stored_attributes
from gridref.scan.hdf5.dtypes import ElementType, Form, element_type
from gridref.scan.hdf5.files import HDF5_ERRORS, OpenFile
from gridref.scan.hdf5.object_header import HeaderMessage

__all__ = ["ObjectAttributes", "read_attributes"]

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
        netCDF4's own, by name; ``DIMENSION_LIST`` as a list of lists of
        references, or of the addresses that they are.
    unreadable
        Names of attributes that have no value here, and why.
    """

    public: dict[str, Any] = field(default_factory=dict)
    records: dict[str, Any] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)


def read_attributes(
    oid: Any, creation: Any, file: OpenFile, messages: Sequence[HeaderMessage] | None
) -> ObjectAttributes:
    """Read all attributes of an object.

    Parameters
    ----------
    oid
        Low-level identifier of the object.
    creation
        Its creation properties, which say in which order attributes are listed.
    file
        The file that it lies in.
    messages
        Messages of its header; None to leave it all to the HDF5 library.
    """
    result = ObjectAttributes()
    tracked = bool(creation.get_attr_creation_order() & h5p.CRT_ORDER_TRACKED)
    stored = None
    if messages is not None:
        with contextlib.suppress(SourceFormatError):  # the library then says what is wrong
            stored = stored_attributes(file.bytes, messages)
    if stored is None:
        stored = [StoredAttribute(name) for name in _names(oid, tracked)]
    elif not tracked:
        stored.sort(key=lambda attribute: attribute.name)
    for attribute in stored:
        if attribute.name in _UNREAD:
            continue
        text = attribute.name.decode("utf-8", "backslashreplace")
        try:
            if attribute.is_first:
                h5a.open(oid, attribute.name)  # which verifies the checksums of where it lies
            value = _value(attribute, oid, file)
        except (UnsupportedFeatureError, SourceFormatError, *HDF5_ERRORS) as error:
            result.unreadable[text] = str(error)
            continue
        (result.records if attribute.name in _RECORDS else result.public)[text] = value
    return result


def _names(oid: Any, tracked: bool) -> list[bytes]:
    names: list[bytes] = []
    if h5a.get_num_attrs(oid):
        index = h5.INDEX_CRT_ORDER if tracked else h5.INDEX_NAME
        h5a.iterate(oid, names.append, index_type=index)
    return names


def _value(attribute: StoredAttribute, oid: Any, file: OpenFile) -> Any:
    element, shape, name = attribute.element, attribute.shape, attribute.name
    if element is None or (element.form is Form.RAGGED and name != b"DIMENSION_LIST"):
        return _read(h5a.open(oid, name), name, file.fid)
    if shape is None:
        return _empty(element)
    count = math.prod(shape)
    if element.form is Form.RAGGED:
        width = file.bytes.offset_bytes
        items = file.heap.items(attribute.data, count, width)
        return [_addresses(item, width) for item in items]
    if element.form is Form.TEXT:
        value = _shaped([*map(_decode, file.heap.items(attribute.data, count, 1))], shape)
    elif element.text:
        raw = np.frombuffer(attribute.data, element.dtype, count).reshape(shape)
        value = _fixed(raw, element, name)
    else:
        raw = np.frombuffer(attribute.data, element.stored_dtype, count)
        value = raw.astype(element.dtype).reshape(shape)[()]
    return _unwrapped(value)


def _addresses(item: bytes, width: int) -> list[int]:
    """Object references, which are addresses of object headers."""
    return [
        int.from_bytes(item[start : start + width], "little")
        for start in range(0, len(item), width)
    ]


def _unwrapped(value: Any) -> Any:
    """The one element of what has a length of one."""
    if np.isscalar(value) or np.ndim(value) == 0:
        return value
    return value[0] if len(value) == 1 else value


def _read(aid: Any, name: bytes, fid: Any) -> Any:
    """Read a value with the HDF5 library."""
    if name == b"DIMENSION_LIST":
        return _read_object(aid)
    tid = aid.get_type()
    element = element_type(tid.encode()[2:])
    if aid.shape is None:
        return _empty(element)
    if element.form is Form.TEXT:
        raw = _raw(aid, h5py.string_dtype(), None)
        return _unwrapped(_shaped([*map(_decode, raw.reshape(-1).tolist())], raw.shape))
    if element.text:
        return _unwrapped(_fixed(_raw(aid, element.dtype, tid), element, name))
    if element.is_plain:
        raw = _raw(aid, element.stored_dtype, tid, element.subshape)
        return _unwrapped(raw.astype(element.dtype)[()])
    return _unwrapped(_plain(_read_object(aid), fid))


def _empty(element: ElementType) -> Any:
    """A null dataspace is how netCDF4 writes an empty string."""
    if element.text:
        return "" if element.dtype.itemsize == 1 else []
    return np.array([], element.dtype)


def _raw(aid: Any, dtype: np.dtype[Any], tid: Any, subshape: tuple[int, ...] = ()) -> NDArray[Any]:
    """The values, unconverted if `tid` is their own datatype."""
    values = np.empty(aid.shape + subshape, dtype)
    if values.size:
        aid.read(values, tid)
    return values


def _shaped(texts: list[Any], shape: tuple[int, ...]) -> Any:
    return texts if shape else texts[0]


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
    return _shaped(items if keep_bytes else [*map(_decode, items)], raw.shape)


def _decode(item: Any) -> str:
    if isinstance(item, str):
        return item
    if not isinstance(item, bytes):  # an unset variable-length string
        return ""
    try:
        return item.decode("utf-8")
    except UnicodeDecodeError:
        return item.decode("latin-1")


def _read_object(aid: Any) -> Any:
    """Read as h5py's own dtype says."""
    tid = aid.get_type()
    dtype = tid.dtype
    subshape = dtype.subdtype[1] if dtype.subdtype else ()
    values = np.empty(aid.shape + subshape, dtype.base)
    if values.size:
        aid.read(values, tid if subshape else None)
    return values[()]


def _plain(value: Any, fid: Any) -> Any:
    """References as paths and ragged arrays as lists."""
    if isinstance(value, (h5py.Reference, h5py.RegionReference)):
        return referenced_path(value, fid)
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        return [_plain(item, fid) for item in value.reshape(-1).tolist()]
    if isinstance(value, np.ndarray) and value.dtype.names is None:
        return value.astype(np.dtype(value.dtype.str))
    if isinstance(value, (np.void, np.ndarray)) and value.dtype.hasobject:
        return _plain_struct(value, fid)
    return value


def _plain_struct(value: Any, fid: Any) -> Any:
    if np.ndim(value):
        return [_plain_struct(item, fid) for item in np.reshape(value, -1)]
    return {
        name: _decode(value[name]) if isinstance(value[name], bytes) else _plain(value[name], fid)
        for name in value.dtype.names
    }


def referenced_path(reference: Any, fid: Any) -> str:
    """Path of what a reference means; empty for a null reference, or one to what is gone."""
    if not reference:
        return ""
    try:
        name = h5r.get_name(reference, fid)
    except HDF5_ERRORS:
        return ""
    return (name or b"").decode("utf-8", "surrogateescape")
