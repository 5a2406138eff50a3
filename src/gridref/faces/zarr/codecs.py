"""Zarr codecs of gridref, for any reader of Zarr v3 where gridref is installed.

They make native views and exports readable whose chunks have no codec in Zarr: messages and grids
of GRIB, tiles of JPEG 2000, and HDF5's shuffle of any number of bytes. All but that only decode.

The codecs for JPEG 2000 that imagecodecs registers decode whole codestreams, to arrays without an
axis for a single band. ``numcodecs.shuffle`` takes whole elements only. netCDF-C computes a
fletcher32 checksum first, and so shuffles 4 bytes more than the elements.

Source: HDF5 library documentation of H5Pset_shuffle.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, override

import numpy as np
from zarr.abc.buffer import Buffer
from zarr.abc.codec import ArrayBytesCodec, BytesBytesCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import NDBuffer
from zarr.core.common import JSON, parse_named_configuration

from gridref.codecs import ArraySpec as Spec
from gridref.codecs import SerialCodec, codec_named
from gridref.codecs.core import unshuffle
from gridref.codecs.grib import PLACES, VALUES
from gridref.codecs.jpeg2000 import NAME
from gridref.serve.grids import SHUFFLE_CODEC


@dataclass(frozen=True)
class _DecodingCodec(ArrayBytesCodec):
    """Decodes whole chunks of a format by gridref's own codec of the same name."""

    configuration: dict[str, Any] = field(default_factory=dict)

    name: ClassVar[str]
    is_fixed_size = False

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        """Make from the codec entry of a ``zarr.json``."""
        _, configuration = parse_named_configuration(data, cls.name, require_configuration=False)
        return cls(dict(configuration or {}))

    def to_dict(self) -> dict[str, JSON]:
        """The codec entry of a ``zarr.json``."""
        return {"name": self.name, "configuration": self.configuration}

    @override
    def compute_encoded_size(self, input_byte_length: int, _chunk_spec: ArraySpec) -> int:
        raise NotImplementedError

    @override
    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        return await asyncio.to_thread(self._decode_sync, chunk_data, chunk_spec)

    @override
    async def _encode_single(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> Buffer | None:
        raise NotImplementedError(f"{self.name} only decodes")

    def _decode_sync(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        spec = Spec(chunk_spec.shape, chunk_spec.dtype.to_native_dtype())
        codec = codec_named(self.name)
        assert isinstance(codec, SerialCodec)
        decode = codec.decoder(self.configuration, spec)
        return chunk_spec.prototype.nd_buffer.from_ndarray_like(decode(chunk_data.to_bytes()))


@dataclass(frozen=True)
class GRIBCodec(_DecodingCodec):
    """A field: a GRIB message of either edition, NaN where its bitmap has holes."""

    name: ClassVar[str] = VALUES


@dataclass(frozen=True)
class GRIBPlacesCodec(_DecodingCodec):
    """Latitudes or longitudes: the grid section of a GRIB message."""

    name: ClassVar[str] = PLACES


@dataclass(frozen=True)
class JPEG2000Codec(_DecodingCodec):
    """The bands of a tile, or of the whole image."""

    name: ClassVar[str] = NAME


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
