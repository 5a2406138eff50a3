"""FITS files: images, whole or compressed by tiles, under the names of their HDUs.

`units` goes through the header and data units (HDUs) of a file. A header is cards of 80 characters
in blocks of 2880 bytes, up to the card END; the data follow at the next block. How many bytes these
are is what the header says.

A compressed image is a binary table with a row for each tile, and tiles in its heap. Where all of
them are compressed in one way without loss, each is a stored chunk. Quantised floats have a scale
and a zero for each tile in the table, and tiles that do not compress may be in another column: the
codec needs the table, so the table and its heap are one stored chunk.

Source: FITS standard 4.0 (IAU, 2018), sections 3 "FITS file organization", 4 "Headers" (4.4.2.5 for
BSCALE, BZERO and BLANK), 5.2.5 "Unsigned integers", 7.3 "Binary-table extension", 8 "World
coordinate systems" and 10 "Representations of compressed data"; the conventions CONTINUE (4.2.1.2)
and HIERARCH; CF conventions 1.11, section 8.1.
"""

from __future__ import annotations

import math
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.codecs.fits import POINTERS
from gridref.errors import Place, ScanError, SourceFormatError, UnsupportedFeatureError
from gridref.extras import needed_for
from gridref.formats.chunks import contiguous_chunks, edge_policy, require_inside
from gridref.formats.location import Location
from gridref.formats.scanner import Findings, ScanOptions
from gridref.io import ScanFile
from gridref.limits import beyond, limits
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Codec, bytes_codec, shared_encoding
from gridref.model.grid import chunk_counts
from gridref.model.manifest import ChunkManifest, Source
from gridref.model.scan_report import Fate

# Images as arrays


_MAX_RANK = 32
PRIMARY = "PRIMARY"


def scan(location: Location, options: ScanOptions) -> VirtualGroup:
    """Describe a file; raises as `gridref.formats.scan` does."""
    return _Scan(location.opened, options).group(location.head)


