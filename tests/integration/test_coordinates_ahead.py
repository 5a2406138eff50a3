"""Coordinates that combining compares come with the metadata of remote files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import netCDF4
import numpy as np
import pytest

import gridref
from gridref.errors import CombineError, SourceChangedError
from tests.http_server import Site, serving

N_FILES = 8


def write_file(path: Path, number: int) -> None:
    """A file whose coordinates lie at its end, behind more data than is read whole."""
    with netCDF4.Dataset(path, "w") as file:
        for name, size in (("time", None), ("lat", 30), ("lon", 40)):
            file.createDimension(name, size)
        for name in ("first", "second"):
            values = file.createVariable(name, "f8", ("time", "lat", "lon"))
            values[:] = np.random.default_rng(number).random((40, 30, 40))
        for name, size in (("time", 40), ("lat", 30), ("lon", 40)):
            coordinate = file.createVariable(name, "f8", (name,))
            coordinate.units = "days since 2000-01-01" if name == "time" else "degrees"
            coordinate[:] = np.arange(size) + (40 * number if name == "time" else 0)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("ahead")
    paths = [folder / f"{number}.nc" for number in range(N_FILES)]
    for number, path in enumerate(paths):
        write_file(path, number)
    return paths


@pytest.fixture
def site(paths: list[Path]) -> Iterator[Site]:
    files = {f"/{path.name}": path.read_bytes() for path in paths}
    with serving(Site(files, {name: f'"{name}"' for name in files})) as site:
        yield site


def test_files_take_few_requests(site: Site, paths: list[Path], tmp_path: Path) -> None:
    urls = [f"{site.url}/{path.name}" for path in paths]
    built = gridref.build(
        urls, tmp_path / "c.gridref", "time", run=gridref.RunOptions(max_in_flight=1)
    )
    # Metadata and coordinates lie in three places of each file; asked for alone, they took six.
    assert len(site.requests) == 3 * N_FILES
    for name in ("first", "time", "lat"):
        values = []
        for path in paths:
            with netCDF4.Dataset(path) as file:
                values.append(file[name][...].filled())
        expected = values[0] if name == "lat" else np.concatenate(values)
        np.testing.assert_array_equal(built[name][...], expected)


def test_opening_and_appending_take_few_requests(
    site: Site, paths: list[Path], tmp_path: Path
) -> None:
    urls = [f"{site.url}/{path.name}" for path in paths]
    opened = gridref.open_virtual_mfdataset(
        urls[:-1], concat_dim="time", combine="nested", data_vars="minimal"
    )
    assert len(site.requests) <= 4 * (N_FILES - 1)  # all at a time, so that none learns
    assert opened["lat"][7] == 7.0
    gridref.build(urls[:-1], tmp_path / "c.gridref", "time")
    site.requests.clear()
    gridref.open_catalog(tmp_path / "c.gridref").append(urls[-1])
    of_the_new = [path for _, path, _ in site.requests if path == f"/{paths[-1].name}"]
    assert len(of_the_new) == 4  # three places of metadata, and all coordinates at once


def test_values_are_read_anew_after_the_work(site: Site, paths: list[Path], tmp_path: Path) -> None:
    """Bytes of a scan serve the call that scans; a file that changes later is noticed."""
    urls = [f"{site.url}/{path.name}" for path in paths]
    built = gridref.build(urls, tmp_path / "c.gridref", "time")
    site.etags["/0.nc"] = '"other"'
    with pytest.raises(SourceChangedError):
        built["lat"][...]


def test_coordinates_are_compared(site: Site, paths: list[Path], tmp_path: Path) -> None:
    """What was fetched along with metadata is what the rules see: another latitude is noticed."""
    other = tmp_path / "other.nc"
    write_file(other, 3)
    with netCDF4.Dataset(other, "a") as file:
        file["lat"][7] += 0.25
    site.files["/3.nc"] = other.read_bytes()
    urls = [f"{site.url}/{path.name}" for path in paths]
    with pytest.raises(CombineError, match=r"lat: .*3\.nc"):
        gridref.build(urls, tmp_path / "c.gridref", "time")
