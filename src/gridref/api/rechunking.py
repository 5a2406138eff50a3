"""Write overlays of arrays of a catalog, and keep them up to date.

`Rechunk` writes one sheet: a Zarr v3 array in a folder of its own, with the elements of one box of
the array. It is entered in the catalog before, so that changes of other writers are followed, and
gets its tables in the commit behind. A call that was killed is continued by the same call.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

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
    WrittenObject,
    checksums_of,
    inlined,
    own_folder,
    rewrite,
    sink_at,
    written_array,
)
from gridref.api.workers import Pool, pool_of
from gridref.catalog.commit import Access, Base, Step, Wanted, new_id, read_base
from gridref.catalog.document import Root
from gridref.catalog.group import CatalogGroup
from gridref.catalog.kept_report import CatalogReport
from gridref.catalog.overlay_entries import (
    INSIDE,
    MOST_COVERS,
    Label,
    OverlayEntry,
    SheetEntry,
    Where,
)
from gridref.catalog.sheet_folders import SPILL
from gridref.catalog.sources import relative_url, resolved_url
from gridref.catalog.written_overlays import begun, finished
from gridref.errors import InvalidRequestError, Message, Option, Place
from gridref.io import absolute_url, describe_source, is_local
from gridref.model.array import VirtualArray
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.encoding import Encoding
from gridref.model.grid import ChunkGrid
from gridref.model.indexing import isel
from gridref.model.manifest import Source
from gridref.model.overlay import Box, Coords, Cover, common, merged, without
from gridref.model.placing import boxes_of
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
MOST_SHEETS = 8
"""With more sheets, an update writes the smallest ones anew as one."""


@dataclass(frozen=True)
class Asked:
    """What an overlay is asked to be.

    Attributes
    ----------
    chunks
        Chunk lengths by dimension: -1 for all of it; of dimensions left out a fitting one.
    where
        First and last label by dimension, as for a slice of `xarray.Dataset.sel`.
    to
        Address of the folder, in which the overlay gets a folder of its own; None for one in the
        catalog.
    shards
        Shard lengths by dimension: multiples of the chunks; None for fitting ones.
    codec
        Name of the codec.
    """

    chunks: Mapping[str, int]
    where: Mapping[str, slice] | None = None
    to: str | os.PathLike[str] | None = None
    shards: Mapping[str, int] | None = None
    codec: str = "shuffle-zstd"


# Writing sheets


@dataclass(frozen=True, eq=False)
class Draft:
    """A sheet that is to be written.

    Attributes
    ----------
    overlay
        Its overlay.
    sheet
        The sheet, without tables.
    box
        Its elements in the array.
    coverage
        Those of them that some file holds.
    plan
        How it is written.
    """

    overlay: OverlayEntry
    sheet: SheetEntry
    box: Box
    coverage: tuple[Cover, ...]
    plan: RewritePlan

    @property
    def is_kept(self) -> bool:
        """Whether its chunks are kept in the catalog's table, as those of labels are."""
        is_small = len(self.sheet.shape) == 1 and self.plan.view.array.nbytes <= KEPT_BYTES
        return is_small and self.overlay.to == INSIDE


@dataclass(frozen=True, eq=False)
class _Written:
    """A sheet whose chunks are written.

    Attributes
    ----------
    sheet
        The sheet, without tables.
    array
        The sheet as an array.
    n_adopted
        How many of its shards an earlier run had written.
    """

    sheet: SheetEntry
    array: VirtualArray
    n_adopted: int = 0


class Keeper[C: CatalogGroup](Protocol):
    """Commits changes; returns the catalog as it is then."""

    @property
    def storage_options(self) -> Mapping[str, Any] | None:
        """Options of fsspec's filesystems."""
        ...

    def access(self) -> Access:
        """How the catalog is reached."""
        ...

    def commit(self, change: Callable[[Base], Wanted]) -> C:
        """Commit what a change makes of the newest snapshot."""
        ...


