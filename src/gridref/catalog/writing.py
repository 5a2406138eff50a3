"""Write a part: the rows of some arrays as tables, and the hash of their content.

Equal content has an equal digest, however the catalog has grown. So rows are hashed one by one and
the hashes are composed: the hash of a sequence ``h`` is ``sum(h[i] * BASE**i)`` modulo 2**64, in
two lanes. The hash of two sequences, one after the other, follows from the hashes of both
(`joined`), and that of any stretch from running sums. The hash finds accidental differences. It is
not made to withstand somebody who constructs two contents with one hash.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.catalog.checksums import ChecksumRows, write_checksums
from gridref.catalog.chunk_rows import (
    ChunkBatch,
    RowLayout,
    SourceIndex,
    chunk_batches,
    layout_rows,
)
from gridref.catalog.document import SourceUrls
from gridref.catalog.entries import ArrayRows, ChunkCounts, PartEntry
from gridref.catalog.folder import TablePlace
from gridref.catalog.sources import relative_url, remember, split
from gridref.catalog.statistics import ChunkStatistics, HasStatistics, write_statistics
from gridref.catalog.tables import (
    BLOCK_SCHEMA,
    CHUNK_SCHEMA,
    SOURCE_SCHEMA,
    TableWriter,
    blocks_table,
    sources_table,
)
from gridref.catalog.values import encoding_to_json
from gridref.errors import GridrefError, Place
from gridref.model.array import VirtualArray
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.encoding import Encoding
from gridref.model.manifest import IDENTITIES, ChunkState, Identity, Source
from gridref.secrets import without_signature

# The hash of an array's rows, whatever tables they are in. Pure

Lanes = NDArray[np.uint64]
"""uint64 (2, n): two independent hashes of n things."""

_BASES = (0x9E3779B97F4A7C15 | 5, 0xC2B2AE3D27D4EB4F & ~7 | 5)
_INVERSES = tuple(pow(base, -1, 2**64) for base in _BASES)
_SEEDS = np.array([[0x243F6A8885A308D3], [0x13198A2E03707344]], np.uint64)
_K1, _K2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_MASK = 2**64 - 1


@dataclass(frozen=True)
class Hash:
    """The hash of a sequence of `n` things."""

    lanes: tuple[int, int]
    n: int

    def __str__(self) -> str:
        return "".join(f"{lane:016x}" for lane in self.lanes)

    @classmethod
    def parse(cls, text: str, n: int) -> Hash:
        """The hash that was written as text."""
        return cls((int(text[:16], 16), int(text[16:], 16)), n)


def joined(hashes: Sequence[Hash]) -> Hash:
    """The hash of sequences laid one after the other."""
    lanes = [0, 0]
    n = 0
    for each in hashes:
        for lane, base in enumerate(_BASES):
            lanes[lane] = (lanes[lane] + each.lanes[lane] * pow(base, n, 2**64)) & _MASK
        n += each.n
    return Hash((lanes[0], lanes[1]), n)


def _hash_of(rows: Lanes) -> Hash:
    """The hash of the sequence of all of `rows`."""
    n = rows.shape[1]
    lanes = [int((rows[lane] * _powers(_BASES[lane], 0, n)).sum()) for lane in range(2)]
    return Hash((lanes[0], lanes[1]), n)


def _mixed(seed: Lanes, *columns: NDArray[np.integer]) -> Lanes:
    """Hashes of rows: `seed` (2, n or 1) mixed with one integer column after the other.

    The mixing function is that of splitmix64 (Steele, Lea, Flood 2014).
    """
    state: Lanes = seed ^ _SEEDS
    for column in columns:
        state = state + (column.astype(np.int64).view(np.uint64) + np.uint64(1)) * _K1
        state = (state ^ (state >> np.uint64(30))) * _K1
        state = (state ^ (state >> np.uint64(27))) * _K2
        state = state ^ (state >> np.uint64(31))
    return state


def _hashes_of_text(texts: Sequence[str]) -> Lanes:
    """Hashes of texts, one by one."""
    raw = b"".join(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        for text in texts
    )
    return np.frombuffer(raw, "<u8").reshape(-1, 2).T.astype(np.uint64)


_MISSING = _mixed(np.zeros((2, 1), np.uint64), np.zeros(1, np.int64))
"""The hash of a block that no file holds."""


class ContentDigest:
    """Hashes the blocks and chunk rows of arrays while the rows are written."""

    def __init__(self, arrays: Sequence[tuple[VirtualArray, RowLayout]]) -> None:
        self._arrays = [array for array, _ in arrays]
        self._starts, self._running = [], []
        for array, layout in arrays:
            present = array.blocks.encoding != MISSING_BLOCK
            shift = layout.first_row - array.blocks.first_row
            start, stop = (np.where(present, bound + shift, 0) for bound in layout.touched)
            self._starts.append(layout.first_row - start)
            self._running.append(_RunningHash(start, stop))
        self._sources = np.zeros((2, 0), np.uint64)

    def add_sources(self, sources: Sequence[Source], urls: Sequence[str]) -> None:
        """More sources that rows count into, with their addresses as they are stored."""
        texts = [
            repr((url, source.size_bytes, source.mtime_ns, source.etag, source.checksum))
            for source, url in zip(sources, urls, strict=True)
        ]
        self._sources = np.concatenate([self._sources, _hashes_of_text(texts)], axis=1)

    def add(self, batch: ChunkBatch) -> None:
        """The next rows."""
        rows = self._rows(batch)
        heads = np.flatnonzero(np.concatenate([[True], batch.array[1:] != batch.array[:-1]]))
        tails = [*heads[1:].tolist(), len(batch)]
        for start, stop in zip(heads.tolist(), tails, strict=True):
            self._running[int(batch.array[start])].add(rows[:, start:stop])

    def _rows(self, batch: ChunkBatch) -> Lanes:
        seed = np.zeros((2, len(batch)), np.uint64)
        ranges = np.flatnonzero(batch.state == ChunkState.RANGE)
        seed[:, ranges] = self._sources[:, batch.source[ranges]]
        inline = np.flatnonzero(batch.state == ChunkState.INLINE)
        if inline.size:
            stops = np.cumsum(batch.length[inline])
            content = _RunningHash(stops - batch.length[inline], stops)
            content.add(
                np.broadcast_to(
                    batch.inline.astype(np.uint64) + np.uint64(1), (2, batch.inline.size)
                )
            )
            seed[:, inline] = content.stretches()
        masks = batch.filter_mask.astype(np.int64)
        return _mixed(seed, batch.offset, batch.length, batch.state.astype(np.int64), masks)

    def finished(self) -> list[Hash]:
        """The hash of each array."""
        return [
            _hash_of(_block_hashes(*each))
            for each in zip(self._arrays, self._starts, self._running, strict=True)
        ]


def _block_hashes(array: VirtualArray, first: NDArray[np.int64], running: _RunningHash) -> Lanes:
    """uint64 (2, n_blocks): what turns into elements how, whatever rows it is kept in."""
    blocks = array.blocks
    present = blocks.encoding != MISSING_BLOCK
    lanes = np.concatenate([*map(_encoding_lanes, array.encodings), _MISSING], axis=1)
    seed = lanes[:, blocks.encoding] * _K2 + running.stretches()
    numbers = (blocks.row_stride, blocks.stored_shape, blocks.origin, blocks.step)
    columns = [column[:, axis] for column in numbers for axis in range(array.ndim)]
    return np.where(present, _mixed(seed, first, *columns), _MISSING)


@lru_cache(maxsize=4096)
def _encoding_lanes(encoding: Encoding) -> Lanes:
    return _hashes_of_text([json.dumps(encoding_to_json(encoding))])


class _RunningHash:
    """Hashes of stretches of a sequence that comes piece by piece.

    Parameters
    ----------
    starts, stops
        int64 (n,), half-open stretches of the sequence.
    """

    def __init__(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
        self._starts = starts
        self._bounds, where = np.unique(np.concatenate([starts, stops]), return_inverse=True)
        self._of_start, self._of_stop = np.split(where.reshape(-1), 2)
        self._sums = np.zeros((2, self._bounds.size), np.uint64)
        self._total = np.zeros((2, 1), np.uint64)
        self._n = 0

    def add(self, rows: Lanes) -> None:
        """The next piece of the sequence: its hashes, uint64 (2, n)."""
        n = rows.shape[1]
        powers = np.stack([_powers(base, self._n, n) for base in _BASES])
        sums = np.concatenate([np.zeros((2, 1), np.uint64), np.cumsum(rows * powers, axis=1)], 1)
        sums = sums + self._total
        first, last = np.searchsorted(self._bounds, [self._n, self._n + n], side="left")
        last += int(last < self._bounds.size and self._bounds[last] == self._n + n)
        self._sums[:, first:last] = sums[:, self._bounds[first:last] - self._n]
        self._total = sums[:, -1:]
        self._n += n

    def stretches(self) -> Lanes:
        """uint64 (2, n), the hash of each stretch as a sequence of its own."""
        sums = self._sums[:, self._of_stop] - self._sums[:, self._of_start]
        back = np.stack([_power_of_each(inverse, self._starts) for inverse in _INVERSES])
        return sums * back


def _powers(base: int, first: int, n: int) -> NDArray[np.uint64]:
    """``base ** (first + i)`` for i < n."""
    factors = np.full(n, base, np.uint64)
    if n:
        factors[0] = pow(base, first, 2**64)
    return np.multiply.accumulate(factors)


def _power_of_each(base: int, exponents: NDArray[np.int64]) -> NDArray[np.uint64]:
    """``base ** exponent`` for each of some exponents."""
    result = np.ones(exponents.size, np.uint64)
    rest = exponents.copy()
    while rest.any():
        result = np.where(rest & 1, result * np.uint64(base), result)
        rest >>= 1
        base = base * base & _MASK
    return result


# Writing the three tables of a part


@dataclass(frozen=True)
class WrittenPart:
    """A part that was written.

    Attributes
    ----------
    entry
        Its tables.
    prefixes
        The beginnings of addresses then known.
    identity
        What makes each source the file that was scanned: the strictest of all.
    """

    entry: PartEntry
    rows: Mapping[str, ArrayRows]
    prefixes: tuple[str, ...]
    identity: Identity


def part_files(commit: str) -> tuple[str, ...]:
    """The files that the part of a commit may have: chunks, blocks, sources, checksums and more."""
    return tuple(f"{table}-{commit}.parquet" for table in _TABLES)


_TABLES = ("chunks", "blocks", "sources", "checksums", "statistics")
PART_FILE = re.compile(rf"(?:{'|'.join(_TABLES)})-([0-9a-f]{{16}})(?:c|-\d+)?\.parquet$")
"""Names of such files, with the id of their commit."""


def write_part(
    folder: TablePlace,
    commit: str,
    arrays: Mapping[str, VirtualArray],
    source_urls: SourceUrls = "absolute",
    prefixes: Sequence[str] = (),
    *,
    keep_secrets: bool = False,
    keep_statistics: bool = False,
) -> WrittenPart:
    """Write the rows of arrays.

    Parameters
    ----------
    commit
        Id of the commit, for the names of the files.
    arrays
        By path. Blocks of encoding ``n`` mean entry ``n`` of the array's encodings.
    source_urls
        Whether addresses are stored relative to the folder where possible.
    prefixes
        Beginnings of addresses that are known already.
    keep_secrets
        Whether credentials and signatures in addresses are kept.
    keep_statistics
        Whether what is known of the values of chunks is: they have to be shown as before.
    """
    layouts = _layouts(arrays)
    described = list(zip(arrays.values(), layouts, strict=True))
    names = part_files(commit)
    rows = _Rows(folder, described, list(arrays), source_urls, keep_secrets)
    checksums = ChecksumRows(rows.index)
    with TableWriter(folder, names[0], CHUNK_SCHEMA) as chunks:
        for batch in chunk_batches(described, rows.index):
            chunks.write(batch.to_arrow(rows.names))
            rows.add(batch)
            checksums.add(batch)
    found = rows.finished()
    with TableWriter(folder, names[1], BLOCK_SCHEMA) as blocks:
        if arrays:
            rows_of = {path: array.blocks for path, array in arrays.items()}
            blocks.write(blocks_table(rows_of, [layout.first_row for layout in layouts]))
        blocks.index = json.dumps({path: each.to_json() for path, each in found.items()})
    after, numbers, rest = split(rows.urls, prefixes)
    with TableWriter(folder, names[2], SOURCE_SCHEMA) as sources:
        sources.write(sources_table(rows.index.sources, numbers, rest))
    known, unchecked = checksums.found()
    checked = write_checksums(folder, names[3], known, unchecked) if known else None
    values = _known_values(described) if keep_statistics else None
    statistics = None if values is None else write_statistics(folder, names[4], values)
    remember(rows.index.sources, rows.urls)
    tables = (sources.entry, blocks.entry, chunks.entry)
    identities = {source.told_by for source in rows.index.sources} or {"strict"}
    strictest = next(each for each in IDENTITIES if each in identities)
    entry = PartEntry(*tables, checksums=checked, statistics=statistics)
    return WrittenPart(entry, found, after, strictest)


def _known_values(described: Sequence[tuple[VirtualArray, RowLayout]]) -> ChunkStatistics | None:
    """Statistics of the rows in the order in which they are written; None if none are known."""
    taken = []
    for array, layout in described:
        runs = zip(layout.manifest.tolist(), layout.start, layout.stop, strict=True)
        for number, start, stop in runs:
            manifest, rows = array.manifests[number], np.arange(start, stop)
            has = isinstance(manifest, HasStatistics)
            taken.append(manifest.statistics(rows) if has else ChunkStatistics.unknown(len(rows)))
    found = ChunkStatistics.joined(taken)
    return found if found.is_known.any() else None


def recounted(
    folder: TablePlace, arrays: Mapping[str, VirtualArray], source_urls: SourceUrls
) -> Mapping[str, ArrayRows]:
    """What `write_part` would say of the rows of arrays; nothing is written."""
    described = list(zip(arrays.values(), _layouts(arrays), strict=True))
    rows = _Rows(folder, described, list(arrays), source_urls, keep_secrets=True)  # as they stand
    for batch in chunk_batches(described, rows.index):
        rows.add(batch)
    return rows.finished()


class _Rows:
    """What is counted and hashed of chunk rows while they are written."""

    def __init__(
        self,
        folder: TablePlace,
        arrays: list[tuple[VirtualArray, RowLayout]],
        names: list[str],
        source_urls: SourceUrls,
        keep_secrets: bool,
    ) -> None:
        self._keeps_secrets = keep_secrets
        self.names = names
        self.index = SourceIndex()
        self.urls: list[str] = []
        self._folder = folder if source_urls == "relative" else None
        self._arrays = arrays
        self._digest = ContentDigest(arrays)
        self._sums = np.zeros((len(arrays), 5), np.int64)

    def add(self, batch: ChunkBatch) -> None:
        """The next rows."""
        new = self.index.sources[len(self.urls) :]
        urls = [self._stored_url(source) for source in new]
        self.urls += urls
        self._digest.add_sources(new, urls)
        self._digest.add(batch)
        _add_counts(self._sums, batch)

    def _stored_url(self, source: Source) -> str:
        url = source.url if self._keeps_secrets else without_signature(source.url)
        return relative_url(url, self._folder.url) if self._folder else url

    def finished(self) -> dict[str, ArrayRows]:
        """The rows of each array."""
        found = {}
        n_blocks = n_chunks = 0
        each = zip(
            self.names, self._arrays, self._sums.tolist(), self._digest.finished(), strict=True
        )
        for name, (array, layout), sums, content in each:
            n_ranges, n_inline, n_missing, n_bytes, masks = sums
            counts = ChunkCounts(n_ranges, n_inline, n_missing, n_bytes, bool(masks))
            grid_shape = array.grid.grid_shape
            found[name] = ArrayRows(
                grid_shape, n_blocks, n_chunks, layout.n_rows, counts, str(content)
            )
            n_blocks += array.n_blocks
            n_chunks += layout.n_rows
        return found


def _layouts(arrays: Mapping[str, VirtualArray]) -> list[RowLayout]:
    layouts = []
    for path, array in arrays.items():
        try:
            layouts.append(layout_rows(array))
        except GridrefError as error:
            raise error.located(Place(variable=path)) from None
    return layouts


def _add_counts(sums: np.ndarray[Any, Any], batch: ChunkBatch) -> None:
    """Rows of one array follow each other, so sums over runs are sums over arrays."""
    heads = np.flatnonzero(np.concatenate([[True], batch.array[1:] != batch.array[:-1]]))
    columns = [
        batch.state == ChunkState.RANGE,
        batch.state == ChunkState.INLINE,
        batch.state == ChunkState.MISSING,
        batch.length,
        batch.filter_mask != 0,
    ]
    for position, column in enumerate(columns):
        sums[batch.array[heads], position] += np.add.reduceat(column.astype(np.int64), heads)
