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
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import parse_qs, quote

from gridref.errors import GridrefError, InvalidRequestError
from gridref.faces.http.objects import MIN_GZIP_BYTES, gzipped, takes_gzip
from gridref.faces.http.site import VIEWS, ServedCatalog, Site
from gridref.faces.web.array_page import Document, array_page
from gridref.faces.web.catalog_page import SourceNames, catalog_page
from gridref.faces.web.chunk_map import chunk_at, chunk_map, count_sizes
from gridref.faces.web.extent import extents
from gridref.faces.web.frame import ASSETS, VIEWER, Links, asset, asset_version, problem_page
from gridref.faces.web.front_page import front_page
from gridref.faces.web.search import Found, Search, find
from gridref.model.array import VirtualArray
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


# Pages for people, the same as JSON for programs, and data for pages

type Fields = tuple[tuple[bytes, bytes], ...]

HTML = b"text/html; charset=utf-8"
JSON = b"application/json"
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


@dataclass(frozen=True)
class Asked:
    """What a request asks for.

    Attributes
    ----------
    path
        Its path, decoded.
    accept
        What it takes.
    origin
        The address of the server, as the client has it.
    takes_gzip
        Whether the answer may be compressed.
    """

    path: str
    query: Mapping[str, list[str]]
    accept: str
    origin: str
    takes_gzip: bool = False

    @classmethod
    def of(cls, scope: Mapping[str, Any]) -> Asked:
        """From an ASGI scope."""
        headers = {key: value.decode("latin-1") for key, value in scope["headers"]}
        return cls(
            scope["path"],
            parse_qs(scope.get("query_string", b"").decode("latin-1")),
            headers.get(b"accept", ""),
            f"{scope.get('scheme', 'http')}://{headers.get(b'host', '')}",
            takes_gzip(headers.get(b"accept-encoding", "")),
        )

    @property
    def by_browser(self) -> bool:
        """Whether pages are wanted; programs ask for any type, or for none."""
        return "text/html" in self.accept

    @property
    def links(self) -> Links:
        """Where things are, as seen from the page."""
        return Links.of_page(self.path)

    @property
    def at(self) -> list[int]:
        """The numbers of ``at``; none if it is left out."""
        text = self.query.get("at", [""])[0]
        numbers = text.split(",") if text else []
        if not all(
            number.isascii() and number.isdigit() and len(number) < 19 for number in numbers
        ):
            raise InvalidRequestError(f"at is a list of numbers, got {text!r}")
        return [int(number) for number in numbers]


