"""Archives of NetCDF4 files for the tests, and what netCDF4 reads from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
from numpy.typing import NDArray

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
