"""Writing a part: the rows of some arrays, as three tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gridref.catalog.checksum_rows import ChecksumRows, write_checksums
from gridref.catalog.chunk_rows import ChunkBatch, SourceIndex, chunk_batches
from gridref.catalog.content import ContentDigest
from gridref.catalog.entries import ArrayRows, ChunkCounts, PartEntry, TableEntry
from gridref.catalog.layout import RowLayout, layout_rows
from gridref.catalog.prefixes import split
from gridref.catalog.relative import relative_url
from gridref.catalog.snapshot import SourceUrls
from gridref.catalog.statistics import ChunkStatistics, HasStatistics, write_statistics
from gridref.catalog.storage import TablePlace
from gridref.catalog.tables import (
    BLOCK_SCHEMA,
    CHUNK_SCHEMA,
    SOURCE_SCHEMA,
    TableWriter,
    blocks_table,
    sources_table,
)
from gridref.catalog.trust import remember
from gridref.errors import GridrefError, Place
from gridref.model.array import VirtualArray
from gridref.model.manifest import IDENTITIES, ChunkState, Identity, Source
from gridref.secrets import without_signature

__all__ = [
    "PART_FILE",
    "WrittenPart",
    "part_files",
    "recounted",
    "write_part",
]


@dataclass(frozen=True)
class WrittenPart:
    """A part that was written.

    Attributes
    ----------
    entry
        Its tables.
    rows
        The rows of each array.
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
    """Write the rows of arrays, and remove what was written where that fails.

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
    with _removed_on_failure(folder, names):
        rows = _Rows(folder, described, list(arrays), source_urls, keep_secrets)
        checksums = ChecksumRows(rows.index)
        with _table(folder, names[0], CHUNK_SCHEMA) as chunks:
            for batch in chunk_batches(described, rows.index):
                chunks.write(batch.to_arrow(rows.names))
                rows.add(batch)
                checksums.add(batch)
        found = rows.finished()
        with _table(folder, names[1], BLOCK_SCHEMA) as blocks:
            _write_blocks(blocks, arrays, layouts)
            blocks.index = json.dumps({path: each.to_json() for path, each in found.items()})
        after, numbers, rest = split(rows.urls, prefixes)
        with _table(folder, names[2], SOURCE_SCHEMA) as sources:
            sources.write(sources_table(rows.index.sources, numbers, rest))
        known, unchecked = checksums.found()
        checked = write_checksums(folder, names[3], known, unchecked) if known else None
        values = _known_values(described) if keep_statistics else None
        statistics = None if values is None else write_statistics(folder, names[4], values)
    remember(rows.index.sources, rows.urls)
    tables = (sources.finished(), blocks.finished(), chunks.finished())
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


@contextmanager
def _removed_on_failure(folder: TablePlace, names: Sequence[str]) -> Iterator[None]:
    """Remove the tables of an attempt that fails."""
    try:
        yield
    except BaseException:
        for name in names:
            folder.remove(name)
        raise


class _Table:
    """A table that is being written, and what became of it."""

    def __init__(self, folder: TablePlace, name: str, schema: pa.Schema) -> None:
        self.index = ""
        self._name = name
        self._writer = TableWriter(folder.create(name), schema)
        self._entry: TableEntry | None = None

    def write(self, rows: pa.Table) -> None:
        self._writer.write(rows)

    def finish(self) -> None:
        self._entry = self._writer.finish(self._name, self.index)

    def abandon(self) -> None:
        self._writer.abandon()

    def finished(self) -> TableEntry:
        assert self._entry is not None
        return self._entry


@contextmanager
def _table(folder: TablePlace, name: str, schema: pa.Schema) -> Iterator[_Table]:
    """A table to write, which is complete afterwards."""
    table = _Table(folder, name, schema)
    try:
        yield table
    except BaseException:
        table.abandon()
        raise
    table.finish()


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


def _write_blocks(
    writer: _Table, arrays: Mapping[str, VirtualArray], layouts: list[RowLayout]
) -> None:
    parts = [
        blocks_table(path, array.blocks, layout.first_row)
        for (path, array), layout in zip(arrays.items(), layouts, strict=True)
    ]
    if parts:
        writer.write(pa.concat_tables(parts).unify_dictionaries())
