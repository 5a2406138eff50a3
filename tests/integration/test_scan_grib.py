"""GRIB files beside eccodes and cfgrib: scanned, by index files, as a growing archive, verified."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import xarray as xr
import zarr

import gridref
from gridref.api.catalog import Catalog
from gridref.api.readable import Sources, readable
from gridref.codecs import decode_chunk
from gridref.errors import (
    DecodeError,
    GridrefError,
    NotRepresentableError,
    SourceFormatError,
    UnsupportedFeatureError,
)
from gridref.faces.exports.kerchunk import to_kerchunk
from gridref.formats import ScanOptions
from gridref.formats.grib import group_of_fields
from gridref.formats.grib.index_files import UnfitIndexError, listed_fields, read_index
from gridref.io import Reads, open_for_scan, working
from gridref.learned import FORMS
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.manifest import ChunkManifest, ChunkState
from tests.grib_files import field, fields_of, idx, index, message, write_grib
from tests.http_server import Site, serving
from tests.shared_data import shared_files

REFUSED = {
    "regular_gg_wrong_increment": "18432 points in 64 rows of 192",
    "spherical_harmonics": "spherical harmonics",
    "s2s-pdt12-pdt107-anomaly": "template 4.107",
}
"""What refuses some or all fields of these samples."""
UNNAMED = "unknown"


def variables(group: VirtualGroup) -> dict[str, Any]:
    """The arrays of fields by their paths."""
    return {
        path: array for path, array in group.all_arrays().items() if "GRIB_shortName" in array.attrs
    }


def assert_as_in_eccodes(path: Path, group: VirtualGroup) -> int:
    """Compare names, labels, places and bits of values of each field; returns their number."""
    expected = {about["offset"]: about for about in fields_of(path)}
    n_fields = 0
    for place, array in variables(group).items():
        above = place.rpartition("/")[0]
        arrays = group[above].arrays
        n_labels = array.ndim - (1 if array.dims[-1] == "values" else 2)
        manifest = array.manifests[0]
        assert isinstance(manifest, ChunkManifest)
        for row in np.flatnonzero(manifest.state == ChunkState.RANGE).tolist():
            about = expected[int(manifest.offset[row])]
            at = tuple(map(int, np.unravel_index(row, array.shape[:n_labels])))
            values = array[at]
            assert values.dtype == np.float32
            assert np.array_equal(
                values.reshape(-1), about["values"].astype("f4"), equal_nan=True
            ), place
            labels = {
                dim: arrays[dim][...][number]
                for dim, number in zip(array.dims[:n_labels], at, strict=True)
            }
            assert_same_labels(array, labels, about)
            n_fields += 1
        if "latitude" in arrays:
            assert_same_places(arrays, array, about)
    return n_fields


def assert_same_labels(array: Any, labels: dict[str, Any], about: dict[str, Any]) -> None:
    attrs = array.attrs
    assert attrs["GRIB_shortName"] == about["shortName"]
    assert attrs["GRIB_paramId"] == about["paramId"]
    assert attrs["GRIB_name"] == about["name"]
    assert attrs["GRIB_units"] == about["units"]
    assert attrs.get("standard_name", UNNAMED) == about["cfName"]
    if about["cfVarName"] != UNNAMED:
        assert attrs["GRIB_cfVarName"] == about["cfVarName"]
    assert attrs["GRIB_typeOfLevel"] == about["typeOfLevel"]
    assert attrs["GRIB_gridType"] == about["gridType"]
    time = np.datetime64(int(labels["time"]), "s").item()
    assert (f"{time:%Y%m%d}", f"{time:%H%M}") == (
        str(about["dataDate"]),
        f"{about['dataTime']:04}",
    )
    if about["endStep"] is not None and abs(about["endStep"]) < 10_000:
        assert labels["step"] == about["endStep"] * 3600
    if about["number"]:
        assert labels["number"] == about["number"]
    level = labels.get(attrs["GRIB_typeOfLevel"], attrs.get("GRIB_level", 0.0))
    if level >= 0:  # eccodes takes negative levels for large ones
        assert level == pytest.approx(about["level"])


def assert_same_places(arrays: Any, array: Any, about: dict[str, Any]) -> None:
    """In the order of the file, as far as its numbers are rounded."""
    latitudes, longitudes = (arrays[name][...] for name in ("latitude", "longitude"))
    if latitudes.ndim == 1 and array.dims[-1] != "values":
        latitudes, longitudes = np.meshgrid(latitudes, longitudes, indexing="ij")
    np.testing.assert_allclose(latitudes.reshape(-1), about["latitudes"], atol=1e-3)
    apart = (longitudes.reshape(-1) - about["longitudes"] + 180) % 360 - 180
    np.testing.assert_allclose(apart, 0, atol=1e-3)


# ---- samples ------------------------------------------------------------------------------
SAMPLES = [
    path
    for suffix in ("grib", "grib1", "grib2")
    for path in shared_files(f"formats/grib/*.{suffix}")
]


@pytest.mark.long(but=6)
@pytest.mark.parametrize("path", SAMPLES)
def test_real_files(path: Path) -> None:
    why = next((why for name, why in REFUSED.items() if name in path.name), None)
    if why is not None:
        with pytest.raises(UnsupportedFeatureError, match=why):
            gridref.scan(path)
    group = gridref.scan(path, on_unsupported="skip")
    n_skipped = sum(finding.fate == "skipped" for finding in group.report)
    assert bool(n_skipped) == (why is not None)
    assert assert_as_in_eccodes(path, group) + n_skipped == len(fields_of(path))


# ---- dimensions and groups ----------------------------------------------------------------
def test_labels_become_dimensions(tmp_path: Path) -> None:
    fields = [
        field(seed=number, shortName=name, typeOfLevel="isobaricInhPa", level=level, step=step)
        for number, (name, level, step) in enumerate(
            (name, level, step) for name in "tu" for level in (500, 850, 1000) for step in (0, 6)
        )
        if (name, level) != ("u", 1000)
    ]
    group = gridref.scan(write_grib(tmp_path / "a.grib2", *fields))
    levels = group.groups["isobaricInhPa"]
    assert set(group.groups) == {"isobaricInhPa"}
    assert levels.arrays["t"].dims == ("time", "step", "isobaricInhPa", "latitude", "longitude")
    assert levels.arrays["isobaricInhPa"][...].tolist() == [1000, 850, 500]
    assert levels.arrays["step"][...].tolist() == [0, 6 * 3600]
    assert np.isnan(levels.arrays["u"][:, :, 0]).all()  # the file does not have them
    assert assert_as_in_eccodes(tmp_path / "a.grib2", group) == len(fields)


def test_kinds_of_levels_and_of_statistics_are_groups(tmp_path: Path) -> None:
    fields = [
        field(shortName="2t", step=6),
        field(shortName="sp", step=6),
        field(shortName="tp", stepRange="0-6"),
        field(shortName="tp", stepRange="5-6"),
        field(shortName="t", typeOfLevel="heightAboveGround", level=80, step=6),
        field(shortName="t", typeOfLevel="heightAboveGround", level=100, step=6),
    ]
    path = write_grib(tmp_path / "a.grib2", *fields)
    group = gridref.scan(path)
    assert set(variables(group)) == {
        "heightAboveGround/t2m",
        "heightAboveGround/t",
        "surface/sp",
        "surface/accum/tp",
        "surface/accum_1h/tp",
    }
    assert group["heightAboveGround/t2m"].dims == ("time", "step", "latitude", "longitude")
    assert group["heightAboveGround/t2m"].attrs["GRIB_level"] == 2
    assert group["heightAboveGround/heightAboveGround"][...].tolist() == [80, 100]
    assert assert_as_in_eccodes(path, group) == len(fields)


def test_layers_from_the_ground_are_told_apart_by_their_height(tmp_path: Path) -> None:
    layers = [
        {"typeOfFirstFixedSurface": 103, "typeOfSecondFixedSurface": 103}
        | {"scaleFactorOfFirstFixedSurface": 0, "scaledValueOfFirstFixedSurface": top}
        | {"scaleFactorOfSecondFixedSurface": 0, "scaledValueOfSecondFixedSurface": bottom}
        for top, bottom in ((0, 1000), (0, 6000), (3000, 0))
    ]
    shear = {"discipline": 0, "parameterCategory": 2, "parameterNumber": 15}
    fields = [field(seed=n, **shear, **layer) for n, layer in enumerate(layers)]
    path = write_grib(tmp_path / "a.grib2", *fields)
    group = gridref.scan(path)["heightAboveGroundLayer"]
    (name,) = {name for name in group.arrays if "GRIB_name" in group.arrays[name].attrs}
    assert group.arrays["heightAboveGroundLayer"][...].tolist() == [1000, 3000, 6000]
    for number, about in zip((0, 2, 1), fields_of(path), strict=True):
        found = group.arrays[name][0, 0, number]
        assert np.array_equal(found.reshape(-1), about["values"].astype("f4"))


def test_members_of_an_ensemble_are_a_dimension(tmp_path: Path) -> None:
    ensemble = {"productDefinitionTemplateNumber": 1, "numberOfForecastsInEnsemble": 3}
    fields = [field(seed=n, **ensemble, shortName="sp", perturbationNumber=n) for n in range(3)]
    path = write_grib(tmp_path / "a.grib2", *fields)
    group = gridref.scan(path)
    assert group["surface/sp"].dims == ("number", "time", "step", "latitude", "longitude")
    assert assert_as_in_eccodes(path, group) == 3


@pytest.mark.parametrize("edition", [1, 2])
def test_members_of_an_ensemble_whose_size_is_not_stated(tmp_path: Path, edition: int) -> None:
    keys = {"productDefinitionTemplateNumber": 1, "numberOfForecastsInEnsemble": 0}
    if edition == 1:
        keys = {"setLocalDefinition": 1, "localDefinitionNumber": 1, "totalNumber": 0}
    one = message(None, f"regular_ll_sfc_grib{edition}", **keys, number=7)
    path = write_grib(tmp_path / "a.grib", one)
    group = gridref.scan(path)
    assert group["surface"].arrays["number"][...].tolist() == [7]
    assert assert_as_in_eccodes(path, group) == 1


def test_xarray_decodes_times(tmp_path: Path) -> None:
    path = write_grib(
        tmp_path / "a.grib2", field(shortName="sp", dataDate=20240229, dataTime=0, step=30)
    )
    with xr.open_datatree(path, engine="gridref") as tree:
        surface = tree["surface"].dataset
        assert surface.time.values == np.datetime64("2024-02-29T00", "ns")
        assert surface.step.values == np.timedelta64(30, "h")
        assert surface.valid_time.values == np.datetime64("2024-03-01T06", "ns")
        assert {"latitude", "longitude", "valid_time"} <= set(surface.sp.coords)


# ---- messages -----------------------------------------------------------------------------
def test_fields_that_share_a_message(tmp_path: Path) -> None:
    fields = [field(seed=1, shortName="10u"), field(seed=2, shortName="10v"), field(shortName="sp")]
    fields[0]["multi"] = 2
    path = write_grib(tmp_path / "a.grib2", *fields)
    group = gridref.scan(path)
    expected = fields_of(path)
    for name, about in zip(("u10", "v10"), expected[:2], strict=True):
        values = group[f"heightAboveGround/{name}"][...]
        assert np.array_equal(values.reshape(-1), about["values"].astype("f4"))
    assert np.array_equal(group["surface/sp"][...].reshape(-1), expected[2]["values"].astype("f4"))


@pytest.mark.parametrize("edition", [1, 2])
def test_holes_are_nan(tmp_path: Path, edition: int) -> None:
    one = field(shortName="sp")
    one["sample"] = f"regular_ll_sfc_grib{edition}"
    one["values"][1, 2] = np.nan
    path = write_grib(tmp_path / "a.grib", one)
    group = gridref.scan(path)
    assert np.isnan(group["surface/sp"][0, 0, 1, 2])
    assert assert_as_in_eccodes(path, group) == 1


@pytest.mark.parametrize("packing", ["grid_simple", "grid_complex", "grid_ccsds", "grid_jpeg"])
def test_fields_without_a_value(tmp_path: Path, packing: str) -> None:
    one = field(shortName="sp", packingType=packing)
    one["values"][:] = np.nan
    path = write_grib(tmp_path / "a.grib2", one)
    assert np.isnan(gridref.scan(path)["surface/sp"][...]).all()


@pytest.mark.parametrize(
    ("packing", "bits"),
    [
        ("grid_simple", 16),
        ("grid_ieee", 16),
        ("grid_complex", 16),
        ("grid_complex_spatial_differencing", 16),
        ("grid_jpeg", 16),
        *(("grid_ccsds", bits) for bits in (1, 8, 16, 17, 31)),
    ],
)
def test_packings(tmp_path: Path, packing: str, bits: int) -> None:
    one = field(30, 40, shortName="sp")
    one["values"][3:5, 7] = np.nan
    one["keys"] |= {"packingType": packing, "bitsPerValue": bits}
    path = write_grib(tmp_path / "a.grib2", one, field(30, 40, shortName="sp", step=6))
    assert assert_as_in_eccodes(path, gridref.scan(path)) == 2


@pytest.mark.parametrize("bits", [16, 0])
def test_png(tmp_path: Path, bits: int) -> None:
    """eccodes does not write it here. GDAL writes images that 0 bits say to ignore."""
    one = field(30, 40, shortName="sp", bitsPerValue=16)
    path = write_grib(tmp_path / "a.grib2", one)
    raw = path.read_bytes()
    data = raw.rindex(b"\x07", 0, len(raw) - 2400 - 3) - 4
    values = np.frombuffer(raw, ">u2", 1200, data + 5).reshape(30, 40)
    png = imagecodecs.png_encode(values.astype("u2"))
    packing = raw.index(struct.pack(">IBI", 21, 5, 1200))
    body = raw[16 : packing + 9] + struct.pack(">H", 41) + raw[packing + 11 : packing + 19]
    body += bytes([bits]) + raw[packing + 20 : data]
    body += struct.pack(">IB", 5 + len(png), 7) + png + b"7777"
    path.write_bytes(raw[:8] + struct.pack(">Q", 16 + len(body)) + body)
    assert assert_as_in_eccodes(path, gridref.scan(path)) == 1


@pytest.mark.parametrize(
    ("edition", "mode"),  # edition 1 has no alternating rows
    [*product([1], range(0, 256, 32)), *product([2], range(0, 256, 16))],
)
def test_scanning_modes(tmp_path: Path, mode: int, edition: int) -> None:
    one = field(3, 4, shortName="sp")
    one["sample"] = f"regular_ll_sfc_grib{edition}"
    keys = one["keys"]
    if mode & 128:
        keys["longitudeOfFirstGridPointInDegrees"], keys["longitudeOfLastGridPointInDegrees"] = (
            keys["longitudeOfLastGridPointInDegrees"],
            keys["longitudeOfFirstGridPointInDegrees"],
        )
    if mode & 64:
        keys["latitudeOfFirstGridPointInDegrees"], keys["latitudeOfLastGridPointInDegrees"] = (
            keys["latitudeOfLastGridPointInDegrees"],
            keys["latitudeOfFirstGridPointInDegrees"],
        )
    keys["scanningMode"] = mode
    path = write_grib(tmp_path / "a.grib", one)
    surface = gridref.scan(path).groups["surface"]
    (about,) = fields_of(path)
    if not mode & 16:  # eccodes leaves these rows as they are; cfgrib turns them
        assert_same_scan(surface, about)
    stored = about["values"].astype("f4")
    found = surface.arrays["sp"][0, 0]
    for row, column in np.ndindex(3, 4):  # as flag table 3.4 says it
        if mode & 32:
            at = column * 3 + (2 - row if mode & 16 and column % 2 else row)
        else:
            at = row * 4 + (3 - column if mode & 16 and row % 2 else column)
        assert found[row, column] == stored[at]
    assert (np.diff(surface.arrays["latitude"][...]) > 0).all() == bool(mode & 64)
    assert (np.diff(surface.arrays["longitude"][...]) < 0).all() == bool(mode & 128)


def assert_same_scan(surface: VirtualGroup, about: dict[str, Any]) -> None:
    found = {
        (round(lat, 3), round(lon, 3)): value
        for lat, row in zip(
            surface.arrays["latitude"][...], surface.arrays["sp"][0, 0], strict=True
        )
        for lon, value in zip(surface.arrays["longitude"][...] % 360, row, strict=True)
    }
    columns = (about[name] for name in ("latitudes", "longitudes", "values"))
    assert found == {
        (round(lat, 3), round(lon, 3)): np.float32(value)
        for lat, lon, value in zip(*columns, strict=True)
    }


@pytest.mark.parametrize(
    "sample",
    [
        "regular_gg_sfc_grib2", "regular_gg_pl_grib1", "reduced_gg_sfc_grib2",
        "reduced_gg_pl_32_grib1", "reduced_rotated_gg_pl_32_grib2", "reduced_rotated_gg_ml_grib1",
        "rotated_ll_sfc_grib2", "rotated_ll_sfc_grib1", "polar_stereographic_sfc_grib2",
        "polar_stereographic_sfc_grib1", "reduced_ll_sfc_grib2", "regular_ll_sfc_grib1",
    ],
)  # fmt: skip
def test_grids(tmp_path: Path, sample: str) -> None:
    spaced = {"DxInMetres": 60_000, "DyInMetres": 50_000, "scanningMode": 64}
    spaced = spaced if "polar" in sample else {}
    path = write_grib(tmp_path / "a.grib", message(sample=sample, **spaced))
    assert assert_as_in_eccodes(path, gridref.scan(path)) == 1


@pytest.mark.parametrize("edition", [1, 2])
@pytest.mark.parametrize(("first", "last"), [(0, 0), (180, 180), (-180, 180), (0, 360)])
def test_rows_that_end_where_they_begin(
    tmp_path: Path, edition: int, first: int, last: int
) -> None:
    """eccodes writes -180 as 180 in edition 2."""
    one = field(3, 37, shortName="sp")
    one["sample"] = f"regular_ll_sfc_grib{edition}"
    one["keys"]["longitudeOfFirstGridPointInDegrees"] = float(first)
    one["keys"]["longitudeOfLastGridPointInDegrees"] = float(last)
    path = write_grib(tmp_path / "a.grib", one)
    group = gridref.scan(path)
    assert assert_as_in_eccodes(path, group) == 1
    assert np.allclose(np.diff(group["surface"].arrays["longitude"][...]), 10)


def octant(edition: int, first: int, last: int) -> dict[str, Any]:
    """A message as in the octants of the World Area Forecast System."""
    keys = {
        "Nj": 4,
        "pl": [5, 4, 3, 2],
        "jScansPositively": 1,
        "jDirectionIncrementInDegrees": 10.0,
    }
    corners = {"latitudeOfFirstGridPointInDegrees": 0.0, "latitudeOfLastGridPointInDegrees": 30.0}
    corners |= {"longitudeOfFirstGridPointInDegrees": float(first)}
    corners |= {"longitudeOfLastGridPointInDegrees": float(last)}
    count = {"numberOfDataPoints": 14} if edition == 2 else {}
    return message(np.arange(14.0), f"reduced_ll_sfc_grib{edition}", **keys, **corners, **count)


@pytest.mark.parametrize("edition", [1, 2])
@pytest.mark.parametrize(("first", "last"), [(0, 90), (330, 60), (10, 40)])
def test_rows_of_fewer_points_that_are_no_circle(
    tmp_path: Path, edition: int, first: int, last: int
) -> None:
    one = octant(edition, first, last)
    path = write_grib(tmp_path / "a.grib", one)
    group = gridref.scan(path)
    if last > first:  # eccodes goes west from the others
        assert assert_as_in_eccodes(path, group) == 1
    (place,) = variables(group)
    longitude = group[place.rpartition("/")[0]].arrays["longitude"][...]
    assert longitude[[0, 4, 5, 8]] == pytest.approx([first, last % 360] * 2)


@pytest.mark.parametrize(
    ("sample", "mode"), [("regular_ll_sfc_grib2", 0x48), ("reduced_gg_pl_32_grib2", 0x10)]
)
def test_scanning_modes_that_are_not_read(tmp_path: Path, sample: str, mode: int) -> None:
    path = write_grib(tmp_path / "a.grib2", message(sample=sample, scanningMode=mode))
    with pytest.raises(UnsupportedFeatureError, match="scanning mode"):
        gridref.scan(path)


@pytest.mark.parametrize("edition", [1, 2])
def test_rotated_gaussian_grids(tmp_path: Path, edition: int) -> None:
    """Their rows are those of the reduced grid, whose places eccodes turns back; not these."""
    path = write_grib(tmp_path / "a.grib", message(sample=f"rotated_gg_ml_grib{edition}"))
    found = gridref.scan(path).groups["hybrid"].arrays
    (about,) = fields_of(path)
    y, x = (found[name][...] for name in ("y", "x"))
    np.testing.assert_allclose(np.repeat(y, len(x)), about["latitudes"], atol=1e-3)
    # The southern pole of the grid is at 0 N, 0 E.
    assert found["latitude"][0, 0] == pytest.approx(90 - y[0])
    assert found["longitude"][0, 0] == pytest.approx(180)


NAMES: dict[str, list[dict[str, Any]]] = {
    "a range of time names it": [
        {"centre": "edzw", "table2Version": 2, "indicatorOfParameter": 62, "timeRangeIndicator": at}
        for at in (3, 4)
    ],
    "a level names it": [
        {"centre": "rjtd", "table2Version": 200, "indicatorOfParameter": 34}
        | {"indicatorOfTypeOfLevel": 105, "topLevel": level}
        for level in (10, 20)
    ],
    "there is no short name": [{"paramId": number} for number in (80, 81)],
    "an index over two ranges of time": [
        {"productDefinitionTemplateNumber": 8, "discipline": 0, "parameterCategory": 1}
        | {"parameterNumber": 53, "typeOfFirstFixedSurface": 1, "numberOfTimeRanges": 2}
        | {"typeOfStatisticalProcessing": [102, 1]}
    ],
    "statistics over several ranges of time": [
        {"productDefinitionTemplateNumber": 8, "shortName": "2t", "numberOfTimeRanges": 2}
        | {"typeOfStatisticalProcessing": processings}
        for processings in ([2, 3], [3, 2], [102, 2])
    ],
    "a wavelength names it": [
        {"productDefinitionTemplateNumber": 48, "paramId": number} for number in (210250, 228105)
    ],
    "a satellite names it": [
        {"centre": "edzw", "productDefinitionTemplateNumber": 32}
        | {"numberOfContributingSpectralBands": 1, "paramId": number}
        for number in (500324, 500325)
    ],
}


@pytest.mark.parametrize("case", NAMES)
def test_names_by_all_that_a_field_is(tmp_path: Path, case: str) -> None:
    in_edition_1 = "table2Version" in NAMES[case][0]
    sample = f"regular_ll_sfc_grib{1 if in_edition_1 else 2}"
    path = write_grib(tmp_path / "a.grib", *(message(None, sample, **k) for k in NAMES[case]))
    found = [array.attrs for array in variables(gridref.scan(path)).values()]
    keys = ("shortName", "name", "units", "paramId", "cfVarName", "stepType")
    told = [{key: attrs[f"GRIB_{key}"] for key in keys} for attrs in found]
    expected = [{key: about[key] for key in keys} for about in fields_of(path)]
    assert sorted(told, key=str) == sorted(expected, key=str)
    assert UNNAMED not in {each["shortName"] for each in told}


@pytest.mark.parametrize(
    ("indicator", "unit", "place", "step"),
    [
        (3, 3, "surface/avg_672h/t2m", 59 * 24),  # from one month to two after January 1
        (6, 1, "surface/avg_6h/t2m", -6),
        (7, 1, "surface/avg_18h/t2m", 6),
    ],
)
def test_windows_of_edition_1(
    tmp_path: Path, indicator: int, unit: int, place: str, step: int
) -> None:
    first, second = (1, 2) if unit == 3 else (12, 6)
    keys = {"indicatorOfParameter": 167, "dataDate": 20230101, "dataTime": 0}
    keys |= {"unitOfTimeRange": unit, "P1": first, "P2": second, "timeRangeIndicator": indicator}
    path = write_grib(tmp_path / "a.grib", message(None, "regular_ll_sfc_grib1", **keys))
    group = gridref.scan(path)
    assert [*variables(group)] == [place]
    assert group[place.rpartition("/")[0]].arrays["step"][...].tolist() == [step * 3600]


_MEMBER = {"productDefinitionTemplateNumber": 1, "numberOfForecastsInEnsemble": 3}
_MEMBER |= {"perturbationNumber": 1, "shortName": "sp"}
_LOCAL = {"setLocalDefinition": 1, "shortName": "sp"}


@pytest.mark.parametrize(
    ("sample", "keys"),
    [
        ("regular_ll_sfc_grib2", [_MEMBER | {"typeOfEnsembleForecast": kind} for kind in (2, 3)]),
        ("regular_ll_sfc_grib2", [_LOCAL | {"expver": version} for version in ("0001", "0002")]),
        ("regular_ll_sfc_grib1", [{"shortName": "sp", "type": kind} for kind in ("an", "fc")]),
    ],
)
def test_fields_that_are_not_told_apart_are_refused(
    tmp_path: Path, sample: str, keys: list[dict[str, Any]]
) -> None:
    """Members moved up and down by one number, versions, and an analysis beside its forecast."""
    path = write_grib(tmp_path / "a.grib", *(message(None, sample, **each) for each in keys))
    with pytest.raises(UnsupportedFeatureError, match="is not told apart from it"):
        gridref.scan(path)


def test_members_beside_a_field_of_no_ensemble_are_refused(tmp_path: Path) -> None:
    fields = [field(shortName="sp"), field(**_MEMBER), field(shortName="2t")]
    path = write_grib(tmp_path / "a.grib", *fields)
    with pytest.raises(UnsupportedFeatureError, match="members of an ensemble, and others"):
        gridref.scan(path)
    group = gridref.scan(path, on_unsupported="skip")
    assert [*variables(group)] == ["heightAboveGround/t2m"]


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        ({"centre": "kwbc", "typeOfFirstFixedSurface": 200}, "atmosphereSingleLayer"),
        ({"centre": "kwbc", "typeOfFirstFixedSurface": 220}, "planetaryBoundaryLayer"),
        ({"centre": "edzw", "typeOfFirstFixedSurface": 200}, "level_200"),
        ({"typeOfFirstFixedSurface": 151, "typeOfSecondFixedSurface": 151}, "soilLayer"),
        ({"typeOfFirstFixedSurface": 152, "typeOfSecondFixedSurface": 152}, "seaIceLayer"),
        ({"typeOfFirstFixedSurface": 109}, "potentialVorticity"),
    ],
)
def test_kinds_of_levels_of_centres_and_numbers_of_layers(
    tmp_path: Path, keys: dict[str, Any], place: str
) -> None:
    first, second = "FirstFixedSurface", "SecondFixedSurface"
    layers = [
        {f"scaleFactorOf{first}": 0, f"scaledValueOf{first}": number}
        | {f"scaleFactorOf{second}": 0, f"scaledValueOf{second}": number + 1}
        for number in (1, 2)
    ]
    if len(keys) == 1 or "centre" in keys:
        layers = [{f"scaleFactorOf{first}": 9, f"scaledValueOf{first}": 2000}]
    fields = [message(None, "regular_ll_sfc_grib2", **keys, **layer) for layer in layers]
    path = write_grib(tmp_path / "a.grib2", *fields)
    group = gridref.scan(path)
    assert [*group.groups] == [place]
    if place != "level_200":
        assert assert_as_in_eccodes(path, group) == len(fields)
    if len(layers) == 2:
        assert group[place].arrays[place][...].tolist() == [2, 3]


@pytest.mark.parametrize(
    ("kind", "level", "units"),
    [
        (112, "depthBelowLandLayer", "cm"),
        (111, "depthBelowLand", "cm"),
        (101, "isobaricLayer", "kPa"),
    ],
)
def test_levels_of_edition_1_have_their_own_units(
    tmp_path: Path, kind: int, level: str, units: str
) -> None:
    keys = {"indicatorOfParameter": 139, "indicatorOfTypeOfLevel": kind}
    one, other = (
        message(None, "regular_ll_sfc_grib1", **keys, topLevel=top, bottomLevel=top + 9)
        for top in (7, 28)
    )
    path = write_grib(tmp_path / "a.grib", one, other)
    group = gridref.scan(path)
    assert group[level].arrays[level].attrs["units"] == units
    soil = {"typeOfFirstFixedSurface": 106, "scaleFactorOfFirstFixedSurface": 2}
    soil |= {"scaledValueOfFirstFixedSurface": 7}
    if kind == 111:
        after = write_grib(tmp_path / "b.grib", message(None, "regular_ll_sfc_grib2", **soil))
        path.write_bytes(path.read_bytes() + after.read_bytes())
        with pytest.raises(UnsupportedFeatureError, match="states depthBelowLand in other units"):
            gridref.scan(path)


def test_negative_potential_vorticity(tmp_path: Path) -> None:
    """As on the southern hemisphere; wgrib reads it so, eccodes as large numbers."""
    first = "FirstFixedSurface"
    keys = {f"typeOf{first}": 109, f"scaleFactorOf{first}": 9, f"scaledValueOf{first}": 500}
    old = {"indicatorOfTypeOfLevel": 117, "level": 500}
    for edition, own, at in ((1, old, 18), (2, keys, None)):
        path = tmp_path / f"{edition}.grib"
        write_grib(path, message(None, f"regular_ll_sfc_grib{edition}", **own))
        raw = bytearray(path.read_bytes())
        raw[at or raw.index(bytes([109, 9, 0, 0, 1, 244])) + 2] |= 0x80
        path.write_bytes(
            raw
            + write_grib(path, message(None, f"regular_ll_sfc_grib{edition}", **own)).read_bytes()
        )
        group = gridref.scan(path)
        assert group["potentialVorticity"].arrays["potentialVorticity"][...].tolist() == [-500, 500]
        assert gridref.verify(group, all=True).ok


def test_windows_whose_end_never_was_computed(tmp_path: Path) -> None:
    keys = {"productDefinitionTemplateNumber": 8, "typeOfStatisticalProcessing": 1}
    length = {"forecastTime": 3, "indicatorOfUnitForTimeRange": 1, "lengthOfTimeRange": 6}
    path = write_grib(tmp_path / "a.grib", message(None, "regular_ll_sfc_grib2", **keys, **length))
    group = gridref.scan(path)
    ((place, _),) = variables(group).items()
    assert place.startswith("surface/accum_6h/")
    assert assert_as_in_eccodes(path, group) == 1


@pytest.mark.parametrize(("definition", "member"), [(1, 3), (5, 3), (15, 300), (23, 300), (30, 3)])
def test_members_in_local_definitions_of_ecmwf(
    tmp_path: Path, definition: int, member: int
) -> None:
    keys = {"setLocalDefinition": 1, "localDefinitionNumber": definition, "totalNumber": 10}
    path = write_grib(
        tmp_path / "a.grib",
        *(message(None, "regular_ll_sfc_grib1", **keys, number=n) for n in (1, member)),
    )
    group = gridref.scan(path)
    (array,) = variables(group).values()
    assert array.dims[0] == "number"
    assert assert_as_in_eccodes(path, group) == 2


def test_bytes_between_messages_are_skipped(tmp_path: Path) -> None:
    path = write_grib(tmp_path / "a.grib2", field(shortName="sp"))
    one = path.read_bytes()
    heading = b"\r\r\nXXXX99 KWBC 010000\r\r\n"
    path.write_bytes(heading + one + bytes(5000) + one + bytes(3))
    group = gridref.scan(path)
    skipped = [finding for finding in group.report if finding.fate == "skipped"]
    assert len(skipped) == 1  # the same field twice
    assert "first one is taken" in skipped[0].reason
    assert group["surface/sp"].manifests[0].offset.tolist() == [len(heading)]


# ---- views --------------------------------------------------------------------------------
def test_views(tmp_path: Path) -> None:
    fields = [field(seed=step, shortName="sp", step=step) for step in (0, 1)]
    path = write_grib(tmp_path / "a.grib2", *fields)
    group = gridref.scan(path)
    expected = group["surface/sp"][...]
    for view in ("native", "portable"):
        root = zarr.open_group(gridref.open_store(group, view), mode="r")  # type: ignore[arg-type]
        assert np.array_equal(root["surface/sp"][...], expected)


def test_messages_that_are_cut_off_do_not_decode(tmp_path: Path) -> None:
    path = write_grib(tmp_path / "a.grib2", field(shortName="sp"))
    raw = path.read_bytes()
    array = gridref.scan(path)["surface/sp"]
    (encoding,) = array.encodings
    whole = decode_chunk(raw, encoding)
    for n_bytes in range(len(raw)):
        if n_bytes >= len(raw) - 4:  # the field is whole
            assert np.array_equal(decode_chunk(raw[:n_bytes], encoding), whole)
            continue
        with pytest.raises(DecodeError):
            decode_chunk(raw[:n_bytes], encoding)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("marker", [b"\xff\x51\x00", b"\xff\x64\x00", b"\xff\x52\x00"])
def test_damaged_jpeg_2000_ends(tmp_path: Path, marker: bytes) -> None:
    """The decoder of gribberish waits for ever for the rest of a segment."""
    one = field(8, 9, shortName="sp", packingType="grid_jpeg", bitsPerValue=12)
    path = write_grib(tmp_path / "a.grib2", one)
    whole = path.read_bytes()
    for damaged in (marker[:2] + b"\x01", b"\xff\x5b\x00"):
        path.write_bytes(whole.replace(marker, damaged))
        with pytest.raises(DecodeError, match="JPEG 2000"):
            gridref.scan(path)["surface/sp"].read()


# ---- what is damaged ----------------------------------------------------------------------
def test_files_that_are_cut_off(tmp_path: Path) -> None:
    path = write_grib(tmp_path / "a.grib2", field(shortName="sp"), field(shortName="2t"))
    whole = path.read_bytes()
    n_first = int.from_bytes(whole[8:16], "big")
    for n_bytes in range(len(whole)):
        path.write_bytes(whole[:n_bytes])
        if n_bytes in (n_first, n_first + 1, n_first + 2, n_first + 3):
            assert set(variables(gridref.scan(path))) == {"surface/sp"}
            continue
        with pytest.raises(GridrefError):
            gridref.scan(path)


def test_reference_values_beyond_32_bits(tmp_path: Path) -> None:
    path = write_grib(tmp_path / "a.grib", message(sample="regular_ll_sfc_grib1"))
    raw = bytearray(path.read_bytes())
    at = 8
    for _ in range(2):  # the product and the grid
        at += int.from_bytes(raw[at : at + 3], "big")
    raw[at + 6 : at + 10] = b"\x7f\xff\xff\xff"
    path.write_bytes(raw)
    (array,) = variables(gridref.scan(path)).values()
    with pytest.raises(DecodeError, match="is no 32-bit float"):
        array[...]


def test_messages_without_an_end(tmp_path: Path) -> None:
    path = write_grib(tmp_path / "a.grib2", field(shortName="sp"), field(shortName="2t"))
    raw = bytearray(path.read_bytes())
    raw[int.from_bytes(raw[8:16], "big") - 1] = 0
    path.write_bytes(raw)
    with pytest.raises(SourceFormatError, match="7777 is not at its end"):
        gridref.scan(path)


LEVELS = (1000, 850, 500, 250)
UPPER = ("t", "u", "v", "q")


@pytest.fixture(autouse=True)
def nothing_learned() -> None:
    FORMS.clear()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two files of a series."""
    folder = tmp_path_factory.mktemp("series")
    return [forecast(folder / f"f{step:03}.grib2", step) for step in (3, 6)]