class _Scan:
    """Describes the units of a file, and notes what became of each."""

    def __init__(self, file: ScanFile, options: ScanOptions) -> None:
        self._file = file
        self._options = options
        self._findings = Findings(file.name)
        self._arrays: dict[str, VirtualArray] = {}
        self._attrs: dict[str, Any] = {}
        self._has_image = False

    def group(self, head: bytes) -> VirtualGroup:
        """All images; the group has the attributes of the primary header."""
        number = 0
        try:
            for unit in units(self._file, head):
                number = unit.number + 1
                if number > self._options.max_objects:
                    raise SourceFormatError(
                        f"it has more HDUs than max_objects, {self._options.max_objects}"
                    )
                self._take(unit)
        except ScanError as error:
            if number == 0:
                raise
            self._findings.refuse(f"/HDU{number}", error)
        report = self._findings.report(self._options)
        if not self._has_image:
            raise UnsupportedFeatureError(
                "it has no image: tables are not read", Place(source=self._file.name)
            )
        return VirtualGroup(self._arrays, attrs=self._attrs, report=report)

    def _take(self, unit: Unit) -> None:
        attrs = attributes_of(unit.cards)
        is_primary = unit.number == 0 or unit.cards.get("ZSIMPLE") is True
        name = self._name(unit, is_primary)
        if is_primary:
            self._attrs |= {key: attrs[key] for key in attrs if not is_of_pixels(key)}
            attrs = {key: attrs[key] for key in attrs if is_of_pixels(key)}
        if unit.kind != "IMAGE" and not unit.is_compressed:
            self._leave_out(unit, name)
            return
        self._has_image |= unit.data_bytes > 0
        with self._findings.refusing(f"/{name}"):
            array = self._image(unit, name, attrs)
            if array is not None:
                self._arrays[name] = array
                self._findings.note(f"/{name}", Fate.TAKEN)
            elif unit.number > 0:
                self._findings.note(f"/{name}", Fate.NAMED, "a header without data")

    def _leave_out(self, unit: Unit, name: str) -> None:
        with self._findings.refusing(f"/{name}"):
            stop = unit.data_offset + unit.data_bytes
            require_inside(self._file.source, unit.data_offset, stop)
            self._findings.note(f"/{name}", Fate.SKIPPED, "tables are not read")

    def _name(self, unit: Unit, is_primary: bool) -> str:
        """``EXTNAME``, with ``EXTVER`` where that is not 1; a name that is there is numbered."""
        stated, version = unit.cards.get("EXTNAME"), unit.cards.get("EXTVER", 1)
        name = PRIMARY if is_primary else f"HDU{unit.number}"
        if isinstance(stated, str) and stated.strip() not in ("", UNNAMED):
            name = stated.strip()
            name = f"{name}_{version}" if type(version) is int and version != 1 else name
        if name not in self._arrays:
            return name
        free = next(new for n in count(1) if (new := f"{name}_{n}") not in self._arrays)
        self._findings.note(f"/{free}", Fate.RENAMED, f"another HDU is named {name!r}, too")
        return free

    def _image(self, unit: Unit, name: str, attrs: Mapping[str, Any]) -> VirtualArray | None:
        """The image of a unit; None if it has no pixels."""
        prefix = "Z" if unit.is_compressed else ""
        shape, bits = image_shape(unit.cards, prefix), bits_of_pixels(unit.cards, prefix)
        if math.prod(shape or (0,)) == 0 and unit.cards.get("GROUPS") is not True:
            return None
        if "/" in name:
            raise UnsupportedFeatureError("its name has a slash, which separates groups")
        if len(shape) > _MAX_RANK:
            raise UnsupportedFeatureError(f"it has {len(shape)} dimensions")
        pixels = pixels_of(unit.cards, bits)
        if not unit.is_compressed:
            self._check_plain(unit, shape, pixels.stored.itemsize)
        fields = {
            "dims": dims_of(len(shape)),
            "attrs": {**attrs, **pixels.packing},
            "fill_value": pixels.fill_value,
        }
        source, most = self._file.source, self._options.max_chunk_bytes
        if unit.is_compressed:
            chunk_shape, manifest, codecs = compressed_chunks(
                unit, shape, pixels.stored, self._file
            )
        else:
            itemsize, start = pixels.stored.itemsize, unit.data_offset
            chunk_shape, manifest = contiguous_chunks(shape, itemsize, source, start, most)
            codecs = (bytes_codec(pixels.stored, big_endian=True),)
        encoding = shared_encoding(
            chunk_shape,
            pixels.dtype,
            (*pixels.codecs, *codecs),
            edge_policy(shape, chunk_shape),
        )
        return VirtualArray.of_one_block(
            shape, pixels.dtype, encoding=encoding, manifest=manifest, **fields
        )

    def _check_plain(self, unit: Unit, shape: tuple[int, ...], itemsize: int) -> None:
        if unit.cards.get("GROUPS") is True and shape[-1:] == (0,):
            raise UnsupportedFeatureError("it holds random groups")
        if math.prod(shape) * itemsize != unit.data_bytes:
            raise SourceFormatError("PCOUNT or GCOUNT says that it holds more than an image")


# Headers


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
_CUT = re.compile(r"\s*'(?P<text>.*)'", re.DOTALL)
"""A text that begins or ends between two quotes that stand for one, as astropy continues it."""
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
    """The shape of an array as numpy has it: the last axis is ``NAXIS1``."""
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
    continued, raw = "", ""
    for start in range(0, len(text), _CARD_BYTES):
        card = text[start : start + _CARD_BYTES]
        keyword = card[:8].rstrip()
        if keyword == "CONTINUE":
            if continued:
                raw = raw[:-1] + _raw_text(card[8:])
                values[continued] = raw.replace("''", "'")
                continued = continued if raw.endswith("&") else ""
            continue
        continued = ""
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
        raw = _raw_text(field) if isinstance(value, str) else ""
        continued = keyword if raw.endswith("&") else ""
    return values | {keyword: "\n".join(each) for keyword, each in lines.items()}


def _raw_text(field: str) -> str:
    """The text in a card, its quotes doubled; empty if it has none."""
    match = _VALUE.match(field)
    match = match if match is not None and match["text"] is not None else _CUT.match(field)
    return "" if match is None else match["text"].rstrip()


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


# What pixels mean: dtype, packing, dimensions and attributes


