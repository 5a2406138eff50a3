"""A dataset -> a virtual array, by its layout and datatype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from h5py import h5d

from gridref.errors import UnsupportedFeatureError
from gridref.model.array import BlockTable, VirtualArray
from gridref.model.encoding import Encoding
from gridref.model.grid import ChunkGrid
from gridref.model.manifest import ChunkManifest
from gridref.model.scan_report import Fate
from gridref.scan.hdf5.chunks import chunk_table
from gridref.scan.hdf5.contiguous import contiguous_chunks
from gridref.scan.hdf5.dtypes import ElementType, Form, element_type
from gridref.scan.hdf5.fill import fill_value
from gridref.scan.hdf5.filters import filter_codecs
from gridref.scan.hdf5.inline import inline_converted, inline_stored, inline_texts
from gridref.scan.hdf5.tree import DatasetNode
from gridref.scan.options import ScanOptions

__all__ = ["MAX_CHUNKS", "ScannedArray", "scan_array"]

MAX_CHUNKS = 1 << 27
"""Most chunks of a dataset: a bound on memory where a file declares absurd extents."""


@dataclass(frozen=True)
class Content:
    """What a dataset holds, as the one block of an array.

    Attributes
    ----------
    stored
        How its chunks are encoded and where they lie; None if the file holds none of them.
    inlined
        Why its values are kept in the references, if they are.
    """

    stored: tuple[Encoding, ChunkManifest] | None
    inlined: str = ""


@dataclass(frozen=True)
class ScannedArray:
    """An array, and what the report says about it."""

    array: VirtualArray
    fate: Fate = Fate.TAKEN
    reason: str = ""


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
    options
        Settings.

    Raises
    ------
    UnsupportedFeatureError
        If it cannot be served faithfully.
    SourceFormatError
        If the file is corrupt there.
    """
    element = element_type(dataset.did.get_type())
    names = dims + tuple(
        f"{dataset.name}_axis_{len(dims) + axis}" for axis in range(len(element.subshape))
    )
    content = _content(dataset, element, options)
    shape = (dataset.shape or ()) + element.subshape
    array = _array(shape, sizes + element.subshape, element, content).replace(
        dims=names,
        attrs=_with_flags(dataset.attributes.public, element),
        fill_value=fill_value(dataset, element),
    )
    return ScannedArray(array, Fate.INLINED if content.inlined else Fate.TAKEN, content.inlined)


def _content(dataset: DatasetNode, element: ElementType, options: ScanOptions) -> Content:
    if element.form in (Form.TEXT, Form.REFERENCE):
        limit = options.max_inline_bytes
        return Content(inline_texts(dataset, element, limit), element.reason)
    if element.form in (Form.RAGGED, Form.MIXED):
        raise UnsupportedFeatureError(f"{element.reason} have no Zarr dtype")
    if 0 in (dataset.shape or ()):
        return Content(None)
    layout = dataset.creation.get_layout()
    if element.form is Form.CONVERTED:
        limit = options.max_inline_bytes
        return Content(inline_converted(dataset, element, limit), element.reason)
    if layout == h5d.COMPACT:
        return Content(inline_stored(dataset, element, options.max_inline_bytes), "compact layout")
    if layout == h5d.CONTIGUOUS:
        return _contiguous(dataset, element, options)
    if layout == h5d.CHUNKED:
        return _chunked(dataset, element)
    raise UnsupportedFeatureError("virtual datasets are not supported yet")


def _contiguous(dataset: DatasetNode, element: ElementType, options: ScanOptions) -> Content:
    if dataset.creation.get_external_count():
        raise UnsupportedFeatureError("external storage is not supported yet")
    offset = dataset.did.get_offset()
    if offset is None:
        return Content(None)
    return Content(contiguous_chunks(dataset, element, offset, options.max_chunk_bytes))


def _chunked(dataset: DatasetNode, element: ElementType) -> Content:
    codecs = filter_codecs(dataset.creation)
    table = chunk_table(dataset)
    if table.n_stored == 0:
        return Content(None)
    chunk_shape = tuple(dataset.creation.get_chunk()) + element.subshape
    encoding = Encoding(chunk_shape, element.dtype, (element.bytes_codec, *codecs))
    return Content((encoding, table.to_manifest(dataset.file.source, max_rows=MAX_CHUNKS)))


def _array(
    shape: tuple[int, ...], sizes: tuple[int, ...], element: ElementType, content: Content
) -> VirtualArray:
    """The stored array as one block, with missing blocks behind it where dimensions are longer."""
    ndim = len(shape)
    edges = [
        [part for part in (extent, size - extent) if part] or [1]
        for extent, size in zip(shape, sizes, strict=True)
    ]
    if 0 in sizes:
        grid = ChunkGrid.regular(sizes, [max(1, size) for size in sizes])
    else:
        grid = ChunkGrid.from_edges(edges)
    blocks = BlockTable.missing(grid.n_chunks, ndim)
    encodings: tuple[Encoding, ...] = ()
    manifests: tuple[ChunkManifest, ...] = ()
    if content.stored is not None and 0 not in shape:
        encoding, manifest = content.stored
        encodings, manifests = (encoding,), (manifest,)
        blocks = _first_present(BlockTable.single(shape, encoding.chunk_shape), blocks)
    return VirtualArray(grid, element.dtype, None, ("",) * ndim, {}, encodings, manifests, blocks)


def _first_present(single: BlockTable, blocks: BlockTable) -> BlockTable:
    if len(blocks) == 1:
        return single
    columns = {
        name: np.concatenate([column, getattr(blocks, name)[1:]])
        for name, column in vars(single).items()
    }
    return BlockTable(**columns)


def _with_flags(attrs: dict[str, Any], element: ElementType) -> dict[str, Any]:
    """An enumeration's names, as CF flags (CF conventions, section 3.5)."""
    if not element.enum or "flag_values" in attrs or "flag_meanings" in attrs:
        return attrs
    values = np.array([value for _, value in element.enum], element.dtype)
    meanings = " ".join(name.replace(" ", "_") for name, _ in element.enum)
    return {**attrs, "flag_values": values, "flag_meanings": meanings}
