"""Virtual arrays: an outer grid of blocks over stored chunks in files.

A `VirtualArray` has a dtype, a grid, attributes and a table of blocks. A `VirtualGroup` holds
arrays and groups by name.

A block shows a window of one stored array: element ``i`` of the block along an axis is the stored
element ``origin + step * i``. The stored array is a regular grid of stored chunks of the block's
`Encoding`; stored chunk ``k`` (chunk coords) is row ``first_row + sum(k * row_stride)`` of the
block's manifest. Windows, flips, broadcast axes (step 0) and transpositions all are arithmetic on
these few numbers for each block, so concatenating and slicing never walk chunk rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError, number_of
from gridref.model.blocks import MISSING_BLOCK, AxisTable, BlockSource, BlockTable, common_along
from gridref.model.encoding import EdgePolicy, Encoding, bytes_codec
from gridref.model.grid import ChunkGrid
from gridref.model.manifest import ChunkManifest, Manifest
from gridref.model.overlay import Cover, Stored
from gridref.model.scan_report import ScanReport, html_of
from gridref.options import check_names, near_names
from gridref.pickling import Picklable
from gridref.typing import Int64Array

CF_FLAGS = ("flag_values", "flag_meanings")
"""Attributes that name integers (CF conventions, section 3.5)."""


def cf_flags(members: Iterable[tuple[str, int]], dtype: np.dtype[Any]) -> dict[str, Any]:
    """The flags of an enumeration's members, in the order of their values."""
    ordered = sorted(members, key=lambda member: member[1])
    values = np.array([value for _, value in ordered], dtype)
    meanings = " ".join(name.replace(" ", "_") for name, _ in ordered)
    return dict(zip(CF_FLAGS, (values, meanings), strict=True))


@dataclass(frozen=True)
class Enumeration:
    """A named enumeration of the values of an array.

    Attributes
    ----------
    name
        Name of the type in its file.
    members
        Name and number of each member.
    own_flags
        Whether the file itself has the names as the CF attributes ``flag_values`` and
        ``flag_meanings``. Otherwise they are made from the members, for readers without
        enumerations.

    Raises
    ------
    InvalidRequestError
        If it has no name, or two members with one name.
    """

    name: str
    members: tuple[tuple[str, int], ...]
    own_flags: bool = False

    def __post_init__(self) -> None:
        names = [name for name, _ in self.members]
        if not self.name or len(set(names)) < len(names):
            raise InvalidRequestError(f"an enumeration {self.name!r} of the members {names}")


class ArrayAccess(Protocol):
    """How an opened array reads values, and selects without reading."""

    def read(self, array: VirtualArray, selection: Any) -> NDArray[Any]:
        """The values of a selection; None selects all."""
        ...

    def isel(self, array: VirtualArray, selection: Mapping[str, Any]) -> VirtualArray:
        """The array of a selection by dimension name."""
        ...


@dataclass(frozen=True, eq=False)
class Overlay:
    """A second layout of some elements of an array, which reads may use in place of the files.

    Attributes
    ----------
    id
        Its name, which no other overlay of the catalog has.
    sheets
        Arrays of the same rank, dtype and fill value that hold the elements.
    coverage
        Which elements of the array they hold: boxes that do not overlap.
    files
        How the files that it answers for are stored.
    checks_files
        Whether a read that uses it looks whether local ones of these files are unchanged.
    asks_servers
        Whether it asks servers about the others, too.
    is_forced
        Whether reads use it wherever it covers anything, whatever that costs.
    """

    id: str
    sheets: tuple[VirtualArray, ...]
    coverage: tuple[Cover, ...]
    stored: Stored
    files: Stored
    checks_files: bool = False
    asks_servers: bool = False
    is_forced: bool = False


_OF_LAYOUT = frozenset({"grid", "dtype", "fill_value", "encodings", "manifests", "block_source"})
"""Attributes of an array whose change makes other elements of it, which no overlay holds."""


