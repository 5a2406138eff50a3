"""Turn HDF5 datasets into virtual arrays.

`scan_array` takes a dataset and its dimensions, and returns a virtual array with an entry for the
scan report. The dataset's layout and datatype decide whether the array refers to stored chunks,
combines the sources of a virtual dataset, or keeps its values in the references.

Large contiguous data are split into chunks without moving any bytes. External storage is contiguous
data in segments of other files. Elements that no chunk holds read as the fill value.

Stored chunks of strings of variable length, references and other converted elements cannot be
served as they are. Their values are read during the scan and become inline chunks. A dataset of
variable-length sequences becomes two arrays: one with the elements of all sequences along one
dimension, and one with the number of elements of each sequence.

Sources: HDF5 File Format Specification v3, IV.A.2.h "The Data Storage - External Data Files
Message", IV.A.2.e "The Data Storage - Fill Value (Old) Message", IV.A.2.f "The Data Storage - Fill
Value Message"; CF conventions 1.11, 9.3.3 "Contiguous ragged array representation".
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gridref.codecs import decode_chunk
from gridref.errors import (
    DecodeError,
    Message,
    Place,
    ScanError,
    SourceFormatError,
    SourceUnavailableError,
    UnsupportedFeatureError,
)
from gridref.formats.chunks import Piece, chunks_of_pieces, contiguous_chunks, edge_policy
from gridref.formats.hdf5.attributes import heap_values
from gridref.formats.hdf5.bytes import FieldCursor, Hdf5Bytes
from gridref.formats.hdf5.chunks import (
    IndexRequest,
    walk_chunks,
)
from gridref.formats.hdf5.datatypes import (
    WITHOUT_HEAP,
    ElementType,
    Form,
    converted,
    element_type,
    member_bytes,
)
from gridref.formats.hdf5.files import Location, OpenFile, external_file
from gridref.formats.hdf5.filters import filter_codecs, read_filters
from gridref.formats.hdf5.headers import (
    DATATYPE,
    EXTERNAL_FILES,
    FILL,
    FILTERS,
    OLD_FILL,
    ChunkedLayout,
    CompactLayout,
    ContiguousLayout,
    VirtualLayout,
)
from gridref.formats.hdf5.heaps import LocalHeap
from gridref.formats.hdf5.tree import Address, DatasetNode, dataset_node
from gridref.formats.hdf5.virtual import virtual_blocks
from gridref.formats.scanner import ScanOptions, check_element_size
from gridref.io import open_for_scan
from gridref.learned import FORMS
from gridref.limits import beyond, limits
from gridref.model.array import CF_FLAGS, Enumeration, VirtualArray, cf_flags, zero_of
from gridref.model.encoding import Codec, EdgePolicy, Encoding, bytes_codec, shared_encoding
from gridref.model.grid import chunk_counts
from gridref.model.joining import concatenate, missing_array, missing_like
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from gridref.model.scan_report import Fate

# External storage: contiguous data in segments of other files

_MAX_OFFSET = 1 << 62


class _ExternalFile(NamedTuple):
    """A piece of an external file, as the dataset names it.

    Attributes
    ----------
    offset, size
        First byte and number of bytes there.
    """

    name: str
    offset: int
    size: int


def external_files(dataset: DatasetNode) -> tuple[_ExternalFile, ...]:
    """The pieces of external files that hold a dataset; none if its own file does."""
    file = dataset.file.bytes
    pieces = dataset.file.shared.decoded(
        dataset.header, EXTERNAL_FILES, lambda message: _decode_external(file, message)
    )
    return pieces or ()


def _decode_external(file: Hdf5Bytes, message: bytes) -> tuple[_ExternalFile, ...]:
    cursor = FieldCursor(message, "the external data files message", Place())
    cursor.expect(b"\x01", "version")
    cursor.take_bytes(3)
    n_slots, n_files = cursor.take(2), cursor.take(2)
    if n_files > n_slots:
        raise cursor.error(f"declares {n_files} files in {n_slots} slots")
    if n_files > limits().external_files:
        raise cursor.error(beyond("external_files", f"declares {n_files} files"))
    names = LocalHeap(file, cursor.take(file.offset_bytes))
    files = []
    for _ in range(n_files):
        start, offset, size = (cursor.take(file.length_bytes) for _ in range(3))
        if offset > _MAX_OFFSET:
            raise cursor.error(f"names byte {offset} of a file")
        name = names.text(start).decode("utf-8", "surrogateescape")
        files.append(_ExternalFile(name, offset, size))
    return tuple(files)


def _external_chunks(
    dataset: DatasetNode,
    element: ElementType,
    files: tuple[_ExternalFile, ...],
    options: ScanOptions,
) -> tuple[Encoding, ChunkManifest]:
    """Reference data in external files, or keep it inline if no chunking fits the pieces."""
    shape = (dataset.shape or ()) + element.subshape
    itemsize = element.itemsize
    pieces = _pieces(dataset, files, math.prod(shape) * itemsize, options)
    chunks = chunks_of_pieces(shape, itemsize, pieces, options.max_chunk_bytes)
    codecs = element.codecs
    if chunks is None or not all(map(_is_complete, pieces)):
        return _one_chunk(dataset, element, codecs, _read(pieces, options))
    chunk_shape, manifest = chunks
    return Encoding(chunk_shape, element.dtype, codecs, edge_policy(shape, chunk_shape)), manifest


def _is_complete(piece: Piece) -> bool:
    """Whether the file holds all of the piece."""
    size = piece.source.size_bytes
    return size is None or piece.offset + piece.length <= size


def _pieces(
    dataset: DatasetNode, files: tuple[_ExternalFile, ...], n_bytes: int, options: ScanOptions
) -> list[Piece]:
    pieces: list[Piece] = []
    start = 0
    for name, offset, size in files:
        length = min(n_bytes - start, size)  # the size may mean "without limit"
        if length > 0:
            pieces.append(Piece(_source(dataset, name, options), offset, length))
            start += length
    if start < n_bytes:
        raise UnsupportedFeatureError(
            f"the external files are declared to hold {start} of {n_bytes} bytes"
        )
    return pieces


def _source(dataset: DatasetNode, name: str, options: ScanOptions) -> Source:
    try:
        return external_file(dataset.file.source.url, name, options, dataset.file.policy)
    except SourceUnavailableError as error:
        raise UnsupportedFeatureError(
            Message(f"the external file {name}: ", error.reason)
        ) from error


def _read(pieces: list[Piece], options: ScanOptions) -> bytes:
    """All bytes; beyond the end of a file they are zeros, as HDF5 reads them."""
    n_bytes = sum(piece.length for piece in pieces)
    if n_bytes > options.max_inline_bytes:
        raise UnsupportedFeatureError(
            f"no chunking fits the external files, and {n_bytes} bytes are too many to keep in the"
            f" references; raise max_inline_bytes (now {options.max_inline_bytes})"
        )
    parts = []
    for source, offset, length in pieces:
        with open_for_scan(source.url, options.storage_options, policy=source.policy) as file:
            file.seek(offset)
            parts.append(file.read(length).ljust(length, b"\0"))
    return b"".join(parts)


# Fill values

_NEVER_WRITTEN = 1
_UNDEFINED = 0xFFFFFFFF
_UNDEFINED_FLAG, _DEFINED_FLAG = 0x10, 0x20


def fill_value(dataset: DatasetNode, element: ElementType) -> Any:
    """The fill value as a scalar of the element's dtype; zero or no text if the file has none."""
    raw = stored_fill(dataset)
    if raw and element.form is Form.TEXT:
        text = next(_texts_of(dataset.file, element, raw))
        _require_utf8(text)
        return text.decode("utf-8")
    if not raw or element.form not in WITHOUT_HEAP:
        return zero_of(element.dtype)
    return _scalar(raw, element)


