"""Which stored chunks are compared with what their files hold, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import UnsupportedFeatureError
from gridref.model.array import MISSING_BLOCK, VirtualArray
from gridref.model.encoding import Encoding
from gridref.model.manifest import ChunkState, Source
from gridref.serve.plan import CrossProduct, PieceBatch

__all__ = ["Choice", "Piece", "Share", "axis_order", "choose", "shares_of", "source_of"]

N_RANDOM = 16
"""Stored chunks taken at random from each array, beside its corners."""


def choose(cross: CrossProduct, everything: bool, random: np.random.Generator) -> NDArray[np.int64]:
    """Numbers of the pieces that are compared: all, or corners, edges and some at random."""
    counts = tuple(len(axis.pieces) for axis in cross.axes)
    if everything or cross.n_pieces <= N_RANDOM:
        return np.arange(cross.n_pieces)
    ends = [sorted({0, n - 1}) for n in counts]
    corners = np.ravel_multi_index(
        np.stack(np.meshgrid(*ends, indexing="ij"), axis=-1).reshape(-1, len(counts)).T, counts
    )
    edges = [_along(counts, axis, random) for axis in range(len(counts))]
    sample = random.integers(0, cross.n_pieces, N_RANDOM)
    return np.unique(np.concatenate([corners, *edges, sample]))


def _along(counts: tuple[int, ...], axis: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Some chunks at the far end of an axis, where stored chunks overhang."""
    coords = [random.integers(0, n, 4) for n in counts]
    coords[axis][:] = counts[axis] - 1
    return np.asarray(np.ravel_multi_index(coords, counts))


@dataclass(frozen=True, eq=False)
class Choice:
    """Pieces of one array that are compared, in the order of their stored chunks."""

    path: str
    cross: CrossProduct
    batch: PieceBatch

    @classmethod
    def of(cls, path: str, cross: CrossProduct, numbers: NDArray[np.int64]) -> Choice:
        """The pieces of these numbers."""
        batch = cross.resolve(numbers)
        order = np.lexsort((batch.row, batch.manifest))
        return cls(path, cross, cross.resolve(numbers[order]))

    @cached_property
    def _rows(self) -> NDArray[np.int64]:
        """Manifest and row of every stored chunk."""
        there = self.batch.encoding != MISSING_BLOCK
        pairs = np.stack([self.batch.manifest[there], self.batch.row[there]], axis=1)
        return np.unique(pairs, axis=0)

    @property
    def n_chunks(self) -> int:
        """Number of stored chunks."""
        return len(self._rows)

    @property
    def stored_bytes(self) -> int:
        """Sum of the stored sizes of the chunks."""
        manifests = self.cross.array.manifests
        return sum(
            manifests[number].take(self._rows[self._rows[:, 0] == number, 1]).stored_bytes
            for number in np.unique(self._rows[:, 0]).tolist()
        )

    def members_by_url(self) -> dict[str | None, list[int]]:
        """The numbers of the pieces that each file holds; None for what no file holds."""
        found: dict[str | None, list[int]] = {}
        for member, url in enumerate(self._urls()):
            found.setdefault(url, []).append(member)
        return found

    def _urls(self) -> list[str | None]:
        """The file behind each piece, as `source_of` says it."""
        urls: list[str | None] = [None] * len(self.batch)
        by_block = cache(partial(source_of, self.cross.array))
        present = np.flatnonzero(self.batch.encoding != MISSING_BLOCK)
        ends = np.flatnonzero(np.diff(self.batch.manifest[present])) + 1
        for members in np.split(present, ends) if present.size else ():
            manifest = self.cross.array.manifests[int(self.batch.manifest[members[0]])]
            chunks = manifest.take(self.batch.row[members])
            known = [source.url for source in chunks.sources]
            for at, member in enumerate(members.tolist()):
                if chunks.state[at] == ChunkState.RANGE:
                    urls[member] = known[int(chunks.source[at])]
                else:
                    source, _ = by_block(int(self.batch.block[member]), int(self.batch.row[member]))
                    urls[member] = None if source is None else source.url
        return urls


