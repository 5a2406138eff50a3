"""What kerchunk makes of HDF5 files."""

from __future__ import annotations

import os
from typing import Any

import kerchunk.hdf

from gridref.io import collector_paused


def hdf5_references(file: str | os.PathLike[str], **options: Any) -> dict[str, Any]:
    """The references that kerchunk writes.

    kerchunk waits for zarr's thread while h5py holds its lock. If that thread collected an object
    of h5py as garbage, it would wait for the lock, and both forever.
    """
    with collector_paused():
        return dict(kerchunk.hdf.SingleHdf5ToZarr(os.fspath(file), **options).translate())
