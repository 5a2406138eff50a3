"""Files of several kinds: a group for each frequency, field of names or attribute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import gridref
from gridref.errors import CombineError, InvalidRequestError, UnclearLayoutError
from gridref.faces.cli import app
from tests.by_name import by_name

DAYS = {"units": "days since 2001-01-01", "calendar": "standard"}
MONTHS = [15.5, 45.0, 74.5, 105.0]


def file(path: Path, name: str, times: Any, **attrs: Any) -> xr.Dataset:
    values = np.add.outer(np.asarray(times, "f8"), np.arange(2.0))
    dims = {"time": ("time", np.asarray(times, "f8"), DAYS), "x": [0, 1]}
    ds = xr.Dataset({name: (("time", "x"), values)}, dims, attrs)
    ds.to_netcdf(path)
    return ds


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Two variables of days and one of months, in two files each; and one without times."""
    for name in ("tas", "pr"):
        file(tmp_path / f"{name}_day_1.nc", name, range(30), table="day")
        file(tmp_path / f"{name}_day_2.nc", name, range(30, 60), table="day")
    file(tmp_path / "tos_mon_1.nc", "tos", MONTHS[:2], table="mon")
    file(tmp_path / "tos_mon_2.nc", "tos", MONTHS[2:], table="mon")
    return tmp_path


def groups(catalog: Path) -> dict[str, xr.Dataset]:
    tree = xr.open_datatree(catalog, decode_times=False)
    return {name: node.to_dataset().load() for name, node in tree.children.items()}


def test_times_of_different_spacing_are_a_problem_with_two_ways_out(archive: Path) -> None:
    with pytest.raises(CombineError, match=r"daily in 4 files.*monthly in 2 files") as caught:
        gridref.build(archive / "*.nc", archive / "cube.gridref")
    assert "layout=Groups(frequency=True) puts each into a group, join='outer'" in str(caught.value)
    gridref.build(
        archive / "*.nc",
        archive / "cube.gridref",
        combine=gridref.CombineOptions(join="outer"),
        layout="by_coords",
    )
    with xr.open_dataset(archive / "cube.gridref", decode_times=False) as ds:
        assert ds["tas"].sizes == {"time": 63, "x": 2}
        np.testing.assert_array_equal(ds["tos"].sel(time=MONTHS)[:, 0], MONTHS)
        assert int(ds["tos"].notnull().sum()) == 8


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"split": "frequency"}, {"daily", "monthly"}),
        ({"group_by": "table"}, {"day", "mon"}),
        ({"group_by": "kind", "pattern": "_{kind:s}_{_:d}.nc"}, {"day", "mon"}),
    ],
)
def test_a_group_for_each_kind(archive: Path, options: dict[str, str], names: set[str]) -> None:
    catalog = archive / "cube.gridref"
    group = gridref.build(archive / "*.nc", catalog, **by_name(**options))
    found = groups(catalog)
    assert set(found) == names
    daily, monthly = found[min(names)], found[max(names)]
    assert set(daily.data_vars) == {"tas", "pr"}
    with xr.open_mfdataset(sorted(archive.glob("*_day_*.nc")), decode_times=False) as expected:
        xr.testing.assert_equal(daily, expected.load())
    np.testing.assert_array_equal(monthly["tos"][:, 1], np.array(MONTHS) + 1)
    assert {drift["variable"].partition("/")[0] for drift in group.report.drifts} <= names
    later = file_after(archive)
    grown = gridref.open_catalog(catalog).append(later)
    gridref.build(archive / "*.nc", archive / "whole.gridref", **by_name(**options))
    assert grown.info.digest == gridref.open_catalog(archive / "whole.gridref").info.digest
    np.testing.assert_array_equal(grown[max(names)]["tos"][-2:, 1], [136.5, 167.0])


def file_after(folder: Path) -> Path:
    file(folder / "tos_mon_3.nc", "tos", [135.5, 166.0], table="mon")
    return folder / "tos_mon_3.nc"


def test_on_the_command_line(archive: Path) -> None:
    catalog = archive / "cube.gridref"
    arguments = [str(archive / "*.nc"), "--split", "frequency"]
    done = CliRunner().invoke(app, ["build", *arguments, "-o", str(catalog)])
    assert done.exit_code == 0, done.output
    assert set(groups(catalog)) == {"daily", "monthly"}
    done = CliRunner().invoke(app, ["plan", *arguments], env={"COLUMNS": "160"})
    assert "monthly" in done.output


def test_files_that_do_not_say_their_kind_are_named(archive: Path) -> None:
    file(archive / "zz_one_day.nc", "zz", [3.0])
    with pytest.raises(InvalidRequestError, match=r"a single time.*Groups") as caught:
        gridref.plan(archive / "*.nc", layout=gridref.Groups(frequency=True))
    assert "zz_one_day.nc" in str(caught.value)
    with pytest.raises(InvalidRequestError, match="no field of the pattern and no attribute"):
        gridref.plan(archive / "*.nc", layout=gridref.Groups("table"))


