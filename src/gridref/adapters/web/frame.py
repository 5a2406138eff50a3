"""What all pages have: head, way back, footer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gridref.adapters.describing import shortened
from gridref.adapters.web.links import Links
from gridref.adapters.web.markup import Content, Markup, tag

__all__ = ["attributes_section", "page", "pairs", "problem_page", "section", "table"]

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
        Where things lie, as seen from it.
    *body
        What comes below the heading.
    way
        Names and addresses of the pages above it.
    scripts
        Names of assets.
    """
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        _policy(links.policy) if links.policy else None,
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title if title == "gridref" else f"{title} · gridref"),
        tag("link", rel="stylesheet", href=links.asset("pages.css")),
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


def _policy(policy: str) -> Markup:
    return tag("meta", http_equiv="Content-Security-Policy", content=policy)


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
