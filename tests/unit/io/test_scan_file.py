from __future__ import annotations

import io
from pathlib import Path

import fsspec
import h5py
import numpy as np
import pytest
import tifffile
from hypothesis import given
from hypothesis import strategies as st

from gridref.errors import ShortReadError, SourceUnavailableError
from gridref.io import describe_source, open_for_scan

DATA = np.random.default_rng(1).bytes(200_000)


def put(url: str, content: bytes) -> str:
    if url.startswith("memory:"):
        fsspec.filesystem("memory").pipe_file(url.removeprefix("memory:/"), content)
    else:
        Path(url).write_bytes(content)
    return url


@pytest.fixture(params=["local", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "a.bin") if request.param == "local" else "memory://scan/a.bin"


def test_it_is_a_seekable_file(url: str) -> None:
    with open_for_scan(put(url, DATA)) as file:
        assert isinstance(file, io.IOBase)
        assert file.readable()
        assert file.seekable()
        assert not file.writable()
        assert file.seek(10) == 10
        assert file.read(5) == DATA[10:15]
        assert file.tell() == 15
        assert file.seek(-4, io.SEEK_END) == 199_996
        assert file.read(100) == DATA[-4:]
        assert file.read(1) == b""
        assert file.seek(500_000) == 500_000
        assert file.read() == b""
        file.seek(0)
        buffer = bytearray(7)
        assert file.readinto(buffer) == 7
        assert buffer == DATA[:7]
        assert file.read() == DATA[7:]
        assert file.source == describe_source(url)
        assert file.name == url


def test_h5py_and_tifffile_read_through_it(url: str) -> None:
    content = io.BytesIO()
    values = np.arange(40_000.0).reshape(200, 200)
    with h5py.File(content, "w") as written:
        written.create_dataset("x", data=values, chunks=(10, 200), compression="gzip")
    with open_for_scan(put(url, content.getvalue())) as file, h5py.File(file) as opened:
        assert np.array_equal(opened["x"][:], values)
        assert file.n_requests > 0
        assert file.n_bytes > 10_000
    content = io.BytesIO()
    tifffile.imwrite(content, values, tile=(64, 64))
    with open_for_scan(put(url, content.getvalue())) as file, tifffile.TiffFile(file) as image:
        assert np.array_equal(image.asarray(), values)


def test_many_ranges_at_once(url: str) -> None:
    with open_for_scan(put(url, DATA)) as file:
        offsets, lengths = [5, 150_000, 10, 0], [10, 40_000, 100, 0]
        expected = [DATA[a : a + n] for a, n in zip(offsets, lengths, strict=True)]
        assert file.read_many(offsets, lengths) == expected
        with pytest.raises(ShortReadError, match="beyond the end") as caught:
            file.read_many([199_999], [2])
        assert repr(file.last_error) == repr(caught.value)
        assert str(file.last_error) == str(caught.value)
        with pytest.raises(ShortReadError):
            file.raise_last_error()


def test_a_remote_file_is_read_by_blocks_that_are_kept() -> None:
    url = put("memory://scan/a.bin", DATA)
    with open_for_scan(url, block_bytes=1024) as file:
        file.seek(5000)
        file.read(10)
        assert (file.n_requests, file.n_bytes) == (1, 1024)
        file.seek(4096)
        file.read(1024)
        assert file.n_requests == 1
        file.read_many([100_000, 50_000], [10, 10])
        assert (file.n_requests, file.n_bytes) == (3, 3 * 1024)


def test_readahead_doubles_while_reading_is_sequential() -> None:
    with open_for_scan(put("memory://scan/a.bin", DATA), block_bytes=1024) as file:
        while file.read(1000):
            pass
        assert file.n_bytes == len(DATA)
        assert file.n_requests <= 9


def test_large_pieces_do_not_push_out_what_is_kept() -> None:
    url = put("memory://scan/a.bin", DATA)
    with open_for_scan(url, block_bytes=1024, max_readahead_bytes=8192) as file:
        file.read(10)
        file.seek(20_000)
        assert file.read(100_000) == DATA[20_000:120_000]
        assert file.n_bytes == 1024 + 100_000
        file.seek(0)
        file.read(10)
        assert file.n_requests == 2


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 900)), min_size=1, max_size=4),
        max_size=12,
    ),
    st.integers(1, 300),
    st.integers(1, 700),
)
def test_the_block_cache_never_changes_what_is_read(
    reads: list[list[tuple[int, int]]], block_bytes: int, max_cached_bytes: int
) -> None:
    data = DATA[:3900]
    url = put("memory://scan/b.bin", data)
    with open_for_scan(
        url, block_bytes=block_bytes, max_readahead_bytes=500, max_cached_bytes=max_cached_bytes
    ) as file:
        for ranges in reads:
            parts = file.read_many([a for a, _ in ranges], [n for _, n in ranges])
            assert parts == [data[a : a + n] for a, n in ranges]


def test_a_missing_file() -> None:
    for missing in ("/nowhere/a.nc", "memory://nowhere/a.nc"):
        with pytest.raises(SourceUnavailableError, match="does not exist"):
            open_for_scan(missing)
        with pytest.raises(SourceUnavailableError, match="does not exist"):
            describe_source(missing)


def test_a_file_that_shrinks_while_it_is_scanned(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(DATA)
    with open_for_scan(path) as file:
        path.write_bytes(DATA[:1000])
        file.seek(900)
        with pytest.raises(ShortReadError, match="become shorter"):
            file.read(1000)


def test_pieces_all_over_a_file_are_read_with_it_when_they_are_many() -> None:
    data = np.random.default_rng(3).bytes(6_000_000)
    with open_for_scan(put("memory://scan/scattered.bin", data)) as file:
        for start in np.random.default_rng(4).permutation(300) * 20_000:
            file.seek(start)
            assert file.read(100) == data[start : start + 100]
        assert file.n_requests <= 10
        assert file.n_bytes < 1.1 * len(data)


def test_a_few_pieces_of_a_large_file_are_read_alone() -> None:
    data = bytes(40_000_000)
    with open_for_scan(put("memory://scan/large.bin", data)) as file:
        for start in range(0, len(data), 2_000_000):
            file.seek(start)
            file.read(100)
        assert file.n_bytes < 500_000
