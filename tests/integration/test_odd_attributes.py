"""Attributes of files that are no texts or numbers where conventions want some."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import gridref
from gridref.errors import GridrefError, NotRepresentableError, UnsupportedFeatureError

ODD: dict[str, Any] = {
    "texts": ["a", "b"],
    "number": 5,
    "nothing": np.zeros(0),
    "numbers": np.array([[1.5, 2], [3, 4]]),
    "pair": np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
}
NAMES = (
    "units", "standard_name", "axis", "calendar", "grid_mapping", "coordinates", "bounds",
    "climatology", "missing_value", "_Unsigned", "instance_dimension", "crs_wkt", "GeoTransform",
    "long_name", "cell_methods",
)  # fmt: skip


def files(folder: Path, variable: str, attrs: dict[str, Any]) -> list[Path]:
    """Two files whose variable has odd attributes; where it is the time, it has usual units."""
    paths = [folder / f"{number}.h5" for number in range(2)]
    for number, path in enumerate(paths):
        with h5py.File(path, "w") as file:
            file["time"] = np.arange(2.0) + 2 * number
            file["time"].make_scale("time")
            file["time"].attrs["units"] = "days since 2000-01-01"
            file["v"] = np.arange(4, dtype="i2").reshape(2, 2)
            file["v"].dims[0].attach_scale(file["time"])
            file[variable].attrs.update(attrs)
    return paths


@pytest.mark.long(but=2)
@pytest.mark.filterwarnings("ignore::xarray.SerializationWarning")
@pytest.mark.parametrize("variable", ["time", "v"])
@pytest.mark.parametrize("odd", ODD)
def test_files_with_odd_attributes_are_combined_or_refused(
    tmp_path: Path, variable: str, odd: str
) -> None:
    for name in NAMES:
        paths = files(tmp_path, variable, {name: ODD[odd]})
        catalog = tmp_path / f"{name}.gridref"
        gridref.build(paths, catalog, "time")
        group = gridref.open_catalog(catalog)
        np.testing.assert_array_equal(group.arrays["v"][...], np.tile([[0, 1], [2, 3]], (2, 1)))
        with suppress(GridrefError):
            gridref.interchange.to_stac(group, datetime="2000-01-01")


@pytest.mark.parametrize("name", ["scale_factor", "add_offset"])
@pytest.mark.parametrize("odd", ["texts", "nothing", "pair"])
def test_a_factor_that_is_no_number_is_refused(tmp_path: Path, name: str, odd: str) -> None:
    paths = files(tmp_path, "time", {name: ODD[odd]})
    with pytest.raises(UnsupportedFeatureError, match=f"{name} is .*, which is not a number"):
        gridref.plan(paths, concat_dim="time")


def test_what_xarray_cannot_decode_is_told(tmp_path: Path) -> None:
    paths = files(tmp_path, "time", {"calendar": ["a", "b"]})
    with pytest.raises(NotRepresentableError, match="xarray does not decode it"):
        gridref.open_virtual_mfdataset(paths, concat_dim="time", combine="nested")
