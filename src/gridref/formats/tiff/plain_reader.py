"""Read the structure of ordinary TIFF files, without tifffile.

This reader is ten times as fast as tifffile and reads each long tag exactly once. A file is
ordinary if it has no tag that marks a special flavour of TIFF, and holds one image: alone, or
georeferenced with a mask and with overviews of both, each half (a third, a quarter) the size of the
one before. Nearly all files that GDAL writes are ordinary. Any other file is left to
`tifffile_reader`, which would find the same series and levels in an ordinary one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import tifffile
from numpy.typing import NDArray

from gridref.formats.tiff.directory import (
    Directory,
    Tag,
    TiffHead,
    Window,
    read_directories,
)
from gridref.formats.tiff.images import (
    MAX_SAMPLES,
    Image,
    Level,
    Page,
    TiffStructure,
    nodata_of,
)
from gridref.io import ScanFile
from gridref.model.grid import chunk_counts

_ORDINARY_TAGS = frozenset(Tag) - {
    Tag.DOCUMENT_NAME,
    Tag.IMAGE_DESCRIPTION,
    Tag.T4_OPTIONS,
    Tag.SOFTWARE,
    Tag.ARTIST,
    Tag.HOST_COMPUTER,
    Tag.SUB_IFDS,
    Tag.JPEG_INTERCHANGE_FORMAT,
    Tag.JPEG_INTERCHANGE_FORMAT_LENGTH,
    Tag.IMAGE_DEPTH,
    Tag.TILE_DEPTH,
    Tag.COPYRIGHT,
}
_PIXEL_TAGS = (
    Tag.BITS_PER_SAMPLE,
    Tag.STRIP_OFFSETS,
    Tag.STRIP_BYTE_COUNTS,
    Tag.TILE_OFFSETS,
    Tag.TILE_BYTE_COUNTS,
    Tag.SAMPLE_FORMAT,
    Tag.JPEG_TABLES,
)
_SINGLE_INTEGERS = (
    Tag.NEW_SUBFILE_TYPE,
    Tag.IMAGE_WIDTH,
    Tag.IMAGE_LENGTH,
    Tag.COMPRESSION,
    Tag.PHOTOMETRIC,
    Tag.FILL_ORDER,
    Tag.SAMPLES_PER_PIXEL,
    Tag.PLANAR_CONFIGURATION,
    Tag.PREDICTOR,
    Tag.TILE_WIDTH,
    Tag.TILE_LENGTH,
)
_INTEGER_KINDS = (3, 4, 16)
_UNUSUAL_COMPRESSIONS = frozenset({2, 3, 4, 6, 34892, 33007})
_MAX_DIRECTORIES = 64
_SAMPLING_FACTORS = (2, 3, 4)
_RGB = 2


class NotOrdinaryError(Exception):
    """The file has a feature that only tifffile knows."""


def plain_directories(window: Window, head: TiffHead) -> list[Directory]:
    """The directories of a file that may be ordinary; none for other files.

    Tags with the places of pixels must be in the file: tifffile would go on without them.
    """
    if head.ndpi:
        return []
    directories, complete = read_directories(window, head, _MAX_DIRECTORIES)
    for directory in directories:
        directory.check(_PIXEL_TAGS)
    return directories if complete else []


def read_plain_structure(file: ScanFile, directories: Sequence[Directory]) -> TiffStructure | None:
    """Parse an ordinary file by its `plain_directories`; None if it is not ordinary."""
    if not directories:
        return None
    try:
        geo = Tag.GEO_KEY_DIRECTORY in directories[0].entries
        if len(directories) > 1 and not geo:
            return None
        pages = [_page(directory, number) for number, directory in enumerate(directories)]
        images = _images(pages, "geotiff" if geo else "uniform")
        return TiffStructure(images, (file.source,), directories[0].metadata())
    except NotOrdinaryError:
        return None


def _page(directory: Directory, number: int) -> Page:
    """Read the storage of a directory's pixels."""
    _check_tags(directory)
    compression = directory.integer(Tag.COMPRESSION, 1)
    samples = directory.integer(Tag.SAMPLES_PER_PIXEL, 1)
    bits = _uniform(directory, Tag.BITS_PER_SAMPLE, samples)
    sample_format = _uniform(directory, Tag.SAMPLE_FORMAT, samples)
    photometric = directory.integer(Tag.PHOTOMETRIC, 0)
    planar = _is_planar(directory)
    axes, shape, chunk_shape = _layout(directory, samples, planar, photometric)
    tiled = Tag.TILE_WIDTH in directory.entries
    name = tifffile.TIFF.SAMPLE_DTYPES.get((sample_format, bits))
    dtype = None if name is None else np.dtype(name)
    offsets, counts = segments_of(directory, tiled, math.prod(chunk_counts(shape, chunk_shape)))
    predictor = directory.integer(Tag.PREDICTOR, 1)
    tables = directory.array(Tag.JPEG_TABLES)
    fill_order = directory.integer(Tag.FILL_ORDER, 1)
    subsampled = _is_subsampled(directory, photometric)
    plain = compression == 1 and predictor == 1 and fill_order == 1 and not subsampled
    if plain and len(counts) == 1 and bool(counts[0]) != bool(offsets[0]):
        raise NotOrdinaryError  # not missing, to most readers
    return Page(
        index=(number,),
        shape=shape,
        axes=axes,
        chunk_shape=chunk_shape,
        tiled=tiled,
        dtype=dtype,
        big_endian=directory.head.big_endian,
        compression=compression,
        predictor=predictor,
        photometric=photometric,
        fill_order=fill_order,
        sample_format=sample_format,
        bits=bits,
        samples=samples,
        planar=planar,
        extra_samples=directory.integers(Tag.EXTRA_SAMPLES),
        subsampled=subsampled,
        t4_options=0,
        jpeg_tables=None if tables is None else tables.tobytes(),
        nodata=nodata_of(directory.text(Tag.GDAL_NODATA), dtype),
        subfile_type=directory.integer(Tag.NEW_SUBFILE_TYPE, 0),
        offsets=offsets,
        counts=counts,
        contiguous=plain
        and bits in (8, 16, 32, 64)
        and sample_format != 5
        and (not tiled or _are_whole_rows(axes, shape, chunk_shape))
        and _follow_each_other(offsets, counts, math.prod(shape) * bits // 8),
    )


def _check_tags(directory: Directory) -> None:
    entries = directory.entries
    if not entries.keys() <= _ORDINARY_TAGS:
        raise NotOrdinaryError
    if directory.integer(Tag.COMPRESSION, 1) in _UNUSUAL_COMPRESSIONS:
        raise NotOrdinaryError
    single = [entries[code] for code in _SINGLE_INTEGERS if code in entries]
    if any(entry.n_values != 1 or entry.kind not in _INTEGER_KINDS for entry in single):
        raise NotOrdinaryError


def _is_subsampled(directory: Directory, photometric: int) -> bool:
    factors = directory.integers(Tag.YCBCR_SUBSAMPLING)
    return factors != (1, 1) if factors else photometric == 6


def _is_planar(directory: Directory) -> bool:
    value = directory.integer(Tag.PLANAR_CONFIGURATION, 1)
    if value not in (1, 2):
        raise NotOrdinaryError
    return value == 2


def _uniform(directory: Directory, code: int, samples: int) -> int:
    """The value that a tag has for all samples."""
    values = directory.integers(code, (1,))[:samples]
    if len(set(values)) != 1:
        raise NotOrdinaryError
    return int(values[0])


def _layout(
    directory: Directory, samples: int, planar: bool, photometric: int
) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    width = directory.integer(Tag.IMAGE_WIDTH, 0)
    length = directory.integer(Tag.IMAGE_LENGTH, 0)
    if Tag.TILE_WIDTH in directory.entries:
        rows = directory.integer(Tag.TILE_LENGTH, 0)
        columns = directory.integer(Tag.TILE_WIDTH, 0)
    else:
        entry = directory.entries.get(Tag.ROWS_PER_STRIP)
        known = entry is not None and entry.n_values == 1
        rows = min(directory.integer(Tag.ROWS_PER_STRIP, length), length) if known else length
        columns = width
    if min(width, length, rows, columns, samples) < 1 or samples > MAX_SAMPLES:
        raise NotOrdinaryError
    if samples == 1 and photometric != _RGB:
        return "YX", (length, width), (rows, columns)
    if planar:
        return "SYX", (samples, length, width), (1, rows, columns)
    return "YXS", (length, width, samples), (rows, columns, samples)


def segments_of(
    directory: Directory, tiled: bool, n_chunks: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places and sizes of the segments."""
    strips = (Tag.STRIP_OFFSETS, Tag.STRIP_BYTE_COUNTS)
    tiles = (Tag.TILE_OFFSETS, Tag.TILE_BYTE_COUNTS)
    codes, others = (tiles, strips) if tiled else (strips, tiles)
    if not directory.entries.keys().isdisjoint(others):
        raise NotOrdinaryError
    columns = []
    for code in codes:
        entry = directory.entries.get(code)
        if entry is None or entry.n_values != n_chunks or entry.kind not in _INTEGER_KINDS:
            raise NotOrdinaryError
        values = directory.array(code)
        if values is None:
            raise NotOrdinaryError
        if entry.kind == 16 and (values >> np.uint64(62)).any():
            raise NotOrdinaryError
        columns.append(values.astype(np.int64))
    return columns[0], columns[1]


def _are_whole_rows(axes: str, shape: tuple[int, ...], chunk_shape: tuple[int, ...]) -> bool:
    """Whether tiles are rows of the image, all of them inside of it."""
    y = axes.index("Y")
    return shape[y + 1] == chunk_shape[y + 1] and not shape[y] % chunk_shape[y]


def _follow_each_other(offsets: NDArray[np.int64], counts: NDArray[np.int64], n_bytes: int) -> bool:
    """Whether segments are contiguous and hold only the pixels."""
    if int(counts.sum()) != n_bytes or not counts.all() or not offsets.all():
        return False
    return bool((offsets[1:] == (offsets + counts)[:-1]).all())


def _images(pages: Sequence[Page], kind: str) -> tuple[Image, ...]:
    """The image and its mask, each with its smaller versions.

    Other files are not ordinary: what belongs together in them depends on more than sizes.
    """
    pyramids: dict[bool, list[Page]] = {}
    for page in pages:
        pyramids.setdefault(page.is_mask, []).append(page)
    if len({(top.axes, top.dtype) for top, *_ in pyramids.values()}) < len(pyramids):
        raise NotOrdinaryError
    if not all(map(_is_pyramid, pyramids.values())):
        raise NotOrdinaryError
    return tuple(
        Image(kind, "", tuple(_level(page, number, depth) for depth, page in enumerate(pyramid)))
        for number, pyramid in enumerate(pyramids.values())
    )


def _is_pyramid(pages: Sequence[Page]) -> bool:
    """Whether each page says that it is a smaller version, and shrinks by the same factor."""
    return any(
        all(
            coarse.is_reduced and _shrinks(fine, coarse, factor) for fine, coarse in pairwise(pages)
        )
        for factor in _SAMPLING_FACTORS
    )


def _shrinks(fine: Page, coarse: Page, factor: int) -> bool:
    """Whether rows and columns shrink by a factor (rounded either way) and the rest stays."""
    return (fine.axes, fine.dtype) == (coarse.axes, coarse.dtype) and all(
        factor <= n and m in (n // factor, -(-n // factor)) if axis in "XY" else n == m
        for axis, n, m in zip(fine.axes, fine.shape, coarse.shape, strict=True)
    )


def _level(page: Page, number: int, depth: int) -> Level:
    kept = [n for n, axis in enumerate(page.axes) if page.shape[n] > 1 or axis in "XY"]
    return Level(
        number,
        depth,
        tuple(page.shape[n] for n in kept),
        "".join(page.axes[n] for n in kept),
        page,
        (page,),
        (0,),
        int(page.offsets[0]) if page.contiguous else None,
    )
