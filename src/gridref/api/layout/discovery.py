"""Work out the layout of files, and choose among the candidates.

Files are laid along each dimension whose coordinates differ. Where files then have the same labels
of the same variables, something else has to distinguish them: a scalar coordinate, a date or number
in the names, an attribute. `proposals` combines nothing: a `Proposal` is a layout.
`laid_out_by_itself` tries proposals like layouts that a user wrote.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from gridref.api.layout.cubes import is_ragged, varying_dims
from gridref.api.layout.file_sets import one_of_each_set
from gridref.api.layout.layouts import (
    Combining,
    Groups,
    InARow,
    Labels,
    Layout,
    Mosaic,
    Plate,
    Ragged,
    Stack,
    layout_of,
)
from gridref.api.layout.names import (
    VARIABLE,
    NameField,
    NameParts,
    finds_all,
    name_parts,
    wells_in_names,
    with_telling_parts,
)
from gridref.api.layout.sources import REPLACED
from gridref.combine import Combination, CombineOptions
from gridref.combine.georeference import Raster, read_raster
from gridref.combine.options import Read
from gridref.combine.report import Drift, DriftReport
from gridref.errors import InvalidRequestError, Message, Option, UnclearLayoutError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.reference_systems import text_of
from gridref.model.times import TimeBase, duration_base, is_time_like
from gridref.options import given_options

# Proposals, from coordinates, georeferencing, names and attributes

_ATTRIBUTES = {
    "source_id": "model",
    "model_id": "model",
    "experiment_id": "experiment",
    "scenario": "scenario",
    "variant_label": "member",
    "member_id": "member",
    "realization_index": "member",
    "realization": "member",
    "ensemble_member": "member",
    "driving_model_id": "driving_model",
}
"""Attributes that tell files apart (CMIP and CORDEX data reference syntax), and their dimension."""

_AXES = {
    "T": "t",
    "TP": "t",
    "Z": "z",
    "C": "c",
    "CH": "c",
    "P": "position",
    "POS": "position",
}
"""Letters before numbers in names of microscopy images, and the dimension that they count."""

_SCALARS = ("time", "realization", "forecast_reference_time", "forecast_period")
"""Standard names of scalar coordinates that can become dimensions (CF conventions, 5.7)."""

Span = tuple[Any, Any]
"""The least and the greatest label."""

_EVERYWHERE = (float("-inf"), float("inf"))

_ROUNDING_NS = 10**6
"""How far sums of times may be off, as they are compared as floats."""

_MOST_TOGETHER = 3
"""Labels that are tried together at most."""


@dataclass(frozen=True)
class Proposal:
    """A way to lay files out.

    Attributes
    ----------
    options
        What `build` is called with: ``concat_dim``, ``layout`` and ``combine``.
    reason
        What speaks for it.
    """

    options: Mapping[str, Any]
    reason: str

    @property
    def text(self) -> Message:
        """The options."""
        return Message.naming(self.options)

    @property
    def way(self) -> Layout:
        """The layout."""
        return layout_of(self.options.get("layout"))


def proposals(files: Sequence[str], groups: Sequence[VirtualGroup], read: Read) -> list[Proposal]:
    """Possible layouts of files, the best supported first; none if nothing distinguishes files.

    Parameters
    ----------
    read
        Reads all values of an array.
    """
    wells = wells_in_names(files) if all("ome" in group.attrs for group in groups) else []
    if len(wells) > 1:
        reason = f"microscopy images with wells in the names ({wells[0]}, ...)"
        return [Proposal({"layout": Plate()}, reason)]
    rasters = [
        read_raster(group, file, "x", "y") for file, group in zip(files, groups, strict=True)
    ]
    placed = [raster for raster in rasters if isinstance(raster, Raster)]
    if len(placed) == len(files):
        return _of_rasters(files, groups, placed, read)
    varying = varying_dims(groups, read)
    spans = [_spans(group, varying, read) for group in groups]
    apart = _told_apart(spans, groups)
    if apart and varying:
        return _along(varying, groups)
    if apart:
        return [Proposal({"layout": "by_coords"}, "each file holds other variables")]
    grows = [] if varying else _unlabelled(groups)
    if len(grows) == 1:
        reason = f"{grows[0]!r} is unlimited, and nothing labels it: in the order of the files"
        return [Proposal({"concat_dim": grows[0]}, reason)]
    timed = [] if varying else _timed(groups, read)
    if len(timed) == 1:
        reason = f"the times along {timed[0]!r} go on from file to file"
        return [Proposal({"concat_dim": timed[0]}, reason)]
    return [*_with_labels(files, groups, varying, spans, read), *_by_lengths(groups)]


def _along(varying: Sequence[str], groups: Sequence[VirtualGroup]) -> list[Proposal]:
    known = {tuple(sorted(_variables(group))) for group in groups}
    if len(varying) > 1 and is_ragged(groups[0], varying):
        reason = f"files go on along {' and '.join(varying)}, each by itself"
        return [Proposal({"concat_dim": list(varying)}, reason)]
    reason = f"coordinates differ along {' and '.join(varying)}"
    if len(varying) == 1 and len(known) == 1:
        return [Proposal({"concat_dim": varying[0]}, reason)]
    if len(known) > 1:
        reason += ", and variables between files"
    return [Proposal({"concat_dim": list(varying), "layout": "by_coords"}, reason)]


def _variables(group: VirtualGroup) -> set[str]:
    """Paths of variables that are not coordinates of a dimension, nor scalars or bounds."""
    arrays = group.all_arrays()
    bounds = {str(array.attrs.get("bounds")) for array in arrays.values()}
    return {
        path
        for path, array in arrays.items()
        if array.ndim and array.dims != (path.rpartition("/")[2],) and path not in bounds
    }


def _spans(group: VirtualGroup, dims: Iterable[str], read: Read) -> tuple[Span, ...]:
    """The least and the greatest label of a file along some dimensions."""
    arrays = {path.rpartition("/")[2]: array for path, array in group.all_arrays().items()}
    return tuple(_span(arrays.get(dim), read) for dim in dims)


def _span(array: VirtualArray | None, read: Read) -> Span:
    if array is None or not array.size:
        return _EVERYWHERE
    values = read(array)
    least, greatest = values.min(), values.max()
    base = TimeBase.of(array.attrs) or duration_base(array.attrs)
    if base is None or values.dtype.kind not in "iuf":
        return least, greatest
    first, last = (base.epoch_ns + float(value) * base.unit_ns for value in (least, greatest))
    return first, last


def _told_apart(spans: Sequence[tuple[Span, ...]], groups: Sequence[VirtualGroup]) -> bool:
    """Whether no two files with a variable in common hold labels in each other's span."""
    variables = [_variables(group) or {""} for group in groups]
    n_dims = len(spans[0])
    lows = [{str(own[dim][0]) for own in spans} for dim in range(n_dims)]
    swept = max(range(n_dims), key=lambda dim: len(lows[dim]), default=None)
    if swept is None:
        return all(one.isdisjoint(other) for one, other in itertools.combinations(variables, 2))
    active: list[int] = []
    for file in sorted(range(len(spans)), key=lambda file: spans[file][swept][0]):
        active = [other for other in active if spans[other][swept][1] >= spans[file][swept][0]]
        for other in active:
            if _meet(spans[file], spans[other]) and variables[file] & variables[other]:
                return False
        active.append(file)
    return True


