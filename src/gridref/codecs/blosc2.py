"""Contiguous frames of C-Blosc2, as HDF5's Blosc2 filter stores them.

Sources: C-Blosc2, ``README_CFRAME_FORMAT.rst`` (numbers are big-endian, each behind a byte that
says its type) and ``README_B2ND_METALAYER.rst``.
"""

from __future__ import annotations

from dataclasses import dataclass

import imagecodecs
import numpy as np
from numpy.typing import NDArray

__all__ = ["Blosc2Frame"]

_FIXED_HEADER_BYTES = 87
_ZEROS, _NANS = 1, 2
"""Chunks of a single repeated value are not stored: their offset says what they hold."""


@dataclass(frozen=True)
class Blosc2Frame:
    """A frame: chunks, and where they lie in it.

    Raises
    ------
    ValueError
        If the bytes are no frame, or more or less than one.
    """

    data: bytes

    def __post_init__(self) -> None:
        if len(self.data) < _FIXED_HEADER_BYTES or self.data[1:10] != b"\xa8b2frame\x00":
            raise ValueError("is no Blosc2 frame")
        stored = self._number(16, 8)
        if stored != len(self.data):
            raise ValueError(f"header says {stored} bytes are stored, got {len(self.data)}")

    def _number(self, start: int, size: int) -> int:
        return int.from_bytes(self.data[start : start + size], "big", signed=True)

    @property
    def decoded_bytes(self) -> int:
        """Size of all chunks, decoded."""
        return self._number(30, 8)

    @property
    def _header_bytes(self) -> int:
        return self._number(11, 4)

    def decode(self) -> NDArray[np.uint8]:
        """Decode all chunks.

        Raises
        ------
        ValueError
            If a size in the frame is wrong.
        imagecodecs.Blosc2Error, imagecodecs.B2ndError
            If compressed bytes are wrong.
        """
        if b"b2nd" in self.data[: self._header_bytes]:
            values = np.ascontiguousarray(imagecodecs.b2nd_decode(self.data, numthreads=1))
            decoded: NDArray[np.uint8] = values.reshape(-1).view(np.uint8)
            return decoded
        return self._decode_chunks()

    def _decode_chunks(self) -> NDArray[np.uint8]:
        """Decode a frame of plain bytes chunk by chunk."""
        size, chunk_bytes = self.decoded_bytes, self._number(58, 4)
        if chunk_bytes < 1:
            raise ValueError(f"header says that chunks have {chunk_bytes} bytes")
        decoded = np.empty(size, np.uint8)
        starts = range(0, size, chunk_bytes)
        for start, offset in zip(starts, self._offsets(len(starts)), strict=True):
            stop = min(start + chunk_bytes, size)
            self._decode_chunk(int(offset), decoded[start:stop])
        return decoded

    def _offsets(self, n_chunks: int) -> NDArray[np.int64]:
        """Offsets of the chunks behind the header; they lie compressed behind the chunks."""
        index = self.data[self._header_bytes + self._number(39, 8) :]
        offsets = imagecodecs.blosc2_decode(_one_chunk(index), numthreads=1, out=8 * n_chunks)
        return np.frombuffer(offsets, "<i8", n_chunks)

    def _decode_chunk(self, offset: int, out: NDArray[np.uint8]) -> None:
        if offset < 0:
            self._fill(offset >> 56 & 7, out)
            return
        chunk = _one_chunk(self.data[self._header_bytes + offset :])
        part = imagecodecs.blosc2_decode(chunk, numthreads=1, out=len(out))
        if len(part) != len(out):
            raise ValueError(f"a chunk decodes to {len(part)} bytes, expected {len(out)}")
        out[:] = np.frombuffer(part, np.uint8)

    def _fill(self, kind: int, out: NDArray[np.uint8]) -> None:
        item_bytes = self._number(48, 4)
        if kind == _ZEROS:
            out[:] = 0
        elif kind == _NANS and item_bytes in (4, 8):
            out.view(f"<f{item_bytes}")[:] = np.nan
        else:
            raise ValueError(f"a chunk of repeated values of kind {kind} is not supported")


def _one_chunk(data: bytes) -> bytes:
    """The chunk at the start of `data`: its size is the fourth word of its header."""
    size = int.from_bytes(data[12:16], "little")
    if not 16 <= size <= len(data):
        raise ValueError(f"a chunk of {size} bytes lies in {len(data)} bytes")
    return data[:size]
