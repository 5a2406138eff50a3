"""Forecasts along valid times, against what xarray picks by label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.api.layout.forecasts import forecast
from gridref.errors import InvalidRequestError
from tests.command import run_command

RUNS = np.array(["2022-03-01T00", "2022-03-01T12", "2022-03-02T00"], "M8[ns]")
STEPS = np.array([0, 6, 12, 18, 24], "m8[h]").astype("m8[ns]")


@pytest.fixture(scope="module")
def cube(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs, a file each; the last one lacks its last steps: they were not computed yet."""
    folder = tmp_path_factory.mktemp("forecasts")
    for number, run in enumerate(RUNS):
        n_steps = 5 if number < 2 else 2
        values = 100.0 * number + np.arange(n_steps * 6).reshape(1, n_steps, 2, 3)
        ds = xr.Dataset(
            {
                "t2m": (("time", "step", "y", "x"), values, {"units": "K"}),
                "orography": (("y", "x"), np.ones((2, 3))),
                "ensemble_size": (("time",), [10 + number]),
            },
            {"time": [run], "step": STEPS[:n_steps], "x": [1, 2, 3]},
        )
        encoding: dict[str, Any] = {
            "t2m": {"zlib": True, "chunksizes": (1, 1, 2, 3)},
            "time": {"units": "hours since 2022-01-01", "dtype": "i4"},
            "step": {"units": "hours", "dtype": "i4"},
        }
        ds.to_netcdf(folder / f"run{number}.nc", encoding=encoding)
    catalog = folder / "cube.gridref"
    gridref.build(f"{folder}/*.nc", catalog, "time", combine=gridref.CombineOptions(join="outer"))
    return catalog


def opened(catalog: Any, **options: Any) -> xr.Dataset:
    return xr.open_dataset(catalog, engine="gridref", decode_timedelta=True, **options)


def picked(cube: Path, pairs: list[tuple[int, int]]) -> xr.DataArray:
    """What xarray says of (run, step in hours)."""
    whole = opened(cube)
    parts = [whole.t2m.sel(time=RUNS[run], step=np.timedelta64(step, "h")) for run, step in pairs]
    valid = [RUNS[run] + np.timedelta64(step, "h") for run, step in pairs]
    return xr.concat(parts, xr.Variable("valid_time", valid), coords="minimal", compat="override")


def assert_shows(view: gridref.VirtualGroup, cube: Path, pairs: list[tuple[int, int]]) -> None:
    expected = picked(cube, pairs).load()
    found = opened(view)
    assert found.t2m.dims == ("valid_time", "y", "x")
    np.testing.assert_array_equal(found.t2m.values, expected.values)
    assert not np.isnan(found.t2m.values).any()
    np.testing.assert_array_equal(found.valid_time.values, expected.valid_time.values)
    np.testing.assert_array_equal(found.coords["time"].values, [RUNS[run] for run, _ in pairs])
    steps = [np.timedelta64(step, "h") for _, step in pairs]
    np.testing.assert_array_equal(found.coords["step"].values, np.array(steps, "m8[ns]"))
    assert found.ensemble_size.values.tolist() == [10 + run for run, _ in pairs]
    xr.testing.assert_equal(found.orography.drop_vars(["x"]), opened(cube).orography.drop_vars("x"))


BEST = [(0, 0), (0, 6), (1, 0), (1, 6), (2, 0), (2, 6), (1, 24)]


def test_the_best_series_takes_the_newest_run_that_has_a_time(cube: Path) -> None:
    whole = gridref.open_catalog(cube)
    assert_shows(forecast(cube), cube, BEST)
    assert_shows(forecast(whole), cube, BEST)


def test_spin_up_is_left_to_older_runs(cube: Path) -> None:
    expected = [(0, 12), (0, 18), (1, 12), (1, 18), (1, 24)]
    assert_shows(forecast(cube, after="12h"), cube, expected)


@pytest.mark.parametrize("offset", ["6h", "PT6H", "0.25d", "360 min"])
def test_one_offset_of_all_runs(cube: Path, offset: str) -> None:
    assert_shows(forecast(cube, offset=offset), cube, [(0, 6), (1, 6), (2, 6)])


