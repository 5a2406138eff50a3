"""Policies: which sources may be opened for a catalog, or for references, that name them.

The author of a catalog chooses the addresses in it, but the user who opens it reads them with their
own rights and credentials. An address that comes from data is therefore opened only below prefixes
that this user has allowed. Addresses that a user wrote have no policy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, unquote, unquote_to_bytes, urlsplit

from gridref.errors import InvalidRequestError, Message, Option, Place, SourceNotAllowedError
from gridref.secrets import shown_address

EVERYTHING = "*"
"""The prefix of all addresses."""

_ARCHIVES = frozenset({"zip", "tar", "libarchive"})
"""Filesystems that show the content of one file, and read nothing else."""
_COPIES = frozenset({"simplecache", "filecache", "blockcache"})
"""Filesystems that keep copies of files on the disk."""
_PROTOCOL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_AMBIGUOUS = re.compile(r"[\\\x00-\x20\x7f]")
_LOCAL = ("file", "local")
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class SourcePolicy:
    """The prefixes of sources that may be opened. A policy looks at addresses only.

    Attributes
    ----------
    named_by
        The catalog or the references that name the sources, for messages.
    prefixes
        Folders and single files as `checked_prefix` returns them. A prefix is a whole number of
        path components: ``/data`` does not allow ``/database``.
    visible_below
        A folder below which hidden files (``.name``) are not allowed.
    needed
        Prefixes that would allow all sources, for messages.
    """

    named_by: str
    prefixes: tuple[str, ...] = ()
    visible_below: str | None = None
    needed: tuple[str, ...] = ()

    def allows(self, address: str) -> bool:
        """Whether a source may be opened.

        Parameters
        ----------
        address
            An absolute local path without symbolic links, or a URL; of a chain of URLs, each link
            has to be an archive, or named so by a prefix, and what it is in is looked at.
        """
        try:
            copies, inner = _opened_by(address)
            if EVERYTHING in self.prefixes:
                return True
            base = _normal(inner)
        except ValueError:
            return False
        below = self.visible_below
        if below is not None and _is_below(base, copies, below) and "/." not in base[len(below) :]:
            return True
        return any(_is_below(base, copies, prefix) for prefix in self.prefixes)

    def require(self, address: str) -> None:
        """Refuse a source that may not be opened.

        Raises
        ------
        SourceNotAllowedError
            If it may not be opened; the error says what to allow.
        """
        if self.allows(address):
            return
        shown = self.needed or common_folders([address])
        wanted = shown[0] if len(shown) == 1 else list(shown)
        raise SourceNotAllowedError(
            Message(
                f"{shown_address(self.named_by)} names sources outside its folder that it may not "
                "read: if you trust it, give ",
                Option("allow", wanted),
                " (or GRIDREF_ALLOW in the environment)",
            ),
            Place(source=address),
        )


def checked_prefix(prefix: str) -> str:
    """A prefix as a policy holds it.

    Parameters
    ----------
    prefix
        An absolute local path without symbolic links, a URL, or `EVERYTHING`.

    Raises
    ------
    InvalidRequestError
        If it cannot be a prefix.
    """
    if prefix == EVERYTHING:
        return prefix
    try:
        copies, inner = _opened_by(prefix)
        return "".join(f"{link}::" for link in copies) + _normal(inner).rstrip("/")
    except ValueError as error:
        given = shown_address(prefix)
        raise InvalidRequestError(
            Message(Option("allow", given), f" is no prefix: {error}")
        ) from None


def _is_below(base: str, copies: tuple[str, ...], prefix: str) -> bool:
    *links, folder = prefix.split("::")
    return copies == tuple(links) and (base == folder or base.startswith(f"{folder}/"))


def _opened_by(address: str) -> tuple[tuple[str, ...], str]:
    """The links of a chain that are not archives, and the address at the end of the chain.

    Raises
    ------
    ValueError
        If a link opens anything else than the next link of the chain.
    """
    if _is_path(address):
        return (), address
    *links, base = address.split("::")
    protocols = [link.partition("://")[0] for link in links]
    for protocol in protocols:
        if protocol not in _ARCHIVES | _COPIES:
            raise ValueError(f"{protocol}:: is not allowed in an address")
    return tuple(p for p in protocols if p in _COPIES), base


def _is_path(address: str) -> bool:
    """Whether an address is an absolute local path; on Windows one may begin with a drive."""
    return address.startswith("/") or (_HAS_DRIVES and _DRIVE.match(address) is not None)


_HAS_DRIVES = os.name == "nt"
_DRIVE = re.compile("[A-Za-z]:/")


def _normal(address: str) -> str:
    """An address in the form that is compared: without credentials and query.

    Raises
    ------
    ValueError
        If it has ``..``, or programs may understand it differently.
    """
    match = _PROTOCOL.fullmatch(address)
    if match is None and not _is_path(address):
        raise ValueError("it is neither absolute nor a URL")
    protocol, rest = (match[1].lower(), match[2]) if match else ("file", address)
    if protocol in _DEFAULT_PORTS:
        rest = _normal_http(address, _DEFAULT_PORTS[protocol])
    elif protocol not in _LOCAL:
        server, slash, path = rest.partition("/")
        rest = f"{server.rpartition('@')[2]}{slash}{path}"
    written = rest if protocol in _LOCAL else unquote(unquote(rest))
    if ".." in re.split(r"[/\\]", written):
        raise ValueError("it has ways up (..)")
    return rest if protocol in _LOCAL else f"{protocol}://{rest}"


def _normal_http(address: str, default_port: int) -> str:
    if _AMBIGUOUS.search(address):
        raise ValueError("it has characters that no URL has")
    parts = split_http(address)
    host = (parts.hostname or "").rstrip(".").encode("idna").decode()
    # Clients rewrite paths: %41 becomes A, and é becomes %C3%A9. %2F stays what it is.
    path = "/".join(quote(unquote_to_bytes(name), "") for name in parts.path.split("/"))
    return f"{host}:{parts.port or default_port}{path}"


def split_http(address: str) -> SplitResult:
    """The parts of an address of HTTP.

    Raises
    ------
    ValueError
        If its server cannot be parsed; the error leaves out what may be a password.
    """
    try:
        parts = urlsplit(address)
        _ = parts.port  # is read here only
    except ValueError:
        raise ValueError(
            "its server cannot be read. If there is a password in it, escape what is neither a"
            " letter nor a digit, like %2F for /"
        ) from None
    return parts


def common_folders(addresses: Iterable[str]) -> tuple[str, ...]:
    """Few folders that hold addresses: one for each server, bucket or first local folder."""
    folders: dict[str, list[str]] = {}
    for address in addresses:
        shown = shown_address(address)
        head, link, _ = shown.rpartition("::")
        links = [part.partition("://")[0] for part in head.split("::")] if link else []
        copies = "".join(f"{part}::" for part in links if part not in _ARCHIVES)
        base = shown.rpartition("::")[2].removeprefix("file://")
        root = re.match(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*|/[^/]*", base)
        folders.setdefault(f"{copies}{root[0] if root else ''}", []).append(copies + base)
    return tuple(_common(root, of_root) for root, of_root in folders.items())


def _common(root: str, addresses: Sequence[str]) -> str:
    """The deepest folder that all of some addresses are in."""
    least, most = min(addresses), max(addresses)
    same = next(
        (i for i, (a, b) in enumerate(zip(least, most, strict=False)) if a != b),
        min(len(least), len(most)),
    )
    folder = least[:same].rpartition("/")[0]
    return f"{folder}/" if len(folder) >= len(root) else root
