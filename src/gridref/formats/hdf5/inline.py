"""Read values of HDF5 datasets during the scan, to keep them in the references.

Stored chunks of strings of variable length, references and other converted elements cannot be
served as they are, so this module reads their values and returns them as inline chunks.

A dataset of variable-length sequences becomes two arrays: one with the elements of all sequences
along one dimension, and one with the number of elements of each sequence.

Source: CF conventions 1.11, 9.3.3 "Contiguous ragged array representation".
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.codecs import decode_chunk
from gridref.errors import DecodeError, Place, SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.attributes import heap_values
from gridref.formats.hdf5.datatypes import ElementType, Form, converted, member_bytes
from gridref.formats.hdf5.files import OpenFile
from gridref.formats.hdf5.messages import VirtualLayout
from gridref.formats.hdf5.storage import (
    Stored,
    one_chunk,
    refuse_if_large,
    stored_chunks,
    stored_fill,
)
from gridref.formats.hdf5.tree import DatasetNode
from gridref.formats.options import ScanOptions
from gridref.io import open_for_scan
from gridref.limits import beyond, limits
from gridref.model.array import VirtualArray, zero_of
from gridref.model.encoding import Codec, EdgePolicy, Encoding, bytes_codec
from gridref.model.grid import chunk_counts
from gridref.model.joining import missing_array
from gridref.model.manifest import ChunkManifest, ChunkState

# All stored elements of a dataset

_BATCH_BYTES = 1 << 24


def read_elements(dataset: DatasetNode, element: ElementType, options: ScanOptions) -> bytes:
    """The bytes of all elements in C order, as they are stored before filters are applied."""
    opaque = ElementType(np.dtype(f"V{element.itemsize}"), subshape=element.subshape)
    shape = (dataset.shape or ()) + element.subshape
    values = np.zeros(shape, opaque.dtype)
    fill = stored_fill(dataset)
    if len(fill) == math.prod(element.subshape) * element.itemsize:
        values[...] = np.frombuffer(fill, opaque.dtype).reshape(element.subshape)
    stored = stored_chunks(dataset, opaque, options)
    if stored is not None and values.size:
        _fill_in(values, stored, dataset, options)
    return values.tobytes()


def _fill_in(
    values: NDArray[Any], stored: Stored, dataset: DatasetNode, options: ScanOptions
) -> None:
    """Decode all chunks into `values`."""
    encoding, manifest = stored
    lengths = encoding.chunk_shape
    chunk_bytes = math.prod(lengths) * values.itemsize
    n_stored = int(np.count_nonzero(manifest.state != ChunkState.MISSING))
    if chunk_bytes > limits().inline_chunk_bytes:
        what = f"chunks of shape {lengths}, read at the scan, have {chunk_bytes} bytes"
        raise UnsupportedFeatureError(beyond("inline_chunk_bytes", what))
    if n_stored * chunk_bytes > max(limits().inline_decoded_bytes, 8 * values.nbytes):
        what = f"{n_stored} chunks of {chunk_bytes} bytes, read at the scan"
        raise UnsupportedFeatureError(beyond("inline_decoded_bytes", what))
    grid = chunk_counts(values.shape, lengths)
    for row, data in _chunks(manifest, dataset, options):
        coords = tuple(int(coord) for coord in np.unravel_index(row, grid)) if grid else ()
        window = tuple(
            slice(coord * length, min(n, (coord + 1) * length))
            for coord, length, n in zip(coords, lengths, values.shape, strict=True)
        )
        inside = tuple(part.stop - part.start for part in window)
        shape = inside if encoding.edge is EdgePolicy.TRUNCATED else lengths
        mask = 0 if manifest.filter_mask is None else int(manifest.filter_mask[row])
        try:
            chunk = decode_chunk(data, encoding, shape, mask)
        except DecodeError as error:
            place = Place(chunk=coords)
            raise SourceFormatError(f"a chunk cannot be decoded: {error.reason}", place) from error
        values[window] = chunk[tuple(slice(0, n) for n in inside)]


def _chunks(
    manifest: ChunkManifest, dataset: DatasetNode, options: ScanOptions
) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each stored chunk, with few of them in memory at a time."""
    for row in np.flatnonzero(manifest.state == ChunkState.INLINE).tolist():
        yield row, manifest.inline_bytes(row)
    for number, source in enumerate(manifest.sources):
        rows = np.flatnonzero((manifest.state == ChunkState.RANGE) & (manifest.source == number))
        if not len(rows):
            continue
        if source == dataset.file.source:
            yield from _ranges(manifest, rows, dataset.file.scan_file)
        else:
            with open_for_scan(source.url, options.storage_options, policy=source.policy) as file:
                yield from _ranges(manifest, rows, file)


