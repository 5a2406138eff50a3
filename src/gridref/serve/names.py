"""Escape names that readers cannot request unchanged.

zarr-python takes a backslash for a slash, and the name ``zarr.json`` for metadata. A client that
puts a name into an address without quoting it drops what follows ``#``, sends what follows ``?`` as
a query, takes ``%20`` for a space, and leaves out line breaks and tabs. It then asks for a key that
does not exist, which reads as a missing chunk, or for another object. So names of arrays, groups
and dimensions are shown with such characters percent-encoded (RFC 3986, section 2.1).
"""

from __future__ import annotations

import re
from collections.abc import Container
from functools import partial
from urllib.parse import quote

from gridref.errors import NotRepresentableError
from gridref.model.array import VirtualGroup

_NO_NAMES = r"\\|^(?:zarr\.json|\.z(?:array|attrs|group|metadata))$"
IN_ZARR = re.compile(_NO_NAMES)
"""What Zarr cannot have in a name, or for a name."""
IN_ADDRESSES = re.compile(rf"{_NO_NAMES}|[#?\x00-\x1f\x7f]|%(?=[0-9A-Fa-f]{{2}})|^\s|\s$")
"""What clients cannot have in a name that becomes a part of an address."""


def shown_name(name: str, unsafe: re.Pattern[str]) -> str:
    """What is shown instead of a name."""
    return unsafe.sub(lambda found: quote(found[0], safe="").replace(".", "%2E"), name)


def shown_names(group: VirtualGroup, unsafe: re.Pattern[str]) -> dict[str, str]:
    """Names of arrays and groups that cannot be shown as they are, by what is shown.

    Raises
    ------
    NotRepresentableError
        If two names could not be told apart, or one of them is ``.`` or ``..``.
    """
    names = {name for _, part in group.walk() for name in (*part.arrays, *part.groups)}
    ways = sorted(names & {".", ".."})
    if ways:
        raise NotRepresentableError(
            f"an array or group is named {ways[0]!r}, which in a path means the folder itself or"
            " the one above: rename it"
        )
    changed = {shown: name for name in names if (shown := shown_name(name, unsafe)) != name}
    both = sorted(changed[shown] for shown in changed.keys() & names)
    if both:
        raise NotRepresentableError(
            f"the names {both[0]!r} and {shown_name(both[0], unsafe)!r} cannot be told apart, as"
            " the first one is shown as the second: rename one of them"
        )
    return changed


def with_shown_names(group: VirtualGroup, unsafe: re.Pattern[str]) -> VirtualGroup:
    """The group under the names that are shown; itself where all are shown as they are.

    Raises
    ------
    NotRepresentableError
        If two names could not be told apart.
    """
    return _renamed(group, unsafe) if shown_names(group, unsafe) else group


def _renamed(group: VirtualGroup, unsafe: re.Pattern[str]) -> VirtualGroup:
    shown = partial(shown_name, unsafe=unsafe)
    return group.with_changes(
        arrays={
            shown(name): array.with_changes(dims=tuple(map(shown, array.dims)))
            for name, array in group.arrays.items()
        },
        groups={shown(name): _renamed(part, unsafe) for name, part in group.groups.items()},
        unlimited_dims=frozenset(map(shown, group.unlimited_dims)),
    )


def asked_key(key: str, shown: Container[str], unsafe: re.Pattern[str]) -> str:
    """The key that a client means, whether it quotes names that are shown quoted already or not.

    Parameters
    ----------
    key
        The path of its request, decoded once.
    shown
        What is shown for names that cannot be.
    """

    def meant(part: str) -> str:
        quoted = shown_name(part, unsafe)
        return quoted if quoted in shown and part not in shown else part

    *groups, last = key.split("/")  # where that is a file of metadata, it is no name
    return "/".join((*map(meant, groups), last if IN_ZARR.fullmatch(last) else meant(last)))
