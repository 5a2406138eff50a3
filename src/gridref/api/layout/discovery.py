"""Find the layout of files: propose candidates, try them, and choose.

Files are placed along each dimension whose coordinates differ. If files then have the same labels
of the same variables, something else has to distinguish them: a scalar coordinate, a date or number
in the names, an attribute. Detectors look at facts about the files and propose candidates; the
first detector that finds any ends the search.

A candidate is tried like a layout that a user wrote. If all its problems advise one choice that
loses nothing, this is part of it. The candidate without problems is taken; of several, each is
listed with what it would give.
"""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from gridref.api.layout.facts import (
    NUMBER,
    Box,
    Facts,
    Source,
    as_spans,
    is_ragged,
    numbered,
    one_of_each_set,
    refusing_parts_of_sets,
)
from gridref.api.layout.layouts import (
    KIND,
    Combining,
    Groups,
    InARow,
    Labels,
    Layout,
    Mosaic,
    Plate,
    Ragged,
    Stack,
    as_given,
    layout_of,
)
from gridref.api.layout.names import (
    NameField,
    NameParts,
    finds_all,
    whole_names,
    with_telling_parts,
)
from gridref.api.layout.sources import REPLACED, Scanned
from gridref.combine import Combination, CombineOptions, DriftReport, in_groups
from gridref.combine.options import Read
from gridref.combine.report import Drift
from gridref.combine.values import with_labels_at_hand
from gridref.errors import (
    InvalidRequestError,
    Message,
    Option,
    Problem,
    UnclearLayoutError,
    some_of,
)
from gridref.formats import kept_elements
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.options import given_options, updated

_MOST_TOGETHER = 3
"""Labels that are tried together at most."""

_MOST_MISSING = 1 / 3
"""Of a cube whose labels are out of names that may only number the files."""

_MOST_KINDS = 16
"""Files of more kinds are rather one kind that differs."""


@dataclass(frozen=True)
class Candidate:
    """A way to lay files out.

    Attributes
    ----------
    how
        What `build` is called with.
    order
        Numbers of the files in the order to take them, if not as they are given.
    is_guess
        Whether it is taken only if the user asks for it.
    is_resolved
        Whether a choice that loses nothing is part of it.
    may_number
        Whether parts of names without a meaning are its labels, and a file is the only one with its
        label. They may only number files that repeat labels of others.
    """

    how: Combining
    reason: str
    order: tuple[int, ...] = ()
    is_guess: bool = False
    is_resolved: bool = False
    may_number: bool = False

    @property
    def text(self) -> Message:
        """The options."""
        return Message.naming(self.how.asked)

    def with_layout(self, way: Layout) -> Candidate:
        """The same with another layout."""
        return replace(self, how=replace(self.how, layout=as_given(way)))

    def telling(self, facts: Facts) -> Candidate:
        """The same, with parts of names that mean something as labels beside others."""
        way, dims = self.how.way, self.how.dims
        if not isinstance(way, InARow):
            return self
        if way.sought.pattern is not None:
            return self.with_layout(way.telling(facts.files))
        held = facts.groups[0].arrays.keys()
        if facts.parts is None or not facts.parts.fields or not dims or set(dims) - held:
            return self
        hiding = facts.parts.pattern([])
        pattern = with_telling_parts(hiding, facts.files, known=True)
        if pattern == hiding:
            return self
        return self.with_layout(way.with_labels(way.sought.with_pattern(pattern)))


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
    return [Candidate(Combining(layout=Plate()), reason)]


def pixels(facts: Facts) -> list[Candidate]:
    """Georeferenced files: side by side, of many dates, or both; on each grid by themselves."""
    if not facts.rasters:
        return []
    boxes, bands = facts.pixel_boxes, facts.bands
    n_places = len(set(boxes))
    n_grids = len({(raster.crs, raster.x.step, raster.y.step) for raster in facts.rasters})
    grids: Literal["one", "groups"] = "groups" if n_grids > 1 else "one"
    where = f"georeferenced at {n_places} places" + (f" on {n_grids} grids" if n_grids > 1 else "")
    if bands is not None and facts.parts is not None:
        where += f", bands in the names ({bands.values[0]}, ...)"
        boxes = [(*own, band) for own, band in zip(boxes, as_spans(bands.values), strict=True)]
    if not facts.are_apart(boxes):
        found = with_labels(facts, (), boxes, bands)
        if n_places == 1 and bands is None:
            return found
        return [own for each in found for own in _as_mosaic(each, grids, where)]
    if bands is not None and facts.parts is not None:
        return [
            Candidate(Combining(layout=Mosaic(facts.parts.pattern([bands]), grids=grids)), where)
        ]
    if n_places == 1:
        return [_MERGED]
    return [Candidate(Combining(layout=Mosaic(grids=grids)), where)]


