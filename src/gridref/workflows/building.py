"""From files to one catalog: scan them, several at once, and combine."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gridref.catalog import write_catalog
from gridref.combine import Combination, CombineOptions, MosaicOptions
from gridref.combine.options import Read
from gridref.errors import InvalidRequestError
from gridref.formats import ScanOptions, expand_files
from gridref.io import Coverage, keeps_at_hand
from gridref.model.array import VirtualGroup
from gridref.model.manifest import IDENTITIES, Identity
from gridref.model.scan_report import Finding, ScanReport
from gridref.options import check_choice, options_of, verb, warn_of_old_name
from gridref.secrets import without_secrets
from gridref.workflows.chunk_checksums import with_checksums
from gridref.workflows.expecting import Expected, as_expected
from gridref.workflows.identity import with_identity
from gridref.workflows.layout.choosing import laid_out_by_itself, laid_out_by_kind
from gridref.workflows.layout.cubes import flat, nested_urls
from gridref.workflows.layout.inventory import with_inventory
from gridref.workflows.layout.layouts import Layout
from gridref.workflows.layout.variable_names import Joining, NamePattern, split_labels
from gridref.workflows.opening import reader_for
from gridref.workflows.partitions import combine_elsewhere
from gridref.workflows.reading import Sources, readable
from gridref.workflows.scanning.failures import Failures
from gridref.workflows.scanning.files import Address, Files, Progress, scan_each
from gridref.workflows.scanning.outcomes import RunOptions
from gridref.workflows.units import with_converter

__all__ = ["BUILD_OPTIONS", "Job", "build", "explain", "plan", "with_drifts"]

BUILD_OPTIONS = (RunOptions, Layout, CombineOptions, MosaicOptions, ScanOptions)


@verb(*BUILD_OPTIONS, renamed={"output": "catalog"})
def build(
    files: Files,
    catalog: Address,
    concat_dim: str | Sequence[str] | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    relative: bool = False,
    identity: Identity | None = None,
    checksum: Coverage = "sampled",
    checksums: bool = False,
    keep_secrets: bool = False,
    expect: Expected | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> VirtualGroup:
    """Index files, combine them and write the catalog.

    Parameters
    ----------
    files
        Paths, URLs, globs or directories.
    catalog
        Where the catalog goes: a local path or an fsspec URL, by custom ending in ``.gridref``.
    concat_dim
        Dimension to concatenate along, existing or new; several lay files out along each. Without
        any option of `Layout`, how files lie beside each other is worked out of coordinates,
        georeferencing, names and attributes: one clear way is taken, and told in the report.
    storage_options
        Options of fsspec's filesystem of files and catalog, or of several by protocol:
        ``{"s3": {"anon": True}, "https": {...}}``.
    relative
        Keep the addresses of the files as seen from the catalog where both lie on one filesystem,
        so that both can be moved together.
    identity
        What makes a file the one that was scanned, when it is read: ``"strict"``, its size and time
        of change or ETag; ``"size"``; or ``"content"``, its size and, where time and ETag are not
        the recorded ones, a checksum, which is taken now. By default ``"content"`` where addresses
        are relative, as copies have other times; else ``"strict"``.
    checksum
        What of a file a checksum is of: ``"sampled"``, 16 ranges of 4 KiB; or ``"all"``.
    checksums
        Take a checksum (CRC-32C) of each stored chunk, for which all are read, and compare what is
        read with it from then on. Files that are added to the catalog later get theirs, too.
    keep_secrets
        Keep credentials and signatures that stand in the addresses of files (``user:password@``,
        presigned queries). By default they are left out, and reading needs `storage_options`.
    expect
        A plan that was saved before, as ``gridref plan --json`` writes it: whatever differs from it
        is a problem, and nothing is written.
    progress
        Called with the number of files done, and of all files.
    **options
        Fields of `RunOptions` (``max_in_flight``, ``n_processes``, ``on_error``), of `Layout`
        (``stack``, ``pattern``, ``mosaic``), of `CombineOptions` (``convert_units=True`` converts
        with pint), of `MosaicOptions` and of `ScanOptions`.

    Returns
    -------
    VirtualGroup
        What was written. Its ``report`` lists every object of every file, and the files that
        ``on_error="skip"`` left out; of these a `SkippedFilesWarning` tells too.

    Raises
    ------
    InvalidRequestError
        If a pattern matches nothing, or nothing or too much says how several files lie beside each
        other.
    ScanError, SourceUnavailableError
        If a file cannot be described; a `FilesFailedError` with all of them, if several cannot.
    CombineError
        If the files do not fit together: all problems at once.
    """
    job = Job.of({**options, "concat_dim": concat_dim, "storage_options": storage_options})
    identity = identity or ("content" if relative else "strict")
    check_choice("identity", identity, IDENTITIES)
    check_choice("checksum", checksum, ("sampled", "all"))
    job, done = job.run(files, progress)
    done = as_expected(done, expect)
    group = with_identity(with_drifts(done), identity, checksum, storage_options)
    if checksums:
        group = with_checksums(group, storage_options)
    sources: Literal["absolute", "relative"] = "relative" if relative else "absolute"
    write_catalog(
        group,
        os.fspath(catalog),
        storage_options,
        sources=sources,
        extra=_skipped(done.failed),
        recipe=job.recipe,
        keep_secrets=keep_secrets,
        ends=done.ends,
    )
    return readable(group, Sources(storage_options))


@verb(*BUILD_OPTIONS)
def plan(
    files: Files,
    concat_dim: str | Sequence[str] | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    relative: bool = False,
    identity: Identity | None = None,
    checksum: Coverage = "sampled",
    checksums: bool = False,
    keep_secrets: bool = False,
    expect: Expected | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Combination:
    """Say what `build` would make of files, without writing anything.

    Parameters
    ----------
    files, concat_dim, storage_options, progress, **options
        As for `build`.
    relative, identity, checksum, checksums, keep_secrets
        As for `build`: they change nothing of a plan.
    expect
        As for `build`: whatever differs is among the problems.

    Returns
    -------
    Combination
        The report of every drift, the problems, and the combined group where there are none.

    Raises
    ------
    InvalidRequestError
        If a pattern matches nothing, or nothing or too much says how several files lie beside each
        other.
    ScanError, SourceUnavailableError
        If a file cannot be described; a `FilesFailedError` with all of them, if several cannot.
    """
    job = Job.of({**options, "concat_dim": concat_dim, "storage_options": storage_options})
    return as_expected(job.run(files, progress)[1], expect)


@verb(CombineOptions, renamed={"urls": "files"})
def explain(
    files: Files,
    concat_dim: str | Sequence[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Combination:
    """Say what combining files would do: the former name of `plan`."""
    warn_of_old_name("explain", "plan")
    return plan(files, concat_dim, storage_options=storage_options, **options)


@dataclass(frozen=True)
class Job:
    """All options of a call, sorted by what they are for; `names` is of the layout's labels."""

    layout: Layout
    rules: CombineOptions
    mosaic: MosaicOptions
    scanning: ScanOptions
    options: RunOptions
    recipe: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[NamePattern, ...] = ()

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Job:
        """Options by name, of any of the kinds."""
        labels, names = split_labels(options.get("labels"))
        layout = Layout(**{**options_of(Layout, options), "labels": labels})
        mosaic_options = options_of(MosaicOptions, options)
        if mosaic_options and not layout.mosaic:
            raise InvalidRequestError(
                f"{', '.join(mosaic_options)}: only for files laid out by mosaic=True"
            )
        return cls(
            layout,
            CombineOptions(**with_converter(options_of(CombineOptions, options))),
            MosaicOptions(**mosaic_options),
            ScanOptions(**options_of(ScanOptions, options)),
            RunOptions(**options_of(RunOptions, options)),
            _recipe(options),
            names,
        )

    @keeps_at_hand
    def run(self, files: Files, progress: Progress | None) -> tuple[Job, Combination]:
        """Scan files and combine them; of a layout that was found, the job says which it is."""
        storage_options = self.scanning.storage_options
        layout, files = with_inventory(self.layout, files, storage_options)
        if layout is not self.layout:
            listed = replace(self, layout=replace(layout, inventory=None, asset=None))
            return listed.run(files, progress)
        tree = nested_urls(files, storage_options) if self.layout.combine == "nested" else []
        ordered = flat(tree) or self.layout.ordered(expand_files(files, storage_options))
        failures = Failures(self.options)
        scanned = scan_each(
            ordered, self.scanning, self.options, failures=failures, progress=progress
        )
        read = reader_for(storage_options).read
        joining = self.joining(read)
        joined = joining.each(scanned)
        job = self
        if self._travels(len(ordered)):
            done = combine_elsewhere(
                ordered,
                str(self.layout.grows_along),
                self.scanning,
                self.rules,
                self.options,
                failures=failures,
                progress=progress,
            )
        elif len(ordered) > 1 and not (self.layout.is_asked_for or self.layout.in_groups):
            take_first = self.layout.yes
            found, done = laid_out_by_itself(list(joined), read, self.rules, take_first=take_first)
            job = replace(
                self,
                layout=Layout(**options_of(Layout, found)),
                mosaic=MosaicOptions(**options_of(MosaicOptions, found)),
                recipe=self._recipe_with(found),
            )
        else:
            done = self.laid_out(joined, read, tree)
        failures.warn()
        done = replace(done, report=joining.told(done.report))
        return job, _with_failed(done, failures.findings)

    def joining(self, read: Read) -> Joining:
        """What joins variables of scanned files by their names, before files are laid out."""
        return Joining(self.names, read, self.rules)

    def _recipe_with(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """The recipe with a layout that was found; labels in variables' names stay in it."""
        both = {**self.recipe.get("labels", {}), **found.get("labels", {})}
        return {**self.recipe, **found, **({"labels": both} if both else {})}

    def laid_out(
        self,
        scanned: Iterable[tuple[str, VirtualGroup]],
        read: Read,
        tree: Sequence[Any] = (),
    ) -> Combination:
        """Combine scanned files as the layout says; `tree` is their nesting, if they have one."""
        if self.layout.in_groups:
            return laid_out_by_kind(list(scanned), self.layout, read, self.rules, self.mosaic)
        return self.layout.laid_out(scanned, read, self.rules, self.mosaic, tree)

    def _travels(self, n_files: int) -> bool:
        """Whether files are combined where they are scanned: in a row, by rules without calls."""
        plain = self.rules.convert_units is None and not self.names
        along = self.layout.grows_along is not None and plain
        return along and self.options.is_elsewhere(n_files)


ACCESS = ("storage_options", "allow")
"""Options that say what may be read, and how: those of whoever calls, never those of a catalog."""


def _recipe(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that say how files become a catalog, as its JSON keeps them.

    Access is left out, and what JSON cannot say (a converter of units): it is given again.
    """
    kept: dict[str, Any] = {}
    for kind in (Layout, CombineOptions, MosaicOptions, ScanOptions):
        for name, value in options_of(kind, options).items():
            plain = list(value) if isinstance(value, tuple | set | frozenset) else value
            plain = os.fspath(plain) if isinstance(plain, os.PathLike) else plain
            with suppress(TypeError, ValueError):
                if name not in ACCESS and plain is not None:
                    kept[name] = json.loads(json.dumps(plain, allow_nan=False))
    if "inventory" not in kept:  # it was a data frame
        kept.pop("asset", None)
    return kept


def _skipped(failed: tuple[Finding, ...]) -> dict[str, Any]:
    """What a catalog says of the files that were left out."""
    if not failed:
        return {}
    reasons = [(each.source, each.reason) for each in failed]
    return {
        "skipped_files": [
            {"file": without_secrets(file), "reason": without_secrets(reason)}
            for file, reason in reasons
        ]
    }


def with_drifts(done: Combination, catalog: str = "") -> VirtualGroup:
    """The combined group, with what differed between the files in its report.

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
    return group.replace(report=replace(group.report, drifts=done.report.rows(catalog)))


def _with_failed(done: Combination, failed: tuple[Finding, ...]) -> Combination:
    """The combination with the files that failed listed in it, and in its group's report."""
    if done.group is None or not failed:
        return replace(done, failed=failed)
    report = ScanReport.joined([done.group.report, ScanReport(failed)])
    return replace(done, group=done.group.replace(report=report), failed=failed)
