"""Compounds with members that are variable-length strings, or references."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import UnsupportedFeatureError
from gridref.formats.hdf5.format.data_layout import DataLayout
from gridref.formats.hdf5.objects.conversion import converted
from gridref.formats.hdf5.objects.dtypes import ElementType, Form
from gridref.formats.hdf5.objects.files import OpenFile
from gridref.formats.hdf5.objects.tree import DatasetNode
from gridref.formats.hdf5.storage.elements import read_elements
from gridref.formats.hdf5.storage.fill import stored_fill
from gridref.formats.hdf5.storage.inline import n_elements_of, one_chunk_of, texts_of
from gridref.formats.hdf5.storage.layouts import Stored, refuse_if_large
from gridref.formats.options import ScanOptions

__all__ = ["inline_records"]


def inline_records(
    dataset: DatasetNode, element: ElementType, layout: DataLayout, options: ScanOptions
) -> tuple[Stored, np.void]:
    """Keep the elements: their strings become bytes, as wide as the longest of a member.

    Numpy has no fields for strings of variable length but objects, which nothing but numpy knows. A
    variable-length string of HDF5 ends at its first zero byte, so that padding changes none.

    Returns
    -------
    tuple
        The elements as one inline chunk, and the fill value, which tells their dtype.

    Raises
    ------
    SourceFormatError
        If the file is corrupt there.
    UnsupportedFeatureError
        If members are variable-length sequences, or take too many bytes.
    """
    limit, count = options.max_inline_bytes, n_elements_of(dataset, element)
    refuse_if_large(count * element.itemsize, limit, element.reason)
    fills = stored_fill(dataset) or bytes(element.itemsize)
    n_fills = len(fills) // element.itemsize  # several of an array datatype
    raw = read_elements(dataset, element, layout, options)
    # The fill value is read with the elements, so that its strings have room, too.
    values = _values(raw + fills, element, count + n_fills, dataset.file, limit)
    if any(fill != values[-1] for fill in values[count:]):
        raise UnsupportedFeatureError("the fill value differs within an element of an array type")
    wide = replace(element, dtype=values.dtype)
    return one_chunk_of(dataset, wide, values[:count]), values[-1]


def _values(
    raw: bytes, element: ElementType, count: int, file: OpenFile, limit: int
) -> NDArray[Any]:
    """Elements of a compound, or of a member; strings take no more bytes than `limit`."""
    match element.form:
        case Form.MIXED:
            return _compounds(raw, element, count, file, limit)
        case Form.TEXT | Form.REFERENCE:
            texts = [*texts_of(file, element, raw)]
            width = max(1, *map(len, texts))
            refuse_if_large(count * width, limit, f"members that are {element.reason}")
            return np.array(texts, f"S{width}")
        case Form.RAGGED:
            raise UnsupportedFeatureError(
                f"compounds with members that are {element.reason} have no Zarr dtype"
            )
    return converted(raw, element, count)


def _compounds(
    raw: bytes, element: ElementType, count: int, file: OpenFile, limit: int
) -> NDArray[Any]:
    rows = np.frombuffer(raw, np.uint8, count * element.itemsize).reshape(count, element.itemsize)
    columns = {}
    for member in element.members:
        stop = member.offset + member.n_elements * member.element.itemsize
        part = rows[:, member.offset : stop].tobytes()
        values = _values(part, member.element, count * member.n_elements, file, limit)
        columns[member.name] = values.reshape(count, *member.element.subshape)
    dtype = [(name, values.dtype, values.shape[1:]) for name, values in columns.items()]
    compounds = np.empty(count, dtype)
    for name, values in columns.items():
        compounds[name] = values
    return compounds
