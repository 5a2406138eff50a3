"""How the elements of a dataset are stored, by its layout."""

from __future__ import annotations

import math

from gridref.errors import ScanError, SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.format.data_layout import (
    ChunkedLayout,
    CompactLayout,
    ContiguousLayout,
    DataLayout,
    VirtualLayout,
)
from gridref.formats.hdf5.format.filter_pipeline import filter_codecs, read_filters
from gridref.formats.hdf5.objects.dtypes import ElementType
from gridref.formats.hdf5.objects.tree import DatasetNode
from gridref.formats.hdf5.storage.chunk_index import ChunkTable, walk_chunks
from gridref.formats.hdf5.storage.contiguous import contiguous_chunks
from gridref.formats.hdf5.storage.external import external_chunks, external_files
from gridref.formats.options import ScanOptions
from gridref.model.encoding import Codec, Encoding, shared_encoding
from gridref.model.manifest import ChunkManifest

__all__ = ["MAX_CHUNKS", "Stored", "one_chunk", "refuse_if_large", "stored_chunks"]

MAX_CHUNKS = 1 << 27
"""Most chunks of a dataset: a bound on memory where a file declares absurd extents."""

_FILTER_PIPELINE = 0x0B
_ALWAYS_LISTED, _ROWS_A_STORED_CHUNK = 1 << 24, 64

Stored = tuple[Encoding, ChunkManifest]
"""How chunks are encoded, and where they lie."""


def stored_chunks(
    dataset: DatasetNode, element: ElementType, layout: DataLayout, options: ScanOptions
) -> Stored | None:
    """Reference the elements of a dataset that is not virtual; None if the file holds none.

    Raises
    ------
    SourceFormatError
        If the file is corrupt there.
    UnsupportedFeatureError
        If they cannot be referenced.
    """
    match layout:
        case ChunkedLayout():
            return _chunked(dataset, element, layout)
        case CompactLayout():
            return _compact(dataset, element, layout, options.max_inline_bytes)
        case ContiguousLayout():
            return _contiguous(dataset, element, layout, options)
        case VirtualLayout():
            raise UnsupportedFeatureError(f"virtual datasets of {element.reason or 'arrays'}")


def _chunked(dataset: DatasetNode, element: ElementType, layout: ChunkedLayout) -> Stored | None:
    shared, messages = dataset.file.shared, dataset.messages
    filters = shared.decoded(messages, _FILTER_PIPELINE, read_filters) or ()
    codecs = filter_codecs(filters)
    element_bytes = math.prod(element.subshape) * element.itemsize
    if layout.element_bytes != element_bytes:
        raise SourceFormatError(
            f"the data layout has elements of {layout.element_bytes} bytes, the datatype has"
            f" {element_bytes}"
        )
    table = _chunk_table(dataset, layout, is_filtered=bool(filters))
    if table.n_stored == 0:
        return None
    chunk_shape = layout.chunk_shape + element.subshape
    encoding = shared_encoding(chunk_shape, element.dtype, (*element.codecs, *codecs))
    max_rows = min(MAX_CHUNKS, max(_ALWAYS_LISTED, _ROWS_A_STORED_CHUNK * table.n_stored))
    return encoding, table.to_manifest(dataset.file.source, max_rows=max_rows)


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
    return contiguous_chunks(dataset, element, layout.offset, options.max_chunk_bytes)


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


def _chunk_table(dataset: DatasetNode, layout: ChunkedLayout, *, is_filtered: bool) -> ChunkTable:
    """The chunks that a chunked dataset holds."""
    try:
        return walk_chunks(
            dataset.file.bytes,
            layout,
            shape=dataset.shape or (),
            max_shape=dataset.maxshape,
            is_filtered=is_filtered,
        )
    except ScanError as error:
        raise error.located(dataset.file.place(dataset.path)) from error.__cause__
