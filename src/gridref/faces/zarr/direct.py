"""The codec of the direct view: zarr-python passes it a selection, and our reader reads it.

If an array's only codec decodes partially, zarr fetches no chunks. It calls the codec once for each
chunk of the grid with the part of it that is wanted. The codec reads that part with the planner,
merged requests and threads of `gridref.serve.reader`.

xarray copies an array's codecs to its ``encoding`` and writes copies with them. So the codec can
encode too: it then is a sharding codec around the stored chunks and their codecs, under that
codec's name. It is not a subclass of it, because zarr would then show shards, and xarray fails to
write an integer index, or other pieces, of what it has read in shards.

Source: zarr-python, ``ArrayBytesCodecPartialDecodeMixin``; the entry-point group ``zarr.codecs``.
"""

from __future__ import annotations

import asyncio
import json
import operator
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from zarr.abc.buffer import Buffer, NDBuffer
from zarr.abc.codec import ArrayBytesCodec, ArrayBytesCodecPartialDecodeMixin, Codec
from zarr.buffer import default_buffer_prototype
from zarr.codecs import ShardingCodec, TransposeCodec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.common import JSON, parse_named_configuration
from zarr.core.metadata.v3 import parse_codecs
from zarr.dtype import ZDType
from zarr.storage import FsspecStore, StorePath

from gridref.faces.fsspec import GridrefFileSystem
from gridref.faces.zarr.store import GridrefStore
from gridref.model.array import path_in
from gridref.model.zarr_metadata import packed_dtype
from gridref.pickling import Picklable
from gridref.serve.grids import DIRECT_CODEC
from gridref.serve.objects import KeySpace
from gridref.serve.reader import Reader
from gridref.serve.views import ArrayView

_OPENED, _READ, _COPIED = range(3)


