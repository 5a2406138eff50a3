"""JPEG 2000: JP2 files and codestreams.

The image is ``band_data`` with dimensions ``(band, y, x)``, as in rioxarray. Its lower resolutions
are in groups ``overview_1``, ... with dimensions ``y_1`` and ``x_1``, like those of a TIFF file. A
chunk of each of them is the same bytes of the file: OpenJPEG decodes as much of a tile as is asked
for.

A tile is a chunk if its tile-parts follow each other. Else the whole codestream is the only chunk.
Tile-parts are found by the lengths in TLM segments (ITU-T T.800, A.7.1), or else from SOT to SOT.

Sources: ITU-T T.800 (2015), annex I (JP2); OGC 08-085r8 (GMLJP2), clause 8; the GeoJP2
specification 1.0 (a UUID box with a GeoTIFF file of one pixel); GDAL's ``gdaljp2metadata.cpp`` for
the order of axes, where files and standards differ.
"""

from __future__ import annotations

import base64
import math
import re
import struct
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
from numpy.typing import NDArray

from gridref.codecs.jpeg2000 import (
    LEAST_PART_BYTES,
    NAME,
    PPM,
    SOC,
    SOT_BYTES,
    TLM,
    CodestreamError,
    Header,
    Read,
    TilePart,
    UnsupportedCodestreamError,
    read_header,
    reduced,
    tile_part,
    tile_parts,
)
from gridref.errors import ScanError, SourceFormatError, UnsupportedFeatureError
from gridref.formats.georeference import SPATIAL_REF, Georeference, grid_mapping, mapped
from gridref.formats.location import Location
from gridref.formats.metadata import parsed_xml
from gridref.formats.scanner import Findings, ScanOptions, refusing_damage
from gridref.formats.tiff.directory import Window, read_directories, read_head
from gridref.formats.tiff.geo import georeference_of as georeference_of_tags
from gridref.io import ScanFile
from gridref.learned import FORMS
from gridref.limits import beyond, limits
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Codec, shared_encoding
from gridref.model.manifest import ChunkManifest
from gridref.model.ome_zarr import geo_multiscales
from gridref.model.pixels import Affine
from gridref.model.scan_report import Fate

_SMALLEST_SIDE = 128
"""Overviews of an image of this size or less are left out, as in GDAL."""


def scan(location: Location, options: ScanOptions) -> VirtualGroup:
    """Describe a file; raises as `gridref.formats.scan` does."""
    return scan_file(location.opened, options)


def scan_file(file: ScanFile, options: ScanOptions) -> VirtualGroup:
    """Describe a file; raises as `gridref.formats.scan` does."""
    read = reader_of(file)
    findings = Findings(file.name)
    group = VirtualGroup()
    with refusing_damage(file.name), findings.refusing("/band_data"), _refusing():
        boxes = read_boxes(read, file.size, options.max_objects)
        georeference = georeference_of(boxes)
        levels = _levels(file, read, boxes, options)
        group = _group(levels, georeference, boxes)
        for path in ("", *(f"/{name}" for name in group.groups)):
            findings.note(f"{path}/band_data", Fate.TAKEN)
        if georeference is not None and georeference.unknown_crs:
            reason = "the coordinate reference system is not understood"
            findings.note(f"/{SPATIAL_REF}", Fate.INLINED, reason)
    return group.with_changes(report=findings.report(options))


@contextmanager
def _refusing() -> Iterator[None]:
    """Turn errors about a codestream into those of a scan."""
    try:
        yield
    except CodestreamError as error:
        raise SourceFormatError(f"the JPEG 2000 codestream is damaged: {error}") from error
    except UnsupportedCodestreamError as error:
        raise UnsupportedFeatureError(f"the JPEG 2000 image is not read: {error}") from error


def _levels(file: ScanFile, read: Read, boxes: Boxes, options: ScanOptions) -> list[VirtualArray]:
    """The image and its overviews."""
    header = read_header(read, boxes.start)
    tile_part(read(header.stop, SOT_BYTES), header.stop, boxes.stop)
    size = header.size
    places = None
    if math.prod(size.n_tiles) > 1 and not header.has(PPM) and size.image[:2] == size.tile[:2]:
        places = places_of_tiles(
            header,
            read,
            header.stop,
            boxes.stop,
            options.max_objects,
            all_at_hand=not file.is_remote,
        )
    in_tiles = places is not None
    offset, length = places or ([boxes.start], [boxes.stop - boxes.start])
    manifest = ChunkManifest.from_columns([file.source], offset=offset, length=length)
    stored = {"header": base64.b64encode(header.for_tiles()).decode()} if in_tiles else {}
    check_decoded_bytes(math.prod(size.chunk_shape(0, in_tiles=in_tiles)))
    return [
        VirtualArray.of_one_block(
            size.chunk_shape(level, in_tiles=False),
            size.dtype,
            encoding=shared_encoding(
                size.chunk_shape(level, in_tiles=in_tiles),
                size.dtype,
                (Codec.of(NAME, **stored, levels=level),),
            ),
            manifest=manifest,
            dims=("band", "y", "x"),
        )
        for level in range(_n_overviews(header, in_tiles=in_tiles) + 1)
    ]


