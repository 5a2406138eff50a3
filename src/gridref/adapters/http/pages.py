"""What is not a key: lists of catalogs, of arrays, and of folders for clients that list."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from gridref.adapters.http.site import VIEWS, ServedCatalog
from gridref.serve.protocols import ArraySpace

__all__ = ["as_json", "catalog_document", "folder_page", "index_document"]


def index_document(
    catalogs: Mapping[str, ServedCatalog], problems: Mapping[str, str]
) -> dict[str, Any]:
    """All catalogs, and the addresses that open them."""
    return {
        "catalogs": {
            name: {
                **{view: f"/{quote(name)}/{view}" for view in VIEWS},
                **({"pinned": f"/{quote(catalog.pinned, safe='@')}"} if catalog.pinned else {}),
            }
            for name, catalog in sorted(catalogs.items())
        },
        "problems": dict(problems),
    }


def catalog_document(catalog: ServedCatalog) -> dict[str, Any]:
    """How each array of a catalog is shown, and why."""
    return {view: _arrays(space) for view, space in catalog.spaces.items()}


def _arrays(space: ArraySpace) -> dict[str, Any]:
    shown = {}
    for path, view in space.views().items():
        shown[path] = {
            "view": view.view.value,
            "shape": list(view.array.shape),
            "data_type": str(view.array.dtype),
            "chunk_grid": view.chunk_grid.to_json(),
            "shard_grid": None if view.shards is None else view.metadata.grid.to_json(),
            "why_not_native": view.reason,
            "why_not_sharded": view.shard_reason,
        }
    return shown


def folder_page(catalog: ServedCatalog, view: str, path: str) -> bytes:
    """A folder with links, which is how fsspec's HTTP filesystem lists."""
    space = catalog.spaces[view]
    base = "/".join(("", quote(catalog.name, safe="@"), view, *((quote(path),) if path else ())))
    items = []
    for name in space.list_dir(path):
        below = f"{path}/{name}" if path else name
        folder = name != "zarr.json" and space.resolve(below) is None
        items.append((f"{base}/{quote(name)}{'/' if folder else ''}", name))
    return _page(f"{catalog.name}/{view}/{path}", items)


def _page(title: str, items: Iterable[tuple[str, str]]) -> bytes:
    links = "\n".join(
        f'<li><a href="{html.escape(address)}">{html.escape(text)}</a></li>'
        for address, text in items
    )
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8">\n'
        f"<title>{html.escape(title)}</title>\n<h1>{html.escape(title)}</h1>\n<ul>\n{links}\n</ul>\n</html>\n"
    ).encode()


def as_json(document: Any) -> bytes:
    """A document for people and programs."""
    return json.dumps(document, indent=2, allow_nan=False).encode() + b"\n"
