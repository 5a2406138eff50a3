"""Give inputs labels, as coordinates along a new dimension or one of length 1.

A label is a number, a string or a time. Combining inputs along the dimension joins their labels.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gridref.combine.columns import source_name
from gridref.errors import InvalidRequestError, Message, Option, Place
from gridref.model.array import VirtualArray, VirtualGroup

_TIME_UNITS = {
    "D": "days",
    "h": "hours",
    "m": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
}


def with_label(
    group: VirtualGroup, dim: str, label: Any, attrs: Mapping[str, Any] | None = None
) -> VirtualGroup:
    """A group with its label as a coordinate, which stacking lays along the new dimension.

    Parameters
    ----------
    dim
        Name of the dimension; its length is 1 if the group has it.
    label
        A number or a string.

    Raises
    ------
    InvalidRequestError
        If the group has the dimension already, of another length than 1.
    """
    has_dim = any(dim in array.dims for array in _checked(group, dim).arrays.values())
    values = np.asarray(label).reshape((1,) if has_dim else ())
    coordinate = VirtualArray.from_numpy(values, (dim,) if has_dim else (), attrs)
    return group.with_changes(arrays={**group.arrays, dim: coordinate})


def with_labels(
    groups: Iterable[VirtualGroup], dim: str | Sequence[str], labels: ArrayLike
) -> Iterator[VirtualGroup]:
    """Groups that can be stacked along a new dimension, with a label each.

    Parameters
    ----------
    groups
        The inputs. They may have the dimension with length 1.
    labels
        One label for each input: numbers, strings or ``datetime64``. They become the coordinate of
        the dimension; times are kept as integers with CF ``units`` (CF conventions, 4.4).

    Raises
    ------
    InvalidRequestError
        For an input that has the dimension with another length than 1, or labels that are not one
        for each input.
    """
    if not isinstance(dim, str):
        raise InvalidRequestError(f"labels need the name of one dimension, got {dim!r}")
    return _labelled(groups, dim, *label_values(labels))


def stackable(groups: Iterable[VirtualGroup], dim: str) -> Iterator[VirtualGroup]:
    """Groups that can be stacked along a new dimension, without labels.

    Raises
    ------
    InvalidRequestError
        For an input that has the dimension with another length than 1.
    """
    return (_checked(group, dim) for group in groups)


def _checked(group: VirtualGroup, dim: str) -> VirtualGroup:
    """The group, which has no dimension of that name but of length 1."""
    for name, array in group.arrays.items():
        if dim in array.dims and array.shape[array.dims.index(dim)] != 1:
            extent = array.shape[array.dims.index(dim)]
            raise InvalidRequestError(
                Message(
                    f"it already has a dimension {dim!r} of length {extent}, and stacking makes a"
                    " new one: choose another name, or concatenate along the existing one with ",
                    Option("concat_dim", dim),
                ),
                Place(source_name(group), name),
            )
    return group


def label_values(labels: ArrayLike) -> tuple[NDArray[Any], dict[str, str]]:
    """Labels as stored, and the attributes of their coordinate."""
    values = np.asarray(labels)
    if values.dtype == object:
        values = _times(labels)
    if values.ndim != 1 or values.dtype.kind not in "biufUSM":
        raise InvalidRequestError(
            f"labels must be a sequence of numbers, strings or times, got {values.dtype} of shape"
            f" {values.shape}"
        )
    if values.dtype.kind != "M":
        return values, {}
    if np.isnat(values).any():
        raise InvalidRequestError("labels must not contain NaT")
    unit, count = np.datetime_data(values.dtype)
    if unit not in _TIME_UNITS or count != 1:
        unit = "D" if unit in ("Y", "M", "W") else "ns"
        values = values.astype(f"M8[{unit}]")
    units = f"{_TIME_UNITS[unit]} since 1970-01-01"
    return values.astype(np.int64), {"units": units, "calendar": "proleptic_gregorian"}


def _times(labels: ArrayLike) -> NDArray[Any]:
    """Python's dates and times as ``datetime64``."""
    try:
        return np.asarray(labels, "M8[us]")
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"labels must be numbers, strings or times: {error}") from error


def _labelled(
    groups: Iterable[VirtualGroup], dim: str, labels: NDArray[Any], attrs: Mapping[str, str]
) -> Iterator[VirtualGroup]:
    """Each group with its label."""
    for number, (group, label) in enumerate(itertools.zip_longest(groups, labels)):
        if label is None or group is None:
            inputs = "more inputs" if label is None else f"{number} inputs"
            raise InvalidRequestError(
                f"give one label for each input: got {len(labels)} for {inputs}"
            )
        yield with_label(group, dim, label, attrs)
