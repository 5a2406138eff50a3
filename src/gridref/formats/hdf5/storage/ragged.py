"""Variable-length sequences as contiguous ragged arrays.

All elements lie side by side along one dimension, and a second array tells how many each sequence
has.

Source: CF conventions 1.11, 9.3.3 "Contiguous ragged array representation".
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.format.data_layout import DataLayout
from gridref.formats.hdf5.objects.conversion import converted
from gridref.formats.hdf5.objects.dtypes import ElementType, Form
from gridref.formats.hdf5.objects.tree import DatasetNode
from gridref.formats.hdf5.storage.elements import read_elements
from gridref.formats.hdf5.storage.layouts import refuse_if_large
from gridref.formats.options import ScanOptions
from gridref.model.array import VirtualArray, zero_of
from gridref.model.encoding import Encoding, bytes_codec
from gridref.model.joining import missing_array
from gridref.model.manifest import ChunkManifest

__all__ = ["ROW_SIZE", "ragged_arrays", "sample_dimension"]

ROW_SIZE = "_row_size"
"""What the name of the array of row sizes ends with."""


def sample_dimension(name: str) -> str:
    """The dimension along which the elements of all sequences of a dataset lie."""
    return f"{name}_obs"


def ragged_arrays(
    dataset: DatasetNode,
    name: str,
    element: ElementType,
    layout: DataLayout,
    options: ScanOptions,
) -> tuple[VirtualArray, VirtualArray]:
    """Keep variable-length sequences: all their elements, and how many each has.

    Parameters
    ----------
    name
        That of its array.

    Returns
    -------
    tuple
        The elements, in C order along the sample dimension; and the row sizes, int64, of the
        dataset's own shape.

    Raises
    ------
    UnsupportedFeatureError
        If the sequences are of what has no dtype, or too many elements to keep.
    SourceFormatError
        If the file is corrupt there.
    """
    base = element.base
    if base is None or base.form not in (Form.STORED, Form.CONVERTED):
        kind = element.reason if base is None else f"{element.reason} of {base.reason}"
        raise UnsupportedFeatureError(f"{kind} have no Zarr dtype")
    shape = (dataset.shape or ()) + element.subshape
    n_rows = math.prod(shape)
    refuse_if_large(8 * n_rows, options.max_inline_bytes, element.reason)
    if element.itemsize != dataset.file.heap.pointer_bytes:
        raise SourceFormatError(f"{element.reason} take {element.itemsize} bytes each")
    raw = read_elements(dataset, element, layout, options) if n_rows else b""
    row_bytes = base.itemsize * math.prod(base.subshape)
    parts, sizes, n_bytes = [], [], 8 * n_rows
    for item in dataset.file.heap.items(raw, n_rows, row_bytes):
        n_bytes += len(item)
        refuse_if_large(n_bytes, options.max_inline_bytes, element.reason)
        parts.append(item)
        sizes.append(len(item) // row_bytes)
    values = converted(b"".join(parts), base, sum(sizes) * math.prod(base.subshape))
    values = values.reshape(-1, *base.subshape)
    rows = np.array(sizes, np.int64).reshape(shape)
    axes = (f"{name}_axis_{axis}" for axis in range(1, values.ndim))
    dims = (sample_dimension(name), *axes)
    row_dims = tuple(f"axis_{axis}" for axis in range(rows.ndim))
    attrs = {"sample_dimension": sample_dimension(name)}
    return _inline(dataset, values, dims), _inline(dataset, rows, row_dims).replace(attrs=attrs)


def _inline(dataset: DatasetNode, values: NDArray[Any], dims: tuple[str, ...]) -> VirtualArray:
    """Values as one inline chunk; their file is noted, though nothing points into it."""
    dtype = values.dtype
    if not values.size:
        return missing_array(values.shape, dtype, dims=dims, fill_value=zero_of(dtype))
    raw = values.astype(dtype.newbyteorder("<"), copy=False).tobytes()
    manifest = ChunkManifest.from_inline([raw], [dataset.file.source])
    encoding = Encoding(values.shape, dtype, (bytes_codec(dtype),))
    return VirtualArray.of_one_block(
        values.shape, dtype, encoding=encoding, manifest=manifest, dims=dims
    )
