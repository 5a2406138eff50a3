"""The order of files along dimensions: given by nested lists, or found from coordinates."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from gridref.combine import (
    CombineOptions,
    DriftReport,
    combine,
    combine_hypercube,
    merged_reports,
)
from gridref.combine.options import Repeat
from gridref.errors import CombineError, InvalidRequestError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.options import check_choice, check_names
from gridref.serve.reader import Reader
from gridref.workflows.decoding import coordinate_names, decoded_values
from gridref.workflows.layout.cubes import combine_by_coords

__all__ = ["Part", "Rules", "by_coords", "by_labels", "nested"]

Repeated = str | Collection[str] | None


@dataclass(frozen=True)
class Rules:
    """How files are combined, data variables and coordinates told apart as in xarray.

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


@dataclass(frozen=True, eq=False)
class Part:
    """One file, or several that are combined already.

    Attributes
    ----------
    group
        What it holds.
    name
        Its name, for a single file.
    report
        How the files in it differed.
    """

    group: VirtualGroup
    name: str = ""
    report: DriftReport = field(default_factory=DriftReport)


def nested(
    tree: Sequence[Any],
    dims: Sequence[str | None],
    parts: Mapping[str, Part],
    reader: Reader,
    rules: Rules,
) -> Part:
    """Combine lists of lists of files, the innermost along the last dimension first.

    Raises
    ------
    InvalidRequestError
        If there are more levels than dimensions.
    CombineError
        With every problem of the first list that does not fit together.
    """
    joined = [
        nested(branch, dims[1:], parts, reader, rules)
        if isinstance(branch, list)
        else parts[branch]
        for branch in tree
    ]
    if not dims or (dims[0] is None and len(joined) > 1):
        raise InvalidRequestError("combine='nested' needs a concat_dim for every level")
    if dims[0] is None:
        return joined[0]
    return _combined(joined, str(dims[0]), reader, rules)


def by_labels(
    parts: Sequence[Part], dims: Sequence[str], reader: Reader, rules: Rules, *, found: bool
) -> Part:
    """Combine along several dimensions at once, holes and all.

    Parameters
    ----------
    dims
        The dimensions; labels of each file along them are coordinates or scalar variables.
    found
        Whether files also lie along other dimensions whose coordinates differ.

    Raises
    ------
    CombineError
        With every problem of files that do not fit together.
    """
    groups = [part.group for part in parts]
    call = combine_by_coords if found else combine_hypercube
    done = call(groups, dims, read=reader.read, options=rules.of(groups))
    if done.group is None:
        raise CombineError(done.problems)
    return Part(done.group, report=done.report)


def by_coords(parts: Sequence[Part], dim: str | None, reader: Reader, rules: Rules) -> Part:
    """Order by index coordinates, and combine along each that differs, the last one first.

    Labels rise, or fall where they do in every file that has two of them.

    Raises
    ------
    InvalidRequestError
        If nothing tells the files apart, or labels cannot be compared.
    CombineError
        With every problem of the first row of files that does not fit together.
    """
    if len(parts) == 1:
        return parts[0]
    labels = {
        name: [_first_labels(part.group.arrays.get(name), reader, name) for part in parts]
        for name in _index_names([part.group for part in parts])
    }
    varying = [
        name for name, held in labels.items() if all(held) and len({own[0] for own in held}) > 1
    ]
    if dim is not None and dim not in varying:
        varying = [dim]
    if not varying:
        raise InvalidRequestError(
            "no index coordinate tells the files apart: name concat_dim, with combine='nested'"
        )
    axes = [_Axis.of(name, labels.get(name) or [()] * len(parts)) for name in varying]
    return _joined_along(range(len(parts)), axes, parts, reader, rules)


@dataclass(frozen=True)
class _Axis:
    """Where files lie along a dimension: `positions` are equal for files with the same label."""

    name: str
    positions: tuple[int, ...]

    @classmethod
    def of(cls, name: str, labels: Sequence[tuple[Any, ...]]) -> _Axis:
        falling = [own[1] < own[0] for own in labels if len(own) == 2]
        firsts = {own[0] for own in labels if own}
        try:
            ordered = sorted(firsts, reverse=bool(falling) and all(falling))
        except TypeError as error:
            raise InvalidRequestError(f"labels of {name!r} cannot be ordered: {error}") from error
        position_of = {label: position for position, label in enumerate(ordered)}
        return cls(name, tuple(position_of[own[0]] if own else -1 for own in labels))


def _joined_along(
    files: Sequence[int],
    axes: Sequence[_Axis],
    parts: Sequence[Part],
    reader: Reader,
    rules: Rules,
) -> Part:
    """Combine files along several dimensions, the last one first."""
    axis, *inner = axes
    ordered = sorted(files, key=axis.positions.__getitem__)
    if not inner:
        return _joined_files([parts[file] for file in ordered], axis.name, reader, rules)
    rows: dict[int, list[int]] = {}
    for file in ordered:
        rows.setdefault(axis.positions[file], []).append(file)
    joined = [_joined_along(row, inner, parts, reader, rules) for row in rows.values()]
    return _joined_files(joined, axis.name, reader, rules)


def _joined_files(parts: Sequence[Part], dim: str, reader: Reader, rules: Rules) -> Part:
    """Combine parts along a dimension; a single part is taken as it is."""
    return parts[0] if len(parts) == 1 else _combined(parts, dim, reader, rules)


def _combined(parts: Sequence[Part], dim: str, reader: Reader, rules: Rules) -> Part:
    groups = [part.group for part in parts]
    done = combine(groups, dim, read=reader.read, options=rules.of(groups))
    if done.group is None:
        raise CombineError(done.problems)
    reports = [DriftReport((), (part.name,)) if part.name else part.report for part in parts]
    return Part(done.group, report=merged_reports(reports, done.report))


def _index_names(groups: Sequence[VirtualGroup]) -> list[str]:
    return list(
        dict.fromkeys(
            name
            for group in groups
            for name, array in group.arrays.items()
            if array.dims == (name,) and array.size
        )
    )


def _first_labels(array: VirtualArray | None, reader: Reader, name: str) -> tuple[Any, ...]:
    """Up to two labels of an index coordinate, decoded so that those of all files compare."""
    if array is None or array.dims != (name,):
        return ()
    raw = reader.read(array, (slice(0, 2),), name=name)
    return tuple(decoded_values(name, raw, array))
