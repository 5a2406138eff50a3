"""Change the files of a catalog: append, replace, remove, refresh, declare, and build anew.

`FileChanges` scans new files, combines them with the catalog, and commits what it becomes
(`Grown`). A change is a function of the newest snapshot: if another writer was quicker, it is tried
again on theirs. Usually only new files are scanned and only new rows are written.

Some catalogs are built anew from all their files instead: the files are scanned again, which reads
metadata only, and all rows are written. Plates, padded rows, mosaics of several grids and groups by
kind cannot be combined with more files, so every change builds them anew. Mosaics, other rows and
files along several dimensions are built anew when a file is replaced or removed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from gridref.api.decoding import decoded_values
from gridref.api.each_chunk import told_as, with_checksums
from gridref.api.job import Job, with_drifts
from gridref.api.keeper import Changed, Keeper
from gridref.api.layout.discovery import laid_out
from gridref.api.layout.joined_variables import Joining
from gridref.api.layout.layouts import InARow, Stack
from gridref.api.layout.listings import with_inventory
from gridref.api.layout.sources import Contradicted, Scanned
from gridref.api.places import Arrangement, At, arranged, claimed, declared_groups, pending_after
from gridref.api.readable import Sources, reader_for
from gridref.api.scan import Address, Failures, Files, Progress, scan_each
from gridref.api.summary import change_lines, warn_of_left_out
from gridref.catalog.commit import Base, Change
from gridref.catalog.document import Pending, merged_drifts
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
from gridref.combine.hypercube import HOLE
from gridref.combine.labels import gap_text
from gridref.combine.options import CombineOptions, Read
from gridref.combine.report import GAP
from gridref.combine.rules.dimensions import counted_dim, moved_index
from gridref.combine.values import Values
from gridref.errors import (
    CombineError,
    InvalidRequestError,
    Message,
    Option,
    Place,
    SourceChangedError,
    SourceUnavailableError,
    number_of,
)
from gridref.formats import expand_files
from gridref.io import SourcePool, absolute_url, is_absent, keeps_at_hand
from gridref.io.ahead import in_threads
from gridref.model.array import VirtualArray, VirtualGroup, dims_of
from gridref.model.conventions import LabelEnds
from gridref.model.indexing import isel_group
from gridref.model.manifest import Source
from gridref.model.scan_report import Fate, Finding, ScanReport
from gridref.secrets import shown_address, without_signature

# What callers call

type Vanished = Literal["raise", "skip"]
"""What to do with files that are gone."""

_CHECKED_AT_ONCE = 32
"""Sources that are looked at side by side."""


@dataclass(frozen=True, eq=False)
class FileChanges:
    """Changes the files of a catalog.

    Attributes
    ----------
    keeper
        Commits the changes.
    progress
        Called with the number of files scanned, and of all files.
    """

    keeper: Keeper
    progress: Progress | None = None

    def append(self, files: Files, asked: Job, at: At) -> Changed:
        """Add files; `asked` replaces what the catalog was built with."""
        given = Counter(expand_files(files, self.keeper.storage_options, unique=False))
        twice = [file for file, n in given.items() if n > 1]

        def files_of(base: Base) -> _Files:
            known = {source.url: source for source in base.group.source_list}
            there = dict.fromkeys(base.group.holding(given))
            self._check_unchanged([known[file] for file in there if file in known])
            return _Files(new=[file for file in given if file not in there], there=[*there])

        return self._with_files("append", files_of, asked, at, twice)

    def exchange(self, operation: str, instead: Mapping[Address, Address | None]) -> Changed:
        """Put other files in the place of some, or none."""
        urls = {
            absolute_url(file): None if by is None else absolute_url(by)
            for file, by in instead.items()
        }
        return self._with_files(operation, lambda _: _Files(urls))

    def refresh(self, vanished: Vanished) -> Changed:
        """Scan files again that have changed."""

        def stale(base: Base) -> _Files:
            changed, gone = stale_sources(base.group.source_list, self.keeper.storage_options)
            if gone and vanished == "raise":
                raise SourceUnavailableError(
                    Message(
                        f"{_counted(gone)} of the catalog {'are' if gone[1:] else 'is'} gone; ",
                        Option("vanished", "skip"),
                        " removes the missing ones from the catalog",
                    ),
                    Place(source=gone[0]),
                )
            return _Files({**{url: url for url in changed}, **dict.fromkeys(gone)})

        return self._with_files("refresh", stale)

    def declare(self, dim: str, labels: ArrayLike) -> Base:
        """Make room for labels whose files are still to come."""

        def change(base: Base) -> Change | None:
            growth = _Growth(base, self._job(base), self.keeper.sources.reader.read)
            grown = growth.declared(dim, labels)
            said = f"{number_of(np.size(labels), 'label')} of {dim}"
            return None if grown is None else _change("declare", said, base, grown, ScanReport())

        return self.keeper.commit(change)

    @keeps_at_hand
    def _with_files(
        self,
        operation: str,
        files_of: Callable[[Base], _Files],
        asked: Job | None = None,
        at: At = "label",
        twice: Sequence[str] = (),
    ) -> Changed:
        """Commit what other files make of the catalog; the report tells what was done."""
        scans = _Scans(self.keeper.sources, self.progress)
        files, head, drifts = _Files(), list[str](), tuple[Mapping[str, Any], ...]()

        def change(base: Base) -> Change | None:
            nonlocal files, head, drifts
            job, files = self._job(base, asked), files_of(base)
            if not files.new and not files.instead:
                head, drifts = [], ()
                return None
            said = files.said(operation)
            head = [f"{operation} {said}"]
            built, is_open = job, bool(files.new) and self._is_open(base)
            if is_open:
                built, job = self._found_with_more(base, files, job, scans)
            is_anew = not isinstance(job.way, InARow) or job.way.is_cube(base.group, job.dims)
            if files.new:
                is_anew = job.way.needs_all or built is not job
            if is_anew:
                grown = self._rebuilt(base, files, built, job, at, scans)
            else:
                grown = _grown(base, files, job, at, scans)
                head += [job.layout_line(grown.group, grown.ends)] if files.new else []
            drifts = grown.group.report.drifts
            done = _change(operation, said, base, grown, scans.report, is_anew=is_anew)
            if is_open or (files.new and not base.root.snapshot.recipe):
                done = replace(done, changes={**done.changes, "recipe": job.recipe})
            return replace(done, gone=frozenset(files.instead))

        base = self.keeper.commit(change)
        warn_of_left_out(scans.report)
        there = [
            Finding("/", Fate.SKIPPED, "it is already in the catalog", file) for file in files.there
        ]
        report = ScanReport.joined([scans.report, ScanReport(tuple(there))])
        lines = change_lines(head, twice, report, drifts, base.folder.url)
        return self.keeper.reported(replace(report, lines=lines))

    def _is_open(self, base: Base) -> bool:
        """Whether the catalog has one file and no layout, so that a second file decides it."""
        built = self._job(base)
        return len(base.group.source_list) == 1 and not built.way.is_asked_for(built.dims)

    def _found_with_more(
        self, base: Base, files: _Files, job: Job, scans: _Scans
    ) -> tuple[Job, Job]:
        """How the one file of the catalog was taken in, and how it and more files are combined."""
        if not job.way.is_asked_for(job.dims):
            held = scans.of([source.url for source in base.group.source_list], job, base)
            new = scans.of(files.new, job, base)
            how = replace(job, resolve="lossless")
            found, _ = laid_out([*held, *new], how, scans.sources.reader.read)
            job = job.as_found(found)
        dims = dims_of(base.group.all_arrays().values())
        goes_on = job.way.grows_along(job.dims) in dims
        return (job if goes_on else self._job(base)), job

    def _rebuilt(
        self, base: Base, files: _Files, built: Job, job: Job, at: At, scans: _Scans
    ) -> Grown:
        """A catalog that is built anew, with other files."""
        if at != "label":
            raise InvalidRequestError(Message(Option("at", at), " needs files along one dimension"))
        sources = {source.url: source for source in base.group.source_list}
        for file in files.instead:
            if file not in sources:
                reason = "it is not in the catalog, so it cannot be replaced or removed"
                raise InvalidRequestError(reason, Place(source=file))
        stay = [url for url in sources if url not in files.instead]
        self._check_unchanged([sources[url] for url in stay])
        go = [sources[file] for file in files.instead]
        is_stale = any(stale_sources(go, self.keeper.storage_options))
        held = None if is_stale else scans.of([*sources], built, base)
        instead = [new for url in sources if (new := files.instead.get(url, url)) is not None]
        after = scans.of([*instead, *files.new], job, base)
        growth = _Growth(base, job, scans.sources.reader.read)
        return growth.rebuilt(after, stay, held, built)

    def _job(self, base: Base, asked: Job | None = None) -> Job:
        """How files are combined: as the catalog's were, but for what is asked now."""
        return Job.of(base.group).updated(asked or Job()).reading(self.keeper.storage_options)

    def _check_unchanged(self, sources: Sequence[Source]) -> None:
        def check(source: Source) -> None:
            try:
                pool.check(source)
            except SourceChangedError as error:
                raise SourceChangedError(
                    Message(error.reason, ". It is already in the catalog"), error.place
                ) from error

        with SourcePool(self.keeper.storage_options) as pool:
            list(in_threads(check, sources, _CHECKED_AT_ONCE))


