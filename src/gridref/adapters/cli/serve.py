"""The command ``gridref serve``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gridref.adapters.cli.options import SERVED_VIEW_OPTIONS, Allowed, takes

__all__ = ["serve_command"]

AllowedHosts = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Answer to this name too; repeatable, * for any."
        " Default: names of the loopback device, and the address that is listened at.",
    ),
]
AllowedOrigins = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ORIGIN",
        help="Let web pages of this origin read, like https://example.org; repeatable,"
        " * for all. Default: none but the server's own pages.",
    ),
]


@takes(SERVED_VIEW_OPTIONS)
def serve_command(
    catalogs: Annotated[
        list[str],
        typer.Argument(help="Catalogs, or directories of catalogs.", show_default=False),
    ],
    port: Annotated[int, typer.Option(help="Port to listen at.")] = 8000,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    workers: Annotated[int, typer.Option(help="Processes.")] = 1,
    allow: Allowed = None,
    allow_source: Annotated[list[str] | None, typer.Option(hidden=True)] = None,
    allow_host: AllowedHosts = None,
    allow_origin: AllowedOrigins = None,
    max_age: Annotated[int, typer.Option(help="Seconds for which answers stay fresh.")] = 0,
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
    from gridref.adapters.http.server import serve

    serve(
        catalogs,
        host=host,
        port=port,
        workers=workers,
        allow=(*(allow or ()), *(allow_source or ())) or None,
        allow_host=allow_host or (),
        allow_origin=allow_origin or (),
        max_age=max_age,
        access_log=access_log,
        on_ready=lambda url: typer.echo(f"Serving on {url} (stop with Ctrl+C)", err=True),
        **options,
    )
