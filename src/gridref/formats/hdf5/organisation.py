"""How an HDF5 file is organised, and what writing it anew with h5repack would give."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from gridref.errors import ScanError
from gridref.formats.hdf5.format.data_layout import ChunkedLayout, ChunkIndexKind, data_layout_of
from gridref.formats.hdf5.format.object_header import read_header
from gridref.formats.hdf5.format.superblock import SIGNATURE, FieldCursor, Hdf5Bytes
from gridref.formats.hdf5.objects.files import OpenFile, open_file
from gridref.formats.hdf5.objects.tree import DatasetNode, GroupNode, read_tree
from gridref.formats.options import ScanOptions
from gridref.formats.organisation import Advice, MetadataPieces, Organisation
from gridref.io import ScanFile

__all__ = ["hdf5_organisation", "page_bytes_for"]

_FILE_SPACE_INFO, _SYMBOL_TABLE = 0x17, 0x11
_STRATEGIES = ("fsm_aggr", "page", "aggr", "none")
_FEW_REQUESTS = 3
"""A file whose metadata lies together takes no more, when others were scanned before."""
_LEAST_PAGE, _LARGEST_PAGE = 1 << 14, 1 << 23
_MOST_DESCRIPTION = 4
"""Packing metadata together is worth it where it is at most one in so many bytes of the file."""


def hdf5_organisation(
    file: ScanFile, options: ScanOptions, metadata: MetadataPieces
) -> Organisation:
    """Describe an HDF5 file; raises as `gridref.formats.scan` does."""
    with open_file(file, options) as opened:
        root = read_tree(opened, options.max_objects)
        version = opened.bytes.read(len(SIGNATURE), 1, "the HDF5 superblock")[0]
        strategy, page_bytes = _file_space(opened.bytes)
        indexes = dict(_indexes(root))
        facts = {
            "superblock version": version,
            "user block bytes": opened.bytes.base_address,
            "file space strategy": strategy,
            "file space page bytes": page_bytes,
            "groups as symbol tables": _has_symbol_tables(opened),
        }
    advice = _gathering(metadata, page_bytes if strategy == "page" else None)
    return Organisation(facts, indexes, tuple(advice))


def _file_space(file: Hdf5Bytes) -> tuple[str, int | None]:
    """Strategy of the file space, and size of its pages, if the file says them.

    HDF5 File Format Specification v3, IV.A.2.x "File Space Info Message", version 1.
    """
    message = None
    if file.extension is not None:
        message = read_header(file, file.extension).first(_FILE_SPACE_INFO)
    if message is None or message.data[0] != 1:
        return "not said", None
    place = file.place(message.address, len(message.data))
    cursor = FieldCursor(message.data, "the file space information", place)
    cursor.take(1)
    strategy = cursor.take(1)
    cursor.take(1 + file.length_bytes)  # whether free space persists, and its threshold
    page_bytes = cursor.take(file.length_bytes)
    known = strategy < len(_STRATEGIES)
    return _STRATEGIES[strategy] if known else f"unknown ({strategy})", page_bytes


def _indexes(root: GroupNode) -> Iterator[tuple[str, str]]:
    for group in root.walk():
        for dataset in group.datasets.values():
            kind = _index_of(dataset)
            if kind is not None:
                yield dataset.path.lstrip("/"), kind.name.lower().replace("_", " ")


def _index_of(dataset: DatasetNode) -> ChunkIndexKind | None:
    with suppress(ScanError):  # it is told by the scan
        layout = data_layout_of(dataset.file.bytes, dataset.messages, dataset.address[1])
        return layout.kind if isinstance(layout, ChunkedLayout) else None
    return None


def _has_symbol_tables(file: OpenFile) -> bool:
    """Whether groups are indexed the old way, by a B-tree and a heap each."""
    return _SYMBOL_TABLE in file.header(file.bytes.root).kinds


def _gathering(metadata: MetadataPieces, page_bytes: int | None) -> Iterator[Advice]:
    """What metadata all over the file costs, and what it would in pages of its own."""
    if metadata.n_requests <= _FEW_REQUESTS:
        return
    n_bytes, n_pieces = metadata.n_bytes, len(metadata.pieces)
    reason = f"its description, {n_bytes} bytes, lies at {n_pieces} places"
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
    """Size of pages of which one holds so many bytes of metadata: a power of two."""
    needed = 1 << max(0, (n_bytes * 3 // 2 - 1).bit_length())
    return max(_LEAST_PAGE, min(_LARGEST_PAGE, needed))
