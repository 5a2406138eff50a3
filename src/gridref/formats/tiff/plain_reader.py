"""The structure of ordinary TIFF files, read without tifffile.

This reader is ten times as fast as tifffile and reads each long tag exactly once. A file is
ordinary if it has no tag that marks a special flavour of TIFF; all files that GDAL writes are
ordinary. Any other file is left to `tifffile_reader`.

Series and levels are counted as in tifffile: similar pages make a series, and a series of half (a
third, a quarter) the size is a level of the one before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

from gridref.formats.tiff.directory import (
    METADATA_TAGS,
    Directory,
    Tag,
    TiffHead,
    Window,
    read_directories,
)
from gridref.formats.tiff.images import MAX_SAMPLES, Image, Level, Page, TiffStructure
from gridref.io import ScanFile

_ORDINARY_TAGS = frozenset(
    {
        Tag.NEW_SUBFILE_TYPE,
        Tag.IMAGE_WIDTH,
        Tag.IMAGE_LENGTH,
        Tag.BITS_PER_SAMPLE,
        Tag.COMPRESSION,
        Tag.PHOTOMETRIC,
        Tag.FILL_ORDER,
        Tag.STRIP_OFFSETS,
        Tag.ORIENTATION,
        Tag.SAMPLES_PER_PIXEL,
        Tag.ROWS_PER_STRIP,
        Tag.STRIP_BYTE_COUNTS,
        Tag.X_RESOLUTION,
        Tag.Y_RESOLUTION,
        Tag.PLANAR_CONFIGURATION,
        Tag.RESOLUTION_UNIT,
        Tag.PREDICTOR,
        Tag.COLOR_MAP,
        Tag.TILE_WIDTH,
        Tag.TILE_LENGTH,
        Tag.TILE_OFFSETS,
        Tag.TILE_BYTE_COUNTS,
        Tag.EXTRA_SAMPLES,
        Tag.SAMPLE_FORMAT,
        Tag.JPEG_TABLES,
        Tag.YCBCR_SUBSAMPLING,
        Tag.REFERENCE_BLACK_WHITE,
        Tag.MODEL_PIXEL_SCALE,
        Tag.MODEL_TIEPOINT,
        Tag.MODEL_TRANSFORMATION,
        Tag.GEO_KEY_DIRECTORY,
        Tag.GEO_DOUBLE_PARAMS,
        Tag.GEO_ASCII_PARAMS,
        Tag.GDAL_METADATA,
        Tag.GDAL_NODATA,
        Tag.LERC_PARAMETERS,
        Tag.DATE_TIME,
    }
)
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
_MAX_UNREFERENCED = 7
_SAMPLING_FACTORS = (2, 3, 4)


class NotOrdinaryError(Exception):
    """The file has a feature that only tifffile knows."""


def is_cog(window: Window) -> bool:
    """Whether a file states that it is a cloud-optimised GeoTIFF."""
    return b"LAYOUT=IFDS_BEFORE_DATA" in window.read(0, min(window.size, 512))


def plain_directories(window: Window, head: TiffHead) -> list[Directory]:
    """The directories of a file that may be ordinary; none for other files.

    Raises
    ------
    SourceFormatError
        As `read_plain_structure` does.
    """
    if head.ndpi:
        return []
    directories, complete = read_directories(window, head, _MAX_DIRECTORIES)
    for directory in directories:
        directory.check(_PIXEL_TAGS)
    return directories if complete else []


def read_plain_structure(
    file: ScanFile, window: Window, directories: Sequence[Directory]
) -> TiffStructure | None:
    """Parse an ordinary file.

    Parameters
    ----------
    window
        Its beginning.
    directories
        Those that `plain_directories` found.

    Returns
    -------
    TiffStructure or None
        None if the file is not ordinary.

    Raises
    ------
    SourceFormatError
        If tags with the places of pixels are themselves not in the file: tifffile would go on
        without them.
    """
    if not directories:
        return None
    try:
        geo = Tag.GEO_KEY_DIRECTORY in directories[0].entries
        if len(directories) > _MAX_UNREFERENCED and not geo:
            return None
        pages = [_page(directory, number) for number, directory in enumerate(directories)]
        kind = "geotiff" if geo else "uniform" if len(pages) == 1 else "generic"
        images = _images(pages, kind, reduced_only=geo and is_cog(window))
        return TiffStructure(images, (file.source,), _metadata(directories[0]))
    except NotOrdinaryError:
        return None


def _metadata(directory: Directory) -> dict[int, Any]:
    values: dict[int, Any] = {}
    for code in METADATA_TAGS:
        entry = directory.entries.get(code)
        if entry is not None:
            value = directory.text(code) if entry.kind == 2 else directory.array(code)
            if value is not None:
                values[code] = value
    return values


def _page(directory: Directory, number: int) -> Page:
    """Read the storage of a directory's pixels."""
    _check_tags(directory)
    compression = directory.integer(Tag.COMPRESSION, 1)
    samples = directory.integer(Tag.SAMPLES_PER_PIXEL, 1)
    bits = _uniform(directory, Tag.BITS_PER_SAMPLE, samples)
    sample_format = _uniform(directory, Tag.SAMPLE_FORMAT, samples)
    photometric = directory.integer(Tag.PHOTOMETRIC, 0)
    planar = _is_planar(directory)
    layout = _layout(directory, samples, planar, photometric)
    name = tifffile.TIFF.SAMPLE_DTYPES.get((sample_format, bits))
    dtype = None if name is None else np.dtype(name)
    offsets, counts = segments_of(directory, layout.tiled, layout.n_chunks)
    predictor = directory.integer(Tag.PREDICTOR, 1)
    tables = directory.array(Tag.JPEG_TABLES)
    fill_order = directory.integer(Tag.FILL_ORDER, 1)
    subsampled = _is_subsampled(directory, photometric)
    plain = compression == 1 and predictor == 1 and fill_order == 1 and not subsampled
    if plain and len(counts) == 1 and bool(counts[0]) != bool(offsets[0]):
        raise NotOrdinaryError  # not missing, to most readers
    return Page(
        index=(number,),
        shape=layout.shape,
        axes=layout.axes,
        chunk_shape=layout.chunk_shape,
        tiled=layout.tiled,
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
        nodata=_fill(directory, dtype),
        subfile_type=directory.integer(Tag.NEW_SUBFILE_TYPE, 0),
        offsets=offsets,
        counts=counts,
        contiguous=plain
        and bits in (8, 16, 32, 64)
        and sample_format != 5
        and layout.in_row_order
        and _follow_each_other(offsets, counts, math.prod(layout.shape) * bits // 8),
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


@dataclass(frozen=True)
class _Layout:
    """How segments tile an image; see `Page`."""

    axes: str
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    tiled: bool
    n_chunks: int
    in_row_order: bool


def _layout(directory: Directory, samples: int, planar: bool, photometric: int) -> _Layout:
    width = directory.integer(Tag.IMAGE_WIDTH, 0)
    length = directory.integer(Tag.IMAGE_LENGTH, 0)
    tiled = Tag.TILE_WIDTH in directory.entries
    if tiled:
        rows = directory.integer(Tag.TILE_LENGTH, 0)
        columns = directory.integer(Tag.TILE_WIDTH, 0)
    else:
        entry = directory.entries.get(Tag.ROWS_PER_STRIP)
        known = entry is not None and entry.n_values == 1
        rows = min(directory.integer(Tag.ROWS_PER_STRIP, length), length) if known else length
        columns = width
    if min(width, length, rows, columns, samples) < 1 or samples > MAX_SAMPLES:
        raise NotOrdinaryError
    n_chunks = -(-length // rows) * -(-width // columns) * (samples if planar else 1)
    axes = "YX"
    shape: tuple[int, ...] = (length, width)
    chunk: tuple[int, ...] = (rows, columns)
    if samples > 1 or photometric == 2:
        axes = "SYX" if planar else "YXS"
        shape = (samples, *shape) if planar else (*shape, samples)
        chunk = (1, *chunk) if planar else (*chunk, samples)
    in_row_order = not tiled or (columns == width and not length % rows)
    return _Layout(axes, shape, chunk, tiled, n_chunks, in_row_order)


def segments_of(
    directory: Directory, tiled: bool, n_chunks: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places and sizes of the segments.

    Raises
    ------
    NotOrdinaryError
        For anything but one offset and count each.
    """
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


def _follow_each_other(offsets: NDArray[np.int64], counts: NDArray[np.int64], n_bytes: int) -> bool:
    """Whether segments are contiguous and hold only the pixels."""
    if int(counts.sum()) != n_bytes or not counts.all() or not offsets.all():
        return False
    return bool((offsets[1:] == (offsets + counts)[:-1]).all())


def _fill(directory: Directory, dtype: np.dtype[Any] | None) -> Any:
    """The value of absent tiles: the nodata value if the elements can hold it, else 0."""
    text = directory.text(Tag.GDAL_NODATA)
    if text is None or dtype is None:
        return 0
    try:
        value = type(dtype.type(0).item())(text.replace(",", "."))
        return value if np.can_cast(np.min_scalar_type(value), dtype) else 0
    except (ValueError, TypeError):
        return 0


@dataclass(eq=False)
class _Series:
    """Similar pages, and the series that are smaller versions of them."""

    pages: list[Page]
    levels: list[_Series]

    @cached_property
    def key(self) -> tuple[str, tuple[int, ...], Any]:
        first = self.pages[0]
        extra = "" if "S" in first.axes else "S"
        shape = (len(self.pages), *first.shape, *(1 for _ in extra))
        return "I" + first.axes + extra, shape, first.dtype


def _images(pages: Sequence[Page], kind: str, *, reduced_only: bool) -> tuple[Image, ...]:
    """Sort pages into series, and series into pyramids."""
    alike: dict[Any, list[Page]] = {}
    for page in pages:
        alike.setdefault(_alike_key(page), []).append(page)
    series = [_Series(group, []) for group in alike.values()]
    if kind != "uniform":
        _join_levels(series, reduced_only=reduced_only)
    return tuple(
        Image(
            kind,
            "",
            tuple(_level(member, number, depth) for depth, member in enumerate([top, *top.levels])),
        )
        for number, top in enumerate(series)
    )


_alike_key = attrgetter(
    *("axes", "shape", "tiled", "chunk_shape", "sample_format", "bits", "fill_order", "predictor"),
    *("compression", "extra_samples", "photometric"),
)


def _join_levels(series: list[_Series], *, reduced_only: bool) -> None:
    """Move each series that is a smaller version of another after that one."""
    top = 0
    while top < len(series):
        factor, candidate = None, top + 1
        while candidate < len(series):
            last = (series[top].levels or [series[top]])[-1]
            factors = _SAMPLING_FACTORS if factor is None else (factor,)
            fits = None
            if series[candidate].pages[0].is_reduced or not reduced_only:
                fits = next((p for p in factors if _next_level(last, series[candidate], p)), None)
            if fits is None:
                candidate += 1
                continue
            factor = fits
            series[top].levels.append(series.pop(candidate))
        top += 1


def _next_level(fine: _Series, coarse: _Series, factor: int) -> bool:
    """Whether rows and columns shrink by `factor` (rounded either way) and the rest stays."""
    axes, shape, dtype = fine.key
    if (axes, dtype) != (coarse.key[0], coarse.key[2]):
        return False
    pairs = list(zip(axes, shape, coarse.key[1], strict=True))
    if any(n != m for axis, n, m in pairs if axis not in "XY"):
        return False
    space = [(n, m) for axis, n, m in pairs if axis in "XY"]
    # A length that does not change is level 0 of the first axis, and no smaller version.
    if space[0][0] == space[0][1]:
        return False
    return all(factor <= n and m in (n // factor, -(-n // factor)) for n, m in space)


def _level(series: _Series, number: int, depth: int) -> Level:
    axes, shape, _ = series.key
    kept = [axis for axis, extent in enumerate(shape) if extent > 1 or axes[axis] in "XY"]
    first = series.pages[0]
    whole = len(series.pages) == 1 and first.contiguous
    return Level(
        number,
        depth,
        tuple(shape[axis] for axis in kept),
        "".join(axes[axis] for axis in kept),
        first,
        tuple(series.pages),
        (0,) * len(series.pages),
        int(first.offsets[0]) if whole else None,
    )
