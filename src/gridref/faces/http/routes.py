"""Answer requests for everything that is not a key of a catalog: pages and their data.

======================== ================================================================
``/``                    the catalogs
``/NAME``                a catalog
``/NAME/extent``         its extent in time and space
``/NAME/array/PATH``     an array
``/NAME/chunks/PATH``    its chunk map; ``at=3,0``: the chunk along each axis not shown
``/NAME/sizes/PATH``     how many chunks there are of each size
``/NAME/place/PATH``     where the element ``at=1,2,3`` is stored
``/.assets/FILE``        scripts and styles
======================== ================================================================
"""

from __future__ import annotations

import gzip
import html
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any
from urllib.parse import quote

from gridref.errors import GridrefError, InvalidRequestError
from gridref.faces.http.objects import METADATA_TYPE, MIN_GZIP_BYTES, Answer, gzipped
from gridref.faces.http.requests import Fields, Request
from gridref.faces.http.site import VIEWS, ServedCatalog, Site
from gridref.faces.web.array_page import Document, array_page
from gridref.faces.web.catalog_page import SourceNames, catalog_page
from gridref.faces.web.chunk_map import chunk_at, chunk_map, count_sizes
from gridref.faces.web.extent import extents
from gridref.faces.web.frame import ASSETS, VIEWER, asset, problem_page
from gridref.faces.web.front_page import Found, Search, find, front_page
from gridref.model.array import VirtualArray, path_in
from gridref.options import did_you_mean
from gridref.serve.objects import KeySpace
from gridref.serve.views import ArrayView

# Lists of catalogs, of arrays, and of folders


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


def _arrays(space: KeySpace) -> dict[str, Any]:
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


def folder_page(catalog: ServedCatalog, view: str, path: str) -> Answer:
    """A folder with links, which is how fsspec's HTTP filesystem lists."""
    space = catalog.spaces[view]
    base = "/".join(("", quote(catalog.name, safe="@"), view, *((quote(path),) if path else ())))
    items = []
    for name in space.list_dir(path):
        below = path_in(path, name)
        folder = name != "zarr.json" and space.resolve(below) is None
        items.append((f"{base}/{quote(name)}{'/' if folder else ''}", name))
    title = html.escape(f"{catalog.name}/{view}/{path}")
    links = "\n".join(
        f'<li><a href="{html.escape(address)}">{html.escape(text)}</a></li>'
        for address, text in items
    )
    page = (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8">\n'
        f"<title>{title}</title>\n<h1>{title}</h1>\n<ul>\n{links}\n</ul>\n</html>\n"
    )
    return Answer.of(page.encode(), HTML)


def as_json(document: Any) -> bytes:
    """A document for people and programs."""
    return json.dumps(document, indent=2, allow_nan=False).encode() + b"\n"


# Pages for people, the same as JSON for programs, and data for pages

HTML = "text/html; charset=utf-8"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:;"
    " connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)
