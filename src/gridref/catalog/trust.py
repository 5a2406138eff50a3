"""What a catalog may read: what is allowed to it, and what this user put into catalogs before.

Of each table of sources that this user wrote, a hash of its addresses is remembered as the name of
an empty file, in a folder of the user's own. It is never kept in the catalog: what says that
a catalog is trusted must not be written by whoever wrote the catalog.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gridref.io import Allow, policy_for, real_path
from gridref.model.manifest import Source
from gridref.model.source_policy import SourcePolicy, common_folders

__all__ = ["Trust", "remember"]


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
            Their addresses as they stand in the table.
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

    A stranger's catalog is not trusted because it was copied. Where nothing can be remembered, the
    catalog is like that of somebody else.
    """
    policies = ((source.policy, source.url) for source in sources)
    path = _mark(_hash(stored_urls))
    if path and all(policy is None or policy.allows(real_path(url)) for policy, url in policies):
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch()


def _hash(stored_urls: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(list(stored_urls)).encode()).hexdigest()


def _remembered(key: str) -> bool:
    path = _mark(key)
    return path is not None and os.path.exists(path)  # False where it may not be looked at


def _mark(key: str) -> Path | None:
    folder = _state_folder()
    return folder and folder / "built" / key


def _state_folder() -> Path | None:
    """Where programs keep what they know on this machine for this user; None for nobody's home."""
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
        return None
