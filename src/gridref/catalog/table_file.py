"""A Parquet table of a catalog, opened when rows are first asked for, read by row groups."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gridref.catalog.entries import TableEntry
from gridref.catalog.tables import ROW_GROUP_ROWS, STORED_FIELDS
from gridref.errors import (
    CatalogCorruptError,
    GridrefError,
    InvalidRequestError,
    Place,
    ShortReadError,
    SourceUnavailableError,
)
from gridref.forks import new_lock
from gridref.io import is_absent, is_local, open_for_scan
from gridref.io.parquet import BoundedParquet, TooMuchError

__all__ = ["TableFile", "open_at_once"]

_BLOCK_BYTES = 128 * 2**10
_OPENED_AT_ONCE = 32
_LARGE = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
"""What other writers may call texts and bytes."""


def open_at_once(tables: Iterable[TableFile]) -> None:
    """Open tables that are far side by side: each waits for an answer.

    One that cannot be opened says so where its rows are read.
    """
    far = [table for table in tables if table.is_far]
    if len(far) < 2:
        return
    with ThreadPoolExecutor(min(len(far), _OPENED_AT_ONCE)) as threads:
        for opened in [threads.submit(lambda each: each.row_group_starts, each) for each in far]:
            with suppress(GridrefError):
                opened.result()


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
    """

    def __init__(
        self,
        address: str,
        entry: TableEntry,
        columns: Sequence[str],
        storage_options: Mapping[str, Any] | None = None,
        content: bytes | None = None,
    ) -> None:
        self.address = address
        self.entry = entry
        self._columns = tuple(columns)
        self._storage_options = dict(storage_options or {})
        self._content = content
        self._lock = new_lock()
        self._parquet: BoundedParquet | None = None
        self._starts = np.zeros(0, np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        return TableFile, (self.address, self.entry, self._columns, self._storage_options)

    @property
    def is_far(self) -> bool:
        """Whether it has to be opened yet, on a server."""
        is_near = self._parquet is not None or self._content is not None
        return not (is_near or is_local(self.address))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
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
        file = open_for_scan(self.address, self._storage_options, block_bytes=_BLOCK_BYTES)
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
            raise CatalogCorruptError(
                "a table of the catalog is missing: if the catalog was replaced since it was"
                " opened, open it again, else build it again",
                Place(source=self.address),
            ) from error
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
