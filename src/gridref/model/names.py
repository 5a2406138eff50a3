"""Names of arrays and groups, and how deep they may lie."""

from __future__ import annotations

from gridref.errors import InvalidRequestError

__all__ = ["MAX_GROUP_DEPTH", "check_name"]

MAX_GROUP_DEPTH = 200
"""How deep groups of files and catalogs may be nested: what walks a tree calls itself so often."""


def check_name(name: str) -> None:
    """Refuse what cannot be the name of an array or group: nothing, or something with a slash.

    Raises
    ------
    InvalidRequestError
        Saying what it is.
    """
    if not name or "/" in name:
        raise InvalidRequestError(f"{name[:100]!r} cannot be the name of an array or group")
