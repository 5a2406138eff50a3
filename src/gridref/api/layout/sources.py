"""Get the labels of files: from names, attributes, variables, a function or a constant."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gridref.api.layout.labels import LabelPattern, duration_seconds
from gridref.combine import Combination
from gridref.combine.columns import source_name
from gridref.combine.concatenation import label_values, with_label
from gridref.combine.hypercube import label_text
from gridref.combine.options import Read
from gridref.combine.report import Drift
from gridref.errors import InvalidRequestError, Place
from gridref.model.array import VirtualArray, VirtualGroup

REPLACED = "label-replaced"
"""Cause of the drift that a label takes the place of a file's own coordinate, and differs."""

LabelSource = str | Callable[[str], Any]
"""``"attribute:NAME"``, ``"variable:NAME"``, ``"constant:VALUE"``, ``"column:NAME"`` of a table,
``"name:PATTERN"`` of variables or a function of the address."""
Labels = Mapping[str, LabelSource] | Callable[[str], Mapping[str, Any]]
"""A source for each dimension, or one function of the address that gives labels by dimension."""

Scanned = Sequence[tuple[str, VirtualGroup]]

_SOURCES = ("attribute", "variable", "constant", "column")
_MOMENT = re.compile(r"\d{4}-\d{2}(-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?)?)?(Z|\+00:00)?")


def check_labels(labels: Labels | None) -> None:
    """Check that sources of labels are known.

    Raises
    ------
    InvalidRequestError
        For the first that is not.
    """
    for dim, source in labels.items() if isinstance(labels, Mapping) else ():
        if callable(source):
            continue
        kind, separator, name = str(source).partition(":")
        if kind not in _SOURCES or not separator or not name:
            known = ", ".join(f"{kind}:..." for kind in (*_SOURCES, "name"))
            raise InvalidRequestError(
                f"labels of {dim!r} are from {known} or a function of the address, got {source!r}"
            )


def labelled_files(
    scanned: Scanned, pattern: LabelPattern | None, pattern_of: str | None, labels: Labels | None
) -> tuple[list[VirtualGroup], list[str]]:
    """Files with their labels as coordinates, where they have none of the dimension themselves.

    Parameters
    ----------
    scanned
        Addresses and groups.
    pattern, pattern_of
        What to find in names, or in an attribute of that name.

    Returns
    -------
    tuple
        The files' groups, and the dimensions that there are labels of.

    Raises
    ------
    InvalidRequestError
        For names that do not match, attributes and variables that are missing, and labels that are
        no numbers, texts or times.
    """
    files, groups = [file for file, _ in scanned], [group for _, group in scanned]
    dims: list[str] = []
    if pattern is not None:
        groups, dims = _by_pattern(scanned, pattern, pattern_of), list(pattern.fields)
    if callable(labels):
        groups, found = _by_function(files, groups, labels)
        return groups, list(dict.fromkeys([*dims, *found]))
    for dim, source in (labels or {}).items():
        groups = _by_source(list(zip(files, groups, strict=True)), dim, source)
    return groups, list(dict.fromkeys([*dims, *(labels or {})]))


def _by_pattern(
    scanned: Scanned, pattern: LabelPattern, pattern_of: str | None
) -> list[VirtualGroup]:
    files, groups = [file for file, _ in scanned], [group for _, group in scanned]
    if pattern_of is None:
        found = pattern.of_names(files)
    else:
        found = pattern.of_attributes([group.attrs for group in groups], pattern_of, files)
        groups = [without_attribute(group, pattern_of) for group in groups]
    for dim in pattern.fields:
        values, _ = label_values([own[dim] for own in found])
        groups = _labelled(groups, dim, values, pattern.attrs(dim))
    pairs = zip(groups, found, strict=True)
    return [with_labels_beside(group, own, pattern) for group, own in pairs]


def with_labels_beside(
    group: VirtualGroup, labels: Mapping[str, Any], pattern: LabelPattern
) -> VirtualGroup:
    """A group with labels that are no dimensions as scalar coordinates, if it has none itself."""
    names = [name for name in pattern.beside if name[1:] not in group.arrays]
    if not names:
        return group
    scalars = {
        name[1:]: VirtualArray.from_numpy(np.asarray(labels[name]), (), pattern.attrs(name))
        for name in names
    }
    known = str(group.attrs.get("coordinates", "")).split()
    attrs = {**group.attrs, "coordinates": " ".join([*known, *scalars])}
    return group.replace(arrays={**group.arrays, **scalars}, attrs=attrs)


def without_attribute(group: VirtualGroup, name: str) -> VirtualGroup:
    """A group that lacks an attribute."""
    return group.replace(attrs={key: value for key, value in group.attrs.items() if key != name})


def _by_function(
    files: Sequence[str],
    groups: list[VirtualGroup],
    function: Callable[[str], Mapping[str, Any]],
) -> tuple[list[VirtualGroup], list[str]]:
    found = [function(file) for file in files]
    for file, own in zip(files, found, strict=True):
        if not isinstance(own, Mapping) or own.keys() != found[0].keys():
            raise InvalidRequestError(
                f"labels= gave {own!r}: a function gives a label for each dimension, and the same"
                " dimensions for all files",
                Place(source=file),
            )
    for dim in found[0]:
        groups = _labelled(groups, dim, *_stored([own[dim] for own in found]))
    return groups, list(found[0])


