"""The speed at the main door, against peers in the same run: ``python -m benchmarks.door``.

Prints a table in Markdown: each line is a ratio of times, or a number, and what is aimed at. Every
reader's values are compared with those of the program that wrote them; the best of three counts.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import imagecodecs
import numpy as np
import tifffile
import xarray as xr
import zarr
from numpy.typing import NDArray
from zarr.core.buffer import cpu

import gridref
from benchmarks.reading import kerchunk_references
from gridref.api.catalog import write_catalog
from gridref.api.readable import reader_for
from gridref.model.array import VirtualGroup
from gridref.serve.segments import LiteralSegment
from gridref.testing.builders import chunked_array

N_DAYS, SIDE = 731, 255
LATENCY = 0.025
N_BOXES = 200
ZARRS = {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}

type Values = NDArray[Any]
type Work = Callable[[], Values]


class Table:
    """Lines of the result, printed as they come."""

    def __init__(self) -> None:
        print("| work | now | target |\n|---|---|---|", flush=True)

    def line(self, work: str, now: str, target: str = "") -> None:
        print(f"| {work} | {now} | {target} |", flush=True)


def cube_values() -> Values:
    random = np.random.default_rng(0)
    base = np.cumsum(random.normal(size=(SIDE, SIDE)), axis=1)
    noise = random.normal(size=(N_DAYS, SIDE, SIDE)) * 0.1
    return (base + noise).round(2).astype("f4")


def write_hdf5(path: Path, values: Values, **options: Any) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values, chunks=(1, *values.shape[1:]), **options)


def compared(
    works: dict[str, Work], expected: Values | None = None, n: int = 4
) -> dict[str, float]:
    """Least seconds of some runs of each, in turn; the values must be right."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(n):
        for name, work in works.items():
            start = time.perf_counter()
            values = work()
            times[name].append(time.perf_counter() - start)
            if expected is not None and not np.array_equal(values, expected):
                raise SystemExit(f"{name} read wrong values")
    return {name: min(found) for name, found in times.items()}


def best(work: Work, expected: Values | None = None, n: int = 3) -> float:
    """Least seconds of some runs, the values of which must be right."""
    return compared({"this": work}, expected, n)["this"]


def built(source: Any, folder: Path, name: str) -> Path:
    catalog = folder / f"{name}.gridref"
    gridref.build(str(source), str(catalog), overwrite=True)
    return catalog


def door(catalog: Path, view: str = "auto") -> Any:
    """The array as users open it."""
    address = f"gridref::file://{catalog}"
    return xr.open_zarr(address, chunks=None, storage_options={"view": view})["x"]


def engine(catalog: Path) -> Any:
    return xr.open_dataset(catalog)["x"]


def kerchunk(references: Any, protocol: str = "file") -> Any:
    store = zarr.storage.FsspecStore.from_url(
        "reference://",
        storage_options={"fo": references, "remote_protocol": protocol},
        read_only=True,
    )
    return zarr.open_group(store, mode="r")["x"]


def icechunk(catalog: Path, prefix: str, container: Any, access: Any) -> Any:
    """The chunks of a catalog as virtual references of icechunk."""
    import icechunk

    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, container))
    repository = icechunk.Repository.create(
        icechunk.in_memory_storage(),
        config=config,
        authorize_virtual_chunk_access={prefix: access},
    )
    store = repository.writable_session("main").store
    space = gridref.open_store(catalog, "native").space
    for key in space.keys(""):
        (segment,) = space.resolve(key).segments
        if isinstance(segment, LiteralSegment):
            asyncio.run(store.set(key, cpu.Buffer.from_bytes(segment.data)))
        else:
            url = (
                segment.source.url
                if "://" in segment.source.url
                else f"file://{segment.source.url}"
            )
            store.set_virtual_ref(key, url, offset=segment.offset, length=segment.n_bytes)
    return zarr.open_group(store, mode="r")["x"]


def local_icechunk(catalog: Path, folder: Path) -> Any:
    from icechunk import local_filesystem_store
    from icechunk.credentials import LocalFileSystemAccess

    prefix = f"file://{folder}/"
    return icechunk(catalog, prefix, local_filesystem_store(prefix), LocalFileSystemAccess)


def inflate_alone(path: Path, n_bytes: int) -> Work:
    """Inflates all chunks with all cores, and nothing else."""
    with h5py.File(path) as file:
        chunks = [file["x"].id.read_direct_chunk((day, 0, 0))[1] for day in range(N_DAYS)]

    def inflate(chunk: bytes) -> int:
        return len(imagecodecs.deflate_decode(chunk, out=n_bytes))

    threads = ThreadPoolExecutor(os.cpu_count())
    return lambda: np.array([sum(threads.map(inflate, chunks, chunksize=16))])


