"""Which bytes of an uncompressed chunk a selection needs. Pure: no I/O.

A file's contiguous variable is one chunk, however large; one point of it is a few bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gridref.model.encoding import Encoding
from gridref.typing import Int64Array

__all__ = ["LEAST_BYTES", "Runs", "runs_of"]


LEAST_BYTES = 256 * 2**10
"""Smaller chunks are read whole: their parts cost as much to ask for."""
MOST_RUNS = 65_536
"""With more runs than this, chunks are read whole."""
RUN_BYTES = 4096
"""What can be read in the time that one more run takes."""


@dataclass(frozen=True, eq=False)
class Runs:
    """Bytes side by side in a chunk, of equal length; in order, they are the selected elements.

    Attributes
    ----------
    shape
        Shape of what is selected.
    offset
        int64 (n_runs,), first byte of each run in the chunk.
    n_bytes
        Size of each run.
    is_whole
        Whether it is the whole chunk.
    """

    shape: tuple[int, ...]
    offset: Int64Array
    n_bytes: int
    is_whole: bool = False


def runs_of(
    encoding: Encoding, shape: tuple[int, ...], stored_bytes: int, index: tuple[Any, ...]
) -> Runs | None:
    """The runs of a selection of a chunk, or None where the chunk is better read whole.

    Parameters
    ----------
    encoding
        That of the chunk.
    stored_bytes
        Its size in the file.
    index
        What is selected, as numpy takes it: slices, an open mesh, or the coords of points.
    """
    item_bytes = encoding.dtype.itemsize
    is_plain = [codec.name for codec in encoding.codecs] == ["bytes"] and not encoding.prefix
    if not is_plain or not shape or stored_bytes != math.prod(shape) * item_bytes:
        return None
    if all(isinstance(part, slice) for part in index):
        runs = _of_slices(shape, index)
    else:
        runs = _of_arrays(shape, index)
    if runs is None:
        return None
    n_bytes = runs.n_bytes * item_bytes
    if len(runs.offset) > 1 and len(runs.offset) * (n_bytes + RUN_BYTES) > stored_bytes:
        return None
    return Runs(runs.shape, runs.offset * item_bytes, n_bytes, n_bytes == stored_bytes)


def _of_slices(shape: tuple[int, ...], index: tuple[slice, ...]) -> Runs | None:
    """Runs counted in elements: along the last axes as far as what is selected lies together."""
    ranges = [range(*part.indices(length)) for part, length in zip(index, shape, strict=True)]
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    selected = tuple(map(len, ranges))
    inner, together = len(shape), 1
    while inner and ranges[inner - 1].step == 1:
        inner -= 1
        together *= selected[inner]
        if selected[inner] != shape[inner]:
            break
    if math.prod(selected[:inner]) > MOST_RUNS:
        return None
    offset = np.zeros((1,) * inner, np.int64)
    for axis, (along, stride) in enumerate(zip(ranges[:inner], strides, strict=False)):
        starts = np.array(along, np.int64) * stride
        offset = offset + starts.reshape([-1 if other == axis else 1 for other in range(inner)])
    first = sum(r.start * n for r, n in zip(ranges[inner:], strides[inner:], strict=True))
    return Runs(selected, offset.reshape(-1) + first, together)


def _of_arrays(shape: tuple[int, ...], index: tuple[Any, ...]) -> Runs | None:
    """Single elements."""
    selected = np.broadcast_shapes(*(np.shape(part) for part in index))
    if math.prod(selected) > MOST_RUNS:
        return None
    starts = np.ravel_multi_index(tuple(np.broadcast_arrays(*index)), shape)
    return Runs(selected, np.asarray(starts, np.int64).reshape(-1), 1)
