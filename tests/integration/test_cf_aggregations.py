"""Aggregation variables of CF 1.13 are read as netCDF4 and numpy put their fragments together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.errors import SourceFormatError, SourceUnavailableError, UnsupportedFeatureError
from tests.archives.archive import Variable, field_of, write_netcdf
from tests.cf_aggregations import write_aggregation

ROWS = (3, 5)
VALUES = field_of("tas", sum(ROWS), 4)
PARTS = np.split(VALUES, [ROWS[0]])


def fragments(folder: Path, **variables: Any) -> list[str]:
    """Files of 3 and of 5 rows of `VALUES`, as their names."""
    names = []
    for number, values in enumerate(PARTS):
        held = {"tas": Variable(("time", "x"), values, {"units": "K"}, (2, 4))}
        held |= {name: make(number) for name, make in variables.items()}
        names.append(write_netcdf(folder / f"part{number}.nc", held).name)
    return names


def in_rows(names: list[str]) -> np.ndarray:
    return np.array(names, object).reshape(-1, 1)


def aggregated(folder: Path, **changes: Any) -> Path:
    given: dict[str, Any] = {"identifiers": "tas", "attrs": {"units": "K"}} | changes
    if "unique_values" not in given:
        given.setdefault("uris", in_rows(["part0.nc", "part1.nc"]))
    edges = given.pop("edges", (ROWS, (4,)))
    dims = given.pop("dims", ("time", "x"))
    name = given.pop("name", "tas")
    return write_aggregation(folder / "all.nc", name, dims, edges, **given)


def test_every_way_in_shows_the_fragments(tmp_path: Path) -> None:
    fragments(tmp_path)
    file = aggregated(tmp_path)
    group = gridref.scan(file)
    assert list(group.arrays) == ["tas"]
    tas = group["tas"]
    assert (tas.dims, tas.shape, dict(tas.attrs)) == (("time", "x"), (8, 4), {"units": "K"})
    sources = {source.url for manifest in tas.manifests for source in manifest.sources}
    assert sources == {str(tmp_path / "part0.nc"), str(tmp_path / "part1.nc")}
    gridref.build([file], tmp_path / "cube.gridref")
    opened = {
        "scan": tas[...],
        "catalog": gridref.open_catalog(tmp_path / "cube.gridref")["tas"][...],
        "engine": xr.open_dataset(file, engine="gridref")["tas"].values,
        "virtual": gridref.open_virtual_dataset(file)["tas"].load().values,
        "zarr": xr.open_zarr(gridref.open_store(tmp_path / "cube.gridref"))["tas"].values,
    }
    for way, values in opened.items():
        np.testing.assert_array_equal(values, VALUES, way)
    assert gridref.verify(tmp_path / "cube.gridref").ok


def test_aggregation_files_are_combined_like_others(tmp_path: Path) -> None:
    for member in (1, 2):
        folder = tmp_path / f"m{member}"
        fragments(folder)
        aggregated(folder)
    files = [tmp_path / f"m{member}" / "all.nc" for member in (1, 2)]
    group = gridref.build(files, tmp_path / "cube.gridref", layout=gridref.Stack("member"))
    np.testing.assert_array_equal(group["tas"][...], [VALUES, VALUES])


def test_variables_of_groups_find_instructions_above_and_by_path(tmp_path: Path) -> None:
    fragments(tmp_path)
    aggregated(tmp_path, group="model/surface", instructions="fragments")
    aggregated(tmp_path, group="model", name="again")
    group = gridref.scan(tmp_path / "all.nc")
    np.testing.assert_array_equal(group["model/surface/tas"][...], VALUES)
    np.testing.assert_array_equal(group["model/again"][...], VALUES)
    assert group.all_arrays().keys() == {"model/surface/tas", "model/again"}


@pytest.mark.parametrize("quoted", [True, False])
def test_uris_are_relative_to_the_file_or_absolute(tmp_path: Path, quoted: bool) -> None:
    fragments(tmp_path / "a folder")
    second = tmp_path / "a folder" / "part1.nc"
    first = "a%20folder/part0.nc" if quoted else "a folder/part0.nc"
    aggregated(tmp_path, uris=in_rows([first, second.as_uri()]))
    np.testing.assert_array_equal(gridref.scan(tmp_path / "all.nc")["tas"][...], VALUES)


def test_identifiers_may_be_one_for_each_fragment_and_in_groups(tmp_path: Path) -> None:
    fragments(tmp_path)
    held = {"deep/t": Variable(("t", "x"), PARTS[1], {"units": "K"})}
    write_netcdf(tmp_path / "part1.nc", held)
    aggregated(tmp_path, identifiers=in_rows(["tas", "/deep/t"]))
    np.testing.assert_array_equal(gridref.scan(tmp_path / "all.nc")["tas"][...], VALUES)


def test_fragments_may_lack_dimensions_of_length_one(tmp_path: Path) -> None:
    for number, values in enumerate(VALUES):
        write_netcdf(tmp_path / f"{number}.nc", {"tas": Variable(("x",), values, {}, (2,))})
    uris = np.array([f"{number}.nc" for number in range(8)], object).reshape(8, 1, 1)
    aggregated(tmp_path, uris=uris, edges=((1,) * 8, (1,), (4,)), dims=("time", "level", "x"))
    np.testing.assert_array_equal(gridref.scan(tmp_path / "all.nc")["tas"][...], VALUES[:, None])


def test_fragments_in_other_units_and_packings_are_brought_on_the_variables(tmp_path: Path) -> None:
    held = {"units": "degC", "scale_factor": 0.01, "add_offset": 5.0, "_FillValue": np.int16(-9)}
    packed = np.round((PARTS[0].astype("f8") - 273.15 - 5) / 0.01).astype("i2")
    packed[1, 2] = -9
    write_netcdf(tmp_path / "part0.nc", {"tas": Variable(("time", "x"), packed, held, (2, 4))})
    write_netcdf(tmp_path / "part1.nc", {"tas": Variable(("time", "x"), PARTS[1], {"units": "K"})})
    aggregated(tmp_path)
    found = xr.open_dataset(tmp_path / "all.nc", engine="gridref")["tas"]
    assert found.attrs["units"] == "K"
    with netCDF4.Dataset(tmp_path / "part0.nc") as file:
        expected = np.ma.filled(file["tas"][:], np.nan) + 273.15
    np.testing.assert_allclose(found.values[:3], expected, rtol=1e-14)
    np.testing.assert_array_equal(found.values[3:], PARTS[1])
    causes = {row["cause"] for row in gridref.scan(tmp_path / "all.nc").report.drifts}
    assert causes == {"units"}


def test_fragments_packed_alike_stay_packed(tmp_path: Path) -> None:
    attrs = {"units": "K", "scale_factor": 0.5, "_FillValue": np.int16(-9)}
    for number, values in enumerate(PARTS):
        packed = (values * 2).astype("i2")
        write_netcdf(tmp_path / f"part{number}.nc", {"tas": Variable(("t", "x"), packed, attrs)})
    aggregated(tmp_path, attrs={"units": "K", "_FillValue": np.float64(1e20)})
    tas = gridref.scan(tmp_path / "all.nc")["tas"]
    np.testing.assert_array_equal(tas[...], (VALUES * 2).astype("i2"))
    assert {name: tas.attrs[name] for name in attrs} == attrs


def test_times_of_fragments_with_other_reference_dates(tmp_path: Path) -> None:
    for number, start in enumerate(("2000-01-01", "2000-01-04")):
        time = Variable(("time",), np.arange(ROWS[number]), {"units": f"days since {start}"})
        write_netcdf(tmp_path / f"part{number}.nc", {"time": time})
    attrs = {"units": "days since 2000-01-01", "standard_name": "time"}
    uris = np.array(["part0.nc", "part1.nc"], object)
    given = {"uris": uris, "dims": ("time",), "edges": (ROWS,), "attrs": attrs, "dtype": "i8"}
    aggregated(tmp_path, name="time", identifiers="time", **given)
    found = gridref.scan(tmp_path / "all.nc")["time"]
    np.testing.assert_array_equal(found[...], np.arange(8))
    assert dict(found.attrs) == attrs


def test_missing_fragments_read_as_missing(tmp_path: Path) -> None:
    fragments(tmp_path)
    attrs = {"units": "K", "_FillValue": np.float32(-1)}
    aggregated(tmp_path, uris=in_rows(["", "part1.nc"]), attrs=attrs, dtype="f4")
    found = xr.open_dataset(tmp_path / "all.nc", engine="gridref")["tas"].values
    assert np.isnan(found[:3]).all()
    np.testing.assert_array_equal(found[3:], PARTS[1])


def test_unique_values_are_repeated(tmp_path: Path) -> None:
    numbers = np.ma.array([[7, 8, 0], [9, 10, 11]], mask=[[0, 0, 1], [0, 0, 0]], dtype="i4")
    edges = ((1, 2), (2, 3, 1))
    given: dict[str, Any] = {"identifiers": None, "attrs": {}}
    aggregated(tmp_path, name="n", unique_values=numbers, edges=edges, dtype="i4", **given)
    words = np.array([["first"], ["second"]], object)
    aggregated(
        tmp_path, name="word", unique_values=words, edges=(ROWS, (4,)), identifiers=None, dtype=str
    )
    group = gridref.scan(tmp_path / "all.nc")
    expected = np.repeat(np.repeat(numbers.filled(-1), (1, 2), 0), (2, 3, 1), 1).astype("f8")
    expected[0, 5] = np.nan
    np.testing.assert_array_equal(group["n"][...], expected)
    assert group["word"][...].tolist() == [["first"] * 4] * 3 + [["second"] * 4] * 5


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"])
def test_unique_values_that_were_never_written_are_missing(tmp_path: Path, dtype: str) -> None:
    numbers = np.ma.array([[7, 0, 9]], mask=[[0, 1, 0]], dtype=dtype)
    given: dict[str, Any] = {"identifiers": None, "attrs": {}, "edges": ((2,), (1, 2, 1))}
    file = aggregated(tmp_path, name="n", unique_values=numbers, dtype=dtype, **given)
    found = xr.open_dataset(file, engine="gridref")["n"].values
    np.testing.assert_array_equal(found, [[7, np.nan, np.nan, 9]] * 2)


def test_a_scalar_is_one_fragment(tmp_path: Path) -> None:
    write_netcdf(tmp_path / "one.nc", {"height": Variable((), np.float64(2.0), {"units": "m"})})
    uris = np.array("one.nc", object)
    aggregated(
        tmp_path, name="height", dims=(), edges=(), uris=uris, identifiers="height", attrs={}
    )
    assert gridref.scan(tmp_path / "all.nc")["height"][...] == 2.0


def test_fragments_elsewhere_have_to_be_allowed(tmp_path: Path) -> None:
    fragments(tmp_path / "elsewhere")
    folder = tmp_path / "here" / "below"
    folder.mkdir(parents=True)
    uris = in_rows([(tmp_path / "elsewhere" / f"part{n}.nc").as_uri() for n in (0, 1)])
    file = aggregated(folder, uris=uris)
    with pytest.raises(UnsupportedFeatureError, match="give allow=") as error:
        gridref.scan(file)
    assert error.value.place.variable == "/tas"
    group = gridref.scan(file, on_unsupported="skip")
    assert not group.arrays
    assert [finding.path for finding in group.report.skipped] == ["/tas"]
    allowed = gridref.scan(file, allow=tmp_path / "elsewhere")
    np.testing.assert_array_equal(allowed["tas"][...], VALUES)


BAD = {
    "another length": ({"edges": ((3, 6), (4,))}, SourceFormatError, r"\(5, 4\).*\(6, 4\)"),
    "no such variable": ({"identifiers": "pr"}, SourceFormatError, "no variable 'pr'"),
    "no map of a dimension": ({"edges": (ROWS,)}, SourceFormatError, r"\(1, 2\) is for 2"),
    "too few uris": ({"uris": in_rows(["part0.nc"])}, SourceFormatError, r"\(2, 1\) fragments"),
    "no instructions": ({"identifiers": None}, SourceFormatError, "does not name"),
    "no file": ({"uris": in_rows(["part0.nc", "x.nc"])}, SourceUnavailableError, "x.nc"),
    "itself": ({"uris": in_rows(["all.nc", "all.nc"])}, UnsupportedFeatureError, "itself"),
    "other units": ({"attrs": {"units": "m"}}, UnsupportedFeatureError, "units"),
    "an identifier alone": (
        {"uris": in_rows(["", "part1.nc"]), "identifiers": in_rows(["tas", "tas"])},
        UnsupportedFeatureError,
        "no URI",
    ),
    "another machine": (
        {"uris": in_rows(["part0.nc", "file://host/part1.nc"])},
        UnsupportedFeatureError,
        "another machine",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_contradictions_are_named(tmp_path: Path, bad: str) -> None:
    fragments(tmp_path)
    changes, kind, reason = BAD[bad]
    file = aggregated(tmp_path, **changes)
    with pytest.raises(kind, match=reason):
        gridref.scan(file)


def test_dimensions_in_another_order_are_refused(tmp_path: Path) -> None:
    square = VALUES[:4]
    write_netcdf(tmp_path / "a.nc", {"tas": Variable(("x", "time"), square)})
    uris = np.array([["a.nc"]], object)
    file = aggregated(tmp_path, uris=uris, edges=((4,), (4,)))
    with pytest.raises(UnsupportedFeatureError, match="another order"):
        gridref.scan(file)
