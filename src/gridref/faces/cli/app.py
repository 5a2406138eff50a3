"""The command line: `main` with its exit codes, and `build`, `plan`, `info`, `verify`, `demo`."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from gridref.errors import GridrefError, LeftOutWarning, UnclearLayoutError
from gridref.faces.cli.change import (
    append_command,
    declare_command,
    history_command,
    prune_command,
    refresh_command,
    remove_command,
    replace_command,
    rollback_command,
    tag_command,
    watch_command,
)
from gridref.faces.cli.console import Console, echo, printable
from gridref.faces.cli.help import CHANGE, LOOK, MAKE, SHARE, Command
from gridref.faces.cli.look import (
    chunks_command,
    diff_command,
    draw_command,
    explain_command,
    inspect_command,
    print_verification,
    report_command,
    sources_command,
    sql_command,
    stats_command,
)
from gridref.faces.cli.make import import_command
from gridref.faces.cli.options import (
    BUILD_OPTIONS,
    VIEW_OPTIONS,
    Allowed,
    Catalog,
    FilesFrom,
    Match,
    Quiet,
    Snapshot,
    SomeFiles,
    StorageOptions,
    all_files,
    as_on_the_command_line,
    call_options,
    parse_options,
    takes,
)
from gridref.faces.cli.progress import ScanProgress
from gridref.faces.cli.share import (
    export_command,
    forecast_command,
    publish_command,
    relocate_command,
    serve_command,
    stac_command,
)
from gridref.options import updated
from gridref.secrets import shown_address

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gridref.combine import Combination
    from gridref.model.array import VirtualGroup
    from gridref.model.scan_report import Finding
    from gridref.serve.views import ViewOptions


app = typer.Typer(
    name="gridref",
    help="Open any pile of HDF5, NetCDF4 and TIFF files as one Zarr cube, without copying them.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

_UsageError: Any = typer.BadParameter.__mro__[1]
"""What typer raises for a line that it cannot take apart; click's own, or typer's copy of it."""


def main() -> None:
    """Run the command line.

    Our own errors print one message and give exit status 1. A command line that cannot be parsed
    gives exit status 2, and an interrupt (Ctrl-C) ends at once with exit status 130. ``--debug``,
    anywhere on the line, shows the traceback too.
    """
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    warnings.simplefilter("ignore", LeftOutWarning)  # the commands tell it themselves
    warnings.formatwarning = _one_line
    if not debug:
        os.environ.setdefault("DASK_DISTRIBUTED__LOGGING", _QUIET_DASK)
    try:
        status = app(args=arguments, prog_name="gridref", standalone_mode=False) or 0
        if status == _INTERRUPTED:  # what typer makes of a KeyboardInterrupt
            _end_at_once("interrupted", status)
        sys.exit(status)
    except GridrefError as error:
        if debug:
            raise
        _end(f"{as_on_the_command_line(str(error))}{_reference(error)}", 1)
    except _UsageError as error:
        if not arguments:
            sys.exit(2)  # the help that was shown says it all
        path = error.ctx.command_path if error.ctx is not None else "gridref"
        _end(f"{error.format_message()} (see {path} --help)", 2)


def _reference(error: GridrefError) -> str:
    """Where cause and remedy stand: behind one line, or below several."""
    return f"{'\n' if '\n' in str(error) else ' '}(see gridref explain {error.kind})"


_QUIET_DASK = "{'distributed': 'critical', 'distributed.client': 'critical'}"
"""Errors of a cluster are reported in our words, without Dask's tracebacks."""


def _one_line(message: Warning | str, *_place: Any, **_line: Any) -> str:
    return printable(f"warning: {message}\n")


_INTERRUPTED = 128 + signal.SIGINT
"""Exit status that shells give to a program that was interrupted."""


