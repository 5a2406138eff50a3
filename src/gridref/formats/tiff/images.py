"""Describe the images of a TIFF file: pages, series, levels, and their metadata.

A `Page` holds what one image file directory (IFD) says about the storage of its pixels. A
`TiffStructure` holds all images of a file as series with their levels, counted as in tifffile.
`pixels_of` reads the channels of images from OME-XML. `read_gdal_metadata` and `nodata_of` read the
tags that GDAL adds.

Sources: TIFF Revision 6.0 (1992), Section 8 "Baseline Field Reference Guide", Section 15 "Tiled
Images"; Adobe Photoshop TIFF Technical Notes (deflate, floating-point predictor); the BigTIFF
design at https://www.awaresystems.be/imaging/tiff/bigtiff.html; OME data model 2016-06, ``Pixels``
and ``Channel`` (https://www.openmicroscopy.org/Schemas/OME/2016-06/); GDAL's GTiff driver,
"Metadata" and "Nodata value" (https://gdal.org/drivers/raster/gtiff.html): tag 42112 holds XML
``<GDALMetadata><Item name= sample= role= domain=>``, tag 42113 a number as text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
from numpy.typing import NDArray

from gridref.errors import UnsupportedFeatureError
from gridref.learned import FORMS
from gridref.limits import beyond, limits
from gridref.model.grid import chunk_counts
from gridref.model.manifest import Source
from gridref.model.ome_zarr import Channel

# Pages: one image file directory (IFD) each

MAX_SAMPLES = (1 << 16) - 1
"""Most samples of a pixel: their number is of the type SHORT (TIFF 6.0, ``SamplesPerPixel``)."""


@dataclass(frozen=True, eq=False)
class Page:
    """The storage of an image, as its directory states it.

    Attributes
    ----------
    index
        Place in the file's tree of directories: ``(2,)`` is the third page, ``(2, 0)`` its first
        sub-IFD.
    shape, axes
        Shape of the image and one letter an axis: of ``S`` (samples, planar), ``Z``, ``Y``, ``X``,
        ``S`` (samples, contiguous).
    chunk_shape
        Shape of a strip or tile, one length per axis of `shape`.
    tiled
        Whether the segments are tiles (all of one size) or strips (the last one is shorter).
    dtype
        Dtype of the decoded elements in native byte order; None if there is none.
    compression, predictor, photometric, fill_order, sample_format
        Values of the tags.
    bits
        BitsPerSample; a tuple where samples differ.
    samples
        SamplesPerPixel.
    planar
        Whether each sample has a plane of its own.
    extra_samples
        Value of the ExtraSamples tag.
    subsampled
        Whether chroma is stored at less than full resolution.
    t4_options
        Value of the T4Options tag (CCITT group 3).
    jpeg_tables
        Value of the JPEGTables tag, or a header that all segments share.
    nodata
        GDAL's value for "no data", which tiles read as that the file does not hold; None if there
        is none.
    subfile_type
        NewSubfileType: bit 0 reduced resolution, bit 2 transparency mask.
    offsets, counts
        int64: place and size of each segment, in bytes.
    contiguous
        Whether the elements are side by side in the file in final form, from ``offsets[0]`` on.
    """

    index: tuple[int, ...]
    shape: tuple[int, ...]
    axes: str
    chunk_shape: tuple[int, ...]
    tiled: bool
    dtype: np.dtype[Any] | None
    big_endian: bool
    compression: int
    predictor: int
    photometric: int
    fill_order: int
    sample_format: int
    bits: int | tuple[int, ...]
    samples: int
    planar: bool
    extra_samples: tuple[int, ...]
    subsampled: bool
    t4_options: int
    jpeg_tables: bytes | None
    nodata: Any
    subfile_type: int
    offsets: NDArray[np.int64]
    counts: NDArray[np.int64]
    contiguous: bool

    @cached_property
    def grid_shape(self) -> tuple[int, ...]:
        """Number of segments along each axis."""
        return chunk_counts(self.shape, self.chunk_shape)

    @cached_property
    def n_chunks(self) -> int:
        """Number of segments that the image has."""
        return math.prod(self.grid_shape)

    @property
    def is_mask(self) -> bool:
        """Whether the image is a transparency mask of another (NewSubfileType, bit 2)."""
        return bool(self.subfile_type & 4)

    @property
    def is_reduced(self) -> bool:
        """Whether the image is a smaller version of another (NewSubfileType, bit 0)."""
        return bool(self.subfile_type & 1)


# Channels of images in OME-XML


@dataclass(frozen=True)
class PixelsMetadata:
    """An image's channels, and the number of used bits in its values, if it is stated."""

    channels: tuple[Channel, ...] = ()
    bits: int | None = None