def _meet(one: Sequence[Span], other: Sequence[Span]) -> bool:
    return all(a[0] <= b[1] and b[0] <= a[1] for a, b in zip(one, other, strict=True))


@dataclass(frozen=True)
class _Source:
    """A possible source of labels: its options, its value in each file, and its name."""

    rank: int
    dim: str
    values: tuple[Any, ...]
    reason: str
    field: NameField | None = None
    attribute: str | None = None

    @property
    def meaning(self) -> Any:
        """Equal for sources that say the same: one attribute under two names, a repeated number."""
        if self.field is None:
            return self.dim
        return (self.values, self.field.kind) if self.field.is_time else self.values


def _with_labels(
    files: Sequence[str],
    groups: Sequence[VirtualGroup],
    varying: Sequence[str],
    spans: Sequence[tuple[Span, ...]],
    read: Read,
    bands: NameField | None = None,
) -> Iterable[Proposal]:
    """Layouts by the fewest labels that distinguish all files; one for each way to divide them.

    The part of names with `bands` is in the pattern in any case.
    """
    parts = _with_axes(name_parts(files), groups)
    single = all(dim in g.arrays and g.arrays[dim].size == 1 for dim in varying for g in groups)
    sources = sorted(
        [*_scalars(groups, varying, read), *_attributes(groups), *_names(parts, groups, bands)],
        key=lambda source: source.rank,
    )
    for n in range(1, _MOST_TOGETHER + 1):
        ways: dict[Any, list[tuple[_Source, ...]]] = {}
        for chosen in itertools.combinations(sources, n):
            if len({source.dim for source in chosen}) < n:
                continue
            columns = [source.values for source in chosen]
            numbers = zip(*map(_numbered, columns), strict=True)
            labelled = [(*own, *more) for own, more in zip(spans, numbers, strict=True)]
            if _told_apart(labelled, groups):
                ways.setdefault(_partition(columns), []).append(chosen)
        every = [chosen for alike in ways.values() for chosen in _best(alike)]
        laid = [
            _labelled(chosen, varying, parts, files, bands, is_single=single) for chosen in every
        ]
        if any(laid):
            return [proposal for proposal in laid if proposal is not None]
    return []


