"""Snippets of code that open an array elsewhere, as text to copy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from gridref.faces.web.levels import Level
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.reference_systems import compass_of

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