@dataclass(frozen=True, eq=False)
class Rechunk[C: CatalogGroup]:
    """Writes the sheets that an overlay of an array lacks.

    Attributes
    ----------
    keeper
        Commits the changes.
    path
        Path of the array.
    asked
        What the overlay is to be.
    memory
        Bytes that the process may take.
    n_threads
        Threads that decode and encode; None for one a core.
    progress
        Called with the number of parts of a sheet that are done, and of all.
    pool
        Workers that write; None for this process.
    """

    keeper: Keeper[C]
    path: str
    asked: Asked
    memory: int
    n_threads: int | None = None
    progress: Callable[[int, int], None] | None = None
    pool: Pool | None = None

    def planned(self, base: Base) -> Draft | None:
        """The next sheet to write; None if the overlay has all elements that files hold.

        Raises
        ------
        InvalidRequestError
            For an array, dimension or label that is not there, chunks that are too large, or too
            little memory.
        """
        array = array_to_write(base.group, self.path)
        overlay = self._overlay(base, array)
        box = box_of(base.group, self.path, self.asked.where or {}, self.keeper.storage_options)
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
        return Draft(overlay, sheet, target, merged(covers), plan)

    def run(self) -> tuple[C, list[str]]:
        """Write sheet by sheet, and commit each one; return the catalog, and what was done."""
        lines: list[str] = []
        written: set[str] = set()
        while True:
            drafts: list[Draft] = []

            def begin(base: Base, drafts: list[Draft] = drafts) -> Root | None:
                drafts.clear()
                draft = self.planned(base)
                # What an overlay cannot list, because it falls into too many boxes, stays missing.
                if draft is None or draft.sheet.name in written or len(written) >= MOST_COVERS:
                    return None
                drafts[:] = [draft]
                if _is_begun(base, draft):
                    return None
                said = f"{self.path}: begun"
                return begun(base, draft.overlay, draft.sheet, draft.coverage, said)

            catalog = self.keeper.commit(begin)
            if not drafts:
                return catalog, lines
            lines.append(self._write(drafts[0]))
            written.add(drafts[0].sheet.name)

    def described(self, base: Base) -> list[str]:
        """What would be written next."""
        draft = self.planned(base)
        if draft is None:
            return [f"{self.path}: nothing is missing"]
        sheet, plan = draft.sheet, draft.plan
        layout = f"{_sized(sheet.shape)} in chunks of {_sized(sheet.chunks)}"
        work = f"{plan.n_stored} stored chunks, each decoded {_often(plan)}"
        memory = f"at most {plan.peak_bytes / 1e6:.0f} MB of memory"
        return [f"{self.path}: {layout}, shards of {_sized(sheet.shards)}", f"{work}; {memory}"]

    def _write(self, draft: Draft) -> str:
        """Write a sheet and its tables; return what was done."""
        written = self._in_tables(draft) if draft.is_kept else self._in_shards(draft)
        sheet = written.sheet
        said = f"{self.path}: {_sized(sheet.shape)} in chunks of {_sized(sheet.chunks)}"
        is_used = True

        def finish(base: Base) -> Step | None:
            nonlocal is_used
            to = draft.overlay.to
            is_relative = not is_local(to) or not os.path.isabs(to)
            step = finished(
                base,
                draft.overlay.id,
                sheet,
                {self.path: written.array},
                said,
                is_relative=is_relative,
            )
            is_used = step is not None
            return step

        self.keeper.commit(finish)
        if draft.plan.first is not None:
            shutil.rmtree(self._spill_folder(draft), ignore_errors=True)
            sink_at(self._folder(draft), self.keeper.storage_options).clean()
        n = sheet.n_objects
        where = "the catalog" if draft.is_kept else f"{n} shard{'s' * (n != 1)}"
        parts = [f"{said}: {sheet.stored_bytes / 1e6:.3g} MB in {where}"]
        if written.n_adopted:
            parts.append(f"{written.n_adopted} of them by an earlier run")
        line = ", ".join([*parts, f"each stored chunk decoded {_often(draft.plan)}"])
        return line if is_used else f"{line}. Its files changed meanwhile, so it is not used"

    def _in_tables(self, draft: Draft) -> _Written:
        """Write the chunks of a sheet into its table of chunks."""
        sink, view = MemorySink(), draft.plan.view
        done = self._rewritten(draft, sink)
        array = written_array(view, done.objects, lambda each: Source(each.name))
        array = inlined(array, [sink.objects[each.name] for each in done.objects])
        return _Written(replace(draft.sheet, stored_bytes=_stored_bytes(done)), array)

    def _in_shards(self, draft: Draft) -> _Written:
        """Write the shards of a sheet, as a Zarr array."""
        to, options = self._folder(draft), self.keeper.storage_options
        sink, view = sink_at(to, options), draft.plan.view
        spill = None if draft.plan.first is None else self._spill_folder(draft)
        done = self._rewritten(draft, sink, spill, self.pool)
        sink.put("zarr.json", [json.dumps(view.metadata.to_json()).encode()])
        sink.clean()

        def source_of(written: WrittenObject) -> Source:
            address = f"{to}/{written.name}"
            checksums = checksums_of(written)
            if is_local(address):
                return Source(address, written.n_bytes, told_by="size", chunk_checksums=checksums)
            return replace(describe_source(address, options), chunk_checksums=checksums)

        n_objects, stored_bytes = len(done.objects), _stored_bytes(done)
        sheet = replace(draft.sheet, n_objects=n_objects, stored_bytes=stored_bytes)
        return _Written(sheet, written_array(view, done.objects, source_of), done.n_adopted)

    def _rewritten(
        self, draft: Draft, sink: Sink, spill: str | None = None, pool: Pool | None = None
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

    def _folder(self, draft: Draft) -> str:
        """The folder of a sheet."""
        to = resolved_url(draft.overlay.to, self.keeper.access().folder.url)
        return f"{to}/{draft.overlay.id}/{draft.sheet.name}"

    def _spill_folder(self, draft: Draft) -> str:
        """The folder for intermediate files, where all that write reach it."""
        if self.pool is None:
            return own_folder(draft.sheet.name)
        return os.path.join(self._folder(draft), DRAFTS, SPILL)

    def _overlay(self, base: Base, array: VirtualArray) -> OverlayEntry:
        """The overlay that is asked for: the one that is there, or a new one."""
        lengths = _checked_lengths("chunks", self.asked.chunks, array)
        where = _as_labels(self.asked.where or {})
        check_names("the array", where, array.dims, kind="dimension")
        chunks = tuple(lengths.get(dim, 0) for dim in array.dims)
        to = stored_folder(base.folder.url, self.asked.to)
        wanted = (chunks, where, self.asked.codec, to)
        for entry in entries_of(base.group, self.path):
            if (entry.chunks, entry.where, entry.codec, entry.to) == wanted:
                return entry
        return OverlayEntry(new_id(), self.path, to, chunks, where, self.asked.codec)

    def _sheet(
        self, base: Base, array: VirtualArray, overlay: OverlayEntry, box: Box
    ) -> tuple[SheetEntry, RewritePlan]:
        """A sheet with the elements of a box, and how it is written."""
        part = isel(array, {axis: slice(*along) for axis, along in enumerate(box)})
        chunk_shape = chunk_shape_of(overlay.chunks, part)
        grid = ChunkGrid.regular(part.shape, chunk_shape)
        lengths = _checked_lengths("shards", self.asked.shards or {}, array)
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
        encoding = Encoding(tuple(chunk_shape), array.dtype, view.chunk_codecs)
        content = base.root.snapshot.root.all_arrays()[self.path].content
        document = view.metadata.to_json()
        taken = [sheet.name for sheet in overlay.sheets if sheet.part is not None]
        said = json.dumps([self.path, content, box, document], sort_keys=True, default=str)
        name = hashlib.sha256(said.encode()).hexdigest()[:16]
        while name in taken:  # of files that were others meanwhile, and are the same again
            name = hashlib.sha256(name.encode()).hexdigest()[:16]
        return SheetEntry(name, part.shape, tuple(shards), encoding, content), plan


def rechunk[C: CatalogGroup](
    keeper: Keeper[C],
    array: str,
    chunks: Mapping[str, int] | None,
    *,
    memory: int | str,
    n_threads: int | None,
    executor: Any,
    dry_run: bool,
    progress: Callable[[int, int], None] | None,
    **asked: Any,
) -> C:
    """Write what an overlay lacks, or all overlays of an array: see `Catalog.rechunk`."""
    path = array.strip("/")
    check_choice("codec", asked["codec"], tuple(CODECS))
    base = read_base(keeper.access())
    if chunks is None:
        wanted = [_asked_before(base.group, each) for each in entries_of(base.group, path)]
        if not wanted:
            reason = Message(
                "the array has no overlay to bring up to date; ", Option("chunks"), " writes one"
            )
            raise InvalidRequestError(reason, Place(variable=path))
    else:
        wanted = [Asked(chunks, **asked)]
    lines: list[str] = []
    catalog = keeper.commit(lambda _: None)
    n_bytes = bytes_of("memory", memory)
    with pool_of(executor) as pool:
        for each in wanted:
            run = Rechunk(keeper, path, each, n_bytes, n_threads, progress, pool)
            if dry_run:
                lines += run.described(base)
            else:
                catalog, done = run.run()
                lines += done or [f"{path}: nothing is missing"]
    report = CatalogReport.of(ScanReport(lines=tuple(lines)), catalog.snapshot.drifts)
    return replace(catalog, report=report)


def _asked_before(group: CatalogGroup, entry: OverlayEntry) -> Asked:
    """What an overlay of a catalog was asked to be.

    Raises
    ------
    InvalidRequestError
        If it is written elsewhere: the catalog may be a stranger's.
    """
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
    dims = group.all_arrays()[entry.array].dims
    chunks = {dim: n for dim, n in zip(dims, entry.chunks, strict=True) if n}
    where = {dim: slice(*labels) for dim, labels in entry.where.items()}
    return Asked(chunks, where, codec=entry.codec)


def _is_begun(base: Base, draft: Draft) -> bool:
    """Whether an earlier call entered a sheet that has not changed since."""
    begun = [each for each in base.root.snapshot.overlays if each.id == draft.overlay.id]
    names = [sheet.name for each in begun for sheet in each.sheets]
    if draft.sheet.name not in names:
        return False
    number = names.index(draft.sheet.name)
    held = {cover.box for cover in begun[0].coverage if cover.sheet == number}
    wanted = {cover.box for cover in draft.coverage}
    return held == wanted or (len(held) == MOST_COVERS and held <= wanted)


def array_to_write(group: CatalogGroup, path: str) -> VirtualArray:
    """An array as its files hold it.

    Raises
    ------
    InvalidRequestError
        If there is none, or nothing in it.
    """
    arrays = group.all_arrays()
    check_names("the catalog", [path], arrays, kind="array")
    array = arrays[path].with_changes(overlays=())
    if not array.ndim or not array.size or array.dtype.kind in "TO":
        reason = f"{array.shape} of {array.dtype} cannot be laid out anew: no numbers, or only one"
        raise InvalidRequestError(reason, Place(variable=path))
    return array


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

    parent, _, name = path.rpartition("/")
    opened: Any = group  # xarray names the inputs of its own engines only
    own: dict[str, Any] = {"group": parent or None, "storage_options": storage_options}
    indexes = xr.open_dataset(opened, engine="gridref", **own)[name].indexes
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
                    Option("where", f"{dim}={labels.start}:{labels.stop}"), " is nothing of it"
                ),
                Place(variable=path),
            )
        box[axis] = (low, high)
    return tuple(box)


