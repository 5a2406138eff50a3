"""``kerchunk.combine``: many sets of references as one.

Source: the interface of kerchunk 0.2.10, ``kerchunk.combine.MultiZarrToZarr``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from gridref.api.combining import concat
from gridref.api.layout.layouts import in_one_chunk
from gridref.api.readable import readable
from gridref.compat.kerchunk.references import (
    Input,
    Opening,
    filled,
    load_inputs,
    write_json,
)
from gridref.compat.kerchunk.selectors import coordinate_of, first_label, variable_name
from gridref.errors import InvalidRequestError
from gridref.faces.exports.kerchunk import to_kerchunk
from gridref.model.array import VirtualArray, VirtualGroup, dims_of

__all__ = ["MultiZarrToZarr", "drop"]

_VARIABLE = "var"
"""The name in `coo_map` that stands for names of variables."""


def drop(fields: str | tuple[str, ...]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A `preprocess` that leaves out the keys that begin with one of some names."""

    def preprocess(refs: dict[str, Any]) -> dict[str, Any]:
        for key in [key for key in refs if key.startswith(fields)]:
            del refs[key]
        return refs

    return preprocess


@dataclass(frozen=True, eq=False)
class _Cell:
    """An input at its place: by the first label along each dimension."""

    place: tuple[Any, ...]
    name: str
    group: VirtualGroup