def forecast(path: Path, step: int, **begin: Any) -> Path:
    """A file of 21 messages: levels, 2 m, and windows of precipitation. All have one size."""
    begin = {"dataDate": 20240301, "dataTime": 600, **begin}
    grid = {"n_rows": 64, "n_columns": 64, **begin}
    fields = [
        {"shortName": name, "typeOfLevel": "isobaricInhPa", "level": level, "step": step}
        for name in UPPER
        for level in LEVELS
    ]
    fields += [{"shortName": name, "step": step} for name in ("2t", "sp", "10u")]
    fields += [{"shortName": "tp", "stepRange": f"{at}-{step}"} for at in (0, step - 1)]
    return write_grib(
        path,
        *(field(seed=97 * step + n, **grid, **keys) for n, keys in enumerate(fields)),
    )


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serving(Site()) as site:
        yield site


def served(site: Site, *files: Path, lists: Callable[[Path], str] | None = idx) -> None:
    """Let a server have some files, and what lists them."""
    held = {f"/{file.name}": file.read_bytes() for file in files}
    if lists is not None:
        for file in files:
            name = file.name + ".idx" if lists is idx else file.stem + ".index"
            held[f"/{name}"] = lists(file).encode()
    site.files, site.requests = held, []


def fields_in(group: VirtualGroup) -> dict[str, Any]:
    """Arrays of fields by path."""
    return {path: array for path, array in group.all_arrays().items() if "GRIB_name" in array.attrs}


