"""What tells files apart: never the first file's value for all, never silently another label."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.errors import UnclearLayoutError
from tests.by_name import by_name

ANGLES = (0.5, 1.5, 2.5, 4.0, 6.0)


def sweep(path: Path, angle: float) -> Path:
    """A sweep of a weather radar in a file of its own, as ODIM_H5 has it (OPERA, version 2.2)."""
    with h5py.File(path, "w") as file:
        file.create_group("dataset1/where").attrs["elangle"] = angle
        what = file.create_group("dataset1/data1/what")
        what.attrs["gain"], what.attrs["offset"] = 0.5 if angle < 4 else 0.25, -32.0
        what.attrs["quantity"] = np.bytes_("DBZH")
        numbers = (np.arange(12).reshape(3, 4) + 10 * angle).astype("u1")
        file.create_dataset("dataset1/data1/data", data=numbers, chunks=(3, 4))
    return path


def volumes(folder: Path, name: str) -> list[Path]:
    """Two volumes of five elevations; `name` takes the minute and the number of the sweep."""
    return [
        sweep(folder / name.format(5 * volume + number, volume, number), angle)
        for volume in range(2)
        for number, angle in enumerate(ANGLES)
    ]


def assert_told(catalog: Path, files: list[Path], dims: tuple[str, ...]) -> None:
    """Each file's numbers lie where its own elevation and gain do, as h5py reads them."""
    group = gridref.open_catalog(catalog)
    arrays = group.all_arrays()
    data, angles, gains = (
        arrays[f"dataset1/{path}"] for path in ("data1/data", "where/elangle", "data1/what/gain")
    )
    assert (angles.dims, gains.dims, data.dims[: len(dims)]) == (dims, dims, dims)
    assert "elangle" not in group.groups["dataset1"].groups["where"].attrs
    found = sorted(
        (angle, gain, cell.tolist())
        for angle, gain, cell in zip(
            angles[...].ravel(), gains[...].ravel(), data[...].reshape(-1, 3, 4), strict=True
        )
    )
    expected = []
    for path in files:
        with h5py.File(path) as file:
            angle = file["dataset1/where"].attrs["elangle"]
            gain = file["dataset1/data1/what"].attrs["gain"]
            expected.append((angle, gain, file["dataset1/data1/data"][...].tolist()))
    assert found == sorted(expected)
    with xr.open_dataset(catalog, group="dataset1/where", engine="gridref") as ds:
        assert "elangle" in ds.coords


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("rad_20240601T00{0:02d}00.h5", ("time",)),
        ("rad_20240601T00{0:02d}00_el{2}.h5", ("time",)),
        ("rad_20240601T000{1}00_el{2}.h5", ("time", "elevation")),
    ],
)
def test_sweeps_of_several_elevations(tmp_path: Path, name: str, dims: tuple[str, ...]) -> None:
    files = volumes(tmp_path, name)
    gridref.build(files, tmp_path / "cube.gridref")
    assert_told(tmp_path / "cube.gridref", files, dims)
    group = gridref.open_catalog(tmp_path / "cube.gridref")
    if "_el" in name:
        assert group.arrays["el"].dims == dims
        assert set(group.arrays["el"][...].ravel().tolist()) == set(range(5))


@pytest.mark.parametrize("n_first", [1, 2, 5])
@pytest.mark.parametrize(
    ("name", "options", "dims"),
    [
        (
            "rad_20240601T00{0:02d}00.h5",
            {"stack": "time", "pattern": "rad_{time:%Y%m%dT%H%M%S}.h5"},
            ("time",),
        ),
        (
            "rad_20240601T000{1}00_el{2}.h5",
            {"pattern": "rad_{time:%Y%m%dT%H%M%S}_el{el:d}.h5"},
            ("time", "el"),
        ),
    ],
)
def test_attributes_that_differ_in_files_that_come_later(
    tmp_path: Path, name: str, options: dict[str, Any], dims: tuple[str, ...], n_first: int
) -> None:
    files = volumes(tmp_path, name)
    gridref.build(files[:n_first], tmp_path / "cube.gridref", **by_name(**options))
    gridref.open_catalog(tmp_path / "cube.gridref").append(files[n_first:])
    assert_told(tmp_path / "cube.gridref", files, dims)


