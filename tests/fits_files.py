"""FITS files that astropy writes, of every kind that the scanner reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import astropy
import numpy as np
from astropy.io import fits
from numpy.typing import NDArray

__all__ = ["COMPRESSED", "COMPRESSIONS", "PLAIN", "real_files", "write_images"]

_RANDOM = np.random.default_rng(11)
_SHAPE = (45, 37)


def _integers(dtype: str, low: int, high: int, shape: tuple[int, ...] = _SHAPE) -> NDArray[Any]:
    return _RANDOM.integers(low, high, shape).astype(dtype)


def _floats(dtype: str) -> NDArray[Any]:
    values = _RANDOM.normal(100, 5, _SHAPE).astype(dtype)
    values[3, 4] = values[40, 2:9] = np.nan
    return values


def _image(values: NDArray[Any], **keywords: Any) -> fits.ImageHDU:
    hdu = fits.ImageHDU(values)
    hdu.header.update(keywords)
    return hdu


def _packed(values: NDArray[Any], scale: float, zero: float, **keywords: Any) -> fits.ImageHDU:
    """An image whose stored integers stand for other numbers."""
    hdu = fits.ImageHDU(values, do_not_scale_image_data=True)
    hdu.header.update({"BSCALE": scale, "BZERO": zero, **keywords})
    return hdu


def _tiles(values: NDArray[Any], compression: str, **options: Any) -> fits.CompImageHDU:
    return fits.CompImageHDU(values, compression_type=compression, **options)


PLAIN: dict[str, fits.ImageHDU] = {
    **{
        dtype: _image(_integers(dtype, 0, 120))
        for dtype in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8")
    },
    "u8_large": _image(_integers("u8", 0, 120) + np.uint64(2**63)),
    "f4": _image(_floats("f4")),
    "f8": _image(_floats("f8")),
    "row": _image(_integers("i2", -9, 9, (11,))),
    "cube": _image(_integers("i4", -9, 9, (3, 4, 5))),
    "hypercube": _image(_integers("u2", 0, 9, (2, 1, 3, 4, 5))),
    "packed_u1": _packed(_integers("u1", 0, 256), 0.1, 3.3),
    "packed_i2": _packed(_integers("i2", -900, 900), 0.01, -7.7, BLANK=-5),
    "packed_i4": _packed(_integers("i4", -(2**30), 2**30), 1e-3, 0.1, BLANK=-(2**31)),
    "packed_i8": _packed(_integers("i8", -(2**40), 2**40), 0.5, 1.25),
    "packed_f4": _packed(_floats("f4"), 0.3, 0.7),
    "packed_f8": _packed(_floats("f8"), 0.3, 0.7),
    "only_scale": _packed(_integers("i2", -900, 900), 2.5, 0.0),
    "only_zero": _packed(_integers("i2", -900, 900), 1.0, 10.0),
    "blank": _packed(_integers("i4", -3, 3), 1.0, 0.0, BLANK=2),
}
"""Images that are not compressed, by a name."""

COMPRESSIONS = ("GZIP_1", "GZIP_2", "RICE_1", "HCOMPRESS_1", "NOCOMPRESS", "PLIO_1")
_QUANTISED = ("GZIP_1", "GZIP_2", "RICE_1", "HCOMPRESS_1")
_DITHERS = {"none": -1, "dither1": 1, "dither2": 2}

COMPRESSED: dict[str, fits.CompImageHDU] = {
    **{
        f"{name}_{dtype}": _tiles(_integers(dtype, 0, 120), name, tile_shape=(16, 16))
        for name in COMPRESSIONS
        for dtype in ("u1", "i2", "i4", *(("u2", "u4") if name != "PLIO_1" else ()))
    },
    **{
        f"{name}_{dtype}": _tiles(_floats(dtype), name, quantize_level=0, tile_shape=(9, 37))
        for name in ("GZIP_1", "GZIP_2")
        for dtype in ("f4", "f8")
    },
    **{
        f"{name}_{dtype}_{dither}": _tiles(
            _floats(dtype), name, quantize_method=method, dither_seed=9_990, tile_shape=(16, 16)
        )
        for name in _QUANTISED
        for dtype in ("f4", "f8")
        for dither, method in _DITHERS.items()
    },
    "even_u4": _tiles(_integers("u4", 0, 900), "GZIP_2", tile_shape=(15, 37)),
    "even_f4": _tiles(_floats("f4"), "GZIP_2", quantize_level=0, tile_shape=(5, 37)),
    "rows": _tiles(_integers("i2", -900, 900), "RICE_1"),
    "cube_rice": _tiles(_integers("i2", -900, 900, (5, 9, 11)), "RICE_1", tile_shape=(2, 4, 11)),
    "cube_hcompress": _tiles(
        _integers("i2", -900, 900, (3, 16, 20)), "HCOMPRESS_1", tile_shape=(1, 8, 10)
    ),
    "smooth": _tiles(
        _integers("i2", 0, 900), "HCOMPRESS_1", hcomp_scale=4, hcomp_smooth=1, tile_shape=(16, 16)
    ),
    "zeros_dither2": _tiles(
        np.where(_floats("f4") > 101, 0, _floats("f4")), "RICE_1", quantize_method=2
    ),
    "constant_tiles": _tiles(
        np.where(np.arange(_SHAPE[0])[:, np.newaxis] < 20, 3.5, _floats("f4")).astype("f4"),
        "RICE_1",
        quantize_method=1,
    ),
}
"""Tile-compressed images, by a name. Tiles of equal floats do not quantise: they are gzipped."""


def write_images(path: Path, images: dict[str, Any], **primary: Any) -> Path:
    """Write images as extensions that have their names, behind a primary header without data."""
    first = fits.PrimaryHDU()
    first.header.update(primary)
    hdus = fits.HDUList([first])
    for name, hdu in images.items():
        hdu.header["EXTNAME"] = name
        hdus.append(hdu)  # a copy of a compressed image would forget its compression
    hdus.writeto(path)
    return path


def real_files() -> list[Path]:
    """The files that come with astropy."""
    found = [*Path(astropy.__file__).parent.rglob("*")]
    suffixes = (".fits", ".fit", ".fts", ".fz")
    return sorted(path for path in found if path.suffix in suffixes)
