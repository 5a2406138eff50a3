"""Virtual datasets: xarray objects whose arrays lie in files, and the way back to groups.

Index coordinates are loaded and decoded, so that xarray can align and combine; all other variables
are virtual and keep their stored form and attributes. On the way back, a coordinate that still
shows what its file holds is the file's again, bit for bit.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from gridref.adapters.xarray.duck_array import LOAD_LIMIT_BYTES, VirtualDuckArray
from gridref.catalog import write_catalog
from gridref.combine.calendars import is_time_like
from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.serve.reader import Reader
from gridref.workflows.decoding import decoded
from gridref.workflows.opening import reader_for

__all__ = [
    "GridrefAccessor",
    "GridrefTreeAccessor",
    "Loading",
    "Url",
    "dataset_to_group",
    "group_to_dataset",
    "group_to_tree",
    "tree_to_group",
]

Url = str | os.PathLike[str]

_ORIGINAL = "gridref_original"
"""Key of a loaded variable's encoding that holds the virtual array that it was read from."""


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
    """

    loadable_variables: Collection[str] | None = None
    drop_variables: Collection[str] = ()
    decode_times: bool = True
    load_limit: int = LOAD_LIMIT_BYTES

    @classmethod
    def of(
        cls,
        loadable_variables: Iterable[str] | None,
        drop_variables: Iterable[str],
        decode_times: bool,
        load_limit: int,
    ) -> Loading:
        """Build from what a caller gave; iterators are taken once."""
        loadable = None if loadable_variables is None else frozenset(loadable_variables)
        return cls(loadable, frozenset(drop_variables), decode_times, load_limit)


def group_to_dataset(
    group: VirtualGroup, reader: Reader | None = None, loading: Loading | None = None
) -> xr.Dataset:
    """Turn the arrays of a group into a virtual dataset; groups below are left out."""
    reader = reader_for() if reader is None else reader
    loading = Loading() if loading is None else loading
    arrays = {
        name: array for name, array in group.arrays.items() if name not in loading.drop_variables
    }
    coordinates = {name for name, array in arrays.items() if array.dims == (name,)}
    loaded = loading.loadable_variables
    loaded = coordinates if loaded is None else loaded
    coordinates = coordinates | _named_coordinates(arrays, group.attrs)
    hidden = _with_parents_units(arrays)
    variables = {
        name: _loaded_variable(name, array, reader, decode_times=loading.decode_times)
        if name in loaded
        else _virtual_variable(array, hidden[name], reader, loading.load_limit)
        for name, array in arrays.items()
    }
    attrs = {name: value for name, value in group.attrs.items() if name != "coordinates"}
    return xr.Dataset(
        {name: entry for name, entry in variables.items() if name not in coordinates},
        {name: variables[name] for name in variables if name in coordinates},
        attrs,
    )


def group_to_tree(
    group: VirtualGroup, reader: Reader | None = None, loading: Loading | None = None
) -> xr.DataTree:
    """Turn a group and all below into a tree of virtual datasets."""
    reader = reader_for() if reader is None else reader
    return xr.DataTree.from_dict(
        {f"/{path}": group_to_dataset(part, reader, loading) for path, part in group.walk()}
    )


def _named_coordinates(arrays: Mapping[str, VirtualArray], attrs: Mapping[str, Any]) -> set[str]:
    """Variables that ``coordinates`` attributes name (CF conventions, 5)."""
    texts = [array.attrs.get("coordinates") for array in arrays.values()]
    texts.append(attrs.get("coordinates"))
    words = {word for text in texts if isinstance(text, str) for word in text.split()}
    return words & set(arrays)


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


def _virtual_variable(
    array: VirtualArray, hidden: VirtualArray, reader: Reader, load_limit: int
) -> xr.Variable:
    attrs = {name: value for name, value in array.attrs.items() if name != "coordinates"}
    duck = VirtualDuckArray(hidden, reader, load_limit)
    return xr.Variable(array.dims, duck, attrs, fastpath=True)


def _loaded_variable(
    name: str, array: VirtualArray, reader: Reader, *, decode_times: bool
) -> xr.Variable:
    raw = reader.read(array, name=name)
    if raw.dtype.kind == "T":
        raw = raw.astype(object)
    attrs = {key: value for key, value in array.attrs.items() if key != "coordinates"}
    variable = decoded(name, xr.Variable(array.dims, raw, attrs), decode_times=decode_times)
    variable.encoding[_ORIGINAL] = VirtualDuckArray(array, reader)
    return variable


def dataset_to_group(dataset: xr.Dataset) -> VirtualGroup:
    """Turn a dataset back into a group: virtual variables as they are, others kept inline.

    Raises
    ------
    InvalidRequestError
        For a loaded variable of Python objects that are not strings or dates.
    """
    arrays = {}
    for name, variable in dataset.variables.items():
        arrays[str(name)] = _array_of(str(name), variable)
    attrs = {str(name): value for name, value in dataset.attrs.items()}
    extra = [
        str(name)
        for name in dataset.coords
        if name not in dataset.dims and name not in dataset.xindexes
    ]
    arrays = _with_coordinates(arrays, extra, dataset)
    return VirtualGroup(arrays, {}, attrs)


def tree_to_group(tree: xr.DataTree) -> VirtualGroup:
    """Turn a tree back into a group with groups below; see `dataset_to_group`."""
    own = dataset_to_group(tree.to_dataset(inherit=False))
    return own.replace(
        groups={str(name): tree_to_group(child) for name, child in tree.children.items()}
    )


def _with_coordinates(
    arrays: dict[str, VirtualArray], coordinates: Collection[str], dataset: xr.Dataset
) -> dict[str, VirtualArray]:
    """Write which coordinates belong to which variable, as netCDF files do."""
    result = dict(arrays)
    for name in dataset.data_vars:
        dims = set(dataset.variables[name].dims)
        own = [
            coordinate
            for coordinate in coordinates
            if set(dataset.variables[coordinate].dims) <= dims
        ]
        array = result[str(name)]
        if own and "coordinates" not in array.attrs:
            result[str(name)] = array.replace(
                attrs={**array.attrs, "coordinates": " ".join(sorted(own))}
            )
    return result


def _array_of(name: str, variable: xr.Variable) -> VirtualArray:
    data = variable.variable.data if isinstance(variable, xr.DataArray) else variable.data
    dims = tuple(map(str, variable.dims))
    if isinstance(data, VirtualDuckArray):
        attrs = {str(key): value for key, value in variable.attrs.items()}
        return data.array.replace(dims=dims, attrs=attrs)
    original = _original(name, variable)
    if original is not None:
        return original.replace(dims=dims)
    encoding = {key: entry for key, entry in variable.encoding.items() if key != _ORIGINAL}
    plain = xr.Variable(variable.dims, np.asarray(variable.values), variable.attrs, encoding)
    if "units" in plain.attrs and plain.dtype.kind in "mM":
        plain.attrs.pop("units")
    encoded = xr.conventions.encode_cf_variable(plain, name=name)
    values = _fixed_size(name, np.asarray(encoded.values))
    return VirtualArray.from_numpy(values, dims, dict(encoded.attrs))


def _original(name: str, variable: xr.Variable) -> VirtualArray | None:
    """The virtual array that a variable was loaded from, if it still shows the same."""
    duck = variable.encoding.get(_ORIGINAL)
    if not isinstance(duck, VirtualDuckArray) or duck.shape != variable.shape:
        return None
    attrs = {key: value for key, value in duck.array.attrs.items() if key != "coordinates"}
    raw = xr.Variable(variable.dims, np.asarray(duck), attrs)
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
    if all(isinstance(entry, str) for entry in values.reshape(-1).tolist()):
        return values.astype(str)
    raise InvalidRequestError(f"variable {name!r} holds Python objects that no array can store")


@xr.register_dataset_accessor("gridref")  # type: ignore[no-untyped-call]
class GridrefAccessor:
    """``ds.gridref``: what a virtual dataset can become."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    def to_group(self) -> VirtualGroup:
        """The dataset as a group of virtual arrays."""
        return dataset_to_group(self._dataset)

    def to_catalog(self, path: Url, storage_options: Mapping[str, Any] | None = None) -> None:
        """Write a catalog; loaded variables are kept inside it."""
        write_catalog(self.to_group(), os.fspath(path), storage_options)

    def to_kerchunk(self, path: Url | None = None) -> dict[str, Any]:
        """Kerchunk references with Zarr v3 keys; written as JSON if a path is given.

        Raises
        ------
        NotRepresentableError
            Saying why, where references cannot express an array.
        """
        from gridref.adapters.kerchunk import to_kerchunk

        return to_kerchunk(self.to_group(), path)

    @property
    def nbytes_virtual(self) -> int:
        """Size in bytes that the virtual variables would have in memory."""
        return sum(array.nbytes for array in self.to_group().arrays.values())


@xr.register_datatree_accessor("gridref")  # type: ignore[no-untyped-call]
class GridrefTreeAccessor:
    """``tree.gridref``: what a tree of virtual datasets can become."""

    def __init__(self, tree: xr.DataTree) -> None:
        self._tree = tree

    def to_group(self) -> VirtualGroup:
        """The tree as a group with groups below."""
        return tree_to_group(self._tree)

    def to_catalog(self, path: Url, storage_options: Mapping[str, Any] | None = None) -> None:
        """Write a catalog."""
        write_catalog(self.to_group(), os.fspath(path), storage_options)
