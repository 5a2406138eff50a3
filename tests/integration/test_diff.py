"""What two catalogs differ in, in Python and on the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import netCDF4
import numpy as np
import pytest

import gridref
from gridref.api.catalog import write_catalog
from gridref.catalog.examining import CatalogChange
from gridref.model.array import VirtualArray
from tests.by_name import by_name
from tests.integration.archives import write_months
from tests.integration.test_cli import run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_months(tmp_path, lengths=[31, 28])
    gridref.build(tmp_path / "*.nc", tmp_path / "a.gridref", "time")
    return tmp_path


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
