"""All of gridref's own codecs by name."""

from __future__ import annotations

from gridref.codecs import (
    arithmetic,
    core,
    grib,
    hdf5_bits,
    hdf5_filters,
    numcodecs_codecs,
    shuffle,
    tiff,
    tiff_images,
)
from gridref.codecs.stage import AnyCodec, ArrayCodec, BytesCodec, SerialCodec

ARRAY_CODECS: dict[str, ArrayCodec] = (
    core.ARRAY_CODECS
    | core.AXIS_CODECS
    | arithmetic.ARRAY_CODECS
    | numcodecs_codecs.ARRAY_CODECS
    | hdf5_bits.NUMBER_CODECS
    | hdf5_bits.STRING_CODECS
    | tiff.ARRAY_CODECS
)
"""Array -> array codecs."""

SERIAL_CODECS: dict[str, SerialCodec] = (
    core.SERIAL_CODECS
    | arithmetic.SERIAL_CODECS
    | core.STRING_CODECS
    | numcodecs_codecs.SERIAL_CODECS
    | grib.SERIAL_CODECS
)
"""Array -> bytes codecs."""

BYTES_CODECS: dict[str, BytesCodec] = (
    core.BYTES_CODECS
    | shuffle.BYTES_CODECS
    | numcodecs_codecs.BYTES_CODECS
    | hdf5_filters.BYTES_CODECS
    | hdf5_bits.NBIT_CODECS
    | hdf5_bits.SCALEOFFSET_CODECS
    | tiff.BYTES_CODECS
    | tiff_images.BYTES_CODECS
)
"""Bytes -> bytes codecs."""

OWN: dict[str, AnyCodec] = {**ARRAY_CODECS, **SERIAL_CODECS, **BYTES_CODECS}
"""All of gridref's own codecs."""
