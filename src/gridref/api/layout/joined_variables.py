"""Find labels in names of variables: ``t2m_p10`` and ``t2m_p90`` become one along a dimension."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from gridref.api.layout.labels import LabelPattern
from gridref.api.layout.sources import LabelSources, label_values, with_label
from gridref.combine import CombineOptions, combine
from gridref.combine.options import Read
from gridref.combine.report import DriftReport
from gridref.errors import InvalidRequestError, Place
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.conventions import referred_names
from gridref.model.reshaping import expand_dims
from gridref.model.scan_report import Fate, Finding, ScanReport

_KIND = "name:"
_VARIABLE = "variable"
_ANY_FIELD = re.compile(r"\{[^{}]*\}")


@dataclass(frozen=True)
class NamePattern:
    """Where names of variables say their label along a dimension.

    Attributes
    ----------
    pattern
        Has its field, and may have ``{variable}``, what the variables are called together.
    """

    dim: str
    pattern: LabelPattern

    @classmethod
    def parse(cls, dim: str, text: str) -> Self:
        """Parse a pattern of whole names, like ``{variable}_p{percentile:d}`` or ``B{band}``.

        Raises
        ------
        InvalidRequestError
            If its fields are others, or nothing says what the variables are called together.
        """
        parsed = LabelPattern.parse(text.replace("{variable}", "{variable:s}"))
        if parsed.fields.keys() - {_VARIABLE} != {dim}:
            raise InvalidRequestError(
                f"labels of {dim!r} in variables' names take a pattern with the field {{{dim}}},"
                f" and {{variable}} for the rest; got {text!r}"
            )
        whole = re.compile(rf"(?:{parsed.expression.pattern})\Z")
        named = cls(dim, replace(parsed, text=text, expression=whole))
        if _VARIABLE not in parsed.fields and not named.literal:
            raise InvalidRequestError(
                f"{text!r} has no field for the joint name of the variables: add {{variable}}"
            )
        return named

    @property
    def literal(self) -> str:
        """The text around the fields, which is the variable's name where no field says it."""
        return _ANY_FIELD.sub("", self.pattern.text).strip("_-. ")

    def matches(self, name: str) -> bool:
        """Whether a variable is called so."""
        return self.pattern.expression.match(name) is not None

    def resembles(self, name: str) -> bool:
        """Whether a name nearly is one: all but the fields and the case of letters is there."""
        loose = ".*".join(map(re.escape, _ANY_FIELD.split(self.pattern.text)))
        return not self.matches(name) and re.match(loose, name, re.IGNORECASE) is not None

    def found(self, names: Sequence[str], file: str) -> list[tuple[str, Any]]:
        """What the variables are called together, and the label of each."""
        origins = [f"the variable {name!r}" for name in names]
        found = self.pattern.of_texts(names, origins, [file] * len(names))
        return [(str(own.get(_VARIABLE, self.literal)), own[self.dim]) for own in found]


def split_labels(
    labels: LabelSources | None,
) -> tuple[LabelSources | None, tuple[NamePattern, ...]]:
    """Labels of files, and those in variables' names (``"name:PATTERN"``) apart.

    Raises
    ------
    InvalidRequestError
        As `NamePattern.parse` does.
    """
    if not isinstance(labels, Mapping):
        return labels, ()
    named = {d: s for d, s in labels.items() if isinstance(s, str) and s.startswith(_KIND)}
    rest = {dim: source for dim, source in labels.items() if dim not in named}
    patterns = [NamePattern.parse(dim, text.removeprefix(_KIND)) for dim, text in named.items()]
    return rest or None, tuple(patterns)