_PIXEL_DTYPES = {8: "u1", 16: "i2", 32: "i4", 64: "i8", -32: "f4", -64: "f8"}
_UNSIGNED = {(8, -128): "i1", (16, 1 << 15): "u2", (32, 1 << 31): "u4", (64, 1 << 63): "u8"}
"""The dtypes that BITPIX and BZERO stand for where BSCALE is 1."""
_NAMED_AXES = ("z", "y", "x")

_OF_PIXELS = re.compile(
    r"B(UNIT|TYPE|LANK)|DATAM(IN|AX)|EXT(NAME|VER|LEVEL)|WCS(AXES|NAME)[A-Z]?"
    r"|C(TYPE|UNIT|RPIX|RVAL|DELT|ROTA|RDER|SYER|NAME)\d+[A-Z]?|(PC|CD|PV|PS)\d+_\d+[A-Z]?"
    r"|(LONPOLE|LATPOLE|RADESYS|RADECSYS|EQUINOX|EPOCH|SPECSYS|SSYSOBS|SSYSSRC|VELOSYS|ZSOURCE"
    r"|VELANGL|VELREF|RESTFRE?Q|RESTWAV)[A-Z]?|[AB]P?_(ORDER|DMAX|\d+_\d+)"
)
_PACKING = ("scale_factor", "add_offset", "_FillValue")


@dataclass(frozen=True)
class Pixels:
    """The elements of an image.

    Attributes
    ----------
    stored
        Their dtype in the file, in native byte order.
    dtype
        The dtype that they stand for: another one by the conventions for unsigned integers.
    codecs
        The array -> array codecs between both.
    fill_value
        What absent elements of a cube read as.
    packing
        ``scale_factor``, ``add_offset`` and ``_FillValue`` as CF has them.
    """

    stored: np.dtype[Any]
    dtype: np.dtype[Any]
    codecs: tuple[Codec, ...]
    fill_value: Any
    packing: Mapping[str, Any]


def pixels_of(cards: Mapping[str, Any], bits: int) -> Pixels:
    """The elements that a header describes, which are stored in so many bits (BITPIX)."""
    stored = np.dtype(_PIXEL_DTYPES[bits])
    scale, zero = _number(cards, "BSCALE", 1), _number(cards, "BZERO", 0)
    blank = cards.get("BLANK") if bits > 0 else None
    if type(blank) not in (int, type(None)):
        raise SourceFormatError(f"BLANK is {str(blank)[:50]!r}, not an integer")
    unsigned = _UNSIGNED.get((bits, int(zero))) if scale == 1 and zero == int(zero) else None
    if unsigned is not None:
        dtype = np.dtype(unsigned)
        fill = _in(dtype, None if blank is None else blank + int(zero))
        packing = {} if fill is None else {"_FillValue": fill}
        codecs = (_unsigned_codec(stored, dtype, int(zero)),)
        return Pixels(stored, dtype, codecs, dtype.type(0) if fill is None else fill, packing)
    fill = _in(stored, blank)
    packing = {} if fill is None else {"_FillValue": fill}
    if (scale, zero) != (1, 0):  # in the dtype that astropy computes in
        factor = np.float64 if bits in (32, 64, -64) else np.float32
        with np.errstate(over="ignore"):
            packing |= {"scale_factor": factor(scale), "add_offset": factor(zero)}
    if fill is None:
        fill = stored.type(np.nan) if bits < 0 else stored.type(0)
    return Pixels(stored, stored, (), fill, packing)


def _number(cards: Mapping[str, Any], keyword: str, default: int) -> float:
    value = cards.get(keyword, default)
    if type(value) not in (int, float) or not np.isfinite(float(value)):
        raise SourceFormatError(f"{keyword} is {str(value)[:50]!r}, not a number")
    return value  # type: ignore[no-any-return]


def _in(dtype: np.dtype[Any], value: int | None) -> Any:
    """The value as a number of a dtype; None if it is none, so that no pixel can have it."""
    known = value is not None and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max
    return dtype.type(value) if known else None


def _unsigned_codec(stored: np.dtype[Any], dtype: np.dtype[Any], zero: int) -> Codec:
    """Adds BZERO; what numcodecs computes in float64 is exact up to 32 bits."""
    if dtype.itemsize == 8:
        return Codec("gridref.fits_unsigned")
    little = {"dtype": dtype.newbyteorder("<").str, "astype": stored.newbyteorder("<").str}
    return Codec.of("numcodecs.fixedscaleoffset", offset=zero, scale=1, **little)


