"""Writing a catalog: tables first, the root file last, in one step."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gridref.catalog.document import ROOT_FILE, Root
from gridref.catalog.entries import (
    ArrayEntry,
    GroupEntry,
    Interned,
    array_entry,
    attributes_to_json,
)
from gridref.catalog.former import unzipped
from gridref.catalog.kept_report import merged_drifts
from gridref.catalog.part_writer import PART_FILE, WrittenPart, part_files, write_part
from gridref.catalog.segments import whole
from gridref.catalog.snapshot import Commit, Snapshot, SourceUrls
from gridref.catalog.storage import Folder, open_folder
from gridref.errors import (
    CatalogError,
    CatalogNotFoundError,
    GridrefError,
    InvalidRequestError,
    Place,
)
from gridref.io import catalog_options
from gridref.model.array import VirtualGroup
from gridref.model.label_ends import LabelEnds
from gridref.model.names import MAX_GROUP_DEPTH

__all__ = ["write_catalog", "write_to_folder"]

LEFT_OVER_SECONDS = 24 * 3600
"""Age from which on a table that no catalog names is taken for left over."""
_OTHER_FILE = re.compile(
    rf"\.{re.escape(ROOT_FILE)}\.(\d+\.tmp|lock)$"
    r"|snapshot-[0-9a-f]+\.json\.gz$|\.commit-[0-9a-f]+\.lock$"
)


def write_catalog(
    group: VirtualGroup,
    url: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    *,
    extra: Mapping[str, Any] | None = None,
    sources: SourceUrls = "absolute",
    recipe: Mapping[str, Any] | None = None,
    keep_secrets: bool = False,
    ends: LabelEnds | None = None,
) -> str:
    """Write a catalog, or replace one in one step: see `gridref.write_catalog`.

    The tables are written under new names, then ``gridref.json``, which names them, is put in
    place, then the tables of the catalog that was there before are removed. A crash at any moment
    leaves the old catalog, or none where there was none. What crashes left behind more than a day
    ago is removed too.
    """
    if sources not in ("absolute", "relative"):
        raise InvalidRequestError(f'sources must be "absolute" or "relative", got {sources!r}')
    storage_options = catalog_options(storage_options)
    folder = open_folder(url, storage_options)
    try:
        return write_to_folder(
            group, folder, dict(extra or {}), sources, recipe, keep_secrets, ends
        )
    except OSError as error:
        if isinstance(error, GridrefError):
            raise
        raise CatalogError(
            f"the catalog cannot be written: {error.strerror or error}", Place(source=folder.url)
        ) from error


def write_to_folder(
    group: VirtualGroup,
    folder: Folder,
    extra: Mapping[str, Any],
    sources: SourceUrls,
    recipe: Mapping[str, Any] | None = None,
    keep_secrets: bool = False,
    ends: LabelEnds | None = None,
) -> str:
    """Write a catalog into a folder: see `write_catalog`."""
    _check_extra(extra)
    before = _to_be_replaced(folder)
    name = new_id()
    written = write_part(folder, name, group.all_arrays(), sources, keep_secrets=keep_secrets)
    try:
        commit = Commit(name, None, now(), "write", f"{len(group.all_arrays())} arrays written")
        snapshot = _snapshot(group, written, commit, sources, extra, recipe)
        snapshot = replace(snapshot, ends=ends or {})
        folder.publish(ROOT_FILE, Root(snapshot, {}, created_by()).to_bytes())
    except BaseException:
        if not may_be_in_use(folder, name):
            for file in part_files(name):
                folder.remove(file)
        raise
    for name in before:
        folder.remove(name)
    return snapshot.digest


def may_be_in_use(folder: Folder, name: str) -> bool:
    """Whether a snapshot may be the current one, or one before it, though its commit failed.

    As when an interrupt, or the answer to a put that was lost, came after it was put in place.
    """
    try:
        content = folder.read(ROOT_FILE)
        root = Root.from_bytes(content, folder.address(ROOT_FILE))
    except CatalogNotFoundError:
        return False
    except Exception:  # noqa: BLE001 - whatever it is, its files may be needed
        return True
    return has_commit(root.snapshot, name)


def has_commit(snapshot: Snapshot, name: str) -> bool:
    """Whether a commit is the one of a snapshot, or one before it."""
    return any(commit.id == name for commit in snapshot.log)


def _snapshot(
    group: VirtualGroup,
    written: WrittenPart,
    commit: Commit,
    sources: SourceUrls,
    extra: Mapping[str, Any],
    recipe: Mapping[str, Any] | None,
) -> Snapshot:
    """A snapshot of one part."""
    shared = Interned()
    entries = {}
    for path, array in group.all_arrays().items():
        rows = written.rows[path]
        layout = whole(0, rows.grid_shape)
        entries[path] = array_entry(array, path, shared, layout, rows.counts, rows.content)
    root = group_entry(group, "", entries)
    parts = (written.entry,)
    return Snapshot(
        commit.id,
        (commit,),
        root,
        shared,
        parts,
        written.prefixes,
        sources,
        extra,
        recipe,
        written.identity,
        merged_drifts((), group.report.drifts),
    )


def new_id() -> str:
    """A name that no other snapshot has."""
    return uuid.uuid4().hex[:16]


def now() -> str:
    """The time, as commits state it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _check_extra(extra: Mapping[str, Any]) -> None:
    try:
        json.dumps(extra, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"extra must be strict JSON: {error}") from error


