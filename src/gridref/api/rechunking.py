"""Write overlays of arrays of a catalog, and keep them up to date.

What is missing is written as sheets: Zarr v3 arrays, each with the elements of one box of the
array. Sheets of small labels have no folder: their chunks are in the tables of the catalog.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gridref.api.keeper import Changed, Keeper
from gridref.api.overlays import entries_of
from gridref.api.readable import reader_for
from gridref.api.rewriting.plan import (
    CODECS,
    Resources,
    RewritePlan,
    plan_rewrite,
    requests_for,
    shard_bytes_for,
    shard_shape_for,
    view_to_write,
)
from gridref.api.rewriting.writer import (
    DRAFTS,
    MemorySink,
    Rewritten,
    Sink,
    encoding_of,
    inlined,
    own_folder,
    rewrite,
    sink_at,
    written_array,
)
from gridref.api.sheets import (
    Draft,
    SheetWriter,
    WrittenSheet,
    array_to_write,
    known_or_new,
    sheet_folder,
    sheet_name,
    source_in,
    stored_folder,
    target_of,
)
from gridref.api.workers import Pool, pool_of
from gridref.catalog.commit import Base, new_id, read_base
from gridref.catalog.group import CatalogGroup
from gridref.catalog.history import SPILL
from gridref.catalog.sheet_entries import (
    INSIDE,
    Label,
    OverlayEntry,
    SheetEntry,
    Where,
)
from gridref.catalog.sources import resolved_url
from gridref.errors import InvalidRequestError, Message, Option, Place, number_of
from gridref.io import is_local
from gridref.model.array import VirtualArray
from gridref.model.grid import ChunkGrid
from gridref.model.indexing import isel
from gridref.model.joining import boxes_of
from gridref.model.manifest import Source
from gridref.model.overlay import Box, Coords, Cover, common, merged, without
from gridref.model.scan_report import ScanReport
from gridref.options import bytes_of, check_choice, check_names
from gridref.secrets import shown_address

# What an overlay is to hold

CHUNK_BYTES = 8 * 10**6
"""Decoded size of a chunk, where the lengths along some dimensions were left open."""
MOST_CHUNK_BYTES = 64 * 10**6
"""Larger chunks are refused: one point would read all of one."""
KEPT_BYTES = 256 * 2**10
"""Decoded size up to which labels are kept in the catalog's tables, without objects."""


type _Draft = Draft[OverlayEntry, SheetEntry, RewritePlan]


