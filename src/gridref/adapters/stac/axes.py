"""Dimensions of a dataset as the datacube extension of STAC has them.

Sources: STAC extension "datacube" 2.2.0, ``cube:dimensions``; CF conventions 1.12, chapter 4.
"""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError

__all__ = ["Axis", "axes_of", "iso_time", "kind_of", "plain"]

MOST_VALUES = 1000
"""Most values that are written out of a coordinate without a step."""

type Kind = Literal["x", "y", "z", "t", ""]

_STANDARD_NAMES: dict[str, Kind] = {
    "longitude": "x",
    "grid_longitude": "x",
    "projection_x_coordinate": "x",
    "latitude": "y",
    "grid_latitude": "y",
    "projection_y_coordinate": "y",
    "time": "t",
    **dict.fromkeys(("height", "altitude", "depth", "air_pressure"), "z"),
}
_UNITS: dict[str, Kind] = {
    **dict.fromkeys(("degrees_east", "degree_east", "degrees_E", "degree_E"), "x"),
    **dict.fromkeys(("degrees_north", "degree_north", "degrees_N", "degree_N"), "y"),
}
_AXES: dict[str, Kind] = {"X": "x", "Y": "y", "Z": "z", "T": "t"}


@dataclass(frozen=True, eq=False)
class Axis:
    """One dimension.

    Attributes
    ----------
    name, kind
        Its name, and what it is: rows (``"y"``), columns (``"x"``), height, time, or something else
        (empty).
    length
        Of the dimension.
    labels
        Its coordinate, decoded; None where there is none.
    """

    name: str
    kind: Kind
    length: int
    labels: xr.Variable | None

    @property
    def values(self) -> NDArray[Any]:
        """The labels; numbers from 0 where there are none."""
        return np.arange(self.length) if self.labels is None else np.asarray(self.labels.values)

    @property
    def step(self) -> float | None:
        """Distance of neighbours where all are alike: of numbers only."""
        values = self.values
        if values.dtype.kind not in "iuf" or len(values) < 2:
            return None
        steps = np.diff(values.astype(np.float64))
        step = (float(values[-1]) - float(values[0])) / (len(values) - 1)
        same = bool(step) and np.allclose(steps, step, rtol=1e-3, atol=0)
        return step if same else None

    @property
    def edges(self) -> tuple[float, float]:
        """Least and greatest number, with half a step around them where there is one."""
        values = self.values.astype(np.float64)
        half = abs(self.step or 0.0) / 2
        return float(np.nanmin(values)) - half, float(np.nanmax(values)) + half

    def to_json(self, reference_system: Any) -> dict[str, Any]:
        """The entry of ``cube:dimensions``; the reference system is for rows and columns."""
        if self.kind == "t":
            return {"type": "temporal", **self._times()}
        document = {"type": "index" if self.labels is None else "label", **self._numbers()}
        if self.kind:
            document |= {"type": "spatial", "axis": self.kind}
        if self.kind in ("x", "y") and reference_system is not None:
            document["reference_system"] = reference_system
        attrs = {} if self.labels is None else self.labels.attrs
        for key, name in (("unit", "units"), ("description", "long_name")):
            if name in attrs:
                document[key] = str(attrs[name])
        return document

    def _times(self) -> dict[str, Any]:
        texts = [iso_time(value) for value in self.values.reshape(-1)]
        document: dict[str, Any] = {"extent": [min(texts), max(texts)]}
        return document | ({"values": texts} if len(texts) <= MOST_VALUES else {"step": None})

    def _numbers(self) -> dict[str, Any]:
        values = self.values
        if values.dtype.kind not in "iuf" or not len(values):
            return {"values": [str(value) for value in values.tolist()]}
        document: dict[str, Any] = {"extent": [plain(np.nanmin(values)), plain(np.nanmax(values))]}
        if self.step is not None:
            return document | {"step": plain(np.float64(abs(self.step)).astype(values.dtype))}
        listed = len(values) <= MOST_VALUES and np.isfinite(values).all()
        return document | ({"values": list(map(plain, values))} if listed else {"step": None})


def axes_of(dataset: xr.Dataset) -> dict[str, Axis]:
    """The dimensions of a dataset's variables, by name."""
    axes = {}
    for name, length in dataset.sizes.items():
        labels = dataset.variables.get(name)
        if labels is not None and labels.dims != (name,):
            labels = None
        axes[str(name)] = Axis(str(name), kind_of(str(name), labels), length, labels)
    return axes


def kind_of(name: str, labels: xr.Variable | None) -> Kind:
    """What a coordinate is of, by its attributes, then by its values and its name."""
    if labels is None:
        return ""
    attrs = labels.attrs
    told: tuple[Kind | None, ...] = (
        _AXES.get(str(attrs.get("axis"))),
        _STANDARD_NAMES.get(str(attrs.get("standard_name"))),
        _UNITS.get(str(attrs.get("units"))),
        "t" if _is_time(labels) else None,
        "z" if "positive" in attrs else None,
    )
    by_name: dict[str, Kind] = {"x": "x", "y": "y"}
    found: Kind = next((kind for kind in told if kind is not None), by_name.get(name, ""))
    return found if found != "t" or _is_time(labels) else ""


def _is_time(labels: xr.Variable) -> bool:
    first = labels.values.reshape(-1)[:1]
    return labels.dtype.kind == "M" or (labels.dtype.kind == "O" and hasattr(first[0], "calendar"))


def iso_time(value: Any) -> str:
    """A moment as RFC 3339 has it, in UTC, to the second.

    A day that the usual calendar does not have becomes the last one of its month.

    Raises
    ------
    InvalidRequestError
        If its year is beyond 1 to 9999.
    """
    if isinstance(value, np.datetime64):
        value = value.astype("M8[us]").item()
    if not isinstance(value, datetime) and not hasattr(value, "calendar"):
        raise InvalidRequestError(f"a moment is wanted, got {value!r}")
    if not 1 <= value.year <= 9999:
        raise InvalidRequestError(f"STAC has years from 1 to 9999, got {value.year}")
    day = min(value.day, calendar.monthrange(value.year, value.month)[1])
    parts = (value.year, value.month, day, value.hour, value.minute, value.second)
    return datetime(*parts, tzinfo=UTC).strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")


def plain(value: Any) -> int | float:
    """A number as JSON has it; float32 as short as it is told from others."""
    number = np.asarray(value)
    if number.dtype.kind in "iu":
        return int(number)
    return float(str(number[()]))
