"""How files become one group: `Job` holds the options of a call, scans the files and combines them.

`build`, `plan`, `append` and `open_dataset` take a job. A catalog keeps it as its recipe.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gridref.api.layout.discovery import laid_out
from gridref.api.layout.joined_variables import Joining
from gridref.api.layout.layouts import (
    LAYOUTS,
    Combining,
    Labels,
    Layout,
    Nested,
    as_given,
    flat,
    nested_urls,
)
from gridref.api.layout.listings import with_inventory
from gridref.api.readable import reader_for
from gridref.api.scan import Failures, Files, Progress, RunOptions, each_part, scan_each, scan_here
from gridref.api.summary import change_lines, group_line, layout_line, warn_of_left_out
from gridref.catalog import CatalogGroup
from gridref.catalog.values import refusing_damage
from gridref.combine import (
    BATCH_GROUPS,
    Along,
    Combination,
    CombinedPart,
    CombineOptions,
    combine_part,
    combine_parts,
)
from gridref.errors import GridrefError, Place
from gridref.formats import ScanOptions, expand_files
from gridref.io import Allow, keeps_at_hand
from gridref.model.array import VirtualGroup
from gridref.model.conventions import LabelEnds
from gridref.model.scan_report import Finding, ScanReport
from gridref.options import check_choice, given_options, refuses_unknown, updated

_OF_A_CALL = ("run", "resolve")
"""What catalogs do not keep of a job."""


@refuses_unknown
@dataclass(frozen=True, eq=False)
class Job(Combining):
    """How files become one group: what `build`, `plan`, `append` and `open_dataset` take."""

    scan: ScanOptions | None = None
    run: RunOptions | None = None

    def __post_init__(self) -> None:
        check_choice("order", self.order, ("label", "given"))
        check_choice("resolve", self.resolve, ("lossless", "ask"))
        self.way.check(self.dims, self.order)

    @property
    def scanning(self) -> ScanOptions:
        """How files are scanned."""
        return self.scan or ScanOptions()

    @property
    def running(self) -> RunOptions:
        """How many files are scanned at a time."""
        return self.run or RunOptions()

    def reading(self, storage_options: Mapping[str, Any] | None, allow: Allow = None) -> Job:
        """The same job with access to sources, where some is given."""
        access: dict[str, Any] = {"storage_options": storage_options, "allow": allow}
        given = {name: own for name, own in access.items() if own is not None}
        return self.updated(Job(scan=ScanOptions(**given)))

    def updated(self, other: Job) -> Job:
        """The same job, but for what another one says."""
        asked = {**self.asked, **other.asked}
        for name in ("combine", "scan", "run"):
            if name in other.asked:
                asked[name] = updated(getattr(self, name), getattr(other, name))
        mine, given = self.layout, other.layout
        if mine is not None and type(mine) is type(given) and not isinstance(mine, str):
            asked["layout"] = updated(mine, given)
        elif isinstance(given, Labels) and mine is not None:
            asked["layout"] = as_given(self.way.with_labels(updated(self.way.sought, given)))
        return Job(**asked)

    # What a catalog keeps

    @property
    def recipe(self) -> dict[str, Any]:
        """What says how files become a catalog, as its JSON keeps it.

        Access is left out, and what JSON cannot say, like a function: it is given again.
        """
        asked = {name: own for name, own in self.asked.items() if name not in _OF_A_CALL}
        kept = {name: _to_json(own) for name, own in asked.items()}
        return {name: own for name, own in kept.items() if own not in ({}, {"kind": "Labels"})}

    @classmethod
    def of(cls, group: VirtualGroup) -> Job:
        """How a catalog was made of files; an empty job for any other group.

        Access to sources is from the caller, never from a catalog.
        """
        if not isinstance(group, CatalogGroup):
            return cls()
        with refusing_damage("how its files were combined", Place(source=group.info.url)):
            return cls._kept(group.snapshot.recipe or {})

    @classmethod
    def _kept(cls, recipe: Mapping[str, Any]) -> Job:
        asked = {name: own for name, own in recipe.items() if name not in ACCESS}
        if "layout" in asked:
            asked["layout"] = _layout_from_json(asked["layout"])
        for name, kind in (("combine", CombineOptions), ("scan", ScanOptions)):
            if name in asked:
                given = {n: own for n, own in dict(asked[name]).items() if n not in ACCESS}
                asked[name] = kind(**given)
        return cls(**asked)

    # Doing it

    def layout_line(self, group: VirtualGroup, ends: LabelEnds) -> str:
        """How files were laid out, for people."""
        asked = {n: own for n, own in self.asked.items() if n in ("concat_dim", "order", "layout")}
        return layout_line(asked, self.way.grows_along(self.dims), group, ends)

    @keeps_at_hand
    def combined(self, files: Files, progress: Progress | None) -> tuple[Done, Combination]:
        """Scan files and combine them; also what was done, with the layout that was used."""
        storage_options = self.scanning.storage_options
        tree = nested_urls(files, storage_options) if self.layout == "nested" else []
        way = Nested(tree) if tree else self.way
        way, files = with_inventory(way, self.dims, files, storage_options)
        given = Counter([] if tree else expand_files(files, storage_options, unique=False))
        ordered = flat(tree) or way.ordered(list(given))
        told = way.telling(ordered)
        job = self
        if told is not way:
            way = told
            pattern = self.way.sought.with_pattern(told.sought.pattern)
            job = replace(self, layout=as_given(self.way.with_labels(pattern)))
            ordered = way.ordered(ordered)
        failures = Failures(self.running)
        scanned = scan_each(
            ordered, self.scanning, self.running, failures=failures, progress=progress
        )
        read = reader_for(storage_options).read
        joining = Joining(way.sought.of_variables, read, self.rules)
        joined = joining.each(scanned)
        if self._travels(way, len(ordered)):
            done = _combine_elsewhere(self, ordered, failures, progress)
        else:
            layout = as_given(way)
            how = Combining(self.concat_dim, self.order, layout, self.combine, self.resolve)
            found, done = laid_out(joined, how, read)
            job = job if found is how else self.as_found(found)
        done = replace(done, report=joining.told(done.report))
        done = _with_failed(done, failures.findings)
        warn_of_left_out(ScanReport(done.failed) if done.group is None else done.group.report)
        return Done(job, tuple(file for file, n in given.items() if n > 1)), done

    def as_found(self, found: Combining) -> Job:
        """The job with a layout that was found; labels that were asked for stay."""
        asked, labels = given_options(self.way.sought), found.way.sought
        both = {**asked, **given_options(labels)}
        if isinstance(self.way.sought.sources, Mapping) and isinstance(labels.sources, Mapping):
            both["sources"] = {**self.way.sought.sources, **labels.sources}
        own = {**self.asked, **found.asked}
        if found.combine is not None:
            own["combine"] = updated(found.combine, self.combine or CombineOptions())
        own["layout"] = as_given(found.way.with_labels(Labels(**both))) if asked else found.layout
        return Job(**own)

    def _travels(self, way: Layout, n_files: int) -> bool:
        """Whether files are combined where they are scanned: in a row, by rules without calls."""
        plain = self.rules.convert_units is None and not way.sought.of_variables
        in_a_row = len(self.dims) == 1 and not way.is_asked_for(())
        return plain and in_a_row and self.running.is_elsewhere(n_files)


@dataclass(frozen=True)
class Done:
    """What a job did: the job with the layout that was used, and the files given repeatedly."""

    job: Job
    twice: tuple[str, ...] = ()

    def lines(self, group: VirtualGroup, done: Combination, catalog: str) -> tuple[str, ...]:
        """What was done to make a catalog of files, in short."""
        several = len(done.report.files) > 1
        head = [self.job.layout_line(group, done.ends)] if several else []
        head += group_line(group)
        return change_lines(head, self.twice, group.report, group.report.drifts, catalog)


ACCESS = ("storage_options", "allow")
"""Options for access to sources."""


def _to_json(value: Any) -> Any:
    """Options as JSON; None for what it cannot say."""
    if isinstance(value, Layout | CombineOptions | ScanOptions):
        kind = {"kind": type(value).__name__} if isinstance(value, Layout) else {}
        own = {name: _to_json(each) for name, each in given_options(value).items()}
        kept = {name: each for name, each in own.items() if each is not None}
        if "inventory" not in kept:  # it was a data frame
            kept.pop("asset", None)
        return {**kind, **{name: each for name, each in kept.items() if name not in ACCESS}}
    plain = list(value) if isinstance(value, tuple | set | frozenset) else value
    plain = os.fspath(plain) if isinstance(plain, os.PathLike) else plain
    with suppress(TypeError, ValueError):
        return json.loads(json.dumps(plain, allow_nan=False))
    return None


def _layout_from_json(value: Any) -> Any:
    """A layout, or labels: an object of the class that it names, or a text."""
    if not isinstance(value, Mapping):
        return value
    given = {name: _layout_from_json(own) if name in ("labels", "each") else own
             for name, own in value.items() if name != "kind"}  # fmt: skip
    check_choice("kind", value["kind"], tuple(LAYOUTS))
    return LAYOUTS[value["kind"]](**given)


# Files combined by the workers that scan them, which return columns


@dataclass(frozen=True)
class _Partition:
    """Neighbouring files combined, and those that could not be scanned.

    Attributes
    ----------
    part
        None if no file could be scanned, or one that could not ends the job.
    """

    part: CombinedPart | None
    failed: tuple[tuple[str, GridrefError], ...]


def _combine_elsewhere(
    job: Job, addresses: Sequence[str], failures: Failures, progress: Progress | None
) -> Combination:
    """Scan files and combine them along a dimension, neighbours where they are scanned."""
    travelling = replace(job, layout=None, run=job.running.on_worker())
    task = partial(_combine_here, job=travelling)
    found = each_part(addresses, job.running, task, BATCH_GROUPS)

    def parts() -> Iterator[CombinedPart]:
        n_done = 0
        for files, partition in found:
            for address, error in partition.failed:
                failures.add(address, error)
            n_done += len(files)
            if progress is not None:
                progress(n_done, len(addresses))
            if partition.part is not None and not failures.fatal:
                yield partition.part
        failures.close(n_done)

    read = reader_for(job.scanning.storage_options).read
    return combine_parts(parts(), _along(job), read=read, options=job.rules)


def _along(job: Job) -> Along:
    return Along((job.dims[0],), by_label=job.by_label)


@keeps_at_hand
def _combine_here(addresses: tuple[str, ...], max_in_flight: int, *, job: Job) -> _Partition:
    found = scan_here(addresses, max_in_flight, options=job.scanning, work=job.running.work)
    pairs = list(zip(addresses, found, strict=True))
    failed = tuple((address, own) for address, own in pairs if isinstance(own, GridrefError))
    groups = [own for _, own in pairs if not isinstance(own, GridrefError)]
    if not groups or (failed and job.running.on_error == "raise"):
        return _Partition(None, failed)
    read = reader_for(job.scanning.storage_options).read
    part = combine_part(groups, _along(job), read=read, options=job.rules)
    return _Partition(part, failed)


# The outcome


def with_drifts(done: Combination, catalog: str = "") -> VirtualGroup:
    """Add the differences between the files to the report of the combined group.

    Parameters
    ----------
    catalog
        Address of the catalog among the inputs, if one is: its files are not named again.

    Raises
    ------
    CombineError
        If there are problems.
    """
    group = done.unwrap()
    drifts = (*group.report.drifts, *done.report.rows(catalog))
    return group.with_changes(report=replace(group.report, drifts=drifts))


def _with_failed(done: Combination, failed: tuple[Finding, ...]) -> Combination:
    """The combination with the files that failed listed in it, and in its group's report."""
    if done.group is None or not failed:
        return replace(done, failed=failed)
    report = ScanReport.joined([done.group.report, ScanReport(failed)])
    return replace(done, group=done.group.with_changes(report=report), failed=failed)
