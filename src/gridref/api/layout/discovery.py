"""Find the layout of files: choose among the candidates that the detectors propose.

A candidate is tried like a layout that a user wrote. If all its problems advise one choice that
loses nothing, this is part of it. The candidate without problems is taken; of several, each is
listed with what it would give.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from gridref.api.layout.detectors import LAST, Candidate, detect
from gridref.api.layout.facts import Facts
from gridref.api.layout.file_sets import one_of_each_set
from gridref.api.layout.layouts import Combining, Groups, Mosaic, Ragged, Stack
from gridref.api.layout.sources import REPLACED
from gridref.combine import Combination, CombineOptions, DriftReport
from gridref.combine.options import Read
from gridref.combine.report import Drift
from gridref.combine.values import with_labels_at_hand
from gridref.errors import InvalidRequestError, Message, Option, Problem, UnclearLayoutError
from gridref.formats import kept_elements
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.blocks import MISSING_BLOCK
from gridref.options import given_options

_LOSSLESS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("variables", "different"): {"combine": CombineOptions(variables="different")},
    ("layout", "ragged"): {"layout": Ragged()},
}
"""Advice of problems that loses nothing, and what it adds to the options of a candidate."""

Scanned = Sequence[tuple[str, VirtualGroup]]
type Resolve = Literal["lossless", "ask"]
"""Whether advice that loses nothing is taken, or asked for."""
type Tried = tuple[Candidate, Combination]
"""A candidate, and what it gives."""

_UNLIKE = {"shape-differs", "dimensions-differ", "calendar-differs"}
"""Causes of problems of files that cannot be in one group."""

_SHOWN_CASES = 4
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, eq=False)
class _Search:
    """Facts of the files, and what the caller says of combining them and of choices."""

    facts: Facts
    rules: CombineOptions
    take_first: bool
    resolve: Resolve


def laid_out_by_itself(
    scanned: Scanned,
    read: Read,
    rules: CombineOptions,
    *,
    take_first: bool,
    resolve: Resolve = "lossless",
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
    resolve
        Whether a choice that loses nothing is part of a layout by itself, or asked for.

    Returns
    -------
    tuple
        What `build` would be called with; and what it gives, with a drift that says so.

    Raises
    ------
    InvalidRequestError
        If nothing distinguishes the files.
    UnclearLayoutError
        If several layouts fit, names disagree with a coordinate that the files have, or a choice is
        to be asked for: each layout is listed with what it would give.
    """
    every, scanned = [file for file, _ in scanned], one_of_each_set(scanned)
    files, groups = [file for file, _ in scanned], [group for _, group in scanned]
    if len(files) == 1:
        cases = {f"one set of {len(every)} files": list(range(len(every)))}
        note = Drift.of("layout", "", cases, "laid out as OME-XML says")
        return {}, Combination(groups[0], DriftReport((note,), tuple(every)))
    facts = Facts(files, groups, with_labels_at_hand(groups, read, kept_elements))
    search = _Search(facts, rules, take_first, resolve)
    tried = [_tried(candidate, search) for candidate in detect(facts)]
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
    return chosen.options, replace(done, report=report)


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
    if clear and not sure and not search.take_first:
        raise _unclear(_unlike_files(tried, search.facts), clear)
    clear = sure or clear
    is_choice = search.resolve == "ask" and any(candidate.is_resolved for candidate, _ in clear)
    if (is_choice or len(clear) > 1) and not search.take_first:
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
    in_a_row = candidate.options.keys().isdisjoint({"layout", "order"})
    if in_a_row and "order" in {drift.cause for drift in done.report}:
        candidate = replace(candidate, options={**candidate.options, "layout": "by_coords"})
        done = _laid_out(candidate, search)
    return _resolved(candidate, done, search)


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
    way = candidate.way
    if not isinstance(way, Groups) or way.each is not None:
        return [candidate]
    first = Groups(**{**given_options(way), "each": "first"})
    options = {**candidate.options, "layout": first}
    return [candidate, replace(candidate, options=options, is_guess=True)]


