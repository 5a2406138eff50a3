"""Build a catalog from files: scan, combine, compare with an expected plan, write.

`build` writes the catalog, and `plan` only reports what `build` would do. `open_data` opens what
these take without writing anything.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from gridref.api.each_chunk import with_checksums, with_identity
from gridref.api.layout.discovery import laid_out_by_itself
from gridref.api.layout.facts import refusing_parts_of_sets
from gridref.api.layout.joined_variables import Joining
from gridref.api.layout.layouts import (
    LAYOUTS,
    AnyLayout,
    Combining,
    Groups,
    Labels,
    Layout,
    Order,
    Resolve,
    Scanned,
    as_given,
    flat,
    layout_of,
    nested_urls,
)
from gridref.api.layout.listings import with_inventory
from gridref.api.opening import open_group
from gridref.api.readable import Sources, readable, reader_for
from gridref.api.scan import (
    Address,
    Failures,
    Files,
    Progress,
    RunOptions,
    each_part,
    scan_described,
    scan_each,
    scan_here,
)
from gridref.api.summary import (
    change_lines,
    group_line,
    layout_line,
    warn_of_left_out,
)
from gridref.api.units import with_converter
from gridref.catalog import ROOT_FILE, CatalogGroup
from gridref.catalog.commit import Access, commit, new_content, put_catalog
from gridref.catalog.overlays import OverlayPolicy
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
from gridref.combine.options import Read
from gridref.errors import (
    CatalogNotFoundError,
    GridrefError,
    InvalidRequestError,
    Message,
    Option,
    Place,
    Problem,
)
from gridref.formats import ScanOptions, expand_files
from gridref.formats.registry import data_names
from gridref.io import Allow, Coverage, absolute_url, is_local, keeps_at_hand
from gridref.model.array import VirtualGroup
from gridref.model.conventions import LabelEnds
from gridref.model.manifest import IDENTITIES, Identity
from gridref.model.scan_report import Fate, Finding, ScanReport
from gridref.options import (
    check_choice,
    given_options,
    option_values,
    refuses_unknown,
    updated,
    verb,
)
from gridref.secrets import shown_address, without_secrets

# Comparison with a saved plan: every difference is a problem

type Expected = str | os.PathLike[str] | Mapping[str, Any]
"""A plan: what ``gridref plan --json`` writes, as a file or as what is in it."""

_ADVICE = Message(
    Option("expect"), " asks for the plan that was saved; save a new one if this is meant"
)


def plan_document(combination: Combination) -> dict[str, Any]:
    """What a plan is compared by: its drifts, and its arrays with dtypes and dimensions."""
    arrays = {} if combination.group is None else combination.group.all_arrays()
    return {
        "drifts": [drift.to_json() for drift in combination.report],
        "arrays": {
            path: {"dims": list(array.dims), "dtype": str(array.dtype)}
            for path, array in arrays.items()
        },
    }


def as_expected(combination: Combination, expect: Expected | None) -> Combination:
    """The combination, with a problem for each thing that a saved plan does not hold.

    Files and sizes may change. A drift that the plan has, with values that it has, is as expected,
    whichever files it is in; so are any values where the plan has another for each file.

    Parameters
    ----------
    combination
        What was planned or built today.
    expect
        The plan; None expects nothing.

    Raises
    ------
    InvalidRequestError
        If the plan cannot be read, or is none.
    """
    if expect is None or combination.group is None:
        return combination
    saved, today = _read(expect), plan_document(combination)
    found = (*_unlike_arrays(saved, today), *_unlike_drifts(saved, today))
    problems = tuple(
        Problem("unexpected", Message(message, "; ", _ADVICE), variable)
        for variable, message in found
    )
    return replace(combination, problems=(*combination.problems, *problems))


def _read(expect: Expected) -> Mapping[str, Any]:
    if isinstance(expect, Mapping):
        plan: Any = expect
    else:
        try:
            plan = json.loads(Path(expect).read_bytes())
        except (OSError, ValueError) as error:
            raise InvalidRequestError(
                Message(Option("expect", os.fspath(expect)), f": {error}")
            ) from error
    if not _is_plan(plan):
        raise InvalidRequestError(
            Message(Option("expect"), " must be a plan, as gridref plan --json writes it")
        )
    return plan  # type: ignore[no-any-return]


def _is_plan(plan: Any) -> bool:
    """Whether all that is compared is there, and of the types that `plan_document` makes."""
    try:
        return all(map(_is_drift, plan["drifts"])) and all(
            isinstance(array["dims"], list) and isinstance(array["dtype"], str)
            for array in plan["arrays"].values()
        )
    except (KeyError, TypeError, AttributeError, ValueError):
        return False


def _is_drift(drift: Any) -> bool:
    named = [*_key(drift), *(case["value"] for case in drift["cases"])]
    spans = [span for case in drift["cases"] for span in case.get("files", ())]
    return (
        all(isinstance(text, str) for text in named)
        and isinstance(drift.get("n_cases", 0), int)
        and all(len(span) == 2 for span in spans)
    )


def _unlike_arrays(saved: Mapping[str, Any], today: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Arrays that are new, gone or of another kind: path and what is wrong."""
    before, now = saved["arrays"], today["arrays"]
    for path in dict.fromkeys([*before, *now]):
        if path not in now:
            yield path, "a variable is gone"
        elif path not in before:
            yield path, "a variable is new"
        else:
            for name in ("dims", "dtype"):
                if before[path][name] != now[path][name]:
                    yield path, f"{name} were {before[path][name]}, and are {now[path][name]}"


