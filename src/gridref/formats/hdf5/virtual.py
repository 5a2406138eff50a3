"""Turn virtual datasets of HDF5 into blocks that point into the source files.

`read_mappings` takes the mapping block of a virtual dataset and returns, for each mapping, the
source file, the source dataset, and the selections in both. `dataset_extents` computes the size of
the virtual dataset from its sources. `virtual_blocks` takes the mappings and the scanned arrays of
the sources, and returns one array whose blocks refer directly to the stored chunks of the sources.

Source for selections: HDF5 File Format Specification v3, "Dataspace Selections" (H5S_SEL_NONE,
H5S_SEL_POINTS, H5S_SEL_HYPER versions 1 to 3, H5S_SEL_ALL).

Sources for mappings: HDF5 File Format Specification v3, III.E "Global Heap" and IV.A.2.i for the
block of mappings (version 1 was added by HDF5 2.0); "HDF5 Virtual Dataset", RFC-2014-05-10; HDF5
Reference Manual, H5Pset_virtual, H5Pset_virtual_view and H5Pset_virtual_printf_gap, with their
default values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import SourceFormatError, UnsupportedFeatureError, some_of
from gridref.formats.hdf5.bytes import CHECKSUM_BYTES, FieldCursor, lookup3
from gridref.formats.hdf5.files import Location, Nowhere, OpenFile, find_object, virtual_file
from gridref.formats.hdf5.headers import (
    DATASPACE,
    LAYOUT,
    Dataspace,
    ObjectHeader,
    VirtualLayout,
    data_layout_of,
    read_dataspace,
)
from gridref.limits import beyond, limits
from gridref.model.array import VirtualArray
from gridref.model.blocks import BlockTable
from gridref.model.encoding import Encoding
from gridref.model.grid import ChunkGrid
from gridref.model.indexing import isel, split_blocks
from gridref.model.joining import missing_array, recast
from gridref.model.manifest import Manifest
from gridref.model.reshaping import expand_dims, squeeze
from gridref.typing import Int64Array

# Selections of HDF5 dataspaces, axis by axis

UNLIMITED = (1 << 64) - 1
"""HDF5's mark of an endless count or block."""


_MAX_RANK = 32
_MAX_EXTENT = 1 << 62
_NONE, _POINTS, _HYPERSLAB, _ALL = range(4)
_REGULAR = 0x01


