"""Read headers of WKW files, and find the blocks of a file.

A header has 16 bytes: ``WKW``, version (uint8, 1), side lengths of blocks in voxels and of files in
blocks as powers of two (4 bits each), kind of blocks (uint8: raw, LZ4, LZ4HC), type of voxels
(uint8), bytes of a voxel with all channels (uint8), and the place of the first block (uint64,
little-endian; 0 in ``header.wkw``). Compressed files have a jump table behind it: the end of each
block (uint64). Blocks are in Morton order, x fastest.

Source: https://github.com/scalableminds/webknossos-wrap.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.limits import limits
from gridref.typing import Int64Array

HEADER_BYTES = 16
_HEADER = struct.Struct("<3sBBBBBQ")
_RAW, _LZ4, _LZ4HC = 1, 2, 3
_TYPES = dict(enumerate(("u1", "u2", "u4", "u8", "f4", "f8", "i1", "i2", "i4", "i8"), 1))


@dataclass(frozen=True)
class Header:
    """How the files of a magnification are made.

    Attributes
    ----------
    block_length
        Voxels along an axis of a block.
    file_blocks
        Blocks along an axis of a file.
    is_compressed
        Whether blocks are LZ4 blocks.
    dtype
        Type of the values.
    n_channels
        Values of a voxel.
    stated
        The bytes that are equal in all files.
    """

    block_length: int
    file_blocks: int
    is_compressed: bool
    dtype: np.dtype[np.generic]
    n_channels: int
    stated: bytes

    @classmethod
    def from_bytes(cls, data: bytes) -> Header:
        """Read a header.

        Raises
        ------
        SourceFormatError
            If it is none.
        UnsupportedFeatureError
            For another version, and blocks beyond the limit.
        """
        if len(data) < HEADER_BYTES or data[:3] != b"WKW":
            raise SourceFormatError("it has no WKW header")
        _, version, lengths, kind, voxel, n_bytes, _ = _HEADER.unpack_from(data)
        if version != 1:
            raise UnsupportedFeatureError(f"version {version} of WKW is not read")
        if kind not in (_RAW, _LZ4, _LZ4HC) or voxel not in _TYPES:
            raise UnsupportedFeatureError(f"blocks of kind {kind} with voxels of type {voxel}")
        dtype: np.dtype[np.generic] = np.dtype(_TYPES[voxel])
        if n_bytes == 0 or n_bytes % dtype.itemsize:
            raise SourceFormatError(f"voxels of {n_bytes} bytes do not hold values of {dtype}")
        block, blocks = 1 << (lengths & 15), 1 << (lengths >> 4)
        header = cls(block, blocks, kind != _RAW, dtype, n_bytes // dtype.itemsize, data[3:8])
        if header.block_bytes > limits().decoded_bytes:
            raise UnsupportedFeatureError(f"its blocks have {header.block_bytes} bytes each")
        return header

    @property
    def block_bytes(self) -> int:
        return self.n_channels * self.dtype.itemsize * self.block_length**3

    @property
    def file_length(self) -> int:
        """Voxels along an axis of a file."""
        return self.block_length * self.file_blocks

    @property
    def n_blocks(self) -> int:
        """Blocks of a file."""
        return self.file_blocks**3

    @property
    def index_bytes(self) -> int:
        """Bytes at the beginning of a file that say where its blocks are."""
        return HEADER_BYTES + (8 * self.n_blocks if self.is_compressed else 0)

    def block_ranges(self, data: bytes, file_bytes: int) -> tuple[Int64Array, Int64Array]:
        """Offset and length of each block of a file, in C order of x, y and z.

        Parameters
        ----------
        data
            The first `index_bytes` of the file.

        Raises
        ------
        SourceFormatError
            If it has another header, or blocks are not inside of it, one behind the other.
        """
        if data[:3] != b"WKW" or data[3:8] != self.stated:
            raise SourceFormatError("its header differs from header.wkw")
        (first,) = struct.unpack_from("<Q", data, 8)
        if self.is_compressed:
            ends = np.frombuffer(data, "<u8", self.n_blocks, HEADER_BYTES)
        else:
            if first + self.n_blocks * self.block_bytes > file_bytes:
                raise SourceFormatError(f"its blocks do not fit into {file_bytes} bytes")
            ends = np.uint64(first) + np.arange(1, self.n_blocks + 1, dtype="u8") * np.uint64(
                self.block_bytes
            )
        starts = np.concatenate([np.array([first], "u8"), ends[:-1]])
        if first < self.index_bytes or int(ends.max()) > file_bytes or (ends <= starts).any():
            raise SourceFormatError("its jump table points outside of it, or backwards")
        order = morton_order(self.file_blocks)
        offset = starts.astype(np.int64)[order]
        return offset, ends.astype(np.int64)[order] - offset


def morton_order(side: int) -> Int64Array:
    """Morton numbers of the cells of a cube in C order of x, y and z; x has the lowest bit."""
    along = np.arange(side, dtype=np.int64)
    spread = np.zeros(side, np.int64)
    for bit in range(side.bit_length()):
        spread |= (along >> bit & 1) << 3 * bit
    cells = spread[:, None, None] | spread[:, None] << 1 | spread << 2
    return cells.reshape(-1)