def _as_mosaic(labelled: Candidate, grids: Literal["one", "groups"], where: str) -> list[Candidate]:
    """A mosaic for each of the labels; none where these are not all in names."""
    way = labelled.how.way
    labels = way.sought
    if not labels.pattern or labels.sources or labelled.how.dims:
        return []
    stack = way.dim if isinstance(way, Stack) else None
    layout = Mosaic(labels.pattern, stack, grids=grids)
    return [Candidate(Combining(layout=layout), f"{where}, {labelled.reason}")]


def coordinates(facts: Facts) -> list[Candidate]:
    """Coordinates that differ tell all files apart."""
    varying = facts.varying
    if not varying or not facts.are_apart(facts.boxes):
        return []
    if len(varying) > 1 and is_ragged(facts.groups[0], varying):
        reason = f"{' and '.join(varying)} continue from file to file, each by itself"
        return [Candidate(Combining(list(varying)), reason)]
    reason = f"coordinates differ along {' and '.join(varying)}"
    n_kinds = len({frozenset(own) for own in facts.variables})
    if len(varying) == 1 and (n_kinds == 1 or facts.differ_by_groups(varying[0])):
        return [Candidate(Combining(varying[0]), reason)]
    if n_kinds > 1:
        reason += ", and variables between files"
    return [Candidate(Combining(list(varying), layout="by_coords"), reason)]


_MERGED = Candidate(Combining(layout="by_coords"), "each file holds other variables")


def merged_variables(facts: Facts) -> list[Candidate]:
    """Each file holds other variables, of the same labels."""
    return [_MERGED] if not facts.varying and facts.are_apart(facts.boxes) else []


def unlabelled(facts: Facts) -> list[Candidate]:
    """One dimension is unlimited, and nothing labels it."""
    if facts.varying or len(facts.unlabelled) != 1:
        return []
    (dim,) = facts.unlabelled
    reason = f"{dim!r} is unlimited, and nothing labels it: in the order of the files"
    return [Candidate(Combining(dim), reason)]


def times_beside(facts: Facts) -> list[Candidate]:
    """A variable of another name has times that rise from file to file along one dimension."""
    if facts.varying or len(facts.by_times) != 1:
        return []
    ((dim, order),) = facts.by_times.items()
    if list(order) != sorted(order) and dim not in facts.recorded:
        return []
    reason = f"the times along {dim!r} continue from file to file"
    how = Combining(dim)
    if dim in facts.labelled and dim in facts.uneven:
        how = replace(how, layout=Ragged())
        reason += ", as many as each has"
    elif dim in facts.labelled and dim in facts.recorded:
        how = replace(how, order="given", combine=CombineOptions(overlap="keep"))
        reason += ", and the labels begin again in each file"
    return [Candidate(how, reason, order)]


def labels_and_lengths(facts: Facts) -> list[Candidate]:
    """Labels from elsewhere tell files apart, or nothing does and their lengths differ."""
    found = with_labels(facts, facts.varying, facts.boxes)
    held = {dim for group in facts.groups for array in group.arrays.values() for dim in array.dims}
    uneven = [dim for dim in facts.uneven if dim in held - facts.labelled]
    if uneven and facts.rows is None:
        reason = f"files differ in length along {' and '.join(uneven)}"
        found += [Candidate(Combining(layout=Ragged(padded=p)), reason) for p in (False, True)]
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
    return [Candidate(Combining(named, layout=_instances(facts, single)), reason)]


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
        layout = _groups_by(source, parts)
        reason = f"kinds of files have grids of their own, {source.reason}"
        found.setdefault(_partition([source]), Candidate(Combining(layout=layout), reason))
    return list(found.values())


def _groups_by(source: Source, parts: NameParts | None) -> Groups:
    """A group for each value of a source."""
    if source.field is None or parts is None:
        return Groups(source.attribute)
    return Groups(source.dim, labels=parts.pattern([source.field]))


