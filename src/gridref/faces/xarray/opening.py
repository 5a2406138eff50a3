"""Open one file, or many combined, as virtual or as ordinary lazy datasets and trees.

Files are scanned, changed by `preprocess`, combined as groups by the options of xarray's
``open_mfdataset`` or of `gridref.build`, and returned as xarray objects. `open_mfdataset` and
`open_mfdatatree` have the arguments of xarray's and what they do; xarray decodes the result once,
as the engine opens a catalog.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial, wraps
from inspect import signature
from itertools import chain
from typing import Any, Literal, get_args

import xarray as xr

import gridref.faces.xarray.accessors  # noqa: F401 - registers `ds.gridref`
from gridref.api.building import open_data
from gridref.api.decoding import coordinate_names
from gridref.api.job import Job
from gridref.api.kept_scans import user_folder
from gridref.api.layout.discovery import laid_out
from gridref.api.layout.facts import Facts
from gridref.api.layout.joined_variables import Joining
from gridref.api.layout.layouts import (
    Combining,
    Labels,
    Layout,
    Mosaic,
    Ragged,
    Row,
    Scanned,
    Stack,
    as_given,
    combine_nested,
    flat,
    nested_alike,
    nested_urls,
)
from gridref.api.opening import subgroup
from gridref.api.readable import reader_for
from gridref.api.scan import Failures, RunOptions, scan_each
from gridref.api.summary import warn_of_left_out
from gridref.api.units import with_converter
from gridref.combine import Combination, CombineOptions, DriftReport, combine
from gridref.combine.options import Read, Repeat
from gridref.combine.values import with_labels_at_hand
from gridref.errors import CombineError, InvalidRequestError, Message, Option
from gridref.faces.xarray.engine import Decoding
from gridref.faces.xarray.virtual_dataset import (
    Loading,
    Names,
    Url,
    dataset_to_group,
    group_to_dataset,
    group_to_tree,
    names_of,
    tree_to_group,
)
from gridref.formats import ScanOptions, expand_files, kept_elements
from gridref.io import keeps_at_hand
from gridref.model.array import VirtualGroup
from gridref.model.scan_report import ScanReport
from gridref.options import check_choice, check_names, given_options, options_of, verb
from gridref.secrets import shown_address

# What the calls have in common

_COMPARISONS = (
    "equals", "no_conflicts", "override", "identical", "broadcast_equals", "minimal"
)  # fmt: skip
"""What xarray's ``compat`` can be."""
_OVERLAP = {"by_coords": "raise", "nested": "keep"}


type Repeated = str | Collection[str] | None
type Rules = Callable[[Iterable[VirtualGroup]], CombineOptions]
"""The rules of combining for some groups, whose variables they name."""


def _known_rules(compat: str, options: Mapping[str, Any]) -> CombineOptions:
    """The rules of combining that name no variables."""
    check_choice("compat", compat, _COMPARISONS)
    seen: Any = "override" if compat == "override" else "equals"
    return CombineOptions(compat=seen, **with_converter(options_of(CombineOptions, options)))


def _rules(known: CombineOptions, data_vars: Repeated, coords: Repeated) -> Rules:
    """The rules of combining, with those for data variables and for coordinates as in xarray.

    With `data_vars` None data variables are stacked along a new dimension, and none is repeated
    along an existing one.

    Raises
    ------
    InvalidRequestError
        For another text; by the rules, for the name of a variable that no group has.
    """
    for name, wanted in (("data_vars", data_vars), ("coords", coords)):
        if isinstance(wanted, str):
            check_choice(name, wanted, get_args(Repeat))

    def rules(groups: Iterable[VirtualGroup]) -> CombineOptions:
        if data_vars is None and coords == "minimal":
            return known
        names: set[str] = set()
        coordinates: set[str] = set()
        for group in groups:
            names |= group.arrays.keys()
            coordinates |= coordinate_names(group.arrays, group.attrs)
        repeated = _repeated("coords", coords, coordinates)
        if data_vars is not None:
            repeated |= _repeated("data_vars", data_vars, names - coordinates)
        return replace(known, repeated={**repeated, **known.repeated})

    return rules


