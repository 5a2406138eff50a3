"""Bring overlays and overviews of an array up to date, sheet by sheet.

A sheet is what one call writes: a folder with real Zarr arrays, made of one box of the array. It is
entered in the catalog before it is written, so that changes of other writers are followed, and gets
its tables in the commit behind. A call that was killed is continued by the same call.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gridref.api.keeper import Keeper
from gridref.api.rewriting.writer import WrittenObject, checksums_of, sink_at
from gridref.catalog.commit import Base, Step, new_id
from gridref.catalog.document import Root
from gridref.catalog.group import CatalogGroup
from gridref.catalog.sheet_entries import INSIDE, MOST_COVERS, Covering, Sheet
from gridref.catalog.sources import relative_url, resolved_url
from gridref.catalog.written_overlays import begun, finished, is_begun
from gridref.errors import InvalidRequestError, Place
from gridref.io import absolute_url, describe_source, is_local
from gridref.model.array import VirtualArray
from gridref.model.manifest import Source
from gridref.model.overlay import Box, Cover
from gridref.options import check_names

MOST_SHEETS = 8
"""With more sheets, an update writes the smallest ones anew as one."""


@dataclass(frozen=True, eq=False)
class Draft[E: Covering[Any], S: Sheet, P]:
    """A sheet that is to be written.

    Attributes
    ----------
    sheet
        The sheet, without tables.
    coverage
        Those of its elements that some file holds.
    """

    entry: E
    sheet: S
    coverage: tuple[Cover, ...]
    plan: P


@dataclass(frozen=True, eq=False)
class WrittenSheet:
    """A sheet whose chunks are written.

    Attributes
    ----------
    sheet
        The sheet, without tables.
    arrays
        The sheet as an array, or several, by the names that its tables have for them.
    said
        What it is, for the history of the catalog.
    spill
        Folder of intermediate files. If this call is killed, the next one needs what is left in it.
    """

    sheet: Sheet
    arrays: Mapping[str, VirtualArray]
    said: str
    details: Sequence[str]
    spill: str | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class SheetWriter[E: Covering[Any], S: Sheet, P](ABC):
    """Writes the sheets that an overlay or overview of an array lacks.

    Attributes
    ----------
    wanted
        The overlay, or overview, that is asked for, without sheets.
    memory
        Bytes that the process may take.
    n_threads
        Threads that decode and encode; None for one a core.
    progress
        Called with the number of parts of a sheet that are done, and of all.
    """

    keeper: Keeper
    wanted: E
    memory: int
    n_threads: int | None = None
    progress: Callable[[int, int], None] | None = None

    @property
    def path(self) -> str:
        """Path of the array."""
        return self.wanted.array

    @abstractmethod
    def planned(self, base: Base) -> Draft[E, S, P] | None:
        """The next sheet to write; None if nothing is missing."""

    @abstractmethod
    def written(self, draft: Draft[E, S, P]) -> WrittenSheet:
        """Write the chunks of a sheet."""

    @abstractmethod
    def in_words(self, draft: Draft[E, S, P]) -> list[str]:
        """How a sheet would be written."""

    def described(self, base: Base) -> list[str]:
        """What would be written next."""
        draft = self.planned(base)
        return [f"{self.path}: nothing is missing"] if draft is None else self.in_words(draft)

    def run(self) -> list[str]:
        """Write sheet by sheet, and commit each one; return what was done, a line for each."""
        lines: list[str] = []
        names: set[str] = set()
        while (draft := self._begun(names)) is not None:
            names.add(draft.sheet.name)
            written = self.written(draft)
            line = f"{written.said}: {', '.join(written.details)}"
            if not _finish(self.keeper, draft.entry, written):
                line += ". Its files changed meanwhile, so it is not used"
            if written.spill is not None:
                shutil.rmtree(written.spill, ignore_errors=True)
                sink_at(sheet_folder(self.keeper, draft), self.keeper.storage_options).clean()
            lines.append(line)
        return lines or [f"{self.path}: nothing is missing"]

    def _begun(self, names: set[str]) -> Draft[E, S, P] | None:
        """Enter the next sheet in the catalog, unless this call wrote it already."""
        drafts: list[Draft[E, S, P]] = []

        def begin(base: Base) -> Root | None:
            drafts.clear()
            draft = self.planned(base)
            # What an overlay cannot list, because it falls into too many boxes, stays missing.
            if draft is None or draft.sheet.name in names or len(names) >= MOST_COVERS:
                return None
            drafts[:] = [draft]
            if is_begun(base, draft.entry.id, draft.sheet.name, draft.coverage):
                return None
            return begun(base, draft.entry, draft.sheet, draft.coverage, f"{self.path}: begun")

        self.keeper.commit(begin)
        return drafts[0] if drafts else None


def _finish(keeper: Keeper, entry: Covering[Any], written: WrittenSheet) -> bool:
    """Commit the tables of a sheet; return whether it is used."""
    is_relative = not is_local(entry.to) or not os.path.isabs(entry.to)
    is_used = True

    def finish(base: Base) -> Step | None:
        nonlocal is_used
        step = finished(
            base, entry.id, written.sheet, written.arrays, written.said, is_relative=is_relative
        )
        is_used = step is not None
        return step

    keeper.commit(finish)
    return is_used


def known_or_new[E: Covering[Any]](wanted: E, known: Iterable[E]) -> E:
    """The overlay or overview that is asked for: one that is there, or a new one."""
    for each in known:
        if replace(each, id=wanted.id, sheets=(), coverage=()) == wanted:
            return each
    return replace(wanted, id=new_id())


def array_to_write(group: CatalogGroup, path: str) -> VirtualArray:
    """An array as its files hold it.

    Raises
    ------
    InvalidRequestError
        If there is none, or nothing in it.
    """
    arrays = group.all_arrays()
    check_names("the catalog", [path], arrays, kind="array")
    array = arrays[path].with_changes(overlays=())
    if not array.ndim or not array.size or array.dtype.kind in "TO":
        reason = f"{array.shape} of {array.dtype} cannot be laid out anew: no numbers, or only one"
        raise InvalidRequestError(reason, Place(variable=path))
    return array


def target_of(missing: Sequence[Box], held: Sequence[Cover]) -> Box:
    """What to write next of what is missing: with what is held, where that is small.

    A sheet that is added behind many others is written anew with those that are not much larger.
    So of n updates there are about ``log n`` sheets, and each element is written ``log n`` times.
    """
    others = sorted(missing, key=_size, reverse=True)
    target = others.pop(0)
    sheets = {cover.sheet: cover.box for cover in held}
    for cover in held:
        sheets[cover.sheet] = _around(sheets[cover.sheet], cover.box)
    for box in [*others, *sorted(sheets.values(), key=_size)]:
        both = _around(target, box)
        if _size(both) <= 2 * (_size(target) + _size(box)) and _size(box) <= 2 * _size(target):
            target = both
    apart = [box for box in sheets.values() if _around(target, box) != target]
    for box in sorted(apart, key=_size)[: max(0, len(apart) + 1 - MOST_SHEETS)]:
        target = _around(target, box)
    return target


def _size(box: Box) -> int:
    return math.prod(high - low for low, high in box)


def _around(one: Box, other: Box) -> Box:
    """The least box that holds both."""
    return tuple(
        (min(low, start), max(high, stop))
        for (low, high), (start, stop) in zip(one, other, strict=True)
    )


def sheet_name(told: Sequence[Any], sheets: Iterable[Sheet]) -> str:
    """A name that the same call finds again: a digest of what the sheet is made of.

    Parameters
    ----------
    told
        What it is made of, as JSON has it.
    sheets
        Those that the overlay has.
    """
    taken = [sheet.name for sheet in sheets if sheet.part is not None]
    said = json.dumps(told, sort_keys=True, default=str)
    while True:
        name = hashlib.sha256(said.encode()).hexdigest()[:16]
        if name not in taken:
            return name
        said = name  # of files that were others meanwhile, and are the same again


# Folders


def stored_folder(catalog: str, to: str | os.PathLike[str] | None) -> str:
    """The folder of overlays as a catalog stores it: relative if it is in the catalog's."""
    if to is None:
        return INSIDE
    address = absolute_url(to).rstrip("/")
    is_inside = address.startswith(f"{catalog.rstrip('/')}/")
    return relative_url(address, catalog) if is_inside else address


def sheet_folder(keeper: Keeper, draft: Draft[Any, Any, Any]) -> str:
    """The address of the folder of a sheet."""
    to = resolved_url(draft.entry.to, keeper.access().folder.url)
    return f"{to}/{draft.entry.id}/{draft.sheet.name}"


def source_in(folder: str, storage_options: Mapping[str, Any] | None) -> Callable[..., Source]:
    """What makes a source of an object that was written into a folder."""

    def source_of(written: WrittenObject) -> Source:
        address = f"{folder}/{written.name}"
        checksums = checksums_of(written)
        if is_local(address):
            return Source(address, written.n_bytes, told_by="size", chunk_checksums=checksums)
        return replace(describe_source(address, storage_options), chunk_checksums=checksums)

    return source_of
