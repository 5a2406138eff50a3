"""Change a catalog: append, replace, remove and rebuild.

Functions take an opened catalog and scanned files, and return what the catalog becomes (`Grown`).
Usually only new files are scanned and only new rows are written.

Some catalogs are rebuilt from all their files instead: the files are scanned again, which reads
metadata only, and all rows are written. Plates, padded rows, mosaics of several grids and groups by
kind cannot be combined with more files, so every change rebuilds them. Mosaics, other rows and
files along several dimensions are rebuilt when a file is replaced or removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from gridref.api.building import Job, with_drifts
from gridref.api.declaring import claimed, declared_groups, pending_after
from gridref.api.layout.discovery import laid_out_by_itself
from gridref.api.layout.layouts import InARow, Stack
from gridref.api.layout.listings import with_inventory
from gridref.api.layout.sources import Contradicted
from gridref.api.places import Arrangement, At, arranged
from gridref.catalog.commit import Base
from gridref.catalog.document import Pending
from gridref.catalog.group import CatalogGroup
from gridref.catalog.growth import (
    BEFORE,
    NEW,
    GrownArray,
    Span,
    WholeNeededError,
    grown,
    is_standing,
    reused,
    standing_group,
    values_of_standing,
    written,
)
from gridref.catalog.listing import list_chunks
from gridref.catalog.writing import recounted
from gridref.combine import Combination, combine
from gridref.combine.options import Read
from gridref.combine.values import Values
from gridref.errors import CombineError, InvalidRequestError, Message, Option, Place
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.conventions import LabelEnds
from gridref.model.indexing import isel_group
from gridref.model.scan_report import Fate, Finding, ScanReport
from gridref.secrets import without_signature

# Append: files are combined with the catalog


@dataclass(frozen=True, eq=False)
class Grown:
    """The content of a catalog after a change.

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
    """Add files to a catalog.

    Parameters
    ----------
    new
        Scanned files with their addresses.
    at
        Where to put the files. If the catalog's files are in the given order, they go to the end.
    read
        Reads all values of an array.

    Raises
    ------
    CombineError
        With every problem, where they do not fit.
    """
    files, storage_options = [file for file, _ in new], job.scanning.storage_options
    way, _ = with_inventory(job.way, job.dims, files, storage_options)
    is_cube, dim = way.is_cube(base.group, job.dims), way.grows_along(job.dims)
    if base.root.snapshot.pending and (is_cube or dim is None):
        raise InvalidRequestError(
            "the files of the catalog are not in sequence along one dimension, while labels of"
            f" {' and '.join(base.root.snapshot.pending)} are declared ahead"
        )
    if isinstance(way, InARow) and is_cube:
        return _cube(base, new, way, job, read)
    if dim is None:
        before = base.group.with_changes(report=_of_catalog(base))
        noted = Contradicted(read)
        labelled = list(way.labelled(new, noted))
        return combined_whole(base, [before, *labelled], job, read, noted)
    if job.order == "given" and at == "label":
        at = "end"
    read = Values(read).of  # labels are looked at for their places, and by the rules
    groups = with_dim(new, dim, job, read)
    without = claimed(base.group, groups, dim, base.root.snapshot.pending.get(dim, ()), read)
    laid = arranged(base.group, groups, dim, at, read, base.root.snapshot.ends, without)
    return combined(base, base.group, laid, dim, job, read)


def _cube(
    base: Base, new: Sequence[tuple[str, VirtualGroup]], way: InARow, job: Job, read: Read
) -> Grown:
    """A catalog of files by their labels along several dimensions, and more such files.

    Those whose names sort before all that are there are combined first, as in building at once:
    what inputs share is taken from the first.
    """
    there = [source.url for source in base.group.source_list]
    n_front = 0
    with suppress(InvalidRequestError):  # what files point to need not have such names
        place = {file: i for i, file in enumerate(way.ordered([*there, *dict(new)]))}
        new = sorted(new, key=lambda item: place[item[0]])
        first = min((place[file] for file in there), default=0)
        n_front = sum(place[file] < first for file, _ in new)
    before = base.group.with_changes(report=_of_catalog(base))
    return _reusing(way.cube(new, job.combining(read), [before], n_front), base)


