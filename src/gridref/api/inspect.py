"""Report why a file is slow to scan, and what rewriting it would save."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gridref.api.scan import Address
from gridref.formats import ScanOptions
from gridref.formats import scan as scan_file
from gridref.formats.registry import organisation
from gridref.formats.scanner import Advice, MetadataPieces
from gridref.io import Layouts, Reads, absolute_url, working
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.grid import chunk_counts
from gridref.model.manifest import ChunkState, Source
from gridref.options import option_values
from gridref.secrets import shown_address

SMALL_CHUNK_BYTES = 1 << 16
"""Smaller ones take less time to be sent than a server takes to begin an answer, by far."""
_WANTED_CHUNK_BYTES = 1 << 22
_FEW_CHUNKS = 100
_NODE_CHUNKS = 64
"""Most chunks that a leaf of a B-tree of version 1 lists, as HDF5 writes them."""


@dataclass(frozen=True)
class ArrayChunks:
    """How an array is stored.

    Attributes
    ----------
    index
        How its chunks are indexed, as far as the format tells; else empty.
    shape, chunk_shape
        Extents of the array, and of a stored chunk.
    n_chunks, n_small
        Number of stored chunks, and of those below 64 KiB.
    stored_bytes, median_bytes
        Size of all stored chunks, and their median size.
    itemsize
        Bytes of an element.
    """

    path: str
    index: str
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    n_chunks: int
    n_small: int
    stored_bytes: int
    median_bytes: int
    itemsize: int


@dataclass(frozen=True)
class Inspection:
    """The cost of scanning a file, and the reasons.

    Attributes
    ----------
    file_bytes
        Its size; None for a folder.
    n_requests, n_bytes
        Number of requests of a scan to a server, and of bytes received.
    n_requests_alike, n_bytes_alike
        The same for a similar file, after others were scanned.
    metadata
        Half-open byte ranges that a scan reads: everything except data.
    facts
        Facts about its format, by name.
    arrays
        How each array is stored.
    advice
        What makes the scan slow, and what to do about it; empty if nothing does.
    """

    file: str
    format: str
    file_bytes: int | None
    n_requests: int
    n_bytes: int
    n_requests_alike: int
    n_bytes_alike: int
    metadata: tuple[tuple[int, int], ...]
    facts: Mapping[str, Any]
    arrays: tuple[ArrayChunks, ...]
    advice: tuple[Advice, ...]

    def to_json(self) -> dict[str, Any]:
        """All of it as what JSON can hold."""
        return asdict(self)


def inspect(file: Address, *, storage_options: Mapping[str, Any] | None = None) -> Inspection:
    """Report what a scan of a file costs on a server, why, and what rewriting it would save.

    A local file is scanned, and its requests counted, as if it were on a server. It is scanned
    twice: after the scan of one file, scans of similar files request the same places at once.

    Parameters
    ----------
    file
        A local path or any URL that fsspec opens.
    storage_options
        Options of fsspec's filesystem of a remote file, or of several by protocol.

    Returns
    -------
    Inspection
        Its ``advice`` says what is slow, with a command that mends it where there is one.

    Raises
    ------
    SourceFormatError
        If the file is of no known format, is truncated or corrupt.
    SourceUnavailableError
        If the file is not there or cannot be read.
    """
    options = ScanOptions(storage_options=storage_options, on_unsupported="skip")
    address = absolute_url(file)
    opened: dict[str, Source | None] = {}
    reads = Reads()
    with working(layouts=Layouts(), opened=opened, reads=reads):
        first = scan_file(address, **option_values(options)).report
        group = scan_file(address, **option_values(options))
    source = opened.get(address)
    n_bytes = None if source is None else source.size_bytes
    metadata = MetadataPieces(reads.pieces(address), n_bytes or 0, group.report.n_requests)
    form, organised = organisation(address, options, metadata)
    arrays = tuple(_chunks_of(group, organised.indexes))
    return Inspection(
        file=shown_address(address),
        format=form,
        file_bytes=n_bytes,
        n_requests=first.n_requests,
        n_bytes=first.n_bytes,
        n_requests_alike=group.report.n_requests,
        n_bytes_alike=group.report.n_bytes,
        metadata=metadata.pieces,
        facts=organised.facts,
        arrays=arrays,
        advice=(*organised.advice, *_index_advice(arrays), *_chunk_advice(arrays)),
    )


def _chunks_of(group: VirtualGroup, indexes: Mapping[str, str]) -> Iterator[ArrayChunks]:
    for path, array in group.all_arrays().items():
        blocks = [manifest.take(np.arange(manifest.n_rows)) for manifest in array.manifests]
        known = [rows.length[rows.state == ChunkState.RANGE] for rows in blocks]
        lengths = np.concatenate([np.empty(0, np.int64), *known])
        yield ArrayChunks(
            path=path,
            index=indexes.get(path, ""),
            shape=array.shape,
            chunk_shape=_stored_chunk_shape(array),
            n_chunks=len(lengths),
            n_small=int((lengths < SMALL_CHUNK_BYTES).sum()),
            stored_bytes=int(lengths.sum()),
            median_bytes=int(np.median(lengths)) if len(lengths) else 0,
            itemsize=array.dtype.itemsize,
        )


def _stored_chunk_shape(array: VirtualArray) -> tuple[int, ...]:
    """That of its first block; the array's own where it has none, or has other dimensions."""
    shapes = [each.chunk_shape for each in array.encodings if len(each.chunk_shape) == array.ndim]
    return shapes[0] if shapes else array.shape