class MultiZarrToZarr:
    """Combine sets of references, by the rules of gridref.

    Every input is laid at its labels; what no input holds is missing. Inputs that do not fit
    together are an error: labels that occur twice or lie between each other's, chunks that the grid
    of Zarr v2 cannot have, coordinates, units or packing that differ and that no rule resolves.

    Parameters
    ----------
    path
        References, or their addresses.
    indicts
        References, where `path` are addresses that patterns are looked for in.
    coo_map
        Where the labels come from, by dimension: see `gridref.compat.kerchunk.selectors`. By
        default ``"data:NAME"``. ``"var"`` stands for names of variables.
    concat_dims
        Dimensions along which inputs lie; by default those of `coo_map`.
    coo_dtypes
        dtypes of coordinates.
    identical_dims
        Variables that are taken from the first input that has them, unseen.
    target_options
        fsspec options of the references.
    remote_protocol, remote_options
        Protocol of addresses without one, and fsspec options, of the files.
    inline_threshold
        Chunks that are stored in fewer bytes are written into the references.
    preprocess
        Changes the keys of each input, a mapping, before it is looked at.
    postprocess
        Called with the keys of the result; returns those that are taken.
    out
        A mapping that is filled, as a ``LazyReferenceMapper``.

    Raises
    ------
    InvalidRequestError
        For no dimension, or one that is mapped and identical at once.
    """

    def __init__(
        self,
        path: Any,
        indicts: Sequence[Any] | None = None,
        coo_map: Mapping[str, Any] | None = None,
        concat_dims: str | Sequence[str] | None = None,
        coo_dtypes: Mapping[str, Any] | None = None,
        identical_dims: Sequence[str] | None = None,
        target_options: Mapping[str, Any] | None = None,
        remote_protocol: str | None = None,
        remote_options: Mapping[str, Any] | None = None,
        inline_threshold: int = 500,
        preprocess: Callable[[dict[str, Any]], Any] | None = None,
        postprocess: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        out: MutableMapping[str, Any] | None = None,
    ) -> None:
        dims = [concat_dims] if isinstance(concat_dims, str) else list(concat_dims or coo_map or ())
        if not dims:
            raise InvalidRequestError("name dimensions to combine along: concat_dims")
        self.path, self.indicts = path, indicts
        self.concat_dims = dims
        defaults = {dim: "VARNAME" if dim == _VARIABLE else f"data:{dim}" for dim in dims}
        self.coo_map = {**defaults, **(coo_map or {})}
        self.coo_dtypes = dict(coo_dtypes or {})
        self.identical_dims = list(identical_dims or ())
        both = set(self.coo_map) & set(self.identical_dims)
        if both:
            raise InvalidRequestError(
                f"{sorted(both)} cannot be in both concat_dims and identical_dims"
            )
        self.opening = Opening(
            target_options or {}, remote_protocol, remote_options or {}, preprocess
        )
        self.inline_threshold = max(0, inline_threshold or 0)
        self.postprocess, self.out = postprocess, out
        self._former: Any = None

    @classmethod
    def append(
        cls,
        path: Any,
        original_refs: Any,
        remote_protocol: str | None = None,
        remote_options: Mapping[str, Any] | None = None,
        target_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Combine references with those that were combined before, which come first.

        Parameters
        ----------
        path
            The new references.
        original_refs
            Those of before, or their address; a ``LazyReferenceMapper`` gets the new ones too.
        remote_protocol, remote_options, target_options, **kwargs
            As they were given before.
        """
        if hasattr(original_refs, "flush"):
            kwargs.setdefault("out", original_refs)
        made = cls(
            path,
            remote_protocol=remote_protocol,
            remote_options=remote_options,
            target_options=target_options,
            **kwargs,
        )
        made._former = original_refs
        return made

    def translate(
        self, filename: str | None = None, storage_options: Mapping[str, Any] | None = None
    ) -> Any:
        """The references of all inputs.

        Parameters
        ----------
        filename
            Where they go as a JSON document; in one step.
        storage_options
            fsspec options there.

        Returns
        -------
        dict
            Of version 1; `out` where it was given.

        Raises
        ------
        CombineError
            With every problem, where the inputs do not fit together.
        InvalidRequestError
            For labels that cannot be found, or that lie between those of another input.
        NotRepresentableError
            Naming every array that references of Zarr v2 cannot express.
        """
        document = to_kerchunk(
            self._combined(),
            reader=self.opening.sources.reader,
            inline_threshold=self.inline_threshold,
        )
        refs = document["refs"]
        if self.postprocess is not None:
            refs = self.postprocess(refs)
        if filename is not None:
            write_json({"version": 1, "refs": refs}, filename, storage_options)
        return {"version": 1, "refs": refs} if self.out is None else filled(self.out, refs)

    def _combined(self) -> VirtualGroup:
        identical: dict[str, VirtualArray] = {}
        cells: list[_Cell] = []
        if self._former is not None:
            opening = replace(self.opening, preprocess=None)
            cells.extend(map(self._former_cell, load_inputs([self._former], None, opening)))
        for number, given in enumerate(load_inputs(self.path, self.indicts, self.opening)):
            cells.append(self._cell(number, given))
        for cell in cells:
            for name in self.identical_dims:
                if name in cell.group.arrays:
                    identical.setdefault(name, cell.group.arrays[name])
        dims = [dim for dim in self.concat_dims if dim != _VARIABLE]
        cells = [replace(cell, group=_without(cell.group, self.identical_dims)) for cell in cells]
        joined = _along(cells, dims, {*self.coo_map})
        return joined.with_changes(arrays={**joined.arrays, **identical})

    def _former_cell(self, given: Input) -> _Cell:
        """What was combined before: its labels and variables are in it."""
        own = {dim: f"data:{dim}" for dim in self.coo_map if dim != _VARIABLE}
        return self._placed(0, given, own, given.group.arrays)

    def _cell(self, number: int, given: Input) -> _Cell:
        arrays = given.group.arrays
        if _VARIABLE in self.coo_map:
            dims = dims_of(arrays.values())
            others = {*self.coo_map, *self.identical_dims, *dims}
            name = variable_name(self.coo_map[_VARIABLE], number, given, others)
            arrays = {own if own in others else name: array for own, array in arrays.items()}
        selectors = {dim: held for dim, held in self.coo_map.items() if dim != _VARIABLE}
        return self._placed(number, given, selectors, arrays)

    def _placed(
        self,
        number: int,
        given: Input,
        selectors: Mapping[str, Any],
        arrays: Mapping[str, VirtualArray],
    ) -> _Cell:
        labels = {
            dim: coordinate_of(dim, selector, number, given, self.coo_dtypes.get(dim))
            for dim, selector in selectors.items()
        }
        laid = given.group.with_changes(arrays={**arrays, **labels})
        group = readable(laid, self.opening.sources)
        dims = [dim for dim in self.concat_dims if dim != _VARIABLE]
        place = tuple(first_label(group.arrays[dim], dim, given.name) for dim in dims)
        return _Cell(place, given.name, group)


def _without(group: VirtualGroup, names: Collection[str]) -> VirtualGroup:
    kept = {name: array for name, array in group.arrays.items() if name not in names}
    return group.with_changes(arrays=kept)


def _along(cells: Sequence[_Cell], dims: Sequence[str], mapped: Collection[str]) -> VirtualGroup:
    """Cells laid along dimensions: the last ones first, each place in the order of its labels."""
    depth = len(cells[0].place) - len(dims)
    if not dims:
        return _united(cells)

    def label(cell: _Cell) -> Any:
        return cell.place[depth]

    try:
        ordered = sorted(cells, key=label)
    except TypeError as error:
        raise InvalidRequestError(
            f"the labels of {dims[0]} are numbers in some inputs, and texts in others"
        ) from error
    rows = itertools.groupby(ordered, label)
    parts = [_along(list(row), dims[1:], mapped) for _, row in rows]
    data = {name for part in parts for name in _variables(part) if name not in mapped}
    joined = concat(parts, dims[0], join="outer", repeated=dict.fromkeys(data, "all"))
    _check_others(parts, joined, mapped)
    return in_one_chunk(joined, dims[0], VirtualArray.read)


def _united(cells: Sequence[_Cell]) -> VirtualGroup:
    """Inputs of one place, which hold different variables."""
    names: dict[str, str] = {}
    for cell in cells:
        for name in _variables(cell.group):
            if names.setdefault(name, cell.name) != cell.name:
                raise InvalidRequestError(
                    f"{names[name]} and {cell.name} both hold {name} at the same labels"
                )
    arrays = {name: array for cell in reversed(cells) for name, array in cell.group.arrays.items()}
    return cells[0].group.with_changes(arrays=arrays)


def _variables(group: VirtualGroup) -> list[str]:
    """The arrays that are no coordinates of their dimension."""
    dims = dims_of(group.arrays.values())
    return [name for name in group.arrays if name not in dims]


def _check_others(
    parts: Iterable[VirtualGroup], joined: VirtualGroup, mapped: Collection[str]
) -> None:
    """Check that inputs have the same labels of the dimensions that they do not lie along."""
    for name, array in joined.arrays.items():
        if not array.is_index(name) or name in mapped:
            continue
        lengths = {part.arrays[name].shape for part in parts if name in part.arrays}
        if lengths != {array.shape}:
            raise InvalidRequestError(
                f"the inputs have different labels of {name}: combine along it too, or list it in "
                "identical_dims to use the labels of the first input for all"
            )