def unlike(facts: Facts) -> list[Candidate]:
    """A group for each kind of files, which share no dimensions, grid or calendar."""
    if not 1 < (n_kinds := len(set(facts.kinds))) <= _MOST_KINDS:
        return []
    layout, names = Groups(KIND), facts.names_of_kinds
    parts = facts.parts or whole_names(facts.files)
    for source in facts.telling_kinds:
        by, field = _groups_by(source, parts), source.field
        if field is None or finds_all(str(by.labels), facts.files, [field]):
            layout, names = by, [*source.values]
            break
    counts = ", ".join(f"{name} ({n})" for name, n in Counter(names).most_common())
    reason = f"{n_kinds} kinds: {counts}"
    return [Candidate(Combining(layout=layout), reason, is_guess=True)]


def named(facts: Facts) -> list[Candidate]:
    """Files whose names are no more alike than at their ends, as labels of a new dimension."""
    parts = None if facts.parts is not None else whole_names(facts.files)
    if parts is None:
        return []
    layout = Stack(parts.fields[0].name, parts.pattern(parts.fields))
    reason = f"words in the names ({parts.fields[0].values[0]}, ...)"
    return [Candidate(Combining(layout=layout), reason, is_guess=True)]


def repeating(facts: Facts) -> list[Candidate]:
    """Files along what varies, though some have labels of others."""
    dims = facts.varying
    along = Combining(dims[0]) if len(dims) == 1 else Combining(dims, layout="by_coords")
    return [Candidate(along, f"coordinates differ along {' and '.join(dims)}")] if dims else []


LAST = (kinds, swaths, unlike, repeating, named)
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
            numbers = zip(*(as_spans(source.values) for source in chosen), strict=True)
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
    return tuple(sorted(tuple(numbered(own.values)) for own in sources))


def _labelled(
    facts: Facts, chosen: Sequence[Source], varying: Sequence[str], bands: NameField | None
) -> Candidate | None:
    """The layout by some labels; None where no pattern finds them in the names."""
    dims = [source.dim for source in chosen]
    fields = [source.field for source in chosen if source.field is not None]
    named, parts = fields if bands is None else [*fields, bands], facts.parts_of_images
    pattern = parts.pattern(named) if named and parts is not None else None
    if pattern is not None and not finds_all(pattern, facts.files, named):
        return None
    attributes = {s.dim: f"attribute:{s.attribute}" for s in chosen if s.attribute is not None}
    in_place = facts.is_single and varying == dims  # a label of names takes the file's place
    if len(fields) == 1 == len(chosen) and (not varying or in_place):
        how = Combining(layout=Stack(dims[0], pattern))
    else:
        are_named = varying or len(fields) + len(attributes) < len(chosen)
        along = list(dict.fromkeys([*dims, *varying])) if are_named else None
        labels = Labels(pattern, sources=attributes or None)
        how = Combining(along, layout=labels if pattern or attributes else "by_coords")
    reasons = [source.reason for source in chosen]
    reasons += [f"coordinates differ along {' and '.join(varying)}"] if varying else []
    may_number = bool(varying) and all(
        source.rank >= NUMBER
        and source.dim.startswith("part")
        and 1 in Counter(source.values).values()
        for source in chosen
    )
    return Candidate(how, ", ".join(reasons), may_number=may_number)


# The search: candidates are tried, and one is chosen

_LOSSLESS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("variables", "different"): {"combine": CombineOptions(variables="different")},
    ("layout", "ragged"): {"layout": Ragged()},
    ("join", "override"): {"combine": CombineOptions(join="override")},
}
"""Advice of problems that loses nothing, and what it adds to the options of a candidate."""

type Tried = tuple[Candidate, Combination]
"""A candidate, and what it gives."""

_UNLIKE = {"shape-differs", "dimensions-differ", "calendar-differs"}
"""Causes of problems of files that cannot be in one group."""

_SHOWN_CASES = 4


@dataclass(frozen=True, eq=False)
class _Search:
    """Facts of the files, and what the caller says of combining them."""

    facts: Facts
    how: Combining

    @property
    def takes_first(self) -> bool:
        """Whether the first of several layouts is taken."""
        return self.how.layout == "first"


