"""One image as a virtual array, its axes in the order and under the names that people expect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gridref.formats.tiff.chain import jpeg_prefix, page_codecs, raw_codecs
from gridref.formats.tiff.image import Level
from gridref.formats.tiff.stored import StoredImage, locate_image
from gridref.model.array import BlockTable, VirtualArray
from gridref.model.encoding import Encoding, transpose_codec
from gridref.model.grid import ChunkGrid, chunk_counts
from gridref.model.manifest import ChunkManifest, Source

__all__ = ["AXIS_NAMES", "band_order", "channel_order", "describe_image"]

AXIS_NAMES = {
    "X": "x",
    "Y": "y",
    "Z": "z",
    "T": "t",
    "C": "c",
    "S": "sample",
    "I": "page",
    "Q": "q",
    "R": "r",
    "P": "p",
    "M": "mosaic",
    "A": "angle",
    "E": "e",
    "L": "l",
    "H": "h",
    "F": "f",
    "V": "v",
    "W": "w",
    "K": "k",
}
"""Dimension name of each axis letter of tifffile."""


def band_order(axes: str) -> tuple[int, ...]:
    """Order that brings the samples of a georeferenced image in front of its rows: band, y, x."""
    letters = list(range(len(axes)))
    if "S" in axes:
        letters.remove(axes.index("S"))
        letters.insert(axes.replace("S", "").index("Y"), axes.index("S"))
    return tuple(letters)


def channel_order(axes: str) -> tuple[int, ...]:
    """Order that brings the samples in front of the axes of space, where OME-Zarr wants channels.

    An image that has channels beside its samples is left as it is.
    """
    letters = list(range(len(axes)))
    if axes.count("S") == 1 and "C" not in axes:
        sample = letters.pop(axes.index("S"))
        others = axes.replace("S", "")
        letters.insert(len(others.rstrip("ZYX")), sample)
    return tuple(letters)


def describe_image(
    level: Level,
    sources: Sequence[Source],
    dims: Sequence[str],
    *,
    order: tuple[int, ...] | None = None,
    new_axis: int | None = None,
    attrs: Mapping[str, Any],
    max_chunk_bytes: int,
) -> VirtualArray:
    """Describe an image.

    Parameters
    ----------
    dims
        Dimension names of the result.
    order
        Axes of the image in the order of the result; None keeps them.
    new_axis
        Where in the result an axis of length 1 is inserted; None inserts none.
    max_chunk_bytes
        Contiguous elements are split into chunks of at most so many bytes.

    Raises
    ------
    SourceFormatError
        If the file contradicts itself.
    UnsupportedFeatureError
        If the image is stored in a way that cannot be decoded faithfully.
    """
    stored = locate_image(level, sources, max_chunk_bytes)
    order = tuple(range(len(level.shape))) if order is None else order
    encodings, encoding_ids = _encodings(level, stored, order, new_axis)
    shape = _arranged(level.shape, order, new_axis)
    manifest = _reordered(level, stored, order)
    assert level.keyframe.dtype is not None
    dtype = level.keyframe.dtype.newbyteorder("=")
    fill_value = dtype.type(level.keyframe.nodata)
    if len(encodings) == 1:
        return VirtualArray.of_one_block(
            shape,
            dtype,
            encoding=encodings[0],
            manifest=manifest,
            dims=dims,
            attrs=attrs,
            fill_value=fill_value,
        )
    return _of_pages(shape, dims, attrs, fill_value, encodings, encoding_ids, stored, manifest)


def _arranged(
    lengths: Sequence[int], order: tuple[int, ...], new_axis: int | None
) -> tuple[int, ...]:
    arranged = [lengths[axis] for axis in order]
    if new_axis is not None:
        arranged.insert(new_axis, 1)
    return tuple(arranged)


def _encodings(
    level: Level, stored: StoredImage, order: tuple[int, ...], new_axis: int | None
) -> tuple[list[Encoding], list[int]]:
    """The distinct encodings of the pages, and which one each page has."""
    key = level.keyframe
    assert key.dtype is not None
    x_axis = level.axes.rindex("X") - len(level.axes)
    codecs = raw_codecs(key) if stored.raw else page_codecs(key, x_axis)
    chunk_shape = _arranged(stored.chunk_shape, order, new_axis)
    if order != tuple(range(len(order))):
        codecs = (transpose_codec(_stored_order(order, new_axis)), *codecs)
    prefixes: dict[bytes, int] = {}
    ids = []
    for page in level.pages:
        prefix = b"" if stored.raw else jpeg_prefix(page or key)
        ids.append(prefixes.setdefault(prefix, len(prefixes)))
    dtype = key.dtype.newbyteorder("=")
    return [Encoding(chunk_shape, dtype, codecs, stored.edge, prefix) for prefix in prefixes], ids


def _stored_order(order: tuple[int, ...], new_axis: int | None) -> tuple[int, ...]:
    """For each axis of a stored chunk, which axis of the array it is."""
    axes = list(order)
    if new_axis is not None:
        axes.insert(new_axis, -1)
    return tuple(int(axis) for axis in np.argsort(axes))


def _reordered(level: Level, stored: StoredImage, order: tuple[int, ...]) -> ChunkManifest:
    """Manifest rows in C order of the array's axes."""
    if order == tuple(range(len(order))):
        return stored.manifest
    grid_shape = chunk_counts(level.shape, stored.chunk_shape)
    moved = [axis for axis in order if grid_shape[axis] > 1]
    if moved == sorted(moved):
        return stored.manifest
    rows = np.arange(stored.manifest.n_rows).reshape(grid_shape).transpose(order).reshape(-1)
    return stored.manifest.take(rows)


def _of_pages(
    shape: tuple[int, ...],
    dims: Sequence[str],
    attrs: Mapping[str, Any],
    fill_value: Any,
    encodings: list[Encoding],
    encoding_ids: list[int],
    stored: StoredImage,
    manifest: ChunkManifest,
) -> VirtualArray:
    """An array of one block a page, for pages that are encoded differently."""
    n_pages = len(encoding_ids)
    leading, n_blocks = 0, 1
    while n_blocks < n_pages:
        n_blocks *= shape[leading]
        leading += 1
    page_shape = (1,) * leading + shape[leading:]
    single = BlockTable.single(page_shape, encodings[0].chunk_shape)
    blocks = BlockTable(
        np.array(encoding_ids, np.int32),
        np.zeros(n_pages, np.int32),
        np.arange(n_pages, dtype=np.int64) * stored.rows_per_page,
        *(
            np.repeat(column, n_pages, axis=0)
            for column in (single.row_stride, single.stored_shape, single.origin, single.step)
        ),
    )
    return VirtualArray(
        ChunkGrid.regular(shape, page_shape),
        encodings[0].dtype,
        fill_value,
        tuple(dims),
        dict(attrs),
        tuple(encodings),
        (manifest,),
        blocks,
    )
