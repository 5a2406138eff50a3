"""Describe files and datasets that differ from earlier ones only in addresses, values and chunks.

The files of a series hold similar datasets. `remember_array` keeps the array of a dataset by the
form of its header and its dimensions. `alike_arrays` finds such datasets in another file, and reads
and checks their chunk indexes together.

In most series all headers have the forms of those in the first file, under the same names. Names
and sizes of dimensions then follow, too. `keep_for_siblings` keeps them for the first file, and
`describe_as_sibling` describes each further file by them, after its headers, attributes and chunk
indexes were read and checked. Both keep what they need in `gridref.learned.FORMS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gridref.errors import GridrefError
from gridref.formats.hdf5.arrays import index_request, plain_name
from gridref.formats.hdf5.attributes import read_attributes
from gridref.formats.hdf5.chunks import Leaf, follow_each_other, read_leaf
from gridref.formats.hdf5.files import OpenFile
from gridref.formats.hdf5.headers import (
    EXTERNAL_FILES,
    FILTERS,
    LAYOUT,
    ChunkedLayout,
    ChunkIndexKind,
    ContiguousLayout,
    ObjectHeader,
)
from gridref.formats.hdf5.links import LinkKind
from gridref.formats.hdf5.tree import DatasetNode, DimensionNames, GroupNode
from gridref.formats.scanner import ScanOptions
from gridref.learned import FORMS
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from gridref.model.scan_report import Fate, FindingRuns, Found, ScanReport
from gridref.secrets import shown_address

# Similar datasets: their arrays differ only in attributes and the places of chunks

_WHAT = "a node of the chunk B-tree"
_MOST_CHUNKS = 1024


class _Known(NamedTuple):
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


def _key(node: DatasetNode, dimensions: DimensionNames, options: ScanOptions) -> tuple[Any, ...]:
    """All that determines the array of a dataset, except attributes and places of chunks."""
    dims, sizes = dimensions.names[node.path], dimensions.sizes[node.path]
    return _Known, node.header.form, dims, sizes, options.max_chunk_bytes


def remember_array(
    node: DatasetNode, dimensions: DimensionNames, array: VirtualArray, options: ScanOptions
) -> None:
    """Remember an array for similar datasets, if it is of a usual kind."""
    if array.enumeration is not None or array.n_blocks != 1 or len(array.manifests) != 1:
        return
    rows, form = array.manifests[0], node.header.form
    is_usual = form.is_plain and EXTERNAL_FILES not in form.kinds and node.file.number == 0
    if not (is_usual and isinstance(rows, ChunkManifest) and rows.n_rows <= _MOST_CHUNKS):
        return
    if array.attrs is not node.attributes.public or array.dims != dimensions.names[node.path]:
        return
    if rows.has_filter_masks or (rows.state != ChunkState.RANGE).any():
        return
    stored = _stored(node, rows)
    if stored is not None:
        chunks = rows.with_sources(())
        known = array.with_changes(manifests=(), attrs={})
        n_bytes = 6000 + 100 * known.ndim + 60 * chunks.n_rows
        offset = _address(node.header) + node.file.bytes.base_address
        FORMS.put(_key(node, dimensions, options), _Known(known, chunks, offset, *stored), n_bytes)


def _stored(node: DatasetNode, rows: ChunkManifest) -> tuple[int, Leaf | None] | None:
    """The last two of `_Known`, if the chunks of a dataset are stored in a usual way."""
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


class _Like(NamedTuple):
    """A dataset that is similar to one of another file, whose array is known."""

    path: str
    header: ObjectHeader
    known: _Known
    attrs: dict[str, Any]


def alike_arrays(
    file: OpenFile, root: GroupNode, dimensions: DimensionNames, options: ScanOptions
) -> dict[str, VirtualArray]:
    """Arrays of the datasets that are similar to datasets of other files, by path.

    Other datasets, and those with anything unusual or wrong, are left to `scan_array`.
    """
    like = []
    for node in (dataset for group in root.walk() for dataset in group.datasets.values()):
        if node.shape is not None and node.file is file:
            known: _Known | None = FORMS.get(_key(node, dimensions, options))
            if known is not None:
                like.append(_Like(node.path, node.header, known, node.attributes.public))
    return _arrays_like(file, like)


def _arrays_like(file: OpenFile, datasets: Iterable[_Like]) -> dict[str, VirtualArray]:
    """Known arrays with the chunks of a file, by path; not of datasets with anything unusual."""
    arrays: dict[str, VirtualArray] = {}
    leaves: dict[Leaf, list[tuple[_Like, bytes]]] = {}
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
    like: _Like,
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


# Similar files: all their datasets are


class _Dataset(NamedTuple):
    """A dataset of the first file.

    Attributes
    ----------
    known
        Its array; None for a dimension without a variable.
    records
        netCDF4's own attributes, as `_comparable` gives them.
    """

    path: str
    known: _Known | None
    records: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class _First:
    """The first of similar files: its datasets in the order of its links, and their fates."""

    datasets: Sequence[_Dataset]
    found: Found
    unlimited: frozenset[str]


class _Headers(NamedTuple):
    """The headers of a file without groups, and a key that is equal for similar files."""

    root: ObjectHeader
    datasets: Sequence[ObjectHeader]
    key: tuple[Any, ...]

    @property
    def numbers(self) -> dict[int, int]:
        """The number of each dataset by its address."""
        return {header.address: number for number, header in enumerate(self.datasets)}


def _headers(file: OpenFile, options: ScanOptions) -> _Headers | None:
    """None for a file with anything unusual."""
    root = file.header(file.bytes.root)
    links = file.links(root.address).listed
    if len(links) > options.max_objects or any(link.kind != LinkKind.HARD for link in links):
        return None
    file.prefetch(links)
    headers = [file.header(link.address) for link in links]
    forms, names = [header.form for header in headers], [link.name for link in links]
    given = options.phony_dims, options.max_chunk_bytes
    return _Headers(root, headers, (_First, *given, root.form, *names, *forms))


def _comparable(records: Mapping[str, Any], numbers: Mapping[int, int]) -> dict[str, Any] | None:
    """netCDF4's own attributes, with the numbers of scales; None where these are not datasets."""
    result = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in records.items()
    }
    if "DIMENSION_LIST" in result:
        try:
            listed = [[numbers[to] for to in scales] for scales in result["DIMENSION_LIST"]]
        except (KeyError, TypeError):
            return None
        result["DIMENSION_LIST"] = listed
    return result


