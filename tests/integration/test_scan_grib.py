"""GRIB files: everything that eccodes reads in them, or a refusal."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import xarray as xr
import zarr

import gridref
from gridref.codecs import decode_chunk
from gridref.errors import DecodeError, GridrefError, SourceFormatError, UnsupportedFeatureError
from gridref.model.array import VirtualGroup
from gridref.model.manifest import ChunkManifest, ChunkState
from tests.grib_files import field, fields_of, message, write_grib
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


def test_fields_without_a_value(tmp_path: Path) -> None:
    one = field(shortName="sp")
    one["values"][:] = np.nan
    path = write_grib(tmp_path / "a.grib2", one)
    assert np.isnan(gridref.scan(path)["surface/sp"][...]).all()


@pytest.mark.parametrize(
    "packing",
    [
        "grid_simple",
        "grid_ieee",
        "grid_complex",
        "grid_complex_spatial_differencing",
        "grid_ccsds",
        "grid_jpeg",
    ],
)
def test_packings(tmp_path: Path, packing: str) -> None:
    one = field(30, 40, shortName="sp")
    one["values"][3:5, 7] = np.nan
    one["keys"] |= {"packingType": packing, "bitsPerValue": 16}
    path = write_grib(tmp_path / "a.grib2", one, field(30, 40, shortName="sp", step=6))
    assert assert_as_in_eccodes(path, gridref.scan(path)) == 2


def test_png(tmp_path: Path) -> None:
    """eccodes reads it, and here does not write it."""
    one = field(30, 40, shortName="sp", bitsPerValue=16)
    path = write_grib(tmp_path / "a.grib2", one)
    raw = path.read_bytes()
    data = raw.rindex(b"\x07", 0, len(raw) - 2400 - 3) - 4
    values = np.frombuffer(raw, ">u2", 1200, data + 5).reshape(30, 40)
    png = imagecodecs.png_encode(values.astype("u2"))
    packing = raw.index(struct.pack(">IBI", 21, 5, 1200))
    body = raw[16 : packing + 9] + struct.pack(">H", 41) + raw[packing + 11 : data]
    body += struct.pack(">IB", 5 + len(png), 7) + png + b"7777"
    path.write_bytes(raw[:8] + struct.pack(">Q", 16 + len(body)) + body)
    assert assert_as_in_eccodes(path, gridref.scan(path)) == 1


@pytest.mark.parametrize("edition", [1, 2])
@pytest.mark.parametrize("mode", range(0, 256, 16))
def test_scanning_modes(tmp_path: Path, mode: int, edition: int) -> None:
    if edition == 1 and mode & 16:
        pytest.skip("edition 1 has no alternating rows")
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
