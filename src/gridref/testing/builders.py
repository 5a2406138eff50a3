"""Virtual arrays made from numpy arrays, cut into stored chunks that are kept inline."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.model.array import VirtualArray
from gridref.model.encoding import Codec, EdgePolicy, Encoding, bytes_codec
from gridref.model.grid import chunk_counts
from gridref.model.manifest import ChunkManifest, ChunkState

__all__ = ["chunked_array"]


def chunked_array(
    values: NDArray[Any],
    chunk_shape: Sequence[int],
    dims: Sequence[str],
    *,
    edge: EdgePolicy = EdgePolicy.PADDED,
    big_endian: bool = False,
    compressed: bool = False,
    attrs: Mapping[str, Any] | None = None,
    fill_value: Any = None,
    absent: Collection[int] = (),
) -> VirtualArray:
    """Cut values into stored chunks, as a file would hold them.

    Parameters
    ----------
    values
        The elements.
    chunk_shape
        Shape of the stored chunks.
    dims
        Names of the dimensions.
    edge
        How chunks that overhang are kept. Padding is filled with junk, which no reader may show.
    big_endian, compressed
        Byte order, and whether chunks are compressed with zlib.
    attrs, fill_value
        As for `VirtualArray`.
    absent
        Numbers of chunks, in C order, that are left out; they read as the fill value.

    Returns
    -------
    VirtualArray
        One block whose chunks are inline. Where no chunk is absent, it reads as `values`.
    """
    native = values.astype(values.dtype.newbyteorder("="))
    stored_dtype = native.dtype.newbyteorder(">" if big_endian else "<")
    chunks = []
    counts = chunk_counts(native.shape, chunk_shape)
    for number, coords in enumerate(itertools.product(*map(range, counts))):
        part = native[
            tuple(slice(k * n, (k + 1) * n) for k, n in zip(coords, chunk_shape, strict=True))
        ]
        raw = _stored(part, chunk_shape, edge).astype(stored_dtype).tobytes()
        chunks.append(b"" if number in absent else zlib.compress(raw, 1) if compressed else raw)
    lengths = np.array([len(chunk) for chunk in chunks], np.int64)
    held = [
        ChunkState.MISSING if number in absent else ChunkState.INLINE
        for number in range(len(chunks))
    ]
    manifest = ChunkManifest.from_columns(
        (),
        offset=np.cumsum(lengths) - lengths,
        length=lengths,
        state=np.array(held, np.uint8),
        inline=b"".join(chunks),
    )
    codecs = [bytes_codec(native.dtype, big_endian=big_endian)]
    if compressed:
        codecs.append(Codec.of("numcodecs.zlib", level=1))
    return VirtualArray.of_one_block(
        native.shape,
        native.dtype,
        encoding=Encoding(tuple(chunk_shape), native.dtype, tuple(codecs), edge),
        manifest=manifest,
        dims=dims,
        attrs=attrs,
        fill_value=fill_value,
    )


def _stored(part: NDArray[Any], chunk_shape: Sequence[int], edge: EdgePolicy) -> NDArray[Any]:
    if edge is EdgePolicy.TRUNCATED:
        return part
    junk = np.frombuffer(b"\x55" * (math.prod(chunk_shape) * part.dtype.itemsize), part.dtype)
    full = junk.reshape(chunk_shape).copy()
    full[tuple(slice(0, n) for n in part.shape)] = part
    return full
