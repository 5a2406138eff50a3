"""Lay files out along several dimensions: by coordinates, by labels or as nested lists."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from gridref.api.decoding import coordinate_names
from gridref.combine import (
    Combination,
    CombineOptions,
    DriftReport,
    Hypercube,
    combine,
    merged_reports,
)
from gridref.combine.options import Read, Repeat
from gridref.errors import InvalidRequestError, Message, Option, Place
from gridref.formats import expand_files
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.times import duration_base, is_time_like
from gridref.options import check_choice, check_names

# Layouts along several dimensions


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
    return combine(groups, Hypercube(tuple(every)), read=read, options=options)


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
    meaning: tuple[str, ...]
    for array in coordinates:
        if array is not None and array.size:
            values = read(array)
            meaning = tuple(str(array.attrs.get(name)) for name in ("units", "calendar"))
            lasts = duration_base(array.attrs)
            if lasts is not None and values.dtype.kind in "iuf":
                values, meaning = values.astype("f8") * lasts.unit_ns, ()
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
    tree: Sequence[Any], dims: Sequence[str | None], read: Read, rules: CombineOptions
) -> Combination:
    """Combine lists of lists of groups, the innermost along the last dimension first.

    A level of one entry needs no dimension: None.
    """
    if not dims or (dims[0] is None and len(tree) > 1):
        raise InvalidRequestError("layout='nested' needs one concat_dim for each level of lists")
    if dims[0] is None:
        return (
            combine_nested(tree[0], dims[1:], read, rules)
            if isinstance(tree[0], list)
            else Combination(tree[0], DriftReport())
        )
    if len(dims) == 1:
        if any(isinstance(branch, list) for branch in tree):
            raise InvalidRequestError(
                "the lists of files are nested deeper than there are dimensions: give one "
                "concat_dim for each level"
            )
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
                Message(
                    "a file was left out, and nested lists cannot have a hole; labels or ",
                    Option("combine", "by_coords", "layout='by_coords'"),
                    " allow for it",
                ),
                Place(source=file),
            )
    return [
        nested_alike(branch, groups) if isinstance(branch, list) else groups[branch]
        for branch in tree
    ]


# Data variables and coordinates by rules of their own

Repeated = str | Collection[str] | None


@dataclass(frozen=True)
class Rules:
    """How files are combined, with rules for data variables and for coordinates, as in xarray.

    Attributes
    ----------
    options
        All other rules.
    data_vars, coords
        Which variables without the dimension are repeated along it: ``"minimal"``, ``"different"``
        or ``"all"``, or the names of those that are. With `data_vars` None data variables are
        stacked along a new dimension, and none is repeated along an existing one.

    Raises
    ------
    InvalidRequestError
        For another text.
    """

    options: CombineOptions = field(default_factory=CombineOptions)
    data_vars: Repeated = None
    coords: Repeated = "minimal"

    def __post_init__(self) -> None:
        for name in ("data_vars", "coords"):
            if isinstance(getattr(self, name), str):
                check_choice(name, getattr(self, name), get_args(Repeat))

    def of(self, groups: Sequence[VirtualGroup]) -> CombineOptions:
        """The options for some groups.

        Raises
        ------
        InvalidRequestError
            For the name of a variable that no group has.
        """
        if self.data_vars is None and self.coords == "minimal":
            return self.options
        known = {name for group in groups for name in group.arrays}
        coordinates = set().union(*(coordinate_names(g.arrays, g.attrs) for g in groups))
        repeated = _rules_of("coords", self.coords, coordinates)
        if self.data_vars is not None:
            repeated |= _rules_of("data_vars", self.data_vars, known - coordinates)
        return replace(self.options, repeated={**repeated, **self.options.repeated})


def _rules_of(option: str, wanted: Repeated, names: Collection[str]) -> dict[str, Any]:
    if isinstance(wanted, str):
        return dict.fromkeys(names, wanted)
    listed = list(wanted or ())
    check_names(option, listed, names, "variable")
    return {**dict.fromkeys(names, "minimal"), **dict.fromkeys(listed, "all")}
