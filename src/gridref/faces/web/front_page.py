"""The page that lists the catalogs of a server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gridref.faces.picture import human_bytes, shortened
from gridref.faces.web.frame import VIEWER, Content, Links, asset, markup, page, section, table, tag
from gridref.faces.web.levels import Level, previewed
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


def front_page(links: Links, listed: Iterable[Listed], problems: Mapping[str, str]) -> bytes:
    """The page at ``/``.

    Previews, and extents in time and space, need values to be read: the page asks for those of the
    rows that come into sight.
    """
    rows = [_row(links, each) for each in listed]
    search = tag(
        "p",
        tag("label", "Find ", tag("input", type="search", id="find", autocomplete="off")),
        " ",
        tag("span", f"{len(rows)} catalogs", id="found", role="status"),
        class_="scripted",
        hidden=True,
    )
    heads = ("catalog", "title", "arrays", "size", "from … to", "preview")
    shown = table(heads, rows, "Catalogs", id="catalogs") if rows else tag("p", "None yet.")
    scripts = ["front.js", *([VIEWER] if asset(VIEWER) else ())]
    return page("gridref", links, search, shown, _problems(problems), scripts=scripts)


def _row(links: Links, each: Listed) -> tuple[Content, ...]:
    address = links.catalog(each.name)
    place: dict[str, Any] = {"class_": "extent", "data_from": links.extent(each.name)}
    return (
        tag("a", each.name, href=address),
        each.title,
        each.n_arrays,
        human_bytes(each.n_bytes),
        tag("span", **place),
        _preview(links, each),
    )


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
