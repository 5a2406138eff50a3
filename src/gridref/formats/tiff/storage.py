"""Find the segments of a TIFF image, and how they are decoded.

`page_codecs` returns the codec chain of the strips or tiles of a page. `locate_image` takes an
image and returns its chunk grid, its encoding, and a manifest with one row for each segment.

Sources for codecs: TIFF 6.0, ``Compression``, ``Predictor`` (Section 14), ``FillOrder``,
``BitsPerSample``; Adobe Photoshop TIFF Technical Note 3 (floating-point predictor); the libtiff and
GDAL registries of compressions.

Sources for segments: TIFF 6.0, ``StripOffsets``, ``StripByteCounts``, ``RowsPerStrip`` and Section
15 "Tiled Images"; GDAL's sparse files (offset and byte count 0 mean that a tile is missing).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from gridref.codecs import why_not
from gridref.errors import Place, SourceFormatError, UnsupportedFeatureError
from gridref.formats.tiff.images import Level, Page
from gridref.learned import FORMS
from gridref.limits import beyond, limits
from gridref.model.encoding import Codec, EdgePolicy, bytes_codec
from gridref.model.grid import chunk_counts, chunk_runs
from gridref.model.manifest import ChunkManifest, ChunkState, Source

# Codec chains of segments

_SOI, _EOI = b"\xff\xd8", b"\xff\xd9"
_SOI_BYTES = len(_SOI)
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
"""Value of the tag: kind of predictor, and distance of the differences in samples."""

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
    """The chain of contiguous elements in the file's byte order."""
    assert page.dtype is not None
    return (bytes_codec(page.dtype, big_endian=page.big_endian),)


def page_codecs(page: Page, x_axis: int) -> tuple[Codec, ...]:
    """The chain of the segments of a page; similar pages share one.

    Parameters
    ----------
    x_axis
        Axis of a stored chunk along the width of the image, counted from the end (-1 or -2).
    """
    key = (_STORAGE, _STORAGE(page), x_axis)
    known: tuple[Codec, ...] | None = FORMS.get(key)
    return FORMS.put(key, _page_codecs(page, x_axis), 2000) if known is None else known


_STORAGE = attrgetter(
    *(
        field.name
        for field in fields(Page)
        if field.name
        not in ("index", "offsets", "counts", "contiguous", "jpeg_tables", "nodata", "subfile_type")
    )
)
"""All that the chain of a page depends on, and a little more."""


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
    """Let the last strip have as many rows as the others; readers leave out the surplus."""
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

    Some writers leave out the rows after it, and readers accept that.
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
    if page.sample_format in (5, 6) or (page.bits == 24 and page.sample_format == 3):
        raise UnsupportedFeatureError("a predictor of complex numbers or floats of 24 bits")
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
    if page.bits == 24 and page.big_endian:
        raise UnsupportedFeatureError("readers disagree about big-endian integers of 24 bits")
    width = dict(zip(page.axes, page.chunk_shape, strict=True))["X"]
    run_length = width * (1 if page.planar else page.samples)
    return plain, Codec.of(
        "gridref.tiff_packints",
        bits=page.bits,
        dtype=page.dtype.name,
        run_length=run_length,
        endian=endian,
    )


def _is_jpeg(page: Page) -> bool:
    """Whether segments are JPEG streams."""
    return _IMAGES.get(page.compression) == "gridref.tiff_jpeg"


def has_spliced_tables(page: Page) -> bool:
    """Whether JPEG streams lack their tables, which must be put before each of them."""
    tables = page.jpeg_tables
    return (
        _is_jpeg(page)
        and tables is not None
        and tables.startswith(_SOI)
        and tables.endswith(_EOI)
        and len(tables) > 2 * _SOI_BYTES
    )


def jpeg_prefix(page: Page) -> bytes:
    """The bytes to put before each segment: JPEG tables without the marker at their end.

    With a segment without the marker at its start, they are one whole JPEG stream (Adobe
    Photoshop TIFF Technical Note 2, "JPEGTables").
    """
    if page.jpeg_tables is None or not _is_jpeg(page):
        return b""
    return page.jpeg_tables[:-2] if has_spliced_tables(page) else page.jpeg_tables


