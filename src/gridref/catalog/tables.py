"""The Parquet tables of a catalog: schemas, writing, and reading by row groups.

Arrow arrays are made from buffers, as the Arrow columnar format lays them out ("Fixed-size
primitive layout"), and read by DLPack. The usual calls, `pyarrow.array` and `to_numpy`, import
pandas to check whether they were given something of it: half a second of every command.
"""

from __future__ import annotations

import hashlib
import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Self, override

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gridref.catalog.entries import TableEntry
from gridref.catalog.folder import TablePlace, WritableFile
from gridref.errors import (
    CatalogCorruptError,
    GridrefError,
    InvalidRequestError,
    Place,
    ShortReadError,
    SourceUnavailableError,
)
from gridref.forks import new_lock
from gridref.io import LocalFiles, is_absent, is_local, open_for_scan
from gridref.io.ahead import in_threads
from gridref.io.parquet import BoundedParquet, TooMuchError
from gridref.model.blocks import BlockTable
from gridref.model.manifest import Source
from gridref.model.source_policy import SourcePolicy
from gridref.typing import Int64Array

# Arrow arrays of numbers and texts, without pandas


def column_of(
    values: Iterable[Any],
    type_: pa.DataType,
    *,
    is_null: NDArray[np.bool_] | None = None,
) -> pa.Array:
    """An Arrow array of texts, or of numbers.

    Parameters
    ----------
    values
        Numbers in an array, or numbers, texts and None for null.
    is_null
        bool (n,), for numbers in an array.
    """
    if pa.types.is_string(type_):
        texts = pa.lib.StringBuilder()
        try:
            texts.append_values(values)
        except UnicodeEncodeError as error:
            raise InvalidRequestError(
                f"a catalog cannot hold {error.object[:200]!r}: it is not UTF-8. Rename the file,"
                " array or group"
            ) from error
        return texts.finish()
    if not isinstance(values, np.ndarray):
        known = list(values)
        is_null = np.array([value is None for value in known], bool)
        values = np.array([0 if value is None else value for value in known])
    numbers = np.ascontiguousarray(values, type_.to_pandas_dtype())
    if numbers.dtype != values.dtype and (numbers != values).any():
        raise OverflowError(f"a number does not fit {type_}")
    bits = None
    if is_null is not None and is_null.any():
        bits = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    return pa.Array.from_buffers(type_, len(numbers), [bits, pa.py_buffer(numbers)])


