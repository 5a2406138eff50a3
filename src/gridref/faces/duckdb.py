"""Query a catalog in SQL with DuckDB: its chunks, sources, arrays and their values are tables.

DuckDB pulls chunks in batches, as often as a query needs them. So a catalog of any size works.

For a variable of several dimensions, DuckDB asks a dataset of pyarrow for a scan, and hands it the
columns and the filter of the query. `ValueTable` finds by the filter which labels of each dimension
may be wanted. The rest is not read.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, override

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
import xarray as xr
from numpy.typing import NDArray

from gridref.api.catalog import open_catalog
from gridref.catalog import CatalogGroup
from gridref.errors import GridrefError, InvalidRequestError
from gridref.extras import needed_for
from gridref.formats.chunks import split_contiguous
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.options import verb
from gridref.typing import Int64Array


class _Noting:
    """A table that keeps the error that ended its reading; DuckDB passes on its text only."""

    error: GridrefError | None = None

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except GridrefError as error:
            self.error = error
            raise

    def _noted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with self._noting():
            yield from batches


# A variable as a table: a row for each element, read only if a query needs it

_MOST_PIECES = 1024
"""Most pieces into which the labels of a dimension are cut. A filter keeps some of them."""
_BATCH_ROWS = 1 << 20


class ValueTable(_Noting, pyarrow.dataset.InMemoryDataset):
    """A variable as a table, with a column for each dimension, and its values.

    Parameters
    ----------
    group, path
        The variable, which xarray decodes; missing values are null.
    """

    def __init__(self, group: VirtualGroup, path: str) -> None:
        parent, _, name = path.rpartition("/")
        shown: Any = group
        opened = xr.open_dataset(shown, engine="gridref", group=parent or None)
        self._values = opened[name].variable
        self._labels = {
            str(dim): _as_arrow(opened[dim].values if dim in opened.coords else np.arange(length))
            for dim, length in opened[name].sizes.items()
        }
        value = "value" if "value" not in self._labels else "value_"
        none = _as_arrow(self._values[(slice(0, 0),) * self._values.ndim].values.reshape(-1))
        columns = {**self._labels, value: none}
        fields = [(name, column.type) for name, column in columns.items()]
        super().__init__(pa.schema(fields).empty_table())

    @override
    def scanner(
        self,
        columns: Any = None,
        filter: Any = None,
        **_: Any,
    ) -> pyarrow.dataset.Scanner:
        """Scan the rows that may fulfil a filter, and give those that do."""
        wanted = [self._places(name, labels, filter) for name, labels in self._labels.items()]
        batches = pa.RecordBatchReader.from_batches(self.schema, self._noted(self.batches(wanted)))
        return pyarrow.dataset.Scanner.from_batches(batches, columns=columns, filter=filter)

    def batches(self, wanted: list[Int64Array]) -> Iterator[pa.RecordBatch]:
        """Read the elements at some places of each dimension, in C order within each batch."""
        lengths = split_contiguous([len(places) for places in wanted], 1, _BATCH_ROWS)
        parts = [
            [places[start : start + length] for start in range(0, len(places), length)]
            for places, length in zip(wanted, lengths, strict=True)
        ]
        for box in itertools.product(*parts):
            values = self._values.isel(dict(zip(self._values.dims, box, strict=True))).values
            grid = np.indices(values.shape, np.int64).reshape(values.ndim, -1)
            labels = [
                column.take(pa.array(places[at]))
                for column, places, at in zip(self._labels.values(), box, grid, strict=True)
            ]
            yield pa.record_batch([*labels, _as_arrow(values.reshape(-1))], schema=self.schema)

    def _places(self, name: str, labels: pa.Array, condition: Any) -> Int64Array:
        """The places along a dimension whose labels may fulfil a filter, alone by this column.

        pyarrow leaves out files of a dataset that cannot hold what a filter asks for. Here, pieces
        of a column stand for files.
        """
        everything = np.arange(len(labels))
        if condition is None or not len(labels) or pa.types.is_duration(labels.type):
            return everything  # pyarrow does not order durations
        pieces = np.array_split(everything, min(len(labels), _MOST_PIECES))
        column = pyarrow.dataset.field(name)
        held = []
        for piece in pieces:
            bounds = pa.compute.min_max(labels.take(pa.array(piece)), skip_nulls=False)
            low, high = bounds["min"], bounds["max"]
            known = low.is_valid and high.is_valid
            held.append(
                (column >= low) & (column <= high) if known else pyarrow.dataset.scalar(True)
            )
        files = pyarrow.dataset.FileSystemDataset.from_paths(
            [str(number) for number in range(len(pieces))],
            schema=self.schema,
            format=pyarrow.dataset.IpcFileFormat(),
            filesystem=pyarrow.fs.LocalFileSystem(),
            partitions=held,
        )
        kept = [int(fragment.path) for fragment in files.get_fragments(filter=condition)]
        return np.concatenate([pieces[number] for number in sorted(kept)] or [everything[:0]])


def _as_arrow(values: NDArray[Any]) -> pa.Array:
    """A column; dates of other calendars, and texts, are texts; bytes are those of UTF-8."""
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    if values.dtype.kind not in "biufmM":
        texts = (
            None if value is None or value != value else str(value) for value in values.tolist()
        )
        return pa.array(texts, pa.string())
    values = values.astype(np.float32) if values.dtype == np.float16 else values  # for DuckDB
    column = pa.array(values, from_pandas=True)
    if column.type == pa.timestamp("ns"):  # DuckDB hands on conditions of microseconds only
        with suppress(pa.ArrowInvalid):
            return column.cast(pa.timestamp("us"))
    return column


# Queries

type Rows = Callable[[], pa.RecordBatchReader]

_ARRAYS = pa.schema(
    [
        ("path", pa.string()),
        ("dims", pa.list_(pa.string())),
        ("shape", pa.list_(pa.int64())),
        ("dtype", pa.string()),
        ("n_blocks", pa.int64()),
        ("decoded_bytes", pa.int64()),
    ]
)


@verb()
def sql(
    catalog: str | os.PathLike[str] | CatalogGroup,
    query: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> pa.Table:
    """Ask a catalog in SQL.

    Parameters
    ----------
    catalog
        Address of a catalog, or one that was opened.
    query
        What DuckDB takes. Tables are ``chunks`` and ``sources``, as `CatalogGroup.chunks` and
        `CatalogGroup.sources` return them; ``arrays``, with ``path``, ``dims``, ``shape``,
        ``dtype``, ``n_blocks`` and ``decoded_bytes``; each array of one dimension under its own
        name, with ``index`` and ``value``; and each array of several, with a column of labels for
        each dimension and ``value``. Times and missing values are as xarray decodes them.
    storage_options
        Options of fsspec's filesystem of the catalog and of its sources, or of several by protocol:
        ``{"s3": {"anon": True}, "https": {...}}``.

    Returns
    -------
    pyarrow.Table
        The rows of the answer.

    Raises
    ------
    InvalidRequestError
        If DuckDB refuses the query, saying why; a `MissingPackageError` if it is not installed.
    CatalogError, ReadError
        If a table of the catalog, or an array, cannot be read.
    """
    with query_rows(catalog, query, storage_options=storage_options) as rows:
        return rows.read_all()


@contextmanager
def query_rows(
    catalog: str | os.PathLike[str] | CatalogGroup,
    query: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> Iterator[pa.RecordBatchReader]:
    """The rows of an answer in batches, while the ``with`` block lasts; see `sql`."""
    duckdb = _duckdb()
    if not isinstance(catalog, CatalogGroup):
        catalog = open_catalog(catalog, storage_options=storage_options)
    tables = _tables(catalog, query)
    try:
        with duckdb.connect() as connection:
            connection.execute("SET python_enable_replacements = false")
            for name, table in tables.items():
                connection.register(name, table)
            answer = connection.sql(query)
            yield pa.table({}).to_reader() if answer is None else answer.to_arrow_reader()
    except (duckdb.Error, pa.ArrowException) as error:
        for table in tables.values():
            if table.error is not None:
                raise table.error from None
        raise InvalidRequestError(f"DuckDB refuses the query: {_one_line(error)}") from error


def _duckdb() -> Any:
    with needed_for("asking in SQL"):
        import duckdb
    return duckdb


class _Table(_Noting):
    """A table that DuckDB reads, as often as it likes, over Arrow's PyCapsule interface."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        with self._noting():
            rows = self._rows()
        reader = pa.RecordBatchReader.from_batches(rows.schema, self._noted(rows))
        return reader.__arrow_c_stream__(requested_schema)


