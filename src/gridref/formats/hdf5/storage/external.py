"""External storage: contiguous data in other files, piece by piece.

Source: HDF5 File Format Specification v3, IV.A.2.h "The Data Storage - External Data Files
Message".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gridref.errors import Place, SourceUnavailableError, UnsupportedFeatureError
from gridref.formats.hdf5.format.local_heap import LocalHeap
from gridref.formats.hdf5.format.superblock import FieldCursor, Hdf5Bytes
from gridref.formats.hdf5.objects.dtypes import ElementType
from gridref.formats.hdf5.objects.related import external_file
from gridref.formats.hdf5.objects.tree import DatasetNode
from gridref.formats.hdf5.storage.contiguous import edge_policy, split_contiguous
from gridref.formats.options import ScanOptions
from gridref.io import open_for_scan
from gridref.model.encoding import Encoding
from gridref.model.grid import chunk_runs
from gridref.model.manifest import ChunkManifest, Source

__all__ = ["ExternalFile", "external_chunks", "external_files"]

_EXTERNAL_FILES = 0x07
_MAX_FILES = 1 << 12
_MAX_OFFSET = 1 << 62


class ExternalFile(NamedTuple):
    """A piece of an external file, as the dataset names it.

    Attributes
    ----------
    name
        The file.
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
    source
        The file.
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
    """The pieces of external files that hold a dataset; none if its own file does.

    Raises
    ------
    SourceFormatError
        If the message or the heap of names is corrupt.
    """
    file = dataset.file.bytes
    pieces = dataset.file.shared.decoded(
        dataset.messages, _EXTERNAL_FILES, lambda message: _decode(file, message)
    )
    return pieces or ()


def _decode(file: Hdf5Bytes, message: bytes) -> tuple[ExternalFile, ...]:
    cursor = FieldCursor(message, "the external data files message", Place())
    cursor.expect(b"\x01", "version")
    cursor.take_bytes(3)
    n_slots, n_files = cursor.take(2), cursor.take(2)
    if n_files > min(n_slots, _MAX_FILES):
        raise cursor.error(f"declares {n_files} files in {n_slots} slots")
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
    """Reference data in external files, or keep it inline where no chunking fits the pieces.

    Raises
    ------
    UnsupportedFeatureError
        If a file is not there, or values would have to be kept and are too many.
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
        stop = min(n_bytes, start + size)  # the size may stand for "without limit"
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
        raise UnsupportedFeatureError(f"the external file {name}: {error.reason}") from error


def chunks_between(
    shape: tuple[int, ...], itemsize: int, bounds: list[int], max_bytes: int
) -> tuple[int, ...] | None:
    """The largest chunks of at most `max_bytes` that lie side by side and cross no bound.

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
    """Of the divisors of `number`, the largest that is at most `limit`."""
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
    """All bytes; what lies behind the end of a file reads as zeros, as HDF5 reads it."""
    n_bytes = segments[-1].stop
    if n_bytes > options.max_inline_bytes:
        raise UnsupportedFeatureError(
            f"no chunking fits the external files, and {n_bytes} bytes are too many to keep in the"
            f" references; raise max_inline_bytes (now {options.max_inline_bytes})"
        )
    parts = []
    for segment in segments:
        length = segment.stop - segment.start
        with open_for_scan(segment.source.url, options.storage_options) as file:
            file.seek(segment.offset)
            parts.append(file.read(length).ljust(length, b"\0"))
    return b"".join(parts)
