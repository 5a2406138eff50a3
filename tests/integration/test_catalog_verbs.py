"""Each verb of an opened catalog does what it says, and what two catalogs differ in."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.api.catalog import write_catalog
from gridref.catalog.examining import CatalogChange
from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray
from tests.by_name import by_name
from tests.http_server import Site, serving
from tests.integration.archives import write_months
from tests.integration.test_cli import run

N_DAYS = 4


@pytest.fixture(scope="module")
def written_days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file a day; `area` is in a group."""
    folder = tmp_path_factory.mktemp("days")
    for day in range(N_DAYS):
        values = np.random.default_rng(day).normal(size=(1, 6, 8)).astype("f4")
        time = ("time", [day], {"units": "days since 2000-01-01"})
        dataset = xr.Dataset({"tas": (("time", "y", "x"), values)}, {"time": time})
        encoding = {"tas": {"chunksizes": (1, 3, 4), "zlib": True}}
        dataset.to_netcdf(folder / f"{day}.nc", engine="h5netcdf", encoding=encoding)
        area = xr.Dataset({"area": (("y", "x"), np.arange(48.0).reshape(6, 8))})
        area.to_netcdf(folder / f"{day}.nc", engine="h5netcdf", mode="a", group="static")
    return folder


@pytest.fixture
def days(written_days: Path, tmp_path: Path) -> list[Path]:
    return sorted(shutil.copytree(written_days, tmp_path / "days").iterdir())


@pytest.fixture
def catalog(days: list[Path], tmp_path: Path) -> gridref.Catalog:
    """A catalog of all days but the last."""
    gridref.build(days[:-1], tmp_path / "cube.gridref", "time")
    return gridref.open_catalog(tmp_path / "cube.gridref")


def stored(days: list[Path]) -> np.ndarray:
    values = []
    for day in days:
        with h5py.File(day) as file:
            values.append(file["tas"][...])
    return np.concatenate(values)


def test_to_xarray(catalog: gridref.Catalog, days: list[Path]) -> None:
    with xr.open_mfdataset(days[:-1], engine="h5netcdf") as expected:
        xr.testing.assert_identical(catalog.to_xarray().load(), expected.load())
    with xr.open_dataset(days[0], engine="h5netcdf", group="static") as expected:
        xr.testing.assert_identical(catalog.to_xarray("static").load(), expected.load())
    assert catalog.to_xarray(decode_times=False).time.dtype == "int64"


def test_to_xarray_of_a_former_snapshot(catalog: gridref.Catalog, days: list[Path]) -> None:
    catalog.append(days[-1])
    np.testing.assert_array_equal(catalog.to_xarray().tas, stored(days[:-1]))


def test_relocate(catalog: gridref.Catalog, days: list[Path], tmp_path: Path) -> None:
    moved = days[0].parent.rename(tmp_path / "moved")
    after = catalog.relocate({f"{days[0].parent}/": f"{moved}/"})
    assert after.sources()["url"].to_pylist() == [str(moved / day.name) for day in days[:-1]]
    np.testing.assert_array_equal(after["tas"].read(), stored([moved / d.name for d in days[:-1]]))
    assert after.append(moved / days[-1].name)["tas"].shape == (N_DAYS, 6, 8)


def test_take_checksums(catalog: gridref.Catalog) -> None:
    after = catalog.take_checksums()
    assert catalog.info.n_checksums == 0
    assert after.info.n_checksums == catalog.chunks(state="range").num_rows
    assert after.history()[0].operation == "checksums"


def test_export_by_the_ending(catalog: gridref.Catalog, days: list[Path], tmp_path: Path) -> None:
    document = catalog.export(tmp_path / "refs.json")
    assert (
        json.loads((tmp_path / "refs.json").read_text())["refs"].keys() == document["refs"].keys()
    )
    with xr.open_dataset(str(tmp_path / "refs.json"), engine="kerchunk") as shown:
        np.testing.assert_array_equal(shown.tas, stored(days[:-1]))
    assert catalog.export(tmp_path / "all.nc")["tas"] == (3, 1, 1)
    with h5py.File(tmp_path / "all.nc") as file:
        assert file["tas"].attrs["aggregated_dimensions"] == "time y x"