def stored_fill(dataset: DatasetNode) -> bytes:
    """The stored bytes of the fill value; empty if there is none."""
    shared, header = dataset.file.shared, dataset.header
    raw = shared.decoded(header, FILL, _decode_fill)
    return shared.decoded(header, OLD_FILL, _decode_old) or b"" if raw is None else raw


@FORMS.remembers
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


@FORMS.remembers
def _decode_fill(message: bytes) -> bytes:
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


@FORMS.remembers
def _decode_old(message: bytes) -> bytes:
    return _value(FieldCursor(message, "the fill value message", Place()))


def _value(cursor: FieldCursor) -> bytes:
    size = cursor.take(4)
    return b"" if size == _UNDEFINED else cursor.take_bytes(size)


# The stored chunks of a dataset, by its layout

Stored = tuple[Encoding, ChunkManifest]
"""The encoding of chunks, and their places."""


def _stored_chunks(
    dataset: DatasetNode, element: ElementType, options: ScanOptions
) -> Stored | None:
    """Reference the elements of a dataset that is not virtual; None if the file holds none."""
    match layout := dataset.layout:
        case ChunkedLayout():
            return _chunked(dataset, element, layout)
        case CompactLayout():
            return _compact(dataset, element, layout, options.max_inline_bytes)
        case ContiguousLayout():
            return _contiguous(dataset, element, layout, options)
        case VirtualLayout():
            raise UnsupportedFeatureError(f"virtual datasets of {element.reason or 'arrays'}")


