"""xarray's own backend tests, their files read through our doors.

Those of NetCDF4 files: written by netCDF4, by h5netcdf, and in the classic model. Not taken are
`TestNetCDF4ViaDaskData` and `TestNetCDF4DataTree`, the first suite again with dask on xarray's side
and as trees of one group, which would only take time.
"""

from __future__ import annotations

import pytest
from xarray.tests import test_backends as suite

from tests.conformance.xarray_suite.doors import DOORS, through

pytestmark = pytest.mark.long


class _Through:
    """Reading, as a door has it; writing stays the suite's."""

    door = ""

    @pytest.fixture(autouse=True)
    def _read_through_the_door(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("open_dataset", "load_dataset"):
            read = through(DOORS[self.door], getattr(suite, name))
            monkeypatch.setattr(suite, name, read)


class TestEngineNetCDF4(_Through, suite.TestNetCDF4Data):
    door = "engine"


class TestEngineH5NetCDF(_Through, suite.TestH5NetCDFData):
    door = "engine"


class TestEngineClassic(_Through, suite.TestNetCDF4ClassicViaNetCDF4Data):
    door = "engine"


class TestZarrNetCDF4(_Through, suite.TestNetCDF4Data):
    door = "zarr"


class TestZarrH5NetCDF(_Through, suite.TestH5NetCDFData):
    door = "zarr"


class TestVirtualNetCDF4(_Through, suite.TestNetCDF4Data):
    door = "virtual"


class TestVirtualH5NetCDF(_Through, suite.TestH5NetCDFData):
    door = "virtual"