def _n_overviews(header: Header, *, in_tiles: bool) -> int:
    """How many overviews there are, down to a small one; their tiles must have one size."""
    size, level = header.size, 0
    rows, columns = size.n_tiles
    edges = [*size.image[:2], size.tile[2] * (columns > 1), size.tile[3] * (rows > 1)]
    while level < header.levels:
        left, top, right, bottom = reduced(size.image, level)
        is_even = not in_tiles or not any(edge % (2 << level) for edge in edges)
        if max(right - left, bottom - top) <= _SMALLEST_SIDE or not is_even:
            break
        level += 1
    return level


def _group(
    levels: list[VirtualArray], georeference: Georeference | None, boxes: Boxes
) -> VirtualGroup:
    """The arrays of a file: bands, their coordinates, and a palette."""
    nodes = []
    for number, array in enumerate(levels):
        suffix = f"_{number}" if number else ""
        y, x = f"y{suffix}", f"x{suffix}"
        n_bands, n_rows, n_columns = array.shape
        attrs = {} if georeference is None else mapped({})
        if georeference is not None and georeference.area_or_point == "Point":
            attrs["AREA_OR_POINT"] = "Point"
        arrays = {"band_data": array.with_changes(dims=("band", y, x), attrs=attrs)}
        if georeference is not None:
            _, height, width = levels[0].shape
            scaled = georeference.scaled(width / n_columns, height / n_rows)
            arrays |= scaled.coordinates(n_rows, n_columns, y, x)
        arrays["band"] = VirtualArray.from_numpy(np.arange(1, n_bands + 1), ("band",))
        nodes.append(VirtualGroup(arrays))
    root, *overviews = nodes
    groups = {f"overview_{number}": node for number, node in enumerate(overviews, 1)}
    arrays = dict(root.arrays)
    if boxes.palette is not None and len(boxes.palette) == 3 and levels[0].shape[0] == 1:
        arrays["color_map"] = VirtualArray.from_numpy(boxes.palette, ("rgb", "color"))
    about = {}
    if overviews:
        paths = ["band_data", *(f"{name}/band_data" for name in groups)]
        about = geo_multiscales(paths, [array.shape for array in levels], levels[0].dims)
    return VirtualGroup(arrays, groups, about)


# The tiles of a codestream


type Places = tuple[NDArray[np.int64], NDArray[np.int64]]
"""First byte and length of each tile."""

_EOC = b"\xff\xd9"


def places_of_tiles(
    header: Header, read: Read, start: int, stop: int, max_objects: int, *, all_at_hand: bool
) -> Places | None:
    """Where each tile is; None if the parts of one are apart from each other.

    Parameters
    ----------
    header
        The main header.
    start, stop
        Where the first tile-part begins, and where the codestream ends.
    all_at_hand
        Whether reading costs little, so that all that TLM states is checked. Else it is believed if
        it ends where the codestream does.
    """
    n_tiles = math.prod(header.size.n_tiles)
    if n_tiles * LEAST_PART_BYTES > stop - start:
        raise CodestreamError(f"it states {n_tiles} tiles in {stop - start} bytes")
    parts = _listed(header, start, stop)
    if parts is None or not _are_there(parts if all_at_hand else parts[:1], read, stop):
        parts = list(_at_most(max_objects, tile_parts(read, start, stop)))
        all_at_hand = True
        if read(parts[-1].start + 6, 4) == bytes(4):  # it ends where the codestream does
            parts[-1] = replace(parts[-1], stop=stop - len(_EOC))
    if all_at_hand and read(parts[-1].stop, len(_EOC)) != _EOC:
        raise CodestreamError("its end is cut off")
    return _joined(parts, n_tiles)


def _at_most(max_objects: int, parts: Iterator[TilePart]) -> Iterator[TilePart]:
    for number, part in enumerate(parts):
        if number == max_objects:
            raise UnsupportedFeatureError(f"it has more than {max_objects} tile-parts")
        yield part


def _listed(header: Header, start: int, stop: int) -> list[TilePart] | None:
    """The tile-parts that TLM lists; None if these are not all."""
    entries: list[tuple[int, int]] = []
    segments = [segment for marker, segment in header.segments if marker == TLM]
    for segment in sorted(segments, key=lambda segment: segment[:1]):
        kind = segment[1] if len(segment) > 1 else 0x30
        number, length = {0: "", 1: "B", 2: "H"}.get(kind >> 4 & 3), "I" if kind & 64 else "H"
        if number is None or (len(segment) - 2) % struct.calcsize(f">{number}{length}"):
            return None
        for *named, n_bytes in struct.iter_unpack(f">{number}{length}", segment[2:]):
            entries.append((named[0] if named else len(entries), n_bytes))
    stops = np.cumsum([n_bytes for _, n_bytes in entries], dtype=np.int64) + start
    if not entries or stops[-1] != stop - len(_EOC) or min(n_bytes for _, n_bytes in entries) < 14:
        return None
    starts = [start, *stops[:-1].tolist()]
    return [
        TilePart(tile, first, last)
        for (tile, _), first, last in zip(entries, starts, stops.tolist(), strict=True)
    ]


