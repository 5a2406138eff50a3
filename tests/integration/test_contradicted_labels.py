"""Labels out of names beside the coordinates that files have themselves: never silently another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.errors import UnclearLayoutError
from tests.by_name import by_name

Own = Literal["index", "scalar", "absent"]
NAMED = ("2024-01-01", "2024-01-02", "2024-01-03")
SHIFTED = ("2024-02-01", "2024-02-02", "2024-02-03")
STACK = {"stack": "time", "pattern": "d_{time:%Y%m%d}.nc"}
CUBE = {"pattern": "d_{time:%Y%m%d}.nc"}
ALONG = {"concat_dim": "time", "pattern": "d_{time:%Y%m%d}.nc"}
OF_FUNCTION = {"labels": {"time": lambda file: np.datetime64(f"{file[-11:-7]}-01-{file[-5:-3]}")}}


def write_days(folder: Path, own: Own, times: Sequence[str], first: int = 0) -> list[Path]:
    """Files of one day each, named after it; `times` are what they say themselves."""
    files = []
    for number, (named, time) in enumerate(zip(NAMED, times, strict=True), first):
        dims = ("x",) if own != "index" else ("time", "x")
        values = np.full((1, 2) if own == "index" else 2, number, "f4")
        ds = xr.Dataset({"t": (dims, values)}, {"x": [0.0, 1.0]})
        if own != "absent":
            at = np.array(time, "M8[ns]")
            ds = ds.assign_coords(time=("time", [at]) if own == "index" else ((), at))
        files.append(folder / f"d_{named.replace('-', '')}.nc")
        ds.to_netcdf(files[-1])
    return files


def days_in(catalog: Path) -> dict[str, float]:
    """The value under each label, as xarray reads the catalog."""
    with xr.open_dataset(catalog, engine="gridref") as ds:
        labels = [str(label)[:10] for label in np.atleast_1d(ds["time"].values)]
        values = ds["t"].transpose("time", "x").values[:, 0]
        return dict(zip(labels, values.tolist(), strict=True))


@pytest.mark.parametrize("times", [NAMED, SHIFTED], ids=["agrees", "disagrees"])
@pytest.mark.parametrize("own", ["index", "scalar", "absent"])
@pytest.mark.parametrize(
    ("options", "keeps_index"),
    [(STACK, False), (CUBE, True), (ALONG, True), (OF_FUNCTION, True)],
    ids=["stack", "cube", "along", "function"],
)
def test_what_is_shown_is_said_with_both_values(
    tmp_path: Path, options: dict[str, Any], keeps_index: bool, own: Own, times: Sequence[str]
) -> None:
    files = write_days(tmp_path, own, times)
    catalog = tmp_path / "cube.gridref"
    built = gridref.build(files, catalog, **by_name(**options))
    keeps = own == "index" and keeps_index
    assert days_in(catalog) == dict(zip(times if keeps else NAMED, (0, 1, 2), strict=True))
    contradicted = own != "absent" and times != NAMED
    answer = "coordinate in the files is kept" if keeps else "take the place of the coordinate"
    lines = [line for line in built.report.lines if "as its label" in line]
    assert len(lines) == contradicted
    for line in lines:
        assert line.startswith("time: 2024-02-01 in the file, 2024-01-01 as its label [")
        assert "d_20240101.nc and 2 more]" in line
        assert answer in line
    rows = gridref.open_catalog(catalog).report.drifts
    causes = {row["cause"] for row in rows} & {"label-kept", "label-replaced"}
    assert causes == ({"label-kept" if keeps else "label-replaced"} if contradicted else set())


@pytest.mark.parametrize("own", ["index", "scalar"])
@pytest.mark.parametrize("options", [STACK, CUBE, ALONG], ids=["stack", "cube", "along"])
def test_files_that_come_later(tmp_path: Path, options: dict[str, Any], own: Own) -> None:
    files = write_days(tmp_path, own, [*NAMED[:2], SHIFTED[2]])
    catalog = tmp_path / "cube.gridref"
    built = gridref.build(files[:2], catalog, **by_name(**options))
    assert not [line for line in built.report.lines if "as its label" in line]
    after = gridref.open_catalog(catalog).append(files[2:])
    (line,) = [line for line in after.report.lines if "as its label" in line]
    assert "2024-02-03 in the file, 2024-01-03 as its label" in line
    last = SHIFTED[2] if own == "index" and "stack" not in options else NAMED[2]
    assert days_in(catalog) == {NAMED[0]: 0, NAMED[1]: 1, last: 2}


@pytest.mark.parametrize(
    ("kind", "name", "times", "contradicts"),
    [
        ("%Y%m", "202401", ["2024-01-16"], False),
        ("%Y%m", "202401", ["2024-02-01"], True),
        ("%Y", "2024", ["2024-07-01"], False),
        ("%Y%m", "202401", ["2024-01-01", "2024-01-31"], False),
        ("%Y%m", "202403", ["2024-01-01", "2024-01-31"], True),
        ("%Y%m%dT%H", "20240101T06", ["2024-01-01T06:30"], False),
        ("%Y%m%dT%H", "20240101T06", ["2024-01-01T00:00"], True),
    ],
)
def test_a_name_says_no_more_than_it_holds(
    tmp_path: Path, kind: str, name: str, times: list[str], contradicts: bool
) -> None:
    """A month in a name agrees with any of its days."""
    at = np.array(times, "M8[ns]")
    ds = xr.Dataset({"t": ("time", np.arange(len(times)))}, {"time": at})
    ds.to_netcdf(tmp_path / f"d_{name}.nc")
    later = ds.assign_coords(time=at + np.timedelta64(3660, "D"))
    later.to_netcdf(tmp_path / "other.nc")
    plan = gridref.plan([tmp_path / f"d_{name}.nc"], layout=gridref.Labels(f"d_{{time:{kind}}}.nc"))
    assert bool(plan.report.of_cause("label-kept")) == contradicts
    with xr.open_dataset(tmp_path / f"d_{name}.nc") as own:
        assert own.time.values.tolist() == at.tolist()


@pytest.mark.parametrize(("members", "contradicts"), [((1, 2), False), ((2, 1), True)])
def test_numbers(tmp_path: Path, members: tuple[int, int], contradicts: bool) -> None:
    for number, member in enumerate(members, 1):
        ds = xr.Dataset({"t": ("member", [number])}, {"member": [member]})
        ds.to_netcdf(tmp_path / f"m{number}.nc")
    built = gridref.build(
        tmp_path / "*.nc", tmp_path / "cube.gridref", layout=gridref.Labels("m{member}.nc")
    )
    with xr.open_dataset(tmp_path / "cube.gridref") as ds:
        assert ds["t"].sel(member=members[0]) == 1
    said = "\n".join(built.report.lines)
    assert ("member: 2 in the file, 1 as its label" in said) == contradicts


@pytest.mark.parametrize("layout", ["ragged", "padded"])
def test_instances(tmp_path: Path, layout: Any) -> None:
    for number, own in ((1, 1), (2, 7)):
        ds = xr.Dataset({"t": ("obs", np.arange(number + 1))}, {"buoy": ((), own)})
        ds.to_netcdf(tmp_path / f"b{number}.nc")
    options = {"layout": layout, "stack": "buoy", "pattern": "b{buoy:d}.nc"}
    built = gridref.build(tmp_path / "*.nc", tmp_path / "cube.gridref", **by_name(**options))
    with xr.open_dataset(tmp_path / "cube.gridref") as ds:
        assert ds["buoy"].values.tolist() == [1, 2]
    assert "buoy: 7 in the file, 2 as its label" in "\n".join(built.report.lines)


def test_virtual_datasets_report_it_too(tmp_path: Path) -> None:
    files = write_days(tmp_path, "index", SHIFTED)
    ds = gridref.open_virtual_mfdataset(files, layout=gridref.Labels(CUBE["pattern"]))
    (drift,) = ds.encoding["drift"].of_cause("label-kept")
    assert drift.cases[0].value == "2024-02-01 in the file, 2024-01-01 as its label"


@pytest.mark.parametrize("own", ["index", "scalar"])
def test_a_layout_that_is_found_tells_other_times_in_the_files(tmp_path: Path, own: Own) -> None:
    """The files' own time is taken where it tells them apart, else the build asks."""
    files = write_days(tmp_path, own, SHIFTED)
    gridref.build(files, tmp_path / "cube.gridref")
    assert days_in(tmp_path / "cube.gridref") == dict(zip(SHIFTED, (0, 1, 2), strict=True))
    same = write_days(tmp_path, own, SHIFTED[:1] * 3)
    with pytest.raises(UnclearLayoutError, match="2024-02-01 in the file, 2024-01-01 as its label"):
        gridref.build(same, tmp_path / "other.gridref")
