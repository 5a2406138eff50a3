"""Archives of trajectories, profiles or swaths, each of another length, as one ragged array.

CF conventions 1.11, chapter 9 "Discrete Sampling Geometries".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from gridref.combine.concatenation import combine_batch
from gridref.combine.folding import combine, fold
from gridref.combine.instances import find_instances
from gridref.combine.options import CombineOptions, Read
from gridref.combine.padded import Padded
from gridref.combine.report import Combination
from gridref.combine.values import Values
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
        For no inputs; if nothing differs in length and nothing says what might; or for inputs that
        hold several instances side by side, which only rows can show.
    """
    rules = options or CombineOptions()
    dims, inputs = find_instances(groups, samples, instance)
    if not padded:
        whole = (dims.contiguous(group, rules) for group in inputs)
        return combine(whole, (*dims.samples, dims.instance), read=read, options=rules)
    values = Values(read)
    rows = (dims.padded(part, rules) for group in inputs for part in dims.split(group, values))
    layout = Padded(dims.instance, tuple(dims.shown.get(dim, dim) for dim in dims.samples))
    done = fold(rows, partial(combine_batch, layout=layout, read=read, options=rules))
    return done.telling_what_is_left_out()
