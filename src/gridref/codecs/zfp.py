"""Streams of the zfp compressor.

Source: https://zfp.readthedocs.io, "High-level C API", ``zfp_write_header``: 32 bits of magic, 52
of type and shape, then 12 of mode, or 12 ones and 52 more of mode; the lowest bit of each byte
comes first.

The library trusts its input and reads on behind the end of a stream that is cut, so all streams are
given it with as many zeros behind them as it could ever read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from gridref.codecs.stage import Raw, as_bytes, as_u1

__all__ = ["ZfpHeader"]

_MAGIC_BITS, _META_BITS, _MODE_BITS, _LONG_MODE_BITS = 32, 52, 12, 64
_SHORT_BITS = _MAGIC_BITS + _META_BITS + _MODE_BITS


@dataclass(frozen=True)
class ZfpHeader:
    """The full header of a stream.

    Attributes
    ----------
    data
        Its bytes; the last one may hold other bits too.
    n_bits
        Its size in bits.
    big_endian
        Whether it was found in big-endian words, and so the elements are to be.
    """

    data: bytes
    n_bits: int
    big_endian: bool = False

    @classmethod
    def from_bytes(cls, data: bytes, *, big_endian: bool = False) -> Self:
        """Read the header at the start of a stream.

        Raises
        ------
        ValueError
            If there is none.
        """
        mode = int.from_bytes(data, "little") >> (_SHORT_BITS - _MODE_BITS) & 0xFFF
        n_bits = _SHORT_BITS + (_LONG_MODE_BITS - _MODE_BITS if mode == 0xFFF else 0)
        if data[:3] != b"zfp" or len(data) * 8 < n_bits:
            raise ValueError("is no zfp stream")
        return cls(data[: -(-n_bits // 8)], n_bits, big_endian)

    @classmethod
    def from_words(cls, words: Sequence[int]) -> Self:
        """Read the header out of 32-bit words, of whatever byte order their writer had.

        Raises
        ------
        ValueError
            If there is none.
        """
        little = np.array(words, "<u4").tobytes()
        if little[:3] == b"zfp":
            return cls.from_bytes(little)
        return cls.from_bytes(np.array(words, ">u4").tobytes(), big_endian=True)

    @property
    def _meta(self) -> int:
        return int.from_bytes(self.data, "little") >> _MAGIC_BITS & ((1 << _META_BITS) - 1)

    @property
    def _item_bytes(self) -> int:
        return (4, 8, 4, 8)[self._meta & 3]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths of the axes, the fastest one first."""
        n_dims = (self._meta >> 2 & 3) + 1
        width = 48 // n_dims
        mask = (1 << width) - 1
        return tuple((self._meta >> 4 + width * axis & mask) + 1 for axis in range(n_dims))

    @property
    def decoded_bytes(self) -> int:
        """Size of the decoded elements."""
        return math.prod(self.lengths) * self._item_bytes

    @property
    def _max_stream_bytes(self) -> int:
        """Upper bound of what the library reads: every bit of a block, tested and stored."""
        block_bits: int = 4 ** len(self.lengths) * (8 * self._item_bytes + 1) + 128
        n_blocks: int = math.prod(-(-length // 4) for length in self.lengths)
        return n_blocks * block_bits // 8 + 64

    def decode_behind(self, raw: Raw) -> NDArray[Any]:
        """Decode a stream that this header was taken off."""
        n_whole, n_bits = divmod(self.n_bits, 8)
        if n_bits:
            # The header ends in the middle of a byte, and so all that follows is shifted.
            last = np.unpackbits(as_u1(self.data[n_whole:]), count=n_bits, bitorder="little")
            rest = np.unpackbits(as_u1(raw), bitorder="little")
            raw = np.packbits(np.concatenate([last, rest]), bitorder="little")
        return self.decode(self.data[:n_whole] + as_bytes(raw))

    def decode(self, stream: bytes, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Decode a stream with this header in it."""
        padding = bytes(max(0, self._max_stream_bytes - len(stream)))
        values: NDArray[Any] = imagecodecs.zfp_decode(stream + padding, out=out)
        return values.byteswap() if self.big_endian else values
