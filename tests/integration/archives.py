"""Files and archives for the tests, what other programs read from them, and what catalogs show."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray

import gridref

MONTHS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] * 2
"""Days of 24 months; no multiple of 10 divides most of them."""


def write_months(
    folder: Path,
    *,
    lengths: Sequence[int] = tuple(MONTHS),
    chunks: Sequence[tuple[int, int, int]] = ((10, 7, 9),),
    filters: Sequence[Mapping[str, Any]] = ({"zlib": True, "shuffle": True},),
) -> list[Path]:
    """Daily files of uneven length; chunk shapes and filters are taken in turn, file by file."""
    random = np.random.default_rng(1)
    files, start = [], 0
    for number, length in enumerate(lengths):
        path = folder / f"month_{number:02}.nc"
        chunk = chunks[number % len(chunks)]
        with netCDF4.Dataset(path, "w") as file:
            for dim, size in (("time", None), ("lat", 13), ("lon", 17)):
                file.createDimension(dim, size)
            time = file.createVariable("time", "f8", ("time",))
            time.units = "days since 2001-01-01"
            time.calendar = "standard"
            time[:] = np.arange(start, start + length)
            for dim, low, high in (("lat", -60.0, 60.0), ("lon", 0.0, 340.0)):
                axis = file.createVariable(dim, "f4", (dim,))
                axis[:] = np.linspace(low, high, len(file.dimensions[dim]))
            options = filters[number % len(filters)]
            shape = (length, 13, 17)
            tas = file.createVariable(
                "tas", "f4", ("time", "lat", "lon"), chunksizes=chunk, fill_value=-9e9, **options
            )
            tas.units = "K"
            tas[:] = random.normal(280, 10, shape).astype("f4")
            packed = file.createVariable(
                "pr", "i2", ("time", "lat", "lon"), chunksizes=chunk, fill_value=-32768, **options
            )
            packed.scale_factor, packed.add_offset = 0.01, 100.0
            packed.set_auto_maskandscale(False)
            packed[:] = random.integers(-32768, 32767, shape, dtype="i2")
        files.append(path)
        start += length
    return files


def read_raw(files: Sequence[Path], name: str, dim: str) -> NDArray[Any]:
    """A variable as stored, concatenated along `dim` where it has it, by netCDF4."""
    parts = []
    for path in files:
        with netCDF4.Dataset(path) as file:
            variable = file
            for part in name.split("/"):
                variable = variable[part]
            variable.set_auto_maskandscale(False)
            variable.set_auto_chartostring(False)
            parts.append(np.asarray(variable[...]))
            axis = variable.dimensions.index(dim) if dim in variable.dimensions else None
    if axis is None:
        return parts[0]
    return np.concatenate(parts, axis=axis)


def assert_same_bits(got: NDArray[Any], expected: NDArray[Any]) -> None:
    """Equal in dtype, shape and every bit."""
    expected = expected.astype(expected.dtype.newbyteorder("="), copy=False)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert np.ascontiguousarray(got).tobytes() == np.ascontiguousarray(expected).tobytes()


def month(folder: Path, number: int, **changes: Any) -> Path:
    """One file of five days a month, the first of which has the number 5 * number."""
    rng = np.random.default_rng(number)
    values = rng.normal(280, 10, (5, 4, 6)).astype(changes.get("dtype", "f4"))
    dataset = xr.Dataset(
        {"tas": (("time", "lat", "lon"), values), "area": (("lat", "lon"), np.ones((4, 6)))},
        coords={
            "time": ("time", np.arange(5) + 5 * number, {"units": "days since 2000-01-01"}),
            "lat": ("lat", np.arange(4.0) + changes.get("shift", 0)),
            "lon": ("lon", np.arange(6.0)),
        },
        attrs={"title": "days"},
    )
    path = folder / f"{changes.get('name', f'{number:03}')}.nc"
    encoding = {"tas": {"chunksizes": (2, 4, 3), "zlib": True}}
    dataset.to_netcdf(path, engine="h5netcdf", encoding=encoding, unlimited_dims=["time"])
    return path


def steps(folder: Path, labels: list[float], **attrs: Any) -> Path:
    """A file whose coordinate has some labels, and nothing else that is shared."""
    path = folder / f"{len(list(folder.iterdir())):03}.h5"
    values = np.array(labels)
    return write_hdf5(
        path, {"time": (values, attrs)}, {"v": (["time"], values * 10)}, libver="latest"
    )


def built(files: list[Path], catalog: Path) -> gridref.VirtualGroup:
    gridref.build(files, catalog, "time")
    return gridref.open_catalog(catalog)


@contextmanager
def unnoticed(path: Path) -> Iterator[BinaryIO]:
    """Alter a file in place; its time of change stays."""
    before = path.stat()
    with path.open("r+b") as file:
        yield file
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def flip(path: Path, byte: int) -> None:
    """Change one bit of a file; its size and its time of change stay."""
    with unnoticed(path) as file:
        file.seek(byte)
        changed = file.read(1)[0] ^ 4
        file.seek(byte)
        file.write(bytes([changed]))


def files_in(catalog: Path) -> set[str]:
    return {path.name for path in catalog.iterdir() if path.suffix == ".parquet"}


def assert_shows(catalog: Path | str, files: list[Path]) -> None:
    """What xarray shows of the files themselves, decoded by netCDF's library."""
    with (
        xr.open_dataset(catalog, engine="gridref") as shown,
        xr.open_mfdataset(
            files, engine="netcdf4", data_vars="minimal", coords="minimal", compat="override",
            join="exact", combine="nested", concat_dim="time",
        ) as expected,
    ):  # fmt: skip
        xr.testing.assert_identical(shown.load(), expected.load())


