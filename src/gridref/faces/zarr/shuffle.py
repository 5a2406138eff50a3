"""The Zarr codec ``gridref.shuffle``: HDF5's shuffle, which takes any number of bytes.

``numcodecs.shuffle`` takes whole elements only. netCDF-C computes a fletcher32 checksum first, and
so shuffles 4 bytes more than the elements. The native view uses this codec for such chunks.

Source: HDF5 library documentation of H5Pset_shuffle.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Self

import numpy as np
from zarr.abc.buffer import Buffer
from zarr.abc.codec import BytesBytesCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.common import JSON, parse_named_configuration

from gridref.codecs.core import unshuffle
from gridref.serve.grids import SHUFFLE_CODEC


@dataclass(frozen=True)
class ShuffleCodec(BytesBytesCodec):
    """Groups the first bytes of all elements, then the second ones, and so on.

    Parameters
    ----------
    elementsize
        Bytes of an element. What is behind the last whole element stays where it is.
    """

    elementsize: int

    is_fixed_size = True

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        """Make from the codec entry of a ``zarr.json``."""
        _, configuration = parse_named_configuration(data, SHUFFLE_CODEC)
        return cls(**configuration)  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, JSON]:
        """The codec entry of a ``zarr.json``."""
        return {"name": SHUFFLE_CODEC, "configuration": {"elementsize": self.elementsize}}

    def compute_encoded_size(self, input_byte_length: int, _chunk_spec: ArraySpec) -> int:
        """The size stays."""
        return input_byte_length

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        return await asyncio.to_thread(self._decode_sync, chunk_data, chunk_spec)

    async def _encode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        return await asyncio.to_thread(self._encode_sync, chunk_data, chunk_spec)

    def _decode_sync(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        raw = unshuffle(chunk_data.to_bytes(), self.elementsize)
        return chunk_spec.prototype.buffer.from_array_like(np.frombuffer(raw, np.uint8))

    def _encode_sync(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        raw = np.frombuffer(chunk_data.to_bytes(), np.uint8)
        whole = len(raw) // self.elementsize * self.elementsize
        planes = raw[:whole].reshape(-1, self.elementsize).T.reshape(-1)
        return chunk_spec.prototype.buffer.from_array_like(np.concatenate([planes, raw[whole:]]))
