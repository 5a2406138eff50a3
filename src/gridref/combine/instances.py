"""Combine inputs that differ in length into ragged or padded archives of instances.

Trajectories, profiles and swaths differ in length from file to file. CF conventions 1.11, chapter 9
"Discrete Sampling Geometries", has two forms for them. A ragged archive has all samples one after
the other and the number of samples of each instance (9.3.3, "Contiguous ragged array
representation"). A padded archive has a row for each instance, as long as the longest (9.3.2,
"Incomplete multidimensional array representation").
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gridref.combine.boxes import Runs
from gridref.combine.columns import Column, source_name
from gridref.combine.combining import combine
from gridref.combine.options import CombineOptions, Read
from gridref.combine.placement import Along, Lengths, Placement, Task
from gridref.combine.report import Combination, DriftReport, grouped
from gridref.combine.rules.dimensions import repeated_along
from gridref.combine.rules.packing import Packing
from gridref.combine.values import Values
from gridref.errors import InvalidRequestError, Message, Option, Place, Problem
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.conventions import referred_names, text_of
from gridref.model.indexing import isel_group
from gridref.model.reshaping import broadcast_axis, expand_dims, squeeze
from gridref.typing import Int64Array

# Detection of files whose data differ in length

DEFAULT_INSTANCE = "instance"
ROW_SIZE = "row_size"


@dataclass(frozen=True)
class Instances:
    """What differs in length, and what counts the inputs.

    Attributes
    ----------
    samples
        Dimensions whose lengths differ; each variable has one of them at most.
    instance
        Dimension that counts the inputs.
    shown
        New names of samples, where a variable of that name would get two dimensions.
    """

    samples: tuple[str, ...]
    instance: str
    shown: Mapping[str, str] = field(default_factory=dict)

    def contiguous(self, group: VirtualGroup, rules: CombineOptions) -> VirtualGroup:
        """An input with its number of samples, ready to be concatenated along all dimensions."""
        changed = {}
        for name, array in group.arrays.items():
            if self.sample_of(array) is not None and self.instance in array.dims:
                changed[name] = squeeze(array, (array.dims.index(self.instance),))
        arrays = {**group.arrays, **changed}
        arrays |= self._per_instance(group, rules)
        arrays |= self._row_sizes(group, contiguous=True)
        groups = {name: self.contiguous(below, rules) for name, below in group.groups.items()}
        return group.with_changes(arrays=arrays, groups=groups)

    def padded(self, group: VirtualGroup, rules: CombineOptions) -> VirtualGroup:
        """An input as rows of a table, one for each of its instances."""
        n_instances = _length(group, self.instance) or 1
        arrays = {**group.arrays, **self._per_instance(group, rules)}
        arrays |= self._row_sizes(group, contiguous=False)
        for name, array in self._counts(group).items():
            attrs = {key: text for key, text in array.attrs.items() if key != "sample_dimension"}
            arrays[name] = array.with_changes(attrs=attrs)
        for name, array in group.arrays.items():
            sample = self.sample_of(array)
            if sample is None:
                continue
            row = array
            if self.instance not in array.dims:
                row = broadcast_axis(expand_dims(array, 0, self.instance), 0, n_instances)
            arrays[name] = self._renamed(row, sample, group)
        groups = {name: self.padded(below, rules) for name, below in group.groups.items()}
        return group.with_changes(arrays=arrays, groups=groups)

    def split(self, group: VirtualGroup, values: Values) -> Iterator[VirtualGroup]:
        """The instances of an input that holds several one after the other."""
        counts = self._counts(group).values()
        if not counts:
            yield group
            return
        sizes = {str(_counted(array)): _held_counts(array, values) for array in counts}
        for sample, size in sizes.items():
            if size.sum() != (n_samples := _length(group, sample) or 0):
                raise InvalidRequestError(
                    f"its counts say {size.sum()} samples along {sample!r}, but it holds"
                    f" {n_samples}, so it does not say which samples each {self.instance} has",
                    Place(source_name(group)),
                )
        stops = {sample: np.cumsum(size) for sample, size in sizes.items()}
        for number in range(max(map(len, sizes.values()))):
            spans = {
                sample: slice(int(stop[number] - sizes[sample][number]), int(stop[number]))
                for sample, stop in stops.items()
            }
            yield isel_group(group, {**spans, self.instance: slice(number, number + 1)})

    def sample_of(self, array: VirtualArray) -> str | None:
        """The dimension of an array whose length differs between inputs."""
        return next((dim for dim in array.dims if dim in self.samples), None)

    def obstacle(self, group: VirtualGroup, *, padded: bool) -> tuple[str, str] | None:
        """What keeps an input from its place, if anything: a variable's path, and why."""
        for path, part in group.walk():
            prefix = f"{path}/" if path else ""
            if padded and (indexed := self._indexed(part)):
                message: str = Message(
                    f"its samples along {', '.join(sorted(indexed))} name their instance "
                    "(instance_dimension) and are in no fixed order, so they cannot become rows "
                    "without a copy: ",
                    Option("layout", "ragged", "layout=Ragged()"),
                    " keeps this order",
                )
                return path, message
            for name in self._uncounted(part):
                if name in part.arrays:
                    message = "it is to count samples, and there is a variable of that name already"
                    return prefix + name, message
            for name, array in part.arrays.items():
                n_instances = array.sizes.get(self.instance, 1)
                if self.sample_of(array) is not None and n_instances != 1 and not padded:
                    message = Message(
                        f"it holds {n_instances} instances along {self.instance!r}, each padded "
                        "to the length of the longest: ",
                        Option("layout", "padded", "layout=Ragged(padded=True)"),
                        " puts them one below the other",
                    )
                    return prefix + name, message
        return None

    def _per_instance(self, group: VirtualGroup, rules: CombineOptions) -> dict[str, VirtualArray]:
        """Variables without samples, as one element for each instance.

        Labels of other dimensions and their bounds, and grid mappings, are those of all inputs.
        """
        if _length(group, self.instance) is not None:
            return {}
        shared = referred_names(group.arrays.values())
        return {
            name: expand_dims(array, 0, self.instance)
            for name, array in group.arrays.items()
            if self.sample_of(array) is None
            and not array.is_index(name)
            and "grid_mapping_name" not in array.attrs
            and (array.ndim == 0 or name not in shared or rules.repeat_rule(name) == "all")
            and rules.repeated.get(name) != "minimal"
        }

    def _uncounted(self, group: VirtualGroup) -> dict[str, tuple[str, int]]:
        """Samples that an input does not count itself: their dimension and number, by new name."""
        known = {*map(_counted, self._counts(group).values()), *self._indexed(group)}
        return {
            ROW_SIZE if len(self.samples) == 1 else f"{ROW_SIZE}_{sample}": (sample, n_samples)
            for sample in self.samples
            if sample not in known and (n_samples := _length(group, sample)) is not None
        }

    def _row_sizes(self, group: VirtualGroup, *, contiguous: bool) -> dict[str, VirtualArray]:
        """The number of samples of an input; empty if the input has that variable itself."""
        made = {}
        for name, (sample, n_samples) in self._uncounted(group).items():
            attrs = {"long_name": f"number of samples of each {self.instance}"}
            attrs |= {"sample_dimension": sample} if contiguous else {}
            n_instances = _length(group, self.instance) or 1
            counts = np.full(n_instances, n_samples, np.int64)
            made[name] = VirtualArray.from_numpy(counts, (self.instance,), attrs)
        return made

    def _counts(self, group: VirtualGroup) -> dict[str, VirtualArray]:
        """Variables that say how many samples each instance has."""
        return {
            name: array for name, array in group.arrays.items() if _counted(array) in self.samples
        }

    def _indexed(self, group: VirtualGroup) -> set[str]:
        """Dimensions of samples that have an index of instances."""
        return {
            array.dims[0]
            for array in group.arrays.values()
            if array.ndim == 1 and text_of(array.attrs, "instance_dimension") == self.instance
        }

    def _renamed(self, array: VirtualArray, sample: str, group: VirtualGroup) -> VirtualArray:
        """An array whose samples go by a name that no variable has.

        Labels that were the dimension's own are named as coordinates then.
        """
        name = self.shown.get(sample, sample)
        if name == sample:
            return array
        dims = tuple(name if dim == sample else dim for dim in array.dims)
        attrs = dict(array.attrs)
        if group.arrays.get(sample) is not None and array.dims != group.arrays[sample].dims:
            others = str(attrs.get("coordinates", "")).split()
            attrs["coordinates"] = " ".join(dict.fromkeys([*others, sample]))
        return array.with_changes(dims=dims, attrs=attrs)


