"""Read image file directories (IFDs) of TIFF files, with the codes of their tags.

`read_head` and `read_directories` parse the bytes of a TIFF or BigTIFF file. They return one
`Directory` for each image, with the entries by tag. Long values are decoded by numpy.

Sources: TIFF 6.0, Section 2 "TIFF Structure"; the BigTIFF design
(https://www.awaresystems.be/imaging/tiff/bigtiff.html).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gridref.errors import Place, SourceFormatError
from gridref.io import ScanFile
from gridref.learned import FORMS
from gridref.limits import beyond, limits

# Codes of tags


class Tag(IntEnum):
    """Tags by name. TIFF 6.0, appendix A; GeoTIFF (OGC 19-008), section 7; GDAL's GTiff driver."""

    NEW_SUBFILE_TYPE = 254
    IMAGE_WIDTH = 256
    IMAGE_LENGTH = 257
    BITS_PER_SAMPLE = 258
    COMPRESSION = 259
    PHOTOMETRIC = 262
    FILL_ORDER = 266
    DOCUMENT_NAME = 269
    IMAGE_DESCRIPTION = 270
    STRIP_OFFSETS = 273
    ORIENTATION = 274
    SAMPLES_PER_PIXEL = 277
    ROWS_PER_STRIP = 278
    STRIP_BYTE_COUNTS = 279
    X_RESOLUTION = 282
    Y_RESOLUTION = 283
    PLANAR_CONFIGURATION = 284
    RESOLUTION_UNIT = 296
    T4_OPTIONS = 292
    SOFTWARE = 305
    DATE_TIME = 306
    ARTIST = 315
    HOST_COMPUTER = 316
    PREDICTOR = 317
    COLOR_MAP = 320
    TILE_WIDTH = 322
    TILE_LENGTH = 323
    TILE_OFFSETS = 324
    TILE_BYTE_COUNTS = 325
    SUB_IFDS = 330
    EXTRA_SAMPLES = 338
    SAMPLE_FORMAT = 339
    JPEG_TABLES = 347
    JPEG_INTERCHANGE_FORMAT = 513
    JPEG_INTERCHANGE_FORMAT_LENGTH = 514
    YCBCR_SUBSAMPLING = 530
    REFERENCE_BLACK_WHITE = 532
    IMAGE_DEPTH = 32997
    TILE_DEPTH = 32998
    COPYRIGHT = 33432
    MODEL_PIXEL_SCALE = 33550
    MODEL_TIEPOINT = 33922
    MODEL_TRANSFORMATION = 34264
    GEO_KEY_DIRECTORY = 34735
    GEO_DOUBLE_PARAMS = 34736
    GEO_ASCII_PARAMS = 34737
    GDAL_METADATA = 42112
    GDAL_NODATA = 42113
    LERC_PARAMETERS = 50674


TEXT_TAGS = {
    Tag.DOCUMENT_NAME: "TIFFTAG_DOCUMENTNAME",
    Tag.IMAGE_DESCRIPTION: "TIFFTAG_IMAGEDESCRIPTION",
    Tag.SOFTWARE: "TIFFTAG_SOFTWARE",
    Tag.DATE_TIME: "TIFFTAG_DATETIME",
    Tag.ARTIST: "TIFFTAG_ARTIST",
    Tag.HOST_COMPUTER: "TIFFTAG_HOSTCOMPUTER",
    Tag.COPYRIGHT: "TIFFTAG_COPYRIGHT",
}
"""Tags of text, and the attributes that they become: GDAL's names for them."""

METADATA_TAGS = (
    *TEXT_TAGS,
    Tag.COLOR_MAP,
    Tag.MODEL_PIXEL_SCALE,
    Tag.MODEL_TIEPOINT,
    Tag.MODEL_TRANSFORMATION,
    Tag.GEO_KEY_DIRECTORY,
    Tag.GEO_DOUBLE_PARAMS,
    Tag.GEO_ASCII_PARAMS,
    Tag.GDAL_METADATA,
    Tag.GDAL_NODATA,
)
"""Tags of the first page that become coordinates and attributes."""


# Image file directories (IFDs), parsed from bytes

