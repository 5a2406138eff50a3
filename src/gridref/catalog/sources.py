"""Sources of a catalog: their addresses, and which of them the catalog may read.

Addresses are stored as a prefix and a path, absolute or relative to the catalog. `SourceRules`
holds how sources are found and checked when a catalog is opened.

A catalog of somebody else may read only what the user allows. For each table of sources that this
user wrote, gridref remembers a hash of its addresses: the name of an empty file, in a folder of the
user's own. The hash is never kept in the catalog, because then the writer of a catalog could
declare it trusted.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote, unquote

from gridref.errors import InvalidRequestError, some_of
from gridref.io import Allow, absolute_url, is_local, policy_for, real_path, slashed
from gridref.model.manifest import IDENTITIES, Identity, Source
from gridref.model.source_policy import SourcePolicy, common_folders
from gridref.options import check_choice
from gridref.secrets import shown_address

# Addresses as a prefix, which many share, and a path. Pure


def split(
    urls: Sequence[str], known: Sequence[str] = ()
) -> tuple[tuple[str, ...], list[int], list[str]]:
    """Split addresses; a prefix is a directory that all new ones have in common.

    Parameters
    ----------
    known
        Prefixes that are there already: they are used where they fit.

    Returns
    -------
    tuple
        All prefixes, the known ones first; the number of each address' prefix; and its rest.
    """
    prefixes = list(known)
    new = [url for url in urls if _fitting(url, prefixes) is None]
    if new:
        low, high = min(new), max(new)
        n_alike = next(
            (i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low)
        )
        prefixes.append(low[: low.rfind("/", 0, n_alike) + 1])
    numbers = [_fitting(url, prefixes) or 0 for url in urls]
    rest = [url[len(prefixes[number]) :] for url, number in zip(urls, numbers, strict=True)]
    return tuple(prefixes), numbers, rest


def _fitting(url: str, prefixes: Sequence[str]) -> int | None:
    """The number of the first prefix that an address begins with."""
    return next((i for i, prefix in enumerate(prefixes) if url.startswith(prefix)), None)


# Addresses relative to a catalog. Pure

_SERVER_AND_PATH = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^/]*)(/.*|)$")


def relative_url(url: str, folder: str) -> str:
    """The address of a source as seen from a folder.

    Unchanged if they have no root in common, or if the path would come back as another one: keys
    of object stores may have empty parts (``a//b``).
    """
    relative = _as_seen_from(url, folder)
    return relative if resolved_url(relative, folder) == url else url


def _as_seen_from(url: str, folder: str) -> str:
    if is_local(url) and is_local(folder):
        try:
            return slashed(os.path.relpath(url, folder))
        except ValueError:  # on another drive
            return url
    of_url, of_folder = _SERVER_AND_PATH.match(url), _SERVER_AND_PATH.match(folder)
    if "::" in url or "::" in folder or of_url is None or of_folder is None:
        return url
    if of_url[1] != of_folder[1]:
        return url
    return posixpath.relpath(of_url[2] or "/", of_folder[2] or "/")


def resolved_url(url: str, folder: str) -> str:
    """The address of a source that is stored relative to a folder; others stay as they are."""
    if not is_local(url) or url.startswith("/") or os.path.isabs(url):
        return url
    if is_local(folder):
        return slashed(os.path.normpath(os.path.join(folder, url)))
    of_folder = _SERVER_AND_PATH.match(folder)
    if of_folder is None:
        return url
    return of_folder[1] + posixpath.normpath(posixpath.join(of_folder[2] or "/", url))


# Rules for opening sources: their places, and the check that they are unchanged

_PLAIN_IN_PATHS = "/!$&'()*+,;=:@"
"""Source: RFC 3986, section 3.3 (``pchar``)."""


@dataclass(frozen=True)
class SourceRules:
    """Rules that sources are opened by.

    Attributes
    ----------
    identity
        What makes a file the one that was scanned.
    prefixes
        Folders, or other beginnings of addresses that end before a slash, with the new ones. The
        longest that matches an address counts.

    Raises
    ------
    InvalidRequestError
        For an identity that is not known.
    """

    identity: Identity = "strict"
    prefixes: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        check_choice("identity", self.identity, IDENTITIES)

    @classmethod
    def of(cls, identity: Identity, prefixes: Mapping[str, str] | None) -> SourceRules:
        """The rules; a slash at the end of prefixes makes no difference.

        Raises
        ------
        InvalidRequestError
            For an identity that is not known, or an empty prefix.
        """
        pairs = {_folder(old): _folder(new) for old, new in (prefixes or {}).items()}
        return cls(identity, tuple(sorted(pairs.items(), key=lambda pair: -len(pair[0]))))

    @property
    def folders(self) -> list[str]:
        """Where sources were moved to."""
        return [new for _, new in self.prefixes]

    def moved(self, url: str) -> str:
        """The address that a file has now."""
        for old, new in self.prefixes:
            if url.startswith(f"{old}/"):
                return new + _escaped_as(new, old, url[len(old) :])
        return url

    def check_used(self, known: Iterable[str]) -> None:
        """Refuse a prefix that no address can begin with.

        Parameters
        ----------
        known
            Beginnings of all addresses.
        """
        starts = list(known)
        for old, _ in self.prefixes:
            full = f"{old}/"
            if not any(start.startswith(full) or full.startswith(start) for start in starts):
                raise InvalidRequestError(
                    f"no source begins with {shown_address(old)!r};"
                    f" they begin with {some_of(starts, 5, shown_address)}"
                )


def _escaped_as(new: str, old: str, path: str) -> str:
    """A path below `old` as it is written below `new`: names are escaped in addresses of HTTP."""
    schemes = ("http://", "https://")
    if new.startswith(schemes) and not old.startswith(schemes):
        return quote(path, safe=_PLAIN_IN_PATHS)
    if old.startswith(schemes) and not new.startswith(schemes):
        return unquote(path)
    return path


def _folder(prefix: str) -> str:
    """An absolute address without a slash at the end."""
    return absolute_url(prefix).rstrip("/")


# Trust: sources that a catalog may read


@dataclass(frozen=True)
class Trust:
    """Decides on a policy for each table of sources, when it is read.

    Attributes
    ----------
    policy
        That of tables that this user did not write.
    own
        Hashes of those that this user did; None has them looked up on this machine.
    """

    policy: SourcePolicy
    own: frozenset[str] | None = None

    @classmethod
    def of(cls, address: str, allow: Allow | Trust, moved: Iterable[str] = ()) -> Trust:
        """What users allow to the catalog at an address; None allows what they built themselves.

        Folders that they say sources were `moved` to are allowed, too.
        """
        if isinstance(allow, Trust):
            return allow
        given = [allow] if isinstance(allow, str | os.PathLike) else allow or ()
        policy = policy_for(address, [*given, *moved])
        return cls(policy, None if allow is None else frozenset())

    def owns(self, stored_urls: Sequence[str]) -> bool:
        """Whether this user wrote a table of such addresses."""
        key = _hash(stored_urls)
        return _remembered(key) if self.own is None else key in self.own

    def decided(self, tables: Iterable[Sequence[str]]) -> Trust:
        """The same for tables of these addresses, wherever it is asked."""
        return replace(self, own=frozenset(_hash(urls) for urls in tables if self.owns(urls)))

    def policy_for(self, stored_urls: Sequence[str], urls: Sequence[str]) -> SourcePolicy | None:
        """The policy on the sources of a table; None if all may be read.

        Parameters
        ----------
        stored_urls
            Their addresses as stored in the table.
        urls
            Their whole addresses.
        """
        if self.owns(stored_urls):
            return None
        own_folder = f"{self.policy.visible_below}/"
        elsewhere = (url for url in urls if not url.startswith(own_folder))
        return replace(self.policy, needed=common_folders(elsewhere))


def remember(sources: Sequence[Source], stored_urls: Sequence[str]) -> None:
    """Remember that this user wrote a table of sources, unless some of them may not be read.

    A stranger's catalog is not trusted because it was copied. Where nothing can be written, as
    without a home, this process alone remembers it.
    """
    policies = ((source.policy, source.url) for source in sources)
    if all(policy is None or policy.allows(real_path(url)) for policy, url in policies):
        path = _mark(_hash(stored_urls))
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch()
        except OSError:
            _unwritten.add(path)


_unwritten: set[Path] = set()
"""Marks that could not be written: they hold in this process."""


def _hash(stored_urls: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(list(stored_urls)).encode()).hexdigest()


def _remembered(key: str) -> bool:
    path = _mark(key)
    return path in _unwritten or os.path.exists(path)  # False where it may not be looked at


def _mark(key: str) -> Path:
    return _state_folder() / "built" / key


def _state_folder() -> Path:
    """Where programs keep what they know on this machine for this user; no folder for nobody."""
    given = os.environ.get("GRIDREF_STATE")
    if given:
        return Path(given)
    home = Path.home
    try:
        if sys.platform == "win32":
            return Path(os.environ.get("LOCALAPPDATA") or home() / "AppData" / "Local") / "gridref"
        if sys.platform == "darwin":
            return home() / "Library" / "Application Support" / "gridref"
        return Path(os.environ.get("XDG_STATE_HOME") or home() / ".local" / "state") / "gridref"
    except RuntimeError:
        return Path(os.devnull)