def elements_of(text: str | None) -> list[ET.Element]:
    """The elements of an XML document, the root first; none if the text is not XML."""
    try:
        return list(ET.fromstring(text or "").iter())
    except ET.ParseError:
        return []


def pixels_of(text: str | None) -> list[PixelsMetadata]:
    """The metadata of each image, in their order; none if the text is not OME-XML."""
    return [
        PixelsMetadata(tuple(_channels(pixels)), _number(pixels.get("SignificantBits")))
        for root in elements_of(text)[:1]
        for image in _children(root, "Image")
        for pixels in [next(_children(image, "Pixels"), image)]
    ]


def _channels(pixels: ET.Element) -> Iterator[Channel]:
    for number, channel in enumerate(_children(pixels, "Channel")):
        if (_number(channel.get("SamplesPerPixel")) or 1) == 3:
            yield from map(Channel, ("red", "green", "blue"), ("FF0000", "00FF00", "0000FF"))
            continue
        label = channel.get("Name") or f"channel {number}"
        yield Channel(label, _color(channel.get("Color")))


def _color(text: str | None) -> str | None:
    """Six hexadecimal digits from a signed number of 32 bits: red, green, blue and alpha."""
    number = _number(text)
    rgb = None if number is None else (number & 0xFFFFFFFF) >> 8
    return f"{rgb:06X}" if rgb else None


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _children(element: ET.Element, name: str) -> Iterator[ET.Element]:
    """Children of that name in any namespace: each version of the schema has its own."""
    return (child for child in element if child.tag.rpartition("}")[2] == name)


# Series and their levels, counted as in tifffile

_MICROSCOPY = frozenset({"ome", "svs", "ndpi", "scn", "bif", "philips", "qpi", "lsm", "imagej"})


@dataclass(frozen=True, eq=False)
class Level:
    """One image at one resolution.

    Attributes
    ----------
    series, level
        Numbers of the series and the level.
    shape, axes
        Of the whole image; one letter for each axis as in tifffile (``T``, ``C``, ``Z``, ``Y``,
        ``X``, ``S``, ``I`` for pages without further metadata, ...).
    keyframe
        The page whose tags hold for all pages.
    pages
        All pages in C order of the leading axes; None where the file holds none.
    source_ids
        For each page, the number of its source in the structure.
    contiguous_offset
        Offset of the whole image's elements if they are contiguous in final form, else None.
    problem
        Why the image cannot be described; None if it can.
    """

    series: int
    level: int
    shape: tuple[int, ...]
    axes: str
    keyframe: Page
    pages: tuple[Page | None, ...]
    source_ids: tuple[int, ...]
    contiguous_offset: int | None = None
    problem: str | None = None


@dataclass(frozen=True, eq=False)
class Image:
    """One series: an image at one or more resolutions.

    Attributes
    ----------
    kind
        Its flavour of TIFF: ``"generic"``, ``"geotiff"``, ``"ome"``, ``"svs"``, ...
    name
        Name from the metadata, or empty.
    levels
        From the finest to the coarsest.
    channel_names
        Names of the channels, if the metadata has them.
    pixel_sizes
        Physical size of a pixel and its unit by axis letter, if the metadata has them.
    pixels
        The channels in OME-XML.
    """

    kind: str
    name: str
    levels: tuple[Level, ...]
    channel_names: tuple[str, ...] = ()
    pixel_sizes: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    pixels: PixelsMetadata = field(default_factory=PixelsMetadata)

    @property
    def is_microscopy(self) -> bool:
        """Whether its flavour is one of microscopes or slide scanners."""
        return self.kind in _MICROSCOPY