def _repeated(option: str, wanted: Repeated, names: Collection[str]) -> dict[str, Any]:
    """The rule for each variable."""
    if isinstance(wanted, str):
        return dict.fromkeys(names, wanted)
    listed = list(wanted or ())
    check_names(option, listed, names, "variable")
    return {**dict.fromkeys(names, "minimal"), **dict.fromkeys(listed, "all")}


class CombiningError(CombineError, xr.MergeError, xr.AlignmentError):
    """Files cannot be combined. It is also xarray's `MergeError` and `AlignmentError`."""


def _raises_as_xarray[**P, R](call: Callable[P, R]) -> Callable[P, R]:
    """Let what a call raises of combining be caught as errors of xarray, too.

    Its advice names options that the call has.
    """
    taken = signature(call).parameters

    @wraps(call)
    def raising(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except CombineError as error:
            problems = [
                replace(each, message=_as_called(Message(each.message), taken))
                for each in error.problems
            ]
            raise CombiningError(problems, error.layout) from None

    return raising


def _as_called(message: Message, taken: Collection[str]) -> Message:
    """A message with the options that a call takes, in place of those of `gridref.build`."""
    parts: list[str | Option] = []
    for part in message.parts:
        if not isinstance(part, Option):
            parts.append(part)
        elif part.name == "variables" and "data_vars" in taken:
            parts += [Option("data_vars", part.value), " or ", Option("coords", part.value)]
        elif part.name == "concat_dim" and "combine" in taken:
            parts += [part, " and ", Option("combine", "nested")]
        elif not str(part).startswith("layout=") or "layout" in taken:
            parts.append(part)
        elif part.name == "stack" and "combine" in taken:
            parts += [Option("concat_dim"), " and ", Option("combine", "nested")]
        else:
            parts.append(f"gridref.build with {part}")
    return Message(*parts)


def _of_group(scanned: Scanned, group: str | None) -> Scanned:
    """One group of each file, with the report of the whole file."""
    for url, root in scanned:
        yield url, subgroup(root, group).with_changes(groups={}, report=root.report)


def _prepared[X: (xr.Dataset, xr.DataTree)](
    scanned: Scanned,
    dropped: Names,
    preprocess: Callable[[X], X] | None,
    show: Callable[[VirtualGroup], X],
    back: Callable[[X], VirtualGroup],
) -> Scanned:
    """What was scanned, without some variables and as it is preprocessed.

    Parameters
    ----------
    show, back
        Turn a group into what `preprocess` takes, and what it returns into a group.
    """
    names = names_of(dropped)
    for url, scan in scanned:
        part = _without(scan, names)
        if preprocess is not None:
            shown = show(part)
            shown.encoding["source"] = shown_address(url)
            part = back(preprocess(shown)).with_changes(report=scan.report)
        yield url, part


def _without(group: VirtualGroup, names: Collection[str]) -> VirtualGroup:
    """A group without variables of these names, at any depth."""
    return group.with_changes(
        arrays={name: array for name, array in group.arrays.items() if name not in names},
        groups={name: _without(below, names) for name, below in group.groups.items()},
    )


def _placed(
    tree: Sequence[Any],
    groups: Mapping[str, VirtualGroup],
    concat_dim: str | Sequence[str | None] | None,
    combine: Literal["by_coords", "nested"],
    rules: Rules,
    read: Read,
    way: Layout | None = None,
    *,
    by_label: bool = False,
) -> Combination:
    """Combine groups as xarray's ``open_mfdataset`` does, or by another layout.

    Parameters
    ----------
    tree
        The addresses of the files, as they are nested.
    groups
        What was scanned of each address.
    way
        The layout, in place of `combine`.
    by_label
        Whether what files share is that of the first by its labels, as in xarray, and not of the
        first given.
    """
    single = concat_dim is None or isinstance(concat_dim, str)
    dims: list[str | None] = [concat_dim] if single else list(concat_dim)  # type: ignore[list-item, arg-type]
    named = tuple(dim for dim in dims if dim)
    read = with_labels_at_hand(groups.values(), read, kept_elements)
    alike = rules(groups.values())
    if way is None and combine == "nested":
        return combine_nested(nested_alike(tree, groups), dims, read, alike)
    urls = list(groups)
    if by_label:
        facts = Facts(urls, list(groups.values()), read)
        with suppress(TypeError):  # labels of several types
            urls = [urls[number] for number in facts.by_labels]
    if way is None and len(groups) == 1 and len(named) < 2:
        way, named = Row(), ()
    way = way or Row("by_coords")
    way.check(named, "label")
    ordered = [(url, groups[url]) for url in way.ordered(urls)]
    how = Combining(named, layout=as_given(way), combine=alike)
    return laid_out(ordered, how, read)[1]


# Virtual variables


@verb(Loading, ScanOptions)
def open_virtual_dataset(
    file: Url | VirtualGroup,
    group: str | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> xr.Dataset:
    """Open one group of a file, or of a catalog, as a dataset of virtual arrays.

    Parameters
    ----------
    file
        A local path or an fsspec URL, or an opened group.
    group
        Path of the group; the root by default.
    storage_options
        As for `gridref.scan`.
    **options
        Fields of `Loading` (``loadable_variables``, ``drop_variables``, ``decode_times``,
        ``load_limit``) and of `ScanOptions` (``on_unsupported``).

    Returns
    -------
    xarray.Dataset
        Virtual variables keep their stored dtype and attributes.
    """
    loading = Loading(**options_of(Loading, options))
    asked = options_of(ScanOptions, options)
    allow = asked.pop("allow", None)
    scan = ScanOptions(**asked) if asked else None  # catalogs are not scanned, and refuse it
    root = open_data(file, storage_options, allow=allow, job=Job(scan=scan))
    part = _without(subgroup(root, group), names_of(loading.drop_variables))
    dataset = group_to_dataset(part, reader_for(storage_options), loading)
    if not isinstance(file, VirtualGroup):
        dataset.encoding["source"] = shown_address(os.fspath(file))
    return dataset


@verb(
    Loading,
    ScanOptions,
    CombineOptions,
    hidden=("variables", "repeated"),
)
@keeps_at_hand
@_raises_as_xarray
def open_virtual_mfdataset(
    files: Url | Iterable[Url] | Sequence[Any],
    concat_dim: str | Sequence[str | None] | None = None,
    *,
    combine: Literal["by_coords", "nested"] = "by_coords",
    preprocess: Callable[[xr.Dataset], xr.Dataset] | None = None,
    group: str | None = None,
    data_vars: str | Collection[str] | None = None,
    coords: str | Collection[str] = "minimal",
    compat: str = "equals",
    overlap: Literal["raise", "first", "last", "keep"] | None = None,
    layout: Labels | Stack | Mosaic | Ragged | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> xr.Dataset:
    """Open many files as one virtual dataset, resolving drift between them.

    Parameters
    ----------
    files
        Paths, URLs, globs or directories; for ``combine="nested"`` over several dimensions, lists
        of lists, the outermost along the first dimension.
    concat_dim
        Dimension, or dimensions, to combine along. For ``"by_coords"``, None finds it by itself.
        With several, the labels of each file come from its coordinates, from scalar variables, or
        from ``layout=Labels(...)``; places without a file are missing.
    combine
        ``"by_coords"`` places the files by their index coordinates, and merges files that these do
        not tell apart; ``"nested"`` keeps the given order.
    preprocess
        Applied to each file's virtual dataset first.
    group
        Path of the group to open in each file.
    data_vars, coords
        What to do with data variables and coordinates that lack the dimension, as in xarray: keep
        them once (``"minimal"``), repeat them if they differ (``"different"``) or always
        (``"all"``), or repeat the ones named. Labels of other dimensions are never repeated: see
        `join`. With `data_vars` None, data variables are repeated along a new dimension, and kept
        once along an existing one.
    compat
        ``"override"`` takes variables without the dimension from the first file. Every other choice
        compares them. Labels of dimensions are always compared: see `join`.
    overlap
        What to do with repeated labels: ``"raise"``, ``"first"``, ``"last"`` or ``"keep"``, which
        ``"by_coords"`` refuses. The default is ``"raise"`` for ``"by_coords"`` and ``"keep"`` for
        ``"nested"``.
    layout
        Another layout, in place of `combine`, as for `gridref.build`. `Labels` needs
        ``"by_coords"``.
    storage_options
        As for `gridref.scan`.
    **options
        Fields of `Loading`, as for `open_virtual_dataset`, of `ScanOptions` and of `CombineOptions`
        except ``variables``. ``convert_units=True`` converts with pint.

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
    reader = reader_for(storage_options)
    loading = Loading(**options_of(Loading, options))
    known = _known_rules(compat, {**options, "overlap": overlap or _OVERLAP[combine]})
    rules = _rules(known, data_vars, coords)
    scanning = ScanOptions(**options_of(ScanOptions, options), storage_options=storage_options)
    sought = Labels() if layout is None else layout.sought
    if sought.inventory is not None:
        raise InvalidRequestError("virtual datasets are opened without an inventory: name files")
    way: Layout | None = layout
    if isinstance(layout, Labels):
        way = layout if layout.is_asked_for(()) else None
        if way is not None and combine == "nested":
            raise InvalidRequestError(
                Message(
                    Option("combine", combine),
                    " takes files in the order given, without labels of files: leave out ",
                    Option("layout", layout),
                    ", or take ",
                    Option("combine", "by_coords"),
                )
            )

    tree = nested_urls(files, storage_options)
    scanned = _of_group(scan_each(flat(tree), scanning), group)
    show = partial(group_to_dataset, reader=reader, loading=loading)
    parts = _prepared(scanned, loading.drop_variables, preprocess, show, dataset_to_group)
    joining = Joining(sought.of_variables, reader.read, known)
    done = _placed(tree, dict(joining.each(parts)), concat_dim, combine, rules, reader.read, way)
    dataset = show(done.unwrap())
    dataset.encoding["drift"] = joining.told(done.report)
    return dataset


@verb(
    Loading,
    ScanOptions,
    CombineOptions,
    hidden=("variables", "repeated"),
)
@keeps_at_hand
@_raises_as_xarray
def open_virtual_datatree(
    files: Url | Iterable[Url],
    concat_dim: str | Sequence[str] | None = None,
    *,
    preprocess: Callable[[xr.DataTree], xr.DataTree] | None = None,
    data_vars: str | Collection[str] | None = None,
    coords: str | Collection[str] = "minimal",
    compat: str = "equals",
    overlap: Literal["raise", "first", "last", "keep"] = "keep",
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> xr.DataTree:
    """Open all groups of a file, or of many files group by group, as a tree of virtual datasets.

    Parameters
    ----------
    files
        One file; with `concat_dim` also many: paths, URLs, globs or directories, in the given
        order.
    concat_dim
        Dimension to combine along, existing or new; several for ragged groups, where each grows by
        itself.
    preprocess
        Applied to each file's virtual tree first.
    data_vars, coords, compat, overlap
        As for `open_virtual_mfdataset`. Repeated labels are kept by default.
    storage_options, **options
        As for `open_virtual_mfdataset`, in every group.

    Returns
    -------
    xarray.DataTree
        The root's ``encoding["drift"]`` holds the `DriftReport`.

    Raises
    ------
    InvalidRequestError
        For several files without a `concat_dim`.
    CombineError
        With every problem, where the files do not fit together.
    """
    reader = reader_for(storage_options)
    loading = Loading(**options_of(Loading, options))
    known = _known_rules(compat, {**options, "overlap": overlap})
    rules = _rules(known, data_vars, coords)
    scanning = ScanOptions(**options_of(ScanOptions, options), storage_options=storage_options)
    alone = concat_dim is None and isinstance(files, str | os.PathLike)
    urls = [os.fspath(files)] if alone else expand_files(files, storage_options)  # type: ignore[arg-type]
    if concat_dim is None and len(urls) > 1:
        raise InvalidRequestError(
            f"{len(urls)} files need a dimension to combine along: give concat_dim"
        )
    show = partial(group_to_tree, reader=reader, loading=loading)
    scanned = scan_each(urls, scanning)
    prepared = _prepared(scanned, loading.drop_variables, preprocess, show, tree_to_group)
    parts = (part for _, part in prepared)
    first = next(parts)
    done = Combination(first, DriftReport((), tuple(urls)))
    if concat_dim is not None:
        named = rules(part for _, part in first.walk())
        done = combine(chain([first], parts), concat_dim, read=reader.read, options=named)
    tree = show(done.unwrap())
    tree.encoding["drift"] = done.report
    return tree


# Ordinary lazy variables

_DEFAULTS: Mapping[bool, Mapping[str, Any]] = {
    False: {"data_vars": "all", "coords": "different", "compat": "equals", "join": "outer"},
    True: {"data_vars": None, "coords": "minimal", "compat": "override", "join": "exact"},
}
"""Defaults of xarray, and those to come: its option ``use_new_combine_kwarg_defaults``."""


@verb(Decoding, ScanOptions, CombineOptions, hidden=("variables", "repeated"))
@keeps_at_hand
@_raises_as_xarray
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
        may rename, drop, select and assign. Values that it computes are kept in memory. If it
        decodes variables, they are kept as stored numbers and decoded by the other options.
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
    asked = {"data_vars": data_vars, "coords": coords, "compat": compat, "join": join}
    settings = xr.get_options()  # type: ignore[no-untyped-call]
    usual = _DEFAULTS[bool(settings["use_new_combine_kwarg_defaults"])]
    how = {**usual, **{name: own for name, own in asked.items() if own is not None}}
    options |= {"join": how["join"], "overlap": overlap or _OVERLAP[combine]}
    rules = _rules(_known_rules(how["compat"], options), how["data_vars"], how["coords"])
    tree = nested_urls(files, storage_options)
    scanned = _of_group(_scanned(flat(tree), options, storage_options, work, errors), group)
    dropped, show = _lazily(xr.open_dataset, options, storage_options)
    groups = dict(_prepared(scanned, dropped, preprocess, show, dataset_to_group))
    read = reader_for(storage_options).read
    done = _placed(tree, groups, concat_dim, combine, rules, read, by_label=True)
    whole = done.unwrap()
    if attrs_file is not None:
        (address,) = expand_files([attrs_file], storage_options)
        if address not in groups:
            raise InvalidRequestError(
                f"attrs_file is not one of the files: {shown_address(address)}"
            )
        whole = whole.with_changes(attrs=groups[address].attrs)
    dataset: xr.Dataset = show(whole, chunks=chunks)
    dataset.encoding["drift"] = done.report
    return dataset


@verb(Decoding, ScanOptions, CombineOptions)
@keeps_at_hand
@_raises_as_xarray
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
    job = Job(concat_dim, combine=CombineOptions(**options_of(CombineOptions, options)))
    urls = expand_files(files, storage_options)
    scanned = _scanned(urls, options, storage_options, work, errors)
    dropped, show = _lazily(xr.open_datatree, options, storage_options)
    parts = _prepared(scanned, dropped, preprocess, show, tree_to_group)
    done = laid_out(parts, job, reader_for(storage_options).read)[1]
    tree: xr.DataTree = show(done.unwrap(), chunks=chunks)
    tree.encoding["drift"] = done.report
    return tree


def _scanned(
    urls: Sequence[str],
    options: Mapping[str, Any],
    storage_options: Mapping[str, Any] | None,
    work: Url | bool,
    errors: str,
) -> Iterator[tuple[str, VirtualGroup]]:
    """Scan files; `work` and `errors` are as for `open_mfdataset`."""
    folder = (user_folder() if work else None) if isinstance(work, bool) else os.fspath(work)
    run = RunOptions(work=folder, on_error="raise" if errors == "raise" else "skip")
    scanning = ScanOptions(**options_of(ScanOptions, options), storage_options=storage_options)
    failures = Failures(run)
    yield from scan_each(urls, scanning, run, failures=failures)
    if errors == "warn":
        warn_of_left_out(ScanReport(failures.findings))


def _lazily(
    opener: Any, options: Mapping[str, Any], storage_options: Mapping[str, Any] | None
) -> tuple[Names, Any]:
    """The variables to drop, and a function of xarray with the options to show the others."""
    decoding = given_options(Decoding(**options_of(Decoding, options)))
    dropped = decoding.pop("drop_variables", None)
    return dropped, partial(opener, engine="gridref", storage_options=storage_options, **decoding)
