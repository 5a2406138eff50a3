"""Write overviews of arrays of a catalog: coarser levels that need few chunks for one picture.

What is missing is written as one sheet: a folder with a Zarr v3 array for each level.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gridref.api.keeper import Changed, Keeper
from gridref.api.readable import reader_for
from gridref.api.rewriting.levels import (
    METHODS,
    Coarsening,
    LevelsPlan,
    plan_levels,
    write_levels,
    written_levels,
)
from gridref.api.rewriting.plan import CODECS, Resources, requests_for
from gridref.api.rewriting.writer import encoding_of, sink_at
from gridref.api.sheets import (
    Draft,
    SheetWriter,
    WrittenSheet,
    array_to_write,
    known_or_new,
    sheet_folder,
    sheet_name,
    source_in,
    stored_folder,
    target_of,
)
from gridref.catalog.commit import Base, new_id, read_base
from gridref.catalog.document import Root
from gridref.catalog.group import CatalogGroup
from gridref.catalog.overlays import is_current
from gridref.catalog.sheet_entries import (
    MOST_FACTOR,
    MOST_LEVELS,
    MOST_WINDOW,
    LevelEntry,
    LevelSheet,
    OverviewEntry,
)
from gridref.catalog.sources import resolved_url
from gridref.catalog.written_overlays import dropped
from gridref.errors import InvalidRequestError, Message, Option, Place
from gridref.io import is_local
from gridref.model.array import VirtualArray, path_in
from gridref.model.conventions import MissingValues, dims_by_direction, meant_dtype
from gridref.model.indexing import isel
from gridref.model.overlay import (
    Box,
    Cover,
    group_of_level,
    whole_windows,
    windows_of,
    without,
)
from gridref.model.scan_report import ScanReport
from gridref.options import bytes_of, check_choice

SMALL_SIDE = 512
"""By default levels are added until none is longer than that."""


type _Draft = Draft[OverviewEntry, LevelSheet, LevelsPlan]


@dataclass(frozen=True, eq=False, kw_only=True)
class Overviews(SheetWriter[OverviewEntry, LevelSheet, LevelsPlan]):
    """Writes what the overview of an array lacks."""

    def planned(self, base: Base) -> _Draft | None:
        """The next sheet to write; None if the overview is whole."""
        array = array_to_write(base.group, self.path)
        wanted = replace(self.wanted, missing=MissingValues.of(array).key)
        overview = known_or_new(wanted, base.root.snapshot.overviews)
        if is_current(overview, array):
            return None
        whole: Box = tuple((0, extent) for extent in array.shape)
        missing: list[Box] = []
        for level in range(1, overview.n_levels + 1):
            windows = overview.windows(level)
            held = [
                windows_of(each.box, windows, array.shape)
                for each in overview.level_covers(level, array.shape)
            ]
            missing += without(whole, held)
        target = target_of(missing, overview.served)
        box = whole_windows(target, overview.windows(overview.n_levels), array.shape)
        shape = tuple(high - low for low, high in box)
        cover = Cover(0, (0,) * array.ndim, tuple(low for low, _ in box), shape)
        sheet, plan = self._sheet(base, array, overview, box)
        return Draft(overview, sheet, (cover,), plan)

    def in_words(self, draft: _Draft) -> list[str]:
        """How a sheet would be written."""
        shapes = ", ".join("x".join(map(str, view.array.shape)) for view in draft.plan.views)
        return [f"{self._said}: {shapes}", draft.plan.tiles.work_in_words]

    def written(self, draft: _Draft) -> WrittenSheet:
        """Write the levels of a sheet."""
        plan, options = draft.plan, self.keeper.storage_options
        folder = sheet_folder(self.keeper, draft)
        sink = sink_at(folder, options)
        reader = reader_for(options, cache_bytes=0)
        done = write_levels(plan, reader, sink, path=self.path, progress=self.progress)
        for level, view in enumerate(plan.views, 1):
            sink.put(f"{level}/zarr.json", [json.dumps(view.metadata.to_json()).encode()])
        sink.clean()
        levels = written_levels(plan, done, source_in(folder, options))
        arrays = {draft.entry.paths[level - 1]: array for level, array in levels.items()}
        objects = [each for level in done for each in level]
        stored_bytes = sum(int(each.length.sum()) for each in objects)
        sheet = replace(draft.sheet, n_objects=len(objects), stored_bytes=stored_bytes)
        details = [f"{stored_bytes / 1e6:.3g} MB", f"each stored chunk decoded {plan.tiles.often}"]
        return WrittenSheet(sheet, arrays, self._said, details)

    @property
    def _said(self) -> str:
        n_levels = self.wanted.n_levels
        return f"{self.path}: {self.wanted.method}, {n_levels} level{'s' * (n_levels != 1)}"

    def _sheet(
        self, base: Base, array: VirtualArray, overview: OverviewEntry, box: Box
    ) -> tuple[LevelSheet, LevelsPlan]:
        """A sheet with the levels of a box, and how it is written."""
        part = isel(array, {axis: slice(*along) for axis, along in enumerate(box)})
        is_label = array.is_index(self.path)
        dtype = np.dtype(np.float64) if is_label and array.dtype.kind in "iu" else array.dtype
        coarsening = coarsening_of(overview, array, dtype)
        is_near = is_local(resolved_url(overview.to, base.folder.url))
        resources = Resources(self.memory, self.n_threads, requests_for(part), is_streamed=is_near)
        plan = plan_levels(part, coarsening, overview.codec, resources)
        levels = []
        for view in plan.views:
            assert view.shards is not None
            shards = tuple(axis.uniform_length for axis in view.shards.grid.axes)
            levels.append(LevelEntry(shards, encoding_of(view)))
        content = base.root.snapshot.root.all_arrays()[self.path].content
        documents = [view.metadata.to_json() for view in plan.views]
        name = sheet_name([self.path, content, box, overview.method, documents], overview.sheets)
        sheet = LevelSheet(name=name, shape=part.shape, content=content, levels=tuple(levels))
        return sheet, plan


def coarsening_of(entry: OverviewEntry, array: VirtualArray, dtype: np.dtype[Any]) -> Coarsening:
    """How the levels of an overview are made, with elements of a dtype."""
    missing, meant = MissingValues.of(array), meant_dtype(array)
    return Coarsening(entry.method, entry.factors, entry.n_levels, missing, meant, dtype)


def overviews(
    keeper: Keeper,
    array: str,
    *,
    factor: int,
    levels: int | None,
    method: str,
    to: str | os.PathLike[str] | None,
    codec: str,
    memory: int | str,
    n_threads: int | None,
    dry_run: bool,
    progress: Callable[[int, int], None] | None,
) -> Changed:
    """Write what the overview of an array lacks: see `Catalog.overviews`."""
    path = array.strip("/")
    check_choice("method", method, METHODS)
    check_choice("codec", codec, tuple(CODECS))
    base = read_base(keeper.access())
    found = array_to_write(base.group, path)
    factors, n_levels = _checked(base.group, path, found, factor, levels, method)
    wanted = OverviewEntry(
        id=new_id(),
        array=path,
        to=stored_folder(base.folder.url, to),
        codec=codec,
        factors=factors,
        n_levels=n_levels,
        method=method,
        missing=MissingValues.of(found).key,
    )
    run = Overviews(
        keeper=keeper,
        wanted=wanted,
        memory=bytes_of("memory", memory),
        n_threads=n_threads,
        progress=progress,
    )
    if dry_run:
        return keeper.reported(ScanReport(lines=tuple(run.described(base))))
    for label in _labels(base.group, path, found, factors, keeper.storage_options):
        own = replace(wanted, array=label, factors=(factor,), method="mean")
        replace(run, wanted=own, progress=None).run()
    return keeper.reported(ScanReport(lines=tuple(run.run())))


def drop(base: Base, array: str) -> Root:
    """The catalog without the overview of an array, and those of labels that no other one needs."""
    path = array.strip("/")
    every = base.root.snapshot.overviews
    mine = [each for each in every if each.array == path]
    if not mine:
        raise InvalidRequestError("the array has no overview", Place(variable=path))
    head = path.rpartition("/")[0]
    arrays = base.group.all_arrays()
    beside = [each for each in every if each.array.rpartition("/")[0] == head]
    labels = [each for each in beside if arrays[each.array].dims == (_name(each.array),)]
    images = [each for each in beside if each not in labels and each not in mine]
    used = {dim for each in images for dim in arrays[each.array].dims}
    unused = [each for each in labels if _name(each.array) not in used]
    return dropped(base, [each.id for each in (*mine, *unused)], path)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _checked(
    group: CatalogGroup,
    path: str,
    array: VirtualArray,
    factor: int,
    levels: int | None,
    method: str,
) -> tuple[tuple[int, ...], int]:
    """Factors along each dimension, and the number of levels."""
    place = Place(variable=path)
    if type(factor) is not int or not 2 <= factor <= MOST_FACTOR:
        reason = Message(Option("factor", factor), f" is none of 2 to {MOST_FACTOR}")
        raise InvalidRequestError(reason)
    if array.dtype.kind not in "iufb" or array.ndim < 2:
        raise InvalidRequestError(
            f"{array.shape} of {array.dtype} has no overviews: no numbers, or no image", place
        )
    head, arrays = path.rpartition("/")[0], group.all_arrays()
    paths = {dim: path_in(head, dim) for dim in array.dims}
    labels = {dim: arrays[at] for dim, at in paths.items() if at in arrays}
    ways = dims_by_direction(reversed(array.dims), labels)
    plane = {ways.get("y", ""), ways.get("x", "")}
    if plane <= {*array.dims} and plane != {*array.dims[-2:]}:
        raise InvalidRequestError(
            f"its last two dimensions, {' and '.join(array.dims[-2:])}, are not rows and columns",
            place,
        )
    if method == "mean" and (why := _why_no_mean(group, path, array)):
        reason = Message(f"{why} have no mean: give ", Option("method", "mode"), " or nearest")
        raise InvalidRequestError(reason, place)
    factors = (1,) * (array.ndim - 2) + (factor, factor)
    sides = array.shape[-2:]
    n_levels, longest = 1, -(-max(sides) // factor)
    while longest > SMALL_SIDE:
        n_levels, longest = n_levels + 1, -(-longest // factor)
    n_levels = n_levels if levels is None else levels
    is_many = type(n_levels) is not int or not 1 <= n_levels <= MOST_LEVELS
    if is_many or factor ** (2 * n_levels) > MOST_WINDOW or factor ** (n_levels - 1) >= max(sides):
        reason = Message(
            Option("levels", n_levels), f" is not possible for {sides[0]} by {sides[1]} elements"
        )
        raise InvalidRequestError(reason, place)
    for level in range(1, n_levels + 1):
        held = path_in(head, group_of_level(level))
        if held in group:
            raise InvalidRequestError(
                f"the files have coarser levels already, in the group {held!r}", place
            )
    for each in group.snapshot.overviews:
        other = arrays[each.array]
        is_beside = each.array.rpartition("/")[0] == head and each.array != path
        is_image = other.ndim > 1
        if (
            is_beside
            and is_image
            and {*other.dims} & {*array.dims[-2:]}
            and max(each.factors) != factor
        ):
            reason = Message(
                f"{each.array} in the same group has overviews by {max(each.factors)}: give ",
                Option("factor", max(each.factors)),
            )
            raise InvalidRequestError(reason, place)
    return factors, n_levels


def _why_no_mean(group: CatalogGroup, path: str, array: VirtualArray) -> str:
    """Why elements have no mean; empty if they have one."""
    if array.dtype.kind == "b":
        return "booleans"
    is_named = {"flag_values", "flag_meanings", "flag_masks"} & {*array.attrs}
    if is_named or array.enumeration is not None:
        return "categories"
    if path_in(path.rpartition("/")[0], "color_map") in group:
        return "numbers of colours"
    if "direction" in str(array.attrs.get("standard_name", "")):
        return "directions"
    return ""


def _labels(
    group: CatalogGroup,
    path: str,
    array: VirtualArray,
    factors: tuple[int, ...],
    storage_options: Mapping[str, Any] | None,
) -> list[str]:
    """Paths of the labels that levels have, too: numbers that rise or fall all along."""
    head, arrays = path.rpartition("/")[0], group.all_arrays()
    found = []
    for dim, factor in zip(array.dims, factors, strict=True):
        label = path_in(head, dim)
        held = arrays.get(label)
        if factor == 1 or held is None or held.dims != (dim,) or held.dtype.kind not in "iuf":
            continue
        values = reader_for(storage_options).read(held.with_changes(overlays=()), name=label)
        steps = np.diff(values.astype(np.float64))
        if (steps > 0).all() or (steps < 0).all():
            found.append(label)
    return found
