"""The catalogs that a server shows, reopened when they change."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any

import pandas as pd
from pyarrow import parquet

from gridref.api.opening import view_options
from gridref.api.readable import CACHE_BYTES
from gridref.catalog import ROOT_FILE, CatalogGroup, open_catalog
from gridref.catalog.overlays import OverlayPolicy, policy_of
from gridref.errors import (
    CatalogNotFoundError,
    GridrefError,
    InvalidRequestError,
    SourceNotAllowedError,
    SourceUnavailableError,
)
from gridref.faces.web.extent import Ends, ends_of
from gridref.faces.web.front_page import Described, Listed
from gridref.io import (
    Allow,
    SourcePool,
    absolute_url,
    describe_source,
    is_local,
    policy_for,
    real_path,
)
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.manifest import Source
from gridref.model.source_policy import SourcePolicy
from gridref.secrets import without_secrets
from gridref.serve.conventions import with_conventions
from gridref.serve.names import IN_ADDRESSES, asked_key, shown_names, with_shown_names
from gridref.serve.object_reader import ObjectReader
from gridref.serve.objects import KeySpace
from gridref.serve.reader import Reader
from gridref.serve.views import View, ViewOptions

# Errors, without what strangers may not see

_FOLDERS = re.compile(r"(?:file://|(?<![\w/:.]))/(?:[^/\s'\"]+/)+")
"""The folders of an absolute path, and not those of a URL."""


def public_text(error: Exception) -> str:
    """What a stranger may read of an error: no credentials, and no folders of this machine."""
    if isinstance(error, SourceNotAllowedError):
        return "this server does not read from there: see --allow"
    if isinstance(error, CatalogNotFoundError):
        return "there is no catalog at its address"  # without names of others beside it
    text = str(error)
    source = error.place.source if isinstance(error, GridrefError) else None
    for path in (source, getattr(error, "filename", None)):
        if isinstance(path, str) and is_local(absolute_url(path)):
            local = path.removeprefix("file://")
            text = text.replace(path, local).replace(local, local.rpartition("/")[2])
    return _FOLDERS.sub("", without_secrets(text))


# The catalogs

_IMPORTED_EARLY = (pd, parquet)
"""pyarrow imports pandas at its first conversion, which takes seconds: not in the first request."""

VIEWS: Mapping[str, View] = {"native": View.AUTO, "portable": View.PORTABLE}
"""Views by their name in addresses. ``native`` is as stored where that is representable."""

N_FORMER = 3
"""Former contents of a catalog that go on being shown under their digests."""
N_SNAPSHOTS = 16
"""Former snapshots, of all catalogs, that are kept open."""
RESERVED = frozenset({"healthz", "metrics", "favicon.ico"})


@dataclass(frozen=True)
class SiteOptions:
    """How catalogs are shown; see `gridref.faces.http.app.create_app`.

    Attributes
    ----------
    shown
        Fields of `ViewOptions`, all but ``view``.
    """

    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    allow: Allow = None
    shown: Mapping[str, Any] = field(default_factory=dict)
    overlay: OverlayPolicy = "auto"
    cache_bytes: int = CACHE_BYTES

    def opened(
        self, address: str, snapshot: str | None = None, overlay: OverlayPolicy | None = None
    ) -> CatalogGroup:
        """A catalog, opened as all of them are, or with another choice of overlays."""
        policy = self.overlay if overlay is None else overlay
        return open_catalog(address, self.storage_options, self.allow, snapshot, overlay=policy)

    def view(self, name: str) -> ViewOptions:
        """The options of one of the `VIEWS`."""
        shown = {"grid": "regular", **self.shown, "view": VIEWS[name]}
        if name != "portable":
            shown |= {"chunks": None, "compressor": None}
        return view_options(shown)


@dataclass(frozen=True, eq=False)
class ServedCatalog:
    """One catalog as it is shown.

    Attributes
    ----------
    address
        Address of the catalog; empty for a group in memory.
    spaces
        Keys by name of the view.
    pinned
        Its name with the beginning of its digest, ``name@digest``; empty for a group in memory.
    reader, looks
        Those of the site: what is read again is kept, and what is read once is not.
    version
        The catalog's root file, as it was when it was opened; None for a group in memory.
    group
        The group as shown, under the names in addresses.
    kept
        The catalog; None for a group in memory.
    shown_as
        Names that cannot be in addresses, by what is shown instead.
    number
        Another one for each catalog that was opened: what is kept of it is kept under this.
    """

    name: str
    address: str
    spaces: Mapping[str, KeySpace]
    reader: ObjectReader
    looks: Reader
    version: Source | None
    group: VirtualGroup
    kept: CatalogGroup | None = None
    pinned: str = ""
    shown_as: Mapping[str, str] = field(default_factory=dict)
    number: int = field(default_factory=count().__next__)
    _ends: list[Sequence[Ends] | GridrefError] = field(default_factory=list, repr=False)

    @cached_property
    def described(self) -> Described:
        """What can be searched of it."""
        return Described.of(self.name, self.group)

    @cached_property
    def listed(self) -> Listed:
        """What the list of catalogs says of it."""
        return Listed.of(self.name, self.group)

    @property
    def known_ends(self) -> Sequence[Ends] | GridrefError | None:
        """The ends of its coordinates, or why they cannot be read; None until they were read."""
        return self._ends[0] if self._ends else None

    def read_ends(self) -> Sequence[Ends]:
        """The ends of its coordinates, which are kept; what failed is tried again.

        Raises
        ------
        ReadError
            If they cannot be read.
        """
        known = self.known_ends
        if known is None or isinstance(known, GridrefError):
            try:
                known = ends_of(self.group, self.reader.reader.read)
            except GridrefError as error:
                self._ends[:] = [error]
                raise
            self._ends[:] = [known]
        return known

    def array(self, path: str) -> VirtualArray | None:
        """The array at a path; None if there is none."""
        found = self.group[path] if path and path in self.group else None
        return found if isinstance(found, VirtualArray) else None

    def asked_key(self, key: str) -> str:
        """The key that a request means by its path."""
        return asked_key(key, self.shown_as, IN_ADDRESSES) if self.shown_as else key


class Site:
    """All catalogs of a server.

    Parameters
    ----------
    catalogs
        Addresses of catalogs, or of local directories of catalogs; or catalogs and groups by name.
    options
        How they are shown.

    Raises
    ------
    CatalogError
        If a catalog cannot be opened.
    InvalidRequestError
        If two catalogs have one name, or a name cannot be one.
    """

    def __init__(
        self,
        catalogs: Iterable[str | os.PathLike[str]] | Mapping[str, str | VirtualGroup],
        options: SiteOptions,
    ) -> None:
        self.options = options
        for view in VIEWS:
            options.view(view)
        self.pool = SourcePool(options.storage_options)
        # One of each: memory and threads do not grow with the number of catalogs.
        self.reader = ObjectReader(Reader(self.pool, cache_bytes=options.cache_bytes))
        self.looks = Reader(self.pool)
        self._lock = threading.Lock()
        self._directories: dict[str, SourcePolicy] = {}
        self.problems: dict[str, str] = {}
        self.catalogs: Mapping[str, ServedCatalog] = {}
        self._pinned: Mapping[str, ServedCatalog] = {}
        self._snapshots: dict[str, ServedCatalog] = {}
        named = catalogs if isinstance(catalogs, Mapping) else self._named(catalogs)
        for name, catalog in named.items():
            self._add(name, catalog)

    def find(self, name: str) -> ServedCatalog | None:
        """The catalog of a name, or as it was under ``name@digest``, if that is kept."""
        return self.catalogs.get(name) or self._pinned.get(name)

    def snapshot(self, name: str) -> ServedCatalog | None:
        """The catalog as ``name@snapshot`` has it, by the snapshot's id or a tag, if there is one.

        ``name@overlay=0`` and ``name@snapshot@overlay=0`` choose the overlays that reads use, too.
        It is opened when it is first asked for, and again when the catalog has changed: tags move.

        Raises
        ------
        InvalidRequestError
            If no array has an overlay of that number, or it is no choice of overlays.
        """
        asked, chosen, written = name.partition("@overlay=")
        overlay = policy_of(written) if chosen else None
        known, _, wanted = (asked, "", None) if asked in self.catalogs else asked.rpartition("@")
        current = self.catalogs.get(known)
        if current is None or current.version is None:
            return None
        kept = self._snapshots.get(name)
        if kept is not None and kept.version == current.version:
            return kept
        options = self.options
        try:
            group = options.opened(current.address, wanted, overlay)
        except InvalidRequestError:
            return None
        n_overlays = max(
            Counter(each.array for each in group.snapshot.overlays).values(), default=0
        )
        if isinstance(overlay, int) and overlay >= n_overlays:
            raise InvalidRequestError(f"no array of {known} has an overlay {overlay}")
        opened = self._shown(name, current.address, group, current.version)
        with self._lock:
            others = {key: each for key, each in self._snapshots.items() if key != name}
            newest = list(others.items())[-N_SNAPSHOTS + 1 :]
            self._snapshots = {**dict(newest), name: opened}
        return opened

    def is_former(self, name: str) -> bool:
        """Whether ``name@digest`` is kept of a catalog that is another one now."""
        kept = self._pinned.get(name)
        return kept is not None and kept.pinned != self.catalogs[name.rpartition("@")[0]].pinned

    def was_rebuilt(self, name: str) -> bool:
        """Whether ``name@digest`` is of a catalog that is another one now."""
        return name not in self._pinned and name.rpartition("@")[0] in self.catalogs

    def refresh(self) -> None:
        """Open again the catalogs that were rebuilt, and those that are new in a directory.

        One that cannot be opened (any more) is left as it was; `problems` says why.
        """
        with self._lock:
            for catalog in list(self.catalogs.values()):
                if catalog.version is not None:
                    self._attempt(catalog.name, lambda catalog=catalog: self._reopen(catalog))
            for directory in self._directories:
                self._attempt(f"{_name_of(directory)}/", lambda d=directory: self._add_new(d))

    def _add_new(self, directory: str) -> None:
        for name, address in _catalogs_in(directory):
            if name not in self.catalogs:
                self._attempt(name, lambda n=name, a=address: self._add(n, a))

    def _attempt(self, name: str, action: Any) -> None:
        try:
            action()
            self.problems.pop(name, None)
        except Exception as error:  # noqa: BLE001 - no catalog keeps the others from being looked at
            self.problems[name] = public_text(error)

    def _named(self, catalogs: Iterable[str | os.PathLike[str]]) -> dict[str, str]:
        named: dict[str, str] = {}
        for catalog in catalogs:
            address = absolute_url(catalog).rstrip("/")
            named_addresses = [(_name_of(address), address)]
            if is_local(address) and os.path.isdir(address) and not _is_catalog(address):
                allow = self.options.allow
                given = [allow] if isinstance(allow, str | os.PathLike) else allow or ()
                policy = policy_for(address, [address, *given])
                self._directories[address] = replace(policy, visible_below=None)
                named_addresses = _catalogs_in(address)
            for name, each in named_addresses:
                if named.setdefault(name, each) != each:
                    raise InvalidRequestError(
                        f"two catalogs are named {name!r}: {named[name]}, {each}"
                    )
        return named

    def _reopen(self, catalog: ServedCatalog) -> None:
        if (
            describe_source(_root_file(catalog.address), self.options.storage_options)
            != catalog.version
        ):
            self._add(catalog.name, catalog.address)

    def _add(self, name: str, catalog: str | VirtualGroup) -> None:
        if not name or "/" in name or name in RESERVED or name.startswith("."):
            raise InvalidRequestError(f"a catalog cannot be shown under the name {name!r}")
        address, version, pinned = "", None, ""
        if isinstance(catalog, VirtualGroup):
            group = catalog
        else:
            address = absolute_url(catalog)
            inside = self._directories.get(os.path.dirname(address))
            if inside is not None:
                inside.require(real_path(_root_file(address)))
            try:
                version = describe_source(_root_file(address), self.options.storage_options)
            except SourceUnavailableError:
                self.options.opened(address)  # says so if there is no catalog
                raise
            group = self.options.opened(address)
            pinned = f"{name}@{_pin_of(group)}"
        shown = self._shown(name, address, group, version, pinned)
        self.catalogs = {**self.catalogs, name: shown}
        if pinned:
            self._pin(name, replace(shown, name=pinned))

    def _shown(
        self, name: str, address: str, group: VirtualGroup, version: Source | None, pinned: str = ""
    ) -> ServedCatalog:
        shown_as = shown_names(group, IN_ADDRESSES)
        named = with_shown_names(group, IN_ADDRESSES)
        named = with_conventions(named, self.reader.reader.read)
        spaces = {view: KeySpace(named, self.options.view(view)) for view in VIEWS}
        kept = group if isinstance(group, CatalogGroup) else None
        return ServedCatalog(
            name,
            address,
            spaces,
            self.reader,
            self.looks,
            version,
            named,
            kept,
            pinned,
            shown_as,
        )

    def _pin(self, name: str, shown: ServedCatalog) -> None:
        """Keep a catalog under its digest, and few of those that it replaced."""
        others = {key: kept for key, kept in self._pinned.items() if key != shown.pinned}
        former = [key for key, kept in others.items() if kept.pinned.rpartition("@")[0] == name]
        for key in former[:-N_FORMER]:
            del others[key]
        self._pinned = {**others, shown.pinned: shown}


def _root_file(address: str) -> str:
    return f"{address.rstrip('/')}/{ROOT_FILE}"


def _is_catalog(path: str) -> bool:
    return os.path.isfile(os.path.join(path, ROOT_FILE))


def _name_of(address: str) -> str:
    return address.rpartition("/")[2].removesuffix(".gridref")


def _catalogs_in(directory: str) -> list[tuple[str, str]]:
    with os.scandir(directory) as children:
        paths = [child.path for child in children if _is_catalog(child.path)]
    return sorted((_name_of(path), path) for path in paths)


def _pin_of(group: CatalogGroup) -> str:
    """What a catalog is pinned by: its digest, or another one where there are levels beside it."""
    if group.shown == group.info.digest:
        return group.info.digest.removeprefix("sha256:")[:12]
    return hashlib.sha256(group.shown.encode()).hexdigest()[:12]
