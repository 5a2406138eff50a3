"""The command ``gridref watch``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gridref.adapters.cli.options import Catalog, SomeFiles, StorageOptions, parse_options

if TYPE_CHECKING:
    from gridref.workflows.watching import Watch

__all__ = ["watch_command"]


def watch_command(
    catalog: Catalog,
    files: SomeFiles = None,
    events: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A file that names what comes, one a line or as S3 notifications, in place of"
            " FILES.",
            show_default=False,
        ),
    ] = None,
    every: Annotated[str, typer.Option(help="Time between rounds: 10s, 5m, 1h.")] = "60s",
    settle: Annotated[
        str, typer.Option(help="Local files written to less than so long ago are left for later.")
    ] = "0s",
    once: Annotated[bool, typer.Option("--once", help="One round only.")] = False,
    storage_options: StorageOptions = None,
) -> None:
    """Append what is new, again and again, until it is interrupted.

    It can be ended and started at any moment: what is in the catalog is all that it remembers.
    Files that cannot be appended are told, and tried again in every round. With --once the exit
    status is 1 if there are any.

    Examples
    --------
        gridref watch cube.gridref incoming/ --every 5m

        gridref watch cube.gridref 's3://bucket/run/*.nc' --once

        gridref watch cube.gridref --events arrived.txt
    """
    from gridref.workflows.layout.labels import duration_seconds
    from gridref.workflows.watching import watch

    told: dict[str, str] = {}

    def tell(done: Watch) -> None:
        for file in done.appended:
            typer.echo(f"appended {file}")
        for file, reason in done.failed.items():
            if told.get(file) != reason:
                typer.echo(f"left out {file}: {reason}", err=True)
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