@cache
def in_file(path: Path) -> dict[tuple[Any, ...], Any]:
    """The values of each field of a file by its path and labels; others compare with eccodes."""
    return {labels: read() for labels, read in by_label(gridref.scan(path)).items()}


def by_label(group: VirtualGroup) -> dict[tuple[Any, ...], Any]:
    """Each field of a group by its path and labels: a function that reads it."""
    found = {}
    for path, array in fields_in(group).items():
        above = group[path.rpartition("/")[0]].arrays
        counts = array.shape[:-2]
        for at in np.ndindex(counts):
            labels = [above[dim][...][n] for dim, n in zip(array.dims, at, strict=False)]
            found[path, *map(float, labels)] = lambda array=array, at=at: array[at]
    return found


def assert_nothing_wrong(group: VirtualGroup, path: Path) -> tuple[int, int]:
    """Every field that can be read is the file's with these labels; returns equal and refused."""
    expected = in_file(path)
    n_equal = n_refused = 0
    for labels, read in by_label(group).items():
        try:
            values = read()
        except GridrefError:
            n_refused += 1
            continue
        if not np.isnan(values).all():
            assert labels in expected, labels
            assert np.array_equal(values, expected[labels]), labels
            n_equal += 1
    return n_equal, n_refused


# ---- index files that are right -----------------------------------------------------------
@pytest.mark.parametrize("lists", [idx, index])
def test_a_further_file_takes_three_requests(
    site: Site, files: list[Path], lists: Callable[[Path], str]
) -> None:
    served(site, *files, lists=lists)
    first, second = (gridref.scan(f"{site.url}/{file.name}") for file in files)
    asked = site.requests[first.report.n_requests :]
    # beginning, index file, last message; windows of ECMWF, which do not say where they begin
    assert second.report.n_requests == len(asked) == 3
    for group, path in ((first, files[0]), (second, files[1])):
        assert fields_in(group).keys() == fields_in(gridref.scan(path)).keys()
        n_equal, n_refused = assert_nothing_wrong(group, path)
        assert (n_equal, n_refused) == (len(in_file(path)), 0)
    array = fields_in(second)["isobaricInhPa/t"]
    assert array.has_filter_masks  # claims, which were compared with the messages above


