"""The Zarr codec ``gridref.jpeg2000``: a tile of a JPEG 2000 codestream, or all of it.

It lets any reader of Zarr v3 that has gridref installed decode native views and exports of JPEG
2000 files. It only decodes. The codecs that imagecodecs registers decode whole codestreams, to
arrays without an axis for a single band.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gridref.codecs.jpeg2000 import NAME
from gridref.faces.zarr.decoding import DecodingCodec


@dataclass(frozen=True)
class JPEG2000Codec(DecodingCodec):
    """The bands of a tile, or of the whole image."""

    name: ClassVar[str] = NAME
