"""Hostile and broken files: an error of ours or the right pixels, in bounded time and memory."""

from __future__ import annotations

import resource
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

from gridref.errors import GridrefError, ScanError, SourceFormatError, UnsupportedFeatureError
from gridref.formats import scan
from gridref.testing.reference_reader import read_slowly
from tests.unit.formats.tiff.tiff_builder import gray_page, tiff_bytes
from tools.fuzz.tiff_mutations import layout_of
from tools.fuzz.tiff_target import check

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
    return scan(str(path))


def plain(**tags: Any) -> dict[int, tuple[int, Any]]:
    return gray_page(20, 10, [16], [200], **tags)


def directories_of(content: bytes) -> list[int]:
    """Where the directories lie."""
    layout = layout_of(content)
    found = [int.from_bytes(content[p : p + 4], "little") for p in layout.pointers]
    return [place for place in found if place]


def test_the_builder_builds_files(tmp_path: Path) -> None:
    for big in (False, True):
        for order in "<>":
            group = scanned(tmp_path, tiff_bytes([plain()], PIXELS, big=big, order=order))
            expected = np.frombuffer(PIXELS, np.uint8).reshape(10, 20)
            np.testing.assert_array_equal(read_slowly(group.arrays["image"]), expected)


def test_a_cut_directory_that_leads_to_itself(tmp_path: Path) -> None:
    """tifffile takes the last bytes of a cut directory for the offset of the next one."""
    content = tiff_bytes([plain(t270=(2, b"some text\0"))], PIXELS)
    last, cut = layout_of(content).pointers[-1], len(content)
    content = content[:last] + struct.pack("<I", cut) + content[last + 4 :]
    content += struct.pack("<HHHII", 1, 256, 4, 1, cut)
    with pytest.raises(SourceFormatError, match="go round in circles"):
        scanned(tmp_path, content)


@pytest.mark.parametrize("depth", [(2, b"a depth\0"), (4, [1, 1]), (7, b"12")])
def test_sizes_that_are_no_numbers(tmp_path: Path, depth: Any) -> None:
    """tifffile multiplies them: 2**31 times a text of 8 letters."""
    sizes = {"t257": (4, [2**31]), "t278": (4, [1]), "t32997": depth, "t270": (2, b"some text\0")}
    page = gray_page(20, 10, [16], [200], **sizes)
    with pytest.raises(SourceFormatError, match="tag 32997, a size, has"):
        scanned(tmp_path, tiff_bytes([page], PIXELS))


DESCRIBED: dict[str, Any] = {"t270": (2, b"some text\0")}
HUGE = {256: (4, [2**31 - 1]), 257: (4, [2**31 - 1])}
TWO_SAMPLES = {"t277": (3, [2]), "t258": (3, [8, 8])}


def with_tags(**tags: Any) -> Callable[[Any], bytes]:
    return lambda extra: tiff_bytes([plain(**extra, **tags)], PIXELS)


def with_page(*page: Any, **tags: Any) -> Callable[[Any], bytes]:
    return lambda extra: tiff_bytes([gray_page(*page, **extra, **tags)], PIXELS)


def tiles(side: int) -> dict[str, Any]:
    return {"t322": (3, [side]), "t323": (3, [side])}


REFUSED: dict[str, Callable[[Any], bytes]] = {
    "an offset behind the end": with_page(20, 10, [10**6], [200]),
    "bytes behind the end": with_page(200, 100, [16], [20000]),
    "a byte count too small": with_page(20, 10, [16, 116], [100, 50], t278=(4, [5])),
    # Some readers take such a strip for missing, others guess its size.
    "no bytes at an offset": with_page(20, 10, [16, 116], [100, 0], t278=(4, [5])),
    "pixels in the header": with_page(20, 10, [0], [200]),
    "tiles of no size": with_tags(t322=(3, [0]), t323=(3, [16]), t324=(4, [16]), t325=(4, [200])),
    "a tile for each pixel of a huge image": lambda extra: tiff_bytes(
        [{**plain(**extra, **tiles(1), t324=(4, [16]), t325=(4, [1])), **HUGE}], PIXELS
    ),
    "too few offsets": with_tags(t278=(4, [1]), t259=(3, [8])),
    **{
        f"2^60 of tag {code}": lambda extra, code=code: tiff_bytes(
            [plain(**extra)], PIXELS, big=True, patches={code: (4, 2**60, 16)}
        )
        for code in (258, 273, 279)
    },
    "an offset of 2^63": lambda extra: tiff_bytes(
        [plain(**extra, t273=(16, [2**63 + 5]))], PIXELS, big=True
    ),
    "pixels longer than the file": lambda extra: tiff_bytes([{**plain(**extra), **HUGE}], PIXELS),
    "an unknown planar configuration": with_tags(**TWO_SAMPLES, t284=(3, [7]), t257=(4, [5])),
    "two planar configurations": with_tags(**TWO_SAMPLES, t284=(3, [1, 0]), t257=(4, [5])),
    "no samples": with_tags(t277=(3, [0])),
    "samples without end": with_tags(t277=(4, [2**31]), t284=(3, [2]), **tiles(16)),
    "no directory": lambda extra: tiff_bytes([], PIXELS),
    "a directory behind the end": lambda extra: b"II*\0\xff\xff\xff\x7f",
    "an unknown compression": with_tags(t259=(3, [64999])),
}