@dataclass(frozen=True, eq=False)
class _Files:
    """The files of a change.

    Attributes
    ----------
    instead
        By address of a file of the catalog the one in its place; None for none.
    new
        Files that are added.
    there
        Files that were to be added, and are in the catalog already.
    """

    instead: Mapping[str, str | None] = field(default_factory=dict)
    new: Sequence[str] = ()
    there: Sequence[str] = ()

    def said(self, operation: str) -> str:
        """Which files are exchanged, and by what, for people."""
        gone = [file for file, by in self.instead.items() if by is None]
        if self.new or operation == "remove":
            return _counted(self.new or gone)
        stay = [file for file in self.instead if file not in gone]
        others = [by for file, by in self.instead.items() if by not in (None, file)]
        named = (("", stay), ("by ", others), ("without ", gone))
        return ", ".join(f"{word}{_counted(some)}" for word, some in named if some)


def _counted(files: Sequence[str]) -> str:
    first, last = shown_address(files[0]), shown_address(files[-1])
    return first if len(files) == 1 else f"{len(files)} files: {first} ... {last}"


def _grown(base: Base, files: _Files, job: Job, at: At, scans: _Scans) -> Grown:
    """A catalog with other files at their places; those that stay are not scanned."""
    growth = _Growth(base, job, scans.sources.reader.read)
    if files.new:
        return growth.added(scans.of(files.new, job, base), at)
    scanned = dict(scans.of([by for by in files.instead.values() if by is not None], job, base))
    groups = {old: None if by is None else scanned[by] for old, by in files.instead.items()}
    stay = [each.url for each in base.group.source_list if each.url not in files.instead]

    def spare() -> VirtualGroup | None:
        return scans.of(stay[:1], job, base)[0][1] if stay else None

    return growth.changed(groups, spare)


