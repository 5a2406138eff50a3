"""Series and maps of an archive of maps, before and with an overlay.

Run with ``python -m benchmarks.overlay [--files N]``. Files hold 100 steps, each map is a chunk; or
2,600 hours of small maps, each day a chunk. A server answers each request 25 ms late. "First" opens
the catalog, reads once and forgets.

``python -m benchmarks.overlay --gb N [--memory SIZE]`` writes an overlay of series instead, beside
xarray with Dask, and rechunker. RECHUNKER_PYTHON is the Python of an environment in which ``pip
install rechunker "zarr<3"`` was called; without it that peer is left out. rechunker reads a plain
Zarr array of the same chunks, whose writing is not counted. All write zstd 1 with shuffle; the
peers as Blosc does it, which is faster for them.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import h5py
import numpy as np
import psutil
import xarray as xr
import zarr

import gridref
from benchmarks import copying
from benchmarks._figures import Figure, print_table
from benchmarks._timing import Run, best_of, run_script
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


def map_seconds(url: str, n_rounds: int) -> dict[str, float]:
    """Seconds of maps, each of which is read for the first time: the best of some."""
    opened = {
        name: gridref.open_catalog(url, overlay=overlay, allow="*")["tas"]
        for name, overlay in (("files", "none"), ("beside an overlay", "auto"))
    }
    n_steps = opened["files"].shape[0]
    steps = {name: iter(range(0, n_steps, 7)) for name in opened}
    for array in opened.values():
        array[3]
    calls = {
        name: lambda array=array, name=name: array[next(steps[name])]
        for name, array in opened.items()
    }
    return best_of(calls, min(n_rounds, n_steps // 7))


def report_maps(where: str, url: str, n_rounds: int) -> None:
    """Print the seconds of maps, from files and beside an overlay."""
    found = map_seconds(url, n_rounds)
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


# Figures that are kept


def figures(n_files: int = 100) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for archive in (MAPS, HOURS):
            built(folder, n_files, archive)
        yield map_figure("local", str(folder / "maps.gridref"), 300)
        late = Late(folder)
        try:
            for archive in (MAPS, HOURS):
                yield from series_figures(f"{late.url}/{archive.name}.gridref", late, archive)
            yield map_figure("25 ms a request", f"{late.url}/maps.gridref", 15)
        finally:
            late.stop()
        yield choosing_figure(folder)


def series_figures(url: str, late: Late, archive: Archive) -> Iterator[Figure]:
    """A first series through a server, against the same without an overlay."""
    n_steps = gridref.open_catalog(url, allow="*")["tas"].shape[0]
    for door in ("engine", "open_zarr"):
        seconds, values = {}, {}
        for overlay in ("none", "auto"):
            late.count()
            read = doors(url, overlay, archive.point)[door]
            seconds[overlay], values[overlay] = timed(read)
            n_requests = late.count()
        assert np.array_equal(values["none"], values["auto"])
        row = f"first series of {n_steps:,} {archive.name}, 25 ms a request, {door}"
        own = f"{seconds['auto']:.2f} s"
        yield Figure(row, seconds["none"] / seconds["auto"], "<= 0.5 s", own=own)
        yield Figure(f"{row}: requests", n_requests, "<= 5", "requests")


def map_figure(where: str, url: str, n_rounds: int) -> Figure:
    """A map beside an overlay, against one without."""
    found = map_seconds(url, n_rounds)
    own = f"{1e3 * found['beside an overlay']:.2f} ms"
    ratio = found["files"] / found["beside an overlay"]
    return Figure(f"a map beside an overlay, {where}", ratio, ">= 0.97", own=own)


def choosing_figure(folder: Path) -> Figure:
    """What the planner adds to the read of a map of which an overlay has a hundredth."""
    url = str(folder / "hundredth.gridref")
    gridref.build(sorted(folder.glob("maps*.h5")), url, concat_dim="time", identity="size")
    where = {"lat": slice(0, 17), "lon": slice(0, 34)}  # 9 of 96 by 19 of 192
    array = gridref.open_catalog(url).rechunk("tas", MAPS.layout, where=where)["tas"]
    whole_map = [Progression(3, 1, 1), *(Progression(0, 1, n) for n in array.shape[1:])]
    assert choose(array, whole_map) is None
    seconds = best_of({"": lambda: choose(array, whole_map)}, 300)[""]
    return Figure("planner, overlay of 1 % of the cube", 1e3 * seconds, "<= 0.2 ms", "ms")


# Writing

GRIDREF = """
import sys, gridref
source, target, memory, *chunks = sys.argv[1:]
dims = "phony_dim_0", "phony_dim_1", "phony_dim_2"
layout = dict(zip(dims, map(int, chunks)))
catalog = gridref.open_catalog(source).rechunk("v", layout, to=target, memory=memory)
print(catalog.report.lines[0])
"""
LEFT = 0.8
"""How much of the memory that the machine has left a peer without a bound may take."""
MOST_TIMES = 4
"""How many times as long as gridref a peer may take before it is stopped: twice the target."""


def written(gigabytes: float, memory: str) -> Iterator[tuple[str, Run]]:
    """What writing maps as series takes, by tool. Values are compared at some points."""
    n_maps = round(gigabytes * 1e9 / (4 * copying.SHAPE[0] * copying.SHAPE[1]))
    rechunker = os.environ.get("RECHUNKER_PYTHON")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copying.cube(folder, n_maps)
        cube, plain, target = folder / "maps.gridref", folder / "plain.zarr", folder / "series"
        arguments = (target, memory, -1, 50, 50)
        ours = run_script(GRIDREF, cube, *arguments)
        yield "gridref", ours
        most_seconds = MOST_TIMES * max(ours.seconds, 10)
        points = [(7, 9), (777, 1500)]
        expected = [gridref.open_catalog(cube, overlay=0)["v"][:, *point] for point in points]
        gridref.open_catalog(cube).drop_overlay("v", 0)
        shutil.rmtree(target)
        left = int(LEFT * psutil.virtual_memory().available)
        for tool, script, most_bytes in (
            (f"xarray, a Dask worker of {memory}", copying.BOUNDED + copying.XARRAY, None),
            ("xarray, Dask's threads", copying.XARRAY, left),
        ):
            limits: Any = {"most_bytes": most_bytes, "most_seconds": most_seconds}
            run = run_script(script, cube, *arguments, **limits)
            if not run.failure:
                compare(xr.open_zarr(target)["v"].data, points, expected)
            yield tool, run
            shutil.rmtree(target, ignore_errors=True)
        if rechunker is not None:
            copying.plain(folder / "maps.h5", plain)
            run = run_script(
                copying.RECHUNKER, plain, *arguments, python=rechunker, most_seconds=most_seconds
            )
            if not run.failure:
                compare(zarr.open_array(target, mode="r"), points, expected)
            yield "rechunker with Dask", run


def compare(array: Any, points: list[tuple[int, int]], expected: list[np.ndarray]) -> None:
    """Refuse a copy that has other values than ours."""
    for point, values in zip(points, expected, strict=True):
        assert np.array_equal(np.asarray(array[:, *point]), values)


def writing(gigabytes: float = 20, memory: str = "2GB") -> Iterator[Figure]:
    runs = dict(written(gigabytes, memory))
    ours = runs.pop("gridref")
    assert not ours.failure, ours.failure
    what = f"write an overlay of {gigabytes:g} GB"
    for tool, run in runs.items():
        was_stopped = run.failure.startswith("stopped after")
        if run.failure and not was_stopped:
            print(f"{tool}: {run.failure}", file=sys.stderr)
            continue
        row, more = f"{what}, against {tool}", "; the peer was stopped unfinished" * was_stopped
        own = f"{ours.seconds:.0f} s{more}"
        yield Figure(row, run.seconds / ours.seconds, ">= 2", own=own)
        in_work, own = run.worked / ours.worked, f"{ours.worked:.0f} s{more}"
        yield Figure(f"{row}, in processor time", in_work, ">= 2", own=own)
    yield Figure(f"{what}: memory", ours.peak * 1e3, "<= 2,000 MB", "MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--gb", type=float, help="write an overlay of so many GB instead")
    parser.add_argument("--memory", default="2GB", help="for writing")
    parser.add_argument("--figures", action="store_true", help="the rows of docs/measurements.md")
    asked = parser.parse_args()
    print(f"gridref {gridref.__version__}, Python {platform.python_version()}", flush=True)
    if asked.gb is not None:
        for tool, run in written(asked.gb, asked.memory):
            took = f"{run.seconds:6.1f} s, {run.worked:6.1f} s of the processor, {run.peak:.2f} GB"
            print(f"{tool:24} {took} {run.failure or run.output}", flush=True)
    elif asked.figures:
        print_table(figures(asked.files))
    else:
        report(asked.files)


def report(n_files: int) -> None:
    """Print what reading takes, through all doors."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        catalog, hours = (built(folder, n_files, archive) for archive in (MAPS, HOURS))
        url, lat, lon = str(folder / "maps.gridref"), *MAPS.point
        series = gridref.open_catalog(url, overlay="none")["tas"][:, lat, lon]
        by_hour = gridref.open_catalog(hours.info.url, overlay="none")["tas"][:, *HOURS.point]
        report_series("local", url, series, None)
        report_maps("local", url, 200)
        late = Late(folder)
        try:
            remote = f"{late.url}/maps.gridref"
            report_series("25 ms", remote, series, late)
            report_maps("25 ms", remote, 15)
            remote = f"{late.url}/hours.gridref"
            report_series(f"25 ms, {len(by_hour)} hours", remote, by_hour, late, HOURS.point)
        finally:
            late.stop()
        selections = [Progression(0, 1, len(series)), *(Progression(n, 1, 1) for n in (lat, lon))]
        seconds = best_of({"": lambda: choose(catalog["tas"], selections)}, 200)[""]
        print(f"choosing a layout: {1e6 * seconds:.0f} µs")


if __name__ == "__main__":
    main()
