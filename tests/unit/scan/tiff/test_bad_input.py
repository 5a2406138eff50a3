"""Hostile and broken files: an error of ours or the right pixels, in bounded time and memory."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gridref.errors import GridrefError, ScanError, SourceFormatError
from gridref.scan.options import ScanOptions
from gridref.scan.tiff.scanner import scan_tiff
from gridref.testing.reference_reader import read_slowly
from tests.unit.scan.tiff.tiff_builder import gray_page, tiff_bytes

PIXELS = bytes(range(200))
MAX_EXTRA_BYTES = 512 << 20


@pytest.fixture(autouse=True)
def bounded_memory() -> Iterator[None]:
    """No file may make the scan take more than half a GiB."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as stream:
        used = int(stream.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MAX_EXTRA_BYTES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def scanned(folder: Path, content: bytes) -> Any:
    path = folder / "file.tif"
    path.write_bytes(content)
    return scan_tiff(str(path))


def plain(**tags: Any) -> dict[int, tuple[int, Any]]:
    return gray_page(20, 10, [16], [200], **tags)


def test_the_builder_builds_files(tmp_path: Path) -> None:
    for big in (False, True):
        for order in "<>":
            group = scanned(tmp_path, tiff_bytes([plain()], PIXELS, big=big, order=order))
            expected = np.frombuffer(PIXELS, np.uint8).reshape(10, 20)
            np.testing.assert_array_equal(read_slowly(group.arrays["image"]), expected)


@pytest.mark.parametrize("extra", [{}, {"t270": (2, b"some text\0")}], ids=["plain", "described"])
class TestRefused:
    """Each file is tried as an ordinary one, and as one that tifffile has to parse."""

    def refused(self, folder: Path, content: bytes) -> None:
        with pytest.raises(ScanError) as error:
            scanned(folder, content)
        assert error.value.place.source is not None

    def test_data_behind_the_end(self, tmp_path: Path, extra: Any) -> None:
        self.refused(tmp_path, tiff_bytes([gray_page(20, 10, [10**6], [200], **extra)], PIXELS))
        self.refused(tmp_path, tiff_bytes([gray_page(200, 100, [16], [20000], **extra)], PIXELS))

    def test_byte_count_too_small(self, tmp_path: Path, extra: Any) -> None:
        tags = {**extra, "t278": (4, [5])}
        page = gray_page(20, 10, [16, 116], [100, 50], **tags)
        self.refused(tmp_path, tiff_bytes([page], PIXELS))

    def test_zero_size_tiles(self, tmp_path: Path, extra: Any) -> None:
        tiles = {"t322": (3, [0]), "t323": (3, [16]), "t324": (4, [16]), "t325": (4, [200])}
        self.refused(tmp_path, tiff_bytes([plain(**extra, **tiles)], PIXELS))

    def test_a_tile_for_each_pixel_of_a_huge_image(self, tmp_path: Path, extra: Any) -> None:
        tiles = {"t322": (3, [1]), "t323": (3, [1]), "t324": (4, [16]), "t325": (4, [1])}
        page = {**plain(**extra, **tiles), 256: (4, [2**31]), 257: (4, [2**31])}
        self.refused(tmp_path, tiff_bytes([page], PIXELS))

    def test_too_few_offsets(self, tmp_path: Path, extra: Any) -> None:
        page = plain(**extra, t278=(4, [1]), t259=(3, [8]))
        self.refused(tmp_path, tiff_bytes([page], PIXELS))

    def test_counts_of_2_to_the_60(self, tmp_path: Path, extra: Any) -> None:
        for code in (258, 273, 279):
            content = tiff_bytes([plain(**extra)], PIXELS, big=True, patches={code: (4, 2**60, 16)})
            self.refused(tmp_path, content)

    def test_offsets_of_2_to_the_63(self, tmp_path: Path, extra: Any) -> None:
        page = plain(**extra, t273=(16, [2**63 + 5]))
        self.refused(tmp_path, tiff_bytes([page], PIXELS, big=True))

    def test_no_directory(self, tmp_path: Path, extra: Any) -> None:
        self.refused(tmp_path, tiff_bytes([], PIXELS))
        self.refused(tmp_path, b"II*\0\xff\xff\xff\x7f")

    def test_unknown_compression(self, tmp_path: Path, extra: Any) -> None:
        self.refused(tmp_path, tiff_bytes([plain(**extra, t259=(3, [64999]))], PIXELS))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("extra", [{}, {"t270": (2, b"some text\0")}], ids=["plain", "described"])
@pytest.mark.parametrize("n_pages", [1, 2, 100])
def test_a_chain_that_comes_back(tmp_path: Path, extra: Any, n_pages: int) -> None:
    content = tiff_bytes([plain(**extra)] * n_pages, PIXELS, next_of_last=-1)
    with pytest.raises(SourceFormatError, match="comes back"):
        scanned(tmp_path, content)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("big", [False, True])
def test_every_truncation(tmp_path: Path, order: str, big: bool) -> None:
    content = tiff_bytes([plain()], PIXELS, big=big, order=order)
    for length in range(len(content)):
        try:
            group = scanned(tmp_path, content[:length])
        except GridrefError:
            continue
        assert length > len(content) - 24  # all but the offset of a further directory is there
        np.testing.assert_array_equal(read_slowly(group.arrays["image"]).tobytes(), PIXELS)


def test_flipped_bytes_never_crash(tmp_path: Path) -> None:
    content = tiff_bytes([plain(), plain()], PIXELS, big=False)
    random = np.random.default_rng(7)
    start = 16 + len(PIXELS)
    for _ in range(300):
        broken = bytearray(content)
        for _ in range(int(random.integers(1, 4))):
            broken[int(random.integers(start, len(content)))] = int(random.integers(0, 256))
        path = tmp_path / "file.tif"
        path.write_bytes(broken)
        try:
            group = scan_tiff(str(path), ScanOptions(on_unsupported="skip"))
            for array in group.all_arrays().values():
                if array.nbytes < 1 << 20:
                    read_slowly(array)
        except GridrefError:
            pass
