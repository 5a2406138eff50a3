"""Turn an HDF5 or NetCDF4 file into a virtual group, and describe how the file is organised.

`scan` takes an open file and returns its groups, arrays and attributes, with a finding for
each object. `organisation` describes how the file keeps its metadata and what rewriting it
with h5repack would gain.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from gridref.errors import ScanError, SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.arrays import (
    ROW_SIZE,
    ScannedArray,
    plain_name,
    sample_dimension,
    scan_array,
)
from gridref.formats.hdf5.bytes import SIGNATURE, FieldCursor, Hdf5Bytes
from gridref.formats.hdf5.files import OpenFile, open_file
from gridref.formats.hdf5.headers import (
    FILE_SPACE_INFO,
    SYMBOL_TABLE,
    ChunkedLayout,
    read_header,
)
from gridref.formats.hdf5.siblings import (
    alike_arrays,
    describe_as_sibling,
    keep_for_siblings,
    remember_array,
)
from gridref.formats.hdf5.tree import (
    NAMED_DATATYPE,
    DatasetNode,
    DimensionNames,
    GroupNode,
    is_not_a_variable,
    read_tree,
)
from gridref.formats.location import Location
from gridref.formats.scanner import Advice, Findings, MetadataPieces, Organisation, ScanOptions
from gridref.model.array import VirtualGroup
from gridref.model.conventions import MEANING_ATTRIBUTES, referred_names
from gridref.model.scan_report import Fate

# The file as a virtual group


def scan(location: Location, options: ScanOptions) -> VirtualGroup:
    """Describe a file; raises as `gridref.formats.scan` does."""
    file = location.opened
    with open_file(file, options) as opened:
        sibling = describe_as_sibling(opened, options)
        if sibling is not None:
            return sibling
        root = read_tree(opened, options.max_objects)
        if file.is_remote:
            opened.reader.prefetch(_chunk_indexes(opened, root))
        scan = _Scan(opened, options, root)
        group = scan.group(root)
        scan.settle_damaged(group)
        group = group.with_changes(report=scan.findings.report(options))
        keep_for_siblings(opened, root, scan.dimensions, group, options)
        return group


_INDEX_BYTES = 3000
"""Of a node with 64 entries in three dimensions, as the HDF5 library writes them."""


def _chunk_indexes(file: OpenFile, root: GroupNode) -> Iterator[int]:
    """Where chunk indexes of a file's datasets begin, and where their first nodes end, about."""
    for node in (dataset for group in root.walk() for dataset in group.datasets.values()):
        with suppress(ScanError):  # the scan of the dataset itself says what is wrong
            layout = node.layout
            if node.file is file and isinstance(layout, ChunkedLayout) and layout.index_address:
                start = file.bytes.base_address + layout.index_address
                yield from (start, start + _INDEX_BYTES)


