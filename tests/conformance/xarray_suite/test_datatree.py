"""xarray's own tests of trees, their files read through our doors."""

from __future__ import annotations

import pytest
from xarray.tests import test_backends_datatree as suite

from tests.conformance.xarray_suite.doors import DOORS, GROUPS, TREES, through

pytestmark = pytest.mark.long


class _Through:
    """Reading, as a door has it; writing stays the suite's."""

    door = ""

    @pytest.fixture(autouse=True)
    def _read_through_the_door(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, doors in (
            ("open_datatree", TREES),
            ("load_datatree", TREES),
            ("open_groups", GROUPS),
        ):
            monkeypatch.setattr(suite, name, through(doors[self.door], getattr(suite, name)))
        monkeypatch.setattr(
            suite.xr, "open_dataset", through(DOORS[self.door], suite.xr.open_dataset)
        )


class TestEngineNetCDF4Trees(_Through, suite.TestNetCDF4DatatreeIO):
    door = "engine"


class TestEngineH5NetCDFTrees(_Through, suite.TestH5NetCDFDatatreeIO):
    door = "engine"


class TestEngineGenericTrees(_Through, suite.TestGenericNetCDFIO):
    door = "engine"


class TestZarrNetCDF4Trees(_Through, suite.TestNetCDF4DatatreeIO):
    door = "zarr"


class TestVirtualNetCDF4Trees(_Through, suite.TestNetCDF4DatatreeIO):
    door = "virtual"