@dataclass(frozen=True)
class Page:
    """A response whose body is at hand; with an `etag`, it is compressed once for all requests."""

    body: bytes
    content_type: bytes
    headers: Fields = ()
    status: int = 200
    etag: str = ""

    def packed(self) -> Page:
        """The same, compressed if that is worth it."""
        if len(self.body) < MIN_GZIP_BYTES:
            return self
        level = 6 if len(self.body) < _LARGE_BYTES else 1
        body = (
            gzipped(self.etag, self.body) if self.etag else gzip.compress(self.body, level, mtime=0)
        )
        fields = (*self.headers, (b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding"))
        return replace(self, body=body, headers=fields)


def answer_for(site: Site, catalog: ServedCatalog | None, asked: Asked) -> Page | None:
    """The same as `page_for`, compressed where the client takes that."""
    page = page_for(site, catalog, asked)
    return page.packed() if page is not None and asked.takes_gzip else page


def page_for(site: Site, catalog: ServedCatalog | None, asked: Asked) -> Page | None:
    """The page for a path that is no key; None if there is none.

    Parameters
    ----------
    site
        All catalogs.
    catalog
        The one that the path names; None where it names none.
    asked
        What is asked for.

    Raises
    ------
    GridrefError
        If sources or catalogs cannot be read.
    """
    name, _, rest = asked.path.removeprefix("/").partition("/")
    if not name:
        return _front(site, asked)
    if name == ASSETS:
        return _asset(rest)
    if catalog is None:
        return None
    kind, _, path = rest.partition("/")
    if not rest:
        return _catalog(catalog, asked)
    if rest == "extent":
        return _extent(catalog)
    array = _array(catalog, catalog.asked_key(path))
    if array is None or kind not in _OF_ARRAYS:
        return None
    try:
        return _OF_ARRAYS[kind](catalog, catalog.asked_key(path), array, asked)
    except InvalidRequestError as error:
        return Page(f"{error}\n".encode(), b"text/plain; charset=utf-8", status=400)


def problem(asked: Asked, status: int, title: str, text: str) -> Page:
    """A page that says what went wrong."""
    return _html(problem_page(title, asked.links, text), status)


def _front(site: Site, asked: Asked) -> Page:
    if not asked.by_browser:
        return _json(index_document(site.catalogs, site.problems), _BY_KIND)
    catalogs = [each for _, each in sorted(site.catalogs.items())]
    search = Search.of(asked.query)
    try:
        found: Found[ServedCatalog] | InvalidRequestError = find(catalogs, search)
    except InvalidRequestError as error:
        found = error
    return _html(front_page(asked.links, search, found, site.problems))


def _asset(name: str) -> Page | None:
    found = asset(name)
    if found is None:
        return None
    kind = found.content_type.encode()
    return Page(found.content, kind, (_FOR_EVER,), etag=f"{name} {asset_version(name)}")


def pack_viewer() -> None:
    """Compress the viewer before it is asked for."""
    page = _asset(VIEWER)
    if page is not None:
        page.packed()


def _catalog(catalog: ServedCatalog, asked: Asked) -> Page:
    if not asked.by_browser:
        return _json(catalog_document(catalog), _BY_KIND)
    left_out = catalog.spaces["portable"].left_out
    name, group, kept = catalog.name, catalog.group, catalog.kept
    return _html(catalog_page(asked.links, name, group, kept, left_out, asked.origin))


def _extent(catalog: ServedCatalog) -> Page:
    return _json([asdict(extent) for extent in extents(catalog.read_ends())], _FRESH)


def _array(catalog: ServedCatalog, path: str) -> VirtualArray | None:
    found = catalog.group[path] if path and path in catalog.group else None
    return found if isinstance(found, VirtualArray) else None


def _array_page(catalog: ServedCatalog, path: str, array: VirtualArray, asked: Asked) -> Page:
    views = {name: _view(catalog, name, path) for name in catalog.spaces}
    name, group, document = catalog.name, catalog.group, partial(_document, catalog)
    origin, kept = asked.origin, catalog.kept
    return _html(array_page(asked.links, name, path, group, views, document, origin, kept))


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


def _chunks(catalog: ServedCatalog, path: str, array: VirtualArray, asked: Asked) -> Page:
    return Page(chunk_map(array, asked.at).to_bytes(), b"application/octet-stream", (_FRESH,))


def _sizes(catalog: ServedCatalog, path: str, array: VirtualArray, asked: Asked) -> Page:
    return _json(count_sizes(array).to_json(), _FRESH)


def _place(catalog: ServedCatalog, path: str, array: VirtualArray, asked: Asked) -> Page:
    state, source, offset, length = chunk_at(array, asked.at)
    told: dict[str, Any] = {"state": state.name.lower()}
    if source is not None:
        name = SourceNames.of(catalog.kept).name(source.url)
        told |= {"source": name, "offset": offset, "length": length}
    return _json(told, _FRESH)


_OF_ARRAYS = {"array": _array_page, "chunks": _chunks, "sizes": _sizes, "place": _place}


def _html(body: bytes, status: int = 200) -> Page:
    return Page(body, HTML, (*_OF_HTML, _FRESH, _BY_KIND), status)


def _json(document: Any, *fields: tuple[bytes, bytes]) -> Page:
    return Page(as_json(document), JSON, fields)