def _with_axes(parts: NameParts | None, groups: Sequence[VirtualGroup]) -> NameParts | None:
    """The parts of names of images, in which ``T0``, ``Z1`` and ``P2`` are called what they are."""
    images = [group.arrays.get("image") for group in groups]
    if parts is None or not all(a is not None and "tiff_series" in a.attrs for a in images):
        return parts
    taken = {
        dim
        for array in images
        if array is not None
        for dim, extent in zip(array.dims, array.shape, strict=True)
        if extent > 1
    }
    fields: list[NameField] = []
    for field in parts.fields:
        letters = re.search(r"[A-Za-z]+$", field.part[1])
        axis = _AXES.get(letters[0].upper()) if letters and field.kind == "d" else None
        names = {other.name for other in fields}
        fields.append(replace(field, name=axis) if axis and axis not in taken | names else field)
    return replace(parts, fields=tuple(fields))


def _numbered(column: Sequence[Any]) -> list[Span]:
    """Different values as different spans."""
    number = {value: float(n) for n, value in enumerate(dict.fromkeys(column))}
    return [(number[value], number[value]) for value in column]


def _best(alike: Sequence[tuple[_Source, ...]]) -> list[tuple[_Source, ...]]:
    """Of labels that divide files alike, the best supported ones."""
    ranks = [sorted(source.rank for source in chosen) for chosen in alike]
    best = [chosen for chosen, rank in zip(alike, ranks, strict=True) if rank == min(ranks)]
    distinct: dict[Any, tuple[_Source, ...]] = {}
    for chosen in best:
        distinct.setdefault(frozenset(source.meaning for source in chosen), chosen)
    return list(distinct.values())


def _partition(columns: Sequence[Sequence[Any]]) -> tuple[tuple[int, ...], ...]:
    """How values part files, whatever they are called: columns in any order."""
    return tuple(sorted(tuple(map(list(column).index, column)) for column in columns))


