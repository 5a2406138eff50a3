"""Policies on what catalogs and references may read: made from what users allow, and asked."""

from __future__ import annotations

import os
from collections.abc import Iterable

from gridref.errors import InvalidRequestError
from gridref.io.address import absolute_url, is_local, real_path
from gridref.model.source_policy import EVERYTHING, SourcePolicy, checked_prefix
from gridref.secrets import without_secrets

__all__ = ["VARIABLE", "Allow", "policy_for"]

VARIABLE = "GRIDREF_ALLOW"
"""Environment variable with further prefixes, separated by commas."""


type Allow = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None
"""Folders, files and URLs that may be read below; ``"*"`` is everything."""


def policy_for(named_by: str, allow: Allow) -> SourcePolicy:
    """What a catalog, or references, may read: what lies in their folder, and below prefixes.

    Nothing hidden in that folder, and only what lies in the catalog itself where the folder is the
    root or somebody's home.

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
    return SourcePolicy(
        without_secrets(named_by), tuple(map(_prefix, given)), _own_folder(named_by)
    )


def _prefix(given: str | os.PathLike[str]) -> str:
    if not isinstance(given, str | os.PathLike):
        raise InvalidRequestError(f"allow takes folders and URLs, got {given!r}")
    return EVERYTHING if given == EVERYTHING else checked_prefix(real_path(absolute_url(given)))


def _own_folder(address: str) -> str | None:
    if not is_local(address):
        copies = address.rpartition("::")[0]
        base = address.rpartition("::")[2].partition("?")[0].rstrip("/")
        if copies and "://" in copies:
            return _usable(real_path(address))  # what it lies in is one file
        folder = base.rpartition("/")[0]
        own = base if folder.endswith("/") or not folder else folder
        return _usable(real_path(f"{copies}::{own}" if copies else own))
    real = os.path.realpath(address)
    folder = os.path.dirname(real)
    home = os.path.realpath(os.path.expanduser("~"))
    return real if folder in (home, os.path.dirname(folder)) else folder


def _usable(prefix: str) -> str | None:
    try:
        return checked_prefix(prefix)
    except InvalidRequestError:
        return None
