"""Variable-length strings and bytes: the ``vlen-utf8`` and ``vlen-bytes`` codecs.

Source: https://github.com/zarr-developers/zarr-extensions (``codecs/vlen-utf8``, ``vlen-bytes``): a
little-endian uint32 with the number of items, then for each item its size in bytes as a
little-endian uint32, and its bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.codecs.stage import ArraySpec, Config, Raw, SerialCodec, SerialDecode, as_bytes

__all__ = ["SERIAL_CODECS"]

_SIZE = struct.Struct("<I")


def _items(data: bytes, n_items: int) -> Iterator[bytes]:
    """The items, checked against the size of `data`."""
    if len(data) < 4 or _SIZE.unpack_from(data)[0] != n_items:
        held = _SIZE.unpack_from(data)[0] if len(data) >= 4 else "no"
        raise ValueError(f"holds {held} items, expected {n_items}")
    position = 4
    for _ in range(n_items):
        if position + 4 > len(data):
            raise ValueError("items end behind the data")
        start = position + 4
        position = start + _SIZE.unpack_from(data, position)[0]
        if position > len(data):
            raise ValueError("items end behind the data")
        yield data[start:position]
    if position != len(data):
        raise ValueError(f"{len(data) - position} bytes are left over behind the items")


def _utf8_decoder(config: Config, spec: ArraySpec) -> SerialDecode:
    dtype: Any = spec.dtype if spec.dtype.kind in "TO" else np.dtypes.StringDType()

    def decode(raw: Raw) -> NDArray[Any]:
        texts = [item.decode() for item in _items(as_bytes(raw), spec.size)]
        return np.array(texts, dtype=dtype).reshape(spec.shape)

    return decode


def _bytes_decoder(config: Config, spec: ArraySpec) -> SerialDecode:
    def decode(raw: Raw) -> NDArray[Any]:
        values = np.empty(spec.size, object)
        values[:] = list(_items(as_bytes(raw), spec.size))
        return values.reshape(spec.shape)

    return decode


SERIAL_CODECS = {
    "vlen-utf8": SerialCodec(_utf8_decoder),
    "vlen-bytes": SerialCodec(_bytes_decoder),
}