@dataclass(frozen=True)
class AxisHyperslab:
    """Equal runs of elements at equal distances along one axis.

    Attributes
    ----------
    start, stride
        First element of the first run, and distance between the first elements of runs.
    count, block
        Number of runs, and of elements in each; `UNLIMITED` for as many as there are.
    """

    start: int
    stride: int
    count: int
    block: int

    @property
    def is_unlimited(self) -> bool:
        """Whether it extends as far as the axis."""
        return UNLIMITED in (self.count, self.block)

    def extent_of(self, n_elements: int) -> int:
        """Extent of an axis in which it selects so many elements.

        The HDF5 library computes the size of a virtual dataset in this way.
        """
        if not n_elements:
            return 0
        if self.block in (UNLIMITED, self.stride):
            return self.start + n_elements
        count, rest = divmod(n_elements, self.block)
        if rest:
            return self.start + count * self.stride + rest
        return self.start + (count - 1) * self.stride + self.block

    def n_elements(self, extent: int) -> int:
        """The number of elements that it selects in an axis of `extent`."""
        inside = extent - self.start
        if inside <= 0:
            return 0
        if self.block == UNLIMITED:
            return inside
        count, rest = divmod(inside, self.stride)
        if self.count != UNLIMITED and count >= self.count:
            return self.count * self.block
        return count * self.block + min(rest, self.block)

    def run(self, number: int) -> AxisHyperslab:
        return AxisHyperslab(self.start + number * self.stride, 1, 1, self.block)

    def runs(self, extent: int) -> tuple[Int64Array, Int64Array]:
        """First element and length of each run inside an axis, joined where they touch."""
        if self.start >= extent or 0 in (self.count, self.block):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        if self.block == UNLIMITED:
            return np.array([self.start]), np.array([extent - self.start])
        if self.count == 1 or self.stride == self.block:
            length = extent - self.start
            if self.count != UNLIMITED:
                length = min(length, self.count * self.block)
            return np.array([self.start]), np.array([length])
        count = -(-(extent - self.start) // self.stride)
        if self.count != UNLIMITED:
            count = min(count, self.count)
        if count > limits().mapping_pieces:
            what = f"a mapping of a virtual dataset has {count} pieces"
            raise UnsupportedFeatureError(beyond("mapping_pieces", what))
        starts = self.start + self.stride * np.arange(count, dtype=np.int64)
        return starts, np.minimum(self.block, extent - starts)


@dataclass(frozen=True)
class Selection:
    """A selection of elements of a dataspace.

    Attributes
    ----------
    is_all
        Whether it selects all elements, however many these are.
    slabs
        The elements along each axis; None for a list of points or an irregular union, which are
        not hyperslabs.
    """

    is_all: bool = False
    slabs: tuple[AxisHyperslab, ...] | None = None

    def axes(self, extents: tuple[int, ...]) -> tuple[AxisHyperslab, ...]:
        """The selection as one hyperslab an axis of a dataspace."""
        if self.is_all:
            return tuple(AxisHyperslab(0, 1, 1, extent) for extent in extents)
        if self.slabs is None:
            raise UnsupportedFeatureError(
                "a virtual dataset maps an irregular selection or a list of points"
            )
        return self.slabs or tuple(AxisHyperslab(0, 1, 0, 0) for _ in extents)

    @property
    def unlimited_axis(self) -> int | None:
        """The axis along which it is endless, if there is one."""
        for axis, slab in enumerate(self.slabs or ()):
            if slab.is_unlimited:
                return axis
        return None


def _read_selection(cursor: FieldCursor) -> Selection:
    kind, version = cursor.take(4), cursor.take(4)
    if kind in (_NONE, _ALL) and version == 1:
        cursor.take_bytes(8)
        return Selection(is_all=kind == _ALL, slabs=())
    if kind == _POINTS and version in (1, 2):
        _skip_points(cursor, version)
        return Selection()
    if kind == _HYPERSLAB and version == 1:
        cursor.take_bytes(8)
        return Selection(slabs=_regular(_blocks(cursor, cursor.take(4), 4)))
    if kind == _HYPERSLAB and version in (2, 3):
        flags = cursor.take(1)
        width = cursor.take(1) if version == 3 else 8
        cursor.take_bytes(4 if version == 2 else 0)
        if width not in (2, 4, 8):
            raise cursor.error(f"has a selection with numbers of {width} bytes")
        rank = cursor.take(4)
        if flags & _REGULAR:
            return Selection(slabs=_hyperslab(cursor, rank, width))
        return Selection(slabs=_regular(_blocks(cursor, rank, width)))
    raise UnsupportedFeatureError(
        f"a virtual dataset maps a selection of the unknown kind {kind}, version {version}"
    )


def _skip_points(cursor: FieldCursor, version: int) -> None:
    width = cursor.take(1) if version == 2 else 4
    cursor.take_bytes(8 if version == 1 else 0)
    rank = cursor.take(4)
    n_points = cursor.take(width)
    cursor.take_bytes(n_points * rank * width)


def _hyperslab(cursor: FieldCursor, rank: int, width: int) -> tuple[AxisHyperslab, ...]:
    _check_rank(cursor, rank)
    endless = (1 << 8 * width) - 1
    slabs = []
    for _ in range(rank):
        start, stride, count, block = (cursor.take(width) for _ in range(4))
        count, block = (UNLIMITED if number == endless else number for number in (count, block))
        slab = AxisHyperslab(start, stride, count, block)
        largest = max(n for n in (start, stride, count, block) if n != UNLIMITED)
        if largest > _MAX_EXTENT or (count > 1 and stride < max(1, min(block, _MAX_EXTENT))):
            raise cursor.error(f"has the impossible selection {slab}")
        slabs.append(slab)
    if sum(slab.is_unlimited for slab in slabs) > 1:
        raise cursor.error("has a selection that is endless along two axes")
    return tuple(slabs)


def _check_rank(cursor: FieldCursor, rank: int) -> None:
    if not 0 < rank <= _MAX_RANK:
        raise cursor.error(f"has a selection of {rank} dimensions")


def _blocks(cursor: FieldCursor, rank: int, width: int) -> Int64Array:
    """First and last elements of the blocks of a hyperslab selection, as (n, 2, rank)."""
    _check_rank(cursor, rank)
    n_blocks = cursor.take(width)
    raw = cursor.take_bytes(n_blocks * 2 * rank * width)
    blocks = np.frombuffer(raw, f"<u{width}").reshape(n_blocks, 2, rank)
    if not n_blocks or int(blocks.max()) > _MAX_EXTENT or (blocks[:, 0] > blocks[:, 1]).any():
        raise cursor.error("has a selection of impossible blocks")
    return blocks.astype(np.int64)


def _regular(blocks: Int64Array) -> tuple[AxisHyperslab, ...] | None:
    """The blocks as one hyperslab; None if they are not."""
    n_blocks, _, rank = blocks.shape
    slabs = []
    n_expected = 1
    for axis in range(rank):
        starts, lengths = blocks[:, 0, axis], blocks[:, 1, axis] - blocks[:, 0, axis] + 1
        unique = np.unique(starts)
        strides = np.unique(np.diff(unique))
        block = int(lengths[0])
        if (lengths != block).any() or len(strides) > 1 or (strides < block).any():
            return None
        stride = int(strides[0]) if len(strides) else 1
        slabs.append(AxisHyperslab(int(unique[0]), stride, len(unique), block))
        n_expected *= len(unique)
    if n_blocks != n_expected or len(np.unique(blocks[:, 0], axis=0)) != n_blocks:
        return None
    return tuple(slabs)


# Mappings of a virtual dataset, and the size that follows from them

_VIRTUAL_LAYOUT = b"\3"
_SHARED_FILE, _SHARED_NAME, _SAME_FILE = 0x01, 0x02, 0x04


@dataclass(frozen=True)
class Mapping:
    """One mapping: elements of a source dataset, and their place in the virtual dataset.

    Attributes
    ----------
    file_name, dataset_name
        The source; `.` is the file of the virtual dataset.
    """

    file_name: str
    dataset_name: str
    source: Selection
    virtual: Selection

    @property
    def is_numbered(self) -> bool:
        """Whether its names are patterns for many names, one for each block."""
        return any("%b" in name.replace("%%", "") for name in (self.file_name, self.dataset_name))

    @property
    def plain(self) -> Mapping:
        """The mapping with its patterns replaced by names."""
        return replace(
            self,
            file_name=self.file_name.replace("%%", "%"),
            dataset_name=self.dataset_name.replace("%%", "%"),
        )

    def numbered(self) -> Iterator[Mapping]:
        """One mapping for each block of numbered names."""
        axis, slabs = self.virtual.unlimited_axis, self.virtual.slabs
        if axis is None or slabs is None:
            raise UnsupportedFeatureError("a numbered mapping has not one endless dimension")
        for number in range(limits().mapping_pieces + 1):  # the last one is to be missing
            block = (*slabs[:axis], slabs[axis].run(number), *slabs[axis + 1 :])
            yield Mapping(
                _numbered(self.file_name, number),
                _numbered(self.dataset_name, number),
                self.source,
                Selection(slabs=block),
            )
        what = "a mapping of a virtual dataset names more numbered files"
        raise UnsupportedFeatureError(beyond("mapping_pieces", what))


def _numbered(name: str, number: int) -> str:
    return "%".join(part.replace("%b", str(number)) for part in name.split("%%"))


def read_mappings(file: OpenFile, layout: VirtualLayout) -> tuple[Mapping, ...]:
    """The mappings of a virtual dataset."""
    if layout.heap_address is None:
        return ()
    block = file.heap.object(layout.heap_address, layout.heap_index)
    place = file.bytes.place(layout.heap_address)
    body, stored = block[:-CHECKSUM_BYTES], block[-CHECKSUM_BYTES:]
    cursor = FieldCursor(body, "the block of mappings", place)
    version, n_mappings = cursor.take(1), cursor.take(file.bytes.length_bytes)
    if version not in (0, 1):
        raise UnsupportedFeatureError(
            f"the mappings of a virtual dataset have the unknown version {version}", place
        )
    if lookup3(body) != int.from_bytes(stored, "little"):
        raise cursor.error("has a wrong checksum")
    mappings: list[Mapping] = []
    for _ in range(n_mappings):
        flags = cursor.take(1) if version else 0
        mappings.append(_mapping(cursor, flags, mappings, file.bytes.length_bytes))
    return tuple(mappings)


def _mapping(cursor: FieldCursor, flags: int, earlier: list[Mapping], width: int) -> Mapping:
    if flags & ~(_SHARED_FILE | _SHARED_NAME | _SAME_FILE):
        raise UnsupportedFeatureError(
            f"a mapping of a virtual dataset has the unknown flags {flags:#x}", cursor.place
        )
    if flags & _SAME_FILE:
        file_name = "."
    elif flags & _SHARED_FILE:
        file_name = _earlier(cursor, earlier, width).file_name
    else:
        file_name = _name(cursor)
    shared = flags & _SHARED_NAME
    name = _earlier(cursor, earlier, width).dataset_name if shared else _name(cursor)
    return Mapping(file_name, name, _read_selection(cursor), _read_selection(cursor))


def _earlier(cursor: FieldCursor, earlier: list[Mapping], width: int) -> Mapping:
    number = cursor.take(width)
    if number >= len(earlier):
        raise cursor.error(f"refers to mapping {number} before it is there")
    return earlier[number]


def _name(cursor: FieldCursor) -> str:
    end = cursor.data.find(b"\0", cursor.position)
    if end < 0:
        raise cursor.error("has a name without an end")
    return cursor.take_bytes(end + 1 - cursor.position)[:-1].decode("utf-8", "surrogateescape")


def _find_source(file: OpenFile, mapping: Mapping) -> Location | None:
    """The source dataset of a mapping; None if it, or its file, does not exist."""
    if mapping.file_name != ".":
        source = virtual_file(file.source.url, mapping.file_name, file.options, file.policy)
        if source is None:
            return None
        file = file.linked(source.url)
    target = find_object(file, mapping.dataset_name.encode("utf-8", "surrogateescape"))
    return None if isinstance(target, Nowhere) else target


def dataset_extents(file: OpenFile, header: ObjectHeader) -> Dataspace:
    """Extents of a dataset; for a virtual one, they follow from its sources."""
    space = _stored_extents(file, header)
    if not space.shape or not _is_virtual(header):
        return space
    layout = data_layout_of(file.bytes, header.messages, header.address)
    mappings = read_mappings(file, layout) if isinstance(layout, VirtualLayout) else ()
    return replace(space, shape=_grown(file, space.shape, mappings))


def _stored_extents(file: OpenFile, header: ObjectHeader) -> Dataspace:
    message = header.first(DATASPACE)
    if message is None:
        raise SourceFormatError("the dataset has no dataspace", file.bytes.place(header.address))
    return read_dataspace(file.shared.resolved(message).data, file.bytes.length_bytes)


def _is_virtual(header: ObjectHeader) -> bool:
    message = header.first(LAYOUT)
    return message is not None and message.data[1:2] == _VIRTUAL_LAYOUT


def _grown(
    file: OpenFile, shape: tuple[int, ...], mappings: tuple[Mapping, ...]
) -> tuple[int, ...]:
    """Extents up to the last available element of endless mappings, as HDF5 computes them."""
    grown: dict[int, int] = {}
    least = [0] * len(shape)
    for mapping in mappings:
        slabs = mapping.virtual.slabs
        if slabs is None:
            return shape  # it is refused later
        endless = mapping.virtual.unlimited_axis
        for axis, slab in enumerate(slabs[: len(shape)]):
            if axis != endless:
                least[axis] = max(least[axis], slab.extent_of(slab.count * slab.block))
        if endless is not None and endless < len(shape):
            if mapping.is_numbered:
                extent = _numbered_extent(file, mapping, slabs[endless])
            else:
                extent = _endless_extent(file, mapping.plain, slabs[endless])
            grown[endless] = max(grown.get(endless, 0), extent)
    return tuple(
        max(grown[axis], least[axis]) if axis in grown else extent
        for axis, extent in enumerate(shape)
    )


def _numbered_extent(file: OpenFile, mapping: Mapping, slab: AxisHyperslab) -> int:
    extent = 0
    for number, block in enumerate(mapping.numbered()):
        if _find_source(file, block) is None:
            break
        extent = slab.run(number).extent_of(slab.block)
    return extent


def _endless_extent(file: OpenFile, mapping: Mapping, slab: AxisHyperslab) -> int:
    source, axis = _find_source(file, mapping), mapping.source.unlimited_axis
    if source is None:
        return 0
    # HDF5 takes the extents of a source as they are stored, even if it is virtual itself.
    shape = _stored_extents(source.file, source.file.header(source.address)).shape
    if axis is None or mapping.source.slabs is None or shape is None or axis >= len(shape):
        raise UnsupportedFeatureError(
            "an endless mapping of a virtual dataset has a source without an endless dimension"
        )
    return slab.extent_of(mapping.source.slabs[axis].n_elements(shape[axis]))


# Blocks of the virtual dataset


@dataclass(frozen=True)
class _Tile:
    """A source array, and the runs of virtual elements that it covers along each axis."""

    array: VirtualArray
    runs: tuple[tuple[Int64Array, Int64Array], ...]

    def to_virtual(self, axis: int, elements: Int64Array) -> Int64Array:
        """Virtual elements of elements of the array."""
        starts, lengths = self.runs[axis]
        before = np.cumsum(lengths) - lengths
        run = np.searchsorted(before, elements, side="right") - 1
        return starts[run] + elements - before[run]

    def cuts(self, axis: int, edges: Int64Array) -> Int64Array:
        """Elements of the array at which the virtual dataset has an edge or another run begins."""
        starts, lengths = self.runs[axis]
        before = np.cumsum(lengths) - lengths
        first = np.searchsorted(edges, starts)
        last = np.searchsorted(edges, starts + lengths)
        inside = [
            edges[low:high] - start + offset
            for low, high, start, offset in zip(first, last, starts, before, strict=True)
        ]
        return np.unique(np.concatenate([before, *inside]))

    def block_starts(self, axis: int) -> Int64Array:
        """First virtual element of each block of the array."""
        grid_axis = self.array.grid.axes[axis]
        return self.to_virtual(axis, grid_axis.starts(np.arange(grid_axis.n_chunks)))

    def split(self, edges: list[Int64Array]) -> _Tile:
        """The tile with its blocks cut at the edges of the virtual dataset's grid."""
        array = self.array
        for axis, axis_edges in enumerate(edges):
            array = split_blocks(array, axis, self.cuts(axis, axis_edges))
        return replace(self, array=array)


def virtual_blocks(
    file: OpenFile,
    layout: VirtualLayout,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    fill_value: Any,
    scan_source: Callable[[Location, str], VirtualArray],
) -> tuple[VirtualArray, str]:
    """Flatten a virtual dataset.

    Parameters
    ----------
    shape
        Shape of the dataset, which follows from its sources.
    dtype, fill_value
        Of the result.
    scan_source
        Makes an array from a source dataset, by its place and its path.

    Returns
    -------
    tuple
        The array, and a note about sources that do not exist: they read as the fill value.
    """
    absent: list[str] = []
    tiles = []
    for mapping, target in _sources(file, layout, shape):
        if target is None:
            absent.append(f"{mapping.file_name}:{mapping.dataset_name}")
            continue
        source = scan_source(target, "/" + mapping.dataset_name.strip("/"))
        array = recast(_same_kind(source, dtype), dtype, fill_value)
        tile = _tile(array, mapping, shape)
        if tile is not None:
            tiles.append(tile)
    note = f"sources that do not exist read as fill value: {some_of(absent, 5)}"
    return _assemble(shape, dtype, fill_value, tiles), note if absent else ""


def _same_kind(array: VirtualArray, dtype: np.dtype[Any]) -> VirtualArray:
    if array.dtype != dtype and not (
        array.dtype.kind in "iuf" and dtype.kind in "iuf" and np.can_cast(array.dtype, dtype)
    ):
        raise UnsupportedFeatureError(
            f"a source of the virtual dataset holds {array.dtype}, which HDF5 converts to {dtype}"
        )
    return array


def _sources(
    file: OpenFile, layout: VirtualLayout, shape: tuple[int, ...]
) -> Iterator[tuple[Mapping, Location | None]]:
    """All mappings, each with one source; numbered ones end at the first gap, as in HDF5."""
    for mapping in read_mappings(file, layout):
        if not mapping.is_numbered:
            yield mapping.plain, _find_source(file, mapping.plain)
            continue
        for block in mapping.numbered():
            slabs = block.virtual.axes(shape)
            if any(slab.start >= n for slab, n in zip(slabs, shape, strict=True)):
                break
            source = _find_source(file, block)
            yield block, source
            if source is None:
                break


def _tile(array: VirtualArray, mapping: Mapping, shape: tuple[int, ...]) -> _Tile | None:
    """The elements that a mapping covers: the shorter selection along an endless dimension."""
    slabs, virtual = mapping.source.axes(array.shape), mapping.virtual.axes(shape)
    if len(virtual) != len(shape):
        raise SourceFormatError("a mapping of the virtual dataset has another rank than it has")
    if len(slabs) != array.ndim:
        raise UnsupportedFeatureError(
            "a source of the virtual dataset has another rank than mapped"
        )
    window = isel(
        array,
        {
            axis: _elements(slab, n)
            for axis, (slab, n) in enumerate(zip(slabs, array.shape, strict=True))
        },
    )
    runs = [slab.runs(extent) for slab, extent in zip(virtual, shape, strict=True)]
    counts = tuple(int(lengths.sum()) for _, lengths in runs)
    if 0 in counts or 0 in window.shape:
        return None
    window = _reshaped(window, counts, virtual)
    lengths = [min(n, extent) for n, extent in zip(counts, window.shape, strict=True)]
    window = isel(window, {axis: slice(0, n) for axis, n in enumerate(lengths)})
    return _Tile(window, tuple(_shortened(*run, n) for run, n in zip(runs, lengths, strict=True)))


def _elements(slab: AxisHyperslab, extent: int) -> slice | Int64Array:
    """The elements that a hyperslab selects along an axis of the source."""
    if slab.block == 1 and slab.count > 1:
        stop = extent
        if slab.count < 1 << 62:
            stop = min(extent, slab.start + slab.stride * (slab.count - 1) + 1)
        return slice(min(slab.start, extent), stop, slab.stride)
    starts, lengths = slab.runs(extent)
    if len(starts) == 1:
        return slice(int(starts[0]), int(starts[0] + lengths[0]))
    parts = [np.arange(start, start + n) for start, n in zip(starts, lengths, strict=True)]
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _reshaped(
    window: VirtualArray, counts: tuple[int, ...], virtual: tuple[AxisHyperslab, ...]
) -> VirtualArray:
    """The source's selection with axes of extent 1 dropped or added as the mapping has them."""

    def fits(extents: tuple[int, ...]) -> bool:
        return len(extents) == len(counts) and all(
            extent == n or slab.is_unlimited
            for extent, n, slab in zip(extents, counts, virtual, strict=True)
        )

    if fits(window.shape):
        return window
    window = squeeze(window, [axis for axis, extent in enumerate(window.shape) if extent == 1])
    for axis, n in enumerate(counts):
        if n == 1 and window.ndim < len(counts):
            window = expand_dims(window, axis, f"virtual_axis_{axis}")
    if not fits(window.shape):
        raise UnsupportedFeatureError(
            f"a mapping of the virtual dataset changes the shape {window.shape} to {counts}"
        )
    return window


def _shortened(
    starts: Int64Array, lengths: Int64Array, n_elements: int
) -> tuple[Int64Array, Int64Array]:
    """Runs cut to so many elements in all."""
    before = np.cumsum(lengths) - lengths
    kept = before < n_elements
    return starts[kept], np.minimum(lengths[kept], n_elements - before[kept])


def _assemble(
    shape: tuple[int, ...], dtype: np.dtype[Any], fill_value: Any, tiles: list[_Tile]
) -> VirtualArray:
    """Lay the tiles on the common refinement of their grids."""
    ndim = len(shape)
    names = [f"axis_{axis}" for axis in range(ndim)]
    if not tiles or 0 in shape:
        return missing_array(shape, dtype, dims=names, fill_value=fill_value)
    edges = []
    for axis in range(ndim):
        bounds = [np.array([0])]
        for tile in tiles:
            starts, lengths = tile.runs[axis]
            bounds += [tile.block_starts(axis), starts, starts + lengths]
        unique = np.unique(np.concatenate(bounds))
        edges.append(unique[unique < shape[axis]])
    n_blocks = math.prod(len(axis_edges) for axis_edges in edges)
    if n_blocks > limits().virtual_blocks:
        what = f"the virtual dataset falls into {n_blocks} blocks"
        raise UnsupportedFeatureError(beyond("virtual_blocks", what))
    grid = ChunkGrid.from_edges(
        np.diff(axis_edges, append=n) for axis_edges, n in zip(edges, shape, strict=True)
    )
    encodings: dict[Encoding, int] = {}
    manifests: list[Manifest] = []
    columns = {k: v.copy() for k, v in vars(BlockTable.missing(grid.n_chunks, ndim)).items()}
    taken = np.zeros(grid.n_chunks, bool)
    for tile in tiles:
        cut = tile.split(edges)
        coords = [np.searchsorted(edges[axis], cut.block_starts(axis)) for axis in range(ndim)]
        rows = np.ravel_multi_index(np.ix_(*coords), grid.grid_shape).reshape(-1)
        if taken[rows].any():
            raise UnsupportedFeatureError("mappings of the virtual dataset overlap")
        taken[rows] = True
        _put(columns, rows, cut.array, encodings, manifests)
    return VirtualArray(
        grid,
        dtype,
        fill_value,
        tuple(names),
        {},
        tuple(encodings),
        tuple(manifests),
        BlockTable(**columns),
    )


def _put(
    columns: dict[str, NDArray[Any]],
    rows: Int64Array,
    array: VirtualArray,
    encodings: dict[Encoding, int],
    manifests: list[Manifest],
) -> None:
    """Write the blocks of an array into rows of the table."""
    ids = [encodings.setdefault(encoding, len(encodings)) for encoding in array.encodings]
    first_manifest = len(manifests)
    manifests.extend(array.manifests)
    blocks = array.blocks
    for name, column in vars(blocks).items():
        columns[name][rows] = column
    # A missing block has -1, which here is the last entry.
    columns["encoding"][rows] = np.array([*ids, -1], np.int32)[blocks.encoding]
    columns["manifest"][rows] = blocks.manifest + first_manifest
