"""One remote file scanned alone: ``python -m benchmarks.remote_file``.

A NetCDF4 file of 20 variables on a server that is 25 ms late, by gridref, kerchunk and VirtualiZarr
in turn. Each has scanned another file of the server before, so that modules are loaded and
connections open. gridref forgets what it learnt of others, and each file has a folder of its own.
The median counts.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gridref
from benchmarks._figures import Figure, print_table
from benchmarks.door import requests_of, slow_server
from benchmarks.hdf5_scan import build
from gridref.learned import FORMS

ROUNDS = 9


def by_gridref(url: str) -> Any:
    FORMS.clear()
    return gridref.scan(url)


def by_kerchunk(url: str) -> Any:
    from kerchunk.hdf import SingleHdf5ToZarr

    return SingleHdf5ToZarr(url, inline_threshold=0).translate()


def by_virtualizarr(url: str) -> Any:
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import HTTPStore
    from virtualizarr.parsers import HDFParser

    root = url.rpartition("/")[0]
    store = HTTPStore.from_url(root, client_options={"allow_http": True})
    return HDFParser()(url=url, registry=ObjectStoreRegistry({root: store}))


def figures() -> Iterator[Figure]:
    scans: dict[str, Callable[[str], Any]] = {
        "gridref": by_gridref,
        "kerchunk": by_kerchunk,
        "virtualizarr": by_virtualizarr,
    }
    taken: dict[str, list[float]] = {name: [] for name in scans}
    n_requests = []
    with tempfile.TemporaryDirectory() as name, slow_server(Path(name)) as url:
        for number in range(ROUNDS + 1):
            file = Path(name) / str(number) / "file.nc"
            file.parent.mkdir()
            build(file, number)
            for tool, scan in scans.items():
                requests_of(url)
                began = time.perf_counter()
                scan(f"{url}/{number}/file.nc")
                taken[tool].append(time.perf_counter() - began)
                if tool == "gridref":
                    n_requests.append(requests_of(url))
    seconds = {tool: statistics.median(found[1:]) for tool, found in taken.items()}
    what = "scan one remote file alone, 25 ms a request"
    own = f"{1000 * seconds['gridref']:.0f} ms"
    for peer in ("kerchunk", "virtualizarr"):
        ratio = seconds[peer] / seconds["gridref"]
        yield Figure(f"{what}, against {peer}", ratio, "<= 35 ms", own=own)
    yield Figure(f"{what}: requests", statistics.median(n_requests), "<= 1", "requests")


if __name__ == "__main__":
    print_table(figures())
