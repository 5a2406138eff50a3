"""Commands that change catalogs: ``gridref append`` and its kin, and ``watch``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.text import Text

from gridref.faces.cli.console import Console, echo
from gridref.faces.cli.options import (
    BUILD_OPTIONS,
    Catalog,
    Files,
    Quiet,
    SomeFiles,
    StorageOptions,
    as_on_the_command_line,
    call_options,
    parse_options,
    takes,
)
from gridref.faces.cli.progress import ScanProgress
from gridref.secrets import shown_address

if TYPE_CHECKING:
    from gridref.api.keeping import Catalog as OpenedCatalog
    from gridref.api.keeping import Vanished
    from gridref.api.places import At
    from gridref.api.results import Watch


# ``gridref append | declare | replace | remove | refresh``, and history commands

Amend = Annotated[
    bool,
    typer.Option("--amend", help="Replace the last snapshot instead of adding one."),
]


_OF_BUILD = ("expect", "relative", "overwrite", "keep_secrets", "identity", "checksums")
"""Options that a catalog is built with once."""


@takes({name: kind for name, kind in BUILD_OPTIONS.items() if name not in _OF_BUILD})
def append_command(
    catalog: Catalog,
    files: Files,
    at: Annotated[
        str,
        typer.Option(
            help="Where to add files. label: by their coordinate, else at the end. start, end."
        ),
    ] = "label",
    amend: Amend = False,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Add files to a catalog, in one step; files that are in it already are left out.

    Only new files are scanned. They are combined with the catalog by the options that it was built
    with, unless you give others. If any file does not fit, nothing is written and every problem is
    listed.

    Examples
    --------
        gridref append cube.gridref data/2024-01.nc

        gridref append cube.gridref 'data/*.nc'

        gridref append one.gridref data/*.nc --concat-dim time
    """
    from gridref.api.catalogs import open_catalog

    opened = open_catalog(catalog, storage_options=options.pop("storage_options", None))
    with ScanProgress(Console(stderr=True), quiet) as progress:
        after = (opened.amend() if amend else opened).append(
            files, at=cast("At", at), progress=progress, **call_options(options)
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
        str, typer.Option(help="Step between labels, as in pandas (1D, 6h, 1MS), or a number.")
    ] = "1D",
    storage_options: StorageOptions = None,
) -> None:
    """Declare labels whose files are still to come, in any order.

    Until then, they read as the fill value, and gridref chunks --pending lists them.

    Examples
    --------
        gridref declare cube.gridref time 2024-01-01 2024-12-31

        gridref declare run.gridref step 0 240 --step 6
    """
    from gridref.api.declaring import labels_between

    opened = _opened(catalog, storage_options)
    labels = labels_between(opened, dim, first, last, step, lambda array: array[...])
    _told(catalog, opened, opened.declare(dim, labels))


def replace_command(
    catalog: Catalog,
    file: Annotated[str, typer.Argument(help="A file of the catalog.", show_default=False)],
    by: Annotated[
        str | None,
        typer.Argument(
            help="The file in its place. Default: the present version of the same file."
        ),
    ] = None,
    amend: Amend = False,
    storage_options: StorageOptions = None,
) -> None:
    """Replace a file by another one, or scan it again in its present version.

    Examples
    --------
        gridref replace cube.gridref data/2024-01.nc

        gridref replace cube.gridref data/2024-01.nc data/2024-01-v2.nc
    """
    opened = _opened(catalog, storage_options)
    _told(catalog, opened, (opened.amend() if amend else opened).replace(file, by))


def remove_command(
    catalog: Catalog, files: Files, amend: Amend = False, storage_options: StorageOptions = None
) -> None:
    """Remove files from a catalog; the files themselves stay.

    Examples
    --------
        gridref remove cube.gridref data/2024-01.nc
    """
    opened = _opened(catalog, storage_options)
    _told(catalog, opened, (opened.amend() if amend else opened).remove(files))


def refresh_command(
    catalog: Catalog,
    vanished: Annotated[
        str,
        typer.Option(
            help="Files that are gone. raise: stop. remove: take them out of the catalog."
        ),
    ] = "raise",
    quiet: Quiet = False,
    storage_options: StorageOptions = None,
) -> None:
    """Scan files again that have changed since they were scanned.

    Examples
    --------
        gridref refresh cube.gridref

        gridref refresh cube.gridref --vanished remove
    """
    opened = _opened(catalog, storage_options)
    with ScanProgress(Console(stderr=True), quiet) as progress:
        after = opened.refresh(vanished=cast("Vanished", vanished), progress=progress)
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
        typer.Argument(help="Id or tag of a snapshot. Default: the current one."),
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Remove the tag.")] = False,
    storage_options: StorageOptions = None,
) -> None:
    """Tag a snapshot. Tagged snapshots can be opened by name and are never pruned.

    Examples
    --------
        gridref tag cube.gridref v1

        gridref tag cube.gridref v1 --delete
    """
    opened = _opened(catalog, storage_options)
    after = opened.untag(name) if delete else opened.tag(name, snapshot)
    echo(f"{name}: {after.info.tags.get(name, 'no tag any more')}")


