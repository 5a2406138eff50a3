"""gridref's own codecs by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gridref.codecs import (
    arithmetic,
    axes,
    checksums,
    core,
    hdf5_filters,
    hdf5_nbit,
    hdf5_numbers,
    hdf5_scaleoffset,
    hdf5_strings,
    numcodecs_codecs,
    strings,
    tiff,
    tiff_images,
)
from gridref.codecs.stage import (
    AnyCodec,
    ArrayCodec,
    ArrayStage,
    BytesCodec,
    BytesStage,
    SerialCodec,
    SerialStage,
)

__all__ = ["ARRAY_CODECS", "BYTES_CODECS", "OWN", "SERIAL_CODECS"]

ARRAY_CODECS: dict[str, ArrayCodec] = (
    core.ARRAY_CODECS
    | axes.ARRAY_CODECS
    | arithmetic.ARRAY_CODECS
    | numcodecs_codecs.ARRAY_CODECS
    | hdf5_numbers.ARRAY_CODECS
    | hdf5_strings.ARRAY_CODECS
    | tiff.ARRAY_CODECS
)
"""Array -> array codecs."""

SERIAL_CODECS: dict[str, SerialCodec] = (
    core.SERIAL_CODECS
    | arithmetic.SERIAL_CODECS
    | strings.SERIAL_CODECS
    | numcodecs_codecs.SERIAL_CODECS
)
"""Array -> bytes codecs."""

BYTES_CODECS: dict[str, BytesCodec] = (
    core.BYTES_CODECS
    | checksums.BYTES_CODECS
    | numcodecs_codecs.BYTES_CODECS
    | hdf5_filters.BYTES_CODECS
    | hdf5_nbit.BYTES_CODECS
    | hdf5_scaleoffset.BYTES_CODECS
    | tiff.BYTES_CODECS
    | tiff_images.BYTES_CODECS
)
"""Bytes -> bytes codecs."""

if TYPE_CHECKING:
    # The type checker holds every codec against what the pipeline asks of its kind.
    _ARRAY_STAGES: Mapping[str, ArrayStage] = ARRAY_CODECS
    _SERIAL_STAGES: Mapping[str, SerialStage] = SERIAL_CODECS
    _BYTES_STAGES: Mapping[str, BytesStage] = BYTES_CODECS

OWN: dict[str, AnyCodec] = {**ARRAY_CODECS, **SERIAL_CODECS, **BYTES_CODECS}
"""All of gridref's own codecs."""
