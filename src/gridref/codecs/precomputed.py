"""Encodings of chunks of neuroglancer precomputed volumes: images and compressed segmentations.

Chunks have the axes channel, z, y, x. An image has the voxels of a chunk as its pixels, row after
row, however wide it is, and the channels as samples of a pixel.

Sources: Neuroglancer's documentation, "Neuroglancer Precomputed Volume Format" (2-d image format
encodings) and the README of its compressed segmentation format; ISO 15948 (PNG), 11.2.2; ITU-T
T.81, B.2.2 (JPEG frame header).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from gridref.codecs.stage import (
    AnyCodec,
    ArraySpec,
    Config,
    Raw,
    SerialCodec,
    SerialDecode,
    as_bytes,
    as_u1,
)
from gridref.codecs.tiff import marker_segments
from gridref.model.grid import chunk_counts

# Images

type _Size = tuple[int, int]
"""Rows and columns of an image."""

_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Second bytes of the markers of JPEG frames."""
_END_OF_JPEG = b"\xff\xd9"


def _png_sizes(data: bytes, spec: ArraySpec) -> Iterator[_Size]:
    if data[:8] != b"\x89PNG\r\n\x1a\n" or len(data) < 24:
        raise ValueError("is no PNG image")
    yield int.from_bytes(data[20:24], "big"), int.from_bytes(data[16:20], "big")


def _jpeg_sizes(data: bytes, spec: ArraySpec) -> Iterator[_Size]:
    stop, frame = 0, b""
    for start in marker_segments(data):
        stop = start + 2 + int.from_bytes(data[start + 2 : start + 4], "big")
        if data[start + 1] in _FRAMES:
            frame = data[start + 5 : start + 9]
    if len(frame) < 4:
        raise ValueError("is no JPEG image")
    # The decoder makes up what is cut off. The marker of the end cannot be part of the data.
    if _END_OF_JPEG not in data[stop:]:
        raise ValueError("the image is cut short")
    yield int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:], "big")


def _jpegxl_sizes(data: bytes, spec: ArraySpec) -> Iterator[_Size]:
    """What Neuroglancer recommends: its header is not simple to read."""
    _, z, y, x = spec.shape
    yield from dict.fromkeys(((y * z, x), (z, x * y), (x * y * z, 1), (1, x * y * z)))


def _image_decoder(
    sizes: Callable[[bytes, ArraySpec], Iterator[_Size]],
    decode: Callable[..., NDArray[Any]],
    config: Config,
    spec: ArraySpec,
) -> SerialDecode:
    n_channels, *voxels = spec.shape
    n_voxels = math.prod(voxels)

    def decoded(raw: Raw) -> NDArray[Any]:
        data = as_bytes(raw)
        fault: Exception = ValueError("the image has another number of pixels than the chunk")
        for rows, columns in sizes(data, spec):
            if rows * columns != n_voxels:
                fault = ValueError(f"the image has {rows} x {columns} pixels, not {n_voxels}")
                continue
            # The decoders compare the image with the output before they decode it.
            samples = (n_channels,) if n_channels > 1 else ()
            out = np.empty((rows, columns, *samples), spec.dtype)
            try:
                image = decode(data, out=out)
            except ValueError as error:
                fault = error
                continue
            return np.moveaxis(image.reshape(*voxels, n_channels), -1, 0)
        raise fault

    return decoded


def _image_codec(
    sizes: Callable[[bytes, ArraySpec], Iterator[_Size]], decode: Callable[..., NDArray[Any]]
) -> SerialCodec:
    return SerialCodec(partial(_image_decoder, sizes, decode))


# Compressed segmentations

_WIDTHS = (0, 1, 2, 4, 8, 16, 32)
_LOW_BITS = 0xFFFFFF


