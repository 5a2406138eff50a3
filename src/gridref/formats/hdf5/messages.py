"""Read the dataspace and data layout messages of HDF5 object headers.

`read_dataspace` returns the shape of a dataset or attribute, and its maximum shape.
`data_layout_of` returns the place of a dataset's data: in the header, in one piece, in chunks with
an index, or in the source datasets of a virtual one.

Source: HDF5 File Format Specification v3, IV.A.2.b "The Dataspace Message", IV.A.2.i "The Data
Layout Message".
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.bytes import FieldCursor, Hdf5Bytes
from gridref.formats.hdf5.headers import LAYOUT, HeaderMessage
from gridref.learned import FORMS

# The dataspace message: shape and maximum shape

_MAX_RANK = 32
_MAX_EXTENT = (1 << 63) - 1
_HEADER_BYTES = {1: 8, 2: 4}
_HAS_MAXIMUM = 0x01
_NULL = 2


@dataclass(frozen=True, slots=True)
class Dataspace:
    """Extents of a dataset or an attribute.

    Attributes
    ----------
    shape
        Extents now; None for a null dataspace, which holds no elements.
    maxshape
        Greatest extents; None: without limit.
    """

    shape: tuple[int, ...] | None
    maxshape: tuple[int | None, ...]


@FORMS.remembers
def read_dataspace(message: bytes, length_bytes: int) -> Dataspace:
    """Decode a dataspace message.

    Parameters
    ----------
    length_bytes
        Width of a length in the file.
    """
    if len(message) < 4:
        raise SourceFormatError("the dataspace message is cut off")
    version, rank, flags = message[:3]
    start = _HEADER_BYTES.get(version)
    if start is None:
        raise SourceFormatError(f"the dataspace message has the unknown version {version}")
    if rank > _MAX_RANK:
        raise SourceFormatError(f"the dataspace message declares {rank} dimensions")
    if version == 2 and message[3] == _NULL:
        return Dataspace(None, ())
    shape = _extents(message, start, rank, length_bytes)
    if max(shape, default=0) > _MAX_EXTENT:
        raise SourceFormatError(f"the dataspace message declares the extents {shape}")
    if not flags & _HAS_MAXIMUM:
        return Dataspace(shape, shape)
    unlimited = (1 << 8 * length_bytes) - 1
    largest = _extents(message, start + rank * length_bytes, rank, length_bytes)
    if any(most < extent for extent, most in zip(shape, largest, strict=True)):
        raise SourceFormatError(f"the dataspace's extents {shape} are larger than {largest}")
    return Dataspace(shape, tuple(None if most == unlimited else most for most in largest))


def _extents(message: bytes, start: int, rank: int, width: int) -> tuple[int, ...]:
    stop = start + rank * width
    if stop > len(message):
        raise SourceFormatError("the dataspace message is cut off")
    return tuple(
        int.from_bytes(message[at : at + width], "little") for at in range(start, stop, width)
    )


# The data layout message: the place of a dataset's data, or of its chunk index

_MAX_DIMENSIONS = 33  # 32 of the dataspace, and the element size
_PARTIAL_CHUNKS_UNFILTERED = 0x01
_SINGLE_CHUNK_FILTERED = 0x02


class ChunkIndexKind(IntEnum):
    """Kinds of chunk indexes, numbered as in version 4 of the message, which lacks number 0."""

    BTREE_V1 = 0
    SINGLE_CHUNK = 1
    IMPLICIT = 2
    FIXED_ARRAY = 3
    EXTENSIBLE_ARRAY = 4
    BTREE_V2 = 5


@dataclass(frozen=True, slots=True)
class CompactLayout:
    """The data is in the object header itself.

    Attributes
    ----------
    offset
        First byte in the file, user block included.
    """

    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ContiguousLayout:
    """The data is in one piece.

    Attributes
    ----------
    offset
        First byte in the file, user block included; None if never allocated (or stored in
        external files).
    size_bytes
        Size of the data; None if an old version of the message does not state it.
    """

    offset: int | None
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class VirtualLayout:
    """The data is in other datasets.

    Attributes
    ----------
    heap_address, heap_index
        Collection of the global heap that holds the mappings, and their number in it; no address
        if there are no mappings.
    """

    heap_address: int | None
    heap_index: int


@dataclass(frozen=True, slots=True)
class ChunkedLayout:
    """The data is in chunks.

    Attributes
    ----------
    chunk_shape
        Elements of a chunk along each dimension.
    element_bytes
        Size of an element in the file.
    index_address
        Address of the index; None if no chunk was ever allocated.
    partial_chunks_unfiltered
        Chunks that extend beyond the dataset are stored without any filter, whatever their filter
        mask.
    single_chunk
        Stored size and filter mask of a filtered single chunk.
    """

    kind: ChunkIndexKind
    chunk_shape: tuple[int, ...]
    element_bytes: int
    index_address: int | None
    partial_chunks_unfiltered: bool = False
    single_chunk: tuple[int, int] | None = None

    @property
    def chunk_bytes(self) -> int:
        """Size of an unfiltered chunk."""
        return math.prod(self.chunk_shape) * self.element_bytes


DataLayout = CompactLayout | ContiguousLayout | ChunkedLayout | VirtualLayout


def data_layout_of(
    file: Hdf5Bytes, messages: Iterable[HeaderMessage], header_address: int
) -> DataLayout:
    """The layout of a dataset: one of the messages of the object header at `header_address`.

    HDF5 File Format Specification v3, IV.A.2.i; version 5 of the message (HDF5 2.0) differs from
    version 4 only in the width of stored sizes inside chunk indexes.
    """
    layouts = [m for m in messages if m.kind == LAYOUT]
    if len(layouts) != 1:
        raise SourceFormatError(
            f"the object header has {len(layouts)} data layout messages instead of 1",
            file.place(header_address),
        )
    return _decode(file, layouts[0])


def _decode(file: Hdf5Bytes, message: HeaderMessage) -> DataLayout:
    place = partial(file.place, message.address, len(message.data))
    cursor = FieldCursor(message.data, "the data layout message", place)
    if message.is_shared:
        raise UnsupportedFeatureError("the data layout message is shared", cursor.place)
    version = cursor.take(1)
    if version in (1, 2):
        return _decode_v1(file, message, cursor)
    if version not in (3, 4, 5):
        raise UnsupportedFeatureError(
            f"the data layout message has the unknown version {version}", cursor.place
        )
    layout_class = cursor.take(1)
    if layout_class == 0:
        return _compact(file, message, cursor, cursor.take(2))
    if layout_class == 1:
        return ContiguousLayout(
            _offset(file, cursor.take(file.offset_bytes)), cursor.take(file.length_bytes)
        )
    if layout_class == 2:
        return _chunked_v3(file, cursor) if version == 3 else _chunked_v4(file, cursor)
    if layout_class == 3 and version > 3:
        heap_address = cursor.take(file.offset_bytes)
        return VirtualLayout(
            None if heap_address == file.undefined_address else heap_address, cursor.take(4)
        )
    raise UnsupportedFeatureError(
        f"the data layout has the unknown class {layout_class}", cursor.place
    )


def _decode_v1(file: Hdf5Bytes, message: HeaderMessage, cursor: FieldCursor) -> DataLayout:
    """Versions 1 and 2, up to HDF5 1.6."""
    n_dimensions, layout_class = cursor.take(1), cursor.take(1)
    if not 0 < n_dimensions <= _MAX_DIMENSIONS:
        raise cursor.error(f"declares {n_dimensions} dimensions")
    cursor.take_bytes(5)
    address = cursor.take(file.offset_bytes) if layout_class != 0 else None
    lengths = [cursor.take(4) for _ in range(n_dimensions)]
    if layout_class == 0:
        return _compact(file, message, cursor, cursor.take(4))
    if layout_class == 1:
        return ContiguousLayout(_offset(file, address), None)
    if layout_class == 2:
        return _chunked(file, cursor, ChunkIndexKind.BTREE_V1, lengths, address)
    raise UnsupportedFeatureError(
        f"the data layout has the unknown class {layout_class}", cursor.place
    )


def _chunked_v3(file: Hdf5Bytes, cursor: FieldCursor) -> ChunkedLayout:
    n_dimensions = cursor.take(1)
    address = cursor.take(file.offset_bytes)
    n_lengths = min(n_dimensions, _MAX_DIMENSIONS + 1)
    lengths = struct.unpack(f"<{n_lengths}I", cursor.take_bytes(4 * n_lengths))
    return _chunked(file, cursor, ChunkIndexKind.BTREE_V1, lengths, address)


def _chunked_v4(file: Hdf5Bytes, cursor: FieldCursor) -> ChunkedLayout:
    flags, n_dimensions, width = cursor.take(1), cursor.take(1), cursor.take(1)
    if flags & ~(_PARTIAL_CHUNKS_UNFILTERED | _SINGLE_CHUNK_FILTERED):
        raise UnsupportedFeatureError(
            f"the data layout message has unknown flags {flags:#x}", cursor.place
        )
    if not 0 < width <= 8:
        raise cursor.error(f"declares chunk lengths of {width} bytes")
    lengths = [cursor.take(width) for _ in range(min(n_dimensions, _MAX_DIMENSIONS + 1))]
    number = cursor.take(1)
    if number == ChunkIndexKind.BTREE_V1 or number > max(ChunkIndexKind):
        raise UnsupportedFeatureError(
            f"chunks are indexed in the unknown way {number}", cursor.place
        )
    kind = ChunkIndexKind(number)
    single_chunk = None
    if kind == ChunkIndexKind.SINGLE_CHUNK and flags & _SINGLE_CHUNK_FILTERED:
        single_chunk = (cursor.take(file.length_bytes), cursor.take(4))
    # The index's own header repeats its creation parameters.
    cursor.take_bytes(
        {
            ChunkIndexKind.FIXED_ARRAY: 1,
            ChunkIndexKind.EXTENSIBLE_ARRAY: 5,
            ChunkIndexKind.BTREE_V2: 6,
        }.get(kind, 0)
    )
    address = cursor.take(file.offset_bytes)
    unfiltered = bool(flags & _PARTIAL_CHUNKS_UNFILTERED)
    return _chunked(file, cursor, kind, lengths, address, unfiltered, single_chunk)


def _chunked(
    file: Hdf5Bytes,
    cursor: FieldCursor,
    kind: ChunkIndexKind,
    lengths: Sequence[int],
    address: int | None,
    partial_chunks_unfiltered: bool = False,
    single_chunk: tuple[int, int] | None = None,
) -> ChunkedLayout:
    if not 2 <= len(lengths) <= _MAX_DIMENSIONS:
        raise cursor.error(f"declares {len(lengths)} dimensions for a chunked dataset")
    if not all(lengths):
        raise cursor.error(f"declares chunks of shape {tuple(lengths)}")
    return ChunkedLayout(
        kind,
        tuple(lengths[:-1]),
        lengths[-1],
        None if address == file.undefined_address else address,
        partial_chunks_unfiltered,
        single_chunk,
    )


def _compact(
    file: Hdf5Bytes, message: HeaderMessage, cursor: FieldCursor, size: int
) -> CompactLayout:
    start = cursor.position
    cursor.take_bytes(size)
    return CompactLayout(file.base_address + message.address + start, size)


def _offset(file: Hdf5Bytes, address: int | None) -> int | None:
    if address is None or address == file.undefined_address:
        return None
    return file.base_address + address