def whole_array(table: Table, folder: Path, values: Values) -> None:
    path = folder / "cube.h5"
    catalog = built(path, folder, "cube")
    references = kerchunk_references(path)
    repository = local_icechunk(catalog, folder)
    alone = inflate_alone(path, values[0].nbytes)
    speeds = compared(
        {
            "door": lambda: door(catalog).values,
            "engine": lambda: engine(catalog).values,
            "kerchunk": lambda: np.asarray(kerchunk(references)[...]),
            "icechunk": lambda: np.asarray(repository[...]),
        },
        values,
    )
    both = compared({"engine": lambda: engine(catalog).values, "inflating alone": alone})
    name = min(("kerchunk", "icechunk"), key=lambda peer: speeds[peer])
    mb = values.nbytes / 1e6
    what = f"{mb:.0f} MB zlib + shuffle, `xr.open_zarr`"
    table.line(f"{what}, against {name}", f"{speeds[name] / speeds['door']:.2f}", ">= 2.2")
    now = f"{speeds['engine'] / speeds['door']:.2f}"
    table.line("the same against our engine", now, ">= 0.85")
    now = f"{both['inflating alone'] / both['engine']:.2f}"
    table.line("engine against inflating alone", now, ">= 0.85")
    speeds |= {"inflating alone": both["inflating alone"]}
    rates = ", ".join(f"{name} {mb / seconds:.0f}" for name, seconds in speeds.items())
    table.line("in MB/s", rates)


