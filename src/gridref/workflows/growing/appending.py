"""Catalogs that grow: files are combined with what is there, and what is new is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gridref.catalog.commits import Base
from gridref.catalog.growth import BEFORE, NEW, GrownArray, grown, written
from gridref.catalog.pending import Pending
from gridref.catalog.reuse import reused
from gridref.catalog.standing import (
    Span,
    WholeNeededError,
    is_standing,
    standing_groups,
    values_of_standing,
)
from gridref.combine import Combination, combine
from gridref.combine.options import Read
from gridref.combine.values import Values
from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.indexing import isel_group
from gridref.model.label_ends import LabelEnds
from gridref.model.scan_report import Fate, Finding, ScanReport
from gridref.workflows.building import Job, with_drifts
from gridref.workflows.growing.declaring import claimed, declared_groups, pending_after
from gridref.workflows.growing.places import Arrangement, At, arranged
from gridref.workflows.layout.inventory import with_inventory
from gridref.workflows.layout.layouts import in_one_chunk

__all__ = ["Grown", "added", "combined", "declared", "with_dim"]


@dataclass(frozen=True, eq=False)
class Grown:
    """What becomes of a catalog.

    Attributes
    ----------
    group
        The tree of groups.
    arrays
        Every array.
    pending
        Elements that were declared, and that no file holds.
    ends
        What is known of the labels.
    """

    group: VirtualGroup
    arrays: Mapping[str, GrownArray]
    pending: Pending = field(default_factory=dict)
    ends: LabelEnds = field(default_factory=dict)


def added(
    base: Base, new: Sequence[tuple[str, VirtualGroup]], job: Job, at: At, read: Read
) -> Grown:
    """What becomes of a catalog with more files.

    Parameters
    ----------
    new
        Scanned files with their addresses.
    at
        Where they go.
    read
        Reads all values of an array.

    Raises
    ------
    CombineError
        With every problem, where they do not fit.
    """
    dim = job.layout.stack or job.layout.concat_dim
    grows = isinstance(dim, str) and not job.layout.mosaic and job.layout.layout is None
    if base.root.snapshot.pending and (job.layout.is_cube(base.group) or not grows):
        raise InvalidRequestError(
            "files are laid by other rules than along one dimension, while labels of"
            f" {' and '.join(base.root.snapshot.pending)} are declared ahead"
        )
    if job.layout.is_cube(base.group):
        return _cube(base, new, job, read)
    if not isinstance(dim, str) or not grows:
        before = base.group.replace(report=_of_catalog(base))
        named = job.layout.tiles if job.layout.mosaic else job.layout.labelled
        labelled = list(named(new))
        return combined_whole(base, before, labelled, job, read)
    read = Values(read).of  # labels are looked at for their places, and by the rules
    groups = with_dim(new, dim, job, read)
    without = claimed(base.group, groups, dim, base.root.snapshot.pending.get(dim, ()), read)
    laid = arranged(base.group, groups, dim, at, read, base.root.snapshot.ends, without)
    return combined(base, base.group, laid, dim, job, read)


def _cube(base: Base, new: Sequence[tuple[str, VirtualGroup]], job: Job, read: Read) -> Grown:
    """A catalog of files by their labels along several dimensions, and more such files.

    Those whose names sort before all that are there are combined first, as in building at once:
    what inputs share is taken from the first.
    """
    layout, _ = with_inventory(job.layout, [file for file, _ in new], job.scanning.storage_options)
    there = [source.url for source in base.group.source_list]
    n_front = 0
    with suppress(InvalidRequestError):  # what files point to need not have such names
        place = {file: i for i, file in enumerate(layout.ordered([*there, *dict(new)]))}
        new = sorted(new, key=lambda item: place[item[0]])
        first = min((place[file] for file in there), default=0)
        n_front = sum(place[file] < first for file, _ in new)
    before = base.group.replace(report=_of_catalog(base))
    return _reusing(layout.combine_cube(new, read, job.rules, [before], n_front), base)


def declared(base: Base, dim: str, labels: ArrayLike, job: Job, read: Read) -> Grown | None:
    """What becomes of a catalog with labels whose files are still to come; None if it has all."""
    grows = job.layout.stack or job.layout.concat_dim
    if grows != dim or job.layout.layout is not None or job.layout.mosaic:
        raise InvalidRequestError(f"the catalog grows along {grows!r}, not {dim!r}")
    groups = declared_groups(base.group, dim, labels, read)
    if not groups:
        return None
    laid = arranged(base.group, groups, dim, "label", read, base.root.snapshot.ends)
    return combined(base, base.group, laid, dim, job, read, declared=groups)


def combined(
    base: Base,
    shown: VirtualGroup,
    laid: Arrangement,
    dim: str,
    job: Job,
    read: Read,
    *,
    declared: Sequence[VirtualGroup] = (),
) -> Grown:
    """Combine spans of a catalog and files, seeing as little of the catalog as the rules allow.

    Parameters
    ----------
    shown
        What it holds; arrays without the dimension may be others.
    laid
        The spans and the files, in order.
    dim, job, read
        As for `added`.
    declared
        Those of the inputs that only declare labels.
    """
    waiting = base.root.snapshot.pending
    inputs, in_order = laid.inputs, laid.in_order
    if not in_order and (declared or dim in waiting):
        raise InvalidRequestError(
            f"labels of {dim!r} do not follow each other between those that are there, while some"
            " are declared ahead: give files whose labels do"
        )
    ranges = pending_after(waiting.get(dim, ()), inputs, dim, declared)
    pending = {
        **{d: r for d, r in waiting.items() if d != dim},
        **({dim: ranges} if ranges else {}),
    }
    try:
        if base.root.format_version == 1 or not in_order:
            raise WholeNeededError("rows without an index, or labels that overlap")
        done = _standing_in(base, shown, inputs, dim, job, read)
        return replace(done, pending=pending, ends=laid.ends)
    except WholeNeededError:
        said = _of_catalog(base)
        ordered = [
            _part(shown, each, dim).replace(report=said) if isinstance(each, Span) else each
            for each in inputs
        ]
        whole = combined_whole(base, None, ordered, job, read)
        return replace(whole, pending=pending)


def _of_catalog(base: Base) -> ScanReport:
    """What names the catalog among the inputs of a combination."""
    return ScanReport((Finding("/", Fate.NAMED, "", base.group.info.url),))


def _reusing(done: Combination, base: Base) -> Grown:
    """What is combined with a catalog as a whole: blocks that went through it stay where they are.

    Rows of format version 1 have no index, and are written.
    """
    group = with_drifts(done, base.group.info.url)
    arrays = group.all_arrays().items()
    if base.root.format_version == 1:
        return Grown(group, {path: written(array) for path, array in arrays}, ends=done.ends)
    before = base.group.all_arrays()
    found = {path: reused(array, before.get(path)) for path, array in arrays}
    return Grown(group, found, ends=done.ends)


def combined_whole(
    base: Base,
    before: VirtualGroup | None,
    groups: Sequence[VirtualGroup],
    job: Job,
    read: Read,
) -> Grown:
    """Combine groups, of which a catalog or parts of it are some, as they are."""
    every = [*([before] if before is not None else []), *groups]
    if job.layout.mosaic:
        done = job.layout.combine_mosaic(every, read, job.rules, job.mosaic)
    elif job.layout.layout is not None:
        done = job.layout.combine_ragged(every, read, job.rules)
    else:
        dim = job.layout.stack or job.layout.concat_dim
        if dim is None:
            raise InvalidRequestError(
                "the catalog does not say how its files were combined: name the dimension to add"
                " files along (concat_dim='time')"
            )
        done = combine(every, dim, read=read, options=job.rules)
        if done.group is not None and job.layout.keeps_labels_whole:
            done = replace(done, group=in_one_chunk(done.group, str(dim), read))
    return _reusing(done, base)


def _standing_in(
    base: Base,
    shown: VirtualGroup,
    inputs: Sequence[Span | VirtualGroup],
    dim: str,
    job: Job,
    read: Read,
) -> Grown:
    """Combine files with what stands for the catalog, so that its tables go on as they are."""
    spans = [each for each in inputs if isinstance(each, Span)]
    said = _of_catalog(base)
    standing = iter(standing_groups(shown, dim, spans))
    groups = [
        next(standing).replace(report=said) if isinstance(each, Span) else each for each in inputs
    ]

    def read_any(array: VirtualArray) -> NDArray[Any]:
        return values_of_standing(array) if is_standing(array) else read(array)

    done = combine(groups, dim, read=read_any, options=job.rules)
    group = with_drifts(done, base.group.info.url)
    before = base.group.all_arrays()
    edges = _edges(before, dim)
    lengths = [each if isinstance(each, Span) else _length(each, dim) for each in inputs]
    arrays = {
        path: grown(array, before.get(path), dim, lengths, edges)
        for path, array in group.all_arrays().items()
    }
    if job.layout.keeps_labels_whole and arrays[dim].laid is not None:
        arrays[dim] = written(_in_one_chunk(arrays[dim], before[dim], read))
    return Grown(group, arrays)


def _in_one_chunk(labels: GrownArray, before: VirtualArray, read: Read) -> VirtualArray:
    """Labels of a catalog and of new files as one chunk, as they are read together."""
    values, edges = {BEFORE: read(before)}, {BEFORE: before.grid.axes[0]}
    if labels.new is not None:
        values[NEW], edges[NEW] = read(labels.new), labels.new.grid.axes[0]
    parts = []
    for segment in labels.laid or ():
        low, n = segment.first[0], segment.shape[0]
        starts = np.cumsum([0, *edges[segment.part].edges()])
        parts.append(values[segment.part][starts[low] : starts[low + n]])
    return VirtualArray.from_numpy(np.concatenate(parts), before.dims, labels.shown.attrs)


def _edges(arrays: Mapping[str, VirtualArray], dim: str) -> NDArray[np.int64]:
    """Edge lengths along a dimension: of all arrays that have it, the most."""
    axes = [
        array.grid.axes[array.dims.index(dim)] for array in arrays.values() if dim in array.dims
    ]
    if len({axis.extent for axis in axes}) != 1:
        raise WholeNeededError("a dimension of several lengths")
    return max(axes, key=lambda axis: axis.n_chunks).edges()


def _length(group: VirtualGroup, dim: str) -> int:
    for array in group.all_arrays().values():
        if dim in array.dims:
            return array.shape[array.dims.index(dim)]
    return 0


def _part(root: VirtualGroup, span: Span, dim: str) -> VirtualGroup:
    """Some elements of a catalog along a dimension."""
    plain = VirtualGroup(root.arrays, root.groups, root.attrs, unlimited_dims=root.unlimited_dims)
    return isel_group(plain, {dim: slice(span.start, span.stop)})


def with_dim(
    new: Sequence[tuple[str, VirtualGroup]], dim: str, job: Job, read: Read
) -> list[VirtualGroup]:
    """The files' groups, each along the dimension, in order of labels that names have."""
    if job.layout.stack is None:
        return [
            group
            if _has(group, dim)
            else combine([group], dim, read=read, options=job.rules).unwrap()
            for _, group in new
        ]
    ordered = job.layout.ordered([file for file, _ in new])
    order = {file: number for number, file in enumerate(ordered)}
    return [
        job.layout.laid_out([item], read, job.rules, job.mosaic).unwrap()
        for item in sorted(new, key=lambda item: order[item[0]])
    ]


def _has(group: VirtualGroup, dim: str) -> bool:
    return any(dim in array.dims for array in group.all_arrays().values())
