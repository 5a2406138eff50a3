"""Integers that are packed bit by bit, the most significant bit first."""

from __future__ import annotations

from typing import Any

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from gridref.codecs.stage import Raw, as_bytes, as_u1

__all__ = ["unpack_integers"]


def unpack_integers(packed: Raw, width: int, count: int, item_bytes: int) -> NDArray[Any]:
    """Unpack unsigned integers that follow each other without a gap.

    Parameters
    ----------
    packed
        The bits; what lies behind the last integer is ignored.
    width
        Number of bits of an integer, 1 to ``8 * item_bytes``.
    count
        Number of integers.
    item_bytes
        Size of an unpacked integer: 1, 2, 4 or 8.

    Returns
    -------
    numpy.ndarray
        Native unsigned integers of `item_bytes`, of shape ``(count,)``.

    Raises
    ------
    ValueError
        If `packed` holds fewer integers.
    """
    n_bytes = -(-width * count // 8)
    if len(packed) < n_bytes:
        raise ValueError(f"{len(packed)} bytes hold fewer than {count} integers of {width} bits")
    dtype = np.dtype(f"u{item_bytes}")
    if width in (8, 16, 32, 64):
        whole = np.frombuffer(packed, f">u{width // 8}", count)
        return whole.astype(dtype)
    if width < 32 and count:
        narrow = np.dtype(f"u{1 if width < 8 else 2 if width < 16 else 4}")
        values: NDArray[Any] = imagecodecs.packints_decode(
            as_bytes(packed[:n_bytes]), narrow, width
        )
        return values[:count].astype(dtype, copy=False)
    bits = np.zeros((count, 8 * item_bytes), np.uint8)
    bits[:, -width:] = np.unpackbits(as_u1(packed), count=width * count).reshape(count, width)
    return np.packbits(bits).view(f">u{item_bytes}").astype(dtype)
