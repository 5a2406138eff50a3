"""Check that a catalog is whole, and compare two catalogs.

`check_catalog` compares files with the hashes that the catalog states. `compare_catalogs` lists
differences of arrays, attributes, sources and chunks.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from gridref.catalog.document import ROOT_FILE, Snapshot, is_replaced, read_root
from gridref.catalog.entries import ArrayEntry, GroupEntry, TableEntry
from gridref.catalog.folder import open_folder
from gridref.catalog.group import CatalogGroup
from gridref.catalog.listing import referenced_chunks
from gridref.catalog.sources import relative_url
from gridref.errors import CatalogCorruptError, Place, ShortReadError, SourceUnavailableError
from gridref.io import SourcePool, absolute_url, catalog_options, describe_source, is_absent
from gridref.model.array import path_in
from gridref.model.listing import ListedChunks
from gridref.model.manifest import ChunkManifest, ChunkState, Source

# Whether a catalog is whole: its files, and the hashes that it states

_PIECE_BYTES = 8 * 2**20


def check_catalog(
    url: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    snapshot: str | None = None,
) -> None:
    """Read all of a catalog, and compare sizes and SHA-256 with what it states.

    Opening a catalog checks its root file only; reading its rows, each page's checksum. A catalog
    that is replaced meanwhile is checked again.

    Parameters
    ----------
    url
        Address of the catalog's directory (or of the ``gridref.json`` in it).
    storage_options
        fsspec options, or a mapping of protocol to options.
    snapshot
        Id of a former snapshot, or a tag; by default the current one.

    Raises
    ------
    CatalogCorruptError
        Lists each file that differs, and the blocks that need it.
    CatalogNotFoundError, CatalogVersionError, SourceUnavailableError
        As `open_catalog`.
    """
    storage_options = catalog_options(storage_options)
    folder = open_folder(absolute_url(url).removesuffix(f"/{ROOT_FILE}"), storage_options)
    root = read_root(folder, snapshot)
    found: list[CatalogCorruptError] = []
    for number, part in enumerate(root.snapshot.all_parts):
        for table in part.tables:
            try:
                _check_table(folder.address(table.file), table, storage_options)
            except CatalogCorruptError as error:
                hurt = "; ".join(_blocks_of(root.snapshot, number))
                found.append(CatalogCorruptError(f"{error.reason}. Hurt: {hurt}", error.place))
    if found and is_replaced(folder.url, storage_options, root.snapshot.id):
        check_catalog(url, storage_options, snapshot)
    elif len(found) == 1:
        raise found[0]
    elif found:
        raise CatalogCorruptError(
            f"{len(found)} files are damaged: {' - '.join(map(str, found))}", found[0].place
        )


def _blocks_of(snapshot: Snapshot, part: int) -> Iterator[str]:
    """Arrays whose blocks are in a part, and which of their blocks."""
    for path, entry in snapshot.root.all_arrays().items():
        for segment in snapshot.shared.layouts[entry.layout]:
            if segment.part == part:
                bounds = ", ".join(f"{box.start}:{box.stop}" for box in segment.box)
                yield f"blocks [{bounds}] of {path}"
    for each in snapshot.beside:
        if snapshot.all_parts[part] in [sheet.part for sheet in each.sheets]:
            kind = "overlay" if each in snapshot.overlays else "overview"
            yield f"{kind} {each.id} of {each.array}"


def _check_table(address: str, table: TableEntry, options: Mapping[str, Any] | None) -> None:
    digest = hashlib.sha256()
    try:
        source = describe_source(address, options)
        if source.size_bytes != table.n_bytes:
            raise _corrupt(f"it has {source.size_bytes} bytes instead of {table.n_bytes}", address)
        with SourcePool(options) as pool:
            for start in range(0, table.n_bytes, _PIECE_BYTES):
                length = min(_PIECE_BYTES, table.n_bytes - start)
                digest.update(pool.read(source, start, length))
    except ShortReadError as error:
        raise _corrupt("it is cut", address) from error
    except SourceUnavailableError as error:
        if not is_absent(error):
            raise
        raise _corrupt("it is missing", address) from error
    if digest.hexdigest() != table.sha256:
        raise _corrupt("its SHA-256 is not the one that the catalog states", address)


def _corrupt(reason: str, address: str) -> CatalogCorruptError:
    return CatalogCorruptError(
        f"a file of the catalog is damaged: {reason}. Build the catalog again",
        Place(source=address),
    )


# What differs between two catalogs

if TYPE_CHECKING:
    import pandas as pd


_SIGNS = {"added": "+", "removed": "-", "changed": "~"}
_SHOWN = 80
_TELL_CHANGES = ("size_bytes", "mtime_ns", "etag")


@dataclass(frozen=True)
class CatalogChange:
    """One thing that is not the same in two catalogs.

    Attributes
    ----------
    fate
        What became of it: ``"added"``, ``"removed"`` or ``"changed"``.
    kind
        What it is: ``"group"``, ``"array"`` or ``"source"``.
    path
        Path of the group or array, address of the source.
    what
        The property that changed, like ``"shape"``, ``"attribute units"`` or ``"chunks"``.
    before, after
        Its value, as JSON has it; None where there is none. Of chunks, `after` counts those that
        were added, removed and changed.
    """

    fate: Literal["added", "removed", "changed"]
    kind: Literal["group", "array", "source"]
    path: str
    what: str = ""
    before: Any = None
    after: Any = None

    def __str__(self) -> str:
        text = f"{_SIGNS[self.fate]} {self.kind} {self.path or '/'}"
        if not self.what:
            return text
        if self.what == "chunks":
            counts = [f"{n} {fate}" for fate, n in self.after.items() if n]
            return f"{text}: chunks: {', '.join(counts)}"
        return f"{text}: {self.what}: {_shown(self.before)} -> {_shown(self.after)}"


def _shown(value: Any) -> str:
    text = "none" if value is None else json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def compare_catalogs(one: CatalogGroup, other: CatalogGroup) -> Iterator[CatalogChange]:
    """List the changes from `one` to `other`: groups, arrays, then sources.

    Chunks are compared by the elements that they hold, and only of arrays whose content differs.
    Sources of relative catalogs are compared by their addresses as seen from the catalog.
    """
    yield from _compared("group", *(_groups(each.snapshot.root, "") for each in (one, other)))
    entries = [each.snapshot.root.all_arrays() for each in (one, other)]
    described = [_arrays(each.snapshot) for each in (one, other)]
    for path in {**entries[0], **entries[1]}:
        here = ({path: each[path]} if path in each else {} for each in described)
        yield from _compared("array", *here)
        if path in entries[0] and path in entries[1]:
            contents = {each[path].content for each in entries}
            if len(contents) > 1 or "" in contents:
                yield from _compared_chunks(path, one, other)
    yield from _compared("source", *map(_sources, (one, other)))


type _Things = Mapping[str, Mapping[str, Any]]
"""Properties of things by path."""


def _compared(
    kind: Literal["group", "array", "source"], before: _Things, after: _Things
) -> Iterator[CatalogChange]:
    for path in {**before, **after}:
        if path not in after:
            yield CatalogChange("removed", kind, path)
        elif path not in before:
            yield CatalogChange("added", kind, path)
        else:
            old, new = before[path], after[path]
            for what in {**old, **new}:
                if old.get(what) != new.get(what):
                    yield CatalogChange("changed", kind, path, what, old.get(what), new.get(what))


def _groups(entry: GroupEntry, path: str) -> dict[str, dict[str, Any]]:
    found = {path: _attributes(entry.attrs)}
    for name, below in entry.groups.items():
        found |= _groups(below, path_in(path, name))
    return found


def _attributes(attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {f"attribute {name}": value for name, value in attrs.items()}


def _arrays(snapshot: Snapshot) -> dict[str, dict[str, Any]]:
    """The properties of all arrays."""
    shared = snapshot.shared.to_json()
    return {path: _described(entry, shared) for path, entry in snapshot.root.all_arrays().items()}


def _described(entry: ArrayEntry, shared: Mapping[str, Any]) -> dict[str, Any]:
    document = {name: value for name, value in entry.document.items() if name != "node_type"}
    attributes = _attributes(document.pop("attributes"))
    axes = [shared["axes"][number]["edges"] for number in document.pop("axes")]
    encodings = [shared["encodings"][number] for number in document.pop("encodings")]
    return {
        **document,
        "block lengths": axes,
        "encodings": sorted(encodings, key=json.dumps),
        **attributes,
    }


def _sources(catalog: CatalogGroup) -> dict[str, dict[str, Any]]:
    return {
        _address(source, catalog): {name: getattr(source, name) for name in _TELL_CHANGES}
        for source in catalog.source_list
    }


def _address(source: Source, catalog: CatalogGroup) -> str:
    """The address of a source, as seen from the catalog if it is stored so."""
    if catalog.snapshot.source_urls == "relative":
        return relative_url(source.url, catalog.info.url)
    return source.url


def _compared_chunks(path: str, one: CatalogGroup, other: CatalogGroup) -> Iterator[CatalogChange]:
    numbers: dict[Any, int] = {}
    before, after = (_chunk_rows(path, each, numbers) for each in (one, other))
    keys, values = (
        [name for name in before.columns if name.startswith("at") is is_key]
        for is_key in (True, False)
    )
    if list(before.columns) != list(after.columns):
        return  # of another rank, which was said
    both = before.merge(after, on=keys, how="outer", indicator=True)
    fate = both["_merge"].to_numpy()
    differ = np.zeros(len(both), bool)
    for name in values:
        differ |= (both[f"{name}_x"] != both[f"{name}_y"]).to_numpy()
    counts = {
        "added": int((fate == "right_only").sum()),
        "removed": int((fate == "left_only").sum()),
        "changed": int((differ & (fate == "both")).sum()),
    }
    if any(counts.values()):
        yield CatalogChange("changed", "array", path, "chunks", None, counts)


def _chunk_rows(path: str, catalog: CatalogGroup, numbers: dict[Any, int]) -> pd.DataFrame:
    """Chunks of an array: which elements each holds ("at…"), and what these come from.

    Sources and encodings are numbered by `numbers`, alike for both catalogs.
    """
    import pandas as pd

    def number(thing: Any) -> int:
        return numbers.setdefault(thing, len(numbers))

    array = catalog.all_arrays()[path]
    encodings = np.array([*map(number, array.encodings), -1])
    parts = []
    for listed, rows in referenced_chunks(array):
        addresses = [number((_address(each, catalog), each.size_bytes)) for each in rows.sources]
        is_range = rows.state == ChunkState.RANGE
        columns = {
            **_placed(listed),
            "state": rows.state,
            "source": np.array([*addresses, -1])[np.where(is_range, rows.source, -1)],
            "offset": np.where(is_range, rows.offset, _inline_hashes(rows)),
            "length": np.where(rows.state == ChunkState.MISSING, 0, rows.length),
            "mask": rows.masks,
            "encoding": encodings[array.blocks.encoding[listed.block]],
        }
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts)


def _placed(listed: ListedChunks) -> dict[str, Any]:
    """The elements that chunks hold, and where inside the chunks these are."""
    listing, blocks = listed.listing, listed.listing.array.blocks
    start, stop = listed.bounds
    step = blocks.step[listed.block]
    inside = start - listing.first_element[listed.block]
    first = blocks.origin[listed.block] + step * inside
    first -= listed.stored * listing.array.stored_chunk_shapes[listed.block]
    columns: dict[str, Any] = {"at": np.zeros(len(listed), np.int8)}
    for axis in range(listing.array.ndim):
        columns |= {f"at_{axis}": start[:, axis], f"at_end_{axis}": stop[:, axis]}
        columns |= {f"first_{axis}": first[:, axis], f"step_{axis}": step[:, axis]}
    return columns


def _inline_hashes(rows: ChunkManifest) -> NDArray[np.int64]:
    """Hashes of the bytes of inline chunks; 0 for other chunks."""
    hashes = np.zeros(rows.n_rows, np.int64)
    for row in np.flatnonzero(rows.state == ChunkState.INLINE).tolist():
        digest = hashlib.blake2b(rows.inline_bytes(row), digest_size=8).digest()
        hashes[row] = int.from_bytes(digest, "little", signed=True)
    return hashes
