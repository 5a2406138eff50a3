"""Compare what gridref returns with what the original readers return."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.catalog import check_catalog
from gridref.codecs import unpack
from gridref.errors import Place, UnsupportedFeatureError
from gridref.io import Allow, real_path
from gridref.model.array import MISSING_BLOCK, VirtualArray, VirtualGroup
from gridref.model.display import html_of
from gridref.model.encoding import Encoding
from gridref.model.manifest import ChunkState, Source
from gridref.options import verb
from gridref.serve.plan import CrossProduct, PieceBatch, plan_read
from gridref.serve.reader import Reader
from gridref.workflows.opening import open_group, reader_for
from gridref.workflows.originals import Originals

__all__ = ["Difference", "Verification", "verify"]

N_RANDOM = 16
"""Stored chunks taken at random from each array, beside its corners."""


@dataclass(frozen=True)
class Difference:
    """A chunk that gridref reads otherwise than the original reader."""

    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.message} [{self.place}]"


@dataclass(frozen=True)
class Verification:
    """The outcome of a comparison.

    Attributes
    ----------
    n_arrays, n_chunks, n_values
        How much was compared.
    differences
        Every chunk that differs.
    not_compared
        (path, reason) of what the original readers have no counterpart of.
    """

    n_arrays: int = 0
    n_chunks: int = 0
    n_values: int = 0
    differences: tuple[Difference, ...] = ()
    not_compared: tuple[tuple[str, str], ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return not self.differences

    def _repr_html_(self) -> str | None:
        return html_of(self)


@dataclass
class _Tally:
    n_chunks: int = 0
    n_values: int = 0
    arrays: set[str] = field(default_factory=set)
    differences: list[Difference] = field(default_factory=list)
    not_compared: dict[tuple[str, str], None] = field(default_factory=dict)


@verb(renamed={"source": "catalog"})
def verify(
    catalog: str | os.PathLike[str] | VirtualGroup,
    *,
    everything: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    allow: Allow = None,
    snapshot: str | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    announce: Callable[[int, int], None] | None = None,
) -> Verification:
    """Compare chunks of every array with what h5py or tifffile returns for them.

    A catalog's own files are compared with the hashes that it states first. Each stored chunk is
    read once by gridref and once by the original reader, however often it is shown.

    Parameters
    ----------
    catalog
        Address of a catalog, or a group.
    everything
        Compare every stored chunk; otherwise the corners and a random sample of each array.
    storage_options
        Options of fsspec's filesystem of the catalog and of its sources, or of several by protocol:
        ``{"s3": {"anon": True}, "https": {...}}``.
    allow, snapshot
        As for `gridref.open_catalog`.
    seed
        Seed of the sample.
    progress
        Called with the number of chunks compared, and of all to compare.
    announce
        Called before anything is read, with the number of stored chunks to compare and of their
        bytes.

    Raises
    ------
    ReadError
        Where a chunk cannot be read at all.
    CatalogCorruptError
        If a file of the catalog is not as it was written.
    """
    if not isinstance(catalog, VirtualGroup):
        check_catalog(catalog, storage_options, snapshot)
    group = open_group(catalog, storage_options, allow, snapshot)
    random = np.random.default_rng(seed)
    chosen = [
        _Choice.of(path, cross, _choose(cross, everything, random))
        for path, array in group.all_arrays().items()
        for cross in plan_read(array).crosses
    ]
    total = sum(len(choice.batch) for choice in chosen)
    if announce is not None:
        announce(sum(choice.n_chunks for choice in chosen), sum(c.stored_bytes for c in chosen))
    tally = _Tally()
    reader = reader_for(storage_options)
    originals = Originals(storage_options)
    try:
        done = 0
        for choice in chosen:
            for piece in choice.pieces():
                _compare(piece, reader, originals, tally)
                done += 1
                if progress is not None:
                    progress(done, total)
    finally:
        originals.close()
    return Verification(
        len(tally.arrays),
        tally.n_chunks,
        tally.n_values,
        tuple(tally.differences),
        tuple(tally.not_compared),
    )


def _choose(
    cross: CrossProduct, everything: bool, random: np.random.Generator
) -> NDArray[np.int64]:
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
class _Choice:
    """Pieces of one array that are compared, in the order of their stored chunks."""

    path: str
    cross: CrossProduct
    batch: PieceBatch

    @classmethod
    def of(cls, path: str, cross: CrossProduct, numbers: NDArray[np.int64]) -> _Choice:
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

    def pieces(self) -> Iterator[_Piece]:
        """The pieces, each with the original's values of its chunk, which neighbours share."""
        shared: dict[tuple[int, int, int], NDArray[Any]] = {}
        for member in range(len(self.batch)):
            yield _Piece(self.path, self.cross, self.batch, member, shared)