def tiny_chunks(table: Table, folder: Path) -> None:
    values = np.random.default_rng(1).normal(size=800_000).astype("f4")
    with h5py.File(folder / "tiny.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=(8,))
    catalog = built(folder / "tiny.h5", folder, "tiny")
    for view in ("direct", "portable"):
        seconds = best(lambda view=view: door(catalog, view).values, values)
        now = f"{1e6 * seconds / 100_000:.2f} µs"
        table.line(f"100,000 chunks of 32 B, {view} view, a chunk", now, "<= 2 µs")


@contextmanager
def slow_server(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks._slow_server", str(folder), str(LATENCY)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.terminate()


def requests_of(url: str) -> int:
    """Requests since the last call."""
    with urllib.request.urlopen(f"{url}/count") as answer:
        return int(answer.read())


def over_latency(table: Table, folder: Path, values: Values) -> None:
    from icechunk import http_store
    from icechunk.credentials import HttpAccess

    with slow_server(folder) as url:
        catalog = built(f"{url}/cube.h5", folder, "remote")
        store = http_store({"allow_http": "true"})
        peer = icechunk(catalog, f"{url}/", store, HttpAccess)
        requests_of(url)
        for what, index, target in (
            (f"{N_DAYS} chunks over 25 ms latency", (), ">= 4"),
            ("one point of all times, the same server", (slice(None), 100, 100), ">= 4"),
        ):
            expected = values[index]
            requests_of(url)
            ours = best(lambda index=index: door(catalog)[index].values, expected)
            n_requests = requests_of(url) / 3
            theirs = best(lambda index=index: np.asarray(peer[index]), expected)
            table.line(f"{what}, `xr.open_zarr` against icechunk", f"{theirs / ours:.1f}", target)
            table.line("its requests", f"{n_requests:.0f}", "<= 60")


def opening(table: Table, folder: Path, n_arrays: int = 1000, n_chunks: int = 100_000) -> None:
    array = chunked_array(np.zeros(n_chunks, "i2"), (1,), ("t",))
    group = VirtualGroup({f"v{n}": array for n in range(n_arrays)})
    catalog = folder / "many.gridref"
    write_catalog(group, catalog)
    real = zarr.create_group(folder / "empty.zarr")
    for n in range(n_arrays):
        real.create_array(
            f"v{n}", shape=(n_chunks,), chunks=(1,), dtype="i2", dimension_names=["t"]
        )
    zarr.consolidate_metadata(folder / "empty.zarr")
    ours = _opening_times(f"gridref::file://{catalog}", folder)
    theirs = _opening_times(str(folder / "empty.zarr"), folder)
    n = f"{n_arrays:,} arrays of {n_arrays * n_chunks:,} chunks"
    for when, one, other in zip(("in a new process", "again"), ours, theirs, strict=False):
        what = f"opening {n}, {when}, time against an empty store"
        table.line(what, f"{one / other:.2f}", "<= 1.3")
    table.line("its memory, all of Python's", f"{ours[2]:.0f} MB", "<= 300 MB")


OPENING = """
import re, sys, time, warnings; warnings.simplefilter('ignore')
import xarray
def seconds():
    start = time.perf_counter()
    xarray.open_zarr(sys.argv[1], chunks=None)
    return time.perf_counter() - start
print(seconds(), min(seconds() for _ in range(5)))
print(int(re.search('VmHWM: *\\s*([0-9]+)', open('/proc/self/status').read())[1]) / 1e3)
"""


def _opening_times(address: str, folder: Path) -> tuple[float, float, float]:
    """Seconds of the first and of a later opening, and the most MB of memory; the best of some.

    Modules are compiled once, as those of installed packages are.
    """
    bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    command = [sys.executable, "-c", OPENING, address]
    runs = [
        subprocess.run(
            command, check=True, capture_output=True, text=True, env={**os.environ, **bytecode}
        ).stdout.split()
        for _ in range(5)
    ]
    first, later, peak = zip(*(map(float, run) for run in runs), strict=True)
    return min(first), min(later), max(peak)


def boxes(table: Table, folder: Path, values: Values) -> None:
    """Random boxes of about 1 MB, asked for by 16 threads."""
    import tensorstore
    import zarrs  # noqa: F401 - registers its pipeline

    path = folder / "zstd.h5"
    write_hdf5(path, values, **hdf5plugin.Zstd(clevel=1))
    catalog = built(path, folder, "zstd")
    real = folder / "real.zarr"
    zarr.create_array(
        real, data=values, chunks=(1, SIDE, SIDE), compressors=zarr.codecs.ZstdCodec(level=1)
    )
    spec = {"driver": "zarr3", "kvstore": f"file://{real}"}
    with zarr.config.set(ZARRS):
        by_zarrs = zarr.open_array(real, mode="r")
    peer = tensorstore.open(spec, read=True).result()
    own = zarr.open_group(gridref.open_store(catalog), mode="r")["x"]
    random = np.random.default_rng(2)
    starts = random.integers(0, (N_DAYS - 16, SIDE - 128, SIDE - 128), (N_BOXES, 3))
    index = [tuple(slice(a, a + n) for a, n in zip(s, (16, 128, 128), strict=True)) for s in starts]
    expected = np.array([values[part].sum(dtype="f8") for part in index])

    def read(array: Any) -> Values:
        with ThreadPoolExecutor(16) as threads:
            found = threads.map(lambda part: np.asarray(array[part]).sum(dtype="f8"), index)
            return np.array(list(found))

    reader, virtual = reader_for(), gridref.open_catalog(catalog).arrays["x"]
    found = compared(
        {
            "ours": lambda: read(own),
            "straight": lambda: read(_Read(reader, virtual)),
            "tensorstore": lambda: read(_Tensor(peer)),
            "zarrs": lambda: read(by_zarrs),
        },
        expected,
    )
    for name in ("tensorstore", "zarrs"):
        what = f"random 1 MB boxes, 16 threads, through Zarr against {name} on a real copy"
        table.line(what, f"{found[name] / found['ours']:.2f}", ">= 1")
        table.line("the same, our reader", f"{found[name] / found['straight']:.2f}", ">= 1")


class _Tensor:
    def __init__(self, store: Any) -> None:
        self.store = store

    def __getitem__(self, index: Any) -> Values:
        return np.asarray(self.store[index].read().result())


class _Read:
    def __init__(self, reader: Any, array: Any) -> None:
        self.reader, self.array = reader, array

    def __getitem__(self, index: Any) -> Values:
        return np.asarray(self.reader.read(self.array, index))


def codecs(table: Table, folder: Path, values: Values) -> None:
    """Other codecs, each against the program that reads its files."""
    part = values[:200]
    hdf5 = {
        "no codec, contiguous": {"chunks": None},
        "zstd": hdf5plugin.Zstd(),
        "blosc": hdf5plugin.Blosc(),
        "szip": {"compression": "szip"},
        "lzf": {"compression": "lzf"},
    }
    for name, options in hdf5.items():
        path = folder / "codec.h5"
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=part, **{"chunks": (1, *part.shape[1:]), **dict(options)})
        against(table, f"HDF5, {name}", "h5py", path, folder, lambda p=path: h5py.File(p)["x"][...])
    image = np.tile((part[:64] * 10).astype("u1").reshape(-1, SIDE), (1, 16))
    tiff = {
        "LZW + predictor": {"compression": "lzw", "predictor": True},
        "JPEG": {"compression": "jpeg"},
        "deflate": {"compression": "zlib"},
    }
    for name, options in tiff.items():
        path = folder / "codec.tif"
        tifffile.imwrite(path, image, tile=(256, 256), **options)
        against(table, f"TIFF, {name}", "tifffile", path, folder, lambda p=path: tifffile.imread(p))


def against(table: Table, what: str, peer: str, path: Path, folder: Path, read: Work) -> None:
    catalog = built(path, folder, "codec")
    (name,) = gridref.open_catalog(catalog).arrays
    expected = read()

    opened = zarr.open_group(gridref.open_store(catalog), mode="r")[name]
    found = compared({"ours": lambda: np.asarray(opened[...]), "theirs": read}, expected)
    table.line(f"{what}, through Zarr against {peer}", f"{found['theirs'] / found['ours']:.2f}")


def main() -> None:
    warnings.simplefilter("ignore")
    table = Table()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        values = cube_values()
        write_hdf5(folder / "cube.h5", values, compression="gzip", compression_opts=4, shuffle=True)
        whole_array(table, folder, values)
        tiny_chunks(table, folder)
        over_latency(table, folder, values)
        opening(table, folder)
        boxes(table, folder, values)
        codecs(table, folder, values)


def only_codecs() -> None:
    with tempfile.TemporaryDirectory() as name:
        codecs(Table(), Path(name), cube_values())


if __name__ == "__main__":
    main()