def test_attributes_that_differ_between_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridref.combine.combining.BATCH_GROUPS", 3)
    files = volumes(tmp_path, "rad_20240601T00{0:02d}00.h5")
    files = [sweep(tmp_path / f"rad_2024060{day}T000000.h5", 0.5) for day in (2, 3, 4)] + files
    pattern = "rad_{time:%Y%m%dT%H%M%S}.h5"
    gridref.build(files, tmp_path / "cube.gridref", layout=gridref.Stack("time", pattern))
    assert_told(tmp_path / "cube.gridref", files, ("time",))


def test_attributes_of_variables(tmp_path: Path) -> None:
    for day, gain in enumerate((0.5, 0.25, 0.5)):
        ds = xr.Dataset({"counts": (("time", "x"), [[1, 2], [3, 4]], {"gain": gain})})
        ds = ds.assign_coords(time=("time", [2 * day, 2 * day + 1]), x=[0, 1])
        ds.to_netcdf(tmp_path / f"{day}.nc")
    gridref.build(tmp_path / "*.nc", tmp_path / "cube.gridref", "time")
    with xr.open_dataset(tmp_path / "cube.gridref") as ds:
        assert "gain" not in ds["counts"].attrs
        assert ds["counts_gain"].dims == ("time",)
        assert ds.coords["counts_gain"].values.tolist() == [0.5, 0.5, 0.25, 0.25, 0.5, 0.5]


def test_an_attribute_that_some_files_lack(tmp_path: Path) -> None:
    for day, attrs in enumerate(({"member": 3}, {}, {"member": 4})):
        ds = xr.Dataset({"t": ("time", [day])}, {"time": [day]}, attrs)
        ds.to_netcdf(tmp_path / f"{day}.nc")
    gridref.build(tmp_path / "*.nc", tmp_path / "cube.gridref", "time")
    with xr.open_dataset(tmp_path / "cube.gridref", decode_times=False) as ds:
        np.testing.assert_array_equal(ds["member"].values, [3, np.nan, 4])


def test_attributes_that_say_the_same_stay_attributes(tmp_path: Path) -> None:
    for day in range(3):
        ds = xr.Dataset({"t": ("time", [day])}, {"time": [day]}, {"member": 3, "history": str(day)})
        ds.to_netcdf(tmp_path / f"{day}.nc")
    group = gridref.build(tmp_path / "*.nc", tmp_path / "cube.gridref", "time")
    assert set(group.arrays) == {"t", "time"}
    assert (group.attrs["member"], group.attrs["history"]) == (3, "0")


def days_named(folder: Path, *names: str) -> list[Path]:
    for number, name in enumerate(names):
        xr.Dataset({"t": ("x", [number, number + 1])}).to_netcdf(folder / name)
    return [folder / name for name in names]


@pytest.mark.parametrize("asked", [False, True])
def test_parts_of_names_that_a_pattern_hides(tmp_path: Path, asked: bool) -> None:
    files = days_named(
        tmp_path, "a_20240101_low_x1.nc", "a_20240102_high_x2.nc", "a_20240103_low_x3.nc"
    )
    options = {"stack": "time", "pattern": "a_{time:%Y%m%d}_{_}_{_}.nc"} if asked else {}
    gridref.build(files, tmp_path / "cube.gridref", **by_name(**options))
    with xr.open_dataset(tmp_path / "cube.gridref") as ds:
        assert ds["t"].dims == ("time", "x")
        assert set(ds.coords) == {"time", "part1"}  # the other one differs with every file
        assert ds["part1"].values.tolist() == ["low", "high", "low"]
    later = days_named(tmp_path, "a_20240104_high_x4.nc")
    gridref.open_catalog(tmp_path / "cube.gridref").append(later)
    with xr.open_dataset(tmp_path / "cube.gridref") as ds:
        assert ds["part1"].values.tolist() == ["low", "high", "low", "high"]


def test_parts_of_names_of_files_with_times_of_their_own(tmp_path: Path) -> None:
    for number in range(4):
        ds = xr.Dataset({"t": (("time", "x"), [[number, 1]])}, {"time": [number]})
        ds.to_netcdf(tmp_path / f"v{number}_sweep_{number % 2}.nc")
    gridref.build(tmp_path / "*.nc", tmp_path / "cube.gridref")
    with xr.open_dataset(tmp_path / "cube.gridref", decode_times=False) as ds:
        assert ds["t"].dims == ("time", "x")
        assert ds.coords["sweep"].dims == ("time",)
        assert ds["sweep"].values.tolist() == [0, 1, 0, 1]