def _chunked(dataset: DatasetNode, element: ElementType, layout: ChunkedLayout) -> Stored | None:
    shared = dataset.file.shared
    filters = shared.decoded(dataset.header, FILTERS, read_filters) or ()
    codecs = filter_codecs(filters)
    element_bytes = math.prod(element.subshape) * element.itemsize
    if layout.element_bytes != element_bytes:
        raise SourceFormatError(
            f"the data layout has elements of {layout.element_bytes} bytes, the datatype has"
            f" {element_bytes}"
        )
    try:
        table = walk_chunks(index_request(dataset, layout, is_filtered=bool(filters)))
    except ScanError as error:
        raise error.located(dataset.file.place(dataset.path)) from error.__cause__
    if table.n_stored == 0:
        return None
    chunk_shape = layout.chunk_shape + element.subshape
    encoding = shared_encoding(chunk_shape, element.dtype, (*element.codecs, *codecs))
    return encoding, table.to_manifest(dataset.file.source)


def index_request(
    dataset: DatasetNode, layout: ChunkedLayout, *, is_filtered: bool
) -> IndexRequest:
    """The chunk index of a dataset with this layout."""
    shape, max_shape = dataset.shape or (), dataset.maxshape
    return IndexRequest(dataset.file.bytes, layout, shape, max_shape, is_filtered)


def _compact(
    dataset: DatasetNode, element: ElementType, layout: CompactLayout, max_bytes: int
) -> Stored:
    n_bytes = _n_elements_of(dataset, element) * element.itemsize
    _refuse_if_large(n_bytes, max_bytes, "values that no byte range holds")
    if layout.size_bytes < n_bytes:
        raise SourceFormatError(
            f"the object header holds {layout.size_bytes} of {n_bytes} bytes of data"
        )
    file = dataset.file.bytes
    raw = file.read(layout.offset - file.base_address, n_bytes, "the compact data")
    return _one_chunk(dataset, element, element.codecs, raw)


def _contiguous(
    dataset: DatasetNode, element: ElementType, layout: ContiguousLayout, options: ScanOptions
) -> Stored | None:
    files = external_files(dataset)
    if files:
        return _external_chunks(dataset, element, files, options)
    if layout.offset is None:
        return None
    n_bytes = _n_elements_of(dataset, element) * element.itemsize
    if layout.size_bytes is not None and layout.size_bytes < n_bytes:
        raise SourceFormatError(
            f"the data layout declares {layout.size_bytes} of {n_bytes} bytes of data"
        )
    shape = (dataset.shape or ()) + element.subshape
    try:
        chunk_shape, manifest = contiguous_chunks(
            shape, element.itemsize, dataset.file.source, layout.offset, options.max_chunk_bytes
        )
    except SourceFormatError as error:
        raise error.located(dataset.file.place(dataset.path)) from error.__cause__
    edge = edge_policy(shape, chunk_shape)
    return Encoding(chunk_shape, element.dtype, element.codecs, edge), manifest


def _one_chunk(
    dataset: DatasetNode, element: ElementType, codecs: tuple[Codec, ...], raw: bytes
) -> Stored:
    """The whole dataset as one inline chunk; its file is noted, though nothing points into it."""
    shape = (dataset.shape or ()) + element.subshape
    chunk_shape = tuple(max(1, extent) for extent in shape)
    manifest = ChunkManifest.from_inline([raw], [dataset.file.source])
    return Encoding(chunk_shape, element.dtype, codecs), manifest


def _refuse_if_large(n_bytes: int, max_bytes: int, elements: str) -> None:
    """Raise unless so many bytes may be kept in the references."""
    if n_bytes > max_bytes:
        raise UnsupportedFeatureError(
            f"{elements} have to be read and kept in the references, and take {n_bytes} bytes;"
            f" raise max_inline_bytes (now {max_bytes}) to keep them"
        )