_DTYPES = {
    1: "u1",
    2: "S1",
    3: "u2",
    4: "u4",
    6: "i1",
    7: "u1",
    8: "i2",
    9: "i4",
    11: "f4",
    12: "f8",
    13: "u4",
    16: "u8",
    17: "i8",
    18: "u8",
}
"""Dtype of each field type. Rationals (5, 10) describe no pixels and are not read."""

_UNSIGNED = frozenset({1, 3, 4, 13, 16, 18})
_NO_NUMBERS = frozenset({2, 5, 7, 10})
"""Texts, fractions and bytes."""
_SIZES = frozenset({Tag.IMAGE_WIDTH, Tag.IMAGE_LENGTH, Tag.SAMPLES_PER_PIXEL, Tag.IMAGE_DEPTH})
_ITEM_BYTES = {code: np.dtype(name).itemsize for code, name in _DTYPES.items()} | {5: 8, 10: 8}
_SEGMENT_TAGS = frozenset(
    {Tag.STRIP_OFFSETS, Tag.STRIP_BYTE_COUNTS, Tag.TILE_OFFSETS, Tag.TILE_BYTE_COUNTS}
)
_WINDOW_BYTES = 16 << 10


class Window:
    """The beginning of a file in memory, which saves requests for most small reads.

    Parameters
    ----------
    head
        Its first bytes, if they have already been read.
    """

    def __init__(self, file: ScanFile, head: bytes = b"") -> None:
        self._file = file
        self._head = head or file.read_many([0], [min(file.size, _WINDOW_BYTES)])[0]
        self.size = file.size

    def read(self, offset: int, length: int) -> bytes:
        stop = offset + length
        if stop > self.size:
            raise SourceFormatError(
                f"a directory or tag value lies behind the end of the file ({self.size} bytes)",
                Place(self._file.name, start=offset, stop=stop),
            )
        if stop <= len(self._head):
            return self._head[offset:stop]
        return self._file.read_many([offset], [length])[0]


@dataclass(frozen=True)
class TiffHead:
    """The content of the first bytes of a file.

    Attributes
    ----------
    big_endian, big
        Byte order, and whether it is a BigTIFF.
    first
        Place of the first directory.
    ndpi
        Whether the offset of a directory takes 8 bytes although the file is no BigTIFF.
    """

    big_endian: bool
    big: bool
    first: int
    ndpi: bool = False

    @property
    def order(self) -> Literal["<", ">"]:
        """Byte order as `struct` and numpy write it."""
        return ">" if self.big_endian else "<"


class Entry(NamedTuple):
    """One tag of a directory, not yet read.

    Attributes
    ----------
    offset
        Place of the values in the file.
    value
        The value of a single unsigned integer that is in the directory itself; else None.
    """

    kind: int
    n_values: int
    offset: int
    n_bytes: int
    value: int | None = None


