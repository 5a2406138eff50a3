"""What elements that a dataset does not hold read as.

Source: HDF5 File Format Specification v3, IV.A.2.e "The Data Storage - Fill Value (Old) Message",
IV.A.2.f "The Data Storage - Fill Value Message".
"""

from __future__ import annotations

from typing import Any

from gridref.cache import remembers_short
from gridref.errors import Place, SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.format.superblock import FieldCursor
from gridref.formats.hdf5.objects.conversion import converted
from gridref.formats.hdf5.objects.dtypes import ElementType, Form
from gridref.formats.hdf5.objects.tree import DatasetNode
from gridref.model.array import zero_of

__all__ = ["fill_value", "stored_fill"]

_OLD_FILL, _FILL = 0x04, 0x05
_NEVER_WRITTEN = 1
_UNDEFINED = 0xFFFFFFFF
_UNDEFINED_FLAG, _DEFINED_FLAG = 0x10, 0x20
_CACHED_FILLS = 4096


def fill_value(dataset: DatasetNode, element: ElementType) -> Any:
    """The fill value as a scalar of the element's dtype; zero if the file has none.

    Raises
    ------
    UnsupportedFeatureError
        If the elements of an array datatype have different ones.
    """
    raw = stored_fill(dataset)
    if not raw or element.form not in (Form.STORED, Form.CONVERTED):
        return zero_of(element.dtype)
    return _scalar(raw, element)


def stored_fill(dataset: DatasetNode) -> bytes:
    """The stored bytes of the fill value; empty if there is none.

    Raises
    ------
    SourceFormatError
        If its message is corrupt.
    """
    shared, messages = dataset.file.shared, dataset.messages
    raw = shared.decoded(messages, _FILL, _decode)
    return shared.decoded(messages, _OLD_FILL, _decode_old) or b"" if raw is None else raw


@remembers_short(_CACHED_FILLS)
def _scalar(raw: bytes, element: ElementType) -> Any:
    n_elements, rest = divmod(len(raw), element.itemsize)
    if rest or not n_elements:
        raise SourceFormatError(
            f"the fill value has {len(raw)} bytes, an element has {element.itemsize}"
        )
    values = converted(raw, element, n_elements)
    if n_elements > 1 and any(value.tobytes() != values[0].tobytes() for value in values[1:]):
        raise UnsupportedFeatureError("the fill value differs within an element of an array type")
    return values[0]


@remembers_short(_CACHED_FILLS)
def _decode(message: bytes) -> bytes:
    cursor = FieldCursor(message, "the fill value message", Place())
    version = cursor.take(1)
    if version == 3:
        flags = cursor.take(1)
        time, is_defined = flags >> 2 & 3, flags & _DEFINED_FLAG
        if flags & _UNDEFINED_FLAG and is_defined:
            raise cursor.error("declares the fill value both defined and undefined")
    elif version in (1, 2):
        cursor.take(1)  # when space is allocated
        time = cursor.take(1)
        is_defined = cursor.take(1) or version == 1
    else:
        raise cursor.error(f"has the unknown version {version}")
    value = _value(cursor) if is_defined else b""
    return b"" if time == _NEVER_WRITTEN else value


@remembers_short(_CACHED_FILLS)
def _decode_old(message: bytes) -> bytes:
    return _value(FieldCursor(message, "the fill value message", Place()))


def _value(cursor: FieldCursor) -> bytes:
    size = cursor.take(4)
    return b"" if size == _UNDEFINED else cursor.take_bytes(size)