def test_folders_of_years_and_months_hide_nothing(tmp_path: Path) -> None:
    for folder in ("2023/12", "2024/01"):
        (tmp_path / folder).mkdir(parents=True)
    names = ["2023/12/a_20231230.nc", "2023/12/a_20231231.nc", "2024/01/a_20240101.nc"]
    files = days_named(tmp_path, *names)
    group = gridref.build(files, tmp_path / "cube.gridref")
    assert set(group.arrays) == {"t", "time"}


@pytest.mark.parametrize("pattern", [None, "{member}/pr_{_}_{_}.nc"])
def test_years_in_names_of_files_with_times_of_their_own(
    tmp_path: Path, pattern: str | None
) -> None:
    for member in ("r1", "r2"):
        (tmp_path / member).mkdir()
        for year in (2000, 2001):
            ds = xr.Dataset({"t": (("time", "x"), [[year, 1]])}, {"time": [year]})
            ds.to_netcdf(tmp_path / member / f"pr_{member}_{year}.nc")
    layout = None if pattern is None else gridref.Labels(pattern)
    catalog = gridref.build(tmp_path / "*/*.nc", tmp_path / "cube.gridref", layout=layout)
    assert set(catalog) == {"t", "time", "member"}
    assert catalog["t"].dims == ("member", "time", "x")


def test_single_values_that_differ_lie_along_the_dimension(tmp_path: Path) -> None:
    for day in range(3):
        ds = xr.Dataset({"t": ("time", [day]), "angle": ((), [0.5, 1.5, 0.5][day])})
        ds.assign_coords(time=[day]).to_netcdf(tmp_path / f"{day}.nc")
    gridref.build(tmp_path / "*.nc", tmp_path / "cube.gridref", "time")
    with xr.open_dataset(tmp_path / "cube.gridref", decode_times=False) as ds:
        assert ds["angle"].values.tolist() == [0.5, 1.5, 0.5]


def drifter(path: Path, number: int, length: int, gain: Any) -> Path:
    """A drifter of its own length; `gain` is of all its temperatures."""
    counts = (np.arange(length) + 100 * number).astype("i2")
    ds = xr.Dataset({"counts": ("obs", counts, {"gain": gain})}, attrs={"member": f"r{number % 2}"})
    ds.attrs["featureType"] = "trajectory"
    ds.to_netcdf(path, unlimited_dims=["obs"])
    return path


def assert_samples_told(catalog: Path, files: list[Path], layout: str) -> None:
    """Each sample lies under the gain and the member of its own file, as xarray reads them."""
    with xr.open_dataset(catalog) as ds:
        assert "gain" not in ds["counts"].attrs
        assert "member" not in ds.attrs
        gains, members = ds.coords["counts_gain"], ds.coords["member"]
        assert gains.dims[0] == members.dims[0] == "trajectory"
        ends = np.cumsum(ds["row_size"].values)
        for number, path in enumerate(files):
            own = xr.open_dataset(path)
            n = own.sizes["obs"]
            row = (
                slice(ends[number] - n, ends[number]) if layout == "ragged" else (number, slice(n))
            )
            np.testing.assert_array_equal(ds["counts"].values[row], own["counts"].values)
            np.testing.assert_array_equal(gains.values[number], own["counts"].attrs["gain"])
            assert members.values[number] == own.attrs["member"]


