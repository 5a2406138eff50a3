"""Random access to the bytes of a file: all that the chunk-index walker asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["ByteReader"]


class ByteReader(Protocol):
    """Bytes of one file, by offset from its first byte.

    Callers never ask for bytes behind `size_bytes`; whoever cannot deliver all bytes that were
    asked for raises a `gridref.errors.GridrefError`.
    """

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` on."""
        ...

    def read_many(self, offsets: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """Several reads at once, in the given order."""
        ...
