"""HDF4 files for tests, written by the HDF library through pyhdf.

pyhdf lacks the calls for chunks, external files and byte orders. They are called in its library.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyhdf import _hdfext
from pyhdf.SD import SD, SDC

__all__ = [
    "TYPES",
    "library_values",
    "set_chunks",
    "set_external",
    "write_bytes",
    "write_datasets",
]

_LIBRARY = ctypes.CDLL(_hdfext.__file__)
TYPES = {
    "S1": SDC.CHAR,
    "i1": SDC.INT8,
    "u1": SDC.UINT8,
    "i2": SDC.INT16,
    "u2": SDC.UINT16,
    "i4": SDC.INT32,
    "u4": SDC.UINT32,
    "f4": SDC.FLOAT32,
    "f8": SDC.FLOAT64,
}
_CHUNKED, _COMPRESSED = 1, 3
_DEFLATE = 4


class _ChunkDefinition(ctypes.Structure):
    _fields_ = (
        ("lengths", ctypes.c_int32 * 32),
        ("coder", ctypes.c_int32),
        ("model", ctypes.c_int32),
        ("parameters", ctypes.c_int32 * 16),
    )


def set_chunks(dataset: Any, chunk_shape: Sequence[int], deflate: int = 0) -> None:
    """Store a new data set in chunks, compressed with a level of zlib if that is not 0."""
    definition = _ChunkDefinition()
    definition.lengths[: len(chunk_shape)] = chunk_shape
    definition.coder = _DEFLATE if deflate else 0
    definition.parameters[0] = deflate
    flags = _COMPRESSED if deflate else _CHUNKED
    assert _LIBRARY.SDsetchunk(dataset._id, definition, flags) == 0  # noqa: SLF001


def set_external(dataset: Any, path: str, offset: int = 0) -> None:
    """Store a new data set in another file."""
    assert _LIBRARY.SDsetexternalfile(dataset._id, path.encode(), offset) == 0  # noqa: SLF001


def write_bytes(dataset: Any, values: NDArray[Any]) -> None:
    """Write a new data set of any byte order, of values of this machine."""
    counts = (ctypes.c_int32 * values.ndim)(*values.shape)
    starts = (ctypes.c_int32 * values.ndim)()
    address = values.ctypes.data_as(ctypes.c_void_p)
    number = dataset._id  # noqa: SLF001
    assert _LIBRARY.SDwritedata(number, starts, None, counts, address) == 0


def write_datasets(
    path: Path, datasets: Mapping[str, NDArray[Any]], dims: Sequence[str] = (), **attrs: Any
) -> Path:
    """Write contiguous data sets, whose dimensions have the first of some names."""
    file = SD(str(path), SDC.WRITE | SDC.CREATE | SDC.TRUNC)
    for name, value in attrs.items():
        setattr(file, name, value)
    for name, values in datasets.items():
        dataset = file.create(name, TYPES[values.dtype.str[1:]], values.shape)
        for axis, dim in enumerate(dims[: values.ndim]):
            dataset.dim(axis).setname(dim)
        dataset[:] = values
        dataset.endaccess()
    file.end()
    return path


def library_values(path: Path) -> dict[str, NDArray[Any]]:
    """The values of all data sets, by pyhdf."""
    file = SD(str(path))
    values = {}
    for number in range(file.info()[0]):
        dataset = file.select(number)
        values[dataset.info()[0]] = np.asarray(dataset.get())
        dataset.endaccess()
    file.end()
    return values
