"""Show Arrow tables on the command line, or write them to a file in the format of its suffix."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import chain, islice
from pathlib import PurePath
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from rich.table import Table
from rich.text import Text

from gridref.errors import InvalidRequestError, number_of
from gridref.faces.cli.console import Console, printable
from gridref.options import check_choice

FORMATS = ("table", "csv", "jsonl")


type _Write = Callable[[pa.RecordBatch], Any]
"""Appends rows to a file."""


def put_rows(
    rows: pa.RecordBatchReader,
    *,
    output: str | None,
    format: str,  # noqa: A002 - what users call it
    limit: int,
) -> None:
    """Write rows to a file, or to the screen, as they come.

    Parameters
    ----------
    rows
        Batches of one schema.
    output
        File to write, by its suffix; None for the screen.
    format
        How they are shown on the screen: ``"table"``, ``"csv"`` or ``"jsonl"``.
    limit
        Most rows of a table on the screen; 0 for all.

    Raises
    ------
    InvalidRequestError
        For a format or suffix that is not known, or a file that cannot be written.
    """
    check_choice("format", format, FORMATS)
    if output is not None:
        _write_file(rows, output)
    elif format == "table":
        _show_table(rows, limit)
    else:
        with os.fdopen(os.dup(1), "wb") as screen:
            _write_all(rows, _WRITERS[f".{format}"], screen)


def _write_file(rows: pa.RecordBatchReader, output: str) -> None:
    writer = _WRITERS.get(PurePath(output).suffix.lower())
    if writer is None:
        raise InvalidRequestError(f"--output {output} ends in none of {', '.join(_WRITERS)}")
    part = f"{output}.part"
    try:
        with open(part, "wb") as file:
            _write_all(rows, writer, file)
        os.replace(part, output)
    except OSError as error:
        raise InvalidRequestError(f"{output} cannot be written: {error.strerror}") from error
    finally:
        if os.path.exists(part):
            os.unlink(part)


def _write_all(
    rows: pa.RecordBatchReader,
    writer: Callable[[BinaryIO, pa.Schema], AbstractContextManager[_Write]],
    file: BinaryIO,
) -> None:
    """Write rows to an open file; the first batch is made before anything is written."""
    batches: Iterator[pa.RecordBatch] = iter(rows)
    first = list(islice(batches, 1))
    with writer(file, rows.schema) as write:
        for batch in chain(first, batches):
            write(batch)


@contextmanager
def _parquet(file: BinaryIO, schema: pa.Schema) -> Iterator[_Write]:
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        yield writer.write_batch


@contextmanager
def _arrow(file: BinaryIO, schema: pa.Schema) -> Iterator[_Write]:
    """Arrow's file format, which has one dictionary a column: texts are written as they are."""
    plain = pa.schema([(field.name, _plain_type(field.type)) for field in schema])
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(file, plain, options=options) as writer:
        yield lambda batch: writer.write_batch(batch.cast(plain))


@contextmanager
def _csv(file: BinaryIO, schema: pa.Schema) -> Iterator[_Write]:
    """CSV, with lists as text."""
    flat = pa.schema([(field.name, _flat_type(field.type)) for field in schema])
    with pyarrow.csv.CSVWriter(file, flat) as writer:
        yield lambda batch: writer.write_batch(
            pa.RecordBatch.from_arrays([_flat(column) for column in batch.columns], schema=flat)
        )


@contextmanager
def _json_lines(file: BinaryIO, schema: pa.Schema) -> Iterator[_Write]:
    """One JSON object a line."""
    yield lambda batch: file.writelines(
        json.dumps(row, default=str).encode() + b"\n" for row in batch.to_pylist()
    )
    file.flush()


_WRITERS: dict[str, Any] = {
    ".parquet": _parquet,
    ".arrow": _arrow,
    ".feather": _arrow,
    ".csv": _csv,
    ".jsonl": _json_lines,
}


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _flat_type(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_nested(kind) else _plain_type(kind)


def _flat(column: pa.Array) -> pa.Array:
    """A column without lists and dictionaries: coords become texts like ``0/3/1``."""
    if pa.types.is_list(column.type) and not pa.types.is_nested(column.type.value_type):
        return pc.binary_join(column.cast(pa.list_(pa.string())), "/")
    if pa.types.is_nested(column.type):
        return pa.array([None if value is None else str(value) for value in column.to_pylist()])
    return column.cast(_flat_type(column.type))


def _show_table(rows: pa.RecordBatchReader, limit: int) -> None:
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 10_000  # a file or a pipe, which has no width
    table = Table(box=None, header_style="bold", pad_edge=False)
    for field in rows.schema:
        kind = field.type
        is_number = (
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        )
        table.add_column(
            Text(field.name), justify="right" if is_number else "left", overflow="fold"
        )
    for shown, row in enumerate(_texts(rows)):
        if limit and shown == limit:
            console.print(table)
            console.print(
                f"{number_of(limit, 'row')} shown, there are more: --limit 0 or -o FILE",
                style="dim",
            )
            return
        table.add_row(*(Text(printable(cell)) for cell in row))
    console.print(table)
    console.print(number_of(table.row_count, "row"), style="dim")


def _texts(rows: pa.RecordBatchReader) -> Iterator[tuple[str, ...]]:
    for batch in rows:
        columns = [_flat(column).to_pylist() for column in batch.columns]
        yield from (
            tuple("" if value is None else str(value) for value in row)
            for row in zip(*columns, strict=True)
        )
