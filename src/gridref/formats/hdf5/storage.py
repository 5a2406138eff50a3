"""Find how HDF5 datasets store their elements, and how missing elements read.

`stored_chunks` takes a dataset that is not virtual and returns its stored chunks and their
encoding, for each layout. Large contiguous data are split into chunks without moving any bytes.
External storage is contiguous data in segments of other files. Elements that no chunk holds read as
the fill value.

Source for external storage: HDF5 File Format Specification v3, IV.A.2.h "The Data Storage -
External Data Files Message".

Source for fill values: HDF5 File Format Specification v3, IV.A.2.e "The Data Storage - Fill Value
(Old) Message", IV.A.2.f "The Data Storage - Fill Value Message".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gridref.errors import (
    Message,
    Place,
    ScanError,
    SourceFormatError,
    SourceUnavailableError,
    UnsupportedFeatureError,
)
from gridref.formats.chunks import contiguous_chunks, edge_policy, split_contiguous
from gridref.formats.hdf5.bytes import FieldCursor, Hdf5Bytes
from gridref.formats.hdf5.chunk_index import IndexRequest
from gridref.formats.hdf5.chunk_trees import walk_chunks
from gridref.formats.hdf5.datatypes import ElementType, Form, converted
from gridref.formats.hdf5.files import external_file
from gridref.formats.hdf5.filters import filter_codecs, read_filters
from gridref.formats.hdf5.headers import EXTERNAL_FILES, FILL, FILTERS, OLD_FILL
from gridref.formats.hdf5.heaps import LocalHeap
from gridref.formats.hdf5.messages import (
    ChunkedLayout,
    CompactLayout,
    ContiguousLayout,
    VirtualLayout,
)
from gridref.formats.hdf5.tree import DatasetNode
from gridref.formats.options import ScanOptions
from gridref.io import open_for_scan
from gridref.learned import FORMS
from gridref.limits import beyond, limits
from gridref.model.array import zero_of
from gridref.model.encoding import Codec, Encoding, shared_encoding
from gridref.model.grid import chunk_runs
from gridref.model.manifest import ChunkManifest, Source

# External storage: contiguous data in segments of other files

_MAX_OFFSET = 1 << 62


class ExternalFile(NamedTuple):
    """A piece of an external file, as the dataset names it.

    Attributes
    ----------
    offset, size
        First byte and number of bytes there.
    """

    name: str
    offset: int
    size: int


@dataclass(frozen=True)
class Segment:
    """A piece of a dataset's bytes in an external file.

    Attributes
    ----------
    offset
        First byte of the piece there.
    start, stop
        Bytes of the dataset that it holds.
    """

    source: Source
    offset: int
    start: int
    stop: int

    @property
    def is_complete(self) -> bool:
        """Whether the file holds all of the piece."""
        size = self.source.size_bytes
        return size is None or self.offset + self.stop - self.start <= size


def external_files(dataset: DatasetNode) -> tuple[ExternalFile, ...]:
    """The pieces of external files that hold a dataset; none if its own file does."""
    file = dataset.file.bytes
    pieces = dataset.file.shared.decoded(
        dataset.header, EXTERNAL_FILES, lambda message: _decode_external(file, message)
    )
    return pieces or ()


def _decode_external(file: Hdf5Bytes, message: bytes) -> tuple[ExternalFile, ...]:
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
        files.append(ExternalFile(name, offset, size))
    return tuple(files)


def external_chunks(
    dataset: DatasetNode,
    element: ElementType,
    files: tuple[ExternalFile, ...],
    options: ScanOptions,
) -> tuple[Encoding, ChunkManifest]:
    """Reference data in external files, or keep it inline if no chunking fits the pieces.

    Raises
    ------
    UnsupportedFeatureError
        If a file does not exist, or if too many values would have to be kept inline.
    """
    shape = (dataset.shape or ()) + element.subshape
    itemsize = element.itemsize
    segments = _segments(dataset, files, math.prod(shape) * itemsize, options)
    bounds = [segment.start for segment in segments[1:]]
    chunk_shape = chunks_between(shape, itemsize, bounds, options.max_chunk_bytes)
    codecs = element.codecs
    if chunk_shape is None or not all(segment.is_complete for segment in segments):
        whole = tuple(max(1, extent) for extent in shape)
        raw = _read(segments, options)
        manifest = ChunkManifest.from_inline([raw], [dataset.file.source])
        return Encoding(whole, element.dtype, codecs), manifest
    start, count = chunk_runs(shape, chunk_shape)
    manifest = _manifest(segments, start * itemsize, count * itemsize)
    return Encoding(chunk_shape, element.dtype, codecs, edge_policy(shape, chunk_shape)), manifest


def _segments(
    dataset: DatasetNode, files: tuple[ExternalFile, ...], n_bytes: int, options: ScanOptions
) -> list[Segment]:
    segments: list[Segment] = []
    start = 0
    for name, offset, size in files:
        stop = min(n_bytes, start + size)  # the size may mean "without limit"
        if stop > start:
            source = _source(dataset, name, options)
            segments.append(Segment(source, offset, start, stop))
        start = stop
    if start < n_bytes:
        raise UnsupportedFeatureError(
            f"the external files are declared to hold {start} of {n_bytes} bytes"
        )
    return segments


def _source(dataset: DatasetNode, name: str, options: ScanOptions) -> Source:
    try:
        return external_file(dataset.file.source.url, name, options, dataset.file.policy)
    except SourceUnavailableError as error:
        raise UnsupportedFeatureError(
            Message(f"the external file {name}: ", error.reason)
        ) from error


def chunks_between(
    shape: tuple[int, ...], itemsize: int, bounds: list[int], max_bytes: int
) -> tuple[int, ...] | None:
    """The largest contiguous chunks of at most `max_bytes` that cross no bound.

    Parameters
    ----------
    shape, itemsize
        Of the dataset.
    bounds
        Bytes of the dataset at which another segment begins.
    max_bytes
        Size of a chunk.

    Returns
    -------
    tuple or None
        The chunk shape; None if a bound cuts an element.
    """
    if any(bound % itemsize for bound in bounds):
        return None
    if not bounds:
        return split_contiguous(shape, itemsize, max_bytes)
    unit = math.gcd(*(bound // itemsize for bound in bounds))
    chunk = [max(1, extent) for extent in shape]
    for axis, extent in enumerate(chunk):
        row = math.prod(chunk[axis + 1 :])
        if unit % row == 0 and row * itemsize <= max_bytes:
            common = unit // row if axis == 0 else math.gcd(unit // row, extent)
            chunk[axis] = _largest_divisor(common, min(max_bytes // (row * itemsize), extent))
            return tuple(chunk)
        chunk[axis] = 1
    return tuple(chunk)


def _largest_divisor(number: int, limit: int) -> int:
    """The largest divisor of `number` that is at most `limit`."""
    best = 1
    for divisor in range(1, math.isqrt(number) + 1):
        if number % divisor == 0:
            for candidate in (divisor, number // divisor):
                if best < candidate <= limit:
                    best = candidate
    return best


def _manifest(
    segments: list[Segment], start: NDArray[np.int64], length: NDArray[np.int64]
) -> ChunkManifest:
    firsts = np.array([segment.start for segment in segments], np.int64)
    offsets = np.array([segment.offset for segment in segments], np.int64)
    which = np.searchsorted(firsts, start, side="right") - 1
    sources = list(dict.fromkeys(segment.source for segment in segments))
    numbers = np.array([sources.index(segment.source) for segment in segments], np.int32)
    return ChunkManifest.from_columns(
        sources,
        source=numbers[which],
        offset=offsets[which] + start - firsts[which],
        length=length,
    )


def _read(segments: list[Segment], options: ScanOptions) -> bytes:
    """All bytes; beyond the end of a file they are zeros, as HDF5 reads them."""
    n_bytes = segments[-1].stop
    if n_bytes > options.max_inline_bytes:
        raise UnsupportedFeatureError(
            f"no chunking fits the external files, and {n_bytes} bytes are too many to keep in the"
            f" references; raise max_inline_bytes (now {options.max_inline_bytes})"
        )
    parts = []
    for segment in segments:
        length = segment.stop - segment.start
        source = segment.source
        with open_for_scan(source.url, options.storage_options, policy=source.policy) as file:
            file.seek(segment.offset)
            parts.append(file.read(length).ljust(length, b"\0"))
    return b"".join(parts)


# Fill values

_NEVER_WRITTEN = 1
_UNDEFINED = 0xFFFFFFFF
_UNDEFINED_FLAG, _DEFINED_FLAG = 0x10, 0x20


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


def stored_chunks(
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
    n_bytes = _n_bytes(dataset, element)
    refuse_if_large(n_bytes, max_bytes, "values that no byte range holds")
    if layout.size_bytes < n_bytes:
        raise SourceFormatError(
            f"the object header holds {layout.size_bytes} of {n_bytes} bytes of data"
        )
    file = dataset.file.bytes
    raw = file.read(layout.offset - file.base_address, n_bytes, "the compact data")
    return one_chunk(dataset, element, element.codecs, raw)


def _contiguous(
    dataset: DatasetNode, element: ElementType, layout: ContiguousLayout, options: ScanOptions
) -> Stored | None:
    files = external_files(dataset)
    if files:
        return external_chunks(dataset, element, files, options)
    if layout.offset is None:
        return None
    n_bytes = _n_bytes(dataset, element)
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


def _n_bytes(dataset: DatasetNode, element: ElementType) -> int:
    return math.prod((*(dataset.shape or ()), *element.subshape)) * element.itemsize


def one_chunk(
    dataset: DatasetNode, element: ElementType, codecs: tuple[Codec, ...], raw: bytes
) -> Stored:
    """The whole dataset as one inline chunk; its file is noted, though nothing points into it."""
    shape = (dataset.shape or ()) + element.subshape
    chunk_shape = tuple(max(1, extent) for extent in shape)
    manifest = ChunkManifest.from_inline([raw], [dataset.file.source])
    return Encoding(chunk_shape, element.dtype, codecs), manifest


def refuse_if_large(n_bytes: int, max_bytes: int, elements: str) -> None:
    """Raise unless so many bytes may be kept in the references."""
    if n_bytes > max_bytes:
        raise UnsupportedFeatureError(
            f"{elements} have to be read and kept in the references, and take {n_bytes} bytes;"
            f" raise max_inline_bytes (now {max_bytes}) to keep them"
        )
