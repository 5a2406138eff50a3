"""The page of a catalog: its tree, attributes, sources and drifts."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from gridref.api.overlays import overlays_of, overviews_of
from gridref.catalog import CatalogGroup
from gridref.errors import number_of
from gridref.faces.picture import bytes_in_objects, human_bytes, shortened, sizes_in_words
from gridref.faces.web.frame import (
    Content,
    Links,
    attributes_section,
    markup,
    page,
    pairs,
    section,
    table,
    tag,
)
from gridref.io import is_local
from gridref.model.array import VirtualArray, VirtualGroup, path_in
from gridref.model.conventions import text_of
from gridref.secrets import shown_address

# Names of sources: below their common folder, whose place is not shown

_LEAST_FOLDERS = 2
"""Folders that a shared one has in its path: what is below ``/home`` would tell where."""


class SourceNames:
    """Names sources by their prefix.

    Parameters
    ----------
    prefixes
        Folders of sources.
    """

    def __init__(self, prefixes: Iterable[str]) -> None:
        shared = {prefix for prefix in prefixes if _is_folder(prefix)}
        self._prefixes: Sequence[str] = sorted(shared, key=len, reverse=True)

    @classmethod
    def of(cls, catalog: CatalogGroup | None) -> SourceNames:
        """The names of a catalog's sources; those of a group in memory are names of files."""
        parts = () if catalog is None else catalog.parts
        return cls(prefix for part in parts for prefix in part.sources.folders)

    def name(self, url: str) -> str:
        """What pages call a source."""
        shown = shown_address(url)
        for prefix in self._prefixes:
            if shown.startswith(prefix) and "::" not in shown:
                return shown[len(prefix) :]
        return "::".join(part.rstrip("/").rpartition("/")[2] for part in shown.split("::"))


def _is_folder(prefix: str) -> bool:
    if not prefix.endswith("/") or "::" in prefix:
        return False
    path = prefix.removeprefix("file://")
    return not is_local(path) or path.count("/") > _LEAST_FOLDERS


# The page

MOST_SOURCES = 500
MOST_ARRAYS = 5_000
MOST_OPEN = 60
"""Arrays of a catalog whose groups are not folded."""
MOST_DRIFTS = 500


def catalog_page(
    links: Links,
    name: str,
    group: VirtualGroup,
    kept: CatalogGroup | None,
    left_out: Mapping[str, str],
    origin: str | None,
    *more: Content,
) -> bytes:
    """The page of a catalog.

    Parameters
    ----------
    links
        Where things are, as seen from it.
    name
        Its name in addresses.
    group
        What is shown, under the names of addresses.
    kept
        The catalog; None for a group in memory.
    left_out
        Arrays that Zarr cannot show, and why.
    origin
        The server's address, for what is copied; None where `links` know it.
    *more
        Sections below the overview.
    """
    title = shortened(str(group.attrs.get("title", "")), 200)
    names = SourceNames.of(kept)
    has_tree = 0 < len(group.all_arrays()) <= MOST_ARRAYS
    return page(
        name,
        links,
        tag("p", title, class_="lead") if title else None,
        _overview(links, name, group, kept, origin),
        more,
        section("Arrays", _tree(links, name, group, left_out)),
        overlays_section(kept, group.all_arrays().values()),
        overviews_section(kept, group.all_arrays()),
        attributes_section(group.attrs),
        None if kept is None else _sources(kept, names),
        None if kept is None else _drifts(kept.report.drifts, names),
        scripts=("front.js", "copy.js", *(("tree.js",) if has_tree else ())),
    )


def _overview(
    links: Links, name: str, group: VirtualGroup, kept: CatalogGroup | None, origin: str | None
) -> Content:
    arrays = group.all_arrays().values()
    unscripted = tag("noscript", tag("a", "as JSON", href=links.extent(name)))
    rows: list[tuple[str, Content]] = [
        ("Extent", [tag("span", class_="extent", data_from=links.extent(name)), unscripted]),
        ("Size", human_bytes(sum(array.nbytes for array in arrays))),
        ("Opens at", tag("code", links.view(origin or "", name))),
    ]
    if kept is not None:
        rows += [
            (
                "Stored chunks",
                f"{kept.info.n_chunks:,} in {number_of(kept.info.n_sources, 'source', form=',')}",
            ),
            ("Snapshot", kept.info.snapshot),
            ("Tags", ", ".join(sorted(kept.info.tags))),
            ("Digest", tag("code", kept.info.digest)),
        ]
    return tag("div", pairs(rows), data_origin=origin)


