"""Plans as contracts, lists of files, and what a catalog says of files that were left out."""

from __future__ import annotations

import json
from pathlib import Path

import netCDF4
import numpy as np
import pytest

import gridref
from gridref.errors import CombineError, InvalidRequestError, SkippedFilesWarning
from tests.command import run_command


def write(path: Path, day: int, units: str = "K", dtype: str = "f4", extra: bool = False) -> None:
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
def archive(tmp_path: Path) -> Path:
    for day in range(3):
        write(tmp_path / f"{day}.nc", day)
    return tmp_path


def saved_plan(archive: Path) -> Path:
    done = run_command("plan", archive, "--concat-dim", "time", "--json", "-q")
    assert done.returncode == 0, done.stderr
    path = archive / "plan.json"
    path.write_text(done.stdout)
    return path


def test_what_is_as_planned_is_built(archive: Path) -> None:
    plan = saved_plan(archive)
    write(archive / "3.nc", 3)
    options = ["--concat-dim", "time", "--expect", plan]
    assert run_command("plan", archive, *options).returncode == 0
    done = run_command("build", archive, "-o", archive / "a.gridref", *options)
    assert done.returncode == 0, done.stderr
    assert gridref.open_catalog(archive / "a.gridref")["tas"][...].tolist() == [0, 1, 2, 3]


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"extra": True}, "a variable is new"),
        ({"dtype": "f8"}, "dtype were float32, and are float64"),
    ],
)
def test_what_is_not_is_a_list_and_an_exit_status(
    archive: Path, change: dict[str, object], told: str
) -> None:
    plan = saved_plan(archive)
    for day in range(4):
        write(archive / f"{day}.nc", day, **change)  # type: ignore[arg-type]
    options = ["--concat-dim", "time", "--expect", plan]
    planned = run_command("plan", archive, "--json", *options)
    assert planned.returncode == 1
    problems = json.loads(planned.stdout)["problems"]
    assert {problem["cause"] for problem in problems} == {"unexpected"}
    assert any(told in problem["message"] for problem in problems)
    done = run_command("build", archive, "-o", archive / "a.gridref", *options)
    assert done.returncode != 0
    assert told in done.stderr.replace("\n", " ")
    assert not (archive / "a.gridref").exists()


def test_a_new_drift_is_unexpected_and_a_known_one_is_not(archive: Path) -> None:
    write(archive / "3.nc", 3, dtype="f8")
    plan = json.loads(saved_plan(archive).read_text())
    write(archive / "4.nc", 4, dtype="f8")
    gridref.build(archive, archive / "a.gridref", "time", expect=plan)
    plan["drifts"] = [drift for drift in plan["drifts"] if drift["variable"] != "tas"]
    with pytest.raises(CombineError, match="a new drift"):
        gridref.build(archive, archive / "b.gridref", "time", expect=plan)
    today = gridref.plan(archive, "time", expect=plan)
    assert [problem.variable for problem in today.problems] == ["tas"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"drifts": [{}], "arrays": {}}', None])
def test_what_is_no_plan_is_refused(archive: Path, text: str | None) -> None:
    path = archive / "plan.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidRequestError, match="expect="):
        gridref.plan(archive, "time", expect=path)


def test_files_from_a_list(archive: Path) -> None:
    names = [str(archive / f"{day}.nc") for day in range(3)]
    catalog = archive / "a.gridref"
    options = ["--concat-dim", "time", "--overwrite", "-o", catalog]
    done = run_command("build", "--files-from", "-", *options, stdin="\n".join([*names, "", ""]))
    assert done.returncode == 0, done.stderr
    assert gridref.open_catalog(catalog)["tas"][...].tolist() == [0, 1, 2]
    (archive / "list.txt").write_text(names[1] + "\n")
    done = run_command("build", names[0], "--files-from", archive / "list.txt", *options)
    assert done.returncode == 0, done.stderr
    assert gridref.open_catalog(catalog)["tas"][...].tolist() == [0, 1]
    missing = run_command("plan", "--files-from", archive / "none.txt")
    assert missing.returncode != 0
    assert "--files-from" in missing.stderr
    assert "--files-from" in run_command("plan").stderr


def test_a_catalog_names_the_files_that_were_left_out(archive: Path) -> None:
    (archive / "9.nc").write_bytes(b"CDF\x01")
    with pytest.warns(SkippedFilesWarning):
        gridref.build(
            archive, archive / "a.gridref", "time", run=gridref.RunOptions(on_error="skip")
        )
    catalog = gridref.open_catalog(archive / "a.gridref")
    (skipped,) = catalog.info.extra["skipped_files"]
    assert skipped["file"] == str(archive / "9.nc")
    assert "NetCDF3 header is cut off" in skipped["reason"]
    gridref.build([archive / "0.nc"], archive / "b.gridref")
    assert "skipped_files" not in gridref.open_catalog(archive / "b.gridref").info.extra
    np.testing.assert_array_equal(catalog["tas"][...], [0, 1, 2])
