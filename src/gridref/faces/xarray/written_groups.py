"""Turn datasets back into groups of virtual arrays, as catalogs and references keep them.

A coordinate that still shows what its file holds becomes the file's array again, bit for bit.
Virtual variables keep the attributes that define what their stored numbers mean, whatever xarray
did to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from gridref.model.times import TimeBase, is_time_like

ORIGINAL = "gridref_original"
"""Key of a loaded variable's encoding that holds the virtual array that it was read from."""

MOST_READ_BYTES = 16 * 2**20
"""Most bytes of a variable that are read unasked to be kept by value."""

_TIME_ATTRIBUTES = ("units", "calendar")


def dataset_to_group(dataset: xr.Dataset) -> VirtualGroup:
    """Turn a dataset back into a group: virtual variables as they are, others kept inline.

    Raises
    ------
    InvalidRequestError
        For a loaded variable of Python objects that are not strings or dates.
    """
    variables = {str(name): variable for name, variable in dataset.variables.items()}
    parents = _parents(variables)
    if any(map(_is_renamed, variables.values())):
        # Where their files are now, loaded variables were not told.
        variables = {name: _without_original(each) for name, each in variables.items()}
    arrays = {
        name: _array_of(name, variable, _units_of_bounds(variable, variables))
        for name, variable in variables.items()
    }
    for name, variable in variables.items():
        arrays[name] = _with_own_units(arrays[name], variable, arrays.get(parents.get(name, "")))
    arrays, others = _with_coordinates(arrays, dataset)
    attrs = {str(name): value for name, value in dataset.attrs.items()}
    if others and "coordinates" not in attrs:
        attrs["coordinates"] = " ".join(others)
    unlimited = frozenset(map(str, dataset.encoding.get("unlimited_dims", ())))
    return VirtualGroup(arrays, {}, attrs, unlimited_dims=unlimited & set(dataset.dims))


def virtual_array_of(variable: xr.Variable) -> VirtualArray | None:
    """The virtual array that a variable shows, as it is selected; None for one that is loaded."""
    if is_lazy(variable):
        return lazy_virtual_array(variable)
    data = variable.data
    return data.array if isinstance(data, VirtualDuckArray) else None


def _is_renamed(variable: xr.Variable) -> bool:
    is_virtual = not is_lazy(variable) and isinstance(variable.data, VirtualDuckArray)
    return is_virtual and variable.data.renamed


def _without_original(variable: xr.Variable) -> xr.Variable:
    copy = variable.copy(deep=False)
    copy.encoding = {key: held for key, held in variable.encoding.items() if key != ORIGINAL}
    return copy


def tree_to_group(tree: xr.DataTree) -> VirtualGroup:
    """Turn a tree back into a group with groups below; see `dataset_to_group`."""
    own = dataset_to_group(tree.to_dataset(inherit=False))
    return own.with_changes(
        groups={str(name): tree_to_group(child) for name, child in tree.children.items()}
    )


def _parents(variables: Mapping[str, xr.Variable]) -> dict[str, str]:
    """The variable that each bounds variable belongs to (CF conventions, 7.1)."""
    return {
        str(variable.attrs["bounds"]): name
        for name, variable in variables.items()
        if "bounds" in variable.attrs
    }


def _units_of_bounds(variable: xr.Variable, variables: Mapping[str, xr.Variable]) -> dict[str, Any]:
    """Units of the virtual bounds of a variable: its times are best written in the same."""
    bounds = variables.get(str(variable.attrs.get("bounds")))
    array = None if bounds is None else virtual_array_of(bounds)
    attrs = {} if array is None else array.attrs
    return {name: attrs[name] for name in _TIME_ATTRIBUTES if name in attrs}


def _with_own_units(
    array: VirtualArray, variable: xr.Variable, parent: VirtualArray | None
) -> VirtualArray:
    """Let virtual times say what they count from, where no variable says it for them."""
    virtual = virtual_array_of(variable)
    if virtual is None or "units" in array.attrs:
        return array
    attrs = virtual.attrs
    if not is_time_like(attrs) or (parent is not None and _count_alike(attrs, parent.attrs)):
        return array
    own = {name: attrs[name] for name in _TIME_ATTRIBUTES if name in attrs}
    return array.replace(attrs={**array.attrs, **own})


