"""The page that lists the catalogs of a server."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from gridref.errors import GridrefError, InvalidRequestError
from gridref.faces.picture import human_bytes, shortened
from gridref.faces.web.extent import Ends, extents
from gridref.faces.web.frame import VIEWER, Content, Links, asset, markup, page, section, table, tag
from gridref.faces.web.levels import Level, previewed
from gridref.faces.web.search import PAGE_ROWS, Found, Search, Searched, facets
from gridref.model.array import VirtualGroup

MOST_TITLE = 200


@dataclass(frozen=True)
class Listed:
    """A catalog in the list.

    Attributes
    ----------
    name
        Its name in addresses.
    title
        What its attributes call it; empty if they do not.
    n_arrays, n_bytes
        Its arrays, and the size of their elements.
    preview
        The levels of the array that its preview shows; empty where there is none.
    """

    name: str
    title: str
    n_arrays: int
    n_bytes: int
    preview: Sequence[Level] = ()

    @classmethod
    def of(cls, name: str, group: VirtualGroup) -> Listed:
        """From the catalog's root group."""
        arrays = group.all_arrays().values()
        title = shortened(str(group.attrs.get("title", "")), MOST_TITLE)
        n_bytes = sum(array.nbytes for array in arrays)
        return cls(name, title, len(arrays), n_bytes, previewed(group))


class ServedHere(Searched, Protocol):
    """A catalog that can be searched and listed."""

    @property
    def listed(self) -> Listed: ...


def front_page[Catalog: ServedHere](
    links: Links,
    search: Search,
    found: Found[Catalog] | InvalidRequestError,
    problems: Mapping[str, str],
) -> bytes:
    """The page at ``/``.

    Previews, and extents that are not known yet, need values to be read: the page asks for those of
    the rows that come into sight.

    Parameters
    ----------
    links
        Where things are, as seen from it.
    found
        What was found, or what is wrong with the search.
    problems
        Catalogs that could not be opened again, and why.
    """
    scripts = ["front.js", *([VIEWER] if asset(VIEWER) else ())]
    shown = _told(found) if isinstance(found, InvalidRequestError) else _found(links, search, found)
    needs = tag(
        "noscript", tag("p", "Searching and previews need JavaScript; what is below does not.")
    )
    body = needs, _form(search), tag("div", shown, id="results"), _problems(problems)
    return page("gridref", links, body, scripts=scripts)


def _told(error: InvalidRequestError) -> Content:
    return tag("p", f"{error}".capitalize(), class_="problem", role="alert")


def _form(search: Search) -> Content:
    """What is searched for; a script asks for the page again when it changes."""
    fields = (
        ("q", "Find", "search", search.text, "words, variable=tas, standard_name:wind"),
        ("from", "from", "text", search.since, "2001-05"),
        ("to", "to", "text", search.until, "2010"),
        ("box", "box", "text", search.box, "west,south,east,north"),
    )
    inputs = [
        tag(
            "label",
            f"{words} ",
            tag("input", name=name, type=kind, value=value, placeholder=hint, autocomplete="off"),
        )
        for name, words, kind, value, hint in fields
    ]
    return tag("div", inputs, id="search", class_="scripted controls", role="search", hidden=True)


def _found[Catalog: ServedHere](links: Links, search: Search, found: Found[Catalog]) -> Content:
    catalogs = found.catalogs
    first = (search.page - 1) * PAGE_ROWS
    shown = catalogs[first : first + PAGE_ROWS]
    heads = ("catalog", "title", "arrays", "size", "from … to", "preview")
    rows = [_row(links, each.listed, each.known_ends) for each in shown]
    return [
        tag("p", _count(found), id="found", role="status", data_unread=found.n_unread or None),
        _facets(links, search, catalogs),
        table(heads, rows, "Catalogs", id="catalogs") if rows else None,
        _pages(links, search, len(catalogs)),
    ]


def _count[Catalog: ServedHere](found: Found[Catalog]) -> str:
    n = len(found.catalogs)
    words = f"{n:,} catalogs" if n == found.n_all else f"{n:,} of {found.n_all:,} catalogs"
    if not found.n_all:
        words = "No catalogs yet."
    if found.n_unread:
        words += f"; extents of {found.n_unread:,} are not read yet"
    if found.n_unreadable:
        words += f"; extents of {found.n_unreadable:,} cannot be read"
    return words


def _facets[Catalog: ServedHere](
    links: Links, search: Search, catalogs: Sequence[Catalog]
) -> Content:
    """What divides the catalogs that were found: a choice is one more word of the search."""
    lists = [
        tag(
            "details",
            tag("summary", field.replace("_", " ")),
            tag("ul", [_choice(links, search, field, text, n) for text, n in counts]),
        )
        for field, counts in facets([each.described for each in catalogs]).items()
    ]
    return tag("div", lists, class_="facets") if lists else None


def _choice(links: Links, search: Search, field: str, text: str, n: int) -> Content:
    word = f'{field}="{text}"' if re.search(r"[\s\"]", text) else f"{field}={text}"
    query = search.query(q=f"{search.text} {word}".strip(), page=1)
    return tag("li", tag("a", text, href=f"{links.front()}?{query}"), f" {n:,}")


def _pages(links: Links, search: Search, n: int) -> Content:
    last = -(-n // PAGE_ROWS)
    if last < 2:
        return None
    ways = (("Previous", search.page - 1), ("Next", search.page + 1))
    turns = [
        tag("a", words, href=f"{links.front()}?{search.query(page=to)}", rel=words.lower()[:4])
        for words, to in ways
        if 1 <= to <= last
    ]
    told = tag("span", f"Page {search.page:,} of {last:,}")
    return tag("nav", told, turns, aria_label="Pages", class_="controls")


def _row(
    links: Links, each: Listed, ends: Sequence[Ends] | GridrefError | None
) -> tuple[Content, ...]:
    return (
        tag("a", each.name, href=links.catalog(each.name), title=each.name),
        tag("span", each.title, title=each.title or None),
        each.n_arrays,
        human_bytes(each.n_bytes),
        _extent(links, each.name, ends),
        _preview(links, each),
    )


def _extent(links: Links, name: str, ends: Sequence[Ends] | GridrefError | None) -> Content:
    """What is known of it; a script asks for the rest."""
    if ends is None or isinstance(ends, GridrefError):
        return tag("span", class_="extent", data_from=links.extent(name))
    told = "; ".join(f"{e.name}: {e.first} … {e.last}" for e in extents(ends)) or "–"
    return tag("span", told, class_="extent", title=told)


def _preview(links: Links, each: Listed) -> Content:
    if not each.preview:
        return None
    return tag(
        "canvas",
        class_="preview",
        role="img",
        aria_label=f"{each.preview[0].path} of {each.name}",
        data_view=f"{links.catalog(each.name)}/portable",
        data_levels=json.dumps([asdict(level) for level in each.preview]),
    )


def _problems(problems: Mapping[str, str]) -> Content:
    if not problems:
        return None
    items = [tag("li", tag("strong", name), f": {text}") for name, text in sorted(problems.items())]
    return section("Could not be opened again", tag("ul", markup(items)), class_="problem")