def _resolved(candidate: Candidate, done: Combination, search: _Search) -> Tried:
    """A candidate with the advice of its problems, if one choice that loses nothing resolves all.

    What would lose or guess is left to the user.
    """
    advised = [_advice(problem) for problem in done.problems]
    if not all(advised):
        return candidate, done
    chosen = [added for advice, added in _LOSSLESS.items() if any(advice in own for own in advised)]
    for added in chosen:
        if added.keys() & candidate.options.keys():
            continue
        names = list(dict.fromkeys(str(problem.variable) for problem in done.problems))
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        reason = f"{candidate.reason}; {names[0]}{more} differ{'' if more else 's'} between files"
        order = candidate.order or (search.facts.by_labels if "layout" in added else ())
        other = Candidate({**candidate.options, **added}, reason, order, is_resolved=True)
        resolved = _laid_out(other, search)
        if not resolved.problems:
            return other, resolved
    return candidate, done


def _advice(problem: Problem) -> set[tuple[str, str]]:
    """What a problem advises that loses nothing."""
    named = [(option.name, option.value) for option in Message(problem.message).options]
    return {advice for advice in _LOSSLESS if advice in named}


def _laid_out(candidate: Candidate, search: _Search) -> Combination:
    facts, rules = search.facts, search.rules
    groups = dict(zip(facts.files, facts.groups, strict=True))
    found = given_options(candidate.options.get("combine", CombineOptions()))
    own_rules = replace(rules, **{**found, **given_options(rules)})

    def by_itself(files: Scanned, take_first: bool) -> Combination:
        return laid_out_by_itself(
            files, facts.read, rules, take_first=take_first, resolve=search.resolve
        )[1]

    order = candidate.options.get("order", "label")
    how = Combining(facts.read, own_rules, candidate.dims, order, by_itself)
    given = [facts.files[number] for number in candidate.order] or facts.files
    ordered = candidate.way.ordered(given)
    return candidate.way.laid_out([(file, groups[file]) for file in ordered], how)


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


def _unlike_files(tried: Sequence[Tried], facts: Facts) -> list[Message | str]:
    """Why files do not lie beside each other, or that nothing says how."""
    problems = [problem for _, done in tried for problem in done.problems]
    first = next((problem for problem in problems if problem.cause in _UNLIKE), None)
    why = "their layout is not clear" if first is None else "they do not fit together"
    lines: list[Message | str] = [
        Message(
            f"{len(facts.files)} files, and {why}: choose one of these layouts, or use ",
            Option("yes", True, "layout='first'"),
            " for the first",
        )
    ]
    if first is not None:
        said = f"{first.variable}: {first.message}"
        for folder in {os.path.dirname(file) for file in facts.files}:
            said = said.replace(f"{folder}/", "")
        lines.append(f"  ({said[:_SHOWN_CHARACTERS]})")
    return lines


def _unclear(head: Sequence[str], ways: Sequence[Tried]) -> UnclearLayoutError:
    """Some lines, and one more for each layout, with what it gives."""
    lines = [
        Message("  ", candidate.text, f" ({candidate.reason}): ", _outcome(done))
        for candidate, done in ways
    ]
    choices = [candidate.options for candidate, _ in ways]
    groups = [done.unwrap() for _, done in ways]
    return UnclearLayoutError(Message.joined("\n", [*head, *lines]), choices, groups)


def _replaced(done: Combination) -> tuple[Drift, ...]:
    """The coordinates of files that other labels take the place of."""
    return done.report.of_cause(REPLACED)


def _beside(candidate: Candidate, dim: str, groups: Sequence[VirtualGroup]) -> list[Candidate]:
    """Other layouts that keep the coordinate of the files, instead of labels out of their names."""
    way = candidate.way
    own = [group.arrays[dim] for group in groups if dim in group.arrays]
    kept = []
    if isinstance(way, Stack) and way.dim == dim and all(array.dims == (dim,) for array in own):
        along = {"concat_dim": dim, "combine": CombineOptions(overlap="keep")}
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
    renamed = {**candidate.options, **({"layout": way} if "layout" in candidate.options else {})}
    dims = candidate.options.get("concat_dim", ())
    if dims == dim:
        renamed["concat_dim"] = name
    elif not isinstance(dims, str) and dim in dims:
        renamed["concat_dim"] = [name if each == dim else each for each in dims]
    if renamed != candidate.options:
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
    absent = array.blocks.encoding == MISSING_BLOCK
    sizes = array.block_shapes().prod(axis=1)
    return float(sizes[absent].sum() / max(1, math.prod(array.shape)))
