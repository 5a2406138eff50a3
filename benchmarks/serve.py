"""Serving against nginx: ``python -m benchmarks.serve [cube_mib]``. Needs nginx.

The same bytes, over loopback, by the same clients in turn: 4 MiB native chunks, shard indexes, and
a cube read whole by tensorstore and zarr-python. Medians of several runs; everything is stopped and
removed at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import h5py
import httpx
import numpy as np
import zarr

import gridref
from benchmarks._figures import Figure
from gridref.api.catalog import write_catalog

MIB = 2**20
CHUNK = (1, 512, 512)  # float32: 1 MiB
LARGE = (4, 512, 512)  # 4 MiB
WORKERS = 2
SECONDS = 2.0
RUNS = 5
SHARD_CHUNKS = 64

NGINX = """
worker_processes {workers};
daemon off;
pid {folder}/nginx.pid;
error_log /dev/null;
events {{ worker_connections 2048; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  keepalive_requests 1000000000;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int, seconds: float = 30) -> None:
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise RuntimeError("the server did not start")


@contextlib.contextmanager
def process(command: list[str], port: int, seconds: float = 30) -> Iterator[str]:
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port, seconds)
        yield f"http://127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait(20)


@contextlib.contextmanager
def nginx(root: Path) -> Iterator[str]:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        config = Path(folder) / "nginx.conf"
        config.write_text(NGINX.format(folder=folder, port=port, root=root, workers=WORKERS))
        program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") or "nginx"
        with process([program, "-c", str(config), "-e", "/dev/null"], port) as url:
            yield url


@contextlib.contextmanager
def served(catalogs: list[Path], *options: str) -> Iterator[str]:
    port = free_port()
    code = (
        "import sys; from gridref.faces.http import serve;"
        f"serve({[str(c) for c in catalogs]!r}, port={port}, workers={WORKERS},"
        f" shards={options[0] if options else None}, access_log=False)"
    )
    with process([sys.executable, "-c", code], port) as url:
        yield url


async def load(
    url: str, paths: list[str], n_connections: int, extra: str = ""
) -> tuple[float, list[float], int]:
    """Requests per second, latencies, and bytes received."""
    host, port = url.removeprefix("http://").split(":")
    latencies: list[float] = []
    received = 0
    stop = time.perf_counter() + SECONDS

    async def one(number: int) -> None:
        nonlocal received
        reader, writer = await asyncio.open_connection(host, int(port), limit=8 * MIB)
        turn = number
        while time.perf_counter() < stop:
            began = time.perf_counter()
            path = paths[turn % len(paths)]
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{extra}\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            fields = head.lower()
            assert fields[9:12] in (b"200", b"206"), head
            at = fields.index(b"content-length:") + 15
            length = int(fields[at : fields.index(b"\r", at)])
            left = length
            while left:
                left -= len(await reader.read(min(left, MIB)))
            latencies.append(time.perf_counter() - began)
            received += length
            turn += n_connections
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(n_connections)))
    return len(latencies) / (time.perf_counter() - began), latencies, received


def run_load(
    url: str, paths: list[str], n_connections: int, n_bytes: int = 4 * MIB, extra: str = ""
) -> tuple[float, ...]:
    import uvloop

    for path in paths[:8] * 2:  # what a worker does once: opening the catalog
        httpx.get(f"{url}{path}")
    rate, latencies, received = uvloop.run(load(url, paths, n_connections, extra))
    assert received == len(latencies) * n_bytes
    cuts = statistics.quantiles(latencies, n=100)
    return rate, cuts[49] * 1e3, cuts[98] * 1e3


def write_cube(folder: Path, mib: int) -> tuple[Path, Path, np.ndarray]:
    """One HDF5 file, its catalog, and the values."""
    values = np.random.default_rng(0).random((mib, 512, 512), dtype="f4")
    path = folder / "cube.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=values, chunks=CHUNK)
        file.create_dataset("large", data=values[: min(mib, 256)], chunks=LARGE)
    catalog = folder / "cube.gridref"
    write_catalog(gridref.scan(path), catalog)
    return path, catalog, values


def alternated[Result](
    first: Callable[[], Result], second: Callable[[], Result]
) -> list[tuple[Result, Result]]:
    """Both in turn, so that whatever else the machine does meets both."""
    return [(first(), second()) for _ in range(RUNS)]


def medians(results: Iterable[tuple[float, ...]]) -> list[float]:
    return [statistics.median(column) for column in zip(*results, strict=True)]


def chunks(folder: Path, catalog: Path) -> Iterator[Figure]:
    """4 MiB native chunks against static files."""
    store = gridref.open_store(catalog, "native")
    keys = list(store.space.keys("large/c/"))
    root = folder / "static"
    for key in keys:
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(store.reader.read(store.space.resolve(key)))
    static = [f"/{key}" for key in keys]
    virtual = [f"/cube/native/{key}" for key in keys]
    print(f"\n4 MiB chunks          {'nginx':>26} {'gridref':>26}  ratio of rates")
    with nginx(root) as one, served([catalog]) as other:
        for n_connections in (1, 16, 64):
            runs = alternated(
                partial(run_load, one, static, n_connections),
                partial(run_load, other, virtual, n_connections),
            )
            sides = [medians(side) for side in zip(*runs, strict=True)]
            ratio = statistics.median(b[0] / a[0] for a, b in runs)
            cells = [f"{r:6.0f}/s p50 {a:5.1f} p99 {b:6.1f} ms" for r, a, b in sides]
            print(f"{n_connections:3} connections  {cells[0]}  {cells[1]}  {ratio:.2f}")
            yield Figure(
                f"serve chunks of 4 MiB, connections: {n_connections}",
                ratio,
                ">= 0.9",
                own=f"{sides[1][0]:.0f} a second",
            )


