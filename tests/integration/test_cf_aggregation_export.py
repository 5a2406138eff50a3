"""Cubes written as CF aggregation files, read by netCDF4, by cfdm where it is, and by us."""

from __future__ import annotations

import os
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import gridref
from gridref.errors import NotRepresentableError, SourceChangedError
from gridref.faces.cli.app import app
from tests.archives.archive import Variable, field_of, write_netcdf
from tests.cf_aggregations import read_aggregation

DAYS = (31, 28)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two months: chunked otherwise, of unlike codecs, packed each by itself."""
    folder = tmp_path_factory.mktemp("months")
    made = []
    for number, n_days in enumerate(DAYS):
        packed = (np.arange(n_days * 6).reshape(n_days, 2, 3) % 90).astype("i2")
        packed[3, 1, 1] = -1
        pack = {"scale_factor": 0.5 + number, "_FillValue": np.int16(-1), "units": "mm"}
        time = Variable(
            ("time",), np.arange(n_days) + 0.5, {"units": f"days since 2023-{number + 1:02}-01"}
        )
        variables = {
            "time": time,
            "lat": Variable(("lat",), np.array([50.0, 40.0]), {"units": "degrees_north"}),
            "tas": Variable(
                ("time", "lat", "lon"),
                field_of(f"tas{number}", n_days, 2, 3),
                {"units": "K"},
                None if number else (7, 2, 3),
            ),
            "pr": Variable(("time", "lat", "lon"), packed, pack, (5, 2, 3)),
        }
        made.append(write_netcdf(folder / f"2023-{number + 1:02}.nc", variables, {"title": "t"}))
    return made


@pytest.fixture(scope="module")
def cube(files: list[Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    catalog = str(tmp_path_factory.mktemp("cube") / "cube.gridref")
    gridref.build(files, catalog)
    return catalog


def test_netcdf_readers_put_it_together_again(cube: str, tmp_path: Path) -> None:
    written = gridref.interchange.to_cf_aggregation(cube, tmp_path / "all.nc")
    assert written == {"tas": (2, 1, 1), "pr": (2, 1, 1)}
    found = read_aggregation(tmp_path / "all.nc").to_dataset()
    expected = xr.open_dataset(cube, engine="gridref").load()
    xr.testing.assert_equal(found.load(), expected)
    assert found.attrs == {"title": "t", "Conventions": "CF-1.13"}
    with netCDF4.Dataset(tmp_path / "all.nc") as file:
        assert file["tas"].shape == ()
        assert file["tas"].aggregated_dimensions == "time lat lon"
        assert file["fragment_map"][:].tolist() == [[31, 28], [2, None], [3, None]]
        assert "fragment_map_2" not in file.variables


def test_cfdm_reads_it(cube: str, tmp_path: Path) -> None:
    cfdm = pytest.importorskip("cfdm")
    gridref.interchange.to_cf_aggregation(cube, tmp_path / "all.nc")
    expected = xr.open_dataset(cube, engine="gridref")
    fields = {field.nc_get_variable(): field for field in cfdm.read(str(tmp_path / "all.nc"))}
    for name in ("tas", "pr"):
        np.testing.assert_array_equal(np.ma.filled(fields[name].array, np.nan), expected[name])


def test_we_read_it_again(cube: str, tmp_path: Path) -> None:
    written = CliRunner().invoke(app, ["export", cube, str(tmp_path / "all.nc")])
    assert written.exit_code == 0, written.output
    assert "2 aggregation variables" in written.output
    allowed = {"allow": str(tmp_path.parent)}
    found = xr.open_dataset(tmp_path / "all.nc", engine="gridref", **allowed)
    xr.testing.assert_identical(
        found.load(), xr.open_dataset(cube, engine="gridref").load().assign_attrs(found.attrs)
    )


def test_relative_names_move_with_their_files(files: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    (folder / "below").mkdir(parents=True)
    for file in files:
        (folder / "below" / file.name).write_bytes(file.read_bytes())
    group = gridref.build(sorted((folder / "below").iterdir()), tmp_path / "cube.gridref")
    gridref.interchange.to_cf_aggregation(group, folder / "all.nc", relative=True)
    expected = group["tas"][...]
    moved = tmp_path / "moved"
    folder.rename(moved)
    with netCDF4.Dataset(moved / "all.nc") as file:
        assert file["fragment_uris"][:].ravel().tolist() == ["below/2023-01.nc", "below/2023-02.nc"]
    np.testing.assert_array_equal(gridref.scan(moved / "all.nc")["tas"][...], expected)


def test_new_dimensions_and_other_names(tmp_path: Path) -> None:
    values = field_of("v", 3, 4)
    for member, row in enumerate(values):
        write_netcdf(tmp_path / f"m{member}.nc", {"deep/v": Variable(("x",), row, {}, (2,))})
    group = gridref.build(
        tmp_path, tmp_path / "c.gridref", layout=gridref.Stack("member", "m{member:d}.nc")
    )
    renamed = gridref.VirtualGroup({"w": group["deep/v"], "member": group["member"]})
    written = gridref.interchange.to_cf_aggregation(renamed, tmp_path / "all.nc")
    assert written == {"w": (3, 1)}
    with netCDF4.Dataset(tmp_path / "all.nc") as file:
        assert str(file["fragment_identifiers"][...]) == "/deep/v"
    np.testing.assert_array_equal(gridref.scan(tmp_path / "all.nc")["w"][...], values)


def test_what_cannot_be_said_is_refused_and_nothing_written(cube: str, tmp_path: Path) -> None:
    group = gridref.open_catalog(cube)
    parts = {"tas": group["tas"].isel(time=slice(3, 40))}
    (tmp_path / "all.nc").write_text("as before")
    with pytest.raises(NotRepresentableError, match="tas: some blocks are parts"):
        gridref.interchange.to_cf_aggregation(
            gridref.VirtualGroup(parts), tmp_path / "all.nc", inline_limit=0
        )
    assert (tmp_path / "all.nc").read_text() == "as before"
    gridref.interchange.to_cf_aggregation(gridref.VirtualGroup(parts), tmp_path / "all.nc")
    with netCDF4.Dataset(tmp_path / "all.nc") as file:
        np.testing.assert_array_equal(file["tas"][:], group["tas"][3:40])
    unlike = gridref.VirtualGroup({**parts, "pr": group["pr"]})
    with pytest.raises(NotRepresentableError, match="pr: the dimension 'time' is 59 long, and 37"):
        gridref.interchange.to_cf_aggregation(unlike, tmp_path / "all.nc")


def test_chunks_of_zarr_are_no_fragments(tmp_path: Path) -> None:
    """Each chunk is a file, which has no variables: small arrays are written by value."""
    dataset = xr.Dataset({"a": ("x", np.arange(12.0))}, {"b": ("x", np.arange(12))})
    dataset.to_zarr(tmp_path / "a.zarr", consolidated=False)
    group = gridref.scan(tmp_path / "a.zarr")
    to_cf_aggregation = gridref.interchange.to_cf_aggregation
    with pytest.raises(NotRepresentableError, match=r"a: .*/c/0 is no file with variables"):
        to_cf_aggregation(group, tmp_path / "a.nc", inline_limit=0)
    assert to_cf_aggregation(group, tmp_path / "a.nc") == {}
    xr.testing.assert_equal(xr.open_dataset(tmp_path / "a.nc"), dataset)


def test_units_that_were_converted_are_refused(tmp_path: Path) -> None:
    for number, units in enumerate(("K", "degC")):
        values = field_of(f"t{number}", 3) - 273.15 * number
        own = {"t": Variable(("x",), values.astype("f4"), {"units": units}, (3,))}
        write_netcdf(tmp_path / f"{number}.nc", own)
    files = [tmp_path / "0.nc", tmp_path / "1.nc"]
    group = gridref.build(
        files, tmp_path / "c.gridref", "x", combine=gridref.CombineOptions(convert_units=True)
    )
    with pytest.raises(NotRepresentableError, match="t: numbers are scaled otherwise"):
        gridref.interchange.to_cf_aggregation(group, tmp_path / "all.nc", inline_limit=0)


def test_changed_files_are_refused(tmp_path: Path) -> None:
    file = write_netcdf(tmp_path / "a.nc", {"v": Variable(("x", "y"), field_of("v", 4, 2))})
    group = gridref.scan(file)
    os.utime(file, (1, 1))
    with pytest.raises(SourceChangedError):
        gridref.interchange.to_cf_aggregation(group, tmp_path / "all.nc")


def test_options_of_other_exports_are_refused(cube: str, tmp_path: Path) -> None:
    for output, option in (
        ("all.nc", "--replace"),
        ("all.nc", "--templates"),
        ("a.json", "--relative"),
    ):
        done = CliRunner().invoke(app, ["export", cube, str(tmp_path / output), option])
        assert done.exit_code != 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [".", "a\0b"])
def test_names_that_netcdf_cannot_have_are_refused(files: list[Path], name: str) -> None:
    group = gridref.scan(files[0])
    named = gridref.VirtualGroup({name: group.arrays["lat"]}, attrs={"title": "t"})
    path = files[0].parent / "names.nc"
    with pytest.raises(NotRepresentableError):
        gridref.interchange.to_cf_aggregation(named, path)
    assert not path.exists()
