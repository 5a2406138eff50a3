"""The commands that ask a catalog: ``gridref chunks | sources | report | sql | diff``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gridref.adapters.cli.options import (
    Allowed,
    Catalog,
    Quiet,
    Snapshot,
    StorageOptions,
    parse_options,
)
from gridref.adapters.cli.progress import ScanProgress
from gridref.adapters.cli.spelling import as_on_the_command_line
from gridref.errors import GridrefError

if TYPE_CHECKING:
    from gridref.catalog import CatalogGroup

__all__ = [
    "chunks_command",
    "diff_command",
    "report_command",
    "sources_command",
    "sql_command",
    "stats_command",
]

Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        help="Write all rows to a file: .parquet, .arrow, .feather, .csv or .jsonl.",
        show_default=False,
    ),
]
Format = Annotated[str, typer.Option("--format", help="On the screen: table, csv or jsonl.")]
Limit = Annotated[int, typer.Option(help="Most rows of a table on the screen; 0 for all.")]


def chunks_command(
    catalog: Catalog,
    array: Annotated[
        str | None,
        typer.Argument(help="Path of an array; without it, of all arrays.", show_default=False),
    ] = None,
    missing: Annotated[
        bool, typer.Option("--missing", help="Only chunks that no file holds.")
    ] = False,
    pending: Annotated[
        bool, typer.Option("--pending", help="Only chunks that are still to come.")
    ] = False,
    output: Output = None,
    format: Format = "table",  # noqa: A002
    limit: Limit = 100,
    snapshot: Snapshot = None,
    allow: Allowed = None,
    storage_options: StorageOptions = None,
) -> None:
    """List stored chunks: where each lies in the array and in its source, and its sizes.

    Chunk coords and elements are written like 0/3/1, an index for each dimension.

    Examples
    --------
        gridref chunks cube.gridref tas --missing

        gridref chunks cube.gridref -o chunks.parquet
    """
    from gridref.adapters.cli.tabular import put_rows

    wanted = [name for name, on in (("missing", missing), ("pending", pending)) if on]
    group = _opened(catalog, snapshot, storage_options, allow)
    rows = group.chunk_batches(array, state=wanted or None)
    put_rows(rows, output=output, format=format, limit=limit)


def sources_command(
    catalog: Catalog,
    by_size: Annotated[bool, typer.Option("--by-size", help="The largest first.")] = False,
    output: Output = None,
    format: Format = "table",  # noqa: A002
    limit: Limit = 100,
    snapshot: Snapshot = None,
    allow: Allowed = None,
    storage_options: StorageOptions = None,
) -> None:
    """List the files that chunks lie in: address, size, and what tells a change.

    Examples
    --------
        gridref sources cube.gridref --by-size

        gridref sources cube.gridref -o sources.csv
    """
    from gridref.adapters.cli.tabular import put_rows

    table = _opened(catalog, snapshot, storage_options, allow).sources()
    if by_size:
        table = table.sort_by([("size_bytes", "descending")])
    put_rows(table.to_reader(), output=output, format=format, limit=limit)


def stats_command(
    catalog: Catalog,
    arrays: Annotated[
        list[str] | None,
        typer.Argument(help="Arrays to look at; by default all.", show_default=False),
    ] = None,
    scan_values: Annotated[
        bool,
        typer.Option(
            "--scan-values",
            help="Read all chunks that were not looked at yet, and record what their values are.",
        ),
    ] = False,
    threads: Annotated[
        int | None, typer.Option(help="Threads that read.", show_default=False)
    ] = None,
    output: Output = None,
    format: Format = "table",  # noqa: A002
    limit: Limit = 100,
    quiet: Quiet = False,
    snapshot: Snapshot = None,
    allow: Allowed = None,
    storage_options: StorageOptions = None,
) -> None:
    """List what is known of the values of arrays: least, greatest, and how many are valid.

    Examples
    --------
        gridref stats cube.gridref --scan-values

        gridref stats cube.gridref

        gridref chunks cube.gridref tas
    """
    from gridref.adapters.cli.tabular import put_rows

    if scan_values and snapshot is not None:
        raise typer.BadParameter("--scan-values is for the catalog as it is now, not a --snapshot")
    group = _opened(catalog, snapshot, storage_options, allow)
    if scan_values:
        with ScanProgress(Console(stderr=True), quiet, unit="chunks") as progress:
            group = group.scan_values(arrays or None, n_threads=threads, progress=progress)
    put_rows(group.statistics().to_reader(), output=output, format=format, limit=limit)


def report_command(
    catalog: Catalog,
    output: Output = None,
    format: Format = "table",  # noqa: A002
    limit: Limit = 100,
    snapshot: Snapshot = None,
    storage_options: StorageOptions = None,
) -> None:
    """List what differed between the files of a catalog, and how it was resolved.

    Examples
    --------
        gridref report cube.gridref

        gridref report cube.gridref -o drift.csv
    """
    from gridref.adapters.cli.tabular import put_rows

    group = _opened(catalog, snapshot, storage_options)
    put_rows(group.report().to_reader(), output=output, format=format, limit=limit)


def sql_command(
    catalog: Catalog,
    query: Annotated[str, typer.Argument(help="A query as DuckDB takes it.", show_default=False)],
    output: Output = None,
    format: Format = "table",  # noqa: A002
    limit: Limit = 100,
    snapshot: Snapshot = None,
    allow: Allowed = None,
    storage_options: StorageOptions = None,
) -> None:
    """Ask a catalog in SQL, by DuckDB (pip install 'gridref[sql]').

    Tables are chunks, sources and arrays, and each array of one dimension under its own name, with
    the columns index and value.

    Examples
    --------
        gridref sql cube.gridref "SELECT state, count(*) FROM chunks GROUP BY state"

        gridref sql cube.gridref "FROM chunks WHERE stored_bytes > 100e6" -o large.parquet
    """
    from gridref.adapters.cli.tabular import put_rows
    from gridref.adapters.duckdb import query_rows

    with query_rows(_opened(catalog, snapshot, storage_options, allow), query) as rows:
        put_rows(rows, output=output, format=format, limit=limit)


def diff_command(
    catalog: Catalog,
    other: Annotated[
        str | None,
        typer.Argument(
            help="Address of another catalog; by default the same, as it is now.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    snapshot: Snapshot = None,
    storage_options: StorageOptions = None,
) -> None:
    """Say what became different from a catalog to another: arrays, attributes, chunks, sources.

    Exit status 0 if nothing did, 1 if something did, 2 if they cannot be compared.

    Examples
    --------
        gridref diff cube.gridref new.gridref

        gridref diff monday.gridref tuesday.gridref --json

        gridref diff cube.gridref --snapshot v1
    """
    from gridref.workflows.comparing import diff

    if other is None and snapshot is None:
        raise typer.BadParameter("name another catalog, or a --snapshot of this one")
    try:
        before = _opened(catalog, snapshot, storage_options)
        changes = diff(before, other or catalog, storage_options=parse_options(storage_options))
    except GridrefError as error:
        typer.echo(f"error: {as_on_the_command_line(str(error))}", err=True)
        raise typer.Exit(2) from error
    if as_json:
        typer.echo(json.dumps([vars(change) for change in changes]))
    else:
        for change in changes:
            typer.echo(str(change))
    raise typer.Exit(int(bool(changes)))


def _opened(
    catalog: str,
    snapshot: str | None,
    storage_options: list[str] | None,
    allow: list[str] | None = None,
) -> CatalogGroup:
    from gridref.workflows.catalogs import open_catalog

    options = parse_options(storage_options)
    return open_catalog(catalog, storage_options=options, allow=allow or None, snapshot=snapshot)
