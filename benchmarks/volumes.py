"""Opening and reading volumes: gridref beside the reader of each format.

Run with ``python -m benchmarks.volumes [--length N]``. A cube of N voxels along each axis is
written as N5 (tensorstore), WKW (wkw) and Blosc2 (blosc2). With gridref, opening is a scan. Then
the whole cube is read, and a plane across chunks. Runs alternate between the tools, and the best of
each counts.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blosc2
import numpy as np
import tensorstore
import wkw
from numpy.typing import NDArray

import gridref
from benchmarks._timing import best_of
from tests import b2nd_files, n5_files, wkw_files

CHUNK = 32

type Volume = NDArray[Any]
type Open = Callable[[Path], Any]


def voxels(length: int) -> Volume:
    """Smooth numbers with some noise, as images are."""
    along = np.linspace(0, 9, length)
    smooth = np.sin(along)[:, None, None] + np.cos(along)[:, None] + along
    noise = np.random.default_rng(0).integers(0, 8, smooth.shape)
    return (smooth * 200 + 300 + noise).astype("u2")


def write_n5(folder: Path, values: Volume) -> Path:
    return n5_files.write_dataset(
        folder / "v", values, (CHUNK,) * 3, n5_files.COMPRESSIONS["gzip"], axes=["x", "y", "z"]
    )


def write_wkw(folder: Path, values: Volume) -> Path:
    length = values.shape[0]
    cube = np.asfortranarray(values[np.newaxis])
    blocks = max(1, length // CHUNK // 2)
    sizes = {"block_length": CHUNK, "file_blocks": blocks}
    return wkw_files.write_mag(folder / "1", ((0, 0, 0), cube), kind="LZ4", **sizes)


def write_b2nd(folder: Path, values: Volume) -> Path:
    return b2nd_files.write_array(folder / "v.b2nd", values, (CHUNK * 2,) * 3, (CHUNK,) * 3)


def open_tensorstore(path: Path) -> Any:
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": str(path)}}
    array = tensorstore.open(spec).result()
    return lambda index: array[index].read().result()


def open_wkw(path: Path) -> Any:
    dataset = wkw.Dataset.open(str(path))

    def read(index: tuple[slice, ...]) -> Any:
        starts = tuple(each.start for each in index)
        return dataset.read(starts, tuple(each.stop - each.start for each in index))[0]

    return read


def open_blosc2(path: Path) -> Any:
    array = blosc2.open(str(path), mode="r")
    return lambda index: array[index]


def open_gridref(path: Path) -> Any:
    (array,) = gridref.scan(path).arrays.values()
    whole = (0,) * (array.ndim - 3)
    return lambda index: array[(*whole, *index)]


PEERS: dict[str, tuple[Callable[[Path, Volume], Path], str, Open]] = {
    "N5, gzip": (write_n5, "tensorstore", open_tensorstore),
    "WKW, LZ4": (write_wkw, "wkw", open_wkw),
    "Blosc2, zstd": (write_b2nd, "blosc2", open_blosc2),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=256)
    length = parser.parse_args().length
    print(f"Python {platform.python_version()}, {platform.machine()}, ms")
    values = voxels(length)
    whole = (slice(0, length),) * 3
    plane = (slice(0, length), slice(0, length), slice(length // 2, length // 2 + 1))
    with tempfile.TemporaryDirectory() as made_folder:
        for title, (write, peer, open_peer) in PEERS.items():
            folder = Path(made_folder) / title.partition(",")[0]
            folder.mkdir()
            path = write(folder, values)
            runs: dict[str, Callable[[], Any]] = {}
            for name, opened in (("gridref", open_gridref), (peer, open_peer)):
                read = opened(path)
                np.testing.assert_array_equal(np.asarray(read(whole)), values)
                runs[f"{name}: open"] = lambda opened=opened, path=path: opened(path)
                runs[f"{name}: whole"] = lambda read=read: read(whole)
                runs[f"{name}: plane"] = lambda read=read: read(plane)
            print(f"{title}, {length} voxels along each axis")
            for name, seconds in best_of(runs, 3).items():
                print(f"  {name:20} {seconds * 1e3:10.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
