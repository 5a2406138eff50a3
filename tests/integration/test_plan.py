"""``gridref plan``: what combining would do, without writing anything."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import gridref
from gridref.faces.cli import app
from gridref.model.array import VirtualArray


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
    assert rest[-1] == "5 files, 2 drifts, 0 problems"


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
