"""List the catalogs of a server, and search them by their content: words, times, boxes on earth."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from time import monotonic
from typing import Any, Protocol
from urllib.parse import urlencode

import numpy as np

from gridref.errors import GridrefError, InvalidRequestError, number_of
from gridref.faces.picture import human_bytes, shortened
from gridref.faces.web.extent import Ends, Reach, extents, reach_of
from gridref.faces.web.frame import VIEWER, Content, Links, asset, markup, page, section, table, tag
from gridref.faces.web.levels import Level, previewed
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.conventions import REFERRING, referred_names, text_of

# What can be searched of a catalog

MOST_TEXT = 500
"""Characters of one attribute that are searched."""
MOST_ATTRIBUTES = 200
MOST_NAMES = 5_000
"""Arrays whose names are searched."""


@dataclass(frozen=True)
class Described:
    """A catalog as it is searched.

    Attributes
    ----------
    fields
        Texts by what they are: ``name``, ``title``, ``variable`` and its ``standard_name``,
        ``coordinate`` (with bounds, grid mappings and their standard names), ``long_name``, and the
        names of attributes.
    """

    fields: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, name: str, group: VirtualGroup) -> Described:
        """From the catalog's root group."""
        attrs = list(group.attrs.items())[:MOST_ATTRIBUTES]
        fields = {str(key).lower(): [_text(value)] for key, value in attrs}
        arrays = list(group.all_arrays().items())[:MOST_NAMES]
        named: dict[str, dict[str, None]] = {}
        beside = referred_names(dict(arrays).values(), (*REFERRING, "cell_measures"))
        for path, array in arrays:
            for key, text in _of_array(path.rpartition("/")[2], array, beside):
                named.setdefault(key, {})[shortened(text, MOST_TEXT)] = None
        return cls({**fields, **{key: list(texts) for key, texts in named.items()}, "name": [name]})

    @cached_property
    def _lowered(self) -> Mapping[str, Sequence[str]]:
        return {key: [text.lower() for text in texts] for key, texts in self.fields.items()}

    @cached_property
    def _all(self) -> str:
        return "\n".join(text for texts in self._lowered.values() for text in texts)

    def has(self, word: Word) -> bool:
        """Whether a word that is searched for is in it."""
        texts = self._lowered.get(word.field, ())
        if word.is_whole:
            return word.text in texts
        return any(word.text in text for text in texts) or word.as_typed in self._all


def _text(value: Any) -> str:
    """An attribute as text; of a long list only the beginning is made one."""
    is_list = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim)
    return shortened(str(value[:MOST_TEXT] if is_list else value), MOST_TEXT)


def _of_array(name: str, array: VirtualArray, beside: Collection[str]) -> Iterator[tuple[str, str]]:
    """What an array is called, by fields; `beside` names those that are about others."""
    is_coordinate = array.is_index(name) or not array.ndim or name in beside
    yield "coordinate" if is_coordinate else "variable", name
    if text := text_of(array.attrs, "standard_name"):
        yield "coordinate" if is_coordinate else "standard_name", text
    if text := text_of(array.attrs, "long_name"):
        yield "long_name", text


# What is searched for

_WORD = re.compile(r'(?:([\w.-]+)([:=]))?(?:"([^"]*)"?|(\S+))')
_FIELD = re.compile(r"[\w.-]+")
_DATE = re.compile(r"\d{4}(-\d\d(-\d\d)?)?")
MOST_WORDS = 32


@dataclass(frozen=True)
class Word:
    """A word of a search, in lower case.

    Attributes
    ----------
    as_typed
        With its field, which may be part of an address as well: ``https://…``.
    field, text
        ``standard_name:air`` is *air* in *standard_name*; without a field it is in any.
    is_whole
        Whether it is all of the text: ``variable=tas``.
    """

    as_typed: str
    field: str
    text: str
    is_whole: bool


def words_of(text: str) -> list[Word]:
    """The words of a search; spaces divide them, but not between quotes."""
    found = []
    for match in list(_WORD.finditer(text.lower()))[:MOST_WORDS]:
        field, sign, quoted, plain = match.groups()
        word = plain if quoted is None else quoted
        as_typed = match[0] if quoted is None else f"{field or ''}{sign or ''}{word}"
        found.append(Word(as_typed, field or "", word, sign == "="))
    return found


@dataclass(frozen=True)
class Search:
    """What is searched for.

    Attributes
    ----------
    text
        Words. All of them must be there.
    since, until
        Dates like ``2001``, ``2001-05`` or ``2001-05-20``; empty for any.
    box
        West, south, east and north in degrees, with commas; empty for any.
    page
        Number of the page shown, from 1.
    """

    text: str = ""
    since: str = ""
    until: str = ""
    box: str = ""
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, Sequence[str]]) -> Search:
        """From the query of an address; what is not a number of a page is the first."""
        text, since, until, box, page = (
            query.get(name, [""])[0].strip() for name in ("q", "from", "to", "box", "page")
        )
        is_page = page.isascii() and page.isdigit() and len(page) < 7
        return cls(text, since, until, box, max(1, int(page)) if is_page else 1)

    def query(self, **changes: str | int) -> str:
        """For an address; a change begins at the first page."""
        asked = {"q": self.text, "from": self.since, "to": self.until, "box": self.box, **changes}
        return urlencode({key: value for key, value in asked.items() if value not in ("", 1)})

    @property
    def needs_reach(self) -> bool:
        """Whether times or places are searched for."""
        return bool(self.since or self.until or self.box)

    def check(self) -> None:
        """Check dates and box."""
        for name, date in (("from", self.since), ("to", self.until)):
            if date and not _DATE.fullmatch(date):
                raise InvalidRequestError(f"{name} is a date like 2001, 2001-05 or 2001-05-20")
        if self.box:
            _box(self.box)

    def accepts(self, reach: Reach) -> bool:
        """Whether what a catalog extends over meets the times and the box."""
        if self.since or self.until:
            if reach.times is None:
                return False
            first, last = reach.times
            if self.since and last[: len(self.since)] < self.since:
                return False
            if self.until and first[: len(self.until)] > self.until:
                return False
        return not self.box or reach.meets(*_box(self.box))


