"""Archives of trajectories, profiles or swaths, each of another length, as one ragged array.

CF conventions 1.11, chapter 9 "Discrete Sampling Geometries".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from gridref.combine.columns import source_name
from gridref.combine.concatenation import combine_batch
from gridref.combine.folding import combine, fold
from gridref.combine.instances import Instances, find_instances
from gridref.combine.options import CombineOptions, Read
from gridref.combine.padded import Padded
from gridref.combine.report import Combination, DriftReport, grouped
from gridref.combine.values import Values
from gridref.errors import Problem
from gridref.model.array import VirtualGroup

__all__ = ["combine_ragged"]


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
    samples
        Dimensions whose lengths differ. By default what the first input says, by
        ``sample_dimension`` or ``instance_dimension`` attributes; else those that have different
        lengths in two inputs; else the unlimited ones.
    instance
        Dimension that counts the inputs. By default the first input's, or what its ``featureType``
        says.
    padded
        Whether each instance gets a row, as long as the longest; else all samples lie one after the
        other, and ``row_size`` has the number of each instance's.
    read, options
        As for `gridref.combine.combine`.

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
    done = _laid(dims, itertools.chain([first], inputs), read, rules, padded=padded)
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


def _laid(
    dims: Instances,
    inputs: Iterable[VirtualGroup],
    read: Read | None,
    rules: CombineOptions,
    *,
    padded: bool,
) -> Combination:
    if not padded:
        whole = (dims.contiguous(group, rules) for group in inputs)
        return combine(whole, (*dims.samples, dims.instance), read=read, options=rules)
    values = Values(read)
    rows = (dims.padded(part, rules) for group in inputs for part in dims.split(group, values))
    layout = Padded(dims.instance, tuple(dims.shown.get(dim, dim) for dim in dims.samples))
    done = fold(rows, partial(combine_batch, layout=layout, read=read, options=rules))
    return done.telling_what_is_left_out()
