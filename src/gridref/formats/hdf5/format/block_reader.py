"""The bytes of a file that is scanned, with the blocks around small pieces kept."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from gridref.cache import LRU
from gridref.errors import Place, SourceFormatError
from gridref.io import ScanFile

__all__ = ["BlockReader"]

_BLOCK_BYTES = 1 << 13
_BLOCK_BYTES_OF_SMALL_FILES = 1 << 14
_KEPT_BYTES = 1 << 24
_NEAR_BLOCKS = 8
_READ_WHOLE_BYTES = 1 << 19
_READ_PER_BYTE, _ALWAYS_READ_BYTES = 64, 1 << 26


class BlockReader:
    """A `ScanFile` as a `gridref.formats.hdf5.format.bytes_view.ByteReader`.

    Headers, heaps and indexes of small files lie close together; a small remote file is read whole,
    as asking for one piece after the other would take longer. Structures of a valid file do not
    overlap, so that what is read of it in all is bounded by its size; a corrupt one is refused when
    it makes us read far more.
    """

    def __init__(self, file: ScanFile) -> None:
        self._file = file
        is_small = file.size <= _READ_WHOLE_BYTES
        self._unit = _BLOCK_BYTES_OF_SMALL_FILES if is_small else _BLOCK_BYTES
        self._blocks = LRU[bytes](_KEPT_BYTES, len)
        self._last = -1, b""
        self._n_left = _ALWAYS_READ_BYTES + _READ_PER_BYTE * file.size
        if is_small and file.size and file.is_remote:
            self._load(list(range(-(-file.size // self._unit))))

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return self._file.size

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` on."""
        self._n_left -= length
        if self._n_left < 0:
            self._spend(0)
        number, start = divmod(offset, self._unit)
        if start + length > self._unit or offset + length > self._file.size or offset < 0:
            return self._file.read_many([offset], [length])[0]
        last, block = self._last
        if number != last:
            known = self._blocks.get(number)
            block = self._load([number])[0] if known is None else known
            self._last = number, block
        return block[start : start + length]

    def read_many(self, offsets: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """Several reads at once."""
        if len(offsets) == 1:
            return [self.read(int(offsets[0]), int(lengths[0]))]
        if self._file.is_remote and self._file.size <= _READ_WHOLE_BYTES:
            return [self.read(*piece) for piece in zip(offsets, lengths, strict=True)]
        self._spend(sum(lengths))
        return self._file.read_many(offsets, lengths)

    def prefetch(self, offsets: Iterable[int]) -> None:
        """Read the blocks in which small pieces begin, and near ones between them, all at once.

        The few blocks of a small local file are read when they are needed.
        """
        if self._file.size <= _READ_WHOLE_BYTES and not self._file.is_remote:
            return
        numbers = sorted({offset // self._unit for offset in offsets if self._is_inside(offset)})
        wanted = [number for number in numbers if number not in self._blocks]
        if len(wanted) < 2:
            return
        between = (
            range(last + 1, number)
            for last, number in itertools.pairwise(wanted)
            if number - last <= _NEAR_BLOCKS
        )
        near = [number for numbers in between for number in numbers if number not in self._blocks]
        self._load(sorted([*wanted, *near])[: _KEPT_BYTES // self._unit // 2])

    def _is_inside(self, offset: int) -> bool:
        return 0 <= offset < self._file.size

    def _load(self, numbers: list[int]) -> list[bytes]:
        """Read whole blocks, and keep them for now."""
        starts = [number * self._unit for number in numbers]
        sizes = [min(self._unit, self._file.size - start) for start in starts]
        blocks = self._file.read_many(starts, sizes)
        return [self._blocks.put(*block) for block in zip(numbers, blocks, strict=True)]

    def _spend(self, n_bytes: int) -> None:
        self._n_left -= n_bytes
        if self._n_left < 0:
            raise SourceFormatError(
                "structures of the file overlap: far more had to be read than it holds",
                Place(source=self._file.name),
            )
