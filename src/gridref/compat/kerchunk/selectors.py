"""Find the values of a coordinate: the selectors of ``coo_map``.

Source: the interface of kerchunk 0.2.10, ``kerchunk.combine.MultiZarrToZarr``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import cftime
import numpy as np
import zarr
from numpy.typing import NDArray

from gridref.compat.kerchunk.references import Input
from gridref.errors import InvalidRequestError, Place
from gridref.faces.zarr.store import open_store
from gridref.model.array import VirtualArray

_TIME = ("units", "calendar")


def coordinate_of(
    name: str, selector: Any, number: int, given: Input, dtype: Any = None
) -> VirtualArray:
    """The coordinate of an input along a dimension, with values inline.

    Parameters
    ----------
    name
        The dimension.
    selector
        A constant, a list with a value for each input, a compiled pattern that is looked for in the
        address, a function of ``(number, zarr group, name, address)``, or text: ``"INDEX"``,
        ``"attr:NAME"``, ``"vattr:VARIABLE:NAME"``, ``"data:VARIABLE"``, ``"cf:VARIABLE"``.
    number
        Of the input, from 0.
    given
        The input.
    dtype
        What the values become; ``M8`` of any unit keeps them as numbers with CF units.

    Raises
    ------
    InvalidRequestError
        Naming the input, where it has nothing of the kind.
    """
    attrs: Mapping[str, Any] = {}
    if isinstance(selector, str) and selector.startswith(("data:", "cf:")):
        variable = _array(selector.partition(":")[2], given)
        values: Any = variable.read()
        attrs = variable.attrs
    else:
        values = _selected(name, selector, number, given)
    found = np.atleast_1d(np.asarray(values)).reshape(-1)
    kept, time_attrs = _stored(found, dtype)
    if name in given.group.arrays and not attrs:
        known = given.group.arrays[name].attrs
        attrs = {key: value for key, value in known.items() if key not in _TIME}
    return VirtualArray.from_numpy(kept, (name,), {**attrs, **time_attrs})


def first_label(coordinate: VirtualArray) -> Any:
    """The first value of a coordinate, to sort and compare by: of times the time."""
    value = coordinate.read()[0]
    units = str(coordinate.attrs.get("units", ""))
    if " since " not in units or not np.issubdtype(coordinate.dtype, np.number):
        return value.item()
    calendar = str(coordinate.attrs.get("calendar", "standard"))
    return cftime.num2date(value, units, calendar)


def variable_name(selector: Any, number: int, given: Input, others: Collection[str]) -> str:
    """The name that the variable of an input gets.

    Parameters
    ----------
    selector
        As for `coordinate_of`; ``"VARNAME"`` is the name that it has.
    number, given
        The input.
    others
        Names of its coordinates.

    Raises
    ------
    InvalidRequestError
        If it has several variables, and so no one name.
    """
    if selector != "VARNAME":
        return str(_selected("var", selector, number, given))
    names = [name for name in given.group.arrays if name not in others]
    if len(names) != 1:
        raise InvalidRequestError(
            f"{given.name} has {len(names)} variables ({', '.join(names)}): say in coo_map['var']"
            " which name is meant"
        )
    return names[0]


def _selected(name: str, selector: Any, number: int, given: Input) -> Any:
    """What a selector that reads no array finds in an input."""
    if isinstance(selector, list):
        if number >= len(selector):
            raise InvalidRequestError(f"coo_map[{name!r}] has {len(selector)} values: too few")
        return selector[number]
    if isinstance(selector, re.Pattern):
        return _matched(selector, given)
    if callable(selector):
        group = zarr.open_group(open_store(given.group), mode="r")
        return selector(number, group, name, given.file)
    if selector == "INDEX":
        return number
    if not isinstance(selector, str):
        return selector
    kind, _, rest = selector.partition(":")
    if kind == "attr":
        return _attribute(given.group.attrs, rest, given)
    if kind == "vattr":
        variable, _, key = rest.partition(":")
        return _attribute(_array(variable, given).attrs, key, given)
    return selector


def _stored(values: NDArray[Any], dtype: Any) -> tuple[NDArray[Any], dict[str, str]]:
    """Values as they are kept: times as numbers with CF units."""
    wanted = None if dtype is None else np.dtype(dtype)
    if wanted is not None and wanted.kind != "M":
        return values.astype(wanted), {}
    if values.dtype.kind == "O":
        values = values.astype("M8[us]")
    if values.dtype.kind != "M":
        return values, {}
    return values.astype("M8[us]").astype(np.int64), {
        "units": "microseconds since 1970-01-01",
        "calendar": "proleptic_gregorian",
    }


def _matched(pattern: re.Pattern[str], given: Input) -> str:
    match = None if given.file is None else pattern.search(given.file)
    if match is None:
        raise InvalidRequestError(f"{given.file or given.name} does not match {pattern.pattern!r}")
    return str(match[1] if match.groups() else match[0])


def _attribute(attrs: Mapping[str, Any], name: str, given: Input) -> Any:
    if name not in attrs:
        raise InvalidRequestError(f"there is no attribute {name!r}", Place(source=given.name))
    return attrs[name]


def _array(name: str, given: Input) -> VirtualArray:
    found = given.group.arrays.get(name)
    if found is None:
        raise InvalidRequestError(f"there is no variable {name!r}", Place(source=given.name))
    return found
