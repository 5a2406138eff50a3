"""What grid mappings say, against pyproj."""

from __future__ import annotations

import pyproj
import pytest

from gridref.model.conventions import authority_code, wkt_of

CODES = [4326, 32632, 3035, 3857, 27700]


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("version", ["WKT1_GDAL", "WKT2_2019"])
@pytest.mark.parametrize("pretty", [False, True])
def test_codes_of_systems(code: int, version: str, pretty: bool) -> None:
    system = pyproj.CRS.from_epsg(code)
    wkt = system.to_wkt(version, pretty=pretty)
    assert authority_code(wkt) == ("EPSG", str(code)) == system.to_authority()
    without = pyproj.CRS.from_proj4("+proj=laea +lat_0=1 +lon_0=2 +ellps=GRS80").to_wkt(version)
    assert authority_code(without) is None


def test_the_first_word_that_names_a_system_counts() -> None:
    assert wkt_of({"crs_wkt": "a", "spatial_ref": "b"}) == "a"
    assert wkt_of({"crs_wkt": "", "spatial_ref": "b"}) == "b"
    assert wkt_of({}) == ""
