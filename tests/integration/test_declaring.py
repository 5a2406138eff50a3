"""Extents declared ahead: files come in any order, and until then they are told as pending."""

from __future__ import annotations

import json
import pickle
import random
from pathlib import Path

import cftime
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.api.declaring import claimed
from gridref.api.readable import reader_for
from gridref.errors import BlockPendingError, CombineError, InvalidRequestError
from gridref.model.array import VirtualArray
from tests.command import run_command
from tests.integration.growing import assert_shows, built, month

ALL_DAYS = np.datetime64("2000-01-01") + np.arange(60)

N_MONTHS = 12


def pending_days(catalog: gridref.Catalog) -> list[int]:
    rows = catalog.chunks("tas", state="pending").to_pylist()
    return sorted(day for row in rows for day in range(row["start"][0], row["stop"][0]))


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_files_come_in_any_order(months: list[Path], tmp_path: Path, seed: int) -> None:
    order = list(range(12))
    random.Random(seed).shuffle(order)
    catalog = built([months[order[0]]], tmp_path / "cube").declare("time", ALL_DAYS)
    assert catalog.history()[0].operation == "declare"
    come = {order[0]}
    for number in order[1:]:
        shown = xr.open_dataset(tmp_path / "cube", engine="gridref")
        assert np.array_equal(shown["time"].values, ALL_DAYS)
        for each in range(12):
            days = slice(5 * each, 5 * each + 5)
            if each in come:
                with xr.open_dataset(months[each], engine="netcdf4") as file:
                    assert np.array_equal(shown["tas"][days], file["tas"])
            else:
                assert np.isnan(catalog["tas"][days]).all()
        expected = [day for day in range(60) if day // 5 not in come]
        assert (
            pending_days(catalog)
            == pending_days(gridref.open_catalog(tmp_path / "cube"))
            == expected
        )
        catalog = catalog.append(months[number])
        come.add(number)
    assert pending_days(catalog) == []
    assert_shows(tmp_path / "cube", months)
    whole = built(months, tmp_path / "whole")
    assert catalog.info.digest == whole.info.digest
    assert json.loads((tmp_path / "cube" / "gridref.json").read_text())["features"] == []


def test_strict_readers_raise(months: list[Path], tmp_path: Path) -> None:
    built(months[3:4], tmp_path / "cube").declare("time", ALL_DAYS[:30])
    strict = gridref.open_catalog(tmp_path / "cube", pending="raise")
    with xr.open_dataset(months[3], engine="netcdf4") as file:
        assert np.array_equal(strict["tas"][15:20], file["tas"])
        for shown in (
            xr.open_dataset(strict, engine="gridref"),
            xr.open_dataset(pickle.loads(pickle.dumps(strict)), engine="gridref"),
            xr.open_zarr(gridref.open_store(strict)),
            xr.open_zarr(gridref.open_store(strict, "portable", chunks={"time": 5})),
        ):
            assert np.array_equal(shown["time"].values, ALL_DAYS[:30])
            assert np.array_equal(shown["tas"][15:20].values, file["tas"].values)
            for days in (slice(0, 1), slice(14, 20), slice(None)):
                with pytest.raises(BlockPendingError, match=r"declared ahead.*tas"):
                    shown["tas"][days].load()
    with pytest.raises(InvalidRequestError, match="pending"):
        gridref.open_catalog(tmp_path / "cube", pending="no")  # type: ignore[arg-type]


def test_pending_is_not_missing(months: list[Path], tmp_path: Path) -> None:
    other = tmp_path / "other.nc"
    with xr.open_dataset(months[1], decode_times=False) as file:
        file.drop_vars("tas").to_netcdf(other, engine="h5netcdf")
    gridref.build(
        [months[0], other], tmp_path / "cube", "time", combine=gridref.CombineOptions(join="outer")
    )
    catalog = gridref.open_catalog(tmp_path / "cube").declare("time", ALL_DAYS[:15])
    assert pending_days(catalog) == [10, 11, 12, 13, 14]
    missing = catalog.chunks("tas", state="missing")
    assert [row[0] for row in missing["start"].to_pylist()] == [5]
    listed = run_command(
        "list", tmp_path / "cube", "chunks", "tas", "--state", "pending", "--format", "jsonl"
    )
    assert len(listed.stdout.splitlines()) == 5
    strict = gridref.open_catalog(tmp_path / "cube", pending="raise")
    assert np.isnan(strict["tas"][5:10]).all()


def test_more_can_be_declared_and_what_was_not_declared_can_come(
    months: list[Path], tmp_path: Path
) -> None:
    catalog = built(months[2:3], tmp_path / "cube").declare("time", ALL_DAYS[10:20])
    assert catalog.declare("time", ALL_DAYS[10:20]).info.snapshot == catalog.info.snapshot
    catalog = catalog.append(months[0])  # in front
    catalog = catalog.append(months[11])  # behind
    assert pending_days(catalog) == [10, 11, 12, 13, 14]
    catalog = catalog.declare("time", ALL_DAYS[::-1][:40])  # where nothing is, in any order
    assert catalog["tas"].shape[0] == 55
    catalog = catalog.remove(months[0]).rollback()
    for number in (3, 10, 9, 8, 7, 6, 5, 4):
        catalog = catalog.append(months[number])
    assert pending_days(catalog) == []
    assert_shows(tmp_path / "cube", [months[0], *months[2:]])


def test_what_is_pending_outlives_other_changes(months: list[Path], tmp_path: Path) -> None:
    catalog = built(months[:2], tmp_path / "cube").declare("time", ALL_DAYS[10:25])
    for number in range(6, 12):
        catalog = catalog.append(months[number])
    catalog = catalog.remove(months[0])
    assert pending_days(catalog) == list(range(5, 20))
    later = catalog.append([months[3], months[2]])
    assert pending_days(later) == list(range(15, 20))
    assert pending_days(later.rollback()) == list(range(5, 20))
    with xr.open_dataset(later, engine="gridref") as shown:
        assert np.array_equal(shown["time"].values, ALL_DAYS[[*range(5, 25), *range(30, 60)]])


def test_files_that_do_not_fit_leave_what_is_pending(months: list[Path], tmp_path: Path) -> None:
    catalog = built(months[:1], tmp_path / "cube").declare("time", ALL_DAYS[:20])
    folder = tmp_path / "bad"
    folder.mkdir()
    with pytest.raises(CombineError, match="lat"):
        catalog.append(month(folder, 2, shift=1))
    assert pending_days(gridref.open_catalog(tmp_path / "cube")) == list(range(5, 20))
    astride = folder / "astride.nc"  # a day that is there, and four that are pending
    with xr.open_dataset(months[1], decode_times=False) as file:
        file.load().assign_coords(time=("time", np.arange(5) + 4, file.time.attrs)).to_netcdf(
            astride, engine="h5netcdf"
        )
    with pytest.raises(InvalidRequestError, match="do not fit in one piece"):
        catalog.append(astride)


def test_labels_that_cannot_be_kept(months: list[Path], tmp_path: Path) -> None:
    catalog = built(months[:1], tmp_path / "cube")
    with pytest.raises(InvalidRequestError, match="are not the same as int64"):
        catalog.declare("time", np.array(["2000-02-01T12:00"], "M8[s]"))
    with pytest.raises(InvalidRequestError, match="grows along 'time', not 'lat'"):
        catalog.declare("lat", [7.0])
    with pytest.raises(InvalidRequestError, match=r"do not fit the type|are not the same"):
        catalog.declare("time", ["tomorrow"])


def test_calendars_and_falling_labels(tmp_path: Path) -> None:
    def write(name: str, days: list[int]) -> Path:
        attrs = {"units": "days since 2001-01-01", "calendar": "360_day"}
        dataset = xr.Dataset(
            {"v": (("time", "x"), np.array(days, "f8")[:, None] + np.zeros(2))},
            coords={"time": ("time", np.array(days, "i4"), attrs)},
        )
        dataset.to_netcdf(tmp_path / name, engine="h5netcdf")
        return tmp_path / name

    catalog = built([write("a.nc", [9, 8]), write("b.nc", [7, 6])], tmp_path / "cube")
    labels = [cftime.Datetime360Day(2001, 1, 1 + day) for day in (1, 2, 3, 10, 11)]
    catalog = catalog.declare("time", labels)
    assert catalog["time"][...].tolist() == [11, 10, 9, 8, 7, 6, 3, 2, 1]
    catalog = catalog.append(write("c.nc", [3, 2])).append(write("d.nc", [11, 10]))
    assert catalog["v"][:, 0].tolist()[:-1] == [11, 10, 9, 8, 7, 6, 3, 2]
    rows = catalog.chunks("v", state="pending").to_pylist()
    assert [row["start"][0] for row in rows] == [8]


def test_on_the_command_line(months: list[Path], tmp_path: Path) -> None:
    cube = tmp_path / "cube"
    built(months[:1], cube)
    done = run_command("append", cube, "--declare", "time=2000-01-01/2000-01-20", "--step", "1D")
    assert done.returncode == 0, done.stderr
    assert pending_days(gridref.open_catalog(cube)) == list(range(5, 20))
    assert run_command("append", cube, months[3]).returncode == 0
    assert pending_days(gridref.open_catalog(cube)) == list(range(5, 15))
    refused = run_command("append", cube, "--declare", "time=2000-01-20/2000-01-01", "--step", "1D")
    assert (refused.returncode, "no labels" in refused.stderr) == (1, True)


def test_labels_of_a_stranger_that_repeat_are_all_claimed() -> None:
    times = VirtualArray.from_numpy(np.array([3, 5, 5, 7]), ("time",))
    file = VirtualArray.from_numpy(np.array([5, 9]), ("time",))
    groups = [gridref.VirtualGroup({"time": array}) for array in (times, file)]
    read = reader_for().read
    assert claimed(groups[0], groups[1:], "time", [(1, 2), (2, 4)], read) == [(1, 3)]
