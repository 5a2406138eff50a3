"""Map tiles against xpublish-tiles: ``python -m benchmarks.map_tiles``.

Both draw the same array over HTTP, of 3,600 x 7,200 floats on latitudes and longitudes. The peer
has it in memory; gridref reads the file.
The measure is the median time of a tile over places and zooms, each drawn in several colours, so
that no answer is kept from before. Tiles of both are opaque at nearly the same pixels.

The peer needs packages that gridref does not. Its environment is made in ``build/xpublish-tiles``
when it is missing. gridref needs its viewer, whose colours it draws with (`make assets`).
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import h5py
import httpx
import imagecodecs
import numpy as np

import gridref
from benchmarks._figures import Figure, print_table
from benchmarks.serve import free_port, process

PEER = Path(__file__).parents[1] / "build" / "xpublish-tiles"
PACKAGES = ("xpublish-tiles==0.12.0", "h5netcdf", "h5py", "uvicorn")
PEER_STARTS = 300
"""Seconds that it may take: it compiles what it draws with."""
START = Path(__file__).with_name("_xpublish_tiles.py")
ROWS, COLUMNS = 3600, 7200
PLACES = ((0, 0, 0), (1, 1, 0), (2, 2, 1), (3, 4, 2), (4, 8, 5), (5, 17, 11), (6, 33, 22))
COLOURS = ("viridis", "magma", "plasma", "cividis")


def peer_python() -> str:
    """The interpreter that has the peer."""
    python = PEER / "bin" / "python"
    if not (PEER / "done").exists():
        venv.create(PEER, with_pip=True)
        command = [str(python), "-m", "pip", "install", "-qq", "--no-input", *PACKAGES]
        subprocess.run(command, check=True)
        (PEER / "done").touch()
    return str(python)


def write(path: Path) -> None:
    """A NetCDF4 file of one plane on latitudes and longitudes."""
    values = 280 + 20 * np.sin(np.arange(ROWS)[:, None] / 99) * np.cos(np.arange(COLUMNS) / 77)
    north = 90 - 180 * (np.arange(ROWS) + 0.5) / ROWS
    east = 360 * (np.arange(COLUMNS) + 0.5) / COLUMNS - 180
    with h5py.File(path, "w") as file:
        options = {"compression": "gzip", "compression_opts": 1, "shuffle": True}
        data = file.create_dataset("tas", data=values.astype("f4"), chunks=(250, 250), **options)
        for axis, (name, found) in enumerate({"lat": north, "lon": east}.items()):
            along = file.create_dataset(name, data=found)
            along.attrs["units"] = ("degrees_north", "degrees_east")[axis]
            along.attrs["standard_name"] = ("latitude", "longitude")[axis]
            along.make_scale(name)
            data.dims[axis].attach_scale(along)


def seconds(client: httpx.Client, ours: str, theirs: str) -> tuple[list[float], list[float]]:
    """Of each tile after the first of each place; both draw in turn."""
    taken: tuple[list[float], list[float]] = [], []
    for z, x, y in PLACES:
        for colours in COLOURS:
            shown = []
            scale = "colorscalerange=260,300&width=256&height=256&variables=tas&f=png"
            urls = (
                f"{ours}/{z}/{x}/{y}.png?style={colours}&limits=260,300",
                f"{theirs}/{z}/{y}/{x}?style=raster/{colours}&{scale}",
            )
            for found, url in zip(taken, urls, strict=True):
                began = time.perf_counter()
                answer = client.get(url)
                took = time.perf_counter() - began
                answer.raise_for_status()
                shown.append(imagecodecs.png_decode(answer.content))
                if colours != COLOURS[0]:
                    found.append(took)
            one, other = (image[..., 3] > 0 for image in shown)
            assert (one == other).mean() > 0.97, (z, x, y, one.mean(), other.mean())
    return taken


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        file, catalog = Path(folder) / "a.nc", Path(folder) / "cube.gridref"
        write(file)
        gridref.build(str(file), str(catalog))
        mine, other = free_port(), free_port()
        serve = [sys.executable, "-m", "gridref", "serve", str(catalog), "--port", str(mine)]
        peer = [peer_python(), str(START), str(file), str(other)]
        with (
            process(serve, mine) as ours,
            process(peer, other, PEER_STARTS) as theirs,
            httpx.Client(timeout=60) as client,
        ):
            taken = seconds(client, f"{ours}/cube/tiles/tas", f"{theirs}/tiles/WebMercatorQuad")
    own, peers = map(statistics.median, taken)
    row = f"map tile of {ROWS:,} x {COLUMNS:,} floats"
    yield Figure(row, peers / own, ">= 3", own=f"{1000 * own:.1f} ms")


if __name__ == "__main__":
    print_table(figures())
