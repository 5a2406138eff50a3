"""Aggregation files (CF conventions 1.13, 2.8) for tests, written with netCDF4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import netCDF4
import numpy as np
import xarray as xr

__all__ = ["aggregate", "read_aggregation", "write_aggregation"]


def read_aggregation(path: Path) -> xr.DataTree:
    """What an aggregation file means, put together of its fragments as xarray reads them."""
    with netCDF4.Dataset(path) as file:
        paths = ["/", *(group.path for group in _groups(file))]
    return xr.DataTree.from_dict({name: _read_group(path, name) for name in paths})


def _groups(group: Any) -> list[Any]:
    return [below for own in group.groups.values() for below in (own, *_groups(own))]


def _read_group(path: Path, name: str) -> xr.Dataset:
    raw = xr.load_dataset(path, group=name, decode_cf=False)
    put = {}
    for key, variable in raw.variables.items():
        if "aggregated_data" in variable.attrs:
            words = variable.attrs.pop("aggregated_data").replace(":", "").split()
            dims = variable.attrs.pop("aggregated_dimensions").split()
            held = {
                term: raw[own].values for term, own in zip(words[::2], words[1::2], strict=True)
            }
            values = _put_together(held["map"], held["uris"], held["identifiers"])
            put[key] = xr.Variable(dims, values, variable.attrs)
            put[key].attrs.pop("_FillValue", None)
    kept = raw.drop_vars([key for key in raw.variables if str(key).startswith("fragment_")])
    return xr.decode_cf(kept.drop_vars(list(put))).assign(put)


def _put_together(lengths: Any, uris: Any, identifiers: Any) -> Any:
    counts = [tuple(int(n) for n in row if n > 0) for row in lengths]
    assert tuple(map(len, counts)) == uris.shape
    identifiers = np.broadcast_to(identifiers, uris.shape)
    parts = np.empty(uris.shape, object)
    for index in np.ndindex(uris.shape):
        group, _, name = identifiers[index].rpartition("/")
        source = unquote(urlsplit(uris[index]).path)
        with xr.open_dataset(source, group=group or None, decode_times=False) as fragment:
            parts[index] = fragment[name].values
        assert parts[index].shape == tuple(own[k] for own, k in zip(counts, index, strict=True))
    return np.block(parts.tolist())


def aggregate(files: Sequence[Path], path: Path) -> Path:
    """Write the aggregation of all variables of files along their first dimension."""
    with netCDF4.Dataset(files[0]) as first:
        for group in (first, *_groups(first)):
            for name, variable in group.variables.items():
                extents = [_length(file, variable.name) for file in files[1:]]
                edges = [(n,) for n in variable.shape]
                edges[0] = (*edges[0], *extents)
                packing = ("_FillValue", "scale_factor", "add_offset")
                attrs = {k: v for k, v in vars_of(variable).items() if k not in packing}
                at = group.path.strip("/")
                uris = np.array([file.name for file in files], object)
                write_aggregation(
                    path,
                    name,
                    variable.dimensions,
                    edges,
                    uris=uris.reshape([-1] + [1] * (variable.ndim - 1)),
                    identifiers=f"{at}/{name}",
                    attrs=attrs,
                    dtype="f8" if "scale_factor" in vars_of(variable) else variable.dtype,
                    group=at,
                )
            with netCDF4.Dataset(path, "a") as made:
                target = made.createGroup(group.path) if group.path != "/" else made
                target.setncatts(vars_of(group))
    return path


def _length(file: Path, name: str) -> int:
    with netCDF4.Dataset(file) as other:
        return int(other[name].shape[0])


def vars_of(described: Any) -> dict[str, Any]:
    """The attributes of a variable or group of netCDF4."""
    return {name: described.getncattr(name) for name in described.ncattrs()}


def write_aggregation(
    path: Path,
    name: str,
    dims: Sequence[str],
    edges: Sequence[Sequence[int]],
    *,
    uris: Any = None,
    identifiers: Any = None,
    unique_values: Any = None,
    attrs: Mapping[str, Any] | None = None,
    dtype: Any = "f8",
    group: str = "",
    instructions: str = "",
) -> Path:
    """Add an aggregation variable to a file, which is made where it is not there.

    `group` is where the variable goes, `instructions` the group of what describes its fragments.
    """
    with netCDF4.Dataset(path, "a" if path.exists() else "w") as file:
        file.Conventions = "CF-1.13"
        held = {"map": _map(edges), "uris": uris, "identifiers": identifiers}
        held["unique_values"] = unique_values
        at = file.createGroup(instructions) if instructions else file
        terms = {
            term: _put(at, f"{name.strip('/')}_{term}", np.ma.asarray(values))
            for term, values in held.items()
            if values is not None
        }
        prefix = f"/{instructions}/" if instructions else ""
        place = file.createGroup(group) if group else file
        for dim, lengths in zip(dims, edges, strict=False):
            if dim not in file.dimensions:
                file.createDimension(dim, sum(lengths))
        given = dict(attrs or {})
        made = place.createVariable(name, dtype, (), fill_value=given.pop("_FillValue", None))
        made.setncatts(given)
        made.aggregated_dimensions = " ".join(dims)
        made.aggregated_data = " ".join(f"{term}: {prefix}{n}" for term, n in terms.items())
    return path


def _map(edges: Sequence[Sequence[int]]) -> Any:
    if not edges:
        return np.int32(1)
    rows = np.ma.masked_all((len(edges), max(map(len, edges))), "i4")
    for row, lengths in zip(rows, edges, strict=True):
        row[: len(lengths)] = lengths
    return rows


def _put(group: Any, name: str, values: Any) -> str:
    text = values.dtype.kind in "UO"
    dims = []
    for axis, extent in enumerate(values.shape):
        dims.append(f"{name}_{axis}")
        group.createDimension(dims[-1], extent)
    made = group.createVariable(name, str if text else values.dtype, dims)
    made[...] = np.ma.getdata(values).astype(object) if text else values
    return name
