"""Addresses of files, and the policies that say which of them may be read.

`absolute_url` makes an address of a local path or an fsspec URL. `expand_urls` finds the files of
patterns and folders, and `open_filesystem` opens the fsspec filesystem of an address. `policy_for`
takes the prefixes that a user allows and returns a `SourcePolicy`. `registry_for` returns a
registry of obspec-utils with the store of obstore that holds a file.

fsspec, with the event loop that it brings along, is imported with the first remote address.

Source: documentation of obstore ("S3Store", "from_url") and s3fs for the names of options.
"""

from __future__ import annotations

import functools
import glob
import os
import posixpath
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from gridref.errors import InvalidRequestError, Place, SourceUnavailableError, some_of
from gridref.extras import missing_package, needed_for
from gridref.io.credentials import PROVIDER, Credentials, apart, has_provider, settled
from gridref.io.faults import RetryPolicy, is_absent, shown, unavailable, within_limit
from gridref.model.source_policy import EVERYTHING, SourcePolicy, checked_prefix
from gridref.options import did_you_mean
from gridref.secrets import cut_short, shown_address, without_secrets

# Addresses: local paths and fsspec URLs

_PROTOCOL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)(://|::)")
_GLOB = re.compile(r"[*?\[]")
_CATALOG = "catalog"
_CLOUDS = ("gs://", "gcs://", "abfs://", "abfss://", "az://")
_SERVERS = ("http://", "https://", "s3://", "s3a://", *_CLOUDS)
_HTTP_TIMEOUTS = {"sock_connect": 20, "sock_read": 60}


@dataclass(frozen=True)
class DataNames:
    """Names of files and folders that hold data.

    Attributes
    ----------
    suffixes
        Suffixes of the files that are taken from a directory; compared in lower case.
    markers
        Names of files that mark their local directory as one piece of data.
    folder_suffixes
        Suffixes of remote directories that are one piece of data each; compared in lower case.
    recognised
        Looks into a marked local directory, and says whether it is data; None if markers suffice.
    """

    suffixes: tuple[str, ...] = ()
    markers: tuple[str, ...] = ()
    folder_suffixes: tuple[str, ...] = ()
    recognised: Callable[[str], bool] | None = field(default=None, compare=False, repr=False)

    def is_file(self, path: str) -> bool:
        """Whether a file in a directory is taken; hidden files never are."""
        name = path.rstrip("/").rpartition("/")[2]
        return name.lower().endswith(self.suffixes) and not name.startswith(".")

    def is_folder(self, url: str) -> bool:
        """Whether a directory is one piece of data; of a remote one the name alone decides.

        A marker beside files of data is a stray file, and so is one that no format recognises:
        names like ``info`` are common.
        """
        if is_local(url):
            marked = any(os.path.isfile(os.path.join(url, name)) for name in self.markers)
            if not marked or any(map(self.is_file, os.listdir(url))):
                return False
            return self.recognised is None or self.recognised(url)
        return url.partition("?")[0].rstrip("/").lower().endswith(self.folder_suffixes)


_NO_NAMES = DataNames()


def absolute_url(path_or_url: str | os.PathLike[str]) -> str:
    """An absolute local path, or an fsspec URL as it is.

    ``file://`` URLs become paths, ``~`` the home directory. Symbolic links are kept.
    """
    text = os.fspath(path_or_url)
    if not text:
        raise InvalidRequestError("the address of a file is empty")
    match = _PROTOCOL.match(text)
    if match and match[1] in ("file", "local") and match[2] == "://":
        text = text[match.end() :]
        if os.sep != "/" and re.match(r"/[A-Za-z]:", text):  # file:///C:/data/a.nc
            text = text[1:]
    elif match:
        return text
    return slashed(os.path.abspath(os.path.expanduser(text)))


def slashed(path: str) -> str:
    r"""A local path with slashes, which Windows takes too: ``C:/a.nc`` for ``C:\a.nc``."""
    return path if os.sep == "/" else path.replace(os.sep, "/")


def is_local(url: str) -> bool:
    """Whether an address, as `absolute_url` returns it, is a local path."""
    return _PROTOCOL.match(url) is None


def real_path(url: str) -> str:
    """An absolute address with the symbolic links and ``..`` of its local path resolved."""
    links, separator, base = url.rpartition("::")
    base = base.removeprefix("file://").removeprefix("local://") if separator else url
    if not is_local(base):
        return url
    try:
        return f"{links}{separator}{slashed(os.path.realpath(base))}"
    except ValueError as error:
        raise SourceUnavailableError(
            f"this is not a valid file name: {error}", Place(url)
        ) from error


def beside(url: str, name: str) -> str:
    """Address of a file that is named relative to the folder of another one.

    Parameters
    ----------
    url
        The other file, as `absolute_url` returns it.
    name
        Relative name, which may begin with ``./`` or ``../``; a URL is returned as it is, and so is
        an absolute path, but for one on an HTTP server, which begins at its root.
    """
    if "://" in name:
        return name
    if is_local(url):
        return slashed(os.path.normpath(os.path.join(os.path.dirname(url), name)))
    first, link, rest = url.partition("::")
    if link and "://" not in first:
        return f"{first}::{beside(rest, name)}"
    if first.startswith("http"):
        base = first.partition("?")[0]
        return f"{urllib.parse.urljoin(base, urllib.parse.quote(name))}{link}{rest}"
    if name.startswith("/"):
        return name
    folder = first.rpartition("/")[0]
    if not {".", ".."}.isdisjoint(name.split("/")):
        name = posixpath.normpath(name)
    while name.startswith("../") and not folder.rpartition("/")[0].endswith(":/"):
        folder, name = folder.rpartition("/")[0], name.removeprefix("../")
    return f"{folder}/{name}{link}{rest}"


def options_for(
    url: str, storage_options: Mapping[str, Any] | None, policy: SourcePolicy | None = None
) -> dict[str, Any]:
    """The options for one URL; a policy limits the redirects of its server.

    `storage_options` are either options of the filesystem, or a mapping of protocol to such
    options: ``{"s3": {"anon": True}, "https": {...}}``. A chained URL gets the whole mapping, as
    fsspec requires. A key may also be the beginning of URLs, ``{"https://host/data/": {...}}``: its
    options are for these alone, instead of those of the protocol. ``"catalog"`` among the keys is
    for `catalog_options`. What the function ``credential_provider`` among the options of a
    filesystem returns is added to them; a function in place of such options is one, too.

    Raises
    ------
    InvalidRequestError
        For options of both forms at once.
    """
    options = _by_protocol(url, storage_options or {})
    base = url.rpartition("::")[2]
    match = _PROTOCOL.match(base)
    protocol = match[1] if match else "file"
    if "::" not in url:
        held = options.get(protocol, {}) if _is_by_protocol(options) else options
        return _options_at(base, held, policy)
    chained = {
        name: settled(held) if has_provider(held) else held
        for name, held in options.items()
        if name not in (_CATALOG, protocol)
    }
    inner = _options_at(base, options.get(protocol, {}), policy)
    return {**chained, protocol: inner} if inner else chained


def _options_at(url: str, options: Any, policy: SourcePolicy | None) -> dict[str, Any]:
    """Options of the filesystem of a URL, which is no chain, with sessions of ours."""
    if not url.startswith(_SERVERS):
        return settled(options)
    own, credentials = apart(options)
    answer = {} if credentials is None else credentials.current().options
    if url.startswith(_CLOUDS):
        return _cloud_options(url, own, credentials, answer)
    if url.startswith("s3"):
        from gridref.io.s3_session import KEYS, session_of

        if credentials is not None and "key" in answer:
            own = {name: value for name, value in {**own, **answer}.items() if name not in KEYS}
            own["session"] = session_of(credentials)
        else:
            own |= answer
        own["config_kwargs"] = {**_s3_settings(), **own.get("config_kwargs", {})}
        return own
    from gridref.io.filesystems import CREDENTIALS, HttpClient

    expiring = credentials if answer.keys() & CREDENTIALS else None
    own |= {name: value for name, value in answer.items() if name not in CREDENTIALS}
    own["client_kwargs"] = {"timeout": _http_timeout(), **own.get("client_kwargs", {})}
    own.setdefault("get_client", HttpClient.of(url, policy, expiring))
    return own


def _cloud_options(
    url: str, own: Mapping[str, Any], credentials: Credentials | None, answer: Mapping[str, Any]
) -> dict[str, Any]:
    """Options of gcsfs and adlfs, which sign with tokens that are renewed."""
    signs = [name for name in ("token", "sas_token") if isinstance(answer.get(name), str)]
    if credentials is None or not signs:
        return {**own, **answer}
    own = {**own, **{name: value for name, value in answer.items() if name not in signs}}
    if url.startswith("g"):
        from gridref.io.google_signing import google_options

        return google_options(own, credentials)
    from gridref.io.azure_signing import azure_options

    return azure_options(own, credentials)


def settled_options(url: str, storage_options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options for one URL as they are now, with plain keys: for libraries without fsspec."""
    options = _by_protocol(url, storage_options or {})
    if _is_by_protocol(options):
        options = options.get(url.partition("://")[0], {})
    return settled(options)


def _by_protocol(url: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options; those for the beginning of the URL replace those of its protocol."""
    general = {name: value for name, value in options.items() if "://" not in name}
    if len(general) == len(options):
        return general
    _is_by_protocol(options)  # refuses a mix with options of one filesystem
    base = url.rpartition("::")[2]
    fitting = [
        name
        for name in options.keys() - general.keys()
        if SourcePolicy("", (checked_prefix(name),)).allows(base)
    ]
    if fitting:
        general[base.partition("://")[0]] = options[max(fitting, key=len)]
    return general


def catalog_options(storage_options: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The options of a catalog's own address: those under ``"catalog"``, else all."""
    options = dict(storage_options or {})
    if _CATALOG in options and _is_by_protocol(options):
        own = options[_CATALOG]
        return {PROVIDER: own} if callable(own) else dict(own)
    return options


def _is_by_protocol(options: Mapping[str, Any]) -> bool:
    """Whether these are options by protocol, and not those of one filesystem."""
    from fsspec import available_protocols

    named = [
        name
        for name, value in options.items()
        if (isinstance(value, Mapping) or callable(value))
        and (name == _CATALOG or "://" in name or name in available_protocols())
    ]
    if named and len(named) < len(options):
        others = ", ".join(sorted({*options} - {*named}))
        raise InvalidRequestError(
            f"storage_options hold those of {', '.join(named)} and, beside them, {others}: write"
            ' either the options of one filesystem, or all by protocol, {"s3": {...}}'
        )
    return bool(named)


@functools.cache
def _s3_settings() -> Mapping[str, Any]:
    from gridref.io.s3_session import PlainSession

    return {"http_session_cls": PlainSession}


@functools.cache
def _http_timeout() -> Any:
    """The default of aiohttp gives a stalled transfer five minutes, and a slow one no more."""
    import aiohttp

    return aiohttp.ClientTimeout(total=None, **_HTTP_TIMEOUTS)


def open_filesystem(
    url: str, storage_options: Mapping[str, Any] | None, policy: SourcePolicy | None = None
) -> tuple[Any, str]:
    """The fsspec filesystem of a URL that a policy allows, and the path in it.

    Raises
    ------
    SourceNotAllowedError
        If the policy does not allow it.
    InvalidRequestError
        If no filesystem can be made for the URL: unknown protocol, bad options; if a package is
        missing, `MissingPackageError`.
    SourceUnavailableError
        If the archive that the filesystem is in cannot be opened.
    """
    from fsspec.core import url_to_fs

    if policy is not None:
        policy.require(real_path(url))
    _refuse_servers_as_links(url)
    try:
        filesystem, path = url_to_fs(url, **options_for(url, storage_options, policy))
    except ImportError as error:
        raise missing_package(f"reading {shown_address(url)}", error) from shown(error, url)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(
            f"cannot open its filesystem: {without_secrets(str(error), url)}",
            Place(source=url),
        ) from shown(error, url)
    except Exception as error:  # noqa: BLE001 - becomes one of ours
        # Archives are opened here: a deleted one must not look like a chunk that never existed.
        raise unavailable(url, error) from shown(error, url)
    return filesystem, path


def _refuse_servers_as_links(url: str) -> None:
    """Refuse names with ``::``, which fsspec takes for a chain of filesystems."""
    for link in url.split("::")[:-1]:
        if link.startswith(_SERVERS):
            raise InvalidRequestError(
                "'::' joins the addresses of filesystems, and all before the last are archives or"
                " caches; if it belongs to the name of a file on an HTTP server, write %3A%3A for"
                " it, or rename the file",
                Place(source=url),
            )


def expand_urls(
    patterns: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    storage_options: Mapping[str, Any] | None = None,
    names: DataNames = _NO_NAMES,
    *,
    unique: bool = True,
) -> list[str]:
    """Expand paths, URLs, globs and directories to files.

    A directory that `names` takes for one piece of data is kept, any other gives all data in it
    and below. The matches of one pattern are sorted naturally (``f2`` before ``f10``);
    patterns keep their order. A file named twice is listed once if `unique`. Of several remote
    addresses, those that are named as data files are taken without checking that they exist.

    Raises
    ------
    InvalidRequestError
        If a pattern matches nothing; it is named.
    SourceUnavailableError
        If a server cannot be reached, or cannot list.
    """
    patterns = [patterns] if isinstance(patterns, str | os.PathLike) else list(patterns)
    expanded: list[str] = []
    for pattern in patterns:
        url = absolute_url(pattern)
        if is_local(url):
            urls = [slashed(path) for path in _expand_local(url, names)]
        elif len(patterns) > 1 and _is_named_as_file(url, names):
            urls = [url]  # a request for each of many files would take long
        else:
            urls = _expand_remote(url, storage_options, names)
        if not urls:
            wanted = cut_short(shown_address(os.fspath(pattern)))
            raise InvalidRequestError(f"no file matches {wanted!r}{_hint(url, names)}")
        expanded += sorted(dict.fromkeys(urls), key=_natural)
    if not expanded:
        raise InvalidRequestError("no files given")
    return list(dict.fromkeys(expanded)) if unique else expanded


def _is_named_as_file(url: str, names: DataNames) -> bool:
    return (
        names.is_file(url.partition("?")[0]) and not url.endswith("/") and not _is_pattern(url, url)
    )


def _is_pattern(url: str, path: str) -> bool:
    """Whether a path has wildcards; the query of an HTTP address has none."""
    return bool(_GLOB.search(path.partition("?")[0] if url.startswith("http") else path))


def _hint(url: str, names: DataNames) -> str:
    if is_local(url) and os.path.isdir(url):
        some = some_of(names.suffixes, 4)
        return f": no file in this directory ends in {some}; a pattern like '*.ending' takes others"
    return near_paths(url)


def near_paths(url: str) -> str:
    """Names like the first name of a local path that does not exist; empty if there are none."""
    if not is_local(url):
        return ""
    parent, name = os.path.split(url)
    while name and not os.path.isdir(parent):
        parent, name = os.path.split(parent)
    if not name or _GLOB.search(name) or os.path.exists(os.path.join(parent, name)):
        return ""
    try:
        return did_you_mean(name, os.listdir(parent))
    except OSError:
        return ""


@contextmanager
def naming_near_paths(url: str) -> Iterator[None]:
    """Name what is near an address that a caller gives, if nothing is there.

    Raises
    ------
    SourceUnavailableError
        In place of another one, which also speaks of files that a catalog lists.
    """
    try:
        yield
    except SourceUnavailableError as error:
        if error.place.source != shown_address(url) or not is_absent(error):
            raise
        reason = f"the file does not exist{near_paths(url) or ': check the address'}"
        raise SourceUnavailableError(reason, error.place) from error.__cause__


def _natural(text: str) -> list[tuple[int, str]]:
    """Sort key: runs of digits count as numbers."""
    parts = re.split(r"(\d+)", text)
    return [(int(part), part) if part.isdecimal() else (0, part) for part in parts]


def _expand_local(path: str, names: DataNames) -> list[str]:
    if os.path.isdir(path):
        return [path] if names.is_folder(path) else _walk_local(path, names)
    if os.path.lexists(path):
        return [path]
    if not _GLOB.search(path):
        return []
    matches = glob.glob(path, recursive=True)
    files = [match for match in matches if not os.path.isdir(match) or names.is_folder(match)]
    if files or "**" in path:
        return files
    return [file for match in matches for file in _walk_local(match, names)]


def _walk_local(folder: str, names: DataNames) -> list[str]:
    paths = []
    for root, folders, files in os.walk(folder, followlinks=True):
        whole = [name for name in folders if names.is_folder(os.path.join(root, name))]
        paths += [os.path.join(root, name) for name in whole]
        folders[:] = [n for n in folders if not n.startswith(".") and n not in whole]
        paths += [os.path.join(root, name) for name in files if names.is_file(name)]
    return paths


def _expand_remote(
    url: str, storage_options: Mapping[str, Any] | None, names: DataNames
) -> list[str]:
    if names.is_folder(url) and not _GLOB.search(url):
        return [url.rstrip("/")]
    place = _RemotePlace(url, names, *open_filesystem(url, storage_options))
    if _is_pattern(url, place.path):
        matched = place.matches()
        # A file of this very name comes before those that are like it, as on local disks.
        is_name = place.path in matched or (not matched and place.kind() == "file")
        return [url] if is_name else list(map(place.url_of, matched))
    held = "directory" if url.endswith("/") else place.kind()
    if held in ("file", ""):
        return [url] if held else []
    return list(map(place.url_of, place.data_below()))


@dataclass(frozen=True)
class _RemotePlace:
    """What is at a remote address: a file, a folder, or what a pattern matches."""

    url: str
    names: DataNames
    filesystem: Any
    path: str

    def kind(self) -> str:
        """What has this very name: "file", "directory", or nothing."""
        try:
            return str(self._ask("info")["type"])
        except SourceUnavailableError as error:
            if is_absent(error):
                return ""
            raise

    def matches(self) -> list[str]:
        """Paths of the files, and folders of data, that the pattern matches."""
        from gridref.io.filesystems import glob_files, is_object_store

        if not is_object_store(self.filesystem) or "**" in self.path or self.path.endswith("/"):
            found = self._ask("glob", detail=True).items()
            return [n for n, info in found if info.get("type") != "directory" or self._is_data(n)]
        return self._call(lambda: glob_files(self.filesystem, self.path, self._is_data))

    def data_below(self) -> list[str]:
        """Paths of the files, and folders of data, in the folder and below."""
        try:
            paths = self._files_below()
            if not paths:  # fsspec also finds nothing if it cannot reach the server
                self._ask("ls")
        except SourceUnavailableError as error:
            if is_absent(error):
                return []
            raise
        root = self.path.rstrip("/")
        whole: dict[str, str] = {root: ""}

        def outermost(folder: str) -> str:
            """The folder of data that a folder is, or is in; empty for none."""
            if folder not in whole:
                above = folder.rpartition("/")[0]
                found = outermost(above) if len(above) > len(root) else ""
                whole[folder] = found or (folder if self._is_data(folder) else "")
            return whole[folder]

        data = (
            outermost(path.rpartition("/")[0]) or (path if self.names.is_file(path) else "")
            for path in paths
        )
        return list(dict.fromkeys(filter(None, data)))

    def _files_below(self) -> list[str]:
        from gridref.io.filesystems import find_files, is_object_store

        if not is_object_store(self.filesystem):
            return list(self._ask("find"))
        return self._call(lambda: find_files(self.filesystem, self.path, self._is_data))

    def _is_data(self, folder: str) -> bool:
        return self.names.is_folder(self.url_of(folder))

    def url_of(self, path: str) -> str:
        """Address of a path that was found."""
        return _full_url(self.filesystem, self.url, path)

    def _ask(self, method: str, **options: Any) -> Any:
        return self._call(lambda: within_limit(self.filesystem, method)(self.path, **options))

    def _call[Result](self, call: Callable[[], Result]) -> Result:
        return RetryPolicy().call(call, self.url)


def _full_url(filesystem: Any, pattern: str, path: str) -> str:
    """URL of a path that was found under `pattern`, with the same chain of filesystems."""
    head, separator, rest = pattern.partition("::")
    full = str(filesystem.unstrip_protocol(path))
    if not separator:
        return full
    protocol = head.partition("://")[0]
    if "://" in head:
        return f"{protocol}://{path}::{rest}"
    return f"{protocol}::{full}"


# Policies on the files that catalogs and references may read

VARIABLE = "GRIDREF_ALLOW"
"""Environment variable with further prefixes, separated by commas."""


type Allow = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None
"""Folders, files and URLs below which reading is allowed; ``"*"`` is everything."""


def policy_for(named_by: str, allow: Allow) -> SourcePolicy:
    """The policy of a catalog, or of references: their own folder, and allowed prefixes.

    Hidden files in that folder are not allowed. If the folder is the root or a home directory,
    only files in the catalog itself are.

    Parameters
    ----------
    named_by
        Absolute address of the catalog or of the references.
    allow
        Prefixes; those of the environment variable ``GRIDREF_ALLOW`` are added.

    Raises
    ------
    InvalidRequestError
        For what cannot be a prefix.
    """
    given: list[str | os.PathLike[str]] = []
    if isinstance(allow, str | os.PathLike):
        given = [allow]
    elif allow is not None:
        given = list(allow)
    given += filter(None, os.environ.get(VARIABLE, "").split(","))
    return SourcePolicy(shown_address(named_by), tuple(map(_prefix, given)), _own_folder(named_by))


def _prefix(given: str | os.PathLike[str]) -> str:
    if not isinstance(given, str | os.PathLike):
        raise InvalidRequestError(f"allow takes folders and URLs, got {given!r}")
    if given == EVERYTHING:
        return EVERYTHING
    folder = re.sub(r"/\*+$", "/", os.fspath(given))  # as globs are written
    return checked_prefix(real_path(absolute_url(folder)))


def _own_folder(address: str) -> str | None:
    if not is_local(address):
        copies = address.rpartition("::")[0]
        base = address.rpartition("::")[2].partition("?")[0].rstrip("/")
        if copies and "://" in copies:
            return _usable(real_path(address))  # what it is in is one file
        folder = base.rpartition("/")[0]
        own = base if folder.endswith("/") or not folder else folder
        return _usable(real_path(f"{copies}::{own}" if copies else own))
    real = slashed(os.path.realpath(address))
    folder = os.path.dirname(real)
    home = slashed(os.path.realpath(os.path.expanduser("~")))
    return real if folder in (home, os.path.dirname(folder)) else folder


def _usable(prefix: str) -> str | None:
    try:
        return checked_prefix(prefix)
    except InvalidRequestError:
        return None


# Object stores of obstore for VirtualiZarr's parsers, opened with the same options

_S3_OPTIONS = {
    "access_key_id": "key",
    "secret_access_key": "secret",
    "session_token": "token",
    "endpoint": "endpoint_url",
}
"""The names in s3fs of the settings of obstore's S3Store."""


def uri_of(url: str) -> str:
    """The address of a file as a quoted URI: VirtualiZarr does not quote."""
    return f"file://{url}" if is_local(url) else url


def options_of_store(store: Any) -> dict[str, Any]:
    """The options of s3fs that correspond to those of an ``S3Store``."""
    config = getattr(store, "config", {})
    known = {name: config[key] for key, name in _S3_OPTIONS.items() if key in config}
    region = {"region_name": config["region"]} if "region" in config else {}
    anonymous = str(config.get("skip_signature", False)).lower() == "true"
    provider = getattr(store, "credential_provider", None)
    renewed = {} if provider is None else {"credential_provider": provider}
    return {**known, **renewed, "anon": anonymous, "client_kwargs": region}


def registry_for(url: str, storage_options: Mapping[str, Any] | None = None) -> Any:
    """A registry of obspec-utils with the store that holds a file.

    Parameters
    ----------
    url
        Absolute local path, or URL of a protocol that obstore has (S3, HTTP, GCS, Azure).
    storage_options
        fsspec options. Those of s3fs are taken over; stores of other protocols take no options.

    Raises
    ------
    MissingPackageError
        Without obstore.
    InvalidRequestError
        If obstore has no store for the URL.
    """
    with needed_for("a parser of VirtualiZarr"):
        from obspec_utils.registry import ObjectStoreRegistry
        from obstore.exceptions import BaseError
        from obstore.store import LocalStore, from_url
    if is_local(url):
        return ObjectStoreRegistry({"file://": LocalStore()})
    parts = urlsplit(url)
    root = f"{parts.scheme}://{parts.netloc}"
    try:
        return ObjectStoreRegistry({root: from_url(root, **_settings(url, storage_options))})
    except (BaseError, ValueError) as error:
        raise InvalidRequestError(
            f"VirtualiZarr's parsers read through obstore, which has no store for {root}: {error}"
        ) from error


def _settings(url: str, storage_options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The names in obstore of the options of a filesystem."""
    plain = {"client_options": {"allow_http": True}}
    if not url.startswith("s3://"):
        return plain
    options = settled_options(url, storage_options)
    client = options.get("client_kwargs", {})
    options = {**client, **options}
    region = client.get("region_name")
    config = {key: options[name] for key, name in _S3_OPTIONS.items() if options.get(name)}
    config |= {"region": region} if region else {}
    config |= {"skip_signature": True} if options.get("anon") else {}
    return {**plain, "config": config}
