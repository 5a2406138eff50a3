"""Read byte ranges of virtual objects.

Neighbouring byte ranges of one source are read in one call of the I/O layer.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from gridref.cache import LRU, cache_bytes
from gridref.codecs import decode_chunk, encode_chunk, gzip_from_zlib
from gridref.errors import GridrefError, Place, ReadError
from gridref.model.encoding import Codec, bytes_codec
from gridref.model.grid import region_of
from gridref.model.shard import boxes_of_interval
from gridref.serve.pages import (
    DecodedRunSegment,
    DecodedSegment,
    LiteralSegment,
    PackedSegment,
    RewrappedSegment,
    Segment,
    SourceSegment,
    VirtualObject,
)
from gridref.serve.reader import Reader, never_absent
from gridref.serve.tasks import Buffer
from gridref.serve.views import ArrayView
from gridref.typing import Int64Array

AT_HAND_BYTES = 256 * 2**10
"""Most bytes of a file that are copied at once where others may have to wait for it."""


class ObjectReader:
    """Reads byte ranges of virtual objects.

    Parameters
    ----------
    reader
        Reader for decoded chunks; its I/O serves the source ranges too.
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._encoded = LRU[bytes](cache_bytes(), len)

    def size(self, virtual_object: VirtualObject) -> int:
        """Size in bytes; encodes the chunk where there is no other way."""
        known = virtual_object.n_bytes
        return len(self.read(virtual_object)) if known is None else known

    def read(self, virtual_object: VirtualObject, start: int = 0, stop: int | None = None) -> bytes:
        """The bytes ``start:stop`` of an object, cut at its end.

        Raises
        ------
        ReadError
            Where a source cannot deliver, naming array, chunk, source and byte range.
        """
        return bytes(self.read_buffer(virtual_object, start, stop))

    def read_buffer(
        self, virtual_object: VirtualObject, start: int = 0, stop: int | None = None
    ) -> Buffer:
        """As `read`, without a copy of what is in memory as it is shown."""
        parts = self.read_parts(virtual_object, start, stop)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @never_absent()
    def at_hand(self, virtual_object: VirtualObject, start: int, stop: int) -> Buffer | None:
        """The bytes ``start:stop`` if nothing has to be waited for; else None.

        Metadata and shard indexes are at hand, and up to `AT_HAND_BYTES` of a file in memory.

        Raises
        ------
        ReadError
            If the source must not be read.
        """
        position = 0
        for segment in virtual_object.segments:
            if segment.n_bytes is None:
                return None
            if position <= start and stop <= position + segment.n_bytes:
                return self._at_hand(virtual_object, segment, start - position, stop - position)
            position += segment.n_bytes
        return None

    def _at_hand(
        self, virtual_object: VirtualObject, segment: Segment, low: int, high: int
    ) -> Buffer | None:
        if isinstance(segment, LiteralSegment):
            return memoryview(segment.data)[low:high]
        if not isinstance(segment, SourceSegment) or high - low > AT_HAND_BYTES:
            return None
        try:
            return self.reader.ranges.at_hand(segment.source, segment.offset + low, high - low)
        except GridrefError as error:
            raise error.located(virtual_object.place) from error.__cause__

    @never_absent()
    def read_parts(
        self, virtual_object: VirtualObject, start: int = 0, stop: int | None = None
    ) -> list[Buffer]:
        """The bytes ``start:stop`` as consecutive buffers, none of them copied again."""
        try:
            if _is_made_whole(virtual_object):
                return [self._encoded_whole(virtual_object)[start:stop]]
            return list(self._ranges(virtual_object, start, stop))
        except GridrefError as error:
            raise error.located(virtual_object.place) from error.__cause__

    def _encoded_whole(self, virtual_object: VirtualObject) -> bytes:
        """An object that is made whole; kept for the requests for its size and its parts."""
        kept = self._encoded.get(virtual_object.etag)
        if kept is not None:
            return kept
        data = b"".join(
            part for segment in virtual_object.segments for part in self._whole(segment)
        )
        return self._encoded.put(virtual_object.etag, data)

    def _whole(self, segment: Segment) -> list[Buffer]:
        if isinstance(segment, DecodedSegment):
            return [chunk_bytes(self.reader, segment)]
        if isinstance(segment, RewrappedSegment):
            return [self._rewrapped(segment)]
        assert segment.n_bytes is not None
        return self._segment(segment, 0, segment.n_bytes)

    def _ranges(
        self, virtual_object: VirtualObject, start: int, stop: int | None
    ) -> Iterator[Buffer]:
        position = 0
        for segment in virtual_object.segments:
            assert segment.n_bytes is not None
            low = max(0, start - position)
            high = segment.n_bytes if stop is None else min(segment.n_bytes, stop - position)
            if low < high:
                yield from self._segment(segment, low, high)
            position += segment.n_bytes

    def _segment(self, segment: Segment, low: int, high: int) -> list[Buffer]:
        """The bytes ``low:high`` of a segment; not empty, and inside of it."""
        if isinstance(segment, LiteralSegment):
            return [segment.data[low:high]]
        if isinstance(segment, SourceSegment):
            offset, length = np.array([segment.offset + low]), np.array([high - low])
            return list(self.reader.ranges.read_ranges(segment.source, offset, length))
        if isinstance(segment, PackedSegment):
            return self._packed(segment, low, high)
        if isinstance(segment, DecodedRunSegment):
            return self._decoded_run(segment, low, high)
        assert isinstance(segment, DecodedSegment)
        data = chunk_bytes(self.reader, segment)
        return [data if low == 0 and high == len(data) else data[low:high]]

    def _rewrapped(self, segment: RewrappedSegment) -> bytes:
        held = segment.held
        (stored,) = self._segment(held, 0, held.n_bytes)
        try:
            return gzip_from_zlib(stored, decode_chunk(stored, segment.encoding))
        except ReadError as error:
            if isinstance(held, LiteralSegment):
                raise
            stop = held.offset + held.n_bytes
            place = Place(source=held.source.url, start=held.offset, stop=stop)
            raise error.located(place) from error.__cause__

    def _packed(self, segment: PackedSegment, low: int, high: int) -> list[Buffer]:
        """Read the runs that a range touches, all of one source at once."""
        begin = int(np.searchsorted(segment.start, low, side="right")) - 1
        end = int(np.searchsorted(segment.start, high, side="left"))
        start = np.maximum(segment.start[begin:end], low)
        length = np.minimum(segment.start[begin + 1 : end + 1], high) - start
        offset = segment.offset[begin:end] + start - segment.start[begin:end]
        source = segment.source[begin:end]
        parts: list[Buffer] = []
        cuts = np.flatnonzero(source[1:] != source[:-1]) + 1
        for members in np.split(np.arange(len(source)), cuts):
            number = int(source[members[0]])
            if number >= 0:
                parts += self.reader.ranges.read_ranges(
                    segment.sources[number], offset[members], length[members]
                )
            else:
                held = memoryview(segment.literals[-1 - number])
                parts += [held[offset[i] : offset[i] + length[i]] for i in members.tolist()]
        return parts

    def _decoded_run(self, segment: DecodedRunSegment, low: int, high: int) -> list[Buffer]:
        """Decode the chunks that a range touches, box by box, and cut off what is too much."""
        size = segment.chunk_bytes
        begin, end = low // size, -(-high // size)
        numbers = segment.numbers[begin:end]
        parts: list[Buffer] = [
            packed_box(self.reader, segment, box, numbers)
            for box in boxes_of_interval(int(numbers[0]), int(numbers[-1]) + 1, segment.counts)
        ]
        data = memoryview(parts[0] if len(parts) == 1 else b"".join(parts))
        return [data[low - begin * size : high - begin * size]]


