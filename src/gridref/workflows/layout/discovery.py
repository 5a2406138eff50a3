"""How files lie beside each other, worked out of coordinates, georeferencing, names and attributes.

Files lie along a dimension where their coordinates differ; of those that then hold the same labels
of the same variables, something else has to tell which is which: a scalar coordinate, a date or
number in the names, an attribute. Nothing here combines anything: a `Proposal` is a layout, which
is tried like one that a user wrote.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gridref.combine.calendars import TimeBase, is_time_like
from gridref.combine.georeference import Raster, read_raster
from gridref.combine.options import Read
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.referring import text_of
from gridref.workflows.layout.cubes import is_ragged, varying_dims
from gridref.workflows.layout.name_fields import NameField, NameParts, finds_all, name_parts
from gridref.workflows.layout.plates import wells_in_names
from gridref.workflows.layout.tiles import VARIABLE

__all__ = ["Proposal", "proposals", "proposals_by_kind"]

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

_SCALARS = ("time", "realization", "forecast_reference_time", "forecast_period")
"""Standard names of scalar coordinates that files lie along (CF conventions, 5.7)."""

Span = tuple[Any, Any]
"""The least and the greatest label."""

_EVERYWHERE = (float("-inf"), float("inf"))

_MOST_TOGETHER = 3
"""Labels that are tried together at most."""


@dataclass(frozen=True)
class Proposal:
    """A way to lay files out.

    Attributes
    ----------
    options
        Fields of `Layout`.
    reason
        What speaks for it.
    """

    options: Mapping[str, Any]
    reason: str

    @property
    def text(self) -> str:
        """The options as they are written in Python."""
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


def proposals(files: Sequence[str], groups: Sequence[VirtualGroup], read: Read) -> list[Proposal]:
    """Ways to lay files out, that of which most is known first; none if nothing tells them apart.

    Parameters
    ----------
    read
        Reads all values of an array.
    """
    wells = wells_in_names(files) if all("ome" in group.attrs for group in groups) else []
    if len(wells) > 1:
        reason = f"microscopy images with wells in the names ({wells[0]}, ...)"
        return [Proposal({"layout": "plate"}, reason)]
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
        return [Proposal({"combine": "by_coords"}, "each file holds other variables")]
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
    return [Proposal({"concat_dim": list(varying), "combine": "by_coords"}, reason)]


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
    base = TimeBase.of(array.attrs) if values.dtype.kind in "iuf" else None
    if base is None:
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
    """Something that may tell files apart: options for it, its value in each file, and its name."""

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
    """Layouts by the fewest labels that tell all files apart; one for each way to part them.

    The part of names with `bands` is in the pattern in any case.
    """
    parts = name_parts(files)
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
        laid = [_labelled(chosen, varying, parts, files, bands) for chosen in every]
        if any(laid):
            return [proposal for proposal in laid if proposal is not None]
    return []


def _numbered(column: Sequence[Any]) -> list[Span]:
    """Different values as different spans."""
    number = {value: float(n) for n, value in enumerate(dict.fromkeys(column))}
    return [(number[value], number[value]) for value in column]


def _best(alike: Sequence[tuple[_Source, ...]]) -> list[tuple[_Source, ...]]:
    """Of labels that part files alike those of which most is known, where they say other things."""
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
) -> Proposal | None:
    """The layout by some labels; None where no pattern finds them in the names."""
    dims = [source.dim for source in chosen]
    options: dict[str, Any] = {}
    fields = [source.field for source in chosen if source.field is not None]
    named = fields if bands is None else [*fields, bands]
    if named and parts is not None:
        options["pattern"] = parts.pattern(named)
        if not finds_all(options["pattern"], files, named):
            return None
    attributes = {s.dim: f"attribute:{s.attribute}" for s in chosen if s.attribute is not None}
    if attributes:
        options["labels"] = attributes
    if len(fields) == 1 == len(chosen) and not varying:
        options = {"stack": dims[0], **options}
    elif varying or len(fields) + len(attributes) < len(chosen):
        options = {"concat_dim": [*dims, *varying], **options}
    if list(options) == ["concat_dim"]:
        options["combine"] = "by_coords"
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
    for name, array in first.items():
        own_name = text_of(array.attrs, "standard_name")
        known = own_name in _SCALARS or is_time_like(array.attrs)
        if array.ndim or name in varying or not (known or name in named):
            continue
        if own_name == "time" and {"forecast_reference_time", "forecast_period"} <= standard:
            continue  # it is the sum of both
        held = [group.arrays.get(name) for group in groups]
        if all(own is not None and own.ndim == 0 for own in held):
            values = tuple(str(_span(own, read)) for own in held)
            if len(set(values)) > 1:
                yield _Source(0, name, values, f"the scalar {name!r} differs")


def _attributes(groups: Sequence[VirtualGroup]) -> Iterable[_Source]:
    """Attributes that tell files apart, by convention."""
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
    mosaic = {"mosaic": True, **({"grids": "groups"} if n_grids > 1 else {})}
    where = f"georeferenced at {n_places} places" + (f" on {n_grids} grids" if n_grids > 1 else "")
    if bands is not None:
        where += f", bands in the names ({bands.values[0]}, ...)"
        named = _numbered(bands.values)
        spans = [(*own, band) for own, band in zip(spans, named, strict=True)]
    if _told_apart(spans, groups):
        if bands is not None and parts is not None:
            return [Proposal({**mosaic, "pattern": parts.pattern([bands])}, where)]
        if n_places == 1:
            return [Proposal({"combine": "by_coords"}, "each file holds other variables")]
        return [Proposal(mosaic, where)]
    found = _with_labels(files, groups, (), spans, read, bands)
    if n_places == 1 and bands is None:
        return list(found)
    return [
        Proposal({**mosaic, **own.options}, f"{where}, {own.reason}")
        for own in found
        if "pattern" in own.options and not {"labels", "concat_dim"} & set(own.options)
    ]


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
        options: dict[str, Any] = {"group_by": source.attribute}
        if source.field is not None and parts is not None:
            if source.field.is_time:
                continue
            options = {"group_by": source.dim, "pattern": parts.pattern([source.field])}
        reason = f"kinds of files have grids of their own, {source.reason}"
        found.setdefault(_partition([source.values]), Proposal(options, reason))
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
    """Files of differing length that nothing tells apart."""
    sizes: dict[str, set[int]] = {}
    for group in groups:
        for array in group.arrays.values():
            for dim, extent in zip(array.dims, array.shape, strict=True):
                sizes.setdefault(dim, set()).add(extent)
    labelled = {name for group in groups for name in group.arrays}
    uneven = [dim for dim, found in sizes.items() if len(found) > 1 and dim not in labelled]
    if not uneven:
        return []
    reason = f"files are of differing length along {' and '.join(uneven)}"
    return [Proposal({"layout": "ragged"}, reason), Proposal({"layout": "padded"}, reason)]
