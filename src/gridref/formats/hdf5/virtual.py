"""Turn virtual datasets of HDF5 into blocks that point into the source files.

`virtual_blocks` takes the mappings of a virtual dataset and the scanned arrays of its sources, and
returns one array whose blocks refer directly to the stored chunks of the sources.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.files import Location
from gridref.formats.hdf5.mappings import AxisHyperslab, Mapping, find_source, read_mappings
from gridref.formats.hdf5.messages import VirtualLayout
from gridref.formats.hdf5.tree import DatasetNode, dataset_node
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
    dataset: DatasetNode,
    layout: VirtualLayout,
    dtype: np.dtype[Any],
    fill_value: Any,
    scan_source: Callable[[DatasetNode], VirtualArray],
) -> tuple[VirtualArray, str]:
    """Flatten a virtual dataset.

    Parameters
    ----------
    dataset
        The dataset; its shape follows from its sources.
    dtype, fill_value
        Of the result.
    scan_source
        Makes an array from a source dataset.

    Returns
    -------
    tuple
        The array, and a note about sources that do not exist: they read as the fill value.

    Raises
    ------
    SourceFormatError
        If the mappings or a source are corrupt.
    UnsupportedFeatureError
        For mappings that are not blocks: points, irregular selections, changes of shape.
    """
    shape = dataset.shape or ()
    absent: list[str] = []
    tiles = []
    for mapping, target in _sources(dataset, layout, shape):
        if target is None:
            absent.append(f"{mapping.file_name}:{mapping.dataset_name}")
            continue
        path = "/" + mapping.dataset_name.strip("/")
        source = dataset_node(target, path.rsplit("/", 1)[-1], path)
        array = recast(_same_kind(scan_source(source), dtype), dtype, fill_value)
        tile = _tile(array, mapping, shape)
        if tile is not None:
            tiles.append(tile)
    note = f"sources that do not exist read as fill value: {', '.join(absent[:5])}"
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
    dataset: DatasetNode, layout: VirtualLayout, shape: tuple[int, ...]
) -> Iterator[tuple[Mapping, Location | None]]:
    """All mappings, each with one source; numbered ones end at the first gap, as in HDF5."""
    for mapping in read_mappings(dataset.file, layout):
        if not mapping.is_numbered:
            yield mapping.plain, find_source(dataset.file, mapping.plain)
            continue
        for block in mapping.numbered():
            slabs = block.virtual.axes(shape)
            if any(slab.start >= n for slab, n in zip(slabs, shape, strict=True)):
                break
            source = find_source(dataset.file, block)
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