@pytest.mark.parametrize(("run", "number"), [("2022-03-01T12:00", 1), ("2022-03-01", 0)])
def test_one_run(cube: Path, run: str, number: int) -> None:
    pairs = [(number, step) for step in (0, 6, 12, 18, 24)]
    assert_shows(forecast(cube, run=run), cube, pairs)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"offset": "5h"}, "no step is 5h; there are 0h, 6h, 12h, 18h, 24h"),
        ({"run": "2022-03-01T01:00"}, "no run of 2022-03-01T01:00"),
        ({"run": "yesterday"}, "'yesterday' is no time"),
        ({"after": "30h"}, "no forecast step is 30h or more ahead"),
        ({"after": "soon"}, "'soon' is not a duration"),
        ({"offset": "6h", "run": "latest"}, "choose one view"),
        ({"step_dim": "lead"}, "no coordinate 'lead'; there are"),
        ({"run_dim": "step"}, "step has units 'hours', which are not times"),
        ({"step_dim": "x"}, "x has units '', which are not durations"),
    ],
)
def test_what_cannot_be_shown_is_said(cube: Path, asked: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        forecast(cube, **asked)


def test_the_command_keeps_views_as_names_in_the_catalog(cube: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.gridref"
    done = run_command("export", cube, kept, "--to", "forecast", "--name", "best")
    assert done.returncode == 0, done.stderr
    done = run_command(
        "export", kept, kept, "--to", "forecast", "--run", "latest", "--name", "latest"
    )
    assert done.stdout == f"{kept}: 5 valid times\n"
    np.testing.assert_array_equal(opened(kept).t2m.values, opened(cube).t2m.values)
    best = xr.open_zarr(gridref.open_store(kept), group="best", chunks=None)
    np.testing.assert_array_equal(best.t2m.values, picked(cube, BEST).values)
    latest = opened(kept, group="latest")
    np.testing.assert_array_equal(latest.t2m.values[:2], picked(cube, [(2, 0), (2, 6)]))
    assert np.isnan(latest.t2m.values[2:]).all()


def test_the_command_says_what_is_wrong_in_a_line(cube: Path, tmp_path: Path) -> None:
    done = run_command(
        "export", cube, tmp_path / "no.gridref", "--to", "forecast", "--offset", "7h"
    )
    assert done.returncode != 0
    assert "no step is 7h" in done.stderr
    assert not (tmp_path / "no.gridref").exists()


def write_steps(folder: Path, run: str, steps: range, **time_attrs: str) -> None:
    for step in steps:
        ds = xr.Dataset({"t2m": ("x", np.arange(3.0) + step)})
        start = {"units": f"hours since {run}", **time_attrs}
        ds = ds.assign_coords(init=((), 0, start), step=((), step, {"units": "hours"}))
        ds.to_netcdf(folder / f"{run}_{step:02d}.nc")


def test_cubes_have_valid_times_of_runs_and_steps(tmp_path: Path) -> None:
    for run in ("2022-03-01", "2022-03-02"):
        write_steps(tmp_path, run, range(0, 24, 6))
    catalog = tmp_path / "cube.gridref"
    gridref.build(f"{tmp_path}/*.nc", catalog, ["init", "step"])
    write_steps(tmp_path, "2022-03-03", range(0, 12, 6))
    for n_runs in (2, 3):
        if n_runs == 3:
            gridref.open_catalog(catalog).append(sorted(tmp_path.glob("2022-03-03*.nc")))
        shown = xr.open_zarr(gridref.open_store(catalog), decode_timedelta=True)
        assert shown.sizes == {"init": n_runs, "step": 4, "x": 3}
        assert shown.coords["valid_time"].dims == ("init", "step")
        np.testing.assert_array_equal(shown.valid_time, shown.init + shown.step)
    assert set(forecast(catalog).arrays) == {"valid_time", "t2m", "init", "step"}


def test_reference_dates_of_long_ago(tmp_path: Path) -> None:
    """Since the year 1 there are more nanoseconds than 64 bits hold."""
    for number in range(2):
        init = {"units": "days since 0001-01-01", "calendar": "proleptic_gregorian"}
        init["standard_name"] = "forecast_reference_time"
        coords = {
            "init": ((), 738000 + number, init),
            "step": ("step", [0, 6, 24], {"units": "hours"}),
        }
        ds = xr.Dataset({"v": ("step", [number + 0.0, 1, 2])}, coords)
        ds.to_netcdf(tmp_path / f"{number}.nc")
    gridref.build(f"{tmp_path}/*.nc", tmp_path / "cube", ["init", "step"])
    shown = opened(tmp_path / "cube")
    np.testing.assert_array_equal(shown.valid_time, shown.init + shown.step)
    one = opened(forecast(tmp_path / "cube", run="2021-07-31"))
    np.testing.assert_array_equal(one.valid_time, shown.valid_time[1])
    np.testing.assert_array_equal(one.v, [1, 1, 2])


@pytest.mark.parametrize("attrs", [{"standard_name": "time"}, {}])
def test_times_that_are_not_said_to_be_runs_are_valid_times(
    tmp_path: Path, attrs: dict[str, str]
) -> None:
    for run in ("2022-03-01", "2022-03-02"):
        write_steps(tmp_path, run, range(0, 12, 6), **attrs)
    for file in tmp_path.glob("*.nc"):
        xr.load_dataset(file, decode_times=False).rename(init="time").to_netcdf(file)
    group = gridref.build(f"{tmp_path}/*.nc", tmp_path / "cube.gridref", ["time", "step"])
    assert "valid_time" not in group.arrays
