"""All codecs by name, and the question whether one can be decoded."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
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
    CodecContract,
    SerialCodec,
    SerialStage,
)
from gridref.model.encoding import Codec
from gridref.plugins import plugins

__all__ = [
    "ARRAY_CODECS",
    "BYTES_CODECS",
    "GROUP",
    "SERIAL_CODECS",
    "codec_named",
    "why_not",
]

GROUP = "gridref.codecs"
"""The entry-point group by which other packages add codecs: the name is the codec's."""

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


def codec_named(name: str) -> AnyCodec | None:
    """How a codec is decoded; None if nothing is known.

    Raises
    ------
    InvalidRequestError
        Naming the package, for a codec of another package that cannot be used.
    """
    return OWN.get(name) or numcodecs_codecs.fallback(name) or _added(name)


@cache
def _added(name: str) -> AnyCodec | None:
    """The codec that another package adds."""
    plugin = plugins(GROUP, frozenset(OWN)).get(name)
    if plugin is None:
        return None
    codec = plugin.load()
    if not isinstance(codec, ArrayCodec | SerialCodec | BytesCodec):
        raise plugin.broken("it is no ArrayCodec, SerialCodec or BytesCodec of gridref.codecs")
    return codec


def why_not(codec: Codec) -> str | None:
    """Say why `codec` cannot be decoded.

    Returns
    -------
    str or None
        The reason, with the codec's name; None if it can be decoded.
    """
    kind: CodecContract | None = codec_named(codec.name)
    if kind is None:
        return f"codec {codec.name}: no decoder is known"
    missing = [key for key in kind.required if key not in codec.configuration]
    if missing:
        return f"codec {codec.name}: configuration lacks {', '.join(missing)}"
    problem = kind.problem(codec.configuration)
    return None if problem is None else f"codec {codec.name}: {problem}"