class _Scan:
    def __init__(self, file: OpenFile, options: ScanOptions, root: GroupNode) -> None:
        self.file = file
        self.options = options
        self.dimensions = DimensionNames(root, options.phony_dims)
        self.alike = alike_arrays(file, root, self.dimensions, options)
        self.findings = Findings(file.source.url)
        self.damaged: list[tuple[DatasetNode, SourceFormatError]] = []

    def group(self, node: GroupNode) -> VirtualGroup:
        self.unreadable(node.path.rstrip("/"), node.attributes.unreadable)
        arrays = {}
        for name, dataset in node.datasets.items():
            scanned = self.dataset(dataset, node)
            if scanned is not None:
                arrays[plain_name(name)] = scanned.array
            if scanned is not None and scanned.row_sizes is not None:
                arrays[plain_name(name) + ROW_SIZE] = scanned.row_sizes
        for skipped in node.skipped:
            if skipped.error is not None:
                self.findings.refuse(skipped.path, skipped.error)
            else:
                is_missed = skipped.reason != NAMED_DATATYPE
                fate = Fate.SKIPPED if is_missed else Fate.NAMED
                self.findings.note(skipped.path, fate, skipped.reason)
        groups = {name: self.group(child) for name, child in node.groups.items()}
        unlimited = self.dimensions.unlimited.get(node.path, frozenset())
        return VirtualGroup(arrays, groups, node.attributes.public, unlimited_dims=unlimited)

    def scanned(self, dataset: DatasetNode) -> ScannedArray:
        """The array of a dataset, taken from a similar one of another file or described anew."""
        path, dimensions = dataset.path, self.dimensions
        array = self.alike.get(path)
        if array is not None:
            return ScannedArray(array)
        names, sizes = dimensions.names[path], dimensions.sizes[path]
        scanned = scan_array(dataset, names, sizes, self.options)
        if scanned.fate is Fate.TAKEN and scanned.row_sizes is None:
            remember_array(dataset, dimensions, scanned.array, self.options)
        return scanned

    def dataset(self, dataset: DatasetNode, group: GroupNode) -> ScannedArray | None:
        path = dataset.path
        self.unreadable(path, dataset.attributes.unreadable)
        if dataset.shape is None:
            self.findings.note(path, Fate.SKIPPED, "a null dataspace holds no elements")
            return None
        if is_not_a_variable(dataset):
            self.findings.note(path, Fate.NAMED, "a dimension without a variable")
            return None
        try:
            self.check_plain(dataset.name, group)
            self.check_meaning(dataset)
            scanned = self.scanned(dataset)
            if scanned.row_sizes is not None:
                self.check_names(plain_name(dataset.name), group)
        except SourceFormatError as error:
            self.damaged.append((dataset, error))
            return None
        except ScanError as error:
            self.findings.refuse(path, error)
            return None
        self.findings.note(path, scanned.fate, scanned.reason)
        return scanned

    def check_plain(self, name: str, group: GroupNode) -> None:
        """Raise if netCDF would show a variable under the name of another one."""
        plain = plain_name(name)
        other = group.datasets.get(plain)
        if plain != name and other is not None and not is_not_a_variable(other):
            raise UnsupportedFeatureError(f"netCDF renames it to {plain}, which there is, too")

    def check_meaning(self, dataset: DatasetNode) -> None:
        """Raise if nobody knows what the stored values mean."""
        for name, reason in dataset.attributes.unreadable.items():
            if name in MEANING_ATTRIBUTES:
                raise UnsupportedFeatureError(f"its {name} cannot be read: {reason}")

    def check_names(self, name: str, group: GroupNode) -> None:
        """Raise if names that a ragged array needs are taken."""
        used = set(group.datasets) | set(group.groups)
        dimensions = {name for names in self.dimensions.names.values() for name in names}
        if name + ROW_SIZE in used or sample_dimension(name) in dimensions:
            raise UnsupportedFeatureError(
                f"variable-length sequences need the names {name}{ROW_SIZE} and"
                f" {sample_dimension(name)}, which the file uses"
            )

    def settle_damaged(self, root: VirtualGroup) -> None:
        """Leave out datasets that are corrupt, and refuse those that others depend on.

        HDF5 finds every other object without them. But labels, bounds and grid mappings say what
        other arrays mean. A file without any remaining object is refused, too.
        """
        arrays = root.all_arrays() if self.damaged else {}
        referred = referred_names(arrays.values())
        for dataset, error in self.damaged:
            depended_on = dataset.is_scale or plain_name(dataset.name) in referred
            if depended_on or not arrays or self.options.on_unsupported == "skip":
                self.findings.refuse(dataset.path, error)
            else:
                self.findings.note(dataset.path, Fate.DAMAGED, error.reason)

    def unreadable(self, path: str, attributes: dict[str, str]) -> None:
        for name, reason in attributes.items():
            self.findings.note(
                f"{path}@{name}", Fate.SKIPPED, f"the attribute cannot be read: {reason}"
            )


# The organisation of the file, and what rewriting it with h5repack would gain