def _present_boxes(array: VirtualArray) -> Iterator[Box]:
    """Boxes of elements that files hold; nobody has brought the others yet."""
    present = (array.blocks.encoding != MISSING_BLOCK).reshape(array.grid.grid_shape)
    bounds = [np.append(0, np.cumsum(axis.edges())).tolist() for axis in array.grid.axes]
    for start, shape in boxes_of(np.where(present, 0, -1)):
        yield tuple(
            (along[low], along[low + n]) for along, low, n in zip(bounds, start, shape, strict=True)
        )


def _size(box: Box) -> int:
    return math.prod(high - low for low, high in box)


def _around(one: Box, other: Box) -> Box:
    """The least box that holds both."""
    return tuple(
        (min(low, start), max(high, stop))
        for (low, high), (start, stop) in zip(one, other, strict=True)
    )


def target_of(missing: Sequence[Box], held: Sequence[Cover]) -> Box:
    """What to write next of what is missing: with what is held, where that is small.

    A sheet that is added behind many others is written anew with those that are not much larger.
    So of n updates there are about ``log n`` sheets, and each element is written ``log n`` times.
    """
    others = sorted(missing, key=_size, reverse=True)
    target = others.pop(0)
    sheets = {cover.sheet: cover.box for cover in held}
    for cover in held:
        sheets[cover.sheet] = _around(sheets[cover.sheet], cover.box)
    for box in [*others, *sorted(sheets.values(), key=_size)]:
        both = _around(target, box)
        if _size(both) <= 2 * (_size(target) + _size(box)) and _size(box) <= 2 * _size(target):
            target = both
    apart = [box for box in sheets.values() if _around(target, box) != target]
    for box in sorted(apart, key=_size)[: max(0, len(apart) + 1 - MOST_SHEETS)]:
        target = _around(target, box)
    return target


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


def stored_folder(catalog: str, to: str | os.PathLike[str] | None) -> str:
    """The folder of overlays as a catalog stores it: relative if it is in the catalog's."""
    if to is None:
        return INSIDE
    address = absolute_url(to).rstrip("/")
    is_inside = address.startswith(f"{catalog.rstrip('/')}/")
    return relative_url(address, catalog) if is_inside else address


def _stored_bytes(done: Rewritten) -> int:
    """Stored size of the chunks of all objects."""
    return sum(int(each.length.sum()) for each in done.objects)


def _often(plan: RewritePlan) -> str:
    times = plan.n_decoded / max(1, plan.n_stored)
    through = "" if plan.first is None else ", into intermediate files"
    return f"{'once' if times <= 1 else f'{times:.3g} times'}{through}"


def _sized(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
