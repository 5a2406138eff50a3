"""A forecast archive of GRIB files: one cube, that grows with each file that appears."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.api.catalog import Catalog
from tests.grib_files import field, fields_of, write_grib
from tests.http_server import Site, serving

N_FILES = 24
N_LEVELS = 20
UPPER = ("t", "u", "v", "q", "gh", "w", "r")
SURFACE = ("2t", "2d", "10u", "10v", "sp", "tcc")


def forecast(path: Path, hour: int, levels: int = N_LEVELS) -> Path:
    """A file like HRRR's of one step: levels, 2 m and 10 m, and two windows of precipitation."""
    begin = {"dataDate": 20240301, "dataTime": 0}
    fields = [
        {"shortName": name, "typeOfLevel": "isobaricInhPa", "level": 1000 - 25 * level}
        for name in UPPER
        for level in range(levels)
    ]
    fields += [{"shortName": name} for name in SURFACE]
    windows = [{"shortName": "tp", "stepRange": f"{at}-{hour}"} for at in (0, max(hour - 1, 0))]
    return write_grib(
        path,
        *(
            field(seed=1000 * hour + number, **begin, **keys, step=hour)
            for number, keys in enumerate(fields)
        ),
        *(field(seed=1000 * hour + 999, **begin, **keys) for keys in windows if hour),
    )


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """24 files of 148 messages."""
    folder = tmp_path_factory.mktemp("day")
    return [forecast(folder / f"hrrr.t00z.wrfprsf{hour:02}.grib2", hour) for hour in range(N_FILES)]


def assert_same_day(cube: Catalog, files: list[Path]) -> None:
    """Every field of every file is where its labels say, and there are no others."""
    values = {path: array[...] for path, array in cube.all_arrays().items()}
    steps = values["isobaricInhPa/step"].tolist()
    levels = values["isobaricInhPa/isobaricInhPa"].tolist()
    seen = set()
    for path in files:
        for about in fields_of(path):
            for place in places_of(about):
                found = values[place][0, steps.index(about["endStep"] * 3600)]
                if found.ndim == 3:
                    found = found[levels.index(about["level"])]
                assert np.array_equal(found.reshape(-1), about["values"].astype("f4")), place
                seen.add((place, about["endStep"], about["level"]))
    cells = [each for name, each in values.items() if "GRIB_name" in cube[name].attrs]
    assert sum(int(np.isfinite(each).sum()) for each in cells) == len(seen) * 12


def places_of(about: dict[str, Any]) -> list[str]:
    name, kind = about["cfVarName"], about["typeOfLevel"]
    if about["stepType"] == "instant":
        return [f"{kind}/{name}"]
    length = about["endStep"] - about["startStep"]
    both = [f"{kind}/accum/{name}"] if about["startStep"] == 0 else []
    return both if length > 1 else [*both, f"{kind}/accum_1h/{name}"]


@pytest.mark.long
def test_a_day_becomes_a_cube(day: list[Path], tmp_path: Path) -> None:
    cube = built(day, tmp_path / "day.gridref")
    assert cube["isobaricInhPa/t"].shape == (1, N_FILES, N_LEVELS, 3, 4)
    assert_same_day(cube, day)
    assert not cube.verify().differences


def built(files: list[Path], address: Path) -> Catalog:
    gridref.build(files, address)
    return gridref.open_catalog(address)


def some(folder: Path, hours: range) -> list[Path]:
    return [forecast(folder / f"hrrr.wrfprsf{hour:02}.grib2", hour, levels=2) for hour in hours]


def test_files_are_appended_as_they_appear(tmp_path: Path) -> None:
    files = some(tmp_path, range(6))
    cube = built(files[:2], tmp_path / "cube.gridref")
    for file in files[2:]:
        cube = cube.append(file)
    assert_same_day(cube, files)
    whole = built(files, tmp_path / "whole.gridref")
    assert cube.info.digest == whole.info.digest
    checked = cube.verify()
    assert checked.n_arrays == 7 + 6 + 2
    assert not checked.differences


def test_times_are_those_of_xarray(tmp_path: Path) -> None:
    files = some(tmp_path, range(3))
    gridref.build(files, tmp_path / "cube.gridref")
    with xr.open_datatree(tmp_path / "cube.gridref", engine="gridref") as tree:
        upper = tree["isobaricInhPa"].dataset
        hours = np.arange(3) * np.timedelta64(1, "h")
        assert (upper.step.values == hours).all()
        assert (upper.valid_time.values == np.datetime64("2024-03-01") + hours).all()
        rain = tree["surface/accum"].dataset
        assert rain.tp.isel(step=0).isnull().all()  # the analysis has none
        assert not rain.tp.isel(step=slice(1, None)).isnull().any()