def test_export_by_name(catalog: gridref.Catalog, days: list[Path], tmp_path: Path) -> None:
    item = catalog.export(tmp_path / "item.json", to="stac", id="days", datetime="2000-01-01")
    assert json.loads((tmp_path / "item.json").read_text())["id"] == item["id"] == "days"
    with pytest.raises(InvalidRequestError, match="did you mean 'kerchunk'"):
        catalog.export(tmp_path / "refs.json", to="kerchunks")


def test_export_to_icechunk(catalog: gridref.Catalog, days: list[Path], tmp_path: Path) -> None:
    icechunk = pytest.importorskip("icechunk")
    snapshot = catalog.export(tmp_path / "cube.icechunk")
    storage = icechunk.local_filesystem_storage(str(tmp_path / "cube.icechunk"))
    assert next(icechunk.Repository.open(storage).ancestry(branch="main")).id == snapshot


def test_publish(catalog: gridref.Catalog, days: list[Path], tmp_path: Path) -> None:
    """The snapshot that is open is published, not the newest one."""
    catalog.append(days[-1])
    with serving(Site({f"/{day.name}": day.read_bytes() for day in days})) as site:
        prefixes = {f"{days[0].parent}/": f"{site.url}/"}
        done = catalog.publish(tmp_path / "site", base_url=f"{site.url}/x", prefixes=prefixes)
    assert [path for path in done.files if not (tmp_path / "site" / path).is_file()] == []
    copy = gridref.open_catalog(tmp_path / "site" / "cube.gridref")
    assert copy.sources()["url"].to_pylist() == [f"{site.url}/{day.name}" for day in days[:-1]]


def test_forecast(tmp_path: Path) -> None:
    """Of two runs, the newer one counts where both have a time."""
    for number, hour in enumerate((0, 12)):
        values = np.array([[10.0 * number, 10.0 * number + 1]])
        steps = ("step", [0, 12], {"units": "hours"})
        runs = ("time", [hour], {"units": "hours since 2022-03-01"})
        dataset = xr.Dataset({"t2m": (("time", "step"), values)}, {"time": runs, "step": steps})
        dataset.to_netcdf(tmp_path / f"{number}.nc", engine="h5netcdf")
    gridref.build(f"{tmp_path}/*.nc", tmp_path / "cube.gridref", "time")
    catalog = gridref.open_catalog(tmp_path / "cube.gridref")
    np.testing.assert_array_equal(catalog.forecast()["t2m"].read(), [0, 10, 11])
    np.testing.assert_array_equal(catalog.forecast(run="2022-03-01T00")["t2m"].read(), [0, 1])


def test_what_is_opened_elsewhere_is_read_and_not_changed(
    catalog: gridref.Catalog, days: list[Path], tmp_path: Path
) -> None:
    moved = shutil.move(days[0].parent, tmp_path / "moved")
    prefixes = {f"{days[0].parent}/": f"{moved}/"}
    shown = gridref.open_catalog(catalog.info.url, prefixes=prefixes)
    here = [moved / day.name for day in days[:-1]]
    np.testing.assert_array_equal(shown.to_xarray().tas, stored(here))
    with pytest.raises(InvalidRequestError, match="open it without them"):
        shown.remove(here[0])


