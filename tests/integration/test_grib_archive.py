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
    assert not cube.verify(all=True).differences


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
