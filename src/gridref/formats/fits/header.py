"""Read the header and data units (HDUs) of a FITS file: cards, and the places of data.

`units` goes through a file. A header is cards of 80 characters in blocks of 2880 bytes, up to the
card END; the data follow at the next block. How many bytes these are is what the header says.

Source: FITS standard 4.0 (IAU, 2018), sections 3 "FITS file organization" and 4 "Headers"; the
conventions CONTINUE (4.2.1.2) and HIERARCH.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gridref.errors import Place, SourceFormatError, UnsupportedFeatureError
from gridref.io import ScanFile
from gridref.limits import beyond, limits

BLOCK_BYTES = 2880
_CARD_BYTES = 80
_MAX_AXES = 999
_MAX_BYTES = 1 << 62
_BITPIX = (8, 16, 32, 64, -32, -64)
_TEXTS, _SUMS = ("COMMENT", "HISTORY"), ("CHECKSUM", "DATASUM")

_OF_STORAGE = re.compile(
    r"SIMPLE|XTENSION|BITPIX|NAXIS\d*|PCOUNT|GCOUNT|GROUPS|EXTEND|BLOCKED|BSCALE|BZERO"
    r"|CHECKSUM|DATASUM|TFIELDS|THEAP|(TTYPE|TFORM|TUNIT|TNULL|TSCAL|TZERO|TDISP|TDIM|TBCOL)\d+"
    r"|Z(IMAGE|SIMPLE|TENSION|BITPIX|NAXIS\d*|EXTEND|BLOCKED|PCOUNT|GCOUNT|HECKSUM|DATASUM|TILE\d+"
    r"|CMPTYPE|NAME\d+|VAL\d+|MASKCMP|QUANTIZ|DITHER0|BLANK|SCALE|ZERO)"
)
_VALUE = re.compile(
    r"\s*(?:'(?P<text>(?:''|[^'])*)'|(?P<plain>[^/]*?))\s*(?:/.*)?$",
    re.DOTALL,
)
_INTEGER = re.compile(r"[+-]?\d{1,300}")
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([EDed][+-]?\d+)?")
_MAX_INTEGER = 1 << 63
UNNAMED = "COMPRESSED_IMAGE"
"""``EXTNAME`` of compressed images that have none; a name of their own may follow it."""


@dataclass(frozen=True)
class Unit:
    """A header and data unit.

    Attributes
    ----------
    number
        Counted from 0, the primary HDU.
    cards
        Values by keyword; of a keyword that is there twice the first, as in astropy. Lines of
        ``COMMENT`` and ``HISTORY`` are joined.
    data_offset, data_bytes
        Place of its data, without padding.
    """

    number: int
    cards: Mapping[str, Any]
    data_offset: int
    data_bytes: int

    @property
    def kind(self) -> str:
        """``IMAGE``, ``BINTABLE`` and so on."""
        return "IMAGE" if self.number == 0 else str(self.cards.get("XTENSION", "")).rstrip()

    @property
    def is_compressed(self) -> bool:
        """Whether it is a table that holds the tiles of an image."""
        return self.kind == "BINTABLE" and self.cards.get("ZIMAGE") is True


@lru_cache(maxsize=4096)
def is_of_storage(keyword: str) -> bool:
    """Whether a keyword says how the data of its unit are stored."""
    return _OF_STORAGE.fullmatch(keyword) is not None


def integer(cards: Mapping[str, Any], keyword: str, default: int | None = None) -> int:
    """The value of a keyword that is an integer."""
    value = cards.get(keyword, default)
    if type(value) is not int:
        state = "is missing" if value is None else f"is {str(value)[:50]!r}, not an integer"
        raise SourceFormatError(f"the keyword {keyword} {state}")
    return value


def image_shape(cards: Mapping[str, Any], prefix: str = "") -> tuple[int, ...]:
    """The shape of an array as numpy has it: the last axis is ``NAXIS1``.

    Raises
    ------
    SourceFormatError
        For a number of axes, or a length, that cannot be.
    """
    n_axes = integer(cards, f"{prefix}NAXIS")
    if not 0 <= n_axes <= _MAX_AXES:
        raise SourceFormatError(f"{n_axes} axes are declared")
    shape = tuple(integer(cards, f"{prefix}NAXIS{n}") for n in range(n_axes, 0, -1))
    if min(shape, default=0) < 0:
        raise SourceFormatError(f"the shape {shape} is declared")
    return shape


def bits_of_pixels(cards: Mapping[str, Any], prefix: str = "") -> int:
    """``BITPIX``: bits of an integer, or of a float as a negative number."""
    bits = integer(cards, f"{prefix}BITPIX")
    if bits not in _BITPIX:
        raise SourceFormatError(f"{prefix}BITPIX is {bits}, which is none of {_BITPIX}")
    return bits


def units(file: ScanFile, head: bytes) -> Iterator[Unit]:
    """The units of a file; `head` is its beginning.

    Yields
    ------
    Unit
        In the order of the file.

    Raises
    ------
    SourceFormatError
        If a header is damaged or cut off, or says two things of how data are stored.
    UnsupportedFeatureError
        If something else than a unit follows the last one.
    """
    number = offset = 0
    while offset < file.size:
        if number > 0 and not _is_extension(file, offset):
            return
        cards, data_offset = _header(file, head, offset)
        if number == 0 and cards.get("SIMPLE") is not True:
            raise UnsupportedFeatureError("SIMPLE is not T: the file does not follow the standard")
        unit = Unit(number, cards, data_offset, _data_bytes(cards))
        yield unit
        stop = data_offset + unit.data_bytes
        offset = -(-stop // BLOCK_BYTES) * BLOCK_BYTES
        number += 1
        if stop <= file.size < offset:
            place = Place(source=file.name, start=stop, stop=offset)
            raise SourceFormatError("the file is cut off in the padding of its last block", place)


def _is_extension(file: ScanFile, offset: int) -> bool:
    """Whether an extension begins at a byte, not only padding."""
    block = file.read_many([offset], [min(BLOCK_BYTES, file.size - offset)])[0]
    if b"XTENSION".startswith(block[:8]):
        return True
    if block.strip(b"\0 "):
        place = Place(source=file.name, start=offset, stop=file.size)
        raise UnsupportedFeatureError("what follows the last HDU is no extension", place)
    return False


def _data_bytes(cards: Mapping[str, Any]) -> int:
    """Bytes of data by equation 2 of the standard (section 4.4.1.2)."""
    shape = image_shape(cards)
    if not shape:
        return 0
    is_groups = cards.get("GROUPS") is True and shape[-1] == 0
    n_elements = math.prod(shape[:-1] if is_groups else shape)
    parameters, groups = integer(cards, "PCOUNT", 0), integer(cards, "GCOUNT", 1)
    n_bytes = abs(bits_of_pixels(cards)) // 8 * groups * (parameters + n_elements)
    if not 0 <= n_bytes <= _MAX_BYTES:
        raise SourceFormatError(f"{n_bytes} bytes of data are declared")
    return n_bytes


def _header(file: ScanFile, head: bytes, offset: int) -> tuple[dict[str, Any], int]:
    """The cards of a header that begins at a byte, and where its data begin."""
    data, length = b"", 2 * BLOCK_BYTES
    while True:
        stop = min(offset + length, file.size)
        if stop <= len(head):
            data = head[offset:stop]
        else:
            start = offset + len(data)
            data += file.read_many([start], [stop - start])[0]
        end = _end_card(data)
        place = Place(source=file.name, start=offset, stop=stop)
        if end is not None:
            data_offset = offset + -(-(end + _CARD_BYTES) // BLOCK_BYTES) * BLOCK_BYTES
            if data[end : data_offset - offset].strip(b" ") != b"END":
                raise SourceFormatError("something follows the card END", place)
            if data_offset > file.size:
                raise SourceFormatError("the header is cut off in its last block", place)
            return _cards(data[:end].decode("latin-1")), data_offset
        if stop == file.size:
            raise SourceFormatError("the header is cut off: it has no END", place)
        length *= 2
        if length > limits().header_bytes:
            raise SourceFormatError(beyond("header_bytes", f"{length} bytes without END"), place)


def _end_card(data: bytes) -> int | None:
    """The first byte of the card END."""
    at = data.find(b"END     ")
    while at >= 0:
        if at % _CARD_BYTES == 0:
            return at
        at = data.find(b"END     ", at + 1)
    return None


def _cards(text: str) -> dict[str, Any]:
    """Values by keyword."""
    values: dict[str, Any] = {}
    lines: dict[str, list[str]] = {}
    continued: str | None = None
    for start in range(0, len(text), _CARD_BYTES):
        card = text[start : start + _CARD_BYTES]
        keyword = card[:8].rstrip()
        if keyword == "CONTINUE":
            if continued is not None:
                more = str(_value(card[8:]) or "")
                values[continued] = values[continued][:-1] + more
                continued = continued if more.endswith("&") else None
            continue
        continued = None
        if keyword in _TEXTS:
            lines.setdefault(keyword, []).append(card[8:].rstrip())
            continue
        if keyword == "HIERARCH" and "=" in card:
            keyword, _, field = card[8:].partition("=")
            keyword = keyword.strip()
        elif card[8:9] == "=":
            field = card[9:]
        elif is_of_storage(keyword):
            raise SourceFormatError(f"the keyword {keyword} has no value")
        else:
            continue
        value = _value(field)
        if value is None and is_of_storage(keyword) and keyword not in _SUMS:
            raise SourceFormatError(f"the keyword {keyword} has no value")
        is_known = keyword in values and (keyword, values[keyword]) != ("EXTNAME", UNNAMED)
        is_contradiction = is_known and value != values[keyword]
        if is_contradiction and is_of_storage(keyword) and keyword not in _SUMS:
            raise SourceFormatError(f"the keyword {keyword} has two values")
        if value is None or not keyword or is_known:
            continue
        values[keyword] = value
        if isinstance(value, str) and value.endswith("&"):
            continued = keyword
    return values | {keyword: "\n".join(each) for keyword, each in lines.items()}


def _value(field: str) -> Any:
    """The value in a card; None if it has none. What is no value of FITS stays a text."""
    match = _VALUE.match(field)
    if match is None:
        return field.strip()
    if match["text"] is not None:
        return match["text"].replace("''", "'").rstrip()
    plain = match["plain"].strip()
    if plain in ("T", "F"):
        return plain == "T"
    if _INTEGER.fullmatch(plain):
        number = int(plain)
        return number if -_MAX_INTEGER <= number <= _MAX_INTEGER else float(number)
    if _FLOAT.fullmatch(plain):
        return float(plain.upper().replace("D", "E"))
    return plain or None