def _segment_bytes(page: Page) -> NDArray[np.int64] | None:
    """Stored size of each segment in bytes, if it is determined: without compression.

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


# The manifest of an image: strips and tiles, or one run of elements

_MAX_OFFSET = 1 << 62
_HEADER_BYTES = 8


@dataclass(frozen=True, eq=False)
class StoredImage:
    """The storage of an image in files.

    Attributes
    ----------
    chunk_shape
        Shape of a stored chunk, along the axes of the image.
    manifest
        One row a chunk in C order.
    raw
        Whether chunks are plain elements in the file's byte order, whatever the tags state.
    rows_per_page
        Number of consecutive rows that each page has.
    """

    chunk_shape: tuple[int, ...]
    edge: EdgePolicy
    manifest: ChunkManifest
    raw: bool
    rows_per_page: int


def locate_image(level: Level, sources: Sequence[Source], max_chunk_bytes: int) -> StoredImage:
    """Find all chunks of an image.

    Parameters
    ----------
    sources
        The files that its pages are in.
    max_chunk_bytes
        Contiguous elements are split into chunks of at most so many bytes.
    """
    if level.keyframe.dtype is None:
        page = level.keyframe
        raise UnsupportedFeatureError(
            f"no data type holds samples of format {page.sample_format} with {page.bits} bits"
        )
    if 0 in level.shape or 0 in level.keyframe.shape:
        raise SourceFormatError(f"an image of shape {level.shape} has no pixels")
    if level.contiguous_offset is not None:
        base = _offsets([level.contiguous_offset])
        return _contiguous(level, level.shape, base, sources, max_chunk_bytes)
    inner = _page_lengths(level)
    if all(page is not None and page.contiguous for page in level.pages):
        base = _offsets([int(page.offsets[0]) for page in level.pages if page is not None])
        shape = level.shape[len(level.shape) - len(inner) :]
        return _contiguous(level, shape, base, sources, max_chunk_bytes)
    return _segments(level, inner, sources)


def _offsets(values: Sequence[int]) -> NDArray[np.int64]:
    if not all(0 <= value <= _MAX_OFFSET for value in values):
        raise SourceFormatError("an offset is beyond 2**62")
    return np.array(values, np.int64)


def _page_lengths(level: Level) -> tuple[int, ...]:
    """Segment shape along the trailing axes of the image that one page fills.

    An image may lack axes of length 1 that its pages have, and the other way round.
    """
    page, lengths = level.keyframe, []
    axis, theirs = len(level.shape), len(page.shape)
    while theirs:
        if axis and level.shape[axis - 1] == page.shape[theirs - 1]:
            lengths.append(page.chunk_shape[theirs - 1])
            axis, theirs = axis - 1, theirs - 1
        elif page.shape[theirs - 1] == 1:
            theirs -= 1
        elif axis and level.shape[axis - 1] == 1:
            lengths.append(1)
            axis -= 1
        else:
            break
    if theirs or math.prod(level.shape[:axis]) != len(level.pages):
        raise UnsupportedFeatureError(
            f"{len(level.pages)} pages of shape {page.shape} do not tile an image of shape"
            f" {level.shape} ({level.axes})"
        )
    return tuple(reversed(lengths))


def _contiguous(
    level: Level,
    shape: tuple[int, ...],
    base: NDArray[np.int64],
    sources: Sequence[Source],
    max_chunk_bytes: int,
) -> StoredImage:
    """Chunks of runs of elements in C order, one run beginning at each of `base`."""
    assert level.keyframe.dtype is not None
    itemsize = level.keyframe.dtype.itemsize
    ids = np.array(level.source_ids, np.int32)[: len(base)]
    _check_runs(base, math.prod(shape) * itemsize, ids, sources)
    chunk_shape = _slices(shape, itemsize, max_chunk_bytes)
    _check_n_chunks(len(base) * math.prod(chunk_counts(shape, chunk_shape)))
    start, count = chunk_runs(shape, chunk_shape)
    manifest = ChunkManifest.from_columns(
        sources,
        offset=(base[:, np.newaxis] + start * itemsize).reshape(-1),
        length=np.tile(count * itemsize, len(base)),
        source=np.repeat(ids, len(start)),
    )
    leading = len(level.shape) - len(shape)
    return StoredImage(
        (1,) * leading + chunk_shape, EdgePolicy.TRUNCATED, manifest, True, len(start)
    )


def _slices(shape: tuple[int, ...], itemsize: int, max_bytes: int) -> tuple[int, ...]:
    """The largest chunk of at most `max_bytes` that is one run of bytes in C order."""
    lengths = [1] * len(shape)
    size = itemsize
    for axis in reversed(range(len(shape))):
        lengths[axis] = max(1, min(shape[axis], max_bytes // size))
        if lengths[axis] < shape[axis]:
            break
        size *= shape[axis]
    return tuple(lengths)


def _segments(level: Level, inner: tuple[int, ...], sources: Sequence[Source]) -> StoredImage:
    key = level.keyframe
    if any(length < 1 for length in key.chunk_shape):
        raise SourceFormatError(f"strips or tiles of shape {key.chunk_shape} have no pixels")
    _check_n_chunks(len(level.pages) * key.n_chunks)
    manifest = segment_manifest(
        key,
        [None if page is None else Segments.of(page) for page in level.pages],
        level.source_ids,
        sources,
        has_tables=_has_spliced_tables(level),
    )
    leading = (1,) * (len(level.shape) - len(inner))
    edge = EdgePolicy.PADDED if key.tiled else EdgePolicy.TRUNCATED
    return StoredImage(leading + inner, edge, manifest, False, key.n_chunks)


def _has_spliced_tables(level: Level) -> bool:
    if not _is_jpeg(level.keyframe):
        return False
    spliced = {has_spliced_tables(page) for page in level.pages if page is not None}
    if len(spliced) > 1:
        raise UnsupportedFeatureError("JPEG tables are kept apart on some pages only")
    return True in spliced


class Segments(NamedTuple):
    """The places of the strips or tiles of a page: see `Page`."""

    page: tuple[int, ...]
    offsets: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, page: Page) -> Self:
        """The segments that a page was read with."""
        return cls(page.index, page.offsets, page.counts)


def segment_manifest(
    key: Page,
    pages: Sequence[Segments | None],
    source_ids: Sequence[int],
    sources: Sequence[Source],
    *,
    has_tables: bool,
) -> ChunkManifest:
    """One row a segment of each page; raises as `locate_image` does.

    Parameters
    ----------
    key
        The page whose tags hold for all pages.
    pages, source_ids
        Those that the file holds, and which of `sources` each is in.
    has_tables
        Whether JPEG tables are put before each segment, in place of its first marker.
    """
    columns = [_page_columns(page, key) for page in pages]
    offset, length = (
        columns[0]
        if len(columns) == 1
        else (
            np.concatenate([column[0] for column in columns]),
            np.concatenate([column[1] for column in columns]),
        )
    )
    held = (offset > 0) & (length > 0)
    all_held = bool(held.all())
    manifest = ChunkManifest(
        tuple(sources),
        np.repeat(np.array(source_ids, np.int32), key.n_chunks),
        offset if all_held else offset * held,
        length if all_held else length * held,
        held.view(np.uint8),  # 1 is ChunkState.RANGE, 0 is ChunkState.MISSING
    )
    _check_ends(manifest)
    return _without_start_marker(manifest) if has_tables else manifest


def _page_columns(
    segments: Segments | None, key: Page
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets and lengths of one page's segments; zeros where the file has no such page."""
    if segments is None:
        return np.zeros(key.n_chunks, np.int64), np.zeros(key.n_chunks, np.int64)
    n_chunks = key.n_chunks
    if len(segments.offsets) < n_chunks or len(segments.counts) < n_chunks:
        raise SourceFormatError(
            f"an image of {n_chunks} strips or tiles has {len(segments.offsets)} offsets and"
            f" {len(segments.counts)} byte counts (page {segments.page})"
        )
    offsets, counts = segments.offsets[:n_chunks], segments.counts[:n_chunks]
    if (offsets < 0).any() or (counts < 0).any():
        raise SourceFormatError(f"an offset or byte count is beyond 2**62 (page {segments.page})")
    expected = _segment_bytes(key)
    if expected is None:
        return offsets, counts
    # Readers take segments without bytes for missing, or look at the offset alone.
    short = np.flatnonzero((offsets > 0) & (counts < expected))
    if len(short):
        first = int(short[0])
        raise SourceFormatError(
            f"strip or tile {first} of page {segments.page} has {int(counts[first])} bytes; its"
            f" pixels need {int(np.broadcast_to(expected, counts.shape)[first])}"
        )
    return offsets, np.where(counts > 0, expected, 0)


