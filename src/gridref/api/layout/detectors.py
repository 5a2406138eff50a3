"""Detectors of layouts: each one looks at facts about the files and proposes candidates.

Files are placed along each dimension whose coordinates differ. If files then have the same labels
of the same variables, something else has to distinguish them: a scalar coordinate, a date or number
in the names, an attribute. The first detector that finds candidates ends the search.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gridref.api.layout.cubes import is_ragged
from gridref.api.layout.facts import Box, Facts, Source, numbered
from gridref.api.layout.kinds import counted, kinds_of, names_of_kinds, telling_kinds
from gridref.api.layout.layouts import (
    KIND,
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
from gridref.api.layout.names import NameField, finds_all, whole_names, with_telling_parts
from gridref.combine import CombineOptions
from gridref.errors import Message

_MOST_TOGETHER = 3
"""Labels that are tried together at most."""

_MOST_KINDS = 16
"""Files of more kinds are rather one kind that differs."""


@dataclass(frozen=True)
class Candidate:
    """A way to lay files out.

    Attributes
    ----------
    options
        What `build` is called with: ``concat_dim``, ``order``, ``layout`` and ``combine``.
    reason
        What speaks for it.
    order
        Numbers of the files in the order to take them, if not as they are given.
    is_guess
        Whether it is taken only if the user asks for it.
    is_resolved
        Whether a choice that loses nothing is part of it.
    """

    options: Mapping[str, Any]
    reason: str
    order: tuple[int, ...] = ()
    is_guess: bool = False
    is_resolved: bool = False

    @property
    def text(self) -> Message:
        """The options."""
        return Message.naming(self.options)

    @property
    def way(self) -> Layout:
        """The layout."""
        return layout_of(self.options.get("layout"))

    @property
    def dims(self) -> tuple[str, ...]:
        """The dimensions that it names."""
        named = self.options.get("concat_dim", ())
        return (named,) if isinstance(named, str) else tuple(named)

    def telling(self, facts: Facts) -> Candidate:
        """The same, with parts of names that mean something as labels beside others."""
        way = self.way
        if not isinstance(way, InARow):
            return self
        if way.sought.pattern is not None:
            return replace(self, options={**self.options, "layout": way.telling(facts.files)})
        held = facts.groups[0].arrays.keys()
        if facts.parts is None or not facts.parts.fields or not self.dims or set(self.dims) - held:
            return self
        hiding = facts.parts.pattern([])
        pattern = with_telling_parts(hiding, facts.files, known=True)
        if pattern == hiding:
            return self
        labels = way.with_labels(way.sought.with_pattern(pattern))
        return replace(self, options={**self.options, "layout": labels})


def detect(facts: Facts) -> list[Candidate]:
    """Possible layouts, the best supported first; none if nothing distinguishes files."""
    found = next(filter(None, (detector(facts) for detector in DETECTORS)), [])
    return [candidate.telling(facts) for candidate in found]


# Detectors


def plate(facts: Facts) -> list[Candidate]:
    """Microscopy images with wells in the names."""
    if len(facts.wells) < 2:
        return []
    reason = f"microscopy images with wells in the names ({facts.wells[0]}, ...)"
    return [Candidate({"layout": Plate()}, reason)]


def pixels(facts: Facts) -> list[Candidate]:
    """Georeferenced files: side by side, of many dates, or both; on each grid by themselves."""
    if not facts.rasters:
        return []
    boxes, bands = facts.pixel_boxes, facts.bands
    n_places = len(set(boxes))
    n_grids = len({(raster.crs, raster.dx, raster.dy) for raster in facts.rasters})
    grids: Literal["one", "groups"] = "groups" if n_grids > 1 else "one"
    where = f"georeferenced at {n_places} places" + (f" on {n_grids} grids" if n_grids > 1 else "")
    if bands is not None and facts.parts is not None:
        where += f", bands in the names ({bands.values[0]}, ...)"
        boxes = [(*own, band) for own, band in zip(boxes, numbered(bands.values), strict=True)]
    if not facts.are_apart(boxes):
        found = with_labels(facts, (), boxes, bands)
        if n_places == 1 and bands is None:
            return found
        return [own for each in found for own in _as_mosaic(each, grids, where)]
    if bands is not None and facts.parts is not None:
        return [Candidate({"layout": Mosaic(facts.parts.pattern([bands]), grids=grids)}, where)]
    if n_places == 1:
        return [_MERGED]
    return [Candidate({"layout": Mosaic(grids=grids)}, where)]


def _as_mosaic(labelled: Candidate, grids: Literal["one", "groups"], where: str) -> list[Candidate]:
    """A mosaic for each of the labels; none where these are not all in names."""
    labels = labelled.way.sought
    if not labels.pattern or labels.sources or labelled.dims:
        return []
    stack = labelled.way.dim if isinstance(labelled.way, Stack) else None
    layout = Mosaic(labels.pattern, stack, grids=grids)
    return [Candidate({"layout": layout}, f"{where}, {labelled.reason}")]


def coordinates(facts: Facts) -> list[Candidate]:
    """Coordinates that differ tell all files apart."""
    varying = facts.varying
    if not varying or not facts.are_apart(facts.boxes):
        return []
    if len(varying) > 1 and is_ragged(facts.groups[0], varying):
        reason = f"{' and '.join(varying)} continue from file to file, each by itself"
        return [Candidate({"concat_dim": list(varying)}, reason)]
    reason = f"coordinates differ along {' and '.join(varying)}"
    n_kinds = len({frozenset(own) for own in facts.variables})
    if len(varying) == 1 and (n_kinds == 1 or facts.differ_by_groups(varying[0])):
        return [Candidate({"concat_dim": varying[0]}, reason)]
    if n_kinds > 1:
        reason += ", and variables between files"
    return [Candidate({"concat_dim": list(varying), "layout": "by_coords"}, reason)]


_MERGED = Candidate({"layout": "by_coords"}, "each file holds other variables")


def merged_variables(facts: Facts) -> list[Candidate]:
    """Each file holds other variables, of the same labels."""
    return [_MERGED] if not facts.varying and facts.are_apart(facts.boxes) else []


def unlabelled(facts: Facts) -> list[Candidate]:
    """One dimension is unlimited, and nothing labels it."""
    if facts.varying or len(facts.unlabelled) != 1:
        return []
    (dim,) = facts.unlabelled
    reason = f"{dim!r} is unlimited, and nothing labels it: in the order of the files"
    return [Candidate({"concat_dim": dim}, reason)]


def times_beside(facts: Facts) -> list[Candidate]:
    """A variable of another name has times that rise from file to file along one dimension."""
    if facts.varying or len(facts.by_times) != 1:
        return []
    ((dim, order),) = facts.by_times.items()
    if list(order) != sorted(order) and dim not in facts.recorded:
        return []
    reason = f"the times along {dim!r} continue from file to file"
    options: dict[str, Any] = {"concat_dim": dim}
    if dim in facts.labelled and dim in facts.uneven:
        options["layout"] = Ragged()
        reason += ", as many as each has"
    elif dim in facts.labelled and dim in facts.recorded:
        options |= {"order": "given", "combine": CombineOptions(overlap="keep")}
        reason += ", and the labels begin again in each file"
    return [Candidate(options, reason, order)]


def labels_and_lengths(facts: Facts) -> list[Candidate]:
    """Labels from elsewhere tell files apart, or nothing does and their lengths differ."""
    found = with_labels(facts, facts.varying, facts.boxes)
    held = {dim for group in facts.groups for array in group.arrays.values() for dim in array.dims}
    uneven = [dim for dim in facts.uneven if dim in held - facts.labelled]
    if uneven and facts.rows is None:
        reason = f"files differ in length along {' and '.join(uneven)}"
        found += [Candidate({"layout": Ragged(padded=p)}, reason) for p in (False, True)]
    return found


DETECTORS: tuple[Callable[[Facts], list[Candidate]], ...] = (
    plate,
    pixels,
    coordinates,
    merged_variables,
    unlabelled,
    times_beside,
    labels_and_lengths,
)


def swaths(facts: Facts) -> list[Candidate]:
    """Rows of pixels, of each file as many as it took; a date in the names labels the files."""
    if facts.rows is None:
        return []
    dims, single = facts.rows
    reason = f"rows of differing number follow each other along {' and '.join(dims)}"
    named = dims[0] if len(dims) == 1 else list(dims)
    return [Candidate({"concat_dim": named, "layout": _instances(facts, single)}, reason)]


def _instances(facts: Facts, single: str | None) -> Ragged:
    """A ragged layout, whose files a dimension of length 1 counts, or the only date in names."""
    dates = [own.field for own in facts.names(facts.parts) if own.field and own.field.is_time]
    if single is None and facts.parts is not None and len(dates) == 1:
        (date,) = dates
        pattern = facts.parts.pattern(dates)
        tells = len(set(date.values)) == len(facts.files) and date.name not in facts.words
        if tells and finds_all(pattern, facts.files, dates):
            return Ragged(date.name, labels=pattern)
    return Ragged(instance=single)


def kinds(facts: Facts) -> list[Candidate]:
    """Groups of files on unlike grids, by what names the kind of each; that best known first."""
    grids, parts = facts.grids, facts.parts
    found: dict[Any, Candidate] = {}
    sources = [*facts.attributes, *facts.names(parts)]
    for source in sorted(sources, key=lambda source: source.rank):
        pairs = set(zip(source.values, grids, strict=True))
        n_kinds = len(set(source.values))
        if len(set(grids)) < 2 or len(pairs) > n_kinds or n_kinds == len(facts.files):
            continue
        if source.field is not None and source.field.is_time:
            continue
        if source.field is not None and parts is not None:
            layout = Groups(source.dim, labels=parts.pattern([source.field]))
        else:
            layout = Groups(source.attribute)
        reason = f"kinds of files have grids of their own, {source.reason}"
        found.setdefault(_partition([source]), Candidate({"layout": layout}, reason))
    return list(found.values())


def unlike(facts: Facts) -> list[Candidate]:
    """A group for each kind of files, which share no dimensions, grid or calendar."""
    found = kinds_of(facts)
    if not 1 < len(set(found)) <= _MOST_KINDS:
        return []
    layout, names = Groups(KIND), names_of_kinds(facts)
    parts = facts.parts or whole_names(facts.files)
    for source in telling_kinds(facts, found):
        field = source.field
        if field is None or parts is None:
            layout, names = Groups(source.attribute), [*source.values]
            break
        pattern = parts.pattern([field])
        if finds_all(pattern, facts.files, [field]):
            layout, names = Groups(source.dim, labels=pattern), [*source.values]
            break
    reason = f"{len(set(found))} kinds: {counted(names)}"
    return [Candidate({"layout": layout}, reason, is_guess=True)]


def named(facts: Facts) -> list[Candidate]:
    """Files whose names are no more alike than at their ends, as labels of a new dimension."""
    parts = None if facts.parts is not None else whole_names(facts.files)
    if parts is None:
        return []
    layout = Stack(parts.fields[0].name, parts.pattern(parts.fields))
    reason = f"words in the names ({parts.fields[0].values[0]}, ...)"
    return [Candidate({"layout": layout}, reason, is_guess=True)]


LAST = (kinds, swaths, unlike, named)
"""Tried where all that others find leaves problems."""

# Labels that distinguish files


def with_labels(
    facts: Facts, varying: Sequence[str], boxes: Sequence[Box], bands: NameField | None = None
) -> list[Candidate]:
    """Layouts by the fewest labels that distinguish all files; one for each way to divide them.

    The part of names with `bands` is no label, and in the pattern in any case.
    """
    parts = facts.parts_of_images
    names = facts.names(parts)
    if bands is not None:
        names = (own for own in names if own.field and own.field.part[0] != bands.part[0])
    every = [*facts.scalars(varying), *facts.attributes, *facts.elevations, *names]
    sources = sorted(every, key=lambda source: source.rank)
    for n in range(1, _MOST_TOGETHER + 1):
        ways: dict[Any, list[tuple[Source, ...]]] = {}
        for chosen in itertools.combinations(sources, n):
            if len({source.dim for source in chosen}) < n:
                continue
            numbers = zip(*(numbered(source.values) for source in chosen), strict=True)
            labelled = [(*own, *more) for own, more in zip(boxes, numbers, strict=True)]
            if facts.are_apart(labelled):
                ways.setdefault(_partition(chosen), []).append(chosen)
        best = [chosen for alike in ways.values() for chosen in _best(alike)]
        laid = [_labelled(facts, chosen, varying, bands) for chosen in best]
        if any(laid):
            return [candidate for candidate in laid if candidate is not None]
    return []


def _best(alike: Sequence[tuple[Source, ...]]) -> list[tuple[Source, ...]]:
    """Of labels that divide files alike, the best supported ones."""
    ranks = [sorted(source.rank for source in chosen) for chosen in alike]
    best = [chosen for chosen, rank in zip(alike, ranks, strict=True) if rank == min(ranks)]
    distinct: dict[Any, tuple[Source, ...]] = {}
    for chosen in best:
        distinct.setdefault(frozenset(source.meaning for source in chosen), chosen)
    return list(distinct.values())


def _partition(sources: Sequence[Source]) -> tuple[tuple[int, ...], ...]:
    """How values part files, whatever they are called: sources in any order."""
    return tuple(sorted(tuple(map(own.values.index, own.values)) for own in sources))


def _labelled(
    facts: Facts, chosen: Sequence[Source], varying: Sequence[str], bands: NameField | None
) -> Candidate | None:
    """The layout by some labels; None where no pattern finds them in the names."""
    dims = [source.dim for source in chosen]
    options: dict[str, Any] = {}
    fields = [source.field for source in chosen if source.field is not None]
    named, parts = fields if bands is None else [*fields, bands], facts.parts_of_images
    pattern = parts.pattern(named) if named and parts is not None else None
    if pattern is not None and not finds_all(pattern, facts.files, named):
        return None
    attributes = {s.dim: f"attribute:{s.attribute}" for s in chosen if s.attribute is not None}
    in_place = facts.is_single and varying == dims  # a label of names takes the file's place
    if len(fields) == 1 == len(chosen) and (not varying or in_place):
        options["layout"] = Stack(dims[0], pattern)
    else:
        if varying or len(fields) + len(attributes) < len(chosen):
            options["concat_dim"] = list(dict.fromkeys([*dims, *varying]))
        labels = Labels(pattern, sources=attributes or None)
        options["layout"] = labels if pattern or attributes else "by_coords"
    reasons = [source.reason for source in chosen]
    reasons += [f"coordinates differ along {' and '.join(varying)}"] if varying else []
    return Candidate(options, ", ".join(reasons))
