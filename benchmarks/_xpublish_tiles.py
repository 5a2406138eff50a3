"""Serve map tiles of a NetCDF file by xpublish-tiles: ``python _xpublish_tiles.py FILE PORT``.

Run by the interpreter of an environment of its own; see `benchmarks.map_tiles`.
"""

import sys

import uvicorn
import xarray as xr
import xpublish
from xpublish_tiles.xpublish.tiles.plugin import TilesPlugin

path, port = sys.argv[1:]
# Its values are in memory.
dataset = xr.open_dataset(path, engine="h5netcdf").load().assign_attrs(_xpublish_id="x")
rest = xpublish.SingleDatasetRest(dataset, plugins={"tiles": TilesPlugin()})
uvicorn.run(rest.app, host="127.0.0.1", port=int(port), log_level="error")
