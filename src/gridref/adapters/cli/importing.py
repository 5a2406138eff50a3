"""``gridref import``: what other tools wrote as references becomes a catalog."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gridref.adapters.cli.options import BUILD_OPTIONS, Quiet, takes
from gridref.adapters.cli.verification import print_verification

__all__ = ["import_command"]

_OPTIONS = (
    "on_unsupported",
    "max_inline_bytes",
    "allow",
    "relative",
    "keep_secrets",
    "identity",
    "checksum",
    "storage_options",
)


@takes({name: BUILD_OPTIONS[name] for name in _OPTIONS})
def import_command(
    references: Annotated[
        str,
        typer.Argument(
            help="kerchunk references (JSON, or a folder of Parquet files), or an Icechunk"
            " repository.",
            show_default=False,
        ),
    ],
    catalog: Annotated[
        str, typer.Option("--catalog", "-o", help="Where the catalog goes.", show_default=False)
    ],
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare a sample with the original reader.")
    ] = False,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Make a catalog of references that another tool wrote, templates and generators included.

    The files that they name are looked at as they are now: their size and time of change, or ETag,
    go into the catalog. Files beside the references may be named, and those below what --allow
    says.

    Examples
    --------
        gridref import refs.json -o cube.gridref

        gridref import refs.parq -o cube.gridref --allow s3://bucket/ -O anon=true --verify

        gridref import repo.icechunk -o cube.gridref
    """
    from gridref.workflows.building import build

    group = build(references, catalog, **options)
    arrays = group.all_arrays()
    typer.echo(f"{catalog}: {len(arrays)} arrays")
    if verify:
        print_verification(catalog, options=options.get("storage_options"), quiet=quiet)