def _without_start_marker(manifest: ChunkManifest) -> ChunkManifest:
    """Leave out the SOI marker of each JPEG stream: the tables before it begin with one."""
    held = manifest.state == ChunkState.RANGE
    if (manifest.length[held] <= _SOI_BYTES).any():
        raise SourceFormatError(f"a JPEG stream has {int(manifest.length[held].min())} bytes")
    return replace(
        manifest,
        offset=np.where(held, manifest.offset + _SOI_BYTES, manifest.offset),
        length=np.where(held, manifest.length - _SOI_BYTES, manifest.length),
    )


def _check_n_chunks(n_chunks: int) -> None:
    if n_chunks > limits().image_chunks:
        said = f"the image claims to have {n_chunks} strips or tiles"
        raise SourceFormatError(beyond("image_chunks", said))


def _check_runs(
    base: NDArray[np.int64], n_bytes: int, source_ids: NDArray[np.int32], sources: Sequence[Source]
) -> None:
    """Refuse runs of `n_bytes` that begin in the header, or end beyond their file."""
    if (base < _HEADER_BYTES).any():
        raise SourceFormatError(f"pixels begin at byte {int(base.min())}, inside the header")
    sizes = _sizes(sources)[source_ids]
    bad = np.flatnonzero(base > sizes - min(n_bytes, _MAX_OFFSET))
    if len(bad):
        run = int(bad[0])
        start, source = int(base[run]), sources[int(source_ids[run])]
        raise SourceFormatError(
            f"{n_bytes} bytes of pixels from byte {start} on reach behind the end of the file"
            f" ({source.size_bytes} bytes): it is truncated or its tags are wrong",
            Place(source.url, start=start, stop=start + n_bytes),
        )


def _sizes(sources: Sequence[Source]) -> NDArray[np.int64]:
    return np.array([_size(source) for source in sources], np.int64)


def _size(source: Source) -> int:
    return _MAX_OFFSET if source.size_bytes is None else source.size_bytes


def _check_ends(manifest: ChunkManifest) -> None:
    """Refuse chunks that end beyond their file."""
    if not manifest.n_rows:
        return
    stop = manifest.offset + manifest.length
    smallest = min(_size(source) for source in manifest.sources)
    if int(stop.max()) <= smallest:
        return
    sizes = _sizes(manifest.sources)
    bad = np.flatnonzero((manifest.state == ChunkState.RANGE) & (stop > sizes[manifest.source]))
    if len(bad):
        row = int(bad[0])
        source = manifest.sources[int(manifest.source[row])]
        raise SourceFormatError(
            f"chunks lie behind the end of the file ({source.size_bytes} bytes), {len(bad)} of"
            f" {manifest.n_rows}: it is truncated or its tags are wrong",
            Place(source.url, start=int(manifest.offset[row]), stop=int(stop[row])),
        )