def numbers_of(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """The numbers of a column without nulls, which are not copied if it is in one piece."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return np.from_dlpack(column)


# Chunk references as columns that compress well, and back. Pure


def steps_of_offsets(
    source: NDArray[np.int32], offset: Int64Array, length: Int64Array
) -> Int64Array:
    """Bytes between the end of the previous chunk and this one, if both are in the same source.

    Files hold most chunks back to back, so that nearly all steps are zero. The first row, and the
    first of each run of rows of one source, keep their offset.
    """
    steps = offset.copy()
    follows = np.flatnonzero(source[1:] == source[:-1]) + 1
    steps[follows] -= offset[follows - 1] + length[follows - 1]
    return steps


def offsets_from_steps(
    source: NDArray[np.int32], step: Int64Array, length: Int64Array
) -> Int64Array:
    """The offsets again."""
    if step.size == 0:
        return step.copy()
    starts_run = np.concatenate([[True], source[1:] != source[:-1]])
    moves = step.copy()
    moves[1:] += np.where(starts_run[1:], 0, length[:-1])
    reached = np.cumsum(moves)
    heads = np.flatnonzero(starts_run)
    before = reached[heads] - moves[heads]
    return reached - np.repeat(before, np.diff(np.append(heads, step.size)))


def gather_bytes(
    data: NDArray[np.uint8], offset: Int64Array, length: Int64Array
) -> NDArray[np.uint8]:
    """Byte ranges of `data`, back to back.

    Raises
    ------
    InvalidRequestError
        If a range reaches out of `data`.
    """
    if offset.size == 0:
        return np.zeros(0, np.uint8)
    if int(offset.min()) < 0 or int(length.min()) < 0 or int((offset + length).max()) > data.size:
        raise InvalidRequestError(f"an inline chunk reaches out of the {data.size} inline bytes")
    if (offset[1:] == offset[:-1] + length[:-1]).all():
        first = int(offset[0])
        return data[first : first + int(length.sum())]
    starts = np.cumsum(length) - length
    positions = np.arange(int(length.sum())) + np.repeat(offset - starts, length)
    return np.asarray(data[positions])


# Schemas and writing

ROW_GROUP_ROWS = 65536
"""Most rows of a row group: what is read at once."""

INDEX_KEY = "gridref"
"""Key of a table's metadata that maps arrays to their rows."""


_NAME = pa.dictionary(pa.int32(), pa.string())
SOURCE_SCHEMA = pa.schema(
    [
        pa.field("prefix", pa.int32(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64()),
        pa.field("mtime_ns", pa.int64()),
        pa.field("etag", pa.string()),
        pa.field("checksum", pa.string()),
    ]
)
PER_AXIS = pa.list_(pa.field("element", pa.int64(), nullable=False))
"""A number for each axis."""

BLOCK_SCHEMA = pa.schema(
    [
        pa.field("array", _NAME, nullable=False),
        pa.field("encoding", pa.int32(), nullable=False),
        pa.field("first_row", pa.int64(), nullable=False),
        pa.field("row_stride", PER_AXIS, nullable=False),
        pa.field("stored_shape", PER_AXIS, nullable=False),
        pa.field("origin", PER_AXIS, nullable=False),
        pa.field("step", PER_AXIS, nullable=False),
    ]
)
CHUNK_SCHEMA = pa.schema(
    [
        pa.field("array", _NAME, nullable=False),
        pa.field("source", pa.int32(), nullable=False),
        pa.field("offset_step", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("state", pa.uint8(), nullable=False),
        pa.field("filter_mask", pa.uint32(), nullable=False),
        pa.field("inline", pa.large_binary()),
    ]
)
CHECKSUM_SCHEMA = pa.schema(
    [
        pa.field("source", pa.int32(), nullable=False),
        pa.field("offset_step", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("crc32c", pa.uint32(), nullable=False),
    ]
)
CHECKSUM_ALGORITHM = "crc32c"
STATISTICS_SCHEMA = pa.schema(
    [pa.field("n_valid", pa.int64()), pa.field("min", pa.float64()), pa.field("max", pa.float64())]
)
_SCHEMAS = (SOURCE_SCHEMA, BLOCK_SCHEMA, CHUNK_SCHEMA, CHECKSUM_SCHEMA, STATISTICS_SCHEMA)
STORED_FIELDS = {
    **{field.name: field for schema in _SCHEMAS for field in schema},
    "inline": pa.field("inline", pa.binary()),
}
"""Columns as Parquet files have them."""

# Measured (docs/catalog-writing.md): delta packing beats dictionary, byte-stream-split and plain
# encoding for lengths, and for steps as soon as chunks of several variables alternate.
_DELTA = {
    "path": "DELTA_BYTE_ARRAY",
    "source": "DELTA_BINARY_PACKED",
    "size_bytes": "DELTA_BINARY_PACKED",
    "mtime_ns": "DELTA_BINARY_PACKED",
    "first_row": "DELTA_BINARY_PACKED",
    "offset_step": "DELTA_BINARY_PACKED",
    "length": "DELTA_BINARY_PACKED",
    "inline": "PLAIN",
    "crc32c": "PLAIN",
}
_NESTED = ("row_stride", "stored_shape", "origin", "step")


class TableWriter:
    """Writes one table, and counts and digests the file on the way.

    A context manager: the table is complete when its block ends, and stays as it is after an error.

    Parameters
    ----------
    folder, name
        Where the table is written, and the name of its file.

    Attributes
    ----------
    index
        What the metadata of the file say under `INDEX_KEY`.
    entry
        What the catalog says of the table, once that is complete.
    """

    entry: TableEntry

    def __init__(self, folder: TablePlace, name: str, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self.index = ""
        self._name = name
        self._sink = _DigestingSink(folder.create(name))
        self._n_rows = 0
        dictionary = [
            f"{name}.list.element" if name in _NESTED else name
            for name in schema.names
            if name not in _DELTA
        ]
        self._writer: Any = None
        try:
            self._writer = pq.ParquetWriter(
                pa.PythonFile(self._sink, mode="w"),
                schema,
                version="2.6",
                compression="zstd",
                compression_level=9,
                use_dictionary=dictionary,
                column_encoding={name: _DELTA[name] for name in schema.names if name in _DELTA},
                write_statistics=False,
                write_page_checksum=True,
                store_schema=False,
            )
        except BaseException:
            self._abandon()
            raise

    def write(self, table: pa.Table | pa.RecordBatch) -> None:
        """Append rows as one row group, or as several of `ROW_GROUP_ROWS`."""
        self._n_rows += table.num_rows
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if table.num_rows:
            self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self._finish()
        else:
            self._abandon()

    def _finish(self) -> None:
        try:
            if self.index:
                self._writer.add_key_value_metadata({INDEX_KEY: self.index})
            self._writer.close()
        except BaseException:
            self._abandon()
            raise
        self._sink.close_file()
        digest = self._sink.digest.hexdigest()
        self.entry = TableEntry(self._name, self._n_rows, self._sink.n_bytes, digest)

    def _abandon(self) -> None:
        """Close the file as it is. The Parquet writer would complete it on its own."""
        self._sink.is_abandoned = True
        try:
            if self._writer is not None:
                self._writer.close()
        finally:
            self._sink.close_file()


class _DigestingSink(io.RawIOBase):
    """A binary file to write that knows its size and SHA-256.

    To close it leaves the file open, which `close_file` closes, where an error can still be raised.
    """

    def __init__(self, file: WritableFile) -> None:
        super().__init__()
        self._file = file
        self.digest = hashlib.sha256()
        self.n_bytes = 0
        self.is_abandoned = False

    @override
    def write(self, content: Any, /) -> int:
        raw = bytes(content)
        if not self.is_abandoned:
            self._file.write(raw)
            self.digest.update(raw)
            self.n_bytes += len(raw)
        return len(raw)

    @override
    def tell(self) -> int:
        return self.n_bytes

    @override
    def writable(self) -> bool:
        return True

    def close_file(self) -> None:
        self._file.close()


def sources_table(
    sources: Iterable[Source], prefix: Sequence[int], path: Sequence[str]
) -> pa.Table:
    """The table of sources, under addresses of a numbered prefix and the rest."""
    rows = list(sources)
    columns = [
        prefix,
        path,
        [source.size_bytes for source in rows],
        [source.mtime_ns for source in rows],
        [source.etag for source in rows],
        [source.checksum for source in rows],
    ]
    return table_of(columns, SOURCE_SCHEMA)


def names_column(names: Sequence[str], numbers: NDArray[np.integer[Any]]) -> pa.Array:
    """For each number the name that it stands for."""
    return pa.DictionaryArray.from_arrays(
        column_of(numbers, pa.int32()), column_of(names, pa.string())
    )


def blocks_table(arrays: Mapping[str, BlockTable], first_rows: Sequence[Int64Array]) -> pa.Table:
    """The rows of the blocks of arrays, by their paths, with new first rows."""
    tables = list(arrays.values())
    array = np.repeat(np.arange(len(tables)), [len(blocks) for blocks in tables])
    columns = [
        names_column(list(arrays), array),
        np.concatenate([blocks.encoding for blocks in tables]),
        np.concatenate(first_rows),
        *(per_axis_column(*(getattr(blocks, name) for blocks in tables)) for name in _NESTED),
    ]
    return table_of(columns, BLOCK_SCHEMA)


def per_axis_column(*values: NDArray[Any]) -> pa.Array:
    """A column of lists, one number an axis, of int64 (n_rows, ndim) after each other."""
    ndims = np.repeat([each.shape[1] for each in values], [each.shape[0] for each in values])
    starts = column_of(np.concatenate([[0], np.cumsum(ndims)]), pa.int32())
    flat = column_of(np.concatenate([each.reshape(-1) for each in values]), pa.int64())
    return pa.ListArray.from_arrays(starts, flat).cast(PER_AXIS)


def table_of_rows(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """A table of rows, null where one lacks a name of the schema."""
    kept = list(rows)
    return table_of([[row.get(name) for row in kept] for name in schema.names], schema)


def table_of(columns: Sequence[Any], schema: pa.Schema) -> pa.Table:
    """A table of Arrow arrays, numpy arrays or lists, in the order of the schema."""
    arrays = [
        column if isinstance(column, pa.Array) else column_of(column, field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


# Reading by row groups

_BLOCK_BYTES = 128 * 2**10
_OPENED_AT_ONCE = 32
_files = LocalFiles()
"""Local tables of all catalogs: a server may show more than a process may have open."""
_LARGE = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
"""What other writers may call texts and bytes."""


def open_at_once(tables: Iterable[TableFile]) -> None:
    """Open tables that are far side by side: each waits for an answer.

    A table that cannot be opened raises when its rows are read.
    """
    far = [table for table in tables if table.is_far]

    def open_now(table: TableFile) -> None:
        with suppress(GridrefError):
            _ = table.row_group_starts

    if len(far) > 1:
        list(in_threads(open_now, far, _OPENED_AT_ONCE))


class TableFile:
    """One table. Thread-safe, and can be pickled.

    Parameters
    ----------
    entry
        What the catalog says of it.
    columns
        Names of the columns it must have.
    storage_options
        fsspec options, or a mapping of protocol to options.
    content
        The file, where it is in memory. A pickle does not hold it.
    policy
        Where symbolic links of a local file may lead.
    is_replaced
        Whether the catalog no longer has the snapshot that was opened; asked where the file is
        missing.
    """

    def __init__(
        self,
        address: str,
        entry: TableEntry,
        columns: Sequence[str],
        storage_options: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        policy: SourcePolicy | None = None,
        is_replaced: Callable[[], bool] | None = None,
    ) -> None:
        self.address = address
        self._policy = policy
        self._is_replaced = is_replaced
        self.entry = entry
        self._columns = tuple(columns)
        self._storage_options = dict(storage_options or {})
        self._content = content
        self._lock = new_lock()
        self._parquet: BoundedParquet | None = None
        self._starts = np.zeros(0, np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        own = (self.address, self.entry, self._columns, self._storage_options, None)
        return TableFile, (*own, self._policy, self._is_replaced)

    @property
    def is_far(self) -> bool:
        """Whether it has to be opened yet, on a server."""
        is_near = self._parquet is not None or self._content is not None
        return not (is_near or is_local(self.address))

    @property
    def n_rows(self) -> int:
        return self.entry.n_rows

    @property
    def row_group_starts(self) -> NDArray[np.int64]:
        """int64 (n_row_groups + 1,), first row of each row group, and the number of rows."""
        with self._lock, self._corruption():
            self._open()
        return self._starts

    def metadata(self, key: str) -> str | None:
        """What the file says under a key of its metadata; None if nothing."""
        with self._lock, self._corruption():
            found = (self._open().parquet.metadata.metadata or {}).get(key.encode())
            return None if found is None else found.decode()

    def read_row_group(self, number: int, columns: Sequence[str]) -> pa.Table:
        """Some columns of a row group."""
        with self._lock, self._corruption():
            table = self._open().read_row_group(number, columns)
            expected = int(self._starts[number + 1] - self._starts[number])
            if table.num_rows != expected:
                raise self.corrupt(f"row group {number} has {table.num_rows} rows of {expected}")
            return table

    def read_rows(self, first: int, n_rows: int) -> pa.Table:
        """All columns of some rows; only the row groups that hold them are read."""
        pieces = [
            self.read_row_group(number, self._columns)[rows]
            for number, rows in self.row_groups(first, n_rows)
        ]
        if not pieces:
            with self._lock, self._corruption():
                return self._open().parquet.schema_arrow.empty_table()
        return pa.concat_tables(pieces)

    def row_groups(self, first: int, n_rows: int) -> list[tuple[int, slice]]:
        """The row groups that hold some rows, by number, and which of their rows these are."""
        starts = self.row_group_starts
        stop = first + n_rows
        if first < 0 or n_rows < 0 or stop > self.n_rows:
            raise self.corrupt(f"rows {first}-{stop} are needed of {self.n_rows}")
        head = int(np.searchsorted(starts, first, side="right")) - 1
        last = int(np.searchsorted(starts, stop, side="left")) if n_rows else head
        bounds = starts[head : last + 1].tolist()
        return [
            (head + i, slice(max(first, low) - low, min(stop, high) - low))
            for i, (low, high) in enumerate(itertools.pairwise(bounds))
        ]

    def by_row_group(self, rows: Int64Array) -> Iterator[tuple[int, NDArray[np.intp], Int64Array]]:
        """The row groups that hold some rows: number, which of the rows, and where in the group."""
        starts = self.row_group_starts
        groups = np.searchsorted(starts, rows, side="right") - 1
        if groups.size and groups.min() == groups.max():  # most of the time
            number = int(groups[0])
            yield number, np.arange(rows.size), rows - starts[number]
            return
        order = np.argsort(groups, kind="stable")
        numbers, first = np.unique(groups[order], return_index=True)
        for number, own in zip(numbers.tolist(), np.split(order, first[1:]), strict=False):
            yield number, own, rows[own] - starts[number]

    def corrupt(self, reason: str) -> CatalogCorruptError:
        """The error for a table that is not as it should be."""
        return CatalogCorruptError(
            f"a table of the catalog is damaged: {reason}. Build the catalog again",
            Place(source=self.address),
        )

    def _open(self) -> BoundedParquet:
        if self._parquet is None:
            parquet = BoundedParquet(self._file(), self.entry.n_bytes)
            self._starts = self._checked_starts(parquet.parquet)
            self._parquet = parquet
        return self._parquet

    def _file(self) -> Any:
        """The file, which is as large as is stated."""
        if self._content is not None:
            return io.BytesIO(self._content)
        file = open_for_scan(
            self.address,
            self._storage_options,
            policy=self._policy,
            block_bytes=_BLOCK_BYTES,
            shared=_files,
        )
        if file.size != self.entry.n_bytes:
            raise self.corrupt(f"it has {file.size} bytes instead of {self.entry.n_bytes}")
        return file

    def _checked_starts(self, parquet: Any) -> NDArray[np.int64]:
        metadata = parquet.metadata
        missing = set(self._columns) - set(parquet.schema_arrow.names)
        if missing:
            raise self.corrupt(f"it has no column {', '.join(sorted(missing))}")
        for name in self._columns:
            found, expected = parquet.schema_arrow.field(name), STORED_FIELDS[name]
            kind = _LARGE.get(found.type, found.type)
            if kind != expected.type or found.nullable > expected.nullable:
                raise self.corrupt(f"column {name} holds {found.type}, not {expected.type}")
        # pyarrow's description of columns is left alone: that of a damaged one ends the process
        groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        for number, n_rows in enumerate(groups):
            if n_rows > ROW_GROUP_ROWS:
                raise self.corrupt(
                    f"row group {number} has {n_rows} rows, more than {ROW_GROUP_ROWS}"
                )
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(groups, dtype=np.int64)])
        if int(starts[-1]) != self.entry.n_rows:
            raise self.corrupt(f"it has {int(starts[-1])} rows instead of {self.entry.n_rows}")
        return starts

    @contextmanager
    def _corruption(self) -> Iterator[None]:
        """Turn what pyarrow raises for bad files, whatever it is, into our errors."""
        try:
            yield
        except SourceUnavailableError as error:
            if not is_absent(error):
                raise
            reason = "a table of the catalog is missing: build the catalog again"
            if self._is_replaced is not None and self._is_replaced():
                reason = (
                    "the catalog was replaced, or this snapshot pruned, since it was opened: open"
                    " it again"
                )
            raise CatalogCorruptError(reason, Place(source=self.address)) from error
        except ShortReadError as error:
            raise self.corrupt("it is cut") from error
        except InvalidRequestError as error:
            raise self.corrupt(error.reason) from error
        except TooMuchError as error:
            raise self.corrupt(str(error)) from error
        except GridrefError:
            raise
        except Exception as error:
            raise self.corrupt(f"{type(error).__name__}: {error}") from error
