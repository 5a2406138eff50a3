"""Where the segments of an image lie, as a manifest: strips and tiles, or one run of elements.

Sources: TIFF 6.0, ``StripOffsets``, ``StripByteCounts``, ``RowsPerStrip`` and Section 15 "Tiled
Images"; GDAL's sparse files (offset and byte count 0 mean that a tile is not there).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from gridref.errors import Place, SourceFormatError, UnsupportedFeatureError
from gridref.formats.tiff.chain import SOI_BYTES, has_spliced_tables, is_jpeg, segment_bytes
from gridref.formats.tiff.image import Level
from gridref.formats.tiff.page import Page
from gridref.model.encoding import EdgePolicy
from gridref.model.grid import chunk_counts, chunk_runs
from gridref.model.manifest import ChunkManifest, ChunkState, Source

__all__ = ["Segments", "StoredImage", "locate_image", "segment_manifest"]

_MAX_CHUNKS = 1 << 31
_MAX_OFFSET = 1 << 62
_HEADER_BYTES = 8


@dataclass(frozen=True, eq=False)
class StoredImage:
    """An image as it lies in files.

    Attributes
    ----------
    chunk_shape
        Shape of a stored chunk, along the axes of the image.
    edge
        Whether chunks at the image's end are padded or truncated.
    manifest
        One row a chunk in C order.
    raw
        Whether chunks are plain elements in the file's byte order, whatever the tags say.
    rows_per_page
        Number of consecutive rows that each page has.
    """

    chunk_shape: tuple[int, ...]
    edge: EdgePolicy
    manifest: ChunkManifest
    raw: bool
    rows_per_page: int


def locate_image(level: Level, sources: Sequence[Source], max_chunk_bytes: int) -> StoredImage:
    """Find all chunks of an image.

    Parameters
    ----------
    sources
        The files that its pages lie in.
    max_chunk_bytes
        Contiguous elements are split into chunks of at most so many bytes.

    Raises
    ------
    SourceFormatError
        If the tags contradict each other or the size of the file.
    UnsupportedFeatureError
        If the pages do not tile the image.
    """
    if level.keyframe.dtype is None:
        page = level.keyframe
        raise UnsupportedFeatureError(
            f"no data type holds samples of format {page.sample_format} with {page.bits} bits"
        )
    if 0 in level.shape or 0 in level.keyframe.shape:
        raise SourceFormatError(f"an image of shape {level.shape} has no pixels")
    if level.contiguous_offset is not None:
        base = _offsets([level.contiguous_offset])
        return _contiguous(level, level.shape, base, sources, max_chunk_bytes)
    inner = _page_lengths(level)
    if all(page is not None and page.contiguous for page in level.pages):
        base = _offsets([int(page.offsets[0]) for page in level.pages if page is not None])
        shape = level.shape[len(level.shape) - len(inner) :]
        return _contiguous(level, shape, base, sources, max_chunk_bytes)
    return _segments(level, inner, sources)


def _offsets(values: Sequence[int]) -> NDArray[np.int64]:
    if not all(0 <= value <= _MAX_OFFSET for value in values):
        raise SourceFormatError("an offset is beyond 2**62")
    return np.array(values, np.int64)


def _page_lengths(level: Level) -> tuple[int, ...]:
    """Segment shape along the trailing axes of the image that one page fills.

    An image may lack axes of length 1 that its pages have, and the other way round.
    """
    page, lengths = level.keyframe, []
    axis, theirs = len(level.shape), len(page.shape)
    while theirs:
        if axis and level.shape[axis - 1] == page.shape[theirs - 1]:
            lengths.append(page.chunk_shape[theirs - 1])
            axis, theirs = axis - 1, theirs - 1
        elif page.shape[theirs - 1] == 1:
            theirs -= 1
        elif axis and level.shape[axis - 1] == 1:
            lengths.append(1)
            axis -= 1
        else:
            break
    if theirs or math.prod(level.shape[:axis]) != len(level.pages):
        raise UnsupportedFeatureError(
            f"{len(level.pages)} pages of shape {page.shape} do not tile an image of shape"
            f" {level.shape} ({level.axes})"
        )
    return tuple(reversed(lengths))


def _contiguous(
    level: Level,
    shape: tuple[int, ...],
    base: NDArray[np.int64],
    sources: Sequence[Source],
    max_chunk_bytes: int,
) -> StoredImage:
    """Chunks of runs of elements in C order, one run beginning at each of `base`."""
    assert level.keyframe.dtype is not None
    itemsize = level.keyframe.dtype.itemsize
    ids = np.array(level.source_ids, np.int32)[: len(base)]
    _check_runs(base, math.prod(shape) * itemsize, ids, sources)
    chunk_shape = _slices(shape, itemsize, max_chunk_bytes)
    _check_n_chunks(len(base) * math.prod(chunk_counts(shape, chunk_shape)))
    start, count = chunk_runs(shape, chunk_shape)
    manifest = ChunkManifest.from_columns(
        sources,
        offset=(base[:, np.newaxis] + start * itemsize).reshape(-1),
        length=np.tile(count * itemsize, len(base)),
        source=np.repeat(ids, len(start)),
    )
    leading = len(level.shape) - len(shape)
    return StoredImage(
        (1,) * leading + chunk_shape, EdgePolicy.TRUNCATED, manifest, True, len(start)
    )


def _slices(shape: tuple[int, ...], itemsize: int, max_bytes: int) -> tuple[int, ...]:
    """The largest chunk of at most `max_bytes` that is one run of bytes in C order."""
    lengths = [1] * len(shape)
    size = itemsize
    for axis in reversed(range(len(shape))):
        lengths[axis] = max(1, min(shape[axis], max_bytes // size))
        if lengths[axis] < shape[axis]:
            break
        size *= shape[axis]
    return tuple(lengths)


def _segments(level: Level, inner: tuple[int, ...], sources: Sequence[Source]) -> StoredImage:
    """Chunks as the offset and count tags have them."""
    key = level.keyframe
    if any(length < 1 for length in key.chunk_shape):
        raise SourceFormatError(f"strips or tiles of shape {key.chunk_shape} have no pixels")
    _check_n_chunks(len(level.pages) * key.n_chunks)
    manifest = segment_manifest(
        key,
        [None if page is None else Segments.of(page) for page in level.pages],
        level.source_ids,
        sources,
        has_tables=_has_spliced_tables(level),
    )
    leading = (1,) * (len(level.shape) - len(inner))
    edge = EdgePolicy.PADDED if key.tiled else EdgePolicy.TRUNCATED
    return StoredImage(leading + inner, edge, manifest, False, key.n_chunks)


def _has_spliced_tables(level: Level) -> bool:
    if not is_jpeg(level.keyframe):
        return False
    spliced = {has_spliced_tables(page) for page in level.pages if page is not None}
    if len(spliced) > 1:
        raise UnsupportedFeatureError("JPEG tables are kept apart on some pages only")
    return True in spliced


class Segments(NamedTuple):
    """Where the strips or tiles of a page lie: see `Page`."""

    page: tuple[int, ...]
    offsets: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, page: Page) -> Self:
        """Those that a page was read with."""
        return cls(page.index, page.offsets, page.counts)


def segment_manifest(
    key: Page,
    pages: Sequence[Segments | None],
    source_ids: Sequence[int],
    sources: Sequence[Source],
    *,
    has_tables: bool,
) -> ChunkManifest:
    """One row a segment of each page; raises as `locate_image` does.

    Parameters
    ----------
    key
        The page that stands for all.
    pages, source_ids
        Those that the file holds, and which of `sources` each lies in.
    has_tables
        Whether JPEG tables are put before each segment, in place of its first marker.
    """
    columns = [_page_columns(page, key) for page in pages]
    offset, length = (
        columns[0]
        if len(columns) == 1
        else (
            np.concatenate([column[0] for column in columns]),
            np.concatenate([column[1] for column in columns]),
        )
    )
    held = (offset > 0) & (length > 0)
    all_held = bool(held.all())
    manifest = ChunkManifest(
        tuple(sources),
        np.repeat(np.array(source_ids, np.int32), key.n_chunks),
        offset if all_held else offset * held,
        length if all_held else length * held,
        held.view(np.uint8),  # 1 is ChunkState.RANGE, 0 is ChunkState.MISSING
    )
    _check_ends(manifest)
    return _without_start_marker(manifest) if has_tables else manifest


def _page_columns(
    segments: Segments | None, key: Page
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets and lengths of one page's segments; zeros where the file has no such page."""
    if segments is None:
        return np.zeros(key.n_chunks, np.int64), np.zeros(key.n_chunks, np.int64)
    n_chunks = key.n_chunks
    if len(segments.offsets) < n_chunks or len(segments.counts) < n_chunks:
        raise SourceFormatError(
            f"an image of {n_chunks} strips or tiles has {len(segments.offsets)} offsets and"
            f" {len(segments.counts)} byte counts (page {segments.page})"
        )
    offsets, counts = segments.offsets[:n_chunks], segments.counts[:n_chunks]
    if (offsets < 0).any() or (counts < 0).any():
        raise SourceFormatError(f"an offset or byte count is beyond 2**62 (page {segments.page})")
    expected = segment_bytes(key)
    if expected is None:
        return offsets, counts
    # Readers take what has no bytes for missing, or go by the offset alone.
    short = np.flatnonzero((offsets > 0) & (counts < expected))
    if len(short):
        first = int(short[0])
        raise SourceFormatError(
            f"strip or tile {first} of page {segments.page} has {int(counts[first])} bytes; its"
            f" pixels need {int(np.broadcast_to(expected, counts.shape)[first])}"
        )
    return offsets, np.where(counts > 0, expected, 0)


