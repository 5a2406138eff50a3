"""Changes of overlays and overviews: begin and finish a sheet, drop an overlay.

To write a sheet, `begun` first enters it with its coverage and without tables. All commits that
other writers make meanwhile move and cut that coverage, as that of other sheets. `finished` then
adds the tables, and readers use it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gridref.catalog.commit import Base, Drafts, Step, following, new_id
from gridref.catalog.document import Root, SourceUrls
from gridref.catalog.entries import PartEntry
from gridref.catalog.sheet_entries import (
    COPIED,
    MOST_COVERS,
    MOST_OVERLAYS,
    MOST_OVERVIEWS,
    Covering,
    OverlayEntry,
    OverviewEntry,
    Sheet,
    SheetEntry,
)
from gridref.catalog.writing import part_files, write_part
from gridref.errors import InvalidRequestError, Place
from gridref.model.array import VirtualArray
from gridref.model.overlay import Box, Cover, without


def begun(
    base: Base, overlay: Covering[Any], sheet: Sheet, coverage: Iterable[Cover], message: str
) -> Root:
    """Enter a sheet that is going to be written, in a new overlay or one that is there.

    Sheets of the overlay that were begun before, and never finished, are given up. An overview
    takes the place of another one of its array.

    Raises
    ------
    InvalidRequestError
        If the catalog has as many of them as one may have.
    """
    kind, operation = _KINDS[type(overlay)]
    most = MOST_OVERLAYS if kind == "overlays" else MOST_OVERVIEWS
    others: list[Covering[Any]] = list(getattr(base.root.snapshot, kind))
    known = _found(base, overlay.id)
    if known is None and len(others) >= most:
        raise InvalidRequestError(
            f"the catalog has {most} {kind}, the most it may have: drop one",
            Place(source=base.folder.url),
        )
    held = (known or overlay).covering((known or overlay).served)
    number = len(held.sheets)
    own = [replace(cover, sheet=number) for cover in coverage]
    with_sheet = replace(held, sheets=(*held.sheets, sheet), coverage=())
    entry = with_sheet.covering((*held.coverage, *own))
    if known is None:
        if kind == "overviews":
            others = [each for each in others if each.array != overlay.array]
        others.append(entry)
    else:
        others = [entry if each.id == entry.id else each for each in others]
    changes: Any = {kind: tuple(others)}
    return following(base, replace(base.root.snapshot, **changes), operation, message)


def is_begun(base: Base, overlay: str, sheet: str, coverage: Iterable[Cover]) -> bool:
    """Whether an earlier call entered a sheet of an overlay, and nothing of it changed since."""
    entry = _found(base, overlay)
    names = [] if entry is None else [each.name for each in entry.sheets]
    if entry is None or sheet not in names:
        return False
    number = names.index(sheet)
    held = {cover.box for cover in entry.coverage if cover.sheet == number}
    wanted = {cover.box for cover in coverage}
    return held == wanted or (len(held) == MOST_COVERS and held <= wanted)


def finished(
    base: Base,
    overlay: str,
    sheet: Sheet,
    arrays: Mapping[str, VirtualArray],
    message: str,
    *,
    is_relative: bool,
) -> Step | None:
    """Add the tables of a sheet, which reads then use.

    Parameters
    ----------
    overlay
        Id of its overlay, or overview.
    arrays
        The sheet as an array, or several, by the names that its tables have for them. Their
        sources have checksums.
    is_relative
        Whether addresses are stored relative to the catalog.

    Returns
    -------
    Step or None
        None if nothing is left of the sheet: its elements changed meanwhile, or somebody dropped
        its overlay.
    """
    entry = _found(base, overlay)
    names = [each.name for each in entry.sheets] if entry is not None else []
    if entry is None or sheet.name not in names:
        return None
    number = names.index(sheet.name)
    own = [cover for cover in entry.coverage if cover.sheet == number]
    rest = [piece for cover in entry.served for piece in _outside(cover, own)]
    name = new_id()
    kind, operation = _KINDS[type(entry)]

    def write(drafts: Drafts) -> Root:
        urls: SourceUrls = "relative" if is_relative else "absolute"
        part = write_part(drafts, name, arrays, urls)
        written = replace(sheet, part=part.entry, prefixes=part.prefixes)
        if isinstance(written, SheetEntry):
            copies = _copies(drafts, part.entry, base.root.snapshot.overlays, written)
            written = replace(written, copies=copies)
        sheets = tuple(written if each.name == sheet.name else each for each in entry.sheets)
        merged = replace(entry, sheets=sheets, coverage=()).covering((*rest, *own))
        before = base.root.snapshot
        every = tuple(merged if each.id == overlay else each for each in getattr(before, kind))
        changes: Any = {kind: every}
        return following(base, replace(before, **changes), operation, message, name=name)

    return Step(write, part_files(name))


COPIED_BYTES = 32 * 2**10
"""Size of the tables of a sheet up to which the root file has copies of them."""
MOST_COPIED_BYTES = 256 * 2**10
"""Size of all such copies."""


def _copies(
    drafts: Drafts, part: PartEntry, overlays: Iterable[OverlayEntry], sheet: SheetEntry
) -> dict[str, bytes]:
    """The tables that reading a sheet takes, by kind, if they are small; else none."""
    # Without objects, all chunks are in the table of chunks.
    kinds = COPIED if sheet.n_objects else ("chunks",)
    named = {kind: getattr(part, kind) for kind in kinds}
    found = {kind: drafts.held.get(table.file) for kind, table in named.items() if table}
    copies = {kind: content for kind, content in found.items() if content is not None}
    others = (each for overlay in overlays for each in overlay.sheets)
    n_bytes = sum(map(len, copies.values()))
    taken = sum(len(content) for each in others for content in each.copies.values())
    fits = n_bytes <= COPIED_BYTES and taken + n_bytes <= MOST_COPIED_BYTES
    return copies if fits and len(copies) == len(found) else {}


def dropped(base: Base, overlays: Collection[str], message: str) -> Root:
    """Remove overlays or overviews by their ids.

    `prune` removes their files when no snapshot names them any more.
    """
    before = base.root.snapshot
    changes: Any = {
        kind: tuple(each for each in getattr(before, kind) if each.id not in overlays)
        for kind, _ in _KINDS.values()
    }
    kinds = {kind for kind, _ in _KINDS.values() if changes[kind] != getattr(before, kind)}
    operation = "drop_overviews" if kinds == {"overviews"} else "drop_overlay"
    return following(base, replace(before, **changes), operation, message)


_KINDS: Mapping[type, tuple[str, str]] = {
    OverlayEntry: ("overlays", "rechunk"),
    OverviewEntry: ("overviews", "overviews"),
}
"""What a snapshot calls them, and the operation that writes them."""


def _found(base: Base, name: str) -> Covering[Any] | None:
    return next((each for each in base.root.snapshot.beside if each.id == name), None)


def _outside(cover: Cover, others: Sequence[Cover]) -> Iterator[Cover]:
    """The parts of a box that others do not cover."""
    boxes: list[Box] = without(cover.box, [other.box for other in others])
    for box in boxes:
        part = cover.within(box)
        assert part is not None
        yield part
