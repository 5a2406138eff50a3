"""Where the messages of header blocks lie, remembered for blocks that are alike.

The files of a series have nearly all of their object headers in common: what differs are addresses,
and attributes that point into heaps. A block that is equal apart from those is not divided anew,
and what is equal in it is one object for all files, so that whatever is decoded from it is looked
up fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gridref.cache import LRU

__all__ = ["MessageForm", "MessagePlace", "known_places", "remember_places", "says_all"]

_DATASPACE, _DATATYPE, _OLD_FILL, _FILL, _FILTERS, _ATTRIBUTE = 0x01, 0x03, 0x04, 0x05, 0x0B, 0x0C
_ALIKE = frozenset({0, _DATASPACE, _DATATYPE, _OLD_FILL, _FILL, _FILTERS})
_SELF_CONTAINED_CLASSES = frozenset({0, 1, 2, 3, 4, 5, 8})
"""Datatype classes whose elements point nowhere: not compounds, references, sequences, arrays."""
_KEPT_BYTES = 1 << 23
_MOST_CUTS = 8


class MessageForm(NamedTuple):
    """What the blocks of one header look like.

    Attributes
    ----------
    version, flags
        Of the object header.
    """

    version: int
    flags: int = 0

    @property
    def prefix_bytes(self) -> int:
        """Size of what comes before the body of each message."""
        if self.version == 1:
            return 8
        return 6 if self.flags & 0x04 else 4

    @property
    def kind_bytes(self) -> int:
        """Size of the message type, which the size of the body and the flags follow."""
        return 2 if self.version == 1 else 1


class MessagePlace(NamedTuple):
    """A message, and where its body lies in its block.

    Attributes
    ----------
    kind, is_shared
        As in `gridref.formats.hdf5.format.object_header.HeaderMessage`.
    start, stop
        Byte range of the body.
    body
        The body, where alike blocks have it in common.
    """

    kind: int
    start: int
    stop: int
    is_shared: bool
    body: bytes | None = None


type _Places = tuple[MessagePlace, ...]
type _Cut = tuple[slice, ...]
"""The parts of a block that alike ones have in common."""

_cuts = LRU[tuple[_Cut, ...]](_KEPT_BYTES, lambda cuts: 200 * sum(map(len, cuts)))
_places = LRU[_Places](_KEPT_BYTES, lambda places: 300 * (1 + len(places)))


def known_places(data: bytes, form: MessageForm) -> _Places | None:
    """The messages of a block, if an alike one was remembered.

    Parameters
    ----------
    data
        The block: messages, and perhaps a gap.
    """
    cuts = _cuts.get((form, len(data)))
    for cut in cuts or ():
        places = _places.get((form, cut, b"".join([data[part] for part in cut])))
        if places is not None:
            return places
    return None


def remember_places(data: bytes, form: MessageForm, places: Sequence[MessagePlace]) -> _Places:
    """Remember the messages of a block, which are returned with the bodies that others share."""
    interned = tuple(
        place._replace(body=data[place.start : place.stop]) if _is_alike(data, place) else place
        for place in places
    )
    cut = _cut(len(data), interned)
    known = _cuts.get((form, len(data))) or ()
    if cut not in known:
        _cuts.put((form, len(data)), (cut, *known)[:_MOST_CUTS])
    return _places.put((form, cut, b"".join([data[part] for part in cut])), interned)


def _cut(n_bytes: int, places: _Places) -> _Cut:
    """All but the bodies that differ."""
    parts, start = [], 0
    for place in places:
        if place.body is None:
            parts.append(slice(start, place.start))
            start = place.stop
    return (*parts, slice(start, n_bytes))


def _is_alike(data: bytes, place: MessagePlace) -> bool:
    """Whether a message says the same in alike files: it holds no address."""
    if place.is_shared:
        return False
    if place.kind != _ATTRIBUTE:
        return place.kind in _ALIKE
    return says_all(data[place.start : place.stop])


def says_all(attribute: bytes) -> bool:
    """Whether the message of an attribute points to nothing else in the file."""
    return _class_of(attribute) in _SELF_CONTAINED_CLASSES


def _class_of(attribute: bytes) -> int:
    """Datatype class of an attribute; -1 for one that is shared, or cut off."""
    version, flags = attribute[:1], attribute[1:2]
    name_bytes = int.from_bytes(attribute[2:4], "little")
    if version == b"\1":
        datatype = 8 + -(-name_bytes // 8) * 8
    elif version in (b"\2", b"\3") and flags == b"\0":
        datatype = (9 if version == b"\3" else 8) + name_bytes
    else:
        return -1
    return attribute[datatype] & 0x0F if datatype < len(attribute) else -1
