"""The chunk map of an array as columns that a browser draws, and as files.

A map shows two axes of the chunk grid, at one chunk of each other axis. It is sent as columns of
binary numbers: a million chunks are far more than JSON can carry.
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.catalog.listing import CHUNK_STATES, referenced_chunks
from gridref.errors import InvalidRequestError
from gridref.faces.picture import MOST_ALONG, chunks_along, stored_edges
from gridref.model.array import VirtualArray
from gridref.model.indexing import isel
from gridref.model.listing import ListedChunks
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from gridref.typing import Int64Array

# Stored chunks as columns: state, source, stored size

MOST_CHUNKS = 1 << 21
"""Chunks that are listed for one map, or one histogram."""
MOST_PLACES = 4 * MOST_CHUNKS
"""Places of a map; more than chunks, where blocks are cut differently beside each other."""
NOTHING = 255
"""State of a place of the map at which there is no chunk, as blocks are cut differently."""
NO_SOURCE = 2**32 - 1
_MOST_BYTES = 2**32 - 1


@dataclass(frozen=True)
class MapAxes:
    """What a map shows.

    Attributes
    ----------
    rows, columns
        Axes of the array; None where it has no second one, or none.
    hidden
        The others, with the number of chunks along each.
    """

    rows: int | None
    columns: int | None
    hidden: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, array: VirtualArray) -> MapAxes:
        """The two axes of most chunks, in the order of the array.

        Raises
        ------
        InvalidRequestError
            If there are more than `MOST_ALONG` chunks along an axis.
        """
        if max(chunks_along(array), default=0) > MOST_ALONG:
            raise InvalidRequestError(f"more than {MOST_ALONG} chunks along a dimension: no map")
        counts = [len(stored_edges(array, axis)) for axis in range(array.ndim)]
        longest = sorted(range(array.ndim), key=lambda axis: -counts[axis])[:2]
        hidden = [(axis, count) for axis, count in enumerate(counts) if axis not in longest]
        rows, columns = [None, None, *sorted(longest)][-2:]
        return cls(rows, columns, tuple(hidden))


@dataclass(frozen=True, eq=False)
class MapColumns:
    """Chunks by their place on a map.

    Attributes
    ----------
    n_left_out
        Chunks beyond `MOST_CHUNKS`.
    hidden_at
        First element of the chunk along each axis that is not shown.
    row_starts, column_starts
        float64, first element of each row and column, along its axis.
    stored_bytes, source
        uint32 (n_rows * n_columns,); `source` numbers the files as they come.
    state
        uint8 (n_rows * n_columns,): a `ChunkState`, or `NOTHING`.
    """

    n_left_out: int
    hidden_at: tuple[int, ...]
    row_starts: NDArray[np.float64]
    column_starts: NDArray[np.float64]
    stored_bytes: NDArray[np.uint32]
    source: NDArray[np.uint32]
    state: NDArray[np.uint8]

    def to_bytes(self) -> bytes:
        """Length of a JSON header (uint32), the header, and the columns; all little-endian."""
        header: dict[str, Any] = {
            "rows": len(self.row_starts),
            "columns": len(self.column_starts),
            "left_out": self.n_left_out,
            "hidden_at": self.hidden_at,
        }
        text = json.dumps(header).encode()
        text += b" " * (-(len(text) + 4) % 8)
        columns = (
            self.row_starts.astype("<f8"),
            self.column_starts.astype("<f8"),
            self.stored_bytes.astype("<u4"),
            self.source.astype("<u4"),
            self.state,
        )
        size = len(text).to_bytes(4, "little")
        return b"".join([size, text, *(column.tobytes() for column in columns)])


def chunk_map(array: VirtualArray, hidden_at: Sequence[int] = ()) -> MapColumns:
    """The map of an array.

    Parameters
    ----------
    array
        An array of one dimension or more.
    hidden_at
        Of each axis that is not shown, the chunk that the map is at; the first ones by default.
    """
    axes = MapAxes.of(array)
    elements = _hidden_elements(array, axes, hidden_at)
    listed, rows, n_left_out = _listed(
        isel(array, {axis: slice(at, at + 1) for axis, at in elements.items()})
    )
    row, row_starts = _along(listed, axes.rows)
    column, column_starts = _along(listed, axes.columns)
    if len(row_starts) * len(column_starts) > MOST_PLACES:
        raise InvalidRequestError("neighbouring blocks have too many different edges for a map")
    at = row * len(column_starts) + column
    stored, source, state = _placed(rows, at, len(row_starts) * len(column_starts))
    hidden = tuple(elements.values())
    return MapColumns(n_left_out, hidden, row_starts, column_starts, stored, source, state)


def _along(listed: ListedChunks, axis: int | None) -> tuple[Int64Array, NDArray[np.float64]]:
    """The place of each chunk along an axis, and the first element of each place."""
    if axis is None:
        return np.zeros(len(listed), np.int64), np.zeros(1)
    place = listed.chunk[:, axis]
    starts = np.zeros(int(place.max(initial=-1)) + 1)
    chunk_there = np.full(len(starts), -1)  # one for each place: bounds of all would take long
    chunk_there[place] = np.arange(len(listed))
    has_chunk = chunk_there >= 0
    starts[has_chunk] = listed.take(chunk_there[has_chunk]).bounds[0][:, axis]
    return place, starts


def _hidden_elements(
    array: VirtualArray, axes: MapAxes, hidden_at: Sequence[int]
) -> dict[int, int]:
    """The first element of the chunk that the map is at, by axis that is not shown."""
    at = list(hidden_at) or [0] * len(axes.hidden)
    if len(at) != len(axes.hidden) or array.size == 0:
        raise InvalidRequestError(f"{len(axes.hidden)} chunks say where the map is, got {len(at)}")
    elements = {}
    for (axis, count), number in zip(axes.hidden, at, strict=True):
        if not 0 <= number < count:
            raise InvalidRequestError(f"chunk {number} along dimension {axis} of {count}")
        elements[axis] = int(stored_edges(array, axis)[:number].sum())
    return elements


def _listed(array: VirtualArray) -> tuple[ListedChunks, ChunkManifest, int]:
    """The first `MOST_CHUNKS` chunks, and how many there are more."""
    pieces, manifests, n_listed = [], [], 0
    for listed, rows in _first_chunks(array):
        pieces.append(listed)
        manifests.append(rows)
        n_listed += len(listed)
    block = np.concatenate([piece.block for piece in pieces])
    index = np.concatenate([piece.index for piece in pieces])
    whole = ListedChunks(pieces[0].listing, block, index)
    n_left_out = max(0, whole.listing.n_rows - MOST_CHUNKS)
    return whole, ChunkManifest.concatenate(manifests), n_left_out


def _first_chunks(array: VirtualArray) -> Iterator[tuple[ListedChunks, ChunkManifest]]:
    n_listed = 0
    for listed, rows in referenced_chunks(array):
        yield listed, rows
        n_listed += len(listed)
        if n_listed >= MOST_CHUNKS:
            return


def _placed(
    rows: ChunkManifest, at: Int64Array, n_places: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint8]]:
    stored = np.zeros(n_places, np.uint32)
    source = np.full(n_places, NO_SOURCE, np.uint32)
    state = np.full(n_places, NOTHING, np.uint8)
    is_stored = rows.state != ChunkState.MISSING
    stored[at] = np.where(is_stored, np.minimum(rows.length, _MOST_BYTES), 0)
    is_range = rows.state == ChunkState.RANGE
    source[at[is_range]] = rows.source[is_range]
    state[at] = rows.state
    return stored, source, state


def chunk_at(
    array: VirtualArray, element: Sequence[int]
) -> tuple[ChunkState, Source | None, int, int]:
    """State, source, offset and length of the stored chunk that an element is in."""
    if len(element) != array.ndim or any(
        not 0 <= at < extent for at, extent in zip(element, array.shape, strict=False)
    ):
        raise InvalidRequestError(f"no element {tuple(element)} in an array of shape {array.shape}")
    one = isel(array, {axis: slice(at, at + 1) for axis, at in enumerate(element)})
    for _, rows in referenced_chunks(one):
        state = ChunkState(int(rows.state[0]))
        source = rows.sources[int(rows.source[0])] if state is ChunkState.RANGE else None
        return state, source, int(rows.offset[0]), int(rows.length[0])
    raise AssertionError


@dataclass
class SizeCounts:
    """How many chunks there are of each size.

    Attributes
    ----------
    by_state
        Chunks by `ChunkState`.
    by_power
        Chunks that are stored, by the power of two that their size in bytes reaches.
    n_left_out
        Chunks beyond `MOST_CHUNKS`, which are not counted.
    """

    by_state: dict[int, int] = field(default_factory=dict)
    by_power: dict[int, int] = field(default_factory=dict)
    stored_bytes: int = 0
    n_left_out: int = 0

    def to_json(self) -> dict[str, Any]:
        """As pages read it."""
        return {
            "states": {CHUNK_STATES[state]: n for state, n in sorted(self.by_state.items())},
            "sizes": [[2**power, n] for power, n in sorted(self.by_power.items())],
            "stored_bytes": self.stored_bytes,
            "left_out": self.n_left_out,
        }


def count_sizes(array: VirtualArray) -> SizeCounts:
    """Count the chunks of an array by state and stored size."""
    counts = SizeCounts()
    n_listed = n_rows = 0
    for listed, rows in _first_chunks(array):
        n_listed, n_rows = n_listed + len(listed), listed.listing.n_rows
        stored = rows.length[rows.state != ChunkState.MISSING]
        counts.stored_bytes += int(stored.sum())
        _add(counts.by_power, np.frexp(np.maximum(stored, 1))[1] - 1)
        _add(counts.by_state, rows.state)
    counts.n_left_out = max(0, n_rows - n_listed) if n_listed >= MOST_CHUNKS else 0
    return counts


def _add(counts: dict[int, int], values: NDArray[Any]) -> None:
    for value, count in zip(*np.unique(values, return_counts=True), strict=True):
        counts[int(value)] = counts.get(int(value), 0) + int(count)


# Chunk map and histogram of sizes as files, where no server answers

MOST_MAPS = 64
"""Maps of one array; of one that needs more, or has very many chunks, there is the first."""


@dataclass(frozen=True)
class MapFiles:
    """The answers of a server, by the names that links give them.

    Attributes
    ----------
    files
        Maps, compressed, by the chunks along hidden axes that they are at; and the sizes.
    is_whole
        Whether there is a map of every chunk along the hidden axes; else they are at the first.
    """

    files: dict[str, bytes]
    is_whole: bool


def map_files(array: VirtualArray) -> MapFiles:
    """The files of an array that has a chunk map.

    Raises
    ------
    InvalidRequestError
        With the reason why it cannot be drawn.
    """
    hidden = [count for _, count in MapAxes.of(array).hidden]
    is_few = math.prod(hidden) <= MOST_MAPS and math.prod(chunks_along(array)) <= MOST_CHUNKS
    shown = hidden if is_few else [1] * len(hidden)
    files = {
        f"map{','.join(map(str, at))}.bin": gzip.compress(
            chunk_map(array, at).to_bytes(), compresslevel=6, mtime=0
        )
        for at in itertools.product(*map(range, shown))
    }
    files["sizes.json"] = json.dumps(count_sizes(array).to_json()).encode()
    return MapFiles(files, shown == hidden)
