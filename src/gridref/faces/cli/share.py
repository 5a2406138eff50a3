"""Commands that share catalogs: ``gridref serve | export | copy | publish``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from gridref.errors import by_reason, number_of, some_of
from gridref.faces.cli.console import echo, shown_progress
from gridref.faces.cli.options import (
    COPY_OPTIONS,
    EXPORT_OPTIONS,
    FROM,
    SERVED_VIEW_OPTIONS,
    TO,
    Allowed,
    Catalog,
    Quiet,
    Snapshot,
    StorageOptions,
    WhichOverlay,
    overlay_of,
    parse_options,
    prefixes_of,
    spelled,
    takes,
)

if TYPE_CHECKING:
    from gridref.api.catalog import ExportKind
    from gridref.api.copying import CopyReport


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
    catalogs: Annotated[list[str], typer.Argument(help="Catalogs, or directories of catalogs.")],
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    workers: Annotated[int, typer.Option(help="Number of processes.")] = 1,
    allow: Allowed = None,
    allow_host: AllowedHosts = None,
    allow_origin: AllowedOrigins = None,
    overlay: WhichOverlay = None,
    max_age: Annotated[
        int, typer.Option(help="Let caches keep answers for this many seconds.")
    ] = 0,
    access_log: Annotated[bool, typer.Option(help="Log each request as a line of JSON.")] = True,
    **options: Any,
) -> None:
    """Serve catalogs over HTTP to any Zarr v3 client.

    A catalog cube.gridref opens at http://HOST:PORT/cube/portable (any client) and
    http://HOST:PORT/cube/native (stored chunks, if Zarr can describe them).

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
        overlay=overlay_of(overlay),
        max_age=max_age,
        access_log=access_log,
        on_ready=lambda url: echo(
            f"Serving on {url} (stop with Ctrl+C); a catalog opens with"
            f' xr.open_zarr("{url}NAME/portable")',
            err=True,
        ),
        **options,
    )


# ``gridref export``: a catalog for readers other than gridref


@takes(EXPORT_OPTIONS)
def export_command(
    catalog: Catalog,
    output: Annotated[
        str | None,
        typer.Argument(
            help="What to write: .json, a folder of Parquet files (.parq), an Icechunk repository"
            " (.icechunk), a file of aggregation variables (.nc), or the kind given by --to."
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="kerchunk, icechunk, cf: references, also by the ending of OUTPUT. stac: an Item"
            " or Collection (default output: the screen). forecast: a catalog along valid times."
        ),
    ] = None,
    snapshot: Snapshot = None,
    overlay: WhichOverlay = None,
    allow: Allowed = None,
    **options: Any,
) -> None:
    """Write a catalog for other readers: references, CF aggregation, STAC, or forecasts.

    If references cannot express an array (differing codecs, files in archives; in Zarr v2 also
    uneven chunks), nothing is written, and every such array is listed with the reason. Small ones
    are written by value. Aggregation variables (CF-1.13) express grids of whole variables of files,
    whatever their codecs.

    A STAC description holds dimensions, variables and chunk grids (datacube), projection, bands,
    box and time, and the ways to open the catalog as assets.

    A forecast shows a cube of runs and steps along valid times. By default it is the best series:
    for each valid time the newest run that has it. Nothing is copied.

    Examples
    --------
        gridref export cube.gridref refs.json

        gridref export cube.gridref refs.parq

        gridref export cube.gridref refs.json --zarr-format 3

        gridref export cube.gridref refs.json --templates --inline-threshold 500

        gridref export cube.gridref cube.icechunk

        gridref export march.gridref cube.icechunk --append-dim time

        gridref export cube.gridref aggregation.nc

        gridref export cube.gridref item.json --to stac --served https://data.example.org/cube

        gridref export cube.gridref best.gridref --to forecast --after 12h

        gridref export cube.gridref cube.gridref --to forecast --run latest --name latest
    """
    from gridref.api.catalog import export_kind, open_catalog

    if output is None and to != "stac":
        raise typer.BadParameter("no output given: name OUTPUT (only --to stac works without)")
    storage_options = options.pop("storage_options", None)
    if options.pop("collection", False):
        options["kind"] = "collection"
    opened = open_catalog(
        catalog,
        storage_options=storage_options,
        allow=allow,
        snapshot=snapshot,
        overlay=overlay_of(overlay),
    )
    kind = export_kind(output, to)
    by_value: dict[str, str] = {}
    if kind in ("kerchunk", "icechunk"):
        options["announce"] = by_value.update
    written = opened.export(output, to=cast("ExportKind", to), **options)
    if output is None:
        echo(json.dumps(written, indent=2))
        return
    echo(_WRITTEN[kind](output, written))
    for alike in by_reason(by_value.items(), lambda item: item[1]):
        names = some_of([path for path, _ in alike])
        echo(f"written by value, not as references: {names} ({spelled(alike[0][1])})")
    if kind in ("kerchunk", "icechunk", "cf") and opened.info.n_checksums:
        echo(
            f"checksums of {number_of(opened.info.n_checksums, 'chunk')} are left out:"
            " no place for them"
        )


