"""Decode variables by the CF conventions, as xarray shows them, and reference systems by pyproj."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import GridrefError, NotRepresentableError, Place
from gridref.model.array import VirtualArray
from gridref.model.conventions import listed_coordinates, wkt_of

if TYPE_CHECKING:
    import xarray as xr


def coordinate_names(arrays: Mapping[str, VirtualArray], attrs: Mapping[str, Any]) -> set[str]:
    """Coordinates of a group: labels of dimensions, and what ``coordinates`` attributes name.

    `attrs` are those of the group.
    """
    labels = {name for name, array in arrays.items() if array.is_index(name)}
    return labels | (listed_coordinates(arrays.values(), attrs) & arrays.keys())


def decoded(name: str, variable: xr.Variable, *, decode_times: bool) -> xr.Variable:
    """A variable as xarray shows it, in memory.

    Raises
    ------
    NotRepresentableError
        If xarray cannot interpret its attributes.
    """
    with refusing_attributes(name):
        import xarray as xr

        shown = xr.conventions.decode_cf_variable(name, variable, decode_times=decode_times)
        return shown.load()


@contextmanager
def refusing_attributes(name: str | None) -> Iterator[None]:
    """Make whatever xarray raises while it decodes a variable or group an error of ours.

    It takes attributes for texts and numbers; files hold anything under their names.
    """
    try:
        yield
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
        if isinstance(error, GridrefError):
            raise
        reason = f"xarray does not decode it: {str(error).partition('\n')[0]}"
        raise NotRepresentableError(reason, Place(variable=name)) from error


def decoded_values(
    name: str, raw: NDArray[Any], array: VirtualArray, *, decode_times: bool = True
) -> NDArray[Any]:
    """Values of an array as xarray shows them, out of what is stored."""
    import xarray as xr  # here, so that opening a catalog does without

    variable = xr.Variable(array.dims, raw, dict(array.attrs))
    return np.asarray(decoded(name, variable, decode_times=decode_times).values)


# Reference systems

_MOST_CHARACTERS = 100_000
"""Of the text of a reference system."""

type System = str | tuple[tuple[str, Any], ...]


def system_of(attrs: Mapping[str, Any]) -> System:
    """What a grid mapping may be made of: its WKT, else those attributes that are texts or numbers.

    What is too long is left out.
    """
    if wkt := wkt_of(attrs):
        return wkt if len(wkt) < _MOST_CHARACTERS else ()
    plain = {
        name: getattr(value, "tolist", lambda value=value: value)() for name, value in attrs.items()
    }
    kept = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in plain.items()
        if isinstance(value, str | int | float | list | tuple)
        and len(str(value)) < _MOST_CHARACTERS
    }
    return tuple(sorted(kept.items()))


def crs_of(system: System) -> Any:
    """A reference system of pyproj; None where PROJ does not understand it."""
    from pyproj import CRS
    from pyproj.exceptions import CRSError

    try:
        return CRS.from_wkt(system) if isinstance(system, str) else CRS.from_cf(dict(system))
    except (CRSError, KeyError, TypeError, ValueError):
        return None
