"""The interface of kerchunk 0.2.10, implemented with gridref.

``from kerchunk.hdf import SingleHdf5ToZarr`` becomes
``from gridref.compat.kerchunk.hdf import SingleHdf5ToZarr``; ``combine`` and ``tiff`` alike.

What differs is in docs/migration.md.
"""

from __future__ import annotations

from gridref.compat.kerchunk.combine import MultiZarrToZarr, drop
from gridref.compat.kerchunk.hdf import SingleHdf5ToZarr
from gridref.compat.kerchunk.tiff import tiff_to_zarr

__all__ = ["MultiZarrToZarr", "SingleHdf5ToZarr", "drop", "tiff_to_zarr"]
