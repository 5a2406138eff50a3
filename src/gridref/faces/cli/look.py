"""Commands that look at files and catalogs: ``gridref info | list | verify | diff | formats``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from gridref.errors import (
    CatalogNotFoundError,
    GridrefError,
    InvalidRequestError,
    Message,
    Option,
    Place,
    SourceFormatError,
    SourceUnavailableError,
    by_reason,
    number_of,
)
from gridref.faces.cli.console import Console, echo, shown_progress
from gridref.faces.cli.options import (
    VIEW_OPTIONS,
    Allowed,
    Catalog,
    Quiet,
    Snapshot,
    StorageOptions,
    opened_catalog,
    parse_options,
    parse_selection,
    spelled,
    takes,
)
from gridref.options import check_names
from gridref.secrets import shown_address

if TYPE_CHECKING:
    import pyarrow as pa

    from gridref.api.catalog import Catalog as OpenedCatalog
    from gridref.api.catalog import Difference, Verification
    from gridref.api.verify import Summary
    from gridref.model.array import VirtualArray
    from gridref.serve.views import ViewOptions


# ``gridref info``: a catalog, one of its arrays, or a file


@takes(VIEW_OPTIONS)
def info_command(
    catalog: Annotated[str, typer.Argument(help="Address of a catalog, or of a file.")],
    array: Annotated[
        str | None, typer.Argument(help="Path of an array of the catalog. Default: all.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="Draw the chunks of the array to a file instead: .svg, or .png and .pdf with"
            " matplotlib (pip install 'gridref[plot]').",
        ),
    ] = None,
    width: Annotated[
        int, typer.Option(help="Width of the drawing in such a file, in pixels.")
    ] = 720,
    select: Annotated[
        str | None,
        typer.Option(
            metavar="DIM=PLACES",
            help="Estimate what reading these positions of the array costs, from the files and with"
            " each overlay: time=:,lat=7,lon=9.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    snapshot: Snapshot = None,
    **options: Any,
) -> None:
    """Show what is in a catalog: tree, chunk grids, codecs, sources, and how each array is shown.

    For a file, report what a scan of it would cost over a network, why, and what rewriting it would
    save. Local files are treated as if they were on a server.

    Examples
    --------
        gridref info cube.gridref

        gridref info cube.gridref tas

        gridref info cube.gridref tas -o map.svg

        gridref info cube.gridref --view portable --shards auto

        gridref info cube.gridref --snapshot v1

        gridref info cube.gridref tas --select time=:,lat=7,lon=9

        gridref info https://example.org/scene.tif --json
    """
    from gridref.api.catalog import open_catalog
    from gridref.api.opening import view_options
    from gridref.faces.cli.described import catalog_as_json

    storage_options, allow = options.pop("storage_options", None), options.pop("allow", None)
    views = view_options(options)
    for_catalogs = {"output": output, "select": select, "snapshot": snapshot, **options}
    try:
        group = open_catalog(
            catalog, storage_options=storage_options, allow=allow, snapshot=snapshot
        )
    except CatalogNotFoundError as no_catalog:
        named = [f"--{name.replace('_', '-')}" for name, value in for_catalogs.items() if value]
        given = [*named, *([array] if array is not None else [])]
        _print_file(catalog, no_catalog, given, storage_options, as_json=as_json)
        return
    shown = group.all_arrays()
    if array is not None:
        name = array.strip("/")
        check_names("the catalog", [name], shown, kind="array")
        shown = {name: shown[name]}
    if select is not None:
        _print_costs(group, array, select, as_json=as_json)
        return
    if output is not None:
        from gridref.faces.picture import ChunkMap

        path, drawn = _largest(shown)
        ChunkMap(drawn, path, width).save(output)
        return
    if as_json:
        echo(json.dumps(catalog_as_json(group, shown, views)))
        return
    _print_catalog(Console(), group, catalog, shown, views, one_array=array is not None)


def _print_costs(group: OpenedCatalog, array: str | None, select: str, *, as_json: bool) -> None:
    """Print what a selection costs, by layout."""
    from gridref.faces.cli.described import costs_table

    if array is None:
        raise InvalidRequestError(
            Message(Option("select", select), " needs one array: name it after the catalog")
        )
    costs = group.explain(array, **parse_selection(select)).to_pylist()
    if as_json:
        echo(json.dumps(costs))
    else:
        Console().print(costs_table(costs))


def _print_file(
    address: str,
    no_catalog: CatalogNotFoundError,
    for_catalogs: list[str],
    storage_options: dict[str, Any] | None,
    *,
    as_json: bool,
) -> None:
    """Print the report on a file; without one of a known format, there is no catalog."""
    from gridref.api.inspect import inspect
    from gridref.faces.cli.described import print_inspection

    try:
        found = inspect(address, storage_options=storage_options)
    except (SourceUnavailableError, SourceFormatError) as error:
        if Path(address).is_dir():
            raise CatalogNotFoundError(
                f"no catalog there, only a folder: `gridref plan {shlex.quote(address)}` shows what"
                " cube its files make",
                Place(source=address),
            ) from error
        if isinstance(error, SourceUnavailableError):
            raise no_catalog from error
        raise
    if for_catalogs:
        raise InvalidRequestError(
            f"{', '.join(for_catalogs)}: these options are for catalogs, and this is a file",
            Place(source=address),
        )
    if as_json:
        echo(json.dumps(found.to_json()))
    else:
        print_inspection(Console(), found)


def _print_catalog(
    console: Console,
    group: OpenedCatalog,
    address: str,
    arrays: Mapping[str, VirtualArray],
    views: ViewOptions,
    *,
    one_array: bool,
) -> None:
    from gridref.faces.cli.described import (
        describe_arrays,
        draw_grid,
        draw_tree,
        left_out,
        lines_beside,
        source_summary,
    )

    if not one_array:
        console.print(draw_tree(group, address))
        console.print()
    console.print(describe_arrays(arrays, views))
    _print_reasons(console, arrays, views)
    if not one_array:
        console.print()
        for line in source_summary(group):
            console.print(line, highlight=False)
        for line in left_out(group.report):
            console.print(Text.assemble(("left out ", "yellow"), line), soft_wrap=True)
    for line in lines_beside(group, arrays):
        console.print(Text(line), soft_wrap=True)
    if not one_array and group.info.n_checksums:
        console.print(
            f"checksums: {number_of(group.info.n_checksums, 'stored chunk')}", highlight=False
        )
    if one_array or any(each.n_blocks > 1 for each in arrays.values()):
        path, drawn = _largest(arrays)
        console.print()
        console.print(draw_grid(drawn, path, min(console.width, 100)))


def _largest(arrays: Mapping[str, VirtualArray]) -> tuple[str, VirtualArray]:
    """The array of most dimensions and bytes, of those with several blocks if there are any."""
    chosen = {name: each for name, each in arrays.items() if each.n_blocks > 1} or arrays
    if not chosen:
        raise InvalidRequestError("nothing to draw: there are no arrays")
    return max(chosen.items(), key=lambda item: (item[1].ndim, item[1].nbytes))


def _print_reasons(
    console: Console, arrays: Mapping[str, VirtualArray], views: ViewOptions
) -> None:
    """Print why arrays are not shown as stored, or without the requested shards."""
    from gridref.faces.cli.described import decoded_because, unsharded_because

    not_native = "not shown" if views.view == "native" else "decoded on the way"
    for title, reasons in (
        (not_native, decoded_because(arrays, views)),
        ("without shards", unsharded_because(arrays, views)),
    ):
        for reason, paths in reasons.items():
            console.print(Text(f"{title}: {paths} ({reason})", style="dim"))


# ``gridref list``: tables of a catalog

TABLES = ("chunks", "sources", "report", "statistics", "history")
_ONLY_FOR = {"ARRAYS": ("chunks", "statistics"), "--state": ("chunks",), "--by-size": ("sources",),
             "--scan-values": ("statistics",)}  # fmt: skip
"""Tables that an option is for, where it is not for all."""


def list_command(
    catalog: Catalog,
    table: Annotated[
        str | None,
        typer.Argument(
            help="chunks: place in the array, place in the source, and sizes. sources: the files."
            " report: differences between files, and how each was resolved. statistics: least and"
            " greatest values. history: snapshots, the current one first."
        ),
    ] = None,
    arrays: Annotated[
        list[str] | None,
        typer.Argument(help="Arrays whose chunks or statistics to list. Default: all."),
    ] = None,
    sql: Annotated[
        str | None,
        typer.Option(
            metavar="QUERY",
            help="Query the catalog with DuckDB instead (pip install 'gridref[sql]').",
        ),
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            help="List only chunks in this state: missing (no file holds them), pending (declared "
            "ahead, no file yet), range, inline. Repeatable."
        ),
    ] = None,
    by_size: Annotated[
        bool, typer.Option("--by-size", help="Sort sources by size, the largest first.")
    ] = False,
    scan_values: Annotated[
        bool,
        typer.Option(
            "--scan-values",
            help="First read all chunks without statistics, and record the range of their values.",
        ),
    ] = False,
    threads: Annotated[
        int | None, typer.Option(help="Number of threads that read values. Default: 16.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="Write all rows to a file: .parquet, .arrow, .feather, .csv or .jsonl.",
        ),
    ] = None,
    format: Annotated[  # noqa: A002
        str, typer.Option("--format", help="On the screen: table, csv or jsonl.")
    ] = "table",
    limit: Annotated[
        int, typer.Option(help="Show at most this many rows on the screen; 0 for all.")
    ] = 100,
    quiet: Quiet = False,
    snapshot: Snapshot = None,
    allow: Allowed = None,
    storage_options: StorageOptions = None,
) -> None:
    """List what a catalog holds as a table: chunks, sources, report, statistics or history.

    In SQL, the tables are chunks, sources and arrays. Each array of one dimension is also a table
    under its own name, with the columns index and value. Chunk coords and elements are written like
    0/3/1, an index for each dimension.

    Examples
    --------
        gridref list cube.gridref chunks tas --state missing

        gridref list cube.gridref chunks -o chunks.parquet

        gridref list cube.gridref sources --by-size

        gridref list cube.gridref statistics --scan-values

        gridref list cube.gridref --sql "SELECT state, count(*) FROM chunks GROUP BY state"
    """
    from gridref.faces.cli.tabular import put_rows

    if (table is None) == (sql is None):
        raise typer.BadParameter(f"name a table ({', '.join(TABLES)}), or give a --sql query")
    if scan_values and snapshot is not None:
        raise typer.BadParameter(
            "--scan-values works on the current catalog only: leave out --snapshot"
        )
    opened = opened_catalog(catalog, storage_options, allow, snapshot)
    if sql is not None:
        from gridref.faces.duckdb import query_rows

        with query_rows(opened, sql) as rows:
            put_rows(rows, output=output, format=format, limit=limit)
        return
    check_names("the catalog", [str(table)], TABLES, "table")
    given = {"ARRAYS": arrays, "--state": state, "--by-size": by_size, "--scan-values": scan_values}
    for name, tables in _ONLY_FOR.items():
        if given[name] and table not in tables:
            raise InvalidRequestError(f"{name} is for {' and '.join(tables)}, not for {table}")
    if scan_values:
        with shown_progress(quiet, "chunks") as progress:
            opened = opened.scan_values(arrays or None, n_threads=threads, progress=progress)
    rows = _rows(opened, str(table), arrays or [], state or None, by_size=by_size)
    put_rows(rows, output=output, format=format, limit=limit)
    if table == "statistics" and not any(opened.statistics()["n_known"].to_pylist()):
        echo("no statistics yet: --scan-values reads all chunks and records them", err=True)


def _rows(
    opened: OpenedCatalog,
    table: str,
    arrays: list[str],
    state: list[str] | None,
    *,
    by_size: bool,
) -> pa.RecordBatchReader:
    """The rows of a table of a catalog."""
    import pyarrow as pa
    import pyarrow.compute as pc

    check_names("the catalog", (path.strip("/") for path in arrays), opened.all_arrays(), "array")
    if table == "chunks":
        wanted: list[str | None] = [*arrays] or [None]
        readers = [opened.chunk_batches(each, state=state) for each in wanted]
        return pa.RecordBatchReader.from_batches(readers[0].schema, chain.from_iterable(readers))
    if table == "history":
        return _history(opened).to_reader()
    if table == "report":
        return opened.report().to_reader()
    if table == "sources":
        sources = opened.sources()
        order = [("size_bytes", "descending")]
        return (sources.sort_by(order) if by_size else sources).to_reader()
    statistics = opened.statistics()
    if arrays:
        paths = pa.array([path.strip("/") for path in arrays])
        statistics = statistics.filter(pc.is_in(statistics["path"], paths))
    return statistics.to_reader()


def _history(opened: OpenedCatalog) -> pa.Table:
    """The snapshots of a catalog, the current one first, with their tags."""
    import pyarrow as pa

    tags: dict[str, list[str]] = {}
    for tag, snapshot in sorted(opened.info.tags.items()):
        tags.setdefault(snapshot, []).append(tag)
    commits = opened.history()
    return pa.table(
        {
            "snapshot": [commit.id for commit in commits],
            "time": [commit.time for commit in commits],
            "operation": [commit.operation for commit in commits],
            "message": [commit.message for commit in commits],
            "tags": pa.array(
                [tags.get(commit.id, []) for commit in commits], pa.list_(pa.string())
            ),
        }
    )


# ``gridref verify``


def verify_command(
    catalog: Catalog,
    all: Annotated[  # noqa: A002 - the option's name
        bool, typer.Option("--all", help="Compare every chunk, not a sample.")
    ] = False,
    checksums: Annotated[
        bool,
        typer.Option(
            "--checksums",
            help="Then record a checksum of each stored chunk; all later reads compare it.",
        ),
    ] = False,
    max_in_flight: Annotated[
        int, typer.Option(help="Compare at most this many remote files at a time.", min=1)
    ] = 64,
    summary: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="If nothing differs, write what was compared, to be published with the catalog.",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Compare with such a summary too: the catalog must have the same digest.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="For machines: lists every difference.")
    ] = False,
    quiet: Quiet = False,
    snapshot: Snapshot = None,
    storage_options: StorageOptions = None,
    allow: Allowed = None,
) -> None:
    """Compare a catalog with what the original readers (h5py, tifffile) return.

    By default, corners, edges and a random sample of chunks of every array are compared. The exit
    status is 1 if anything differs, or if any file cannot be read.

    Examples
    --------
        gridref verify cube.gridref

        gridref verify cube.gridref --all --checksums

        gridref verify cube.gridref --all --summary cube.verified.json

        gridref verify copy.gridref --against cube.verified.json

        gridref verify refs.json --allow data/
    """
    print_verification(
        catalog,
        summary=summary,
        against=against,
        as_json=as_json,
        quiet=quiet,
        storage_options=parse_options(storage_options),
        allow=allow or None,
        snapshot=snapshot,
        all=all,
        checksums=checksums,
        max_in_flight=max_in_flight,
    )


def print_verification(
    catalog: str,
    *,
    summary: str | None = None,
    against: str | None = None,
    as_json: bool = False,
    quiet: bool = False,
    storage_options: dict[str, Any] | None = None,
    allow: list[str] | None = None,
    snapshot: str | None = None,
    **how: Any,
) -> None:
    """Compare a catalog, or an export, with the original readers, and say what differs.

    Parameters
    ----------
    summary, against
        Files: where to write what was compared, and an earlier one to compare with.
    as_json
        Whether to print the result as JSON on standard output, and the rest on standard error.
    storage_options, allow, snapshot, **how
        As for `gridref.verify`.

    Raises
    ------
    typer.Exit
        With status 1 for any difference.
    """
    from gridref.api.verify import verify as verify_catalog

    console = Console(stderr=as_json)
    access: dict[str, Any] = {
        "storage_options": storage_options,
        "allow": allow,
        "snapshot": snapshot,
    }
    opened: Any = catalog
    published = summarised = None
    if summary or against:
        from gridref.api.catalog import open_catalog
        from gridref.api.verify import Summary

        if how.get("checksums"):
            raise InvalidRequestError(
                "--checksums changes the catalog: record them first, then verify it again with"
                " --summary or --against"
            )
        published = Summary.read(against, storage_options) if against else None
        opened = open_catalog(catalog, **access)
        access = {"storage_options": storage_options}
        summarised = partial(Summary.of, opened.info, all=how.get("all", False))

    def announce(n_chunks: int, n_bytes: int) -> None:
        size = f"{n_bytes / 1e6:.1f} MB"
        console.print(
            f"{number_of(n_chunks, 'stored chunk')} to compare: {size}, read twice", style="dim"
        )

    with shown_progress(quiet, "chunks") as progress:
        result = verify_catalog(opened, progress=progress, announce=announce, **access, **how)
    _print_differences(console, result)
    if as_json:
        echo(json.dumps(_as_json(result)))
    for path, reason in result.not_compared:
        console.print(Text.assemble(("not compared ", "yellow"), f"{path}: {reason}"))
    n_labels = sum(difference.is_label for difference in result.differences)
    n_files = sum(difference.is_file for difference in result.differences)
    n_unlike = len(result.differences) - n_labels - n_files
    differ = _differing(n_labels, "coordinate") if n_labels else "none differs"
    console.print(f"{number_of(result.n_labels, 'label')} compared: {differ}")
    console.print(
        f"{number_of(result.n_arrays, 'array')}, {number_of(result.n_chunks, 'chunk')},"
        f" {number_of(result.n_values, 'value')} compared: {_differing(n_unlike, 'chunk')}"
    )
    if n_files:
        console.print(f"{number_of(n_files, 'file')} cannot be read")
    if how.get("checksums") and not result.differences:
        console.print(f"checksums recorded: {number_of(result.n_checksums, 'stored chunk')}")
    if result.differences:
        raise typer.Exit(1)
    if summarised is not None:
        now = summarised(result)
        if published is not None:
            _print_comparison(console, published, now)
        if summary:
            now.write(summary, storage_options)
            console.print(f"written: {summary}")


_MOST_DIFFERENCES = 20
"""Differences, and files with the same reason, that are printed."""


def _print_differences(console: Console, result: Verification) -> None:
    """Print some differences, and the files that cannot be read, those with one reason together."""
    failed = [each for each in result.differences if each.is_file]
    differing = [each for each in result.differences if not each.is_file]
    for alike in by_reason(failed, lambda each: each.message):
        what = f"cannot read {number_of(len(alike), 'file')}: "
        console.print(Text.assemble((what, "bold red"), spelled(alike[0].message)))
        for each in alike[:_MOST_DIFFERENCES]:
            console.print(f"  {each.place.source}", soft_wrap=True)
        _print_more(console, alike)
    for each in differing[:_MOST_DIFFERENCES]:
        console.print(Text.assemble(("differs ", "bold red"), str(each)))
    _print_more(console, differing)


def _print_more(console: Console, found: Sequence[Difference]) -> None:
    n_more = len(found) - _MOST_DIFFERENCES
    if n_more > 0:
        console.print(f"  {n_more} more: --json lists all")


def _as_json(result: Verification) -> dict[str, Any]:
    return {
        "ok": result.ok,
        **{name: getattr(result, name) for name in ("n_arrays", "n_chunks", "n_values")},
        "n_labels": result.n_labels,
        "differences": [
            {
                "file": each.place.source,
                "variable": each.place.variable,
                "chunk": each.place.chunk,
                "message": each.message,
            }
            for each in result.differences
        ],
        "not_compared": [{"variable": v, "reason": reason} for v, reason in result.not_compared],
    }


def _differing(n: int, noun: str) -> str:
    return f"{number_of(n, noun)} {'differs' if n == 1 else 'differ'}"


def _print_comparison(console: Console, published: Summary, now: Summary) -> None:
    """Say whether a catalog is the one that a summary was published of.

    Raises
    ------
    typer.Exit
        With status 1 for any difference.
    """
    found = published.differences(now)
    for line in found:
        console.print(Text.assemble(("differs ", "bold red"), line))
    if found:
        console.print("the catalog is not the one that the summary is of: get that, or build again")
        raise typer.Exit(1)
    date = str(published.document.get("date"))[:10]
    console.print(f"as in the summary of {date}: {published.document['catalog']['digest']}")


# ``gridref diff``


def diff_command(
    catalog: Catalog,
    other: Annotated[
        str | None,
        typer.Argument(help="Address of another catalog. Default: the current state of the same."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    snapshot: Snapshot = None,
    storage_options: StorageOptions = None,
) -> None:
    """Compare two catalogs: arrays, attributes, chunks, sources.

    Exit status 0 if nothing differs, 1 if something does, 2 if they cannot be compared.

    Examples
    --------
        gridref diff cube.gridref new.gridref

        gridref diff monday.gridref tuesday.gridref --json

        gridref diff cube.gridref --snapshot v1
    """
    if other is None and snapshot is None:
        raise typer.BadParameter("name another catalog, or a --snapshot of this one")
    try:
        before = opened_catalog(catalog, storage_options, snapshot=snapshot)
        changes = before.diff(other or catalog)
    except GridrefError as error:
        echo(f"error: {spelled(error.message)}", err=True)
        raise typer.Exit(2) from error
    if as_json:
        echo(json.dumps([vars(change) for change in changes]))
    else:
        for change in changes:
            echo(str(change))
    raise typer.Exit(int(bool(changes)))


# ``gridref formats``: what can be scanned

_FACTS = {
    "read": "read",
    "refused": "refused",
    "codecs": "codecs",
    "oracle": "compared with",
    "native": "native view read by",
}


def formats_command(
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """List the formats that can be scanned, what is read from each, and how it is checked.

    Formats of other installed packages are listed, too.

    Examples
    --------
        gridref formats

        gridref formats --json
    """
    from gridref.formats.registry import known_formats

    known = known_formats()
    if as_json:
        echo(json.dumps([{**vars(each), "about": vars(each.about)} for each in known]))
        return
    console = Console()
    for number, each in enumerate(known):
        names = " ".join(each.names) or "found by content"
        console.print(Text.assemble("\n" * bool(number), (each.name, "bold"), f"  {names}"))
        facts = {label: getattr(each.about, field) for field, label in _FACTS.items()}
        if each.package:
            facts["added by"] = each.package
        table = Table.grid("label", "fact", padding=(0, 2))
        for label, fact in facts.items():
            if fact:
                table.add_row(f"  {label}", fact)
        console.print(table)


# ``gridref doctor``: what is installed, and whether an address can be read


def doctor_command(
    addresses: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ADDRESS]...",
            help="Files, folders of data, or catalogs to test. Default: list what is installed.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    storage_options: StorageOptions = None,
) -> None:
    """List what is installed, or test step by step whether addresses can be read.

    The test of an address stops at the first step that fails, and says what to do. The exit status
    is 1 if any step fails.

    Examples
    --------
        gridref doctor

        gridref doctor https://example.org/data.nc

        gridref doctor s3://bucket/cube.gridref -O anon=true
    """
    from gridref.api.doctor import examined, extras, installed

    if not addresses:
        print_installed(installed(), extras(), as_json=as_json)
        return
    options = parse_options(storage_options)
    found: dict[str, list[dict[str, Any]]] = {}
    for address in addresses:
        steps = found[shown_address(address)] = []
        if not as_json:
            echo(shown_address(address))
        for step in examined(address, options):
            steps.append(vars(step))
            if not as_json:
                echo(f"  {'ok    ' if step.ok else 'failed'}  {step.name:<10}  {step.text}")
    if as_json:
        echo(json.dumps(found, indent=2))
    if not all(step["ok"] for steps in found.values() for step in steps):
        raise typer.Exit(1)


def print_installed(
    versions: Mapping[str, str],
    extras: Mapping[str, Mapping[str, str | None]],
    *,
    as_json: bool,
) -> None:
    """Print versions, and what is missing of each extra."""
    if as_json:
        echo(json.dumps({**versions, "extras": extras}, indent=2))
        return
    for name, found in versions.items():
        echo(f"{name} {found}")
    for extra, packages in extras.items():
        missing = [name for name, found in packages.items() if found is None]
        have = ", ".join(f"{name} {found}" for name, found in packages.items() if found)
        lack = f"missing {', '.join(missing)}: pip install 'gridref[{extra}]'" if missing else ""
        echo(f"  {extra:<12}  {'; '.join(filter(None, (have, lack)))}")
