"""Scanning many NetCDF4 files on a server with latency: gridref beside virtualizarr.

Run with ``python -m benchmarks.scan_many [--delay MS] [--files N]``. A server of its own process on
the loopback device holds back each answer and counts requests and bytes. virtualizarr scans in 16
threads. Both are warmed up with two files; times are of the wall clock, one run each, and of the
client's processor.
"""

from __future__ import annotations

import argparse
import multiprocessing
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import gridref
from benchmarks._figures import Figure
from benchmarks._late_files import serve_files
from benchmarks.hdf5_scan import N_VARIABLES, build
from gridref.api.scan import scan_many

N_DIFFERENT = 240


@contextmanager
def server(folder: str, n_files: int, delay_seconds: float) -> Iterator[tuple[str, Connection]]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve_files, args=(folder, n_files, delay_seconds, theirs))
    process.start()
    try:
        yield ours.recv(), ours
    finally:
        ours.send(False)
        process.join()


def by_gridref(urls: Sequence[str]) -> None:
    scan_many(urls)


def by_gridref_build(urls: Sequence[str]) -> None:
    """A catalog of the files along a new dimension: their coordinates are compared, too."""
    with tempfile.TemporaryDirectory() as folder:
        gridref.build(urls, Path(folder) / "c.gridref", "file")


def by_virtualizarr(urls: Sequence[str]) -> None:
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import HTTPStore
    from virtualizarr.parsers import HDFParser

    root = urls[0].rpartition("/")[0]
    store = HTTPStore.from_url(root, client_options={"allow_http": True})
    registry = ObjectStoreRegistry({root: store})
    parser = HDFParser()

    def scan(url: str) -> Any:
        return parser(url=url, registry=registry)

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(scan, urls))


class Measured(NamedTuple):
    """Milliseconds a file, those of the processor, requests a file, most requests at once."""

    wall: float
    cpu: float
    n_requests: float
    most_at_once: int


def measure(
    scan_all: Callable[[Sequence[str]], None], urls: Sequence[str], pipe: Connection
) -> Measured:
    scan_all(urls[:2])
    pipe.send(True)
    pipe.recv()
    started, used = time.perf_counter(), time.process_time()
    scan_all(urls)
    spent, used = time.perf_counter() - started, time.process_time() - used
    pipe.send(True)
    n_requests, most = pipe.recv()
    n = len(urls)
    return Measured(1000 * spent / n, 1000 * used / n, n_requests / n, most)


@contextmanager
def served_files(n_files: int, delay_seconds: float) -> Iterator[tuple[list[str], Connection]]:
    """Addresses of so many files on a server that is late."""
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(N_DIFFERENT):
            build(Path(folder) / f"{seed:02}.nc", seed)
        with server(folder, n_files, delay_seconds) as (root, pipe):
            yield [f"{root}/{number:05}.nc" for number in range(n_files)], pipe


def figures() -> Iterator[Figure]:
    with served_files(240, 0.025) as (urls, pipe):
        theirs = measure(by_virtualizarr, urls[:24], pipe)
        ours = min(measure(by_gridref, urls[:24], pipe) for _ in range(3))
        many = measure(by_gridref, urls, pipe)
    what = "scan 24 NetCDF4 files, 25 ms a request"
    yield Figure(what, theirs.wall / ours.wall, ">= 30", own=f"{ours.wall:.1f} ms a file")
    yield Figure(f"{what}: requests a file", ours.n_requests, "<= 1", "requests")
    yield Figure("scan 240 NetCDF4 files, 25 ms a request, one file", many.wall, "<= 5 ms", "ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--delay", type=float, default=25, help="milliseconds an answer waits")
    asked = parser.parse_args()
    print(f"{platform.platform()}, Python {platform.python_version()}")
    print(f"NetCDF4 files of {N_VARIABLES + 3} variables, {asked.delay:g} ms an answer\n")
    print("| files | by | ms a file | of the processor | requests a file | most at once |")
    print("|---:|---|---:|---:|---:|---:|")
    with served_files(asked.files, asked.delay / 1000) as (urls, pipe):
        runs = [
            (urls[:24], by_virtualizarr),
            (urls[:24], by_gridref),
            (urls, by_gridref),
            (urls[:200], by_gridref_build),
        ]
        for some, run in runs:
            found = measure(run, some, pipe)
            name = run.__name__.removeprefix("by_").replace("_", ", ")
            print(
                f"| {len(some)} | {name} | {found.wall:.1f} | {found.cpu:.1f} |"
                f" {found.n_requests:.1f} | {found.most_at_once} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