def declared(base: Base, dim: str, labels: ArrayLike, job: Job, read: Read) -> Grown | None:
    """Add labels whose files are still to come; None if the catalog has all of them."""
    grows = job.way.grows_along(job.dims)
    if grows != dim:
        along = grows or list(job.dims) or None
        raise InvalidRequestError(f"the catalog grows along {along!r}, not {dim!r}")
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
            f"the labels of {dim!r} in these files do not fit in one piece between those of the "
            "catalog, which has labels declared ahead: add files with consecutive labels"
        )
    ranges = pending_after(waiting.get(dim, ()), inputs, dim, declared)
    pending = {
        **{d: r for d, r in waiting.items() if d != dim},
        **({dim: ranges} if ranges else {}),
    }
    try:
        if not in_order:
            raise WholeNeededError("labels that overlap")
        done = _standing_in(base, shown, inputs, dim, job, read)
        return replace(done, pending=pending, ends=laid.ends)
    except WholeNeededError:
        said = _of_catalog(base)
        ordered = [
            isel_group(shown, {dim: slice(each.start, each.stop)}).with_changes(report=said)
            if isinstance(each, Span)
            else each
            for each in inputs
        ]
        whole = combined_whole(base, ordered, job, read)
        return replace(whole, pending=pending)


def _of_catalog(base: Base) -> ScanReport:
    """What names the catalog among the inputs of a combination."""
    return ScanReport((Finding("/", Fate.NAMED, "", base.group.info.url),))


def _reusing(done: Combination, base: Base) -> Grown:
    """A combination with the whole catalog; blocks that passed through it unchanged are reused."""
    group = with_drifts(done, base.group.info.url)
    before = base.group.all_arrays()
    found = {path: reused(array, before.get(path)) for path, array in group.all_arrays().items()}
    return Grown(group, found, ends=done.ends)