def _unlike_drifts(saved: Mapping[str, Any], today: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Drifts that are new, or have new values: variable and what is wrong."""
    known: dict[tuple[str, str, str], set[str]] = {}
    free = set()
    for drift in saved["drifts"]:
        known.setdefault(_key(drift), set()).update(_values(drift))
        if drift.get("n_cases", 0) > len(drift["cases"]) or _has_one_value_a_file(drift):
            free.add(_key(drift))
    for drift in today["drifts"]:
        cause, variable, resolution = key = _key(drift)
        values = _values(drift) - known.get(key, set())
        listed = ", ".join(sorted(values))
        if key not in known:
            yield variable, f"a new drift: {cause} ({listed}) -> {resolution}"
        elif values and key not in free:
            yield variable, f"new values of a drift: {cause} ({listed})"


def _has_one_value_a_file(drift: Mapping[str, Any]) -> bool:
    """Whether values are another in each file, like a date of writing: the next is, too."""
    spans = [span for case in drift["cases"] for span in case.get("files", ())]
    each_once = len(spans) == len(drift["cases"]) > 1
    return each_once and all(first == last for first, last in spans)


def _key(drift: Mapping[str, Any]) -> tuple[str, str, str]:
    return drift["cause"], drift["variable"], drift["resolution"]


def _values(drift: Mapping[str, Any]) -> set[str]:
    return {case["value"] for case in drift["cases"]}


# What a call says of files, and what it does with them


_DEFAULTS = (None, "label", "lossless")
_OF_A_CALL = ("run", "resolve")
"""What catalogs do not keep of a job."""


@refuses_unknown
@dataclass(frozen=True, eq=False)
class Job:
    """How files become one group: what `build`, `plan`, `append` and `open_dataset` take."""

    concat_dim: str | Sequence[str] | None = None
    order: Order = "label"
    layout: AnyLayout | None = None
    combine: CombineOptions | None = None
    scan: ScanOptions | None = None
    run: RunOptions | None = None
    resolve: Resolve = "lossless"

    def __post_init__(self) -> None:
        check_choice("order", self.order, ("label", "given"))
        check_choice("resolve", self.resolve, ("lossless", "ask"))
        self.way.check(self.dims, self.order)

    @property
    def asked(self) -> dict[str, Any]:
        """What is not at its default, by name."""
        own = option_values(self)
        return {name: value for name, value in own.items() if value not in _DEFAULTS}

    @property
    def way(self) -> Layout:
        """The layout, which combines files."""
        return layout_of(self.layout)

    @property
    def dims(self) -> tuple[str, ...]:
        """The dimensions that files are concatenated along, as far as they are named."""
        named = self.concat_dim or ()
        return (named,) if isinstance(named, str) else tuple(named)

    @property
    def rules(self) -> CombineOptions:
        """How differences are resolved."""
        given = {} if self.combine is None else given_options(self.combine)
        return CombineOptions(**with_converter(given))

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

    def combining(self, read: Read, tree: Sequence[Any] = ()) -> Combining:
        """What is said of combining besides the layout; `tree` is the nesting of the files."""
        how = Combining(read, self.rules, self.dims, self.order, tree, self.resolve)
        return replace(how, by_itself=partial(laid_out_by_itself, how=how))

    def layout_line(self, group: VirtualGroup, ends: LabelEnds) -> str:
        """How files were laid out, for people."""
        asked = {n: own for n, own in self.asked.items() if n in ("concat_dim", "order", "layout")}
        return layout_line(asked, self.way.grows_along(self.dims), group, ends)

    def laid_out(self, scanned: Scanned, read: Read) -> Combination:
        """Combine scanned files."""
        return self.way.laid_out(scanned, self.combining(read))

    def found_or_laid_out(self, scanned: Scanned, read: Read) -> Combination:
        """Combine scanned files, by a layout that is found if none is asked for."""
        files = list(scanned)
        if len(files) < 2 or self.way.is_asked_for(self.dims):
            return self.laid_out(files, read)
        return laid_out_by_itself(files, self.combining(read), take_first=self.takes_first)[1]

    @property
    def takes_first(self) -> bool:
        """Whether the first of several layouts that are found is taken."""
        return self.layout == "first"

    @keeps_at_hand
    def combined(self, files: Files, progress: Progress | None) -> tuple[Done, Combination]:
        """Scan files and combine them; also what was done, with the layout that was used."""
        storage_options = self.scanning.storage_options
        tree = nested_urls(files, storage_options) if self.layout == "nested" else []
        way, files = with_inventory(self.way, self.dims, files, storage_options)
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
        how = self.combining(read, tree)
        joining = Joining(way.sought.of_variables, read, how.rules)
        joined = joining.each(scanned)
        is_asked_for = way.is_asked_for(self.dims)
        if is_asked_for and not isinstance(way, Groups):  # which lay out each kind by itself
            joined = refusing_parts_of_sets(joined)
        if self._travels(way, len(ordered)):
            done = _combine_elsewhere(self, ordered, failures, progress)
        elif len(ordered) > 1 and not is_asked_for:
            found, done = laid_out_by_itself(list(joined), how, take_first=self.takes_first)
            job = self.as_found(found)
        else:
            done = way.laid_out(joined, how)
        done = replace(done, report=joining.told(done.report))
        done = _with_failed(done, failures.findings)
        warn_of_left_out(ScanReport(done.failed) if done.group is None else done.group.report)
        return Done(job, tuple(file for file, n in given.items() if n > 1)), done

    def as_found(self, found: Mapping[str, Any]) -> Job:
        """The job with a layout that was found; labels that were asked for stay."""
        asked, labels = given_options(self.way.sought), layout_of(found.get("layout")).sought
        both = {**asked, **given_options(labels)}
        if isinstance(self.way.sought.sources, Mapping) and isinstance(labels.sources, Mapping):
            both["sources"] = {**self.way.sought.sources, **labels.sources}
        own = {**self.asked, **found}
        if "combine" in found:
            own["combine"] = updated(found["combine"], self.combine or CombineOptions())
        if asked:
            own["layout"] = as_given(layout_of(found.get("layout")).with_labels(Labels(**both)))
        elif "layout" not in found:
            own.pop("layout", None)
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
    travelling = Job(job.dims, job.order, None, job.combine, job.scan, job.running.on_worker())
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
    return Along((job.dims[0],), by_label=job.order == "label")


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


# The calls `build` and `plan`


@verb()
def build(
    files: Files,
    catalog: Address,
    concat_dim: str | Sequence[str] | None = None,
    *,
    order: Order = "label",
    layout: AnyLayout | None = None,
    combine: CombineOptions | None = None,
    scan: ScanOptions | None = None,
    run: RunOptions | None = None,
    resolve: Resolve = "lossless",
    storage_options: Mapping[str, Any] | None = None,
    allow: Allow = None,
    relative: bool = False,
    identity: Literal["strict", "size", "content", "content-all"] | None = None,
    checksums: bool = False,
    keep_secrets: bool = False,
    overwrite: bool = False,
    expect: Expected | None = None,
    progress: Progress | None = None,
) -> VirtualGroup:
    """Index files, combine them and write the catalog.

    Parameters
    ----------
    files
        Paths, URLs, globs or directories.
    catalog
        Where to write the catalog: a local path or an fsspec URL, usually ending in ``.gridref``.
    concat_dim
        Dimension to concatenate along, existing or new; several lay files out along each. Without
        it and `layout`, `build` works out the layout from coordinates, georeferencing, names and
        attributes. It takes a clear layout and reports it; if several are possible, it lists them.
    order
        The order of files along one dimension. ``"label"``: by label if the labels of every file
        rise, or those of every file fall; otherwise as given, and the report says so. ``"given"``:
        as given.
    layout
        How files lie beside each other, other than along an existing dimension: `Stack`, `Labels`,
        `Mosaic`, `Ragged`, `Plate`, `Groups`, or ``"by_coords"``, ``"nested"``, ``"first"``.
    combine
        How differences between the files are resolved.
    scan
        How each file is scanned.
    run
        How many files are scanned at a time and where, and what happens to those that fail.
    resolve
        What to do in a layout that is found where files differ and one choice loses nothing.
        ``"lossless"``: take it and report it; variables that differ are repeated along the
        dimension, files of differing length follow each other. ``"ask"``: list it, and take it with
        ``layout="first"`` only.
    storage_options
        Options of fsspec's filesystem of files and catalog, or of several by protocol:
        ``{"s3": {"anon": True}, "https": {...}}``.
    allow
        Folders and URLs below which files may refer to other files (references of kerchunk, and
        external links, external storage and virtual datasets of HDF5), besides their own folder;
        ``"*"`` allows everything.
    relative
        Record the addresses of the files relative to the catalog if both are on one filesystem.
        Both can then be moved together.
    identity
        How a read checks that a file is the one that was scanned. ``"strict"``: by size and time of
        change or ETag. ``"size"``: by size only. ``"content"``: by size and, if time or ETag
        differ, by a checksum of 16 ranges of 4 KiB, which `build` computes; ``"content-all"``: of
        the whole file. The default is ``"content"`` for relative addresses, because copies have
        other times, and else ``"strict"``.
    checksums
        Compute a checksum (CRC-32C) of each stored chunk, and compare every later read with it.
        This reads all chunks once. Files that are added to the catalog later get checksums too.
    keep_secrets
        Keep credentials and signatures in the addresses of files (``user:password@``, presigned
        queries). By default they are left out, and reading needs `storage_options`.
    overwrite
        Replace a catalog at this address. The old one stays in the history: `rollback` of the
        opened catalog restores it. By default an existing catalog is an error.
    expect
        A plan that ``gridref plan --json`` saved. If anything differs from it, nothing is written
        and every difference is listed as a problem.
    progress
        Called with the number of files done, and of all files. When these are combined and the
        catalog is about to be written, it is called with the last numbers again.

    Returns
    -------
    VirtualGroup
        The group that was written. Its ``report`` lists every object of every file, and the files
        that ``on_error="skip"`` left out. A `SkippedFilesWarning` lists these too.

    Raises
    ------
    InvalidRequestError
        If a catalog exists at the address, if a pattern matches nothing, or if several files have
        no possible layout, or more than one.
    ScanError, SourceUnavailableError
        If a file cannot be described; a `FilesFailedError` with all of them, if several cannot.
    CombineError
        If the files do not fit together. It lists every problem.
    """
    job = Job(concat_dim, order, layout, combine, scan, run, resolve)
    job = job.reading(storage_options, allow)
    asked = identity or ("content" if relative else "strict")
    check_choice("identity", asked, (*IDENTITIES, "content-all"))
    coverage: Coverage = "all" if asked == "content-all" else "sampled"
    kept: Identity = "content" if asked == "content-all" else asked
    access = Access.of(catalog, storage_options)
    is_there = ROOT_FILE in access.folder.names()
    if is_there and not overwrite:
        raise InvalidRequestError(
            Message(
                "a catalog already exists here: ",
                Option("overwrite", True),
                " replaces it and keeps its history; gridref append adds files to it",
            ),
            Place(source=access.folder.url),
        )
    how, done = job.combined(files, progress)
    done = as_expected(done, expect)
    if progress is not None and done.group is not None:
        progress(len(done.report.files), len(done.report.files))
    group = with_identity(with_drifts(done), kept, coverage, storage_options)
    if checksums:
        group = with_checksums(group, storage_options)
    lines = how.lines(group, done, access.folder.url)
    change = new_content(
        group,
        "build" if is_there else "write",
        extra=_skipped(done.failed),
        sources="relative" if relative else "absolute",
        recipe=how.job.recipe,
        keep_secrets=keep_secrets,
        ends=done.ends,
    )
    if is_there:
        change = replace(change, changes={**change.changes, "identity": kept})
        after = commit(access, lambda _: change)
        parent = after.root.snapshot.log[-1].parent
        lines = (*lines, f"replaced snapshot {parent}, which gridref rollback brings back")
        emptied = dict.fromkeys(e.array for e in after.root.snapshot.overlays if not e.served)
        if emptied:
            said = f"overlays of {', '.join(emptied)} cover no element of the new catalog"
            lines = (*lines, f"{said}; gridref rechunk --update writes them again")
    else:
        put_catalog(access.folder, change)
    group = group.with_changes(report=replace(group.report, lines=lines))
    return readable(group, Sources(storage_options))


@verb()
def plan(
    files: Files,
    concat_dim: str | Sequence[str] | None = None,
    *,
    order: Order = "label",
    layout: AnyLayout | None = None,
    combine: CombineOptions | None = None,
    scan: ScanOptions | None = None,
    run: RunOptions | None = None,
    resolve: Resolve = "lossless",
    storage_options: Mapping[str, Any] | None = None,
    allow: Allow = None,
    expect: Expected | None = None,
    progress: Progress | None = None,
) -> Combination:
    """Report what `build` would do with files, without writing anything.

    Parameters
    ----------
    files, concat_dim, order, layout, combine, scan, run, resolve, storage_options, allow, progress
        As for `build`.
    expect
        As for `build`: every difference is one of the problems.

    Returns
    -------
    Combination
        The report of every drift, the problems, and the combined group where there are none.

    Raises
    ------
    InvalidRequestError
        If a pattern matches nothing, or if several files have no possible layout, or more than one.
    ScanError, SourceUnavailableError
        If a file cannot be described; a `FilesFailedError` with all of them, if several cannot.
    """
    job = Job(concat_dim, order, layout, combine, scan, run, resolve)
    job = job.reading(storage_options, allow)
    return as_expected(job.combined(files, progress)[1], expect)


def _skipped(failed: tuple[Finding, ...]) -> dict[str, Any]:
    """What a catalog says of the files that were left out."""
    if not failed:
        return {}
    reasons = [(each.source, each.reason) for each in failed]
    return {
        "skipped_files": [
            {"file": shown_address(file), "reason": without_secrets(reason)}
            for file, reason in reasons
        ]
    }


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


# Any address as one group


type DataAddress = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | VirtualGroup
"""A catalog, a file or several: their addresses, globs or directories; or a group."""


def open_data(
    data: DataAddress,
    storage_options: Mapping[str, Any] | None = None,
    *,
    allow: Allow = None,
    snapshot: str | None = None,
    overlay: OverlayPolicy | None = None,
    job: Job | None = None,
) -> VirtualGroup:
    """Open a catalog, scan a file, or combine files, whichever an address stands for.

    A remote address that is named neither as a catalog nor as a file of data is asked whether it is
    a catalog.

    Parameters
    ----------
    data
        See `DataAddress`.
    storage_options
        Options of fsspec's filesystems.
    allow, snapshot, overlay
        As for `gridref.open_catalog`; `overlay` of an opened catalog, too.

    Raises
    ------
    InvalidRequestError
        For options that are for something else.
    CombineError
        If files do not fit together.
    CatalogError, ScanError, SourceUnavailableError
        If it cannot be opened.
    """
    job = job or Job()

    def catalog(address: str | os.PathLike[str] | VirtualGroup) -> VirtualGroup:
        if job.asked:
            raise InvalidRequestError(
                f"{', '.join(sorted(job.asked))}: these options are for files, and this is a "
                "catalog"
            )
        return open_group(address, storage_options, allow, snapshot, overlay)

    if isinstance(data, VirtualGroup):
        return catalog(data)
    if isinstance(data, str | os.PathLike):
        known = _is_catalog(absolute_url(data))
        if known:
            return catalog(data)
        if known is None:
            try:
                return catalog(data)
            except CatalogNotFoundError:
                pass
    for name, given in (("snapshot", snapshot), ("overlay", overlay)):
        if given is not None:
            raise InvalidRequestError(f"{name}= is for catalogs")
    reading = job.reading(storage_options, allow)
    if isinstance(data, str | os.PathLike) and _is_one_file(data, job):
        group = scan_described(data, reading.scanning)
        warn_of_left_out(ScanReport(group.report.with_fate(Fate.DAMAGED)))
        return group
    files = data if isinstance(data, str | os.PathLike) else list(data)
    return with_drifts(reading.combined(files, None)[1])


def _is_one_file(data: str | os.PathLike[str], job: Job) -> bool:
    """Whether an address is one file, or folder of data, and no option asks to combine it."""
    address = absolute_url(data)
    if job.asked.keys() - {"scan"}:
        return False
    if is_local(address) and os.path.isdir(address):
        return data_names().is_folder(address)
    return not is_local(address) or os.path.exists(address)


def _is_catalog(address: str) -> bool | None:
    """Whether an address is a catalog's; None if that takes asking."""
    bare, query, _ = address.partition("?")
    path = bare.rstrip("/")
    if path.endswith((".gridref", f"/{ROOT_FILE}")):
        return True
    if is_local(address):
        return os.path.isfile(os.path.join(address, ROOT_FILE))
    names = data_names()
    if query or names.is_file(path) or names.is_folder(path) or "*" in path:
        return False
    return None