def _labelled(
    chosen: Sequence[_Source],
    varying: Sequence[str],
    parts: NameParts | None,
    files: Sequence[str],
    bands: NameField | None,
    *,
    is_single: bool,
) -> Proposal | None:
    """The layout by some labels; None where no pattern finds them in the names.

    `is_single` is whether files have one label along each of the `varying` dimensions, so that
    a label of their names could take its place.
    """
    dims = [source.dim for source in chosen]
    options: dict[str, Any] = {}
    fields = [source.field for source in chosen if source.field is not None]
    named = fields if bands is None else [*fields, bands]
    pattern = parts.pattern(named) if named and parts is not None else None
    if pattern is not None and not finds_all(pattern, files, named):
        return None
    attributes = {s.dim: f"attribute:{s.attribute}" for s in chosen if s.attribute is not None}
    if len(fields) == 1 == len(chosen) and (not varying or (is_single and varying == dims)):
        options["layout"] = Stack(dims[0], pattern)
    else:
        if varying or len(fields) + len(attributes) < len(chosen):
            options["concat_dim"] = list(dict.fromkeys([*dims, *varying]))
        labels = Labels(pattern, sources=attributes or None)
        options["layout"] = labels if pattern or attributes else "by_coords"
    reasons = [source.reason for source in chosen]
    reasons += [f"coordinates differ along {' and '.join(varying)}"] if varying else []
    return Proposal(options, ", ".join(reasons))


def _scalars(
    groups: Sequence[VirtualGroup], varying: Sequence[str], read: Read
) -> Iterable[_Source]:
    """Scalar coordinates that differ."""
    first = groups[0].arrays
    named = {w for a in first.values() for w in str(a.attrs.get("coordinates", "")).split()}
    named |= set(str(groups[0].attrs.get("coordinates", "")).split())
    standard = {text_of(array.attrs, "standard_name") for array in first.values()}
    sums = _valid_times(groups, read)
    for name, array in first.items():
        own_name = text_of(array.attrs, "standard_name")
        known = own_name in _SCALARS or is_time_like(array.attrs)
        if array.ndim or name in {*varying, *sums} or not (known or name in named):
            continue
        if own_name == "time" and {"forecast_reference_time", "forecast_period"} <= standard:
            continue  # it is the sum of both
        held = [group.arrays.get(name) for group in groups]
        if all(own is not None and own.ndim == 0 for own in held):
            values = tuple(str(_span(own, read)) for own in held)
            if len(set(values)) > 1:
                yield _Source(0, name, values, f"the scalar {name!r} differs")


def _valid_times(groups: Sequence[VirtualGroup], read: Read) -> set[str]:
    """Scalar times that are the sum of another one and of a duration in every file."""
    scalars = [name for name, array in groups[0].arrays.items() if not array.ndim]
    held = {name: [group.arrays.get(name) for group in groups] for name in scalars}
    held = {name: own for name, own in held.items() if all(a is not None for a in own)}
    first = {name: groups[0].arrays[name].attrs for name in held}
    times = [name for name in held if is_time_like(first[name])]
    steps = [name for name in held if duration_base(first[name]) is not None]
    ns = {name: [_span(array, read)[0] for array in held[name]] for name in (*times, *steps)}
    return {
        valid
        for valid, run, step in itertools.product(times, times, steps)
        if valid != run
        and len(set(ns[step])) > 1
        and all(
            abs(a + b - both) < _ROUNDING_NS
            for a, b, both in zip(ns[run], ns[step], ns[valid], strict=True)
        )
    }


def _attributes(groups: Sequence[VirtualGroup]) -> Iterable[_Source]:
    """Attributes that distinguish files, by convention."""
    for name, dim in _ATTRIBUTES.items():
        values = tuple(str(group.attrs.get(name)) for group in groups)
        if all(name in group.attrs for group in groups) and len(set(values)) > 1:
            reason = f"the attribute {name!r} differs"
            yield _Source(2, dim, values, reason, attribute=name)