def find_instances(
    groups: Iterable[VirtualGroup],
    samples: Sequence[str] = (),
    instance: str | None = None,
) -> tuple[Instances, Iterator[VirtualGroup]]:
    """Find the dimensions that differ in length between inputs; also return the inputs.

    Attributes of an input decide (``sample_dimension``, ``instance_dimension``). Without them,
    these are the dimensions with different lengths in two inputs.
    """
    inputs = iter(groups)
    seen = list(itertools.islice(inputs, 1))
    if not seen:
        raise InvalidRequestError("nothing to combine: no inputs")
    first = seen[0]
    said, said_instance = _said(first)
    dims = tuple(samples) or said
    while not dims and (group := next(inputs, None)) is not None:
        seen.append(group)
        dims = _differing(first, group)
    dims = dims or tuple(first.unlimited_dims)
    name = instance or said_instance or _outer(first, dims)
    dims = tuple(dim for dim in dims if dim != name)
    if not dims:
        raise InvalidRequestError(
            Message(
                "all inputs have the same length, so a ragged layout is not needed: name the "
                "dimension of the samples (",
                Option("concat_dim", "obs"),
                "), or choose another layout",
            )
        )
    labels = {name for _, part in first.walk() for name in part.arrays}
    shown = {dim: "obs" if len(dims) == 1 else f"{dim}_obs" for dim in dims if dim in labels}
    return Instances(dims, name or _feature(first), shown), itertools.chain(seen, inputs)


