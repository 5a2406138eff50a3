"""Virtual references of an array, put into an Icechunk session in columns.

Icechunk takes one checksum for a box of chunks, and one file is nearly always one box: so there is
one call a file, and nothing is done for a single chunk. Where files lie scattered over the grid,
references are handed over one by one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import icechunk
import numpy as np
from numpy.typing import NDArray

from gridref.formats.icechunk.access import location_of
from gridref.model.manifest import Source
from gridref.serve.presence import References, native_references
from gridref.serve.views import ArrayView
from gridref.typing import Int64Array

__all__ = ["PlacedReferences", "checksum_of", "placed_references", "put_references"]

PIECE = 1 << 20
"""About the chunks whose references are looked up at a time."""
_FEW_A_CALL = 8
"""Chunks of a file from which on a call for them is quicker than handing over each."""

type Checksum = str | datetime
"""An entity tag, or a moment after which the file must not have been modified."""


@dataclass(frozen=True, eq=False)
class PlacedReferences:
    """References of a box of an array's chunks.

    Attributes
    ----------
    references
        In C order.
    first, counts
        Coords of the first chunk, and number of chunks along each axis.
    """

    references: References
    first: tuple[int, ...]
    counts: tuple[int, ...]


def placed_references(view: ArrayView) -> Iterator[PlacedReferences]:
    """The references of all chunks of a native view, in pieces along the first axis."""
    grid_shape = view.chunk_grid.grid_shape
    if not grid_shape:
        yield PlacedReferences(native_references(view, (), ()), (), ())
        return
    step = max(1, PIECE // max(1, math.prod(grid_shape[1:])))
    for low in range(0, grid_shape[0], step):
        first = (low, *(0 for _ in grid_shape[1:]))
        counts = (min(step, grid_shape[0] - low), *grid_shape[1:])
        if 0 not in counts:
            yield PlacedReferences(native_references(view, first, counts), first, counts)


def checksum_of(source: Source, written: datetime) -> Checksum:
    """What Icechunk compares a file with before it reads it.

    The entity tag; else the time of change, rounded up to the second, as Icechunk keeps no parts of
    one; else, where nothing is known but weak tags, the time at which the references are written.
    """
    if source.mtime_ns is not None:
        return datetime.fromtimestamp(-(-source.mtime_ns // 10**9), UTC)
    name, equals, value = (source.etag or "").partition("=")
    if source.etag and not source.etag.startswith("W/") and not (equals and name.isidentifier()):
        return source.etag
    return _moment(value) or written


def _moment(text: str) -> datetime | None:
    """A moment as servers write it; None if this is none."""
    try:
        iso = re.match(r"\d{4}-\d\d-\d\d", text)
        moment = datetime.fromisoformat(text) if iso else parsedate_to_datetime(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def put_references(
    store: icechunk.IcechunkStore,
    path: str,
    placed: PlacedReferences,
    offset: Sequence[int],
    written: datetime,
) -> None:
    """Put the references of a box into an array.

    Parameters
    ----------
    store
        A writable session's.
    path
        Of the array, whose metadata is there.
    placed
        The references. Chunks that are absent, or inline, are left out.
    offset
        Added to the coords of the chunks: where in the grid of the array the references begin.
    written
        For files of which nothing is known: see `checksum_of`.
    """
    held = placed.references
    first = tuple(a + b for a, b in zip(placed.first, offset, strict=True))
    urls = np.array([location_of(source.url) for source in held.sources] + [""], object)
    box = _Box(store, path, held, urls, first, placed.counts)
    scattered: list[icechunk.VirtualChunkSpec] = []
    for checksum, rows in _by_checksum(held, written):
        if not box.put_together(rows, checksum):
            scattered += box.one_by_one(rows, checksum)
    if scattered:
        store.set_virtual_refs(path, scattered, validate_containers=False)


def _by_checksum(held: References, written: datetime) -> Iterator[tuple[Checksum, Int64Array]]:
    """The chunks that lie in files, in C order, by the checksum of their files."""
    rows = np.flatnonzero(held.present & (held.source >= 0))
    if not len(rows):
        return
    numbers: dict[Checksum, int] = {}
    for source in held.sources:
        numbers.setdefault(checksum_of(source, written), len(numbers))
    checksums = [numbers[checksum_of(source, written)] for source in held.sources]
    kind = np.array(checksums, np.int64)[held.source[rows]]
    order = np.argsort(kind, kind="stable")
    names, starts = np.unique(kind[order], return_index=True)
    known = list(numbers)
    for number, group in zip(names.tolist(), np.split(rows[order], starts[1:]), strict=True):
        yield known[number], group


@dataclass(frozen=True, eq=False)
class _Box:
    """References of a box of chunks on their way into a store."""

    store: icechunk.IcechunkStore
    path: str
    held: References
    urls: NDArray[np.object_]
    first: tuple[int, ...]
    counts: tuple[int, ...]

    def put_together(self, rows: Int64Array, checksum: Checksum) -> bool:
        """Put references of one checksum in one call, unless they are few or lie scattered.

        What else lies in the least box around them stays as it is.
        """
        if len(rows) < _FEW_A_CALL:
            return False
        coords = self._coords(rows)
        low = coords.min(axis=1)
        counts = coords.max(axis=1) - low + 1
        n_chunks = math.prod(counts.tolist())
        if n_chunks > 2 * len(rows):
            return False
        inside = np.zeros(len(rows), np.int64)
        for at, start, count in zip(coords, low, counts, strict=True):
            inside = inside * count + (at - start)
        number = np.full(n_chunks, -1)
        offset, length = np.zeros(n_chunks, np.uint64), np.zeros(n_chunks, np.uint64)
        number[inside] = self.held.source[rows]
        offset[inside], length[inside] = self.held.offset[rows], self.held.length[rows]
        self.store.set_virtual_refs_arr(
            self.path,
            tuple(counts.tolist()),
            self.urls[number].tolist(),
            offset,
            length,
            validate_containers=False,
            arr_offset=tuple((low + self.first).tolist()),
            checksum=checksum,
        )
        return True

    def one_by_one(self, rows: Int64Array, checksum: Checksum) -> list[icechunk.VirtualChunkSpec]:
        """The references of some chunks, for a call that takes many checksums."""
        etag = checksum if isinstance(checksum, str) else None
        moment = checksum if isinstance(checksum, datetime) else None
        coords = (self._coords(rows).T + np.array(self.first, np.int64)).tolist()
        columns = (
            self.urls[self.held.source[rows]],
            self.held.offset[rows],
            self.held.length[rows],
        )
        return [
            icechunk.VirtualChunkSpec(at, url, offset, length, etag, moment)
            for at, url, offset, length in zip(coords, *(c.tolist() for c in columns), strict=True)
        ]

    def _coords(self, rows: Int64Array) -> Int64Array:
        """int64 (ndim, n), coords of chunks in the box."""
        if not self.counts:
            return np.zeros((0, len(rows)), np.int64)
        return np.array(np.unravel_index(rows, self.counts), np.int64)