def _are_there(parts: Sequence[TilePart], read: Read, stop: int) -> bool:
    """Whether tile-parts are where they are listed."""
    try:
        return all(
            tile_part(read(part.start, SOT_BYTES), part.start, stop) == part for part in parts
        )
    except CodestreamError:
        return False


def _joined(parts: Sequence[TilePart], n_tiles: int) -> Places | None:
    """The places of tiles, whose parts must follow each other; None if they do not."""
    offset, length = np.full(n_tiles, -1, np.int64), np.zeros(n_tiles, np.int64)
    apart, last = False, -1
    for part in parts:
        if part.tile >= n_tiles:
            raise CodestreamError(f"its tile {part.tile} is outside of the image")
        if offset[part.tile] < 0:
            offset[part.tile] = part.start
        apart |= length[part.tile] > 0 and part.tile != last
        length[part.tile] += part.stop - part.start
        last = part.tile
    if (offset < 0).any():
        raise CodestreamError(f"it lacks tile {int(np.argmin(offset))} of {n_tiles}")
    return None if apart else (offset, length)


def check_decoded_bytes(n_elements: int) -> None:
    """Refuse chunks that take too much memory to decode: OpenJPEG has four bytes an element."""
    if 4 * n_elements > limits().decoded_bytes:
        what = f"decoding a chunk of {n_elements} elements takes {4 * n_elements} bytes"
        raise UnsupportedFeatureError(beyond("decoded_bytes", what))


# Boxes: the codestream, georeference and palette


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
    """Read the boxes of a file of so many bytes, which may be a codestream without any."""
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


# The georeference: GeoJP2, or else GMLJP2


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
        return georeference_of_tags(directories[0].metadata() if directories else {})
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
    """The first grid of a document; None if there is none."""
    try:
        root = parsed_xml(document.rstrip(b"\0"), "the GML")
    except SourceFormatError:
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


@FORMS.keeps(lambda _, name: 20_000 + len(name))
def _system(name: str) -> tuple[dict[str, Any] | None, bool]:
    """Attributes of a reference system, and whether its first axis is the one of y."""
    import pyproj
    from pyproj.exceptions import CRSError

    match = _EPSG.fullmatch(name.strip())
    if match is None:
        return None, False
    code, is_ordered = int(match[2]), not match[1].lower().startswith("epsg")
    try:
        crs = pyproj.CRS.from_epsg(code)
        towards = [axis.direction for axis in crs.axis_info[:2]]
        return grid_mapping(crs), is_ordered and towards == ["north", "east"]
    except CRSError:
        return None, False


# The file in rasterio, for `verify`


_MOST_BOXES = 10_000

type _Shape = tuple[int, ...]


class RasterioFile:
    """An image and its overviews, by their shapes.

    Parameters
    ----------
    file
        The file. If it is on a server, rasterio gets a copy.

    Raises
    ------
    ImportError
        If rasterio is not installed.
    ValueError
        In the words of GDAL, or if GDAL shows other elements than the file has.
    """

    def __init__(self, file: ScanFile) -> None:
        read = reader_of(file)
        start = read_boxes(read, file.size, _MOST_BOXES).start
        if read_header(read, start).size.dtype == np.int8:
            raise ValueError("rasterio shows its signed bytes as unsigned ones")
        import rasterio
        from rasterio.errors import RasterioError

        self._error = RasterioError
        self.levels: dict[_Shape, Any] = {}
        with ExitStack() as stack, warnings.catch_warnings(action="ignore"):
            opened: Any = partial(rasterio.open, file.name)
            if file.is_remote:
                copy = rasterio.MemoryFile(read(0, file.size))
                opened = stack.enter_context(copy).open
            try:
                image = stack.enter_context(opened())
                coarse = [opened(overview_level=n) for n, _ in enumerate(image.overviews(1))]
            except RasterioError as error:
                raise ValueError(f"rasterio cannot open it: {error}") from error
            for level in (image, *map(stack.enter_context, coarse)):
                self.levels.setdefault((level.count, *level.shape), level)
            self._open = stack.pop_all()

    def read(self, shape: _Shape, region: tuple[slice, ...]) -> NDArray[Any]:
        """Elements of the level of a shape."""
        bands, rows, columns = region
        window = (rows.start, rows.stop), (columns.start, columns.stop)
        numbers = [*range(bands.start + 1, bands.stop + 1)]
        try:
            return np.asarray(self.levels[shape].read(numbers, window=window))
        except self._error as error:
            raise ValueError(f"rasterio cannot read it: {error}") from error

    def centres(self, shape: _Shape, axis: int) -> NDArray[np.float64] | None:
        """Places of the pixels' centres along rows or columns; None if nothing says them."""
        affine = self.levels[shape].transform
        if axis == 0 or affine.is_identity or affine.b or affine.d:
            return None
        start, step = (affine.f, affine.e) if axis == 1 else (affine.c, affine.a)
        centres: NDArray[np.float64] = start + (np.arange(shape[axis]) + 0.5) * step
        return centres

    def close(self) -> None:
        """Close the file."""
        self._open.close()
