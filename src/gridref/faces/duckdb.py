"""Query a catalog in SQL with DuckDB: its chunks, sources, arrays and their values are tables.

DuckDB pulls chunks in batches, as often as a query needs them. So a catalog of any size works.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from gridref.api.catalog import open_catalog
from gridref.catalog import CatalogGroup
from gridref.errors import GridrefError, InvalidRequestError
from gridref.extras import missing_package
from gridref.faces.value_tables import ValueTable
from gridref.model.array import VirtualArray
from gridref.options import verb

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
    try:
        import duckdb
    except ImportError as error:
        raise missing_package("asking in SQL", error) from error
    return duckdb


class _Table:
    """A table that DuckDB reads, as often as it likes, over Arrow's PyCapsule interface.

    Attributes
    ----------
    error
        What ended the reading; DuckDB passes on its text only.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.error: GridrefError | None = None

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        try:
            rows = self._rows()
        except GridrefError as error:
            self.error = error
            raise
        reader = pa.RecordBatchReader.from_batches(rows.schema, self._noting(rows))
        return reader.__arrow_c_stream__(requested_schema)

    def _noting(self, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            yield from rows
        except GridrefError as error:
            self.error = error
            raise


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
        values: Any = xr.decode_cf(stored)["value"].values
        if values.dtype.kind not in "biufmM":  # dates of other calendars, and texts
            values = [str(value) for value in values.tolist()]
        return pa.table({"index": pa.array(range(len(values))), "value": values}).to_reader()

    return labels


def _one_line(error: BaseException) -> str:
    """The first paragraph of a message, and what it suggests."""
    return " ".join(str(error).partition("\n\n")[0].split())