def _index_advice(arrays: tuple[ArrayChunks, ...]) -> Iterator[Advice]:
    """Old indexes of many chunks: each level of their trees is asked for after the one above."""
    old = [a.path for a in arrays if a.index == "btree v1" and a.n_chunks > _NODE_CHUNKS]
    if old:
        yield Advice(
            "B-trees of version 1, whose levels are read one after the other, index the chunks of"
            f" {_some(old)}",
            "h5repack -L IN OUT",
            "indexes that one read takes; HDF5 1.10 and later read the file",
        )


def _chunk_advice(arrays: tuple[ArrayChunks, ...]) -> Iterator[Advice]:
    """Arrays of very many small chunks."""
    small = [a for a in arrays if a.n_small > max(_FEW_CHUNKS, a.n_chunks // 2)]
    if not small:
        return
    held = [f"{a.path} {a.n_chunks}, the one in the middle {a.median_bytes} bytes" for a in small]
    better = {a.path: larger_chunk(a.shape, a.chunk_shape, a.itemsize) for a in small}
    lengths = {path: "x".join(map(str, chunk)) for path, chunk in better.items()}
    options = [f"-l {path}:CHUNK={text}" for path, text in lengths.items()]
    n_then = sum(math.prod(chunk_counts(array.shape, better[array.path])) for array in small)
    yield Advice(
        f"arrays of many chunks below {SMALL_CHUNK_BYTES // 1024} KiB: {_some(held)}",
        f"h5repack {' '.join(options)} IN OUT" if all(array.index for array in small) else "",
        f"{n_then} chunks, not {sum(array.n_chunks for array in small)}:"
        f" {_some([f'{path} of {text}' for path, text in lengths.items()])}",
    )


def _some(texts: list[str]) -> str:
    """The first of some texts, and how many there are more."""
    more = f"; and {len(texts) - 3} more" if len(texts) > 3 else ""
    return "; ".join(texts[:3]) + more


def larger_chunk(
    shape: tuple[int, ...], chunk_shape: tuple[int, ...], itemsize: int
) -> tuple[int, ...]:
    """A chunk of about 4 MiB in place of smaller ones, doubled where there are most of them.

    Parameters
    ----------
    shape, chunk_shape
        Extents of the array, and of its chunks now.
    itemsize
        Bytes of an element.
    """
    chunk = list(chunk_shape)
    while 2 * math.prod(chunk) * itemsize <= _WANTED_CHUNK_BYTES:
        counts = chunk_counts(shape, chunk) or (1,)
        most = counts.index(max(counts))
        if counts[most] <= 1:
            break
        chunk[most] = min(shape[most], 2 * chunk[most])
    return tuple(chunk)
