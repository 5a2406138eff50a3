"""The commands that change a catalog: ``gridref append`` and those of its history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from gridref.adapters.cli.options import (
    BUILD_OPTIONS,
    Catalog,
    Files,
    Quiet,
    StorageOptions,
    parse_options,
    takes,
)
from gridref.adapters.cli.progress import ScanProgress

if TYPE_CHECKING:
    from gridref.catalog import CatalogGroup

Amend = Annotated[
    bool,
    typer.Option("--amend", help="Take the place of the last snapshot, as if it had never been."),
]

__all__ = [
    "append_command",
    "declare_command",
    "history_command",
    "prune_command",
    "refresh_command",
    "remove_command",
    "replace_command",
    "rollback_command",
    "tag_command",
]


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
    amend: Amend = False,
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
        after = (opened.amend() if amend else opened).append(
            files, at=at, progress=progress, **options
        )
    _told(catalog, opened, after)


def declare_command(
    catalog: Catalog,
    dim: Annotated[
        str, typer.Argument(help="Dimension along which the catalog grows.", show_default=False)
    ],
    first: Annotated[str, typer.Argument(help="First label: a date, or a number.")],
    last: Annotated[str, typer.Argument(help="Last label.")],
    step: Annotated[
        str, typer.Option(help="From label to label: 1D, 6h, 1MS as pandas has it, or a number.")
    ] = "1D",
    storage_options: StorageOptions = None,
) -> None:
    """Declare labels whose files are still to come, in any order.

    Until they come they read as fill value, and gridref chunks --pending lists them.

    Examples
    --------
        gridref declare cube.gridref time 2024-01-01 2024-12-31

        gridref declare run.gridref step 0 240 --step 6
    """
    from gridref.workflows.growing.declaring import labels_between

    opened = _opened(catalog, storage_options)
    labels = labels_between(opened, dim, first, last, step, lambda array: array[...])
    _told(catalog, opened, opened.declare(dim, labels))


def replace_command(
    catalog: Catalog,
    file: Annotated[str, typer.Argument(help="A file of the catalog.", show_default=False)],
    by: Annotated[
        str | None,
        typer.Argument(help="What comes in its place; by default the file as it is now."),
    ] = None,
    amend: Amend = False,
    storage_options: StorageOptions = None,
) -> None:
    """Put a file in the place of another one, or of its former self.

    Examples
    --------
        gridref replace cube.gridref data/2024-01.nc

        gridref replace cube.gridref data/2024-01.nc data/2024-01-v2.nc
    """
    opened = _opened(catalog, storage_options)
    _told(catalog, opened, (opened.amend() if amend else opened).replace_file(file, by))


def remove_command(
    catalog: Catalog, files: Files, amend: Amend = False, storage_options: StorageOptions = None
) -> None:
    """Leave files out of a catalog; the files themselves stay.

    Examples
    --------
        gridref remove cube.gridref data/2024-01.nc
    """
    opened = _opened(catalog, storage_options)
    _told(catalog, opened, (opened.amend() if amend else opened).remove(files))


def refresh_command(
    catalog: Catalog,
    vanished: Annotated[
        str, typer.Option(help="Files that are gone: raise, or remove (leave them out).")
    ] = "raise",
    quiet: Quiet = False,
    storage_options: StorageOptions = None,
) -> None:
    """Scan those files again that have changed since they were scanned.

    Examples
    --------
        gridref refresh cube.gridref

        gridref refresh cube.gridref --vanished remove
    """
    opened = _opened(catalog, storage_options)
    with ScanProgress(Console(stderr=True), quiet) as progress:
        after = opened.refresh(vanished=vanished, progress=progress)
    _told(catalog, opened, after)


def history_command(
    catalog: Catalog,
    storage_options: StorageOptions = None,
) -> None:
    """List the snapshots of a catalog, the current one first.

    Examples
    --------
        gridref history cube.gridref
    """
    opened = _opened(catalog, storage_options)
    names: dict[str, list[str]] = {}
    for tag, snapshot in opened.info.tags.items():
        names.setdefault(snapshot, []).append(tag)
    console = Console()
    for commit in opened.history():
        tags = "".join(f" [{tag}]" for tag in sorted(names.get(commit.id, [])))
        line = f"{commit.id}  {commit.time}  {commit.operation} {commit.message}{tags}"
        console.print(Text(line), soft_wrap=True)


def tag_command(
    catalog: Catalog,
    name: Annotated[str, typer.Argument(help="The name.", show_default=False)],
    snapshot: Annotated[
        str | None,
        typer.Argument(help="Id of a snapshot, or a tag; by default the current one."),
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Take the name away.")] = False,
    storage_options: StorageOptions = None,
) -> None:
    """Give a snapshot a name, under which it opens, and which keeps it from being pruned.

    Examples
    --------
        gridref tag cube.gridref v1

        gridref tag cube.gridref v1 --delete
    """
    opened = _opened(catalog, storage_options)
    after = opened.untag(name) if delete else opened.tag(name, snapshot)
    typer.echo(f"{name}: {after.info.tags.get(name, 'no tag any more')}")


def rollback_command(
    catalog: Catalog,
    to: Annotated[
        str | None, typer.Option(help="Id or tag of a snapshot; by default the one before.")
    ] = None,
    storage_options: StorageOptions = None,
) -> None:
    """Make a catalog what it was before; that is a commit, which can be rolled back too.

    Examples
    --------
        gridref rollback cube.gridref

        gridref rollback cube.gridref --to v1
    """
    opened = _opened(catalog, storage_options)
    _told(catalog, opened, opened.rollback(to))


def prune_command(
    catalog: Catalog,
    keep: Annotated[int, typer.Option(help="How many of the last snapshots stay.")] = 1,
    grace: Annotated[
        str, typer.Option(help="Nothing younger is removed: 90s, 30m, 12h or 7d.")
    ] = "1d",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be removed; remove nothing.")
    ] = False,
    storage_options: StorageOptions = None,
) -> None:
    """Remove old snapshots, but for tagged ones, and the files that only they need.

    Examples
    --------
        gridref prune cube.gridref --keep 10 --dry-run

        gridref prune cube.gridref --grace 7d
    """
    from gridref.workflows.layout.labels import duration_seconds

    opened = _opened(catalog, storage_options)
    youngest = duration_seconds(grace, "grace")
    pruned = opened.prune(keep=keep, grace_seconds=youngest, dry_run=dry_run)
    for file in pruned.files:
        typer.echo(f"{'would remove' if dry_run else 'removed'} {file}")
    typer.echo(f"{len(pruned.snapshots)} snapshots, {len(pruned.files)} files")


def _opened(catalog: str, storage_options: list[str] | None) -> CatalogGroup:
    from gridref.workflows.catalogs import open_catalog

    return open_catalog(catalog, storage_options=parse_options(storage_options))


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
        console.print(Text(f"{catalog}: nothing changed"), soft_wrap=True)
    else:
        last = after.snapshot.log[-1]
        console.print(Text(f"{catalog}: {last.operation} {last.message}"), soft_wrap=True)
        console.print(Text(f"snapshot {last.id}"))
    if after.report.failed:
        raise typer.Exit(1)
