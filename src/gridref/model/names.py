"""Names of arrays and groups, and the greatest depth of groups."""

from __future__ import annotations

from gridref.errors import InvalidRequestError

MAX_GROUP_DEPTH = 200
"""Greatest depth of groups in files and catalogs: functions that walk a tree are recursive."""


def check_name(name: str) -> None:
    """Refuse what cannot be the name of an array or group: nothing, or something with a slash.

    Raises
    ------
    InvalidRequestError
        Saying what it is.
    """
    if not name or "/" in name:
        raise InvalidRequestError(f"{name[:100]!r} cannot be the name of an array or group")
