"""Turn HDF5 datasets into virtual arrays.

`scan_array` takes a dataset and its dimensions, and returns a virtual array with an entry for the
scan report. The dataset's layout and datatype decide whether the array refers to stored chunks,
combines the sources of a virtual dataset, or keeps its values in the references.

The files of a series hold similar datasets. `remember_array` keeps the array of a dataset by the
form of its header and its dimensions. `arrays_like` returns the arrays of similar datasets of
another file, and reads and checks their chunk indexes together. `alike_arrays` finds these datasets
one by one, in a file that is not similar as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.findings import check_element_size
from gridref.formats.hdf5.chunk_index import follow_each_other
from gridref.formats.hdf5.chunk_trees import Leaf, read_leaf
from gridref.formats.hdf5.datatypes import ElementType, Form, element_type
from gridref.formats.hdf5.files import OpenFile
from gridref.formats.hdf5.headers import (
    DATATYPE,
    EXTERNAL_FILES,
    FILTERS,
    LAYOUT,
    ObjectHeader,
)
from gridref.formats.hdf5.inline import (
    ROW_SIZE,
    inline_converted,
    inline_records,
    inline_texts,
    ragged_arrays,
)
from gridref.formats.hdf5.messages import (
    ChunkedLayout,
    ChunkIndexKind,
    CompactLayout,
    ContiguousLayout,
    VirtualLayout,
)
from gridref.formats.hdf5.storage import Stored, fill_value, index_request, stored_chunks
from gridref.formats.hdf5.tree import Address, DatasetNode
from gridref.formats.hdf5.virtual import virtual_blocks
from gridref.formats.options import ScanOptions
from gridref.learned import FORMS
from gridref.limits import beyond, limits
from gridref.model.array import CF_FLAGS, Enumeration, VirtualArray
from gridref.model.joining import concatenate, missing_array, missing_like
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from gridref.model.scan_report import Fate

# One dataset as a virtual array

_RENAMED = "_nc4_non_coord_"


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

    Raises
    ------
    UnsupportedFeatureError
        If it cannot be served faithfully.
    SourceFormatError
        If the file is corrupt there.
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
    array, row_sizes = ragged_arrays(dataset, name, element, options)
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
    return name.removeprefix(_RENAMED) or name


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
        stored, fill = inline_records(dataset, element, options)
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

    def scan_source(source: DatasetNode) -> VirtualArray:
        if source.address not in sources:
            scanned = _scan(source, _element(source), options, sources, depth + 1)
            sources[source.address] = scanned.array
        return sources[source.address]

    array, note = virtual_blocks(dataset, layout, element.dtype, fill, scan_source)
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
        inline = inline_converted if element.form is Form.CONVERTED else inline_texts
        return inline(dataset, element, options), element.reason
    stored = stored_chunks(dataset, element, options)
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
    members = sorted(element.enum, key=lambda member: member[1])
    values = np.array([value for _, value in members], element.dtype)
    meanings = " ".join(name.replace(" ", "_") for name, _ in members)
    return {**attrs, **dict(zip(CF_FLAGS, (values, meanings), strict=True))}


# Arrays of similar datasets, described once: only the places of their chunks differ

_WHAT = "a node of the chunk B-tree"
_MOST_CHUNKS = 1024


class NamedDataset(NamedTuple):
    """A dataset, and names and sizes of its dimensions."""

    node: DatasetNode
    dims: tuple[str, ...]
    sizes: tuple[int, ...]

    def key(self, options: ScanOptions) -> tuple[Any, ...]:
        """All that determines its array, except attributes and the places of its chunks."""
        return NamedDataset, self.node.header.form, self.dims, self.sizes, options.max_chunk_bytes


class Known(NamedTuple):
    """An array with its chunks in the first file, and how those of its like are stored.

    Attributes
    ----------
    offset, n_bytes
        First byte in the first file of contiguous data, or of the leaf that lists all chunks, and
        their size.
    leaf
        The form of that leaf; None for contiguous data.
    """

    array: VirtualArray
    chunks: ChunkManifest
    offset: int
    n_bytes: int
    leaf: Leaf | None


def remember_array(dataset: NamedDataset, array: VirtualArray, options: ScanOptions) -> None:
    """Remember an array for similar datasets, if it is of a usual kind."""
    if array.enumeration is not None or array.n_blocks != 1 or len(array.manifests) != 1:
        return
    node, rows = dataset.node, array.manifests[0]
    form = node.header.form
    is_usual = form.is_plain and EXTERNAL_FILES not in form.kinds and node.file.number == 0
    if not (is_usual and isinstance(rows, ChunkManifest) and rows.n_rows <= _MOST_CHUNKS):
        return
    if array.attrs is not node.attributes.public or array.dims != dataset.dims:
        return
    if rows.has_filter_masks or (rows.state != ChunkState.RANGE).any():
        return
    stored = _stored(node, rows)
    if stored is not None:
        chunks = rows.with_sources(())
        known = array.with_changes(manifests=(), attrs={})
        n_bytes = 6000 + 100 * known.ndim + 60 * chunks.n_rows
        offset = _address(node.header) + node.file.bytes.base_address
        FORMS.put(dataset.key(options), Known(known, chunks, offset, *stored), n_bytes)


def _stored(node: DatasetNode, rows: ChunkManifest) -> tuple[int, Leaf | None] | None:
    """The last two of `Known`, if the chunks of a dataset are stored in a usual way."""
    file, address = node.file.bytes, _address(node.header)
    match layout := node.layout:
        case ContiguousLayout(offset=int(offset)) if address + file.base_address == offset:
            return int((rows.offset + rows.length).max()) - offset, None
        case ChunkedLayout(kind=ChunkIndexKind.BTREE_V1) if address == layout.index_address:
            is_filtered = FILTERS in node.header.kinds
            found = read_leaf(index_request(node, layout, is_filtered=is_filtered))
            if found is not None and found[0].is_inside and len(found[1]) == rows.n_rows:
                return found[0].dtype.itemsize, found[0]
    return None


class Like(NamedTuple):
    """A dataset that is similar to one of another file, whose array is known."""

    path: str
    header: ObjectHeader
    known: Known
    attrs: dict[str, Any]


def known_array(dataset: NamedDataset, options: ScanOptions) -> Known | None:
    """The array of a similar dataset, if there was one."""
    known: Known | None = FORMS.get(dataset.key(options))
    return known


def alike_arrays(
    file: OpenFile, datasets: Iterable[NamedDataset], options: ScanOptions
) -> dict[str, VirtualArray]:
    """Arrays of the datasets that are similar to datasets of other files, by path.

    Other datasets, and those with anything unusual or wrong, are left to `scan_array`.
    """
    like = []
    for dataset in datasets:
        node, known = dataset.node, known_array(dataset, options)
        if known is not None and node.file is file:
            like.append(Like(node.path, node.header, known, node.attributes.public))
    return arrays_like(file, like)


def arrays_like(file: OpenFile, datasets: Iterable[Like]) -> dict[str, VirtualArray]:
    """Known arrays with the chunks of a file, by path; not of datasets with anything unusual."""
    arrays: dict[str, VirtualArray] = {}
    leaves: dict[Leaf, list[tuple[Like, bytes]]] = {}
    sources = (file.source,)
    for like in datasets:
        known = like.known
        address, leaf, chunks = _address(like.header), known.leaf, known.chunks
        if address + known.n_bytes > file.bytes.end_address:
            continue
        if leaf is None:
            offset = chunks.offset + (address + file.bytes.base_address - known.offset)
            arrays[like.path] = _filled(like, sources, offset, chunks.length)
        else:
            data = file.bytes.read(address, known.n_bytes, _WHAT)
            found = FORMS.find(leaf.kind, data)
            if found is leaf:
                leaves.setdefault(found, []).append((like, data))
    for leaf, alike in leaves.items():
        nodes = np.frombuffer(b"".join([data for _, data in alike]), leaf.dtype)
        offset = nodes["entries"]["child"].astype(np.int64) + file.bytes.base_address
        length = nodes["entries"]["length"].astype(np.int64)
        are_chunks = follow_each_other(file.bytes, offset, offset + length)
        are_chunks &= length.all(axis=1)
        for row, (like, _) in enumerate(alike):
            if are_chunks[row]:
                arrays[like.path] = _filled(like, sources, offset[row], length[row])
    return arrays


def _filled(
    like: Like,
    sources: tuple[Source, ...],
    offset: NDArray[np.int64],
    length: NDArray[np.int64],
) -> VirtualArray:
    """A known array with the chunks of another file."""
    own = {"sources": sources, "offset": offset, "length": length}
    manifest = ChunkManifest(**{**vars(like.known.chunks), **own})
    return like.known.array.with_changes(manifests=(manifest,), attrs=like.attrs)


def _address(header: ObjectHeader) -> int:
    """The address of the data or the chunk index: the one part of the layout that differs."""
    return int.from_bytes(header.differing(*header.form.first[LAYOUT]), "little")
