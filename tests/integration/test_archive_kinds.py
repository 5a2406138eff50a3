"""Twelve kinds of archives, each built by one call as their owners would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import netCDF4
import pytest
import xarray as xr

import gridref
from tests.archives import KINDS, Archive
from tests.archives.forecasts import forecasts
from tests.archives.models import cmip
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
