"""Virtual datasets: xarray objects whose arrays are in files, and the way back to groups.

Undecoded times (``decode_times=False``) are numbers that count from a date, and only their
attributes have that date. xarray keeps the first file's attributes when it concatenates labels.
`StoredTimesIndex` refuses to combine labels that count from different dates or in different units.

`group_to_dataset` and `group_to_tree` load and decode index coordinates, because xarray needs them
to align and combine. All other variables are virtual and keep their stored form and attributes.

`dataset_to_group` and `tree_to_group` make groups as catalogs and references keep them. A
coordinate that still shows what its file holds becomes the file's array again, bit for bit. Virtual
variables keep the attributes that define what their stored numbers mean, whatever xarray did to
them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.indexes import Index, PandasIndex

from gridref.api.decoding import coordinate_names, decoded
from gridref.combine.rules.georeference import with_moved_transforms
from gridref.errors import CombineError, InvalidRequestError, Problem
from gridref.faces.xarray.duck_array import (
    LOAD_LIMIT_BYTES,
    VirtualDuckArray,
    files_of,
    units_of,
)
from gridref.faces.xarray.lazy import attributes_now, is_lazy, lazy_virtual_array
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.conventions import PACKING_ATTRIBUTES, TimeBase, is_time_like
from gridref.options import refuses_unknown
from gridref.serve.reader import Reader

# Indexes of undecoded times, which keep the times of two files apart


class StoredTimesIndex(PandasIndex):
    """An index of undecoded times that knows what they count from, and their files.

    `of` makes it. Otherwise it behaves as `xarray.indexes.PandasIndex`, but raises `CombineError`
    where it is concatenated or joined with one of other units or another reference date.
    """

    __slots__ = ("since", "sources")

    since: TimeBase | str
    sources: tuple[str, ...]

    @classmethod
    def of(cls, plain: PandasIndex, attrs: Mapping[str, Any], sources: tuple[str, ...]) -> Self:
        """The index of a coordinate of some files with ``units`` like ``"days since ..."``."""
        return cls._counting(plain, units_of(attrs), sources)

    @classmethod
    def _counting(cls, plain: PandasIndex, since: TimeBase | str, sources: tuple[str, ...]) -> Self:
        index = cls(plain.index, plain.dim, plain.coord_dtype, fastpath=True)
        index.since, index.sources = since, sources
        return index

    def _replace(self, *args: Any, **kwargs: Any) -> Self:
        changed = PandasIndex._replace(self, *args, **kwargs)  # type: ignore[no-untyped-call]
        return self._counting(changed, self.since, self.sources)

    @classmethod
    def concat(cls, indexes: Sequence[Self], dim: Any, positions: Any = None) -> Self:
        sources = _files_that_count_alike(indexes)
        joined = super().concat(indexes, dim, positions)
        return cls._counting(joined, indexes[0].since, sources)

    def equals(self, other: Index, **options: Any) -> bool:
        """Whether labels, units and reference dates are the same."""
        alike = isinstance(other, StoredTimesIndex) and other.since == self.since
        return alike and super().equals(other, **options)

    def join(self, other: Self, how: Any = "inner") -> Self:
        sources = _files_that_count_alike([self, other])
        return self._counting(super().join(other, how), self.since, sources)

    def reindex_like(
        self, other: Self, method: Any = None, tolerance: Any = None
    ) -> dict[Any, Any]:
        _files_that_count_alike([self, other])
        return super().reindex_like(other, method, tolerance)


def _files_that_count_alike(indexes: Sequence[StoredTimesIndex]) -> tuple[str, ...]:
    sources = tuple(dict.fromkeys(name for index in indexes for name in index.sources))
    if len({index.since for index in indexes}) > 1:
        message = (
            "undecoded times count from different dates; open them with decode_times=True, or"
            " combine with gridref.open_virtual_mfdataset or gridref.concat"
        )
        raise CombineError([Problem("units-differ", message, sources=sources)])
    return sources


# Datasets and trees of virtual variables

Url = str | os.PathLike[str]
type Names = str | Iterable[str] | None


@refuses_unknown
@dataclass(frozen=True)
class Loading:
    """What to load when a file is opened.

    Attributes
    ----------
    loadable_variables
        Variables to load and decode. None loads the index coordinates.
    drop_variables
        Variables to leave out.
    decode_times
        Whether to decode loaded times to dates.
    load_limit
        Largest array, in bytes, that operations load when they need its values.

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
        if self.load_limit < 0:
            raise InvalidRequestError(f"load_limit={self.load_limit} must be >= 0")


def names_of(given: Names) -> set[str]:
    """One name, several or none."""
    return {given} if isinstance(given, str) else set(given or ())