def shards_of(catalog: Path, n: int) -> str:
    """The option that makes shards of `n` chunks of the cube; dimensions are named by the scan."""
    (first, *_) = gridref.open_catalog(catalog).all_arrays()["v"].dims
    return repr({first: n})


def indexes(catalog: Path) -> None:
    """Emulated indexes, of shards of 64 chunks."""
    with served([catalog], shards_of(catalog, SHARD_CHUNKS)) as url:
        paths = ["/cube/native/v/c/0/0/0"]
        size = SHARD_CHUNKS * 16 + 4
        rate, p50, p99 = run_load(url, paths, 16, size, f"Range: bytes=-{size}\r\n")
    print(f"\nshard indexes: {rate:.0f}/s, p50 {p50:.2f} ms, p99 {p99:.2f} ms (16 connections)")


def read_tensorstore(url: str) -> np.ndarray:
    import tensorstore

    spec = {"driver": "zarr3", "kvstore": f"{url}/v/"}
    return np.asarray(tensorstore.open(spec, read=True).result().read().result())


def read_zarr(url: str) -> np.ndarray:
    return np.asarray(zarr.open_group(url, mode="r", zarr_format=3)["v"][...])


def write_real_shards(root: Path, values: np.ndarray) -> int:
    """The cube as a Zarr store of real shards; gives the number of chunks of each."""
    group = zarr.open_group(root, mode="w")
    n_chunks = min(SHARD_CHUNKS, len(values))
    array = group.create_array(
        "v",
        shape=values.shape,
        dtype="f4",
        chunks=CHUNK,
        shards=(n_chunks, *CHUNK[1:]),
        compressors=None,
    )
    array[...] = values
    zarr.consolidate_metadata(root)
    return n_chunks


def whole(folder: Path, catalog: Path, values: np.ndarray) -> None:
    """The cube read whole, out of emulated shards and out of real ones of the same size."""
    root = folder / "real"
    shards = shards_of(catalog, write_real_shards(root, values))

    def seconds(read: Callable[[str], np.ndarray], url: str) -> float:
        began = time.perf_counter()
        got = read(url)
        taken = time.perf_counter() - began
        assert np.array_equal(got, values)
        return taken

    with nginx(root) as one, served([catalog], shards) as other:
        for name, read in (("tensorstore", read_tensorstore), ("zarr-python", read_zarr)):
            runs = alternated(
                partial(seconds, read, one), partial(seconds, read, f"{other}/cube/native")
            )
            a, b = medians(runs)
            ratio = statistics.median(x / y for x, y in runs)
            print(
                f"{values.nbytes / 2**30:.2f} GiB by {name:12} nginx {a:5.2f} s,"
                f" gridref {b:5.2f} s: {ratio:.2f}x"
            )


def download(url: str, path: str) -> float:
    """Seconds that one request for all of an object takes."""
    host, port = url.removeprefix("http://").split(":")
    window = memoryview(bytearray(MIB))
    with socket.create_connection((host, int(port))) as connection:
        began = time.perf_counter()
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(65536)
        fields, _, first = head.partition(b"\r\n\r\n")
        assert fields[9:12] == b"200", fields
        length = next(line for line in fields.lower().split(b"\r\n") if b"content-length" in line)
        left = int(length.partition(b":")[2]) - len(first)
        while left:
            left -= connection.recv_into(window, min(left, MIB))
    return time.perf_counter() - began


def one_shard(folder: Path, catalog: Path, values: np.ndarray) -> Iterator[Figure]:
    """The cube as one shard, in one request."""
    root = folder / "one"
    root.mkdir()
    dims = gridref.open_catalog(catalog).all_arrays()["v"].dims
    lengths = {dims[0]: len(values)}
    store = gridref.open_store(catalog, "native", shards=lengths)
    (root / "shard").write_bytes(store.reader.read(store.space.resolve("v/c/0/0/0")))
    with nginx(root) as one, served([catalog], repr(lengths)) as other:
        for view in ("native", "portable"):
            key = f"/cube/{view}/v/c/0/0/0"
            runs = alternated(partial(download, one, "/shard"), partial(download, other, key))
            rates = [
                values.nbytes / 1e9 / statistics.median(side) for side in zip(*runs, strict=True)
            ]
            ratio = statistics.median(a / b for a, b in runs)
            print(
                f"one shard of {values.nbytes / 2**30:.2f} GiB, {view:8} nginx {rates[0]:.2f} GB/s,"
                f" gridref {rates[1]:.2f} GB/s: {ratio:.2f}x"
            )
            what = f"serve one shard of {values.nbytes / 2**30:g} GiB, {view}"
            yield Figure(what, ratio, ">= 0.8", own=f"{rates[1]:.2f} GB/s")


def figures(mib: int = 1024) -> Iterator[Figure]:
    """Chunks and shards, which is what others serve as files."""
    with served_cube(mib) as (folder, catalog, values):
        yield from chunks(folder, catalog)
        yield from one_shard(folder, catalog, values)


@contextlib.contextmanager
def served_cube(mib: int) -> Iterator[tuple[Path, Path, np.ndarray]]:
    """A folder that nginx may read, and in it the catalog of a cube, with its values."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        _, catalog, values = write_cube(folder, mib)
        yield folder, catalog, values


def main(mib: int = 1024) -> None:
    with served_cube(mib) as (folder, catalog, values):
        list(chunks(folder, catalog))
        indexes(catalog)
        print()
        whole(folder, catalog, values)
        list(one_shard(folder, catalog, values))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
