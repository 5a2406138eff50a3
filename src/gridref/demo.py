"""``python -m gridref.demo``: build a cube from sample files, and compare every value."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr
from numpy.typing import NDArray
from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.store import ByteRequest

import gridref
from gridref.api.building import build
from gridref.errors import GridrefError, InvalidRequestError, number_of
from gridref.extras import missing_package
from gridref.faces.cli.console import Console, echo
from gridref.faces.cli.described import draw_grid, draw_tree
from gridref.faces.picture import human_bytes
from gridref.faces.zarr.store import GridrefStore
from gridref.model.array import VirtualArray


def main() -> int:
    """Build a catalog of the sample data, open it with xarray, and compare every value.

    Returns
    -------
    int
        Exit status: 0 if every value is equal.
    """
    parser = argparse.ArgumentParser(prog="python -m gridref.demo", description=_ABOUT)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="folder of NetCDF4 files")
    parser.add_argument("--serve", action="store_true", help="then serve it until Ctrl+C")
    parser.add_argument("--files", type=Path, metavar="FOLDER", help="only copy the files there")
    parser.add_argument("--port", type=int, default=8000, help="port; 0 takes any free one")
    asked = parser.parse_args()
    if asked.files is not None:
        echo(f"{copy_samples(asked.files)} files are in {asked.files}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        # Its catalogs are temporary, and there are users who have no folder to remember them in.
        os.environ["GRIDREF_STATE"] = str(Path(folder, "state"))
        try:
            if not run_demo(Console(), asked.data, Path(folder)):
                return 1
            if asked.serve:
                serve_demo(Path(folder), asked.port)
        except GridrefError as error:
            echo(f"error: {error}", err=True)
            return 1
    return 0


_ABOUT = "Build a catalog of sample files, open it with xarray, and compare every value."


def run_demo(console: Console, data: Path | None, folder: Path) -> bool:
    """Build, open and compare; returns whether every value is equal.

    Parameters
    ----------
    console
        Where to print.
    data
        Folder of NetCDF4 files; None takes the samples that come with gridref.
    folder
        Address of the new catalog.
    """
    samples = _sample_folder(data)
    files = sorted(samples.glob("*.nc"))
    catalog = folder / "cube.gridref"
    console.rule("1. build")
    console.print(f"gridref build {files[0].parent.name}/*.nc --concat-dim time -o {catalog.name}")
    group = build(files, catalog, "time")
    console.print(draw_tree(group, catalog.name))
    in_files = sum(file.stat().st_size for file in files)
    in_catalog = sum(part.stat().st_size for part in catalog.rglob("*") if part.is_file())
    console.print(
        f"{len(files)} files of {human_bytes(in_files)} stay where they are;"
        f" the catalog takes {human_bytes(in_catalog)}"
    )
    console.rule("2. the uneven chunk grid")
    array = group["tas"]
    assert isinstance(array, VirtualArray)
    console.print(draw_grid(array, "tas", min(console.width, 100)))
    console.rule("3. open")
    address = f"gridref::file://{catalog}"
    console.print(f'xr.open_zarr("gridref::file://…/{catalog.name}")')
    cube = xr.open_zarr(address, mask_and_scale=False, decode_times=False)
    console.print(repr(cube), highlight=False, soft_wrap=True)
    console.rule("4. compare with h5py")
    equal = _compare(console, cube, files)
    console.rule("5. one chunk out of an emulated shard")
    equal = _read_shard(console, catalog, cube) and equal
    tiles = sorted(samples.glob("*.tif"))
    if tiles:
        console.rule("6. a mosaic of GeoTIFF tiles")
        equal = _mosaic(console, tiles, folder / "hills.gridref") and equal
    return equal


def copy_samples(folder: Path) -> int:
    """Copy the sample files into a folder, which is made if necessary; returns how many there are.

    Parameters
    ----------
    folder
        Files of these names in it are replaced.
    """
    folder.mkdir(parents=True, exist_ok=True)
    samples = [path for path in _sample_folder(None).iterdir() if path.suffix in (".nc", ".tif")]
    for path in samples:
        shutil.copyfile(path, folder / path.name)
    return len(samples)


def serve_demo(folder: Path, port: int) -> None:
    """Serve the catalogs of the demonstration until interrupted.

    Raises
    ------
    InvalidRequestError
        If the port is taken.
    """
    from gridref.faces.http.server import serve

    def tell(url: str) -> None:
        echo(f"Open {url}cube/array/tas in a browser (stop with Ctrl+C)")

    serve([folder], port=port, access_log=False, on_ready=tell)


def _sample_folder(data: Path | None) -> Path:
    if data is None:
        installed = Path(gridref.__file__).parent / "sample_data"
        data = installed if installed.is_dir() else Path(__file__).parents[2] / "sample_data"
    if not any(data.glob("*.nc")):
        raise InvalidRequestError(f"{data} has no NetCDF4 files: name a folder that has, by --data")
    return data


def _compare(console: Console, cube: xr.Dataset, files: list[Path]) -> bool:
    try:
        from gridref.formats.hdf5.original import OriginalFile
    except ImportError as error:
        console.print(str(missing_package("skipped: comparing", error)), highlight=False)
        return True
    start = n_values = n_different = 0
    for file in files:
        original = OriginalFile(str(file))
        stop = start + original.shape_of("time")[0]
        for name, variable in cube.variables.items():
            along = {"time": slice(start, stop)} if "time" in variable.dims else {}
            shown = variable.isel(along).values
            expected = original.read(str(name))
            n_values += expected.size
            n_different += int(np.sum(~_same(shown, expected)))
        original.close()
        start = stop
    console.print(f"{n_values} values in {len(files)} files compared: {n_different} differ")
    return n_different == 0


class _TracedStore(GridrefStore):
    """Remembers what was asked of it."""

    requests: list[str]

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        value = await super().get(key, prototype, byte_range)
        size = 0 if value is None else len(value)
        self.requests.append(f"{key}  {byte_range or 'whole'}  -> {size} bytes")
        return value


def _read_shard(console: Console, catalog: Path, cube: xr.Dataset) -> bool:
    """Read one chunk the way any Zarr client does: the shard's index first, then the chunk."""
    plain = gridref.open_store(catalog, "portable", shards="auto", chunks={"time": 9, "lat": 10})
    store = _TracedStore(plain.space, plain.reader)
    store.requests = []
    array = zarr.open_array(store, path="tas", mode="r")
    console.print(f"shards of {array.shards}, chunks of {array.chunks}, no shard in any file")
    store.requests.clear()
    part = tuple(slice(0, length) for length in array.chunks)
    values = np.asarray(array[part])
    for request in store.requests:
        console.print(f"  {request}", highlight=False)
    return bool(_same(values, cube["tas"][part].values).all())


def _mosaic(console: Console, tiles: list[Path], catalog: Path) -> bool:
    """Lay tiles of different size side by side and compare them with tifffile."""
    group = build(tiles, catalog, layout=gridref.Mosaic())
    array = group["band_data"]
    assert isinstance(array, VirtualArray)
    console.print(draw_tree(group, catalog.name))
    console.print(draw_grid(array, "band_data", min(console.width, 100)))
    result = gridref.verify(catalog, all=True)
    console.print(
        f"{result.n_values} pixels of {len(tiles)} tiles compared with tifffile:"
        f" {number_of(len(result.differences), 'chunk')} differ"
    )
    return result.ok


def _same(shown: NDArray[Any], expected: NDArray[Any]) -> NDArray[np.bool_]:
    if shown.shape != expected.shape or shown.dtype != expected.dtype:
        return np.zeros(expected.shape, bool)
    if shown.dtype.kind == "f":
        return np.asarray((shown == expected) | (np.isnan(shown) & np.isnan(expected)))
    return np.asarray(shown == expected)


if __name__ == "__main__":
    sys.exit(main())
