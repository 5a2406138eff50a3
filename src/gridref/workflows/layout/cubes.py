"""Files laid out along several dimensions: by coordinates and labels, or as nested lists say."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.combine import Combination, CombineOptions, combine, combine_hypercube
from gridref.combine.calendars import is_time_like
from gridref.combine.folding import merged_reports
from gridref.combine.options import Read
from gridref.errors import InvalidRequestError, Place
from gridref.formats import expand_files
from gridref.model.array import VirtualArray, VirtualGroup

__all__ = [
    "combine_by_coords",
    "combine_nested",
    "flat",
    "is_ragged",
    "nested_alike",
    "nested_urls",
    "varying_dims",
]


def combine_by_coords(
    groups: Sequence[VirtualGroup], dims: Sequence[str], *, read: Read, options: CombineOptions
) -> Combination:
    """Lay groups out along dimensions, and along each other one whose labels differ between them.

    Parameters
    ----------
    groups
        The inputs, labelled.
    dims
        Dimensions that were named, or have labels; none merges what the coordinates do not part.
    """
    every = [*dims, *(dim for dim in varying_dims(groups, read) if dim not in dims)]
    return combine_hypercube(groups, every, read=read, options=options)


def varying_dims(groups: Sequence[VirtualGroup], read: Read) -> list[str]:
    """Dimensions along which groups hold different parts: by their index coordinates.

    Those are dimensions of time whose labels differ, and others whose labels follow each other from
    group to group; labels that interleave are those of different grids.
    """
    held = [group.all_arrays() for group in groups]
    paths = dict.fromkeys(
        path
        for arrays in held
        for path, array in arrays.items()
        if array.dims == (path.rpartition("/")[2],) and array.size
    )
    varying = [path for path in paths if _varies([arrays.get(path) for arrays in held], read)]
    return list(dict.fromkeys(path.rpartition("/")[2] for path in varying))


def _varies(coordinates: Sequence[VirtualArray | None], read: Read) -> bool:
    """Whether index coordinates of one name are different parts of one dimension."""
    distinct: dict[Any, tuple[NDArray[Any], VirtualArray]] = {}
    for array in coordinates:
        if array is not None and array.size:
            values = read(array)
            meaning = tuple(str(array.attrs.get(name)) for name in ("units", "calendar"))
            distinct.setdefault((values.tobytes(), values.shape, *meaning), (values, array))
    if len(distinct) < 2:
        return False
    if any(is_time_like(array.attrs) for _, array in distinct.values()):
        return True
    try:
        spans = sorted((np.min(values), np.max(values)) for values, _ in distinct.values())
    except TypeError:  # text and numbers
        return False
    return all(end < start for (_, end), (start, _) in itertools.pairwise(spans))


def is_ragged(group: VirtualGroup, dims: Sequence[str]) -> bool:
    """Whether each variable has at most one of some dimensions, and each dimension a variable."""
    held = [set(dims).intersection(array.dims) for array in group.all_arrays().values()]
    return all(len(own) <= 1 for own in held) and set().union(*held) == set(dims)


def combine_nested(
    tree: Sequence[Any], dims: Sequence[str], read: Read, rules: CombineOptions
) -> Combination:
    """Combine lists of lists of groups, the innermost along the last dimension first.

    Raises
    ------
    InvalidRequestError
        If there are not as many levels as dimensions.
    """
    if not dims:
        raise InvalidRequestError("combine='nested' needs a concat_dim for every level of lists")
    if len(dims) == 1:
        if any(isinstance(branch, list) for branch in tree):
            raise InvalidRequestError("the files are nested deeper than there are dimensions")
        return combine(tree, dims[0], read=read, options=rules)
    if not all(isinstance(branch, list) for branch in tree):
        raise InvalidRequestError(
            f"{len(dims)} dimensions take lists of lists of files: {dims[0]!r} is the outermost"
        )
    rows = [combine_nested(branch, dims[1:], read, rules) for branch in tree]
    reports = [row.report for row in rows]
    problems = tuple(problem for row in rows for problem in row.problems)
    groups = [row.group for row in rows if row.group is not None]
    if len(groups) < len(rows):
        return Combination(None, merged_reports(reports, None), problems)
    done = combine(groups, dims[0], read=read, options=rules)
    return replace(done, report=merged_reports(reports, done.report))


def nested_urls(urls: Any, storage_options: Mapping[str, Any] | None) -> list[Any]:
    """The addresses, expanded, in the nesting that they were given in."""
    branches = [urls] if isinstance(urls, str | os.PathLike) else list(urls)
    if any(isinstance(branch, list | tuple) for branch in branches):
        return [nested_urls(branch, storage_options) for branch in branches]
    return list(expand_files(branches, storage_options))


def flat(tree: Sequence[Any]) -> list[Any]:
    """The leaves of a tree, in order."""
    return [
        leaf for branch in tree for leaf in (flat(branch) if isinstance(branch, list) else [branch])
    ]


def nested_alike(tree: Sequence[Any], groups: Mapping[str, VirtualGroup]) -> list[Any]:
    """Groups in the nesting of their addresses.

    Raises
    ------
    InvalidRequestError
        For an address that there is no group of, as it could not be scanned.
    """
    for file in flat(tree):
        if file not in groups:
            raise InvalidRequestError(
                "a file that was left out leaves a hole in lists of lists; labels or"
                " combine='by_coords' allow for it",
                Place(source=file),
            )
    return [
        nested_alike(branch, groups) if isinstance(branch, list) else groups[branch]
        for branch in tree
    ]