def _differing(first: VirtualGroup, other: VirtualGroup) -> tuple[str, ...]:
    """Dimensions that have another length in an input than in the first one."""
    lengths = _lengths(first)
    return tuple(dim for dim, length in _lengths(other).items() if length != lengths.get(dim))


def _outer(group: VirtualGroup, dims: Sequence[str]) -> str | None:
    """Of dimensions that differ, the one whose elements have the others: that of instances."""
    for array in group.all_arrays().values():
        own = [dim for dim in array.dims if dim in dims]
        if len(own) > 1:
            return own[0]
    return None


def _said(group: VirtualGroup) -> tuple[tuple[str, ...], str | None]:
    """Dimensions of samples and instances that an input names."""
    samples: dict[str, None] = {}
    instance = None
    for array in group.all_arrays().values():
        if array.ndim != 1:
            continue
        if (sample := _counted(array)) is not None:
            samples[sample], instance = None, array.dims[0]
        if isinstance(named := array.attrs.get("instance_dimension"), str):
            samples[array.dims[0]], instance = None, named
    return tuple(samples), instance


def _counted(array: VirtualArray) -> str | None:
    """The dimension whose samples an array counts."""
    sample = array.attrs.get("sample_dimension")
    return sample if isinstance(sample, str) and array.ndim == 1 else None


def _held_counts(array: VirtualArray, values: Values) -> Int64Array:
    """Numbers of samples; 0 where there is no number."""
    counts = values.of(array).astype(np.int64)
    return np.where(np.isin(counts, [*Packing.of(array).fills]), 0, counts)


def _feature(group: VirtualGroup) -> str:
    """What an instance is, as the ``featureType`` attribute has it (CF conventions, 9.4)."""
    feature = group.attrs.get("featureType")
    return feature if isinstance(feature, str) and feature.isidentifier() else DEFAULT_INSTANCE


def _lengths(group: VirtualGroup) -> dict[str, int]:
    return {
        dim: length
        for array in group.all_arrays().values()
        for dim, length in zip(array.dims, array.shape, strict=True)  # of every file: no `sizes`
    }


