"""Memory of the server, kept or given back: ``python -m benchmarks.server_memory``.

A server in one process sends chunks as they are stored (native) and decoded (portable) over many
connections, with and without `keep_freed_memory`. Both run in turn; medians. Times are processor
times of the server, because the clients share its machine.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

import gridref
from benchmarks.serve import MIB, free_port, run_load, wait_for
from gridref.api.catalog import write_catalog as gridref_write_catalog

RUNS = 3
CONNECTIONS = (1, 16, 64)
COLUMNS = ("requests/s", "CPU ms", "page faults", "peak MiB", "MiB after")

CODE = """
import sys
from gridref.faces.http import server
if sys.argv[3] == "given back":
    server.keep_freed_memory = lambda: False
server.serve([sys.argv[1]], port=int(sys.argv[2]), access_log=False)
"""


def write_catalog(folder: Path) -> Path:
    """128 chunks of 4 MiB, compressed."""
    values = np.random.default_rng(0).integers(0, 2**20, (128, 1024, 1024), dtype="i4")
    with h5py.File(folder / "cube.h5", "w") as file:
        chunks = (1, 1024, 1024)
        file.create_dataset("v", data=values, chunks=chunks, compression="gzip", compression_opts=1)
        file.create_dataset("plain", data=values, chunks=chunks)
    catalog = folder / "cube.gridref"
    gridref_write_catalog(gridref.scan(folder / "cube.h5"), catalog)
    return catalog


def used(process: int) -> tuple[float, int]:
    """Processor seconds and page faults of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(fields[7])


def mebibytes(process: int, name: str) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) / 1024


def measured(catalog: Path, how: str, view: str, n_connections: int) -> tuple[float, ...]:
    """`COLUMNS` of one server; times and page faults are for each request."""
    port = free_port()
    command = [sys.executable, "-c", CODE, str(catalog), str(port), how]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(port)
            array = "plain" if view == "native" else "v"
            paths = [f"/cube/{view}/{array}/c/{number}/0/0" for number in range(128)]
            url = f"http://127.0.0.1:{port}"
            run_load(url, paths, n_connections, 4 * MIB)
            seconds, faults = used(server.pid)
            began = time.perf_counter()
            rate, *_ = run_load(url, paths, n_connections, 4 * MIB)
            n_requests = 16 + rate * (time.perf_counter() - began)
            after, more = used(server.pid)
            time.sleep(1)
            peak, now = (mebibytes(server.pid, name) for name in ("VmHWM", "VmRSS"))
            per_request = (after - seconds) / n_requests * 1e3, (more - faults) / n_requests
            return rate, *per_request, peak, now
        finally:
            server.terminate()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        catalog = write_catalog(Path(folder))
        print("| view, connections | memory | " + " | ".join(COLUMNS) + " |")
        print("|---|---|" + "---|" * len(COLUMNS))
        for view in ("native", "portable"):
            for n_connections in CONNECTIONS:
                runs: dict[str, list[tuple[float, ...]]] = {"kept": [], "given back": []}
                for _ in range(RUNS):
                    for how, rows in runs.items():
                        rows.append(measured(catalog, how, view, n_connections))
                for how, rows in runs.items():
                    cells = [f"{statistics.median(c):.1f}" for c in zip(*rows, strict=True)]
                    print(f"| {view}, {n_connections} | {how} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