def test_members_of_ensembles(site: Site, tmp_path: Path) -> None:
    def members(step: int) -> Path:
        keys = {
            "productDefinitionTemplateNumber": 1,
            "shortName": "2t",
            "numberOfForecastsInEnsemble": 50,
        }
        return write_grib(
            tmp_path / f"m{step}.grib2",
            *(
                field(64, 64, step + n, **keys, perturbationNumber=n, step=step)
                for n in range(1, 21)
            ),
        )

    files = [members(step) for step in (3, 6)]
    served(site, *files, lists=index)
    gridref.scan(f"{site.url}/m3.grib2")
    group = gridref.scan(f"{site.url}/m6.grib2")
    assert group.report.n_requests == 3
    assert assert_nothing_wrong(group, files[1]) == (20, 0)


def test_a_day_on_a_server(site: Site, tmp_path: Path) -> None:
    files = [forecast(tmp_path / f"f{step:03}.grib2", step) for step in range(2, 6)]
    served(site, *files)
    gridref.build([f"{site.url}/{file.name}" for file in files], tmp_path / "cube.gridref")
    n_requests = len(site.requests)
    cube = gridref.open_catalog(tmp_path / "cube.gridref")
    steps = cube["isobaricInhPa/step"][...].tolist()
    for file in files:
        for labels, expected in in_file(file).items():
            at = cube[labels[0]][0, steps.index(labels[2])]
            if at.ndim == 3:
                levels = cube["isobaricInhPa/isobaricInhPa"][...].tolist()
                at = at[levels.index(labels[3])]
            assert np.array_equal(at, expected)
    assert n_requests <= 3 * len(files) + 4  # the first file is read by its headers