_STRATEGIES = ("fsm_aggr", "page", "aggr", "none")
_FEW_REQUESTS = 3
"""A file with its metadata in one place needs no more, once others were scanned."""
_LEAST_PAGE, _LARGEST_PAGE = 1 << 14, 1 << 23
_MOST_DESCRIPTION = 4
"""Packing metadata together is worth it if it is at most one in so many bytes of the file."""


def organisation(
    location: Location, options: ScanOptions, metadata: MetadataPieces
) -> Organisation:
    """Describe an HDF5 file; raises as `gridref.formats.scan` does."""
    with open_file(location.opened, options) as opened:
        root = read_tree(opened, options.max_objects)
        version = opened.bytes.read(len(SIGNATURE), 1, "the HDF5 superblock")[0]
        strategy, page_bytes = _file_space(opened.bytes)
        indexes = dict(_indexes(root))
        facts = {
            "superblock version": version,
            "user block bytes": opened.bytes.base_address,
            "file space strategy": strategy,
            "file space page bytes": page_bytes,
            "groups as symbol tables": SYMBOL_TABLE in opened.header(opened.bytes.root).kinds,
        }
    advice = _gathering(metadata, page_bytes if strategy == "page" else None)
    return Organisation(facts, indexes, tuple(advice))


def _file_space(file: Hdf5Bytes) -> tuple[str, int | None]:
    """Strategy of the file space, and size of its pages, if the file states them.

    HDF5 File Format Specification v3, IV.A.2.x "File Space Info Message", version 1.
    """
    message = None
    if file.extension is not None:
        message = read_header(file, file.extension).first(FILE_SPACE_INFO)
    if message is None or message.data[0] != 1:
        return "not stated in the file", None
    place = file.place(message.address, len(message.data))
    cursor = FieldCursor(message.data, "the file space information", place)
    cursor.take(1)
    strategy = cursor.take(1)
    cursor.take(1 + file.length_bytes)  # whether free space persists, and its threshold
    page_bytes = cursor.take(file.length_bytes)
    known = strategy < len(_STRATEGIES)
    return _STRATEGIES[strategy] if known else f"unknown ({strategy})", page_bytes


def _indexes(root: GroupNode) -> Iterator[tuple[str, str]]:
    for dataset in (each for group in root.walk() for each in group.datasets.values()):
        with suppress(ScanError):  # the scan reports it
            if isinstance(dataset.layout, ChunkedLayout):
                kind = dataset.layout.kind.name.lower().replace("_", " ")
                yield dataset.path.lstrip("/"), kind


def _gathering(metadata: MetadataPieces, page_bytes: int | None) -> Iterator[Advice]:
    """The cost of metadata all over the file, and its cost in pages of its own."""
    if metadata.n_requests <= _FEW_REQUESTS:
        return
    n_bytes, n_pieces = metadata.n_bytes, len(metadata.pieces)
    reason = f"its metadata, {n_bytes} bytes, is at {n_pieces} places"
    if n_bytes * _MOST_DESCRIPTION > metadata.file_bytes:
        yield Advice(
            f"{reason}, {n_bytes / metadata.file_bytes:.0%} of the file: it holds more, or smaller,"
            " datasets than its data needs"
        )
        return
    wanted = page_bytes_for(n_bytes)
    if page_bytes is None or page_bytes < wanted:
        yield Advice(
            reason if page_bytes is None else f"{reason}, in pages of {page_bytes} bytes only",
            f"h5repack -S PAGE -G {wanted} IN OUT",
            f"all of it in pages of its own: at most {_FEW_REQUESTS} requests for a file like it,"
            f" not {metadata.n_requests}",
        )


def page_bytes_for(n_bytes: int) -> int:
    """The size of a page that holds so many bytes of metadata: a power of two."""
    needed = 1 << max(0, (n_bytes * 3 // 2 - 1).bit_length())
    return max(_LEAST_PAGE, min(_LARGEST_PAGE, needed))
