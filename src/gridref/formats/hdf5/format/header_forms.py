"""What header blocks that are alike have in common, known by its bytes.

The files of a series have nearly all of their object headers in common: what differs are addresses,
and values of attributes. Blocks that are equal apart from those have one form, which says where
their messages lie; so have headers whose blocks do. Whatever follows from a form alone is worked
out once for all of them: it follows from every byte that may not differ, so that no file can change
what is read of another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from gridref.cache import LRU
from gridref.formats.hdf5.format.alike_bytes import AlikeBytes, joined_parts

__all__ = [
    "ATTRIBUTE",
    "ATTRIBUTE_INFO",
    "CONTINUATION",
    "EXTERNAL_FILES",
    "FILTERS",
    "LAYOUT",
    "BlockForm",
    "BlockKind",
    "HeaderForm",
    "MessagePlace",
    "attribute_head_bytes",
    "block_kind",
    "form_of_blocks",
    "known_form",
    "remember_form",
    "says_all",
]

_NIL, _LINK_INFO, _LINK, EXTERNAL_FILES, LAYOUT, FILTERS = 0x00, 0x02, 0x06, 0x07, 0x08, 0x0B
ATTRIBUTE, CONTINUATION, _SYMBOL_TABLE, ATTRIBUTE_INFO = 0x0C, 0x10, 0x11, 0x15
_COMPACT, _CONTIGUOUS, _CHUNKED = 0, 1, 2
_SELF_CONTAINED_CLASSES = frozenset({0, 1, 2, 3, 4, 5, 8})
"""Datatype classes whose elements point nowhere: not compounds, references, sequences, arrays."""
_KEPT_BYTES, _MOST_KINDS = 1 << 23, 1024


@dataclass(frozen=True, eq=False)
class BlockKind:
    """What all blocks of one header look like; `block_kind` gives one object for all alike ones.

    Attributes
    ----------
    version, flags
        Of the object header.
    offset_bytes, length_bytes
        Width of an address and of a length in the file.
    """

    version: int
    flags: int
    offset_bytes: int
    length_bytes: int

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


@lru_cache(_MOST_KINDS)
def block_kind(version: int, flags: int, offset_bytes: int, length_bytes: int) -> BlockKind:
    """The kind of blocks with these attributes."""
    return BlockKind(version, flags, offset_bytes, length_bytes)


class MessagePlace(NamedTuple):
    """A message, and where its body lies in its block.

    Attributes
    ----------
    kind, is_shared
        As in `gridref.formats.hdf5.format.object_header.HeaderMessage`.
    start, stop
        Byte range of the body.
    differs
        Byte range of what differs in alike blocks: addresses, values; empty where nothing does.
    """

    kind: int
    start: int
    stop: int
    is_shared: bool
    differs: slice = slice(0, 0)


@dataclass(frozen=True, eq=False)
class BlockForm:
    """What alike blocks have in common; one object for all of them.

    Attributes
    ----------
    places
        The messages.
    values
        Takes the values of those attributes out of a block that point to nothing else.
    """

    places: tuple[MessagePlace, ...]
    values: Callable[[bytes], bytes]

    @cached_property
    def continuations(self) -> tuple[MessagePlace, ...]:
        """The messages that say where the header goes on."""
        return tuple(place for place in self.places if place.kind == CONTINUATION)


@dataclass(frozen=True, eq=False)
class HeaderForm:
    """What alike object headers have in common; one object for all of them.

    Attributes
    ----------
    blocks
        The forms of its blocks.
    """

    blocks: tuple[BlockForm, ...]

    @cached_property
    def places(self) -> tuple[tuple[int, MessagePlace], ...]:
        """The messages other than continuations, each with the number of its block."""
        return tuple(
            (number, place)
            for number, block in enumerate(self.blocks)
            for place in block.places
            if place.kind != CONTINUATION
        )

    @cached_property
    def first(self) -> dict[int, tuple[int, MessagePlace]]:
        """The first message of each kind."""
        return {place.kind: (number, place) for number, place in reversed(self.places)}

    @cached_property
    def kinds(self) -> frozenset[int]:
        """The types of the messages."""
        return frozenset(self.first)

    @cached_property
    def is_plain(self) -> bool:
        """Whether no message lies elsewhere."""
        return not any(place.is_shared for _, place in self.places)


_block_forms = AlikeBytes[BlockForm](lambda form: 400 * len(form.places))
_header_forms = LRU[HeaderForm](_KEPT_BYTES, lambda form: 1000 + 1000 * len(form.blocks))


def known_form(data: bytes, kind: BlockKind) -> BlockForm | None:
    """The form of a block, if an alike one was remembered.

    Parameters
    ----------
    data
        The block: messages, and perhaps a gap.
    """
    return _block_forms.get(kind, data)


def remember_form(data: bytes, kind: BlockKind, places: list[MessagePlace]) -> BlockForm:
    """Remember the messages of a block."""
    places = [place._replace(differs=_differing(data, place, kind)) for place in places]
    values = [
        place.differs
        for place in places
        if place.kind == ATTRIBUTE and says_all(data[place.start : place.stop])
    ]
    form = BlockForm(tuple(places), joined_parts(values))
    return _block_forms.put(kind, data, [place.differs for place in places], form)


def form_of_blocks(blocks: tuple[BlockForm, ...]) -> HeaderForm:
    """The form of a header with such blocks."""
    form = _header_forms.get(blocks)
    return _header_forms.put(blocks, HeaderForm(blocks)) if form is None else form


def _differing(data: bytes, place: MessagePlace, kind: BlockKind) -> slice:
    """What of a message differs in alike blocks, if it is as it should be."""
    body = data[place.start : place.stop]
    if place.is_shared:
        return slice(0, 0)
    start, stop = next(_open_part(body, place.kind, kind), (0, 0))
    if not 0 <= start < stop <= len(body):
        return slice(0, 0)
    return slice(place.start + start, place.start + stop)


def _open_part(body: bytes, message: int, kind: BlockKind) -> Iterator[tuple[int, int]]:
    width, flags = kind.offset_bytes, body[1] if len(body) > 1 else 0
    if message in (_NIL, CONTINUATION, _SYMBOL_TABLE):
        yield 0, len(body)
    elif message in (_LINK_INFO, ATTRIBUTE_INFO):
        counter = 8 if message == _LINK_INFO else 2
        start = 2 + (counter if flags & 1 else 0)
        stop = start + width * (3 if flags & 2 else 2)
        if body[start:stop].count(0xFF) != stop - start:  # something lies elsewhere
            yield start, stop
    elif message == _LINK and not flags & 0x08:
        yield len(body) - width, len(body)
    elif message == LAYOUT:
        yield _open_part_of_layout(body, width)
    elif message == ATTRIBUTE:
        yield attribute_head_bytes(body), len(body)


def _open_part_of_layout(body: bytes, width: int) -> tuple[int, int]:
    """Where data or a chunk index lie; data itself; sizes that only an index of one chunk has."""
    version, second, third = body[:3].ljust(3, b"\0")
    if version in (1, 2):  # number of dimensions and class
        return (8 + 4 * second + 4, len(body)) if third == _COMPACT else (8, 8 + width)
    if version == 3 and second in (_COMPACT, _CHUNKED):  # class
        return (4, len(body)) if second == _COMPACT else (3, 3 + width)
    if second != _CHUNKED:
        return (2, 2 + width) if second == _CONTIGUOUS else (2, len(body))
    n_dimensions, length_bytes = body[3:5].ljust(2, b"\0")
    return 5 + n_dimensions * length_bytes + 1, len(body)


def attribute_head_bytes(body: bytes) -> int:
    """Size of all of an attribute's message but its elements."""
    sizes = [int.from_bytes(body[at : at + 2], "little") for at in (2, 4, 6)]
    if body[:1] == b"\1":
        sizes = [-(-size // 8) * 8 for size in sizes]
    return (9 if body[:1] == b"\3" else 8) + sum(sizes)


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
