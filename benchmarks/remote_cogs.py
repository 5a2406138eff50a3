"""Scanning many remote COGs: gridref beside virtual-tiff (for virtualizarr) in 16 threads.

Run with ``python -m benchmarks.remote_cogs [--files N] [--peer-files N] [--delay MS]``. The files
are copies of a hundred COGs that GDAL writes, on a server of its own process that holds back each
answer. virtual-tiff reads by async-tiff. Both are warmed up with one file; times are of the wall
clock, one run each, the peer's of fewer files if so asked.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks._figures import Figure
from benchmarks.scan_many import by_gridref, measure, server
from benchmarks.tiff_scan import write_cogs

N_DIFFERENT = 100


def by_virtual_tiff(urls: Sequence[str]) -> None:
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import HTTPStore
    from virtual_tiff import VirtualTIFF

    root = urls[0].rpartition("/")[0]
    store = HTTPStore.from_url(root, client_options={"allow_http": True})
    registry = ObjectStoreRegistry({root: store})
    parser = VirtualTIFF()

    def scan(url: str) -> Any:
        return parser(url, registry)

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(scan, urls))


def figures(n_files: int = 500) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        write_cogs(Path(folder), N_DIFFERENT, 2048)
        with server(folder, n_files, 0.025) as (root, pipe):
            urls = [f"{root}/{number:05}.tif" for number in range(n_files)]
            both = [
                [measure(run, urls, pipe) for run in (by_virtual_tiff, by_gridref)]
                for _ in range(3)
            ]
    theirs, ours = map(min, zip(*both, strict=True))
    what = f"scan {n_files} COGs, 25 ms a request"
    yield Figure(what, theirs.wall / ours.wall, ">= 5", own=f"{ours.wall:.2f} ms a file")
    busy = f"{ours.cpu:.2f} ms a file"
    yield Figure(f"{what}, in processor time", theirs.cpu / ours.cpu, own=busy)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--peer-files", type=int, default=500)
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--delay", type=float, default=25, help="milliseconds an answer waits")
    asked = parser.parse_args()
    print(f"{platform.platform()}, Python {platform.python_version()}")
    print(f"COGs of {asked.size} by {asked.size} pixels, {asked.delay:g} ms an answer\n")
    with tempfile.TemporaryDirectory() as folder:
        write_cogs(Path(folder), N_DIFFERENT, asked.size)
        with server(folder, asked.files, asked.delay / 1000) as (root, pipe):
            urls = [f"{root}/{number:05}.tif" for number in range(asked.files)]
            each = {}
            for some, run in ((urls[: asked.peer_files], by_virtual_tiff), (urls, by_gridref)):
                found = measure(run, some, pipe)
                each[run] = found.wall
                print(
                    f"{run.__name__:16} {len(some):5} files {found.wall:7.1f} ms a file"
                    f" ({found.cpu:.1f} of the processor), {found.n_requests:.1f} requests a file,"
                    f" {found.most_at_once} at once",
                    flush=True,
                )
    print(f"  gridref is {each[by_virtual_tiff] / each[by_gridref]:.1f} times as fast (target: 5)")


if __name__ == "__main__":
    main()