def describe_as_sibling(file: OpenFile, options: ScanOptions) -> VirtualGroup | None:
    """Describe a file by a similar one; None if there is none, or if the file has a fault."""
    try:
        headers = _headers(file, options)
        first: _First | None = None if headers is None else FORMS.get(headers.key)
        return None if headers is None or first is None else _described(file, headers, first)
    except GridrefError:  # the full scan finds it, too, and reports it
        return None


def _described(file: OpenFile, headers: _Headers, first: _First) -> VirtualGroup | None:
    numbers = headers.numbers
    own = read_attributes(file, headers.root)
    if own.unreadable or len(numbers) < len(headers.datasets):
        return None
    like = []
    for header, (path, known, records) in zip(headers.datasets, first.datasets, strict=True):
        attributes = read_attributes(file, header)
        if attributes.unreadable or _comparable(attributes.records, numbers) != records:
            return None
        if known is not None:
            like.append(_Like(path, header, known, attributes.public))
    found = _arrays_like(file, like)
    if len(found) < len(like):
        return None
    arrays = {plain_name(path[1:]): found[path] for path, *_ in like}
    findings = FindingRuns(((first.found, (shown_address(file.source.url),)),))
    return VirtualGroup(arrays, {}, own.public, ScanReport(findings), first.unlimited)


def keep_for_siblings(
    file: OpenFile,
    root: GroupNode,
    dimensions: DimensionNames,
    group: VirtualGroup,
    options: ScanOptions,
) -> None:
    """Keep what a scan found in a file without groups, if its arrays are of the usual kind."""
    findings = group.report.findings
    if root.groups or root.skipped or len(findings) != len(root.datasets):
        return
    headers = _headers(file, options)
    if headers is None or len(headers.numbers) != len(root.datasets):
        return
    numbers, datasets = headers.numbers, []
    for finding, node in zip(findings, root.datasets.values(), strict=True):
        is_taken = finding.fate is Fate.TAKEN
        known = FORMS.get(_key(node, dimensions, options)) if is_taken else None
        records = _comparable(node.attributes.records, numbers)
        is_usual = known is not None or finding.fate is Fate.NAMED
        if records is None or not is_usual or finding.path != node.path:
            return
        datasets.append(_Dataset(node.path, known, records))
    paths, fates, reasons, _ = zip(*findings, strict=True) if findings else ((),) * 4
    first = _First(datasets, (paths, fates, reasons), group.unlimited_dims)
    FORMS.put(headers.key, first, 1000 + 1500 * len(datasets))
