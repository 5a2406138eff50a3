"""What ``gridref plan``, builds and changes say, and plans as contracts."""

from __future__ import annotations

import json
import pickle
import shutil
import warnings
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import gridref
from gridref.errors import CombineError, InvalidRequestError, LeftOutWarning, SkippedFilesWarning
from gridref.faces.cli import app
from gridref.model.array import VirtualArray
from tests.by_name import by_name
from tests.command import run_command


def write(path: Path, day: int, *, scale: float = 0.5, **attrs: str) -> Path:
    ds = xr.Dataset(
        {
            "t": ("time", [280.0, 281.0], attrs),
            "plain": ("time", np.float32([day, day + 1])),
            "lat": ((), 5.0),
        },
        {"time": ("time", [day, day + 1], {"units": "days since 2000-01-01"})},
    )
    packing = {"dtype": "i2", "scale_factor": scale, "_FillValue": -1}
    ds.to_netcdf(path, encoding={"t": packing})
    return path


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    scales = [0.5, 0.5, 0.5, 2.0, 2.0]
    return [str(write(tmp_path / f"{k}.nc", 2 * k, scale=scale)) for k, scale in enumerate(scales)]


def plan(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["plan", *arguments], env={"COLUMNS": "200"})
    return done.exit_code, done.output


def test_a_plan_shows_the_cube_each_drift_with_its_files_and_the_views(files: list[str]) -> None:
    status, text = plan(*files, "--concat-dim", "time", "--all")
    assert status == 0
    assert "5 files, 1 drift, 0 problems" in text
    (row,) = [line for line in text.splitlines() if "packing" in line and "files 1 to 3" in line]
    assert "scale_factor 0.5" in row
    assert "each file is unpacked with its own numbers" in text
    assert "file 4 onward: scale_factor 2" in text
    views = {line.split()[0]: line for line in text.splitlines() if line.split()[:1] != []}
    assert "native" in views["plain"]
    assert "portable" in views["t"]
    assert "decoded on the way: t (" in text


def test_a_plan_in_short(files: list[str]) -> None:
    status, text = plan(*files)
    assert status == 0
    first, heads, sizes, *rest = [" ".join(line.split()) for line in text.splitlines()]
    assert first == "laid out by --concat-dim time (coordinates differ along time)"
    assert (heads, sizes) == ("group dimensions arrays", "/ time: 10 4")
    assert "t, plain time 0 ... 8" in rest
    assert "■■■■■" in rest
    (packing,) = [
        line for line in rest if line.startswith("packing t file 4 onward: scale_factor 2")
    ]
    assert "each file is unpacked with its own numbers" in packing
    assert rest[-1] == "5 files, 1 drift, 0 problems"


def test_a_plan_draws_each_layout_that_is_possible(tmp_path: Path) -> None:
    for n in (5, 7):
        xr.Dataset({"t": ("x", np.arange(float(n)))}).to_netcdf(tmp_path / f"r{n}.nc")
    status, text = plan(str(tmp_path / "*.nc"))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert status == 1
    assert lines.index("1: --layout ragged") < lines.index("2: --layout padded")
    assert "t x 0 ... 5" in lines[: lines.index("2: --layout padded")]
    assert "instance 0 ■·" in lines[lines.index("2: --layout padded") :]


def test_a_plan_for_machines(files: list[str]) -> None:
    status, text = plan(*files, "--concat-dim", "time", "--json")
    assert status == 0
    document = json.loads(text)
    assert document["files"] == files
    assert document["problems"] == []
    (drift,) = document["drifts"]
    assert (drift["cause"], drift["variable"]) == ("packing", "t")
    assert [case["files"] for case in drift["cases"]] == [[[0, 2]], [[3, 4]]]
    assert document["arrays"]["t"]["shape"] == [10]
    assert document["arrays"]["t"]["view"] == "portable"
    assert document["arrays"]["t"]["reason"]
    assert document["arrays"]["plain"]["view"] == "native"


def test_problems_set_the_exit_status(files: list[str], tmp_path: Path) -> None:
    odd = str(write(tmp_path / "odd.nc", 20, units="degC"))
    other = str(write(tmp_path / "other.nc", 22, units="K"))
    status, text = plan(*files, odd, other, "--concat-dim", "time")
    assert status == 1
    assert "- t: units differ: none in" in text
    assert "degC in" in text
    status, text = plan(*files, odd, other, "--concat-dim", "time", "--json")
    assert status == 1
    (problem,) = json.loads(text)["problems"]
    assert problem["cause"] == "units-differ"
    assert problem["files"]


