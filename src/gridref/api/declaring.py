"""Declare labels ahead of their files: arrays without data that stand in for the files."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gridref.api.decoding import decoded_values
from gridref.catalog.document import joined_ranges
from gridref.catalog.growth import Span
from gridref.combine.options import Read
from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.blocks import BlockTable
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.model.scan_report import ScanReport

Ranges = tuple[tuple[int, int], ...]


def declared_groups(
    group: VirtualGroup, dim: str, labels: ArrayLike, read: Read
) -> list[VirtualGroup]:
    """Groups without data for labels that a catalog does not have, each of labels side by side.

    Parameters
    ----------
    labels
        Labels of the index coordinate as xarray shows it: numbers, datetime64 or cftime. Those that
        are there already are left out.
    read
        Reads all values of an array.

    Raises
    ------
    InvalidRequestError
        If the dimension has no index coordinate, or its dtype cannot hold the labels.
    """
    import pandas as pd

    index = group.arrays.get(dim)
    if index is None or index.dims != (dim,) or not index.size:
        raise InvalidRequestError(
            f"{dim!r} cannot be declared ahead: no coordinate {dim!r} holds labels along it"
        )
    stored = read(index)
    known = pd.Index(decoded_values(dim, stored, index))
    raw = _stored(dim, labels, index)
    shown = pd.Index(decoded_values(dim, raw, index))
    new = ~shown.isin(known) & ~shown.duplicated()
    falls = len(known) > 1 and bool(known[-1] < known[0])
    order = np.flatnonzero(new)[np.argsort(np.asarray(shown[new]))]
    order = order[::-1] if falls else order
    if not order.size:
        return []
    ahead = np.asarray(known[::-1] if falls else known)
    cuts = np.searchsorted(ahead, np.asarray(shown[order]))
    runs = np.split(order, np.flatnonzero(np.diff(cuts)) + 1)
    return [_without_data(group, dim, raw[run]) for run in runs]


def labels_between(
    group: VirtualGroup, dim: str, first: str, last: str, step: str, read: Read
) -> NDArray[Any]:
    """Labels of a coordinate from one to another, both included, in steps, out of texts.

    Parameters
    ----------
    group, dim, read
        As for `declared_groups`.
    first, last
        Dates where the coordinate holds times, else numbers.
    step
        A frequency as pandas writes it, like ``6h``, or a number.

    Raises
    ------
    InvalidRequestError
        If they are none, or there are no labels between them.
    """
    import xarray as xr

    index = group.arrays.get(dim)
    try:
        shown = np.zeros(0) if index is None else decoded_values(dim, read(index), index)
        if index is None or shown.dtype.kind in "iuf":
            low, high, by = float(first), float(last), float(step)
            labels = low + by * np.arange(int((high - low) / by + 1.5))
        else:
            calendar = str(index.attrs.get("calendar", "standard"))
            is_cftime = shown.dtype.kind != "M"
            dates = xr.date_range(first, last, freq=step, calendar=calendar, use_cftime=is_cftime)
            labels = np.asarray(dates)
    except (ValueError, TypeError, ZeroDivisionError) as error:
        raise InvalidRequestError(f"labels from {first} to {last} by {step}: {error}") from error
    if not labels.size:
        raise InvalidRequestError(f"there are no labels from {first} to {last} by {step}")
    return labels


def _stored(dim: str, labels: ArrayLike, index: VirtualArray) -> NDArray[Any]:
    """Labels as the coordinate stores them."""
    wanted = np.atleast_1d(np.asarray(labels))
    names = ("units", "calendar", "scale_factor", "add_offset", "_FillValue")
    encoding = {name: index.attrs[name] for name in names if name in index.attrs}
    import xarray as xr

    variable = xr.Variable((dim,), wanted, encoding={**encoding, "dtype": index.dtype})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other units than asked for: compared below
            raw = np.asarray(xr.conventions.encode_cf_variable(variable, name=dim).values)
        raw = raw.astype(index.dtype)
        kept = decoded_values(dim, raw, index)
        alike = np.array_equal(kept, np.asarray(xr.Variable(dim, wanted)))
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidRequestError(
            f"the labels of {dim!r} do not fit the type that the catalog keeps: {error}"
        ) from error
    if not alike:
        raise InvalidRequestError(
            f"labels of {dim!r} are not the same as {index.dtype} in {index.attrs.get('units')!r}"
        )
    return raw


def _without_data(group: VirtualGroup, dim: str, labels: NDArray[Any]) -> VirtualGroup:
    """A group like the catalog with some labels, one block for each, and no data."""
    index = group.arrays[dim]

    def empty(path: str, array: VirtualArray) -> VirtualArray:
        if path == dim:
            return _labelled(index, labels)
        return _absent(array, dim, len(labels)) if dim in array.dims else array

    return group.with_each_array(empty).with_changes(report=ScanReport())


def _absent(array: VirtualArray, dim: str, n: int) -> VirtualArray:
    axes = list(array.grid.axes)
    axes[array.dims.index(dim)] = GridAxis.from_edges(np.ones(n, np.int64))
    grid = ChunkGrid(tuple(axes))
    blocks = BlockTable.missing(grid.n_chunks, grid.ndim)
    return array.with_changes(grid=grid, encodings=(), manifests=(), blocks=blocks)


def _labelled(index: VirtualArray, labels: NDArray[Any]) -> VirtualArray:
    """Labels kept inline in one piece, with a block for each: files may replace some of them."""
    whole = VirtualArray.from_numpy(labels, index.dims, index.attrs, index.fill_value)
    n = len(labels)
    one = whole.blocks.take(np.zeros(n, np.int64))
    columns = {**vars(one), "origin": np.arange(n).reshape(n, 1)}
    grid = ChunkGrid((GridAxis.from_edges(np.ones(n, np.int64)),))
    return whole.with_changes(grid=grid, blocks=BlockTable(**columns))


def claimed(
    base: VirtualGroup, groups: Sequence[VirtualGroup], dim: str, pending: Ranges, read: Read
) -> list[tuple[int, int]]:
    """Elements that are no longer pending once some files are added, by label."""
    index = base.arrays.get(dim)
    if not pending or index is None:
        return []
    import pandas as pd

    theirs = pd.Index(decoded_values(dim, read(index), index))
    waits = np.zeros(len(theirs), bool)
    for start, stop in pending:
        waits[start:stop] = True
    found: list[int] = []
    for group in groups:
        array = group.arrays.get(dim)
        if array is not None and array.size:
            own = pd.Index(decoded_values(dim, read(array), array))
            at = theirs.get_indexer_non_unique(own)[0]  # labels of a stranger may repeat
            found += [i for i in at.tolist() if i >= 0 and waits[i]]
    return list(joined_ranges((i, i + 1) for i in {*found}))


def pending_after(
    pending: Ranges, inputs: Sequence[Span | VirtualGroup], dim: str, declared: Sequence[Any] = ()
) -> Ranges:
    """The places of pending elements after inputs have been concatenated."""
    reached, found = 0, []
    for each in inputs:
        if isinstance(each, Span):
            for start, stop in pending:
                low, high = max(start, each.start), min(stop, each.stop)
                if low < high:
                    found.append((reached + low - each.start, reached + high - each.start))
            reached += each.stop - each.start
            continue
        lengths = (a.shape[a.dims.index(dim)] for a in each.all_arrays().values() if dim in a.dims)
        n = next(lengths, 0)
        if any(each is group for group in declared):
            found.append((reached, reached + n))
        reached += n
    return joined_ranges(found)
