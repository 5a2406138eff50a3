"""Changes of a catalog's overlays: a sheet is begun and finished, an overlay is dropped.

To write a sheet, `begun` first enters it with its coverage and without tables. All commits that
other writers make meanwhile move and cut that coverage, as that of other sheets. `finished` then
adds the tables, and readers use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gridref.catalog.commit import Base, Drafts, Step, following, new_id
from gridref.catalog.document import Root, SourceUrls
from gridref.catalog.entries import PartEntry
from gridref.catalog.overlay_entries import COPIED, MOST_OVERLAYS, OverlayEntry, SheetEntry
from gridref.catalog.writing import part_files, write_part
from gridref.errors import InvalidRequestError, Place
from gridref.model.array import VirtualArray
from gridref.model.overlay import Box, Cover, without


def begun(
    base: Base, overlay: OverlayEntry, sheet: SheetEntry, coverage: Iterable[Cover], message: str
) -> Root:
    """Enter a sheet that is going to be written, in a new overlay or one that is there.

    Sheets of the overlay that were begun before, and never finished, are given up.

    Raises
    ------
    InvalidRequestError
        If the catalog has as many overlays as one may have.
    """
    known = _overlay(base, overlay.id)
    if known is None and len(base.root.snapshot.overlays) >= MOST_OVERLAYS:
        raise InvalidRequestError(
            f"the catalog has {MOST_OVERLAYS} overlays, and may not have more: drop one",
            Place(source=base.folder.url),
        )
    held = (known or overlay).covering((known or overlay).served)
    number = len(held.sheets)
    own = [replace(cover, sheet=number) for cover in coverage]
    entry = replace(held, sheets=(*held.sheets, sheet), coverage=())
    entry = entry.covering((*held.coverage, *own))
    others = base.root.snapshot.overlays
    if known is None:
        overlays = (*others, entry)
    else:
        overlays = tuple(entry if each.id == entry.id else each for each in others)
    content = replace(base.root.snapshot, overlays=overlays)
    return following(base, content, "rechunk", message)


def finished(
    base: Base,
    overlay: str,
    sheet: SheetEntry,
    array: VirtualArray,
    message: str,
    *,
    is_relative: bool,
) -> Step | None:
    """Add the tables of a sheet, which reads then use.

    Parameters
    ----------
    overlay
        Id of its overlay.
    array
        The sheet as an array, whose sources have checksums.
    is_relative
        Whether addresses are stored relative to the catalog.

    Returns
    -------
    Step or None
        None if nothing is left of the sheet: its elements changed meanwhile, or somebody dropped
        its overlay.
    """
    entry = _overlay(base, overlay)
    names = [each.name for each in entry.sheets] if entry is not None else []
    if entry is None or sheet.name not in names:
        return None
    number = names.index(sheet.name)
    own = [cover for cover in entry.coverage if cover.sheet == number]
    rest = [piece for cover in entry.served for piece in _outside(cover, own)]
    name = new_id()

    def write(drafts: Drafts) -> Root:
        urls: SourceUrls = "relative" if is_relative else "absolute"
        part = write_part(drafts, name, {entry.array: array}, urls)
        copies = _copies(drafts, part.entry, base.root.snapshot.overlays, sheet)
        written = replace(sheet, part=part.entry, prefixes=part.prefixes, copies=copies)
        sheets = tuple(written if each.name == sheet.name else each for each in entry.sheets)
        merged = replace(entry, sheets=sheets, coverage=()).covering((*rest, *own))
        before = base.root.snapshot
        overlays = tuple(merged if each.id == overlay else each for each in before.overlays)
        return following(base, replace(before, overlays=overlays), "rechunk", message, name=name)

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


def dropped(base: Base, overlay: str, message: str) -> Root:
    """Remove an overlay; `prune` removes its files when no snapshot names them any more."""
    before = base.root.snapshot
    kept = tuple(each for each in before.overlays if each.id != overlay)
    return following(base, replace(before, overlays=kept), "drop_overlay", message)


def _overlay(base: Base, name: str) -> OverlayEntry | None:
    overlays = base.root.snapshot.overlays
    return next((each for each in overlays if each.id == name), None)


def _outside(cover: Cover, others: Sequence[Cover]) -> Iterator[Cover]:
    """The parts of a box that others do not cover."""
    boxes: list[Box] = without(cover.box, [other.box for other in others])
    for box in boxes:
        part = cover.within(box)
        assert part is not None
        yield part