def test_explaining_reads_no_values_where_no_rule_needs_them(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    reader = gridref.api.opening.reader_for()

    class Counting:
        def read(self, array: VirtualArray) -> np.ndarray:
            read.extend(array.dims or ("scalar",))
            return reader.read(array)

    monkeypatch.setattr("gridref.faces.xarray.opening.reader_for", lambda _: Counting())
    result = gridref.plan(files, "time")
    assert result.problems == ()
    assert result.report.of_cause("packing")
    # Labels are compared, and the variable without the dimension; t and plain are not read.
    assert len(read) <= 2 * len(files)
    assert not any(path.suffix == ".gridref" for path in Path(files[0]).parent.iterdir())


def write_day(
    path: Path, day: int, units: str = "K", dtype: str = "f4", extra: bool = False
) -> None:
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createVariable("time", "f8", ("time",)).units = "days since 2000-01-01"
        file["time"][:] = [day]
        names = ["tas", "pr"] if extra else ["tas"]
        for name in names:
            file.createVariable(name, dtype, ("time",)).units = units
            file[name][:] = [day]
        file.history = f"day {day}"


@pytest.fixture
def three_days(tmp_path: Path) -> Path:
    for day in range(3):
        write_day(tmp_path / f"{day}.nc", day)
    return tmp_path


def saved_plan(archive: Path) -> Path:
    done = run_command("plan", archive, "--concat-dim", "time", "--json", "-q")
    assert done.returncode == 0, done.stderr
    path = archive / "plan.json"
    path.write_text(done.stdout)
    return path


def test_what_is_as_planned_is_built(three_days: Path) -> None:
    plan = saved_plan(three_days)
    write_day(three_days / "3.nc", 3)
    options = ["--concat-dim", "time", "--expect", plan]
    assert run_command("plan", three_days, *options).returncode == 0
    done = run_command("build", three_days, "-o", three_days / "a.gridref", *options)
    assert done.returncode == 0, done.stderr
    assert gridref.open_catalog(three_days / "a.gridref")["tas"][...].tolist() == [0, 1, 2, 3]


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"extra": True}, "a variable is new"),
        ({"dtype": "f8"}, "dtype were float32, and are float64"),
    ],
)
def test_what_is_not_is_a_list_and_an_exit_status(
    three_days: Path, change: dict[str, object], told: str
) -> None:
    plan = saved_plan(three_days)
    for day in range(4):
        write_day(three_days / f"{day}.nc", day, **change)  # type: ignore[arg-type]
    options = ["--concat-dim", "time", "--expect", plan]
    planned = run_command("plan", three_days, "--json", *options)
    assert planned.returncode == 1
    problems = json.loads(planned.stdout)["problems"]
    assert {problem["cause"] for problem in problems} == {"unexpected"}
    assert any(told in problem["message"] for problem in problems)
    done = run_command("build", three_days, "-o", three_days / "a.gridref", *options)
    assert done.returncode != 0
    assert told in done.stderr.replace("\n", " ")
    assert not (three_days / "a.gridref").exists()


def test_a_new_drift_is_unexpected_and_a_known_one_is_not(three_days: Path) -> None:
    write_day(three_days / "3.nc", 3, dtype="f8")
    plan = json.loads(saved_plan(three_days).read_text())
    write_day(three_days / "4.nc", 4, dtype="f8")
    gridref.build(three_days, three_days / "a.gridref", "time", expect=plan)
    plan["drifts"] = [drift for drift in plan["drifts"] if drift["variable"] != "tas"]
    with pytest.raises(CombineError, match="a new drift"):
        gridref.build(three_days, three_days / "b.gridref", "time", expect=plan)
    today = gridref.plan(three_days, "time", expect=plan)
    assert [problem.variable for problem in today.problems] == ["tas"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"drifts": [{}], "arrays": {}}', None])
def test_what_is_no_plan_is_refused(three_days: Path, text: str | None) -> None:
    path = three_days / "plan.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidRequestError, match="expect="):
        gridref.plan(three_days, "time", expect=path)