def _by_source(scanned: Scanned, dim: str, source: LabelSource) -> list[VirtualGroup]:
    groups = [group for _, group in scanned]
    if callable(source):
        return _labelled(groups, dim, *_stored([source(file) for file, _ in scanned]))
    kind, _, name = source.partition(":")
    if kind == "column":
        raise InvalidRequestError(f"labels={{{dim!r}: {source!r}}} need the table: inventory=")
    if kind == "constant":
        return _labelled(groups, dim, *_stored([name] * len(groups)))
    if kind == "variable":
        return [_renamed(group, name, dim, file) for file, group in scanned]
    values = [_attribute(group, name, file) for file, group in scanned]
    return _labelled([without_attribute(g, name) for g in groups], dim, *_stored(values))


def _attribute(group: VirtualGroup, name: str, file: str) -> Any:
    if name not in group.attrs:
        known = ", ".join(group.attrs) or "none"
        raise InvalidRequestError(
            f"the file has no attribute {name!r}; it has {known}", Place(source=file)
        )
    value = group.attrs[name]
    if np.size(value) != 1:
        raise InvalidRequestError(f"the attribute {name!r} is no single value", Place(source=file))
    return np.asarray(value).reshape(()).item()


def _renamed(group: VirtualGroup, name: str, dim: str, file: str) -> VirtualGroup:
    """A group whose scalar variable has the dimension's name."""
    held = group.arrays.get(name)
    if held is None or held.size != 1:
        what = "has no variable" if held is None else "has more than one value of"
        raise InvalidRequestError(f"the file {what} {name!r}", Place(source=file))
    arrays = {dim if key == name else key: array for key, array in group.arrays.items()}
    return group.replace(arrays=arrays)


def _stored(values: Sequence[Any]) -> tuple[Any, dict[str, str]]:
    """Labels as stored, numbers and times read from texts, and their coordinate's attributes."""
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) < len(values):
        return label_values(values)
    for read in (_integers, _numbers):
        numbers = read(texts)
        if numbers is not None:
            return np.asarray(numbers), {}
    if all(map(_MOMENT.fullmatch, texts)):
        plain = [text.removesuffix("Z").removesuffix("+00:00") for text in texts]
        finest = "ns" if any("." in text for text in plain) else "s"
        return label_values(np.array(plain, f"M8[{finest}]"))
    if all(re.fullmatch(r"P\S+", text) for text in texts):
        return np.asarray([duration_seconds(text) for text in texts]), {"units": "seconds"}
    return label_values(texts)


def _integers(texts: Sequence[str]) -> list[int] | None:
    return list(map(int, texts)) if all(re.fullmatch(r"[+-]?\d{1,18}", t) for t in texts) else None


def _numbers(texts: Sequence[str]) -> list[float] | None:
    number = r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?"
    return list(map(float, texts)) if all(re.fullmatch(number, t) for t in texts) else None


def _labelled(
    groups: Sequence[VirtualGroup], dim: str, values: Any, attrs: Mapping[str, str]
) -> list[VirtualGroup]:
    """Groups with their labels; those that have a coordinate of the dimension keep it."""
    return [
        group if dim in _indexed(group) else with_label(group, dim, value, attrs)
        for group, value in zip(groups, values, strict=True)
    ]


def _indexed(group: VirtualGroup) -> Collection[str]:
    return {name for name, array in group.arrays.items() if array.dims == (name,)}


@dataclass(frozen=True, eq=False)
class Replaced:
    """Coordinates of files that other labels take the place of, noted while files are labelled."""

    read: Read
    cases: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def noting(
        self, pairs: Iterable[tuple[VirtualGroup, VirtualGroup]], dims: Sequence[str]
    ) -> Iterator[VirtualGroup]:
        """The labelled groups out of pairs of a group before and after it is labelled."""
        for before, after in pairs:
            for dim in dims:
                own, label = before.arrays.get(dim), after.arrays.get(dim)
                if own is None or label is None or own is label:
                    continue
                was, now = (self._text(array) for array in (own, label))
                if was != now:
                    case = f"{was} in the file, {now} as its label"
                    name = source_name(before) or ""
                    self.cases.setdefault(dim, {}).setdefault(case, []).append(name)
            yield after

    def _text(self, array: VirtualArray) -> str:
        """The label that an array holds, in words; equal numbers of other types look the same."""
        if array.size != 1:
            return f"{array.size} values"
        (label,) = self.read(array).reshape(-1)
        label = label.decode(errors="replace") if isinstance(label, bytes) else label
        text = label_text(label, array.attrs)
        return text.removesuffix(".0") if isinstance(label, np.floating) else text

    def told(self, done: Combination) -> Combination:
        """The combination, with a drift for each coordinate that was replaced."""
        numbers = {name: number for number, name in enumerate(done.report.files)}
        drifts = [
            Drift.of(
                REPLACED,
                dim,
                {
                    case: [numbers[name] for name in names if name in numbers]
                    for case, names in cases.items()
                },
                "the labels take the place of the coordinate in the files",
            )
            for dim, cases in self.cases.items()
        ]
        report = replace(done.report, drifts=(*drifts, *done.report.drifts))
        return replace(done, report=report)
