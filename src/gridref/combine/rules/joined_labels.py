"""Align files whose index coordinates differ, as the option ``join`` says.

The rules are xarray's (``xarray.structure.alignment``): ``outer`` takes all labels in ascending
order, ``inner`` those that all files have, in the first file's order, ``left`` and ``right`` those
of the first and of the last file. Labels that a file lacks are missing blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.combine.boxes import stretches
from gridref.combine.columns import Column, Notes, label_text
from gridref.combine.rules.packing import Packing, no_data_of, unpack_all
from gridref.combine.values import Values, same_values
from gridref.errors import Message, NotRepresentableError, Option, number_of
from gridref.model.array import VirtualArray
from gridref.model.indexing import isel
from gridref.model.joining import concatenate, missing_like

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LabelPositions:
    """Where the common labels of a dimension are in each file.

    Attributes
    ----------
    labels
        The common labels, as an array of the first file's metadata.
    by_file
        For files with other labels: the position of each common label in the file, -1 where it has
        none.
    extents
        Number of labels that each file has.
    """

    labels: VirtualArray
    by_file: Mapping[int, Indices]
    extents: Mapping[int, int]

    def misfits(self, column: Column, dim: str) -> list[int]:
        """Files whose array is not as long as their labels, or as the common ones if it has none.

        If some of them have labels, the column has another dimension of that name.
        """
        return [
            file
            for file, array in zip(column.files, column.arrays, strict=True)
            if dim in array.dims
            and array.sizes[dim] != self.extents.get(file, self.labels.shape[0])
        ]


def find_label_positions(
    columns: Mapping[str, Column],
    growing: Collection[str],
    order: Sequence[int],
    notes: Notes,
    values: Values,
) -> dict[str, LabelPositions]:
    """The dimensions along which files have unlike labels that the join brings together.

    Parameters
    ----------
    order
        All inputs, the one that counts as the first before the others.
    """
    positions_of = {}
    for name, column in columns.items():
        if name in growing or any(not kind.array.is_index(name) for kind in column.kinds):
            continue
        positions = _label_positions(column, order, notes, values)
        if positions is not None:
            positions_of[name] = positions
    return positions_of


def _label_positions(
    column: Column, order: Sequence[int], notes: Notes, values: Values
) -> LabelPositions | None:
    labels = _labels(column, values)
    if labels is None:
        return None
    distinct: dict[bytes, tuple[NDArray[Any], list[int]]] = {}
    for file, own in zip(column.files, labels, strict=True):
        distinct.setdefault(own.tobytes(), (own, []))[1].append(file)
    if len(distinct) == 1 or not all(_are_labels(own) for own, _ in distinct.values()):
        return None
    held = dict(zip(column.files, labels, strict=True))
    in_order = [held[file] for file in order if file in held]
    rule = notes.options.join
    if rule == "override" and len({len(own) for own, _ in distinct.values()}) > 1:
        return None
    target = _target(rule, [own for own, _ in distinct.values()], in_order)
    first, cases = column.first, dict[str, list[int]]()
    for own, files in distinct.values():
        cases.setdefault(_described(own, first.attrs), []).extend(files)
    resolution = Message(Option("join", rule), f": {_described(target, first.attrs)}")
    notes.drift("labels", column.path, cases, resolution)
    joined = VirtualArray.from_numpy(target, first.dims, first.attrs, first.fill_value)
    by_file: dict[int, Indices] = {}
    if rule != "override":
        for own, files in distinct.values():
            if not np.array_equal(own, target):
                by_file |= dict.fromkeys(files, _indices(own, target))
    extents = {file: len(own) for own, files in distinct.values() for file in files}
    return LabelPositions(joined, by_file, extents)


def advice_for_labels(column: Column, values: Values) -> str:
    """What to do where labels of a dimension differ and no rule brings them together."""
    labels = _labels(column, values)
    if labels is None or not all(map(_are_labels, labels)):
        return "the labels repeat or cannot be compared, so files cannot be placed by them"
    rounded = {own.astype(np.float32).tobytes() for own in labels if own.dtype.kind == "f"}
    if len(rounded) == 1:
        return Message(
            "they are the same if rounded to float32: ",
            Option("join", "override"),
            " gives all files the labels of the first",
        )
    return Message(
        Option("join", "outer"),
        " places each file by its own labels and leaves missing blocks where it has none; ",
        Option("join", "inner"),
        " keeps only the labels that all files have",
    )


def _labels(column: Column, values: Values) -> list[NDArray[Any]] | None:
    """Labels of every file in one dtype; None where they cannot be compared."""
    meaning = {(Packing.of(kind.array), _units_of(kind.array)) for kind in column.kinds}
    if len(meaning) > 1:
        return None
    kinds = {kind.array.dtype.kind for kind in column.kinds}
    if not (kinds <= set("iuf") or kinds == {"S"} or kinds <= set("UT")):
        return None
    if not all(values.available(array) for array in column.arrays):
        return None
    labels = [values.labels_of(array) for array in column.arrays]
    dtype = np.result_type(*{own.dtype for own in labels})
    return [own.astype(dtype, copy=False) for own in labels]


def _are_labels(values: NDArray[Any]) -> bool:
    """Whether values can be labels: none repeats, and none is NaN."""
    unique = np.unique(values)
    return len(unique) == len(values) and not (unique != unique).any()


def _units_of(array: VirtualArray) -> tuple[str, ...]:
    return tuple(str(array.attrs.get(name)) for name in ("units", "calendar"))


def _target(
    rule: str, distinct: Sequence[NDArray[Any]], in_order: Sequence[NDArray[Any]]
) -> NDArray[Any]:
    first = in_order[0]
    if rule == "outer":
        return np.unique(np.concatenate(list(distinct)))
    if rule == "inner":
        kept = np.ones(len(first), bool)
        for own in distinct:
            kept &= np.isin(first, own)
        return first[kept]
    return in_order[-1] if rule == "right" else first


def _indices(own: NDArray[Any], target: NDArray[Any]) -> Indices:
    """The position of every target label among a file's own; -1 where there is none."""
    if not len(own):
        return np.full(len(target), -1, np.int64)
    order = np.argsort(own)
    at = np.minimum(np.searchsorted(own, target, sorter=order), len(own) - 1)
    return np.where(own[order[at]] == target, order[at], -1)