def dims_of(n_axes: int) -> tuple[str, ...]:
    """``z``, ``y``, ``x`` for the last three axes, as kerchunk names them; then ``axis4``."""
    further = tuple(f"axis{number}" for number in range(n_axes, len(_NAMED_AXES), -1))
    return further + _NAMED_AXES[max(0, len(_NAMED_AXES) - n_axes) :]


def attributes_of(cards: Mapping[str, Any]) -> dict[str, Any]:
    """All keywords but those that say how the data are stored."""
    attrs = {
        keyword: value
        for keyword, value in cards.items()
        if not is_of_storage(keyword) and keyword not in _PACKING
    }
    if attrs.get("EXTNAME") == UNNAMED:
        del attrs["EXTNAME"]
    return attrs


@lru_cache(maxsize=4096)
def is_of_pixels(keyword: str) -> bool:
    """Whether a keyword describes the array of its HDU, not the file: WCS, SIP, units."""
    return _OF_PIXELS.fullmatch(keyword) is not None


# Compressed tiles


_FORM = re.compile(r"(\d{0,9})([LXBIJKAEDCMPQ])(.*)", re.DOTALL)
_TARGET = re.compile(r"\(?([LXBIJKAEDCM])")
_SIZES = {"L": 1, "B": 1, "A": 1, "I": 2, "J": 4, "K": 8, "E": 4, "D": 8, "C": 8, "M": 16}
_TILES, _ELSEWHERE = "COMPRESSED_DATA", ("GZIP_COMPRESSED_DATA", "UNCOMPRESSED_DATA")
_OF_TILES = ("ZSCALE", "ZZERO", "ZBLANK")
_DITHERS = {
    "NONE": 0,
    "NO_DITHER": 0,
    "SUBTRACTIVE_DITHER_1": 1,
    "SUBTRACTIVE_DITHER_2": 2,
}
_MAX_SEED = 10_000
_MAX_FIELDS = 999

type Chunks = tuple[tuple[int, ...], ChunkManifest, tuple[Codec, ...]]
"""Chunk shape, chunks, and the codecs from the array -> bytes codec on."""


@dataclass(frozen=True)
class _Column:
    """A column of the table.

    Attributes
    ----------
    offset
        First byte in a row.
    code
        The letter of its elements; of an array in the heap, that of the array's.
    pointer
        ``P`` or ``Q`` for a descriptor of an array in the heap; else empty.
    """

    offset: int
    code: str
    pointer: str

    def to_json(self) -> list[Any]:
        return [self.offset, self.code, self.pointer]


@dataclass(frozen=True)
class _Table:
    """The table of a unit.

    Attributes
    ----------
    row_bytes, n_rows
        Its rows, one for each tile.
    heap
        First byte of the heap, from that of the table.
    columns
        By name, in capitals.
    """

    row_bytes: int
    n_rows: int
    heap: int
    columns: Mapping[str, _Column]


def _table(unit: Unit) -> _Table:
    cards = unit.cards
    row_bytes, n_rows = integer(cards, "NAXIS1"), integer(cards, "NAXIS2")
    heap = integer(cards, "THEAP", row_bytes * n_rows)
    if not row_bytes * n_rows <= heap <= unit.data_bytes:
        raise SourceFormatError(f"its heap begins at byte {heap} of {unit.data_bytes}")
    n_fields = integer(cards, "TFIELDS")
    if not 0 < n_fields <= _MAX_FIELDS:
        raise SourceFormatError(f"its table has {n_fields} columns")
    columns, at = dict[str, _Column](), 0
    for number in range(1, n_fields + 1):
        column, n_bytes = _column(at, str(cards.get(f"TFORM{number}", "")).strip())
        columns.setdefault(str(cards.get(f"TTYPE{number}", "")).strip().upper(), column)
        at += n_bytes
    if at != row_bytes:
        raise SourceFormatError(f"its columns take {at} bytes of rows of {row_bytes}")
    return _Table(row_bytes, n_rows, heap, columns)


