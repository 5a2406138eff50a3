"""Labels of tiles along a dimension beside rows and columns, like the dates of a time series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gridref.combine.columns import Column, source_name
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
    dim
        The dimension.
    labels
        Labels of each input, ascending.
    """

    dim: str
    labels: Sequence[tuple[Any, ...]]

    @cached_property
    def places(self) -> Mapping[Any, int]:
        """Place of every label in the result."""
        return {label: place for place, label in enumerate(sorted({*_all(self.labels)}))}

    @property
    def starts(self) -> list[int]:
        """Place of each input's first label."""
        return [self.places[own[0]] for own in self.labels]

    def stacked(self, columns: Mapping[str, Column], y: str, x: str) -> dict[str, Column]:
        """Give what lies on rows and columns, and the labels, the dimension where it is missing."""
        return {
            name: self._stacked(column)
            if name == self.dim or {y, x} <= {*column.first.dims}
            else column
            for name, column in columns.items()
        }

    def _stacked(self, column: Column) -> Column:
        lengths = [len(self.labels[file]) for file in column.files]
        return column.with_arrays(
            [
                array
                if self.dim in array.dims
                else broadcast_axis(expand_dims(array, 0, self.dim), 0, length)
                for array, length in zip(column.arrays, lengths, strict=True)
            ]
        )


def labels_of(
    groups: Sequence[VirtualGroup], unnamed: Sequence[str], dim: str, values: Values
) -> tuple[list[VirtualGroup], list[str], Series]:
    """Inputs with their labels; one whose labels others come between is cut there.

    Parameters
    ----------
    groups
        The inputs, each with its label, or labels, as a variable of the dimension's name.
    unnamed
        Names for inputs that do not know their file.
    dim
        The dimension.
    values
        Gives the labels.

    Raises
    ------
    InvalidRequestError
        If an input has no label, or one in other units than the first.
    """
    first = groups[0].arrays.get(dim)
    held = [_labels(group, dim, first, values) for group in groups]
    places = Series(dim, held).places
    parts, names, labels = [], [], []
    for group, name, own in zip(groups, unnamed, held, strict=True):
        for start, stop in _runs([places[label] for label in own]):
            whole = stop - start == len(own)
            parts.append(group if whole else isel_group(group, {dim: slice(start, stop)}))
            names.append(name)
            labels.append(own[start:stop])
    return parts, names, Series(dim, labels)


def _all(labels: Sequence[tuple[Any, ...]]) -> list[Any]:
    return [label for own in labels for label in own]


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
        if array.attrs.get(name) != first.attrs.get(name):
            raise InvalidRequestError(
                f"its {name} are {array.attrs.get(name)!r}, those of the first input's labels"
                f" {first.attrs.get(name)!r}: give labels by a pattern",
                place,
            )
    return tuple(values.of(array).reshape(-1).tolist())


def _runs(places: Sequence[int]) -> list[tuple[int, int]]:
    """Spans of places that are neighbours, ascending."""
    cuts = [k for k in range(1, len(places)) if places[k] != places[k - 1] + 1]
    return list(zip([0, *cuts], [*cuts, len(places)], strict=True))