def _end_at_once(message: str, status: int) -> None:
    """End without waiting for threads, which may wait for servers; everything else has ended."""
    gc.collect()  # semaphores of process pools, which would be called leaked
    print(message, file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(status)


def _end(message: str, status: int) -> None:
    text = Text.assemble(("error: ", "bold red"), message)
    Console(stderr=True).print(text, soft_wrap=True)
    sys.exit(status)


def _print_version(wanted: bool) -> None:
    if wanted:
        echo(f"gridref {version('gridref')}")
        raise typer.Exit


@app.callback()
def _common(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


@app.command(cls=Command, rich_help_panel=MAKE)
@takes(BUILD_OPTIONS)
def build(
    files: SomeFiles = None,
    catalog: Annotated[
        str | None,
        typer.Option("--catalog", "-o", help="Where the catalog goes.", show_default=False),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare a sample with the original reader.")
    ] = False,
    files_from: FilesFrom = None,
    match: Match = None,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Index files and write a catalog.

    Examples
    --------
        gridref build data/*.nc -o cube.gridref

        gridref build data/*.nc --concat-dim time -o cube.gridref

        gridref build one.h5 -o one.gridref

        gridref build s3://bucket/day-*.nc --concat-dim time -o cube.gridref -O anon=true

        gridref build tiles/*.tif --mosaic -o map.gridref

        gridref build --files-from files.txt --concat-dim time -o cube.gridref --work ~/scans

        gridref build --files-from items.json --asset B04 --mosaic -o map.gridref

        gridref build lst_*.tif --stack time --pattern '{time:%Y%m%d}' -o lst.gridref

        gridref build data/*.nc --pattern '{model}_{member:d}_{time:%Y%m}.nc' -o models.gridref

        gridref build data/*.nc --concat-dim member --concat-dim time -o ensemble.gridref

    Exit status 1 if --on-error skip left out files.
    """
    from gridref.api.building import build as build_catalog

    if catalog is None:
        raise typer.BadParameter("say where the catalog goes: -o CATALOG")
    address = catalog
    console = Console(stderr=True)
    chosen = all_files(files, files_from, match, options)

    def built(**options: Any) -> VirtualGroup:
        with ScanProgress(console, quiet) as progress:
            return build_catalog(chosen, address, progress=progress, **options)

    group = _or_ask(console, built, call_options({"n_processes": None, **options}))
    for line in group.report.lines:
        console.print(Text(as_on_the_command_line(line)), soft_wrap=True)
    arrays = group.all_arrays()
    console.print(
        f"{shown_address(address)}: {len(arrays)} arrays,"
        f" {sum(a.n_blocks for a in arrays.values())} blocks",
        soft_wrap=True,
    )
    if verify:
        print_verification(address, all=False, options=options.get("storage_options"), quiet=quiet)
    if group.report.failed:
        raise typer.Exit(1)


def _or_ask[T](console: Console, call: Callable[..., T], options: Mapping[str, Any]) -> T:
    """Call with some options; if the layout is unclear, ask the user at the terminal."""
    try:
        return call(**options)
    except UnclearLayoutError as error:
        if not error.choices or not is_interactive():
            raise
        console.print(Text(as_on_the_command_line(str(error))))
        for number, choice in enumerate(error.choices, 1):
            spelled = ", ".join(f"{name}={value!r}" for name, value in choice.items())
            console.print(Text(f"{number}: {as_on_the_command_line(spelled)}"))
        number = 0
        while not 1 <= number <= len(error.choices):
            number = typer.prompt("Number of the layout", type=int, err=True)
        choice = dict(error.choices[number - 1])
        if "combine" in choice:
            choice["combine"] = updated(options.get("combine"), choice["combine"])
        return call(**{**options, **choice})


def is_interactive() -> bool:
    """Whether someone can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _told_failed(console: Console, failed: Sequence[Finding]) -> bool:
    """Say which files were left out; returns whether there are any."""
    for finding in failed:
        line = f"{finding.source}: {finding.reason}"
        console.print(Text.assemble(("left out ", "bold red"), line), soft_wrap=True)
    return bool(failed)


@app.command(cls=Command, rich_help_panel=LOOK)
@takes(VIEW_OPTIONS)
def info(
    catalog: Catalog,
    snapshot: Snapshot = None,
    **options: Any,
) -> None:
    """Show what is in a catalog: tree, chunk grids, codecs, sources, and how each array is shown.

    Examples
    --------
        gridref info cube.gridref

        gridref info cube.gridref --view portable --shards auto

        gridref info cube.gridref --snapshot v1
    """
    from gridref.api.catalogs import open_catalog
    from gridref.api.opening import view_options
    from gridref.faces.cli.described import left_out, source_summary
    from gridref.faces.cli.drawing import describe_arrays, draw_grid, draw_tree

    storage_options, allow = options.pop("storage_options", None), options.pop("allow", None)
    views = view_options(options)
    group = open_catalog(catalog, storage_options=storage_options, allow=allow, snapshot=snapshot)
    console = Console()
    console.print(draw_tree(group, catalog))
    console.print()
    console.print(describe_arrays(group, views))
    _print_reasons(console, group, views)
    console.print()
    for line in source_summary(group):
        console.print(line, highlight=False)
    for line in left_out(group.report):
        console.print(Text.assemble(("left out ", "yellow"), line), soft_wrap=True)
    if group.info.n_checksums:
        console.print(f"{group.info.n_checksums} stored chunks have checksums", highlight=False)
    uneven = {path: array for path, array in group.all_arrays().items() if array.n_blocks > 1}
    if uneven:
        path, largest = max(uneven.items(), key=lambda item: (item[1].ndim, item[1].nbytes))
        console.print()
        console.print(draw_grid(largest, path, min(console.width, 100)))


def _print_reasons(console: Console, group: VirtualGroup, views: ViewOptions) -> None:
    """Print why arrays are not shown as stored, or without the requested shards."""
    from gridref.faces.cli.described import decoded_because, unsharded_because

    not_native = "not shown" if views.view == "native" else "decoded on the way"
    for title, reasons in (
        (not_native, decoded_because(group, views)),
        ("without shards", unsharded_because(group, views)),
    ):
        for reason, paths in reasons.items():
            console.print(Text(f"{title}: {paths} ({reason})", style="dim"))


@app.command(cls=Command, rich_help_panel=LOOK)
def verify(
    catalog: Catalog,
    all: Annotated[  # noqa: A002 - the option's name
        bool, typer.Option("--all", help="Compare every chunk, not a sample.")
    ] = False,
    checksums: Annotated[
        bool,
        typer.Option(
            "--checksums",
            help="Then record a checksum of each stored chunk, for all later reads to compare.",
        ),
    ] = False,
    max_in_flight: Annotated[
        int, typer.Option(help="Compare at most this many remote files at a time.", min=1)
    ] = 64,
    quiet: Quiet = False,
    snapshot: Snapshot = None,
    storage_options: StorageOptions = None,
    allow: Allowed = None,
) -> None:
    """Compare a catalog with what the original readers (h5py, tifffile) return.

    By default corners, edges and a random sample of chunks of every array. Exit status 1 on any
    difference.

    Examples
    --------
        gridref verify cube.gridref

        gridref verify cube.gridref --all --checksums

        gridref verify refs.json --allow data/
    """
    print_verification(
        catalog,
        all=all,
        checksums=checksums,
        options=parse_options(storage_options),
        quiet=quiet,
        allow=allow,
        snapshot=snapshot,
        max_in_flight=max_in_flight,
    )


@app.command(cls=Command, rich_help_panel=MAKE)
def demo(
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of sample files; by default those that come with gridref."),
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Then serve it to browsers until Ctrl+C.")
    ] = False,
    port: Annotated[int, typer.Option(help="Port for --serve; 0 takes any free one.")] = 8000,
) -> None:
    """Build a catalog of the sample data, open it with xarray, and compare every value.

    Examples
    --------
        gridref demo

        gridref demo --serve
    """
    from gridref.faces.cli.demo import run_demo, serve_demo

    with tempfile.TemporaryDirectory() as folder:
        # Its catalogs are temporary, and there are users who have no folder to remember them in.
        os.environ["GRIDREF_STATE"] = str(Path(folder, "state"))
        if not run_demo(Console(), data, Path(folder)):
            raise typer.Exit(1)
        if serve:
            serve_demo(Path(folder), port)


@app.command(cls=Command, rich_help_panel=MAKE)
@takes(BUILD_OPTIONS)
def plan(
    files: SomeFiles = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    files_from: FilesFrom = None,
    match: Match = None,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Report what building a catalog would do; read metadata only and write nothing.

    Takes what `gridref build` takes. Shows what the cube would be, each drift between the files and
    how it would be resolved, and which arrays are shown as stored. Exit status 1 if there are
    problems.

    Examples
    --------
        gridref plan data/*.nc --concat-dim time

        gridref plan tiles/*.tif --mosaic --overlap first --json

        gridref plan data/*.nc --concat-dim time --expect yesterday.json
    """
    from gridref.api.building import plan as plan_files
    from gridref.faces.cli.described import print_plan

    chosen = all_files(files, files_from, match, options)
    console = Console(stderr=True)

    def planned(**options: Any) -> Combination:
        with ScanProgress(console, quiet) as progress:
            return plan_files(chosen, progress=progress, **options)

    combination = _or_ask(console, planned, call_options({"n_processes": None, **options}))
    failed = _told_failed(console, combination.failed)
    if not print_plan(Console(), combination, as_json=as_json) or failed:
        raise typer.Exit(1)


for _name, _command, _group in (
    ("import", import_command, MAKE),
    ("inspect", inspect_command, LOOK),
    ("draw", draw_command, LOOK),
    ("chunks", chunks_command, LOOK),
    ("sources", sources_command, LOOK),
    ("report", report_command, LOOK),
    ("stats", stats_command, LOOK),
    ("sql", sql_command, LOOK),
    ("diff", diff_command, LOOK),
    ("explain", explain_command, LOOK),
    ("append", append_command, CHANGE),
    ("declare", declare_command, CHANGE),
    ("watch", watch_command, CHANGE),
    ("replace", replace_command, CHANGE),
    ("remove", remove_command, CHANGE),
    ("refresh", refresh_command, CHANGE),
    ("relocate", relocate_command, CHANGE),
    ("history", history_command, CHANGE),
    ("tag", tag_command, CHANGE),
    ("rollback", rollback_command, CHANGE),
    ("prune", prune_command, CHANGE),
    ("serve", serve_command, SHARE),
    ("export", export_command, SHARE),
    ("publish", publish_command, SHARE),
    ("stac", stac_command, SHARE),
    ("forecast", forecast_command, SHARE),
):
    app.command(_name, cls=Command, rich_help_panel=_group)(_command)
