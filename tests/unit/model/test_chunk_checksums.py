import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gridref.model.manifest import ChunkChecksums

RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), max_size=12)


def checksums_of(ranges: list[tuple[int, int]]) -> ChunkChecksums:
    """Each range's checksum is a number made of it, so that mixing them up shows."""
    table = np.array(ranges, np.int64).reshape(-1, 2)
    return ChunkChecksums.of(table[:, 0], table[:, 1], (table @ [100, 1]).astype(np.uint32))


@given(RANGES, RANGES)
def test_the_chunk_that_is_a_range_is_found(held, asked):
    known = checksums_of(held)
    table = np.array(asked, np.int64).reshape(-1, 2)
    rows = known.rows_of(table[:, 0], table[:, 1])
    for (offset, length), row in zip(asked, rows.tolist(), strict=True):
        assert (row >= 0) == ((offset, length) in held)
        if row >= 0:
            assert known.crc32c[row] == 100 * offset + length


@given(RANGES, st.integers(0, 50), st.integers(1, 20))
def test_chunks_below_a_range_are_those_that_hold_bytes_of_it(held, start, length):
    known = checksums_of(held)
    rows = known.rows_below(start, start + length).tolist()
    wanted = set(range(start, start + length))
    touching = {
        (offset, size) for offset, size in held if wanted & set(range(offset, offset + size))
    }
    held_bytes = {byte for offset, size in touching for byte in range(offset, offset + size)}
    found = {(int(known.offset[row]), int(known.length[row])) for row in rows}
    assert found == (touching if wanted <= held_bytes else set())


def test_each_range_is_kept_once_and_in_order():
    known = checksums_of([(9, 3), (0, 4), (9, 2), (0, 4)])
    assert known.offset.tolist() == [0, 9, 9]
    assert known.length.tolist() == [4, 2, 3]


def test_its_size_is_that_of_its_columns():
    n = 5
    sums = ChunkChecksums.of(np.arange(n), np.ones(n, np.int64), np.zeros(n, np.uint32))
    assert sums.nbytes == n * (8 + 8 + 4)