def rollback_command(
    catalog: Catalog,
    to: Annotated[
        str | None, typer.Option(help="Id or tag of a snapshot. Default: the previous one.")
    ] = None,
    storage_options: StorageOptions = None,
) -> None:
    """Return to an earlier snapshot. This is a commit, which can be rolled back too.

    Examples
    --------
        gridref rollback cube.gridref

        gridref rollback cube.gridref --to v1
    """
    opened = _opened(catalog, storage_options)
    _told(catalog, opened, opened.rollback(to))


def prune_command(
    catalog: Catalog,
    keep: Annotated[int, typer.Option(help="Number of the last snapshots to keep.")] = 1,
    grace: Annotated[
        str, typer.Option(help="Keep everything that is younger: 90s, 30m, 12h or 7d.")
    ] = "1d",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report what would be removed.")
    ] = False,
    storage_options: StorageOptions = None,
) -> None:
    """Remove old snapshots that have no tag, and the files that only they need.

    Examples
    --------
        gridref prune cube.gridref --keep 10 --dry-run

        gridref prune cube.gridref --grace 7d
    """
    from gridref.api.layout.labels import duration_seconds

    opened = _opened(catalog, storage_options)
    youngest = duration_seconds(grace, "grace")
    pruned = opened.prune(keep=keep, grace_seconds=youngest, dry_run=dry_run)
    for file in pruned.files:
        echo(f"{'would remove' if dry_run else 'removed'} {file}")
    echo(f"{len(pruned.snapshots)} snapshots, {len(pruned.files)} files")


def _opened(catalog: str, storage_options: list[str] | None) -> OpenedCatalog:
    from gridref.api.catalogs import open_catalog

    return open_catalog(catalog, storage_options=parse_options(storage_options))


def _told(catalog: str, before: OpenedCatalog, after: OpenedCatalog) -> None:
    """Say what a change did; exit status 1 if files were left out because they failed."""
    console = Console(stderr=True)
    catalog = shown_address(catalog)
    for line in after.report.lines:
        console.print(Text(as_on_the_command_line(line)), soft_wrap=True)
    if after.info.snapshot == before.info.snapshot:
        console.print(Text(f"{catalog}: nothing changed"), soft_wrap=True)
    else:
        last = after.snapshot.log[-1]
        if not after.report.lines:
            console.print(Text(f"{last.operation} {last.message}"), soft_wrap=True)
        console.print(Text(f"{catalog}: snapshot {last.id}"), soft_wrap=True)
    if after.report.failed:
        raise typer.Exit(1)


# ``gridref watch``


def watch_command(
    catalog: Catalog,
    files: SomeFiles = None,
    events: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Read new files from this file instead of FILES: one a line, or S3 notifications.",
            show_default=False,
        ),
    ] = None,
    every: Annotated[str, typer.Option(help="Time between rounds: 10s, 5m, 1h.")] = "60s",
    settle: Annotated[
        str, typer.Option(help="Leave local files for later that changed within this time.")
    ] = "0s",
    once: Annotated[bool, typer.Option("--once", help="Run one round only.")] = False,
    storage_options: StorageOptions = None,
) -> None:
    """Append new files again and again, until interrupted.

    You can stop and start it at any moment, because its only memory is the catalog. Files that
    cannot be appended are reported, and tried again in every round. With --once, the exit status is
    1 if there are any.

    Examples
    --------
        gridref watch cube.gridref incoming/ --every 5m

        gridref watch cube.gridref 's3://bucket/run/*.nc' --once

        gridref watch cube.gridref --events arrived.txt
    """
    from gridref.api.layout.labels import duration_seconds
    from gridref.api.watching import watch

    told: dict[str, str] = {}

    def tell(done: Watch) -> None:
        for file in done.appended:
            echo(f"appended {file}")
        for file, reason in done.failed.items():
            if told.get(file) != reason:
                echo(f"left out {file}: {reason}", err=True)
        told.clear()
        told.update(done.failed)

    done = watch(
        catalog,
        files,
        events=events,
        every_seconds=duration_seconds(every, "every"),
        settle_seconds=duration_seconds(settle, "settle"),
        once=once,
        on_round=tell,
        storage_options=parse_options(storage_options),
    )
    if done.failed:
        raise typer.Exit(1)