class DirectCodec(Picklable, ArrayBytesCodec, ArrayBytesCodecPartialDecodeMixin):
    """Reads the part of a chunk that zarr wants with gridref's own reader.

    Unlike zarr's own codecs it is not frozen: zarr says only in `validate` what chunks a copy has.

    Parameters
    ----------
    chunk_shape
        Shape of the stored chunks; of the inner chunks of a copy, where it divides the copy's.
    codecs
        Codecs of the inner chunks of a copy, as a ``zarr.json`` names them. They are made at the
        first use: most arrays are only read.
    stage
        Whether this was just opened, belongs to the metadata of an array that is read (metadata
        adapt their codecs once), or to that of another array, which is a copy.
    dtype
        Zarr's data type of what a copy's codec is adapted to.
    """

    is_fixed_size = False

    def __init__(
        self,
        chunk_shape: tuple[int, ...],
        codecs: tuple[dict[str, JSON], ...],
        stage: int = _OPENED,
        dtype: ZDType[Any, Any] | None = None,
    ) -> None:
        self.chunk_shape = chunk_shape
        self.codecs = codecs
        self.stage = stage
        self.dtype = dtype

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DirectCodec):
            return NotImplemented
        return (self.chunk_shape, self.codecs) == (other.chunk_shape, other.codecs)

    def __hash__(self) -> int:
        return hash((type(self), self.chunk_shape))

    def __repr__(self) -> str:
        return f"DirectCodec{(self.chunk_shape, self.codecs)}"

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        """Make from the codec entry of a ``zarr.json``."""
        _, configuration = parse_named_configuration(data, DIRECT_CODEC)
        chunk_shape: Any = configuration["chunk_shape"]
        codecs: Any = configuration["codecs"]
        return cls._opened(tuple(map(operator.index, chunk_shape)), json.dumps(codecs))

    @classmethod
    @lru_cache(maxsize=256)  # most arrays of a dataset have the same
    def _opened(cls, chunk_shape: tuple[int, ...], codecs: str) -> Self:
        return cls(chunk_shape, tuple(json.loads(codecs)))

    def to_dict(self) -> dict[str, JSON]:
        """The codec entry of a ``zarr.json``: of a copy's, that of a sharding codec."""
        if self.stage == _COPIED:
            return self._sharding.to_dict()
        configuration: dict[str, JSON] = {"chunk_shape": self.chunk_shape, "codecs": self.codecs}
        return {"name": DIRECT_CODEC, "configuration": configuration}

    @cached_property
    def _sharding(self) -> ShardingCodec:
        codecs = _fitting(parse_codecs(self.codecs), len(self.chunk_shape))
        sharding = ShardingCodec(chunk_shape=self.chunk_shape, codecs=codecs)
        if self.dtype is None:
            return sharding
        zero, config = self.dtype.default_scalar(), ArrayConfig.from_dict({})
        prototype = default_buffer_prototype()
        spec = ArraySpec(self.chunk_shape, self.dtype, zero, config, prototype)
        return sharding.evolve_from_array_spec(spec)

    @cached_property
    def _read(self) -> Self:
        return type(self)(self.chunk_shape, self.codecs, _READ)

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:
        """Adapt to an array's chunks."""
        if self.stage == _OPENED:
            return self._read
        shape = _dividing(self.chunk_shape, array_spec.shape)
        return type(self)(shape, self.codecs, _COPIED, array_spec.dtype)

    def validate(self, *, shape: Any, dtype: Any, chunk_grid: Any) -> None:
        """Take the chunks of a copy; only here does zarr say what they are.

        Metadata adapt their codecs to the array's shape. This very object is theirs alone, and not
        in use before they are complete.
        """
        if self.stage == _COPIED:
            self.chunk_shape = _dividing(self.chunk_shape, chunk_grid.chunk_shape)
            vars(self).pop("_sharding", None)  # of other chunks
            self._sharding.validate(shape=shape, dtype=dtype, chunk_grid=chunk_grid)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        """Not known beforehand."""
        raise NotImplementedError

    @property
    def _sync_capable(self) -> bool:
        """Whether zarr may call the synchronous methods."""
        return self._sharding._sync_capable  # noqa: SLF001 - zarr's codec protocol

    async def _decode_partial_single(
        self, byte_getter: Any, selection: Any, chunk_spec: ArraySpec
    ) -> NDBuffer | None:
        target = _Target.of(byte_getter)
        if target is not None:
            return await asyncio.to_thread(target.read, selection, chunk_spec)
        return await self._sharding._decode_partial_single(  # noqa: SLF001
            byte_getter, selection, chunk_spec
        )

    def _decode_partial_sync(
        self, byte_getter: Any, selection: Any, chunk_spec: ArraySpec
    ) -> NDBuffer | None:
        target = _Target.of(byte_getter)
        if target is not None:
            return target.read(selection, chunk_spec)
        return self._sharding._decode_partial_sync(  # noqa: SLF001
            byte_getter, selection, chunk_spec
        )

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        return await self._sharding._decode_single(chunk_data, chunk_spec)  # noqa: SLF001

    def _decode_sync(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        return self._sharding._decode_sync(chunk_data, chunk_spec)  # noqa: SLF001

    async def _encode_single(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> Buffer | None:
        return await self._sharding._encode_single(chunk_data, chunk_spec)  # noqa: SLF001

    def _encode_sync(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> Buffer | None:
        return self._sharding._encode_sync(chunk_data, chunk_spec)  # noqa: SLF001


def _dividing(wanted: Sequence[int], lengths: Sequence[int]) -> tuple[int, ...]:
    """The wanted inner chunk lengths where they divide the chunk's; else the chunk's own."""
    if len(wanted) != len(lengths):
        return tuple(lengths)
    return tuple(
        inner if length % inner == 0 else length
        for inner, length in zip(wanted, lengths, strict=True)
    )


def _fitting(codecs: Sequence[Codec], rank: int) -> tuple[Codec, ...]:
    """The codecs without those that are made for another rank."""
    return tuple(
        codec
        for codec in codecs
        if not (isinstance(codec, TransposeCodec) and len(codec.order) != rank)
    )


class _Target:
    """The outer chunk that zarr asks for, and what reads it."""

    def __init__(self, reader: Reader, path: str, view: ArrayView, coords: tuple[int, ...]) -> None:
        self.reader = reader
        self.path = path
        self.array = view.array
        self.origin = view.metadata.grid.start(coords)

    @classmethod
    def of(cls, byte_getter: Any) -> Self | None:
        """What a byte getter points to, if it is a chunk of a direct view of ours."""
        if not isinstance(byte_getter, StorePath):
            return None
        opened = _space_of(byte_getter.store)
        if opened is None:
            return None
        space, reader, prefix = opened
        chunk = space.chunk_of(path_in(prefix, byte_getter.path))
        return None if chunk is None else cls(reader, *chunk)

    def read(self, selection: Any, spec: ArraySpec) -> NDBuffer:
        """The elements that numpy would select of the outer chunk."""
        indexers = selection if isinstance(selection, tuple) else (selection,)
        extents = [extent - low for extent, low in zip(self.array.shape, self.origin, strict=True)]
        orthogonal = _orthogonal(indexers, extents, spec.shape)
        if orthogonal is not None:
            shifted = tuple(map(_shifted, orthogonal, self.origin))
            values = self.reader.read(self.array, shifted, name=self.path, is_copied=True)
        elif _are_points(indexers, extents):
            coords = [along + low for along, low in zip(indexers, self.origin, strict=True)]
            values = self.reader.read_points(self.array, coords, name=self.path)
        else:
            values = self._whole(spec.shape)[selection]
        return _as_buffer(values, spec)

    def _whole(self, shape: tuple[int, ...]) -> NDArray[Any]:
        """The outer chunk at its full shape; what overhangs the array holds the fill value."""
        region = tuple(
            slice(low, min(low + length, extent))
            for low, length, extent in zip(self.origin, shape, self.array.shape, strict=True)
        )
        values = self.reader.read(self.array, region, name=self.path)
        padded = np.empty(shape, values.dtype)
        padded[...] = self.array.fill_value
        padded[tuple(slice(0, extent) for extent in values.shape)] = values
        return padded


def _space_of(store: Any) -> tuple[KeySpace, Reader, str] | None:
    """Key space, reader, and path in it, of a store of ours; None of any other store."""
    while not isinstance(store, GridrefStore):
        if isinstance(store, FsspecStore):
            filesystem = getattr(store.fs, "sync_fs", store.fs)
            if not isinstance(filesystem, GridrefFileSystem):
                return None
            return _narrowed(filesystem.space, filesystem.reader.reader, store.path.strip("/"))
        store = getattr(store, "_store", None)  # of zarr's stores that wrap another
        if store is None:
            return None
    return _narrowed(store.space, store.reader.reader, "")


def _narrowed(space: Any, reader: Reader, path: str) -> tuple[KeySpace, Reader, str] | None:
    """All three; None of a space that wraps another one, whose bytes may be others."""
    return (space, reader, path) if isinstance(space, KeySpace) else None


def _orthogonal(
    indexers: Sequence[Any], extents: Sequence[int], shape: Sequence[int]
) -> list[Any] | None:
    """A selection in numpy's terms as one independent indexer for each axis.

    None where it is not orthogonal, or reaches beyond the array.
    """
    if len(indexers) != len(extents):
        return None
    arrays = [axis for axis, indexer in enumerate(indexers) if isinstance(indexer, np.ndarray)]
    mesh = bool(arrays) and all(
        isinstance(indexer, np.ndarray)
        and indexer.ndim == len(indexers)
        and indexer.size == indexer.shape[axis]
        for axis, indexer in enumerate(indexers)
    )
    if mesh:
        by_axis: list[Any] = [indexer.reshape(-1) for indexer in indexers]
    elif not arrays or (
        len(arrays) == 1
        and indexers[arrays[0]].ndim == 1
        and all(isinstance(e, slice) for axis, e in enumerate(indexers) if axis != arrays[0])
    ):
        by_axis = list(indexers)
    else:
        return None
    by_axis = [_plain(indexer, length) for indexer, length in zip(by_axis, shape, strict=True)]
    inside = all(map(_is_inside, by_axis, extents))
    return by_axis if inside else None


def _plain(indexer: Any, length: int) -> Any:
    """An indexer without negative positions, open ends or masks."""
    if isinstance(indexer, slice):
        return (
            slice(*indexer.indices(length))
            if (indexer.step or 1) > 0
            else np.arange(length)[indexer]
        )
    if isinstance(indexer, np.ndarray):
        return (
            np.flatnonzero(indexer)
            if indexer.dtype == bool
            else np.where(indexer < 0, indexer + length, indexer)
        )
    return int(indexer) + (length if indexer < 0 else 0)


def _is_inside(indexer: Any, extent: int) -> bool:
    if isinstance(indexer, slice):
        return bool(indexer.stop <= max(extent, indexer.start))
    return not np.size(indexer) or int(np.max(indexer)) < extent


def _are_points(indexers: Sequence[Any], extents: Sequence[int]) -> bool:
    """Whether a selection is one array of positions inside the array for every axis, all alike."""
    return len(indexers) == len(extents) and all(
        isinstance(indexer, np.ndarray)
        and indexer.ndim == 1
        and indexer.dtype.kind in "iu"
        and len(indexer) == len(indexers[0])
        and (not len(indexer) or (int(indexer.min()) >= 0 and int(indexer.max()) < extent))
        for indexer, extent in zip(indexers, extents, strict=True)
    )


def _shifted(indexer: Any, by: int) -> Any:
    if isinstance(indexer, slice):
        return slice(indexer.start + by, indexer.stop + by, indexer.step)
    return indexer + by


def _as_buffer(values: NDArray[Any], spec: ArraySpec) -> NDBuffer:
    shown, dtype = np.asarray(values), spec.dtype.to_native_dtype()
    if dtype.names is None and shown.dtype.names is not None:
        # Raw bytes, where Zarr has no such compound: a cast would keep the first member only.
        shown = np.asarray(shown.astype(packed_dtype(shown.dtype)), order="C").view(dtype)
    shown = shown.astype(dtype, copy=False)
    return spec.prototype.nd_buffer.from_numpy_array(shown)