def _names(
    parts: NameParts | None, groups: Sequence[VirtualGroup], bands: NameField | None = None
) -> Iterable[_Source]:
    """Parts of file names that differ, but for those that name a variable of the file."""
    variables = [{path.rpartition("/")[2] for path in _variables(group)} for group in groups]
    for field in () if parts is None else parts.fields:
        named = all(value in own for value, own in zip(field.values, variables, strict=True))
        named |= bands is not None and field.part[0] == bands.part[0]
        if not named:
            rank = 1 if field.is_time else 3 if field.kind == "d" else 4
            what = "dates" if field.is_time else "numbers" if field.kind == "d" else "words"
            reason = f"{what} in the names ({field.values[0]}, ...)"
            yield _Source(rank, field.name, field.values, reason, field=field)


def _of_rasters(
    files: Sequence[str], groups: Sequence[VirtualGroup], rasters: Sequence[Raster], read: Read
) -> list[Proposal]:
    """Georeferenced files: side by side, of many dates, or both; on each grid by themselves."""
    places = _numbered([str((raster.x0, raster.y0, raster.crs)) for raster in rasters])
    spans: list[tuple[Span, ...]] = [(place,) for place in places]
    n_places = len(set(places))
    n_grids = len({(raster.crs, raster.dx, raster.dy) for raster in rasters})
    parts = name_parts(files)
    bands = None if parts is None or _told_apart(spans, groups) else parts.bands(VARIABLE)
    grids: Literal["one", "groups"] = "groups" if n_grids > 1 else "one"
    where = f"georeferenced at {n_places} places" + (f" on {n_grids} grids" if n_grids > 1 else "")
    if bands is not None:
        where += f", bands in the names ({bands.values[0]}, ...)"
        named = _numbered(bands.values)
        spans = [(*own, band) for own, band in zip(spans, named, strict=True)]
    if _told_apart(spans, groups):
        if bands is not None and parts is not None:
            return [Proposal({"layout": Mosaic(parts.pattern([bands]), grids=grids)}, where)]
        if n_places == 1:
            return [Proposal({"layout": "by_coords"}, "each file holds other variables")]
        return [Proposal({"layout": Mosaic(grids=grids)}, where)]
    found = _with_labels(files, groups, (), spans, read, bands)
    if n_places == 1 and bands is None:
        return list(found)
    placed = []
    for own in found:
        labels = own.way.sought
        if labels.pattern and not labels.sources and "concat_dim" not in own.options:
            stack = own.way.dim if isinstance(own.way, Stack) else None
            layout = Mosaic(labels.pattern, stack, grids=grids)
            placed.append(Proposal({"layout": layout}, f"{where}, {own.reason}"))
    return placed


def proposals_by_kind(
    files: Sequence[str], groups: Sequence[VirtualGroup], read: Read
) -> list[Proposal]:
    """Groups of files on unlike grids, by what names the kind of each; that best known first."""
    varying = varying_dims(groups, read)
    grids = [_grid(group, varying, read) for group in groups]
    parts = name_parts(files)
    found: dict[Any, Proposal] = {}
    for source in sorted([*_attributes(groups), *_names(parts, groups)], key=lambda s: s.rank):
        pairs = set(zip(source.values, grids, strict=True))
        n_kinds = len(set(source.values))
        if len(set(grids)) < 2 or len(pairs) > n_kinds or n_kinds == len(files):
            continue
        if source.field is not None and source.field.is_time:
            continue
        if source.field is not None and parts is not None:
            layout = Groups(source.dim, labels=parts.pattern([source.field]))
        else:
            layout = Groups(source.attribute)
        reason = f"kinds of files have grids of their own, {source.reason}"
        found.setdefault(_partition([source.values]), Proposal({"layout": layout}, reason))
    return list(found.values())


