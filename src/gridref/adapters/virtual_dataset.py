"""Virtual datasets: xarray objects whose arrays lie in files, and the way back to groups.

Index coordinates are loaded and decoded, so that xarray can align and combine; all other variables
are virtual and keep their stored form and attributes. On the way back, a coordinate that still
shows what its file holds is the file's again, bit for bit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from gridref.adapters.building import scan_many
from gridref.adapters.duck_array import LOAD_LIMIT_BYTES, VirtualDuckArray
from gridref.adapters.opening import reader_for
from gridref.adapters.units import with_converter
from gridref.catalog import write_catalog
from gridref.combine import CombineOptions, DriftReport, combine
from gridref.combine.calendars import is_time_like
from gridref.errors import CombineError, InvalidRequestError
from gridref.io import expand_urls
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.scan import scan
from gridref.serve.reader import Reader

__all__ = [
    "GridrefAccessor",
    "GridrefTreeAccessor",
    "dataset_to_group",
    "explain",
    "group_to_dataset",
    "open_virtual_dataset",
    "open_virtual_datatree",
    "open_virtual_mfdataset",
]

Url = str | os.PathLike[str]

_ORIGINAL = "gridref_original"
"""Key of a loaded variable's encoding that holds the virtual array that it was read from."""


def open_virtual_dataset(
    url: Url,
    group: str | None = None,
    *,
    loadable_variables: Iterable[str] | None = None,
    drop_variables: Iterable[str] = (),
    decode_times: bool = True,
    storage_options: Mapping[str, Any] | None = None,
    on_unsupported: str = "raise",
    load_limit: int = LOAD_LIMIT_BYTES,
) -> xr.Dataset:
    """Open one group of a file as a dataset of virtual arrays.

    Parameters
    ----------
    url
        The file: a local path or an fsspec URL.
    group
        Path of the group; the root by default.
    loadable_variables
        Variables to load and decode; by default the index coordinates.
    drop_variables
        Variables to leave out.
    decode_times
        Whether loaded times become dates.
    storage_options, on_unsupported
        As for `gridref.scan`.
    load_limit
        Size in bytes up to which operations that need values load them.

    Returns
    -------
    xarray.Dataset
        Virtual variables keep their stored dtype and attributes.
    """
    found = scan(
        os.fspath(url), storage_options=storage_options, on_unsupported=_policy(on_unsupported)
    )
    part = _subgroup(found, group)
    return group_to_dataset(
        part,
        reader_for(storage_options),
        loadable_variables=loadable_variables,
        drop_variables=drop_variables,
        decode_times=decode_times,
        load_limit=load_limit,
    )


def open_virtual_datatree(
    url: Url,
    *,
    loadable_variables: Iterable[str] | None = None,
    decode_times: bool = True,
    storage_options: Mapping[str, Any] | None = None,
    on_unsupported: str = "raise",
    load_limit: int = LOAD_LIMIT_BYTES,
) -> xr.DataTree:
    """Open all groups of a file as a tree of virtual datasets.

    Parameters are those of `open_virtual_dataset`.
    """
    found = scan(
        os.fspath(url), storage_options=storage_options, on_unsupported=_policy(on_unsupported)
    )
    reader = reader_for(storage_options)
    datasets = {
        f"/{path}": group_to_dataset(
            part,
            reader,
            loadable_variables=loadable_variables,
            decode_times=decode_times,
            load_limit=load_limit,
        )
        for path, part in found.walk()
    }
    return xr.DataTree.from_dict(datasets)


def _policy(on_unsupported: str) -> Literal["raise", "skip"]:
    if on_unsupported not in ("raise", "skip"):
        raise InvalidRequestError(f"on_unsupported must be raise or skip, got {on_unsupported!r}")
    return "skip" if on_unsupported == "skip" else "raise"


def _subgroup(root: VirtualGroup, path: str | None) -> VirtualGroup:
    groups = dict(root.walk())
    found = groups.get((path or "").strip("/"))
    if found is None:
        raise InvalidRequestError(f"no group {path!r}; there are {sorted(groups)}")
    return found


