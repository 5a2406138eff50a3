"""Codec chains of TIFF segments.

Sources: TIFF 6.0, ``Compression``, ``Predictor`` (Section 14), ``FillOrder``, ``BitsPerSample``;
Adobe Photoshop TIFF Technical Note 3 (floating-point predictor); the libtiff and GDAL registries
of compressions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.cache import LRU
from gridref.codecs import why_not
from gridref.errors import UnsupportedFeatureError
from gridref.formats.tiff.page import Page
from gridref.model.encoding import Codec, bytes_codec

__all__ = [
    "SOI_BYTES",
    "has_spliced_tables",
    "is_jpeg",
    "jpeg_prefix",
    "page_codecs",
    "raw_codecs",
    "segment_bytes",
]

_SOI, _EOI = b"\xff\xd8", b"\xff\xd9"
SOI_BYTES = len(_SOI)
"""Size of the marker that begins a JPEG stream (ITU-T T.81, B.1.1.3)."""


_MAX_JPEG_LENGTH = 65535
"""Most rows and columns of a JPEG stream (ITU-T T.81, B.2.2)."""

_DEFLATE, _LZW, _PACKBITS = (8, 32946, 50013), 5, 32773
_LOSSLESS: dict[int, Codec] = {
    _LZW: Codec("gridref.tiff_lzw"),
    _PACKBITS: Codec("gridref.tiff_packbits"),
    34925: Codec.of("numcodecs.lzma", format=1),
    **dict.fromkeys(_DEFLATE, Codec.of("numcodecs.zlib", level=6)),
    **dict.fromkeys((50000, 34926), Codec.of("zstd", level=0, checksum=False)),
}
"""Compressions of bytes, whatever they mean."""

_IMAGES = {
    **dict.fromkeys((7, 33007, 34892), "gridref.tiff_jpeg"),
    **dict.fromkeys((33003, 33004, 33005, 34712), "gridref.tiff_jpeg2000"),
    **dict.fromkeys((50002, 52546), "gridref.tiff_jpegxl"),
    **dict.fromkeys((22610, 34934), "gridref.tiff_jpegxr"),
    **dict.fromkeys((50001, 34927), "gridref.tiff_webp"),
    34933: "gridref.tiff_png",
    34887: "gridref.tiff_lerc",
}
"""Compressions whose segments are images of their own."""

_CCITT = {2: "rle", 3: "fax3", 4: "fax4"}

_PREDICTORS = {2: (2, 1), 3: (3, 1), 34892: (2, 2), 34893: (2, 4), 34894: (3, 2), 34895: (3, 4)}
"""Value of the tag: kind of predictor, and how many samples apart the differences are."""

_REFUSED_BY_NAME = {
    6: "old-style JPEG (TIFF 6.0, Section 22)",
    32766: "NeXT 2-bit",
    32809: "ThunderScan 4-bit",
    34676: "SGI LogLuv",
    34677: "SGI LogLuv 24-bit",
    34661: "JBIG",
    48124: "Jetraw",
    65000: "EER",
    65001: "EER",
    65002: "EER",
}


def raw_codecs(page: Page) -> tuple[Codec, ...]:
    """The chain of elements that lie side by side in the file's byte order."""
    assert page.dtype is not None
    return (bytes_codec(page.dtype, big_endian=page.big_endian),)


def page_codecs(page: Page, x_axis: int) -> tuple[Codec, ...]:
    """The chain of the segments of a page; alike pages share one.

    Parameters
    ----------
    x_axis
        Axis of a stored chunk along the width of the image, counted from the end (-1 or -2).

    Raises
    ------
    UnsupportedFeatureError
        If they cannot be decoded faithfully.
    """
    key = (_STORAGE(page), x_axis)
    return _CHAINS.get_or_load(key, lambda: _page_codecs(page, x_axis))


_STORAGE = attrgetter(
    *(
        field.name
        for field in fields(Page)
        if field.name
        not in ("index", "offsets", "counts", "contiguous", "jpeg_tables", "nodata", "subfile_type")
    )
)
"""What the chain of a page depends on, and a little more."""
_CHAINS = LRU[tuple[Codec, ...]](2 * 2**20, lambda codecs: 500 * (1 + len(codecs)))
"""Chains by what they depend on; a codec takes about 500 bytes."""


