"""The segments of virtual objects: literal bytes, byte ranges and decoded chunks.

Every segment knows its size without I/O where that is possible. Segments of many chunks are
columns: an object costs no work per chunk in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from gridref.codecs import REWRAP_BYTES
from gridref.errors import Place
from gridref.model.encoding import Encoding
from gridref.model.manifest import Source
from gridref.serve.plan import CrossProduct, LookedUp
from gridref.serve.views import ArrayView
from gridref.typing import Int64Array


@dataclass(frozen=True)
class LiteralSegment:
    """Bytes that are at hand."""

    data: bytes = field(repr=False)

    @property
    def n_bytes(self) -> int:
        return len(self.data)


@dataclass(frozen=True)
class SourceSegment:
    """A byte range of a source."""

    source: Source
    offset: int
    n_bytes: int


@dataclass(frozen=True, eq=False)
class PackedSegment:
    """Byte ranges of sources and of literal bytes, back to back.

    Attributes
    ----------
    sources
        The sources that `source` counts into.
    literals
        Bytes that negative numbers in `source` count into: -1 is the first.
    source
        int64 (n_runs,), where each run is.
    offset
        int64 (n_runs,), its first byte there.
    start
        int64 (n_runs + 1,), its first byte in the segment; the last entry is the segment's size.
    """

    sources: tuple[Source, ...]
    literals: tuple[bytes, ...] = field(repr=False)
    source: Int64Array
    offset: Int64Array
    start: Int64Array

    @property
    def n_bytes(self) -> int:
        return int(self.start[-1])


@dataclass(frozen=True, eq=False)
class DecodedSegment:
    """A chunk of the portable view, to be decoded and encoded on reading.

    It has `shape`, and may overhang the array. `n_bytes` is None where compression makes the size
    unknown beforehand; `below` are the stored chunks that it is made of.
    """

    view: ArrayView
    coords: tuple[int, ...]
    shape: tuple[int, ...]
    n_bytes: int | None
    below: tuple[LookedUp[CrossProduct], ...] = field(repr=False)


@dataclass(frozen=True)
class RewrappedSegment:
    """A stored zlib stream, to be made a gzip member on reading.

    Attributes
    ----------
    encoding
        Decodes it, to uint8.
    """

    held: SourceSegment | LiteralSegment
    encoding: Encoding

    @property
    def n_bytes(self) -> int:
        return self.held.n_bytes + REWRAP_BYTES


@dataclass(frozen=True, eq=False)
class DecodedRunSegment:
    """The present inner chunks of a portable shard, in C order, each of `chunk_bytes`.

    Attributes
    ----------
    first
        Coords of the shard's first inner chunk.
    counts
        Number of inner chunks along each axis of the shard.
    numbers
        int64, C-order numbers in the shard of the chunks that are present, ascending.
    chunk_bytes
        Size of each payload.
    """

    view: ArrayView
    first: tuple[int, ...]
    counts: tuple[int, ...]
    numbers: Int64Array
    chunk_bytes: int

    @property
    def n_bytes(self) -> int:
        return len(self.numbers) * self.chunk_bytes


Segment = (
    LiteralSegment
    | SourceSegment
    | PackedSegment
    | DecodedSegment
    | RewrappedSegment
    | DecodedRunSegment
)


@dataclass(frozen=True, eq=False)
class VirtualObject:
    """The object of one key.

    Attributes
    ----------
    segments
        What the object consists of, in order.
    tag
        The entity tag, or what makes it when it is asked for.
    variable
        Path of the array, for messages.
    coords
        Chunk coords, for messages.
    """

    segments: tuple[Segment, ...]
    tag: str | Callable[[], str] = field(repr=False)
    variable: str | None = None
    coords: tuple[int, ...] | None = None

    @cached_property
    def etag(self) -> str:
        """Entity tag, without quotes: equal exactly if the content is equal, as far as is known."""
        return self.tag if isinstance(self.tag, str) else self.tag()

    @property
    def n_bytes(self) -> int | None:
        """Size in bytes; None where it is known only after encoding."""
        sizes = [segment.n_bytes for segment in self.segments]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def place(self) -> Place:
        """Which array and chunk this is."""
        return Place(variable=self.variable, chunk=self.coords)
