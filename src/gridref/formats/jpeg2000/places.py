"""Read the georeference of a JP2 file: GeoJP2, or else GMLJP2.

Sources: the GeoJP2 specification 1.0; OGC 08-085r8 (GMLJP2); GDAL's ``gdaljp2metadata.cpp`` for the
order of axes, where files and standards differ.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as ET

from gridref.errors import ScanError
from gridref.formats.georeference import Affine, Georeference, grid_mapping
from gridref.formats.jpeg2000.boxes import Boxes
from gridref.formats.tiff.directory import METADATA_TAGS, Window, read_directories, read_head
from gridref.formats.tiff.geo import georeference_of as georeference_of_tags
from gridref.learned import FORMS

_EPSG = re.compile(
    r"(epsg:|urn:(?:x-)?ogc:def:crs:epsg:[^:]*:|https?://www\.opengis\.net/def/crs/epsg/[^/]*/)"
    r"(\d{1,6})",
    re.IGNORECASE,
)
_EAST, _NORTH = ("east", "long"), ("north", "lat")


def georeference_of(boxes: Boxes) -> Georeference | None:
    """The georeference of a file; None if there is none. What is damaged is left out."""
    geotiff = _of_geotiff(boxes.geotiff) if boxes.geotiff else None
    if geotiff is not None and (geotiff.affine or geotiff.crs):
        return geotiff
    return (_of_gml(boxes.gml) if boxes.gml else None) or geotiff


class _Held(Window):
    """A TIFF file in memory."""

    def __init__(self, data: bytes) -> None:
        self._data, self.size = data, len(data)

    def read(self, offset: int, length: int) -> bytes:
        part = self._data[offset : offset + length]
        if len(part) < length:
            raise ScanError("the GeoJP2 box is cut off")
        return part


def _of_geotiff(data: bytes) -> Georeference | None:
    try:
        window = _Held(data)
        directories, _ = read_directories(window, read_head(window), 1)
        tags: dict[int, Any] = {}
        for code in METADATA_TAGS if directories else ():
            entry = directories[0].entries.get(code)
            if entry is not None:
                text = entry.kind == 2
                tags[code] = directories[0].text(code) if text else directories[0].array(code)
        return georeference_of_tags({code: tag for code, tag in tags.items() if tag is not None})
    except (ScanError, ArithmeticError, LookupError, TypeError, ValueError):
        return None


@dataclass(frozen=True)
class _Grid:
    """RectifiedGrid: its origin and steps as the document writes them, and its system."""

    numbers: tuple[float, ...]
    system: str
    axes: tuple[str, ...]


def _of_gml(document: bytes) -> Georeference | None:
    grid = _grid_of(document)
    if grid is None:
        return None
    x, y, dx_col, dy_col, dx_row, dy_row = grid.numbers
    crs, swapped = _system(grid.system)
    if swapped and not (
        len(grid.axes) >= 2 and grid.axes[0].startswith(_EAST) and grid.axes[1].startswith(_NORTH)
    ):
        x, y, dx_col, dy_col, dx_row, dy_row = y, x, dy_col, dx_col, dy_row, dx_row
        if b"GDAL_JP2K_ALT_OFFSETVECTOR_ORDER=TRUE" in document:
            dx_col, dy_col, dx_row, dy_row = dx_row, dy_row, dx_col, dy_col
    # The origin is the centre of the first pixel.
    affine = Affine(
        x - (dx_col + dx_row) / 2, dx_col, dx_row, y - (dy_col + dy_row) / 2, dy_col, dy_row
    )
    return Georeference(affine, crs, "Area", crs is None)


def _grid_of(document: bytes) -> _Grid | None:
    """The first grid of a document; None if there is none. Entities could expand without limit."""
    document = document.rstrip(b"\0")
    if b"<!DOCTYPE" in document or b"\0" in document:  # the latter may be the former in UTF-16
        return None
    try:
        root = ET.fromstring(document)
    except (ET.ParseError, ValueError, LookupError):
        return None
    grid = next(_named(root, "RectifiedGrid"), None)
    if grid is None:
        return None
    points = [point for origin in _named(grid, "origin") for point in _named(origin, "Point")]
    vectors = list(_named(grid, "offsetVector"))
    if not points or len(vectors) < 2:
        return None
    position = [*_named(points[0], "pos"), *_named(points[0], "coordinates")]
    envelopes = list(_named(root, "Envelope"))
    systems = [element.get("srsName") for element in (points[0], *envelopes, grid)]
    axes = tuple((element.text or "").strip().lower() for element in _named(grid, "axisName"))
    try:
        pairs = [
            [float(word) for word in re.split(r"[\s,]+", (element.text or "").strip())[:2]]
            for element in (*position[:1], *vectors[:2])
        ]
    except ValueError:
        return None
    numbers = tuple(number for pair in pairs for number in pair)
    if len(numbers) != 6 or not all(map(math.isfinite, numbers)):
        return None
    return _Grid(numbers, next(filter(None, systems), ""), axes)


def _named(element: ET.Element, name: str) -> Iterator[ET.Element]:
    return (each for each in element.iter() if str(each.tag).rpartition("}")[2] == name)


def _system(name: str) -> tuple[dict[str, Any] | None, bool]:
    """Attributes of a reference system, and whether its first axis is the one of y."""
    match = _EPSG.fullmatch(name.strip())
    if match is None:
        return None, False
    code, is_ordered = int(match[2]), not match[1].lower().startswith("epsg")
    key = _system, code, is_ordered
    known: tuple[dict[str, Any] | None, bool] | None = FORMS.get(key)
    if known is None:
        import pyproj
        from pyproj.exceptions import CRSError

        try:
            crs = pyproj.CRS.from_epsg(code)
            towards = [axis.direction for axis in crs.axis_info[:2]]
            known = grid_mapping(crs), is_ordered and towards == ["north", "east"]
        except CRSError:
            known = None, False
        FORMS.put(key, known, 20_000)
    return known