# All stored elements of a dataset

_BATCH_BYTES = 1 << 24


def _read_elements(dataset: DatasetNode, element: ElementType, options: ScanOptions) -> bytes:
    """The bytes of all elements in C order, as they are stored before filters are applied."""
    opaque = ElementType(np.dtype(f"V{element.itemsize}"), subshape=element.subshape)
    shape = (dataset.shape or ()) + element.subshape
    values = np.zeros(shape, opaque.dtype)
    fill = stored_fill(dataset)
    if len(fill) == math.prod(element.subshape) * element.itemsize:
        values[...] = np.frombuffer(fill, opaque.dtype).reshape(element.subshape)
    stored = _stored_chunks(dataset, opaque, options)
    if stored is not None and values.size:
        _fill_in(values, stored, dataset, options)
    return values.tobytes()


def _fill_in(
    values: NDArray[Any], stored: Stored, dataset: DatasetNode, options: ScanOptions
) -> None:
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


def _inline_converted(dataset: DatasetNode, element: ElementType, options: ScanOptions) -> Stored:
    """Keep the values of stored elements inline, if no codec describes the conversion."""
    n_elements = _n_elements_of(dataset, element)
    _refuse_if_large(n_elements * element.dtype.itemsize, options.max_inline_bytes, element.reason)
    raw = _read_elements(dataset, element, options)
    return _one_chunk_of(dataset, element, converted(raw, element, n_elements))


def _one_chunk_of(dataset: DatasetNode, element: ElementType, values: NDArray[Any]) -> Stored:
    """Values of all elements, of the element's dtype, as one inline chunk."""
    little = values.astype(element.dtype.newbyteorder("<"), copy=False)
    plain = element.dtype.kind in "SV" or element.dtype.itemsize == 1
    codecs = ElementType(element.dtype, order="|" if plain else "<").codecs
    return _one_chunk(dataset, element, codecs, little.tobytes())


def _inline_texts(dataset: DatasetNode, element: ElementType, options: ScanOptions) -> Stored:
    """Keep variable-length strings, or the paths of references, as ``vlen-utf8``."""
    n_items = _n_elements_of(dataset, element)
    max_bytes = options.max_inline_bytes
    _refuse_if_large(4 * n_items, max_bytes, element.reason)
    if element.itemsize > dataset.file.heap.pointer_bytes:
        raise SourceFormatError(
            f"{element.reason} take {element.itemsize} bytes each instead of at most"
            f" {dataset.file.heap.pointer_bytes}"
        )
    raw = _read_elements(dataset, element, options)
    parts = [struct.pack("<I", n_items)]
    size = 4
    for item in _texts_of(dataset.file, element, raw):
        if element.form is Form.TEXT:
            _require_utf8(item)
        size += 4 + len(item)
        _refuse_if_large(size, max_bytes, element.reason)
        parts += (struct.pack("<I", len(item)), item)
    return _one_chunk(dataset, element, (Codec("vlen-utf8"),), b"".join(parts))


def _n_elements_of(dataset: DatasetNode, element: ElementType) -> int:
    """The number of elements of a dataset; each element of an array datatype counts."""
    return math.prod((*(dataset.shape or ()), *element.subshape))


def _texts_of(file: OpenFile, element: ElementType, raw: bytes) -> Iterator[bytes]:
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