def write_hdf5(
    path: Path, labels: Mapping[str, Any], arrays: Mapping[str, Sequence[Any]], **options: Any
) -> Path:
    """Write arrays along labelled dimensions with h5py, as NetCDF4 lays them out.

    Labels are values, or values and attributes. An array is given as in xarray: dimensions, values,
    and, if need be, attributes and what h5py is told to store it by.
    """
    with h5py.File(path, "w", **options) as file:
        for name, given in labels.items():
            values, attrs = given if isinstance(given, tuple) else (given, {})
            file[name] = values
            file[name].make_scale(name)
            file[name].attrs.update(attrs)
        for name, (dims, values, *more) in arrays.items():
            attrs, storage = (*more, {}, {})[:2]
            array = file.create_dataset(name, data=values, **storage)
            array.attrs.update(attrs)
            for axis, dim in enumerate(dims):
                array.dims[axis].attach_scale(file[dim])
    return path


def write_tile(
    path: Path,
    row: float,
    column: float,
    shape: tuple[int, int],
    *,
    step: float = 30,
    scale: float | None = None,
    overviews: bool = False,
    **profile: Any,
) -> Path:
    """A tile of random numbers, so many pixels of `step` metres below and right of the corner."""
    rasterio = pytest.importorskip("rasterio")
    rng = np.random.default_rng(sum(map(ord, path.name)))
    corner = 5e5 + step * column, 6e6 - step * row
    chosen = {
        "dtype": "uint16",
        "crs": "EPSG:32632",
        "compress": "deflate",
        "tiled": True,
        "blockxsize": 16,
        "blockysize": 16,
        **profile,
    }
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        height=shape[0],
        width=shape[1],
        count=1,
        transform=rasterio.transform.from_origin(*corner, step, step),
        **chosen,
    ) as file:
        file.write(rng.integers(1, 30_000, (1, *shape)).astype(chosen["dtype"]))
        if scale is not None:
            file.scales = (scale,)
        if overviews:
            file.build_overviews([2])
    return path