@pytest.mark.parametrize("gains", [(0.5, 0.25, 0.5, 0.125), ([1, 2], [3, 2], [1, 2], [5, 6])])
@pytest.mark.parametrize("n_first", [1, 2, 4])
@pytest.mark.parametrize("layout", ["ragged", "padded"])
def test_attributes_of_files_that_differ_in_length(
    tmp_path: Path,
    layout: Any,
    n_first: int,
    gains: Sequence[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gridref.combine.combining.BATCH_GROUPS", 3)
    lengths = (3, 5, 2, 4)
    files = [
        drifter(tmp_path / f"d{number}.nc", number, length, gain)
        for number, (length, gain) in enumerate(zip(lengths, gains, strict=True))
    ]
    options = {"layout": layout, "concat_dim": "obs", "stack": "trajectory"}
    gridref.build(files[:n_first], tmp_path / "cube.gridref", **by_name(**options))
    if files[n_first:]:
        gridref.open_catalog(tmp_path / "cube.gridref").append(files[n_first:])
    assert_samples_told(tmp_path / "cube.gridref", files, layout)


def test_attributes_of_several_values(tmp_path: Path) -> None:
    """A coordinate with a dimension of its own; left out where files have unlike numbers."""
    for day, (gain, slope) in enumerate(([[1, 2], [1, 2]], [[1, 3], [1, 2, 3]], [[2, 2], [0, 0]])):
        attrs = {"gain": gain, "slope": slope, "band": ["red", "nir"]}
        ds = xr.Dataset({"t": ("time", [day], attrs)}, {"time": [day]})
        ds.to_netcdf(tmp_path / f"{day}.nc", engine="h5netcdf")
    group = gridref.build(tmp_path / "*.nc", tmp_path / "cube.gridref", "time")
    assert {"band"} == {"gain", "slope", "band"} & group.arrays["t"].attrs.keys()
    with xr.open_dataset(tmp_path / "cube.gridref", decode_times=False) as ds:
        assert ds.coords["t_gain"].dims == ("time", "t_gain_item")
        assert ds["t_gain"].values.tolist() == [[1, 2], [1, 3], [2, 2]]
        assert set(ds.variables) == {"t", "time", "t_gain"}
    told = "\n".join(map(str, group.report.drifts))
    assert "slope = [1, 2]" in told
    assert "slope left out" in told


def tile(path: Path, column: int, gain: float, day: str | None = None) -> Path:
    """A tile of 2 x 2 pixels, which is to be multiplied by its gain."""
    counts = np.full((2, 2), column, "i2")
    ds = xr.Dataset({"counts": (("y", "x"), counts, {"gain": gain})}, attrs={"band": f"B{column}"})
    ds = ds.assign_coords(y=[1.5, 0.5], x=[2 * column + 0.5, 2 * column + 1.5])
    ds["crs"] = ((), 0, {"crs_wkt": "", "grid_mapping_name": "latitude_longitude"})
    ds["counts"].attrs["grid_mapping"] = "crs"
    ds.to_netcdf(path)
    return path


def test_attributes_of_tiles_beside_each_other_are_left_out(tmp_path: Path) -> None:
    files = [tile(tmp_path / f"{n}.nc", n, gain) for n, gain in enumerate((0.5, 0.25, 0.5))]
    group = gridref.build(files, tmp_path / "map.gridref", layout=gridref.Mosaic())
    assert group.arrays["counts"].shape == (2, 6)
    assert "gain" not in group.arrays["counts"].attrs
    assert "band" not in group.attrs
    told = "\n".join(map(str, group.report.drifts))
    for text in ("gain = 0.5", "gain left out", "band = B2", "band left out"):
        assert text in told
    alike = [tile(tmp_path / f"alike{n}.nc", n, 0.5) for n in range(2)]
    group = gridref.build(alike, tmp_path / "alike.gridref", layout=gridref.Mosaic())
    assert group.arrays["counts"].attrs["gain"] == 0.5


SERIES = {"mosaic": True, "stack": "time", "pattern": "{time:%Y%m%d}_{_}.nc"}


@pytest.mark.parametrize("batch", [1, 2, 3, 1000])
@pytest.mark.parametrize("day_tells", [True, False])
def test_attributes_of_a_series_of_mosaics(
    tmp_path: Path, batch: int, day_tells: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinate along the dates where all tiles of a date say the same, else left out."""
    monkeypatch.setattr("gridref.combine.combining.BATCH_GROUPS", batch)
    gains = {"20240101": 0.5, "20240102": 0.25, "20240103": 0.5}
    files = [
        tile(tmp_path / f"{day}_{n}.nc", n, gain if day_tells or n else 4.0)
        for n in range(2)
        for day, gain in gains.items()
    ]
    group = gridref.build(files, tmp_path / "map.gridref", **by_name(**SERIES))
    assert group.arrays["counts"].shape == (3, 2, 4)
    assert "gain" not in group.arrays["counts"].attrs
    assert "band" not in group.attrs
    with xr.open_dataset(tmp_path / "map.gridref") as ds:
        assert ("counts_gain" in ds.coords) == day_tells
        if day_tells:
            assert ds["counts_gain"].dims == ("time",)
            assert ds["counts_gain"].values.tolist() == list(gains.values())
            assert [str(day)[:10].replace("-", "") for day in ds.time.values] == list(gains)


def test_attributes_of_tiles_that_come_later(tmp_path: Path) -> None:
    days = {"20240101": 0.5, "20240102": 0.5, "20240103": 0.25}
    files = [tile(tmp_path / f"{day}_0.nc", 0, gain) for day, gain in days.items()]
    gridref.build(files[:2], tmp_path / "map.gridref", **by_name(**SERIES))
    assert gridref.open_catalog(tmp_path / "map.gridref").arrays["counts"].attrs["gain"] == 0.5
    gridref.open_catalog(tmp_path / "map.gridref").append(files[2:])
    with xr.open_dataset(tmp_path / "map.gridref") as ds:
        assert ds["counts_gain"].values.tolist() == [0.5, 0.5, 0.25]
    gridref.open_catalog(tmp_path / "map.gridref").append([tile(tmp_path / "20240103_1.nc", 1, 8)])
    with xr.open_dataset(tmp_path / "map.gridref") as ds:
        assert "counts_gain" not in ds.coords
        assert "gain" not in ds["counts"].attrs


def test_attributes_of_tiles_by_day_and_band_with_a_hole(tmp_path: Path) -> None:
    gains = {("20240101", "red"): 0.5, ("20240102", "nir"): 0.25, ("20240102", "red"): 2.0}
    for (day, band), gain in gains.items():
        tile(tmp_path / f"{day}_{band}.nc", 0, gain)
    options = {"mosaic": True, "pattern": "{time:%Y%m%d}_{kind}.nc"}
    gridref.build(tmp_path / "*.nc", tmp_path / "map.gridref", **by_name(**options))
    with xr.open_dataset(tmp_path / "map.gridref") as ds:
        found = ds["counts_gain"].transpose("kind", "time").sel(kind=["nir", "red"])
        np.testing.assert_array_equal(found.values, [[np.nan, 0.25], [0.5, 2.0]])


def test_single_values_of_tiles_lie_along_dates(tmp_path: Path) -> None:
    for number, day in enumerate(("20240101", "20240102", "20240103")):
        path = tile(tmp_path / f"{day}_0.nc", 0, 1.0)
        with xr.open_dataset(path) as ds:
            ds.load()
        ds["angle"] = ((), [0.5, 1.5, 0.5][number])
        ds.to_netcdf(path)
    gridref.build(tmp_path / "*.nc", tmp_path / "map.gridref", **by_name(**SERIES))
    with xr.open_dataset(tmp_path / "map.gridref") as ds:
        assert ds["angle"].dims == ("time",)
        assert ds["angle"].values.tolist() == [0.5, 1.5, 0.5]


@pytest.mark.parametrize("layout", ["ragged", "padded"])
def test_parts_of_names_of_instances(tmp_path: Path, layout: Any) -> None:
    depths = {1: "low", 2: "high", 3: "low"}
    files = [drifter(tmp_path / f"b{n}_{depth}.nc", n, n + 1, 1) for n, depth in depths.items()]
    options = {"layout": layout, "stack": "buoy", "pattern": "b{buoy:d}_{_}.nc"}
    gridref.build(files, tmp_path / "cube.gridref", **by_name(**options))
    files.append(drifter(tmp_path / "b4_high.nc", 4, 2, 1))
    gridref.open_catalog(tmp_path / "cube.gridref").append(files[3:])
    with xr.open_dataset(tmp_path / "cube.gridref") as ds:
        assert ds["part1"].dims == ("buoy",)
        assert ds["buoy"].values.tolist() == [1, 2, 3, 4]
        assert ds["part1"].values.tolist() == ["low", "high", "low", "high"]


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


@pytest.mark.parametrize(
    ("own", "times"),
    [
        ("index", NAMED),
        ("index", SHIFTED),
        ("scalar", NAMED),
        ("scalar", SHIFTED),
        ("absent", NAMED),
    ],
)
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
    contradicted = times != NAMED
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
