"""All codecs by name, and the question whether one can be decoded."""

from __future__ import annotations

from functools import cache

from gridref.codecs.stage import (
    AnyCodec,
    ArrayCodec,
    BytesCodec,
    CodecContract,
    SerialCodec,
)
from gridref.model.encoding import Codec
from gridref.plugins import plugins

__all__ = [
    "GROUP",
    "codec_named",
    "why_not",
]

GROUP = "gridref.codecs"
"""The entry-point group by which other packages add codecs: the name is the codec's."""


def codec_named(name: str) -> AnyCodec | None:
    """How a codec is decoded; None if nothing is known.

    Raises
    ------
    InvalidRequestError
        Naming the package, for a codec of another package that cannot be used.
    """
    # Opening a catalog asks for no codec: their modules are loaded for the first chunk.
    from gridref.codecs.numcodecs_codecs import fallback
    from gridref.codecs.own import OWN

    return OWN.get(name) or fallback(name) or _added(name)


@cache
def _added(name: str) -> AnyCodec | None:
    """The codec that another package adds."""
    from gridref.codecs.own import OWN

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
