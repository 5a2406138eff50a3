"""Whole arrays read by gridref's faces and by its peers: ``python -m benchmarks.reading``.

Two files: 732 chunks of 260 KB (zlib and shuffle), and 100,000 chunks of 32 bytes. Every reader's
values are compared with h5py's; the best of three runs counts.
"""

from __future__ import annotations

import json
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray as xr
import zarr
from numpy.typing import NDArray

import gridref
from gridref.api.readable import reader_for

FUSED = {"codec_pipeline.path": "zarr.core.codec_pipeline.FusedCodecPipeline"}
Work = Callable[[], NDArray[Any]]


def make_files(folder: Path) -> dict[str, Path]:
    """The two files."""
    random = np.random.default_rng(0)
    base = np.cumsum(random.normal(size=(255, 255)), axis=1)
    large, small = folder / "large.h5", folder / "small.h5"
    with h5py.File(large, "w") as file:
        options = {"compression": "gzip", "compression_opts": 4, "shuffle": True}
        data = file.create_dataset("x", (732, 255, 255), "f4", chunks=(1, 255, 255), **options)
        for i in range(732):
            data[i] = (base + random.normal(size=base.shape) * 0.1).round(2)
    with h5py.File(small, "w") as file:
        file.create_dataset("x", data=random.normal(size=800_000).astype("f4"), chunks=(8,))
    return {"732 chunks of 260 KB, zlib + shuffle": large, "100,000 chunks of 32 B": small}


def readers(path: Path, folder: Path) -> dict[str, Work]:
    """Each way to read the array of a file."""
    catalog = folder / f"{path.stem}.gridref"
    gridref.build(path, catalog)
    group = gridref.open_catalog(catalog)
    array = group.arrays["x"]
    references = kerchunk_references(path)

    def by_h5py() -> NDArray[Any]:
        with h5py.File(path) as file:
            return np.asarray(file["x"][...])

    def through_zarr(store: Any) -> NDArray[Any]:
        return np.asarray(zarr.open_group(store, mode="r")["x"][...])

    def fused(work: Work) -> NDArray[Any]:
        with zarr.config.set(FUSED):
            return work()

    def kerchunk_store() -> Any:
        return zarr.storage.FsspecStore.from_url(
            "reference://",
            storage_options={"fo": references, "remote_protocol": "file"},
            read_only=True,
        )

    found: dict[str, Work] = {
        "h5py": by_h5py,
        "gridref, own reader": lambda: reader_for().read(array),
        "gridref, xarray engine": lambda: xr.open_dataset(catalog)["x"].values,
        "gridref, zarr, auto": lambda: through_zarr(gridref.open_store(catalog)),
        "gridref, zarr, native": lambda: through_zarr(gridref.open_store(catalog, "native")),
        "gridref, zarr fused, native": lambda: fused(
            lambda: through_zarr(gridref.open_store(catalog, "native"))
        ),
        "gridref, zarr, portable": lambda: through_zarr(gridref.open_store(catalog, "portable")),
        "kerchunk, zarr": lambda: through_zarr(kerchunk_store()),
        "kerchunk, zarr fused": lambda: fused(lambda: through_zarr(kerchunk_store())),
    }
    return found


def kerchunk_references(path: Path) -> dict[str, Any]:
    """References of a file, by kerchunk."""
    from kerchunk.hdf import SingleHdf5ToZarr

    return json.loads(json.dumps(SingleHdf5ToZarr(str(path)).translate()))


def best_of(work: Work, n: int = 3, enough_seconds: float = 10.0) -> tuple[float, NDArray[Any]]:
    """Least time of some runs, in seconds, and the values; slow readers run once."""
    times: list[float] = []
    while len(times) < n and sum(times) < enough_seconds:
        start = time.perf_counter()
        values = work()
        times.append(time.perf_counter() - start)
    return min(times), values


def main() -> None:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for title, path in make_files(folder).items():
            print(f"\n{title}\n{'reader':32} {'s':>8} {'MB/s':>8} {'us/chunk':>9} {'x h5py':>8}")
            with h5py.File(path) as file:
                expected = np.asarray(file["x"][...])
                n_chunks = file["x"].id.get_num_chunks()
            baseline = 0.0
            for reader, work in readers(path, folder).items():
                seconds, values = best_of(work)
                if not np.array_equal(values, expected):
                    raise SystemExit(f"{reader} read wrong values")
                baseline = baseline or seconds
                speed, each = expected.nbytes / seconds / 1e6, 1e6 * seconds / n_chunks
                print(
                    f"{reader:32} {seconds:8.2f} {speed:8.0f} {each:9.1f} {baseline / seconds:8.2f}"
                )


if __name__ == "__main__":
    main()
