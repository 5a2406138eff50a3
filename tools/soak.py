"""Random selections through all doors for a long time: ``python -m tools.soak --minutes 60``.

Every result is compared with numpy. The memory in use after the first tenth of the time must not
have grown by more than `MOST_GROWTH_BYTES` at the end.
"""

from __future__ import annotations

import argparse
import gc
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray as xr
from numpy.typing import NDArray

import gridref
from gridref.faces.http import create_app
from tests.uvicorn_server import running

MOST_GROWTH_BYTES = 64 * 2**20
LENGTHS = (31, 28, 31, 30)

type Door = Callable[[], xr.DataArray]


def write_cube(folder: Path) -> NDArray[Any]:
    """Files of uneven length with differing codecs, and what they hold."""
    random = np.random.default_rng(0)
    options: list[dict[str, Any]] = [
        {"chunks": (1, 60, 80), "compression": 4, "shuffle": True},
        {"chunks": (7, 30, 80), "compression": "lzf"},
        {},
        {"chunks": (10, 60, 30), "dtype": ">f4"},
    ]
    parts = [random.normal(size=(n, 60, 80)).astype("f4") for n in LENGTHS]
    for number, (part, chosen) in enumerate(zip(parts, options, strict=True)):
        with h5py.File(folder / f"{number}.h5", "w") as file:
            file.create_dataset("v", data=part, **chosen)
    return np.concatenate(parts)


def doors(catalog: Path, url: str) -> dict[str, Door]:
    """Each way to open the array."""
    address = f"gridref::file://{catalog}"

    def opened(address: str, **options: Any) -> xr.DataArray:
        (array,) = xr.open_zarr(address, **options).data_vars.values()
        return array

    return {
        "engine": lambda: xr.open_dataset(catalog)["v"],
        "engine, dask": lambda: xr.open_dataset(catalog, chunks={})["v"],
        "direct": lambda: opened(address, chunks=None),
        "direct, dask": lambda: opened(address, storage_options={"chunks": _pieces(catalog)}),
        "portable": lambda: opened(address, chunks=None, storage_options={"view": "portable"}),
        "HTTP": lambda: opened(f"{url}/cube/portable", chunks=None),
    }


def _pieces(catalog: Path) -> dict[str, int]:
    array = gridref.open_catalog(catalog).arrays["v"]
    return dict(zip(array.dims, (20, 60, 40), strict=True))


def selection(random: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """A slice, an integer or a list of places along each axis; one list at most."""
    entries: list[Any] = []
    for extent in shape:
        start, stop = sorted(random.integers(0, extent + 1, 2).tolist())
        step = int(random.integers(1, 4))
        entries.append(
            [slice(start, stop, step), slice(None), int(random.integers(extent))][
                random.integers(3)
            ]
        )
    if random.random() < 0.3:
        axis = int(random.integers(len(shape)))
        entries[axis] = random.integers(0, shape[axis], 5).tolist()
        entries = [e if isinstance(e, slice | list) else slice(e, e + 1) for e in entries]
    return tuple(entries)


def resident_bytes() -> int:
    """Memory in use by this process now (Linux)."""
    found = re.search(r"VmRSS:\s*(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def soak(minutes: float) -> int:
    """Read until the time is over; the number of selections."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        values = write_cube(folder)
        catalog = folder / "cube.gridref"
        files = [str(folder / f"{number}.h5") for number in range(len(LENGTHS))]
        gridref.build(files, str(catalog), concat_dim="phony_dim_0")
        with running(create_app([catalog])) as url:
            return _read_on(doors(catalog, url), values, minutes * 60)


def _read_on(found: dict[str, Door], values: NDArray[Any], seconds: float) -> int:
    start, n_done, base = time.monotonic(), 0, 0
    opened = {name: door() for name, door in found.items()}
    with ThreadPoolExecutor(4) as threads:
        while (passed := time.monotonic() - start) < seconds:
            done = threads.map(_read_some, [(n_done + n, opened, values) for n in range(40)])
            n_done += sum(done)
            opened = {name: door() for name, door in found.items()}
            if not base and passed > seconds / 10:
                gc.collect()
                base = resident_bytes()
    gc.collect()
    grown = resident_bytes() - base
    print(f"{n_done} selections, {grown / 2**20:+.1f} MiB after the first tenth", flush=True)
    if grown > MOST_GROWTH_BYTES:
        raise SystemExit("memory grows")
    return n_done


def _read_some(task: tuple[int, dict[str, xr.DataArray], NDArray[Any]]) -> int:
    seed, opened, values = task
    random = np.random.default_rng(seed)
    for name, array in opened.items():
        index = selection(random, values.shape)
        got = array.copy()[index].values
        if not np.array_equal(got, values[index]):
            raise SystemExit(f"{name}: {index} reads as other values (seed {seed})")
    return len(opened)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    sys.exit(0 if soak(parser.parse_args().minutes) else 1)