_WRITTEN: Mapping[str, Callable[[str, Any], str]] = {
    "kerchunk": lambda output, document: f"{output}: {number_of(len(document['refs']), 'key')}",
    "icechunk": lambda output, snapshot: f"{output}: snapshot {snapshot}",
    "cf": lambda output, variables: (
        f"{output}: {number_of(len(variables), 'aggregation variable')}"
    ),
    "stac": lambda output, document: f"{output}: {document['type']} {document['id']}",
    "forecast": lambda output, view: (
        f"{output}: {number_of(view.arrays['valid_time'].shape[0], 'valid time')}"
    ),
}
"""What to say of each kind of export."""


# ``gridref copy``


@takes(COPY_OPTIONS)
def copy_command(
    catalog: Catalog,
    target: Annotated[str, typer.Argument(help="Address of the copy: a new folder or URL.")],
    snapshot: Snapshot = None,
    allow: Allowed = None,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Copy all values as a Zarr v3 cube that needs neither gridref nor the files.

    You choose new chunks, shards and codec. Values, coordinates, attributes and groups stay the
    same. If the command is interrupted or killed, run it again to continue. The copy opens only
    when it is complete.

    Each stored chunk is decoded once, or as rarely as --memory allows; --dry-run shows how often.

    Examples
    --------
        gridref copy cube.gridref cube.zarr

        gridref copy cube.gridref cube.zarr --chunks time=-1,lat=20,lon=20 --memory 4GB

        gridref copy cube.gridref cube.zarr --array tas --codec zstd --dry-run

        gridref copy cube.gridref s3://bucket/cube.zarr -O anon=false

        gridref copy cube.gridref cube.icechunk
    """
    from gridref.api.copying import copy

    with shown_progress(quiet, "steps") as progress:
        report = copy(
            catalog, target, allow=allow or None, snapshot=snapshot, progress=progress, **options
        )
    for line in _copy_lines(report):
        echo(line)


def _copy_lines(report: CopyReport) -> Iterator[str]:
    """What was copied, or would be, in words."""
    from gridref.faces.picture import human_bytes

    for path, array in report.arrays.items():
        parts = [f"chunks {_by_x(array.chunks)}" if array.chunks else "chunks as in the files"]
        if array.shards:
            parts.append(f"shards {_by_x(array.shards)}")
        if array.n_decoded:
            often = "once" if array.decodes <= 1 else f"{array.decodes:.3g} times"
            through = " into intermediate files" if array.has_two_passes else ""
            parts.append(
                f"{number_of(array.n_stored, 'stored chunk')}, each decoded {often}{through}"
            )
        yield f"{path}: {', '.join(parts)}"
    in_memory = f"at most {human_bytes(report.peak_bytes)} of memory"
    if report.is_dry_run:
        objects = number_of(report.n_objects, "object")
        yield f"{report.target}: {objects}, {in_memory}; nothing was written"
        return
    found = f" ({report.n_adopted} found)" if report.n_adopted else ""
    yield (
        f"{report.target}: arrays {len(report.arrays)}, objects {report.n_objects}{found},"
        f" {human_bytes(report.n_bytes)} written in {report.seconds:.1f} s, {in_memory}"
    )


def _by_x(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


# ``gridref publish``


def publish_command(
    catalog: Catalog,
    folder: Annotated[str, typer.Argument(help="Local folder to write the site to.")],
    base_url: Annotated[str, typer.Option(metavar="URL", help="Address that the site will have.")],
    before: Annotated[list[str] | None, FROM] = None,
    after: Annotated[list[str] | None, TO] = None,
    storage_options: StorageOptions = None,
    allow: Allowed = None,
) -> None:
    """Write a catalog as a web site of plain files, for any web server or bucket.

    The site has pages, a copy of the catalog, kerchunk references if they can express it, and a
    STAC Item if a coordinate has its time. The values stay in the source files. These must be on
    the web: give their addresses with --from and --to.

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
        prefixes=prefixes_of(before or [], after or []) or None,
        storage_options=parse_options(storage_options),
        allow=allow or None,
    )
    for file, reason in published.left_out.items():
        echo(f"no {file}: {reason}", err=True)
    n_files = len(published.files)
    echo(f"{folder}: {number_of(n_files, 'file')} and the catalog, to be uploaded to {base_url}")
