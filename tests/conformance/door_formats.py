"""Generated files of images and volumes for the door matrix: each codec, dtype and layout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import blosc2
import numpy as np

from tests import b2nd_files, fits_files, n5_files, precomputed_files, wkw_files
from tests.jp2_files import image_of, with_parts, write_jp2


def image_and_volume_files(folder: Path) -> Iterator[Path]:
    """Write files and folders, each to be scanned by itself."""
    for write in (_fits, _jpeg2000, _n5, _b2nd, _wkw, _precomputed):
        yield from write(folder)


def _fits(folder: Path) -> Iterator[Path]:
    yield fits_files.write_images(folder / "plain.fits", fits_files.PLAIN)
    yield fits_files.write_images(folder / "tiles.fits", fits_files.COMPRESSED)


def _jpeg2000(folder: Path) -> Iterator[Path]:
    for dtype in ("u1", "u2", "i2"):
        for tile in (64, 128):
            yield write_jp2(
                folder / f"{dtype} {tile}.jp2", image_of((3, 100, 128), dtype), tile, RESOLUTIONS=2
            )
    apart = write_jp2(folder / "apart.jp2", image_of((1, 100, 128)), TILEPARTS="RESOLUTIONS")
    data = apart.read_bytes()
    apart.write_bytes(with_parts(data, (0, 3, 1, 2, *range(4, 12))))
    yield apart


def _n5(folder: Path) -> Iterator[Path]:
    path = n5_files.write_attributes(folder / "all.n5", n5="2.0.0")
    for name, compression in n5_files.COMPRESSIONS.items():
        n5_files.write_dataset(path / name, n5_files.numbers("uint16"), compression=compression)
    for dtype in n5_files.TYPES:
        n5_files.write_dataset(path / dtype, n5_files.numbers(dtype))
    for shape in ((17,), (4, 6), (3, 1, 2, 5)):
        n5_files.write_dataset(
            path / f"{len(shape)} axes", n5_files.numbers("int16", shape), (2,) * len(shape)
        )
    yield path


def _b2nd(folder: Path) -> Iterator[Path]:
    filters = blosc2.Filter
    params = {
        "zstd": {},
        "lz4": {"codec": blosc2.Codec.LZ4, "filters": [filters.BITSHUFFLE]},
        "none": {"clevel": 0},
        "plain": {"codec": blosc2.Codec.BLOSCLZ, "filters": [filters.NOFILTER]},
    }
    for name, each in params.items():
        yield b2nd_files.write_array(folder / f"{name}.b2nd", b2nd_files.numbers(), **each)
    for dtype in ("<f8", ">i2", "|u1"):
        name = f"{dtype[1:]}.b2nd"
        yield b2nd_files.write_array(folder / name, b2nd_files.numbers(dtype))
    yield b2nd_files.write_array(folder / "sparse.b2nd", b2nd_files.numbers("<i8"), sparse=True)


def _wkw(folder: Path) -> Iterator[Path]:
    for kind in wkw_files.KINDS:
        for dtype in ("u1", "u2", "f4"):
            for n_channels in (1, 3):
                path = folder / f"{kind} {dtype} {n_channels}" / "1"
                voxels = wkw_files.voxels(dtype, (n_channels, 16, 32, 16))
                yield wkw_files.write_mag(path, ((0, 0, 0), voxels), kind=kind)


def _precomputed(folder: Path) -> Iterator[Path]:
    for name, encoding in precomputed_files.ENCODINGS.items():
        dtypes = {"jpeg": ("u1",), "compressed_segmentation": ("u4", "u8")}
        for dtype in dtypes.get(name, ("u1", "u2")):
            for sharding in (None, precomputed_files.sharding()):
                values = precomputed_files.voxels(dtype, (1, 13, 18, 21))
                yield precomputed_files.write_volume(
                    folder / f"{name} {dtype} {'files' if sharding is None else 'shards'}",
                    values,
                    np.ascontiguousarray(values[:, :, ::2, ::2]),
                    encoding=encoding,
                    **({} if sharding is None else {"sharding": sharding}),
                )
