"""Small FITS files with something of everything, as seeds of mutations."""

from __future__ import annotations

import io
import warnings

import numpy as np
from astropy.io import fits

__all__ = ["fits_files"]

_COMPRESSIONS = ("RICE_1", "GZIP_1", "GZIP_2", "PLIO_1", "HCOMPRESS_1", "NOCOMPRESS")


def fits_files() -> list[bytes]:
    """Images that are whole, unsigned, scaled and compressed in each way; tables beside them."""
    values = np.arange(96).reshape(8, 12)
    packed = fits.ImageHDU(values.astype("i2"), do_not_scale_image_data=True, name="SCI")
    packed.header.update({"BSCALE": 0.5, "BZERO": 3, "BLANK": 7, "CTYPE1": "RA---TAN"})
    columns = [fits.Column("a", "I", array=[1, 2]), fits.Column("b", "PJ()", array=[[1], [2, 3]])]
    table = fits.BinTableHDU.from_columns(columns)
    texts = fits.PrimaryHDU(values.astype("u2"))
    texts.header["LONG"] = "text & more " * 12
    texts.header["HIERARCH ESO DET ID"] = "one"
    whole = [
        [texts, packed, table],
        [fits.PrimaryHDU(values.astype("f4").reshape(2, 4, 12))],
        [fits.PrimaryHDU(values.astype("u8"))],
    ]
    tiles = [
        fits.CompImageHDU(values.astype("i2"), compression_type=name, tile_shape=(4, 8))
        for name in _COMPRESSIONS
    ]
    noise = np.random.default_rng(1).normal(9, 1, (8, 12)).astype("f4")
    noise[:4] = 1
    floats = [
        fits.CompImageHDU(noise, compression_type=name, quantize_method=method, tile_shape=(4, 8))
        for name, method in (("RICE_1", 1), ("GZIP_2", 2), ("HCOMPRESS_1", -1))
    ]
    compressed = [[fits.PrimaryHDU(), hdu] for hdu in (*tiles, *floats)]
    return list(map(_written, [*whole, *compressed]))


def _written(hdus: list[fits.PrimaryHDU | fits.ImageHDU | fits.BinTableHDU]) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits.HDUList(hdus).writeto(buffer)
    return buffer.getvalue()