def laid_out(
    scanned: Iterable[tuple[str, VirtualGroup]], how: Combining, read: Read
) -> tuple[Combining, Combination]:
    """Combine files by the layout that is asked for; without one, work it out.

    Parameters
    ----------
    scanned
        Addresses and groups.

    Returns
    -------
    tuple
        `how`, or what was found instead; and what it gives, with a drift that says what was found.

    Raises
    ------
    InvalidRequestError
        If nothing distinguishes the files.
    UnclearLayoutError
        If several layouts fit, names disagree with a coordinate that the files have, or a choice is
        to be asked for: each layout is listed with what it would give.
    """
    way = how.way
    if isinstance(way, Groups):
        each = replace(how, layout=as_given(way.within()))
        kinds = way.kinds(list(scanned), read)
        return how, in_groups(
            {name: laid_out(files, each, read)[1] for name, files in kinds.items()}
        )
    if way.is_asked_for(how.dims):
        return how, way.laid_out(refusing_parts_of_sets(scanned), how, read)
    files = list(scanned)
    return _found(files, how, read) if len(files) > 1 else (how, way.laid_out(files, how, read))


def _found(scanned: Scanned, how: Combining, read: Read) -> tuple[Combining, Combination]:
    """The layout of several files, and what it gives."""
    every, scanned = [file for file, _ in scanned], one_of_each_set(scanned)
    files, groups = [file for file, _ in scanned], [group for _, group in scanned]
    if len(files) == 1:
        cases = {f"one set of {len(every)} files": list(range(len(every)))}
        note = Drift.of("layout", "", cases, "laid out as OME-XML says")
        return Combining(), Combination(groups[0], DriftReport((note,), tuple(every)))
    facts = Facts(files, groups, with_labels_at_hand(groups, read, kept_elements))
    search = _Search(facts, how)
    tried = [_tried(candidate, search) for candidate in detect(facts)]
    tried = _doubted(tried, search)
    if all(done.problems for _, done in tried):
        causes = {problem.cause for _, done in tried for problem in done.problems}
        tried += _tried_last(search, may_guess=not tried or bool(causes & _UNLIKE))
    if not tried:
        raise _nothing_tells(len(files))
    chosen, done = _chosen(tried, search)
    sets = f", each of {len(files)} a set of files by OME-XML" if len(files) < len(every) else ""
    cases = {chosen.reason + sets: list(range(len(done.report.files)))}
    note = Drift.of("layout", "", cases, Message("laid out by ", chosen.text))
    report = replace(done.report, drifts=(note, *done.report.drifts))
    return chosen.how, replace(done, report=report)


def _chosen(tried: Sequence[Tried], search: _Search) -> Tried:
    """The only candidate without problems, or the first of these if that is asked for.

    None is taken whose labels replace others that the files have, and a guess only if that is asked
    for. If all candidates have problems, it is the first, whose problems the caller shows.
    """
    fitting = [(candidate, done) for candidate, done in tried if not done.problems]
    clear = [(candidate, done) for candidate, done in fitting if not _replaced(done)]
    if fitting and not clear:
        raise _disagreement(fitting, search)
    sure = [(candidate, done) for candidate, done in clear if not candidate.is_guess]
    if clear and not sure and not search.takes_first:
        raise _unclear(_unlike_files(tried, search.facts), clear)
    clear = sure or clear
    is_choice = search.how.resolve == "ask" and any(candidate.is_resolved for candidate, _ in clear)
    if (is_choice or len(clear) > 1) and not search.takes_first:
        several = len(clear) > 1
        head = Message(
            f"{len(search.facts.files)} files ",
            "fit several layouts: choose one, or use "
            if several
            else "differ, and one option resolves that without losing anything: give it, or use ",
            Option("yes", True, "layout='first'"),
            " for the first" if several else "",
        )
        raise _unclear([head], clear)
    return (clear or tried)[0]


# Trying candidates


def _tried(candidate: Candidate, search: _Search) -> Tried:
    """What a layout gives; files along one dimension are put in the order of their labels."""
    done = _laid_out(candidate, search)
    in_a_row = candidate.how.layout is None and candidate.how.by_label
    if in_a_row and "order" in {drift.cause for drift in done.report}:
        candidate = candidate.with_layout(layout_of("by_coords"))
        done = _laid_out(candidate, search)
    return _resolved(candidate, done, search)


