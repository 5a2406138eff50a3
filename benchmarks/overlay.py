"""Series and maps of an archive of maps, before and with an overlay.

Run with ``python -m benchmarks.overlay [--files N]``. Files hold 100 steps, each map is a chunk; or
2,600 hours of small maps, each day a chunk. A server answers each request 25 ms late. "First" opens
the catalog, reads once and forgets.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import h5py
import numpy as np
import xarray as xr

import gridref
from benchmarks._timing import best_of
from gridref.model.projection import Progression
from gridref.serve.choosing import choose

LATENCY = 0.025


@dataclass(frozen=True)
class Archive:
    """Files of some steps each, of which a point is read, and the chunks of an overlay."""

    name: str
    steps: int
    n_lat: int
    n_lon: int
    chunk_steps: int
    layout: Mapping[str, int]
    point: tuple[int, int]


MAPS = Archive("maps", 100, 96, 192, 1, {"time": -1, "lat": 16, "lon": 16}, (40, 70))
HOURS = Archive("hours", 2600, 16, 24, 24, {"time": -1, "lat": 2, "lon": 2}, (7, 9))


def write_files(folder: Path, n_files: int, archive: Archive = MAPS) -> list[str]:
    """Write smooth fields with two decimals, as models and analyses have them."""
    files = []
    steps, n_lat, n_lon = archive.steps, archive.n_lat, archive.n_lon
    field = np.add.outer(np.sin(np.arange(n_lat) / 9), np.cos(np.arange(n_lon) / 7))
    for number in range(n_files):
        path = folder / f"{archive.name}{number:04}.h5"
        days = number * steps + np.arange(steps)
        noise = np.random.default_rng(number).random((steps, n_lat, n_lon))
        values = 280 + 10 * field + 5 * np.sin(days / 365)[:, None, None] + noise
        with h5py.File(path, "w") as file:
            for name, labels in (
                ("time", days),
                ("lat", np.linspace(-90, 90, n_lat)),
                ("lon", np.arange(n_lon) * 1.875),
            ):
                file[name] = labels
                file[name].make_scale(name)
            data = file.create_dataset(
                "tas",
                data=values.round(2).astype("f4"),
                chunks=(archive.chunk_steps, n_lat, n_lon),
                compression="gzip",
                compression_opts=1,
                shuffle=True,
            )
            for axis, name in enumerate(("time", "lat", "lon")):
                data.dims[axis].attach_scale(file[name])
        files.append(str(path))
    return files


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of one call, and what it returns."""
    began = time.perf_counter()
    found = call()
    return time.perf_counter() - began, found


class Late:
    """A server of a folder whose answers are late."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "benchmarks._slow_server", str(folder), str(LATENCY)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{self._process.stdout.readline().strip()}"

    def count(self) -> int:
        """Requests since this was last asked."""
        with urlopen(f"{self.url}/count") as answer:
            return int(answer.read())

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


def doors(
    url: str, overlay: Any, point: tuple[int, int] = MAPS.point
) -> dict[str, Callable[[], Any]]:
    """Reads of a series at one point, each from the beginning."""
    place = (slice(None), *point)

    def opened() -> gridref.Catalog:
        return gridref.open_catalog(url, overlay=overlay, allow="*")

    return {
        "catalog": lambda: opened()["tas"][place],
        "engine": lambda: opened().to_xarray()["tas"][place].values,
        "open_zarr": lambda: xr.open_zarr(gridref.open_store(opened()))["tas"][place].values,
    }


def report_series(
    where: str,
    url: str,
    expected: np.ndarray,
    late: Late | None,
    point: tuple[int, int] = MAPS.point,
) -> None:
    """Print seconds and requests of a series, from files and with the overlay."""
    for overlay in ("none", "auto"):
        for door, read in doors(url, overlay, point).items():
            if late is not None:
                late.count()
            seconds, values = timed(read)
            requests = f", {late.count()} requests" if late is not None else ""
            assert np.array_equal(values, expected)
            name = "files" if overlay == "none" else "overlay"
            print(f"{where}: series, first, {door}, {name}: {seconds:.3f} s{requests}")


def report_maps(where: str, url: str, expected: np.ndarray, n_rounds: int) -> None:
    """Print the seconds of maps, each of which is read for the first time."""
    opened = {
        name: gridref.open_catalog(url, overlay=overlay, allow="*")["tas"]
        for name, overlay in (("files", "none"), ("beside an overlay", "auto"))
    }
    steps = {name: iter(range(0, len(expected), 7)) for name in opened}
    for array in opened.values():
        array[3]
    calls = {
        name: lambda array=array, name=name: array[next(steps[name])]
        for name, array in opened.items()
    }
    found = best_of(calls, n_rounds)
    shown = ", ".join(f"{name} {1000 * seconds:.2f} ms" for name, seconds in found.items())
    print(f"{where}: a map: {shown} (ratio {found['files'] / found['beside an overlay']:.2f})")


def built(folder: Path, n_files: int, archive: Archive) -> gridref.Catalog:
    """A catalog of an archive, with an overlay of its field, and of its labels."""
    files = write_files(folder, n_files, archive)
    url = str(folder / f"{archive.name}.gridref")
    gridref.build(files, url, concat_dim="time", relative=True, identity="size")
    catalog = gridref.open_catalog(url)
    n_bytes = catalog["tas"].nbytes
    seconds, catalog = timed(lambda: catalog.rechunk("tas", archive.layout, memory="1GB"))
    print(f"rechunk of {n_bytes / 1e6:.0f} MB: {seconds:.1f} s; {catalog.report.lines[0]}")
    for labels in ("time", "lat", "lon"):  # which xarray reads
        catalog = catalog.rechunk(labels, {labels: -1})
    return catalog


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100)
    n_files = parser.parse_args().files
    print(f"gridref {gridref.__version__}, Python {platform.python_version()}, {n_files} files")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        catalog, hours = (built(folder, n_files, archive) for archive in (MAPS, HOURS))
        url, lat, lon = str(folder / "maps.gridref"), *MAPS.point
        series = gridref.open_catalog(url, overlay="none")["tas"][:, lat, lon]
        by_hour = gridref.open_catalog(hours.info.url, overlay="none")["tas"][:, *HOURS.point]
        maps = np.empty(len(series))
        report_series("local", url, series, None)
        report_maps("local", url, maps, 200)
        late = Late(folder)
        try:
            remote = f"{late.url}/maps.gridref"
            report_series("25 ms", remote, series, late)
            report_maps("25 ms", remote, maps, 15)
            remote = f"{late.url}/hours.gridref"
            report_series(f"25 ms, {len(by_hour)} hours", remote, by_hour, late, HOURS.point)
        finally:
            late.stop()
        selections = [Progression(0, 1, len(series)), *(Progression(n, 1, 1) for n in (lat, lon))]
        seconds = best_of({"": lambda: choose(catalog["tas"], selections)}, 200)[""]
        print(f"choosing a layout: {1e6 * seconds:.0f} µs")


if __name__ == "__main__":
    main()
