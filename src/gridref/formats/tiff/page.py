"""One image file directory (IFD), as far as its pixels are concerned.

Sources: TIFF Revision 6.0 (1992), Section 8 "Baseline Field Reference Guide", Section 15 "Tiled
Images"; Adobe Photoshop TIFF Technical Notes (deflate, floating-point predictor); the BigTIFF
design at https://www.awaresystems.be/imaging/tiff/bigtiff.html.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.model.grid import chunk_counts

__all__ = ["MAX_SAMPLES", "Page"]

MAX_SAMPLES = (1 << 16) - 1
"""Most samples of a pixel: their number is of the type SHORT (TIFF 6.0, ``SamplesPerPixel``)."""


@dataclass(frozen=True, eq=False)
class Page:
    """What one directory says about how its image is stored.

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
        What tiles that the file does not hold read as.
    subfile_type
        NewSubfileType: bit 0 reduced resolution, bit 2 transparency mask.
    offsets, counts
        int64: where each segment lies, in bytes.
    contiguous
        Whether the elements lie side by side in the file in final form, from ``offsets[0]`` on.
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
