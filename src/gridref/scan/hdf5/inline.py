"""Values that are read at the scan and kept in the references."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from gridref.errors import UnsupportedFeatureError
from gridref.model.encoding import Codec, Encoding
from gridref.model.manifest import ChunkManifest, ChunkState
from gridref.scan.hdf5.attributes import referenced_path
from gridref.scan.hdf5.dtypes import ElementType, Form
from gridref.scan.hdf5.files import hdf5_errors
from gridref.scan.hdf5.tree import DatasetNode

__all__ = ["inline_converted", "inline_stored", "inline_texts"]

_TEXTS_AT_ONCE = 1 << 16
_POINTER_BYTES = 16

Stored = tuple[Encoding, ChunkManifest]


def _one_chunk(
    dataset: DatasetNode, element: ElementType, codecs: tuple[Codec, ...], raw: bytes
) -> Stored:
    """The whole dataset as one inline chunk; its file is noted, though nothing points into it."""
    shape = (dataset.shape or ()) + element.subshape
    chunk_shape = tuple(max(1, extent) for extent in shape)
    manifest = ChunkManifest.from_columns(
        [dataset.file.source], offset=0, length=len(raw), state=ChunkState.INLINE, inline=raw
    )
    return Encoding(chunk_shape, element.dtype, codecs), manifest


def _refuse_if_large(n_bytes: int, max_bytes: int, what: str) -> None:
    if n_bytes > max_bytes:
        raise UnsupportedFeatureError(
            f"{what} have to be read and kept in the references, and take {n_bytes} bytes;"
            f" raise max_inline_bytes (now {max_bytes}) to keep them"
        )


def inline_stored(dataset: DatasetNode, element: ElementType, max_bytes: int) -> Stored:
    """Keep the stored bytes as they are."""
    shape = (dataset.shape or ()) + element.subshape
    n_bytes = math.prod(shape) * element.itemsize
    _refuse_if_large(n_bytes, max_bytes, "values that no byte range holds")
    raw = np.zeros(n_bytes, np.uint8)
    if n_bytes:
        with hdf5_errors(dataset.file.place(dataset.path), "read the values"):
            dataset.did.read(h5py.h5s.ALL, h5py.h5s.ALL, raw, dataset.did.get_type())
    return _one_chunk(dataset, element, element.codecs, raw.tobytes())


def inline_converted(dataset: DatasetNode, element: ElementType, max_bytes: int) -> Stored:
    """Keep what HDF5 makes of stored elements that no codec describes."""
    shape = (dataset.shape or ()) + element.subshape
    n_bytes = math.prod(shape) * element.dtype.itemsize
    _refuse_if_large(n_bytes, max_bytes, element.reason)
    with hdf5_errors(dataset.file.place(dataset.path), "read the values"):
        values = np.asarray(h5py.Dataset(dataset.did)[()]).astype(element.dtype)
    little = values.astype(element.dtype.newbyteorder("<"), copy=False)
    plain = element.dtype.kind in "SV" or element.dtype.itemsize == 1
    codecs = ElementType(element.dtype, order="|" if plain else "<").codecs
    return _one_chunk(dataset, element, codecs, little.tobytes())


def inline_texts(dataset: DatasetNode, element: ElementType, max_bytes: int) -> Stored:
    """Keep variable-length strings, or the paths of references, as ``vlen-utf8``."""
    shape = (dataset.shape or ()) + element.subshape
    n_items = math.prod(shape)
    _refuse_if_large(4 * n_items, max_bytes, element.reason)
    parts = [struct.pack("<I", n_items)]
    size = 4
    with hdf5_errors(dataset.file.place(dataset.path), "read the values"):
        for item in _items(dataset, element):
            size += 4 + len(item)
            _refuse_if_large(size, max_bytes, element.reason)
            parts += (struct.pack("<I", len(item)), item)
    return _one_chunk(dataset, element, (Codec("vlen-utf8"),), b"".join(parts))


def _items(dataset: DatasetNode, element: ElementType) -> Iterator[bytes]:
    for values in _slabs(dataset):
        for value in values.reshape(-1).tolist():
            yield _utf8(value, element, dataset)


def _utf8(value: Any, element: ElementType, dataset: DatasetNode) -> bytes:
    if element.form is Form.REFERENCE:
        return referenced_path(value, dataset.file.fid).encode("utf-8", "surrogateescape")
    if isinstance(value, str):
        return value.encode()
    raw: bytes = value if isinstance(value, bytes) else b""
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnsupportedFeatureError(f"a string is not valid UTF-8: {raw[:40]!r}") from error
    return raw


def _slabs(dataset: DatasetNode) -> Iterator[NDArray[Any]]:
    """The values, piece by piece along the first axis, so that no more is read than may be kept."""
    shape = dataset.shape or ()
    values = h5py.Dataset(dataset.did)
    if not shape:
        yield np.array(values[()], dtype=object)
        return
    if 0 in shape:
        return
    step = max(1, _TEXTS_AT_ONCE // math.prod(shape[1:]))
    for start in range(0, shape[0], step):
        yield values[start : start + step]
