"""Change the files of a catalog: scan new files, combine them with the others, and commit.

`FileChanges` is what `Catalog.append`, `replace`, `remove`, `refresh` and `declare` do. A change is
a function of the newest snapshot: where another writer was quicker, it is tried again on theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from gridref.api.building import Job
from gridref.api.changes import (
    Grown,
    added,
    changed,
    declared,
    found_with_more,
    is_made_of_all,
    rebuilt,
)
from gridref.api.each_chunk import told_as, with_checksums
from gridref.api.layout.joined_variables import Joining
from gridref.api.places import At
from gridref.api.readable import Keeper, Sources, reader_for
from gridref.api.scan import Address, Failures, Files, Progress, scan_each
from gridref.api.summary import change_lines, warn_of_left_out
from gridref.catalog.commit import Base, Change
from gridref.catalog.document import CatalogReport, merged_drifts
from gridref.catalog.group import CatalogGroup
from gridref.errors import (
    InvalidRequestError,
    Message,
    Option,
    Place,
    SourceChangedError,
    SourceUnavailableError,
)
from gridref.formats import expand_files
from gridref.io import SourcePool, absolute_url, is_absent, keeps_at_hand
from gridref.io.ahead import in_threads
from gridref.model.array import VirtualGroup
from gridref.model.manifest import Source
from gridref.model.scan_report import Fate, Finding, ScanReport
from gridref.secrets import shown_address

type Vanished = Literal["raise", "skip"]
"""What to do with files that are gone."""

_CHECKED_AT_ONCE = 32
"""Sources that are looked at side by side."""


@dataclass(frozen=True, eq=False)
class FileChanges[C: CatalogGroup]:
    """Changes the files of a catalog.

    Attributes
    ----------
    keeper
        Commits the changes.
    progress
        Called with the number of files scanned, and of all files.
    """

    keeper: Keeper[C]
    progress: Progress | None = None

    def append(self, files: Files, asked: Job, at: At) -> C:
        """Add files; `asked` replaces what the catalog was built with."""
        given = Counter(expand_files(files, self.keeper.storage_options, unique=False))
        twice = [file for file, n in given.items() if n > 1]

        def files_of(base: Base) -> _Files:
            known = {source.url: source for source in base.group.source_list}
            there = [file for file in given if file in known]
            self._check_unchanged([known[file] for file in there])
            return _Files(new=[file for file in given if file not in known], there=there)

        return self._with_files("append", files_of, asked, at, twice)

    def exchange(self, operation: str, instead: Mapping[Address, Address | None]) -> C:
        """Put other files in the place of some, or none."""
        urls = {
            absolute_url(file): None if by is None else absolute_url(by)
            for file, by in instead.items()
        }
        return self._with_files(operation, lambda _: _Files(urls))

    def refresh(self, vanished: Vanished) -> C:
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

    def declare(self, dim: str, labels: ArrayLike) -> C:
        """Make room for labels whose files are still to come."""

        def change(base: Base) -> Change | None:
            grown = declared(base, dim, labels, self._job(base), self.keeper.sources.reader.read)
            said = f"{np.size(labels)} labels of {dim}"
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
    ) -> C:
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
            is_anew = is_made_of_all(job, base.group)
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

        after = self.keeper.commit(change)
        warn_of_left_out(scans.report)
        there = [
            Finding("/", Fate.SKIPPED, "it is already in the catalog", file) for file in files.there
        ]
        report = ScanReport.joined([scans.report, ScanReport(tuple(there))])
        lines = change_lines(head, twice, report, drifts, after.info.url)
        told = CatalogReport.of(replace(report, lines=lines), after.snapshot.drifts)
        return replace(after, report=told)

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
            job = found_with_more(held, new, job, scans.sources.reader.read)
        return (job if _goes_on(base, job) else self._job(base)), job

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
        read = scans.sources.reader.read
        return rebuilt(base, after, stay, held, built, job, read)

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
    read = scans.sources.reader.read
    if files.new:
        return added(base, scans.of(files.new, job, base), job, at, read)
    scanned = dict(scans.of([by for by in files.instead.values() if by is not None], job, base))
    groups = {old: None if by is None else scanned[by] for old, by in files.instead.items()}
    stay = [each.url for each in base.group.source_list if each.url not in files.instead]

    def spare() -> VirtualGroup | None:
        return scans.of(stay[:1], job, base)[0][1] if stay else None

    return changed(base, groups, spare, job, read)


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
    drifts = merged_drifts(() if is_anew else base.root.snapshot.drifts, rows)
    own = {"drifts": drifts, "pending": grown.pending, "ends": grown.ends}
    return Change(operation, message, grown.group, grown.arrays, own)


def _goes_on(base: Base, job: Job) -> bool:
    """Whether files follow what is there along a dimension that it has."""
    dims = {dim for array in base.group.all_arrays().values() for dim in array.dims}
    return job.way.grows_along(job.dims) in dims


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
