from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridref.formats.hdf5.bytes import lookup3, lookup3_rows


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        # From the self-test of lookup3.c.
        (b"", 0xDEADBEEF),
        (b"Four score and seven years ago", 0x17770551),
    ],
)
def test_known_values(data: bytes, expected: int) -> None:
    assert lookup3(data) == expected


@given(st.lists(st.binary(min_size=1, max_size=70), min_size=1, max_size=40))
def test_many_at_once(blocks: list[bytes]) -> None:
    width = max(len(block) for block in blocks) + 3
    rows = np.frombuffer(b"".join(block.ljust(width, b"\xff") for block in blocks), np.uint8)
    lengths = np.array([len(block) for block in blocks])
    found = lookup3_rows(rows.reshape(len(blocks), width), lengths)
    assert found.tolist() == [lookup3(block) for block in blocks]


@pytest.mark.parametrize("length", range(1, 40))
def test_equal_lengths(length: int) -> None:
    rows = np.random.default_rng(length).integers(0, 256, (50, length), dtype=np.uint8)
    found = lookup3_rows(rows, np.full(50, length))
    assert found.tolist() == [lookup3(row.tobytes()) for row in rows]