def _change(
    operation: str,
    message: str,
    base: Base,
    grown: Grown,
    found: ScanReport,
    *,
    is_anew: bool = False,
) -> Change:
    """The commit of what a catalog becomes.

    It keeps the drift of its files, new ones included; all of it is found again if it is built
    anew.
    """
    rows = replace(found, drifts=grown.group.report.drifts).rows
    before = [row for row in base.root.snapshot.drifts if not (is_anew or grown.is_outdated(row))]
    drifts = merged_drifts(before, rows)
    own = {"drifts": drifts, "pending": grown.pending, "ends": grown.ends}
    return Change(operation, message, grown.group, grown.arrays, own)


class _Scans:
    """Scans files once, however often a change is tried."""

    def __init__(self, sources: Sources, progress: Progress | None) -> None:
        self.sources = sources
        self._groups: dict[str, VirtualGroup] = {}
        self._failed: tuple[Finding, ...] = ()
        self._progress = progress

    def of(self, addresses: Sequence[str], job: Job, base: Base) -> list[tuple[str, VirtualGroup]]:
        """The groups of files, with their addresses; those that fail may be left out."""
        wanted = [address for address in addresses if address not in self._groups]
        failures = Failures(job.running)
        scanned = scan_each(
            wanted, job.scanning, job.running, failures=failures, progress=self._progress
        )
        read = reader_for(self.sources.storage_options).read
        joined = Joining(job.way.sought.of_variables, read, job.rules).each(scanned)
        self._groups.update((address, self._as_in(base.group, group)) for address, group in joined)
        self._failed = (*self._failed, *failures.findings)
        return [(each, self._groups[each]) for each in addresses if each in self._groups]

    def _as_in(self, catalog: CatalogGroup, group: VirtualGroup) -> VirtualGroup:
        """A scanned group, as much known of its files as of those of the catalog."""
        told = told_as(catalog, group, self.sources)
        if not catalog.info.n_checksums:
            return told
        return with_checksums(told, self.sources.storage_options)

    @property
    def report(self) -> ScanReport:
        """What was found in the files."""
        found = [group.report for group in self._groups.values()]
        return ScanReport.joined([*found, ScanReport(self._failed)])