def group_to_dataset(
    group: VirtualGroup,
    reader: Reader | None = None,
    *,
    loadable_variables: Iterable[str] | None = None,
    drop_variables: Iterable[str] = (),
    decode_times: bool = True,
    load_limit: int = LOAD_LIMIT_BYTES,
) -> xr.Dataset:
    """Turn the arrays of a group into a virtual dataset; groups below are left out.

    Parameters are those of `open_virtual_dataset`.
    """
    reader = reader_for() if reader is None else reader
    dropped = set(drop_variables)
    arrays = {name: array for name, array in group.arrays.items() if name not in dropped}
    if loadable_variables is None:
        loaded = {name for name, array in arrays.items() if array.dims == (name,)}
    else:
        loaded = set(loadable_variables)
    coordinates = {name for name, array in arrays.items() if array.dims == (name,)}
    coordinates |= _named_coordinates(arrays, group.attrs)
    hidden = _with_parents_units(arrays)
    variables = {
        name: _loaded_variable(name, array, reader, decode_times=decode_times)
        if name in loaded
        else _virtual_variable(array, hidden[name], reader, load_limit)
        for name, array in arrays.items()
    }
    attrs = {name: value for name, value in group.attrs.items() if name != "coordinates"}
    return xr.Dataset(
        {name: entry for name, entry in variables.items() if name not in coordinates},
        {name: variables[name] for name in variables if name in coordinates},
        attrs,
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
    variable = _decoded(name, xr.Variable(array.dims, raw, attrs), decode_times=decode_times)
    variable.encoding[_ORIGINAL] = VirtualDuckArray(array, reader)
    return variable


def _decoded(name: str, variable: xr.Variable, *, decode_times: bool) -> xr.Variable:
    decoded = xr.conventions.decode_cf_variable(
        name, variable, decode_times=decode_times, decode_timedelta=False
    )
    return decoded.load()


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
    again = _decoded(name, raw, decode_times=times)
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


Preprocess = Callable[[xr.Dataset], xr.Dataset]


def open_virtual_mfdataset(
    urls: Url | Iterable[Url] | Sequence[Any],
    concat_dim: str | Sequence[str | None] | None = None,
    *,
    combine: Literal["by_coords", "nested"] = "by_coords",
    preprocess: Preprocess | None = None,
    group: str | None = None,
    data_vars: str = "minimal",
    coords: str = "minimal",
    compat: str = "equals",
    join: str = "exact",
    combine_attrs: str = "override",
    overlap: str | None = None,
    loadable_variables: Iterable[str] | None = None,
    drop_variables: Iterable[str] = (),
    decode_times: bool = True,
    storage_options: Mapping[str, Any] | None = None,
    on_unsupported: str = "raise",
    load_limit: int = LOAD_LIMIT_BYTES,
    **options: Any,
) -> xr.Dataset:
    """Open many files as one virtual dataset, resolving drift between them.

    Parameters
    ----------
    urls
        Paths, URLs, globs or directories; for ``combine="nested"`` over several dimensions, lists
        of lists, the outermost along the first dimension.
    concat_dim
        Dimension, or dimensions, to combine along. For ``"by_coords"`` it is found out where it is
        None.
    combine
        ``"by_coords"`` orders the files by their index coordinates; ``"nested"`` takes them as
        given.
    preprocess
        Applied to each file's virtual dataset first.
    group
        Path of the group to open in each file.
    data_vars, coords
        Whether variables without the dimension are kept once (``"minimal"``), repeated where they
        differ (``"different"``) or always (``"all"``).
    compat
        ``"override"`` takes variables without the dimension from the first file, anything else
        compares them.
    join
        ``"exact"``, ``"outer"`` or ``"inner"``: variables that some files lack.
    combine_attrs
        As in xarray.
    overlap
        Labels that repeat: ``"error"``, ``"first"``, ``"last"`` or ``"keep"``; by default an error
        for ``"by_coords"``, and all are kept for ``"nested"``.
    loadable_variables, drop_variables, decode_times, storage_options, on_unsupported, load_limit
        As for `open_virtual_dataset`.
    **options
        More of `gridref.combine.CombineOptions`; ``convert_units=True`` converts with pint.

    Returns
    -------
    xarray.Dataset
        Its ``encoding["drift"]`` holds the `DriftReport`.

    Raises
    ------
    CombineError
        With every problem, where the files do not fit together.
    """
    reader = reader_for(storage_options)
    loading: dict[str, Any] = {
        "loadable_variables": loadable_variables,
        "drop_variables": drop_variables,
        "decode_times": decode_times,
        "load_limit": load_limit,
    }
    nested = _nested_urls(urls, storage_options)
    groups = dict(
        _scanned(nested, group, storage_options, on_unsupported, preprocess, reader, loading)
    )
    rules = CombineOptions(
        join=_rule(join),
        overlap=overlap or ("error" if combine == "by_coords" else "keep"),  # type: ignore[arg-type]
        variables="all" if "all" in (data_vars, coords) else
                  "different" if "different" in (data_vars, coords) else "minimal",
        compat="override" if compat == "override" else "equals",
        combine_attrs=combine_attrs,  # type: ignore[arg-type]
        **with_converter(options),
    )  # fmt: skip
    dims = [concat_dim] if concat_dim is None or isinstance(concat_dim, str) else list(concat_dim)
    if combine == "by_coords":
        result, drift = _by_coords(list(groups.values()), dims[0], reader, rules)
    else:
        result, drift = _nested(nested, dims, groups, reader, rules)
    dataset = group_to_dataset(result, reader, **loading)
    dataset.encoding["drift"] = drift
    return dataset


def _rule(join: str) -> Any:
    known = {"exact": "exact", "outer": "outer", "inner": "inner", "override": "exact"}
    if join not in known:
        raise InvalidRequestError(f"join is one of {', '.join(known)}, got {join!r}")
    return known[join]


def _nested_urls(urls: Any, storage_options: Mapping[str, Any] | None) -> list[Any]:
    """The addresses, expanded, in the nesting that they were given in."""
    entries = [urls] if isinstance(urls, str | os.PathLike) else list(urls)
    if any(isinstance(entry, list | tuple) for entry in entries):
        return [_nested_urls(entry, storage_options) for entry in entries]
    return list(expand_urls(entries, storage_options))


def _flat(nested: Sequence[Any]) -> list[str]:
    return [
        url for entry in nested for url in (_flat(entry) if isinstance(entry, list) else [entry])
    ]


def _scanned(
    nested: Sequence[Any],
    group: str | None,
    storage_options: Mapping[str, Any] | None,
    on_unsupported: str,
    preprocess: Preprocess | None,
    reader: Reader,
    loading: Mapping[str, Any],
) -> Iterable[tuple[str, VirtualGroup]]:
    urls = _flat(nested)
    found = scan_many(urls, storage_options=storage_options, on_unsupported=on_unsupported)
    dropped = set(loading["drop_variables"])
    for url, root in zip(urls, found, strict=True):
        part = _subgroup(root, group).replace(groups={}, report=root.report)
        part = part.replace(
            arrays={name: array for name, array in part.arrays.items() if name not in dropped}
        )
        if preprocess is not None:
            changed = preprocess(group_to_dataset(part, reader, **loading))
            part = dataset_to_group(changed).replace(report=root.report)
        yield url, part


def _combined(
    groups: Sequence[VirtualGroup], dim: str, reader: Reader, rules: CombineOptions
) -> tuple[VirtualGroup, DriftReport]:
    if len(groups) == 1:
        return groups[0], DriftReport()
    done = combine(groups, dim, read=reader.read, options=rules)
    if done.group is None:
        raise CombineError(done.problems)
    return done.group, done.report


def _nested(
    nested: Sequence[Any],
    dims: Sequence[str | None],
    groups: Mapping[str, VirtualGroup],
    reader: Reader,
    rules: CombineOptions,
) -> tuple[VirtualGroup, DriftReport]:
    """Combine lists of lists, the innermost first."""
    reports: list[DriftReport] = []

    def level(entries: Sequence[Any], depth: int) -> VirtualGroup:
        parts = [
            level(entry, depth + 1) if isinstance(entry, list) else groups[entry]
            for entry in entries
        ]
        if depth >= len(dims) or (dims[depth] is None and len(parts) > 1):
            raise InvalidRequestError("combine='nested' needs a concat_dim for every level")
        if len(parts) == 1:
            return parts[0]
        group, report = _combined(parts, str(dims[depth]), reader, rules)
        reports.append(report)
        return group

    return level(nested, 0), _merged_reports(reports)


def _by_coords(
    groups: Sequence[VirtualGroup], dim: str | None, reader: Reader, rules: CombineOptions
) -> tuple[VirtualGroup, DriftReport]:
    """Order by index coordinates, and combine along each that differs, the last one first."""
    if len(groups) == 1:
        return groups[0], DriftReport()
    labels = {
        name: [_first_label(group.arrays.get(name), reader, name) for group in groups]
        for name in _index_names(groups)
    }
    varying = {
        name: firsts
        for name, firsts in labels.items()
        if all(first is not None for first in firsts) and len(set(firsts)) > 1
    }
    if dim is not None and dim not in varying:
        varying = {dim: labels.get(dim) or [None] * len(groups)}
    if not varying:
        raise InvalidRequestError(
            "no index coordinate tells the files apart: name concat_dim, with combine='nested'"
        )
    names = list(varying)
    entries = [
        (tuple(varying[name][number] for name in names), group)
        for number, group in enumerate(groups)
    ]
    reports: list[DriftReport] = []
    result = _joined_along(entries, names, reader, rules, reports)
    return result, _merged_reports(reports)


def _merged_reports(reports: Sequence[DriftReport]) -> DriftReport:
    if len(reports) == 1:
        return reports[0]
    return DriftReport(
        tuple(drift for report in reports for drift in report.drifts),
        tuple(file for report in reports for file in report.files),
    )


def _joined_along(
    entries: Sequence[tuple[tuple[Any, ...], VirtualGroup]],
    names: Sequence[str],
    reader: Reader,
    rules: CombineOptions,
    reports: list[DriftReport],
) -> VirtualGroup:
    """Combine labelled groups along several dimensions, the last one first."""
    if len(names) == 1:
        ordered = sorted(entries, key=lambda entry: _sortable(entry[0]))
        groups = [group for _, group in ordered]
    else:
        rows: dict[Any, list[tuple[tuple[Any, ...], VirtualGroup]]] = {}
        for label, group in entries:
            rows.setdefault(label[0], []).append((label[1:], group))
        groups = [
            _joined_along(rows[label], names[1:], reader, rules, reports) for label in sorted(rows)
        ]
    result, report = _combined(groups, names[0], reader, rules)
    reports.append(report)
    return result


def _sortable(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple((entry is not None, entry) for entry in key)


def _index_names(groups: Sequence[VirtualGroup]) -> list[str]:
    return list(
        dict.fromkeys(
            name
            for group in groups
            for name, array in group.arrays.items()
            if array.dims == (name,) and array.size
        )
    )


def _first_label(array: VirtualArray | None, reader: Reader, name: str) -> Any:
    """The first label of an index coordinate, decoded so that labels of all files compare."""
    if array is None or array.size == 0:
        return None
    raw = reader.read(array, (slice(0, 1),), name=name)
    variable = _decoded(name, xr.Variable((name,), raw, dict(array.attrs)), decode_times=True)
    return variable.values[0]


def explain(
    urls: Url | Iterable[Url],
    concat_dim: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Say what combining files would do, without writing anything.

    Parameters
    ----------
    urls, concat_dim, storage_options
        As for `gridref.build`.
    **options
        As for `gridref.combine.CombineOptions`; ``convert_units=True`` converts with pint.

    Returns
    -------
    gridref.combine.Combination
        The report of every drift, the problems, and the combined group where there are none.
    """
    rules = CombineOptions(**with_converter(options))
    found = scan_many(
        list(expand_urls([urls] if isinstance(urls, str | os.PathLike) else urls, storage_options)),
        storage_options=storage_options,
    )
    reader = reader_for(storage_options)
    return combine(found, concat_dim, read=reader.read, options=rules)


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
        from gridref.adapters.kerchunk_json import to_kerchunk

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
        return _group_of(self._tree)

    def to_catalog(self, path: Url, storage_options: Mapping[str, Any] | None = None) -> None:
        """Write a catalog."""
        write_catalog(self.to_group(), os.fspath(path), storage_options)


def _group_of(tree: xr.DataTree) -> VirtualGroup:
    own = dataset_to_group(tree.to_dataset(inherit=False))
    return own.replace(
        groups={str(name): _group_of(child) for name, child in tree.children.items()}
    )
