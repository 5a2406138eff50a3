"""Values that are read at the scan and kept in the references."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.format.data_layout import DataLayout
from gridref.formats.hdf5.objects.attributes import heap_values
from gridref.formats.hdf5.objects.conversion import converted
from gridref.formats.hdf5.objects.dtypes import ElementType, Form
from gridref.formats.hdf5.objects.files import OpenFile
from gridref.formats.hdf5.objects.tree import DatasetNode
from gridref.formats.hdf5.storage.elements import read_elements
from gridref.formats.hdf5.storage.layouts import Stored, one_chunk, refuse_if_large
from gridref.formats.options import ScanOptions
from gridref.model.encoding import Codec

__all__ = ["inline_converted", "inline_texts", "n_elements_of", "one_chunk_of", "texts_of"]


def inline_converted(
    dataset: DatasetNode, element: ElementType, layout: DataLayout, options: ScanOptions
) -> Stored:
    """Keep what stored elements are converted to, where no codec describes that."""
    n_elements = n_elements_of(dataset, element)
    refuse_if_large(n_elements * element.dtype.itemsize, options.max_inline_bytes, element.reason)
    raw = read_elements(dataset, element, layout, options)
    return one_chunk_of(dataset, element, converted(raw, element, n_elements))


def one_chunk_of(dataset: DatasetNode, element: ElementType, values: NDArray[Any]) -> Stored:
    """Values of all elements, of the element's dtype, as one inline chunk."""
    little = values.astype(element.dtype.newbyteorder("<"), copy=False)
    plain = element.dtype.kind in "SV" or element.dtype.itemsize == 1
    codecs = ElementType(element.dtype, order="|" if plain else "<").codecs
    return one_chunk(dataset, element, codecs, little.tobytes())


def inline_texts(
    dataset: DatasetNode, element: ElementType, layout: DataLayout, options: ScanOptions
) -> Stored:
    """Keep variable-length strings, or the paths of references, as ``vlen-utf8``."""
    n_items = n_elements_of(dataset, element)
    max_bytes = options.max_inline_bytes
    refuse_if_large(4 * n_items, max_bytes, element.reason)
    if element.itemsize > dataset.file.heap.pointer_bytes:
        raise SourceFormatError(
            f"{element.reason} take {element.itemsize} bytes each instead of at most"
            f" {dataset.file.heap.pointer_bytes}"
        )
    raw = read_elements(dataset, element, layout, options)
    parts = [struct.pack("<I", n_items)]
    size = 4
    for item in texts_of(dataset.file, element, raw):
        if element.form is Form.TEXT:
            _require_utf8(item)
        size += 4 + len(item)
        refuse_if_large(size, max_bytes, element.reason)
        parts += (struct.pack("<I", len(item)), item)
    return one_chunk(dataset, element, (Codec("vlen-utf8"),), b"".join(parts))


def n_elements_of(dataset: DatasetNode, element: ElementType) -> int:
    """How many elements a dataset has; each one of an array datatype counts."""
    return math.prod((*(dataset.shape or ()), *element.subshape))


def texts_of(file: OpenFile, element: ElementType, raw: bytes) -> Iterator[bytes]:
    """The bytes of variable-length strings, or those of the paths of references.

    Raises
    ------
    SourceFormatError
        If one points to nothing.
    """
    count = len(raw) // element.itemsize
    if element.form is Form.TEXT:
        yield from file.heap.texts(raw, count)
        return
    for path in heap_values(raw, element, count, file):
        yield path.encode("utf-8", "surrogateescape")


def _require_utf8(text: bytes) -> None:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnsupportedFeatureError(f"a string is not valid UTF-8: {text[:40]!r}") from error
