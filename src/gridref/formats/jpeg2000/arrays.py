"""Turn a JPEG 2000 file into a virtual group.

The image is ``band_data`` with dimensions ``(band, y, x)``, as in rioxarray. Its lower resolutions
are in groups ``overview_1``, ... with dimensions ``y_1`` and ``x_1``, like those of a TIFF file. A
chunk of each of them is the same bytes of the file: OpenJPEG decodes as much of a tile as is asked
for.

A tile is a chunk if its tile-parts follow each other. Else the whole codestream is the only chunk.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from gridref.codecs.jpeg2000 import (
    NAME,
    PPM,
    SOT_BYTES,
    CodestreamError,
    Header,
    Read,
    UnsupportedCodestreamError,
    read_header,
    reduced,
    tile_part,
)
from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.damage import refusing_damage
from gridref.formats.findings import Findings
from gridref.formats.georeference import SPATIAL_REF, Georeference, mapped
from gridref.formats.jpeg2000.boxes import Boxes, read_boxes, reader_of
from gridref.formats.jpeg2000.places import georeference_of
from gridref.formats.jpeg2000.tiles import check_decoded_bytes, places_of_tiles
from gridref.formats.options import ScanOptions
from gridref.io import ScanFile
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Codec, shared_encoding
from gridref.model.manifest import ChunkManifest
from gridref.model.ome_zarr import geo_multiscales
from gridref.model.scan_report import Fate

_SMALLEST_SIDE = 128
"""Overviews of an image of this size or less are left out, as in GDAL."""


def scan_jpeg2000(file: ScanFile, options: ScanOptions) -> VirtualGroup:
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
