"""The page of an array: dimensions, grid, codecs, chunk map, sizes, and how to open it."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

import numpy as np

from gridref.catalog import CatalogGroup
from gridref.errors import GridrefError, InvalidRequestError, NotRepresentableError, number_of
from gridref.faces.picture import (
    MOST_ALONG,
    ChunkMap,
    chunks_along,
    human_bytes,
    is_drawable,
    shortened,
    sizes_in_words,
    stored_edges,
)
from gridref.faces.web.catalog_page import overlays_section, overviews_section
from gridref.faces.web.chunk_files import VIEWED_TYPES, ChunkFiles, are_decoded
from gridref.faces.web.chunk_map import MapAxes, MapFiles
from gridref.faces.web.frame import (
    VIEWER,
    Content,
    Links,
    Markup,
    asset,
    attributes_section,
    page,
    pairs,
    section,
    table,
    tag,
)
from gridref.faces.web.geotiff_file import may_be_raster
from gridref.faces.web.levels import Level, levels, looks
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.conventions import compass_of
from gridref.model.zarr_metadata import data_type_to_json
from gridref.serve.views import ArrayView, View
from gridref.typing import Int64Array

# Lines of code that open an array elsewhere

GRIDLOOK = "https://gridlook.pages.dev"
NEUROGLANCER = "https://neuroglancer-demo.appspot.com"
_TYPES_OF_NEUROGLANCER = frozenset(
    {"int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64", "float32"}
)
"""Source: the documentation of its data source ``zarr``."""


@dataclass(frozen=True)
class Snippet:
    """A few lines of a language.

    Attributes
    ----------
    note
        What to know about them; empty for nothing.
    links
        Names and addresses of pages that open the array.
    """

    language: str
    code: str
    note: str = ""
    links: tuple[tuple[str, str], ...] = ()


def opened_by(group: VirtualGroup, path: str) -> tuple[str, ...]:
    """Those of `GRIDLOOK` and `NEUROGLANCER` that read an array, by what they say themselves.

    Parameters
    ----------
    group
        The catalog's root group.
    """
    array = group[path]
    assert isinstance(array, VirtualArray)
    labels = [group[label] for label in Level.of(group, path).coordinates if label is not None]
    is_on_earth = {"N", "E"} <= {compass_of(label.attrs) for label in labels}
    is_image = array.ndim > 1 and array.dtype.name in _TYPES_OF_NEUROGLANCER
    return (GRIDLOOK,) * is_on_earth + (NEUROGLANCER,) * is_image


def python_opening(view: str) -> tuple[str, str]:
    """Python that opens a portable view: before, and behind, the option that names a group."""
    return f"import xarray as xr\n\ncube = xr.open_zarr({quoted(view)}", ")"


def snippets(view: str, path: str, linked: Sequence[str] = ()) -> tuple[Snippet, ...]:
    """Lines that open an array of a portable view.

    Parameters
    ----------
    view
        Address of the view, like ``http://host/cube/portable``.
    linked
        Viewers that have a link, of `GRIDLOOK` and `NEUROGLANCER`.

    Sources: the documentation of zarrita.js; of Zarr.jl 0.10, whose arrays have their dimensions in
    reverse order (test/http_sharded.jl); and of the package ``zarr`` on CRAN (R/store_http.R).
    """
    # JSON's texts are those of all four languages: no address has the dollar that Julia would take.
    store, name, array = (quoted(text) for text in (view, path, f"{view}/{quote(path)}"))
    group, _, variable = path.rpartition("/")
    before, behind = python_opening(view)
    return (
        Snippet(
            "Python",
            f"{before}{group_option(group)}{behind}\narray = cube[{quoted(variable)}]",
            "Needs xarray, zarr 3 and aiohttp; gridref is not needed.",
        ),
        Snippet(
            "JavaScript",
            'import * as zarr from "zarrita";\n\n'
            f"const store = new zarr.FetchStore({store});\n"
            f"const root = zarr.root(store).resolve({name});\n"
            'const array = await zarr.open(root, { kind: "array" });\n'
            "const first = await zarr.get(array, array.shape.map(() => 0));",
            "In another site's page only if the server allows its origin (--allow-origin).",
        ),
        Snippet(
            "Julia",
            f"using Zarr\n\narray = zopen({array})",
            "Needs Zarr.jl 0.10 or later. Dimensions come in reverse order.",
        ),
        Snippet(
            "R",
            f"library(zarr)\n\narray <- open_zarr({array})$root",
            "Needs the packages zarr and curl of CRAN. Values that equal the fill value become NA.",
        ),
        _viewers(view, path, linked),
    )


def _viewers(view: str, path: str, linked: Sequence[str]) -> Snippet:
    """Addresses that open an array in viewers of others, which run in the browser.

    Sources: the README of GridLook; the documentation of Neuroglancer, "URL pipeline".
    """
    source = f"{view}/{quote(path)}/|zarr3:"
    state = {"layers": [{"type": "image", "name": path, "source": source}]}
    layers = quote(json.dumps(state, ensure_ascii=False, separators=(",", ":")), safe='{}[]":,/|')
    names = {GRIDLOOK: "GridLook", NEUROGLANCER: "Neuroglancer"}
    addresses = {GRIDLOOK: f"{GRIDLOOK}/#{view}", NEUROGLANCER: f"{NEUROGLANCER}/#!{layers}"}
    return Snippet(
        "Other viewers",
        "\n".join(addresses.values()),
        f"To open in a browser. The server has to let them read: --allow-origin {GRIDLOOK}"
        f" --allow-origin {NEUROGLANCER}.",
        tuple((names[each], addresses[each]) for each in linked),
    )


def group_option(group: str) -> str:
    """The option of xarray that names a group; empty for the root."""
    return f", group={quoted(group)}" if group else ""


def quoted(text: str) -> str:
    """A text as programs have it."""
    return json.dumps(text, ensure_ascii=False)


# The page


@dataclass(frozen=True)
class Document:
    """The ``zarr.json`` by which the viewer reads an array; None if it cannot be shown.

    `is_native` says that it reads the chunks as they are stored.
    """

    content: dict[str, Any] | None
    is_native: bool = False

    @classmethod
    def of(cls, native: ArrayView, portable: ArrayView) -> Document:
        """That of the native view where this is compressed, and browsers decode it."""
        shown = native.metadata.to_json()
        names = [codec["name"] for codec in shown["codecs"]]
        spared = native.view is View.NATIVE and not set(names) <= _PLAIN
        decoded = native.shards is None and are_decoded(shown["codecs"])
        if spared and decoded and native.chunk_grid == portable.chunk_grid == native.metadata.grid:
            return cls(shown, is_native=True)
        return cls(portable.metadata.to_json())


_PLAIN = frozenset({"bytes", "transpose", "crc32c", "numcodecs.fletcher32", "numcodecs.shuffle"})
"""Codecs that make nothing smaller."""

type FindDocument = Callable[[str], Document]

MOST_ENCODINGS = 50
MOST_NAMES = 200
_KINDS = {"c": "complex", "S": "bytes", "V": "bytes", "M": "dates", "m": "durations"}


def array_page(
    links: Links,
    name: str,
    path: str,
    group: VirtualGroup,
    views: dict[str, ArrayView | GridrefError],
    document: FindDocument,
    origin: str,
    kept: CatalogGroup | None = None,
) -> bytes:
    """The page of an array.

    Parameters
    ----------
    links
        Where things are, as seen from it.
    name, path
        The catalog's name, and the array's path in it, as in addresses.
    group
        The catalog's root group, under the names of addresses.
    views
        How it is shown, by the name of the view; or why it cannot be.
    document
        Finds the ``zarr.json`` by which the viewer reads the array at a path.
    origin
        The server's address, for lines to copy.
    kept
        The catalog; None for a group in memory.
    """
    array = group[path]
    assert isinstance(array, VirtualArray)
    above = [(name, links.catalog(name))]
    linked = () if isinstance(views["portable"], GridrefError) else opened_by(group, path)
    body: Sequence[Content] = (
        tag(
            "p", tag("code", sizes_in_words(array)), ", ", human_bytes(array.nbytes), class_="lead"
        ),
        _served_viewer(links, name, path, group, views["portable"], document, origin),
        _dimensions(array),
        attributes_section(array.attrs),
        _grid(array),
        _encodings(array),
        overlays_section(kept, [array]),
        overviews_section(kept, [path]),
        _views(views),
        _chunk_map(links, name, path, array) if is_drawable(array) else None,
        opening(snippets(links.view(origin, name), path, linked), origin),
    )
    return page(path, links, *body, way=above, scripts=_scripts())


def static_array_page(
    links: Links,
    path: str,
    group: VirtualGroup,
    shown: Sequence[Snippet],
    lines: tuple[str, str] | None,
    tables: Mapping[str, ChunkFiles | NotRepresentableError],
    maps: MapFiles | InvalidRequestError | None,
) -> bytes:
    """The page of an array without a server behind it: all that it shows is in files.

    Parameters
    ----------
    links
        Where things are, as seen from it.
    path
        Its path in the catalog, as in addresses.
    group
        The catalog's root group.
    shown
        How to open it.
    lines
        Lines of Python that open the cube, before and behind the option that names a group; None
        where names differ from those of the page.
    tables
        For each array, by path, the table of its chunks, by which the viewer reads the sources, or
        the reason why browsers cannot read them.
    maps
        Its chunk map, or why it cannot be drawn; None where there are no chunks to draw.
    """
    array = group[path]
    assert isinstance(array, VirtualArray)
    size = human_bytes(array.nbytes)
    body: Sequence[Content] = (
        tag("p", tag("code", sizes_in_words(array)), ", ", size, class_="lead"),
        _published_viewer(links, path, group, lines, tables),
        opening(shown),
        _dimensions(array),
        attributes_section(array.attrs),
        _grid(array),
        _encodings(array),
        _published_map(links, path, array, maps),
    )
    return page(path, links, *body, scripts=_scripts())


def _published_viewer(
    links: Links,
    path: str,
    group: VirtualGroup,
    lines: tuple[str, str] | None,
    tables: Mapping[str, ChunkFiles | NotRepresentableError],
) -> Content:
    table = tables[path]
    if not isinstance(table, ChunkFiles):
        array = group[path]
        assert isinstance(array, VirtualArray)
        does = "shows" if _is_viewed(array) else "gives programs"
        told = f"Browsers cannot read them from the files: {table.reason}."
        told += f" gridref serve {does} them."
        return section("Values", tag("p", told))
    there = [name for name, each in tables.items() if isinstance(each, ChunkFiles)]
    where = {} if lines is None else {"data_opening": json.dumps(lines)}
    viewer = _viewer(group, path, there, data_chunks=f"{links.root}chunks", **where)
    told = "Your browser decodes the JPEG images itself: values may be off by a level or two."
    return viewer if table.is_exact else [viewer, tag("p", told)]


def _is_viewed(array: VirtualArray) -> bool:
    """Whether the viewer shows values of this type."""
    try:
        return data_type_to_json(array.dtype) in VIEWED_TYPES
    except NotRepresentableError:
        return False


def _kind(dtype: np.dtype[Any]) -> str:
    if dtype.names:
        return shortened(f"compounds of {', '.join(dtype.names)}", MOST_NAMES)
    return _KINDS.get(dtype.kind, str(dtype))


def _served_viewer(
    links: Links,
    name: str,
    path: str,
    group: VirtualGroup,
    view: ArrayView | GridrefError,
    document: FindDocument,
    origin: str,
) -> Content:
    if isinstance(view, GridrefError):
        return section("Values", tag("p", f"Zarr cannot show them: {view}", class_="problem"))
    if not _is_viewed(view.array):
        told = f"The viewer shows numbers and texts; values here are {_kind(view.array.dtype)}."
        return section("Values", tag("p", told))
    home = links.catalog(name)
    # What the first picture needs to know is on the page: that saves it one way to the server.
    level = Level.of(group, path)
    needed = filter(None, (path, *level.coordinates, *level.located_by))
    found = {each: document(each) for each in needed}
    documents = json.dumps({each: shown.content for each, shown in found.items()})
    native = json.dumps([each for each, shown in found.items() if shown.is_native])
    where = {
        "data_view": f"{home}/portable",
        "data_places": f"{home}/place",
        "data_download": f"{home}/download",
        "data_opening": json.dumps(python_opening(links.view(origin, name))),
        "data_origin": origin,
    }
    if may_be_raster(group, path):
        where["data_raster"] = "yes"
    return _viewer(group, path, data_documents=documents, data_native=native, **where)


def _viewer(
    group: VirtualGroup, path: str, there: Container[str] | None = None, **where: str
) -> Content:
    """Where the viewer goes; `where` says what it reads, and `there` which arrays it finds."""
    if asset(VIEWER) is None:
        told = "This copy of gridref was installed without the viewer: make assets builds it."
        return section("Values", tag("p", told))
    if there is None:
        found = looks(group, path)
    else:
        found = [level.among(there) for level in levels(group, path) if level.path in there]
    shown = json.dumps([asdict(level) for level in found])
    waiting = tag("p", "Reading …", role="status")
    place = tag("div", waiting, id="viewer", data_levels=shown, **where)
    return section("Values", tag("noscript", tag("p", _NEEDS_SCRIPT)), place)


_NEEDS_SCRIPT = (
    "Pictures and values need JavaScript, which is off in this browser. What is below does not; how"
    " to read the values with a program, see Open it."
)


def _scripts() -> Sequence[str]:
    return ("copy.js", "chunk-map.js", *((VIEWER,) if asset(VIEWER) else ()))


def _dimensions(array: VirtualArray) -> Content:
    if not array.ndim:
        return section("Dimensions", tag("p", "None: a single value."))
    rows = []
    for axis, count in enumerate(chunks_along(array)):
        lengths = _lengths(stored_edges(array, axis)) if count <= MOST_ALONG else "?"
        n_blocks = array.grid.axes[axis].n_chunks
        rows.append((array.dims[axis], array.shape[axis], n_blocks, count, lengths))
    heads = ("dimension", "length", "blocks", "stored chunks", "elements of a chunk")
    return section("Dimensions", table(heads, rows, "Dimensions"))


def _lengths(edges: Int64Array) -> str:
    if not edges.size:
        return "none"
    low, high = int(edges.min()), int(edges.max())
    return str(low) if low == high else f"{low} to {high}"


def _grid(array: VirtualArray) -> Content:
    if not is_drawable(array):
        return None
    told = "Blocks and stored chunks, edges to scale; grey blocks are in no file."
    drawing = ChunkMap(array).to_svg().replace("<svg ", f'<svg role="img" aria-label="{told}" ', 1)
    figure = tag(
        "figure", Markup(drawing), tag("figcaption", told), class_="drawing wide", tabindex=0
    )
    return section("Grid", figure)


def _encodings(array: VirtualArray) -> Content:
    rows = [
        (
            str(number),
            " × ".join(map(str, encoding.chunk_shape)) or "1",
            str(encoding.dtype),
            " → ".join(codec.name for codec in encoding.codecs),
            str(encoding.edge),
        )
        for number, encoding in enumerate(array.encodings[:MOST_ENCODINGS])
    ]
    heads = ("encoding", "stored chunk", "stored as", "codecs", "chunks at the far edge")
    return section("Encodings", table(heads, rows, "Encodings of stored chunks"))


def _views(views: dict[str, ArrayView | GridrefError]) -> Content:
    shown = [
        (name, f"cannot: {view}" if isinstance(view, GridrefError) else _shown(view))
        for name, view in views.items()
    ]
    return section("As Zarr", pairs(shown))


def _shown(view: ArrayView) -> str:
    shape = view.metadata.grid.to_json()
    n_chunks = number_of(view.metadata.grid.n_chunks, "chunk", form=",")
    words = f"{view.view.value}, {shape['name']} grid of {n_chunks}"
    return f"{words}; not as stored: {view.reason}" if view.reason else words


def _published_map(
    links: Links, path: str, array: VirtualArray, maps: MapFiles | InvalidRequestError | None
) -> Content:
    if isinstance(maps, InvalidRequestError):
        return section("Chunk map", tag("p", f"There is none: {maps}"))
    return None if maps is None else _chunk_map(links, "", path, array, maps.is_whole)


def _chunk_map(
    links: Links, name: str, path: str, array: VirtualArray, is_whole: bool = True
) -> Content:
    """The map; one that is not whole stays at the first chunk along axes that it does not show."""
    axes = MapAxes.of(array)
    dims = [None if axis is None else array.dims[axis] for axis in (axes.rows, axes.columns)]
    canvas = tag(
        "canvas",
        "A map of the stored chunks.",
        id="chunk-map",
        tabindex=0,
        role="img",
        aria_describedby="chunk-told",
        aria_label="Map of stored chunks: arrow keys move from chunk to chunk, plus and minus zoom",
        data_map=links.chunk_map(name, path),
        data_place=links.place(name, path),
        data_sizes=links.sizes(name, path),
        data_rows=dims[0],
        data_columns=dims[1],
        data_axes=",".join(
            map(str, [axis for axis in (axes.rows, axes.columns) if axis is not None])
        ),
        data_hidden=",".join(f"{axis}:{count}" for axis, count in axes.hidden),
    )
    return section(
        "Chunk map",
        tag("noscript", tag("p", "The chunk map needs JavaScript.")),
        tag(
            "div", _colouring(), _hidden_axes(array, axes) if is_whole else None, class_="controls"
        ),
        None if is_whole else _first_only(array, axes),
        tag("div", canvas, class_="canvas"),
        tag("p", id="chunk-told", role="status"),
        tag("h3", "Sizes of stored chunks"),
        tag("div", id="sizes", aria_live="polite"),
        class_="scripted",
    )


def _colouring() -> Content:
    options = [("state", "present or missing"), ("source", "source"), ("size", "stored size")]
    choices = [tag("option", words, value=value) for value, words in options]
    zooms = [
        tag("button", sign, type="button", data_zoom=step, aria_label=words)
        for sign, step, words in (
            ("+", "2", "Zoom in"),
            ("−", "0.5", "Zoom out"),
            ("⤢", "0", "All"),
        )
    ]
    return [tag("label", "Colours by ", tag("select", choices, id="colours")), " ", zooms]


def _first_only(array: VirtualArray, axes: MapAxes) -> Content:
    names = ", ".join(array.dims[axis] for axis, _ in axes.hidden)
    told = f"The first chunks along {names}: there are too many maps for files. "
    return tag("p", told, "gridref serve shows all of them; the sizes below are those of all.")


def _hidden_axes(array: VirtualArray, axes: MapAxes) -> Content:
    return [
        tag(
            "label",
            f"{array.dims[axis]}: chunk ",
            tag("span", "0", class_="at"),
            f" of {count}",
            tag(
                "input",
                type="range",
                min=0,
                max=count - 1,
                value=0,
                class_="hidden-axis",
                data_axis=axis,
            ),
        )
        for axis, count in axes.hidden
        if count > 1
    ]


def _opening_link(name: str, address: str) -> Content:
    link = tag("a", f"Open in {name}", href=address, rel="noopener noreferrer")
    return tag("p", link)


def opening(shown: Sequence[Snippet], origin: str | None = None) -> Content:
    """How to open it elsewhere, to copy; `origin` is the address that scripts put right."""
    parts = [
        tag(
            "div",
            tag("h3", each.language),
            tag("button", "Copy", type="button", class_="copy", aria_label=f"Copy {each.language}"),
            tag("pre", tag("code", each.code), tabindex=0),
            [_opening_link(*link) for link in each.links],
            tag("p", each.note) if each.note else None,
            class_="snippet",
        )
        for each in shown
    ]
    return section("Open it", parts, data_origin=origin)
