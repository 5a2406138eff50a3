"""Catalogs of Intake name catalogs of gridref, and open them through intake-xarray."""

from __future__ import annotations

from pathlib import Path

import intake
import pytest
import xarray as xr

import gridref

MONTH = Path(__file__).parents[2] / "sample_data" / "daily_2023-01.nc"
ENTRIES = """
sources:
  by_engine:
    driver: netcdf
    args:
      urlpath: "{{{{ CATALOG_DIR }}}}/january.gridref"
      xarray_kwargs: {{engine: gridref}}
  by_zarr:
    driver: zarr
    args:
      urlpath: "gridref::file://{folder}/january.gridref"
"""


@pytest.mark.parametrize("entry", ["by_engine", "by_zarr"])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.filterwarnings("ignore")  # of Intake itself
def test_entries_open(entry: str, chunked: bool, tmp_path: Path) -> None:
    gridref.build(MONTH, tmp_path / "january.gridref")
    (tmp_path / "catalog.yaml").write_text(ENTRIES.format(folder=tmp_path))
    source = intake.open_catalog(str(tmp_path / "catalog.yaml"))[entry]
    opened = source.to_dask() if chunked else source.read()
    assert (opened["tas"].chunks is not None) == chunked
    xr.testing.assert_equal(opened.load(), xr.open_dataset(MONTH, engine="netcdf4").load())
