"""The commands, and how errors end them."""

from __future__ import annotations

import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from gridref.adapters.cli.options import parse_options, parse_shards
from gridref.adapters.cli.serve import register as register_serve
from gridref.errors import GridrefError

if TYPE_CHECKING:
    from gridref.model.array import VirtualGroup
    from gridref.serve.views import ViewOptions

__all__ = ["app", "main"]

app = typer.Typer(
    name="gridref",
    help="Open any pile of HDF5, NetCDF4 and TIFF files as one Zarr cube, without copying them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

Files = Annotated[
    list[str], typer.Argument(help="Files, URLs, globs or directories.", show_default=False)
]
Catalog = Annotated[
    str, typer.Argument(help="Address of a catalog: a path or URL.", show_default=False)
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option", "-O", metavar="KEY=VALUE", help="fsspec option of remote files; repeatable."
    ),
]
Join = Annotated[
    str | None,
    typer.Option(
        help="Variables and labels that some files lack: exact (a problem), outer, inner, left,"
        " right, override."
    ),
]
Overlap = Annotated[
    str | None,
    typer.Option(help="Labels in several files: error, first, last, keep."),
]
Conflicts = Annotated[
    str | None,
    typer.Option(help="Variables that do not fit together: raise, drop."),
]
ConvertUnits = Annotated[
    bool, typer.Option("--convert-units", help="Bring units that differ on the first file's.")
]


def main() -> None:
    """Run the command line; errors of ours are one message and exit status 1.

    ``--debug``, anywhere on the line, shows the traceback too.
    """
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    try:
        app(args=arguments, prog_name="gridref")
    except GridrefError as error:
        if debug:
            raise
        message = Text.assemble(("error: ", "bold red"), str(error))
        Console(stderr=True).print(message, soft_wrap=True)
        sys.exit(1)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gridref {version('gridref')}")
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


