"""Shuffle and Fletcher-32 as HDF5 and numcodecs store them.

Sources: HDF5 file format specification, version 3.0, IV.A.2.l "Filter Pipeline Message" (filters 2
and 3); HDF5 library documentation of H5Pset_shuffle and H5Pset_fletcher32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from gridref.codecs.stage import ArraySpec, BytesCodec, Config, Raw, as_u1

__all__ = ["BYTES_CODECS", "unshuffle"]

_FEW_ELEMENTS = 512
"""Below so many elements one transposed copy is faster than a copy for each byte of an element."""


def unshuffle(raw: Raw, element_bytes: int) -> Raw:
    """Put the bytes of each element side by side again.

    The bytes behind the last whole element were not shuffled, and stay where they are.
    """
    n_elements, rest = divmod(len(raw), element_bytes)
    if element_bytes == 1 or n_elements < 2:
        return raw
    planes = as_u1(raw)
    if rest == 0:
        return _unshuffle_whole(planes.reshape(element_bytes, n_elements))
    whole = planes[: len(raw) - rest].reshape(element_bytes, n_elements)
    return np.concatenate([_unshuffle_whole(whole), planes[len(raw) - rest :]])


def _unshuffle_whole(planes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Transpose bytes; the three ways were measured against each other (and numcodecs)."""
    element_bytes, n_elements = planes.shape
    if n_elements < _FEW_ELEMENTS:
        return np.ascontiguousarray(planes.T).reshape(-1)
    if element_bytes in (2, 4):
        # Integer arithmetic is vectorised by the compiler, strided copies are not.
        words: NDArray[Any] = planes[element_bytes - 1].astype(f"<u{element_bytes}")
        for position in range(element_bytes - 2, -1, -1):
            words <<= 8
            words |= planes[position]
        unshuffled: NDArray[np.uint8] = words.view(np.uint8)
        return unshuffled
    elements = np.empty((n_elements, element_bytes), np.uint8)
    for position in range(element_bytes):
        elements[:, position] = planes[position]
    return elements.reshape(-1)


def _shuffle_decoder(
    config: Config, decoded_bytes: int | None, spec: ArraySpec
) -> Callable[[Raw], Raw]:
    element_bytes = int(config.get("elementsize", 4))
    return lambda raw: unshuffle(raw, element_bytes)


def _shuffle_problem(config: Config) -> str | None:
    size = config.get("elementsize", 4)
    return None if isinstance(size, int) and size >= 1 else f"elementsize must be >= 1, got {size}"


def _same_bytes(config: Config, decoded: int | None, spec: ArraySpec) -> int | None:
    return decoded


def _four_more_bytes(config: Config, decoded: int | None, spec: ArraySpec) -> int | None:
    return None if decoded is None else decoded + 4


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


def _fletcher32_decoder(
    config: Config, decoded_bytes: int | None, spec: ArraySpec
) -> Callable[[Raw], Raw]:
    return _check_fletcher32


BYTES_CODECS = {
    "numcodecs.shuffle": BytesCodec(_shuffle_decoder, _same_bytes, problem=_shuffle_problem),
    "numcodecs.fletcher32": BytesCodec(_fletcher32_decoder, _four_more_bytes),
}