def _doubted(tried: list[Tried], search: _Search) -> list[Tried]:
    """The candidates, and beside one whose labels may only number files, what else these may be.

    If a third of a cube is missing, as if files were a sequence or copies of others, the caller has
    to choose between labels out of names and one file for each label that repeats.
    """
    if not any(_may_number(candidate, done) for candidate, done in tried):
        return tried
    found = [
        (replace(candidate, is_guess=candidate.is_guess or _may_number(candidate, done)), done)
        for candidate, done in tried
    ]
    is_asked = "overlap" in given_options(search.how.combine or CombineOptions())
    rules: tuple[Literal["first", "last"], ...] = ("first",) if is_asked else ("first", "last")
    for along in repeating(search.facts):
        for rule in rules:
            how = replace(along.how, combine=CombineOptions(overlap=rule))
            reason = f"{along.reason}: the {rule} file with each label"
            found.append(_tried(Candidate(how, reason, along.order, is_guess=not is_asked), search))
    return found


def _may_number(candidate: Candidate, done: Combination) -> bool:
    if not candidate.may_number or done.problems:
        return False
    arrays = done.unwrap().all_arrays().values()
    return _share_missing(max(arrays, key=lambda array: array.size)) >= _MOST_MISSING


def _tried_last(search: _Search, *, may_guess: bool) -> list[Tried]:
    """What the last candidates give, where one clear way lays out the files of each group."""
    tried = []
    for candidate in (own for detector in LAST for own in detector(search.facts)):
        if candidate.is_guess and not may_guess:
            continue
        for each in _ways_within(candidate) if may_guess else [candidate]:
            with suppress(InvalidRequestError):
                tried.append(_tried(each, search))
                break
    return tried


def _ways_within(candidate: Candidate) -> list[Candidate]:
    """A candidate; if it makes groups, also with the first layout of several within each."""
    way = candidate.how.way
    if not isinstance(way, Groups) or way.each is not None:
        return [candidate]
    first = Groups(**{**given_options(way), "each": "first"})
    return [candidate, replace(candidate.with_layout(first), is_guess=True)]


def _resolved(candidate: Candidate, done: Combination, search: _Search) -> Tried:
    """A candidate with the advice of its problems, if one choice that loses nothing resolves all.

    What would lose or guess is left to the user.
    """
    advised = [_advice(problem) for problem in done.problems]
    if not all(advised):
        return candidate, done
    chosen = [added for advice, added in _LOSSLESS.items() if any(advice in own for own in advised)]
    for added in chosen:
        if added.keys() & candidate.how.asked.keys():
            continue
        names = list(dict.fromkeys(str(problem.variable) for problem in done.problems))
        differ = "differ" if names[1:] else "differs"
        reason = f"{candidate.reason}; {some_of(names, 1)} {differ} between files"
        order = candidate.order or (search.facts.by_labels if "layout" in added else ())
        other = Candidate(replace(candidate.how, **added), reason, order, is_resolved=True)
        resolved = _laid_out(other, search)
        if not resolved.problems:
            return other, resolved
    return candidate, done


def _advice(problem: Problem) -> set[tuple[str, str]]:
    """What a problem advises that loses nothing."""
    named = [(option.name, option.value) for option in Message(problem.message).options]
    return {advice for advice in _LOSSLESS if advice in named}


def _laid_out(candidate: Candidate, search: _Search) -> Combination:
    facts, how = search.facts, candidate.how
    groups = dict(zip(facts.files, facts.groups, strict=True))
    rules = updated(how.combine, search.how.rules)
    given = [facts.files[number] for number in candidate.order] or facts.files
    scanned = [(file, groups[file]) for file in how.way.ordered(given)]
    return laid_out(scanned, replace(how, combine=rules, resolve=search.how.resolve), facts.read)[1]


# What is asked: nothing tells files apart, names contradict them, or several candidates fit


def _nothing_tells(n_files: int) -> InvalidRequestError:
    return InvalidRequestError(
        Message(
            f"{n_files} files, and their coordinates, names and attributes do not say how to "
            "combine them: name the dimension (",
            Option("concat_dim", "time"),
            "), stack the files along a new one (",
            Option("stack", "time", "layout=Stack('time')"),
            ") or place them by their coordinates on the ground (",
            Option("mosaic", True, "layout=Mosaic()"),
            ")",
        )
    )


