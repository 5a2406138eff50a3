"""Images of a file: series and their levels, as tifffile counts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gridref.formats.tiff.ome_xml import PixelsMetadata
from gridref.formats.tiff.page import Page
from gridref.model.manifest import Source

__all__ = ["Image", "Level", "TiffStructure"]

_MICROSCOPY = frozenset({"ome", "svs", "ndpi", "scn", "bif", "philips", "qpi", "lsm", "imagej"})


@dataclass(frozen=True, eq=False)
class Level:
    """One image at one resolution.

    Attributes
    ----------
    series, level
        Numbers of the series and the level.
    shape, axes
        Of the whole image; a letter an axis as tifffile has it (``T``, ``C``, ``Z``, ``Y``, ``X``,
        ``S``, ``I`` for pages that nothing says more about, ...).
    keyframe
        The page that stands for all.
    pages
        All pages in C order of the leading axes; None where the file holds none.
    source_ids
        For each page, which of the structure's sources it lies in.
    contiguous_offset
        Where the elements of the whole image lie side by side in final form; None if they do not.
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
        Which flavour of TIFF it is: ``"generic"``, ``"geotiff"``, ``"ome"``, ``"svs"``, ...
    name
        Name out of the metadata, or empty.
    levels
        From the finest to the coarsest.
    channel_names
        Names of the channels, where the metadata has them.
    pixel_sizes
        Physical size of a pixel and its unit by axis letter, where the metadata has them.
    pixels
        What OME-XML says of the channels.
    """

    kind: str
    name: str
    levels: tuple[Level, ...]
    channel_names: tuple[str, ...] = ()
    pixel_sizes: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    pixels: PixelsMetadata = field(default_factory=PixelsMetadata)

    @property
    def is_microscopy(self) -> bool:
        """Whether it comes from a microscope or slide scanner, as far as its flavour tells."""
        return self.kind in _MICROSCOPY


@dataclass(frozen=True, eq=False)
class TiffStructure:
    """All images of a file.

    Attributes
    ----------
    images
        One a series.
    sources
        The file, and further files that its images lie in.
    tags
        Values of the first page's metadata tags, by code.
    """

    images: tuple[Image, ...]
    sources: tuple[Source, ...]
    tags: Mapping[int, Any]