def test_files_from_a_list(three_days: Path) -> None:
    names = [str(three_days / f"{day}.nc") for day in range(3)]
    catalog = three_days / "a.gridref"
    options = ["--concat-dim", "time", "--overwrite", "-o", catalog]
    done = run_command("build", "--files-from", "-", *options, stdin="\n".join([*names, "", ""]))
    assert done.returncode == 0, done.stderr
    assert gridref.open_catalog(catalog)["tas"][...].tolist() == [0, 1, 2]
    (three_days / "list.txt").write_text(names[1] + "\n")
    done = run_command("build", names[0], "--files-from", three_days / "list.txt", *options)
    assert done.returncode == 0, done.stderr
    assert gridref.open_catalog(catalog)["tas"][...].tolist() == [0, 1]
    missing = run_command("plan", "--files-from", three_days / "none.txt")
    assert missing.returncode != 0
    assert "--files-from" in missing.stderr
    assert "--files-from" in run_command("plan").stderr


def test_a_catalog_names_the_files_that_were_left_out(three_days: Path) -> None:
    (three_days / "9.nc").write_bytes(b"CDF\x01")
    with pytest.warns(SkippedFilesWarning):
        gridref.build(
            three_days, three_days / "a.gridref", "time", run=gridref.RunOptions(on_error="skip")
        )
    catalog = gridref.open_catalog(three_days / "a.gridref")
    (skipped,) = catalog.info.extra["skipped_files"]
    assert skipped["file"] == str(three_days / "9.nc")
    assert "NetCDF3 header is cut off" in skipped["reason"]
    gridref.build([three_days / "0.nc"], three_days / "b.gridref")
    assert "skipped_files" not in gridref.open_catalog(three_days / "b.gridref").info.extra
    np.testing.assert_array_equal(catalog["tas"][...], [0, 1, 2])


def day(folder: Path, number: int, **variables: Any) -> Path:
    path = folder / f"{number:02}.nc"
    attrs = {"units": "days since 2001-01-01"}
    hours = ("time", number + np.arange(4) / 4, attrs)
    values = {"t": (("time", "x"), np.full((4, 2), float(number))), **variables}
    xr.Dataset(values, {"time": hours}).to_netcdf(path)
    return path


@pytest.fixture
def four_days(tmp_path: Path) -> list[Path]:
    (folder := tmp_path / "days").mkdir()
    return [day(folder, number) for number in range(4)]


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", LeftOutWarning)
        yield


def lines_of(done: Any, *beyond: str) -> list[str]:
    """What a command says, but for the lines that begin with some words."""
    assert done.returncode == 0, done.stderr
    return [line for line in done.stderr.splitlines() if line and not line.startswith(beyond)]


def test_build_append_and_replace_say_what_they_did(four_days: list[Path], tmp_path: Path) -> None:
    catalog = tmp_path / "c.gridref"
    options = ["--concat-dim", "time", "-o", catalog, "-q"]
    done = run_command("build", four_days[2], four_days[0], four_days[0], *options)
    order = "in the order of its labels, 2001-01-01 to 2001-01-03T18:00:00"
    said = [
        f"laid out by --concat-dim time, {order}",
        f"given more than once, and taken once: {four_days[0]}",
        f"1 drift resolved: gap (1); gridref list {catalog} report lists them",
    ]
    assert lines_of(done, str(catalog)) == said
    group = gridref.build(
        [four_days[2], four_days[0], four_days[0]], tmp_path / "d.gridref", "time"
    )
    spelled = [line.replace("--concat-dim time", "concat_dim='time'") for line in said]
    assert list(group.report.lines) == [line.replace("c.gridref", "d.gridref") for line in spelled]

    done = run_command("append", catalog, four_days[1], four_days[0], "-q")
    assert lines_of(done, str(catalog)) == [
        f"append {four_days[1]}",
        f"laid out by --concat-dim time, {order}",
        f"skipped {four_days[0]}: it is already in the catalog",
    ]
    grown = gridref.open_catalog(catalog).replace(four_days[1], four_days[3])
    assert grown.report.lines[0] == f"replace {four_days[1]}, by {four_days[3]}"
    report = run_command("list", catalog, "report")
    assert "gap" in report.stdout


