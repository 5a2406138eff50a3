"""The dataspace message: the shape of a dataset or an attribute, and how far it may grow.

Source: HDF5 File Format Specification v3, IV.A.2.b "The Dataspace Message".
"""

from __future__ import annotations

from dataclasses import dataclass

from gridref.cache import remembers_short
from gridref.errors import SourceFormatError

__all__ = ["Dataspace", "read_dataspace"]

_MAX_RANK = 32
_MAX_EXTENT = (1 << 63) - 1
_CACHED_SPACES = 4096
_HEADER_BYTES = {1: 8, 2: 4}
_HAS_MAXIMUM = 0x01
_NULL = 2


@dataclass(frozen=True, slots=True)
class Dataspace:
    """Extents of a dataset or an attribute.

    Attributes
    ----------
    shape
        Extents now; None for a null dataspace, which holds no elements.
    maxshape
        Extents as they may grow; None: without limit.
    """

    shape: tuple[int, ...] | None
    maxshape: tuple[int | None, ...]


@remembers_short(_CACHED_SPACES)
def read_dataspace(message: bytes, length_bytes: int) -> Dataspace:
    """Decode a dataspace message.

    Parameters
    ----------
    length_bytes
        Width of a length in the file.

    Raises
    ------
    SourceFormatError
        If it is cut off, of an unknown version, too large, or contradicts itself.
    """
    if len(message) < 4:
        raise SourceFormatError("the dataspace message is cut off")
    version, rank, flags = message[:3]
    start = _HEADER_BYTES.get(version)
    if start is None:
        raise SourceFormatError(f"the dataspace message has the unknown version {version}")
    if rank > _MAX_RANK:
        raise SourceFormatError(f"the dataspace message declares {rank} dimensions")
    if version == 2 and message[3] == _NULL:
        return Dataspace(None, ())
    shape = _extents(message, start, rank, length_bytes)
    if max(shape, default=0) > _MAX_EXTENT:
        raise SourceFormatError(f"the dataspace message declares the extents {shape}")
    if not flags & _HAS_MAXIMUM:
        return Dataspace(shape, shape)
    unlimited = (1 << 8 * length_bytes) - 1
    largest = _extents(message, start + rank * length_bytes, rank, length_bytes)
    if any(most < extent for extent, most in zip(shape, largest, strict=True)):
        raise SourceFormatError(f"the dataspace's extents {shape} are larger than {largest}")
    return Dataspace(shape, tuple(None if most == unlimited else most for most in largest))


def _extents(message: bytes, start: int, rank: int, width: int) -> tuple[int, ...]:
    stop = start + rank * width
    if stop > len(message):
        raise SourceFormatError("the dataspace message is cut off")
    return tuple(
        int.from_bytes(message[at : at + width], "little") for at in range(start, stop, width)
    )
