"""ndarray -> bytes, for the few codecs that portable views are written with."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Sequence
from typing import Any, cast

import imagecodecs
import numcodecs
import numpy as np
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError
from gridref.model.encoding import Codec

__all__ = ["encode_chunk"]


def encode_chunk(values: NDArray[Any], codecs: Sequence[Codec]) -> bytes:
    """Encode a chunk with a chain of ``bytes`` or ``vlen-utf8``, then ``zstd`` or ``gzip``.

    The result depends on the values and the chain only: gzip headers carry no time.

    Raises
    ------
    InvalidRequestError
        For any other codec.
    """
    data = _array_to_bytes(values, codecs[0])
    for codec in codecs[1:]:
        if codec.name == "zstd":
            data = cast(bytes, imagecodecs.zstd_encode(data, codec.configuration["level"]))
        elif codec.name == "gzip":
            data = gzip.compress(data, codec.configuration["level"], mtime=0)
        else:
            raise InvalidRequestError(f"gridref does not encode {codec.name}")
    return data


def _array_to_bytes(values: NDArray[Any], codec: Codec) -> bytes:
    if codec.name == "vlen-utf8":
        strings = np.array(values, dtype=object, order="C")
        return bytes(numcodecs.VLenUTF8().encode(strings))
    if codec.name != "bytes":
        raise InvalidRequestError(f"gridref does not encode {codec.name}")
    endian = codec.configuration.get("endian", sys.byteorder)
    order = "<" if endian == "little" else ">"
    return values.astype(values.dtype.newbyteorder(order), copy=False).tobytes()
