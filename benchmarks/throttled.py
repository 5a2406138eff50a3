"""A server that throttles: the same catalog, and how long it takes.

Run with ``python -m benchmarks.throttled [--files N] [--most N]``. The server, in a process of its
own, answers so many requests a second and says 503 with ``Retry-After: 1`` to all others. gridref
builds a catalog, with and without that; virtualizarr scans in 16 threads, and its store tries again
by itself.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import gridref
from benchmarks.hdf5_scan import build as write_file
from benchmarks.scan_many import by_virtualizarr, server
from gridref.io import counted_traffic


def digest(urls: Sequence[str], catalog: Path) -> tuple[str, float, int]:
    """What a catalog of the files holds, the seconds that it took, and the requests sent."""
    started = time.perf_counter()
    with counted_traffic() as traffic:
        gridref.build(urls, catalog, "file")
    spent = time.perf_counter() - started
    return gridref.open_catalog(catalog).info.digest, spent, traffic.n_requests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--most", type=int, default=50, help="requests a second")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "files")
        folder.mkdir()
        write_file(folder / "0.nc", 0)
        with server(str(folder), asked.files, 0.0) as (root, pipe):
            urls = [f"{root}/{number:05}.nc" for number in range(asked.files)]
            free, seconds, n_requests = digest(urls, Path(temporary, "free.gridref"))
            print(f"gridref, all requests: {seconds:.1f} s, {n_requests} requests")
            pipe.send(asked.most)
            pipe.recv()
            held, seconds, n_requests = digest(urls, Path(temporary, "held.gridref"))
            print(f"gridref, {asked.most} a second: {seconds:.1f} s, {n_requests} requests")
            print(f"  the digest is {'the same' if held == free else 'ANOTHER'}")
            started = time.perf_counter()
            try:
                by_virtualizarr(urls)
                told = ""
            except Exception as error:  # noqa: BLE001 - that it fails is the result
                told = f", {type(error).__name__}"
            print(
                f"virtualizarr, {asked.most} a second: {time.perf_counter() - started:.1f} s{told}"
            )


if __name__ == "__main__":
    main()
