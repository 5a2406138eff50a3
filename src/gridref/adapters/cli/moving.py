"""The command ``gridref relocate``."""

from __future__ import annotations

from typing import Annotated

import typer

from gridref.adapters.cli.options import Catalog, StorageOptions, parse_options
from gridref.errors import InvalidRequestError

__all__ = ["relocate_command"]


def relocate_command(
    catalog: Catalog,
    before: Annotated[
        list[str],
        typer.Option(
            "--from",
            metavar="PREFIX",
            help="Folder or URL that sources were in; repeatable, each with a --to.",
            show_default=False,
        ),
    ],
    after: Annotated[
        list[str],
        typer.Option("--to", metavar="PREFIX", help="Where they are now.", show_default=False),
    ],
    identity: Annotated[
        str | None,
        typer.Option(
            help="What makes them the files that were scanned: strict, size, content; as before by"
            " default.",
            show_default=False,
        ),
    ] = None,
    storage_options: StorageOptions = None,
) -> None:
    """Write down that sources lie elsewhere now. Reads and writes the catalog only.

    Examples
    --------
        gridref relocate cube.gridref --from s3://old/ --to https://new/

        gridref relocate cube.gridref --from /data/2023 --to /archive/2023 --identity size
    """
    from gridref.workflows.catalogs import relocate

    if len(before) != len(after):
        raise InvalidRequestError(f"{len(before)} --from, and {len(after)} --to: give one for each")
    prefixes = dict(zip(before, after, strict=True))
    options = parse_options(storage_options)
    relocate(catalog, prefixes, identity=identity, storage_options=options)  # type: ignore[arg-type]
    for old, new in prefixes.items():
        typer.echo(f"{catalog}: sources in {old} are in {new} now", err=True)
