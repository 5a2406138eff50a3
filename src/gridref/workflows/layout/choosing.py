"""The layout of files for which none was asked: the one that fits, or a list of those that may."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gridref.combine import Combination, CombineOptions, MosaicOptions
from gridref.combine.options import Read
from gridref.combine.report import Drift
from gridref.errors import InvalidRequestError
from gridref.model.array import MISSING_BLOCK, VirtualArray, VirtualGroup
from gridref.options import options_of
from gridref.workflows.layout.discovery import Proposal, proposals, proposals_by_kind
from gridref.workflows.layout.grouping import laid_out_in_groups
from gridref.workflows.layout.layouts import Layout

__all__ = ["laid_out_by_itself", "laid_out_by_kind"]

Scanned = Sequence[tuple[str, VirtualGroup]]


def laid_out_by_itself(
    scanned: Scanned, read: Read, rules: CombineOptions, *, take_first: bool
) -> tuple[Mapping[str, Any], Combination]:
    """Work out how files lie beside each other, and combine them so.

    Parameters
    ----------
    scanned
        Addresses and groups, more than one.
    read, rules
        As for `Layout.laid_out`.
    take_first
        Whether to take the first of several layouts.

    Returns
    -------
    tuple
        The options of the layout; and what it gives, with a drift that says so.

    Raises
    ------
    InvalidRequestError
        If nothing tells the files apart, or several layouts fit: listed with what each would give.
    """
    files, groups = [file for file, _ in scanned], [group for _, group in scanned]
    tried = [_tried(proposal, scanned, read, rules) for proposal in proposals(files, groups, read)]
    if all(done.problems for _, done in tried):
        kinds = proposals_by_kind(files, groups, read)
        tried += _tried_by_kind(kinds, scanned, read, rules)
    if not tried:
        raise InvalidRequestError(
            f"{len(files)} files need a dimension to lie along, and neither coordinates nor names"
            " nor attributes tell one: name it (concat_dim='time'), stack them along a new one"
            " (stack='time') or by their place (mosaic=True)"
        )
    fitting = [(proposal, done) for proposal, done in tried if not done.problems]
    if len(fitting) > 1 and not take_first:
        raise InvalidRequestError(_listed(len(files), tried))
    chosen, done = (fitting or tried)[0]
    cases = {chosen.reason: list(range(len(done.report.files)))}
    note = Drift.of("layout", "", cases, f"laid out by {chosen.text}")
    report = replace(done.report, drifts=(note, *done.report.drifts))
    return chosen.options, replace(done, report=report)


def _tried(
    proposal: Proposal, scanned: Scanned, read: Read, rules: CombineOptions
) -> tuple[Proposal, Combination]:
    """What a layout gives; files along one dimension are put in the order of their labels."""

    def given(options: Mapping[str, Any]) -> Combination:
        layout = Layout(**options_of(Layout, options))
        groups = dict(scanned)
        ordered = [(file, groups[file]) for file in layout.ordered(list(groups))]
        return layout.laid_out(
            ordered, read, rules, MosaicOptions(**options_of(MosaicOptions, options))
        )

    done = given(proposal.options)
    if "order" in {drift.cause for drift in done.report}:
        proposal = replace(proposal, options={**proposal.options, "combine": "by_coords"})
        done = given(proposal.options)
    return proposal, done


def _tried_by_kind(
    found: Sequence[Proposal], scanned: Scanned, read: Read, rules: CombineOptions
) -> list[tuple[Proposal, Combination]]:
    """What groups of kinds give, where one clear way lays out the files of each."""
    tried = []
    for proposal in found:
        with suppress(InvalidRequestError):
            layout = Layout(**proposal.options)
            tried.append((proposal, laid_out_by_kind(scanned, layout, read, rules)))
    return tried


def laid_out_by_kind(
    scanned: Scanned,
    layout: Layout,
    read: Read,
    rules: CombineOptions,
    mosaic_options: MosaicOptions | None = None,
) -> Combination:
    """Combine files of each kind into a group, as `laid_out_in_groups` does.

    How the files of a kind lie is worked out, too, where `layout` does not say.
    """

    def by_itself(files: Scanned) -> Combination:
        return laid_out_by_itself(files, read, rules, take_first=layout.yes)[1]

    given = mosaic_options or MosaicOptions()
    return laid_out_in_groups(scanned, layout, read, rules, given, by_itself)


def _listed(n_files: int, tried: Sequence[tuple[Proposal, Combination]]) -> str:
    lines = [f"  {proposal.text} ({proposal.reason}): {_outcome(done)}" for proposal, done in tried]
    head = f"{n_files} files may lie in several ways: ask for one, or yes=True for the first"
    return "\n".join([head, *lines])


def _outcome(done: Combination) -> str:
    """Shape, missing parts and problems in words."""
    if done.group is None:
        first = done.problems[0]
        return f"{len(done.problems)} problems, as {first.variable}: {first.message}"
    arrays = done.group.all_arrays()
    path, largest = max(arrays.items(), key=lambda item: item[1].size)
    missing = _share_missing(largest)
    return f"{path} {largest.sizes_text}" + (f", {missing:.0%} of it missing" if missing else "")


def _share_missing(array: VirtualArray) -> float:
    absent = array.blocks.encoding == MISSING_BLOCK
    sizes = array.block_shapes().prod(axis=1)
    return float(sizes[absent].sum() / max(1, math.prod(array.shape)))
