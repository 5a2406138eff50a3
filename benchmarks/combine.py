"""Combining very many files: gridref beside virtualizarr with ``xr.concat``.

Run with ``python -m benchmarks.combine [--files N ...] [--peer-files N]``. Each file has five
variables of one block of ten chunks, and coordinates. gridref gets files of uneven length whose
last chunk is stored padded, which the peer has to refuse; the peer gets files of equal length that
end with a chunk, and its coordinates loaded. The first table streams files out of a generator; the
second holds them in memory for both, best of three. Making them is not counted. Times are processor
times.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks._figures import Figure
from gridref.combine import combine
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Codec, Encoding, bytes_codec
from gridref.model.manifest import ChunkManifest, Source
from gridref.model.scan_report import Fate, Finding, ScanReport

N_VARIABLES = 5
N_CHUNKS = 10
CHUNK = (3, 180, 360)
N_AT_A_TIME = 16
LIMIT_SECONDS, LIMIT_BYTES = 20.0, 10**9
"""What 100,000 files may take."""


def one_file(number: int) -> VirtualGroup:
    """What a scanner makes of one file."""
    source = Source(f"/archive/daily/file_{number:07d}.nc", 10**6, number)
    dtype = np.dtype("f4")
    codecs = (bytes_codec(dtype), Codec.of("numcodecs.zlib", level=4))
    n_steps = 28 + number % 3
    arrays = {
        f"v{variable}": VirtualArray.of_one_block(
            (n_steps, 180, 360),
            dtype,
            encoding=Encoding(CHUNK, dtype, codecs),
            manifest=ChunkManifest.from_columns(
                (source,), offset=np.arange(N_CHUNKS) * 1000 + variable, length=1000
            ),
            dims=("time", "lat", "lon"),
            attrs={
                "units": "K",
                "long_name": f"variable {variable}",
                "cell_methods": "time: mean",
                "_FillValue": np.float32(-999),
            },
            fill_value=np.float32(-999),
        )
        for variable in range(N_VARIABLES)
    }
    arrays |= coordinates(source, n_steps)
    report = ScanReport(
        tuple(Finding(f"/{name}", Fate.TAKEN, source=source.url) for name in arrays)
    )
    return VirtualGroup(arrays, {}, {"history": f"written {number}"}, report)


def coordinates(source: Source, n_steps: int) -> dict[str, VirtualArray]:
    """Virtual coordinates, as scanners find them."""
    dtype = np.dtype("f8")
    units = {"time": "days since 1950-01-01", "lat": "degrees_north", "lon": "degrees_east"}
    return {
        name: VirtualArray.of_one_block(
            (extent,),
            dtype,
            encoding=Encoding((chunk,), dtype, (bytes_codec(dtype),)),
            manifest=ChunkManifest.from_columns((source,), offset=[0], length=8 * chunk),
            dims=(name,),
            attrs={"units": units[name], "standard_name": name},
        )
        for name, extent, chunk in (("time", n_steps, 512), ("lat", 180, 180), ("lon", 360, 360))
    }


class Stopwatch:
    """Gives files out of a generator and measures the time that it needs to make them.

    They are made a few at a time: to read the clock takes a twentieth of the time of a file.
    """

    def __init__(self) -> None:
        self.spent = 0.0

    def watch(self, n_files: int) -> Iterator[VirtualGroup]:
        for numbers in itertools.batched(range(n_files), N_AT_A_TIME):
            start = time.process_time()
            groups = [one_file(number) for number in reversed(numbers)]
            self.spent += time.process_time() - start
            while groups:
                yield groups.pop()


def measure_gridref(n_files: int) -> tuple[float, int]:
    """Seconds for combining, and the process' peak memory in bytes."""
    stopwatch = Stopwatch()
    start = time.process_time()
    result = combine(stopwatch.watch(n_files), "time")
    seconds = time.process_time() - start - stopwatch.spent
    assert result.group is not None
    assert result.group.arrays["v0"].n_blocks == n_files
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure_in_memory(n_files: int) -> tuple[float, int]:
    """As `measure_gridref`, with all files in memory before."""
    groups = [one_file(number) for number in range(n_files)]
    seconds = best_of_three(lambda: combine(groups, "time"))
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def best_of_three(work: Callable[[], object]) -> float:
    """Processor seconds of the fastest of three runs: these are short."""
    found = []
    for _ in range(3):
        gc.collect()  # what was left to do
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def peer_dataset(number: int) -> Any:
    """The same file for virtualizarr, of 30 steps."""
    import xarray as xr
    from virtualizarr.manifests import ChunkManifest as PeerManifest
    from virtualizarr.manifests import ManifestArray
    from virtualizarr.manifests.utils import create_v3_array_metadata

    metadata = create_v3_array_metadata(
        shape=(30, 180, 360),
        data_type=np.dtype("f4"),
        chunk_shape=CHUNK,
        fill_value=-999.0,
        codecs=[{"name": "numcodecs.zlib", "configuration": {"level": 4}}],
    )
    path = f"file:///archive/daily/file_{number:07d}.nc"
    variables = {}
    for variable in range(N_VARIABLES):
        manifest = PeerManifest.from_arrays(
            paths=np.full((N_CHUNKS, 1, 1), path, dtype=np.dtypes.StringDType()),
            offsets=(np.arange(N_CHUNKS, dtype=np.uint64) * 1000).reshape(-1, 1, 1),
            lengths=np.full((N_CHUNKS, 1, 1), 1000, np.uint64),
        )
        array = ManifestArray(metadata=metadata, chunkmanifest=manifest)
        variables[f"v{variable}"] = xr.Variable(("time", "lat", "lon"), array, {"units": "K"})
    days = np.datetime64("2000-01-01") + np.arange(30 * number, 30 * number + 30)
    coords = {"time": days, "lat": np.linspace(-90, 90, 180), "lon": np.arange(360.0)}
    return xr.Dataset(variables, coords)


