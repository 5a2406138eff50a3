"""The Zarr codecs ``gridref.grib`` and ``gridref.grib_places``: GRIB messages, and their grids.

They let any reader of Zarr v3 that has gridref installed decode native views and exports of GRIB
files. They only decode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gridref.codecs.grib import PLACES, VALUES
from gridref.faces.zarr.decoding import DecodingCodec


@dataclass(frozen=True)
class GRIBCodec(DecodingCodec):
    """A field: a GRIB message of either edition, NaN where its bitmap has holes."""

    name: ClassVar[str] = VALUES


@dataclass(frozen=True)
class GRIBPlacesCodec(DecodingCodec):
    """Latitudes or longitudes: the grid section of a GRIB message."""

    name: ClassVar[str] = PLACES
