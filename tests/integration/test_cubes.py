"""Files along several dimensions at once: by coordinates, labels and nested lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import gridref
from gridref.api.layout.labels import LabelPattern
from gridref.errors import CombineError, InvalidRequestError
from gridref.faces.cli import app
from tests.by_name import by_name

DAYS = {"units": "days since 2001-01-01", "calendar": "standard"}


def month(number: int, first: int, n: int = 3, **attrs: Any) -> xr.Dataset:
    """Some days of one member of an ensemble."""
    values = (100 * number + np.arange(first, first + n)[:, None] + np.arange(2) / 10).astype("f4")
    times = ("time", np.arange(first, first + n), DAYS)
    return xr.Dataset({"t": (("time", "x"), values)}, {"time": times, "x": [0, 1]}, attrs)


def ensemble(folder: Path, name: str = "m{member:02d}_{first:03d}.nc") -> xr.Dataset:
    """Files of three members, one of which ends early; and the values of all together."""
    for member in (1, 2, 3):
        for first in (0, 3, 6) if member != 2 else (0, 3):
            path = folder / name.format(member=member, first=first)
            path.parent.mkdir(parents=True, exist_ok=True)
            ds = month(member, first, member=member)
            ds.to_netcdf(path, unlimited_dims=["time"])
    whole = xr.concat(
        [xr.concat([month(m, f) for f in (0, 3, 6)], "time") for m in (1, 2, 3)], "member"
    )
    values = whole["t"].values.copy()
    values[1, 6:] = np.nan
    return whole.assign(t=(whole["t"].dims, values)).assign_coords(member=[1, 2, 3])


def shown(catalog: Path) -> xr.Dataset:
    with xr.open_dataset(catalog, decode_times=False) as ds:
        return ds.load()


def assert_same(catalog: Path, expected: xr.Dataset) -> None:
    ds = shown(catalog)
    assert ds["t"].dims == expected["t"].dims
    np.testing.assert_array_equal(ds["t"].values, expected["t"].values)
    for dim in expected.dims:
        np.testing.assert_array_equal(ds[dim].values, expected[dim].values)


@pytest.mark.parametrize(
    "options",
    [
        {"concat_dim": ["member", "time"], "pattern": "m{member:d}_"},
        {"concat_dim": ["member", "time"], "labels": {"member": "attribute:member"}},
        {"pattern": "m{member:d}"},
        {"labels": {"member": lambda file: int(Path(file).name[1:3])}},
        {"labels": lambda file: {"member": int(Path(file).name[1:3])}},
    ],
)
def test_members_by_times_with_holes(tmp_path: Path, options: dict[str, Any]) -> None:
    expected = ensemble(tmp_path)
    files = sorted(tmp_path.glob("*.nc"))[::-1]
    group = gridref.build(files, tmp_path / "cube.gridref", **by_name(**options))
    assert_same(tmp_path / "cube.gridref", expected)
    (hole,) = [drift for drift in group.report.drifts if drift["cause"] == "hole"]
    assert "member 2, time 2001-01-07 to 2001-01-09" in hole["value"]
    assert gridref.verify(tmp_path / "cube.gridref", all=True).ok


def test_the_same_on_the_command_line_over_directories(tmp_path: Path) -> None:
    expected = ensemble(tmp_path, "run{member}/day{first}.nc")
    files = [str(path) for path in tmp_path.glob("run*/*.nc")]
    catalog = tmp_path / "cube.gridref"
    arguments = ["--pattern", "run{member:d}/day{_:d}.nc", "--concat-dim", "member"]
    done = CliRunner().invoke(
        app, ["build", *files, *arguments, "--concat-dim", "time", "-o", str(catalog)]
    )
    assert done.exit_code == 0, done.output
    assert_same(catalog, expected)
    done = CliRunner().invoke(
        app, ["plan", *files, "--labels", "member=attribute:member"], env={"COLUMNS": "200"}
    )
    assert "nothing for (member 2, time 2001-01-07 to 2001-01-09)" in done.output
    lines = [line.split() for line in done.output.splitlines()]
    assert ["t", "time", "2001-01-01", "...", "2001-01-07"] in lines
    assert [line for line in lines if line[:1] == ["member"] and len(line) == 3] == [
        ["member", "1", "■■■"],
        ["member", "2", "■■·"],
        ["member", "3", "■■■"],
    ]


def test_nested_lists(tmp_path: Path) -> None:
    expected = ensemble(tmp_path)
    rows = [sorted(map(str, tmp_path.glob(f"m0{m}_*.nc"))) for m in (1, 3)]
    catalog = tmp_path / "cube.gridref"
    gridref.build(rows, catalog, ["member", "time"], layout="nested")
    np.testing.assert_array_equal(shown(catalog)["t"].values, expected["t"].values[[0, 2]])
    with pytest.raises(InvalidRequestError, match="2 dimensions take lists of lists"):
        gridref.plan(rows[0], ["member", "time"], layout="nested")
    with pytest.raises(InvalidRequestError, match="nested deeper"):
        gridref.plan(rows, "time", layout="nested")


def test_appended_files_fill_holes_and_add_members(tmp_path: Path) -> None:
    expected = ensemble(tmp_path)
    files = sorted(tmp_path.glob("*.nc"))
    catalog = tmp_path / "cube.gridref"
    late = [path for path in files if path.name.startswith("m03") or path.name == "m01_000.nc"]
    gridref.build(
        [path for path in files if path not in late], catalog, layout=gridref.Labels("m{member:d}")
    )
    gridref.open_catalog(catalog).append(late)
    assert_same(catalog, expected)
    gridref.open_catalog(catalog).remove(files[0])
    expected["t"][{"member": 0, "time": slice(0, 3)}] = np.nan
    assert_same(catalog, expected)


def test_one_variable_a_file_is_merged(tmp_path: Path) -> None:
    for name in ("pr", "tas"):
        for first in (0, 3):
            ds = month(1, first).rename(t=name)
            (ds if name == "pr" else -ds[name].to_dataset()).to_netcdf(
                tmp_path / f"{name}_{first}.nc"
            )
    catalog = tmp_path / "cube.gridref"
    gridref.build(tmp_path / "*.nc", catalog, layout="by_coords")
    with xr.open_mfdataset(sorted(tmp_path.glob("*.nc")), decode_times=False) as expected:
        xr.testing.assert_equal(shown(catalog), expected.load())


def test_the_same_month_twice_is_a_problem_that_names_files_and_way_out(tmp_path: Path) -> None:
    ensemble(tmp_path)
    month(1, 0).to_netcdf(tmp_path / "m01_again.nc")
    options = {"pattern": "m{member:d}_"}
    with pytest.raises(CombineError, match=r"member 1, time 2001-01-01 to 2001-01-03") as caught:
        gridref.build(tmp_path / "*.nc", tmp_path / "cube.gridref", **by_name(**options))
    assert "m01_again.nc" in str(caught.value)
    assert "overlap='first' or overlap='last'" in str(caught.value)
    gridref.build(
        tmp_path / "*.nc", tmp_path / "cube.gridref", **by_name(overlap="first", **options)
    )


@pytest.mark.parametrize(
    ("pattern", "names", "expected"),
    [
        (
            "{model}_{member:d}_{time:%Y%m}.nc",
            ["tas_ACCESS-CM2_3_200102.nc", "tas_MPI_12_200101.nc"],
            [
                {"model": "ACCESS-CM2", "member": 3, "time": 980985600},
                {"model": "MPI", "member": 12, "time": 978307200},
            ],
        ),
        (
            "{model}/{time:%Y}/{time:%m%d}.nc",
            ["/d/A/2001/0102.nc"],
            [{"model": "A", "time": 978393600}],
        ),
        ("{run}/{run}_{step:duration}.nc", ["/d/a1/a1_PT6H.nc"], [{"run": "a1", "step": 21600}]),
        ("z{height:f}.", ["z1.5.nc", "z-20..nc"], [{"height": 1.5}, {"height": -20.0}]),
        ("r{run}.nc", ["r07.nc", "r10.nc"], [{"run": 7}, {"run": 10}]),
        ("r{run}.nc", ["r07.nc", "rx.nc"], [{"run": "07"}, {"run": "x"}]),
        ("{name:s}.nc", ["a.b_c.nc"], [{"name": "a.b_c"}]),
    ],
)  # fmt: skip
def test_patterns_of_several_fields(
    pattern: str, names: list[str], expected: list[dict[str, Any]]
) -> None:
    assert LabelPattern.parse(pattern).of_names(names) == expected


def test_names_that_only_nearly_match_are_listed(tmp_path: Path) -> None:
    names = ["a_1_2001.nc", "a_one_2001.nc", "a-1-2001.nc", *(f"b{n}.nc" for n in range(5))]
    with pytest.raises(InvalidRequestError) as caught:
        LabelPattern.parse("a_{member:d}_{time:%Y}.nc").of_names(names)
    text = str(caught.value)
    assert " of 8 do not match '" in text
    assert text.count("do not match") == 1
    assert "'a_one_2001.nc', " in text
    assert "'a-1-2001.nc'" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": {"member": "attr:x"}}, "are from attribute:..."),
        ({"labels": {"member": "attribute:nothing"}}, "no attribute 'nothing'; it has member"),
        ({"labels": {"member": "variable:t"}}, "more than one value of 't'"),
        ({"labels": lambda file: 3}, "it must return a label for each dimension"),
        ({"concat_dim": ["time"], "pattern": "m{member:d}"}, "labels for member, but"),
        ({"pattern": "m{member:x}"}, "a field is 'd', 'f'"),
        ({"concat_dim": ["member", "time"], "combine": "by_coords"}, "place it along 'member'"),
        ({"combine": "nested", "stack": "member"}, "to different layouts"),
        ({"pattern": "m{member:d}", "overlap": "keep"}, "only one file can be shown"),
        ({"concat_dim": "time", "combine": "by_coords", "overlap": "keep"}, "only one file can"),
        ({"combine": "by_coords", "overlap": "keep"}, "only one file can be shown"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    ensemble(tmp_path)
    with pytest.raises((InvalidRequestError, CombineError), match=message):
        gridref.build(tmp_path / "*.nc", tmp_path / "cube.gridref", **by_name(**options))


@pytest.fixture
def forecasts(tmp_path: Path) -> tuple[Path, np.ndarray]:
    values = np.arange(2 * 3 * 4, dtype="f8").reshape(2, 3, 4)
    for run, init in enumerate(("2001010100", "2001010112")):
        for step in range(3):
            ds = xr.Dataset({"t": ("x", values[run, step])})
            ds.to_netcdf(tmp_path / f"fc_{init}_PT{6 * step}H.nc")
    return tmp_path, values


def test_forecasts_by_init_and_step(forecasts: tuple[Path, np.ndarray]) -> None:
    folder, values = forecasts
    pattern = "fc_{init:%Y%m%d%H}_{step:duration}.nc"
    gridref.build(folder / "*.nc", folder / "cube.gridref", layout=gridref.Labels(pattern))
    with xr.open_dataset(folder / "cube.gridref", decode_timedelta=True) as ds:
        assert ds["t"].dims == ("init", "step", "x")
        np.testing.assert_array_equal(ds["t"].values, values)
        steps = np.array([0, 6, 12], "m8[h]").astype("m8[ns]")
        np.testing.assert_array_equal(ds["step"].values.astype("m8[ns]"), steps)
        inits = np.array(["2001-01-01T00", "2001-01-01T12"], "M8[ns]")
        np.testing.assert_array_equal(ds["init"].values.astype("M8[ns]"), inits)


def test_the_same_as_an_xarray_dataset(tmp_path: Path) -> None:
    expected = ensemble(tmp_path)
    options: dict[str, Any] = {"layout": gridref.Labels("m{member:d}_"), "decode_times": False}
    for chosen in ({"concat_dim": ["member", "time"]}, {}):
        ds = gridref.open_virtual_mfdataset(tmp_path / "*.nc", **chosen, **options)
        ds.gridref.save(tmp_path / "cube.gridref")
        assert_same(tmp_path / "cube.gridref", expected)
    scalars = [f"{name}_{n}.nc" for n, name in enumerate("ab")]
    for number, name in enumerate(scalars):
        month(number, 0).assign_coords(run=number).to_netcdf(tmp_path / name)
    files = [tmp_path / name for name in scalars]
    ds = gridref.open_virtual_mfdataset(files, ["run", "time"], decode_times=False)
    with xr.open_mfdataset(
        files, combine="nested", concat_dim="run", decode_times=False, data_vars="all"
    ) as both:
        ds.gridref.save(tmp_path / "runs.gridref")
        np.testing.assert_array_equal(shown(tmp_path / "runs.gridref")["t"], both["t"])


def test_members_of_different_calendars_are_a_problem(tmp_path: Path) -> None:
    for member, calendar in enumerate(("standard", "noleap")):
        ds = month(member, 0)
        ds["time"].attrs["calendar"] = calendar
        ds.to_netcdf(tmp_path / f"m{member}.nc")
    with pytest.raises(CombineError, match="calendars differ"):
        gridref.build(
            tmp_path / "*.nc", tmp_path / "cube.gridref", layout=gridref.Labels("m{member:d}")
        )


@pytest.mark.parametrize("jobs", [1, 2])
def test_files_along_a_named_dimension_lie_by_their_labels(tmp_path: Path, jobs: int) -> None:
    months = {"jan": 0, "feb": 31, "mar": 59, "apr": 90}
    for number, (name, first) in enumerate(months.items()):
        days = {"units": f"days since 2001-{number + 1:02}-01"}
        ds = month(0, first).assign_coords(time=("time", np.arange(3), days))
        ds.to_netcdf(tmp_path / f"{name}.nc", unlimited_dims=["time"])
    given = [tmp_path / f"{name}.nc" for name in ("apr", "jan", "mar", "feb")]
    out = tmp_path / "c.gridref"
    gridref.build(given, out, "time", run=gridref.RunOptions(executor=jobs))
    with (
        xr.open_dataset(out) as ds,
        xr.open_mfdataset(given, combine="by_coords") as expected,
    ):
        xr.testing.assert_equal(ds.load(), expected.load())
    gridref.build(
        given,
        tmp_path / "given.gridref",
        "time",
        order="given",
        run=gridref.RunOptions(executor=jobs),
    )
    with (
        xr.open_dataset(tmp_path / "given.gridref") as ds,
        xr.open_mfdataset(given, combine="nested", concat_dim="time") as expected,
    ):
        xr.testing.assert_equal(ds.load(), expected.load())
    run = CliRunner().invoke(
        app, ["plan", *map(str, given), "--concat-dim", "time", "--order", "given"]
    )
    assert "order kept" in run.output


def test_a_catalog_in_the_given_order_stays_in_it(tmp_path: Path) -> None:
    for first in (0, 3, 6, 9):
        month(0, first).to_netcdf(tmp_path / f"{first}.nc", unlimited_dims=["time"])
    files = [tmp_path / f"{first}.nc" for first in (6, 0)]
    gridref.build(files, tmp_path / "c", "time", order="given")
    catalog = gridref.open_catalog(tmp_path / "c").append(tmp_path / "3.nc")
    assert catalog["time"][...].tolist() == [6, 7, 8, 0, 1, 2, 3, 4, 5]
    catalog = catalog.replace(tmp_path / "0.nc", tmp_path / "9.nc")
    assert catalog["time"][...].tolist() == [6, 7, 8, 9, 10, 11, 3, 4, 5]
    assert catalog["t"][:, 0].tolist() == catalog["time"][...].tolist()


def test_the_given_order_is_of_files_along_one_dimension(tmp_path: Path) -> None:
    month(0, 0).to_netcdf(tmp_path / "a.nc")
    for options in ({}, {"concat_dim": ["a", "b"]}, {"concat_dim": "time", "combine": "by_coords"}):
        with pytest.raises(InvalidRequestError, match="along one dimension"):
            gridref.build([tmp_path / "a.nc"], tmp_path / "c", **by_name(order="given", **options))


def runs_of_steps(folder: Path, dims: tuple[str, ...] = ()) -> list[list[Path]]:
    """Files of two runs and three steps as xarray writes them, in rows of one run each."""
    rows = []
    for hours in (0, 6):
        run, row = np.datetime64("2022-03-01", "ns") + np.timedelta64(hours, "h"), []
        for ahead in (0, 1, 2):
            step = np.timedelta64(ahead, "h").astype("m8[ns]")
            values = np.full((2, 3), 100.0 * hours + ahead)
            coords = {"time": run, "step": step, "valid_time": run + step}
            ds = xr.Dataset({"t2m": (("y", "x"), values)}, coords).expand_dims(dims)
            row.append(folder / f"fc_{hours:02}_{ahead}.nc")
            ds.to_netcdf(row[-1])
        rows.append(row)
    return rows


@pytest.mark.parametrize("dims", [(), ("time", "step")])
def test_forecasts_lie_along_runs_and_steps(tmp_path: Path, dims: tuple[str, ...]) -> None:
    rows = runs_of_steps(tmp_path, dims)
    catalog = tmp_path / "c.gridref"
    group = gridref.build(tmp_path / "*.nc", catalog)
    assert "concat_dim=['time', 'step']" in group.report.lines[0]
    with xr.open_dataset(catalog, engine="gridref", decode_timedelta=True) as found:
        assert found["t2m"].dims == ("time", "step", "y", "x")
        for file in [file for row in rows for file in row]:
            with xr.open_dataset(file, decode_timedelta=True) as ds:
                own = ds.squeeze()
                there = found.sel(time=own["time"], step=own["step"])
                np.testing.assert_array_equal(there["t2m"].values, own["t2m"].values)
                assert there["valid_time"].values == own["valid_time"].values
    assert gridref.verify(catalog, all=True).ok


def test_a_valid_time_that_is_no_sum_is_a_label(tmp_path: Path) -> None:
    """Times that are not those of run and step say where files lie as any other does."""
    for number, row in enumerate(zip(*runs_of_steps(tmp_path), strict=True)):
        for file in row:
            ds = xr.load_dataset(file, decode_timedelta=True)
            late = ds["valid_time"] + np.timedelta64(number * number, "D")
            ds.assign_coords(valid_time=late).to_netcdf(file)
    group = gridref.build(tmp_path / "*.nc", tmp_path / "c.gridref", layout="first")
    assert "valid_time" in group.report.lines[0]
