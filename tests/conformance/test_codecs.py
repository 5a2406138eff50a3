"""gridref's own codecs pass the suite that other codecs must pass."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from typing import Any, override

import imagecodecs
import numcodecs
import numpy as np
from numpy.typing import NDArray

from gridref.model.encoding import Codec
from gridref.testing.codecs import CodecTests

LITTLE = Codec.of("bytes", endian="little")


class TestBigEndianBytes(CodecTests):
    codec = Codec.of("bytes", endian="big")
    chain = (codec,)

    @override
    def encode(self, values: NDArray[Any]) -> bytes:
        return values.astype(values.dtype.newbyteorder(">")).tobytes()


class TestTranspose(CodecTests):
    codec = Codec.of("transpose", order=[1, 0])
    chain = (codec, LITTLE)

    @override
    def chunks(self) -> Sequence[NDArray[Any]]:
        return [np.arange(12, dtype="<i4").reshape(3, 4), np.zeros((1, 5))]

    @override
    def encode(self, values: NDArray[Any]) -> bytes:
        return values.T.tobytes()


class TestGzip(CodecTests):
    codec = Codec.of("gzip", level=5)
    chain = (LITTLE, codec)

    @override
    def encode(self, values: NDArray[Any]) -> bytes:
        return gzip.compress(values.tobytes())


class TestZlib(CodecTests):
    codec = Codec.of("numcodecs.zlib", level=4)
    chain = (LITTLE, codec)

    @override
    def encode(self, values: NDArray[Any]) -> bytes:
        return zlib.compress(values.tobytes())


class TestZstd(CodecTests):
    codec = Codec.of("zstd", level=3, checksum=False)
    chain = (LITTLE, codec)

    @override
    def encode(self, values: NDArray[Any]) -> bytes:
        return bytes(numcodecs.Zstd().encode(values.tobytes()))


class TestBlosc(CodecTests):
    codec = Codec.of("blosc", cname="lz4", clevel=5, shuffle="noshuffle", blocksize=0)
    chain = (LITTLE, codec)

    @override
    def encode(self, values: NDArray[Any]) -> bytes:
        return bytes(numcodecs.Blosc("lz4", shuffle=0).encode(values.tobytes()))


class TestFletcher32(CodecTests):
    codec = Codec("numcodecs.fletcher32")
    chain = (LITTLE, codec)

    @override
    def encode(self, values: NDArray[Any]) -> bytes:
        return bytes(numcodecs.Fletcher32().encode(values.tobytes()))


class TestShuffle(CodecTests):
    codec = Codec.of("numcodecs.shuffle", elementsize=4)
    chain = (LITTLE, codec)

    @override
    def chunks(self) -> Sequence[NDArray[Any]]:
        return [np.arange(700, dtype="<i4").reshape(7, 100), np.ones((3,), "<f4")]

    @override
    def encode(self, values: NDArray[Any]) -> bytes:
        return bytes(numcodecs.Shuffle(4).encode(values.tobytes()))


class TestLZWOfTIFF(CodecTests):
    codec = Codec("gridref.tiff_lzw")
    chain = (LITTLE, codec)

    @override
    def encode(self, values: NDArray[Any]) -> bytes:
        return bytes(imagecodecs.lzw_encode(values.tobytes()))


class TestPackbitsOfTIFF(CodecTests):
    codec = Codec("gridref.tiff_packbits")
    chain = (LITTLE, codec)

    @override
    def encode(self, values: NDArray[Any]) -> bytes:
        return bytes(imagecodecs.packbits_encode(values.tobytes()))
