"""Where arrays are on earth: what their coordinates and grid mappings say, by pyproj."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from pyproj import CRS, Transformer

from gridref.faces.web.earth import earth_of
from gridref.faces.web.extent import ends_of, extents
from gridref.faces.web.meaning import as_stated, nexus_axis
from gridref.model.array import VirtualArray, VirtualGroup

PLANE = np.zeros((3, 4), "f4")


def of(values: Any, *dims: str, **attrs: Any) -> VirtualArray:
    return VirtualArray.from_numpy(np.asarray(values), dims, attrs)


def test_coordinates_that_are_named_come_first() -> None:
    group = VirtualGroup(
        {
            "a": of(PLANE, "y", "x", coordinates="tlat tlon"),
            "tlat": of(PLANE, "y", "x", units="degrees_north"),
            "tlon": of(PLANE, "y", "x", units="degrees_east"),
            "ulat": of(PLANE, "y", "x", standard_name="latitude"),
            "ulon": of(PLANE, "y", "x", standard_name="longitude"),
        }
    )
    named = {"latitude": "tlat", "longitude": "tlon", "dims": ["y", "x"]}
    assert earth_of(group, "a") == named


def test_coordinates_are_found_where_products_put_them() -> None:
    geolocation = VirtualGroup(
        {
            "Latitude": of(PLANE, "line", "pixel", units="deg"),
            "Longitude": of(PLANE, "line", "pixel", units="deg"),
        }
    )
    fields = VirtualGroup(
        {
            "v": of(np.zeros((3, 4, 2)), "line", "pixel", "band"),
            "w": of(np.zeros((5, 2)), "level", "band"),
        }
    )
    swath = VirtualGroup({}, {"Geolocation Fields": geolocation, "Data Fields": fields})
    group = VirtualGroup({}, {"S": swath})
    assert earth_of(group, "S/Data Fields/v") == {
        "latitude": "S/Geolocation Fields/Latitude",
        "longitude": "S/Geolocation Fields/Longitude",
        "dims": ["line", "pixel"],
    }
    assert earth_of(group, "S/Data Fields/w") is None


def test_dimensions_without_names_are_those_that_are_as_long() -> None:
    dims = [f"phony_dim_{number}" for number in range(4)]
    arrays = {
        "lat": of(PLANE, dims[0], dims[1]),
        "lon": of(PLANE, dims[0], dims[1]),
        "a": of(PLANE, dims[2], dims[3]),
        "b": of(PLANE.T, dims[3], dims[2]),
    }
    group = VirtualGroup(arrays)
    assert earth_of(group, "a") == {"latitude": "lat", "longitude": "lon", "dims": dims[2:]}
    assert earth_of(group, "b") is None


def test_a_rotated_pole() -> None:
    pole = {
        "grid_mapping_name": "rotated_latitude_longitude",
        "grid_north_pole_latitude": 39.25,
        "grid_north_pole_longitude": np.float32(-162),
    }
    group = VirtualGroup({"a": of(PLANE, "y", "x", grid_mapping="rp"), "rp": of(0, **pole)})
    assert earth_of(group, "a") == {"pole": [39.25, -162.0, 0.0], "dims": ["y", "x"]}


@pytest.mark.parametrize(
    ("code", "as_wkt"),
    [
        (3857, True),  # CF has no such grid mapping
        *product((32633, 3035, 3031, 3413, 5070, 6933, 2154, 27700), (True, False)),
    ],
)
def test_projections_are_what_their_attributes_say(code: int, as_wkt: bool) -> None:
    crs = CRS.from_epsg(code)
    attrs = {"crs_wkt": crs.to_wkt()} if as_wkt else crs.to_cf()
    kept = {name: value for name, value in attrs.items() if as_wkt or name != "crs_wkt"}
    arrays = {
        "a": of(PLANE, "y", "x", grid_mapping="crs"),
        "y": of([1.0, 2, 3], "y", units="km"),
        "crs": of(0, **kept),
    }
    found = earth_of(VirtualGroup(arrays), "a")
    assert found is not None
    assert found["units"] == [1e3, 1.0]
    x, y = crs.area_of_use.bounds[0], crs.area_of_use.bounds[1]
    middle = ((x + crs.area_of_use.bounds[2]) / 2, (y + crs.area_of_use.bounds[3]) / 2)
    expected = Transformer.from_crs(crs.geodetic_crs, crs, always_xy=True).transform(*middle)
    shown = CRS.from_proj4(found["projection"])
    placed = Transformer.from_crs(shown.geodetic_crs, shown, always_xy=True).transform(*middle)
    np.testing.assert_allclose(placed, expected, atol=1)


@pytest.mark.parametrize("dims", [("y", "x"), ("x", "y"), ("y", "x", "t"), ("x", "t", "y")])
@pytest.mark.parametrize("named", [True, False])
def test_rows_and_columns_are_those_that_coordinates_say(
    dims: tuple[str, ...], named: bool
) -> None:
    """Whichever way dimensions are ordered, not the last two."""
    crs = CRS.from_epsg(32632)
    names = {dim: f"{dim}c" if named else dim for dim in dims}
    arrays = {
        names[dim]: of(
            np.arange(4.0),
            names[dim],
            **{"standard_name": f"projection_{dim}_coordinate"} if named else {},
        )
        for dim in dims
    }
    values = of(np.zeros((4,) * len(dims)), *names.values(), grid_mapping="crs")
    mapping = of(np.int32(0), crs_wkt=crs.to_wkt())
    earth = earth_of(VirtualGroup({**arrays, "crs": mapping, "v": values}), "v")
    assert earth is not None
    assert earth["dims"] == [names["y"], names["x"]]


@pytest.mark.parametrize(
    ("text", "units", "size"),
    [
        ("+proj=utm +zone=32 +units=km", "km", 1),
        ("+proj=utm +zone=32 +units=km", "", 1),
        ("+proj=utm +zone=32 +units=km", "m", 0.001),
        ("+proj=utm +zone=32", "km", 1000),
        ("EPSG:2263", "US survey foot", 1),
        ("EPSG:2263", "m", 3937 / 1200),
    ],
)
def test_units_of_coordinates_and_of_the_system(text: str, units: str, size: float) -> None:
    arrays = {name: of(np.arange(4.0), name, units=units) for name in ("y", "x")}
    mapping = of(np.int32(0), crs_wkt=CRS(text).to_wkt())
    values = of(np.zeros((4, 4)), "y", "x", grid_mapping="crs")
    earth = earth_of(VirtualGroup({**arrays, "crs": mapping, "v": values}), "v")
    assert earth is not None
    assert earth["units"] == pytest.approx([size, size])


@pytest.mark.parametrize(("units", "shape"), [("radian", (3, 4)), ("degrees", (6, 4))])
def test_latitudes_that_are_no_degrees_or_of_another_level(
    units: str, shape: tuple[int, int]
) -> None:
    group = VirtualGroup(
        {
            "v": of(PLANE, "y", "x", coordinates="a b"),
            "a": of(np.zeros(shape), "y", "x", standard_name="latitude", units=units),
            "b": of(np.zeros(shape), "y", "x", standard_name="longitude", units=units),
        }
    )
    assert earth_of(group, "v") is None


def test_what_a_satellite_sees_is_counted_in_angles() -> None:
    height = 35786023.0
    mapping = {
        "grid_mapping_name": "geostationary",
        "perspective_point_height": height,
        "semi_major_axis": 6378137.0,
        "semi_minor_axis": 6356752.31414,
        "longitude_of_projection_origin": -75.0,
        "latitude_of_projection_origin": 0.0,
        "sweep_angle_axis": "x",
    }
    arrays = {
        "a": of(PLANE, "y", "x", grid_mapping="g"),
        "y": of([1.0, 2, 3], "y", units="rad"),
        "x": of([1.0, 2, 3, 4], "x", units="microradian"),
        "g": of(0, **mapping),
    }
    found = earth_of(VirtualGroup(arrays), "a")
    assert found is not None
    assert found["units"] == [height, height * 1e-6]
    assert "+proj=geos" in found["projection"]
    assert "+sweep=x" in found["projection"]


@pytest.mark.parametrize(
    "mapping",
    [
        {"crs_wkt": "nonsense"},
        {"crs_wkt": 3},
        {"grid_mapping_name": "martian"},
        {"grid_mapping_name": "mercator", "standard_parallel": "north"},
        {"grid_mapping_name": "rotated_latitude_longitude", "grid_north_pole_latitude": "x"},
        {"grid_mapping_name": "latitude_longitude"},
        {},
    ],
)
def test_mappings_that_say_nothing(mapping: dict[str, Any]) -> None:
    group = VirtualGroup({"a": of(PLANE, "y", "x", grid_mapping="m"), "m": of(0, **mapping)})
    assert earth_of(group, "a") is None


def test_sweeps_of_radars_go_round_them() -> None:
    below = VirtualGroup(
        {"data": of(PLANE.astype("u1"), "ray", "bin")},
        {"what": VirtualGroup(attrs={"gain": 0.5, "offset": -32, "nodata": 255, "undetect": 0})},
    )
    where = {"elangle": 0.6, "nrays": 3, "nbins": 4, "rstart": 1.0, "rscale": 500.0}
    sweep = VirtualGroup({}, {"data1": below, "where": VirtualGroup(attrs=where)})
    place = VirtualGroup(attrs={"lat": 47.0, "lon": 3.1})
    group = VirtualGroup({}, {"dataset1": sweep, "where": place})
    path = "dataset1/data1/data"
    found = earth_of(group, path)
    assert found == {"sweep": [47.0, 3.1, 0.6, 1000.0, 500.0], "dims": ["ray", "bin"]}
    stated = as_stated(group, path).attrs
    assert (stated["scale_factor"], stated["add_offset"]) == (0.5, -32)
    assert stated["missing_value"] == [255, 0]
    assert earth_of(VirtualGroup({}, {"dataset1": sweep}), path) is None  # nowhere


def test_axes_of_nexus_label_the_signal() -> None:
    named = {"NX_class": "NXdata", "axes": ["y", "x"]}
    labels = {"y": of([1.0, 2, 3], "phony_dim_0"), "x": of([4.0, 5, 6], "phony_dim_0")}
    square = of(np.zeros((3, 3)), "phony_dim_0", "phony_dim_0")
    group = VirtualGroup({}, {"scan": VirtualGroup({"counts": square, **labels}, attrs=named)})
    assert [nexus_axis(group, "scan/counts", axis) for axis in (0, 1)] == ["scan/y", "scan/x"]
    assert nexus_axis(group, "scan/x", 0) is None


def test_packed_coordinates_extend_over_what_they_mean() -> None:
    packing = {"scale_factor": 5.6e-05, "add_offset": -0.151844}
    named = {"units": "rad", "standard_name": "projection_x_coordinate"}
    angles = of([0, 5424], "x", **named, **packing)
    (found,) = extents(
        ends_of(VirtualGroup({"x": angles}), lambda _, at: np.array([at.start and 5424]))
    )
    assert (found.first, found.last) == ("-0.151844 rad", "0.1519 rad")
