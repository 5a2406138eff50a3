"""Corrupt TIFF files: an error of ours or the right pixels, soon and within bounds."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import tifffile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.shared_data import shared_data_folder
from tools.fuzz.tiff_mutations import Mutator
from tools.fuzz.tiff_target import check

MAX_SEED_BYTES = 24_000


@cache
def seeds() -> tuple[tuple[str, bytes], ...]:
    """Small files: some of all kinds made here, and the real ones, where those are there."""
    folder = shared_data_folder()
    real = [
        (path.name, path.read_bytes())
        for path in sorted(folder.rglob("*.tif*"))
        if path.stat().st_size <= MAX_SEED_BYTES
    ]
    return (*((name, write()) for name, write in WRITERS.items()), *real)


def written(data: np.ndarray, **options: object) -> bytes:
    buffer = io.BytesIO()
    tifffile.imwrite(buffer, data, **options)
    return buffer.getvalue()


def pyramid() -> bytes:
    buffer = io.BytesIO()
    image = np.arange(3 * 64 * 96, dtype=np.uint8).reshape(64, 96, 3)
    tiles = {"tile": (16, 32), "compression": "jpeg", "photometric": "rgb"}
    with tifffile.TiffWriter(buffer, ome=True) as writer:
        writer.write(image, subifds=1, **tiles)
        writer.write(image[::2, ::2], subfiletype=1, **tiles)
    return buffer.getvalue()


SMALL = np.arange(40 * 30, dtype=np.uint16).reshape(40, 30)
WRITERS = {
    "strips": lambda: written(SMALL, rowsperstrip=7, compression="lzw", predictor=2, metadata=None),
    "tiles": lambda: written(SMALL, tile=(16, 16), compression="zlib", bigtiff=True, metadata=None),
    "big-endian": lambda: written(SMALL.astype("f4"), byteorder=">", metadata=None),
    "pages": lambda: written(np.stack([SMALL] * 5), compression="packbits"),
    "imagej": lambda: written(np.stack([SMALL] * 4), imagej=True, metadata={"axes": "TYX"}),
    "pyramid": pyramid,
}


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "fuzzed.tif"


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), file=st.integers(0, 2**16))
def test_corrupt_files(scratch: Path, seed: int, file: int) -> None:
    _, data = seeds()[file % len(seeds())]
    scratch.write_bytes(Mutator()(data, 2 * MAX_SEED_BYTES, seed))
    check(scratch)


def test_intact_files_are_compared(scratch: Path) -> None:
    for name in WRITERS:
        scratch.write_bytes(dict(seeds())[name])
        assert check(scratch) == "scanned"
