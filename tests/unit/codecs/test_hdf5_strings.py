"""Padded strings of HDF5, compared with what h5py makes of them."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from h5py import h5d, h5s, h5t
from hypothesis import given
from hypothesis import strategies as st

from gridref.codecs import decode_chunk, why_not
from gridref.errors import DecodeError
from gridref.model.encoding import Codec, Encoding

PADDINGS = {"terminated": h5t.STR_NULLTERM, "spaces": h5t.STR_SPACEPAD}
STRINGS = st.integers(1, 5).flatmap(
    lambda size: st.lists(
        st.lists(st.sampled_from(b"a \0"), min_size=size, max_size=size).map(bytes),
        min_size=1,
        max_size=6,
    )
)


@given(strings=STRINGS, padding=st.sampled_from(sorted(PADDINGS)))
def test_equals_h5py(strings: list[bytes], padding: str) -> None:
    size = len(strings[0])
    datatype = h5t.C_S1.copy()
    datatype.set_size(size)
    datatype.set_strpad(PADDINGS[padding])
    raw = b"".join(strings)
    with h5py.File.in_memory() as file:
        dataset = h5d.create(file.id, b"x", datatype, h5s.create_simple((len(strings),)))
        dataset.write(h5s.ALL, h5s.ALL, np.frombuffer(raw, f"S{size}"), datatype)
        expected = file["x"][()]
    dtype = np.dtype(f"S{size}")
    codecs = (Codec.of("gridref.hdf5_string", padding=padding), Codec("bytes"))
    shape = (len(strings),)
    found = decode_chunk(raw, Encoding(shape, dtype, codecs), shape)
    assert found.tobytes() == expected.tobytes()


def test_unknown_padding_is_refused() -> None:
    assert "padding tabs" in str(why_not(Codec.of("gridref.hdf5_string", padding="tabs")))
    codecs = (Codec.of("gridref.hdf5_string", padding="spaces"), Codec("bytes"))
    numbers = Encoding((2,), np.dtype("u1"), codecs)
    with pytest.raises(DecodeError, match="strings of uint8"):
        decode_chunk(b"ab", numbers, (2,))
