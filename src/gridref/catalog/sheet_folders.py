"""The folders of sheets in a local catalog: find those that no snapshot names, and remove them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

from gridref.catalog.document import Root
from gridref.catalog.folder import Folder
from gridref.catalog.overlay_entries import INSIDE, NAMES
from gridref.io import is_local

_OBJECT = re.compile(r"c(\.\d+)*|zarr\.json")
"""Names of files in the folder of a sheet."""
_DRAFTS = ".gridref-writing"
"""The folder in it of files that are being written."""


def unneeded_sheets(folder: Folder, roots: Iterable[Root], grace_seconds: float) -> Iterator[str]:
    """Folders of sheets below a catalog's that no snapshot names, and that are old enough.

    Folders elsewhere are not looked at: they may be somebody else's.
    """
    if not is_local(folder.url):
        return
    named = {
        (overlay.id, sheet.name)
        for root in roots
        for overlay in root.snapshot.overlays
        for sheet in overlay.sheets
    }
    for overlay in _folders(folder.address(INSIDE)):
        for sheet in _folders(overlay.path):
            is_named = (overlay.name, sheet.name) in named
            if not is_named and _age(sheet.path) >= grace_seconds:
                yield f"{INSIDE}/{overlay.name}/{sheet.name}"


def _folders(path: str) -> list[os.DirEntry[str]]:
    """Folders with names as overlays and sheets have them; links are not followed."""
    if os.path.islink(path):
        return []
    with suppress(OSError), os.scandir(path) as found:
        listed = sorted(found, key=lambda each: each.name)
        return [e for e in listed if NAMES.fullmatch(e.name) and e.is_dir(follow_symlinks=False)]
    return []


def _age(path: str) -> float:
    """Seconds since anything in a folder was written."""
    newest = os.stat(path).st_mtime
    with os.scandir(path) as found:
        for entry in found:
            newest = max(newest, entry.stat(follow_symlinks=False).st_mtime)
    return time.time() - newest


def remove_sheets(folder: Folder, sheets: Iterable[str]) -> None:
    """Remove folders of sheets with what writers put there; other files stay, with the folder."""
    for sheet in sheets:
        path = folder.address(sheet)
        with suppress(OSError):
            for name in os.listdir(path):
                drafts = os.path.join(path, _DRAFTS)
                if _OBJECT.fullmatch(name):
                    os.unlink(os.path.join(path, name))
                elif name == _DRAFTS and not os.path.islink(drafts):
                    for draft in os.listdir(drafts):
                        os.unlink(os.path.join(drafts, draft))
                    os.rmdir(drafts)
            os.rmdir(path)
            os.rmdir(os.path.dirname(path))
            os.rmdir(os.path.dirname(os.path.dirname(path)))