@pytest.mark.parametrize(
    ("options", "order"),
    [
        ({"order": "given"}, "in the given order"),
        ({"combine": "by_coords"}, "in the order of its labels"),
        ({"combine": "nested"}, "in the given order"),
    ],
)
def test_the_order_is_said(
    four_days: list[Path], tmp_path: Path, options: dict[str, Any], order: str
) -> None:
    asked = by_name(concat_dim="time", **options)
    group = gridref.build([four_days[1], four_days[0]], tmp_path / "c.gridref", **asked)
    assert group.report.lines[0].endswith(f", {order}")


def test_labels_that_say_no_order_are_said(tmp_path: Path) -> None:
    for name, labels in (("a", [3.0, 1.0]), ("b", [2.0, 0.0]), ("c", [4.0, 5.0])):
        xr.Dataset({"v": ("x", [1, 2])}, {"x": labels}).to_netcdf(tmp_path / f"{name}.nc")
        xr.Dataset({"v": ("x", [1, 2])}).to_netcdf(tmp_path / f"bare_{name}.nc")
    files = [tmp_path / "a.nc", tmp_path / "c.nc"]
    group = gridref.build(files, tmp_path / "1.gridref", "x")
    assert group.report.lines[0].endswith("in the given order (labels are out of order)")
    group = gridref.build(tmp_path / "bare_*.nc", tmp_path / "2.gridref", "x")
    assert group.report.lines[0].endswith("in the given order (nothing labels it)")


def test_labels_are_not_shown_as_they_are_packed(tmp_path: Path) -> None:
    packing = {"x": {"dtype": "i4", "add_offset": 100.0, "_FillValue": None}}
    for first in (0, 2):
        labels = {"x": [100.0 + first, 101.0 + first]}
        file = tmp_path / f"{first}.nc"
        xr.Dataset({"v": ("x", [1, 2])}, labels).to_netcdf(file, encoding=packing)
    group = gridref.build(tmp_path / "*.nc", tmp_path / "c.gridref", "x")
    assert group.report.lines[0].endswith(", in the order of its labels")


def test_one_warning_says_what_was_left_out(four_days: list[Path], tmp_path: Path) -> None:
    day(four_days[0].parent, 4, extra=("time", [1.0, 2.0, 3.0, 4.0]))
    (four_days[0].parent / "05.nc").write_bytes(b"no NetCDF")
    files = sorted(four_days[0].parent.glob("*.nc"))
    with pytest.warns(LeftOutWarning, match="extra") as warned:
        group = gridref.build(
            files[:5], tmp_path / "a.gridref", "time", combine=gridref.CombineOptions(join="inner")
        )
    assert (len(warned), warned[0].filename) == (1, __file__)
    assert any(line.startswith("skipped /extra: ") for line in group.report.lines)
    options = {"join": "inner", "on_error": "skip"}
    with pytest.warns(SkippedFilesWarning, match=r"(?s)extra.*05\.nc") as warned:
        group = gridref.build(files, tmp_path / "b.gridref", "time", **by_name(**options))
    assert len(warned) == 1
    assert group.report.lines[-1].startswith(f"left out {files[5]}: ")


def test_a_catalog_that_is_there_is_replaced_when_asked_only(
    four_days: list[Path], tmp_path: Path
) -> None:
    catalog = tmp_path / "c.gridref"
    gridref.build(four_days[:2], catalog, "time")
    first = gridref.open_catalog(catalog).tag("first")
    with pytest.raises(InvalidRequestError, match="overwrite=True"):
        gridref.build(four_days, catalog, "time")
    refused = run_command("build", *four_days, "--concat-dim", "time", "-o", catalog)
    assert refused.returncode == 1
    assert "--overwrite" in refused.stderr
    assert gridref.open_catalog(catalog).info.digest == first.info.digest

    group = gridref.build(four_days, catalog, "time", overwrite=True, relative=True)
    assert group.report.lines[-1].startswith(f"replaced snapshot {first.info.snapshot}")
    gridref.build(four_days, tmp_path / "new.gridref", "time", relative=True)
    again, new = map(gridref.open_catalog, (catalog, tmp_path / "new.gridref"))
    assert again.info.digest == new.info.digest
    assert gridref.verify(catalog, all=True).ok
    assert again.history()[0].operation == "build"
    assert gridref.open_catalog(catalog, snapshot="first")["t"].shape == (8, 2)
    assert again.rollback()["t"].shape == (8, 2)
    assert gridref.open_catalog(catalog).append(day(four_days[0].parent, 9))["t"].shape == (12, 2)