def _column(offset: int, form: str) -> tuple[_Column, int]:
    """A column of a TFORM, and its bytes in a row."""
    match = _FORM.fullmatch(form)
    if match is None:
        raise SourceFormatError(f"a column has the format {form[:50]!r}")
    repeat, code = int(match[1] or 1), match[2]
    if code in POINTERS:
        target = _TARGET.match(match[3])
        if target is None:
            raise SourceFormatError(f"a column has the format {form[:50]!r}")
        n_bytes = repeat * 2 * np.dtype(POINTERS[code]).itemsize
        return _Column(offset, target[1], code), n_bytes
    n_bytes = -(-repeat // 8) if code == "X" else repeat * _SIZES[code]
    return _Column(offset, code, ""), n_bytes


def compressed_chunks(
    unit: Unit, shape: tuple[int, ...], dtype: np.dtype[Any], file: ScanFile
) -> Chunks:
    """The chunks of an image of a shape, and the stored dtype of its pixels."""
    require_inside(file.source, unit.data_offset, unit.data_offset + unit.data_bytes)
    table = _table(unit)
    tile = _tile_shape(unit.cards, shape)
    n_tiles = math.prod(chunk_counts(shape, tile))
    if n_tiles > limits().chunk_rows:
        raise UnsupportedFeatureError(beyond("chunk_rows", f"an image of {n_tiles} tiles"))
    if table.n_rows != n_tiles:
        raise SourceFormatError(f"its table has {table.n_rows} rows for {n_tiles} tiles")
    if _TILES not in table.columns or not table.columns[_TILES].pointer:
        raise SourceFormatError(f"its table has no column {_TILES}")
    compression = _Compression.of(unit.cards, dtype, tile)
    if any(name in table.columns for name in _OF_TILES):
        return _as_one_chunk(unit, table, shape, tile, compression, dtype, file.source)
    if dtype.kind == "f" and not compression.keeps_floats:
        raise UnsupportedFeatureError(f"{compression.name} compresses no floats by itself")
    places = _places(unit, table, file)
    if (places.length == 0).any():
        if not any(name in table.columns for name in _ELSEWHERE):
            raise SourceFormatError("its table has tiles without data")
        return _as_one_chunk(unit, table, shape, tile, compression, dtype, file.source)
    codecs = compression.codecs
    if compression.name.startswith("GZIP"):
        stored = _gzipped_dtype(dtype, tile, places, file)
        codecs = _Compression.of(unit.cards, stored, tile).codecs
        if stored != dtype:
            codecs = (Codec.of("cast_value", data_type=stored.name), *codecs)
    return tile, places, codecs


def _gzipped_dtype(
    dtype: np.dtype[Any], tile: tuple[int, ...], places: ChunkManifest, file: ScanFile
) -> np.dtype[Any]:
    """The dtype of pixels in gzip streams: early versions of fpack made int32 of all integers.

    The last four bytes of a stream are the size of what it holds.
    """
    if not places.n_rows:
        return dtype
    end = int(places.offset[0] + places.length[0])
    (size,) = file.read_many([max(0, end - 4)], [4])
    width, rest = divmod(int.from_bytes(size, "little"), math.prod(tile))
    if rest or width not in (1, 2, 4, 8) or (dtype.kind == "f" and width != dtype.itemsize):
        raise UnsupportedFeatureError(f"its tiles hold {width} bytes for a pixel of {dtype}")
    return dtype if width == dtype.itemsize else np.dtype("u1" if width == 1 else f"i{width}")


def _tile_shape(cards: Mapping[str, Any], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a tile, by default a row of pixels."""
    n_axes = len(shape)
    tile = []
    for number, extent in zip(range(n_axes, 0, -1), shape, strict=True):
        length = integer(cards, f"ZTILE{number}", extent if number == 1 else 1)
        if length < 1:
            raise SourceFormatError(f"its tiles have the length {length} along an axis")
        tile.append(min(length, extent))
    return tuple(tile)


def _places(unit: Unit, table: _Table, file: ScanFile) -> ChunkManifest:
    """The place of each tile in the heap."""
    column = table.columns[_TILES]
    n_bytes = table.row_bytes * table.n_rows
    rows = np.frombuffer(file.read_many([unit.data_offset], [n_bytes])[0], np.uint8)
    pointer = np.dtype(POINTERS[column.pointer])
    fields = rows.reshape(table.n_rows, table.row_bytes)[:, column.offset :]
    pairs = np.ascontiguousarray(fields[:, : 2 * pointer.itemsize]).view(pointer).astype(np.int64)
    length, offset = pairs[:, 0], pairs[:, 1]
    held, itemsize = unit.data_bytes - table.heap, _SIZES.get(column.code, 0)
    if itemsize not in (1, 2, 4) or (pairs < 0).any() or (length > held // itemsize).any():
        raise SourceFormatError("its table has tiles that are not in the heap")
    length = length * itemsize
    if (offset > held - length)[length > 0].any():
        raise SourceFormatError("its table has tiles that are not in the heap")
    first = unit.data_offset + table.heap
    return ChunkManifest.from_columns([file.source], offset=first + offset, length=length)


@dataclass(frozen=True)
class _Compression:
    """How tiles are compressed.

    Attributes
    ----------
    name
        ``ZCMPTYPE``.
    codecs
        Codecs of tiles that are compressed without loss.
    settings
        What a codec of all tiles must know.
    keeps_floats
        Whether it takes floats as they are.
    """

    name: str
    codecs: tuple[Codec, ...]
    settings: Mapping[str, int]
    keeps_floats: bool = False

    @classmethod
    def of(
        cls, cards: Mapping[str, Any], dtype: np.dtype[Any], tile: tuple[int, ...]
    ) -> _Compression:
        name = str(cards.get("ZCMPTYPE", "")).strip()
        plain = bytes_codec(dtype, big_endian=True)
        shuffle = Codec.of("numcodecs.shuffle", elementsize=dtype.itemsize)
        gzip = Codec.of("gzip", level=5)
        match name:
            case "NOCOMPRESS":
                return cls(name, (plain,), {}, keeps_floats=True)
            case "GZIP_1":
                return cls(name, (plain, gzip), {}, keeps_floats=True)
            case "GZIP_2":
                shuffles = (shuffle,) if dtype.itemsize > 1 else ()
                return cls(name, (plain, *shuffles, gzip), {}, keeps_floats=True)
            case "RICE_1" | "RICE_ONE":
                return _rice(cards, dtype)
            case "PLIO_1":
                return cls(name, (Codec.of("gridref.fits_plio"),), {})
            case "HCOMPRESS_1":
                if sum(length > 1 for length in tile) > 2:
                    raise SourceFormatError(f"its tiles of shape {tile} are no planes")
                smooth = int(bool(_setting(cards, "SMOOTH", 0)))
                return cls(
                    name, (Codec.of("imagecodecs_hcomp", smooth=smooth),), {"smooth": smooth}
                )
        raise UnsupportedFeatureError(f"no codec decodes its compression {name[:50]!r}")


def _rice(cards: Mapping[str, Any], dtype: np.dtype[Any]) -> _Compression:
    block, width = _setting(cards, "BLOCKSIZE", 32), _setting(cards, "BYTEPIX", 4)
    if type(block) is not int or not 1 <= block <= 1 << 16 or width not in (1, 2, 4):
        raise UnsupportedFeatureError(f"RICE_1 with blocks of {block!r} pixels of {width!r} bytes")
    codecs: tuple[Codec, ...] = (Codec.of("imagecodecs_rcomp", nblock=block),)
    if width != dtype.itemsize:
        codecs = (Codec.of("cast_value", data_type=f"int{8 * width}"), *codecs)
    return _Compression("RICE_1", codecs, {"block": block, "width": width})


def _setting(cards: Mapping[str, Any], name: str, default: int) -> Any:
    """A parameter of the compression: ``ZVALn`` of the ``ZNAMEn`` that is its name."""
    for number in range(1, _MAX_FIELDS + 1):
        found = cards.get(f"ZNAME{number}")
        if found is None:
            break
        if str(found).strip().upper() == name:
            return cards.get(f"ZVAL{number}", default)
    return default


def _as_one_chunk(
    unit: Unit,
    table: _Table,
    shape: tuple[int, ...],
    tile: tuple[int, ...],
    compression: _Compression,
    dtype: np.dtype[Any],
    source: Source,
) -> Chunks:
    """The table with its heap as the only chunk."""
    n_bytes = math.prod(shape) * dtype.itemsize
    if n_bytes > limits().decoded_bytes:
        raise UnsupportedFeatureError(beyond("decoded_bytes", f"an image of {n_bytes} bytes"))
    of_tiles = [name for name in _OF_TILES if name in table.columns]
    is_quantised = of_tiles[:2] == ["ZSCALE", "ZZERO"] and dtype.kind == "f"
    if of_tiles and not is_quantised:
        named = " and ".join(of_tiles)
        raise UnsupportedFeatureError(f"pixels of dtype {dtype} have {named} for each tile")
    known = (_TILES, *_ELSEWHERE, *_OF_TILES)
    columns = {name: table.columns[name].to_json() for name in known if name in table.columns}
    codec = Codec.of(
        "gridref.fits_tiles",
        row_bytes=table.row_bytes,
        heap=table.heap,
        columns=columns,
        tile=tile,
        compression=compression.name,
        **compression.settings,
        **(_quantisation(unit.cards) if is_quantised else {}),
    )
    manifest = ChunkManifest.from_columns(
        [source], offset=[unit.data_offset], length=[unit.data_bytes]
    )
    return shape, manifest, (codec,)


def _quantisation(cards: Mapping[str, Any]) -> dict[str, int]:
    """What all tiles of quantised floats share: dithering, the integer of undefined pixels."""
    method = str(cards.get("ZQUANTIZ", "NO_DITHER")).strip()
    if method not in _DITHERS:
        raise UnsupportedFeatureError(f"ZQUANTIZ is {method[:50]!r}")
    found = {}
    if _DITHERS[method]:
        found = {"dither": _DITHERS[method], "seed": integer(cards, "ZDITHER0")}
        if not 1 <= found["seed"] <= _MAX_SEED:
            raise SourceFormatError(f"ZDITHER0 is {found['seed']}, not 1 to {_MAX_SEED}")
    if "ZBLANK" in cards or "BLANK" in cards:
        found["blank"] = integer(cards, "ZBLANK" if "ZBLANK" in cards else "BLANK")
    return found


# The file in astropy, for `verify`


class OriginalImages:
    """A file that is open in astropy.

    Parameters
    ----------
    file
        The file, which is closed with this.

    Raises
    ------
    UnsupportedFeatureError
        If astropy cannot open it.
    """

    def __init__(self, file: ScanFile) -> None:
        with needed_for("comparing with FITS files"):
            from astropy.io import fits
        self._file = file
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._hdus = fits.open(
                    file, mode="readonly", memmap=False, do_not_scale_image_data=True
                )
                self._starts = [hdu.fileinfo()["datLoc"] for hdu in self._hdus]
        except Exception as error:
            raise UnsupportedFeatureError(f"astropy cannot open its source: {error}") from error

    def number_at(self, offset: int | None) -> int:
        """The number of the HDU whose data hold a byte."""
        number = -1 if offset is None else bisect_right(self._starts, offset) - 1
        if number < 0:
            raise UnsupportedFeatureError("it is in no HDU of its source")
        return number

    def shape(self, number: int) -> tuple[int, ...]:
        """Shape of an image."""
        return tuple(self._hdus[number].shape)

    def read(self, number: int, region: tuple[slice, ...]) -> NDArray[Any]:
        """Elements of an image; unsigned ones by FITS' convention."""
        hdu = self._hdus[number]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                values = np.asarray(hdu.section[region])
        except Exception as error:
            raise UnsupportedFeatureError(f"astropy cannot read it: {error}") from error
        values = values.astype(values.dtype.newbyteorder("="))
        zero = hdu.header.get("BZERO", 0)
        if values.dtype.kind == "f" or hdu.header.get("BSCALE", 1) != 1:
            return values
        if zero == -128 and values.dtype == np.uint8:
            return (values ^ np.uint8(0x80)).view(np.int8)
        top = 1 << 8 * values.dtype.itemsize - 1
        if zero != top or values.dtype.kind == "u":
            return values
        unsigned = values.view(f"u{values.dtype.itemsize}")
        flipped: NDArray[Any] = unsigned ^ unsigned.dtype.type(top)
        return flipped

    def close(self) -> None:
        """Close the file."""
        self._hdus.close()
        self._file.close()
