"""Kinds of archives, as small generators: what real ones look like, in a few kilobytes.

Each writes its files into a folder and says what one call has to make of them, read by other
programs (xarray, rasterio, tifffile).
"""

from __future__ import annotations

from tests.archives.archive import Archive
from tests.archives.forecasts import ensemble, forecasts
from tests.archives.granules import altimetry, orbits, scans, sweeps, volumes
from tests.archives.imagery import channels, exposures, modis, plate, products, sentinel, wells
from tests.archives.models import cmip, era5, nemo, roms, wrf
from tests.archives.observations import drifters, goes, radar, swaths

__all__ = ["KINDS", "Archive"]

KINDS = (
    era5,
    cmip,
    ensemble,
    forecasts,
    goes,
    swaths,
    orbits,
    altimetry,
    radar,
    volumes,
    sweeps,
    scans,
    wrf,
    roms,
    nemo,
    sentinel,
    products,
    modis,
    exposures,
    plate,
    wells,
    channels,
    drifters,
)
"""All generators: each takes an empty folder and gives an `Archive`."""