def test_overwriting_forgets_what_was_declared_and_where_no_catalog_is_builds_one(
    four_days: list[Path], tmp_path: Path
) -> None:
    catalog = tmp_path / "c.gridref"
    gridref.build(four_days[:1], catalog, "time", overwrite=True)
    gridref.open_catalog(catalog).declare("time", np.array(["2001-02-01"], "M8[ns]"))
    gridref.build(four_days, catalog, "time", overwrite=True)
    assert not gridref.open_catalog(catalog).snapshot.pending
    shutil.rmtree(four_days[0].parent)
    assert gridref.open_catalog(catalog)["t"].shape == (16, 2)


def test_files_that_no_layout_fits_are_reported_with_the_layout_that_was_tried(
    tmp_path: Path,
) -> None:
    for day, units in enumerate(("K", "m", "K")):
        write(tmp_path / f"{day}.nc", 2 * day, units=units)
    found = "laid out by concat_dim='time' (coordinates differ along time): "
    advice = "if that is wrong, name the layout, or leave out the files that differ"
    with pytest.raises(CombineError) as caught:
        gridref.build(f"{tmp_path}/*.nc", tmp_path / "x.gridref")
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert str(error).splitlines()[-1] == f"  - {found}{advice}"
    done = run_command("build", ".", "-o", "x.gridref", cwd=tmp_path)
    assert done.returncode == 1
    head, why, _, layout, _ = done.stderr.splitlines()
    assert head == "error: 1 problem in combining:"
    assert why.startswith("  - t: units differ: K in 0.nc and 1 more; m in 1.nc; --convert-units")
    assert layout.startswith("  - laid out by --concat-dim time (coordinates differ along time): ")


def test_a_choice_of_layouts_names_the_one_that_was_tried_and_why_it_does_not_fit(
    tmp_path: Path,
) -> None:
    for day in range(3):
        write(tmp_path / f"{day}.nc", 2 * day)
    xr.Dataset({"p": (("a", "b"), np.zeros((2, 3)))}).to_netcdf(tmp_path / "other.nc")
    xr.Dataset({"t": (("time", "y"), np.zeros((2, 3)))}).to_netcdf(tmp_path / "wide.nc")
    done = run_command("build", ".", "-o", "x.gridref", cwd=tmp_path)
    assert done.returncode == 1
    head, why, choice, _ = done.stderr.splitlines()
    assert "5 files, and they do not fit together: choose one of these layouts" in head
    assert why.startswith("  (tried --concat-dim"), why
    assert "dimensions differ" in why
    assert choice.startswith("  --group-by kind")


@pytest.mark.parametrize("n_others", [2, 7])
def test_layouts_of_many_groups_are_few_lines(tmp_path: Path, n_others: int) -> None:
    def write_kind(name: str, x: int, time: int) -> None:
        variable = xr.Variable(("time", "x"), np.zeros((2, 4)))
        labels = {"time": np.arange(2) + time, "x": np.arange(4) + x}
        kind = {"kind": name.partition("_")[0]}
        xr.Dataset({"v": variable}, labels, kind).to_netcdf(tmp_path / f"{name}.nc")

    for number in range(2):
        for kind in "ab":  # of which nothing says how their x fits
            write_kind(f"{kind}_{number}", number, 2 * number)
        for kind in range(n_others):
            write_kind(f"k{kind}_{number}", 0, 0)
    asked = [str(tmp_path / "*.nc"), "--group-by", "kind"]
    done = run_command("build", *asked, "-o", tmp_path / "cube.gridref")
    lines = [line for line in done.stderr.splitlines() if "laid out by" in line]
    assert done.returncode == 1
    assert len(lines) == min(5, 1 + n_others)
    (of_both,) = (line for line in lines if "--concat-dim time" in line)
    assert "in a, b" in of_both
    assert ("more layouts, which gridref plan lists" in done.stderr) == (n_others > 4)
    planned = run_command("plan", *asked).stdout.splitlines()
    assert sum("laid out by" in line for line in planned) == 1 + n_others
