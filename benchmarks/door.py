"""The speed at the main door, against peers in the same run: ``python -m benchmarks.door``.

Prints a table in Markdown: each line is a ratio of speeds, or a number, and what is aimed at. Every
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
from benchmarks._figures import Figure, print_table
from benchmarks.reading import kerchunk_references
from gridref.api.catalog import write_catalog
from gridref.api.readable import reader_for
from gridref.model.array import VirtualGroup
from gridref.serve.pages import LiteralSegment
from gridref.testing.builders import chunked_array

N_DAYS, SIDE = 731, 255
LATENCY = 0.025
N_BOXES = 200
ZARRS = {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}

type Values = NDArray[Any]
type Work = Callable[[], Values]


def cube_values() -> Values:
    random = np.random.default_rng(0)
    base = np.cumsum(random.normal(size=(SIDE, SIDE)), axis=1)
    noise = random.normal(size=(N_DAYS, SIDE, SIDE)) * 0.1
    return (base + noise).round(2).astype("f4")


def write_hdf5(path: Path, values: Values, **options: Any) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values, chunks=(1, *values.shape[1:]), **options)


def write_cube(folder: Path, values: Values) -> Path:
    path = folder / "cube.h5"
    write_hdf5(path, values, compression="gzip", compression_opts=4, shuffle=True)
    return path


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


def whole_array() -> Iterator[Figure]:
    """The array of a file of zlib and shuffle."""
    values = cube_values()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = write_cube(folder, values)
        catalog = built(path, folder, "cube")
        references = kerchunk_references(path)
        repository = local_icechunk(catalog, folder)
        alone = inflate_alone(path, values[0].nbytes)
        seconds = compared(
            {
                "door": lambda: door(catalog).values,
                "engine": lambda: engine(catalog).values,
                "kerchunk": lambda: np.asarray(kerchunk(references)[...]),
                "icechunk": lambda: np.asarray(repository[...]),
            },
            values,
            n=10,
        )
        both = compared({"engine": lambda: engine(catalog).values, "inflating alone": alone}, n=10)

    def speed(spent: float) -> str:
        return f"{values.nbytes / 1e6 / spent:.0f} MB/s"

    better = min(seconds["kerchunk"], seconds["icechunk"])
    what = "190 MB of zlib and shuffle"
    yield Figure(
        f"{what}, `xr.open_zarr`", better / seconds["door"], ">= 3", own=speed(seconds["door"])
    )
    ratio = seconds["engine"] / seconds["door"]
    yield Figure(f"{what}, against our engine", ratio, ">= 0.9", own=speed(seconds["door"]))
    ratio = both["inflating alone"] / both["engine"]
    yield Figure(f"{what}, our engine", ratio, ">= 0.9", own=speed(both["engine"]))


def tiny_chunks() -> Iterator[Figure]:
    """Very many chunks of eight numbers."""
    values = np.random.default_rng(1).normal(size=800_000).astype("f4")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with h5py.File(folder / "tiny.h5", "w") as file:
            file.create_dataset("x", data=values, chunks=(8,))
        catalog = built(folder / "tiny.h5", folder, "tiny")
        for view in ("direct", "portable"):
            found = compared(
                {
                    "ours": lambda view=view: door(catalog, view).values,
                    "h5py": lambda: h5py.File(folder / "tiny.h5")["x"][...],
                },
                values,
            )
            what = f"100,000 chunks of 32 bytes, {view} view"
            own = f"{10 * found['ours']:.2f} µs a chunk"
            yield Figure(what, found["h5py"] / found["ours"], own=own)


@contextmanager
def slow_server(folder: Path, late_seconds: float = LATENCY) -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks._slow_server", str(folder), str(late_seconds)]
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


def over_latency() -> Iterator[Figure]:
    """The chunks of a file on a slow server."""
    from icechunk import http_store
    from icechunk.credentials import HttpAccess

    values = cube_values()
    with tempfile.TemporaryDirectory() as name, slow_server(Path(name)) as url:
        folder = Path(name)
        write_cube(folder, values)
        catalog = built(f"{url}/cube.h5", folder, "remote")
        store = http_store({"allow_http": "true"})
        peer = icechunk(catalog, f"{url}/", store, HttpAccess)
        for what, index in (
            (f"{N_DAYS} chunks, 25 ms a request", ()),
            (f"one point of {N_DAYS} chunks, 25 ms a request", (slice(None), 100, 100)),
        ):
            expected = values[index]
            requests_of(url)
            ours = best(lambda index=index: door(catalog)[index].values, expected)
            n_requests = requests_of(url) / 3
            theirs = best(lambda index=index: np.asarray(peer[index]), expected)
            yield Figure(what, theirs / ours, ">= 6", own=f"{ours:.2f} s")
            yield Figure(f"{what}: requests", round(n_requests), "<= 43", "requests")


def opening(n_arrays: int = 1000, n_chunks: int = 100_000) -> Iterator[Figure]:
    """Very many arrays of very many chunks."""
    array = chunked_array(np.zeros(n_chunks, "i2"), (1,), ("t",))
    group = VirtualGroup({f"v{n}": array for n in range(n_arrays)})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
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
    what = f"opening {n_arrays:,} arrays of {n_arrays * n_chunks:,} chunks"
    for when, one, other in zip(("in a new process", "again"), ours, theirs, strict=False):
        yield Figure(f"{what}, {when}", one / other, "<= 1.2", "times as long", f"{one:.2f} s")
    yield Figure(f"{what}, memory", ours[2], "<= 300 MB", "MB")


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


def boxes() -> Iterator[Figure]:
    """Random boxes of about 1 MB, asked for by 16 threads."""
    with tempfile.TemporaryDirectory() as name:
        found = box_times(Path(name), cube_values())
    for peer in ("tensorstore", "zarrs"):
        what = f"random boxes of 1 MB, 16 threads, against {peer}"
        for how, name in (("through Zarr", "ours"), ("our reader", "straight")):
            own = f"{1000 * found[name] / N_BOXES:.2f} ms a box"
            yield Figure(f"{what}, {how}", found[peer] / found[name], ">= 1.2", own=own)


def box_times(folder: Path, values: Values) -> dict[str, float]:
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
    return compared(
        {
            "ours": lambda: read(own),
            "straight": lambda: read(_Read(reader, virtual)),
            "tensorstore": lambda: read(_Tensor(peer)),
            "zarrs": lambda: read(by_zarrs),
        },
        expected,
    )


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


def codecs() -> Iterator[Figure]:
    """Other codecs, each against the program that reads its files."""
    part = cube_values()[:200]
    hdf5 = {
        "no codec, contiguous": ({"chunks": None}, ">= 1"),
        "zstd": (hdf5plugin.Zstd(), ""),
        "Blosc": (hdf5plugin.Blosc(), ">= 1"),
        "SZIP": ({"compression": "szip"}, ""),
        "LZF": ({"compression": "lzf"}, ""),
    }
    image = np.tile((part[:64] * 10).astype("u1").reshape(-1, SIDE), (1, 16))
    tiff = {
        "LZW + predictor": {"compression": "lzw", "predictor": True},
        "JPEG": {"compression": "jpeg"},
        "deflate": {"compression": "zlib"},
    }
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "codec.h5"
        for codec, (options, target) in hdf5.items():
            with h5py.File(path, "w") as file:
                file.create_dataset(
                    "x", data=part, **{"chunks": (1, *part.shape[1:]), **dict(options)}
                )
            ratio, own = against(path, lambda: h5py.File(path)["x"][...])
            yield Figure(f"HDF5, {codec}, through Zarr", ratio, target, own=own)
        path = Path(name) / "codec.tif"
        for codec, options in tiff.items():
            tifffile.imwrite(path, image, tile=(256, 256), **options)
            ratio, own = against(path, lambda: tifffile.imread(path))
            yield Figure(f"TIFF, {codec}, through Zarr", ratio, own=own)


def against(path: Path, read: Work) -> tuple[float, str]:
    """How fast the one array of a file comes through Zarr: against its reader, and in words."""
    catalog = built(path, path.parent, "codec")
    (name,) = gridref.open_catalog(catalog).arrays
    expected = read()

    opened = zarr.open_group(gridref.open_store(catalog), mode="r")[name]
    found = compared({"ours": lambda: np.asarray(opened[...]), "theirs": read}, expected)
    return found["theirs"] / found["ours"], f"{expected.nbytes / 1e6 / found['ours']:.0f} MB/s"


PARTS = (whole_array, tiny_chunks, over_latency, opening, boxes, codecs)


def main() -> None:
    warnings.simplefilter("ignore")
    print_table(figure for part in PARTS for figure in part())


if __name__ == "__main__":
    main()