def _ranges(
    manifest: ChunkManifest, rows: NDArray[np.int64], file: Any
) -> Iterator[tuple[int, bytes]]:
    offsets, lengths = manifest.offset[rows], manifest.length[rows]
    batches = np.cumsum(lengths) // _BATCH_BYTES
    for batch in np.unique(batches):
        chosen = batches == batch
        pieces = file.read_many(offsets[chosen].tolist(), lengths[chosen].tolist())
        yield from zip(rows[chosen].tolist(), pieces, strict=True)


# Values as one inline chunk


def inline_converted(dataset: DatasetNode, element: ElementType, options: ScanOptions) -> Stored:
    """Keep the values of stored elements inline, if no codec describes the conversion."""
    n_elements = n_elements_of(dataset, element)
    refuse_if_large(n_elements * element.dtype.itemsize, options.max_inline_bytes, element.reason)
    raw = read_elements(dataset, element, options)
    return one_chunk_of(dataset, element, converted(raw, element, n_elements))


def one_chunk_of(dataset: DatasetNode, element: ElementType, values: NDArray[Any]) -> Stored:
    """Values of all elements, of the element's dtype, as one inline chunk."""
    little = values.astype(element.dtype.newbyteorder("<"), copy=False)
    plain = element.dtype.kind in "SV" or element.dtype.itemsize == 1
    codecs = ElementType(element.dtype, order="|" if plain else "<").codecs
    return one_chunk(dataset, element, codecs, little.tobytes())


def inline_texts(dataset: DatasetNode, element: ElementType, options: ScanOptions) -> Stored:
    """Keep variable-length strings, or the paths of references, as ``vlen-utf8``."""
    n_items = n_elements_of(dataset, element)
    max_bytes = options.max_inline_bytes
    refuse_if_large(4 * n_items, max_bytes, element.reason)
    if element.itemsize > dataset.file.heap.pointer_bytes:
        raise SourceFormatError(
            f"{element.reason} take {element.itemsize} bytes each instead of at most"
            f" {dataset.file.heap.pointer_bytes}"
        )
    raw = read_elements(dataset, element, options)
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
    """The number of elements of a dataset; each element of an array datatype counts."""
    return math.prod((*(dataset.shape or ()), *element.subshape))


def texts_of(file: OpenFile, element: ElementType, raw: bytes) -> Iterator[bytes]:
    """The bytes of variable-length strings, or those of the paths of references."""
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


# Variable-length sequences as contiguous ragged arrays

ROW_SIZE = "_row_size"
"""The suffix of the name of the array of row sizes."""


def sample_dimension(name: str) -> str:
    """The dimension of the elements of all sequences of a dataset."""
    return f"{name}_obs"


def ragged_arrays(
    dataset: DatasetNode,
    name: str,
    element: ElementType,
    options: ScanOptions,
) -> tuple[VirtualArray, VirtualArray]:
    """Keep variable-length sequences: all their elements, and the number of elements of each.

    Returns
    -------
    tuple
        The elements, in C order along the sample dimension; and the row sizes, int64, of the
        dataset's own shape.

    Raises
    ------
    UnsupportedFeatureError
        If the elements have no dtype, or are too many to keep.
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
    if isinstance(dataset.layout, VirtualLayout) and n_rows:
        raise UnsupportedFeatureError(f"virtual datasets of {element.reason}")
    raw = read_elements(dataset, element, options) if n_rows else b""
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
    return _inline(dataset, values, dims), _inline(dataset, rows, row_dims).with_changes(
        attrs=attrs
    )


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


# Compounds with variable-length strings or references as members


def inline_records(
    dataset: DatasetNode, element: ElementType, options: ScanOptions
) -> tuple[Stored, np.void]:
    """Keep the elements: their strings become bytes, as wide as the longest of a member.

    For strings of variable length, numpy has only fields of objects, which no other program knows.
    A variable-length string of HDF5 ends at its first zero byte, so padding changes none.

    Returns
    -------
    tuple
        The elements as one inline chunk, and the fill value, which has their dtype.

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
    raw = read_elements(dataset, element, options)
    # The fill value is read with the elements, which gives its strings room, too.
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
    columns = {}
    for member, part in member_bytes(raw, element, count):
        values = _values(part, member.element, count * member.n_elements, file, limit)
        columns[member.name] = values.reshape(count, *member.element.subshape)
    dtype = [(name, values.dtype, values.shape[1:]) for name, values in columns.items()]
    compounds = np.empty(count, dtype)
    for name, values in columns.items():
        compounds[name] = values
    return compounds
