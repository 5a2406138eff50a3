"""Shuffle and Fletcher-32 as HDF5 and numcodecs store them.

Sources: HDF5 file format specification, version 3.0, IV.A.2.l "Filter Pipeline Message" (filters 2
and 3); HDF5 library documentation of H5Pset_shuffle and H5Pset_fletcher32.
"""

from __future__ import annotations

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from gridref.codecs.stage import (
    AnyCodec,
    ArraySpec,
    BytesCodec,
    BytesDecode,
    Config,
    Fill,
    Raw,
    Together,
    as_u1,
    four_more_bytes,
    same_bytes,
)

_BLOCK_BYTES = 256 * 2**10
"""Bytes that are put in order at a time: few enough to stay in the cache of a processor."""
_FEW_BYTES = 32
"""Elements of at most so many bytes are copied byte by byte, larger ones element by element."""


def unshuffle(raw: Raw, element_bytes: int, out: NDArray[np.uint8] | None = None) -> Raw:
    """Put the bytes of each element side by side again, in `out` where that is given.

    The bytes after the last whole element were not shuffled, and stay where they are.
    """
    planes = as_u1(raw)
    if out is None:
        if element_bytes == 1 or len(planes) < 2 * element_bytes:
            return raw
        out = np.empty(len(planes), np.uint8)
    n_elements, rest = divmod(len(planes), element_bytes)
    whole = len(planes) - rest
    shuffled = planes[:whole].reshape(element_bytes, n_elements)
    step = max(1, _BLOCK_BYTES // element_bytes)
    for start in range(0, n_elements, step):
        part = shuffled[:, start : start + step]
        first = start * element_bytes
        _transpose(part, out[first : first + part.size])
    out[whole:] = planes[whole:]
    return out


def unshuffle_together(chunks: NDArray[np.uint8], element_bytes: int) -> NDArray[np.uint8]:
    """The same for many chunks of one size, (chunks, bytes)."""
    n_chunks, n_bytes = chunks.shape
    whole = n_bytes - n_bytes % element_bytes
    planes = chunks[:, :whole].reshape(n_chunks, element_bytes, -1)
    elements = planes.transpose(0, 2, 1).reshape(n_chunks, whole)
    return np.concatenate((elements, chunks[:, whole:]), 1) if whole < n_bytes else elements


def _transpose(planes: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """Byte `k` of each element out of plane `k`.

    Whole words are put together for elements of 2 and 4 bytes: numpy copies single bytes more
    slowly than it shifts them.
    """
    element_bytes, n_elements = planes.shape
    if element_bytes in (2, 4):
        words = out.view(f"<u{element_bytes}")
        words[...] = planes[-1]
        for plane in planes[-2::-1]:
            words <<= 8
            words |= plane
        return
    elements = out.reshape(n_elements, element_bytes)
    if element_bytes > _FEW_BYTES:
        elements[...] = planes.T
        return
    for k, plane in enumerate(planes):
        elements[:, k] = plane


def _shuffle_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    element_bytes = int(config.get("elementsize", 4))
    return lambda raw: unshuffle(raw, element_bytes)


def _shuffle_filler(config: Config, spec: ArraySpec) -> Fill:
    element_bytes = int(config.get("elementsize", 4))
    return lambda raw, out: unshuffle(raw, element_bytes, np.frombuffer(out, np.uint8))


def _shuffle_together(config: Config) -> Together:
    element_bytes = int(config.get("elementsize", 4))
    return lambda chunks: unshuffle_together(chunks, element_bytes)


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


CODECS: dict[str, AnyCodec] = {
    "numcodecs.shuffle": BytesCodec(
        _shuffle_decoder,
        same_bytes,
        problem=_shuffle_problem,
        filler=_shuffle_filler,
        together=_shuffle_together,
    ),
    "numcodecs.fletcher32": BytesCodec(
        lambda config, decoded_bytes, spec: _check_fletcher32, four_more_bytes
    ),
}
