"""Stored elements -> values, one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.codecs import decode_chunk
from gridref.errors import DecodeError, SourceFormatError
from gridref.formats.hdf5.objects.dtypes import ElementType
from gridref.model.encoding import Encoding

__all__ = ["converted"]


def converted(raw: bytes, element: ElementType, n_elements: int) -> NDArray[Any]:
    """Values of elements that hold nothing of a heap, in native byte order.

    Parameters
    ----------
    raw
        The stored bytes of the elements; what lies behind them is passed over.
    element
        What they are; each element of an array datatype counts.

    Raises
    ------
    SourceFormatError
        If `raw` is shorter, or cannot be decoded.
    """
    size = n_elements * element.itemsize
    if len(raw) < size:
        raise SourceFormatError(f"{len(raw)} of {size} bytes of elements are there")
    if element.members:
        return _struct(raw[:size], element, n_elements)
    if element.is_plain:
        return np.frombuffer(raw, element.stored_dtype, n_elements).astype(element.dtype)
    shape = (n_elements,)
    try:
        return decode_chunk(raw[:size], Encoding(shape, element.dtype, element.codecs), shape)
    except DecodeError as error:
        raise SourceFormatError(f"elements cannot be decoded: {error.reason}") from error


def _struct(raw: bytes, element: ElementType, n_elements: int) -> NDArray[Any]:
    rows = np.frombuffer(raw, np.uint8).reshape(n_elements, element.itemsize)
    values = np.zeros(n_elements, element.dtype)
    for member in element.members:
        stop = member.offset + member.n_elements * member.element.itemsize
        part = rows[:, member.offset : stop].tobytes()
        flat = converted(part, member.element, n_elements * member.n_elements)
        values[member.name] = flat.reshape(n_elements, *member.element.subshape)
    return values
