"""Find arrays that are grids of whole variables of files, to export them as aggregation variables.

A catalog does not keep the name of a variable in its file. So the files are scanned, and the
variable is found by its stored chunks: they are those of the block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gridref.api.aggregations import as_part
from gridref.api.outcomes import RunOptions, outcomes
from gridref.catalog.listing import manifest_rows
from gridref.combine.rules.packing import Packing
from gridref.errors import GridrefError, ScanError
from gridref.formats import ScanOptions
from gridref.io.identity import check_identity
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.encoding import Encoding
from gridref.model.listing import ChunkListing
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from gridref.secrets import shown_address
from gridref.typing import Int64Array


@dataclass(eq=False)
class Fragmented:
    """An array that is a grid of whole variables of files. Filled file by file.

    Attributes
    ----------
    sources
        The file of each block, in C order.
    """

    array: VirtualArray
    sources: list[Source]
    identifiers: dict[int, str] = field(default_factory=dict)

    @property
    def edges(self) -> list[tuple[int, ...]]:
        """Lengths of the fragments along each dimension."""
        return [tuple(axis.edges().tolist()) for axis in self.array.grid.axes]


def whole_fragments(
    arrays: Mapping[str, VirtualArray], storage_options: Mapping[str, Any] | None = None
) -> tuple[dict[str, Fragmented], dict[str, str]]:
    """The arrays that are grids of whole variables, by path; and why others are not.

    Raises
    ------
    SourceChangedError, SourceUnavailableError
        If a file is not what it was when it was scanned, or cannot be read.
    """
    stored: dict[str, _StoredChunks] = {}
    found: dict[str, Fragmented] = {}
    reasons: dict[str, str] = {}
    wanted: dict[str, list[tuple[str, int]]] = {}
    for path, array in arrays.items():
        sources: list[Source] = []
        reason = _why_not_whole(array)
        if not reason:
            stored[path] = _StoredChunks.of(array)
            sources, reason = stored[path].files()
        if reason:
            reasons[path] = reason
            continue
        found[path] = Fragmented(array, sources)
        for block, source in enumerate(sources):
            wanted.setdefault(source.url, []).append((path, block))
    for url, group in _scanned([*wanted], storage_options):
        for path, block in wanted[url]:
            if path in found:
                one = found[path]
                check_identity(one.sources[block], _source_of(group, one.sources[block]))
                name, reason = _identifier(path, one.array, block, stored[path], group)
                one.identifiers[block] = name
                if reason:
                    reasons[path] = reason
                    del found[path]
    return found, reasons


def _scanned(
    urls: list[str], storage_options: Mapping[str, Any] | None
) -> Iterator[tuple[str, VirtualGroup]]:
    """The groups of files; what they hold beside does not matter."""
    options = ScanOptions(on_unsupported="skip", storage_options=storage_options)
    for url, outcome in outcomes(urls, options, RunOptions()):
        if isinstance(outcome, GridrefError):
            raise outcome
        yield url, outcome


def _source_of(group: VirtualGroup, recorded: Source) -> Source:
    """The file as it is now; as it was recorded where nothing of it is referenced any more."""
    manifests = (m for array in group.all_arrays().values() for m in array.manifests)
    held = (source for manifest in manifests for source in getattr(manifest, "sources", ()))
    return next((source for source in held if source.url == recorded.url), recorded)


def _why_not_whole(array: VirtualArray) -> str:
    """Why blocks are no whole variables of files, as far as the array itself tells."""
    blocks = array.blocks
    if (blocks.encoding == MISSING_BLOCK).any():
        return "no file holds some of its blocks"
    whole = (
        (blocks.origin == 0) & (blocks.step == 1) & (blocks.stored_shape == array.block_shapes())
    )
    return "" if whole.all() else "some blocks are parts of what their files hold, or repeat it"


@dataclass(frozen=True, eq=False)
class _StoredChunks:
    """The stored chunks of an array, block by block.

    Attributes
    ----------
    ends
        int64, one past the last chunk of each block.
    chunks
        All of them, block after block.
    """

    ends: Int64Array
    chunks: ChunkManifest

    @classmethod
    def of(cls, array: VirtualArray) -> _StoredChunks:
        """All chunks of an array without missing blocks."""
        listing = ChunkListing(array)
        listed = listing.rows(0, listing.n_rows)
        ends = np.searchsorted(listed.block, np.arange(array.n_blocks), side="right")
        return cls(ends, manifest_rows(listed))

    def of_block(self, block: int) -> ChunkManifest:
        """The chunks of a block."""
        start = int(self.ends[block - 1]) if block else 0
        return self.chunks.take(slice(start, int(self.ends[block])))

    def files(self) -> tuple[list[Source], str]:
        """The file of each block; or why there is not one."""
        found: list[Source] = []
        if (self.chunks.state == ChunkState.INLINE).any():
            return [], "its values are kept in the catalog, and not in files"
        for block in range(len(self.ends)):
            held = self.of_block(block)
            used = held.source[held.state == ChunkState.RANGE]
            urls = {held.sources[number].url for number in np.unique(used).tolist()}
            if len(urls) != 1:
                many = "several files hold parts" if urls else "no file holds a chunk"
                return [], f"{many} of a block"
            found.append(held.sources[int(used[0])])
        return found, ""


def _identifier(
    path: str, array: VirtualArray, block: int, stored: _StoredChunks, group: VirtualGroup
) -> tuple[str, str]:
    """Path of the variable in a file that a block shows; or why it shows none."""
    arrays = group.all_arrays()
    chunks = stored.of_block(block)
    shape = tuple(array.block_shapes()[block].tolist())
    encoding = array.encodings[array.blocks.encoding[block]]
    for name in [path, *(other for other in arrays if other != path)]:
        if name in arrays and _is_shown(arrays[name], shape, array.dims, encoding, chunks):
            return f"/{name}", _why_read_otherwise(arrays[name], array, encoding)
    source = chunks.sources[int(chunks.source[0])]
    return "", f"no variable of {shown_address(source.url)} is stored in the same form"


def _is_shown(
    held: VirtualArray,
    shape: tuple[int, ...],
    dims: tuple[str, ...],
    encoding: Encoding,
    chunks: ChunkManifest,
) -> bool:
    """Whether a block is a variable of its file, as it is stored."""
    try:
        part = as_part(held, shape, dims, "")
    except ScanError:
        return False
    if part.n_blocks != 1 or _why_not_whole(part):
        return False
    own = part.encodings[part.blocks.encoding[0]]
    if _bare(own) != _bare(encoding):
        return False
    stored = _StoredChunks.of(part).chunks
    columns = ("state", "offset", "length", "masks")
    return all(np.array_equal(getattr(stored, name), getattr(chunks, name)) for name in columns)


def _bare(encoding: Encoding) -> Encoding:
    return replace(encoding, fill=None, unpacking=None)


def _why_read_otherwise(held: VirtualArray, array: VirtualArray, encoding: Encoding) -> str:
    """Why a reader that unpacks the file's variable would get other values than the array's."""
    own, shown = Packing.of(held), encoding.unpacking
    if shown is None:
        packing = Packing.of(array)
        alike = (packing.scale, packing.offset) == (own.scale, own.offset)
    else:
        alike = (
            Packing(shown.scale, shown.offset, frozenset(shown.fill_values), shown.unsigned) == own
        )
    return "" if alike else "numbers are scaled otherwise than in files (units, times or packing)"