@app.command()
def build(
    files: Files,
    output: Annotated[str, typer.Option("--output", "-o", help="Where the catalog goes.")],
    concat_dim: Annotated[
        str | None,
        typer.Option(help="Dimension to lay the files along: an existing or a new one."),
    ] = None,
    stack: Annotated[
        str | None, typer.Option(help="New dimension to stack the files along.")
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(help="Where labels of a stack stand in file names: '{time:%Y%m%d}'."),
    ] = None,
    pattern_of: Annotated[
        str | None,
        typer.Option(help="Attribute to find labels in, not file names: TIFFTAG_DATETIME."),
    ] = None,
    mosaic: Annotated[
        bool, typer.Option("--mosaic", help="Lay the files out by their georeferencing.")
    ] = False,
    join: Join = None,
    overlap: Overlap = None,
    conflicts: Conflicts = None,
    convert_units: ConvertUnits = False,
    skip_unsupported: Annotated[
        bool, typer.Option(help="Leave out what cannot be served faithfully, and say so.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare a sample with the original reader.")
    ] = False,
    jobs: Annotated[int | None, typer.Option(help="Processes that scan.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
    option: Options = None,
) -> None:
    """Index files and write a catalog.

    Examples
    --------
        gridref build data/*.nc --concat-dim time -o cube.gridref

        gridref build one.h5 -o one.gridref

        gridref build s3://bucket/day-*.nc --concat-dim time -o cube.gridref -O anon=true

        gridref build tiles/*.tif --mosaic -o map.gridref

        gridref build lst_*.tif --stack time --pattern '{time:%Y%m%d}' -o lst.gridref
    """
    from gridref.adapters.cli.inspecting import skipped_summary
    from gridref.workflows.building import build as build_catalog

    console = Console(stderr=True)
    options = parse_options(option)
    with ScanProgress(console, quiet) as progress:
        group = build_catalog(
            files,
            output,
            concat_dim,
            stack=stack,
            pattern=pattern,
            pattern_of=pattern_of,
            mosaic=mosaic,
            storage_options=options,
            on_unsupported="skip" if skip_unsupported else "raise",
            n_processes=jobs,
            progress=progress,
            **given(
                join=join,
                overlap=overlap,
                conflicts=conflicts,
                convert_units=convert_units or None,
            ),
        )
    for line in skipped_summary(group.report):
        console.print(Text.assemble(("skipped ", "yellow"), line))
    arrays = group.all_arrays()
    console.print(
        f"{output}: {len(arrays)} arrays, {sum(a.n_blocks for a in arrays.values())} blocks"
    )
    if verify:
        _verify(output, everything=False, options=options)


@app.command()
def info(
    catalog: Catalog,
    view: Annotated[
        str, typer.Option(help="How chunks are shown: auto, native, portable.")
    ] = "auto",
    shards: Annotated[
        str | None,
        typer.Option(help="Show shards: blocks, auto, or lengths like time=120,lat=60."),
    ] = None,
    option: Options = None,
) -> None:
    """Show what is in a catalog: tree, chunk grids, codecs, sources, and how each array is shown.

    Examples
    --------
        gridref info cube.gridref

        gridref info cube.gridref --view portable --shards auto
    """
    from gridref.adapters.cli.drawing import describe_arrays, draw_grid, draw_tree
    from gridref.adapters.cli.inspecting import source_summary
    from gridref.workflows.opening import open_group

    console = Console()
    group = open_group(catalog, parse_options(option))
    console.print(draw_tree(group, catalog))
    console.print()
    views = _view_options(view, shards)
    console.print(describe_arrays(group, views))
    _print_reasons(console, group, views)
    console.print()
    for line in source_summary(group):
        console.print(line, highlight=False)
    uneven = {path: array for path, array in group.all_arrays().items() if array.n_blocks > 1}
    if uneven:
        path, largest = max(uneven.items(), key=lambda item: (item[1].ndim, item[1].nbytes))
        console.print()
        console.print(draw_grid(largest, path, min(console.width, 100)))


def _view_options(view: str, shards: str | None) -> ViewOptions:
    from gridref.workflows.opening import view_options

    return view_options({"view": view, "shards": parse_shards(shards)})


def _print_reasons(console: Console, group: VirtualGroup, views: ViewOptions) -> None:
    """Say why arrays are not shown as stored, or without the shards that were asked for."""
    from gridref.adapters.cli.inspecting import decoded_because, unsharded_because

    not_native = "not shown" if views.view == "native" else "decoded on the way"
    for title, reasons in (
        (not_native, decoded_because(group, views)),
        ("without shards", unsharded_because(group, views)),
    ):
        for reason, paths in reasons.items():
            console.print(Text(f"{title}: {paths} ({reason})", style="dim"))


@app.command()
def verify(
    catalog: Catalog,
    everything: Annotated[
        bool, typer.Option("--all", help="Compare every chunk, not a sample.")
    ] = False,
    option: Options = None,
) -> None:
    """Compare a catalog with what the original readers (h5py, tifffile) return.

    By default corners, edges and a random sample of chunks of every array. Exit status 1 on any
    difference.

    Example:

        gridref verify cube.gridref --all
    """
    _verify(catalog, everything=everything, options=parse_options(option))


def _verify(catalog: str, *, everything: bool, options: dict[str, Any]) -> None:
    from gridref.workflows.verifying import verify as verify_catalog

    console = Console()
    with ScanProgress(Console(stderr=True), quiet=False, what="chunks") as progress:
        result = verify_catalog(
            catalog, everything=everything, storage_options=options, progress=progress
        )
    for difference in result.differences[:20]:
        console.print(Text.assemble(("differs ", "bold red"), str(difference)))
    for path, reason in result.not_compared:
        console.print(Text.assemble(("not compared ", "yellow"), f"{path}: {reason}"))
    console.print(
        f"{result.n_arrays} arrays, {result.n_chunks} chunks, {result.n_values} values compared:"
        f" {len(result.differences)} chunks differ"
    )
    if result.differences:
        raise typer.Exit(1)


@app.command()
def demo(
    data: Annotated[
        Path | None, typer.Option(help="Folder of sample files; by default that of the checkout.")
    ] = None,
) -> None:
    """Build a catalog of the sample data, open it with xarray, and compare every value."""
    from gridref.adapters.cli.demo import run_demo

    with tempfile.TemporaryDirectory() as folder:
        if not run_demo(Console(), data, Path(folder)):
            raise typer.Exit(1)


@app.command()
def plan(
    files: Files,
    concat_dim: Annotated[str, typer.Option(help="Dimension to lay the files along.")],
    join: Join = None,
    overlap: Overlap = None,
    conflicts: Conflicts = None,
    convert_units: ConvertUnits = False,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    option: Options = None,
) -> None:
    """Say what combining files would do; reads metadata only and writes nothing.

    Shows what the cube would be, each drift between the files and how it would be resolved, and
    which arrays are shown as stored. Exit status 1 if there are problems.

    Example:

        gridref plan data/*.nc --concat-dim time
    """
    from gridref.adapters.cli.plan import print_plan
    from gridref.workflows.building import plan as plan_files

    combination = plan_files(
        files,
        concat_dim,
        storage_options=parse_options(option),
        **given(
            join=join,
            overlap=overlap,
            conflicts=conflicts,
            convert_units=convert_units or None,
        ),
    )
    if not print_plan(Console(), combination, as_json=as_json):
        raise typer.Exit(1)


def given(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


class _SpeedColumn(ProgressColumn):
    """Things per second."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.0f} {self.what}/s", style="dim")


class ScanProgress:
    """A progress bar with speed and remaining time; calls with (done, total) move it."""

    def __init__(self, console: Console, quiet: bool, what: str = "files") -> None:
        self._bar = Progress(
            TextColumn(what),
            BarColumn(),
            MofNCompleteColumn(),
            _SpeedColumn(what),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._bar.add_task(what, total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)


register_serve(app)