@dataclass(frozen=True, eq=False)
class VirtualArray(Picklable):
    """An n-dimensional array whose elements are in files.

    Attributes
    ----------
    grid
        Outer grid of the blocks; its edges sum to the shape exactly.
    dtype
        Dtype of the elements, in native byte order.
    fill_value
        Value of absent elements: a scalar of `dtype`.
    dims
        Name of each dimension.
    attrs
        Attributes; values are str, numbers, numpy scalars and arrays, or lists of str.
    encodings
        The distinct encodings of the blocks.
    manifests
        The manifests that blocks point into.
    block_source
        The blocks, or an object that reads them; `blocks` returns them.
    access
        How the array reads values; None for an array made in memory.
    enumeration
        The enumeration of the elements, if their file declares one; lost with another dtype.
    overlays
        Other layouts of its elements, which a catalog holds; lost when elements change.

    Raises
    ------
    InvalidRequestError
        If ranks or counts contradict each other.
    """

    grid: ChunkGrid
    dtype: np.dtype[Any]
    fill_value: Any
    dims: tuple[str, ...]
    attrs: Mapping[str, Any]
    encodings: tuple[Encoding, ...]
    manifests: tuple[Manifest, ...]
    block_source: BlockSource
    access: ArrayAccess | None = None
    enumeration: Enumeration | None = None
    overlays: tuple[Overlay, ...] = ()

    def __post_init__(self) -> None:
        if len(self.dims) != self.grid.ndim:
            raise InvalidRequestError(
                f"{len(self.dims)} dimension names {self.dims} for shape {self.grid.shape}"
            )
        if self.n_blocks != self.grid.n_chunks:
            raise InvalidRequestError(
                f"{self.n_blocks} blocks for an outer grid of {self.grid.grid_shape}"
            )
        for encoding in self.encodings:
            if encoding.ndim != self.grid.ndim:
                raise InvalidRequestError(
                    f"stored chunk shape {encoding.chunk_shape} for an array of rank"
                    f" {self.grid.ndim}"
                )

    @classmethod
    def of_one_block(
        cls,
        shape: Sequence[int],
        dtype: np.dtype[Any],
        *,
        encoding: Encoding,
        manifest: Manifest,
        dims: Sequence[str],
        attrs: Mapping[str, Any] | None = None,
        fill_value: Any = None,
    ) -> Self:
        """An array that shows all of one stored array, as built by scanners.

        Manifest rows are the stored chunks in C order. A `fill_value` of None becomes zero.
        """
        grid, table = _whole(tuple(shape), encoding.chunk_shape)
        return cls(
            grid,
            dtype,
            zero_of(dtype) if fill_value is None else fill_value,
            tuple(dims),
            dict(attrs or {}),
            _one_of(encoding),
            (manifest,),
            table,
        )

    @classmethod
    def from_numpy(
        cls,
        values: NDArray[Any],
        dims: Sequence[str],
        attrs: Mapping[str, Any] | None = None,
        fill_value: Any = None,
    ) -> Self:
        """An array whose values are kept inline, as one chunk.

        Only for fixed-size dtypes.
        """
        native = np.asarray(values, values.dtype.newbyteorder("="), order="C")
        raw = native.astype(native.dtype.newbyteorder("<"), copy=False).tobytes()
        return cls.of_one_block(
            native.shape,
            native.dtype,
            encoding=_inline_encoding(native.shape, native.dtype),
            manifest=ChunkManifest.from_inline([raw] if native.size else []),
            dims=dims,
            attrs=attrs,
            fill_value=fill_value,
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.grid.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.grid.ndim

    @property
    def sizes(self) -> dict[str, int]:
        """Length of each dimension, by name; of one that is repeated, along its first axis."""
        return {dim: self.shape[self.dims.index(dim)] for dim in self.dims}

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def blocks(self) -> BlockTable:
        """One row a block."""
        return self.block_source.load()

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return self.block_source.n_blocks

    @property
    def nbytes(self) -> int:
        """Size of the decoded elements in bytes."""
        return self.size * self.dtype.itemsize

    @property
    def forced_overlay(self) -> Overlay | None:
        """The overlay that all reads use wherever it covers anything, if there is one."""
        return next((each for each in self.overlays if each.is_forced), None)

    @property
    def has_filter_masks(self) -> bool:
        """Whether any chunk has filters switched off."""
        return any(manifest.has_filter_masks for manifest in self.manifests)

    @cached_property
    def stored_chunk_shapes(self) -> Int64Array:
        """int64 (n_blocks, ndim), stored chunk shape of each block; the block if it is missing."""
        chunk_shapes = [encoding.chunk_shape for encoding in self.encodings]
        shapes = np.array(chunk_shapes, np.int64).reshape(len(self.encodings), self.ndim)
        missing = self.blocks.encoding == MISSING_BLOCK
        if not missing.any():
            if len(shapes) == 1:  # not stored for each block
                return np.broadcast_to(shapes, (self.n_blocks, self.ndim))
            return shapes[self.blocks.encoding]
        result = self.block_shapes()
        result[~missing] = shapes[self.blocks.encoding[~missing]]
        return result

    @property
    def held_blocks(self) -> NDArray[np.bool_]:
        """Which blocks are not missing, in the shape of the outer grid."""
        return np.not_equal(self.blocks.encoding, MISSING_BLOCK).reshape(self.grid.grid_shape)

    def block_shapes(self) -> Int64Array:
        """int64 (n_blocks, ndim), shape of each block."""
        edges = np.meshgrid(*(axis.edges() for axis in self.grid.axes), indexing="ij")
        if not edges:
            return np.zeros((1, 0), np.int64)
        return np.stack([lengths.reshape(-1) for lengths in edges], axis=-1)

    def decoded_shapes(self, block: Int64Array, chunk: Int64Array) -> Int64Array:
        """int64 (n, ndim), shape that stored chunks have when they are decoded.

        Parameters
        ----------
        block
            int64 (n,), block of each chunk.
        chunk
            int64 (n, ndim), chunk coords in the block's stored array.
        """
        shape = self.stored_chunk_shapes[block]
        edges = [encoding.edge is EdgePolicy.TRUNCATED for encoding in self.encodings]
        is_truncated = np.array([*edges, False])[self.blocks.encoding[block]]
        if not is_truncated.any():
            return shape
        # Chunks of length 4 of a stored array of 10 elements: chunk 2 holds min(4, 10 - 2 * 4) = 2.
        # A broadcast axis shows one stored element, whatever the extents.
        rest = self.blocks.stored_shape[block] - chunk * shape
        return np.where(is_truncated[:, np.newaxis], np.minimum(shape, rest), shape)

    @cached_property
    def axis_tables(self) -> tuple[AxisTable, ...] | None:
        """One table per axis where chunk length, origin and step depend on the index along it only.

        None where they do not: blocks are then projected one by one. Missing blocks agree with
        everything.
        """
        tables = []
        present = self.held_blocks
        for axis in range(self.ndim):
            columns = []
            for values in (self.stored_chunk_shapes, self.blocks.origin, self.blocks.step):
                common = common_along(values[:, axis].reshape(self.grid.grid_shape), present, axis)
                if common is None:
                    return None
                columns.append(common)
            tables.append(AxisTable(*columns))
        return tuple(tables)

    def with_changes(self, **changes: Any) -> VirtualArray:
        """A copy with some attributes replaced; `blocks` takes the place of `block_source`."""
        if "blocks" in changes:
            changes["block_source"] = changes.pop("blocks")
        if changes.get("dtype", self.dtype) != self.dtype:
            changes.setdefault("enumeration", None)
        if self.overlays and not _OF_LAYOUT.isdisjoint(changes):
            changes.setdefault("overlays", ())
        # Twice as fast as dataclasses.replace; called for every variable of every file.
        return VirtualArray(**{name: vars(self)[name] for name in self.__match_args__} | changes)

    def __getitem__(self, selection: Any) -> NDArray[Any]:
        """Read a selection; see `read`."""
        return self.read(selection)

    __iter__ = None
    """Refused: iterating would read element by element."""

    def __array__(
        self, dtype: np.dtype[Any] | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
        """All values, read."""
        if copy is False:
            raise InvalidRequestError("values in files cannot be shared without a copy")
        values = self.read()
        return values if dtype is None else values.astype(dtype, copy=False)

    def read(self, selection: Any = None, **by_dim: Any) -> NDArray[Any]:
        """Read values.

        Parameters
        ----------
        selection
            One entry per axis, as for numpy: integers, slices of any step, masks, lists of
            integers. Several lists select each along its own axis. None reads all.
        **by_dim
            The same by dimension name, like ``time=slice(0, 24)``.

        Returns
        -------
        numpy.ndarray
            Elements of the array's dtype, in native byte order.

        Raises
        ------
        InvalidRequestError
            For a bad selection, or an array that was made in memory.
        ReadError
            If an existing chunk cannot be read or decoded; the error names it.
        """
        if by_dim and selection is not None:
            raise InvalidRequestError("select by position or by dimension name, not both")
        if by_dim:
            check_names("the array", by_dim, self.dims, kind="dimension")
            selection = tuple(by_dim.get(dim, slice(None)) for dim in self.dims)
        return self._opened().read(self, selection)

    def isel(self, **by_dim: Any) -> VirtualArray:
        """Select along dimensions by position, without reading.

        Parameters
        ----------
        **by_dim
            By dimension name an integer, which drops the axis, a slice with any step, a mask, or
            integers in any order and number.

        Raises
        ------
        InvalidRequestError
            For a bad selection, or an array that was made in memory.
        NotRepresentableError
            For integers that fall into very many runs.
        """
        check_names("the array", by_dim, self.dims, kind="dimension")
        return self._opened().isel(self, by_dim)

    def _opened(self) -> ArrayAccess:
        if self.access is None:
            raise InvalidRequestError(
                "this array was made in memory and has no reader: get it from gridref.scan, "
                "open_catalog or concat, or open its group with open_store"
            )
        return self.access

    @property
    def sizes_text(self) -> str:
        """Dimensions with their lengths, as xarray shows them: ``(time: 31, lat: 10)``."""
        return f"({', '.join(map('{}: {}'.format, self.dims, self.shape))})"

    def is_index(self, path: str) -> bool:
        """Whether the array at a path labels its one dimension: both have the same name."""
        return len(self.dims) == 1 and path.rpartition("/")[2] == self.dims[0]

    def __repr__(self) -> str:
        return (
            f"<VirtualArray {self.sizes_text} {self.dtype} in {number_of(self.n_blocks, 'block')}>"
        )

    def _repr_html_(self) -> str | None:
        return html_of(self)


class LazyArrays(Mapping[str, VirtualArray]):
    """Arrays that are made when they are first looked up.

    Parameters
    ----------
    names
        Their names, in order.
    """

    def __init__(self, names: Collection[str], make: Callable[[str], VirtualArray]) -> None:
        self._names = names
        self._make = make
        self._made: dict[str, VirtualArray] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return LazyArrays, (self._names, self._make)

    def __getitem__(self, name: str) -> VirtualArray:
        made = self._made.get(name)
        if made is None:
            if name not in self._names:
                raise KeyError(name)
            made = self._made.setdefault(name, self._make(name))
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names


def _changed(
    arrays: Mapping[str, VirtualArray],
    change: Callable[[str, VirtualArray], VirtualArray],
    path: str,
    name: str,
) -> VirtualArray:
    return change(path_in(path, name), arrays[name])


def dims_of(arrays: Iterable[VirtualArray]) -> set[str]:
    """Names of all dimensions of arrays."""
    return {dim for array in arrays for dim in array.dims}


def path_in(path: str, name: str) -> str:
    """The path of a name in the group at a path; that of the root is empty."""
    return f"{path}/{name}" if path else name


def check_name(name: str) -> None:
    """Refuse what cannot be the name of an array or group: nothing, or something with a slash.

    Raises
    ------
    InvalidRequestError
        Saying what it is.
    """
    if not name or "/" in name:
        raise InvalidRequestError(f"{name[:100]!r} cannot be the name of an array or group")


@dataclass(frozen=True, eq=False)
class VirtualGroup:
    """Arrays and groups under names, with attributes: a file, or many files combined.

    Attributes
    ----------
    arrays
        Arrays by name.
    groups
        Subgroups by name.
    attrs
        Attributes of the group.
    report
        The report of the scan, for groups that a scanner made.
    unlimited_dims
        Dimensions that may grow, as declared in the files of the group; copies keep them unlimited.
    """

    arrays: Mapping[str, VirtualArray] = field(default_factory=dict)
    groups: Mapping[str, VirtualGroup] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    report: ScanReport = ScanReport()  # noqa: RUF009 - it is frozen
    unlimited_dims: frozenset[str] = frozenset()

    def walk(self, path: str = "") -> list[tuple[str, VirtualGroup]]:
        """Itself and all groups below as (path, group); the root's path is ``""``."""
        groups = [(path, self)]
        for name, group in self.groups.items():
            groups += group.walk(path_in(path, name))
        return groups

    def all_arrays(self) -> dict[str, VirtualArray]:
        """Every array at any depth by path, like ``"model/tas"``."""
        return {
            path_in(path, name): array
            for path, group in self.walk()
            for name, array in group.arrays.items()
        }

    def labels_of(self, dim: str) -> dict[str, VirtualArray]:
        """The index coordinates of a dimension by path: those of groups below are among them."""
        arrays = self.all_arrays().items()
        return {p: each for p, each in arrays if each.dims == (dim,) and each.is_index(p)}

    def __iter__(self) -> Iterator[str]:
        """The names of its arrays, then of its groups."""
        yield from (*self.arrays, *self.groups)

    def __contains__(self, path: object) -> bool:
        """Whether there is an array or group at a path."""
        return isinstance(path, str) and self._found(path) is not None

    def __getitem__(self, path: str) -> VirtualArray | VirtualGroup:
        """The array or group at a path like ``"model/tas"``.

        Raises
        ------
        KeyError
            If there is none; the error lists similar names.
        """
        node = self._found(path)
        if node is None:
            known = {*self.all_arrays(), *(below for below, _ in self.walk() if below)}
            raise KeyError(
                f"there is no array or group {path!r}{near_names(path.strip('/'), known)}"
            )
        return node

    def _found(self, path: str) -> VirtualArray | VirtualGroup | None:
        node: VirtualArray | VirtualGroup | None = self
        for name in path.strip("/").split("/"):
            if not isinstance(node, VirtualGroup):
                return None
            node = node.arrays[name] if name in node.arrays else node.groups.get(name)
        return node

    def with_changes(self, **changes: Any) -> VirtualGroup:
        """A copy with some attributes replaced."""
        return replace(self, **changes)

    def with_each_array_lazily(
        self, change: Callable[[str, VirtualArray], VirtualArray], path: str = ""
    ) -> Self:
        """The same as `with_each_array`, but an array is changed when it is first looked up."""
        return replace(
            self,
            arrays=LazyArrays(self.arrays, partial(_changed, self.arrays, change, path)),
            groups={
                name: below.with_each_array_lazily(change, path_in(path, name))
                for name, below in self.groups.items()
            },
        )

    def with_each_array(
        self, change: Callable[[str, VirtualArray], VirtualArray], path: str = ""
    ) -> VirtualGroup:
        """A copy in which each array at any depth is changed by a function of path and array."""
        return self.with_changes(
            arrays={name: change(path_in(path, name), each) for name, each in self.arrays.items()},
            groups={
                name: below.with_each_array(change, path_in(path, name))
                for name, below in self.groups.items()
            },
        )

    def __repr__(self) -> str:
        arrays, groups = ", ".join(self.arrays), ", ".join(self.groups)
        return f"<{type(self).__name__} arrays: {arrays or 'none'}; groups: {groups or 'none'}>"

    def _repr_html_(self) -> str | None:
        return html_of(self)


@lru_cache(maxsize=1024)
def _whole(shape: tuple[int, ...], chunk_shape: tuple[int, ...]) -> tuple[ChunkGrid, BlockTable]:
    """Grid and block of an array that shows all of one stored array; equal ones share it."""
    grid = ChunkGrid.regular(shape, [max(1, extent) for extent in shape])
    table = BlockTable.single(shape, chunk_shape)
    table = table.take(np.zeros(0, np.int64)) if 0 in shape else table
    for column in vars(table).values():
        column.flags.writeable = False
    return grid, table


@lru_cache(maxsize=1024)
def _one_of(encoding: Encoding) -> tuple[Encoding]:
    """The encoding alone; shared by all arrays with an equal one."""
    return (encoding,)


@lru_cache(maxsize=1024)
def _inline_encoding(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Encoding:
    """Encoding of values that are kept inline, as one chunk."""
    chunk_shape = tuple(max(1, extent) for extent in shape)
    return Encoding(chunk_shape, dtype, (bytes_codec(dtype),))


def zero_of(dtype: np.dtype[Any]) -> Any:
    """The default fill value of a dtype: zero, the empty string, or zero bytes."""
    if dtype.kind == "T":
        return ""
    return np.zeros((), dtype)[()]