def stale_sources(
    sources: Sequence[Source], storage_options: Mapping[str, Any] | None
) -> tuple[list[str], list[str]]:
    """Addresses of sources that have changed, and of those that are there no more."""

    def fate(source: Source) -> str:
        try:
            pool.check(source)
        except SourceChangedError:
            return "changed"
        except SourceUnavailableError as error:
            if is_absent(error):
                return "gone"
            raise
        return "same"

    with SourcePool(storage_options) as pool:
        fates = list(zip(sources, in_threads(fate, sources, _CHECKED_AT_ONCE), strict=True))
    changed, gone = ([s.url for s, fate in fates if fate == kind] for kind in ("changed", "gone"))
    return changed, gone


# What a catalog becomes


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
    is_outdated
        Whether a row of the report says what is true no more, or what is found again.
    """

    group: VirtualGroup
    arrays: Mapping[str, GrownArray]
    pending: Pending = field(default_factory=dict)
    ends: LabelEnds = field(default_factory=dict)
    is_outdated: Callable[[Mapping[str, Any]], bool] = lambda _: False


_NOTHING_LEFT = "this would remove every file of the catalog"


@dataclass(frozen=True, eq=False)
class _Growth:
    """A catalog that changes.

    Attributes
    ----------
    base
        What it is now.
    job
        How files are combined.
    read
        Reads all values of an array.
    """

    base: Base
    job: Job
    read: Read

    def added(self, new: Scanned, at: At) -> Grown:
        """Add scanned files. If the catalog's files are in the given order, they go to the end."""
        base, job = self.base, self.job
        files = [file for file, _ in new]
        way, _ = with_inventory(job.way, job.dims, files, job.scanning.storage_options)
        is_cube, dim = way.is_cube(base.group, job.dims), way.grows_along(job.dims)
        if base.root.snapshot.pending and (is_cube or dim is None):
            raise InvalidRequestError(
                "the files of the catalog are not in sequence along one dimension, while labels of"
                f" {' and '.join(base.root.snapshot.pending)} are declared ahead"
            )
        if isinstance(way, InARow) and is_cube:
            return self._cube(new, way)
        if dim is None:
            before = base.group.with_changes(report=self._of_catalog)
            noted = Contradicted(self.read)
            return self._whole([before, *way.labelled(new, noted)], noted)
        if job.order == "given" and at == "label":
            at = "end"
        # Labels are looked at for their places, and by the rules.
        return replace(self, read=Values(self.read).of).added_along(dim, new, at)

    def added_along(self, dim: str, new: Scanned, at: At) -> Grown:
        """Add files along one dimension."""
        base, groups = self.base, self._along(new, dim)
        waiting = base.root.snapshot.pending.get(dim, ())
        without = claimed(base.group, groups, dim, waiting, self.read)
        laid = arranged(base.group, groups, dim, at, self.read, base.root.snapshot.ends, without)
        return self._combined(base.group, laid, dim)

    def _cube(self, new: Scanned, way: InARow) -> Grown:
        """Add files to a catalog that is placed by labels along several dimensions.

        New files whose names sort before all others are combined first, as in a build: what inputs
        share is taken from the first.
        """
        there = [source.url for source in self.base.group.source_list]
        n_front = 0
        with suppress(InvalidRequestError):  # what files point to need not have such names
            place = {file: i for i, file in enumerate(way.ordered([*there, *dict(new)]))}
            new = sorted(new, key=lambda item: place[item[0]])
            first = min((place[file] for file in there), default=0)
            n_front = sum(place[file] < first for file, _ in new)
        before = self.base.group.with_changes(report=self._of_catalog)
        done = way.cube(new, self.job, self.read, [before], n_front)
        return replace(self._reusing(done), is_outdated=lambda row: row["cause"] == HOLE)

    def declared(self, dim: str, labels: ArrayLike) -> Grown | None:
        """Add labels whose files are still to come; None if the catalog has all of them."""
        base, job = self.base, self.job
        grows = job.way.grows_along(job.dims)
        if grows != dim:
            along = grows or list(job.dims) or None
            raise InvalidRequestError(f"the catalog grows along {along!r}, not {dim!r}")
        groups = declared_groups(base.group, dim, labels, self.read)
        if not groups:
            return None
        laid = arranged(base.group, groups, dim, "label", self.read, base.root.snapshot.ends)
        return self._combined(base.group, laid, dim, declared=groups)

    def changed(
        self,
        files: Mapping[str, VirtualGroup | None],
        spare: Callable[[], VirtualGroup | None],
    ) -> Grown:
        """Replace some files of the catalog by others.

        Parameters
        ----------
        files
            By address of a file what is there instead; None for nothing.
        spare
            Gives a file of the catalog that stays. Variables without the dimension are taken from
            it if they were in a file that is removed. The new files must fit it.
        """
        base, job = self.base, self.job
        every = {source.url for source in base.group.source_list}
        if every <= files.keys() and not any(files.values()):
            raise InvalidRequestError(_NOTHING_LEFT)
        dim = job.way.grows_along(job.dims)
        if dim is None:
            raise InvalidRequestError(
                Message(
                    "the catalog does not record the dimension along which its files were "
                    "combined: name it (",
                    Option("concat_dim", "time"),
                    ")",
                )
            )
        elements, constants = _uses(base.group, dim, list(files))
        ordered = sorted(files, key=lambda file: (files[file] is None, elements[file]))
        new = self._along([(f, group) for f in ordered if (group := files[f])], dim)
        without = [elements[file] for file in ordered]
        at: At = "label" if job.order == "label" else "end"  # each in its former place
        laid = arranged(base.group, new, dim, at, self.read, base.root.snapshot.ends, without)
        if not laid.inputs:
            raise InvalidRequestError(_NOTHING_LEFT)
        shown: VirtualGroup = base.group
        if constants:
            stays = spare()
            shown = _with_constants(shown, constants, [*([stays] if stays else []), *new])
        return self._combined(shown, laid, dim)

    def rebuilt(
        self, files: Scanned, stay: Collection[str], held: Scanned | None, built: Job
    ) -> Grown:
        """Rebuild the catalog from other files: with some added, replaced or removed.

        The old files have to give the present catalog. If some of them have changed, the files that
        stay have to keep their places.

        Parameters
        ----------
        files
            The files to build it from, scanned.
        stay
            Addresses of files that are in the catalog already.
        held
            Its old files, scanned again; None if some have changed.
        built
            How its files were combined.
        """
        if not files:
            raise InvalidRequestError(_NOTHING_LEFT)
        base = self.base
        if held is not None and not _makes(laid_out(held, built, self.read)[1], base, self.read):
            raise InvalidRequestError(
                "the layout depends on all files together, and combining the files of the catalog "
                "again gives another result than it holds: build the catalog again from all files",
                Place(source=base.group.info.url),
            )
        groups = dict(files)
        ordered = self.job.way.ordered([*groups])
        done = laid_out([(file, groups[file]) for file in ordered], self.job, self.read)[1]
        group = with_drifts(done)
        if held is None and not _lie_as_before(done, base, stay):
            raise InvalidRequestError(
                "the layout depends on all files together, and the changed files would move the "
                "others: build the catalog again from all files",
                Place(source=base.group.info.url),
            )
        arrays = {path: written(array) for path, array in group.all_arrays().items()}
        return Grown(group, arrays, ends=done.ends)

    def _along(self, new: Scanned, dim: str) -> list[VirtualGroup]:
        """The files' groups, each along the dimension, in order of labels that names have."""
        job = self.job
        if not isinstance(job.way, Stack):
            return [
                group
                if _has(group, dim)
                else combine([group], dim, read=self.read, options=job.rules).unwrap()
                for _, group in new
            ]
        ordered = job.way.ordered([file for file, _ in new])
        order = {file: number for number, file in enumerate(ordered)}
        return [
            with_drifts(laid_out([item], job, self.read)[1])
            for item in sorted(new, key=lambda item: order[item[0]])
        ]

    def _combined(
        self,
        shown: VirtualGroup,
        laid: Arrangement,
        dim: str,
        *,
        declared: Sequence[VirtualGroup] = (),
    ) -> Grown:
        """Combine spans of the catalog and files, seeing as little of it as the rules allow.

        Parameters
        ----------
        shown
            What it holds; arrays without the dimension may be others.
        laid
            The spans and the files, in order.
        declared
            Those of the inputs that only declare labels.
        """
        waiting = self.base.root.snapshot.pending
        inputs, in_order = laid.inputs, laid.in_order
        if not in_order and declared:
            raise InvalidRequestError(
                f"the labels of {dim!r} in the catalog repeat or are out of order, so labels that "
                "are declared have no place among them"
            )
        if not in_order and dim in waiting:
            raise InvalidRequestError(
                f"the labels of {dim!r} in these files do not fit in one piece between those of "
                "the catalog, which has labels declared ahead: add files with consecutive labels"
            )
        ranges = pending_after(waiting.get(dim, ()), inputs, dim, declared)
        pending = {
            **{d: r for d, r in waiting.items() if d != dim},
            **({dim: ranges} if ranges else {}),
        }
        try:
            if not in_order:
                raise WholeNeededError("labels that overlap")
            done = replace(self._standing_in(shown, inputs, dim), ends=laid.ends)
        except WholeNeededError:
            ordered = [
                self._part(shown, each, dim) if isinstance(each, Span) else each for each in inputs
            ]
            held = [isinstance(each, Span) for each in inputs]
            done = self._whole(ordered, job=self._keeping_repeats(ordered, held, dim))
        filled = _filled_gaps(shown, inputs)
        return replace(
            done,
            pending=pending,
            is_outdated=lambda row: (row["cause"], row["variable"], row["value"]) in filled,
        )

    def _part(self, shown: VirtualGroup, span: Span, dim: str) -> VirtualGroup:
        """Some elements of the catalog as an input, whose index variables count from its first."""

        def counted(path: str, array: VirtualArray) -> VirtualArray:
            if counted_dim(path.rpartition("/")[2], array, self.job.rules) != dim:
                return array
            return moved_index(array, -span.start, span.stop, self.read)

        part = isel_group(shown, {dim: slice(span.start, span.stop)})
        return part.with_each_array(counted).with_changes(report=self._of_catalog)

    def _keeping_repeats(
        self, groups: Sequence[VirtualGroup], held: Sequence[bool], dim: str
    ) -> Job:
        """How to combine, with a rule that accepts labels that repeat in the catalog alone.

        Parameters
        ----------
        groups
            What is combined.
        held
            Which of them are parts of the catalog.
        """
        if self.job.rules.overlap != "raise":
            return self.job
        labels: dict[bool, list[NDArray[Any]]] = {True: [], False: []}
        for group, is_held in zip(groups, held, strict=True):
            index = group.arrays.get(dim)
            if index is not None and index.dims == (dim,):
                labels[is_held].append(decoded_values(dim, self.read(index), index))
        if not labels[True] or not labels[False]:
            return self.job
        theirs, added = np.concatenate(labels[True]), np.concatenate(labels[False])
        try:
            repeats = len(np.unique(theirs)) < len(theirs)
            fits = len(np.unique(added)) == len(added) and not np.isin(added, theirs).any()
        except TypeError:  # labels that cannot be compared: a problem that combining reports
            return self.job
        keeping = Job(combine=CombineOptions(overlap="keep"))
        return self.job.updated(keeping) if repeats and fits else self.job

    def _standing_in(
        self, shown: VirtualGroup, inputs: Sequence[Span | VirtualGroup], dim: str
    ) -> Grown:
        """Combine files with what stands for the catalog, so that its tables go on as they are."""
        job, read = self.job, self.read
        groups = [
            standing_group(shown, dim, each).with_changes(report=self._of_catalog)
            if isinstance(each, Span)
            else each
            for each in inputs
        ]

        def read_any(array: VirtualArray) -> NDArray[Any]:
            return values_of_standing(array) if is_standing(array) else read(array)

        done = combine(groups, dim, read=read_any, options=job.rules)
        group = self._with_drifts(done)
        before = self.base.group.all_arrays()
        edges = _edges(before, dim)
        lengths = [each if isinstance(each, Span) else _length(each, dim) for each in inputs]
        arrays = {
            path: grown(array, before.get(path), dim, lengths, edges)
            for path, array in group.all_arrays().items()
        }
        if (
            isinstance(job.way, Stack)
            and job.way.keeps_labels_whole
            and arrays[dim].laid is not None
        ):
            arrays[dim] = written(_in_one_chunk(arrays[dim], before[dim], read))
        return Grown(group, arrays)

    def _whole(
        self,
        groups: Sequence[VirtualGroup],
        noted: Contradicted | None = None,
        job: Job | None = None,
    ) -> Grown:
        """Combine groups, among them the catalog or parts of it, as they are."""
        done = self.job.way.joined(groups, job or self.job, self.read)
        if noted is not None:
            done = replace(done, report=noted.told(done.report))
        return self._reusing(done)

    def _reusing(self, done: Combination) -> Grown:
        """A combination with the whole catalog; blocks that it left unchanged are reused."""
        group = self._with_drifts(done)
        before = self.base.group.all_arrays()
        arrays = group.all_arrays()
        found = {path: reused(array, before.get(path)) for path, array in arrays.items()}
        return Grown(group, found, ends=done.ends)

    def _with_drifts(self, done: Combination) -> VirtualGroup:
        """The combined group, with the drifts of its files.

        A variable that the catalog repeats along a dimension has it there and not in a new file:
        that is the same drift once more.
        """
        group = with_drifts(done, self.base.group.info.url)
        repeated = {
            row["variable"]: {name: row[name] for name in ("cause", "value", "resolution")}
            for row in self.base.root.snapshot.drifts
            if row["cause"] == "repeated"
        }
        rows = tuple(
            {**row, **repeated.get(row["variable"], {})} if row["cause"] == "dimensions" else row
            for row in group.report.drifts
        )
        return group.with_changes(report=replace(group.report, drifts=rows))

    @property
    def _of_catalog(self) -> ScanReport:
        """What names the catalog among the inputs of a combination."""
        return ScanReport((Finding("/", Fate.NAMED, "", self.base.group.info.url),))


