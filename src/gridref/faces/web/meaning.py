"""What an array says about its elements: packing, missing values, units, where rays and axes are.

`Meaning` follows the CF conventions; ``web/viewer/meaning.js`` says the same for browsers.
`stated`, `sweep_of` and `nexus_axis` find what weather radars (ODIM_H5) and beamlines (NeXus) state
differently.

Sources: CF conventions 1.11, 2.5.1 and 8.1; ODIM_H5 2.4 (OPERA), 4.2 "where" and 4.4 "what"; NXdata
of the NeXus data format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import cftime
import numpy as np
from numpy.typing import NDArray

from gridref.model.array import VirtualArray, VirtualGroup, path_in
from gridref.model.conventions import UNIT_NS, MissingValues, meant_dtype, text_of

# Arrays and groups by their paths


def array_at(group: VirtualGroup, path: str) -> VirtualArray:
    """The array at a path where there is one."""
    array = group[path]
    assert isinstance(array, VirtualArray)
    return array


def groups_around(group: VirtualGroup, path: str) -> Iterator[tuple[str, VirtualGroup]]:
    """Paths and groups that an array is in, the innermost first."""
    parts = path.split("/")[:-1]
    for depth in range(len(parts), -1, -1):
        folder = "/".join(parts[:depth])
        holder = group[folder] if folder else group
        assert isinstance(holder, VirtualGroup)
        yield folder, holder


# Numbers, by the CF conventions

NUMBERS = "biuf"


@dataclass(frozen=True)
class Meaning:
    """How to read stored numbers.

    Attributes
    ----------
    meant
        The dtype, with the sign that ``_Unsigned`` gives.
    absent
        Numbers that stand for none.
    scale, offset
        What unpacks.
    """

    meant: np.dtype[Any]
    absent: MissingValues
    scale: float
    offset: float

    @classmethod
    def of(cls, array: VirtualArray) -> Meaning:
        """The meaning that an array states."""
        return cls(
            meant_dtype(array),
            MissingValues.of(array),
            next(iter(_numbers(array.attrs, "scale_factor")), 1.0),
            next(iter(_numbers(array.attrs, "add_offset")), 0.0),
        )

    @property
    def is_packed(self) -> bool:
        """Whether stored numbers are others than those that people count."""
        return (self.scale, self.offset) != (1.0, 0.0)

    def unpacked(self, stored: NDArray[Any]) -> NDArray[Any]:
        """Numbers as people count them; NaN where there is none.

        They are floats of 32 bits where stored numbers of 32 bits are not packed, else of 64.
        """
        stored = stored.view(self.meant) if stored.dtype.kind in "iu" else stored
        is_single = stored.dtype == np.float32 and not self.is_packed
        values: NDArray[Any] = stored.astype(np.float32 if is_single else np.float64)
        if self.is_packed:
            values = values * self.scale + self.offset
        return self._known(values, stored)

    def counted(self, stored: NDArray[Any]) -> NDArray[Any]:
        """The same, with integers that floats do not hold as integers of Python."""
        if stored.dtype.kind not in "iu" or stored.dtype.itemsize < 8 or self.is_packed:
            return self.unpacked(stored)
        stored = stored.view(self.meant)
        return self._known(stored.astype(object), stored)

    def _known(self, values: NDArray[Any], stored: NDArray[Any]) -> NDArray[Any]:
        absent = self.absent.among(stored)
        if absent is not None:
            values[absent] = np.nan
        return values


def _numbers(attrs: Mapping[str, Any], name: str) -> list[float]:
    """An attribute as finite numbers; attributes may be anything."""
    try:
        found = np.asarray(attrs[name]).astype(np.float64).ravel()
    except (KeyError, TypeError, ValueError):
        return []
    return [float(number) for number in found[:256] if np.isfinite(number)]


def date_of(value: Any, attrs: Mapping[str, Any]) -> str | None:
    """A date of ISO 8601 that a stored time is; None where its units mean nothing."""
    calendar = text_of(attrs, "calendar") or "standard"
    units, per_unit = units_of_dates(attrs)
    try:
        number = float(value) / per_unit
        date = cftime.num2date(number, units, calendar, only_use_cftime_datetimes=True)
        return str(date.isoformat()).removesuffix("T00:00:00")
    except (ValueError, OverflowError, TypeError, AttributeError):
        return None


def units_of_dates(attrs: Mapping[str, Any]) -> tuple[str, float]:
    """Units of dates that cftime knows, and how many of those stated are one of them."""
    unit, since, date = text_of(attrs, "units").strip().partition(" ")
    if UNIT_NS.get(unit.lower()) == 1:
        return f"microseconds {date}", 1e3
    return f"{unit}{since}{date}", 1.0


# What ODIM_H5 and NeXus state

_QUANTITIES = {
    **dict.fromkeys(("TH", "TV", "DBZH", "DBZV"), ("Reflectivity", "dBZ")),
    **dict.fromkeys(("VRADH", "VRADV", "VRAD"), ("Radial velocity", "m s-1")),
    "RATE": ("Rainfall rate", "mm h-1"),
    "ACRR": ("Rainfall", "mm"),
}
"""What some quantities of ODIM_H5 are, and their units (table 17 there)."""


def as_stated(group: VirtualGroup, path: str) -> VirtualArray:
    """An array with the attributes of CF that say what ODIM_H5 states beside it."""
    array = array_at(group, path)
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
    array, (above, holder) = array_at(group, path), next(groups_around(group, path))
    named = holder.attrs.get("axes")
    axes = named if isinstance(named, list | tuple) else [named]
    if holder.attrs.get("NX_class") != "NXdata" or len(axes) != array.ndim:
        return None
    label = holder.arrays.get(str(axes[axis]))
    fits = label is not None and label.shape == (array.shape[axis],) and label.dtype.kind in "iuf"
    return path_in(above, str(axes[axis])) if fits else None


def _beside(group: VirtualGroup, path: str, name: str) -> Iterator[VirtualGroup]:
    """Groups of a name in the groups that an array is in, the innermost first."""
    for _, holder in groups_around(group, path):
        if name in holder.groups:
            yield holder.groups[name]


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
