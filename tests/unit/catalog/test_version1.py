"""A catalog of format version 1, as gridref 0.1 wrote it, is read like one of today."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.catalog import check_catalog
from gridref.errors import CatalogCorruptError
from gridref.testing.invariants import assert_same_group

FIXTURE = Path(__file__).parent / "version1" / "daily.gridref"
SAMPLES = Path(__file__).parents[3] / "sample_data"
FILES = [SAMPLES / f"daily_2023-{month:02}.nc" for month in (1, 2, 4)]


def test_its_values_are_those_of_the_files() -> None:
    opened = gridref.open_catalog(FIXTURE, allow=SAMPLES)
    assert opened.info.format_version == 1
    assert opened.info.extra == {"kept": [1, None]}
    for name in ("tas", "pr", "lat", "time_bnds"):
        if name in opened.arrays:
            with netCDF4.Dataset(FILES[0]) as first:
                raw = first[name]
                raw.set_auto_maskandscale(False)
                assert np.array_equal(opened[name][: raw.shape[0]], raw[...])
    with (
        xr.open_dataset(FIXTURE, engine="gridref", allow=SAMPLES) as shown,
        xr.open_mfdataset(
            FILES, engine="netcdf4", data_vars="minimal", coords="minimal", compat="override"
        ) as expected,
    ):
        for name in expected.variables:
            np.testing.assert_array_equal(shown[name].values, expected[name].values)
    assert opened["below/numbers"][...].tolist() == [[0, 1, 2], [3, 4, 5]]
    check_catalog(FIXTURE)


def test_it_can_be_written_in_the_version_of_today(tmp_path: Path) -> None:
    opened = gridref.open_catalog(FIXTURE)
    gridref.write_catalog(opened, tmp_path / "c")
    again = gridref.open_catalog(tmp_path / "c")
    assert again.info.format_version == 2
    assert_same_group(again, opened)
    assert again.info.n_chunks == opened.info.n_chunks == 155


@pytest.mark.parametrize("member", ["extra", "axes", "root"])
def test_its_digest_is_checked(tmp_path: Path, member: str) -> None:
    shutil.copytree(FIXTURE, tmp_path / "c")
    root = tmp_path / "c" / "gridref.json"
    document = json.loads(root.read_text())
    document[member] = {} if member != "axes" else []
    root.write_text(json.dumps(document))
    with pytest.raises(CatalogCorruptError, match="digest"):
        gridref.open_catalog(tmp_path / "c")
