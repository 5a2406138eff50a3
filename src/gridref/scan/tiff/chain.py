"""Codec chains of TIFF segments.

Sources: TIFF 6.0, ``Compression``, ``Predictor`` (Section 14), ``FillOrder``, ``BitsPerSample``;
Adobe Photoshop TIFF Technical Note 3 (floating-point predictor); the libtiff and GDAL registries
of compressions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import UnsupportedFeatureError
from gridref.model.encoding import Codec, bytes_codec
from gridref.scan.tiff.page import Page

__all__ = ["page_codecs", "raw_codecs", "segment_bytes"]


def raw_codecs(page: Page) -> tuple[Codec, ...]:
    """The chain of elements that lie side by side in the file's byte order."""
    assert page.dtype is not None
    return (bytes_codec(page.dtype, big_endian=page.big_endian),)


def page_codecs(page: Page) -> tuple[Codec, ...]:
    """The chain of the segments of a page."""
    assert page.dtype is not None
    if page.bits == page.dtype.itemsize * 8 and page.predictor == 1 and page.fill_order == 1:
        if page.compression == 1:
            return raw_codecs(page)
        if page.compression in (8, 32946):
            return *raw_codecs(page), Codec.of("numcodecs.zlib", level=6)
        if page.compression == 50000:
            return *raw_codecs(page), Codec.of("zstd", level=0, checksum=False)
    raise UnsupportedFeatureError(f"compression {page.compression}")


def segment_bytes(page: Page) -> NDArray[np.int64] | None:
    """Stored size of each segment in bytes, where that is determined: without compression.

    Rows begin on a byte boundary (TIFF 6.0, ``Compression`` = 1).
    """
    if page.compression != 1 or page.subsampled:
        return None
    lengths: dict[str, Any] = dict(zip(page.axes, page.chunk_shape, strict=True))
    extents: dict[str, Any] = dict(zip(page.axes, page.shape, strict=True))
    samples = page.samples if not page.planar else 1
    bits = sum(page.bits) if isinstance(page.bits, tuple) else page.bits * samples
    row_bytes = -(-(lengths["X"] * bits) // 8)
    rows = np.full(page.grid_shape[page.axes.index("Y")], lengths["Y"], np.int64)
    if not page.tiled and len(rows):
        rows[-1] = extents["Y"] - (len(rows) - 1) * lengths["Y"]
    shape = [1] * len(page.grid_shape)
    shape[page.axes.index("Y")] = len(rows)
    sizes = rows.reshape(shape) * (row_bytes * lengths.get("Z", 1))
    return np.broadcast_to(sizes, page.grid_shape).reshape(-1)