def _tables(catalog: CatalogGroup, query: str) -> dict[str, _Table | ValueTable]:
    """The tables that a query may ask, by name. SQL takes capitals and small letters alike.

    DuckDB looks at all of them for their columns, so only arrays that the query mentions are there.
    """
    arrays = catalog.all_arrays()
    code = re.sub("'[^']*'", "''", query)  # without texts, which name no table
    tables: dict[str, _Table | ValueTable] = {}
    for path, array in arrays.items():
        name = path.casefold()
        if array.ndim == 0 or not _is_named(path, query if array.ndim == 1 else code):
            continue
        if name in tables:
            tables[name] = _Table(_ambiguous(path))
        elif array.ndim == 1:
            tables[name] = _Table(_labels_of(array))
        else:
            tables[name] = ValueTable(catalog, path)
    return {
        **tables,
        "chunks": _Table(catalog.chunk_batches),
        "sources": _Table(lambda: catalog.sources().to_reader()),
        "arrays": _Table(lambda: _arrays(arrays).to_reader()),
    }


def _is_named(path: str, query: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(path)}(?!\w)", query, re.IGNORECASE) is not None


def _ambiguous(path: str) -> Rows:
    def refuse() -> pa.RecordBatchReader:
        raise InvalidRequestError(
            f"several arrays are named {path!r} except for upper and lower case"
        )

    return refuse


def _arrays(arrays: Mapping[str, VirtualArray]) -> pa.Table:
    rows = [
        (path, array.dims, array.shape, str(array.dtype), array.n_blocks, array.nbytes)
        for path, array in arrays.items()
    ]
    return pa.Table.from_pylist(
        [dict(zip(_ARRAYS.names, row, strict=True)) for row in rows], schema=_ARRAYS
    )


def _labels_of(array: VirtualArray) -> Rows:
    def labels() -> pa.RecordBatchReader:
        import xarray as xr

        stored = xr.Dataset({"value": ("index", array.read(), dict(array.attrs))})
        column = _as_arrow(xr.decode_cf(stored)["value"].values)
        return pa.table({"index": pa.array(range(len(column))), "value": column}).to_reader()

    return labels


def _one_line(error: BaseException) -> str:
    """The first paragraph of a message, and what it suggests."""
    return " ".join(str(error).partition("\n\n")[0].split())
