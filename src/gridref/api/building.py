"""Build a catalog from files: scan, combine, compare with an expected plan, write.

`build` writes the catalog, and `plan` only reports what `build` would do. `open_data` opens what
these take without writing anything.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from gridref.api.catalog import Catalog, catalog_at
from gridref.api.each_chunk import with_checksums, with_identity
from gridref.api.job import Job, with_drifts
from gridref.api.keeper import Keeper
from gridref.api.layout.layouts import AnyLayout, Order, Resolve
from gridref.api.opening import open_group
from gridref.api.scan import Address, Files, Progress, RunOptions, scan_described
from gridref.api.summary import warn_of_left_out
from gridref.catalog import ROOT_FILE
from gridref.catalog.commit import Access, commit, new_content, put_catalog
from gridref.catalog.document import CatalogReport
from gridref.catalog.overlays import OverlayPolicy
from gridref.combine import Combination, CombineOptions
from gridref.errors import (
    CatalogNotFoundError,
    InvalidRequestError,
    Message,
    Option,
    Place,
    Problem,
)
from gridref.formats import ScanOptions
from gridref.formats.registry import data_names
from gridref.io import Allow, Coverage, absolute_url, is_local
from gridref.model.array import VirtualGroup
from gridref.model.manifest import IDENTITIES, Identity
from gridref.model.scan_report import Fate, Finding, ScanReport
from gridref.options import check_choice, verb
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
) -> Catalog:
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
        How files are placed, other than along an existing dimension: `Stack`, `Labels`,
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
    Catalog
        The catalog that was written, as `gridref.open_catalog` opens it. Its ``report`` lists every
        object of every file, and the files that ``on_error="skip"`` left out. A
        `SkippedFilesWarning` lists these too.

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
    job = Job(concat_dim, order, layout, combine, resolve, scan, run)
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
        base = commit(access, lambda _: change)
        parent = base.root.snapshot.log[-1].parent
        lines = (*lines, f"replaced snapshot {parent}, which gridref rollback brings back")
        emptied = dict.fromkeys(e.array for e in base.root.snapshot.overlays if not e.served)
        if emptied:
            said = f"overlays of {', '.join(emptied)} cover no element of the new catalog"
            lines = (*lines, f"{said}; gridref rechunk --update writes them again")
    else:
        base = put_catalog(access, change)
    report = CatalogReport.of(replace(group.report, lines=lines), base.root.snapshot.drifts)
    opened = catalog_at(base, Keeper(access.folder.url, storage_options))
    return replace(opened, report=report)


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
    job = Job(concat_dim, order, layout, combine, resolve, scan, run)
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
