"""Zarr codecs that decode whole chunks of a format by gridref's own codecs, and do not encode."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, override

from zarr.abc.buffer import Buffer
from zarr.abc.codec import ArrayBytesCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import NDBuffer
from zarr.core.common import JSON, parse_named_configuration

from gridref.codecs import ArraySpec as Spec
from gridref.codecs import SerialCodec, codec_named


@dataclass(frozen=True)
class DecodingCodec(ArrayBytesCodec):
    """A codec that any reader of Zarr v3 has who has gridref installed."""

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
