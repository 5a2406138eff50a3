"""Arrays of datasets that are alike: taken over from the first one, but for where chunks lie.

Whatever else an array is follows from the form of its dataset's header and from its dimensions. The
indexes of all such arrays of a file are read and checked together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gridref.cache import LRU
from gridref.formats.hdf5.format.alike_bytes import but_for
from gridref.formats.hdf5.format.data_layout import (
    ChunkedLayout,
    ChunkIndexKind,
    ContiguousLayout,
    data_layout_of,
)
from gridref.formats.hdf5.format.header_forms import EXTERNAL_FILES, FILTERS, LAYOUT
from gridref.formats.hdf5.objects.files import OpenFile
from gridref.formats.hdf5.objects.tree import DatasetNode
from gridref.formats.hdf5.storage.chunk_index.btree_v1 import node_dtype
from gridref.formats.options import ScanOptions
from gridref.model.array import VirtualArray
from gridref.model.manifest import ChunkManifest, ChunkState

__all__ = ["NamedDataset", "alike_arrays", "remember_array"]

_WHAT = "a node of the chunk B-tree"
_MOST_CHUNKS = 1024
_KEPT_BYTES, _KEPT_LEAVES = 1 << 24, 4096


class NamedDataset(NamedTuple):
    """A dataset, and names and sizes of its dimensions."""

    node: DatasetNode
    dims: tuple[str, ...]
    sizes: tuple[int, ...]

    def key(self, options: ScanOptions) -> tuple[Any, ...]:
        """All that its array follows from, but where its chunks lie and its attributes."""
        return self.node.header.form, self.dims, self.sizes, options.max_chunk_bytes


@dataclass(frozen=True, eq=False)
class _Leaf:
    """A chunk B-tree that is one leaf, which lists all chunks of the grid, in order.

    Attributes
    ----------
    dtype
        All of the leaf that is used.
    is_compressed
        Whether sizes of chunks differ between files, too.
    said
        What else it says: where in the grid chunks lie, and that all filters were applied.
    """

    dtype: np.dtype[np.void]
    is_compressed: bool
    said: bytes = b""

    @cached_property
    def common(self) -> Callable[[bytes], bytes]:
        """Takes what it says but for addresses and sizes out of the bytes of such a leaf."""
        fields: Any = self.dtype.fields
        (entries, first), (key, end) = fields["entries"][:2], fields["end"][:2]
        names = ("length", "child") if self.is_compressed else ("child",)
        starts = range(first, end, entries.base.itemsize)
        places = [entries.base.fields[name][:2] for name in names]
        differing = [
            slice(start + at, start + at + dtype.itemsize)
            for start in starts
            for dtype, at in places
        ]
        n_unused = key.itemsize - key["origin"].itemsize  # size and filters of no chunk
        return but_for(self.dtype.itemsize, [*differing, slice(end, end + n_unused)])


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
    """An array with its chunks in the first file, and how those of its like are stored."""

    array: VirtualArray
    chunks: ChunkManifest
    stored: _Leaf | _Pieces


_arrays = LRU[_Known](
    _KEPT_BYTES, lambda known: 6000 + 100 * known.array.ndim + 60 * known.chunks.n_rows
)


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
        chunks = rows.with_sources(())
        known = _changed(array, manifests=(), attrs={})
        _arrays.put(dataset.key(options), _Known(known, chunks, stored))


def _stored(node: DatasetNode, rows: ChunkManifest) -> _Leaf | _Pieces | None:
    """How the chunks of a dataset are stored, if that is in a usual way."""
    file, form = node.file.bytes, node.header.form
    layout = data_layout_of(file, node.messages, node.header.address)
    address = _address(node)
    match layout:
        case ContiguousLayout(offset=int(offset)) if address + file.base_address == offset:
            return _Pieces(rows.offset - offset, rows.length)
        case ChunkedLayout(kind=ChunkIndexKind.BTREE_V1) if address == layout.index_address:
            dtype = node_dtype(file.offset_bytes, len(layout.chunk_shape), rows.n_rows)
            data = file.read(address, dtype.itemsize, _WHAT)
            (found,) = np.frombuffer(data, dtype)
            places = found["entries"]["child"].astype(np.int64) + file.base_address
            if found["n_entries"] == rows.n_rows and (places == rows.offset).all():
                leaf = _Leaf(dtype, FILTERS in form.kinds)
                return _shared_leaf(dtype, leaf.is_compressed, leaf.common(data))
    return None


_shared_leaf = lru_cache(_KEPT_LEAVES)(_Leaf)


def alike_arrays(
    file: OpenFile, datasets: Iterable[NamedDataset], options: ScanOptions
) -> dict[str, VirtualArray]:
    """Arrays of the datasets that are alike those of other files, by their paths.

    Others are not among them, nor those of which anything is as it should not be.
    """
    arrays: dict[str, VirtualArray] = {}
    leaves: dict[_Leaf, list[tuple[DatasetNode, _Known, bytes]]] = {}
    for dataset in datasets:
        node, known = dataset.node, _arrays.get(dataset.key(options))
        if known is None or node.file is not file:
            continue
        address, stored = _address(node), known.stored
        n_bytes = stored.dtype.itemsize if isinstance(stored, _Leaf) else stored.n_bytes
        if address + n_bytes > file.bytes.end_address:
            continue
        if isinstance(stored, _Leaf):
            data = file.bytes.read(address, n_bytes, _WHAT)
            if stored.common(data) == stored.said:
                leaves.setdefault(stored, []).append((node, known, data))
        else:
            start = stored.start + (address + file.bytes.base_address)
            arrays[node.path] = _filled(node, known, start, stored.length)
    for leaf, alike in leaves.items():
        nodes = np.frombuffer(b"".join([data for _, _, data in alike]), leaf.dtype)
        offset = nodes["entries"]["child"].astype(np.int64) + file.bytes.base_address
        length = nodes["entries"]["length"].astype(np.int64)
        are_chunks = _are_chunks(file, offset, length)
        for row, (node, known, _) in enumerate(alike):
            if are_chunks[row]:
                arrays[node.path] = _filled(node, known, offset[row], length[row])
    return arrays


def _filled(
    node: DatasetNode, known: _Known, offset: NDArray[np.int64], length: NDArray[np.int64]
) -> VirtualArray:
    """A known array with its chunks in the file of a dataset."""
    sources = (node.file.source,)
    manifest = _changed(known.chunks, sources=sources, offset=offset, length=length)
    return _changed(known.array, manifests=(manifest,), attrs=node.attributes.public)


def _changed[T](known: T, **changes: Any) -> T:
    """A copy with other values of the same kinds and sizes: they are not validated once more."""
    changed = object.__new__(type(known))
    vars(changed).update(vars(known), **changes)
    return changed


def _address(node: DatasetNode) -> int:
    """Where the data or the chunk index lies: the one part of the layout that differs."""
    return int.from_bytes(node.header.differing(*node.header.form.first[LAYOUT]), "little")


def _are_chunks(file: OpenFile, offset: NDArray[np.int64], length: NDArray[np.int64]) -> list[bool]:
    """Whether those of each row lie in the file one after the other."""
    end = file.bytes.end_address + file.bytes.base_address
    stop = offset + length
    # An offset within the file and 32 bits of a length do not overflow.
    inside = (offset >= file.bytes.base_address) & (offset < stop) & (stop <= end)
    inside[:, 1:] &= offset[:, 1:] >= stop[:, :-1]
    are_chunks: list[bool] = inside.all(axis=1).tolist()
    return are_chunks