@dataclass(frozen=True, eq=False)
class _Piece:
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
        order = _axis_order(self.encoding)
        return tuple(region[axis] for axis in order), tuple(shape[axis] for axis in order)


def _axis_order(encoding: Encoding) -> Sequence[int]:
    """For each axis of the file, its position among the axes of the array."""
    head = encoding.codecs[0]
    if head.name in ("reshape", "gridref.select"):
        raise UnsupportedFeatureError("its axes were added or dropped after scanning")
    order: Sequence[int] = range(len(encoding.chunk_shape))
    return head.configuration["order"] if head.name == "transpose" else order


def _compare(piece: _Piece, reader: Reader, originals: Originals, tally: _Tally) -> None:
    array, batch, member = piece.cross.array, piece.batch, piece.member
    if batch.encoding[member] == MISSING_BLOCK:
        return
    source, offset = _source_of(array, int(batch.block[member]), int(batch.row[member]))
    url = None if source is None else source.url
    place = Place(source=url, variable=piece.path, chunk=tuple(batch.chunk[member].tolist()))
    try:
        if source is None:
            raise UnsupportedFeatureError("its values are inline and name no file")
        if source.policy is not None:
            source.policy.require(real_path(source.url))
        expected = _original(originals, source.url, offset, piece)
    except UnsupportedFeatureError as error:
        tally.not_compared[piece.path, error.reason] = None
        return
    got = reader.read(array, piece.cross.in_output(batch.piece[member]), name=piece.path)
    tally.arrays.add(piece.path)
    tally.n_chunks += 1
    tally.n_values += got.size
    message = _difference(got, expected)
    if message:
        tally.differences.append(Difference(place, message))


def _original(originals: Originals, url: str, offset: int | None, piece: _Piece) -> NDArray[Any]:
    """What the array should hold, worked out from the original reader's values."""
    array, encoding = piece.cross.array, piece.encoding
    if piece.key not in piece.shared:
        region, shape = piece.chunk_region()
        whole = originals.read(url, piece.path, array, region, shape, offset)
        piece.shared.clear()
        piece.shared[piece.key] = whole.transpose(np.argsort(_axis_order(encoding)))
    chosen: Any = (*piece.cross.in_chunk(piece.batch.piece[piece.member]), ...)
    values: NDArray[Any] = piece.shared[piece.key][chosen]
    if encoding.unpacking is not None:
        values = unpack(values, encoding.unpacking)
    if array.dtype.kind == "T":
        return _strings(values)
    return values.astype(array.dtype, copy=False)


def _source_of(array: VirtualArray, block: int, row: int) -> tuple[Source | None, int | None]:
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


def _strings(values: NDArray[Any]) -> NDArray[Any]:
    texts = [
        value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
        for value in values.reshape(-1).tolist()
    ]
    return np.array(texts, dtype=np.dtypes.StringDType()).reshape(values.shape)


def _difference(got: NDArray[Any], expected: NDArray[Any]) -> str:
    """How two arrays differ, bit for bit; empty if they do not."""
    if got.shape != expected.shape:
        return f"shape {got.shape} instead of {expected.shape}"
    n_different = int(_differs(got, expected).sum())
    return f"{n_different} of {got.size} values differ" if n_different else ""


def _differs(got: NDArray[Any], expected: NDArray[Any]) -> NDArray[np.bool_]:
    """Which elements differ, flattened; bytes between the members of a compound do not count."""
    if got.dtype.kind == "T":
        return np.asarray(got != expected).reshape(-1)
    result = np.zeros(got.size, bool)
    if not got.size or not got.dtype.itemsize:
        return result
    if got.dtype.names is not None:
        for name in got.dtype.names:
            result |= _differs(got[name], expected[name]).reshape(got.size, -1).any(axis=1)
        return result
    left, right = (
        np.ascontiguousarray(values).reshape(-1).view(np.uint8) for values in (got, expected)
    )
    return np.asarray((left != right).reshape(got.size, -1).any(axis=1))
