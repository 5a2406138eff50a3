"""Commands that make catalogs: ``gridref import``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gridref.faces.cli.console import echo
from gridref.faces.cli.look import print_verification
from gridref.faces.cli.options import BUILD_OPTIONS, Quiet, call_options, takes
from gridref.secrets import shown_address

# ``gridref import``: a catalog from references that another tool wrote

_OPTIONS = (
    "on_unsupported",
    "max_inline_bytes",
    "allow",
    "relative",
    "keep_secrets",
    "identity",
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
    """Make a catalog from references of another tool, templates and generators included.

    The catalog records the present size and time of change, or ETag, of the files that the
    references name. They may name files in their own folder, and files below --allow.

    Examples
    --------
        gridref import refs.json -o cube.gridref

        gridref import refs.parq -o cube.gridref --allow s3://bucket/ -O anon=true --verify

        gridref import repo.icechunk -o cube.gridref
    """
    from gridref.api.building import build

    group = build(references, catalog, **call_options(options))
    arrays = group.all_arrays()
    echo(f"{shown_address(catalog)}: {len(arrays)} arrays")
    if verify:
        print_verification(catalog, options=options.get("storage_options"), quiet=quiet)