def _tree(links: Links, name: str, group: VirtualGroup, left_out: Mapping[str, str]) -> Content:
    n_arrays = len(group.all_arrays())
    if not n_arrays:
        return tag("p", "None.")
    if n_arrays > MOST_ARRAYS:
        return tag("p", f"{n_arrays:,} arrays: too many to list on a page; Zarr clients list them.")
    is_open = n_arrays <= MOST_OPEN
    groups = [
        _group(links, name, path, below, left_out, is_open=is_open)
        for path, below in group.walk()
        if below.arrays or path
    ]
    find = tag("label", "Find ", tag("input", type="search", id="filter", autocomplete="off"))
    found = tag("span", id="filtered", role="status")
    search = tag("p", find, " ", found, class_="scripted controls", hidden=True)
    return [search, tag("div", groups, id="tree")]


def _group(
    links: Links,
    name: str,
    path: str,
    group: VirtualGroup,
    left_out: Mapping[str, str],
    *,
    is_open: bool,
) -> Content:
    """Arrays of one group; groups stand one below the other by their paths, however deep."""
    arrays = {path_in(path, each): array for each, array in group.arrays.items()}
    leaves = [
        tag("li", _leaf(links, name, each, array, left_out.get(each, "")))
        for each, array in arrays.items()
    ]
    shown = tag("ul", leaves, class_="tree")
    if not path:
        return shown
    count = tag("span", f" {len(group.arrays):,}", class_="count")
    return tag("details", tag("summary", path, count), shown, open=is_open, data_path=path)


def _leaf(links: Links, name: str, path: str, array: VirtualArray, reason: str) -> Content:
    attrs = array.attrs
    told = text_of(attrs, "long_name") or text_of(attrs, "standard_name")
    units = f" [{attrs['units']}]" if isinstance(attrs.get("units"), str) else ""
    return [
        tag("a", path.rpartition("/")[2], href=links.of_array("array", name, path)),
        " ",
        tag("code", sizes_in_words(array)),
        shortened(f" {told}{units}", 200),
        tag("em", f" not shown as Zarr: {reason}") if reason else None,
    ]


def overlays_section(kept: CatalogGroup | None, arrays: Iterable[VirtualArray]) -> Content:
    """The overlays that reads of some arrays of a catalog may use; None where there are none."""
    used = {each.id for array in arrays for each in array.overlays}
    rows = [
        (
            f"{each.array} {each.number}",
            each.chunks_in_words,
            each.where_in_words or "all",
            f"{100 * each.covered:.3g} %",
            bytes_in_objects(each.n_bytes, each.n_objects),
        )
        for each in (() if kept is None or not used else overlays_of(kept))
        if each.id in used
    ]
    heads = ("overlay", "chunks", "part", "elements as in the files now", "size")
    return section("Overlays", table(heads, rows, "Overlays")) if rows else None


def overviews_section(kept: CatalogGroup | None, paths: Container[str]) -> Content:
    """The coarser levels of some arrays of a catalog; None where there are none."""
    if kept is None or kept.opener.policy == "none":
        return None
    rows = [
        (
            each.array,
            each.levels_in_words,
            "yes" if each.is_shown else "no: files changed",
            bytes_in_objects(each.n_bytes, each.n_objects),
        )
        for each in overviews_of(kept)
        if each.array in paths
    ]
    heads = ("array", "levels", "shown", "size")
    return section("Overviews", table(heads, rows, "Overviews")) if rows else None


def _sources(kept: CatalogGroup, names: SourceNames) -> Content:
    sources = kept.source_list
    total = sum(source.size_bytes or 0 for source in sources)
    rows = [
        (
            names.name(source.url),
            "?" if source.size_bytes is None else human_bytes(source.size_bytes),
        )
        for source in sources[:MOST_SOURCES]
    ]
    words = f"{number_of(len(sources), 'file', form=',')} of {human_bytes(total)}"
    if len(sources) > MOST_SOURCES:
        words += f"; the first {MOST_SOURCES} of them"
    return section("Sources", tag("p", words), table(("file", "size"), rows, "Sources"))


def _drifts(drifts: Iterable[Mapping[str, Any]], names: SourceNames) -> Content:
    rows = list(drifts)
    if not rows:
        return section("Drift", tag("p", "The files do not differ in what the report looks at."))
    heads = ("variable", "cause", "value", "files", "first", "last", "resolution")
    cells = [
        (
            row["variable"] or "(all)",
            row["cause"],
            shortened(row["value"], 300),
            row["n_files"],
            _file(row["first_file"], names),
            _file(row["last_file"], names),
            row["resolution"],
        )
        for row in rows[:MOST_DRIFTS]
    ]
    return section("Drift", table(heads, cells, "What differed between the files"))


def _file(address: str | None, names: SourceNames) -> Content:
    return markup(names.name(address)) if address else None
