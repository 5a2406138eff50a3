"""How to open an array elsewhere, as text to copy."""

from __future__ import annotations

import json
from dataclasses import dataclass

__all__ = ["GRIDLOOK", "NEUROGLANCER", "Snippet", "snippets"]

GRIDLOOK = "https://gridlook.pages.dev"
NEUROGLANCER = "https://neuroglancer-demo.appspot.com"


@dataclass(frozen=True)
class Snippet:
    """A few lines of a language.

    Attributes
    ----------
    language
        Its name.
    code
        The lines.
    note
        What to know about them; empty for nothing.
    """

    language: str
    code: str
    note: str = ""


def snippets(view: str, path: str) -> tuple[Snippet, ...]:
    """Lines that open an array of a portable view.

    Parameters
    ----------
    view
        Address of the view, like ``http://host/cube/portable``.
    path
        Path of the array.

    Sources: the documentation of zarrita.js, of Zarr.jl, and of the package ``zarr`` on CRAN.
    """
    # JSON's texts are those of all four languages, but for the dollar that Julia interpolates.
    store, name, array = (_quoted(text) for text in (view, path, f"{view}/{path}"))
    julia = array.replace("$", "\\$")
    group, _, variable = path.rpartition("/")
    group_option = f", group={_quoted(group)}" if group else ""
    return (
        Snippet(
            "Python",
            f"import xarray as xr\n\ncube = xr.open_zarr({store}{group_option})\n"
            f"array = cube[{_quoted(variable)}]",
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
            f"using Zarr\n\narray = zopen({julia})",
            "Needs a Zarr.jl that reads Zarr v3.",
        ),
        Snippet("R", f"library(zarr)\n\nstore <- open_zarr({array})", "Package zarr of CRAN."),
        _viewers(view, path),
    )


def _viewers(view: str, path: str) -> Snippet:
    """Addresses that open an array in viewers of others, which run in the browser.

    Sources: the README of GridLook; the documentation of Neuroglancer, "URL pipeline".
    """
    state = {"layers": [{"type": "image", "name": path, "source": f"{view}/{path}/|zarr3:"}]}
    layers = json.dumps(state, ensure_ascii=False, separators=(",", ":"))
    return Snippet(
        "Other viewers",
        f"{GRIDLOOK}/#{view}\n{NEUROGLANCER}/#!{layers}",
        f"To open in a browser. The server has to let them read: --allow-origin {GRIDLOOK}"
        f" --allow-origin {NEUROGLANCER}.",
    )


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
