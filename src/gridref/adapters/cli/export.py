"""``gridref export``: a catalog for readers that know nothing of gridref."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from gridref.adapters.cli.options import (
    Allowed,
    Catalog,
    Snapshot,
    StorageOptions,
    parse_options,
)
from gridref.errors import InvalidRequestError

if TYPE_CHECKING:
    from gridref.catalog import CatalogGroup

__all__ = ["export_command"]


_Output = Annotated[
    str,
    typer.Argument(
        help="Where it goes: .json, a folder of Parquet files (.parq), an Icechunk repository"
        " (.icechunk), or a file of aggregation variables (.nc).",
        show_default=False,
    ),
]
_AppendDim = Annotated[
    str | None,
    typer.Option(help="Put the arrays behind those of an Icechunk repository.", show_default=False),
]
_Replace = Annotated[
    bool, typer.Option("--replace", help="Replace what is in an Icechunk repository.")
]
_Materialize = Annotated[
    list[str] | None,
    typer.Option(
        help="Array that is written into an Icechunk repository decoded; * for all that cannot be"
        " referenced; repeatable.",
        show_default=False,
    ),
]


_Relative = Annotated[
    bool,
    typer.Option(
        "--relative", help="Name files as seen from the aggregation file, to be moved together."
    ),
]


def export_command(
    catalog: Catalog,
    output: _Output,
    zarr_format: Annotated[
        int,
        typer.Option(
            help="Of kerchunk's keys: 2 opens with xarray's engine kerchunk, 3 has uneven chunks."
        ),
    ] = 2,
    inline_limit: Annotated[
        int, typer.Option(help="Most bytes of an array that is written out, decoded.")
    ] = 1 << 20,
    inline_threshold: Annotated[
        int, typer.Option(help="Stored chunks of fewer bytes are written into references.")
    ] = 0,
    templates: Annotated[
        bool, typer.Option("--templates", help="Keep addresses of files once, as templates.")
    ] = False,
    snapshot: Snapshot = None,
    append_dim: _AppendDim = None,
    replace: _Replace = False,
    materialize: _Materialize = None,
    relative: _Relative = False,
    storage_options: StorageOptions = None,
    allow: Allowed = None,
) -> None:
    """Write a catalog as kerchunk references, into an Icechunk repository, or as CF aggregation.

    What references cannot say (differing codecs, files in archives; in Zarr v2 also uneven chunks)
    is refused, with every array and its reason; small arrays are written out. Aggregation variables
    (CF-1.13) say grids of whole variables of files, whatever their codecs.

    Examples
    --------
        gridref export cube.gridref refs.json

        gridref export cube.gridref refs.parq

        gridref export cube.gridref refs.json --zarr-format 3

        gridref export cube.gridref refs.json --templates --inline-threshold 500

        gridref export cube.gridref cube.icechunk

        gridref export march.gridref cube.icechunk --append-dim time

        gridref export cube.gridref aggregation.nc
    """
    from gridref.workflows.catalogs import open_catalog

    options = parse_options(storage_options)
    group = open_catalog(catalog, storage_options=options, allow=allow or None, snapshot=snapshot)
    common: Mapping[str, Any] = {"inline_limit": inline_limit, "storage_options": options}
    icechunk = {"append_dim": append_dim, "replace": replace, "materialize": materialize}
    references = {"inline_threshold": inline_threshold, "templates": templates}
    if output.endswith(".nc"):
        _only_for(_ICECHUNK, **icechunk)
        _only_for("kerchunk references", **references)
        _export_aggregation(group, output, {**common, "relative": relative})
        return
    _only_for("aggregation files, whose name ends in .nc", relative=relative)
    if not output.rstrip("/").endswith(".icechunk"):
        _only_for(_ICECHUNK, **icechunk)
        _export_references(group, output, zarr_format, {**common, **references})
        return
    _only_for("kerchunk references", **references)
    _export_to_icechunk(group, output, {**common, **icechunk})


_ICECHUNK = "Icechunk repositories, whose name ends in .icechunk"


def _export_to_icechunk(group: CatalogGroup, output: str, options: Mapping[str, Any]) -> None:
    from gridref.adapters.icechunk import to_icechunk

    named = options["materialize"] or []
    asked: bool | list[str] = True if named == ["*"] else named
    written = to_icechunk(group, output, **{**options, "materialize": asked})
    typer.echo(f"{output}: snapshot {written}")
    _tell_of_checksums(group)


def _export_aggregation(group: CatalogGroup, output: str, options: Mapping[str, Any]) -> None:
    from gridref.adapters.cf_aggregation import to_cf_aggregation

    variables = to_cf_aggregation(group, output, **options)
    typer.echo(f"{output}: {len(variables)} aggregation variables")
    _tell_of_checksums(group)


def _only_for(what: str, **options: Any) -> None:
    given = [name for name, value in options.items() if value]
    if given:
        raise InvalidRequestError(f"{', '.join(given)} is for {what}")


def _export_references(
    group: CatalogGroup, output: str, zarr_format: int, common: Mapping[str, Any]
) -> None:
    from gridref.adapters.kerchunk import Version, to_kerchunk
    from gridref.workflows.opening import reader_for

    document = to_kerchunk(
        group,
        output,
        zarr_format=cast("Version", zarr_format),
        reader=reader_for(common["storage_options"]),
        **common,
    )
    typer.echo(f"{output}: {len(document['refs'])} keys")
    _tell_of_checksums(group)


def _tell_of_checksums(group: CatalogGroup) -> None:
    if group.info.n_checksums:
        typer.echo(f"checksums of {group.info.n_checksums} chunks are left out: no place for them")