@dataclass(frozen=True, eq=False, kw_only=True)
class Rechunk(SheetWriter[OverlayEntry, SheetEntry, RewritePlan]):
    """Writes the sheets that an overlay of an array lacks.

    Attributes
    ----------
    where
        Labels of what it is to hold, by dimension.
    shards
        Shard lengths by dimension: -1 for all of it; others fit the memory.
    pool
        Workers that write; None for this process.
    """

    where: Mapping[str, slice]
    shards: Mapping[str, int]
    pool: Pool | None = None

    def planned(self, base: Base) -> _Draft | None:
        """The next sheet to write; None if the overlay has all elements that files hold.

        Raises
        ------
        InvalidRequestError
            For an array, dimension or label that is not there, chunks that are too large, or too
            little memory.
        """
        array = array_to_write(base.group, self.path)
        overlay = known_or_new(self.wanted, entries_of(base.group, self.path))
        box = box_of(base.group, self.path, self.where, self.keeper.storage_options)
        held = [each.box for each in overlay.served]
        missing = [
            piece
            for present in _present_boxes(array)
            if (inside := common(present, box)) is not None
            for piece in without(inside, held)
        ]
        if not missing:
            return None
        target = target_of(missing, overlay.served)
        coverage = [both for each in _present_boxes(array) if (both := common(each, target))]
        sheet, plan = self._sheet(base, array, overlay, target)
        covers = (
            Cover(
                0,
                tuple(low - begin for (low, _), (begin, _) in zip(each, target, strict=True)),
                tuple(low for low, _ in each),
                tuple(high - low for low, high in each),
            )
            for each in coverage
        )
        return Draft(overlay, sheet, merged(covers), plan)

    def in_words(self, draft: _Draft) -> list[str]:
        """How a sheet would be written."""
        sheet, plan = draft.sheet, draft.plan
        layout = f"{_sized(sheet.shape)} in chunks of {_sized(sheet.chunks)}"
        return [f"{self.path}: {layout}, shards of {_sized(sheet.shards)}", plan.work_in_words]

    def written(self, draft: _Draft) -> WrittenSheet:
        """Write the chunks of a sheet: those of small labels into its table, others into shards."""
        view, options = draft.plan.view, self.keeper.storage_options
        is_small = len(draft.sheet.shape) == 1 and view.array.nbytes <= KEPT_BYTES
        if is_small and draft.entry.to == INSIDE:
            kept = MemorySink()
            done = self._rewritten(draft, kept)
            array = written_array(view, done.objects, lambda each: Source(each.name))
            array = inlined(array, [kept.objects[each.name] for each in done.objects])
            spill, n_objects, where = None, 0, "the catalog"
        else:
            folder = sheet_folder(self.keeper, draft)
            sink = sink_at(folder, options)
            spill = None if draft.plan.first is None else self._spill_folder(draft, folder)
            done = self._rewritten(draft, sink, spill, self.pool)
            sink.put("zarr.json", [json.dumps(view.metadata.to_json()).encode()])
            sink.clean()
            array = written_array(view, done.objects, source_in(folder, options))
            n_objects = len(done.objects)
            where = number_of(n_objects, "shard")
        stored_bytes = sum(int(each.length.sum()) for each in done.objects)
        sheet = replace(draft.sheet, n_objects=n_objects, stored_bytes=stored_bytes)
        said = f"{self.path}: {_sized(sheet.shape)} in chunks of {_sized(sheet.chunks)}"
        details = [f"{stored_bytes / 1e6:.3g} MB in {where}"]
        if done.found and n_objects:
            details.append(f"{len(done.found)} of them by an earlier run")
        details.append(f"each stored chunk decoded {draft.plan.often}")
        return WrittenSheet(sheet, {self.path: array}, said, details, spill)

    def _rewritten(
        self, draft: _Draft, sink: Sink, spill: str | None = None, pool: Pool | None = None
    ) -> Rewritten:
        """Write the objects of a sheet."""
        plan, options = draft.plan, self.keeper.storage_options
        reader = reader_for(
            options, cache_bytes=0, n_threads=plan.n_threads, n_requests=plan.n_requests
        )
        return rewrite(
            plan,
            reader,
            sink,
            path=self.path,
            spill=spill,
            progress=self.progress,
            pool=pool,
        )

    def _spill_folder(self, draft: _Draft, folder: str) -> str:
        """The folder for intermediate files, where all that write reach it."""
        if self.pool is None:
            return own_folder(hashlib.sha256(folder.encode()).hexdigest()[:16])
        return os.path.join(folder, DRAFTS, SPILL)

    def _sheet(
        self, base: Base, array: VirtualArray, overlay: OverlayEntry, box: Box
    ) -> tuple[SheetEntry, RewritePlan]:
        """A sheet with the elements of a box, and how it is written."""
        part = isel(array, {axis: slice(*along) for axis, along in enumerate(box)})
        chunk_shape = chunk_shape_of(overlay.chunks, part)
        grid = ChunkGrid.regular(part.shape, chunk_shape)
        lengths = _checked_lengths("shards", self.shards, array)
        most_bytes = shard_bytes_for(self.memory)
        shards = list(shard_shape_for(grid, array.dtype.itemsize, most_bytes))
        for axis, (dim, chunk) in enumerate(zip(array.dims, chunk_shape, strict=True)):
            if dim in lengths:
                wanted = part.shape[axis] if lengths[dim] == -1 else lengths[dim]
                shards[axis] = max(1, -(-wanted // chunk)) * chunk
        view = view_to_write(part, grid, shards, overlay.codec, key_separator=".")
        if view.metadata.dtype != array.dtype:
            raise InvalidRequestError(
                f"elements of dtype {array.dtype} cannot be kept as they are in a Zarr array",
                Place(variable=self.path),
            )
        is_near = is_local(resolved_url(overlay.to, base.folder.url))
        resources = Resources(
            self.memory,
            self.n_threads or (None if self.pool is None else 1),
            requests_for(part),
            is_streamed=is_near,
            has_disk=is_near or self.pool is None,
        )
        plan = plan_rewrite(view, resources)
        content = base.root.snapshot.root.all_arrays()[self.path].content
        name = sheet_name([self.path, content, box, view.metadata.to_json()], overlay.sheets)
        sheet = SheetEntry(
            name=name,
            shape=part.shape,
            content=content,
            shards=tuple(shards),
            encoding=encoding_of(view),
        )
        return sheet, plan


def rechunk(
    keeper: Keeper,
    array: str,
    chunks: Mapping[str, int] | None,
    *,
    where: Mapping[str, slice] | None,
    to: str | os.PathLike[str] | None,
    shards: Mapping[str, int] | None,
    codec: str,
    memory: int | str,
    n_threads: int | None,
    executor: Any,
    dry_run: bool,
    progress: Callable[[int, int], None] | None,
) -> Changed:
    """Write what an overlay lacks, or all overlays of an array: see `Catalog.rechunk`."""
    path = array.strip("/")
    check_choice("codec", codec, tuple(CODECS))
    base = read_base(keeper.access())
    if chunks is None:
        known = [_own(base.group, each) for each in entries_of(base.group, path)]
        wanted = [
            (each, {dim: slice(*labels) for dim, labels in each.where.items()}) for each in known
        ]
        if not wanted:
            reason = Message(
                "the array has no overlay to bring up to date; ", Option("chunks"), " writes one"
            )
            raise InvalidRequestError(reason, Place(variable=path))
    else:
        held = array_to_write(base.group, path)
        lengths, labels = _checked_lengths("chunks", chunks, held), _as_labels(where or {})
        check_names("the array", labels, held.dims, kind="dimension")
        entry = OverlayEntry(
            id=new_id(),
            array=path,
            to=stored_folder(base.folder.url, to),
            codec=codec,
            chunks=tuple(lengths.get(dim, 0) for dim in held.dims),
            where=labels,
        )
        wanted = [(entry, dict(where or {}))]
    lines: list[str] = []
    n_bytes = bytes_of("memory", memory)
    with pool_of(executor) as pool:
        for each, box in wanted:
            run = Rechunk(
                keeper=keeper,
                wanted=each,
                memory=n_bytes,
                n_threads=n_threads,
                progress=progress,
                where=box,
                shards=(shards or {}) if chunks is not None else {},
                pool=pool,
            )
            lines += run.described(base) if dry_run else run.run()
    return keeper.reported(ScanReport(lines=tuple(lines)))


def _own(group: CatalogGroup, entry: OverlayEntry) -> OverlayEntry:
    """An overlay without sheets; one elsewhere is refused: a stranger may have written it."""
    if entry.to != INSIDE:
        raise InvalidRequestError(
            Message(
                f"overlay {entry.id} is in {shown_address(resolved_url(entry.to, group.info.url))};"
                " to write there, give ",
                Option("chunks"),
                " and ",
                Option("to"),
                " as for the first call",
            ),
            Place(variable=entry.array),
        )
    return replace(entry, sheets=(), coverage=())


def box_of(
    group: CatalogGroup,
    path: str,
    where: Mapping[str, slice],
    storage_options: Mapping[str, Any] | None,
) -> Box:
    """The elements between labels, or positions along dimensions without an index coordinate."""
    array = group.all_arrays()[path]
    box = [(0, extent) for extent in array.shape]
    if not where:
        return tuple(box)
    import xarray as xr

    parent = path.rpartition("/")[0]
    others = {each.rpartition("/")[2] for each in group.all_arrays()}.difference(where)
    opened: Any = group  # xarray names the inputs of its own engines only
    own: dict[str, Any] = {"group": parent or None, "storage_options": storage_options}
    # The labels suffice, and xarray may be unable to decode others, like bounds still to come.
    own |= {"drop_variables": others}
    indexes = xr.open_dataset(opened, engine="gridref", **own).indexes
    for dim, labels in where.items():
        axis = array.dims.index(dim)
        if dim in indexes:
            found = indexes[dim].slice_indexer(labels.start, labels.stop)
        else:
            found = slice(labels.start, labels.stop)
        low, high, step = found.indices(array.shape[axis])
        if step != 1 or low >= high:
            raise InvalidRequestError(
                Message(
                    Option("where", f"{dim}={labels.start}:{labels.stop}"),
                    " selects no labels of it",
                ),
                Place(variable=path),
            )
        box[axis] = (low, high)
    return tuple(box)


def _present_boxes(array: VirtualArray) -> Iterator[Box]:
    """Boxes of elements that files hold; nobody has brought the others yet."""
    present = array.held_blocks
    bounds = [np.append(0, np.cumsum(axis.edges())).tolist() for axis in array.grid.axes]
    for start, shape in boxes_of(np.where(present, 0, -1)):
        yield tuple(
            (along[low], along[low + n]) for along, low, n in zip(bounds, start, shape, strict=True)
        )


def chunk_shape_of(asked: Coords, part: VirtualArray) -> Coords:
    """The lengths of chunks: -1 is all of a dimension, and 0 what makes chunks of about 8 MB.

    Raises
    ------
    InvalidRequestError
        If chunks get too large.
    """
    pairs = zip(asked, part.shape, strict=True)
    lengths = [extent if n < 0 else min(n, extent) for n, extent in pairs]
    open_axes = sorted(
        (n for n, length in enumerate(lengths) if not length), key=part.shape.__getitem__
    )
    for at, axis in enumerate(open_axes):
        left = CHUNK_BYTES / (math.prod(filter(None, lengths)) * part.dtype.itemsize)
        fitting = int(max(1.0, left) ** (1 / (len(open_axes) - at)))
        lengths[axis] = min(part.shape[axis], max(1, fitting))
    n_bytes = math.prod(lengths) * part.dtype.itemsize
    if n_bytes > MOST_CHUNK_BYTES:
        raise InvalidRequestError(
            Message(
                Option("chunks", _sized(lengths)),
                f" takes {n_bytes / 1e6:.0f} MB, and one point would read all of it: give lengths"
                f" that make at most {MOST_CHUNK_BYTES // 10**6} MB",
            )
        )
    return tuple(lengths)


def _checked_lengths(name: str, given: Mapping[str, int], array: VirtualArray) -> dict[str, int]:
    check_names("the array", given, array.dims, kind="dimension")
    for dim, length in given.items():
        if type(length) is not int or (length < 1 and length != -1):
            reason = f" is no length of {dim}: give 1 or more, or -1 for all of it"
            raise InvalidRequestError(Message(Option(name, length), reason))
    return dict(given)


def _as_labels(where: Mapping[str, slice]) -> Where:
    """Labels as a catalog keeps them: times as text."""
    found: dict[str, tuple[Label, Label]] = {}
    for dim, labels in where.items():
        if not isinstance(labels, slice) or labels.step is not None:
            reason = f" needs a slice of labels of {dim}, as slice(40, 60)"
            raise InvalidRequestError(Message(Option("where", str(labels)), reason))
        found[dim] = (_as_label(labels.start), _as_label(labels.stop))
    return found


def _as_label(label: Any) -> Label:
    plain = label.item() if isinstance(label, np.integer | np.floating) else label
    return plain if isinstance(plain, str | int | float | None) else str(plain)


def _sized(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