def _filled_gaps(
    group: VirtualGroup, inputs: Sequence[Span | VirtualGroup]
) -> Collection[tuple[str, str, str]]:
    """Gaps in a catalog's labels between which files come, as its report names them."""
    spans = [(number, each) for number, each in enumerate(inputs) if isinstance(each, Span)]
    arrays = group.all_arrays()
    return {
        (GAP, path, gap_text(labels[-1], after.labels[path][0], arrays[path].attrs))
        for (number, before), (following, after) in itertools.pairwise(spans)
        if before.stop == after.start and following > number + 1
        for path, labels in before.labels.items()
    }


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


def _has(group: VirtualGroup, dim: str) -> bool:
    return any(dim in array.dims for array in group.all_arrays().values())


# The elements of a file, and what takes their place

Elements = tuple[int, int]


def _uses(
    group: CatalogGroup, dim: str, files: Sequence[str]
) -> tuple[dict[str, Elements], list[str]]:
    """Elements along the dimension that are in files, and arrays without it that are there too."""
    found: dict[str, set[Elements]] = {file: set() for file in files}
    constants: list[str] = []
    for path, array in group.all_arrays().items():
        rows = group.chunks(path, columns=["source", "start", "stop"])
        rows = rows.filter(pc.is_valid(rows.column("source")))
        sources = rows.column("source").cast("string")
        for file in files:
            is_mine = np.asarray(pc.equal(sources, file))
            if not is_mine.any():
                continue
            if dim not in array.dims:
                constants.append(path)
                continue
            axis = array.dims.index(dim)
            starts, stops = (
                np.asarray(pc.list_element(rows.column(name), axis)) for name in ("start", "stop")
            )
            edges = array.grid.axes[axis].edges()
            first, last = int(starts[is_mine].min()), int(stops[is_mine].max())
            found[file].add(_whole_blocks(edges, first, last))
            others = np.flatnonzero(~is_mine & (starts < last) & (stops > first))
            found[file].update(zip(starts[others].tolist(), stops[others].tolist(), strict=True))
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


