"""Find the images of a TIFF file: pages, series and levels.

A `Page` holds what one image file directory (IFD) says about the storage of its pixels. A
`TiffStructure` holds all images of a file as series with their levels, counted as in tifffile.

Sources: TIFF Revision 6.0 (1992), Section 8 "Baseline Field Reference Guide", Section 15 "Tiled
Images"; Adobe Photoshop TIFF Technical Notes (deflate, floating-point predictor); the BigTIFF
design at https://www.awaresystems.be/imaging/tiff/bigtiff.html.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.formats.tiff.metadata import PixelsMetadata
from gridref.model.grid import chunk_counts
from gridref.model.manifest import Source

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
    big_endian
        Byte order of the file.
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
        The value of tiles that the file does not hold.
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
