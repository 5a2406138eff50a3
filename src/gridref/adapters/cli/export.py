"""``gridref export``: a catalog for readers that know nothing of gridref."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from gridref.adapters.cli.options import Catalog, Snapshot, StorageOptions, parse_options

__all__ = ["export_command"]


def export_command(
    catalog: Catalog,
    output: Annotated[
        str,
        typer.Argument(
            help="Where the references go: .json, or a folder of Parquet files (.parq).",
            show_default=False,
        ),
    ],
    zarr_format: Annotated[
        int,
        typer.Option(
            help="Of the keys: 2 opens with xarray's engine kerchunk, 3 has uneven chunks."
        ),
    ] = 2,
    inline_limit: Annotated[
        int, typer.Option(help="Most bytes of an array that is written out, decoded.")
    ] = 1 << 20,
    snapshot: Snapshot = None,
    storage_options: StorageOptions = None,
) -> None:
    """Write a catalog as kerchunk references.

    What references cannot say (differing codecs, files in archives; in Zarr v2 also uneven chunks)
    is refused, with every array and its reason; small arrays are written out.

    Examples
    --------
        gridref export cube.gridref refs.json

        gridref export cube.gridref refs.parq

        gridref export cube.gridref refs.json --zarr-format 3
    """
    from gridref.adapters.kerchunk import Version, to_kerchunk
    from gridref.workflows.catalogs import open_catalog
    from gridref.workflows.opening import reader_for

    options = parse_options(storage_options)
    group = open_catalog(catalog, storage_options=options, snapshot=snapshot)
    document = to_kerchunk(
        group,
        output,
        zarr_format=cast("Version", zarr_format),
        reader=reader_for(options),
        inline_limit=inline_limit,
        storage_options=options,
    )
    typer.echo(f"{output}: {len(document['refs'])} keys")
    if group.info.n_checksums:
        typer.echo(f"checksums of {group.info.n_checksums} chunks are left out: no place for them")