@dataclass(frozen=True, eq=False)
class TiffStructure:
    """All images of a file.

    Attributes
    ----------
    images
        One for each series.
    sources
        The file, and further files that its images are in.
    tags
        Values of the first page's metadata tags, by code.
    """

    images: tuple[Image, ...]
    sources: tuple[Source, ...]
    tags: Mapping[int, Any]


# GDAL's own tags: metadata items and the value that means "no data"


@dataclass(frozen=True)
class BandMetadata:
    """Metadata of an image and its bands.

    Attributes
    ----------
    items
        Items that concern the whole image.
    descriptions, scales, offsets, units
        By band, counted from 0, if the file has them.
    """

    items: Mapping[str, str] = field(default_factory=dict)
    descriptions: Mapping[int, str] = field(default_factory=dict)
    scales: Mapping[int, float] = field(default_factory=dict)
    offsets: Mapping[int, float] = field(default_factory=dict)
    units: Mapping[int, str] = field(default_factory=dict)


@FORMS.remembers
def read_gdal_metadata(text: str) -> BandMetadata:
    """Parse the value of the GDAL_METADATA tag; what cannot be parsed is left out.

    A document type declaration is not parsed, because its entities could expand without limit. A
    text that is too long is refused: it may hold the scales of the bands.
    """
    if "<!DOCTYPE" in text:
        return BandMetadata()
    if len(text) > limits().xml_characters:
        what = f"GDAL's metadata has {len(text)} characters"
        raise UnsupportedFeatureError(beyond("xml_characters", what))
    items: dict[str, str] = {}
    by_role: dict[str, dict[int, str]] = {
        "description": {},
        "scale": {},
        "offset": {},
        "unittype": {},
    }
    for item in (each for each in elements_of(text) if each.tag == "Item"):
        name, value = item.get("name", ""), item.text or ""
        sample, role = item.get("sample"), item.get("role")
        if role in by_role and sample is not None and sample.isdecimal():
            by_role[role][int(sample)] = value
        elif sample is None and role is None and item.get("domain") is None and name:
            items[name] = value
    return BandMetadata(
        items,
        by_role["description"],
        _numbers(by_role["scale"]),
        _numbers(by_role["offset"]),
        by_role["unittype"],
    )


def _numbers(values: Mapping[int, str]) -> dict[int, float]:
    result = {}
    for band, text in values.items():
        try:
            result[band] = float(text)
        except ValueError:
            continue
    return result


def nodata_of(text: Any, dtype: np.dtype[Any] | None) -> Any:
    """The GDAL_NODATA tag as a scalar of `dtype`.

    Returns
    -------
    numpy scalar or None
        None if there is none, or if no element of `dtype` can be equal to it.
    """
    if not isinstance(text, str) or dtype is None:
        return None
    try:
        if dtype.kind == "b":
            return {"0": np.False_, "1": np.True_}.get(text.strip())
        if dtype.kind in "iu":
            whole = _integer(text)
            limits = np.iinfo(dtype)
            return (
                None
                if whole is None or not limits.min <= whole <= limits.max
                else dtype.type(whole)
            )
        number = float(text.strip().replace(",", "."))
        with np.errstate(over="ignore"):
            return np.asarray(number).astype(dtype)[()] if dtype.kind in "fc" else None
    except ValueError:
        return None


def _integer(text: str) -> int | None:
    """An integer, also written as ``255.0``; large ones exactly."""
    text = text.strip()
    try:
        return int(text)
    except ValueError:
        number = float(text.replace(",", "."))
        return int(number) if np.isfinite(number) and number == int(number) else None