def _length(group: VirtualGroup, dim: str) -> int | None:
    """Length of a dimension of the arrays right in a group; None if none has it."""
    held = [a.shape[a.dims.index(dim)] for a in group.arrays.values() if dim in a.dims]
    return held[-1] if held else None


# Padded archives: a row for each instance, as long as the longest


@dataclass(frozen=True, eq=False)
class Padded(Placement):
    """Each file in rows of its own, from their beginning; what is behind their ends is missing.

    The first of the dimensions is that of the rows, and the others are those of samples.
    """

    pads: bool = True

    def dims_of_files(self, column: Column, task: Task) -> tuple[str, ...]:
        return self.growing[:1]

    def at_level(self, columns: Mapping[str, Column], lengths: Lengths, task: Task) -> Padded:
        """The placement of a group, whose files are as long as they are there."""
        instance, *samples = self.growing
        files = range(max(max(known, default=-1) for known in lengths.values()) + 1)
        stops = [*itertools.accumulate(lengths[instance].get(file, 0) for file in files)]
        runs = {instance: Runs.whole(files, [0, *stops[:-1]], stops[-1])}
        for dim in samples:
            longest = max(lengths[dim].values(), default=0)
            runs[dim] = Runs.whole(files, [0] * len(files), longest)
        return replace(self, runs=runs)

    def with_dims(
        self, column: Column, dims: Sequence[str], lengths: Lengths, task: Task
    ) -> Column | None:
        """Repeat attributes along the instances; else note a problem."""
        instance = self.growing[0]
        if column.path in task.notes.told:
            return repeated_along(column, instance, lengths[instance])
        cases = column.cases(lambda kind: str(kind.array.dims))
        advice = Message(
            "leave it out, or name the dimensions that differ in length (",
            Option("concat_dim"),
            ")",
        )
        task.notes.conflict("dimensions-differ", column.path, "dimensions", cases, advice)
        return None


# Ragged archives: all samples one after the other


def combine_ragged(
    groups: Iterable[VirtualGroup],
    *,
    samples: Sequence[str] = (),
    instance: str | None = None,
    padded: bool = False,
    read: Read | None = None,
    options: CombineOptions | None = None,
) -> Combination:
    """Combine inputs of differing length and report what differed, without raising.

    Parameters
    ----------
    groups
        The inputs, in order. An iterator is taken in batches, and no input is kept once it is known
        what differs.
    samples, instance
        As for `find_instances`.
    padded
        Whether each instance gets a row, as long as the longest; else all samples are one after the
        other, and ``row_size`` has the number of each instance's.

    Raises
    ------
    InvalidRequestError
        For no inputs; or if nothing differs in length and nothing says what might.
    """
    rules = options or CombineOptions()
    dims, every = find_instances(groups, samples, instance)
    problems: list[Problem] = []
    inputs = _fitting(dims, every, problems, padded=padded)
    first = next(inputs, None)
    if first is None:
        return Combination(None, DriftReport(()), tuple(problems))
    inputs = itertools.chain([first], inputs)
    if padded:
        values = Values(read)
        parts = (dims.padded(part, rules) for group in inputs for part in dims.split(group, values))
        shown = (dims.shown.get(dim, dim) for dim in dims.samples)
        done = combine(parts, Padded((dims.instance, *shown)), read=read, options=rules)
    else:
        whole = (dims.contiguous(group, rules) for group in inputs)
        rows = Along((*dims.samples, dims.instance), counts_files=True)
        done = combine(whole, rows, read=read, options=rules)
    if problems:
        return Combination(None, done.report, grouped([*problems, *done.problems]))
    return done


def _fitting(
    dims: Instances, inputs: Iterable[VirtualGroup], problems: list[Problem], *, padded: bool
) -> Iterator[VirtualGroup]:
    """The inputs that have a place; problems of the others are noted."""
    for number, group in enumerate(inputs):
        reason = dims.obstacle(group, padded=padded)
        if reason is None:
            yield group
        else:
            path, message = reason
            name = source_name(group) or f"input {number + 1}"
            problems.append(Problem("dimensions-differ", message, path, (name,)))
