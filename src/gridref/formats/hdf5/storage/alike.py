"""Arrays of datasets that are alike: taken over from the first one, but for where chunks lie.

Whatever else an array is follows from the form of its dataset's header and from its dimensions. The
indexes of all such arrays of a file are read and checked together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gridref.cache import LRU
from gridref.errors import ScanError
from gridref.formats.hdf5.format.data_layout import (
    ChunkedLayout,
    ChunkIndexKind,
    ContiguousLayout,
    data_layout_of,
)
from gridref.formats.hdf5.format.header_forms import EXTERNAL_FILES, FILTERS, LAYOUT
from gridref.formats.hdf5.objects.files import OpenFile
from gridref.formats.hdf5.objects.tree import DatasetNode
from gridref.formats.hdf5.storage.chunk_index.btree_v1 import LEAF_HEAD, node_dtype
from gridref.formats.options import ScanOptions
from gridref.model.array import VirtualArray
from gridref.model.manifest import ChunkManifest, ChunkState

__all__ = ["NamedDataset", "alike_arrays", "remember_array"]

_WHAT = "a node of the chunk B-tree"
_MOST_CHUNKS = 1024
_KEPT_BYTES = 1 << 24


class NamedDataset(NamedTuple):
    """A dataset, and names and sizes of its dimensions."""

    node: DatasetNode
    dims: tuple[str, ...]
    sizes: tuple[int, ...]

    def key(self, options: ScanOptions) -> tuple[Any, ...]:
        """All that its array follows from, but where its chunks lie and its attributes."""
        return self.node.header.form, self.dims, self.sizes, options.max_chunk_bytes


@dataclass(frozen=True)
class _Leaf:
    """A chunk B-tree that is one leaf, which lists all chunks of the grid, in order.

    Attributes
    ----------
    n_chunks, rank
        Number of chunks and of dimensions.
    offset_bytes
        Width of an address.
    chunk_bytes
        Size of all chunks; None where they are compressed.
    origins
        What its keys say about where in the grid chunks lie.
    """

    n_chunks: int
    rank: int
    offset_bytes: int
    chunk_bytes: int | None
    origins: bytes = b""

    @cached_property
    def dtype(self) -> np.dtype[np.void]:
        """All of the leaf that is used."""
        return node_dtype(self.offset_bytes, self.rank, self.n_chunks)

    @cached_property
    def head(self) -> bytes:
        """What it begins with."""
        return LEAF_HEAD + self.n_chunks.to_bytes(2, "little")

    @cached_property
    def known_origins(self) -> NDArray[np.uint64]:
        """(n_chunks + 1, rank + 1), as numbers."""
        return np.frombuffer(self.origins, "<u8").reshape(-1, self.rank + 1)


@dataclass(frozen=True, eq=False)
class _Pieces:
    """Contiguous data: first byte and size of each of its pieces, from its beginning on."""

    start: NDArray[np.int64]
    length: NDArray[np.int64]

    @cached_property
    def n_bytes(self) -> int:
        """Size of all pieces together."""
        return int((self.start + self.length).max(initial=0))


class _Known(NamedTuple):
    """An array without chunks, and how those of its like are stored."""

    array: VirtualArray
    stored: _Leaf | _Pieces


_arrays = LRU[_Known](
    _KEPT_BYTES, lambda known: 6000 + 100 * known.array.ndim + 40 * _n_rows(known.stored)
)


def _n_rows(stored: _Leaf | _Pieces) -> int:
    return stored.n_chunks if isinstance(stored, _Leaf) else len(stored.start)


def remember_array(dataset: NamedDataset, array: VirtualArray, options: ScanOptions) -> None:
    """Remember an array for those of datasets that are alike, if it is of a usual kind."""
    if array.enumeration is not None or array.n_blocks != 1 or len(array.manifests) != 1:
        return
    node, rows = dataset.node, array.manifests[0]
    form = node.header.form
    is_usual = form.is_plain and EXTERNAL_FILES not in form.kinds and node.file.number == 0
    if not (is_usual and isinstance(rows, ChunkManifest) and rows.n_rows <= _MOST_CHUNKS):
        return
    if array.attrs is not node.attributes.public or array.dims != dataset.dims:
        return
    if rows.has_filter_masks or (rows.state != ChunkState.RANGE).any():
        return
    stored = _stored(node, rows)
    if stored is not None:
        empty = _of_other_chunks(array, ChunkManifest.missing(0), {})
        _arrays.put(dataset.key(options), _Known(empty, stored))


def _stored(node: DatasetNode, rows: ChunkManifest) -> _Leaf | _Pieces | None:
    """How the chunks of a dataset are stored, if that is in a usual way."""
    file, form = node.file.bytes, node.header.form
    layout = data_layout_of(file, node.messages, node.header.address)
    address = _address(node)
    match layout:
        case ContiguousLayout(offset=int(offset)) if address + file.base_address == offset:
            return _Pieces(rows.offset - offset, rows.length)
        case ChunkedLayout(kind=ChunkIndexKind.BTREE_V1) if address == layout.index_address:
            n_bytes = None if FILTERS in form.kinds else layout.chunk_bytes
            rank = len(layout.chunk_shape)
            leaf = _Leaf(rows.n_rows, rank, file.offset_bytes, n_bytes)
            nodes = np.frombuffer(file.read(address, leaf.dtype.itemsize, _WHAT), leaf.dtype)
            return replace(leaf, origins=_origins(nodes).tobytes())
    return None


def alike_arrays(
    file: OpenFile, datasets: Iterable[NamedDataset], options: ScanOptions
) -> dict[str, VirtualArray]:
    """Arrays of the datasets that are alike those of other files, by their paths.

    Others are not among them, nor those of which anything is as it should not be.
    """
    arrays: dict[str, VirtualArray] = {}
    leaves: dict[_Leaf, list[tuple[DatasetNode, VirtualArray]]] = {}
    for dataset in datasets:
        known = _arrays.get(dataset.key(options))
        if known is None or dataset.node.file is not file:
            continue
        node, (array, stored) = dataset.node, known
        if _address(node) == file.bytes.undefined_address:
            continue
        if isinstance(stored, _Leaf):
            leaves.setdefault(stored, []).append((node, array))
            continue
        manifest = _of_pieces(file, _address(node), stored)
        if manifest is not None:
            arrays[node.path] = _of_other_chunks(array, manifest, node.attributes.public)
    for leaf, alike in leaves.items():
        manifests = _of_leaves(file, [_address(node) for node, _ in alike], leaf)
        for (node, array), manifest in zip(alike, manifests, strict=False):
            arrays[node.path] = _of_other_chunks(array, manifest, node.attributes.public)
    return arrays


def _of_other_chunks(
    array: VirtualArray, manifest: ChunkManifest, attrs: Mapping[str, Any]
) -> VirtualArray:
    """The like of an array in another file; what was validated is not validated once more."""
    alike = object.__new__(VirtualArray)
    vars(alike).update(vars(array), manifests=(manifest,), attrs=attrs)
    return alike


def _address(node: DatasetNode) -> int:
    """Where the data or the chunk index lies: the one part of the layout that differs."""
    return int.from_bytes(node.header.differing(*node.header.form.first[LAYOUT]), "little")


def _of_pieces(file: OpenFile, address: int, pieces: _Pieces) -> ChunkManifest | None:
    start = pieces.start + (address + file.bytes.base_address)
    if address + pieces.n_bytes > file.bytes.end_address:
        return None
    return ChunkManifest.from_columns([file.source], offset=start, length=pieces.length)


def _of_leaves(file: OpenFile, addresses: list[int], leaf: _Leaf) -> list[ChunkManifest]:
    """The chunks of all leaves that are alike; none if anything is not as it should be."""
    try:
        data = [file.bytes.read(address, leaf.dtype.itemsize, _WHAT) for address in addresses]
    except ScanError:
        return []
    nodes = np.frombuffer(b"".join(data), leaf.dtype)
    entries = nodes["entries"]
    offset = entries["child"].astype(np.int64) + file.bytes.base_address
    length = entries["length"].astype(np.int64)
    as_known = (
        all(node.startswith(leaf.head) for node in data)
        and bool((_origins(nodes) == leaf.known_origins).all())
        and _are_chunks(file, offset, length)
        and (not entries["filter_mask"].any() if leaf.chunk_bytes is None else True)
        and (leaf.chunk_bytes is None or bool((length == leaf.chunk_bytes).all()))
    )
    if not as_known:
        return []
    sources = (file.source,)
    return [
        ChunkManifest.from_columns(sources, offset=offset[row], length=length[row])
        for row in range(len(data))
    ]


def _origins(nodes: NDArray[np.void]) -> NDArray[np.uint64]:
    """(n, n_chunks + 1, rank + 1) where in the grid chunks of leaves lie, and what is behind."""
    return np.concatenate([nodes["entries"]["origin"], nodes["end"]["origin"][:, None]], axis=1)


def _are_chunks(file: OpenFile, offset: NDArray[np.int64], length: NDArray[np.int64]) -> bool:
    """Whether those of each row lie in the file one after the other."""
    end = file.bytes.end_address + file.bytes.base_address
    stop = offset + length
    return bool(
        length.all()
        and offset.min() >= file.bytes.base_address
        and offset.max() <= end  # no sum has overflowed
        and stop.max() <= end
        and (offset[:, 1:] >= stop[:, :-1]).all()
    )
