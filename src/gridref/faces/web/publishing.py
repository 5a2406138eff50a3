"""Publish a catalog as a site of files, for servers and buckets that run no program."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from numpy.typing import NDArray

from gridref.api.catalog import Published, open_catalog, write_catalog
from gridref.api.readable import reader_for
from gridref.catalog import CatalogGroup
from gridref.catalog.document import CatalogReport
from gridref.catalog.folder import write_errors_told
from gridref.errors import InvalidRequestError, Message, NotRepresentableError, Option
from gridref.faces.exports.kerchunk import to_kerchunk
from gridref.faces.exports.stac import to_stac
from gridref.faces.picture import is_drawable
from gridref.faces.web.array_page import Snippet, group_option, opening, quoted, static_array_page
from gridref.faces.web.catalog_page import catalog_page
from gridref.faces.web.chunk_files import ChunkFiles, chunk_files
from gridref.faces.web.chunk_map import MapFiles, map_files
from gridref.faces.web.extent import Extent, ends_of, extents
from gridref.faces.web.frame import VIEWER, VIEWER_STYLE, Content, Links, asset, section, tag
from gridref.io import Allow, refuse_names_alike
from gridref.model.array import VirtualArray
from gridref.model.source_policy import common_folders
from gridref.options import verb
from gridref.secrets import shown_address
from gridref.serve.names import IN_ADDRESSES, with_shown_names
from gridref.serve.reader import Reader

# The pages as files

REFERENCES = "references.json"
"""Name of the file of kerchunk references."""
ITEM = "item.json"
"""Name of the file that describes the catalog for STAC."""
SCRIPTS = ("chunk-map.js", "copy.js", "front.js", "icon.svg", "pages.css", "tree.js")


@dataclass(frozen=True)
class _StaticLinks(Links):
    """Addresses of files: each has its whole name, as not every server knows folders."""

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
    left_out
        Which of `REFERENCES` and `ITEM` there are not, and why.
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


# The call `publish`


@verb()
def publish(
    catalog: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    base_url: str,
    prefixes: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    allow: Allow = None,
    snapshot: str | None = None,
) -> Published:
    """Write a site of files for a catalog: pages, a copy of it, kerchunk references, a STAC Item.

    The values stay in the sources, which visitors read by byte ranges. `publish` reads small arrays
    and the coordinates on the pages from there. If visitors could not read a source, it raises
    before anything is written.

    Parameters
    ----------
    catalog
        Address of the catalog.
    folder
        A local folder, new, empty, or with the same catalog published before. Upload all of it.
    base_url
        Address that the folder will have on the web.
    prefixes
        Addresses of sources on the web: recorded folders with their addresses, ``{"/data/":
        "https://data.example.org/"}``.
    storage_options, allow, snapshot
        As for `gridref.open_catalog`.

    Returns
    -------
    Published
        The files that were written, and those that could not be: references that cannot express the
        catalog, a STAC Item without a time.

    Raises
    ------
    InvalidRequestError
        If a browser cannot read the sources, the folder holds something else, or base_url is not an
        HTTP address, or has a user or a query.
    CatalogError, ReadError
        If the catalog or a source cannot be read.
    """
    base, name, place = base_url.rstrip("/"), _name_of(catalog), Path(folder)
    shown = shown_address(base_url)
    if not base.startswith(("http://", "https://")):
        raise InvalidRequestError(f"base_url must be an http or https address, got {shown!r}")
    if shown != base_url:
        raise InvalidRequestError(
            f"base_url appears on all pages and must not have a user or a query: write {shown!r}"
        )
    _check_folder(place, name)
    group = open_catalog(
        catalog,
        storage_options=storage_options,
        allow=allow,
        snapshot=snapshot,
        prefixes=prefixes,
        overlay="none",  # which are not published
    )
    _check_sources(group)
    group = replace(group, report=_moved(group.report, prefixes or {}))
    reader = reader_for(storage_options)
    found = tuple(extents(ends_of(group, reader.read)))
    draft = place / _DRAFT
    with write_errors_told("the site", str(place)):
        try:
            shutil.rmtree(draft, ignore_errors=True)  # of a process that died
            draft.mkdir(parents=True)
            left_out = _described(group, draft, f"{base}/{name}.gridref", reader)
            written = [file for file in (REFERENCES, ITEM) if file not in left_out]
            site = StaticSite(name, group, base, left_out, found, reader.read)
            refuse_names_alike((f"{path}/" for path in group.all_arrays()), str(place))
            for path, content in site.files():
                file = draft / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
                written.append(path)
            write_catalog(group, place / f"{name}.gridref")
            for path in written:
                (place / path).parent.mkdir(parents=True, exist_ok=True)
                (draft / path).replace(place / path)
            for path in left_out:
                (place / path).unlink(missing_ok=True)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return Published(tuple(written), left_out)


_DRAFT = ".publish.tmp"
"""Folder in the site's where files are written first, so that a full disk leaves the old site."""


def _described(group: CatalogGroup, place: Path, address: str, reader: Reader) -> dict[str, str]:
    """Write references and Item; gives the reasons why there is none."""
    left_out = {}
    try:
        to_kerchunk(group, place / REFERENCES, reader=reader)
    except NotRepresentableError as error:
        left_out[REFERENCES] = error.reason.partition(":\n")[2] or error.reason
    references = None if left_out else f"{address.rpartition('/')[0]}/{REFERENCES}"
    shown = replace(group, info=replace(group.info, url=address))
    try:
        to_stac(shown, place / ITEM, references=references)
    except (InvalidRequestError, NotRepresentableError) as error:
        left_out[ITEM] = error.reason
    return left_out


def _moved(report: CatalogReport, prefixes: Mapping[str, str]) -> CatalogReport:
    """The report with present addresses of files: it does not show former ones."""
    drifts = tuple(
        {
            key: _public(value, prefixes) if key in ("first_file", "last_file") and value else value
            for key, value in row.items()
        }
        for row in report.drifts
    )
    return replace(report, findings=(), drifts=drifts)


def _public(address: str, prefixes: Mapping[str, str]) -> str:
    for old in sorted(prefixes, key=len, reverse=True):
        if address.startswith(old):
            return prefixes[old] + address[len(old) :]
    return address if _on_the_web(address) else address.rpartition("/")[2]


def _on_the_web(url: str) -> bool:
    return url.rpartition("::")[2].startswith(("http://", "https://"))


def _name_of(catalog: str | os.PathLike[str]) -> str:
    name = os.fspath(catalog).rstrip("/").rpartition("/")[2].removesuffix(".gridref")
    if not name:
        raise InvalidRequestError(f"the catalog has no name: {shown_address(os.fspath(catalog))!r}")
    return name


def _check_folder(folder: Path, name: str) -> None:
    held = {file.name for file in folder.iterdir()} if folder.is_dir() else set()
    if held - {_DRAFT} and not (folder / f"{name}.gridref").is_dir():
        raise InvalidRequestError(
            f"{folder} is not empty and holds no earlier publication of {name}: give a new folder"
        )


def _check_sources(group: CatalogGroup) -> None:
    """Check that visitors can read all sources."""
    urls = [source.url for source in group.source_list]
    hidden = [url for url in urls if not _on_the_web(url)]
    if hidden:
        raise InvalidRequestError(
            Message(
                f"{len(hidden)} of {len(urls)} sources are at addresses that visitors of the site "
                f"cannot read, like {shown_address(hidden[0])}: give their address on the web (",
                Option("from", "OLD --to NEW", "prefixes={old: new}"),
                ")",
            )
        )
