"""The demonstration: sample files become a cube, and every value is compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from rich.console import Console

import gridref
from gridref.adapters.building import build
from gridref.adapters.drawing import draw_grid, draw_tree, human_bytes
from gridref.errors import InvalidRequestError

__all__ = ["run_demo"]


def run_demo(console: Console, data: Path | None, folder: Path) -> bool:
    """Build, open and compare; returns whether every value is equal.

    Parameters
    ----------
    console
        Where to tell about it.
    data
        Folder of NetCDF4 files; None takes the checkout's ``sample_data``.
    folder
        Where the catalog goes.
    """
    files = sorted(_sample_folder(data).glob("*.nc"))
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
    assert isinstance(array, gridref.VirtualArray)
    console.print(draw_grid(array, "tas", min(console.width, 100)))
    console.rule("3. open")
    address = f"gridref::file://{catalog}"
    console.print(f'xr.open_zarr("gridref::file://…/{catalog.name}")')
    cube = xr.open_zarr(address, mask_and_scale=False, decode_times=False)
    console.print(repr(cube), highlight=False, soft_wrap=True)
    console.rule("4. compare with netCDF4")
    return _compare(console, cube, files)


def _sample_folder(data: Path | None) -> Path:
    checkout = Path(__file__).parents[4] / "sample_data"
    for folder in [data] if data is not None else [Path("sample_data"), checkout]:
        if any(folder.glob("*.nc")):
            return folder
    raise InvalidRequestError("no sample files found: name their folder with --data")


def _compare(console: Console, cube: xr.Dataset, files: list[Path]) -> bool:
    import netCDF4

    start = n_values = n_different = 0
    for file in files:
        with netCDF4.Dataset(file) as original:
            original.set_auto_maskandscale(False)
            stop = start + len(original.dimensions["time"])
            for name, variable in original.variables.items():
                along = {"time": slice(start, stop)} if "time" in variable.dimensions else {}
                shown = cube[name].isel(along).values
                expected = variable[...]
                n_values += expected.size
                n_different += int(np.sum(~_same(shown, expected)))
        start = stop
    console.print(f"{n_values} values in {len(files)} files compared: {n_different} differ")
    return n_different == 0


def _same(shown: NDArray[Any], expected: NDArray[Any]) -> NDArray[np.bool_]:
    if shown.shape != expected.shape or shown.dtype != expected.dtype:
        return np.zeros(expected.shape, bool)
    if shown.dtype.kind == "f":
        return np.asarray((shown == expected) | (np.isnan(shown) & np.isnan(expected)))
    return np.asarray(shown == expected)