def _page_codecs(page: Page, x_axis: int) -> tuple[Codec, ...]:
    assert page.dtype is not None
    known = page.compression in (1, *_LOSSLESS, *_IMAGES, *_CCITT)
    if not known:
        name = _REFUSED_BY_NAME.get(page.compression)
        shown = f"{page.compression} ({name})" if name else str(page.compression)
        raise UnsupportedFeatureError(f"compression {shown} is not supported")
    if page.subsampled and (page.compression not in _IMAGES or page.planar):
        raise UnsupportedFeatureError(
            "chroma is stored at a lower resolution than luma, outside of a JPEG stream"
        )
    if page.compression in _IMAGES or page.compression in _CCITT:
        chain = _image_chain(page)
    else:
        chain = _bytes_chain(page, x_axis)
    for codec in chain:
        reason = why_not(codec)
        if reason is not None:
            raise UnsupportedFeatureError(reason)
    return chain


def _image_chain(page: Page) -> tuple[Codec, ...]:
    """Segments that are images: predictors do not apply to them."""
    assert page.dtype is not None
    serial = bytes_codec(page.dtype)
    lengths = dict(zip(page.axes, page.chunk_shape, strict=True))
    samples = 1 if page.planar else page.samples
    if lengths.get("Z", 1) != 1:
        raise UnsupportedFeatureError("tiles of several planes hold compressed images")
    if page.compression in _CCITT:
        if samples != 1 or page.bits != 1:
            raise UnsupportedFeatureError("CCITT compression of more than one bit a pixel")
        settings = {"scheme": _CCITT[page.compression], "width": lengths["X"], "samples": 1}
        if page.compression == 3:
            settings["t4options"] = page.t4_options
        settings |= _surplus_rows(page, lengths)
        return serial, Codec.of("gridref.tiff_ccitt", **settings), *_bit_order(page)
    name = _IMAGES[page.compression]
    if page.dtype.kind == "b":
        raise UnsupportedFeatureError("samples of one bit in images of their own")
    settings = {"width": lengths["X"], "samples": samples, **_surplus_rows(page, lengths)}
    if name == "gridref.tiff_jpeg":
        if max(lengths["X"], lengths["Y"]) > _MAX_JPEG_LENGTH:
            raise UnsupportedFeatureError(
                f"a JPEG stream of {lengths['Y']} by {lengths['X']} pixels, more than one can hold"
            )
        settings |= _jpeg_colours(page)
    return serial, Codec.of(name, **settings)


def _surplus_rows(page: Page, lengths: Mapping[str, int]) -> dict[str, int]:
    """Let the last strip have as many rows as the others; readers leave out those that are over."""
    rows = lengths["Y"]
    is_short = not page.tiled and page.shape[page.axes.index("Y")] % rows
    return {"rows": rows} if is_short else {}


def _jpeg_colours(page: Page) -> dict[str, int]:
    """Colour spaces of a JPEG stream and of its pixels, by their PhotometricInterpretation.

    YCbCr becomes RGB, as libtiff does for its callers; the rest is left as it is.
    """
    if page.planar:
        return {"outcolorspace": 1}
    if page.extra_samples:
        return {}
    if page.photometric == 6:
        return {"outcolorspace": 2}
    if page.photometric == 2:
        return {"colorspace": 2, "outcolorspace": 2}
    if page.photometric == 5:
        return {"outcolorspace": 4}
    if page.photometric in (3, 8, 9, 10):
        raise UnsupportedFeatureError(f"JPEG of photometric interpretation {page.photometric}")
    return {}


def _bytes_chain(page: Page, x_axis: int) -> tuple[Codec, ...]:
    """Segments that are rows of samples, perhaps differenced, packed and compressed."""
    predictor = _predictor(page, x_axis)
    packing = _packing(page)
    compression: tuple[Codec, ...] = ()
    if page.compression != 1:
        compression = (_with_short_tiles(_LOSSLESS[page.compression], page),)
    return *predictor, *packing, *compression, *_bit_order(page)


def _with_short_tiles(codec: Codec, page: Page) -> Codec:
    """Let tiles of an image of a single row of tiles end with the image's last row.

    Some writers leave out the rows behind it, and readers take that.
    """
    if not page.tiled or codec.name not in ("gridref.tiff_lzw", "gridref.tiff_packbits"):
        return codec
    rows = page.shape[page.axes.index("Y")]
    if rows >= page.chunk_shape[page.axes.index("Y")] or "Z" in page.axes:
        return codec
    return Codec.of(codec.name, short_bytes=rows * _row_bytes(page))