@dataclass(eq=False)
class Joining:
    """Joins variables of each file along dimensions found in their names, and notes how.

    Attributes
    ----------
    patterns
        One for each dimension, in this order.
    read, rules
        As for combining files: variables drift as files do.
    """

    patterns: Sequence[NamePattern]
    read: Read
    rules: CombineOptions
    _noted: dict[tuple[str, str, str], dict[str, list[str]]] = field(default_factory=dict)

    def each(
        self, scanned: Iterable[tuple[str, VirtualGroup]]
    ) -> Iterator[tuple[str, VirtualGroup]]:
        """Files with their variables joined.

        Raises
        ------
        InvalidRequestError
            If a file has no such variables, or some that cannot become one.
        CombineError
            With every problem, where variables do not fit together by the rules.
        """
        for file, group in scanned:
            joined = group
            for pattern in self.patterns:
                before, joined = joined, self._tree(joined, pattern, file, "")
                if joined is before:
                    known = ", ".join(before.all_arrays()) or "none"
                    reason = (
                        f"no variable is called like {pattern.pattern.text!r}: there are {known}"
                    )
                    raise InvalidRequestError(reason, Place(file))
            yield file, joined

    def told(self, report: DriftReport) -> DriftReport:
        """A report of the files with what was noted in each."""
        return report.with_noted(self._noted)

    def _tree(self, group: VirtualGroup, by: NamePattern, file: str, path: str) -> VirtualGroup:
        """A group and those below; the same object where no variable is called so."""
        parts = group.groups
        below = {n: self._tree(part, by, file, f"{path}{n}/") for n, part in parts.items()}
        if any(below[name] is not parts[name] for name in parts):
            group = group.with_changes(groups=below)
        kept = referred_names(group.arrays.values())
        data = [n for n, a in group.arrays.items() if not a.is_index(n) and n not in kept]
        for name in filter(by.resembles, data):
            key = ("names", path + name, "left as it is")
            self._note(key, f"nearly like {by.pattern.text}", file)
        names = [name for name in data if by.matches(name)]
        return self._joined(group, names, by, file, path) if names else group

    def _joined(
        self, group: VirtualGroup, names: Sequence[str], by: NamePattern, file: str, path: str
    ) -> VirtualGroup:
        """A group in which variables of these names have become a few along the dimension."""
        found = by.found(names, file)
        _check_fit(group.arrays, dict(zip(names, found, strict=True)), by, file, path)
        labels = sorted({label for _, label in found})
        stored, attrs = label_values(labels)[0], by.pattern.attrs(by.dim)
        inputs = []
        for label, value in zip(labels, stored, strict=True):
            arrays = {
                together: expand_dims(group.arrays[name], 0, by.dim)
                for name, (together, own) in zip(names, found, strict=True)
                if own == label
            }
            named = ScanReport((Finding("/", Fate.NAMED, "", f"{file} ({by.dim} {label})"),))
            inputs.append(with_label(VirtualGroup(arrays, report=named), by.dim, value, attrs))
        done = combine(inputs, by.dim, read=self.read, options=self.rules)
        joined = done.unwrap().arrays
        for drift in done.report:
            for case in drift.cases:
                held = ", ".join(str(own) for a, b in case.ranges for own in labels[a : b + 1])
                key = (drift.cause, path + drift.variable, drift.resolution)
                self._note(key, f"{by.dim} {held}: {case.value}", file)
        rest = {name: array for name, array in group.arrays.items() if name not in names}
        coordinate = VirtualArray.from_numpy(stored, (by.dim,), attrs)
        return group.with_changes(arrays={**rest, **joined, by.dim: coordinate})

    def _note(self, key: tuple[str, str, str], value: str, file: str) -> None:
        self._noted.setdefault(key, {}).setdefault(value, []).append(file)


def _check_fit(
    arrays: Mapping[str, VirtualArray],
    found: Mapping[str, tuple[str, Any]],
    by: NamePattern,
    file: str,
    path: str,
) -> None:
    """Check that what becomes one variable has one shape and label each, and that names are free.

    `found` is what each variable is called together with others, and its label.
    """
    others = arrays.keys() - found.keys()
    if by.dim in others or any(by.dim in array.dims for array in arrays.values()):
        raise InvalidRequestError(
            f"there is a dimension or variable {by.dim!r} already", Place(file)
        )
    first: dict[str, str] = {}
    labelled: dict[tuple[str, Any], str] = {}
    for name, (together, label) in found.items():
        twin = labelled.setdefault((together, label), name)
        like = first.setdefault(together, name)
        one, other = arrays[like].sizes_text, arrays[name].sizes_text
        reason = ""
        if twin != name:
            reason = f"{twin!r} and {name!r} both are {together!r} of {by.dim} {label}"
        elif together in others or together == by.dim:
            reason = (
                f"{name!r} would become part of {together!r}, another variable: leave"
                f" {{variable}} out of {by.pattern.text!r} to get another name"
            )
        elif one != other:
            reason = f"{like!r} has {one} and {name!r} has {other}, which cannot be one variable"
        if reason:
            raise InvalidRequestError(reason, Place(file, path + name))
