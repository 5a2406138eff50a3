"""Read the boxes of a JP2 file: its codestream, georeference and palette.

Source: ITU-T T.800 (2015), annex I (JP2); OGC 08-085r8 (GMLJP2), clause 8; the GeoJP2
specification 1.0 (a UUID box with a GeoTIFF file of one pixel).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gridref.codecs.jpeg2000 import SOC, Read
from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.io import ScanFile
from gridref.limits import beyond, limits

_GEOJP2 = bytes.fromhex("b14bf8bd083d4b43a5ae8cd7d5a6ce03")
_GML = [b"gml.data", b"gml.root-instance"]
"""Labels of the boxes around the GML document."""


@dataclass(frozen=True)
class Boxes:
    """What the boxes of a file hold.

    Attributes
    ----------
    start, stop
        The first codestream.
    geotiff
        The file of the GeoJP2 box; empty if there is none.
    gml
        The document of GMLJP2; empty if there is none.
    palette
        Colours, a row for each column of the palette; None if there is none.
    """

    start: int
    stop: int
    geotiff: bytes = b""
    gml: bytes = b""
    palette: NDArray[np.uint16] | None = None


def reader_of(file: ScanFile) -> Read:
    """Read bytes of a file, fewer at its end."""

    def read(at: int, n_bytes: int) -> bytes:
        n_bytes = min(n_bytes, file.size - at)
        return file.read_many([at], [n_bytes])[0] if n_bytes > 0 else b""

    return read


type _Box = tuple[bytes, int, int]
"""Type, and where the contents begin and end."""


def read_boxes(read: Read, size: int, max_objects: int) -> Boxes:
    """Read the boxes of a file of so many bytes, which may be a codestream without any.

    Raises
    ------
    SourceFormatError
        If there is no codestream.
    UnsupportedFeatureError
        If there are too many boxes, or one with a georeference is too long.
    """
    if read(0, 2) == struct.pack(">H", SOC):
        return Boxes(0, size)
    start = stop = 0
    geotiff, gml, palette = b"", b"", None
    for number, (kind, first, last) in enumerate(_boxes(read, 0, size)):
        if number >= max_objects:
            raise UnsupportedFeatureError(f"it has more than {max_objects} boxes")
        if kind == b"jp2c" and not stop:
            start, stop = first, last
        elif kind == b"uuid" and read(first, 16) == _GEOJP2:
            geotiff = geotiff or _contents(read, first + 16, last)
        elif kind == b"asoc":
            gml = gml or _labelled(_contents(read, first, last))
        elif kind == b"jp2h":
            palette = _palette(_contents(read, first, last))
    if not stop:
        raise SourceFormatError("none of its boxes is a codestream")
    return Boxes(start, stop, geotiff, gml, palette)


def _boxes(read: Read, at: int, stop: int) -> Iterator[_Box]:
    """The boxes one after the other, up to a damaged one; the last one may be cut off."""
    while at + 8 <= stop:
        length, kind = struct.unpack(">I4s", read(at, 8))
        first = at + 8
        if length == 1:
            (length,) = struct.unpack(">Q", read(first, 8).rjust(8, b"\0"))
            first += 8
        last = at + length if length else stop
        if last < first:
            return
        yield kind, first, min(last, stop)
        at = last


def _contents(read: Read, start: int, stop: int) -> bytes:
    if stop - start > limits().xml_characters:
        raise UnsupportedFeatureError(beyond("xml_characters", f"a box of {stop - start} bytes"))
    return read(start, stop - start)


def _inside(data: bytes) -> dict[bytes, bytes]:
    """The boxes in one, the first of each type."""
    found: dict[bytes, bytes] = {}
    for kind, first, last in _boxes(lambda at, n: data[at : at + n], 0, len(data)):
        found.setdefault(kind, data[first:last])
    return found


def _labelled(data: bytes) -> bytes:
    """The GML document in an association; empty if it is another one."""
    for label in _GML:
        inside = _inside(data)
        if inside.get(b"lbl ", b"").rstrip(b"\0") != label:
            return b""
        data = inside.get(b"asoc", data)
    return _inside(data).get(b"xml ", b"")


def _palette(data: bytes) -> NDArray[np.uint16] | None:
    """The palette in the header box (T.800, I.5.3.4); None if there is none."""
    box = _inside(data).get(b"pclr", b"")
    if len(box) < 3:
        return None
    n_entries, n_columns = int.from_bytes(box[:2], "big"), box[2]
    widths = [-(-((bits & 127) + 1) // 8) for bits in box[3 : 3 + n_columns]]
    entries = box[3 + n_columns :]
    if set(widths) == {1} and len(widths) == n_columns:
        colours = np.frombuffer(entries, np.uint8, min(len(entries), n_entries * n_columns))
        if colours.size == n_entries * n_columns:
            return colours.reshape(n_entries, n_columns).T.astype(np.uint16)
    return None
