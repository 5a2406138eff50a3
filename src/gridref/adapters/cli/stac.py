"""``gridref stac``: a catalog described for STAC."""

from __future__ import annotations

from typing import Annotated

import typer

from gridref.adapters.cli.options import (
    Allowed,
    Catalog,
    Snapshot,
    StorageOptions,
    parse_options,
)

__all__ = ["stac_command"]

_Served = Annotated[
    str | None,
    typer.Option(help="URL at which gridref serve shows the catalog.", show_default=False),
]
_References = Annotated[
    str | None,
    typer.Option(help="Address of kerchunk references of the catalog.", show_default=False),
]
_Moment = Annotated[
    str | None,
    typer.Option(
        "--datetime", help="Its time, or START/END, where no coordinate has it.", show_default=False
    ),
]


def stac_command(
    catalog: Catalog,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="File; standard output without.", show_default=False),
    ] = None,
    collection: Annotated[
        bool, typer.Option("--collection", help="A Collection in place of an Item.")
    ] = False,
    id_: Annotated[
        str | None, typer.Option("--id", help="By default, the catalog's name.", show_default=False)
    ] = None,
    references: _References = None,
    served: _Served = None,
    moment: _Moment = None,
    snapshot: Snapshot = None,
    storage_options: StorageOptions = None,
    allow: Allowed = None,
) -> None:
    """Describe a catalog as a STAC Item or Collection.

    With dimensions, variables and chunk grids (datacube), projection, bands, box and time out of
    the coordinates, and the ways into the catalog as assets. Values are read of coordinates only.

    Examples
    --------
        gridref stac cube.gridref -o item.json

        gridref stac cube.gridref --served https://data.example.org/cube --collection
    """
    import json

    from gridref.adapters.stac import to_stac
    from gridref.workflows.catalogs import open_catalog

    options = parse_options(storage_options)
    document = to_stac(
        open_catalog(catalog, storage_options=options, allow=allow or None, snapshot=snapshot),
        output,
        kind="collection" if collection else "item",
        id=id_,
        references=references,
        served=served,
        datetime=moment,
        storage_options=options,
    )
    if output is None:
        typer.echo(json.dumps(document, indent=2))
    else:
        typer.echo(f"{output}: {document['type']} {document['id']}")
