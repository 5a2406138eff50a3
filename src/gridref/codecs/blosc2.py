"""Frames of C-Blosc2, and chunks of the arrays that they hold (b2nd).

`Blosc2Header` reads the header of a frame, `Blosc2Frame` decodes a whole contiguous one, as HDF5's
Blosc2 filter stores it. The codec ``gridref.b2nd`` decodes a chunk of an array: blocks in C order,
each in C order and of the full shape, also where it overhangs the chunk. Numbers in headers are
big-endian, each after a byte with its type.

Sources: C-Blosc2, ``README_CFRAME_FORMAT.rst``, ``README_CHUNK_FORMAT.rst`` and
``README_B2ND_METALAYER.rst``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
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
)
from gridref.limits import beyond, limits
from gridref.model.grid import chunk_counts, region_of

# Frames

_FIXED_HEADER_BYTES = 87
_DIMENSIONS = "b2nd"
"""The layer that describes dimensions."""
DELTA = 3
"""The number of a filter."""
ZEROS, NANS, UNINITIALISED = 1, 2, 4
"""Chunks of a single repeated value are not stored: their offset states their value."""


@dataclass(frozen=True)
class Blosc2Header:
    """The header of a frame.

    Attributes
    ----------
    data
        The beginning of the frame; the whole header, at least.

    Raises
    ------
    ValueError
        If the bytes begin no frame.
    """

    data: bytes

    def __post_init__(self) -> None:
        if len(self.data) < _FIXED_HEADER_BYTES or self.data[1:10] != b"\xa8b2frame\x00":
            raise ValueError("is no Blosc2 frame")

    def number(self, start: int, size: int) -> int:
        """The signed number at a place."""
        return int.from_bytes(self.data[start : start + size], "big", signed=True)

    @property
    def header_bytes(self) -> int:
        return self.number(11, 4)

    @property
    def frame_bytes(self) -> int:
        return self.number(16, 8)

    @property
    def has_equal_chunks(self) -> bool:
        """Whether all chunks have the same decoded size, so that there is an index of them."""
        return not self.data[25] & 0x40

    @property
    def index_start(self) -> int:
        """First byte of the compressed offsets of the chunks, which are after them."""
        return self.header_bytes + self.number(39, 8)

    @property
    def filters(self) -> bytes:
        """Numbers of the filters that chunks are written with."""
        return self.data[71:77]

    @property
    def is_sparse(self) -> bool:
        """Whether chunks are in files of their own."""
        return self.data[26] & 15 == 1

    @property
    def item_bytes(self) -> int:
        return self.number(48, 4)

    @property
    def has_dimensions(self) -> bool:
        return self.has_layer(_DIMENSIONS)

    def has_layer(self, name: str) -> bool:
        """Whether the header has a layer of that name."""
        return self._layer_place(name) > 0

    def _layer_place(self, name: str) -> int:
        """Where the offset of a layer is, which follows its name, or -1."""
        entry = bytes([0xA0 + len(name)]) + name.encode() + b"\xd2"
        place = self.data.find(entry, _FIXED_HEADER_BYTES, self.header_bytes)
        return place if place < 0 else place + len(entry)

    def extents(self) -> tuple[list[int], list[int], list[int]]:
        """Shape, chunk shape and block shape."""
        return self._layer()[0]

    def _layer(self) -> tuple[tuple[list[int], list[int], list[int]], int]:
        """The extents, and where the data type is described."""
        position = self.number(self._layer_place(_DIMENSIONS), 4) + 6  # after the layer's own size
        n_dims = self.number(position + 1, 1)
        extents: list[list[int]] = []
        position += 2
        for size in (8, 4, 4):
            starts = range(position + 2, position + 2 + n_dims * (size + 1), size + 1)
            extents.append([self.number(start, size) for start in starts])
            position += 1 + n_dims * (size + 1)
        shape, chunk, block = extents
        return (shape, chunk, block), position

    def data_type(self) -> str | None:
        """Numpy's name of the elements' type; None if the frame does not state it so."""
        _, position = self._layer()
        if self.data[position : position + 2] != b"\x00\xdb":
            return None
        start = position + 6
        name = self.data[start : start + max(0, self.number(position + 2, 4))]
        return name.decode("ascii") if name.isascii() else None

    @property
    def decoded_bytes(self) -> int:
        """Size of all elements, decoded.

        In an array with dimensions, the header's size counts the elements that pad blocks too.

        Raises
        ------
        ValueError
            If the header contradicts itself, or states more than the limit.
        """
        in_chunks = self.number(30, 8)
        if not self.has_dimensions:
            return in_chunks
        extents = [shape, chunk, _] = self.extents()
        if min(min(extent, default=1) for extent in extents) < 1:
            raise ValueError(f"header says that shape, chunk and block are {list(extents)}")
        padded = self.chunk_bytes * prod(chunk_counts(shape, chunk))
        if in_chunks != padded:
            raise ValueError(f"header says {in_chunks} bytes are in chunks, blocks have {padded}")
        if padded > limits().decoded_bytes:
            raise ValueError(beyond("decoded_bytes", f"header says blocks have {padded} bytes"))
        return prod(shape) * self.item_bytes

    @property
    def chunk_bytes(self) -> int:
        """Decoded bytes of a chunk of an array, with the elements that pad blocks."""
        _, chunk, block = self.extents()
        return self.item_bytes * prod(padded_shape(chunk, block))


def padded_shape(chunk: Sequence[int], block: Sequence[int]) -> list[int]:
    """Shape of a chunk with whole blocks."""
    return [-(-length // part) * part for length, part in zip(chunk, block, strict=True)]


@dataclass(frozen=True)
class Blosc2Frame(Blosc2Header):
    """A contiguous frame: chunks, and their places in it.

    Raises
    ------
    ValueError
        If the bytes are not exactly one frame.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.frame_bytes != len(self.data):
            stored = self.frame_bytes
            raise ValueError(f"header says {stored} bytes are stored, got {len(self.data)}")

    def decode(self) -> NDArray[np.uint8]:
        """Decode all chunks."""
        decoded = self._decode_chunks()
        return self._in_c_order(decoded) if self.has_dimensions else decoded

    def _in_c_order(self, decoded: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The array from its chunks, which hold it block by block; the last blocks are padded."""
        shape, chunk, block = self.extents()
        stored = decoded.view(f"V{self.item_bytes}").reshape(prod(chunk_counts(shape, chunk)), -1)
        values = np.empty(shape, stored.dtype)
        for place, blocks in zip(np.ndindex(*chunk_counts(shape, chunk)), stored, strict=True):
            starts = [n * length for n, length in zip(place, chunk, strict=True)]
            out = values[region_of(starts, chunk)]
            out[...] = in_rows(blocks, chunk, block)[tuple(slice(n) for n in out.shape)]
        return values.reshape(-1).view(np.uint8)

    def _decode_chunks(self) -> NDArray[np.uint8]:
        size, chunk_bytes = self.number(30, 8), self.number(58, 4)
        if chunk_bytes < 1:
            raise ValueError(f"header says that chunks have {chunk_bytes} bytes")
        decoded = np.empty(size, np.uint8)
        starts = range(0, size, chunk_bytes)
        for start, offset in zip(starts, self._offsets(len(starts)), strict=True):
            stop = min(start + chunk_bytes, size)
            self._decode_chunk(int(offset), decoded[start:stop])
        return decoded

    def _offsets(self, n_chunks: int) -> NDArray[np.int64]:
        return chunk_offsets(self.data[self.index_start :], n_chunks)

    def _decode_chunk(self, offset: int, out: NDArray[np.uint8]) -> None:
        if offset < 0:
            self._fill(special_kind(offset), out)
        else:
            out[:] = decoded_chunk(self.data[self.header_bytes + offset :], len(out))

    def _fill(self, kind: int, out: NDArray[np.uint8]) -> None:
        item_bytes = self.item_bytes
        if kind == ZEROS:
            out[:] = 0
        elif kind == NANS and item_bytes in (4, 8):
            out.view(f"<f{item_bytes}")[:] = np.nan
        else:
            raise ValueError(f"a chunk of repeated values of kind {kind} is not supported")


# Chunks


def chunk_offsets(index: bytes, n_chunks: int) -> NDArray[np.int64]:
    """Offsets of the chunks from the end of the header; a negative one states a repeated value.

    Parameters
    ----------
    index
        The bytes that begin with the compressed offsets, which are a chunk.
    """
    return np.frombuffer(decoded_chunk(index, 8 * n_chunks), "<i8", n_chunks)


def special_kind(offset: int) -> int:
    """The kind of values that a negative offset stands for."""
    return offset >> 56 & 7


def one_chunk(data: bytes) -> bytes:
    """The chunk at the start of `data`: its size is the fourth word of its header."""
    size = int.from_bytes(data[12:16], "little")
    if not 16 <= size <= len(data):
        raise ValueError(f"header states a chunk of {size} bytes, got {len(data)}")
    return data[:size]


def decoded_chunk(data: bytes, n_bytes: int) -> NDArray[np.uint8]:
    """Decode the chunk at the start of `data`.

    Raises
    ------
    ValueError
        If a size is wrong.
    imagecodecs.Blosc2Error
        If compressed bytes are wrong.
    """
    chunk = one_chunk(data)
    said = int.from_bytes(data[4:8], "little")
    if said != n_bytes:
        raise ValueError(f"a chunk decodes to {said} bytes, expected {n_bytes}")
    if _has_long_header(chunk) and chunk[31] >> 4 & 7 == UNINITIALISED:
        return np.zeros(n_bytes, np.uint8)  # the library leaves what is in memory
    decoded = imagecodecs.blosc2_decode(chunk, numthreads=1, out=n_bytes)
    if len(decoded) != n_bytes:
        raise ValueError(f"a chunk decodes to {len(decoded)} bytes, expected {n_bytes}")
    return np.frombuffer(decoded, np.uint8)


def _has_long_header(data: bytes) -> bool:
    """Whether the header of a chunk has 32 bytes, with filters and kinds of repeated values."""
    return len(data) >= 32 and data[2] & 5 == 5


def in_rows(elements: NDArray[Any], chunk: Sequence[int], block: Sequence[int]) -> NDArray[Any]:
    """The elements of a chunk in C order, from those of its blocks one after the other."""
    by_axis = [k for axis in range(len(chunk)) for k in (axis, axis + len(chunk))]
    blocks = elements.reshape((*chunk_counts(chunk, block), *block)).transpose(by_axis)
    whole = blocks.reshape(padded_shape(chunk, block))
    return whole[tuple(slice(length) for length in chunk)]


def _b2nd_decoder(config: Config, spec: ArraySpec) -> SerialDecode:
    block, shape = [int(length) for length in config["block_shape"]], spec.shape
    if len(block) != len(shape) or min(block, default=1) < 1:
        raise ValueError(f"blocks of shape {block} are in chunks of shape {shape}")
    stored = spec.dtype.newbyteorder(">" if config.get("endian") == "big" else "<")
    n_bytes = prod(padded_shape(shape, block)) * stored.itemsize
    if n_bytes > limits().decoded_bytes:
        raise ValueError(beyond("decoded_bytes", f"a chunk decodes to {n_bytes} bytes"))

    def decode(raw: Raw) -> NDArray[Any]:
        data = as_bytes(raw)
        if _has_long_header(data) and DELTA in data[16:22]:
            raise ValueError("the filter delta is used, which C-Blosc2 does not undo reliably")
        elements = decoded_chunk(data, n_bytes).view(stored)
        return in_rows(elements, shape, block).astype(spec.dtype, copy=False)

    return decode


CODECS: dict[str, AnyCodec] = {
    "gridref.b2nd": SerialCodec(_b2nd_decoder, required=("block_shape",)),
}