def test_fields_that_share_a_message_are_read_by_their_headers(site: Site, tmp_path: Path) -> None:
    def winds(step: int) -> Path:
        pair = [field(64, 64, step, shortName=name, step=step) for name in ("10u", "10v")]
        pair[0]["multi"] = 2
        others = [field(64, 64, step + n, shortName="t", level=100 + n) for n in range(20)]
        return write_grib(tmp_path / f"w{step}.grib2", *others, *pair, *others[:1])

    files = [winds(step) for step in (3, 6)]
    served(site, *files)
    for file in files:
        group = gridref.scan(f"{site.url}/{file.name}")
        assert assert_nothing_wrong(group, file) == (len(in_file(file)), 0)


def test_folders_without_index_files_are_asked_once(site: Site, files: list[Path]) -> None:
    served(site, *files, lists=None)
    for file in [*files, *files]:
        gridref.scan(f"{site.url}/{file.name}")
    extra = [path for _, path, _ in site.requests if not path.endswith(".grib2")]
    assert extra == ["/f003.grib2.idx", "/f003.index"]


def test_offsets_only(site: Site, files: list[Path]) -> None:
    served(site, *files)
    gridref.scan(f"{site.url}/f003.grib2")
    claimed = gridref.scan(f"{site.url}/f006.grib2")
    read = gridref.scan(f"{site.url}/f006.grib2", index_files="offsets")
    name = "isobaricInhPa/t"
    with pytest.raises(NotRepresentableError, match="index_files='offsets'"):
        to_kerchunk(claimed, inline_limit=0)
    assert not read[name].has_filter_masks
    assert assert_nothing_wrong(read, files[1])[1] == 0


