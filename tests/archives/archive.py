"""What an archive is to the tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

__all__ = ["Archive", "Variable", "field_of", "write_netcdf"]


@dataclass(frozen=True)
class Archive:
    """Files, and what one call has to make of them.

    Attributes
    ----------
    name
        Of the kind.
    files
        In no particular order.
    expected
        Reads the files with other programs and gives groups by path: ``""`` is the root.
    options
        The one option that `build` takes beside files and catalog, if any.
    flags
        The same for the command.
    pattern
        What a user would write for all the files, below the folder.
    """

    name: str
    files: tuple[Path, ...]
    expected: Callable[[], Mapping[str, xr.Dataset]]
    options: Mapping[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    pattern: str = "*.nc"


@dataclass(frozen=True)
class Variable:
    """A variable of a NetCDF file.

    Attributes
    ----------
    dims
        Names of its dimensions.
    values
        As stored.
    attrs
        Attributes; ``_FillValue`` among them where it has one.
    chunks
        Shape of its chunks; None for contiguous.
    """

    dims: tuple[str, ...]
    values: ArrayLike
    attrs: Mapping[str, Any] = field(default_factory=dict)
    chunks: Sequence[int] | None = None


def field_of(name: str, *shape: int) -> np.ndarray:
    """Smooth float32 numbers that are other ones for another name."""
    seed = sum(name.encode())
    grid = np.indices(shape).astype("f8")
    waves = sum(np.sin(axis / (3 + k) + seed + k) for k, axis in enumerate(grid))
    return (280 + 10 * waves).astype("f4")


def write_netcdf(
    path: Path,
    variables: Mapping[str, Variable],
    attrs: Mapping[str, Any] | None = None,
    unlimited: Sequence[str] = (),
) -> Path:
    """Write a NetCDF4 file; variables with a slash in their name go into groups."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with netCDF4.Dataset(path, "w") as file:
        file.set_auto_maskandscale(False)
        for name, variable in variables.items():
            group, _, leaf = name.rpartition("/")
            _put(file.createGroup(group) if group else file, leaf, variable, unlimited)
        file.setncatts(dict(attrs or {}))
    return path


def _put(group: Any, name: str, variable: Variable, unlimited: Sequence[str]) -> None:
    values = np.asarray(variable.values)
    for dim, length in zip(variable.dims, values.shape, strict=True):
        if dim not in group.dimensions:
            group.createDimension(dim, None if dim in unlimited else length)
    attrs = dict(variable.attrs)
    made = group.createVariable(
        name,
        str if values.dtype.kind == "O" else values.dtype,
        variable.dims,
        fill_value=attrs.pop("_FillValue", None),
        chunksizes=variable.chunks,
        compression="zlib" if variable.chunks else None,
        shuffle=True,
    )
    made.set_auto_maskandscale(values.dtype.kind == "O")
    made.setncatts(attrs)
    made[...] = values
