"""Shuffle and Fletcher-32 as HDF5 and numcodecs store them.

Sources: HDF5 file format specification, version 3.0, IV.A.2.l "Filter Pipeline Message" (filters 2
and 3); HDF5 library documentation of H5Pset_shuffle and H5Pset_fletcher32; C-Blosc,
``README_CHUNK_FORMAT.rst``.
"""

from __future__ import annotations

import struct
import threading

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from gridref.codecs.stage import (
    ArraySpec,
    BytesCodec,
    BytesDecode,
    Config,
    Fill,
    Raw,
    as_u1,
    four_more_bytes,
    same_bytes,
)

__all__ = ["BYTES_CODECS", "unshuffle"]

_BLOCK_BYTES = 256 * 2**10
"""Bytes that are put in order at a time: few enough to stay in the cache of a processor."""
_MOST_ELEMENT_BYTES = 255
"""Blosc's largest type size."""
_BLOSC = struct.Struct("<BBBBiiiii")
"""Header of a C-Blosc buffer: versions of Blosc and LZ4, flags, type size; sizes of the decoded
data, of a block and of the buffer; where the only block begins, and its stored size."""
_BLOSC_FORM = 2, 1, 0x01 | 0x10 | 0x20
"""The versions; shuffled by bytes, blocks are not split, LZ4."""


_ROOM_BYTES = 2**20
"""Size up to which shuffled bytes are decoded to where they need not be copied from."""


class _Room(threading.local):
    """A thread's memory for a header of Blosc's and what is shuffled, used again and again."""

    def __init__(self) -> None:
        self.memory = np.empty(0, np.uint8)

    def of(self, n_bytes: int) -> memoryview:
        """Memory for shuffled bytes; it is good until the thread asks again."""
        if n_bytes > _ROOM_BYTES:
            return np.empty(n_bytes, np.uint8).data
        if len(self.memory) < _BLOSC.size + n_bytes:
            self.memory = np.empty(_BLOSC.size + n_bytes, np.uint8)
        return self.memory[_BLOSC.size : _BLOSC.size + n_bytes].data

    def around(self, planes: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
        """The memory from the header to the end of bytes that lie there; else None."""
        end = _BLOSC.size + len(planes)
        if not len(planes) or len(self.memory) < end:
            return None
        start = self.memory.__array_interface__["data"][0] + _BLOSC.size
        return self.memory[:end] if planes.__array_interface__["data"][0] == start else None


_room = _Room()


def unshuffle(raw: Raw, element_bytes: int, out: NDArray[np.uint8] | None = None) -> Raw:
    """Put the bytes of each element side by side again, in `out` where that is given.

    The bytes behind the last whole element were not shuffled, and stay where they are.
    """
    planes = as_u1(raw)
    if out is None:
        if element_bytes == 1 or len(planes) < 2 * element_bytes:
            return raw if _room.around(planes) is None else bytes(raw)
        out = np.empty(len(planes), np.uint8)
    n_elements, rest = divmod(len(planes), element_bytes)
    whole = len(planes) - rest
    _unshuffle_whole(planes[:whole].reshape(element_bytes, n_elements), out[:whole])
    out[whole:] = planes[whole:]
    return out


def _unshuffle_whole(planes: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """Transpose bytes, block by block.

    C-Blosc has the vectorised code: what it takes is a buffer with one block that is not
    compressed, only shuffled.
    """
    element_bytes, n_elements = planes.shape
    if not 1 < element_bytes <= _MOST_ELEMENT_BYTES:
        out.reshape(n_elements, element_bytes)[...] = planes.T
        return
    room = _room.around(planes.reshape(-1))
    if room is not None:
        _unshuffle_block(room, element_bytes, out)
        return
    step = _BLOCK_BYTES // element_bytes
    buffer = np.empty(_BLOSC.size + min(n_elements, step) * element_bytes, np.uint8)
    for start in range(0, n_elements, step):
        part = planes[:, start : start + step]
        block = buffer[: _BLOSC.size + part.size]
        block[_BLOSC.size :].reshape(part.shape)[...] = part
        first = start * element_bytes
        _unshuffle_block(block, element_bytes, out[first : first + part.size])


def _unshuffle_block(block: NDArray[np.uint8], element_bytes: int, out: NDArray[np.uint8]) -> None:
    """Transpose what lies behind the place of a header, which is written."""
    n_bytes = len(block) - _BLOSC.size
    sizes = n_bytes, n_bytes, len(block), _BLOSC.size - 4, n_bytes
    _BLOSC.pack_into(block, 0, *_BLOSC_FORM, element_bytes, *sizes)
    imagecodecs.blosc_decode(block, numthreads=1, out=out.data)


def _shuffle_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    element_bytes = int(config.get("elementsize", 4))
    return lambda raw: unshuffle(raw, element_bytes)


def _shuffle_filler(config: Config, spec: ArraySpec) -> Fill:
    element_bytes = int(config.get("elementsize", 4))
    return lambda raw, out: unshuffle(raw, element_bytes, np.frombuffer(out, np.uint8))


def _shuffle_problem(config: Config) -> str | None:
    size = config.get("elementsize", 4)
    return None if isinstance(size, int) and size >= 1 else f"elementsize must be >= 1, got {size}"


def _check_fletcher32(raw: Raw) -> Raw:
    if len(raw) < 4:
        raise ValueError(f"{len(raw)} bytes are too few for a checksum")
    data, tail = raw[:-4], bytes(raw[-4:])
    computed = imagecodecs.h5checksum_fletcher32(data) if len(data) else 0
    stored = int.from_bytes(tail, "little")
    # Libraries before 1.6.3 stored each half of the sum the other way round on little-endian
    # machines, and HDF5 accepts both.
    swapped = int.from_bytes(bytes((tail[1], tail[0], tail[3], tail[2])), "little")
    if computed not in (stored, swapped):
        raise ValueError(f"checksum is {computed:#010x}, stored is {stored:#010x}")
    return data


BYTES_CODECS = {
    "numcodecs.shuffle": BytesCodec(
        _shuffle_decoder,
        same_bytes,
        problem=_shuffle_problem,
        filler=_shuffle_filler,
        room=_room.of,
    ),
    "numcodecs.fletcher32": BytesCodec(
        lambda config, decoded_bytes, spec: _check_fletcher32, four_more_bytes
    ),
}