@pytest.mark.long(but=4)
@pytest.mark.parametrize("path", shared_files("formats/grib/*.idx"))
def test_real_index_files_are_understood(path: Path) -> None:
    content = path.read_bytes()
    offsets = [int(line.split(b":")[1]) for line in content.splitlines()]
    entries = read_index(content, offsets[-1] + 1)
    assert [entry.offset for entry in entries] == sorted(set(offsets))
    assert all(entry.moment for entry in entries if offsets.count(entry.offset) == 1)


# ---- index files that are wrong -----------------------------------------------------------
def swap_words(text: str) -> str:
    """Two lines tell the other one's field."""
    lines = text.splitlines()
    (one, other) = (re.fullmatch(r"(\d+:\d+:)(.*)", lines[n]) for n in (5, 9))
    assert one is not None
    assert other is not None
    lines[5], lines[9] = one[1] + other[2], other[1] + one[2]
    return "\n".join(lines)


WRONG: dict[str, Callable[[str], str]] = {
    "swapped": swap_words,
    "another step": lambda text: text.replace("6 hour", "7 hour"),
    "another day": lambda text: text.replace("d=20240301", "d=20240302"),
    "one of another day": lambda text: text.replace("d=2024030106:V:850", "d=2024030206:V:850"),
    "cut off": lambda text: "".join(text.splitlines(True)[:12]),
    "cut off in a line": lambda text: text[:300],
    "without a line": lambda text: "".join(text.splitlines(True)[:7] + text.splitlines(True)[8:]),
    "without the first": lambda text: "".join(text.splitlines(True)[1:]),
    "shifted": lambda text: re.sub(r":(\d+):d", lambda m: f":{int(m[1]) + 1}:d", text),
    "reversed": lambda text: "".join(reversed(text.splitlines(True))),
    "a page": lambda text: "<html><body>Not here</body></html>",
    "other words": lambda text: text.replace(":T:", ":ZZ:"),
    "huge": lambda text: text.replace(":0:d=", f":{10**17}:d="),
    "no words": lambda text: re.sub(r"d=.*", "", text),
}


@pytest.mark.long(but=5)
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_index_files(site: Site, files: list[Path], wrong: str) -> None:
    served(site, *files)
    gridref.scan(f"{site.url}/f003.grib2")
    site.files["/f006.grib2.idx"] = WRONG[wrong](idx(files[1])).encode()
    group = gridref.scan(f"{site.url}/f006.grib2")
    n_equal, n_refused = assert_nothing_wrong(group, files[1])
    n_fields = len(in_file(files[1]))
    if any(finding.path == "/index file" for finding in group.report):
        assert (n_equal, n_refused) == (n_fields, 0)
    else:
        assert n_refused or n_equal == n_fields


def test_a_message_that_is_not_as_claimed_names_the_index_file(
    site: Site, files: list[Path], tmp_path: Path
) -> None:
    served(site, *files)
    gridref.scan(f"{site.url}/f003.grib2")
    site.files["/f006.grib2.idx"] = swap_words(idx(files[1])).encode()
    address = tmp_path / "cube.gridref"
    gridref.build([f"{site.url}/f006.grib2"], address)
    cube = gridref.open_catalog(address)
    with pytest.raises(DecodeError, match="not the one that the index file beside it lists"):
        cube["isobaricInhPa/u"][...]
    assert np.isfinite(cube["isobaricInhPa/t"][...]).all()


