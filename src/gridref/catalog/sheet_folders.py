"""The folders of sheets in a catalog: find those that no snapshot names, and remove them."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from gridref.catalog.document import Root
from gridref.catalog.folder import Folder, open_folder
from gridref.catalog.sheet_entries import INSIDE, NAMES
from gridref.io import is_local

_OBJECT = re.compile(r"c(\.\d+)*|zarr\.json")
"""Names of files in the folder of a sheet, and in those of its levels."""
_LEVEL = re.compile("[1-9][0-9]?")
"""Names of the folders of levels of an overview."""
_DRAFTS = ".gridref-writing"
"""The folder in it of files that are being written."""
SPILL = "spill"
"""The folder in that one of intermediate files."""


type StorageOptions = Mapping[str, Any] | None


def unneeded_sheets(
    folder: Folder, roots: Iterable[Root], grace_seconds: float, storage_options: StorageOptions
) -> Iterator[str]:
    """Folders of sheets below a catalog's that no snapshot names, and that are old enough.

    Folders elsewhere are not looked at: they may be somebody else's.
    """
    named = {
        (each.id, sheet.name)
        for root in roots
        for each in root.snapshot.beside
        for sheet in each.sheets
    }
    if not is_local(folder.url):
        yield from _unneeded_far(folder, named, grace_seconds, storage_options)
        return
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
    """Seconds since anything in a folder, or in those of its levels, was written."""
    newest = os.stat(path).st_mtime
    for folder in (path, *_levels(path)):
        with os.scandir(folder) as found:
            for entry in found:
                newest = max(newest, entry.stat(follow_symlinks=False).st_mtime)
    return time.time() - newest


def _unneeded_far(
    folder: Folder,
    named: Container[tuple[str, str]],
    grace_seconds: float,
    storage_options: StorageOptions,
) -> Iterator[str]:
    """The same on an object store, whose objects have to be known to be old."""
    names = partial(_names_far, folder, storage_options)
    for overlay in filter(NAMES.fullmatch, names(INSIDE)):
        for sheet in filter(NAMES.fullmatch, names(f"{INSIDE}/{overlay}")):
            path = f"{INSIDE}/{overlay}/{sheet}"
            if (overlay, sheet) not in named:
                held = (path, *_levels_far(folder, storage_options, path))
                ages = [
                    folder.age(f"{each}/{name}")
                    for each in held
                    for name in filter(_OBJECT.fullmatch, names(each))
                ]
                if ages and all(age is not None and age >= grace_seconds for age in ages):
                    yield path


def _names_far(folder: Folder, storage_options: StorageOptions, path: str) -> list[str]:
    """Names of what is in a folder below a catalog's, on an object store."""
    return sorted(open_folder(folder.address(path), storage_options).names())


def _levels(path: str) -> list[str]:
    """Folders of the levels of a sheet; links are not followed."""
    with os.scandir(path) as found:
        return [
            each.path
            for each in found
            if _LEVEL.fullmatch(each.name) and each.is_dir(follow_symlinks=False)
        ]


def _levels_far(folder: Folder, storage_options: StorageOptions, sheet: str) -> list[str]:
    """Folders of the levels of a sheet on an object store."""
    names = _names_far(folder, storage_options, sheet)
    return [f"{sheet}/{name}" for name in filter(_LEVEL.fullmatch, names)]


def remove_sheets(folder: Folder, sheets: Iterable[str], storage_options: StorageOptions) -> None:
    """Remove folders of sheets with what writers put there; other files stay, with the folder."""
    for sheet in sheets:
        if not is_local(folder.url):
            for path in (sheet, *_levels_far(folder, storage_options, sheet)):
                for name in filter(_OBJECT.fullmatch, _names_far(folder, storage_options, path)):
                    folder.remove(f"{path}/{name}")
            continue
        path = folder.address(sheet)
        with suppress(OSError):
            for level in _levels(path):
                _remove_objects(level)
                with suppress(OSError):
                    os.rmdir(level)
            _remove_objects(path)
            os.rmdir(path)
            os.rmdir(os.path.dirname(path))
            os.rmdir(os.path.dirname(os.path.dirname(path)))


def _remove_objects(path: str) -> None:
    """Remove the files of an array, and what killed runs were writing."""
    for name in os.listdir(path):
        drafts = os.path.join(path, _DRAFTS)
        if _OBJECT.fullmatch(name):
            os.unlink(os.path.join(path, name))
        elif name == _DRAFTS and not os.path.islink(drafts):
            shutil.rmtree(os.path.join(drafts, SPILL), ignore_errors=True)
            for draft in os.listdir(drafts):
                os.unlink(os.path.join(drafts, draft))
            os.rmdir(drafts)
