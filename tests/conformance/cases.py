"""Archives for the conformance tests, and what the original readers say that they hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import tifffile
from numpy.typing import NDArray

import gridref
from gridref.model.array import VirtualGroup

MONTHS = (31, 28, 31)


@dataclass(frozen=True)
class Case:
    """One archive.

    Attributes
    ----------
    name
        Short name.
    description
        What is stored.
    group
        The archive as one cube.
    path
        Path of the array that is compared.
    values
        What the original reader returns.
    """

    name: str
    description: str
    group: VirtualGroup
    path: str
    values: NDArray[Any]


def all_cases(folder: Path) -> list[Case]:
    """Write all archives into a folder and scan them."""
    random = np.random.default_rng(6)
    return [
        _hdf5(folder, "deflate", "HDF5, zlib", random, compression=4),
        _hdf5(folder, "shuffled", "HDF5, shuffle + zlib", random, compression=4, shuffle=True),
        _hdf5(folder, "bigendian", "HDF5, big-endian", random, dtype=">i4"),
        _months(folder, "months", random, chunk=1),
        _months(folder, "uneven", random, chunk=None),
        _padded(folder, random),
        _strings(folder),
        _tiff(folder, random),
    ]


def _hdf5(
    folder: Path, name: str, description: str, random: Any, dtype: str = "<f4", **options: Any
) -> Case:
    path = folder / f"{name}.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "v", data=random.normal(0, 1e6, (40, 12)).astype(dtype), chunks=(10, 6), **options
        )
    with h5py.File(path) as file:
        values = file["v"][...]
    return Case(
        name, description, gridref.scan(path), "v", values.astype(values.dtype.newbyteorder("="))
    )


def _netcdf(path: Path, values: NDArray[Any], chunk: int, **options: Any) -> None:
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", values.shape[1])
        variable = file.createVariable(
            "v", values.dtype, ("time", "x"), chunksizes=(chunk, values.shape[1]), **options
        )
        variable[:] = values


def _read_netcdf(paths: list[Path]) -> NDArray[Any]:
    parts = []
    for path in paths:
        with netCDF4.Dataset(path) as file:
            file.set_auto_maskandscale(False)
            parts.append(file["v"][...])
    return np.concatenate(parts)


def _months(folder: Path, name: str, random: Any, chunk: int | None) -> Case:
    paths = []
    for number, length in enumerate(MONTHS):
        paths.append(folder / f"{name}_{number}.nc")
        values = random.integers(-30000, 30000, (length, 12)).astype("i2")
        _netcdf(paths[-1], values, chunk or length, zlib=True, shuffle=False)
    what = "one chunk a month" if chunk is None else "one chunk a day"
    group = gridref.concat([gridref.scan(path) for path in paths], "time")
    return Case(name, f"NetCDF4, uneven months, {what}", group, "v", _read_netcdf(paths))


def _padded(folder: Path, random: Any) -> Case:
    paths = [folder / f"padded_{number}.nc" for number in range(3)]
    for path in paths:
        _netcdf(path, random.normal(size=(10, 12)), 4, zlib=True, shuffle=True)
    group = gridref.concat([gridref.scan(path) for path in paths], "time")
    return Case("padded", "NetCDF4, padded chunks inside", group, "v", _read_netcdf(paths))


def _strings(folder: Path) -> Case:
    path = folder / "strings.h5"
    words = np.array([f"wört {n}" if n % 3 else "" for n in range(10)], dtype=object)
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=words, chunks=(4,), dtype=h5py.string_dtype())
    with h5py.File(path) as file:
        values = file["v"].asstr()[...]
    return Case("strings", "HDF5, strings", gridref.scan(path), "v", values)


def _tiff(folder: Path, random: Any) -> Case:
    path = folder / "image.tif"
    image = random.integers(0, 65535, (64, 48)).astype("u2")
    tifffile.imwrite(path, image, tile=(16, 16), compression="zlib")
    group = gridref.scan(path)
    (name,) = group.all_arrays()
    return Case("tiff", "TIFF, tiles, deflate", group, name, tifffile.imread(path))
