"""Commands that change catalogs: ``gridref append``, ``watch``, ``refresh`` and the like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.text import Text

from gridref.errors import InvalidRequestError, number_of
from gridref.faces.cli.console import Console, echo, shown_progress
from gridref.faces.cli.options import (
    BUILD_OPTIONS,
    FROM,
    OF_A_BUILD,
    OVERVIEW_OPTIONS,
    RECHUNK_OPTIONS,
    TO,
    Catalog,
    Files,
    Quiet,
    SomeFiles,
    StorageOptions,
    call_options,
    opened_catalog,
    parse_lengths,
    prefixes_of,
    spelled,
    takes,
)
from gridref.secrets import shown_address

if TYPE_CHECKING:
    from gridref.api.catalog import Catalog as OpenedCatalog
    from gridref.api.catalog import Watch
    from gridref.api.changes import Vanished
    from gridref.api.places import At


ArrayPath = Annotated[str, typer.Argument(help="Path of the array.")]
Amend = Annotated[
    bool, typer.Option("--amend", help="Replace the last snapshot instead of adding one.")
]


_OF_AN_APPEND = {name: kind for name, kind in BUILD_OPTIONS.items() if name not in OF_A_BUILD}


@takes(_OF_AN_APPEND)
def append_command(
    catalog: Catalog,
    files: SomeFiles = None,
    at: Annotated[
        str,
        typer.Option(
            help="Where to add files. label: by their coordinate, else at the end. start, end."
        ),
    ] = "label",
    declare: Annotated[
        str | None,
        typer.Option(
            metavar="DIM=FIRST/LAST",
            help="Declare labels whose files are still to come instead: dates, or numbers.",
        ),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(
            help="Step between declared labels, as in pandas (6h, 1MS), or a number. Default: 1D."
        ),
    ] = None,
    amend: Amend = False,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Append files to a catalog, in one step. Files that are already in it are skipped.

    Only new files are scanned. They are combined with the catalog by the options that it was built
    with, unless you give others. If any file does not fit, nothing is written and every problem is
    listed.

    If labels were declared ahead, append their files in any order. Until then, their elements read
    as the fill value, and gridref list CATALOG chunks --state pending lists them.

    Examples
    --------
        gridref append cube.gridref data/2024-01.nc

        gridref append cube.gridref 'data/*.nc'

        gridref append one.gridref data/*.nc

        gridref append cube.gridref --declare time=2024-01-01/2024-12-31

        gridref append run.gridref --declare step=0/240 --step 6
    """
    if (declare is None) != bool(files) or (declare is None and step is not None):
        raise typer.BadParameter(
            "nothing to append: name files, or declare labels with --declare DIM=FIRST/LAST"
        )
    opened = _opened(catalog, options)
    changing = opened.amend() if amend else opened
    if declare is not None:
        _told(catalog, opened, _declared(changing, declare, step or "1D"))
        return
    with shown_progress(quiet) as progress:
        after = changing.append(
            files or [], at=cast("At", at), progress=progress, **call_options(options)
        )
    _told(catalog, opened, after)


def _declared(opened: OpenedCatalog, declared: str, step: str) -> OpenedCatalog:
    from gridref.api.places import labels_between

    dim, _, labels = declared.partition("=")
    first, separator, last = labels.partition("/")
    if not (dim and first and separator and last):
        raise InvalidRequestError(f"--declare {declared}: write it like time=2024-01-01/2024-12-31")
    labelled = labels_between(opened, dim, first, last, step, lambda array: array[...])
    return opened.declare(dim, labelled)


def remove_command(
    catalog: Catalog, files: Files, amend: Amend = False, storage_options: StorageOptions = None
) -> None:
    """Remove files from a catalog; the files themselves stay.

    Examples
    --------
        gridref remove cube.gridref data/2024-01.nc
    """
    opened = opened_catalog(catalog, storage_options)
    _told(catalog, opened, (opened.amend() if amend else opened).remove(files))


def refresh_command(
    catalog: Catalog,
    file: Annotated[
        str | None,
        typer.Argument(help="File of the catalog to scan again. Default: all changed files."),
    ] = None,
    by: Annotated[str | None, typer.Option(help="Replace FILE with this file.")] = None,
    vanished: Annotated[
        str | None,
        typer.Option(
            help="Files that no longer exist. raise: stop (default). skip: remove them from the "
            "catalog."
        ),
    ] = None,
    amend: Amend = False,
    quiet: Quiet = False,
    storage_options: StorageOptions = None,
) -> None:
    """Scan changed files again, or replace a file.

    Examples
    --------
        gridref refresh cube.gridref

        gridref refresh cube.gridref --vanished skip

        gridref refresh cube.gridref data/2024-01.nc

        gridref refresh cube.gridref data/2024-01.nc --by data/2024-01-v2.nc
    """
    if file is None and by is not None:
        raise typer.BadParameter("--by needs the file to replace: name it after the catalog")
    if file is not None and vanished is not None:
        raise typer.BadParameter("--vanished is for all files of the catalog, not for one")
    opened = opened_catalog(catalog, storage_options)
    changing = opened.amend() if amend else opened
    with shown_progress(quiet) as progress:
        if file is not None:
            after = changing.replace(file, by, progress=progress)
        else:
            missing = cast("Vanished", vanished or "raise")
            after = changing.refresh(vanished=missing, progress=progress)
    _told(catalog, opened, after)