def group_to_dataset(group: VirtualGroup, reader: Reader, loading: Loading) -> xr.Dataset:
    """Turn the arrays of a group into a virtual dataset; groups below are left out.

    Parameters
    ----------
    reader
        Reads variables that are loaded, and stored elements that have to be compared.
    """
    arrays = group.arrays
    arrays_with_units = _with_parents_units(arrays)
    labels = {name for name, array in arrays.items() if array.is_index(name)}
    wanted = labels if loading.loadable_variables is None else names_of(loading.loadable_variables)
    variables: dict[str, xr.Variable] = {}
    indexes: dict[str, Index] = {}
    for name, array in arrays_with_units.items():
        raw = not loading.decode_times and is_time_like(array.attrs)
        if name in wanted and (name in labels or not raw):
            variable = _loaded_variable(name, arrays[name], reader, loading.decode_times)
        else:
            duck = VirtualDuckArray(array, reader, loading.load_limit, raw=raw and name in wanted)
            variable = xr.Variable(array.dims, duck, *_attributes(arrays[name]), fastpath=True)
        if name in labels and name in wanted:
            index = PandasIndex.from_variables({name: variable}, options={})
            if is_time_like(variable.attrs):
                index = StoredTimesIndex.of(index, variable.attrs, files_of([array]))
            indexes[name] = index
            variable = index.create_variables({name: variable})[name]
        variables[name] = variable
    coordinates = coordinate_names(arrays, group.attrs)
    dataset = xr.Dataset(
        {name: variable for name, variable in variables.items() if name not in coordinates},
        xr.Coordinates(
            {name: variables[name] for name in variables if name in coordinates}, indexes
        ),
        {name: value for name, value in group.attrs.items() if name != "coordinates"},
    )
    dataset.encoding["unlimited_dims"] = set(group.unlimited_dims)
    return dataset


def _attributes(array: VirtualArray) -> tuple[dict[str, Any], dict[str, Any]]:
    """Attributes, and the encoding, where xarray keeps the coordinates that a file names."""
    attrs = dict(array.attrs)
    named = {"coordinates": attrs.pop("coordinates")} if "coordinates" in attrs else {}
    return attrs, named


def group_to_tree(group: VirtualGroup, reader: Reader, loading: Loading) -> xr.DataTree:
    """Turn a group and all below into a tree of virtual datasets."""
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
            result[name] = bounds.with_changes(attrs={**units, **bounds.attrs})
    return result


def _loaded_variable(
    name: str, array: VirtualArray, reader: Reader, decode_times: bool
) -> xr.Variable:
    raw = reader.read(array, name=name)
    raw = raw.astype(object) if raw.dtype.kind == "T" else raw
    plain = xr.Variable(array.dims, raw, _attributes(array)[0])
    variable = decoded(name, plain, decode_times=decode_times)
    variable.encoding[ORIGINAL] = VirtualDuckArray(array, reader)
    return variable


# The way back: datasets as groups

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
            attrs = _kept_attributes(variable, array)
            if is_lazy(variable):
                attrs = attributes_now(variable, array)
                virtual[name] = array.with_changes(attrs=attrs)
                told = {"units", "calendar"} - {*array.attrs, *variable.attrs}  # added below
                attrs = {key: value for key, value in attrs.items() if key not in told}
            arrays[name] = array.with_changes(dims=tuple(map(str, variable.dims)), attrs=attrs)
    parents = {bounded: name for name, bounded in bounds.items()}  # CF conventions, 7.1
    for name, array in arrays.items():
        parent = _units(arrays.get(parents.get(name, "")))
        own = _units(virtual[name])
        # Virtual times say what they count from, unless what they bound says it for them.
        if "units" not in array.attrs and is_time_like(own) and units_of(own) != units_of(parent):
            arrays[name] = array.with_changes(attrs={**array.attrs, **own})
    attrs = {str(name): value for name, value in dataset.attrs.items()}
    index = dataset.xindexes
    arrays = with_moved_transforms(
        arrays, lambda dim: dataset[dim].values if dim in index else None
    )
    arrays, others = _with_coordinates(arrays, dataset)
    if others and "coordinates" not in attrs:
        attrs["coordinates"] = " ".join(others)
    unlimited = frozenset(map(str, dataset.encoding.get("unlimited_dims", ())))
    return VirtualGroup(arrays, {}, attrs, unlimited_dims=unlimited & set(dataset.dims))


def _units(array: VirtualArray | None) -> dict[str, Any]:
    attrs = {} if array is None else array.attrs
    return {name: attrs[name] for name in ("units", "calendar") if name in attrs}


def _kept_attributes(variable: xr.Variable, array: VirtualArray) -> dict[str, Any]:
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
    try:
        xr.conventions.ensure_not_multiindex(variable, name)
    except NotImplementedError as error:
        raise InvalidRequestError(
            f"variable {name!r} belongs to a MultiIndex, which no file can hold: reset_index() or"
            " unstack() first"
        ) from error
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
    if not units or "units" not in encoded.attrs or units_of(units) == units_of(encoded.attrs):
        return encoded
    plain.encoding = dict(units)
    try:
        fitting = xr.conventions.encode_cf_variable(plain, name=name)
        again = decoded(name, fitting, decode_times=True)
    except ValueError:  # dates that the calendar does not have
        return encoded
    same = np.array_equal(again.values, plain.values)
    return fitting if same and units_of(units) == units_of(fitting.attrs) else encoded


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