def _grid(group: VirtualGroup, varying: Sequence[str], read: Read) -> Any:
    """The dimensions of a file, but for those along which files go on, and their coordinates."""
    arrays = group.all_arrays()
    sizes = {
        (path.rpartition("/")[0], dim, extent)
        for path, array in arrays.items()
        for dim, extent in zip(array.dims, array.shape, strict=True)
        if dim not in varying
    }
    labels = {
        (path, read(array).tobytes())
        for path, array in arrays.items()
        if array.dims == (path.rpartition("/")[2],) and array.dims[0] not in varying
    }
    return frozenset(sizes), frozenset(labels)


def _unlabelled(groups: Sequence[VirtualGroup]) -> list[str]:
    """Unlimited dimensions of all files that have no coordinate."""
    shared = frozenset.intersection(*(group.unlimited_dims for group in groups))
    return [dim for dim in shared if not any(dim in group.arrays for group in groups)]


def _timed(groups: Sequence[VirtualGroup], read: Read) -> list[str]:
    """Dimensions whose times, in a variable of another name, rise through all files in order."""
    held = [group.all_arrays() for group in groups]
    dims = [
        (array.dims[0], path)
        for path, array in held[0].items()
        if array.ndim == 1
        and array.dims[0] != path.rpartition("/")[2]
        and is_time_like(array.attrs)
    ]
    rising = {dim for dim, path in dims if _goes_on([own.get(path) for own in held], read)}
    return sorted(rising)


def _goes_on(coordinates: Sequence[VirtualArray | None], read: Read) -> bool:
    """Whether each file's times, all of one unit, begin where those of the file before end."""
    units = {str(array.attrs.get("units")) for array in coordinates if array is not None}
    spans = [_span(array, read) for array in coordinates]
    return len(units) == 1 and all(
        end < start for (_, end), (start, _) in itertools.pairwise(spans)
    )


def _by_lengths(groups: Sequence[VirtualGroup]) -> list[Proposal]:
    """Files of differing length that nothing distinguishes."""
    sizes: dict[str, set[int]] = {}
    for group in groups:
        for array in group.arrays.values():
            for dim, extent in zip(array.dims, array.shape, strict=True):
                sizes.setdefault(dim, set()).add(extent)
    labelled = {name for group in groups for name in group.arrays}
    uneven = [dim for dim, found in sizes.items() if len(found) > 1 and dim not in labelled]
    if not uneven:
        return []
    reason = f"files differ in length along {' and '.join(uneven)}"
    return [Proposal({"layout": Ragged(padded=padded)}, reason) for padded in (False, True)]


# The choice: the one layout that fits, or a list of candidates

Scanned = Sequence[tuple[str, VirtualGroup]]

_SHOWN_CASES = 4


