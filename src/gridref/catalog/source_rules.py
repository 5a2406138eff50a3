"""How the sources of a catalog are taken when it is opened: where they are, and what tells them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

from gridref.errors import InvalidRequestError
from gridref.io import absolute_url
from gridref.model.manifest import IDENTITIES, Identity
from gridref.options import check_choice

__all__ = ["SourceRules"]

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
        Folders, or other beginnings of addresses that end before a slash, with what stands there
        now; the longest that fits counts.

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

        Raises
        ------
        InvalidRequestError
            Naming it, and what addresses begin with.
        """
        starts = list(known)
        for old, _ in self.prefixes:
            full = f"{old}/"
            if not any(start.startswith(full) or full.startswith(start) for start in starts):
                raise InvalidRequestError(
                    f"no source begins with {old!r}; they begin with {', '.join(starts[:5])}"
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