CHECKED = {"compat": "equals", "join": "exact", "combine_attrs": "drop_conflicts"}
UNCHECKED = {"compat": "override", "join": "override", "combine_attrs": "override"}


def measure_peer(n_files: int, rules: dict[str, str]) -> tuple[float, int]:
    """Seconds for ``xr.concat``, and the process' peak memory in bytes."""
    import xarray as xr

    datasets = [peer_dataset(number) for number in range(n_files)]
    how = {"data_vars": "minimal", "coords": "minimal", **rules}
    seconds = best_of_three(lambda: xr.concat(datasets, "time", **how))
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def in_new_process(what: str, n_files: int) -> tuple[float, int]:
    """Measure in a process of its own, so that peak memory is that of one run."""
    command = [sys.executable, "-m", "benchmarks.combine", "--run", what, "--files", str(n_files)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(answer[0]), int(answer[1])


def show(name: str, n_files: int, seconds: float, n_bytes: int) -> float:
    each = seconds / n_files * 1e6
    print(
        f"{name:34} {n_files:>9,} files {seconds:8.2f} s {each:7.1f} µs per file"
        f" {n_bytes / 1e6:8.0f} MB"
    )
    return each


def figures(n_files: int = 2000) -> Iterator[Figure]:
    seconds = {name: in_new_process(name, n_files)[0] for name in TITLES}
    own = f"{1e6 * seconds['memory'] / n_files:.0f} µs a file"
    yield Figure(
        "combine 2,000 files", seconds["peer-checked"] / seconds["memory"], ">= 10", own=own
    )


def million() -> Iterator[Figure]:
    seconds, n_bytes = in_new_process("streamed", 1_000_000)
    yield Figure("combine 1,000,000 files", seconds, "<= 30 s", "s")
    yield Figure("combine 1,000,000 files, memory", n_bytes / 1e6, "<= 400 MB", "MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--peer-files", type=int, default=2_000)
    parser.add_argument("--run", choices=list(RUNS), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.run:
        print(*RUNS[chosen.run](chosen.files[0]))
        return
    for n_files in chosen.files:
        seconds, n_bytes = in_new_process("streamed", n_files)
        show("gridref, streamed", n_files, seconds, n_bytes)
        if n_files == 100_000:
            kept = seconds < LIMIT_SECONDS and n_bytes < LIMIT_BYTES
            print(f"  limits of {LIMIT_SECONDS:.0f} s and 1 GB: {'kept' if kept else 'NOT KEPT'}")
    each = {
        name: show(TITLES[name], chosen.peer_files, *in_new_process(name, chosen.peer_files))
        for name in TITLES
    }
    for name in ("peer-checked", "peer-unchecked"):
        print(f"  gridref is {each[name] / each['memory']:.1f} times as fast as {TITLES[name]}")


RUNS = {
    "streamed": measure_gridref,
    "memory": measure_in_memory,
    "peer-checked": lambda n_files: measure_peer(n_files, CHECKED),
    "peer-unchecked": lambda n_files: measure_peer(n_files, UNCHECKED),
}
TITLES = {
    "memory": "gridref, all checks",
    "peer-checked": "virtualizarr, xr.concat, checks",
    "peer-unchecked": "virtualizarr, xr.concat, unchecked",
}


if __name__ == "__main__":
    main()
