"""Reading of small pieces: what is asked for, and how much in all."""

from __future__ import annotations

import struct
from pathlib import Path

import fsspec
import numpy as np
import pytest

from gridref.errors import SourceFormatError
from gridref.formats import scan
from gridref.formats.hdf5.files import BlockReader
from gridref.io import ScanFile, open_for_scan

SMALL, LARGE = 300_000, 5_000_000


@pytest.fixture(params=["local", "remote"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path) if request.param == "local" else "memory://blocks"


def stored(place: str, size: int) -> tuple[ScanFile, bytes]:
    data = np.random.default_rng(size).bytes(size)
    with fsspec.open(f"{place}/{size}", "wb") as file:
        file.write(data)
    return open_for_scan(f"{place}/{size}"), data


@pytest.mark.parametrize("size", [0, 5, SMALL, LARGE])
def test_pieces_anywhere(place: str, size: int) -> None:
    file, data = stored(place, size)
    with file:
        reader = BlockReader(file)
        assert reader.size_bytes == size
        chance = np.random.default_rng(1)
        starts = chance.integers(0, size + 1, 60).tolist()
        lengths = [min(size - start, 3**power % 50_000) for power, start in enumerate(starts)]
        reader.prefetch([*starts, -5, size + 5])
        expected = [data[start : start + n] for start, n in zip(starts, lengths, strict=True)]
        assert [reader.read(*piece) for piece in zip(starts, lengths, strict=True)] == expected
        assert reader.read_many(starts, lengths) == expected


def test_small_remote_files_are_read_whole() -> None:
    file, _ = stored("memory://blocks", SMALL)
    with file:
        reader = BlockReader(file)
        for start in range(0, SMALL - 8, 1000):
            reader.read(start, 8)
        reader.read_many([5, SMALL - 20_000], [9, 20_000])
        assert file.n_requests == 1


def test_what_is_fetched_ahead_is_not_read_again(place: str) -> None:
    file, _ = stored(place, LARGE)
    with file:
        reader = BlockReader(file)
        starts = [100_000 * number + 77 for number in range(40)]
        reader.prefetch(starts)
        n_requests, n_bytes = file.n_requests, file.n_bytes
        for start in starts:
            reader.read(start, 40)
        assert (file.n_requests, file.n_bytes) == (n_requests, n_bytes)
        assert n_bytes < 40 * 20_000


def test_a_bound_on_what_is_read_of_a_file(tmp_path: Path) -> None:
    file, _ = stored(str(tmp_path), SMALL)
    with file:
        reader = BlockReader(file)

        def read_on() -> None:
            for _ in range(1000):
                reader.read(0, SMALL)

        with pytest.raises(SourceFormatError, match="overlap"):
            read_on()


def test_headers_that_all_continue_in_the_same_place(tmp_path: Path) -> None:
    """Thousands of headers of 40 bytes, each continued by the same half of the file."""
    n_groups, body_bytes = 4000, 4 << 20
    path = tmp_path / "a.h5"
    link = b"\1\0\4%s" + b"%s"
    root_at, first = 96, 4096
    names = [f"{number:04}".encode() for number in range(n_groups)]
    starts = [first + 400_000 + 40 * number for number in range(n_groups)]
    body_at = starts[-1] + 4096
    messages = b"".join(
        struct.pack("<HHB3x", 6, 16, 0)
        + (link % (name, start.to_bytes(8, "little"))).ljust(16, b"\0")
        for name, start in zip(names, starts, strict=True)
    )
    undefined = b"\xff" * 8
    info = struct.pack("<HHB3x", 2, 24, 0) + (bytes(2) + undefined * 2).ljust(24, b"\0")
    root = struct.pack("<BxHII4x", 1, 1, 1, 24)
    root += struct.pack("<HHB3xQQ", 0x10, 16, 0, first, len(info + messages))
    group = struct.pack("<BxHII4x", 1, 1, 1, 24)
    group += struct.pack("<HHB3xQQ", 0x10, 16, 0, body_at, body_bytes)
    end = body_at + body_bytes
    data = bytearray(end)
    data[:8] = b"\x89HDF\r\n\x1a\n"
    data[13:16] = b"\x08\x08\0"
    data[16:20] = struct.pack("<HH", 4, 16)
    data[24:56] = struct.pack("<Q", 0) + undefined + struct.pack("<Q", end) + undefined
    data[56:72] = struct.pack("<QQ", 0, root_at)
    data[root_at : root_at + 40] = root
    data[first : first + len(info + messages)] = info + messages
    for start in starts:
        data[start : start + 40] = group
    data[body_at : body_at + len(info)] = info
    # The rest of the body is one large message that says nothing, and gaps.
    position = body_at + len(info)
    while position + 8 + 65528 <= end:
        data[position : position + 8] = struct.pack("<HHB3x", 0, 65528, 0)
        position += 8 + 65528
    path.write_bytes(data)
    with pytest.raises(SourceFormatError, match="overlap"):
        scan(path)