def _count_alike(attrs: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    if attrs.get("units") == others.get("units"):
        return str(attrs.get("calendar", "")) == str(others.get("calendar", ""))
    base = TimeBase.of(attrs)
    return base is not None and base == TimeBase.of(others)


def _with_coordinates(
    arrays: dict[str, VirtualArray], dataset: xr.Dataset
) -> tuple[dict[str, VirtualArray], list[str]]:
    """Write which coordinates belong to which variable, as netCDF files do.

    Returns
    -------
    tuple
        The arrays, and the coordinates that belong to none.
    """
    coordinates = sorted(str(name) for name in dataset.coords if name not in dataset.dims)
    left = dict.fromkeys(coordinates)
    result = dict(arrays)
    for name in map(str, dataset.data_vars):
        own = _coordinates_of(dataset.variables[name], dataset, coordinates)
        array = result[name]
        if own and "coordinates" not in array.attrs:
            result[name] = array.replace(attrs={**array.attrs, "coordinates": " ".join(own)})
        for word in str(result[name].attrs.get("coordinates", "")).split():
            left.pop(word, None)
    return result, list(left)


def _coordinates_of(
    variable: xr.Variable, dataset: xr.Dataset, coordinates: Sequence[str]
) -> list[str]:
    """The coordinates of a variable: those that its file named and that are left, else all."""
    named = variable.encoding.get("coordinates")
    if named is not None:
        return [word for word in str(named).split() if word in coordinates]
    dims = set(variable.dims)
    return [word for word in coordinates if set(dataset.variables[word].dims) <= dims]


def _array_of(name: str, variable: xr.Variable, units: Mapping[str, Any]) -> VirtualArray:
    dims = tuple(map(str, variable.dims))
    virtual = virtual_array_of(variable)
    if virtual is not None:
        stored = virtual.attrs if is_lazy(variable) else {}
        attrs = {**stored, **_attributes(variable, virtual)}
        return virtual.replace(dims=dims, attrs=attrs)
    if is_lazy(variable) and variable.nbytes > MOST_READ_BYTES:
        raise InvalidRequestError(
            f"variable {name!r} is not virtual, and not yet read: {variable.nbytes} bytes would be"
            " kept by value; load() it to say so, or open it with gridref.open_virtual_dataset"
        )
    original = _original(name, variable)
    if original is not None:
        return original.replace(dims=dims)
    encoded = _encoded(name, variable, units)
    values = _fixed_size(name, np.asarray(encoded.values))
    return VirtualArray.from_numpy(values, dims, dict(encoded.attrs))


def _attributes(variable: xr.Variable, array: VirtualArray) -> dict[str, Any]:
    """The attributes as they are now, and those of the packing: stored numbers need them."""
    attrs = {str(key): value for key, value in variable.attrs.items()}
    kept = (name for name in (*PACKING_ATTRIBUTES, "dtype") if name in array.attrs)
    return {**{name: array.attrs[name] for name in kept}, **attrs}


def _encoded(name: str, variable: xr.Variable, units: Mapping[str, Any]) -> xr.Variable:
    """A loaded variable as netCDF files hold it, times in the given units if they fit."""
    encoding = {key: value for key, value in variable.encoding.items() if key != ORIGINAL}
    plain = xr.Variable(variable.dims, np.asarray(variable.values), variable.attrs, encoding)
    if "units" in plain.attrs and plain.dtype.kind in "mM":
        plain.attrs.pop("units")
    encoded = xr.conventions.encode_cf_variable(plain, name=name)
    if not units or "units" not in encoded.attrs or _count_alike(units, encoded.attrs):
        return encoded
    wanted = xr.Variable(variable.dims, plain.values, plain.attrs, dict(units))
    try:
        fitting = xr.conventions.encode_cf_variable(wanted, name=name)
        again = decoded(name, fitting, decode_times=True)
    except ValueError:  # dates that the calendar does not have
        return encoded
    same = np.array_equal(again.values, plain.values)
    return fitting if same and _count_alike(units, fitting.attrs) else encoded


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
    changed = {key: value for key, value in variable.attrs.items() if key not in again.attrs}
    kept = {
        key: value
        for key, value in duck.array.attrs.items()
        if key not in again.attrs or key in variable.attrs
    }
    kept.update({key: variable.attrs[key] for key in again.attrs if key in variable.attrs})
    return duck.array.replace(attrs={**kept, **changed})


def _fixed_size(name: str, values: NDArray[Any]) -> NDArray[Any]:
    if not values.dtype.hasobject:
        return values
    if all(isinstance(element, str) for element in values.reshape(-1).tolist()):
        return values.astype(str)
    raise InvalidRequestError(f"variable {name!r} holds Python objects that no array can store")
