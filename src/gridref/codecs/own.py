"""Join the tables ``CODECS`` of all modules: gridref's own codecs by name."""

from __future__ import annotations

from gridref.codecs import (
    arithmetic,
    blosc2,
    core,
    fits,
    grib,
    hdf4,
    hdf5_bits,
    hdf5_filters,
    jpeg2000,
    n5,
    numcodecs_codecs,
    precomputed,
    shuffle,
    tiff,
    tiff_images,
)
from gridref.codecs.stage import AnyCodec

OWN: dict[str, AnyCodec] = (
    core.CODECS
    | shuffle.CODECS
    | arithmetic.CODECS
    | numcodecs_codecs.CODECS
    | hdf4.CODECS
    | hdf5_filters.CODECS
    | hdf5_bits.CODECS
    | tiff.CODECS
    | tiff_images.CODECS
    | fits.CODECS
    | grib.CODECS
    | n5.CODECS
    | blosc2.CODECS
    | jpeg2000.CODECS
    | precomputed.CODECS
)
