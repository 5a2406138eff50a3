"""The commands ``gridref relocate`` and ``gridref publish``."""

from __future__ import annotations

from typing import Annotated

import typer

from gridref.adapters.cli.options import Allowed, Catalog, StorageOptions, parse_options
from gridref.errors import InvalidRequestError

__all__ = ["publish_command", "relocate_command"]


_FROM = typer.Option(
    "--from",
    metavar="PREFIX",
    help="Folder or URL that sources were in; repeatable, each with a --to.",
    show_default=False,
)
_TO = typer.Option("--to", metavar="PREFIX", help="Where they are now.", show_default=False)


def relocate_command(
    catalog: Catalog,
    before: Annotated[list[str], _FROM],
    after: Annotated[list[str], _TO],
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

    prefixes = _prefixes(before, after)
    options = parse_options(storage_options)
    relocate(catalog, prefixes, identity=identity, storage_options=options)  # type: ignore[arg-type]
    for old, new in prefixes.items():
        typer.echo(f"{catalog}: sources in {old} are in {new} now", err=True)


def publish_command(
    catalog: Catalog,
    folder: Annotated[
        str, typer.Argument(help="Local folder that the site goes to.", show_default=False)
    ],
    base_url: Annotated[
        str,
        typer.Option(metavar="URL", help="Address that it will have.", show_default=False),
    ],
    before: Annotated[list[str] | None, _FROM] = None,
    after: Annotated[list[str] | None, _TO] = None,
    storage_options: StorageOptions = None,
    allow: Allowed = None,
) -> None:
    """Write a site of files for a catalog, for any web server or bucket.

    Its pages, a copy of the catalog, kerchunk references where they can express it, and a STAC
    Item where a coordinate says its time. The values stay in the sources, which have to be on the
    web; --from and --to say where.

    Examples
    --------
        gridref publish cube.gridref site/ --base-url https://example.org/cube

        gridref publish cube.gridref site/ --base-url https://a.org/site --from /data --to https://a.org
    """
    from gridref.adapters.publishing import publish

    published = publish(
        catalog,
        folder,
        base_url=base_url,
        prefixes=_prefixes(before or [], after or []) or None,
        storage_options=parse_options(storage_options),
        allow=allow or None,
    )
    for file, reason in published.left_out.items():
        typer.echo(f"no {file}: {reason}", err=True)
    n_files = len(published.files)
    typer.echo(f"{folder}: {n_files} files and the catalog, to be uploaded to {base_url}")


def _prefixes(before: list[str], after: list[str]) -> dict[str, str]:
    if len(before) != len(after):
        raise InvalidRequestError(f"{len(before)} --from, and {len(after)} --to: give one for each")
    return dict(zip(before, after, strict=True))