def _to_be_replaced(folder: Folder) -> list[str]:
    """Tables of the catalog in a folder, and what interrupted writes left there.

    Nothing in a folder that is not there, or empty. What is left over does not count as content.
    """
    names = folder.names()
    if names is None:
        return []
    ours = [name for name in names if PART_FILE.match(name) or _OTHER_FILE.match(name)]
    current = []
    if ROOT_FILE in names:
        current = _tables_named(folder, names)
    elif len(ours) < len(names):
        others = sorted(set(names) - set(ours))
        raise InvalidRequestError(
            f"not a catalog, and not empty (it holds {others[0]!r}): choose another place",
            Place(source=folder.url),
        )
    # Other files that were made lately may be tables that another process is writing right now.
    old = [n for n in ours if n not in current and (folder.age(n) or 0) > LEFT_OVER_SECONDS]
    return [*current, *old]


def _tables_named(folder: Folder, names: Sequence[str]) -> list[str]:
    """Tables that the snapshots of the catalog in a folder name, and the files of these."""
    former = [name for name in names if name.startswith("snapshot-")]
    try:
        contents = [
            folder.read(ROOT_FILE),
            *(unzipped(folder.read(f), folder.address(f)) for f in former),
        ]
    except CatalogNotFoundError:
        return []
    roots = [Root.from_bytes(content, folder.address(ROOT_FILE)) for content in contents]
    parts = dict.fromkeys(part for root in roots for part in root.snapshot.parts)
    files = [table.file for part in parts for table in part.tables]
    return [*(file for file in files if PART_FILE.match(file)), *former]


def group_entry(group: VirtualGroup, path: str, entries: Mapping[str, ArrayEntry]) -> GroupEntry:
    def below(name: str) -> str:
        return f"{path}/{name}" if path else name

    if path.count("/") >= MAX_GROUP_DEPTH:
        raise InvalidRequestError(f"groups are nested more than {MAX_GROUP_DEPTH} deep")
    return GroupEntry(
        attributes_to_json(group.attrs, path),
        {name: group_entry(child, below(name), entries) for name, child in group.groups.items()},
        {name: entries[below(name)] for name in group.arrays},
        group.unlimited_dims,
    )


def created_by() -> str:
    try:
        return f"gridref {version('gridref')}"
    except PackageNotFoundError:
        return "gridref"