def relocate_command(
    catalog: Catalog,
    before: Annotated[list[str] | None, FROM] = None,
    after: Annotated[list[str] | None, TO] = None,
    identity: Annotated[
        str | None,
        typer.Option(
            help="How reads check that a file is unchanged: strict, size, content. Default: as"
            " before."
        ),
    ] = None,
    storage_options: StorageOptions = None,
) -> None:
    """Change the recorded location of the source files, or how reads check them.

    Only the catalog is read and written.

    Examples
    --------
        gridref relocate cube.gridref --from s3://old/ --to https://new/

        gridref relocate cube.gridref --from /data/2023 --to /archive/2023 --identity size

        gridref relocate cube.gridref --identity size
    """
    prefixes = prefixes_of(before or [], after or [])
    opened = opened_catalog(catalog, storage_options)
    opened.relocate(prefixes, identity=identity)  # type: ignore[arg-type]
    for old, new in prefixes.items():
        moved = f"sources in {shown_address(old)} are in {shown_address(new)} now"
        echo(f"{shown_address(catalog)}: {moved}", err=True)
    if identity is not None:
        echo(f"{shown_address(catalog)}: reads check sources by identity {identity}", err=True)


def tag_command(
    catalog: Catalog,
    name: Annotated[str, typer.Argument(help="The name.")],
    snapshot: Annotated[
        str | None, typer.Argument(help="Id or tag of a snapshot. Default: the current one.")
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
    opened = opened_catalog(catalog, storage_options)
    after = opened.untag(name) if delete else opened.tag(name, snapshot)
    echo(f"{name}: {after.info.tags.get(name, 'no tag any more')}")


def rollback_command(
    catalog: Catalog,
    snapshot: Annotated[
        str | None, typer.Argument(help="Id or tag of a snapshot. Default: the previous one.")
    ] = None,
    to: Annotated[str | None, typer.Option(help="The same as SNAPSHOT.")] = None,
    storage_options: StorageOptions = None,
) -> None:
    """Return to an earlier snapshot. This is itself a commit and can be rolled back.

    Examples
    --------
        gridref rollback cube.gridref

        gridref rollback cube.gridref v1
    """
    if snapshot is not None and to is not None:
        raise typer.BadParameter("give the snapshot once: as an argument, or with --to")
    opened = opened_catalog(catalog, storage_options)
    _told(catalog, opened, opened.rollback(snapshot or to))


def prune_command(
    catalog: Catalog,
    keep: Annotated[int, typer.Option(help="Number of the last snapshots to keep.")] = 1,
    grace: Annotated[
        str, typer.Option(help="Keep everything younger than this: 90s, 30m, 12h or 7d.")
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

    opened = opened_catalog(catalog, storage_options)
    youngest = duration_seconds(grace, "grace")
    pruned = opened.prune(keep=keep, grace_seconds=youngest, dry_run=dry_run)
    for file in (*pruned.files, *pruned.sheets):
        echo(f"{'would remove' if dry_run else 'removed'} {file}")
    counts = [
        number_of(len(pruned.snapshots), "snapshot"),
        number_of(len(pruned.files), "file"),
        *([number_of(len(pruned.sheets), "folder") + " of overlays"] if pruned.sheets else ()),
    ]
    echo(f"{'would remove' if dry_run else 'removed'} {', '.join(counts)}")


@takes(RECHUNK_OPTIONS)
def rechunk_command(
    catalog: Catalog,
    array: ArrayPath,
    chunks: Annotated[
        str | None,
        typer.Option(
            help="Chunk lengths, like time=-1,lat=20,lon=20; -1: the whole dimension. Dimensions"
            " left out get lengths that make chunks of about 8 MB."
        ),
    ] = None,
    shards: Annotated[
        str | None,
        typer.Option(help="Shard lengths, like time=-1,lat=60. Default: shards of up to 128 MiB."),
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Bring all overlays of the array up to date.")
    ] = False,
    drop: Annotated[
        int | None, typer.Option(metavar="N", help="Remove this overlay instead.")
    ] = None,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Write the values of an array with other chunks, beside the files. Reads use the faster one.

    The files do not change. After a change of the catalog, the overlay is used only for elements
    whose files are the same; the same command, or --update, writes the others. If the command is
    interrupted or killed, run it again to continue.

    gridref info lists overlays, and gridref prune removes the files of those that were dropped.

    Examples
    --------
        gridref rechunk cube.gridref tas --chunks time=-1,lat=20,lon=20

        gridref rechunk cube.gridref tas --chunks time=-1 --where lat=40:60 --memory 4GB

        gridref rechunk cube.gridref tas --update

        gridref rechunk cube.gridref tas --drop 0
    """
    if sum((chunks is not None, update, drop is not None)) != 1:
        raise typer.BadParameter(
            "nothing to do: give one of --chunks LENGTHS, --update or --drop N"
        )
    opened = _opened(catalog, options)
    if drop is not None:
        _told(catalog, opened, opened.drop_overlay(array, drop))
        return
    lengths, sharded = (None if each is None else parse_lengths(each) for each in (chunks, shards))
    with shown_progress(quiet, "steps") as progress:
        after = opened.rechunk(array, lengths, shards=sharded, progress=progress, **options)
    _told(catalog, opened, after)


@takes(OVERVIEW_OPTIONS)
def overviews_command(
    catalog: Catalog,
    array: ArrayPath,
    drop: Annotated[
        bool, typer.Option("--drop", help="Remove the levels of the array instead.")
    ] = False,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Write coarser levels of an array beside the files, to show a whole image quickly.

    Level n is overview_n/ARRAY. After a change of the catalog, levels are shown only if all their
    files are the same; the same command writes what is missing. If the command is interrupted or
    killed, run it again to continue.

    Examples
    --------
        gridref overviews image.gridref band_data

        gridref overviews image.gridref landcover --method mode --levels 4

        gridref overviews image.gridref band_data --drop
    """
    opened = _opened(catalog, options)
    if drop:
        _told(catalog, opened, opened.drop_overviews(array))
        return
    with shown_progress(quiet, "steps") as progress:
        after = opened.overviews(array, progress=progress, **options)
    _told(catalog, opened, after)


def _opened(catalog: str, options: dict[str, Any]) -> OpenedCatalog:
    """The catalog, with the options that open it taken out of those of a command."""
    from gridref.api.catalog import open_catalog

    own = {name: options.pop(name) for name in ("storage_options", "allow") if name in options}
    return open_catalog(catalog, **own)


def _told(catalog: str, before: OpenedCatalog, after: OpenedCatalog) -> None:
    """Say what a change did; exit status 1 if files were left out because they failed."""
    from gridref.faces.cli.described import lines_lost

    console = Console(stderr=True)
    catalog = shown_address(catalog)
    for line in after.report.lines:
        console.print(Text(spelled(line)), soft_wrap=True)
    if after.info.snapshot == before.info.snapshot:
        console.print(Text(f"{catalog}: nothing changed"), soft_wrap=True)
    else:
        last = after.snapshot.log[-1]
        if not after.report.lines:
            console.print(Text(f"{last.operation} {last.message}"), soft_wrap=True)
        console.print(Text(f"{catalog}: snapshot {last.id}"), soft_wrap=True)
        for line in lines_lost(before, after):
            console.print(Text(line), soft_wrap=True)
    if after.report.failed:
        raise typer.Exit(1)


# ``gridref watch``


@takes(_OF_AN_APPEND)
def watch_command(
    catalog: Catalog,
    files: SomeFiles = None,
    events: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Read new files from this file instead of FILES: one a line, or S3 notifications.",
        ),
    ] = None,
    every: Annotated[str, typer.Option(help="Time between rounds: 10s, 5m, 1h.")] = "60s",
    settle: Annotated[
        str, typer.Option(help="Wait until local files have not changed for this time.")
    ] = "0s",
    once: Annotated[bool, typer.Option("--once", help="Run one round only.")] = False,
    rechunk: Annotated[
        bool,
        typer.Option("--rechunk", help="Bring overlays and overviews up to date after an append."),
    ] = False,
    **options: Any,
) -> None:
    """Append new files as they arrive, until interrupted.

    You can stop and start it at any moment, because its only memory is the catalog. If a file
    cannot be appended, it is reported and tried again in every round. With --once, the exit status
    is then 1. Options say how files are combined with the catalog, as for gridref append.

    Examples
    --------
        gridref watch cube.gridref incoming/ --every 5m

        gridref watch cube.gridref 's3://bucket/run/*.nc' --once

        gridref watch cube.gridref --events arrived.txt

        gridref watch cube.gridref incoming/ --every 1h --rechunk
    """
    from gridref.api.layout.labels import duration_seconds

    told: dict[str, str] = {}

    def tell(done: Watch) -> None:
        for file in done.appended:
            echo(f"appended {file}")
        for file, reason in done.failed.items():
            if told.get(file) != reason:
                echo(f"left out {file}: {spelled(reason)}", err=True)
        told.clear()
        told.update(done.failed)

    opened = _opened(catalog, options)
    done = opened.watch(
        files,
        events=events,
        every_seconds=duration_seconds(every, "every"),
        settle_seconds=duration_seconds(settle, "settle"),
        once=once,
        rechunk=rechunk,
        on_round=tell,
        **call_options(options),
    )
    if done.failed:
        raise typer.Exit(1)
