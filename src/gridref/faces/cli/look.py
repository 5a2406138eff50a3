"""Commands that look at files and catalogs: ``chunks``, ``sources``, ``sql``, ``diff``, ..."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

import gridref
from gridref.errors import GridrefError, InvalidRequestError
from gridref.faces.cli.console import Console, echo
from gridref.faces.cli.options import (
    Allowed,
    Catalog,
    Quiet,
    Snapshot,
    StorageOptions,
    as_on_the_command_line,
    parse_options,
)
from gridref.faces.cli.progress import ScanProgress
from gridref.options import check_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridref.api.inspect import Inspection
    from gridref.api.keeping import Catalog as OpenedCatalog
    from gridref.model.array import VirtualArray, VirtualGroup


# ``gridref chunks | sources | stats | report | sql | diff``

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
Limit = Annotated[int, typer.Option(help="Show at most this many rows on the screen; 0 for all.")]


def chunks_command(
    catalog: Catalog,
    array: Annotated[
        str | None,
        typer.Argument(help="Path of an array. Default: all arrays.", show_default=False),
    ] = None,
    missing: Annotated[
        bool, typer.Option("--missing", help="List only chunks that no file holds.")
    ] = False,
    pending: Annotated[
        bool, typer.Option("--pending", help="List only chunks that are still to come.")
    ] = False,
    output: Output = None,
    format: Format = "table",  # noqa: A002
    limit: Limit = 100,
    snapshot: Snapshot = None,
    allow: Allowed = None,
    storage_options: StorageOptions = None,
) -> None:
    """List stored chunks: place in the array, place in the source, and sizes.

    Chunk coords and elements are written like 0/3/1, an index for each dimension.

    Examples
    --------
        gridref chunks cube.gridref tas --missing

        gridref chunks cube.gridref -o chunks.parquet
    """
    from gridref.faces.cli.tabular import put_rows

    wanted = [name for name, on in (("missing", missing), ("pending", pending)) if on]
    group = _opened(catalog, snapshot, storage_options, allow)
    rows = group.chunk_batches(array, state=wanted or None)
    put_rows(rows, output=output, format=format, limit=limit)


def sources_command(
    catalog: Catalog,
    by_size: Annotated[
        bool, typer.Option("--by-size", help="Sort by size, the largest first.")
    ] = False,
    output: Output = None,
    format: Format = "table",  # noqa: A002
    limit: Limit = 100,
    snapshot: Snapshot = None,
    allow: Allowed = None,
    storage_options: StorageOptions = None,
) -> None:
    """List the source files: address, size, time of change and ETag.

    Examples
    --------
        gridref sources cube.gridref --by-size

        gridref sources cube.gridref -o sources.csv
    """
    from gridref.faces.cli.tabular import put_rows

    table = _opened(catalog, snapshot, storage_options, allow).sources()
    if by_size:
        table = table.sort_by([("size_bytes", "descending")])
    put_rows(table.to_reader(), output=output, format=format, limit=limit)


def stats_command(
    catalog: Catalog,
    arrays: Annotated[
        list[str] | None,
        typer.Argument(help="Arrays to look at. Default: all.", show_default=False),
    ] = None,
    scan_values: Annotated[
        bool,
        typer.Option(
            "--scan-values",
            help="Read all chunks without statistics, and record the range of their values.",
        ),
    ] = False,
    threads: Annotated[
        int | None, typer.Option(help="Number of threads that read.", show_default=False)
    ] = None,
    output: Output = None,
    format: Format = "table",  # noqa: A002
    limit: Limit = 100,
    quiet: Quiet = False,
    snapshot: Snapshot = None,
    allow: Allowed = None,
    storage_options: StorageOptions = None,
) -> None:
    """List statistics of the values of arrays: least, greatest, and number of valid ones.

    Examples
    --------
        gridref stats cube.gridref --scan-values

        gridref stats cube.gridref

        gridref chunks cube.gridref tas
    """
    from gridref.faces.cli.tabular import put_rows

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
    """List the differences between the files of a catalog, and how each was resolved.

    Examples
    --------
        gridref report cube.gridref

        gridref report cube.gridref -o drift.csv
    """
    from gridref.faces.cli.tabular import put_rows

    group = _opened(catalog, snapshot, storage_options)
    put_rows(group.report().to_reader(), output=output, format=format, limit=limit)


def sql_command(
    catalog: Catalog,
    query: Annotated[str, typer.Argument(help="A query in the SQL of DuckDB.", show_default=False)],
    output: Output = None,
    format: Format = "table",  # noqa: A002
    limit: Limit = 100,
    snapshot: Snapshot = None,
    allow: Allowed = None,
    storage_options: StorageOptions = None,
) -> None:
    """Query a catalog in SQL, with DuckDB (pip install 'gridref[sql]').

    The tables are chunks, sources and arrays. Each array of one dimension is a table too, under its
    own name, with the columns index and value.

    Examples
    --------
        gridref sql cube.gridref "SELECT state, count(*) FROM chunks GROUP BY state"

        gridref sql cube.gridref "FROM chunks WHERE stored_bytes > 100e6" -o large.parquet
    """
    from gridref.faces.cli.tabular import put_rows
    from gridref.faces.duckdb import query_rows

    with query_rows(_opened(catalog, snapshot, storage_options, allow), query) as rows:
        put_rows(rows, output=output, format=format, limit=limit)


def diff_command(
    catalog: Catalog,
    other: Annotated[
        str | None,
        typer.Argument(
            help="Address of another catalog. Default: the current state of the same.",
            show_default=False,
        ),
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
    from gridref.api.questions import diff

    if other is None and snapshot is None:
        raise typer.BadParameter("name another catalog, or a --snapshot of this one")
    try:
        before = _opened(catalog, snapshot, storage_options)
        changes = diff(before, other or catalog, storage_options=parse_options(storage_options))
    except GridrefError as error:
        echo(f"error: {as_on_the_command_line(str(error))}", err=True)
        raise typer.Exit(2) from error
    if as_json:
        echo(json.dumps([vars(change) for change in changes]))
    else:
        for change in changes:
            echo(str(change))
    raise typer.Exit(int(bool(changes)))


def _opened(
    catalog: str,
    snapshot: str | None,
    storage_options: list[str] | None,
    allow: list[str] | None = None,
) -> OpenedCatalog:
    from gridref.api.catalogs import open_catalog

    options = parse_options(storage_options)
    return open_catalog(catalog, storage_options=options, allow=allow or None, snapshot=snapshot)


# ``gridref explain``: the paragraphs of ``docs/errors.md``, without a network

_NAME = "errors.md"
_SECTION = re.compile(r"^### (\S+)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)


def explain_command(
    kind: Annotated[
        str | None,
        typer.Argument(help="Name of a kind of errors, or of a cause of problems in combining."),
    ] = None,
) -> None:
    """Explain an error and what to do. Without a name, list all kinds of errors.

    Examples
    --------
        gridref explain source-changed

        gridref explain labels-differ
    """
    sections = _sections()
    if kind is None:
        _list_kinds(sections)
    elif kind in sections:
        _print_markdown(f"## {kind}\n\n{sections[kind].strip()}\n")
    else:
        _print_markdown(_of_cause(sections, kind))


def _sections() -> dict[str, str]:
    """Text of each kind of errors, in the order of the page."""
    installed = Path(gridref.__file__).parent / _NAME
    page = installed if installed.is_file() else Path(__file__).parents[4] / "docs" / _NAME
    return dict(_SECTION.findall(page.read_text(encoding="utf-8")))


def _of_cause(sections: dict[str, str], cause: str) -> str:
    """The row of a cause of problems in combining."""
    head, line, *rows = [row for row in sections["combine"].splitlines() if row.startswith("|")]
    found = [row for row in rows if row.startswith(f"| `{cause}` |")]
    if not found:
        raise InvalidRequestError(
            f"no error is called {cause!r}: gridref explain lists them all, and gridref explain"
            " combine the causes of problems"
        )
    return (
        "\n".join((f"## {cause}\n", "A problem in combining files.\n", head, line, *found)) + "\n"
    )


def _list_kinds(sections: dict[str, str]) -> None:
    table = Table("kind", "class", "for example", box=None)
    for kind, text in sections.items():
        name, _, example = text.strip().partition("\n")[0].partition(": ")
        table.add_row(kind, name.strip("`"), example)
    Console().print(table)


def _print_markdown(text: str) -> None:
    if not sys.stdout.isatty():
        echo(text, nl=False)
        return
    from rich.markdown import Markdown

    Console().print(Markdown(text))


# ``gridref inspect``

_MAP_CELLS = 60


def inspect_command(
    file: Annotated[str, typer.Argument(help="A file or URL.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    limit: Annotated[int, typer.Option(help="List at most this many arrays; 0 for all.")] = 20,
    storage_options: StorageOptions = None,
) -> None:
    """Report why a file is slow to scan on a server, and what rewriting it would save.

    Local files are treated as if they were on a server.

    Examples
    --------
        gridref inspect data/tas_2020.nc

        gridref inspect https://example.org/scene.tif --json
    """
    from gridref.api.inspect import inspect

    found = inspect(file, storage_options=parse_options(storage_options))
    if as_json:
        echo(json.dumps(found.to_json()))
        return
    console = Console()
    for line in _lines(found):
        console.print(Text(line), soft_wrap=True)
    console.print(_arrays(found, limit or len(found.arrays)))
    _print_advice(console, found)


def _lines(found: Inspection) -> Iterator[str]:
    from gridref.faces.picture import human_bytes

    size = "" if found.file_bytes is None else f", {human_bytes(found.file_bytes)}"
    yield f"{found.file}: {found.format}{size}"
    yield from (
        f"{what}: {n_requests} requests, {human_bytes(n_bytes)}{_share(n_bytes, found.file_bytes)}"
        for what, n_requests, n_bytes in (
            ("a scan of it", found.n_requests, found.n_bytes),
            ("of one more like it", found.n_requests_alike, found.n_bytes_alike),
        )
    )
    if found.file_bytes:
        yield f"looked at: [{_map(found.metadata, found.file_bytes)}]"
    yield from (f"{name}: {value}" for name, value in found.facts.items())


def _share(n_bytes: int, file_bytes: int | None) -> str:
    return f" ({n_bytes / file_bytes:.1%} of the file)" if file_bytes else ""


def _map(pieces: tuple[tuple[int, int], ...], file_bytes: int) -> str:
    """A file from its first to its last byte, with # where something was looked at."""
    cells = ["."] * _MAP_CELLS
    for start, stop in pieces:
        for cell in range(start * _MAP_CELLS // file_bytes, -(-stop * _MAP_CELLS // file_bytes)):
            cells[cell] = "#"
    return "".join(cells)


def _arrays(found: Inspection, limit: int) -> Table:
    from gridref.faces.picture import human_bytes

    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("array", "chunks", "of shape", "median", "small", "in all", "index"):
        table.add_column(title, justify="left" if title in ("array", "index") else "right")
    ordered = sorted(found.arrays, key=lambda array: -array.n_chunks)
    for array in ordered[:limit]:
        table.add_row(
            array.path,
            str(array.n_chunks),
            "x".join(map(str, array.chunk_shape)) or "scalar",
            human_bytes(array.median_bytes),
            str(array.n_small),
            human_bytes(array.stored_bytes),
            array.index,
        )
    if len(ordered) > limit:
        table.add_row(f"and {len(ordered) - limit} more")
    return table


def _print_advice(console: Console, found: Inspection) -> None:
    if not found.advice:
        console.print("nothing makes it slow")
    for advice in found.advice:
        text = Text.assemble(("slow ", "yellow"), advice.reason)
        console.print(text, soft_wrap=True)
        if advice.command:
            console.print(Text(f"  {advice.command}"), soft_wrap=True)
        if advice.gain:
            console.print(Text(f"  gives {advice.gain}"), soft_wrap=True)


# ``gridref draw``: the chunk map of an array, in the terminal or as a picture


def draw_command(
    catalog: Catalog,
    array: Annotated[
        str | None,
        typer.Argument(
            help="Path of an array. Default: the largest one with several blocks.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="Write a picture: .svg, or .png and .pdf with matplotlib (pip install"
            " 'gridref[plot]'). Default: draw on the screen.",
            show_default=False,
        ),
    ] = None,
    width: Annotated[int, typer.Option(help="Width of the map in a picture, in pixels.")] = 720,
    snapshot: Annotated[
        str | None, typer.Option(help="Id of a former snapshot, or a tag.", show_default=False)
    ] = None,
    storage_options: StorageOptions = None,
    allow: Allowed = None,
) -> None:
    """Draw the blocks and stored chunks of an array.

    Examples
    --------
        gridref draw cube.gridref tas

        gridref draw cube.gridref tas -o map.svg
    """
    from gridref.api.catalogs import open_catalog

    options = parse_options(storage_options)
    group = open_catalog(catalog, storage_options=options, allow=allow or None, snapshot=snapshot)
    path, drawn = _array_to_draw(group, array)
    if output is not None:
        from gridref.faces.picture import ChunkMap

        ChunkMap(drawn, path, width).save(output)
        return
    from gridref.faces.cli.drawing import draw_grid

    console = Console()
    console.print(draw_grid(drawn, path, min(console.width, 100)))


def _array_to_draw(group: VirtualGroup, path: str | None) -> tuple[str, VirtualArray]:
    """The array of a path; without one, the one of most dimensions and bytes among uneven ones.

    Raises
    ------
    InvalidRequestError
        If there is none.
    """
    arrays = group.all_arrays()
    if path is None:
        chosen = {name: each for name, each in arrays.items() if each.n_blocks > 1} or arrays
        if not chosen:
            raise InvalidRequestError("nothing to draw: there are no arrays")
        return max(chosen.items(), key=lambda item: (item[1].ndim, item[1].nbytes))
    name = path.strip("/")
    check_names("the catalog", [name], arrays, kind="array")
    return name, arrays[name]


# The output of ``gridref verify``


def print_verification(
    catalog: str,
    *,
    all: bool = False,  # noqa: A002 - as in `verify`
    checksums: bool = False,
    options: dict[str, Any] | None = None,
    quiet: bool = False,
    allow: list[str] | None = None,
    snapshot: str | None = None,
    max_in_flight: int = 64,
) -> None:
    """Compare a catalog, or an export, with the original readers, and say what differs.

    Raises
    ------
    typer.Exit
        With status 1 for any difference.
    """
    from gridref.api.verify import verify as verify_catalog

    console = Console()

    def announce(n_chunks: int, n_bytes: int) -> None:
        size = f"{n_bytes / 1e6:.1f} MB"
        console.print(f"{n_chunks} stored chunks to compare: {size}, read twice", style="dim")

    with ScanProgress(Console(stderr=True), quiet, unit="chunks") as progress:
        result = verify_catalog(
            catalog,
            all=all,
            checksums=checksums,
            storage_options=options,
            allow=allow or None,
            snapshot=snapshot,
            max_in_flight=max_in_flight,
            progress=progress,
            announce=announce,
        )
    for difference in result.differences[:20]:
        console.print(Text.assemble(("differs ", "bold red"), str(difference)))
    for path, reason in result.not_compared:
        console.print(Text.assemble(("not compared ", "yellow"), f"{path}: {reason}"))
    n_labels = sum(difference.is_label for difference in result.differences)
    differ = f"{n_labels} coordinates of files differ" if n_labels else "none differs"
    console.print(f"{result.n_labels} labels compared: {differ}")
    console.print(
        f"{result.n_arrays} arrays, {result.n_chunks} chunks, {result.n_values} values compared:"
        f" {len(result.differences) - n_labels} chunks differ"
    )
    if checksums and not result.differences:
        console.print(f"{result.n_checksums} stored chunks now have checksums")
    if result.differences:
        raise typer.Exit(1)
