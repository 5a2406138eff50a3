"""Chunk grids: how an array is cut into chunks, regularly or along uneven edges.

One type covers both. The edge lengths along each axis are run-length encoded, so a million equal
chunks take as much memory as one. The *chunk length* is the length that the chunk's codec works on.
The *data length* is the part of it inside the array. They differ only for the last chunk of an
axis.

Formats: Zarr v3 core ``regular`` grid; ``rectilinear`` grid of zarr-extensions; ``rectangular``
grid of the ZEP 3 draft (read only).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from gridref.errors import InvalidRequestError, NotRepresentableError, number_of
from gridref.model.columns import condensed
from gridref.pickling import Picklable
from gridref.typing import Int64Array

MAX_RANK = 64
"""Most dimensions of numpy's arrays."""


def _frozen(values: ArrayLike) -> Int64Array:
    array = condensed(np.array(values, dtype=np.int64).reshape(-1))
    array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False)
class GridAxis(Picklable):
    """The chunks along one axis, run-length encoded.

    Build one with `uniform`, `from_edges` or `from_runs`. Chunks that are wholly beyond the extent
    are dropped and equal neighbours merged. Two axes are therefore equal exactly if they cut in the
    same way.

    Attributes
    ----------
    extent
        Number of elements along the axis.
    run_lengths, run_counts
        int64 arrays: ``run_counts[i]`` chunks of ``run_lengths[i]`` elements follow each other. An
        axis of extent 0 keeps one run with count 0, which remembers its chunk length.

    Raises
    ------
    InvalidRequestError
        For an edge length below 1, or edges that do not cover the extent.
    """

    extent: int
    run_lengths: Int64Array
    run_counts: Int64Array

    @classmethod
    def uniform(cls, extent: int, length: int) -> Self:
        """Chunks of equal `length`; the last one may overhang the extent."""
        if length < 1:
            raise InvalidRequestError(f"edge length must be >= 1, got {length}")
        if extent < 0:
            raise InvalidRequestError(f"extent must be >= 0, got {extent}")
        return cls(extent, _frozen([length]), _frozen([-(-extent // length)]))

    @classmethod
    def from_edges(cls, edges: ArrayLike, extent: int | None = None) -> Self:
        """Chunks of the given lengths; the extent defaults to their sum."""
        lengths = np.asarray(edges, dtype=np.int64).reshape(-1)
        return cls.from_runs(lengths, np.ones_like(lengths), extent)

    @classmethod
    def from_runs(cls, lengths: ArrayLike, counts: ArrayLike, extent: int | None = None) -> Self:
        """``counts[i]`` chunks of ``lengths[i]``, in order; the extent defaults to their sum."""
        length = np.asarray(lengths, dtype=np.int64).reshape(-1)
        count = np.asarray(counts, dtype=np.int64).reshape(-1)
        if length.shape != count.shape:
            raise InvalidRequestError("run lengths and run counts differ in number")
        if length.size and int(length.min()) < 1:
            raise InvalidRequestError(f"edge length must be >= 1, got {int(length.min())}")
        if count.size and int(count.min()) < 0:
            raise InvalidRequestError(f"run count must be >= 0, got {int(count.min())}")
        covered = sum(map(operator.mul, length.tolist(), count.tolist()))
        if extent is None:
            extent = covered
        if extent < 0:
            raise InvalidRequestError(f"extent must be >= 0, got {extent}")
        if covered < extent:
            raise InvalidRequestError(f"edges cover {covered} of {number_of(extent, 'element')}")
        if length.size == 1:
            return cls.uniform(extent, int(length[0]))
        if extent == 0:
            return cls(0, _frozen(length[:1] if length.size else [1]), _frozen([0]))
        length, count = length[count > 0], count[count > 0]
        # Runs that reach beyond the extent are cut, or their ends would exceed 64 bits.
        stops = np.cumsum(np.minimum(length, extent) * np.minimum(count, -(-extent // length)))
        last = int(np.searchsorted(stops, extent))
        before = int(stops[last - 1]) if last else 0
        length, count = length[: last + 1], count[: last + 1].copy()
        count[last] = -(-(extent - before) // int(length[last]))
        heads = np.flatnonzero(np.concatenate([[True], length[1:] != length[:-1]]))
        return cls(extent, _frozen(length[heads]), _frozen(np.add.reduceat(count, heads)))

    @classmethod
    def from_json(cls, edges: int | Sequence[Any], extent: int) -> Self:
        """Read one axis of a ``rectilinear`` or ``rectangular`` grid document."""
        if isinstance(edges, bool) or not isinstance(edges, int | list | tuple):
            raise InvalidRequestError(f"chunk edges must be an integer or a list, got {edges!r}")
        if isinstance(edges, int):
            return cls.uniform(extent, edges)
        lengths, counts = [], []
        for item in edges:
            pair = item if isinstance(item, list | tuple) else (item, 1)
            if len(pair) != 2 or not all(type(number) is int for number in pair):
                raise InvalidRequestError(f"chunk edge must be N or [N, count], got {item!r}")
            if pair[1] < 1:
                raise InvalidRequestError(f"edge repeat count must be >= 1, got {pair[1]}")
            lengths.append(pair[0])
            counts.append(pair[1])
        return cls.from_runs(lengths, counts, extent)

    def to_json(self) -> int | list[int | list[int]]:
        """The entry of a ``rectilinear`` grid document: an int where uniform, else runs."""
        if self.is_uniform:
            return self.uniform_length
        return [
            length if count == 1 else [length, count]
            for length, count in zip(
                self.run_lengths.tolist(), self.run_counts.tolist(), strict=True
            )
        ]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GridAxis):
            return NotImplemented
        return self is other or (
            self.extent == other.extent
            and self.run_lengths.tobytes() == other.run_lengths.tobytes()
            and self.run_counts.tobytes() == other.run_counts.tobytes()
        )

    def __hash__(self) -> int:
        return hash((self.extent, self.run_lengths.tobytes(), self.run_counts.tobytes()))

    def __repr__(self) -> str:
        return f"GridAxis(extent={self.extent}, edges={self.to_json()})"

    @cached_property
    def n_chunks(self) -> int:
        """Number of chunks that hold data."""
        return int(self.run_counts.sum())

    @property
    def is_uniform(self) -> bool:
        """Whether all chunk lengths are equal (the last chunk may overhang)."""
        return len(self.run_lengths) == 1

    @property
    def is_exact(self) -> bool:
        """Whether the last chunk ends where the axis ends."""
        return self._run_stops[-1] == self.extent if self.extent else True

    @property
    def uniform_length(self) -> int:
        """The chunk length of a uniform axis.

        Raises
        ------
        NotRepresentableError
            If the axis is not uniform.
        """
        if not self.is_uniform:
            raise NotRepresentableError("chunk lengths differ along this axis")
        return int(self.run_lengths[0])

    @cached_property
    def _run_stops(self) -> Int64Array:
        return np.cumsum(self.run_lengths * self.run_counts)

    @cached_property
    def _run_starts(self) -> Int64Array:
        return self._run_stops - self.run_lengths * self.run_counts

    @cached_property
    def _run_chunk_stops(self) -> Int64Array:
        return np.cumsum(self.run_counts)

    def chunk_lengths(self, chunks: ArrayLike) -> Int64Array:
        """The length that the codec works on, for each of the given chunks."""
        return self.run_lengths[self._run_of(self._checked(chunks))]

    def starts(self, chunks: ArrayLike) -> Int64Array:
        """First element of each of the given chunks."""
        chunk = self._checked(chunks)
        run = self._run_of(chunk)
        into_run = chunk - (self._run_chunk_stops[run] - self.run_counts[run])
        return np.asarray(self._run_starts[run] + into_run * self.run_lengths[run])

    def starts_between(self, first: int, last: int) -> Int64Array:
        """First element of each of the chunks ``first..last``; faster than `starts`."""
        if self.is_uniform:
            return np.arange(first, last + 1, dtype=np.int64) * int(self.run_lengths[0])
        low, high = self._run_of(self._checked([first, last])).tolist()
        counts = self.run_counts[low : high + 1].copy()
        counts[0] -= first - (self._run_chunk_stops[low] - self.run_counts[low])
        counts[-1] -= self._run_chunk_stops[high] - (last + 1)
        steps = np.repeat(self.run_lengths[low : high + 1], counts)
        starts: Int64Array = np.concatenate([self.starts([first]), steps[:-1]]).cumsum()
        return starts

    def data_lengths(self, chunks: ArrayLike) -> Int64Array:
        """Number of elements inside the array, for each of the given chunks."""
        return np.minimum(self.chunk_lengths(chunks), self.extent - self.starts(chunks))

    def span(self, chunk: int) -> tuple[int, int]:
        """First element of one chunk, and how many of its elements are inside the array."""
        if self.is_uniform and 0 <= chunk < self.n_chunks:  # without arrays of one number
            length = int(self.run_lengths[0])
            return chunk * length, min(length, self.extent - chunk * length)
        return int(self.starts(chunk)), int(self.data_lengths(chunk))

    def locate(self, elements: ArrayLike) -> Int64Array:
        """Chunk that holds each of the given elements.

        Raises
        ------
        InvalidRequestError
            If an element is outside ``0 <= element < extent``.
        """
        element = np.asarray(elements, dtype=np.int64)
        if element.size and (int(element.min()) < 0 or int(element.max()) >= self.extent):
            raise InvalidRequestError(
                f"element {int(element.min())}..{int(element.max())} is outside of an axis of"
                f" {self.extent}"
            )
        if self.is_uniform:
            return np.asarray(element // self.run_lengths[0])
        run = np.searchsorted(self._run_stops, element, side="right")
        first = self._run_chunk_stops[run] - self.run_counts[run]
        return np.asarray(first + (element - self._run_starts[run]) // self.run_lengths[run])

    def edges(self) -> Int64Array:
        """Data lengths of all chunks; memory grows with their number."""
        lengths = np.repeat(self.run_lengths, self.run_counts)
        if lengths.size:
            lengths[-1] -= int(self._run_stops[-1]) - self.extent
        return lengths

    def _run_of(self, chunk: Int64Array) -> Int64Array:
        if self.is_uniform:
            return np.zeros_like(chunk)
        return np.searchsorted(self._run_chunk_stops, chunk, side="right")

    def _checked(self, chunks: ArrayLike) -> Int64Array:
        chunk = np.asarray(chunks, dtype=np.int64)
        if chunk.size and (int(chunk.min()) < 0 or int(chunk.max()) >= self.n_chunks):
            raise InvalidRequestError(
                f"chunk {int(chunk.min())}..{int(chunk.max())} is outside of an axis of"
                f" {number_of(self.n_chunks, 'chunk')}"
            )
        return chunk


@dataclass(frozen=True)
class ChunkGrid(Picklable):
    """A regular or rectilinear chunk grid: one `GridAxis` per dimension.

    Two grids are equal exactly if they cut the array in the same way, however they were written.

    Attributes
    ----------
    axes
        The axes, in the order of the array's dimensions; empty for a scalar, which has one chunk.
    """

    axes: tuple[GridAxis, ...]

    def __post_init__(self) -> None:
        if len(self.axes) > MAX_RANK:
            raise InvalidRequestError(f"rank {len(self.axes)}: numpy's arrays have {MAX_RANK}")

    @classmethod
    def regular(cls, shape: Sequence[int], chunk_shape: Sequence[int]) -> Self:
        """A grid of equal chunks."""
        if len(shape) != len(chunk_shape):
            raise InvalidRequestError(
                f"chunk shape {tuple(chunk_shape)} has another rank than shape {tuple(shape)}"
            )
        return cls(tuple(map(GridAxis.uniform, shape, chunk_shape)))

    @classmethod
    def from_edges(cls, edges: Iterable[ArrayLike]) -> Self:
        """A grid of chunks of the given lengths along each axis."""
        return cls(tuple(GridAxis.from_edges(lengths) for lengths in edges))

    @classmethod
    def from_json(cls, document: Mapping[str, Any], shape: Sequence[int]) -> Self:
        """Read the ``chunk_grid`` of a ``zarr.json``.

        Raises
        ------
        InvalidRequestError
            For an unknown grid, or edges that do not fit `shape`.
        """
        name = document.get("name")
        configuration = document.get("configuration", {})
        if name == "regular":
            lengths = configuration["chunk_shape"]
            if not all(type(length) is int for length in lengths):
                raise InvalidRequestError(f"chunk lengths must be integers, got {lengths!r:.80}")
            return cls.regular(shape, lengths)
        if name == "rectilinear":
            kind = configuration.get("kind")
            if kind != "inline":
                raise InvalidRequestError(f"rectilinear grid of unknown kind {kind!r}")
            edges_by_axis = configuration["chunk_shapes"]
        elif name == "rectangular":
            edges_by_axis = configuration["chunk_shape"]
        else:
            raise InvalidRequestError(f"unknown chunk grid {name!r}")
        if len(edges_by_axis) != len(shape):
            raise InvalidRequestError(
                f"chunk grid of rank {len(edges_by_axis)} for an array of rank {len(shape)}"
            )
        grid = cls(tuple(map(GridAxis.from_json, edges_by_axis, shape)))
        if name == "rectangular":
            for axis, edges in zip(grid.axes, edges_by_axis, strict=True):
                if not isinstance(edges, int) and not axis.is_exact:
                    raise InvalidRequestError("edges of a rectangular grid must sum to the extent")
        return grid

    def to_json(self) -> dict[str, Any]:
        """The ``chunk_grid`` of a ``zarr.json``: ``regular`` if possible, else ``rectilinear``."""
        if self.is_regular:
            return {
                "name": "regular",
                "configuration": {"chunk_shape": [axis.uniform_length for axis in self.axes]},
            }
        # icechunk 2.3 does not parse a bare integer beside lists; one run means the same.
        shapes = [
            [[axis.uniform_length, axis.n_chunks]]
            if axis.is_uniform and axis.n_chunks
            else axis.to_json()
            for axis in self.axes
        ]
        return {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": shapes}}

    @property
    def ndim(self) -> int:
        return len(self.axes)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return tuple([axis.extent for axis in self.axes])  # a generator takes twice as long

    @cached_property
    def grid_shape(self) -> tuple[int, ...]:
        """Number of chunks along each axis."""
        return tuple(axis.n_chunks for axis in self.axes)

    @cached_property
    def n_chunks(self) -> int:
        """Number of chunks in all; a scalar has one."""
        return math.prod(self.grid_shape)

    @property
    def is_regular(self) -> bool:
        """Whether the ``regular`` grid can express it."""
        return all(axis.is_uniform for axis in self.axes)

    def start(self, coords: Sequence[int]) -> tuple[int, ...]:
        """First element of a chunk."""
        return tuple([axis.span(k)[0] for axis, k in zip(self.axes, coords, strict=True)])

    def chunk_shape(self, coords: Sequence[int]) -> tuple[int, ...]:
        """The shape that the codecs of a chunk work on."""
        return tuple(int(axis.chunk_lengths(k)) for axis, k in zip(self.axes, coords, strict=True))

    def data_shape(self, coords: Sequence[int]) -> tuple[int, ...]:
        """Shape of the part of a chunk inside the array."""
        return tuple([axis.span(k)[1] for axis, k in zip(self.axes, coords, strict=True)])


def chunk_counts(shape: Sequence[int], chunk_shape: Sequence[int]) -> tuple[int, ...]:
    """Number of chunks of equal shape along each axis; the last ones may overhang."""
    return tuple([-(-extent // n) for extent, n in zip(shape, chunk_shape, strict=True)])


def region_of(start: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    """The elements of a box, by a slice along each axis."""
    return tuple(slice(low, low + n) for low, n in zip(start, shape, strict=True))


def joined_ranges(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Half-open ranges in ascending order, those that touch or overlap as one."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return tuple(joined)


def chunk_runs(shape: Sequence[int], chunk_shape: Sequence[int]) -> tuple[Int64Array, Int64Array]:
    """First element (in C order) and number of elements of each chunk, in C order of the chunks."""
    start = np.zeros(1, np.int64)
    count = np.ones(1, np.int64)
    for axis, (extent, length) in enumerate(zip(shape, chunk_shape, strict=True)):
        starts = np.arange(0, extent, length, dtype=np.int64)
        counts = np.minimum(length, extent - starts)
        start = (start[:, np.newaxis] + starts * math.prod(shape[axis + 1 :])).reshape(-1)
        count = (count[:, np.newaxis] * counts).reshape(-1)
    return start, count