@pytest.mark.parametrize(
    "arranged", [lambda v: v.expand_dims("run"), lambda v: v.transpose("longitude", ...)]
)
def test_claims_hold_however_axes_are_arranged(
    site: Site, files: list[Path], arranged: Callable[[Any], Any]
) -> None:
    served(site, *files)
    gridref.scan(f"{site.url}/f003.grib2")
    site.files["/f006.grib2.idx"] = swap_words(idx(files[1])).encode()
    ds = gridref.open_virtual_dataset(f"{site.url}/f006.grib2", group="isobaricInhPa")
    with pytest.raises(DecodeError, match="not the one that the index file beside it lists"):
        np.asarray(arranged(ds["u"]).data)


def test_index_files_of_other_files(site: Site, files: list[Path], tmp_path: Path) -> None:
    """Of another step, day and run: the messages of all are of the same sizes."""
    good, other = files
    day = forecast(tmp_path / "day.grib2", 6, dataDate=20240302)
    run = forecast(tmp_path / "run.grib2", 6, dataTime=1200)
    served(site, good, other, day, run)
    gridref.scan(f"{site.url}/{good.name}")
    for of in (good, day, run):
        site.files["/f006.grib2.idx"] = idx(of).encode()
        group = gridref.scan(f"{site.url}/f006.grib2")
        assert "a different field" in str(group.report)
        assert assert_nothing_wrong(group, other)[1] == 0


def mutated(text: str, rng: random.Random) -> str:
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(text) + 1)
        match rng.randrange(4):
            case 0:
                text = text[:at] + text[at + rng.randrange(1, 40) :]
            case 1:
                text = text[:at] + rng.choice("0123456789:-\n acf") + text[at + 1 :]
            case 2:
                piece = rng.randrange(len(text) + 1)
                text = text[:at] + text[piece : piece + rng.randrange(60)] + text[at:]
            case _:
                lines = text.splitlines(True)
                rng.shuffle(lines) if rng.random() < 0.1 else lines.insert(0, lines.pop())
                text = "".join(lines)
    return text


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 20))]
)
@pytest.mark.parametrize("lists", [idx, index])
def test_mutated_index_files(files: list[Path], lists: Callable[[Path], str], seed: int) -> None:
    rng = random.Random(seed)

    def listed(path: Path, text: str) -> VirtualGroup:
        with working(reads=Reads()), open_for_scan(path) as file:
            head = file.read_many([0], [1 << 14])[0]
            fields = listed_fields(file, head, read_index(text.encode(), file.size))
            group = group_of_fields(fields, file.source, ScanOptions(on_unsupported="skip"))
            return readable(group, Sources(None))

    listed(files[0], lists(files[0]))
    text = lists(files[1])
    for _ in range(25):
        try:
            group = listed(files[1], mutated(text, rng))
        except UnfitIndexError:
            continue
        assert_nothing_wrong(group, files[1])


UPPER_FIELDS = ("t", "u", "v", "q", "gh", "w", "r")
SURFACE = ("2t", "2d", "10u", "10v", "sp", "tcc")


def many_fields(path: Path, hour: int) -> Path:
    """A file like HRRR's of one step: levels, 2 m and 10 m, and two windows of precipitation."""
    begin = {"dataDate": 20240301, "dataTime": 0}
    fields = [
        {"shortName": name, "typeOfLevel": "isobaricInhPa", "level": 1000 - 25 * level}
        for name in UPPER_FIELDS
        for level in range(2)
    ]
    fields += [{"shortName": name} for name in SURFACE]
    windows = [{"shortName": "tp", "stepRange": f"{at}-{hour}"} for at in (0, max(hour - 1, 0))]
    return write_grib(
        path,
        *(
            field(seed=1000 * hour + number, **begin, **keys, step=hour)
            for number, keys in enumerate(fields)
        ),
        *(field(seed=1000 * hour + 999, **begin, **keys) for keys in windows if hour),
    )


def assert_same_day(cube: Catalog, files: list[Path]) -> None:
    """Every field of every file is where its labels say, and there are no others."""
    values = {path: array[...] for path, array in cube.all_arrays().items()}
    steps = values["isobaricInhPa/step"].tolist()
    levels = values["isobaricInhPa/isobaricInhPa"].tolist()
    seen = set()
    for path in files:
        for about in fields_of(path):
            for place in places_of(about):
                found = values[place][0, steps.index(about["endStep"] * 3600)]
                if found.ndim == 3:
                    found = found[levels.index(about["level"])]
                assert np.array_equal(found.reshape(-1), about["values"].astype("f4")), place
                seen.add((place, about["endStep"], about["level"]))
    cells = [each for name, each in values.items() if "GRIB_name" in cube[name].attrs]
    assert sum(int(np.isfinite(each).sum()) for each in cells) == len(seen) * 12


def places_of(about: dict[str, Any]) -> list[str]:
    name, kind = about["cfVarName"], about["typeOfLevel"]
    if about["stepType"] == "instant":
        return [f"{kind}/{name}"]
    length = about["endStep"] - about["startStep"]
    both = [f"{kind}/accum/{name}"] if about["startStep"] == 0 else []
    return both if length > 1 else [*both, f"{kind}/accum_1h/{name}"]


def built(files: list[Path], address: Path) -> Catalog:
    gridref.build(files, address)
    return gridref.open_catalog(address)


def some(folder: Path, hours: range) -> list[Path]:
    return [many_fields(folder / f"hrrr.wrfprsf{hour:02}.grib2", hour) for hour in hours]


def test_files_are_appended_as_they_appear(tmp_path: Path) -> None:
    files = some(tmp_path, range(6))
    cube = built(files[:2], tmp_path / "cube.gridref")
    for file in files[2:]:
        cube = cube.append(file)
    assert_same_day(cube, files)
    whole = built(files, tmp_path / "whole.gridref")
    assert cube.info.digest == whole.info.digest
    checked = cube.verify()
    assert checked.n_arrays == 7 + 6 + 2
    assert not checked.differences


def test_times_are_those_of_xarray(tmp_path: Path) -> None:
    files = some(tmp_path, range(3))
    gridref.build(files, tmp_path / "cube.gridref")
    with xr.open_datatree(tmp_path / "cube.gridref", engine="gridref") as tree:
        upper = tree["isobaricInhPa"].dataset
        hours = np.arange(3) * np.timedelta64(1, "h")
        assert (upper.step.values == hours).all()
        assert (upper.valid_time.values == np.datetime64("2024-03-01") + hours).all()
        rain = tree["surface/accum"].dataset
        assert rain.tp.isel(step=0).isnull().all()  # the analysis has none
        assert not rain.tp.isel(step=slice(1, None)).isnull().any()


def rain(folder: Path) -> Path:
    """A catalog of two steps: levels above the ground, at the surface, and three windows."""
    files = []
    for hour in (6, 9):
        names = [{"shortName": name, "step": hour} for name in ("2t", "2d", "10u", "sp")]
        names += [
            {"shortName": "tp", "stepRange": f"{at}-{hour}"} for at in (0, hour - 1, hour - 3)
        ]
        fields = [field(seed=10 * hour + n, **keys) for n, keys in enumerate(names)]
        files.append(write_grib(folder / f"f{hour}.grib2", *fields))
    gridref.build(files, folder / "f.gridref")
    return folder / "f.gridref"


def test_groups_choose_what_filter_by_keys_does(tmp_path: Path) -> None:
    """The rows of docs/formats.md, against what eccodes says of each field."""
    path = rain(tmp_path)

    def chosen(**keys: Any) -> set[str]:
        return {
            about["cfVarName"]
            for about in fields_of(tmp_path / "f6.grib2")
            if all(about[key] == value for key, value in keys.items())
        }

    def opened(group: str) -> xr.Dataset:
        return xr.open_dataset(path, engine="gridref", group=group)

    def named(dataset: xr.Dataset) -> set[str]:
        return set(dataset.data_vars) - {"spatial_ref"}

    surface, above = opened("surface"), opened("heightAboveGround")
    assert named(surface) == chosen(typeOfLevel="surface", stepType="instant") == {"sp"}
    accumulated = chosen(typeOfLevel="surface", stepType="accum")
    assert named(opened("surface/accum")) == accumulated == {"tp"}
    two_metres = chosen(typeOfLevel="heightAboveGround", level=2)
    assert named(above.filter_by_attrs(GRIB_level=2)) == two_metres == {"t2m", "d2m"}
    assert named(above.filter_by_attrs(GRIB_shortName="2t")) == chosen(shortName="2t")
    assert named(above.filter_by_attrs(GRIB_paramId=167)) == chosen(paramId=167)
    files = sorted(tmp_path.glob("*.grib2"))
    lazy = gridref.open_mfdataset(files, group="heightAboveGround", work=False)
    fields = ["t2m", "d2m", "u10"]
    xr.testing.assert_equal(lazy[fields].load(), above[fields].load())


