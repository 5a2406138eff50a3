"""Find the fields of a GRIB file: their places, grids and sections.

`walk` goes from message to message and reads their headers, never the data. Sections 2 to 7, 3 to 7
or 4 to 7 may repeat in a message of edition 2: each repetition is a field. Bytes between messages
(zeros, lines of bulletins) are skipped.

Source: WMO Manual on Codes I.2, FM 92 GRIB, edition 1 and edition 2.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gridref.codecs.grib import (
    PACKINGS,
    MessageError,
    claim_of,
    section_1,
    sections,
    total_length,
)
from gridref.errors import Place, SourceFormatError
from gridref.formats.grib.product import Product, product_1, product_2
from gridref.io import Merging, ScanFile, plan_reads
from gridref.limits import beyond, limits

MAGIC = b"GRIB"
_LOCAL_BYTES, _REMOTE_BYTES = 1 << 10, 64 << 10
"""What is read of a message at once: most headers are shorter."""
_MOST_AHEAD = 500
"""Messages whose headers are asked for at once."""
_HUGE_1 = 0x800000
"""Set in lengths of edition 1 that are in units of 120 bytes, as ECMWF writes them."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a file.

    Attributes
    ----------
    offset, length
        Bytes that decode to it: its message, up to the end of the field if others follow.
    edition
        1 or 2.
    grid
        Its grid section.
    product
        What it is; the error that says why it is not known.
    claim
        Compared with the message when it is read, if only an index file says what it is; else 0.
    mark
        A number for all that its headers say but for the grid: equal for a field that is repeated.
    """

    offset: int
    length: int
    edition: int
    grid: bytes
    product: Product | MessageError
    claim: int = 0
    mark: int = 0


def walk(file: ScanFile, head: bytes, max_fields: int, starts: Sequence[int] = ()) -> list[Field]:
    """Read the headers of all messages of a file.

    Parameters
    ----------
    head
        Its beginning.
    starts
        Where messages probably begin, ascending: a server is asked for many headers at once.
    """
    window = Window(file, head, starts)
    fields: list[Field] = []
    at = 0
    while (at := _next_message(window, at)) < file.size:
        try:
            stop, found = read_message(window, at)
        except MessageError as error:
            place = Place(source=file.name, start=at, stop=file.size)
            raise SourceFormatError(f"message {len(fields) + 1}: {error}", place) from error
        fields += found
        if len(fields) > max_fields:
            raise SourceFormatError(
                f"the file has more fields than max_objects, {max_fields}", Place(source=file.name)
            )
        at = stop
    return fields


class Window:
    """Bytes of a file, part of it read ahead. Parameters are those of `walk`."""

    def __init__(self, file: ScanFile, head: bytes, starts: Sequence[int] = ()) -> None:
        self.file = file
        self.start, self.data = 0, head
        is_unknown = file.is_remote and not starts
        self.n_bytes = _REMOTE_BYTES if is_unknown else _LOCAL_BYTES
        self._starts = starts if file.is_remote else ()
        self._n_asked = 0

    def take(self, at: int, n_bytes: int) -> bytes:
        first = at - self.start
        if first < 0 or first + n_bytes > len(self.data):
            if at + n_bytes > self.file.size:
                raise MessageError("the file ends inside of it")
            self._ask_ahead(at)
            length = min(max(n_bytes, self.n_bytes), self.file.size - at)
            self.start, self.data = at, self.file.read_many([at], [length])[0]
            first = 0
        return self.data[first : first + n_bytes]

    def _ask_ahead(self, at: int) -> None:
        """Ask for the next headers at once, with the ends before them. The file keeps them."""
        if self._n_asked < len(self._starts) and at >= self._starts[self._n_asked] - 4:
            first = max(bisect_left(self._starts, at), self._n_asked)
            some = self._starts[first : first + _MOST_AHEAD]
            self._n_asked = first + len(some)
            offsets = [max(start - 4, 0) for start in some]
            stops = [min(start + _LOCAL_BYTES, self.file.size) for start in some]
            lengths = [stop - start for start, stop in zip(offsets, stops, strict=True)]
            near = plan_reads(offsets, lengths, Merging(_REMOTE_BYTES, 1 << 20))
            self.file.read_many(near.start.tolist(), (near.stop - near.start).tolist())


def _next_message(window: Window, at: int) -> int:
    """The beginning of the next message; the end of the file if there is none."""
    size, most = window.file.size, limits().gap_bytes
    start = at
    while at < size:
        piece = window.take(at, min(window.n_bytes, size - at))
        found = piece.find(MAGIC)
        if found >= 0:
            return at + found
        at += max(len(piece) - 3, 1) if at + len(piece) < size else len(piece)
        if at - start > most:
            place = Place(source=window.file.name, start=start, stop=at)
            reason = beyond("gap_bytes", f"no message begins in {at - start} bytes")
            raise SourceFormatError(reason, place)
    return size


def read_message(window: Window, at: int) -> tuple[int, list[Field]]:
    """The end of a message, and its fields."""
    head = window.take(at, min(16, window.file.size - at))
    length = total_length(head)
    if head[7] == 1 and length & _HUGE_1:
        length = _huge_length(window, at, length)
    if at + length > window.file.size:
        raise MessageError(f"it has {length} bytes, and the file ends inside of it")
    stop = at + length
    if head[7] == 1:
        fields = [_field_1(window, at, stop)]
    else:
        fields = list(_fields_2(window, at, stop, head[6]))
    if window.take(stop - 4, 4) != b"7777":
        raise MessageError(f"it has {length} bytes, and 7777 is not at its end")
    return stop, fields


def mark_of(identification: bytes, product: bytes = b"", local: bytes = b"") -> int:
    """See `Field.mark`."""
    return zlib.crc32(local, zlib.crc32(product, zlib.crc32(identification)))


# Edition 2


@dataclass(frozen=True, slots=True)
class Header:
    """What a message of edition 2 with one field says before its values.

    Attributes
    ----------
    discipline
        In section 0.
    identification, grid, product
        Sections 1, 3 and 4.
    """

    length: int
    discipline: int
    identification: bytes
    grid: bytes
    product: bytes

    @property
    def claim(self) -> int:
        """See `claim_of`."""
        return claim_of(self.discipline, self.identification, self.grid, self.product)


def read_header(window: Window, at: int) -> Header | None:
    """The sections before section 5; None if they are not as in edition 2, each of them once."""
    head = window.take(at, 16)
    length = total_length(head)
    if head[:4] != MAGIC or head[7] != 2 or at + length > window.file.size:
        return None
    held: dict[int, bytes] = {}
    for number, place, n_bytes in sections(window.take, at + 16, at + length):
        if number == 5:
            break
        if number in held or n_bytes > _LOCAL_BYTES:
            return None
        held[number] = window.take(place, n_bytes)
    else:
        return None
    if not {1, 3, 4} <= held.keys():
        return None
    return Header(length, head[6], held[1], held[3], held[4])


def _fields_2(window: Window, at: int, stop: int, discipline: int) -> Iterator[Field]:
    """The fields of a message; `held` are the sections that hold on for the next one."""
    held: dict[int, bytes] = {}
    end, n_found = at + 16, 0
    for number, place, length in sections(window.take, end, stop):
        end = place + length
        if number in (1, 3, 4, 5):
            if length > limits().header_bytes:
                raise MessageError(beyond("header_bytes", f"section {number} has {length} bytes"))
            held[number] = window.take(place, length)
        elif number == 2:
            held[number] = window.take(place, min(length, _LOCAL_BYTES))
        elif number == 7:
            if any(needed not in held for needed in (1, 3, 4, 5)):
                raise MessageError("a section is missing")
            n_found += 1
            product = _product_2(discipline, held)
            mark = mark_of(held[1], held[4], held.get(2, b""))
            n_bytes = (end if end < stop - 4 else stop) - at
            yield Field(at, n_bytes, 2, held[3], product, mark=mark)
    if end != stop - 4 or not n_found:
        raise MessageError("its sections do not fill it")


def _product_2(discipline: int, held: dict[int, bytes]) -> Product | MessageError:
    packing = int.from_bytes(held[5][9:11], "big")
    if packing not in PACKINGS:
        return MessageError(f"it is packed by template 5.{packing}, which is not decoded")
    try:
        return product_2(discipline, held[1], held[4])
    except MessageError as error:
        return error


# Edition 1


def _field_1(window: Window, at: int, stop: int) -> Field:
    product, place = section_1(window.take, at + 8, stop)
    if len(product) < 28:
        raise MessageError("its product is cut off")
    grid = b""
    what: Product | MessageError
    try:
        what = product_1(product)
    except MessageError as error:
        what = error
    if product[7] & 0x80:
        grid, place = section_1(window.take, place, stop)
    else:
        what = MessageError("it names its grid by a number instead of stating it")
    if product[7] & 0x40:
        place += int.from_bytes(window.take(place, 3), "big")
    data = window.take(place, 11) if place + 15 <= stop else b""
    if not data:
        raise MessageError("its data are missing")
    if data[3] & 0x70:  # the grid says whether they are spherical harmonics
        kind = (
            "second-order packing" if data[3] & 0x40 else f"a packing with the flags {data[3]:#x}"
        )
        what = MessageError(f"it has {kind}, which is not decoded")
    return Field(at, stop - at, 1, grid, what, mark=mark_of(product))


def _huge_length(window: Window, at: int, length: int) -> int:
    """Length of a message beyond 8 MB, by the length that section 4 states instead."""
    place = at + 8
    product = window.take(place, 8)
    place += int.from_bytes(product[:3], "big")
    for flag in (0x80, 0x40):
        if product[7] & flag:
            place += int.from_bytes(window.take(place, 3), "big")
    rest = int.from_bytes(window.take(place, 3), "big")
    whole = (length & (_HUGE_1 - 1)) * 120
    return whole - rest + 4 if rest < 120 else length
