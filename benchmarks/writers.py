"""Many writers on one catalog: ``python -m benchmarks.writers [n_writers [seconds]]``.

Each writer is a thread that appends one file of its own, from a server that answers late, to the
same catalog. One writer that appends as many files one after the other is what they are compared
with. All files have to be in the catalog at the end.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gridref
from benchmarks._figures import Figure, print_table
from benchmarks.append import write_file
from benchmarks.door import slow_server

N_ARRAYS = 20


def seconds_of(n_at_once: int, catalog: Path, site: str, names: list[str]) -> float:
    """Seconds until all files but the first are appended, so many at once."""
    allow = f"{site}/"
    first, *urls = [f"{site}/{name}" for name in names]
    gridref.build(first, catalog, "time")

    def append(url: str) -> None:
        gridref.open_catalog(catalog, allow=allow).append(url)

    with ThreadPoolExecutor(n_at_once) as writers:
        began = time.perf_counter()
        list(writers.map(append, urls))
        seconds = time.perf_counter() - began
    assert gridref.open_catalog(catalog, allow=allow)["time"].shape == (1 + len(urls),)
    return seconds


def figures(n_writers: int = 64, late_seconds: float = 0.5) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as name, slow_server(Path(name), late_seconds) as site:
        folder = Path(name)
        files = [write_file(folder / f"{i:05}.h5", i, N_ARRAYS) for i in range(n_writers + 1)]
        names = [file.name for file in files]
        taken = {n: seconds_of(n, folder / f"{n}.gridref", site, names) for n in (1, n_writers)}
    rate = f"{n_writers / taken[n_writers]:.1f} commits a second"
    what = f"{n_writers} writers on one catalog, {1000 * late_seconds:.0f} ms a request"
    yield Figure(f"{what}, against one", taken[1] / taken[n_writers], ">= 10", own=rate)


def main(n_writers: int = 64, late_seconds: float = 0.5) -> None:
    print_table(figures(n_writers, late_seconds))


if __name__ == "__main__":
    main(*(kind(text) for kind, text in zip((int, float), sys.argv[1:], strict=False)))
