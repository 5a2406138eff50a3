"""Turn datasets back into groups of virtual arrays, as catalogs and references keep them.

A coordinate that still shows what its file holds becomes the file's array again, bit for bit.
Virtual variables keep the attributes that define what their stored numbers mean, whatever xarray
did to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from gridref.api.decoding import decoded
from gridref.combine.rules.packing import PACKING_ATTRIBUTES
from gridref.errors import InvalidRequestError
from gridref.faces.xarray.duck_array import VirtualDuckArray
from gridref.faces.xarray.lazy import is_lazy, lazy_virtual_array
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.conventions import TimeBase, is_time_like

ORIGINAL = "gridref_original"
"""Key of a loaded variable's encoding that holds the virtual array that it was read from."""

MOST_READ_BYTES = 16 * 2**20
"""Most bytes of a variable that are read unasked to be kept by value."""


def virtual_array_of(variable: xr.Variable) -> VirtualArray | None:
    """The virtual array that a variable shows, as it is selected; None for one that is loaded."""
    if is_lazy(variable):
        return lazy_virtual_array(variable)
    data = variable.data
    return data.array if isinstance(data, VirtualDuckArray) else None


def tree_to_group(tree: xr.DataTree) -> VirtualGroup:
    """Turn a tree back into a group with groups below; see `dataset_to_group`."""
    own = dataset_to_group(tree.to_dataset(inherit=False))
    return own.with_changes(
        groups={str(name): tree_to_group(child) for name, child in tree.children.items()}
    )


def dataset_to_group(dataset: xr.Dataset) -> VirtualGroup:
    """Turn a dataset back into a group: virtual variables as they are, others kept inline.

    Raises
    ------
    InvalidRequestError
        For a loaded variable of Python objects that are not strings or dates.
    """
    variables = {str(name): variable for name, variable in dataset.variables.items()}
    virtual = {name: virtual_array_of(variable) for name, variable in variables.items()}
    bounds = {
        name: str(variable.attrs["bounds"])
        for name, variable in variables.items()
        if "bounds" in variable.attrs
    }
    arrays = {}
    for name, variable in variables.items():
        array = virtual[name]
        if array is None:
            arrays[name] = _kept(name, variable, _units(virtual.get(bounds.get(name, ""))))
        else:
            stored = array.attrs if is_lazy(variable) else {}
            attrs = {**stored, **_attributes(variable, array)}
            arrays[name] = array.with_changes(dims=tuple(map(str, variable.dims)), attrs=attrs)
    parents = {bounded: name for name, bounded in bounds.items()}  # CF conventions, 7.1
    for name, array in arrays.items():
        parent = _units(arrays.get(parents.get(name, "")))
        own = _units(virtual[name])
        # Virtual times say what they count from, unless what they bound says it for them.
        if "units" not in array.attrs and is_time_like(own) and not _count_alike(own, parent):
            arrays[name] = array.with_changes(attrs={**array.attrs, **own})
    attrs = {str(name): value for name, value in dataset.attrs.items()}
    arrays, others = _with_coordinates(arrays, dataset)
    if others and "coordinates" not in attrs:
        attrs["coordinates"] = " ".join(others)
    unlimited = frozenset(map(str, dataset.encoding.get("unlimited_dims", ())))
    return VirtualGroup(arrays, {}, attrs, unlimited_dims=unlimited & set(dataset.dims))


def _units(array: VirtualArray | None) -> dict[str, Any]:
    attrs = {} if array is None else array.attrs
    return {name: attrs[name] for name in ("units", "calendar") if name in attrs}


