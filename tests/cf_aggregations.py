"""Aggregation files (CF conventions 1.13, 2.8) for tests, written with netCDF4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np

__all__ = ["write_aggregation"]


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