def _ragged_arrays(
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
    """
    base = element.base
    if base is None or base.form not in WITHOUT_HEAP:
        kind = element.reason if base is None else f"{element.reason} of {base.reason}"
        raise UnsupportedFeatureError(f"{kind} have no Zarr dtype")
    shape = (dataset.shape or ()) + element.subshape
    n_rows = math.prod(shape)
    _refuse_if_large(8 * n_rows, options.max_inline_bytes, element.reason)
    if element.itemsize != dataset.file.heap.pointer_bytes:
        raise SourceFormatError(f"{element.reason} take {element.itemsize} bytes each")
    if isinstance(dataset.layout, VirtualLayout) and n_rows:
        raise UnsupportedFeatureError(f"virtual datasets of {element.reason}")
    raw = _read_elements(dataset, element, options) if n_rows else b""
    row_bytes = base.itemsize * math.prod(base.subshape)
    parts, sizes, n_bytes = [], [], 8 * n_rows
    for item in dataset.file.heap.items(raw, n_rows, row_bytes):
        n_bytes += len(item)
        _refuse_if_large(n_bytes, options.max_inline_bytes, element.reason)
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


def _inline_records(
    dataset: DatasetNode, element: ElementType, options: ScanOptions
) -> tuple[Stored, np.void]:
    """Keep the elements: their strings become bytes, as wide as the longest of a member.

    For strings of variable length, numpy has only fields of objects, which no other program knows.
    A variable-length string of HDF5 ends at its first zero byte, so padding changes none.

    Returns
    -------
    tuple
        The elements as one inline chunk, and the fill value, which has their dtype.
    """
    limit, count = options.max_inline_bytes, _n_elements_of(dataset, element)
    _refuse_if_large(count * element.itemsize, limit, element.reason)
    fills = stored_fill(dataset) or bytes(element.itemsize)
    n_fills = len(fills) // element.itemsize  # several of an array datatype
    raw = _read_elements(dataset, element, options)
    # The fill value is read with the elements, which gives its strings room, too.
    values = _values(raw + fills, element, count + n_fills, dataset.file, limit)
    if any(fill != values[-1] for fill in values[count:]):
        raise UnsupportedFeatureError("the fill value differs within an element of an array type")
    wide = replace(element, dtype=values.dtype)
    return _one_chunk_of(dataset, wide, values[:count]), values[-1]


def _values(
    raw: bytes, element: ElementType, count: int, file: OpenFile, limit: int
) -> NDArray[Any]:
    """Elements of a compound, or of a member; strings take no more bytes than `limit`."""
    match element.form:
        case Form.MIXED:
            return _compounds(raw, element, count, file, limit)
        case Form.TEXT | Form.REFERENCE:
            texts = [*_texts_of(file, element, raw)]
            width = max(1, *map(len, texts))
            _refuse_if_large(count * width, limit, f"members that are {element.reason}")
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


# One dataset as a virtual array

RENAMED = "_nc4_non_coord_"
"""Prefix of variables that netCDF4 renamed, as they have the name of a dimension."""


@dataclass(frozen=True)
class ScannedArray:
    """An array, and what the report says about it.

    Attributes
    ----------
    row_sizes
        Where the dataset holds variable-length sequences: how many elements of the array each has.
    """

    array: VirtualArray
    fate: Fate = Fate.TAKEN
    reason: str = ""
    row_sizes: VirtualArray | None = None


_Sources = dict[Address, VirtualArray]
"""Sources of virtual datasets, each described once."""


def scan_array(
    dataset: DatasetNode, dims: tuple[str, ...], sizes: tuple[int, ...], options: ScanOptions
) -> ScannedArray:
    """Describe a dataset.

    Parameters
    ----------
    dataset
        The dataset; not one with a null dataspace.
    dims, sizes
        Names and sizes of its dimensions. Where a size is beyond the extent of the dataset, it
        reads as fill value there.
    """
    element = _element(dataset)
    check_element_size(element.dtype)
    names = dims
    if element.subshape:
        axes = range(len(dims), len(dims) + len(element.subshape))
        names = (*dims, *(f"{dataset.name}_axis_{axis}" for axis in axes))
    if element.form is Form.RAGGED:
        return _ragged(dataset, element, names, sizes + element.subshape, options)
    scanned = _scan(dataset, element, options, {})
    array = _padded(scanned.array, sizes + element.subshape)
    attrs = _with_flags(dataset.attributes.public, element)
    enumeration = _enumeration(dataset, element)
    array = array.with_changes(dims=names, attrs=attrs, enumeration=enumeration)
    return ScannedArray(array, scanned.fate, scanned.reason)


def _ragged(
    dataset: DatasetNode,
    element: ElementType,
    names: tuple[str, ...],
    sizes: tuple[int, ...],
    options: ScanOptions,
) -> ScannedArray:
    name = plain_name(dataset.name)
    array, row_sizes = _ragged_arrays(dataset, name, element, options)
    attrs = _with_flags(dataset.attributes.public, element.base or element)
    reason = f"{element.reason}, whose lengths are in {name}{ROW_SIZE}"
    return ScannedArray(
        array.with_changes(attrs=attrs),
        Fate.INLINED,
        reason,
        _padded(row_sizes, sizes).with_changes(dims=names),
    )


def plain_name(name: str) -> str:
    """The name of a variable that netCDF4 renamed, as it has the name of a dimension."""
    return name.removeprefix(RENAMED) or name


def _element(dataset: DatasetNode) -> ElementType:
    element = dataset.file.shared.decoded(dataset.header, DATATYPE, element_type)
    if element is None:
        raise SourceFormatError("the dataset has no datatype")
    return element


def _scan(
    dataset: DatasetNode,
    element: ElementType,
    options: ScanOptions,
    sources: _Sources,
    depth: int = 0,
) -> ScannedArray:
    shape = (dataset.shape or ()) + element.subshape
    if isinstance(dataset.layout, VirtualLayout):
        return _virtual(dataset, element, dataset.layout, options, sources, depth)
    stored: Stored | None
    if element.form is Form.MIXED:
        stored, fill = _inline_records(dataset, element, options)
        element, inlined = replace(element, dtype=fill.dtype), element.reason
    else:
        fill = fill_value(dataset, element)
        stored, inlined = _stored_or_inlined(dataset, element, options)
    names = [f"axis_{axis}" for axis in range(len(shape))]
    if stored is None or 0 in shape:
        array = missing_array(shape, element.dtype, dims=names, fill_value=fill)
    else:
        encoding, manifest = stored
        array = VirtualArray.of_one_block(
            shape,
            element.dtype,
            encoding=encoding,
            manifest=manifest,
            dims=names,
            fill_value=fill,
        )
    return ScannedArray(array, Fate.INLINED if inlined else Fate.TAKEN, inlined)


def _virtual(
    dataset: DatasetNode,
    element: ElementType,
    layout: VirtualLayout,
    options: ScanOptions,
    sources: _Sources,
    depth: int,
) -> ScannedArray:
    fill = fill_value(dataset, element)
    if element.form is not Form.STORED or element.subshape:
        kind = "arrays" if element.form is Form.STORED else element.reason
        raise UnsupportedFeatureError(f"virtual datasets of {kind}")
    if depth >= limits().virtual_depth:
        what = f"virtual datasets are nested {depth + 1} deep"
        raise UnsupportedFeatureError(beyond("virtual_depth", what))

    def scan_source(place: Location, path: str) -> VirtualArray:
        source = dataset_node(place, path.rsplit("/", 1)[-1], path)
        if source.address not in sources:
            scanned = _scan(source, _element(source), options, sources, depth + 1)
            sources[source.address] = scanned.array
        return sources[source.address]

    array, note = virtual_blocks(
        dataset.file, layout, dataset.shape or (), element.dtype, fill, scan_source
    )
    return ScannedArray(array, reason=note)


def _stored_or_inlined(
    dataset: DatasetNode, element: ElementType, options: ScanOptions
) -> tuple[Stored | None, str]:
    """How chunks are encoded and where they are, and why values are in the references, if so.

    None if the file holds no chunk.
    """
    if element.form is Form.RAGGED:  # a source of a virtual dataset
        raise UnsupportedFeatureError(f"{element.reason} have no Zarr dtype")
    if 0 in (dataset.shape or ()):
        return None, ""
    if element.form is not Form.STORED:
        inline = _inline_converted if element.form is Form.CONVERTED else _inline_texts
        return inline(dataset, element, options), element.reason
    stored = _stored_chunks(dataset, element, options)
    if stored is None or not stored[1].inline:
        return stored, ""
    is_compact = isinstance(dataset.layout, CompactLayout)
    return stored, "compact layout" if is_compact else "external files that no chunking fits"


def _padded(array: VirtualArray, sizes: tuple[int, ...]) -> VirtualArray:
    """The array, followed by missing blocks along dimensions that are longer."""
    for axis, size in enumerate(sizes):
        extra = size - array.shape[axis]
        if extra > 0:
            tail = missing_like(array, axis, extra, array.fill_value)
            array = concatenate([array, tail], axis)
    return array


def _enumeration(dataset: DatasetNode, element: ElementType) -> Enumeration | None:
    """The enumeration that the elements are members of, if the file gives it a name."""
    name = dataset.file.type_names.get(element) if element.enum else None
    is_plain = len(dict(element.enum)) == len(element.enum)
    own_flags = not dataset.attributes.public.keys().isdisjoint(CF_FLAGS)
    return Enumeration(name, element.enum, own_flags) if name and is_plain else None


def _with_flags(attrs: dict[str, Any], element: ElementType) -> dict[str, Any]:
    """An enumeration's names, as CF flags."""
    if not element.enum or not attrs.keys().isdisjoint(CF_FLAGS):
        return attrs
    return {**attrs, **cf_flags(element.enum, element.dtype)}
