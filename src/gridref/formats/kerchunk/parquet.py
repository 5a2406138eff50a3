"""Kerchunk references in Parquet files: a folder with ``.zmetadata`` and files of rows by array.

Row ``n`` of array ``a``, counted through its files ``a/refs.0.parq``, ``a/refs.1.parq``, …, is its
chunk number ``n`` in C order. A missing file holds no references.

Source: what fsspec's ``LazyReferenceMapper`` reads and writes.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from gridref.cache import LRU, cache_bytes
from gridref.errors import Place, SourceFormatError, UnsupportedFeatureError
from gridref.formats.chunk_files import StoreFiles
from gridref.formats.kerchunk.references import Reference
from gridref.io.parquet import BoundedParquet, TooMuchError
from gridref.limits import beyond, limits
from gridref.secrets import shown_address

METADATA_FILE = ".zmetadata"
ROW_BYTES = 200
"""Approximate size of a row in Python objects."""
_COLUMNS = ("raw", "path", "offset", "size")


type _Columns = Mapping[str, list[Any]]


def metadata_of(files: StoreFiles) -> Mapping[str, Any]:
    """The ``.zmetadata`` of a folder of references.

    Raises
    ------
    SourceFormatError
        If there is none, or it is not the metadata of references.
    """
    data = files.get(METADATA_FILE)
    place = Place(source=files.address(METADATA_FILE))
    if data is None:
        raise SourceFormatError("the folder holds no references: it has no .zmetadata", place)
    try:
        document = json.loads(data)
    except ValueError as error:
        raise SourceFormatError(f"not JSON: {error}", place) from error
    if not isinstance(document, dict) or "record_size" not in document:
        raise SourceFormatError("the folder holds no references: it has no record_size", place)
    return document


class ParquetReferences(Mapping[str, bytes | Reference]):
    """The content of each key. Iterating gives the keys of metadata only.

    Raises
    ------
    SourceFormatError
        If the metadata is invalid.
    UnsupportedFeatureError
        For Zarr v3: the layout counts chunks by the metadata of Zarr v2.
    """

    def __init__(self, files: StoreFiles, document: Mapping[str, Any]) -> None:
        self._files = files
        self._place = Place(source=files.address(METADATA_FILE))
        rows, metadata = document["record_size"], document.get("metadata")
        if type(rows) is not int or rows < 1 or not isinstance(metadata, dict):
            raise SourceFormatError("it has no record_size above 0 or no metadata", self._place)
        if any(key.rpartition("/")[2] == "zarr.json" for key in metadata):
            raise UnsupportedFeatureError(
                "references in Parquet count chunks by the metadata of Zarr v2; this is v3:"
                " write them as JSON",
                self._place,
            )
        self._rows_per_file = rows
        self._metadata = {key: json.dumps(value).encode() for key, value in metadata.items()}
        self._counts = {
            key.rpartition("/")[0]: self._chunk_counts(key, value)
            for key, value in metadata.items()
            if key.rpartition("/")[2] == ".zarray"
        }
        self._tables = LRU[_Columns](
            cache_bytes(),
            lambda columns: ROW_BYTES * max(map(len, columns.values()), default=0),
            keeps_last=1,
        )

    def __getitem__(self, key: str) -> bytes | Reference:
        if key in self._metadata:
            return self._metadata[key]
        field, _, chunk = key.rpartition("/")
        counts = self._counts.get(field)
        number = None if counts is None else _number(chunk, counts)
        if number is None:
            raise KeyError(key)
        record, row = divmod(number, self._rows_per_file)
        columns = self._tables.get_or_load((field, record), lambda: self._read(field, record))
        reference = self._row(columns, row, key)
        if reference is None:
            raise KeyError(key)
        return reference

    def __iter__(self) -> Iterator[str]:
        return iter(self._metadata)

    def __len__(self) -> int:
        return len(self._metadata)

    def _chunk_counts(self, key: str, document: Any) -> tuple[int, ...]:
        if isinstance(document, dict) and document.get("dimension_separator", ".") != ".":
            raise UnsupportedFeatureError(
                f"{key} states chunk keys with slashes; this layout has no slashes", self._place
            )
        try:
            pairs = list(zip(document["shape"], document["chunks"], strict=True))
            return tuple(math.ceil(extent / length) for extent, length in pairs) or (1,)
        except (TypeError, KeyError, ValueError, ArithmeticError) as error:
            raise SourceFormatError(f"{key} is no metadata of an array", self._place) from error

    def _read(self, field: str, record: int) -> _Columns:
        """The columns of a file; none where there is no file."""
        name = f"{field}/refs.{record}.parq"
        data = self._files.get(name)
        if data is None:
            return {}
        try:
            return _columns_of(data)
        except (pa.ArrowException, OSError, ValueError) as error:
            place = Place(source=self._files.address(name))
            raise SourceFormatError(f"not a Parquet file of references: {error}", place) from error

    def _row(self, columns: _Columns, row: int, key: str) -> bytes | Reference | None:
        def value(name: str) -> Any:
            column = columns.get(name, ())
            return column[row] if row < len(column) else None

        raw, url, offset, length = map(value, _COLUMNS)
        if raw is not None:
            return raw if isinstance(raw, bytes) else str(raw).encode()
        if url is None:
            return None
        if isinstance(url, str) and not offset and not length:
            return Reference(url)
        are_numbers = isinstance(offset, int) and isinstance(length, int)
        if not isinstance(url, str) or not are_numbers or min(offset, length) < 0:
            place = Place(source=self._files.url)
            shown = shown_address(url) if isinstance(url, str) else url
            raise SourceFormatError(
                f"the reference of {key!r} is {shown!r:.100}, {offset!r:.20}, {length!r:.20}", place
            )
        return Reference(url, offset, length)


def _columns_of(data: bytes) -> _Columns:
    file = BoundedParquet(io.BytesIO(data), len(data))
    metadata = file.parquet.metadata
    if metadata.num_rows > limits().reference_rows + len(data):
        what = f"{len(data)} bytes that say they are {metadata.num_rows} rows"
        raise TooMuchError(beyond("reference_rows", what))
    columns = [name for name in _COLUMNS if name in file.parquet.schema_arrow.names]
    groups = [file.read_row_group(i, columns) for i in range(metadata.num_row_groups)]
    return {
        name: [value for group in groups for part in group[name].chunks for value in _listed(part)]
        for name in columns
    }


def _listed(part: Any) -> list[Any]:
    """The values of an array of Arrow's; equal ones of a dictionary are one object."""
    if not pa.types.is_dictionary(part.type):
        return list(part.to_pylist())
    values = [*part.dictionary.to_pylist(), None]
    return [values[number] for number in part.indices.cast(pa.int64()).fill_null(-1).to_pylist()]


def _number(chunk: str, counts: tuple[int, ...]) -> int | None:
    """C-order number of a chunk key like ``1.0``; None for one outside the array."""
    parts = chunk.split(".")
    if len(parts) != len(counts) or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    number = 0
    for part, count in zip(parts, counts, strict=True):
        if int(part) >= count:
            return None
        number = number * count + int(part)
    return number
