"""The inputs' versions of one variable side by side, and how alike they are.

A `Column` holds one variable of all inputs that have it. Inputs whose metadata agree are one
`Kind`. Rules look at kinds, never at every file, and change file by file only what has to change.
`Notes` collects the drifts and problems that rules find.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.combine.options import CombineOptions
from gridref.combine.report import Drift, DriftReport
from gridref.errors import Message, Problem, some_of
from gridref.model.array import VirtualArray, VirtualGroup, path_in
from gridref.model.conventions import DAY_NS, TimeBase, is_time_like
from gridref.model.scan_report import LEFT_OUT


@dataclass(frozen=True, eq=False)
class Kind:
    """Files in which a variable has the same metadata.

    Attributes
    ----------
    array
        The variable in the first of them.
    members
        Places in the column.
    """

    array: VirtualArray
    members: Sequence[int]


@dataclass(frozen=True, eq=False)
class Column:
    """One variable of all inputs that have it.

    Attributes
    ----------
    name
        Name of the variable in its group.
    path
        Path of the variable, for messages.
    files
        Numbers of the inputs, ascending.
    """

    name: str
    path: str
    files: Sequence[int]
    arrays: Sequence[VirtualArray]

    @cached_property
    def kinds(self) -> list[Kind]:
        """Files grouped by metadata, in the order of first occurrence."""
        members: dict[Any, list[int]] = {}
        differing = [keys for keys in _metadata_keys(self.arrays) if keys is not None]
        if not differing:
            return [Kind(self.first, range(len(self.arrays)))]
        for position, key in enumerate(zip(*differing, strict=True)):
            members.setdefault(key, []).append(position)
        return [Kind(self.arrays[positions[0]], positions) for positions in members.values()]

    def files_of(self, kind: Kind) -> Sequence[int]:
        """Numbers of the inputs of one kind."""
        if len(kind.members) == len(self.files):
            return self.files
        return [self.files[position] for position in kind.members]

    @property
    def first(self) -> VirtualArray:
        """The variable in the first input that has it."""
        return self.arrays[0]

    @property
    def is_index(self) -> bool:
        """Whether it labels a dimension in the first input: `join` says what becomes of labels."""
        return self.first.is_index(self.name)

    def cases(self, text: Callable[[Kind], str]) -> dict[str, list[int]]:
        """Files grouped by a text that describes their kind."""
        cases: dict[str, list[int]] = {}
        for kind in self.kinds:
            cases.setdefault(text(kind), []).extend(self.files_of(kind))
        return cases

    def with_arrays(self, arrays: Sequence[VirtualArray]) -> Column:
        """The same files with other arrays."""
        return Column(self.name, self.path, self.files, arrays)

    def map_kinds(self, change: Callable[[Kind, VirtualArray], VirtualArray]) -> Column:
        """Change every array, knowing its kind."""
        arrays = list(self.arrays)
        for kind in self.kinds:
            for position in kind.members:
                arrays[position] = change(kind, arrays[position])
        return self.with_arrays(arrays)


@dataclass(eq=False)
class Notes:
    """What is found on the way: drifts and problems. Filled while combining.

    Attributes
    ----------
    options
        What the caller decided.
    unnamed
        Names of inputs that do not know theirs.
    drifts, problems
        What was found so far.
    failed
        Paths of variables with a problem, or left out: no more rules are tried on them.
    names
        Names of inputs, as far as they were asked for.
    in_order
        Labels, by path, of index coordinates whose labels are in order throughout.
    told
        Paths of scalars that are repeated along the dimensions whatever the options say.
    """

    options: CombineOptions
    inputs: Sequence[VirtualGroup]
    unnamed: Sequence[str]
    drifts: list[Drift] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    names: dict[int, str] = field(default_factory=dict)
    in_order: dict[str, NDArray[Any]] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)

    def name(self, file: int) -> str:
        """Name of an input."""
        known = self.names.get(file)
        if known is None:
            known = self.names[file] = source_name(self.inputs[file]) or self.unnamed[file]
        return known

    def report(self) -> DriftReport:
        """The drifts, with the names of all inputs."""
        return DriftReport(tuple(self.drifts), tuple(map(self.name, range(len(self.inputs)))))

    def drift(
        self,
        cause: str,
        variable: str,
        cases: dict[str, list[int]],
        resolution: str,
        n_cases: int | None = None,
        *,
        is_placing: bool = False,
    ) -> None:
        """Note a drift that is resolved; of `n_cases`, where not every case is given."""
        drift = Drift.of(cause, variable, cases, resolution, n_cases, is_placing=is_placing)
        self.drifts.append(drift)

    def problem(
        self, cause: str, variable: str, message: str, files: Iterable[int], *, drop: bool = True
    ) -> None:
        """Note a problem; where conflicts are dropped, the variable is left out."""
        numbers = list(files)
        if drop:
            self.failed.add(variable)
        if drop and self.options.conflicts == "skip":
            self.drift(cause, variable, {message: numbers}, LEFT_OUT)
            return
        names = tuple(self.name(file) for file in numbers)
        self.problems.append(Problem(cause, message, variable, names))

    def conflict(
        self, cause: str, variable: str, difference: str, cases: dict[str, list[int]], advice: str
    ) -> None:
        """Note a problem that consists of different values."""
        shown = "; ".join(
            f"{text} in {some_of(files, 1, self.name)}" for text, files in list(cases.items())[:4]
        )
        more = f"; {len(cases) - 4} more values" if len(cases) > 4 else ""
        others = [file for files in list(cases.values())[1:] for file in files]
        self.problem(
            cause,
            variable,
            Message(f"{difference} differ: {shown}{more}; ", advice),
            sorted(others),
        )


def columns_of(groups: Sequence[VirtualGroup | None], path: str) -> dict[str, Column]:
    """The variables of groups at one path, in the order of first occurrence."""

    def column(name: str, files: Sequence[int], held: Sequence[VirtualArray]) -> Column:
        return Column(name, path_in(path, name), files, held)

    alike = _columns_of_alike(groups)
    if alike is not None:
        every = range(len(groups))
        return {name: column(name, every, held) for name, held in alike.items()}
    files: dict[str, list[int]] = {}
    arrays: dict[str, list[VirtualArray]] = {}
    for number, group in enumerate(groups):
        if group is None:
            continue
        for name, array in group.arrays.items():
            if name not in files:
                files[name], arrays[name] = [], []
            files[name].append(number)
            arrays[name].append(array)
    return {name: column(name, files[name], arrays[name]) for name in files}


def _columns_of_alike(
    groups: Sequence[VirtualGroup | None],
) -> dict[str, list[VirtualArray]] | None:
    """The variables of groups that all have the same ones, the usual case; None for others."""
    held = [group.arrays for group in groups if group is not None]
    if len(held) < len(groups) or not _all_same(list(map(tuple, held))):
        return None
    return {name: [arrays[name] for arrays in held] for name in held[0]}


def source_name(group: VirtualGroup) -> str | None:
    """The file that a group was made from; None if nothing says."""
    for finding in group.report.findings:
        if finding.source:
            return finding.source
    names = map(array_source, group.all_arrays().values())
    return next((name for name in names if name is not None), None)


def array_source(array: VirtualArray) -> str | None:
    """The first file that an array is in; None if nothing says without reading."""
    for manifest in array.manifests:
        for source in getattr(manifest, "sources", ()):
            return str(source.url)
    return None


def _metadata_keys(arrays: Sequence[VirtualArray]) -> Iterator[Sequence[Any] | None]:
    """Keys of each property of many arrays, as `value_keys` makes them."""
    # Column by column, not array by array: called for every variable of every file.
    dims, dtypes = [array.dims for array in arrays], [array.dtype for array in arrays]
    yield None if _all_same(dims) else dims
    yield None if _all_same(dtypes) else dtypes
    yield value_keys([array.fill_value for array in arrays])
    enumerations = [array.enumeration for array in arrays]
    yield None if _all_same(enumerations) else enumerations
    attrs = [array.attrs for array in arrays]
    if _plainly_equal(attrs):
        names = [name for name, value in attrs[0].items() if value.__class__ is not str]
    elif _all_same(list(map(tuple, attrs))):
        names = list(attrs[0])
    else:
        yield list(map(_attribute_key, attrs))
        return
    for name in names:
        yield value_keys([own[name] for own in attrs])


def _plainly_equal(values: list[Any]) -> bool:
    """Whether all values surely equal the first, whatever their dtypes."""
    try:
        return values.count(values[0]) == len(values)
    except ValueError:  # arrays among them
        return False


def value_keys(values: list[Any]) -> list[Any] | None:
    """A key for each value: keys are equal exactly where values are, NaN and dtypes included.

    None where all values are the same.
    """
    types = set(map(type, values))
    only = types.pop() if len(types) == 1 else object
    if only is str:
        return None if _all_same(values) else values
    if issubclass(only, np.number | np.bool):
        column = np.array(values)
        if column.tobytes() == column[:1].tobytes() * len(values):
            return None
    keys = list(map(_value_key, values))
    return None if _all_same(keys) else keys


def _all_same(keys: list[Any]) -> bool:
    return keys.count(keys[0]) == len(keys)


def _attribute_key(attrs: Mapping[str, Any]) -> Any:
    return tuple((name, _value_key(value)) for name, value in attrs.items())


def _value_key(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.hasobject or value.dtype.kind == "T":
            return value.dtype.kind, value.shape, repr(value)
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, list | tuple):
        return tuple(_value_key(item) for item in value)
    return type(value).__name__, repr(value)


def value_text(value: Any) -> str:
    """An attribute value in few words."""
    text = _one_line(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def text_beside(value: Any, other: Any) -> str:
    """An attribute value in few words, distinct from another one that begins alike."""
    text, known = _one_line(value), _one_line(other)
    if text == known:
        dtype = getattr(value, "dtype", type(value).__name__)
        return f"{value_text(value)} ({dtype})"
    alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(text, known, strict=False))
    start = max(0, sum(1 for _ in alike) - 20)
    return f"...{text[start : start + 54]}..."


_UNIX_EPOCH_NS = 2_440_588 * DAY_NS
"""1970-01-01, as `TimeBase` counts: the Julian day number of its noon."""


def label_text(label: Any, attrs: Mapping[str, Any]) -> str:
    """A label in words; a number that counts time as a date, where the calendar is everyday's."""
    base = TimeBase.of(attrs) if isinstance(label, np.number) else None
    real = base is not None and base.calendar in ("standard", "proleptic_gregorian")
    if base is None or not real or not math.isfinite(label):
        return f"{label} {attrs['units']}" if is_time_like(attrs) else str(label)
    moment = base.epoch_ns - _UNIX_EPOCH_NS + round(label.item() * base.unit_ns)
    if abs(moment) >= 2**63:
        return str(label)
    text = str(np.datetime64(moment, "ns").astype("M8[s]"))
    return text.removesuffix("T00:00:00")


def _one_line(value: Any) -> str:
    if value is None:
        return "none"
    text = str(value.tolist() if isinstance(value, np.ndarray | np.generic) else value)
    return " ".join(text.split())
