"""Kinds of archives, each built by one call as their owners would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import netCDF4
import pytest
import xarray as xr

import gridref
from tests.archives import KINDS, Archive
from tests.archives.forecasts import forecasts
from tests.archives.granules import altimetry, orbits, volumes
from tests.archives.models import cmip, nemo, roms
from tests.archives.observations import goes
from tests.by_name import by_name
from tests.command import run_command

Kind = Callable[[Path], Archive]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@every_kind
def test_python_builds_it_in_one_call(kind: Kind, tmp_path: Path) -> None:
    archive = kind(made(tmp_path / "files"))
    catalog = tmp_path / "cube.gridref"
    assert len(archive.options) <= 1 >= sum(flag.startswith("--") for flag in archive.flags)
    gridref.build(list(archive.files), catalog, **by_name(**archive.options))
    assert_as_expected(archive, catalog)


@pytest.mark.long(but=2)
@every_kind
def test_the_command_builds_it_in_one_line(kind: Kind, tmp_path: Path) -> None:
    archive = kind(made(tmp_path / "files"))
    catalog = tmp_path / "cube.gridref"
    files = str(tmp_path / "files" / archive.pattern)
    done = run_command("build", files, "-o", catalog, "--yes", *archive.flags)
    assert done.returncode == 0, done.stderr
    assert_as_expected(archive, catalog)


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def assert_as_expected(archive: Archive, catalog: Path) -> None:
    """Every variable equals what other programs make of the files, in values, dims and order."""
    for group, expected in archive.expected().items():
        store = gridref.open_store(catalog)
        found = xr.open_zarr(store, group=group or None, decode_timedelta=True)
        assert set(expected.variables) <= set(found.variables), found
        for name, variable in expected.variables.items():
            assert found[name].dims == variable.dims, name
            xr.testing.assert_equal(found[name].variable.load(), variable.load())


def test_bounds_of_the_same_times_have_to_be_equal(tmp_path: Path) -> None:
    archive = cmip(made(tmp_path / "files"))
    (broken,) = [path for path in archive.files if path.name.startswith("pr_Amon_CESM2")][:1]
    with netCDF4.Dataset(broken, "r+") as file:
        file["time_bnds"][5, 1] += 1
    with pytest.raises(gridref.errors.CombineError) as error:
        gridref.build(
            list(archive.files), tmp_path / "cube.gridref", layout=gridref.Groups("source_id")
        )
    (problem,) = error.value.problems
    assert (problem.cause, problem.variable) == ("overlap", "CESM2/time_bnds")
    assert str(broken) in problem.sources
    assert not (tmp_path / "cube.gridref").exists()


def test_single_values_that_differ_are_shown_at_each_label(tmp_path: Path) -> None:
    archive = forecasts(made(tmp_path / "files"))
    group = gridref.build(list(archive.files), tmp_path / "cube.gridref")
    assert group.arrays["valid_time"].dims == ("time", "step")
    assert "repeated" in {
        row["cause"] for row in gridref.open_catalog(tmp_path / "cube.gridref").report().to_pylist()
    }
    dims = {"concat_dim": ["time", "step"], "compat": "override"}
    first = gridref.build(list(archive.files), tmp_path / "first.gridref", **by_name(**dims))
    assert first.arrays["valid_time"].shape == ()


def test_advice_that_loses_nothing_is_taken_and_told(tmp_path: Path) -> None:
    archive = altimetry(made(tmp_path / "files"))
    by_time = gridref.plan(list(archive.files), "delta_time")
    assert {problem.variable for problem in by_time.problems} == {
        "ancillary_data/data_start_utc",
        "ancillary_data/start_rgt",
    }
    assert all("layout=Ragged() keeps one value" in own.message for own in by_time.problems)
    (layout,) = gridref.plan(list(archive.files)).report.of_cause("layout")
    assert layout.resolution == "laid out by concat_dim='delta_time', layout=Ragged()"
    assert layout.cases[0].value == (
        "coordinates differ along delta_time; ancillary_data/data_start_utc and 1 more differ"
        " between files"
    )


def test_advice_that_loses_nothing_can_be_asked_for(tmp_path: Path) -> None:
    files = list(goes(made(tmp_path / "files")).files)
    catalog = tmp_path / "cube.gridref"
    with pytest.raises(gridref.errors.UnclearLayoutError, match="time_bounds differs") as asked:
        gridref.build(files, catalog, resolve="ask")
    (choice,) = asked.value.choices
    gridref.build(files, catalog, **choice)
    taken = gridref.build(files, tmp_path / "first.gridref", layout="first", resolve="ask")
    found = gridref.build(files, tmp_path / "found.gridref", resolve="lossless")
    shapes = {path: array.sizes_text for path, array in taken.all_arrays().items()}
    assert shapes == {path: own.sizes_text for path, own in found.all_arrays().items()}
    assert shapes == {
        path: own.sizes_text for path, own in gridref.open_catalog(catalog).all_arrays().items()
    }
    with pytest.raises(gridref.errors.InvalidRequestError, match="'lossless', 'ask'"):
        gridref.plan(files, resolve="no")


def test_what_differs_beside_sweeps_is_kept_by_file(tmp_path: Path) -> None:
    files = list(volumes(made(tmp_path / "files")).files)
    problems = gridref.plan(files, "azimuth", **by_name(overlap="keep")).problems
    assert {(problem.cause, problem.variable) for problem in problems} == {
        ("values-differ", "volume_number"),
        ("values-differ", "time_coverage_start"),
    }
    group = gridref.build(
        files, tmp_path / "cube.gridref", "azimuth", layout=gridref.Ragged(instance="volume")
    )
    assert group.arrays["volume_number"].dims == ("volume",)
    assert group["volume_number"][...].tolist() == [0, 1, 2]


def test_a_rule_that_was_asked_for_is_kept_in_a_layout_that_is_found(tmp_path: Path) -> None:
    archive = goes(made(tmp_path / "files"))
    options = gridref.CombineOptions(variables="minimal")
    done = gridref.plan(list(archive.files), combine=options)
    assert {problem.variable for problem in done.problems} == {"time_bounds"}


@pytest.mark.parametrize("kind", [goes, nemo, roms, altimetry, orbits, volumes])
def test_files_are_added_by_the_advice_that_was_taken(kind: Kind, tmp_path: Path) -> None:
    archive = kind(made(tmp_path / "files"))
    *first, last = sorted(archive.files)
    catalog = tmp_path / "cube.gridref"
    gridref.build(first, catalog)
    gridref.open_catalog(catalog).append(last)
    assert_as_expected(archive, catalog)


def test_times_that_are_no_coordinate_do_not_order_files_of_the_same_labels(tmp_path: Path) -> None:
    days = {"units": "days since 2001-01-01"}
    for number in range(3):
        written = ("time", [100.0 + number, 100.5 + number], days)
        ds = xr.Dataset({"t": ("time", [1.0, 2.0]), "written": written}, {"time": [0, 1]})
        ds["time"].attrs = days
        ds.to_netcdf(tmp_path / f"{'abc'[number]}.nc", unlimited_dims=["time"])
    done = gridref.plan(sorted(tmp_path.iterdir()))
    assert [layout.resolution for layout in done.report.of_cause("layout")] == [
        "laid out by layout=Stack('part1', labels='{part1}.nc')"
    ]
