"""Open many files as an ordinary lazy dataset or tree, without naming a catalog.

The arguments and what they do are those of xarray's ``open_mfdataset``. Files are scanned, changed
by `preprocess`, combined as groups, and decoded by xarray once, as the engine opens a catalog.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import xarray as xr

from gridref.api.building import Job
from gridref.api.kept_scans import user_folder
from gridref.api.layout.layouts import flat, nested_urls
from gridref.api.opening import subgroup
from gridref.api.outcomes import RunOptions
from gridref.api.readable import reader_for
from gridref.api.scan import Failures, scan_each
from gridref.api.summary import warn_of_left_out
from gridref.combine import CombineOptions
from gridref.errors import CombineError, InvalidRequestError, Message, Option
from gridref.faces.xarray.opening import CombiningError, placed, rules_of
from gridref.faces.xarray.virtual_dataset import Url
from gridref.faces.xarray.written_groups import dataset_to_group, tree_to_group
from gridref.formats import ScanOptions, expand_files
from gridref.io import keeps_at_hand
from gridref.model.array import VirtualGroup
from gridref.model.scan_report import ScanReport
from gridref.options import check_choice, options_of, verb
from gridref.secrets import shown_address

_OVERLAP = {"by_coords": "raise", "nested": "keep"}

_DEFAULTS: Mapping[bool, Mapping[str, Any]] = {
    False: {"data_vars": "all", "coords": "different", "compat": "equals", "join": "outer"},
    True: {"data_vars": None, "coords": "minimal", "compat": "override", "join": "exact"},
}
"""Defaults of xarray, and those to come: its option ``use_new_combine_kwarg_defaults``."""


@dataclass(frozen=True)
class Decoding:
    """How xarray decodes values: as for `xarray.open_dataset`."""

    mask_and_scale: Any = True
    decode_times: Any = True
    concat_characters: Any = True
    decode_coords: Any = True
    use_cftime: Any = None
    decode_timedelta: Any = None
    drop_variables: str | Iterable[str] | None = None


@verb(Decoding, ScanOptions, CombineOptions, hidden=("variables", "repeated"))
@keeps_at_hand
def open_mfdataset(
    files: Url | Iterable[Url] | Sequence[Any],
    chunks: Any = None,
    concat_dim: str | Sequence[str | None] | None = None,
    compat: str | None = None,
    preprocess: Callable[[xr.Dataset], xr.Dataset] | None = None,
    *,
    data_vars: str | Collection[str] | None = None,
    coords: str | Collection[str] | None = None,
    combine: Literal["by_coords", "nested"] = "by_coords",
    parallel: bool = False,
    join: str | None = None,
    attrs_file: Url | None = None,
    errors: Literal["raise", "warn", "ignore"] = "raise",
    group: str | None = None,
    overlap: Literal["raise", "first", "last", "keep"] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    work: Url | bool = True,
    **options: Any,
) -> xr.Dataset:
    """Open many files as one lazy dataset, as `xarray.open_mfdataset` does.

    ``ds.gridref.save("cube.gridref")`` keeps the dataset as a catalog, also after variables were
    renamed, dropped or selected from, and attributes assigned.

    Parameters
    ----------
    files
        Paths, URLs, globs or directories; lists of lists for ``combine="nested"``.
    chunks
        Chunks for dask, as for `xarray.open_dataset`. By default variables are lazy without dask.
    concat_dim, combine, data_vars, coords, compat, join, parallel
        As for `xarray.open_mfdataset`, with its defaults. `parallel` changes nothing: remote files
        are always read at the same time. Values of variables are always compared, except with
        ``compat="override"``.
    preprocess
        Applied to the lazy dataset of each file first. ``ds.encoding["source"]`` is its address. It
        may rename, drop, select and assign. Values that it computes are kept in memory.
    attrs_file
        The file whose attributes the dataset has. By default the first.
    errors
        What to do with files that cannot be scanned. ``"warn"`` and ``"ignore"`` leave them out.
    group
        Path of the group to open in each file.
    overlap, storage_options
        As for `open_virtual_mfdataset`.
    work
        Local folder to keep the results of scans in, so that files that have not changed are not
        scanned again. True: in the user's cache folder, what took at least 20 ms, in at most 1 GiB.
        False: nothing is kept.
    **options
        As for `xarray.open_dataset` (``mask_and_scale``, ``decode_times``, ``drop_variables``...),
        and fields of `ScanOptions` and `CombineOptions`.

    Returns
    -------
    xarray.Dataset
        Its ``encoding["drift"]`` holds the `DriftReport`.

    Raises
    ------
    CombineError
        With every problem, if the files do not fit together. It is also an `xarray.MergeError` and
        an `xarray.AlignmentError`.
    """
    check_choice("combine", combine, ("by_coords", "nested"))
    check_choice("errors", errors, ("raise", "warn", "ignore"))
    if combine == "by_coords" and concat_dim is not None:
        raise InvalidRequestError(
            Message("concat_dim needs ", Option("combine", "nested"), ", as in xarray")
        )
    known = xr.get_options()  # type: ignore[no-untyped-call]
    usual = _DEFAULTS[bool(known["use_new_combine_kwarg_defaults"])]
    options |= {"join": usual["join"] if join is None else join}
    rules = rules_of(
        usual["data_vars"] if data_vars is None else data_vars,
        usual["coords"] if coords is None else coords,
        usual["compat"] if compat is None else compat,
        {**options, "overlap": overlap or _OVERLAP[combine]},
    )
    opening = _Opening(chunks, storage_options, options_of(Decoding, options))
    scanning = ScanOptions(**options_of(ScanOptions, options), storage_options=storage_options)
    failures = Failures(_running(work, errors))
    tree = nested_urls(files, storage_options)
    held: dict[str, Mapping[str, Any]] = {}

    def prepared() -> Iterator[tuple[str, VirtualGroup]]:
        run = _running(work, errors)
        for url, root in scan_each(flat(tree), scanning, run, failures=failures):
            part = subgroup(root, group).with_changes(groups={})
            if preprocess is not None:
                part = dataset_to_group(preprocess(opening.dataset(part, url)))
            held[url] = part.attrs
            yield url, part.with_changes(report=root.report)

    read = reader_for(storage_options).read
    done = placed(tree, prepared(), concat_dim, combine, rules, read, by_label=True)
    if errors == "warn":
        warn_of_left_out(ScanReport(failures.findings))
    whole = done.unwrap()
    if attrs_file is not None:
        (address,) = expand_files([attrs_file], storage_options)
        if address not in held:
            raise InvalidRequestError(
                f"attrs_file is not one of the files: {shown_address(address)}"
            )
        whole = whole.with_changes(attrs=held[address])
    dataset = opening.dataset(whole, chunked=True)
    dataset.encoding["drift"] = done.report
    return dataset


@verb(Decoding, ScanOptions, CombineOptions)
@keeps_at_hand
def open_mfdatatree(
    files: Url | Iterable[Url],
    chunks: Any = None,
    concat_dim: str | Sequence[str] | None = None,
    preprocess: Callable[[xr.DataTree], xr.DataTree] | None = None,
    *,
    errors: Literal["raise", "warn", "ignore"] = "raise",
    storage_options: Mapping[str, Any] | None = None,
    work: Url | bool = True,
    **options: Any,
) -> xr.DataTree:
    """Open all groups of many files as one lazy tree.

    Parameters
    ----------
    files
        Paths, URLs, globs or directories.
    concat_dim
        Dimension, or dimensions, along which to join the files. By default it is found as
        `gridref.build` finds it.
    preprocess
        Applied to the lazy tree of each file first.
    chunks, errors, storage_options, work, **options
        As for `open_mfdataset`. Differences are resolved as `gridref.build` does.

    Returns
    -------
    xarray.DataTree
        The root's ``encoding["drift"]`` holds the `DriftReport`.

    Raises
    ------
    InvalidRequestError
        If the files have no possible layout, or several.
    CombineError
        With every problem, if the files do not fit together.
    """
    check_choice("errors", errors, ("raise", "warn", "ignore"))
    opening = _Opening(chunks, storage_options, options_of(Decoding, options))
    scanning = ScanOptions(**options_of(ScanOptions, options), storage_options=storage_options)
    job = Job(concat_dim, combine=CombineOptions(**options_of(CombineOptions, options)))
    run, read = _running(work, errors), reader_for(storage_options).read
    failures = Failures(run)
    scanned = []
    for url, root in scan_each(
        expand_files(files, storage_options), scanning, run, failures=failures
    ):
        part = root
        if preprocess is not None:
            part = tree_to_group(preprocess(opening.tree(root, url)))
        scanned.append((url, part.with_changes(report=root.report)))
    if errors == "warn":
        warn_of_left_out(ScanReport(failures.findings))
    try:
        done = job.found_or_laid_out(scanned, read)
        tree = opening.tree(done.unwrap(), chunked=True)
    except CombineError as error:
        raise CombiningError(error.problems) from None
    tree.encoding["drift"] = done.report
    return tree


@dataclass(frozen=True)
class _Opening:
    """How groups are shown: with the engine, decoded by xarray."""

    chunks: Any
    storage_options: Mapping[str, Any] | None
    decoding: Mapping[str, Any]

    def dataset(
        self, group: VirtualGroup, source: str | None = None, *, chunked: bool = False
    ) -> xr.Dataset:
        dataset = xr.open_dataset(group, **self._how(chunked))  # type: ignore[arg-type]
        if source is not None:
            dataset.encoding["source"] = shown_address(source)
        return dataset

    def tree(
        self, group: VirtualGroup, source: str | None = None, *, chunked: bool = False
    ) -> xr.DataTree:
        tree = xr.open_datatree(group, **self._how(chunked))  # type: ignore[arg-type]
        if source is not None:
            tree.encoding["source"] = shown_address(source)
        return tree

    def _how(self, chunked: bool) -> dict[str, Any]:
        return {
            "engine": "gridref",
            "chunks": self.chunks if chunked else None,
            "storage_options": self.storage_options,
            **self.decoding,
        }


def _running(work: Url | bool, errors: str) -> RunOptions:
    """Where scans are kept, and what becomes of files that fail."""
    folder = (user_folder() if work else None) if isinstance(work, bool) else os.fspath(work)
    return RunOptions(work=folder, on_error="raise" if errors == "raise" else "skip")
