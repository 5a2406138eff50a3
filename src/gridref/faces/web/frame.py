"""What all pages have in common: markup, links, scripts, head and footer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any, ClassVar
from urllib.parse import quote

import numpy as np

from gridref.faces.picture import shortened

# Scripts and styles, as files of the package

VIEWER = "viewer.js"
VIEWER_STYLE = "viewer.css"
"""Both are made by ``make assets``, and part of every wheel."""

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class Asset:
    """A file of the package."""

    content: bytes
    content_type: str


@cache
def _assets() -> dict[str, Asset]:
    """All assets by name: what a request may ask for is looked up, never opened."""
    return {
        each.name: Asset(each.read_bytes(), kind)
        for folder in ("assets", "built")
        if (here := files(__package__) / folder).is_dir()
        for each in here.iterdir()
        if (kind := _TYPES.get(f".{each.name.rpartition('.')[2]}")) is not None
    }


def asset(name: str) -> Asset | None:
    """An asset; None where there is none of that name."""
    return _assets().get(name)


@cache
def asset_version(name: str) -> str:
    """A text that changes with the content of an asset."""
    return hashlib.sha256(_assets()[name].content).hexdigest()[:12]


# HTML from values: everything that is not `Markup` is escaped

_VOID = frozenset({"link", "meta", "input", "br"})


class Markup(str):
    """Text that is HTML; only this module and drawings of our own make it."""

    __slots__ = ()


type Content = str | int | Iterable[Content] | None
"""What an element may hold; None is nothing."""


def markup(content: Content) -> Markup:
    """Content as HTML."""
    if content is None:
        return Markup()
    if isinstance(content, Markup):
        return content
    if isinstance(content, str | int):
        return Markup(escape(str(content)))
    return Markup("".join(map(markup, content)))


def tag(name: str, /, *children: Content, **attributes: str | int | bool | None) -> Markup:
    """An element.

    Parameters
    ----------
    *children
        What it holds.
    **attributes
        Its attributes; ``class_`` stands for ``class``, ``data_of`` for ``data-of``. True is one
        without a value; those that are None or False are left out.
    """
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{markup(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    end = "" if name in _VOID else f"</{name}>"
    return Markup(f"<{name}{written}>{markup(children)}{end}")


# Addresses of pages, their data and Zarr views, relative to one page

ASSETS = ".assets"
"""Folder of scripts and styles: no catalog can have a name that begins with a dot."""


@dataclass(frozen=True)
class Links:
    """Addresses relative to a page, which hold behind a proxy under another path too.

    Attributes
    ----------
    root
        From the page to the list of catalogs: ``""``, ``"../"``, ``"../../"``, …
    """

    root: str
    home: ClassVar[str] = "Catalogs"
    policy: ClassVar[str] = ""
    """Content-Security-Policy that pages state themselves; those of a server have it as a field."""
    footer: ClassVar[str] = "Served by gridref. Read-only; open to any Zarr v3 client."

    @classmethod
    def of_page(cls, path: str) -> Links:
        """The links of the page at a path of the server, like ``"/cube/array/tas"``."""
        return cls("../" * (path.count("/") - 1))

    def front(self) -> str:
        """The list of catalogs."""
        return self.root or "./"

    def asset(self, name: str) -> str:
        """A script or style; another address whenever its content is another."""
        return f"{self.root}{ASSETS}/{quote(name)}?v={asset_version(name)}"

    def catalog(self, name: str) -> str:
        """The page of a catalog."""
        return f"{self.root or './'}{quote(name, safe='@')}"

    def view(self, origin: str, name: str) -> str:
        """The whole address of the view that every Zarr client reads."""
        return f"{origin}/{quote(name, safe='@')}/portable"

    def extent(self, name: str) -> str:
        """What a catalog extends over, as JSON."""
        return f"{self.catalog(name)}/extent"

    def chunk_map(self, name: str, path: str) -> str:
        """The chunk map of an array; ``{at}`` stands for the chunks that it is at."""
        return f"{self.of_array('chunks', name, path)}?at={{at}}"

    def sizes(self, name: str, path: str) -> str:
        """How many chunks of an array there are of each size, as JSON."""
        return self.of_array("sizes", name, path)

    def place(self, name: str, path: str) -> str | None:
        """Address of the place of an element; None without a server."""
        return self.of_array("place", name, path)

    def of_array(self, kind: str, name: str, path: str) -> str:
        """Something about an array: ``"array"`` is its page; see `gridref.faces.http.routes`."""
        return f"{self.catalog(name)}/{kind}/{quote(path)}"


# Head, way back and footer of all pages

MOST_CHARACTERS = 2_000
"""Of one attribute on a page; the rest is in ``zarr.json``."""


def page(
    title: str,
    links: Links,
    *body: Content,
    way: Sequence[tuple[str, str]] = (),
    scripts: Sequence[str] = (),
) -> bytes:
    """A page.

    Parameters
    ----------
    title
        Its heading.
    links
        Where things are, as seen from it.
    *body
        The content below the heading.
    way
        Names and addresses of the pages above it.
    scripts
        Names of assets.
    """
    styles = [VIEWER_STYLE] if VIEWER in scripts and asset(VIEWER_STYLE) else []
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=links.policy)
        if links.policy
        else None,
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title if title == "gridref" else f"{title} · gridref"),
        tag("link", rel="stylesheet", href=links.asset("pages.css")),
        [tag("link", rel="stylesheet", href=links.asset(name)) for name in styles],
        tag("link", rel="icon", type="image/svg+xml", href=links.asset("icon.svg")),
        [tag("script", src=links.asset(name), type="module") for name in scripts],
    )
    steps = [(links.home, links.front()), *way]
    crumbs = tag("ol", [tag("li", tag("a", text, href=address)) for text, address in steps])
    shown = tag(
        "body",
        tag("a", "Skip to content", href="#content", class_="skip"),
        tag("header", tag("nav", crumbs, aria_label="Way back")),
        tag("main", tag("h1", title), body, id="content", tabindex=-1),
        tag("footer", tag("p", links.footer)),
    )
    text = "<!doctype html>\n" + tag("html", head, shown, lang="en")
    return text.encode(errors="replace")  # names of files may have lone surrogates


def problem_page(title: str, links: Links, text: str) -> bytes:
    """A page that says what went wrong."""
    return page(title, links, tag("p", text, class_="problem", role="alert"))


def section(heading: str, *body: Content, **attributes: str | None) -> Markup:
    """A part of a page with a heading."""
    return tag("section", tag("h2", heading), body, **attributes)


def table(
    heads: Sequence[str], rows: Iterable[Sequence[Content]], caption: str, **attributes: str
) -> Markup:
    """A table; the first column names the rows. It scrolls by itself where it is too wide."""
    written = [
        tag("tr", tag("th", row[0], scope="row"), [tag("td", cell) for cell in row[1:]])
        for row in rows
    ]
    shown = tag(
        "table",
        tag("caption", caption, class_="unseen"),
        tag("thead", tag("tr", [tag("th", head, scope="col") for head in heads])),
        tag("tbody", written),
        **attributes,
    )
    return tag("div", shown, class_="wide", tabindex=0, role="region", aria_label=caption)


def pairs(rows: Iterable[tuple[str, Content]]) -> Markup:
    """Names and values, those without value left out."""
    shown = [(tag("dt", name), tag("dd", value)) for name, value in rows if value not in (None, "")]
    return tag("dl", shown)


def attributes_section(attrs: Any) -> Markup | None:
    """Attributes of a group or an array; None where there are none."""
    if not attrs:
        return None
    rows = [(str(name), _value(value)) for name, value in attrs.items()]
    return section("Attributes", table(("name", "value"), rows, "Attributes"))


def _value(value: Any) -> Content:
    if isinstance(value, np.ndarray | list | tuple):
        items = np.asarray(value).ravel()[:MOST_CHARACTERS].tolist()
        return shortened(", ".join(map(str, items)), MOST_CHARACTERS)
    return shortened(str(value), MOST_CHARACTERS)