def test_times_that_are_valid_together_and_begin_apart(tmp_path: Path) -> None:
    """As reanalyses have an analysis beside a forecast that began earlier."""
    rain = {"productDefinitionTemplateNumber": 8, "typeOfStatisticalProcessing": 1}
    rain |= {"shortName": "tp", "stepRange": "5-6"}
    surface = field(shortName="sp", dataDate=20240102, dataTime=600)
    path = write_grib(tmp_path / "a.grib2", surface, field(dataDate=20240102, dataTime=0, **rain))
    assert not gridref.scan(path).arrays
    groups = xr.open_groups(path, engine="gridref")
    hours = {name: groups[name].time.dt.hour.values for name in ("/surface", "/surface/accum_1h")}
    assert hours == {"/surface": [6], "/surface/accum_1h": [0]}


def test_windows_become_a_dimension(tmp_path: Path) -> None:
    catalog = gridref.open_catalog(rain(tmp_path))
    hours = (1, 3)
    both = gridref.concat([catalog[f"surface/accum_{n}h"] for n in hours], "window", labels=hours)
    assert both["tp"].dims == ("window", "time", "step", "latitude", "longitude")
    for at, length in enumerate(hours):
        for step, hour in enumerate((6, 9)):
            (about,) = (
                about
                for about in fields_of(tmp_path / f"f{hour}.grib2")
                if about["shortName"] == "tp"
                and (about["startStep"], about["endStep"]) == (hour - length, hour)
            )
            assert np.array_equal(both["tp"][at, 0, step].reshape(-1), about["values"].astype("f4"))
    tree = xr.open_datatree(tmp_path / "f.gridref", engine="gridref")
    parts = [tree["surface"].dataset, tree["surface/accum"].dataset]
    merged = xr.merge(parts, compat="no_conflicts")
    merged.gridref.save(tmp_path / "part.gridref")
    part = xr.open_dataset(tmp_path / "part.gridref", engine="gridref")
    xr.testing.assert_equal(part.tp.load(), tree["surface/accum"].tp.load())
    assert set(part.data_vars) >= {"sp", "tp"}


def test_files_on_a_server(tmp_path: Path) -> None:
    files = some(tmp_path, range(1, 3))
    with serving(Site({f"/{file.name}": file.read_bytes() for file in files})) as site:
        addresses = [f"{site.url}/{file.name}" for file in files]
        gridref.build(addresses, tmp_path / "cube.gridref")
        assert_same_day(gridref.open_catalog(tmp_path / "cube.gridref"), files)


PRESSURES = (1000, 850, 500)


@pytest.fixture(scope="module")
def cube(tmp_path_factory: pytest.TempPathFactory) -> VirtualGroup:
    """Two members of an ensemble, with three levels and two steps."""
    keys = {"typeOfLevel": "isobaricInhPa", "dataDate": 20240229, "dataTime": 1800}
    member = {"productDefinitionTemplateNumber": 1, "numberOfForecastsInEnsemble": 2}
    fields = [
        field(
            seed=number,
            **keys,
            **member,
            perturbationNumber=number,
            shortName="t",
            level=level,
            step=step,
        )
        for number in (1, 2)
        for step in (0, 6)
        for level in PRESSURES
    ]
    path = write_grib(tmp_path_factory.mktemp("grib") / "a.grib2", *fields)
    return gridref.scan(path).groups["isobaricInhPa"]


LABELS = {"number", "time", "step", "valid_time", "isobaricInhPa", "latitude", "longitude"}


def changed(group: VirtualGroup, **by: float) -> VirtualGroup:
    """The group with other numbers as labels."""
    arrays = dict(group.arrays)
    for name, more in by.items():
        label = arrays[name]
        values = label[...] + np.asarray(more).astype(label.dtype)
        arrays[name] = VirtualArray.from_numpy(values, label.dims, label.attrs, label.fill_value)
    return group.with_changes(arrays=arrays)


def test_right_labels_pass(cube: VirtualGroup) -> None:
    result = gridref.verify(changed(cube, longitude=-360), all=True)  # a whole turn
    assert result.ok
    assert result.n_chunks == 12
    # Those of dimensions once, valid times by time and step: 2 + 1 + 2 + 3 + 2 + 3 + 4.
    assert result.n_labels == 17
    assert {path for path, _ in result.not_compared} == {"spatial_ref"}


def test_wrong_labels_are_found(cube: VirtualGroup) -> None:
    result = gridref.verify(changed(cube, **dict.fromkeys(LABELS, 3)), all=True)
    assert {each.place.variable for each in result.differences} == LABELS
    assert all(each.is_label for each in result.differences)


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    "sample",
    [
        *("reduced_gg_sfc_grib2", "rotated_ll_sfc_grib1", "polar_stereographic_sfc_grib2"),
        *("regular_gg_pl_grib1", "regular_ll_sfc_grib1"),
    ],
)
def test_places_on_every_kind_of_grid(tmp_path: Path, sample: str) -> None:
    spaced = {"DxInMetres": 60_000, "DyInMetres": 50_000, "scanningMode": 64}
    path = write_grib(
        tmp_path / "a.grib", message(sample=sample, **(spaced if "polar" in sample else {}))
    )
    (group,) = gridref.scan(path).groups.values()
    n_places = group.arrays["latitude"].size + group.arrays["longitude"].size
    result = gridref.verify(group, all=True)
    assert result.ok
    assert result.n_labels > n_places
    found = gridref.verify(changed(group, latitude=0.01, longitude=0.01), all=True).differences
    assert {each.place.variable for each in found} == {"latitude", "longitude"}


@pytest.mark.long(but=1)
@pytest.mark.parametrize("mode", range(0, 256, 32))
def test_places_in_every_order_of_points(tmp_path: Path, mode: int) -> None:
    one = field(shortName="sp")
    ends = one["keys"]
    for bit, axis in ((128, "longitude"), (64, "latitude")):
        first, last = (f"{axis}Of{end}GridPointInDegrees" for end in ("First", "Last"))
        if mode & bit:
            ends[first], ends[last] = ends[last], ends[first]
    ends["scanningMode"] = mode
    (group,) = gridref.scan(write_grib(tmp_path / "a.grib2", one)).groups.values()
    result = gridref.verify(group, all=True)
    assert (result.ok, result.n_labels) == (True, 3 + 3 + 4)


@pytest.mark.parametrize(
    "one",
    [
        message(
            sample="polar_stereographic_sfc_grib2",
            DxInMetres=60_000,
            DyInMetres=50_000,
            scanningMode=0,
        ),
        octant(2, 330, 60),
    ],
    ids=["polar stereographic", "across 0"],
)
def test_places_that_eccodes_gets_wrong_are_not_compared(
    tmp_path: Path, one: dict[str, Any]
) -> None:
    """It ignores scanning modes of polar stereographic grids, and goes west in reduced ones."""
    path = write_grib(tmp_path / "a.grib", one)
    (group,) = gridref.scan(path).groups.values()
    result = gridref.verify(group, all=True)
    assert result.ok
    assert {"latitude", "longitude"} <= {path for path, _ in result.not_compared}
