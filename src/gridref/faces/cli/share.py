"""Commands that share catalogs: ``gridref serve | export | stac | publish | forecast``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from gridref.errors import InvalidRequestError
from gridref.faces.cli.console import echo
from gridref.faces.cli.options import (
    SERVED_VIEW_OPTIONS,
    Allowed,
    Catalog,
    Snapshot,
    StorageOptions,
    parse_options,
    takes,
)
from gridref.secrets import shown_address

if TYPE_CHECKING:
    from gridref.catalog import CatalogGroup


# ``gridref serve``

AllowedHosts = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Answer requests for this host name, too; * for any. Repeatable. Default: names of"
        " the loopback device, and the address of --host.",
    ),
]
AllowedOrigins = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ORIGIN",
        help="Allow web pages of this origin to read, like https://example.org; * for all."
        " Repeatable. Default: only the server's own pages.",
    ),
]


@takes(SERVED_VIEW_OPTIONS)
def serve_command(
    catalogs: Annotated[
        list[str],
        typer.Argument(help="Catalogs, or directories of catalogs.", show_default=False),
    ],
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    workers: Annotated[int, typer.Option(help="Number of processes.")] = 1,
    allow: Allowed = None,
    allow_host: AllowedHosts = None,
    allow_origin: AllowedOrigins = None,
    max_age: Annotated[
        int, typer.Option(help="Let caches keep answers for this many seconds.")
    ] = 0,
    access_log: Annotated[bool, typer.Option(help="Log each request as a line of JSON.")] = True,
    **options: Any,
) -> None:
    """Serve catalogs over HTTP to any Zarr v3 client.

    A catalog cube.gridref opens at http://HOST:PORT/cube/portable (any client) and
    http://HOST:PORT/cube/native (chunks as stored, where Zarr can say what they are).

    Examples
    --------
        gridref serve cube.gridref --port 8000

        gridref serve catalogs/ --shards blocks --allow /data
    """
    from gridref.faces.http.server import serve

    serve(
        catalogs,
        host=host,
        port=port,
        workers=workers,
        allow=allow,
        allow_host=allow_host or (),
        allow_origin=allow_origin or (),
        max_age=max_age,
        access_log=access_log,
        on_ready=lambda url: echo(f"Serving on {url} (stop with Ctrl+C)", err=True),
        **options,
    )


# ``gridref export``: a catalog for readers other than gridref

_Output = Annotated[
    str,
    typer.Argument(
        help="What to write: .json, a folder of Parquet files (.parq), an Icechunk repository"
        " (.icechunk), or a file of aggregation variables (.nc).",
        show_default=False,
    ),
]
_AppendDim = Annotated[
    str | None,
    typer.Option(
        help="Append the arrays to those of an Icechunk repository along this dimension.",
        show_default=False,
    ),
]
_Replace = Annotated[
    bool, typer.Option("--replace", help="Replace the contents of an Icechunk repository.")
]
_Materialize = Annotated[
    list[str] | None,
    typer.Option(
        help="Write this array decoded into an Icechunk repository; * for all that cannot be"
        " referenced. Repeatable.",
        show_default=False,
    ),
]


_Relative = Annotated[
    bool,
    typer.Option(
        "--relative", help="Record files relative to the aggregation file, so that both can move."
    ),
]


def export_command(
    catalog: Catalog,
    output: _Output,
    zarr_format: Annotated[
        int,
        typer.Option(
            help="Zarr format of references: 2 opens with xarray's engine kerchunk, 3 allows uneven"
            " chunks."
        ),
    ] = 2,
    inline_limit: Annotated[
        int, typer.Option(help="Write arrays decoded only up to this many bytes.")
    ] = 1 << 20,
    inline_threshold: Annotated[
        int, typer.Option(help="Write stored chunks of fewer bytes into the references.")
    ] = 0,
    templates: Annotated[
        bool, typer.Option("--templates", help="Write each address of a file once, as a template.")
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

    If references cannot express an array (differing codecs, files in archives; in Zarr v2 also
    uneven chunks), nothing is written, and every such array is listed with the reason. Small ones
    are written by value. Aggregation variables (CF-1.13) express grids of whole variables of files,
    whatever their codecs.

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
    from gridref.api.catalogs import open_catalog

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
    from gridref.faces.exports.icechunk import to_icechunk

    named = options["materialize"] or []
    asked: bool | list[str] = True if named == ["*"] else named
    written = to_icechunk(group, output, **{**options, "materialize": asked})
    echo(f"{output}: snapshot {written}")
    _tell_of_checksums(group)


def _export_aggregation(group: CatalogGroup, output: str, options: Mapping[str, Any]) -> None:
    from gridref.faces.exports.cf_aggregation import to_cf_aggregation

    variables = to_cf_aggregation(group, output, **options)
    echo(f"{output}: {len(variables)} aggregation variables")
    _tell_of_checksums(group)


def _only_for(what: str, **options: Any) -> None:
    given = [name for name, value in options.items() if value]
    if given:
        raise InvalidRequestError(f"{', '.join(given)} is for {what}")


def _export_references(
    group: CatalogGroup, output: str, zarr_format: int, common: Mapping[str, Any]
) -> None:
    from gridref.api.opening import reader_for
    from gridref.faces.exports.kerchunk import Version, to_kerchunk

    document = to_kerchunk(
        group,
        output,
        zarr_format=cast("Version", zarr_format),
        reader=reader_for(common["storage_options"]),
        **common,
    )
    echo(f"{output}: {len(document['refs'])} keys")
    _tell_of_checksums(group)


def _tell_of_checksums(group: CatalogGroup) -> None:
    if group.info.n_checksums:
        echo(f"checksums of {group.info.n_checksums} chunks are left out: no place for them")


# ``gridref stac``: a STAC description of a catalog

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
        "--datetime", help="Time, or START/END, if no coordinate has it.", show_default=False
    ),
]


def stac_command(
    catalog: Catalog,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", help="File to write. Default: standard output.", show_default=False
        ),
    ] = None,
    collection: Annotated[
        bool, typer.Option("--collection", help="Write a Collection instead of an Item.")
    ] = False,
    id_: Annotated[
        str | None,
        typer.Option(
            "--id", help="Id to write. Default: the name of the catalog.", show_default=False
        ),
    ] = None,
    references: _References = None,
    served: _Served = None,
    moment: _Moment = None,
    snapshot: Snapshot = None,
    storage_options: StorageOptions = None,
    allow: Allowed = None,
) -> None:
    """Describe a catalog as a STAC Item or Collection.

    It holds dimensions, variables and chunk grids (datacube), projection, bands, box and time, and
    the ways to open the catalog as assets. Only the values of coordinates are read.

    Examples
    --------
        gridref stac cube.gridref -o item.json

        gridref stac cube.gridref --served https://data.example.org/cube --collection
    """
    import json

    from gridref.api.catalogs import open_catalog
    from gridref.faces.exports.stac import to_stac

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
        echo(json.dumps(document, indent=2))
    else:
        echo(f"{output}: {document['type']} {document['id']}")


# ``gridref relocate`` and ``gridref publish``

_FROM = typer.Option(
    "--from",
    metavar="PREFIX",
    help="Former folder or URL of sources. Repeatable, each with a --to.",
    show_default=False,
)
_TO = typer.Option(
    "--to", metavar="PREFIX", help="Present folder or URL of the same sources.", show_default=False
)


def relocate_command(
    catalog: Catalog,
    before: Annotated[list[str], _FROM],
    after: Annotated[list[str], _TO],
    identity: Annotated[
        str | None,
        typer.Option(
            help="How reads check that a file is unchanged: strict, size, content. Default: as"
            " before.",
            show_default=False,
        ),
    ] = None,
    storage_options: StorageOptions = None,
) -> None:
    """Change the recorded location of the source files. Reads and writes the catalog only.

    Examples
    --------
        gridref relocate cube.gridref --from s3://old/ --to https://new/

        gridref relocate cube.gridref --from /data/2023 --to /archive/2023 --identity size
    """
    from gridref.api.catalogs import relocate

    prefixes = _prefixes(before, after)
    options = parse_options(storage_options)
    relocate(catalog, prefixes, identity=identity, storage_options=options)  # type: ignore[arg-type]
    for old, new in prefixes.items():
        moved = f"sources in {shown_address(old)} are in {shown_address(new)} now"
        echo(f"{shown_address(catalog)}: {moved}", err=True)


def publish_command(
    catalog: Catalog,
    folder: Annotated[
        str, typer.Argument(help="Local folder to write the site to.", show_default=False)
    ],
    base_url: Annotated[
        str,
        typer.Option(metavar="URL", help="Address that the site will have.", show_default=False),
    ],
    before: Annotated[list[str] | None, _FROM] = None,
    after: Annotated[list[str] | None, _TO] = None,
    storage_options: StorageOptions = None,
    allow: Allowed = None,
) -> None:
    """Write a site of files for a catalog, for any web server or bucket.

    The site has pages, a copy of the catalog, kerchunk references if they can express it, and a
    STAC Item if a coordinate has its time. The values stay in the sources. These have to be on the
    web: give their addresses with --from and --to.

    Examples
    --------
        gridref publish cube.gridref site/ --base-url https://example.org/cube

        gridref publish cube.gridref site/ --base-url https://a.org/site --from /data --to https://a.org
    """
    from gridref.faces.web.publishing import publish

    published = publish(
        catalog,
        folder,
        base_url=base_url,
        prefixes=_prefixes(before or [], after or []) or None,
        storage_options=parse_options(storage_options),
        allow=allow or None,
    )
    for file, reason in published.left_out.items():
        echo(f"no {file}: {reason}", err=True)
    n_files = len(published.files)
    echo(f"{folder}: {n_files} files and the catalog, to be uploaded to {base_url}")


def _prefixes(before: list[str], after: list[str]) -> dict[str, str]:
    if len(before) != len(after):
        raise InvalidRequestError(f"{len(before)} --from, and {len(after)} --to: give one for each")
    return dict(zip(before, after, strict=True))


# ``gridref forecast``: a cube of forecasts along valid times


def forecast_command(
    catalog: Catalog,
    output: Annotated[
        str, typer.Option("--output", "-o", help="Catalog to write; the same one with --name.")
    ],
    after: Annotated[
        str | None,
        typer.Option(help="Take steps nearer than this from older runs: 12h.", show_default=False),
    ] = None,
    offset: Annotated[
        str | None, typer.Option(help="Take this step of every run: 24h.", show_default=False)
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(help="Take one run: 2022-03-01T12:00, or latest.", show_default=False),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="Keep the cube, and add the view as a group of this name.", show_default=False
        ),
    ] = None,
    run_dim: Annotated[
        str | None, typer.Option(help="Dimension of the runs.", show_default=False)
    ] = None,
    step_dim: Annotated[
        str | None, typer.Option(help="Dimension of the steps.", show_default=False)
    ] = None,
    snapshot: Snapshot = None,
    storage_options: StorageOptions = None,
    allow: Allowed = None,
) -> None:
    """Show a cube of runs and steps along valid times; nothing is copied.

    By default the best series: for each valid time the newest run that has it.

    Examples
    --------
        gridref forecast cube.gridref --after 12h -o best.gridref

        gridref forecast cube.gridref --run latest --name latest -o cube.gridref
    """
    from gridref.api.catalogs import write_catalog
    from gridref.api.layout.forecasts import forecast
    from gridref.api.opening import open_group

    options = parse_options(storage_options)
    cube = open_group(catalog, options, allow or None, snapshot)
    view = forecast(
        cube,
        after=after,
        offset=offset,
        run=run,
        run_dim=run_dim,
        step_dim=step_dim,
        storage_options=options,
    )
    kept = view if name is None else cube.with_changes(groups={**cube.groups, name: view})
    write_catalog(kept, output, storage_options=options)
    n_times = view.arrays["valid_time"].shape[0]
    where = output if name is None else f"group {name} of {output}"
    echo(f"{n_times} valid times in {where}")
