"""The Parquet tables of a catalog: schemas, and writing them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gridref.catalog.arrow_columns import column_of
from gridref.catalog.entries import TableEntry
from gridref.catalog.storage import WritableFile
from gridref.model.array import BlockTable
from gridref.model.manifest import Source
from gridref.typing import Int64Array

__all__ = [
    "BLOCK_SCHEMA",
    "CHECKSUM_SCHEMA",
    "CHUNK_SCHEMA",
    "INDEX_KEY",
    "PER_AXIS",
    "ROW_GROUP_ROWS",
    "SOURCE_SCHEMA",
    "STATISTICS_SCHEMA",
    "STORED_FIELDS",
    "TableWriter",
    "blocks_table",
    "names_column",
    "per_axis_column",
    "sources_table",
    "table_of",
    "table_of_rows",
]

ROW_GROUP_ROWS = 65536
"""Most rows of a row group: what is read at once."""

INDEX_KEY = "gridref"
"""Where the metadata of a table of blocks say which rows are of which array."""


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

STATISTICS_SCHEMA = pa.schema(
    [pa.field("n_valid", pa.int64()), pa.field("min", pa.float64()), pa.field("max", pa.float64())]
)
_SCHEMAS = (SOURCE_SCHEMA, BLOCK_SCHEMA, CHUNK_SCHEMA, CHECKSUM_SCHEMA, STATISTICS_SCHEMA)
STORED_FIELDS = {
    **{field.name: field for schema in _SCHEMAS for field in schema},
    "inline": pa.field("inline", pa.binary()),
    "url": pa.field("url", pa.string(), nullable=False),
}
"""Columns as Parquet files have them, those of version 1 included."""

# Measured (see docs/catalog-format.md): delta packing beats dictionary, byte-stream-split and plain
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

    Parameters
    ----------
    file
        A new binary file. It is closed by `finish`.
    schema
        The schema of the table.
    """

    def __init__(self, file: WritableFile, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self._sink = _DigestingSink(file)
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
            self.abandon()
            raise

    def write(self, table: pa.Table | pa.RecordBatch) -> None:
        """Append rows as one row group, or as several of `ROW_GROUP_ROWS`."""
        self._n_rows += table.num_rows
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if table.num_rows:
            self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)

    def finish(self, name: str, index: str = "") -> TableEntry:
        """Complete and close the file, called `name`, with an index in its metadata."""
        try:
            if index:
                self._writer.add_key_value_metadata({INDEX_KEY: index})
            self._writer.close()
        except BaseException:
            self.abandon()
            raise
        self._sink.close_file()
        return TableEntry(name, self._n_rows, self._sink.n_bytes, self._sink.digest.hexdigest())

    def abandon(self) -> None:
        """Close the file as it is. The Parquet writer would complete it on its own."""
        self._sink.is_abandoned = True
        try:
            if self._writer is not None:
                self._writer.close()
        finally:
            self._sink.close_file()


class _DigestingSink:
    """A binary file to write that knows its size and SHA-256."""

    def __init__(self, file: WritableFile) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.n_bytes = 0
        self.closed = False
        self.is_abandoned = False

    def write(self, content: Any) -> int:
        raw = bytes(content)
        if self.is_abandoned:
            return len(raw)
        self._file.write(raw)
        self.digest.update(raw)
        self.n_bytes += len(raw)
        return len(raw)

    def tell(self) -> int:
        return self.n_bytes

    def flush(self) -> None:
        """Nothing: the file is flushed when it is closed."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """The file is closed by `close_file`, where an error can still be raised."""
        self.closed = True

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


def blocks_table(path: str, blocks: BlockTable, first_row: Int64Array) -> pa.Table:
    """The rows of an array's blocks, with new first rows."""
    columns = [
        names_column([path], np.zeros(len(blocks), np.int64)),
        blocks.encoding.astype(np.int32),
        first_row,
        *(per_axis_column(getattr(blocks, name)) for name in _NESTED),
    ]
    return table_of(columns, BLOCK_SCHEMA)


def per_axis_column(values: NDArray[Any]) -> pa.Array:
    """A column of lists, one number an axis, of int64 (n_rows, ndim)."""
    n_rows, ndim = values.shape
    starts = column_of(np.arange(n_rows + 1) * ndim, pa.int32())
    flat = column_of(values.reshape(-1), pa.int64())
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