def _unlike_files(tried: Sequence[Tried], facts: Facts) -> list[Message]:
    """Why files do not lie beside each other, or that nothing says how."""
    failed = [(candidate, problem) for candidate, done in tried for problem in done.problems]
    first = next((each for each in failed if each[1].cause in _UNLIKE), None)
    why = "their layout is not clear" if first is None else "they do not fit together"
    if any(_may_number(candidate, done) for candidate, done in tried):
        why = f"{facts.shown_repeats}. If a file is a copy of another, leave it out. Otherwise"
    lines = [
        Message(
            f"{len(facts.files)} files, and {why}: choose one of these layouts, or use ",
            Option("yes", True, "layout='first'"),
            " for the first",
        )
    ]
    if first is not None:
        candidate, problem = first
        said = Message(f"{problem.variable}: ", problem.message)
        for folder in {os.path.dirname(file) for file in facts.files}:
            said = said.without(f"{folder}/")
        lines.append(Message("  (tried ", candidate.text, ": ", said, ")"))
    return lines


def _unclear(head: Sequence[str], ways: Sequence[Tried]) -> UnclearLayoutError:
    """Some lines, and one more for each layout, with what it gives."""
    lines = [
        Message("  ", candidate.text, f" ({candidate.reason}): ", _outcome(done))
        for candidate, done in ways
    ]
    choices = [candidate.how.asked for candidate, _ in ways]
    groups = [done.unwrap() for _, done in ways]
    return UnclearLayoutError(Message.joined("\n", [*head, *lines]), choices, groups)


def _replaced(done: Combination) -> tuple[Drift, ...]:
    """The coordinates of files that other labels take the place of."""
    return done.report.of_cause(REPLACED)


def _beside(candidate: Candidate, dim: str, groups: Sequence[VirtualGroup]) -> list[Candidate]:
    """Other layouts that keep the coordinate of the files, instead of labels out of their names."""
    how, way = candidate.how, candidate.how.way
    own = [group.arrays[dim] for group in groups if dim in group.arrays]
    kept = []
    if isinstance(way, Stack) and way.dim == dim and all(array.dims == (dim,) for array in own):
        along = Combining(dim, combine=CombineOptions(overlap="keep"))
        kept.append(Candidate(along, f"{dim!r} as the files say it"))
    name = f"{dim}_in_name"
    pattern = way.sought.pattern
    if pattern is not None:
        told = pattern.replace(f"{{{dim}:", f"{{{name}:").replace(f"{{{dim}}}", f"{{{name}}}")
        way = way.with_labels(way.sought.with_pattern(told))
    if isinstance(way, Stack) and way.dim == dim:
        way = Stack(name, way.labels)
    if isinstance(way, Mosaic) and way.stack == dim:
        way = Mosaic(**{**given_options(way), "stack": name})
    named = how.concat_dim
    if isinstance(named, str):
        named = name if named == dim else named
    elif named is not None:
        named = [name if each == dim else each for each in named]
    renamed = replace(how, concat_dim=named, layout=as_given(way))
    if renamed.asked != how.asked:
        kept.append(Candidate(renamed, "both, under two names"))
    return kept


def _disagreement(fitting: Sequence[Tried], search: _Search) -> UnclearLayoutError:
    """That files and their names say other labels, with the values and what to ask for."""
    drift = _replaced(fitting[0][1])[0]
    others = [
        _tried(other, search)
        for candidate, _ in fitting
        for other in _beside(candidate, drift.variable, search.facts.groups)
    ]
    kept = [(candidate, done) for candidate, done in others if not done.problems]
    files = fitting[-1][1].report.files
    values = [
        f"  {os.path.basename(files[case.ranges[0][0]])}: {case.value}"
        for case in drift.cases[:_SHOWN_CASES]
    ]
    more = drift.n_cases - len(values)
    values += [f"  and {more} more"] if more > 0 else []
    head = (
        f"{drift.variable!r} in {len(search.facts.files)} files disagrees with their names or"
        " attributes:"
    )
    return _unclear([head, *values, "Ask for the layout with the right labels:"], [*kept, *fitting])


def _outcome(done: Combination) -> str:
    """Shape and missing parts in words."""
    arrays = done.unwrap().all_arrays()
    path, largest = max(arrays.items(), key=lambda item: item[1].size)
    missing = _share_missing(largest)
    return f"{path} {largest.sizes_text}" + (f", {missing:.0%} of it missing" if missing else "")


def _share_missing(array: VirtualArray) -> float:
    absent = ~array.held_blocks.reshape(-1)
    sizes = array.block_shapes().prod(axis=1)
    return float(sizes[absent].sum() / max(1, math.prod(array.shape)))