def laid_out_by_itself(
    scanned: Scanned, read: Read, rules: CombineOptions, *, take_first: bool
) -> tuple[Mapping[str, Any], Combination]:
    """Work out the layout of files, and combine them by it.

    Parameters
    ----------
    scanned
        Addresses and groups, more than one.
    read, rules
        As for `Combining`.
    take_first
        Whether to take the first of several layouts.

    Returns
    -------
    tuple
        What `build` would be called with; and what it gives, with a drift that says so.

    Raises
    ------
    InvalidRequestError
        If nothing distinguishes the files.
    UnclearLayoutError
        If several layouts fit, or names disagree with a coordinate that the files have: each layout
        is listed with what it would give.
    """
    every, scanned = [file for file, _ in scanned], one_of_each_set(scanned)
    files, groups = [file for file, _ in scanned], [group for _, group in scanned]
    if len(files) == 1:
        cases = {f"one set of {len(every)} files": list(range(len(every)))}
        note = Drift.of("layout", "", cases, "laid out as OME-XML says")
        return {}, Combination(groups[0], DriftReport((note,), tuple(every)))
    found = [_telling(proposal, files, groups) for proposal in proposals(files, groups, read)]
    tried = [_tried(proposal, scanned, read, rules) for proposal in found]
    if all(done.problems for _, done in tried):
        kinds = proposals_by_kind(files, groups, read)
        tried += _tried_by_kind(kinds, scanned, read, rules)
    if not tried:
        raise InvalidRequestError(
            Message(
                f"{len(files)} files need a dimension to lie along, and neither "
                "coordinates nor names nor attributes tell one: name it (",
                Option("concat_dim", "time"),
                "), stack them along a new one (",
                Option("stack", "time", "layout=Stack('time')"),
                ") or by their place (",
                Option("mosaic", True, "layout=Mosaic()"),
                ")",
            )
        )
    fitting = [(proposal, done) for proposal, done in tried if not done.problems]
    clear = [(proposal, done) for proposal, done in fitting if not _replaced(done)]
    if fitting and not clear:
        first = _replaced(fitting[0][1])[0]
        others = [
            (proposal, done)
            for own in fitting
            for proposal in _beside(own[0], first.variable, groups)
            for done in [_tried(proposal, scanned, read, rules)[1]]
            if not done.problems
        ]
        raise UnclearLayoutError(
            _disagreement(first, files, [*others, *fitting]),
            [proposal.options for proposal, _ in [*others, *fitting]],
        )
    if len(clear) > 1 and not take_first:
        raise UnclearLayoutError(
            _listed(len(files), tried), [proposal.options for proposal, _ in tried]
        )
    chosen, done = (clear or tried)[0]
    sets = f", each of {len(files)} a set of files by OME-XML" if len(files) < len(every) else ""
    cases = {chosen.reason + sets: list(range(len(done.report.files)))}
    note = Drift.of("layout", "", cases, Message("laid out by ", chosen.text))
    report = replace(done.report, drifts=(note, *done.report.drifts))
    return chosen.options, replace(done, report=report)


def _telling(proposal: Proposal, files: Sequence[str], groups: Sequence[VirtualGroup]) -> Proposal:
    """The layout, in which parts of names that mean something are labels beside others."""
    way, options = proposal.way, proposal.options
    if not isinstance(way, InARow):
        return proposal
    if way.sought.pattern is not None:
        return replace(proposal, options={**options, "layout": way.telling(files)})
    dims = options.get("concat_dim", ())
    dims = [dims] if isinstance(dims, str) else dims
    parts = name_parts(files)
    if parts is None or not parts.fields or not dims or not set(dims) <= groups[0].arrays.keys():
        return proposal
    hiding = parts.pattern([])
    pattern = with_telling_parts(hiding, files, known=True)
    if pattern == hiding:
        return proposal
    labels = way.with_labels(way.sought.with_pattern(pattern))
    return replace(proposal, options={**options, "layout": labels})


def _tried(
    proposal: Proposal, scanned: Scanned, read: Read, rules: CombineOptions
) -> tuple[Proposal, Combination]:
    """What a layout gives; files along one dimension are put in the order of their labels."""
    done = _laid_out(proposal, scanned, read, rules)
    in_a_row = proposal.options.get("layout") is None
    if in_a_row and "order" in {drift.cause for drift in done.report}:
        proposal = replace(proposal, options={**proposal.options, "layout": "by_coords"})
        done = _laid_out(proposal, scanned, read, rules)
    return proposal, done


def _laid_out(
    proposal: Proposal, scanned: Scanned, read: Read, rules: CombineOptions
) -> Combination:
    groups, way = dict(scanned), proposal.way
    dims = proposal.options.get("concat_dim", ())
    own_rules = replace(rules, **given_options(proposal.options.get("combine", CombineOptions())))

    def by_itself(files: Scanned, take_first: bool) -> Combination:
        return laid_out_by_itself(files, read, rules, take_first=take_first)[1]

    named = (dims,) if isinstance(dims, str) else tuple(dims)
    how = Combining(read, own_rules, named, "label", by_itself)
    return way.laid_out([(file, groups[file]) for file in way.ordered(list(groups))], how)