@pytest.mark.parametrize("extra", [{}, DESCRIBED], ids=["plain", "described"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(tmp_path: Path, name: str, extra: Any) -> None:
    """Each file is tried as an ordinary one, and as one that tifffile has to parse."""
    with pytest.raises(ScanError) as error:
        scanned(tmp_path, REFUSED[name](extra))
    assert error.value.place.source is not None


@pytest.mark.parametrize("extra", [{}, DESCRIBED], ids=["plain", "described"])
def test_no_byte_count_of_a_single_strip(tmp_path: Path, extra: Any) -> None:
    """All readers go by the offset."""
    content = tiff_bytes([gray_page(20, 10, [16], [0], **extra)], PIXELS)
    image = scanned(tmp_path, content).arrays["image"]
    np.testing.assert_array_equal(read_slowly(image).tobytes(), PIXELS)
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "file.tif").tobytes(), PIXELS)


def test_samples_of_one_bit_in_a_jpeg_stream(tmp_path: Path) -> None:
    path = tmp_path / "file.tif"
    tifffile.imwrite(path, np.zeros((16, 16), np.uint8), compression="jpeg", metadata=None)
    with tifffile.TiffFile(path, mode="r+") as file:
        file.pages[0].tags["BitsPerSample"].overwrite(1)
    with pytest.raises(UnsupportedFeatureError, match="one bit"):
        scan(str(path))


def test_offsets_of_tiles_beside_those_of_strips(tmp_path: Path) -> None:
    """Of an image without tiles: what tifffile makes of it."""
    path = tmp_path / "file.tif"
    path.write_bytes(tiff_bytes([plain(t324=(4, [20]))], PIXELS + bytes(20)))
    check(path)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("target", [0, 1])
def test_sub_directories_that_lead_back(tmp_path: Path, target: int) -> None:
    """A page whose sub-image is itself, or a page around it."""
    pages = [plain(), plain(t330=(13, [0]))]
    places = directories_of(tiff_bytes(pages, PIXELS))
    content = tiff_bytes([plain(), plain(t330=(13, [places[target]]))], PIXELS)
    path = tmp_path / "file.tif"
    path.write_bytes(content)
    check(path, max_seconds=10)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "claim",
    [
        'SizeZ="2000000000" SizeC="1" SizeT="1"',
        'SizeZ="100000" SizeC="100000" SizeT="1"',
        'SizeZ="1" SizeC="1" SizeT="1" FirstZ="9999999999"',
    ],
)
def test_ome_xml_of_planes_without_end(tmp_path: Path, claim: str) -> None:
    claim, _, first = claim.partition(" First")
    entry = f'<TiffData {"First" + first if first else ""} IFD="0" PlaneCount="1"/>'
    xml = (
        '<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06">'
        f'<Image ID="Image:0"><Pixels ID="Pixels:0" Type="uint8" DimensionOrder="XYZCT" SizeX="20"'
        f' SizeY="10" {claim}>{entry}</Pixels></Image></OME>'
    )
    with pytest.raises(SourceFormatError, match=r"claims to have \d+ planes"):
        scanned(tmp_path, tiff_bytes([plain(t270=(2, xml.encode() + b"\0"))], PIXELS))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("n_images", [10**6, 10**12, 10**18])
def test_imagej_files_of_images_without_end(tmp_path: Path, n_images: int) -> None:
    text = f"ImageJ=1.53k\nimages={n_images}\nslices={n_images}\nloop=false\n\0".encode()
    path = tmp_path / "file.tif"
    path.write_bytes(tiff_bytes([plain(t270=(2, text))], PIXELS))
    check(path, max_seconds=10)


STORED = [None, "zlib", "lzw", "packbits", "zstd", "lzma", "jpeg", "webp", "png", "lerc", "jpegxl"]
CLAIMED = (
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    32773,
    33003,
    34712,
    34887,
    34925,
    34933,
    34934,
    50000,
    50001,
    50002,
)


@pytest.mark.parametrize("stored", STORED)
def test_compression_tags_that_lie(tmp_path: Path, stored: Any) -> None:
    path = tmp_path / "file.tif"
    image = np.add.outer(np.arange(40), np.arange(48)).astype(np.uint8)
    for layout in ({"rowsperstrip": 16}, {"tile": (16, 16)}):
        options: dict[str, Any] = {"photometric": "minisblack", "metadata": None, **layout}
        if stored == "webp":
            options["photometric"] = "rgb"
        data = np.stack([image] * 3, axis=-1) if stored == "webp" else image
        tifffile.imwrite(path, data, compression=stored, **options)
        for claimed in CLAIMED:
            with tifffile.TiffFile(path, mode="r+") as file:
                file.pages[0].tags["Compression"].overwrite(claimed)
            check(path)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("extra", [{}, DESCRIBED], ids=["plain", "described"])
@pytest.mark.parametrize("n_pages", [1, 2, 100])
def test_a_chain_that_comes_back(tmp_path: Path, extra: Any, n_pages: int) -> None:
    content = tiff_bytes([plain(**extra)] * n_pages, PIXELS, next_of_last=-1)
    with pytest.raises(SourceFormatError, match="comes back"):
        scanned(tmp_path, content)


@pytest.mark.parametrize(("order", "big"), [("<", False), (">", True)])
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
    for _ in range(150):
        broken = bytearray(content)
        for _ in range(int(random.integers(1, 4))):
            broken[int(random.integers(start, len(content)))] = int(random.integers(0, 256))
        path = tmp_path / "file.tif"
        path.write_bytes(broken)
        try:
            group = scan(str(path), on_unsupported="skip")
            for array in group.all_arrays().values():
                if array.nbytes < 1 << 20:
                    read_slowly(array)
        except GridrefError:
            pass
