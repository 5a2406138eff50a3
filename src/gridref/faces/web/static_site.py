"""The pages of one catalog as files, for servers and buckets that run no program."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar
from urllib.parse import quote

from numpy.typing import NDArray

from gridref.catalog import CatalogGroup
from gridref.errors import InvalidRequestError, NotRepresentableError
from gridref.faces.picture import is_drawable
from gridref.faces.web.array_page import opening, static_array_page
from gridref.faces.web.catalog_page import catalog_page
from gridref.faces.web.chunk_files import ChunkFiles, chunk_files
from gridref.faces.web.chunk_map import MapFiles, map_files
from gridref.faces.web.extent import Extent
from gridref.faces.web.frame import VIEWER, VIEWER_STYLE, Content, Links, asset, section, tag
from gridref.faces.web.snippets import Snippet, group_option, quoted
from gridref.model.array import VirtualArray
from gridref.model.source_policy import common_folders
from gridref.serve.names import IN_ADDRESSES, with_shown_names

REFERENCES = "references.json"
"""Name of the file of kerchunk references."""
ITEM = "item.json"
"""Name of the file that describes the catalog for STAC."""
SCRIPTS = ("chunk-map.js", "copy.js", "front.js", "icon.svg", "pages.css", "tree.js")


@dataclass(frozen=True)
class _StaticLinks(Links):
    """Addresses of files: each has its whole name, as not every server knows folders.

    Attributes
    ----------
    base_url
        Where the site is.
    """

    base_url: str = ""
    home: ClassVar[str] = "Catalog"
    # Sources may be on any server.
    policy: ClassVar[str] = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:;"
        " connect-src *; base-uri 'none'; form-action 'none'"
    )
    footer: ClassVar[str] = "Published by gridref: files only, values lie in the sources."

    def front(self) -> str:
        return f"{self.root}index.html"

    def asset(self, name: str) -> str:
        return f"{self.root}assets/{quote(name)}"

    def catalog(self, name: str) -> str:
        return self.front()

    def view(self, origin: str, name: str) -> str:
        return f"{self.base_url}/{quote(name)}.gridref"

    def extent(self, name: str) -> str:
        return f"{self.root}extent.json"

    def chunk_map(self, name: str, path: str) -> str:
        return f"{self.root}maps/{quote(path)}/map{{at}}.bin"

    def sizes(self, name: str, path: str) -> str:
        return f"{self.root}maps/{quote(path)}/sizes.json"

    def place(self, name: str, path: str) -> None:
        return None

    def of_array(self, kind: str, name: str, path: str) -> str:
        return f"{self.root}{kind}/{quote(path)}.html"


@dataclass(frozen=True, eq=False)
class StaticSite:
    """The pages of a catalog.

    Attributes
    ----------
    catalog
        The catalog, whose sources are where visitors read them.
    base_url
        Where the site will be.
    left_out
        Which of `REFERENCES` and `ITEM` there are not, and why.
    extents
        What the catalog extends over.
    read
        Reads all values of an array: of small ones that browsers cannot read themselves.
    """

    name: str
    catalog: CatalogGroup
    base_url: str
    left_out: Mapping[str, str]
    extents: tuple[Extent, ...]
    read: Callable[[VirtualArray], NDArray[Any]]

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Path and content of each file, one after the other."""
        group = with_shown_names(self.catalog, IN_ADDRESSES)
        for name in (*SCRIPTS, VIEWER, VIEWER_STYLE):
            found = asset(name)
            if found is not None:
                yield f"assets/{name}", found.content
        yield "extent.json", json.dumps([asdict(extent) for extent in self.extents]).encode()
        links = _StaticLinks("", self.base_url)
        more = (opening(self._snippets("")), self._described())
        yield "index.html", catalog_page(links, self.name, group, self.catalog, {}, None, *more)
        arrays = group.all_arrays()
        tables = {path: self._table(array) for path, array in arrays.items()}
        for path, table in tables.items():
            if isinstance(table, ChunkFiles):
                yield f"chunks/{path}.json", table.document
                yield f"chunks/{path}.bin", table.records
        for real_path, path in zip(self.catalog.all_arrays(), arrays, strict=True):
            maps = _maps(arrays[path])
            if isinstance(maps, MapFiles):
                yield from ((f"maps/{path}/{name}", data) for name, data in maps.files.items())
            links = _StaticLinks("../" * (path.count("/") + 1), self.base_url)
            opened = self._snippets(real_path), self._opening if real_path == path else None
            page = static_array_page(links, path, group, *opened, tables, maps)
            yield f"array/{path}.html", page

    def _table(self, array: VirtualArray) -> ChunkFiles | NotRepresentableError:
        try:
            return chunk_files(array, self.read)
        except NotRepresentableError as error:
            return error

    def _described(self) -> Content:
        """Where other programs find the catalog described, or why they do not."""
        words = {REFERENCES: "kerchunk references", ITEM: "STAC Item"}
        items = [
            tag("li", f"No {word}: {self.left_out[file]}")
            if file in self.left_out
            else tag("li", tag("a", word, href=file))
            for file, word in words.items()
        ]
        return section("For other programs", tag("ul", items))

    @property
    def _opening(self) -> tuple[str, str]:
        """Lines of Python that open it, before and behind the option that names a group."""
        address = quoted(f"{self.base_url}/{quote(self.name)}.gridref")
        allowed = common_folders(source.url for source in self.catalog.source_list)
        before = (
            f"import xarray as xr\n\ncube = xr.open_dataset(\n    {address},\n"
            f'    engine="gridref",\n    allow={json.dumps(list(allowed))},\n    chunks={{}}'
        )
        return before, ",\n)"

    def _snippets(self, path: str) -> list[Snippet]:
        """How to open the group that an array is in."""
        option = group_option(path.rpartition("/")[0])
        before, behind = self._opening
        shown = Snippet(
            "Python, by gridref",
            f"{before}{option}{behind}",
            "Needs gridref[remote]. allow names the folders of the files: you say that you trust"
            " them.",
        )
        if REFERENCES in self.left_out:
            return [shown]
        address = quoted(f"{self.base_url}/{REFERENCES}")
        by_kerchunk = f'cube = xr.open_dataset({address}, engine="kerchunk"{option})'
        note = "Needs xarray, kerchunk, zarr and aiohttp; gridref is not needed."
        code = f"import xarray as xr\n\n{by_kerchunk}"
        return [shown, Snippet("Python, by kerchunk", code, note)]


def _maps(array: VirtualArray) -> MapFiles | InvalidRequestError | None:
    try:
        return map_files(array) if is_drawable(array) else None
    except InvalidRequestError as error:
        return error
