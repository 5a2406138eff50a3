"""Find what weather radars (ODIM_H5) and beamlines (NeXus) state differently from CF.

Sources: ODIM_H5 2.4 (OPERA), 4.2 "where" and 4.4 "what"; NXdata of the NeXus data format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gridref.model.array import VirtualArray, VirtualGroup

_QUANTITIES = {
    **dict.fromkeys(("TH", "TV", "DBZH", "DBZV"), ("Reflectivity", "dBZ")),
    **dict.fromkeys(("VRADH", "VRADV", "VRAD"), ("Radial velocity", "m s-1")),
    "RATE": ("Rainfall rate", "mm h-1"),
    "ACRR": ("Rainfall", "mm"),
}
"""What some quantities of ODIM_H5 are, and their units (table 17 there)."""


def as_stated(group: VirtualGroup, path: str) -> VirtualArray:
    """An array with the attributes of CF that say what ODIM_H5 states beside it."""
    array = group[path]
    assert isinstance(array, VirtualArray)
    return replace(array, attrs={**stated(group, path), **array.attrs})


def stated(group: VirtualGroup, path: str) -> dict[str, Any]:
    """Attributes of CF that say what ODIM_H5 states of an array: packing, title and units."""
    whats = [each.attrs for each in _beside(group, path, "what")]
    found = next((each for each in whats if {"gain", "offset"} <= set(each)), None)
    if found is None:
        return {}
    quantity = str(found.get("quantity", ""))
    long_name, units = _QUANTITIES.get(quantity, (quantity, ""))
    missing = [float(found[name]) for name in ("nodata", "undetect") if name in found]
    return {
        "scale_factor": float(found["gain"]),
        "add_offset": float(found["offset"]),
        "missing_value": missing,
        "long_name": long_name,
        "units": units,
    }


def sweep_of(group: VirtualGroup, path: str, array: VirtualArray) -> dict[str, Any] | None:
    """Where the rays of an ODIM_H5 sweep go; None if the array is no sweep.

    ``sweep`` has the latitude, longitude and elevation of the radar in degrees, and where the first
    bin begins and how long bins are in metres. ``dims`` are those of rays and bins.
    """
    wheres = [each.attrs for each in _beside(group, path, "where")]
    names = ("lat", "lon", "rscale", "rstart", "elangle", "nrays", "nbins")
    found: dict[str, float] = {}
    for name in names:
        number = next((_number(each[name]) for each in wheres if name in each), None)
        if number is None:
            return None
        found[name] = number
    if array.shape[-2:] != (found["nrays"], found["nbins"]):
        return None
    first = 1000 * found["rstart"]
    sweep = [found["lat"], found["lon"], found["elangle"], first, found["rscale"]]
    return {"sweep": sweep, "dims": list(array.dims[-2:])}


def nexus_axis(group: VirtualGroup, path: str, axis: int) -> str | None:
    """Path of the array that NXdata names as an axis of its signal."""
    above, _, _ = path.rpartition("/")
    holder, array = (group[above] if above else group), group[path]
    named = holder.attrs.get("axes")
    axes = named if isinstance(named, list | tuple) else [named]
    assert isinstance(holder, VirtualGroup)
    assert isinstance(array, VirtualArray)
    if holder.attrs.get("NX_class") != "NXdata" or len(axes) != array.ndim:
        return None
    label = holder.arrays.get(str(axes[axis]))
    fits = label is not None and label.shape == (array.shape[axis],) and label.dtype.kind in "iuf"
    return f"{above}/{axes[axis]}".lstrip("/") if fits else None


def _beside(group: VirtualGroup, path: str, name: str) -> Iterator[VirtualGroup]:
    """Groups of a name in the groups that an array is in, the innermost first."""
    parts = path.split("/")[:-1]
    for depth in range(len(parts), -1, -1):
        each = "/".join([*parts[:depth], name])
        if each in group and isinstance(found := group[each], VirtualGroup):
            yield found


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