def test_what_the_scan_left_out_is_listed_by_the_catalog(archive: Path) -> None:
    for path in archive.glob("*.nc"):
        with h5py.File(path, "a") as opened:
            opened.create_dataset("odd", (3,), np.dtype([("x", h5py.vlen_dtype("i4"))]))
    catalog = archive / "cube.gridref"
    options: dict[str, Any] = {"split": "frequency", "on_unsupported": "skip"}
    group = gridref.build(archive / "*.nc", catalog, **by_name(**options))
    assert [finding.path for finding in group.report.skipped] == ["/odd"] * 6
    kept = gridref.open_catalog(catalog)
    assert [finding.path for finding in kept.report.skipped] == ["/odd"]
    (row,) = [row for row in kept.report().to_pylist() if row["cause"] == "skipped"]
    assert (row["variable"], row["n_files"], row["resolution"]) == ("odd", 6, "left out")
    shown = CliRunner().invoke(app, ["info", str(catalog)], env={"COLUMNS": "300"})
    assert "left out odd:" in shown.output
    assert "and 5 more" in shown.output
    later = file_after(archive)
    with h5py.File(later, "a") as opened:
        opened.create_dataset("odd", (3,), np.dtype([("x", h5py.vlen_dtype("i4"))]))
    grown = kept.append(later)
    (row,) = [row for row in grown.report().to_pylist() if row["cause"] == "skipped"]
    assert (row["n_files"], row["last_file"]) == (7, str(later))


def mixed(folder: Path, *, named: bool) -> dict[str, list[Path]]:
    """Files of four kinds by kind: grids of their own, three variables, `t` in two of them."""
    rng, kinds = np.random.default_rng(7), {}
    sizes = {"ocean": ("t", 5, 4), "ice": ("conc", 4, 3), "air": ("t", 2, 6), "land": ("m", 1, 2)}
    for name, (variable, n_files, n) in sizes.items():
        kinds[name] = []
        for number in range(n_files):
            values = rng.random((2, n, n)).astype("f4")
            times = np.arange(2.0) + 2 * number
            coords = {"time": ("time", times, DAYS), "y": np.arange(n), "x": np.arange(n)}
            ds = xr.Dataset({variable: (("time", "y", "x"), values)}, coords)
            word = name if named else "out"
            path = folder / f"{word}_{number}{len(kinds)}.nc"
            ds.to_netcdf(path)
            kinds[name].append(path)
    return kinds


@pytest.mark.parametrize(
    "options", [{}, {"group_by": "kind"}, {"yes": True}], ids=["nothing said", "kind", "yes"]
)
def test_a_mixed_folder_becomes_a_group_for_each_kind(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    kinds = mixed(tmp_path, named=True)
    gridref.build(tmp_path / "*.nc", tmp_path / "cube.gridref", **by_name(**options))
    found = groups(tmp_path / "cube.gridref")
    assert found.keys() == kinds.keys()
    for name, files in kinds.items():
        with xr.open_mfdataset(files, decode_times=False) as expected:
            xr.testing.assert_equal(found[name], expected.load())


def test_kinds_of_a_folder_are_counted_before_they_are_taken(tmp_path: Path) -> None:
    kinds = mixed(tmp_path, named=False)
    done = CliRunner().invoke(app, ["build", f"{tmp_path}/*.nc", "-o", f"{tmp_path}/c.gridref"])
    assert done.exit_code == 1
    told = str(done.exception)
    assert "12 files, and they do not fit together" in told
    assert "4 kinds: kind1 (5), kind2 (4), kind3 (2), kind4 (1)" in told
    gridref.build(tmp_path / "*.nc", tmp_path / "cube.gridref", layout="first")
    found = groups(tmp_path / "cube.gridref")
    for number, files in enumerate(kinds.values(), 1):
        with xr.open_mfdataset(files, decode_times=False) as expected:
            xr.testing.assert_equal(found[f"kind{number}"], expected.load())


def test_yes_reaches_the_layouts_within_each_kind(tmp_path: Path) -> None:
    ocean = [tmp_path / f"ocean_{number}.nc" for number in range(2)]
    for number, path in enumerate(ocean):
        file(path, "tos", np.arange(2.0) + 2 * number)
    words = ["first", "second_try", "third"]
    for number, word in enumerate(words):
        ds = xr.Dataset({"m": (("y", "x"), np.full((3, 4), number))}, {"x": np.arange(4)})
        ds.to_netcdf(tmp_path / f"run_{word}.nc")  # what only their names tell is a guess
    catalog = tmp_path / "cube.gridref"
    with pytest.raises(UnclearLayoutError, match=r"2 kinds: m \(3\), tos \(2\)") as caught:
        gridref.build(tmp_path / "*.nc", catalog)
    gridref.build(tmp_path / "*.nc", catalog, layout="first")
    found = groups(catalog)
    with xr.open_mfdataset(ocean, decode_times=False) as expected:
        xr.testing.assert_equal(found["tos"], expected.load())
    np.testing.assert_array_equal(found["m"]["part1"], words)
    np.testing.assert_array_equal(found["m"]["m"][:, 0, 0], range(3))
    (asked,) = caught.value.choices
    gridref.build(tmp_path / "*.nc", tmp_path / "asked.gridref", **asked)
    digests = [gridref.open_catalog(each).info.digest for each in tmp_path.glob("*.gridref")]
    assert len(set(digests)) == 1