def _tried_by_kind(
    found: Sequence[Proposal], scanned: Scanned, read: Read, rules: CombineOptions
) -> list[tuple[Proposal, Combination]]:
    """What groups of kinds give, where one clear way lays out the files of each."""
    tried = []
    for proposal in found:
        with suppress(InvalidRequestError):
            tried.append((proposal, _laid_out(proposal, scanned, read, rules)))
    return tried


def _replaced(done: Combination) -> tuple[Drift, ...]:
    """The coordinates of files that other labels take the place of."""
    return done.report.of_cause(REPLACED)


def _beside(proposal: Proposal, dim: str, groups: Sequence[VirtualGroup]) -> list[Proposal]:
    """Other layouts that keep the coordinate of the files, instead of labels out of their names."""
    way = proposal.way
    own = [group.arrays[dim] for group in groups if dim in group.arrays]
    kept = []
    if isinstance(way, Stack) and way.dim == dim and all(array.dims == (dim,) for array in own):
        along = {"concat_dim": dim, "combine": CombineOptions(overlap="keep")}
        kept.append(Proposal(along, f"{dim!r} as the files say it"))
    name = f"{dim}_in_name"
    pattern = way.sought.pattern
    if pattern is not None:
        told = pattern.replace(f"{{{dim}:", f"{{{name}:").replace(f"{{{dim}}}", f"{{{name}}}")
        way = way.with_labels(way.sought.with_pattern(told))
    if isinstance(way, Stack) and way.dim == dim:
        way = Stack(name, way.labels)
    if isinstance(way, Mosaic) and way.stack == dim:
        way = Mosaic(**{**given_options(way), "stack": name})
    renamed = {**proposal.options, **({"layout": way} if "layout" in proposal.options else {})}
    dims = renamed.get("concat_dim", ())
    if dims == dim:
        renamed["concat_dim"] = name
    elif not isinstance(dims, str) and dim in dims:
        renamed["concat_dim"] = [name if each == dim else each for each in dims]
    if renamed != proposal.options:
        kept.append(Proposal(renamed, "both, under two names"))
    return kept


def _disagreement(
    drift: Drift, files: Sequence[str], ways: Sequence[tuple[Proposal, Combination]]
) -> str:
    """That files and their names say other labels, with the values and what to ask for."""
    report = ways[-1][1].report
    values = [
        f"  {os.path.basename(report.files[case.ranges[0][0]])}: {case.value}"
        for case in drift.cases[:_SHOWN_CASES]
    ]
    more = drift.n_cases - len(values)
    values += [f"  and {more} more"] if more > 0 else []
    lines = _lines(ways)
    head = f"{drift.variable!r} in {len(files)} files disagrees with their names or attributes:"
    return Message.joined(
        "\n", [head, *values, "Ask for the layout with the right labels:", *lines]
    )


def _listed(n_files: int, tried: Sequence[tuple[Proposal, Combination]]) -> str:
    head = Message(
        f"{n_files} files may lie in several ways: ask for one, or ",
        Option("yes", True, "layout='first'"),
        " for the first",
    )
    return Message.joined("\n", [head, *_lines(tried)])


def _lines(ways: Sequence[tuple[Proposal, Combination]]) -> list[Message]:
    """A line for each layout, with what it gives."""
    return [
        Message("  ", proposal.text, f" ({proposal.reason}): ", _outcome(done))
        for proposal, done in ways
    ]


def _outcome(done: Combination) -> str:
    """Shape, missing parts and problems in words."""
    if done.group is None:
        first = done.problems[0]
        return Message(f"{len(done.problems)} problems, as {first.variable}: ", first.message)
    arrays = done.group.all_arrays()
    path, largest = max(arrays.items(), key=lambda item: item[1].size)
    missing = _share_missing(largest)
    return f"{path} {largest.sizes_text}" + (f", {missing:.0%} of it missing" if missing else "")


def _share_missing(array: VirtualArray) -> float:
    absent = array.blocks.encoding == MISSING_BLOCK
    sizes = array.block_shapes().prod(axis=1)
    return float(sizes[absent].sum() / max(1, math.prod(array.shape)))