# Catalogs whose layout depends on all files


def _makes(done: Combination, base: Base, read: Read) -> bool:
    """Whether files make the arrays of a catalog, row by row.

    What files share may be of another one of them than in the catalog.
    """
    try:
        arrays = done.unwrap().all_arrays()
    except CombineError:
        return False
    snapshot, there = base.root.snapshot, base.group.all_arrays()
    if arrays.keys() != there.keys():
        return False
    entries = snapshot.root.all_arrays()
    rows = recounted(base.folder, arrays, snapshot.source_urls)
    for path, array in arrays.items():
        held = there[path]
        if array.grid.axes != held.grid.axes or array.dtype != held.dtype:
            return False
        is_same = rows[path].content == entries[path].content
        if not is_same and (array.n_blocks > 1 or read(array).tobytes() != read(held).tobytes()):
            return False
    return True


def _lie_as_before(done: Combination, base: Base, files: Collection[str]) -> bool:
    """Whether the same ranges of some files are the same chunks of the same arrays as before."""
    now, there = done.unwrap().all_arrays(), base.group.all_arrays()
    shapes = {path: array.shape for path, array in there.items()}
    if {path: array.shape for path, array in now.items()} != shapes:
        return False
    names = pa.array({without_signature(file) for file in files}, pa.string())
    # Of one block: what files share, which may be of another one of them than before.
    several = [path for path, array in now.items() if array.n_blocks + there[path].n_blocks > 2]
    before, after = ({path: own[path] for path in several} for own in (there, now))
    return bool(_ranges_of(after, names).equals(_ranges_of(before, names)))


def _ranges_of(arrays: Mapping[str, VirtualArray], files: pa.Array) -> pa.Table:
    """Where ranges of some files are."""
    in_order = {path: arrays[path] for path in sorted(arrays)}
    columns = ["path", "start", "stop", "source", "offset", "length"]
    table = list_chunks(in_order, "range", columns).read_all()
    for name in ("path", "source"):
        column = table.column(name).cast(pa.string())
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table.filter(pc.is_in(table.column("source"), files))
