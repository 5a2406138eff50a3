"""Align dimensions whose names, order or direction differ between inputs.

All inputs get the names, order and direction of the first one. Lengths that disagree are problems.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from gridref.combine.columns import Column, Kind, Notes
from gridref.combine.values import Values, content_key, same_values
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.indexing import flip
from gridref.model.reshaping import transpose

_PHONY = re.compile(r"^phony_dim_\d+$")


def align_dimensions(column: Column, growing: Collection[str], notes: Notes) -> Column | None:
    """Bring the dimensions of all files into the first file's order, under its names.

    Dimensions that only have the made-up names of netCDF tools are matched by place. A file in
    which a growing dimension is missing keeps what it has. None where dimensions do not fit, which
    is noted as a problem.
    """
    wanted = max((kind.array.dims for kind in column.kinds), key=len)
    if wanted != column.first.dims and set(wanted) - set(column.first.dims) - set(growing):
        wanted = column.first.dims
    if all(kind.array.dims == wanted for kind in column.kinds):
        return column
    bad = [kind for kind in column.kinds if _new_dims(kind.array.dims, wanted, growing) is None]
    cases = column.cases(lambda kind: str(kind.array.dims))
    if bad:
        notes.conflict(
            "dimensions-differ",
            column.path,
            "dimensions",
            cases,
            "rename or select them alike before combining",
        )
        return None

    def change(kind: Kind, array: VirtualArray) -> VirtualArray:
        names = _new_dims(array.dims, wanted, growing)
        assert names is not None
        array = array if names == array.dims else array.with_changes(dims=names)
        order = sorted(range(array.ndim), key=lambda axis: wanted.index(array.dims[axis]))
        return transpose(array, order)

    lacking = any(len(kind.array.dims) < len(wanted) for kind in column.kinds)
    if not lacking:
        notes.drift("dimensions", column.path, cases, f"shown as {wanted}")
    return column.map_kinds(change)


def _new_dims(
    dims: tuple[str, ...], wanted: tuple[str, ...], growing: Collection[str]
) -> tuple[str, ...] | None:
    """Names under which the dimensions fit the wanted ones; None where they do not."""
    if set(dims) == set(wanted) and len(dims) == len(wanted):
        return dims
    if len(dims) == len(wanted):
        pairs = list(zip(dims, wanted, strict=True))
        phony = all(a == b or (_PHONY.match(a) and _PHONY.match(b)) for a, b in pairs)
        return wanted if phony else None
    lacking = set(wanted) - set(dims)
    fits = set(dims) <= set(wanted) and lacking <= set(growing)
    return dims if fits else None


def shared_lengths(
    groups: Sequence[VirtualGroup], growing: Collection[str]
) -> dict[str, dict[int, int]]:
    """Length in every file of the growing dimensions that all groups of a file share.

    Arrays do not say which group defines their dimensions. One that has the same length in all
    groups of every file is taken for one dimension; others, and those with made-up names, are
    looked at group by group.
    """
    if not any(group.groups for group in groups):
        return {}
    lengths: dict[str, dict[int, int]] = {dim: {} for dim in growing if not _PHONY.match(dim)}
    for file, group in enumerate(groups):
        for array in group.all_arrays().values():
            for dim, extent in zip(array.dims, array.shape, strict=True):
                if dim in lengths and lengths[dim].setdefault(file, extent) != extent:
                    del lengths[dim]
    return lengths


def lengths_along(
    columns: Mapping[str, Column], growing: Collection[str], known: Mapping[str, Mapping[int, int]]
) -> dict[str, dict[int, int]]:
    """Length of every growing dimension in every file that has it.

    Parameters
    ----------
    columns
        The variables of a group.
    known
        What the groups above say.
    """
    lengths: dict[str, dict[int, int]] = {dim: {} for dim in growing}
    for dim, lengths_found in lengths.items():
        for column in columns.values():
            if all(file in lengths_found for file in column.files):
                continue
            for file, array in zip(column.files, column.arrays, strict=True):
                if dim in array.dims:
                    lengths_found.setdefault(file, array.shape[array.dims.index(dim)])
    return {dim: {**known.get(dim, {}), **own} for dim, own in lengths.items()}


def find_flips(
    columns: Mapping[str, Column], growing: Collection[str], values: Values, notes: Notes
) -> dict[str, dict[int, int]]:
    """Files in which an index coordinate runs the other way round than in the first file.

    With the number of its labels.
    """
    flips: dict[str, dict[int, int]] = {}
    for name, column in columns.items():
        array = column.first
        if array.dims != (name,) or name in growing or array.shape[0] < 2:
            continue
        if array.dtype.kind not in "iuf" or not values.available(array):
            continue
        reversed_files = _reversed_files(column, values)
        if reversed_files:
            flips[name] = dict.fromkeys(reversed_files, array.shape[0])
            cases = {
                "as the first": [file for file in column.files if file not in reversed_files],
                "reversed": sorted(reversed_files),
            }
            notes.drift("direction", column.path, cases, "flipped to the first file's")
    return flips


def _reversed_files(column: Column, values: Values) -> set[int]:
    first = column.first
    first_key = content_key(first)
    verdicts: dict[object, bool] = {} if first_key is None else {first_key: False}
    reversed_files = set()
    for file, array in zip(column.files, column.arrays, strict=True):
        if array is first or array.shape != first.shape or not values.available(array):
            continue
        key = content_key(array)
        verdict = verdicts.get(key) if key is not None else None
        if verdict is None:
            if not values.available(first):
                return set()
            own, known = values.of(array), values.of(first)
            verdict = not same_values(own, known) and same_values(own[::-1], known)
            if key is not None:
                verdicts[key] = verdict
        if verdict:
            reversed_files.add(file)
    return reversed_files


def flip_files(column: Column, flips: Mapping[str, Mapping[int, int]]) -> Column:
    """Flip the arrays of the files concerned along the dimensions concerned."""
    concerned = [dim for dim in column.first.dims if dim in flips]
    if not concerned:
        return column
    arrays = list(column.arrays)
    for position, file in enumerate(column.files):
        for dim in concerned:
            if file in flips[dim] and dim in arrays[position].dims:
                axis = arrays[position].dims.index(dim)
                # Another length is another dimension, of a group below.
                if arrays[position].shape[axis] == flips[dim][file]:
                    arrays[position] = flip(arrays[position], axis)
    return column.with_arrays(arrays)


def extents_agree(column: Column, growing: Sequence[str], notes: Notes) -> bool:
    """Whether extents of the other dimensions agree; a problem is noted where they do not."""
    if len({kind.array.dims for kind in column.kinds}) == 1:
        kept = [axis for axis, dim in enumerate(column.first.dims) if dim not in growing]
        grids = [array.grid for array in column.arrays]
        distinct = dict(zip(map(id, grids), grids, strict=True))  # alike files mostly share one
        if len({tuple(grid.shape[axis] for axis in kept) for grid in distinct.values()}) == 1:
            return True
    all_sizes = [
        {dim: n for dim, n in zip(array.dims, array.shape, strict=True) if dim not in growing}
        for array in column.arrays
    ]
    first = all_sizes[0]
    if all(list(sizes.items()) == list(first.items()) for sizes in all_sizes):
        return True
    differing = [dim for dim in first if any(sizes.get(dim) != first[dim] for sizes in all_sizes)]
    cases: dict[str, list[int]] = {}
    for file, sizes in zip(column.files, all_sizes, strict=True):
        shown = {dim: sizes.get(dim) for dim in differing} if differing else sizes
        text = ", ".join(f"{dim} {n}" if len(shown) > 1 else f"{n}" for dim, n in shown.items())
        cases.setdefault(text, []).append(file)
    notes.conflict(
        "shape-differs",
        column.path,
        f"sizes along {' and '.join(map(repr, differing))}" if differing else "sizes",
        cases,
        "combine only files of equal sizes",
    )
    return False
