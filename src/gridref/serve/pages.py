"""References of native chunks, looked up a page at a time: neighbours are asked for next."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from gridref.serve.decoded_pages import DecodedPage, decoded_page
from gridref.serve.presence import References, digest_of, native_references
from gridref.serve.segments import LiteralSegment, SourceSegment, VirtualObject
from gridref.serve.views import ArrayView

__all__ = ["ReferencePage", "page_coords_of", "plan_page"]

PAGE_CHUNKS = 256
"""Chunks of a page: enough that looking it up costs little for each of them."""
ROW_BYTES = 200
"""About what a row takes, in numbers of Python."""


PAGE_STORED_CHUNKS = 8192
"""The same for chunks that are decoded, of the stored chunks below them."""


@lru_cache(maxsize=1024)
def page_shape(grid_shape: tuple[int, ...], most: int = PAGE_CHUNKS) -> tuple[int, ...]:
    """Number of chunks of a page along each axis: whole rows in C order, as many as fit."""
    left = most
    lengths = []
    for n_chunks in reversed(grid_shape):
        lengths.append(max(1, min(n_chunks, left)))
        left //= lengths[-1]
    return tuple(reversed(lengths))


def _page_shape_of(view: ArrayView) -> tuple[int, ...]:
    most = PAGE_CHUNKS
    if not view.as_stored:
        most = max(1, min(most, PAGE_STORED_CHUNKS // view.stored_chunks_below))
    return page_shape(view.metadata.grid.grid_shape, most)


def page_coords_of(view: ArrayView, coords: tuple[int, ...]) -> tuple[int, ...]:
    """Coords of the page that holds a chunk."""
    shape = _page_shape_of(view)
    return tuple(k // n for k, n in zip(coords, shape, strict=True))


@dataclass(frozen=True, eq=False)
class ReferencePage:
    """The references of a box of chunks.

    Attributes
    ----------
    first, counts
        Coords of the first chunk, and number of chunks along each axis.
    references
        Of all chunks, in C order.
    """

    first: tuple[int, ...]
    counts: tuple[int, ...]
    references: References

    @property
    def n_bytes(self) -> int:
        """About what it takes in memory."""
        return len(self.references.source) * ROW_BYTES + sum(map(len, self.references.literals))

    @cached_property
    def _rows(self) -> list[tuple[bool, int, int, int]]:
        references = self.references
        columns = (references.present, references.source, references.offset, references.length)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    @cached_property
    def _identities(self) -> list[bytes]:
        return [source.identity.encode() for source in self.references.sources]

    def chunk(self, path: str, coords: tuple[int, ...]) -> VirtualObject | None:
        """What answers for a chunk of the page; None where it is missing."""
        number = 0
        for k, low, n in zip(coords, self.first, self.counts, strict=True):
            number = number * n + k - low
        present, source, offset, length = self._rows[number]
        if not present:
            return None
        if source < 0:
            data = self.references.inline_bytes(number)
            return VirtualObject((LiteralSegment(data),), digest_of(data), path, coords)
        segment = SourceSegment(self.references.sources[source], offset, length)
        etag = digest_of(self._identities[source], b"%d %d" % (offset, length))
        return VirtualObject((segment,), etag, path, coords)


def plan_page(view: ArrayView, page_coords: tuple[int, ...]) -> ReferencePage | DecodedPage:
    """Plan a page of a view without shards."""
    grid_shape = view.metadata.grid.grid_shape
    shape = _page_shape_of(view)
    first = tuple(k * n for k, n in zip(page_coords, shape, strict=True))
    counts = tuple(
        min(n, n_chunks - low) for n, n_chunks, low in zip(shape, grid_shape, first, strict=True)
    )
    if not view.as_stored:
        return decoded_page(view, first, counts)
    return ReferencePage(first, counts, native_references(view, first, counts))
