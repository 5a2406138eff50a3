"""The commands that change a catalog: ``gridref append`` and those of its history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from gridref.adapters.cli.options import BUILD_OPTIONS, Catalog, Files, Quiet, takes
from gridref.adapters.cli.progress import ScanProgress

if TYPE_CHECKING:
    from gridref.catalog import CatalogGroup

__all__ = ["append_command"]


@takes(BUILD_OPTIONS)
def append_command(
    catalog: Catalog,
    files: Files,
    at: Annotated[
        str,
        typer.Option(
            help="Where files go: label (as their coordinate says, else at the end), start, end."
        ),
    ] = "label",
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Add files to a catalog, in one step; those that are in it are left out.

    Only new files are scanned. They are combined with what is there as the catalog was built;
    options change that. Files that do not fit are told all at once, and nothing is written.

    Examples
    --------
        gridref append cube.gridref data/2024-01.nc

        gridref append cube.gridref 'data/*.nc'

        gridref append one.gridref data/*.nc --concat-dim time
    """
    from gridref.workflows.catalogs import open_catalog

    opened = open_catalog(catalog, storage_options=options.pop("storage_options", None))
    with ScanProgress(Console(stderr=True), quiet) as progress:
        after = opened.append(files, at=at, progress=progress, **options)
    _told(catalog, opened, after)


def _told(catalog: str, before: CatalogGroup, after: CatalogGroup) -> None:
    """Say what a change did; exit status 1 if files were left out because they failed."""
    from gridref.adapters.cli.inspecting import skipped_summary

    console = Console(stderr=True)
    for line in skipped_summary(after.report):
        console.print(Text.assemble(("skipped ", "yellow"), line), soft_wrap=True)
    for finding in after.report.failed:
        line = f"{finding.source}: {finding.reason}"
        console.print(Text.assemble(("left out ", "bold red"), line), soft_wrap=True)
    if after.info.snapshot == before.info.snapshot:
        console.print(f"{catalog}: nothing changed")
    else:
        last = after.snapshot.log[-1]
        console.print(f"{catalog}: {last.operation} {last.message}", soft_wrap=True)
        console.print(f"snapshot {last.id}")
    if after.report.failed:
        raise typer.Exit(1)
