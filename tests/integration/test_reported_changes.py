"""What builds and changes say of what they did, to the command line and in Python alike."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.errors import InvalidRequestError, LeftOutWarning, SkippedFilesWarning
from tests.by_name import by_name
from tests.command import run_command


def day(folder: Path, number: int, **variables: Any) -> Path:
    path = folder / f"{number:02}.nc"
    attrs = {"units": "days since 2001-01-01"}
    hours = ("time", number + np.arange(4) / 4, attrs)
    values = {"t": (("time", "x"), np.full((4, 2), float(number))), **variables}
    xr.Dataset(values, {"time": hours}).to_netcdf(path)
    return path


@pytest.fixture
def days(tmp_path: Path) -> list[Path]:
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


def test_build_append_and_replace_say_what_they_did(days: list[Path], tmp_path: Path) -> None:
    catalog = tmp_path / "c.gridref"
    options = ["--concat-dim", "time", "-o", catalog, "-q"]
    done = run_command("build", days[2], days[0], days[0], *options)
    order = "in the order of its labels, 2001-01-01 to 2001-01-03T18:00:00"
    said = [
        f"laid out by --concat-dim time, {order}",
        f"given more than once, and taken once: {days[0]}",
        f"1 drift resolved: 1 gap (gridref list {catalog} report lists them)",
    ]
    assert lines_of(done, str(catalog)) == said
    group = gridref.build([days[2], days[0], days[0]], tmp_path / "d.gridref", "time")
    spelled = [line.replace("--concat-dim time", "concat_dim='time'") for line in said]
    assert list(group.report.lines) == [line.replace("c.gridref", "d.gridref") for line in spelled]

    done = run_command("append", catalog, days[1], days[0], "-q")
    assert lines_of(done, str(catalog)) == [
        f"append {days[1]}",
        f"laid out by --concat-dim time, {order}",
        f"skipped {days[0]}: it is already in the catalog",
    ]
    grown = gridref.open_catalog(catalog).replace(days[1], days[3])
    assert grown.report.lines[0] == f"replace {days[1]}, by {days[3]}"
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
    days: list[Path], tmp_path: Path, options: dict[str, Any], order: str
) -> None:
    asked = by_name(concat_dim="time", **options)
    group = gridref.build([days[1], days[0]], tmp_path / "c.gridref", **asked)
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


def test_one_warning_says_what_was_left_out(days: list[Path], tmp_path: Path) -> None:
    day(days[0].parent, 4, extra=("time", [1.0, 2.0, 3.0, 4.0]))
    (days[0].parent / "05.nc").write_bytes(b"no NetCDF")
    files = sorted(days[0].parent.glob("*.nc"))
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
    days: list[Path], tmp_path: Path
) -> None:
    catalog = tmp_path / "c.gridref"
    gridref.build(days[:2], catalog, "time")
    first = gridref.open_catalog(catalog).tag("first")
    with pytest.raises(InvalidRequestError, match="overwrite=True"):
        gridref.build(days, catalog, "time")
    refused = run_command("build", *days, "--concat-dim", "time", "-o", catalog)
    assert refused.returncode == 1
    assert "--overwrite" in refused.stderr
    assert gridref.open_catalog(catalog).info.digest == first.info.digest

    group = gridref.build(days, catalog, "time", overwrite=True, relative=True)
    assert group.report.lines[-1].startswith(f"replaced snapshot {first.info.snapshot}")
    gridref.build(days, tmp_path / "new.gridref", "time", relative=True)
    again, new = map(gridref.open_catalog, (catalog, tmp_path / "new.gridref"))
    assert again.info.digest == new.info.digest
    assert gridref.verify(catalog, all=True).ok
    assert again.history()[0].operation == "build"
    assert gridref.open_catalog(catalog, snapshot="first")["t"].shape == (8, 2)
    assert again.rollback()["t"].shape == (8, 2)
    assert gridref.open_catalog(catalog).append(day(days[0].parent, 9))["t"].shape == (12, 2)


def test_overwriting_forgets_what_was_declared_and_where_no_catalog_is_builds_one(
    days: list[Path], tmp_path: Path
) -> None:
    catalog = tmp_path / "c.gridref"
    gridref.build(days[:1], catalog, "time", overwrite=True)
    gridref.open_catalog(catalog).declare("time", np.array(["2001-02-01"], "M8[ns]"))
    gridref.build(days, catalog, "time", overwrite=True)
    assert not gridref.open_catalog(catalog).snapshot.pending
    shutil.rmtree(days[0].parent)
    assert gridref.open_catalog(catalog)["t"].shape == (16, 2)