def _bit_order(page: Page) -> tuple[Codec, ...]:
    return (Codec("gridref.tiff_bitorder"),) if page.fill_order == 2 else ()


def _predictor(page: Page, x_axis: int) -> tuple[Codec, ...]:
    if page.predictor in (0, 1):
        return ()
    if page.predictor not in _PREDICTORS:
        raise UnsupportedFeatureError(f"predictor {page.predictor} is unknown")
    if page.compression == 1:
        raise UnsupportedFeatureError("readers disagree about a predictor without compression")
    kind, distance = _PREDICTORS[page.predictor]
    if page.sample_format == 5 or (page.bits == 24 and page.sample_format == 3):
        raise UnsupportedFeatureError("a predictor of complex integers or floats of 24 bits")
    settings = {} if distance == 1 else {"distance": distance}
    return (Codec.of("gridref.tiff_predictor", predictor=kind, axis=x_axis, **settings),)


def _packing(page: Page) -> tuple[Codec, ...]:
    """Samples to bytes."""
    assert page.dtype is not None
    endian = "big" if page.big_endian else "little"
    plain = bytes_codec(page.dtype)
    if isinstance(page.bits, tuple):
        bits = list(page.bits)
        return plain, Codec.of(
            "gridref.tiff_rgb_bits", bits=bits, dtype=page.dtype.name, endian=endian
        )
    if page.sample_format == 5:
        return plain, Codec.of("gridref.tiff_complex_integers", bits=page.bits // 2, endian=endian)
    if page.bits == 8 * page.dtype.itemsize and page.dtype.kind != "b":
        # Floating-point differences are planes of bytes: they have no byte order.
        floating = page.predictor in (3, 34894, 34895)
        return (plain,) if floating else raw_codecs(page)
    if page.dtype.kind == "f":
        return plain, Codec.of("gridref.tiff_float24", endian=endian)
    width = dict(zip(page.axes, page.chunk_shape, strict=True))["X"]
    run_length = width * (1 if page.planar else page.samples)
    return plain, Codec.of(
        "gridref.tiff_packints",
        bits=page.bits,
        dtype=page.dtype.name,
        run_length=run_length,
        endian=endian,
    )


def is_jpeg(page: Page) -> bool:
    """Whether segments are JPEG streams."""
    return _IMAGES.get(page.compression) == "gridref.tiff_jpeg"


def has_spliced_tables(page: Page) -> bool:
    """Whether JPEG streams lack the tables, which are to be put before each of them."""
    tables = page.jpeg_tables
    return (
        is_jpeg(page)
        and tables is not None
        and tables.startswith(_SOI)
        and tables.endswith(_EOI)
        and len(tables) > 2 * SOI_BYTES
    )


def jpeg_prefix(page: Page) -> bytes:
    """What is put before each segment: JPEG tables without the marker at their end.

    Together with a segment without the marker at its start that is one whole JPEG stream (Adobe
    Photoshop TIFF Technical Note 2, "JPEGTables").
    """
    if page.jpeg_tables is None or not is_jpeg(page):
        return b""
    return page.jpeg_tables[:-2] if has_spliced_tables(page) else page.jpeg_tables


def segment_bytes(page: Page) -> NDArray[np.int64] | None:
    """Stored size of each segment in bytes, where that is determined: without compression.

    Rows begin on a byte boundary (TIFF 6.0, ``Compression`` = 1).
    """
    if page.compression != 1 or page.subsampled:
        return None
    lengths: dict[str, Any] = dict(zip(page.axes, page.chunk_shape, strict=True))
    extents: dict[str, Any] = dict(zip(page.axes, page.shape, strict=True))
    row_bytes = _row_bytes(page)
    rows = np.full(page.grid_shape[page.axes.index("Y")], lengths["Y"], np.int64)
    if not page.tiled and len(rows):
        rows[-1] = extents["Y"] - (len(rows) - 1) * lengths["Y"]
    shape = [1] * len(page.grid_shape)
    shape[page.axes.index("Y")] = len(rows)
    sizes = rows.reshape(shape) * (row_bytes * lengths.get("Z", 1))
    return np.broadcast_to(sizes, page.grid_shape).reshape(-1)


def _row_bytes(page: Page) -> int:
    """Size of a row of a segment, packed but not compressed."""
    samples = 1 if page.planar else page.samples
    bits = sum(page.bits) if isinstance(page.bits, tuple) else page.bits * samples
    width = page.chunk_shape[page.axes.index("X")]
    return -(-(width * bits) // 8)
