"""Serve catalogs over HTTP to every Zarr v3 client, which need not know gridref."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gridref.faces.http.app import create_app
    from gridref.faces.http.server import serve

__all__ = ["create_app", "serve"]


def __getattr__(name: str) -> Any:
    # The command line imports this package to add its command; the rest can wait until it is used.
    if name == "create_app":
        from gridref.faces.http.app import create_app

        return create_app
    if name == "serve":
        from gridref.faces.http.server import serve

        return serve
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
