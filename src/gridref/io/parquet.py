"""Parquet files from untrusted sources, read within a bound of memory.

pyarrow allocates what the header of each page states, whatever the footer stated, and then as many
elements of a list as fit in a run: 200 bytes can stand for gigabytes. `BoundedParquet` therefore
checks the headers of pages while pyarrow reads them, before it decodes anything.

Calls of pyarrow alone cannot do this. With its limits on Thrift, one row at a time, and buffered
reading, pyarrow 26 allocated 2316 MiB for the list, 468 MiB for the compressed page and 983 MiB for
the dictionary of ``tests/parquet_bombs.py``. These files have 2 to 18 kB, and their footers state
less than 500 bytes. With the check it is less than 200 MiB. A child process with a memory limit
would take 0.2 s of processor time to start, more than opening a catalog takes, and only Linux
enforces such limits.

Source: Apache Parquet, ``parquet.thrift`` (PageHeader) and "Encodings"; Apache Thrift, "Compact
protocol".
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, override

from gridref.io.scan_file import SeekableFile
from gridref.limits import beyond, limits

if TYPE_CHECKING:
    from pyarrow import Table


_BATCH_ROWS = 64
"""Rows to read at a time where values may share bytes."""
_VALUE_BYTES = 16
"""Most bytes of a number with its levels, or of the position of a text."""
_PAGES = {0: (5, 2), 2: (7, 2), 3: (8, 4)}
"""By type of a page (data, dictionary, data of version 2): the field of the header that describes
it, and the field of the description with its encoding."""
_FRONT_CODED = 7
"""DELTA_BYTE_ARRAY: each value is a piece of the one before, and more."""
_BOOLEANS, _I32, _I64, _BINARY, _STRUCT = (1, 2), 5, 6, 8, 12
_MAX_DEPTH = 16


class TooMuchError(ValueError):
    """A Parquet file expands to far more than its own size, or has invalid pages."""


class BoundedParquet:
    """A Parquet file. Not thread-safe.

    Parameters
    ----------
    file
        Binary and seekable.
    n_bytes
        Its size.

    Attributes
    ----------
    parquet
        The file for pyarrow. Values are read by `read_row_group` only.
    """

    def __init__(self, file: Any, n_bytes: int) -> None:
        import pyarrow.parquet as pq  # not wanted for opening a catalog

        self._n_bytes = n_bytes
        self._most_bytes = limits().numbers_of(n_bytes)
        self._pages = _WatchedPages(file)
        # read on this thread: Arrow's own would hold a Python file while the interpreter ends
        self.parquet: Any = pq.ParquetFile(
            self._pages,
            pre_buffer=False,
            page_checksum_verification=True,
            thrift_string_size_limit=max(1, n_bytes),
            thrift_container_size_limit=max(1, n_bytes),
        )

    def read_row_group(self, number: int, columns: Sequence[str]) -> Table:
        """Some columns of a row group.

        Raises
        ------
        TooMuchError
            If they take much more memory than the file has bytes.
        """
        columns = list(columns)
        schema = self.parquet.schema_arrow
        if not any(_shares_bytes(schema.field(name).type) for name in columns):
            self._pages.watch(self._most_bytes)
            return self.parquet.read_row_group(number, columns=columns, use_threads=False)
        try:
            return self._read_batches(number, columns, _BATCH_ROWS)
        except TooMuchError:
            return self._read_batches(number, columns, 1)

    def _read_batches(self, number: int, columns: list[str], n_rows: int) -> Table:
        """Texts and bytes, so many rows at a time: few stored bytes can expand to many."""
        import pyarrow as pa

        self._pages.watch(self._most_bytes, n_rows)
        batches, n_bytes, most_bytes = [], 0, limits().text_of(self._n_bytes)
        some = self.parquet.iter_batches(
            n_rows, row_groups=[number], columns=columns, use_threads=False
        )
        with closing(some):  # a kept traceback must not keep it: it would fail at exit
            for batch in some:
                n_bytes += batch.nbytes
                if n_bytes > most_bytes:
                    what = f"row group {number} stands for {n_bytes} bytes of text"
                    raise TooMuchError(beyond("expanded_text_times", what))
                batches.append(batch)
        schema = self.parquet.schema_arrow
        wanted = pa.schema([schema.field(name) for name in columns])
        return pa.Table.from_batches(batches, wanted).select(columns)


def _shares_bytes(kind: Any) -> bool:
    import pyarrow as pa

    return kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


class _WatchedPages(SeekableFile):
    """The file for pyarrow, which reads all pages of a column in a row group at once."""

    def __init__(self, file: Any) -> None:
        super().__init__()
        self._file = file
        self._left: int | None = None
        self._batch_rows: int | None = None

    def watch(self, most_bytes: int, batch_rows: int | None = None) -> None:
        """Check from now on that all pages take no more than `most_bytes`.

        At most `batch_rows` rows are decoded at a time, or all.
        """
        self._left, self._batch_rows = most_bytes, batch_rows

    @override
    def read(self, size: int | None = -1, /) -> bytes:
        data = bytes(self._file.read(size))
        if self._left is not None:
            self._left -= _decoded_bytes(data, self._batch_rows)
            if self._left < 0:
                what = f"its pages stand for {-self._left} bytes more than a file of its size may"
                raise TooMuchError(beyond("expanded_times", what))
        return data

    @override
    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return int(self._file.seek(offset, whence))

    @override
    def tell(self) -> int:
        return int(self._file.tell())

    @override
    def close(self) -> None:
        self._file.close()
        super().close()


def _decoded_bytes(pages: bytes, batch_rows: int | None) -> int:
    """Most bytes that the pages of one column take after decoding."""
    total = largest = at = 0
    while at < len(pages):
        reader = _Thrift(pages, at)
        header = reader.struct()
        kind, n_bytes, n_stored = (_count(header, number) for number in (1, 2, 3))
        at = reader.at + n_stored
        if at > len(pages):
            raise TooMuchError(f"a page of {n_stored} bytes reaches beyond its column")
        largest = max(largest, n_bytes)
        total += n_bytes
        if kind in _PAGES:
            about, encoding = header.get(_PAGES[kind][0]) or {}, _PAGES[kind][1]
            n_values = _count(about, 1)
            total += _VALUE_BYTES * n_values
            if batch_rows is None and about.get(encoding) == _FRONT_CODED:
                total += n_values * n_bytes
    return total + largest * (batch_rows or 0)


def _count(header: dict[int, Any], number: int) -> int:
    value = header.get(number)
    if not isinstance(value, int) or value < 0:
        raise TooMuchError(f"the header of a page has {value!r} as its number {number}")
    return value


class _Thrift:
    """Reads a structure of Thrift's compact protocol: its 32-bit integers and structures by number.

    A repeated field is refused: readers could differ in which one they take.
    """

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """All fields of a structure."""
        if depth > _MAX_DEPTH:
            raise TooMuchError("the header of a page is nested too deep")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            step, kind = head >> 4, head & 15
            number = number + step if step else _signed(self._varint())
            if number in fields:
                raise TooMuchError(f"the header of a page has number {number} twice")
            fields[number] = None if kind in _BOOLEANS else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind not in (_I32, _I64, _BINARY):
            raise TooMuchError(f"the header of a page has something of type {kind}")
        value = self._varint()
        if kind == _BINARY:
            self.at += value
        return _signed(value) if kind == _I32 else None

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise TooMuchError("a number in the header of a page has no end")

    def _byte(self) -> int:
        if self.at >= len(self._data):
            raise TooMuchError("the header of a page is cut")
        self.at += 1
        return self._data[self.at - 1]


def _signed(value: int) -> int:
    return value >> 1 ^ -(value & 1)