def _count_alike(units: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Whether units and calendar are the same, or other words for the same."""
    if units.get("units") == others.get("units"):
        return str(units.get("calendar", "")) == str(others.get("calendar", ""))
    base = TimeBase.of(units)
    return base is not None and base == TimeBase.of(others)


def _attributes(variable: xr.Variable, array: VirtualArray) -> dict[str, Any]:
    """The attributes as they are now, and those of the packing: stored numbers need them."""
    attrs = {str(key): value for key, value in variable.attrs.items()}
    kept = (name for name in (*PACKING_ATTRIBUTES, "dtype") if name in array.attrs)
    return {**{name: array.attrs[name] for name in kept}, **attrs}


# Which coordinates belong to which variable, as netCDF files write it


def _with_coordinates(
    arrays: Mapping[str, VirtualArray], dataset: xr.Dataset
) -> tuple[dict[str, VirtualArray], list[str]]:
    """The arrays with the attribute ``coordinates``, and the coordinates that belong to none."""
    coordinates = sorted(str(name) for name in dataset.coords if name not in dataset.dims)
    left = dict.fromkeys(coordinates)
    result = dict(arrays)
    for name in map(str, dataset.data_vars):
        variable, array = dataset.variables[name], result[name]
        named = variable.encoding.get("coordinates")
        if named is not None:  # by its file
            own = [word for word in str(named).split() if word in coordinates]
        else:
            dims = set(variable.dims)
            own = [word for word in coordinates if set(dataset.variables[word].dims) <= dims]
        if own and "coordinates" not in array.attrs:
            result[name] = array.with_changes(attrs={**array.attrs, "coordinates": " ".join(own)})
        for word in str(result[name].attrs.get("coordinates", "")).split():
            left.pop(word, None)
    return result, list(left)


# Loaded variables


def _kept(name: str, variable: xr.Variable, units: Mapping[str, Any]) -> VirtualArray:
    """A variable that is kept by value, or in its file where it shows the same."""
    if is_lazy(variable) and variable.nbytes > MOST_READ_BYTES:
        raise InvalidRequestError(
            f"variable {name!r} is not virtual, and not yet read: {variable.nbytes} bytes would be"
            " kept by value; load() it to say so, or open it with gridref.open_virtual_dataset"
        )
    dims = tuple(map(str, variable.dims))
    original = _original(name, variable)
    if original is not None:
        return original.with_changes(dims=dims)
    encoded = _encoded(name, variable, units)
    return VirtualArray.from_numpy(_fixed_size(name, encoded), dims, dict(encoded.attrs))


def _encoded(name: str, variable: xr.Variable, units: Mapping[str, Any]) -> xr.Variable:
    """A loaded variable as netCDF files hold it, times in the given units if they fit."""
    encoding = {key: value for key, value in variable.encoding.items() if key != ORIGINAL}
    plain = xr.Variable(variable.dims, np.asarray(variable.values), variable.attrs, encoding)
    if plain.dtype.kind in "mM":
        plain.attrs.pop("units", None)
    encoded = xr.conventions.encode_cf_variable(plain, name=name)
    if not units or "units" not in encoded.attrs or _count_alike(units, encoded.attrs):
        return encoded
    plain.encoding = dict(units)
    try:
        fitting = xr.conventions.encode_cf_variable(plain, name=name)
        again = decoded(name, fitting, decode_times=True)
    except ValueError:  # dates that the calendar does not have
        return encoded
    same = np.array_equal(again.values, plain.values)
    return fitting if same and _count_alike(units, fitting.attrs) else encoded


def _fixed_size(name: str, variable: xr.Variable) -> NDArray[Any]:
    values = np.asarray(variable.values)
    if not values.dtype.hasobject:
        return values
    if all(isinstance(element, str) for element in values.reshape(-1).tolist()):
        return values.astype(str)
    raise InvalidRequestError(f"variable {name!r} holds Python objects that no array can store")


def _original(name: str, variable: xr.Variable) -> VirtualArray | None:
    """The virtual array that a variable was loaded from, if it still shows the same."""
    duck = variable.encoding.get(ORIGINAL)
    if not isinstance(duck, VirtualDuckArray) or duck.shape != variable.shape:
        return None
    attrs = {key: value for key, value in duck.array.attrs.items() if key != "coordinates"}
    raw = xr.Variable(variable.dims, duck.load(), attrs)
    times = variable.dtype.kind in "mM" or (variable.dtype.kind == "O" and raw.dtype.kind != "O")
    again = decoded(name, raw, decode_times=times)
    if not again.equals(variable):  # type: ignore[no-untyped-call]
        return None
    kept = {
        key: value
        for key, value in duck.array.attrs.items()
        if key not in again.attrs or key in variable.attrs
    }
    return duck.array.with_changes(attrs={**kept, **variable.attrs})