@pytest.fixture(scope="module")
def written_months(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("months")
    write_months(folder, lengths=[31, 28])
    return folder


@pytest.fixture
def folder(written_months: Path, tmp_path: Path) -> Path:
    folder = shutil.copytree(written_months, tmp_path / "months")
    gridref.build(folder / "*.nc", folder / "a.gridref", "time")
    return folder


def diff(one: Path, other: Path) -> tuple[CatalogChange, ...]:
    return gridref.open_catalog(one).diff(other)


def lines(folder: Path) -> list[str]:
    return [str(change) for change in diff(folder / "a.gridref", folder / "b.gridref")]


def test_the_same_files_make_no_difference(folder: Path) -> None:
    gridref.build(folder / "*.nc", folder / "b.gridref", "time")
    assert lines(folder) == []
    done = run("diff", "a.gridref", "b.gridref", cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_one_more_file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("more")
    write_months(other, lengths=[31, 28, 30])
    shutil.copy2(other / "month_02.nc", folder)
    gridref.build(folder / "*.nc", folder / "b.gridref", "time")
    found = lines(folder)
    # 30 days in chunks of 10 x 7 x 9, over 13 x 17.
    assert "~ array tas: chunks: 12 added" in found
    assert "~ array tas: shape: [59, 13, 17] -> [89, 13, 17]" in found
    assert f"+ source {folder}/month_02.nc" in found
    assert not [line for line in found if "lat" in line]
    back = diff(folder / "b.gridref", folder / "a.gridref")
    assert "~ array tas: chunks: 12 removed" in map(str, back)
    opened = [gridref.open_catalog(folder / f"{name}.gridref") for name in "ba"]
    assert opened[0].diff(opened[1]) == back


def test_a_changed_file(folder: Path) -> None:
    with netCDF4.Dataset(folder / "month_01.nc", "r+") as file:
        file["tas"].units = "degC"
        file["tas"][25, 0, 0] = 1
        file["time"][:] += 0
        file.createVariable("new", "f4", ("lat",))[:] = 1
        file.history = "touched"
    with netCDF4.Dataset(folder / "month_00.nc", "r+") as file:
        file.createVariable("new", "f4", ("lat",))[:] = 1
        file["tas"].units = "degC"
    gridref.build(folder / "*.nc", folder / "b.gridref", "time")
    found = diff(folder / "a.gridref", folder / "b.gridref")
    assert ("changed", "array", "tas", "attribute units", "K", "degC") in [
        tuple(vars(change).values()) for change in found
    ]
    assert "+ array new" in map(str, found)
    sources = {change.path for change in found if change.kind == "source"}
    assert sources == {str(folder / name) for name in ("month_00.nc", "month_01.nc")}


def test_inline_values_and_windows_are_compared(folder: Path) -> None:
    """Chunks of equal size and place that hold, or show, something else."""
    group = gridref.open_catalog(folder / "a.gridref")
    base = gridref.VirtualGroup(
        {
            "inline": VirtualArray.from_numpy(np.arange(6.0), ("x",)),
            "tas": group["tas"].isel(time=slice(0, 10)),
        }
    )
    write_catalog(base, folder / "a.gridref")
    other = {
        "inline": VirtualArray.from_numpy(np.arange(6.0)[::-1], ("x",)),
        "tas": group["tas"].isel(time=slice(9, None, -1)),
    }
    write_catalog(base.with_changes(arrays=other), folder / "b.gridref")
    assert lines(folder) == [
        "~ array inline: chunks: 1 changed",
        "~ array tas: chunks: 4 changed",
    ]


def test_a_relative_catalog_and_its_copy(folder: Path, tmp_path: Path) -> None:
    options = {"relative": True, "overwrite": True}
    gridref.build(folder / "*.nc", folder / "a.gridref", "time", **by_name(**options))
    shutil.copytree(folder, tmp_path / "copy")  # with times of change
    assert diff(folder / "a.gridref", tmp_path / "copy" / "a.gridref") == ()


def test_a_removed_array_and_group(folder: Path) -> None:
    group = gridref.open_catalog(folder / "a.gridref")
    nested = {"model": gridref.VirtualGroup({"pr": group["pr"]}, attrs={"id": 1})}
    less = gridref.VirtualGroup({k: v for k, v in group.arrays.items() if k != "pr"}, nested)
    write_catalog(less.with_changes(attrs={"title": "x"}), folder / "b.gridref")
    assert lines(folder) == [
        '~ group /: attribute title: none -> "x"',
        "+ group model",
        "- array pr",
        "+ array model/pr",
    ]


def test_the_command_ends_like_diff(folder: Path) -> None:
    gridref.build(folder / "month_00.nc", folder / "b.gridref")
    done = run("diff", "a.gridref", "b.gridref", cwd=folder)
    assert done.returncode == 1
    assert done.stdout.splitlines() == lines(folder)
    as_json = run("diff", "a.gridref", "b.gridref", "--json", cwd=folder)
    assert as_json.returncode == 1
    changes = diff(folder / "a.gridref", folder / "b.gridref")
    assert json.loads(as_json.stdout) == [vars(change) for change in changes]
    trouble = run("diff", "a.gridref", "nothing.gridref", cwd=folder)
    assert trouble.returncode == 2
    assert trouble.stderr.startswith("error: no catalog there")
    assert trouble.stderr.count("\n") == 1
