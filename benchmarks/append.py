"""What appending costs: ``python -m benchmarks.append [n_commits [n_arrays [n_late [n_peer]]]]``.

A catalog of one file and `n_arrays` arrays, to which `n_commits` files are added one by one: on a
local disk, and `n_late` of them in a bucket of an S3 server that answers 25 ms late, where the
files lie too. Each runs in a process of its own. Said are times and processor times of the commits,
parts, requests, and the greatest memory; what questions to the catalog take that has grown so,
opened anew; and what `n_peer` of the files cost Icechunk and kerchunk.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import boto3
import h5py
import numpy as np

import gridref
from benchmarks._figures import Figure
from benchmarks.append_peers import peers, queries

LATE_SECONDS = 0.025


def write_file(path: Path, number: int, n_arrays: int) -> Path:
    """A file of one step of many variables."""
    with h5py.File(path, "w", libver="latest") as file:
        file["time"] = np.array([float(number)])
        file["time"].make_scale("time")
        for i in range(n_arrays - 1):
            data = file.create_dataset(f"v{i}", data=np.zeros((1, 8), "f4"), chunks=(1, 8))
            data.dims[0].attach_scale(file["time"])
    return path


def commits(catalog: str, files: list[str], options: Any, server: str | None) -> list[float]:
    """Append files one by one, and tell what it cost; gives the seconds of each."""
    gridref.build(files[:1], catalog, "time", storage_options=options)
    opened = gridref.open_catalog(catalog, storage_options=options)
    opened = opened.append(files[1])  # which loads modules
    requests_since(server)
    wall, busy = [], []
    for file in files[2:]:
        began, began_cpu = time.perf_counter(), time.process_time()
        opened = opened.append(file)
        wall.append(time.perf_counter() - began)
        busy.append(time.process_time() - began_cpu)
    requests = requests_since(server)
    n = min(100, len(wall) // 2)
    for which, some in (("first", slice(n)), ("last", slice(-n, None)), ("all", slice(None))):
        taken = np.percentile(wall[some], [50, 99])
        cpu = np.percentile(busy[some], [50, 99])
        print(
            f"{which:5} {len(wall[some]):4} commits: p50 {taken[0]:.3f} s, p99 {taken[1]:.3f} s;"
            f" of the processor p50 {cpu[0]:.3f} s, p99 {cpu[1]:.3f} s"
        )
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{len(opened.parts)} parts, at most {memory:.0f} MB of memory")
    for kind, count in sorted(requests.items()):
        print(f"{count / len(wall):.2f} requests a commit: {kind}")
    for said in queries(gridref.open_catalog(catalog, storage_options=options)):
        print(said)
    return wall


def requests_since(server: str | None) -> Counter[str]:
    """Requests since this was last asked."""
    if server is None:
        return Counter()
    with urlopen(f"{server}/count") as answer:
        return Counter(json.load(answer))


@contextmanager
def late_bucket(files: list[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    """A late S3 server that has files in ``s3://archive/data``: its URL, and options."""
    command = [sys.executable, "-m", "benchmarks._slow_s3", str(LATE_SECONDS)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        client = {"endpoint_url": url, "region_name": "us-east-1"}
        options = {"s3": {"key": "test", "secret": "test", "client_kwargs": client}}
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        bucket = boto3.resource("s3", **keys, **client).create_bucket(Bucket="archive")
        for file in files:
            bucket.upload_file(str(file), f"data/{file.name}")
        yield url, options
    finally:
        server.terminate()
        server.wait()


def in_own_process[Result](work: Callable[..., Result], *arguments: Any) -> Result:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(work, *arguments).result()


def figures(n_commits: int = 40, n_arrays: int = 150, n_peer: int = 2) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = [str(write_file(folder / f"{i:05}.h5", i, n_arrays)) for i in range(n_commits + 2)]
        ours = in_own_process(commits, str(folder / "cube.gridref"), files, None, None)
        theirs = in_own_process(peers, files[: n_peer + 1])
    what = f"append a file to {n_arrays} arrays"
    median = float(np.median(ours))
    for peer in ("icechunk", "kerchunk"):
        yield Figure(f"{what}, against {peer}", theirs[peer] / median, own=f"{median:.2f} s")


def thousand(n_commits: int = 1000, n_arrays: int = 150) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = [str(write_file(folder / f"{i:05}.h5", i, n_arrays)) for i in range(n_commits + 2)]
        ours = in_own_process(commits, str(folder / "cube.gridref"), files, None, None)
    what = f"append {n_commits:,} files to {n_arrays} arrays"
    first, last = np.median(ours[:100]), np.median(ours[-100:])
    yield Figure(f"{what}, the last against the first", float(last / first), "1", "times as long")
    yield Figure(f"{what}, median", float(np.median(ours)), "<= 0.2 s", "s")
    yield Figure(f"{what}, 99th percentile", float(np.percentile(ours, 99)), "<= 0.5 s", "s")


def main(n_commits: int = 1000, n_arrays: int = 150, n_late: int = 200, n_peer: int = 20) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = [write_file(folder / f"{i:05}.h5", i, n_arrays) for i in range(n_commits + 2)]
        print(f"local, {n_arrays} arrays", flush=True)
        in_own_process(commits, str(folder / "cube.gridref"), [*map(str, files)], None, None)
        in_own_process(peers, [*map(str, files[: n_peer + 1])])
        late = files[: n_late + 2]
        with late_bucket(late) as (server, options):
            print(f"S3, {LATE_SECONDS * 1e3:.0f} ms late, {n_arrays} arrays", flush=True)
            there = [f"s3://archive/data/{file.name}" for file in late]
            in_own_process(commits, "s3://archive/cube.gridref", there, options, server)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
