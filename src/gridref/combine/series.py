"""Labels of tiles along dimensions beside rows and columns, like the dates of a time series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product
from typing import Any

from gridref.combine.columns import Column, source_name, value_keys
from gridref.combine.values import Values
from gridref.errors import InvalidRequestError, Place
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.indexing import isel_group
from gridref.model.reshaping import broadcast_axis, expand_dims

__all__ = ["Series", "labels_of"]


@dataclass(frozen=True)
class Series:
    """Which labels inputs have, those of each one neighbours in the order of all.

    Attributes
    ----------
    dims
        The dimensions.
    labels
        For each input its labels along each of them, ascending.
    """

    dims: tuple[str, ...]
    labels: Sequence[tuple[tuple[Any, ...], ...]]

    @cached_property
    def places(self) -> Mapping[str, Mapping[Any, int]]:
        """Place of every label in the result, by dimension."""
        return {
            dim: {
                label: place
                for place, label in enumerate(sorted({*chain(*(own[k] for own in self.labels))}))
            }
            for k, dim in enumerate(self.dims)
        }

    def of(self, number: int) -> dict[str, tuple[Any, ...]]:
        """The labels of an input by dimension."""
        return dict(zip(self.dims, self.labels[number], strict=True))

    def starts(self, dim: str) -> list[int]:
        """Place of each input's first label."""
        at = self.dims.index(dim)
        return [self.places[dim][own[at][0]] for own in self.labels]

    def stacked(self, columns: Mapping[str, Column], y: str, x: str) -> dict[str, Column]:
        """Give what lies on rows and columns, and the labels, the dimensions that they lack."""
        laid = {name for name, column in columns.items() if {y, x} <= {*column.first.dims}}
        return {
            name: self._with(column, self.dims if name in laid else (name,))
            if name in laid or name in self.dims
            else column
            for name, column in columns.items()
        }

    def _with(self, column: Column, dims: Sequence[str]) -> Column:
        for dim in reversed(dims):
            at = self.dims.index(dim)
            lengths = [len(self.labels[file][at]) for file in column.files]
            column = column.with_arrays(
                [
                    array
                    if dim in array.dims
                    else broadcast_axis(expand_dims(array, 0, dim), 0, length)
                    for array, length in zip(column.arrays, lengths, strict=True)
                ]
            )
        return column


def labels_of(
    groups: Sequence[VirtualGroup], unnamed: Sequence[str], dims: tuple[str, ...], values: Values
) -> tuple[list[VirtualGroup], list[str], Series]:
    """Inputs with their labels; one whose labels others come between is cut there.

    Parameters
    ----------
    groups
        The inputs, each with its label, or labels, as variables of the dimensions' names.
    unnamed
        Names for inputs that do not know their file.

    Raises
    ------
    InvalidRequestError
        If an input has no label, or one in other units than the first.
    """
    held = [
        tuple(_labels(group, dim, groups[0].arrays.get(dim), values) for dim in dims)
        for group in groups
    ]
    places = Series(dims, held).places
    parts, names, labels = [], [], []
    for group, name, own in zip(groups, unnamed, held, strict=True):
        runs = [
            _runs([places[dim][label] for label in along])
            for dim, along in zip(dims, own, strict=True)
        ]
        for spans in product(*runs):
            cut = {dim: slice(*span) for dim, span in zip(dims, spans, strict=True)}
            whole = all(stop - start == len(o) for (start, stop), o in zip(spans, own, strict=True))
            parts.append(group if whole else isel_group(group, cut))
            names.append(name)
            labels.append(tuple(o[slice(*span)] for o, span in zip(own, spans, strict=True)))
    return parts, names, Series(dims, labels)


def _labels(
    group: VirtualGroup, dim: str, first: VirtualArray | None, values: Values
) -> tuple[Any, ...]:
    array = group.arrays.get(dim)
    place = Place(source_name(group), dim)
    if array is None or first is None or array.ndim > 1:
        raise InvalidRequestError(
            f"it has no label along {dim!r}: give a pattern that finds it in the file's name", place
        )
    for name in ("units", "calendar"):
        own, known = array.attrs.get(name), first.attrs.get(name)
        if value_keys([own, known]) is not None:
            raise InvalidRequestError(
                f"its {name} are {own!r}, those of the first input's labels"
                f" {known!r}: give labels by a pattern",
                place,
            )
    return tuple(values.of(array).reshape(-1).tolist())


def _runs(places: Sequence[int]) -> list[tuple[int, int]]:
    """Spans of places that are neighbours, ascending."""
    cuts = [k for k in range(1, len(places)) if places[k] != places[k - 1] + 1]
    return list(zip([0, *cuts], [*cuts, len(places)], strict=True))
