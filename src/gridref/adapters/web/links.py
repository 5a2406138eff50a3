"""Where pages, their data and Zarr views lie, as seen from one page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import quote

from gridref.adapters.web.assets import asset_version

__all__ = ["ASSETS", "Links"]

ASSETS = ".assets"
"""Folder of scripts and styles: no catalog can have a name that begins with a dot."""


@dataclass(frozen=True)
class Links:
    """Addresses relative to a page, which hold behind a proxy under another path too.

    Attributes
    ----------
    root
        From the page to the list of catalogs: ``""``, ``"../"``, ``"../../"``, …
    """

    root: str
    home: ClassVar[str] = "Catalogs"
    policy: ClassVar[str] = ""
    """Content-Security-Policy that pages state themselves; those of a server have it as a field."""
    footer: ClassVar[str] = "Served by gridref. Read-only; open to any Zarr v3 client."

    @classmethod
    def of_page(cls, path: str) -> Links:
        """The links of the page at a path of the server, like ``"/cube/array/tas"``."""
        return cls("../" * (path.count("/") - 1))

    def front(self) -> str:
        """The list of catalogs."""
        return self.root or "./"

    def asset(self, name: str) -> str:
        """A script or style; another address whenever its content is another."""
        return f"{self.root}{ASSETS}/{quote(name)}?v={asset_version(name)}"

    def catalog(self, name: str) -> str:
        """The page of a catalog."""
        return f"{self.root or './'}{quote(name, safe='@')}"

    def view(self, origin: str, name: str) -> str:
        """The whole address of the view that every Zarr client reads."""
        return f"{origin}/{quote(name, safe='@')}/portable"

    def extent(self, name: str) -> str:
        """What a catalog extends over, as JSON."""
        return f"{self.catalog(name)}/extent"

    def chunk_map(self, name: str, path: str) -> str:
        """The chunk map of an array; ``{at}`` stands for the chunks that it is at."""
        return f"{self.of_array('chunks', name, path)}?at={{at}}"

    def sizes(self, name: str, path: str) -> str:
        """How many chunks of an array there are of each size, as JSON."""
        return self.of_array("sizes", name, path)

    def place(self, name: str, path: str) -> str | None:
        """Where an element is stored; None where nobody answers."""
        return self.of_array("place", name, path)

    def of_array(self, kind: str, name: str, path: str) -> str:
        """Something about an array: ``"array"`` is its page; see `gridref.adapters.http.routes`."""
        return f"{self.catalog(name)}/{kind}/{quote(path)}"
