from __future__ import annotations

import numcodecs
import numpy as np
import pytest

from gridref.codecs import decode_chunk
from gridref.errors import DecodeError
from gridref.model.encoding import Codec, Encoding

TEXTS = np.array([["a", "bé", ""], ["日本", "x" * 300, "\0"]], object)
STORED = bytes(numcodecs.VLenUTF8().encode(TEXTS))


@pytest.mark.parametrize("dtype", [np.dtypes.StringDType(), np.dtype(object)], ids=str)
def test_texts(dtype):
    decoded = decode_chunk(STORED, Encoding((2, 3), dtype, (Codec("vlen-utf8"),)))
    assert decoded.dtype == dtype
    assert decoded.tolist() == TEXTS.tolist()


def test_compressed_texts():
    chain = (Codec("vlen-utf8"), Codec("zstd"))
    stored = numcodecs.Zstd().encode(STORED)
    decoded = decode_chunk(stored, Encoding((2, 3), np.dtypes.StringDType(), chain))
    assert decoded.tolist() == TEXTS.tolist()


def test_bytes():
    values = np.array([b"a", b"\xff\0", b""], object)
    stored = bytes(numcodecs.VLenBytes().encode(values))
    decoded = decode_chunk(stored, Encoding((3,), np.dtype(object), (Codec("vlen-bytes"),)))
    assert decoded.dtype == object
    assert decoded.tolist() == values.tolist()


def test_texts_that_are_not_utf8():
    stored = bytes(numcodecs.VLenBytes().encode(np.array([b"\xff"], object)))
    with pytest.raises(DecodeError, match="vlen-utf8"):
        decode_chunk(stored, Encoding((1,), np.dtypes.StringDType(), (Codec("vlen-utf8"),)))