def _box(text: str) -> tuple[float, float, float, float]:
    try:
        west, south, east, north = (float(part) for part in text.split(","))
    except ValueError:
        west = south = east = north = float("nan")
    if not (abs(west) <= 360 and abs(east) <= 360 and -90 <= south <= north <= 90):
        raise InvalidRequestError(
            "a box is west, south, east and north in degrees, like -10,35,30,60"
        )
    return west, south, east if east >= west else east + 360, north


# Searching

READ_SECONDS = 1.0
"""How long one request reads extents that are not known yet."""
_THREADS = 8
PAGE_ROWS = 50


class Searched(Protocol):
    """A catalog that can be searched."""

    @property
    def group(self) -> VirtualGroup: ...
    @property
    def described(self) -> Described: ...
    @property
    def known_ends(self) -> Sequence[Ends] | GridrefError | None: ...
    def read_ends(self) -> Sequence[Ends]: ...


@dataclass(frozen=True)
class Found[Catalog: Searched]:
    """What a search found.

    Attributes
    ----------
    catalogs
        All that match, in their order.
    n_unread
        Those whose coordinates were not read yet: whether they match is not known.
    n_unreadable
        Those whose coordinates cannot be read.
    """

    catalogs: Sequence[Catalog]
    n_all: int
    n_unread: int = 0
    n_unreadable: int = 0


def find[Catalog: Searched](catalogs: Sequence[Catalog], search: Search) -> Found[Catalog]:
    """The catalogs that a search asks for.

    Raises
    ------
    InvalidRequestError
        If its dates or its box are none.
    """
    search.check()
    words = words_of(search.text)
    matching = [each for each in catalogs if all(map(each.described.has, words))]
    if not search.needs_reach:
        return Found(matching, len(catalogs))
    _read_ends([each for each in matching if each.known_ends is None], READ_SECONDS)
    known = [(each, each.known_ends) for each in matching]
    reached = [
        each
        for each, ends in known
        if ends is not None
        and not isinstance(ends, GridrefError)
        and search.accepts(reach_of(ends, each.group.attrs))
    ]
    n_unread = sum(ends is None for _, ends in known)
    n_unreadable = sum(isinstance(ends, GridrefError) for _, ends in known)
    return Found(reached, len(catalogs), n_unread, n_unreadable)


def _read_ends(catalogs: Iterable[Searched], seconds: float) -> None:
    """Read ends of coordinates, of as many catalogs as the time allows."""
    until = monotonic() + seconds

    def read(catalog: Searched) -> None:
        if monotonic() < until:
            with suppress(GridrefError):  # it is known then, too
                catalog.read_ends()

    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(read, catalogs))


# What divides the catalogs that were found

MOST_FACETS = 6
MOST_VALUES = 12
MOST_FACET_TEXT = 60
_FIRST = ("variable", "standard_name")
_NONE = frozenset({"name", "title", "coordinate", "long_name", "history", "comment"})


def facets(found: Sequence[Described]) -> dict[str, list[tuple[str, int]]]:
    """Values and in how many catalogs they are, by field: of those that divide what was found.

    They are variables, standard names, and attributes that most have and several share.
    """
    counts: dict[str, Counter[str]] = {}
    for each in found:
        for field, texts in each.fields.items():
            if field not in _NONE and _FIELD.fullmatch(field):
                short = {t for t in texts if 0 < len(t) <= MOST_FACET_TEXT and '"' not in t}
                if short:
                    counts.setdefault(field, Counter()).update(short)
    n = len(found)
    dividing = {f: count for f, count in counts.items() if _divides(count, n, f in _FIRST)}
    order = sorted(
        dividing, key=lambda field: (field not in _FIRST, -dividing[field].total(), field)
    )
    return {field: _most(dividing[field]) for field in order[:MOST_FACETS]}


def _most(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:MOST_VALUES]


def _divides(counts: Counter[str], n: int, is_about_arrays: bool) -> bool:
    """Whether not all have the same values; attributes are of most, and shared by several, too."""
    is_shared = 2 <= len(counts) <= counts.total() / 2 and 2 * counts.total() >= n
    return min(counts.values()) < n and (is_about_arrays or is_shared)


# The page that lists them

MOST_TITLE = 200


@dataclass(frozen=True)
class Listed:
    """A catalog in the list.

    Attributes
    ----------
    title
        What its attributes call it; empty if they do not.
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
    every = number_of(found.n_all, "catalog", form=",")
    words = every if n == found.n_all else f"{n:,} of {every}"
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