def _segmentation_decoder(config: Config, spec: ArraySpec) -> SerialDecode:
    """Blocks of voxels, each with a table of labels and indexes into it of as few bits as need be.

    A chunk begins with the offset of each channel. A channel begins with two words for each block,
    x fastest: 24 bits offset of its table and 8 bits width of its indexes, then 24 bits offset of
    the indexes. Words have 32 bits, and offsets count words of the channel. Blocks that reach
    beyond the chunk have indexes for all of their voxels, too.
    """
    n_channels, *voxels = spec.shape
    blocks = [int(length) for length in config["block_shape"]]
    counts = chunk_counts(voxels, blocks)
    # A block may be much larger than the chunk: only the voxels inside are decoded.
    shown = [min(extent, length) for extent, length in zip(voxels, blocks, strict=True)]
    z, y, x = np.ogrid[tuple(slice(length) for length in shown)]
    places = (x + blocks[2] * (y + blocks[1] * z)).reshape(-1)
    n_inside = math.prod(blocks)

    def decoded(raw: Raw) -> NDArray[Any]:
        data = as_u1(raw)
        if len(data) % 4:
            raise ValueError(f"{len(data)} bytes are no words of 32 bits")
        words = data.view("<u4")
        if len(words) < n_channels:
            raise ValueError("ends inside of the offsets of channels")
        values = np.empty(spec.shape, spec.dtype)
        for channel, start in enumerate(words[:n_channels].tolist()):
            labels = _labels(words[start:], math.prod(counts), places, n_inside, spec.dtype)
            parts = labels.reshape(*counts, *shown).transpose(0, 3, 1, 4, 2, 5)
            whole = parts.reshape([n * k for n, k in zip(counts, shown, strict=True)])
            values[channel] = whole[tuple(slice(extent) for extent in voxels)]
        return values

    return decoded


def _labels(
    words: NDArray[np.uint32],
    n_blocks: int,
    places: NDArray[np.int64],
    n_inside: int,
    dtype: np.dtype[Any],
) -> NDArray[Any]:
    """The labels of a channel, int (blocks, places): those of some of each block's voxels."""
    if len(words) < 2 * n_blocks:
        raise ValueError("ends inside of the headers of blocks")
    first, second = words[: 2 * n_blocks].reshape(n_blocks, 2).astype(np.int64).T
    table, width, start = first & _LOW_BITS, first >> 24, second & _LOW_BITS
    values = np.empty((n_blocks, len(places)), dtype)
    step = dtype.itemsize // 4
    labels = words if step == 1 else words[:-1] | words[1:].astype(dtype) << dtype.type(32)
    for bits in np.unique(width).tolist():
        if bits not in _WIDTHS:
            raise ValueError(f"has indexes of {bits} bits")
        members = np.flatnonzero(width == bits)
        begin = start[members, np.newaxis]
        if (begin > len(words) - -(-bits * n_inside // 32)).any():
            raise ValueError("points outside of itself")
        at = table[members, np.newaxis]
        if bits:
            at = at + _indexes(words, begin, places, n_inside, bits) * np.int64(step)
        if (at > len(words) - step).any():
            raise ValueError("points outside of its tables")
        values[members] = labels[at]
    return values


def _indexes(
    words: NDArray[np.uint32],
    begin: NDArray[np.int64],
    places: NDArray[np.int64],
    n_inside: int,
    bits: int,
) -> NDArray[np.uint32]:
    """The indexes of some voxels of each block, int (blocks, places)."""
    mask = np.uint32(2**bits - 1)
    if len(places) < n_inside:
        bit = places * bits
        found: NDArray[np.uint32] = (
            words[begin + (bit >> 5)] >> (bit & 31).astype(np.uint32)
        ) & mask
        return found
    held = words[begin + np.arange(-(-bits * n_inside // 32))]
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    parts: NDArray[np.uint32] = (held[..., np.newaxis] >> shifts) & mask
    return parts.reshape(len(begin), -1)[:, :n_inside]


def _segmentation_problem(config: Config) -> str | None:
    lengths = config["block_shape"]
    if len(lengths) != 3 or not all(0 < length < 2**20 for length in lengths):
        return f"blocks have the shape {lengths}"
    return None


CODECS: dict[str, AnyCodec] = {
    "gridref.precomputed_jpeg": _image_codec(_jpeg_sizes, imagecodecs.jpeg_decode),
    "gridref.precomputed_png": _image_codec(_png_sizes, imagecodecs.png_decode),
    "gridref.precomputed_jpegxl": _image_codec(
        _jpegxl_sizes, partial(imagecodecs.jpegxl_decode, numthreads=1)
    ),
    "gridref.compressed_segmentation": SerialCodec(
        _segmentation_decoder, required=("block_shape",), problem=_segmentation_problem
    ),
}
