"""Virtual datasets: xarray objects whose arrays lie in files.

Index coordinates are loaded and decoded, so that xarray can align and combine; all other variables
are virtual and keep their stored form and attributes. `written_groups` is the way back.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import xarray as xr

from gridref.adapters.xarray.duck_array import LOAD_LIMIT_BYTES, VirtualDuckArray
from gridref.adapters.xarray.meaning import files_of
from gridref.adapters.xarray.stored_times import StoredTimesIndex
from gridref.adapters.xarray.written_groups import ORIGINAL
from gridref.combine.calendars import is_time_like
from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.options import refuses_unknown
from gridref.secrets import without_secrets
from gridref.serve.reader import Reader
from gridref.workflows.decoding import coordinate_names, decoded
from gridref.workflows.opening import reader_for

__all__ = [
    "Loading",
    "Url",
    "group_to_dataset",
    "group_to_tree",
]

Url = str | os.PathLike[str]


@refuses_unknown
@dataclass(frozen=True)
class Loading:
    """What of a file is loaded when it is opened.

    Attributes
    ----------
    loadable_variables
        Variables to load and decode; None for the index coordinates.
    drop_variables
        Variables to leave out.
    decode_times
        Whether loaded times become dates.
    load_limit
        Size in bytes up to which operations that need values load them.

    Raises
    ------
    InvalidRequestError
        For a limit below 0.
    """

    loadable_variables: Collection[str] | None = None
    drop_variables: Collection[str] = ()
    decode_times: bool = True
    load_limit: int = LOAD_LIMIT_BYTES

    def __post_init__(self) -> None:
        for name in ("loadable_variables", "drop_variables"):
            given = getattr(self, name)
            if given is not None:
                names = (given,) if isinstance(given, str) else given
                object.__setattr__(self, name, frozenset(names))
        if self.load_limit < 0:
            raise InvalidRequestError(f"load_limit={self.load_limit} must be >= 0")


def group_to_dataset(
    group: VirtualGroup,
    reader: Reader | None = None,
    loading: Loading | None = None,
    source: str | None = None,
) -> xr.Dataset:
    """Turn the arrays of a group into a virtual dataset; groups below are left out.

    Parameters
    ----------
    reader
        What reads variables that are loaded, and stored elements that have to be compared.
    source
        The file, which xarray keeps as ``encoding["source"]``.
    """
    reader = reader_for() if reader is None else reader
    loading = Loading() if loading is None else loading
    arrays = {
        name: array for name, array in group.arrays.items() if name not in loading.drop_variables
    }
    labels = {name for name, array in arrays.items() if array.dims == (name,)}
    coordinates = coordinate_names(arrays, group.attrs)
    variables = _variables(arrays, labels, reader, loading)
    indexed = _indexes({name: variables[name] for name in labels}, arrays)
    plain = {name: variable for name, variable in variables.items() if name not in indexed}
    attrs = {name: value for name, value in group.attrs.items() if name != "coordinates"}
    dataset = xr.Dataset(
        {name: variable for name, variable in plain.items() if name not in coordinates},
        {name: variable for name, variable in plain.items() if name in coordinates},
        attrs,
    )
    for name, index in indexed.items():
        indexes = {} if index is None else {name: index}
        dataset = dataset.assign_coords(xr.Coordinates({name: variables[name]}, indexes))
    dataset.encoding["unlimited_dims"] = set(group.unlimited_dims)
    if source is not None:
        dataset.encoding["source"] = without_secrets(source)
    return dataset


def _variables(
    arrays: Mapping[str, VirtualArray], labels: Collection[str], reader: Reader, loading: Loading
) -> dict[str, xr.Variable]:
    """The variables of a dataset, virtual or loaded."""
    wanted = labels if loading.loadable_variables is None else loading.loadable_variables
    hidden = _with_parents_units(arrays)
    result = {}
    for name, array in arrays.items():
        raw = name in wanted and not loading.decode_times and is_time_like(hidden[name].attrs)
        if name in wanted and (name in labels or not raw):
            result[name] = _loaded_variable(name, array, reader, decode_times=loading.decode_times)
        else:
            duck = VirtualDuckArray(hidden[name], reader, loading.load_limit, raw=raw)
            attrs, encoding = _plain_attributes(array), _named_coordinates(array)
            result[name] = xr.Variable(array.dims, duck, attrs, encoding, fastpath=True)
    return result


def _indexes(
    labels: Mapping[str, xr.Variable], arrays: Mapping[str, VirtualArray]
) -> dict[str, StoredTimesIndex | None]:
    """Dimension coordinates with another index than xarray's own: virtual ones have none."""
    result: dict[str, StoredTimesIndex | None] = {}
    for name, variable in labels.items():
        if isinstance(variable.data, VirtualDuckArray):
            result[name] = None
        elif is_time_like(variable.attrs):
            result[name] = StoredTimesIndex.of(name, variable, files_of([arrays[name]]))
    return result


def _plain_attributes(array: VirtualArray) -> dict[str, Any]:
    return {name: value for name, value in array.attrs.items() if name != "coordinates"}


def _named_coordinates(array: VirtualArray) -> dict[str, Any]:
    """Where xarray keeps the coordinates that a file names for a variable."""
    return {name: value for name, value in array.attrs.items() if name == "coordinates"}


def group_to_tree(
    group: VirtualGroup, reader: Reader | None = None, loading: Loading | None = None
) -> xr.DataTree:
    """Turn a group and all below into a tree of virtual datasets."""
    reader = reader_for() if reader is None else reader
    return xr.DataTree.from_dict(
        {f"/{path}": group_to_dataset(part, reader, loading) for path, part in group.walk()}
    )


def _with_parents_units(arrays: Mapping[str, VirtualArray]) -> dict[str, VirtualArray]:
    """Let bounds know the units of what they bound, so that unlike ones are not laid together."""
    result = dict(arrays)
    for array in arrays.values():
        name = array.attrs.get("bounds")
        if isinstance(name, str) and name in arrays and is_time_like(array.attrs):
            bounds = arrays[name]
            units = {key: array.attrs[key] for key in ("units", "calendar") if key in array.attrs}
            result[name] = bounds.replace(attrs={**units, **bounds.attrs})
    return result


def _loaded_variable(
    name: str, array: VirtualArray, reader: Reader, *, decode_times: bool
) -> xr.Variable:
    raw = reader.read(array, name=name)
    if raw.dtype.kind == "T":
        raw = raw.astype(object)
    variable = decoded(
        name, xr.Variable(array.dims, raw, _plain_attributes(array)), decode_times=decode_times
    )
    variable.encoding[ORIGINAL] = VirtualDuckArray(array, reader)
    return variable