def _is_made_whole(virtual_object: VirtualObject) -> bool:
    """Whether no part of an object can be had without the rest."""
    return any(
        segment.n_bytes is None or isinstance(segment, RewrappedSegment)
        for segment in virtual_object.segments
    )


def chunk_bytes(reader: Reader, segment: DecodedSegment) -> Buffer:
    """Encode one chunk of the portable view; what overhangs the array holds the fill value."""
    view = segment.view
    held = view.metadata.grid.data_shape(segment.coords)
    if view.array.overlays:  # one of them may be faster than the files that were looked up
        start = view.metadata.grid.start(segment.coords)
        region = region_of(start, held)
        values = reader.read(view.array, region, is_copied=True)
    else:
        values = reader.read_looked_up(view.array, held, segment.below)
    return _encoded(as_shown(values, segment.shape, view), view.chunk_codecs)


def packed_box(
    reader: Reader, segment: DecodedRunSegment, box: tuple[tuple[int, int], ...], wanted: Int64Array
) -> Buffer:
    """Decode a box of inner chunks, and pack the wanted ones among them back to back.

    Parameters
    ----------
    box
        Half-open interval of chunks along each axis, counted in the shard.
    wanted
        Numbers of chunks in the shard, ascending.
    """
    view = segment.view
    assert view.shards is not None
    lengths = view.shards.chunk_shape
    counts = tuple(high - low for low, high in box)
    region = tuple(
        slice((k + low) * n, min((k + high) * n, extent))
        for k, (low, high), n, extent in zip(
            segment.first, box, lengths, view.array.shape, strict=True
        )
    )
    grid = np.ix_(*(np.arange(low, high) for low, high in box))
    numbers = np.ravel_multi_index(tuple(grid), segment.counts).reshape(-1)
    chosen = np.isin(numbers, wanted, assume_unique=True)
    if not chosen.any():
        return b""
    values = reader.read(view.array, region, is_copied=True)
    shape = tuple(count * n for count, n in zip(counts, lengths, strict=True))
    values = as_shown(values, shape, view)
    cut = values.reshape(tuple(itertools.chain(*zip(counts, lengths, strict=True))))
    axes = [*range(0, cut.ndim, 2), *range(1, cut.ndim, 2)]
    chunks = cut.transpose(axes).reshape(math.prod(counts), *lengths)
    return _encoded(chunks if chosen.all() else chunks[chosen], view.chunk_codecs)


def _encoded(values: NDArray[np.generic], codecs: Sequence[Codec]) -> Buffer:
    """As `encode_chunk`; numbers that are in memory as they are served are not copied."""
    alike = (
        sys.byteorder == "little"
        and codecs == (bytes_codec(values.dtype),)
        and values.dtype.kind in "biufc"
        and values.dtype.isnative
        and values.flags.c_contiguous
        and values.size > 0
    )
    return values.reshape(-1).view(np.uint8).data if alike else encode_chunk(values, codecs)


def as_shown(
    values: NDArray[np.generic], shape: tuple[int, ...], view: ArrayView
) -> NDArray[np.generic]:
    """Values in the dtype of the view, filled up to a shape with the fill value."""
    values = values.astype(view.metadata.dtype, copy=False)
    if values.shape == shape:
        return values
    padded = np.empty(shape, values.dtype)
    padded[...] = view.metadata.fill_value
    padded[tuple(slice(0, extent) for extent in values.shape)] = values
    return padded