_OF_HTML: Fields = (
    (b"content-security-policy", POLICY.encode()),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
_FOR_EVER = (b"cache-control", b"public, max-age=31536000, immutable")
_FRESH = (b"cache-control", b"no-cache")
_BY_KIND = (b"vary", b"Accept")
_LARGE_BYTES = 2**20


def answer_for(site: Site, catalog: ServedCatalog | None, request: Request) -> Answer | None:
    """The same as `page_for`, compressed where the client takes that."""
    page = page_for(site, catalog, request)
    if page is None or not request.takes("gzip"):
        return page
    return _packed(page, request.path if _FOR_EVER in page.headers else "")


def _packed(page: Answer, key: str = "") -> Answer:
    """A page, compressed if that is worth it; with a key, once for all requests."""
    body = page.body
    if not isinstance(body, bytes) or len(body) < MIN_GZIP_BYTES:
        return page
    level = 6 if len(body) < _LARGE_BYTES else 1
    smaller = gzipped(key, body) if key else gzip.compress(body, level, mtime=0)
    fields = ((b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding"))
    return replace(page, body=smaller, headers=(*page.headers, *fields))


def page_for(site: Site, catalog: ServedCatalog | None, request: Request) -> Answer | None:
    """The page for a path that is no key; None if there is none.

    Parameters
    ----------
    site
        All catalogs.
    catalog
        The one that the path names; None where it names none.
    request
        What is asked for.

    Raises
    ------
    GridrefError
        If sources or catalogs cannot be read.
    """
    name, _, rest = request.path.removeprefix("/").partition("/")
    if not name:
        return _front(site, request)
    if name == ASSETS:
        return _asset(rest)
    if catalog is None:
        return None
    if not rest:
        return _catalog(catalog, request)
    if rest == "extent":
        return _json([asdict(extent) for extent in extents(catalog.read_ends())], _FRESH)
    kind, _, key = rest.partition("/")
    path = catalog.asked_key(key)
    array = catalog.array(path)
    if array is None or kind not in _OF_ARRAYS:
        return None
    try:
        return _OF_ARRAYS[kind](catalog, path, array, request)
    except InvalidRequestError as error:
        return Answer.plain(400, str(error))


_MOST_COMPARED = 2000
"""Names up to which those like an unknown one are looked for: visitors may ask as they like."""
_BELOW_ARRAY = re.compile(r"/(zarr\.json|c(/\d+)*/?)$")
"""What follows the path of an array in a key."""


def nothing_here(site: Site, catalog: ServedCatalog | None, request: Request) -> Answer:
    """The answer to an address of nothing; people read which names are like the one they asked."""
    if not request.by_browser:
        return Answer.plain(404, "nothing is here")
    name, _, rest = request.path.removeprefix("/").partition("/")
    kind, _, key = rest.partition("/")
    known: Collection[str]
    if catalog is None:
        asked, known, what = name, site.catalogs, f"There is no catalog {name!r} here"
    elif kind in VIEWS or kind in _OF_ARRAYS:
        asked, known = _BELOW_ARRAY.sub("", key.rstrip("/")), catalog.group.all_arrays()
        what = f"The catalog {name!r} has no {asked!r}"
    else:
        asked, known = kind, (*VIEWS, *_OF_ARRAYS)
        what = f"The catalog {name!r} has no page {kind!r}"
    near = did_you_mean(asked, known) if len(known) <= _MOST_COMPARED else ""
    return problem(request, 404, "Nothing is here", f"{what}{near or '.'}")


def problem(request: Request, status: int, title: str, text: str) -> Answer:
    """A page that says what went wrong."""
    return replace(_html(problem_page(title, request.links, text)), status=status)


def _front(site: Site, request: Request) -> Answer:
    if not request.by_browser:
        return _json(index_document(site.catalogs, site.problems), _BY_KIND)
    catalogs = [each for _, each in sorted(site.catalogs.items())]
    search = Search.of(request.query)
    try:
        found: Found[ServedCatalog] | InvalidRequestError = find(catalogs, search)
    except InvalidRequestError as error:
        found = error
    return _html(front_page(request.links, search, found, site.problems))


def _asset(name: str) -> Answer | None:
    found = asset(name)
    return None if found is None else Answer.of(found.content, found.content_type, _FOR_EVER)


def pack_viewer() -> None:
    """Compress the viewer before it is asked for."""
    page = _asset(VIEWER)
    if page is not None:
        _packed(page, f"/{ASSETS}/{VIEWER}")


def _catalog(catalog: ServedCatalog, request: Request) -> Answer:
    if not request.by_browser:
        return _json(catalog_document(catalog), _BY_KIND)
    left_out = catalog.spaces["portable"].left_out
    name, group, kept = catalog.name, catalog.group, catalog.kept
    return _html(catalog_page(request.links, name, group, kept, left_out, request.origin))


def _array_page(catalog: ServedCatalog, path: str, array: VirtualArray, request: Request) -> Answer:
    views = {name: _view(catalog, name, path) for name in catalog.spaces}
    name, group, document = catalog.name, catalog.group, partial(_document, catalog)
    origin, kept = request.origin, catalog.kept
    return _html(array_page(request.links, name, path, group, views, document, origin, kept))


def _document(catalog: ServedCatalog, path: str) -> Document:
    native, portable = (_view(catalog, name, path) for name in ("native", "portable"))
    if isinstance(portable, GridrefError):
        return Document(None)
    return Document.of(portable if isinstance(native, GridrefError) else native, portable)


def _view(catalog: ServedCatalog, name: str, path: str) -> ArrayView | GridrefError:
    try:
        view = catalog.spaces[name].array_view(path)
    except GridrefError as error:
        return error
    assert view is not None
    return view


def _chunks(catalog: ServedCatalog, path: str, array: VirtualArray, request: Request) -> Answer:
    columns = chunk_map(array, _at(request))
    return Answer.of(columns.to_bytes(), "application/octet-stream", _FRESH)


def _sizes(catalog: ServedCatalog, path: str, array: VirtualArray, request: Request) -> Answer:
    return _json(count_sizes(array).to_json(), _FRESH)


def _place(catalog: ServedCatalog, path: str, array: VirtualArray, request: Request) -> Answer:
    state, source, offset, length = chunk_at(array, _at(request))
    told: dict[str, Any] = {"state": state.name.lower()}
    if source is not None:
        name = SourceNames.of(catalog.kept).name(source.url)
        told |= {"source": name, "offset": offset, "length": length}
    return _json(told, _FRESH)


_OF_ARRAYS = {"array": _array_page, "chunks": _chunks, "sizes": _sizes, "place": _place}


def _at(request: Request) -> list[int]:
    """The numbers of ``at``; none if it is left out."""
    text = request.query.get("at", [""])[0]
    numbers = text.split(",") if text else []
    if not all(number.isascii() and number.isdigit() and len(number) < 19 for number in numbers):
        raise InvalidRequestError(f"at is a list of numbers, got {text!r}")
    return [int(number) for number in numbers]


def _html(body: bytes) -> Answer:
    return Answer.of(body, HTML, *_OF_HTML, _FRESH, _BY_KIND)


def _json(document: Any, *fields: tuple[bytes, bytes]) -> Answer:
    return Answer.of(as_json(document), METADATA_TYPE, *fields)
