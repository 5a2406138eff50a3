"""Catalogs over HTTP: every Zarr v3 client reads them, knowing nothing of gridref."""

from gridref.adapters.http.app import create_app
from gridref.adapters.http.server import serve

__all__ = ["create_app", "serve"]