def combined_whole(
    base: Base,
    groups: Sequence[VirtualGroup],
    job: Job,
    read: Read,
    noted: Contradicted | None = None,
) -> Grown:
    """Combine groups, among them a catalog or parts of it, as they are."""
    done = job.way.joined(groups, job.combining(read))
    if noted is not None:
        done = replace(done, report=noted.told(done.report))
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
    said = _of_catalog(base)
    groups = [
        standing_group(shown, dim, each).with_changes(report=said)
        if isinstance(each, Span)
        else each
        for each in inputs
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
    if isinstance(job.way, Stack) and job.way.keeps_labels_whole and arrays[dim].laid is not None:
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


def with_dim(
    new: Sequence[tuple[str, VirtualGroup]], dim: str, job: Job, read: Read
) -> list[VirtualGroup]:
    """The files' groups, each along the dimension, in order of labels that names have."""
    if not isinstance(job.way, Stack):
        return [
            group
            if _has(group, dim)
            else combine([group], dim, read=read, options=job.rules).unwrap()
            for _, group in new
        ]
    ordered = job.way.ordered([file for file, _ in new])
    order = {file: number for number, file in enumerate(ordered)}
    return [
        with_drifts(job.laid_out([item], read))
        for item in sorted(new, key=lambda item: order[item[0]])
    ]


def _has(group: VirtualGroup, dim: str) -> bool:
    return any(dim in array.dims for array in group.all_arrays().values())


# Replace and remove: the elements of a file, and what takes their place

Elements = tuple[int, int]


_NOTHING_LEFT = "this would remove every file of the catalog"


def changed(
    base: Base,
    files: Mapping[str, VirtualGroup | None],
    spare: Callable[[], VirtualGroup | None],
    job: Job,
    read: Read,
) -> Grown:
    """Replace some files of a catalog by others.

    Parameters
    ----------
    files
        By address of a file what is there instead; None for nothing.
    spare
        Gives a file of the catalog that stays: variables without the dimension are taken from it
        where they lay in a file that goes, and what comes instead has to fit it.
    read
        Reads all values of an array.

    Raises
    ------
    InvalidRequestError
        If a file is not one of those that the catalog is laid of, or nothing would be left.
    CombineError
        With every problem, where what comes instead does not fit.
    """
    every = {source.url for source in base.group.source_list}
    if every <= files.keys() and not any(files.values()):
        raise InvalidRequestError(_NOTHING_LEFT)
    dim = job.way.grows_along(job.dims)
    if dim is None:
        raise InvalidRequestError(
            Message(
                "the catalog does not record the dimension along which its files were combined: "
                "name it (",
                Option("concat_dim", "time"),
                ")",
            )
        )
    elements, constants = _uses(base.group, dim, list(files))
    ordered = sorted(files, key=lambda file: (files[file] is None, elements[file]))
    new = with_dim([(f, group) for f in ordered if (group := files[f])], dim, job, read)
    without = [elements[file] for file in ordered]
    at: At = "label" if job.order == "label" else "end"  # each in its former place
    laid = arranged(base.group, new, dim, at, read, base.root.snapshot.ends, without)
    if not laid.inputs:
        raise InvalidRequestError(_NOTHING_LEFT)
    shown: VirtualGroup = base.group
    if constants:
        stays = spare()
        shown = _with_constants(shown, constants, [*([stays] if stays else []), *new])
    return combined(base, shown, laid, dim, job, read)


def _uses(
    group: CatalogGroup, dim: str, files: Sequence[str]
) -> tuple[dict[str, Elements], list[str]]:
    """Elements along the dimension that are in files, and arrays without it that are there too."""
    found: dict[str, set[Elements]] = {file: set() for file in files}
    constants: list[str] = []
    for path, array in group.all_arrays().items():
        rows = group.chunks(path, columns=["source", "start", "stop"])
        sources = rows.column("source").cast("string")
        for file in files:
            mine = rows.filter(pc.fill_null(pc.equal(sources, file), False))
            if not len(mine):
                continue
            if dim not in array.dims:
                constants.append(path)
                continue
            axis = array.dims.index(dim)
            starts, stops = (
                np.asarray(pc.list_element(mine.column(name), axis)) for name in ("start", "stop")
            )
            edges = array.grid.axes[axis].edges()
            found[file].add(_whole_blocks(edges, int(starts.min()), int(stops.max())))
    for file, elements in found.items():
        if len(elements) != 1:
            reason = "it is in several places" if elements else "it is not in the catalog"
            raise InvalidRequestError(
                f"{reason}, so it cannot be replaced or removed", Place(source=file)
            )
    return {file: next(iter(elements)) for file, elements in found.items()}, constants


def _whole_blocks(edges: NDArray[np.int64], start: int, stop: int) -> Elements:
    """The elements of the blocks that hold some: a file may lack its first or last chunks."""
    stops = np.cumsum(edges)
    first = int(np.searchsorted(stops, start, side="right"))
    last = int(np.searchsorted(stops, stop - 1, side="right"))
    return int(stops[first] - edges[first]), int(stops[last])


def _with_constants(
    group: VirtualGroup, constants: Sequence[str], givers: Sequence[VirtualGroup]
) -> VirtualGroup:
    """The group with arrays of the first giver that has them in place of those that go."""
    missing = [path for path in constants if not any(path in giver for giver in givers)]
    if missing:
        raise InvalidRequestError(
            f"{', '.join(missing)}: held only by files that are to be removed. Build the catalog "
            "again"
        )

    def held(path: str, array: VirtualArray) -> VirtualArray:
        if path not in constants:
            return array
        return next(giver.all_arrays()[path] for giver in givers if path in giver)

    return group.with_each_array(held)


# Rebuild: catalogs whose layout depends on all files

Scanned = Sequence[tuple[str, VirtualGroup]]


def is_made_of_all(job: Job, group: VirtualGroup) -> bool:
    """Whether the layout places files by more than their order along one dimension."""
    return not isinstance(job.way, InARow) or job.way.is_cube(group, job.dims)


def found_with_more(held: Scanned, new: Scanned, job: Job, read: Read) -> Job:
    """Work out how the file of a catalog and more files lie beside each other, as in building.

    Raises
    ------
    InvalidRequestError
        If there is no layout, or more than one.
    """
    how = replace(job, resolve="lossless").combining(read)
    return job.as_found(laid_out_by_itself([*held, *new], how, take_first=job.takes_first)[0])


def rebuilt(
    base: Base,
    files: Scanned,
    stay: Collection[str],
    held: Scanned | None,
    built: Job,
    job: Job,
    read: Read,
) -> Grown:
    """Rebuild a catalog from other files: with some added, replaced or removed.

    Parameters
    ----------
    files
        The files to build it from, scanned.
    stay
        Addresses of files that are in the catalog already.
    held
        Its old files, scanned again; None if some have changed.
    built, job
        How its files were combined, and how files are combined now.
    read
        Reads all values of an array.

    Raises
    ------
    InvalidRequestError
        If no file would be left, or the old files do not give the present catalog. If some of these
        have changed, the files that stay have to keep their places.
    CombineError
        With every problem, where files do not fit.
    """
    if not files:
        raise InvalidRequestError(_NOTHING_LEFT)
    if held is not None and not _makes(built.laid_out(held, read), base):
        raise InvalidRequestError(
            "the layout depends on all files together, and combining the files of the catalog "
            "again gives another result than it holds: build the catalog again from all files",
            Place(source=base.group.info.url),
        )
    groups = dict(files)
    done = job.laid_out([(file, groups[file]) for file in job.way.ordered([*groups])], read)
    group = with_drifts(done)
    if held is None and not _lie_as_before(done, base, stay):
        raise InvalidRequestError(
            "the layout depends on all files together, and the changed files would move the "
            "others: build the catalog again from all files",
            Place(source=base.group.info.url),
        )
    arrays = {path: written(array) for path, array in group.all_arrays().items()}
    return Grown(group, arrays, ends=done.ends)


def _makes(done: Combination, base: Base) -> bool:
    """Whether files make the arrays of a catalog, row by row."""
    try:
        arrays = done.unwrap().all_arrays()
    except CombineError:
        return False
    snapshot, there = base.root.snapshot, base.group.all_arrays()
    if arrays.keys() != there.keys():
        return False
    entries = snapshot.root.all_arrays()
    rows = recounted(base.folder, arrays, snapshot.source_urls)
    return all(
        rows[path].content == entries[path].content
        and array.grid.axes == there[path].grid.axes
        and array.dtype == there[path].dtype
        for path, array in arrays.items()
    )


def _lie_as_before(done: Combination, base: Base, files: Collection[str]) -> bool:
    """Whether the same ranges of some files are the same chunks of the same arrays as before."""
    now, there = done.unwrap().all_arrays(), base.group.all_arrays()
    shapes = {path: array.shape for path, array in there.items()}
    if {path: array.shape for path, array in now.items()} != shapes:
        return False
    names = pa.array({without_signature(file) for file in files})
    return bool(_ranges_of(now, names).equals(_ranges_of(there, names)))


def _ranges_of(arrays: Mapping[str, VirtualArray], files: pa.Array) -> pa.Table:
    """Where ranges of some files are."""
    in_order = {path: arrays[path] for path in sorted(arrays)}
    columns = ["path", "start", "stop", "source", "offset", "length"]
    table = list_chunks(in_order, "range", columns).read_all()
    for name in ("path", "source"):
        column = table.column(name).cast(pa.string())
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table.filter(pc.is_in(table.column("source"), files))