@dataclass(frozen=True, eq=False)
class Share:
    """All that is compared with one file.

    Attributes
    ----------
    url
        The file; None for what no file holds.
    parts
        Choices, and the numbers of their pieces that the file holds.
    """

    url: str | None
    parts: list[tuple[Choice, list[int]]] = field(default_factory=list)

    def pieces(self) -> Iterator[Piece]:
        """The pieces; those of one stored chunk come one after the other and share its values."""
        for choice, members in self.parts:
            shared: dict[tuple[int, int, int], NDArray[Any]] = {}
            for member in members:
                yield Piece(choice.path, choice.cross, choice.batch, member, shared)


def shares_of(chosen: Sequence[Choice]) -> list[Share]:
    """The pieces of all choices file by file, so that each file is opened once."""
    shares: dict[str | None, Share] = {}
    for choice in chosen:
        for url, members in choice.members_by_url().items():
            shares.setdefault(url, Share(url)).parts.append((choice, members))
    return list(shares.values())


@dataclass(frozen=True, eq=False)
class Piece:
    """Elements that one stored chunk gives to an array.

    Attributes
    ----------
    shared
        Values of the last chunk as the original reader returns them.
    """

    path: str
    cross: CrossProduct
    batch: PieceBatch
    member: int
    shared: dict[tuple[int, int, int], NDArray[Any]]

    @property
    def key(self) -> tuple[int, int, int]:
        """A key that pieces share only if they are of one stored chunk."""
        at, batch = self.member, self.batch
        return int(batch.manifest[at]), int(batch.row[at]), int(batch.encoding[at])

    @property
    def encoding(self) -> Encoding:
        """Encoding of the chunk."""
        return self.cross.array.encodings[int(self.batch.encoding[self.member])]

    def chunk_region(self) -> tuple[tuple[slice, ...], tuple[int, ...]]:
        """The elements of the chunk, and the shape of the stored array, in the file's order."""
        array, block = self.cross.array, int(self.batch.block[self.member])
        shape = array.blocks.stored_shape[block].tolist()
        region = [
            slice(at * length, min((at + 1) * length, extent))
            for at, length, extent in zip(
                self.batch.chunk[self.member].tolist(),
                self.encoding.chunk_shape,
                shape,
                strict=True,
            )
        ]
        order = axis_order(self.encoding)
        return tuple(region[axis] for axis in order), tuple(shape[axis] for axis in order)


def axis_order(encoding: Encoding) -> Sequence[int]:
    """For each axis of the file, its position among the axes of the array."""
    head = encoding.codecs[0]
    if head.name in ("reshape", "gridref.select"):
        raise UnsupportedFeatureError("its axes were added or dropped after scanning")
    order: Sequence[int] = range(len(encoding.chunk_shape))
    return head.configuration["order"] if head.name == "transpose" else order


def source_of(array: VirtualArray, block: int, row: int) -> tuple[Source | None, int | None]:
    """The file behind a chunk, and the place in it.

    If it is missing or inline, the file of its block's other chunks, where that is one, and no
    place.
    """
    manifest = array.manifests[int(array.blocks.manifest[block])]
    chunk = manifest.take(np.array([row], np.int64))
    if chunk.state[0] == ChunkState.RANGE:
        return chunk.sources[int(chunk.source[0])], int(chunk.offset[0])
    n_chunks = -(-array.blocks.stored_shape[block] // array.stored_chunk_shapes[block])
    first = int(array.blocks.first_row[block])
    last = int(array.blocks.manifest_row(block, np.maximum(n_chunks - 1, 0)))
    rows = manifest.take(np.arange(first, last + 1))
    used = np.unique(rows.source[rows.state == ChunkState.RANGE])
    if len(used) == 1:
        return rows.sources[int(used[0])], None
    return (rows.sources[0] if len(rows.sources) == 1 else None), None