def _without_start_marker(manifest: ChunkManifest) -> ChunkManifest:
    """Leave out the SOI marker of each JPEG stream, which the tables before it begin with."""
    held = manifest.state == ChunkState.RANGE
    if (manifest.length[held] <= SOI_BYTES).any():
        raise SourceFormatError(f"a JPEG stream has {int(manifest.length[held].min())} bytes")
    return replace(
        manifest,
        offset=np.where(held, manifest.offset + SOI_BYTES, manifest.offset),
        length=np.where(held, manifest.length - SOI_BYTES, manifest.length),
    )


def _check_n_chunks(n_chunks: int) -> None:
    if n_chunks > _MAX_CHUNKS:
        raise SourceFormatError(f"the image claims to have {n_chunks} strips or tiles")


def _check_runs(
    base: NDArray[np.int64], n_bytes: int, source_ids: NDArray[np.int32], sources: Sequence[Source]
) -> None:
    """Refuse runs of `n_bytes` that begin in the header, or end behind their file."""
    if (base < _HEADER_BYTES).any():
        raise SourceFormatError(f"pixels begin at byte {int(base.min())}, inside the header")
    sizes = _sizes(sources)[source_ids]
    bad = np.flatnonzero(base > sizes - min(n_bytes, _MAX_OFFSET))
    if len(bad):
        run = int(bad[0])
        start, source = int(base[run]), sources[int(source_ids[run])]
        raise SourceFormatError(
            f"{n_bytes} bytes of pixels from byte {start} on reach behind the end of the file"
            f" ({source.size_bytes} bytes): it is truncated or its tags are wrong",
            Place(source.url, start=start, stop=start + n_bytes),
        )


def _sizes(sources: Sequence[Source]) -> NDArray[np.int64]:
    return np.array([_size(source) for source in sources], np.int64)


def _size(source: Source) -> int:
    return _MAX_OFFSET if source.size_bytes is None else source.size_bytes


def _check_ends(manifest: ChunkManifest) -> None:
    """Refuse chunks that end behind their file."""
    if not manifest.n_rows:
        return
    stop = manifest.offset + manifest.length
    smallest = min(_size(source) for source in manifest.sources)
    if int(stop.max()) <= smallest:
        return
    sizes = _sizes(manifest.sources)
    bad = np.flatnonzero((manifest.state == ChunkState.RANGE) & (stop > sizes[manifest.source]))
    if len(bad):
        row = int(bad[0])
        source = manifest.sources[int(manifest.source[row])]
        raise SourceFormatError(
            f"{len(bad)} of {manifest.n_rows} chunks lie behind the end of the file"
            f" ({source.size_bytes} bytes): it is truncated or its tags are wrong",
            Place(source.url, start=int(manifest.offset[row]), stop=int(stop[row])),
        )
