"""Compare two catalogs: their arrays, attributes, sources and chunks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from gridref.catalog.document import Snapshot
from gridref.catalog.entries import ArrayEntry, GroupEntry
from gridref.catalog.group import CatalogGroup
from gridref.catalog.listing import referenced_chunks
from gridref.catalog.sources import relative_url
from gridref.model.listing import ListedChunks
from gridref.model.manifest import ChunkManifest, ChunkState, Source

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
        found |= _groups(below, f"{path}/{name}" if path else name)
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
