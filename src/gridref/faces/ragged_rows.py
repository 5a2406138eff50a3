"""Find the ragged rows of a group: their lengths, and which of them a slice takes."""

from __future__ import annotations

import numpy as np

from gridref.model.array import VirtualArray, VirtualGroup
from gridref.typing import Int64Array


def row_lengths(held: VirtualGroup, array: VirtualArray) -> Int64Array | None:
    """int64 (rows,), samples of each row along the first dimension of an array.

    A variable of the group counts them whose attribute ``sample_dimension`` names that dimension
    (CF conventions 1.11, section 9.3.3); None if there is none.
    """
    for counts in held.arrays.values():
        if counts.ndim == 1 and counts.attrs.get("sample_dimension") == array.dims[0]:
            lengths: Int64Array = counts.read().astype(np.int64)
            if int(lengths.sum()) == array.shape[0]:
                return lengths
    return None


def span(n_rows: int, rows: slice | None) -> tuple[int, int, slice]:
    """The first row to read, the one behind the last, and what to take of those that are read."""
    chosen = range(n_rows)[slice(None) if rows is None else rows]
    first, last = sorted((chosen[0], chosen[-1])) if chosen else (0, -1)
    return first, last + 1, slice(None, None, chosen.step)