@dataclass(frozen=True, eq=False)
class Directory:
    """The tags of one image.

    Attributes
    ----------
    entries
        Tags by code; where one stands twice, the first counts.
    """

    offset: int
    entries: Mapping[int, Entry]
    head: TiffHead
    window: Window
    table: _Table

    def facts(self) -> tuple[bytes, ...]:
        """All its content, except the places of strips or tiles."""
        return (
            self.table.alike,
            *(self.window.read(start, n_bytes) for start, n_bytes in self.table.outside),
        )

    def check(self, codes: Iterable[int]) -> None:
        """Refuse tags whose values are beyond the end of the file, or are of an unknown type."""
        for code in codes:
            entry = self.entries.get(code)
            if entry is None:
                continue
            if entry.kind not in _ITEM_BYTES or entry.offset + entry.n_bytes > self.window.size:
                raise SourceFormatError(
                    f"tag {code} claims to have {entry.n_values} values of type {entry.kind}"
                    f" at byte {entry.offset}; the file has {self.window.size} bytes"
                )

    def array(self, code: int) -> NDArray[Any] | None:
        """Values of a tag in native byte order; None if there is none, or not in the file."""
        entry = self.entries.get(code)
        if entry is None or entry.kind not in _DTYPES:
            return None
        if entry.offset + entry.n_bytes > self.window.size:
            return None
        raw = self.window.read(entry.offset, entry.n_bytes)
        values = np.frombuffer(raw, self.head.order + _DTYPES[entry.kind])
        return values.astype(_DTYPES[entry.kind], copy=False)

    def integers(self, code: int, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Values of a tag with few values."""
        entry = self.entries.get(code)
        if entry is None:
            return default
        if entry.value is not None:
            return (entry.value,)
        values = self.array(code)
        return default if values is None else tuple(values.tolist())

    def integer(self, code: int, default: int) -> int:
        """The first value of a tag."""
        entry = self.entries.get(code)
        if entry is None:
            return default
        if entry.value is not None:
            return entry.value
        values = self.integers(code)
        return int(values[0]) if values else default

    def text(self, code: int) -> str | None:
        """The value of a tag of text."""
        entry = self.entries.get(code)
        if entry is None or entry.offset + entry.n_bytes > self.window.size:
            return None
        raw = self.window.read(entry.offset, entry.n_bytes).rstrip(b"\0")
        try:
            return raw.decode("utf-8").strip()
        except UnicodeDecodeError:
            return raw.decode("cp1252", errors="replace").strip()

    def metadata(self) -> dict[int, Any]:
        """Values of the tags in `METADATA_TAGS` that it has."""
        values: dict[int, Any] = {}
        for code in METADATA_TAGS:
            entry = self.entries.get(code)
            if entry is not None:
                value = self.text(code) if entry.kind == 2 else self.array(code)
                if value is not None:
                    values[code] = value
        return values


def is_ndpi(url: str) -> bool:
    """Whether a file is one of Hamamatsu's, by its name alone, as in tifffile."""
    return url.partition("?")[0].lower().endswith(".ndpi")


def read_head(window: Window, *, ndpi: bool = False) -> TiffHead:
    """Parse the header.

    Parameters
    ----------
    window
        The beginning of the file.
    ndpi
        Whether it is a file of Hamamatsu's: nothing else distinguishes its header from that of
        a TIFF file.
    """
    start = window.read(0, min(16, window.size))
    order = {b"II": "<", b"MM": ">"}.get(start[:2])
    if order is None or len(start) < 8:
        raise SourceFormatError("the file does not begin like a TIFF file")
    version = struct.unpack(order + "H", start[2:4])[0]
    if ndpi and start[:4] == b"II*\0" and len(start) >= 12:
        return TiffHead(False, False, struct.unpack("<Q", start[4:12])[0], ndpi=True)
    if version == 42:
        return TiffHead(order == ">", False, struct.unpack(order + "I", start[4:8])[0])
    if version == 43 and len(start) == 16 and start[4:8] == struct.pack(order + "HH", 8, 0):
        return TiffHead(order == ">", True, struct.unpack(order + "Q", start[8:16])[0])
    raise SourceFormatError(f"the file has the unknown TIFF version {version}")


def read_directories(
    window: Window, head: TiffHead, max_directories: int
) -> tuple[list[Directory], bool]:
    """The chain of directories from the first one on.

    Returns
    -------
    tuple
        The directories, and whether these are all: False if the chain leaves the file, comes
        back to itself or is longer than `max_directories`.
    """
    directories: dict[int, Directory] = {}
    offset = head.first
    while offset:
        if offset in directories or len(directories) >= max_directories:
            return list(directories.values()), False
        try:
            directories[offset], offset = _read_directory(window, head, offset)
        except SourceFormatError:
            return list(directories.values()), False
    return list(directories.values()), True


def check_directories(window: Window, head: TiffHead, max_directories: int) -> None:
    """Refuse directories that would cost tifffile endless time or gigabytes of memory.

    The chain may not come back to itself, nor be longer than `max_directories`. A size in one of
    these, or in a directory below them, must be a number.
    """
    seen: set[int] = set()
    below: list[int] = []
    offset = head.first
    while offset:
        if offset in seen:
            raise SourceFormatError(f"the chain of directories comes back to byte {offset}")
        if len(seen) >= max_directories:
            raise SourceFormatError(f"the file has more than {max_directories} directories")
        seen.add(offset)
        offset = _check_directory(window, head, offset, below)
    while below and len(seen) < max_directories:
        offset = below.pop()
        if offset not in seen:
            seen.add(offset)
            below.append(_check_directory(window, head, offset, below))


def _check_directory(window: Window, head: TiffHead, offset: int, below: list[int]) -> int:
    """The offset of the next directory, 0 after the last; adds those below this one.

    tifffile multiplies sizes of any type: a text, or a list of two numbers, times a length of 2**31
    takes gigabytes.
    """
    count_format, count_bytes, entry_bytes = ("Q", 8, 20) if head.big else ("H", 2, 12)
    pointer, width = ("Q", 8) if head.big or head.ndpi else ("I", 4)
    try:
        raw = window.read(offset, count_bytes)
        n_entries = int(struct.unpack(head.order + count_format, raw)[0])
        raw = window.read(offset + count_bytes + n_entries * entry_bytes, width)
    except SourceFormatError:
        return 0
    if 0 < n_entries <= limits().directory_tags:
        directory, _ = _read_directory(window, head, offset)
        for code, entry in directory.entries.items():
            if code in _SIZES and (entry.n_values != 1 or entry.kind in _NO_NUMBERS):
                raise SourceFormatError(
                    f"tag {code}, a size, has {entry.n_values} values of type {entry.kind}"
                )
            if code == Tag.SUB_IFDS and entry.kind in _UNSIGNED:
                below += directory.integers(code)
    return int(struct.unpack(head.order + pointer, raw)[0])


def _read_directory(window: Window, head: TiffHead, offset: int) -> tuple[Directory, int]:
    """One directory, and the offset of the next."""
    count_format, entry_format, width = ("Q", "HHQ", 8) if head.big else ("H", "HHI", 4)
    count_bytes = struct.calcsize("=" + count_format)
    n_entries = struct.unpack(head.order + count_format, window.read(offset, count_bytes))[0]
    if not 0 < n_entries <= limits().directory_tags:
        said = f"a directory at byte {offset} claims to have {n_entries} tags"
        raise SourceFormatError(beyond("directory_tags", said) if n_entries else said)
    start = offset + count_bytes
    entry_bytes = struct.calcsize("=" + entry_format) + width
    raw = window.read(start, n_entries * entry_bytes + width)
    table = _parse_table(raw, start, head.big, head.big_endian)
    return Directory(offset, table.entries, head, window, table), table.following


class _Table(NamedTuple):
    """A directory's bytes, parsed. Similar files have equal ones.

    Attributes
    ----------
    entries
        Tags by code; where one stands twice, the first counts.
    following
        Offset of the next directory.
    alike
        The bytes, without the offsets and sizes of strips or tiles in them.
    outside
        First byte and size of the values of all other tags that are elsewhere.
    """

    entries: Mapping[int, Entry]
    following: int
    alike: bytes
    outside: tuple[tuple[int, int], ...]


@FORMS.remembers
def _parse_table(raw: bytes, start: int, big: bool, big_endian: bool) -> _Table:
    order = ">" if big_endian else "<"
    entry_format, next_format, width = ("HHQ", "Q", 8) if big else ("HHI", "I", 4)
    entry_bytes = struct.calcsize("=" + entry_format) + width
    entries: dict[int, Entry] = {}
    alike, outside = bytearray(raw), []
    inline = -width
    for code, kind, count, value in struct.iter_unpack(
        f"{order}{entry_format}{next_format}", raw[:-width]
    ):
        inline += entry_bytes
        n_bytes = count * _ITEM_BYTES.get(kind, 1)
        values_offset, single = value, None
        if n_bytes <= width:
            values_offset = start + inline
            if count == 1 and kind in _UNSIGNED:
                unused = 8 * (width - n_bytes)
                single = value >> unused if big_endian else value & ((1 << 8 * n_bytes) - 1)
        if code not in entries:
            entries[code] = Entry(kind, count, values_offset, n_bytes, single)
        if code in _SEGMENT_TAGS and n_bytes <= width:
            alike[inline : inline + width] = bytes(width)
        elif code not in _SEGMENT_TAGS and n_bytes > width:
            outside.append((values_offset, n_bytes))
    following = struct.unpack(order + next_format, raw[-width:])[0]
    return _Table(entries, int(following), bytes(alike), tuple(outside))
