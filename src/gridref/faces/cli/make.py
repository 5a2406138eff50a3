"""Commands that make catalogs: ``gridref build`` and ``gridref plan``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from gridref.errors import Message, UnclearLayoutError, number_of
from gridref.faces.cli.console import Console, shown_progress
from gridref.faces.cli.look import print_verification
from gridref.faces.cli.options import (
    BUILD_OPTIONS,
    FilesFrom,
    Match,
    Quiet,
    SomeFiles,
    all_files,
    call_options,
    spelled,
    takes,
)
from gridref.options import updated
from gridref.secrets import shown_address

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gridref.combine import Combination
    from gridref.model.array import VirtualGroup
    from gridref.model.scan_report import Finding


@takes(BUILD_OPTIONS)
def build_command(
    files: SomeFiles = None,
    catalog: Annotated[
        str | None, typer.Option("--catalog", "-o", help="Address of the new catalog.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare a sample with the original reader.")
    ] = False,
    files_from: FilesFrom = None,
    match: Match = None,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Scan files, or references of another tool, and write a catalog.

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

        gridref build refs.json -o cube.gridref --allow s3://bucket/ --verify

    References of kerchunk (JSON, or a folder of Parquet files) and Icechunk repositories may name
    files in their own folder, and files below --allow.

    Exit status 1 if --on-error skip left out files.
    """
    from gridref.api.building import build as build_catalog

    if catalog is None:
        raise typer.BadParameter("no catalog to write to: name one with -o CATALOG")
    address = catalog
    console = Console(stderr=True)
    chosen = all_files(files, files_from, match, options)

    def built(**options: Any) -> VirtualGroup:
        with shown_progress(quiet) as progress:
            return build_catalog(chosen, address, progress=progress, **options)

    group = _or_ask(console, built, call_options({"executor": None, **options}))
    for line in group.report.lines:
        console.print(Text(spelled(line)), soft_wrap=True)
    arrays = group.all_arrays()
    console.print(
        f"{shown_address(address)}: {number_of(len(arrays), 'array')},"
        f" {number_of(sum(a.n_blocks for a in arrays.values()), 'block')}",
        soft_wrap=True,
    )
    if verify:
        print_verification(address, storage_options=options.get("storage_options"), quiet=quiet)
    if group.report.failed:
        raise typer.Exit(1)


def _or_ask[T](console: Console, call: Callable[..., T], options: Mapping[str, Any]) -> T:
    """Call with some options; if the layout is unclear, ask the user at the terminal."""
    try:
        return call(**options)
    except UnclearLayoutError as error:
        if not error.choices or not is_interactive():
            raise
        console.print(Text(spelled(error.message)))
        _draw_choices(console, error)
        number = 0
        while not 1 <= number <= len(error.choices):
            number = typer.prompt("Number of the layout", type=int, err=True)
        choice = dict(error.choices[number - 1])
        if "combine" in choice:
            choice["combine"] = updated(options.get("combine"), choice["combine"])
        return call(**{**options, **choice})


def _draw_choices(console: Console, error: UnclearLayoutError) -> None:
    """Number the layouts that are possible, and draw what each gives."""
    from gridref.faces.cli.described import print_outcome

    for number, choice in enumerate(error.choices):
        console.print(Text(f"{number + 1}: {spelled(Message.naming(choice))}"), soft_wrap=True)
        for group in error.groups[number : number + 1]:
            print_outcome(console, group)


def is_interactive() -> bool:
    """Whether someone can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _told_failed(console: Console, failed: Sequence[Finding]) -> bool:
    """Say which files were left out; returns whether there are any."""
    from gridref.api.summary import finding_lines
    from gridref.model.scan_report import ScanReport

    for line in finding_lines(ScanReport(tuple(failed))):
        console.print(Text(spelled(line)), soft_wrap=True)
    return bool(failed)


@takes(BUILD_OPTIONS)
def plan_command(
    files: SomeFiles = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    every: Annotated[
        bool,
        typer.Option("--all", help="Show each array, and each drift and problem with its files."),
    ] = False,
    files_from: FilesFrom = None,
    match: Match = None,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Report what building a catalog would do; read metadata only and write nothing.

    Takes what `gridref build` takes. Shows the layout, the dimensions and their sizes, the parts of
    variables that files hold, and how drift between the files would be resolved. If several layouts
    are possible, shows each. The exit status is 1 if there are problems.

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
        with shown_progress(quiet) as progress:
            return plan_files(chosen, progress=progress, **options)

    try:
        combination = _or_ask(console, planned, call_options({"executor": None, **options}))
    except UnclearLayoutError as error:
        _draw_choices(Console(), error)
        raise
    failed = _told_failed(console, combination.failed)
    if not print_plan(Console(), combination, as_json=as_json, every=every) or failed:
        raise typer.Exit(1)