def _described(labels: NDArray[Any], attrs: Mapping[str, Any]) -> str:
    if not len(labels):
        return "no labels"
    first, last = (label_text(labels[end], attrs) for end in (0, -1))
    return f"{number_of(len(labels), 'label')}, {first} to {last}"


def align_labels(
    column: Column,
    positions: Mapping[str, LabelPositions],
    growing: Collection[str],
    notes: Notes,
    values: Values,
) -> Column:
    """Align the arrays of all files with the common labels of their dimensions."""
    if column.name in positions and column.is_index:
        joined = positions[column.name].labels
        return column.with_arrays([joined.with_changes(attrs=a.attrs) for a in column.arrays])
    dims = [dim for dim in column.first.dims if dim in positions and positions[dim].by_file]
    misfits = {dim: positions[dim].misfits(column, dim) for dim in dims}
    for dim, files in misfits.items():
        if files and positions[dim].extents.keys().isdisjoint(files):
            message = (
                f"these files have no labels along {dim!r}, and not as many elements as there are"
                " labels in the result: add labels"
            )
            notes.problem("labels-missing", column.path, message, files)
    concerned = [dim for dim in dims if not misfits[dim]]
    if not concerned:
        return column
    original = column
    lacking = any(
        (positions[dim].by_file[file] < 0).any()
        for dim in concerned
        for file in column.files
        if file in positions[dim].by_file
    )
    if lacking and any(no_data_of(kind.array) is None for kind in column.kinds):
        column = unpack_all(column)
    try:
        aligned = column
        for dim in concerned:
            aligned = _reindexed(aligned, dim, positions[dim])
    except NotRepresentableError as error:
        message = f"its labels cannot be brought together: {error}"
        notes.problem("labels-differ", column.path, message, column.files)
        return original
    static = not set(growing) & set(column.first.dims)
    if static and lacking and len(concerned) == 1 and notes.options.compat == "equals":
        whole = _laid_by_label(column, concerned[0], positions[concerned[0]], values)
        return aligned if whole is None else whole
    return aligned


def _reindexed(column: Column, dim: str, positions: LabelPositions) -> Column:
    number = dict(zip(column.files, range(len(column.files)), strict=True))
    arrays = list(column.arrays)
    fills = {
        position: fill
        for kind in column.kinds
        for fill in (no_data_of(kind.array),)
        for position in kind.members
    }
    for file, indices in positions.by_file.items():
        if file in number and dim in arrays[number[file]].dims:
            position = number[file]
            arrays[position] = reindex(arrays[position], dim, indices, fills[position])
    return column.with_arrays(arrays)


def reindex(array: VirtualArray, dim: str, indices: Indices, fill: Any) -> VirtualArray:
    """Take indices of an array along a dimension, in any order; -1 gives missing blocks.

    Raises
    ------
    NotRepresentableError
        If the indices fall into too many runs.
    """
    axis = array.dims.index(dim)
    if (indices >= 0).all():
        return isel(array, {dim: indices})
    absent = indices < 0
    parts = [
        missing_like(array, axis, stop - start, fill)
        if absent[start]
        else isel(array, {dim: indices[start:stop]})
        for start, stop in _equal(absent)
    ]
    joined = concatenate(parts, axis, dtype=array.dtype, fill_value=fill)
    return joined.with_changes(dims=array.dims, attrs=array.attrs)


def _equal(values: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Start and stop of each stretch of equal values."""
    starts, stops = stretches(values[1:] != values[:-1], len(values))
    return zip(starts.tolist(), stops.tolist(), strict=True)


def _laid_by_label(
    column: Column, dim: str, positions: LabelPositions, values: Values
) -> Column | None:
    """A variable without the growing dimension, each label from the first file that has it.

    None where files contradict each other, or do not have all labels together.
    """
    n_labels = positions.labels.shape[0]
    every = np.arange(n_labels)
    indices = [positions.by_file.get(file, every) for file in column.files]
    held = np.stack([own >= 0 for own in indices])
    if not held.any(axis=0).all() or not all(map(values.available, column.arrays)):
        return None
    axis = column.first.dims.index(dim)
    owner = held.argmax(axis=0)
    parts = [
        isel(column.arrays[owner[start]], {dim: indices[owner[start]][start:stop]})
        for start, stop in _equal(owner)
    ]
    whole = concatenate(parts, axis).with_changes(attrs=column.first.attrs)
    shown = values.of(whole)
    for own, array in zip(indices, column.arrays, strict=True):
        mine = np.take(values.of(array), own[own >= 0], axis)
        if not same_values(mine, np.take(shown, np.flatnonzero(own >= 0), axis)):
            return None
    return column.with_arrays([whole.with_changes(attrs=array.attrs) for array in column.arrays])
