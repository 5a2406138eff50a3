"""List the stored chunks and sources of arrays as Arrow rows, in batches.

Batches are made while the caller reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gridref.catalog.document import Pending, is_pending
from gridref.catalog.statistics import ChunkStatistics, statistics_of
from gridref.catalog.tables import (
    PER_AXIS,
    ROW_GROUP_ROWS,
    STATISTICS_SCHEMA,
    column_of,
    names_column,
    per_axis_column,
    table_of_rows,
)
from gridref.model.array import VirtualArray
from gridref.model.listing import NO_ROW, ChunkListing, ListedChunks
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from gridref.options import check_names
from gridref.secrets import without_signature

CHUNK_STATES = (*(state.name.lower() for state in ChunkState), "pending")
"""What a chunk can be: those of `ChunkState`, and of a block that is still to come."""
PENDING_STATE = CHUNK_STATES.index("pending")

_WORD = pa.dictionary(pa.int32(), pa.string())
CHUNK_LISTING_SCHEMA = pa.schema(
    [
        pa.field("path", _WORD, nullable=False),
        pa.field("chunk", PER_AXIS, nullable=False),
        pa.field("block", PER_AXIS, nullable=False),
        pa.field("start", PER_AXIS, nullable=False),
        pa.field("stop", PER_AXIS, nullable=False),
        pa.field("state", _WORD, nullable=False),
        pa.field("source", _WORD),
        pa.field("offset", pa.int64()),
        pa.field("length", pa.int64()),
        pa.field("stored_bytes", pa.int64(), nullable=False),
        pa.field("decoded_bytes", pa.int64()),
        *STATISTICS_SCHEMA,
    ]
)
"""Columns of a listing; `gridref.Catalog.chunks` says what they mean."""


def list_chunks(
    arrays: Mapping[str, VirtualArray],
    states: str | Collection[str] | None = None,
    columns: Sequence[str] | None = None,
    pending: Pending | None = None,
) -> pa.RecordBatchReader:
    """The stored chunks of arrays, listed while the caller reads.

    Parameters
    ----------
    states
        Only chunks of this state, or of these.
    columns
        Only these columns, in this order.
    pending
        Elements that were declared ahead: chunks of them that no file holds are pending.

    Raises
    ------
    InvalidRequestError
        For an unknown state or column.
    """
    states = (
        {states} if isinstance(states, str) else set(CHUNK_STATES if states is None else states)
    )
    columns = list(CHUNK_LISTING_SCHEMA.names if columns is None else columns)
    check_names("a chunk", states, CHUNK_STATES, kind="state")
    check_names("a chunk", columns, CHUNK_LISTING_SCHEMA.names, kind="column")
    schema = pa.schema([CHUNK_LISTING_SCHEMA.field(name) for name in columns])
    numbers = np.array([CHUNK_STATES.index(state) for state in states], np.uint8)
    return pa.RecordBatchReader.from_batches(
        schema, _batches(arrays, numbers, schema, pending or {})
    )


def _batches(
    arrays: Mapping[str, VirtualArray],
    states: NDArray[np.uint8],
    schema: pa.Schema,
    pending: Pending,
) -> Iterator[pa.RecordBatch]:
    urls = _Urls()
    for path, array in arrays.items():
        for listed, rows in referenced_chunks(array):
            batch = _Batch(path, array, listed, _with_pending(listed, rows, pending), urls)
            if len(states) < len(CHUNK_STATES):
                batch = batch.take(np.flatnonzero(np.isin(batch.rows.state, states)))
            if len(batch.listed):
                columns = [_COLUMNS[name](batch) for name in schema.names]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _with_pending(listed: ListedChunks, rows: ChunkManifest, pending: Pending) -> ChunkManifest:
    """The references with a state of their own for what is still to come."""
    dims = listed.listing.array.dims
    if not pending.keys() & set(dims):
        return rows
    waits = (listed.row == NO_ROW) & is_pending(dims, listed.bounds[0], pending)
    return replace(rows, state=np.where(waits, PENDING_STATE, rows.state).astype(np.uint8))


@dataclass(frozen=True, eq=False)
class _Batch:
    """Chunks of one array with their references."""

    path: str
    array: VirtualArray
    listed: ListedChunks
    rows: ChunkManifest
    urls: _Urls

    def take(self, rows: NDArray[np.int64]) -> _Batch:
        return replace(self, listed=self.listed.take(rows), rows=self.rows.take(rows))

    def of_ranges(self, column: NDArray[Any], type_: pa.DataType) -> pa.Array:
        """Null but for byte ranges."""
        return column_of(column, type_, is_null=self.rows.state != ChunkState.RANGE)

    @cached_property
    def statistics(self) -> Mapping[str, pa.Array]:
        """What is known of the values, by column."""
        columns = statistics_of(self.listed).to_arrow()
        return dict(zip(STATISTICS_SCHEMA.names, columns, strict=True))

    @property
    def block(self) -> NDArray[np.int64]:
        """int64 (n, ndim), coords of the blocks."""
        grid_shape = self.array.grid.grid_shape or (1,)
        return np.array(np.unravel_index(self.listed.block, grid_shape))[: self.array.ndim].T


_STORED = (ChunkState.RANGE, ChunkState.INLINE)

_COLUMNS: dict[str, Callable[[_Batch], pa.Array]] = {
    "path": lambda batch: names_column([batch.path], np.zeros(len(batch.listed), np.int64)),
    "chunk": lambda batch: per_axis_column(batch.listed.chunk),
    "block": lambda batch: per_axis_column(batch.block),
    "start": lambda batch: per_axis_column(batch.listed.bounds[0]),
    "stop": lambda batch: per_axis_column(batch.listed.bounds[1]),
    "state": lambda batch: names_column(CHUNK_STATES, batch.rows.state),
    "source": lambda batch: pa.DictionaryArray.from_arrays(
        batch.of_ranges(batch.rows.source, pa.int32()), batch.urls.of(batch.rows.sources)
    ),
    "offset": lambda batch: batch.of_ranges(batch.rows.offset, pa.int64()),
    "length": lambda batch: batch.of_ranges(batch.rows.length, pa.int64()),
    "stored_bytes": lambda batch: column_of(
        np.where(np.isin(batch.rows.state, _STORED), batch.rows.length, 0), pa.int64()
    ),
    "decoded_bytes": lambda batch: _decoded_bytes(batch.array, batch.listed),
    "n_valid": lambda batch: batch.statistics["n_valid"],
    "min": lambda batch: batch.statistics["min"],
    "max": lambda batch: batch.statistics["max"],
}


_SUMMARY = pa.schema(
    [("path", pa.string()), ("n_chunks", pa.int64()), ("n_known", pa.int64()), *STATISTICS_SCHEMA]
)


def summed_statistics(arrays: Mapping[str, VirtualArray]) -> pa.Table:
    """What is known of the values of whole arrays; see `gridref.Catalog.statistics`."""
    rows = []
    for path, array in arrays.items():
        pieces = ChunkListing(array).pieces(ROW_GROUP_ROWS)
        every = ChunkStatistics.joined([statistics_of(listed) for listed in pieces])
        known = every.take(every.is_known)
        valid = known.take(known.n_valid > 0)
        row = {"path": path, "n_chunks": len(every), "n_known": len(known)}
        if len(known):
            row["n_valid"] = int(known.n_valid.sum())
        if len(valid):
            row |= {"min": valid.least.min(), "max": valid.greatest.max()}
        rows.append(row)
    return table_of_rows(rows, _SUMMARY)


def referenced_chunks(array: VirtualArray) -> Iterator[tuple[ListedChunks, ChunkManifest]]:
    """The stored chunks of an array with their references, in pieces of at most 65,536.

    An array without any has one piece, which is empty.
    """
    listing = ChunkListing(array)
    for listed in listing.pieces(ROW_GROUP_ROWS) if listing.n_rows else [listing.rows(0, 0)]:
        yield listed, manifest_rows(listed)


def manifest_rows(listed: ListedChunks) -> ChunkManifest:
    """The references of chunks, in their order; those of absent blocks are missing."""
    parts, places = [], []
    for manifest, chunks, rows in listed.by_manifest():
        if len(chunks) == len(listed):
            return manifest.take(rows)
        parts.append(manifest.take(rows))
        places.append(chunks)
    absent = np.flatnonzero(listed.row == NO_ROW)
    parts.append(ChunkManifest.missing(len(absent)))
    return ChunkManifest.concatenate(parts).take(np.argsort(np.concatenate([*places, absent])))


def _decoded_bytes(array: VirtualArray, listed: ListedChunks) -> pa.Array:
    """Size of each chunk when it is decoded; null for strings of any length."""
    dtypes = [*(encoding.dtype for encoding in array.encodings), array.dtype]
    encoding = array.blocks.encoding[listed.block]  # the last one, the array's, if it is missing
    sizes = np.array([dtype.itemsize for dtype in dtypes])[encoding]
    is_open = np.array([dtype.kind in "OT" for dtype in dtypes])[encoding]
    shapes = array.decoded_shapes(listed.block, listed.stored)
    decoded = sizes * shapes.prod(axis=1, dtype=np.int64)
    return column_of(decoded, pa.int64(), is_null=is_open)


def listed_sources(sources: Sequence[Source]) -> pa.Table:
    """Sources as Arrow rows; credentials in their addresses are left out."""
    urls = _shown_urls(sources)
    names = {
        "size_bytes": pa.int64(),
        "mtime_ns": pa.int64(),
        "etag": pa.string(),
    }
    return pa.table(
        {"url": urls}
        | {
            name: column_of([getattr(source, name) for source in sources], type_)
            for name, type_ in names.items()
        }
    )


def _shown_urls(sources: Sequence[Source]) -> pa.Array:
    return column_of([without_signature(source.url) for source in sources], pa.string())


class _Urls:
    """Addresses of sources as texts of Arrow, made once for each tuple of sources."""

    def __init__(self) -> None:
        self._sources: tuple[Source, ...] = ()
        self._urls = column_of((), pa.string())

    def of(self, sources: tuple[Source, ...]) -> pa.Array:
        """The addresses."""
        if sources is not self._sources:
            self._sources = sources
            self._urls = _shown_urls(sources)
        return self._urls