def rain(folder: Path) -> Path:
    """A catalog of two steps: levels above the ground, at the surface, and three windows."""
    files = []
    for hour in (6, 9):
        names = [{"shortName": name, "step": hour} for name in ("2t", "2d", "10u", "sp")]
        names += [
            {"shortName": "tp", "stepRange": f"{at}-{hour}"} for at in (0, hour - 1, hour - 3)
        ]
        fields = [field(seed=10 * hour + n, **keys) for n, keys in enumerate(names)]
        files.append(write_grib(folder / f"f{hour}.grib2", *fields))
    gridref.build(files, folder / "f.gridref")
    return folder / "f.gridref"


def test_groups_choose_what_filter_by_keys_does(tmp_path: Path) -> None:
    """The rows of docs/formats.md, against what eccodes says of each field."""
    path = rain(tmp_path)

    def chosen(**keys: Any) -> set[str]:
        return {
            about["cfVarName"]
            for about in fields_of(tmp_path / "f6.grib2")
            if all(about[key] == value for key, value in keys.items())
        }

    def opened(group: str) -> xr.Dataset:
        return xr.open_dataset(path, engine="gridref", group=group)

    def named(dataset: xr.Dataset) -> set[str]:
        return set(dataset.data_vars) - {"spatial_ref"}

    surface, above = opened("surface"), opened("heightAboveGround")
    assert named(surface) == chosen(typeOfLevel="surface", stepType="instant") == {"sp"}
    accumulated = chosen(typeOfLevel="surface", stepType="accum")
    assert named(opened("surface/accum")) == accumulated == {"tp"}
    two_metres = chosen(typeOfLevel="heightAboveGround", level=2)
    assert named(above.filter_by_attrs(GRIB_level=2)) == two_metres == {"t2m", "d2m"}
    assert named(above.filter_by_attrs(GRIB_shortName="2t")) == chosen(shortName="2t")
    assert named(above.filter_by_attrs(GRIB_paramId=167)) == chosen(paramId=167)
    files = sorted(tmp_path.glob("*.grib2"))
    lazy = gridref.open_mfdataset(files, group="heightAboveGround", work=False)
    fields = ["t2m", "d2m", "u10"]
    xr.testing.assert_equal(lazy[fields].load(), above[fields].load())


def test_windows_become_a_dimension(tmp_path: Path) -> None:
    catalog = gridref.open_catalog(rain(tmp_path))
    hours = (1, 3)
    both = gridref.concat([catalog[f"surface/accum_{n}h"] for n in hours], "window", labels=hours)
    assert both["tp"].dims == ("window", "time", "step", "latitude", "longitude")
    for at, length in enumerate(hours):
        for step, hour in enumerate((6, 9)):
            (about,) = (
                about
                for about in fields_of(tmp_path / f"f{hour}.grib2")
                if about["shortName"] == "tp"
                and (about["startStep"], about["endStep"]) == (hour - length, hour)
            )
            assert np.array_equal(both["tp"][at, 0, step].reshape(-1), about["values"].astype("f4"))
    tree = xr.open_datatree(tmp_path / "f.gridref", engine="gridref")
    parts = [tree["surface"].dataset, tree["surface/accum"].dataset]
    merged = xr.merge(parts, compat="no_conflicts")
    merged.gridref.save(tmp_path / "part.gridref")
    part = xr.open_dataset(tmp_path / "part.gridref", engine="gridref")
    xr.testing.assert_equal(part.tp.load(), tree["surface/accum"].tp.load())
    assert set(part.data_vars) >= {"sp", "tp"}


def append_one(catalog: str, file: str) -> None:
    gridref.open_catalog(catalog).append(file)


@pytest.mark.parametrize("n_writers", [4, pytest.param(16, marks=pytest.mark.long)])
def test_processes_append_at_the_same_time(tmp_path: Path, n_writers: int) -> None:
    files = [
        write_grib(tmp_path / f"{hour}.grib2", field(seed=hour, shortName="sp", step=hour))
        for hour in range(n_writers + 2)
    ]
    gridref.build(files[:2], tmp_path / "cube.gridref")
    context = get_context("forkserver")
    context.set_forkserver_preload(["gridref.api.catalog"])
    with ProcessPoolExecutor(n_writers, context) as pool:
        done = [
            pool.submit(append_one, str(tmp_path / "cube.gridref"), str(file)) for file in files[2:]
        ]
        for each in done:
            each.result()
    values = gridref.open_catalog(tmp_path / "cube.gridref")["surface/sp"][...]
    expected = [fields_of(path)[0]["values"].astype("f4").reshape(3, 4) for path in files]
    assert np.array_equal(values[0], expected)


def test_files_on_a_server(tmp_path: Path) -> None:
    files = some(tmp_path, range(1, 3))
    with serving(Site({f"/{file.name}": file.read_bytes() for file in files})) as site:
        addresses = [f"{site.url}/{file.name}" for file in files]
        gridref.build(addresses, tmp_path / "cube.gridref")
        assert_same_day(gridref.open_catalog(tmp_path / "cube.gridref"), files)
