"""What the engine gives to xarray: lazy arrays, and their ``Variable.encoding``.

`lazy_virtual_array` finds the lazy array behind xarray's wrappers, and `attributes_now` what these
decode it by. In the encoding, compression is given in the terms of ``to_zarr``. Everything else is
as in the netCDF engines.

Sources: Zarr v3 codecs ``blosc``, ``gzip`` and ``zstd``; numcodecs' configurations of the same, for
Zarr v2; ``NetCDF4DataStore.open_store_variable`` in ``xarray/backends/netCDF4_.py``, and
``Variable.filters`` and ``Variable.chunking`` of netCDF4.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, ClassVar, Self

import numcodecs
import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.coding.common import _ElementwiseFunctionArray
from xarray.coding.strings import create_vlen_dtype
from xarray.coding.variables import NativeEndiannessArray
from xarray.core import indexing

from gridref.model.array import CF_FLAGS, VirtualArray
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.conventions import MEANING_ATTRIBUTES
from gridref.model.encoding import BLOSC_SHUFFLES, Codec, EdgePolicy, Encoding
from gridref.model.indexing import isel
from gridref.pickling import Picklable
from gridref.serve.grids import block_chunks
from gridref.serve.reader import Reader

_SAME_ELEMENTS = (
    indexing.MemoryCachedArray,
    indexing.CopyOnWriteArray,
    _ElementwiseFunctionArray,
    NativeEndiannessArray,
)
"""Wrappers that keep every element of the wrapped array in its place."""


class LazyVirtualArray(BackendArray):
    """A virtual array that xarray indexes lazily."""

    def __init__(self, array: VirtualArray, reader: Reader, name: str) -> None:
        # Not `array`: xarray takes that for a wrapped array to be looked into.
        self.virtual = array
        self.reader = reader
        self.name = name
        self.shape = array.shape
        is_text = array.dtype.kind == "T"
        self.dtype = create_vlen_dtype(str) if is_text else array.dtype  # type: ignore[no-untyped-call]

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER, self._read
        )

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        """The same, while other coroutines go on."""
        return await asyncio.to_thread(self.__getitem__, key)

    def _read(self, key: tuple[Any, ...]) -> NDArray[Any]:
        values = self.reader.read(self.virtual, key, name=self.name)
        return values.astype(self.dtype, copy=False)


def is_lazy(variable: xr.Variable) -> bool:
    """Whether the values of a variable are yet to be read by xarray, or computed by dask."""
    data = variable._data  # noqa: SLF001 - `data` would read the values
    unread = isinstance(data, indexing.ExplicitlyIndexed) and not variable._in_memory  # noqa: SLF001
    return unread or variable.chunks is not None


def lazy_virtual_array(variable: xr.Variable) -> VirtualArray | None:
    """The virtual array, sliced, that a variable of the engine would read; None for any other.

    Decoding is left out: its elements are the stored ones.
    """
    layers = list(_layers(variable))
    if not isinstance(layers[-1], LazyVirtualArray):
        return None
    array = layers[-1].virtual
    for layer in reversed(layers):
        if isinstance(layer, indexing.LazilyIndexedArray):
            array = isel(array, dict(enumerate(layer.key.tuple)))
    return array


def _layers(variable: xr.Variable) -> Iterator[Any]:
    """What xarray has wrapped around an array, as far as the elements are the same, and that."""
    layer: Any = variable._data  # noqa: SLF001 - `data` would read the values
    yield layer
    while isinstance(layer, (indexing.LazilyIndexedArray, *_SAME_ELEMENTS)):
        layer = layer.array
        yield layer


def attributes_now(variable: xr.Variable, array: VirtualArray) -> dict[str, Any]:
    """The attributes of a lazy variable, with those that its elements were decoded by.

    An attribute of the file that is not here was deleted, unless opening took it away.

    Parameters
    ----------
    array
        What the variable shows, with the attributes of its file.
    """
    hidden = array.attrs.keys() - shown_attributes(array).keys()
    taken = (hidden | variable.encoding.keys() | {"dtype"}) - {*MEANING_ATTRIBUTES}
    attrs = {name: value for name, value in array.attrs.items() if name in taken}
    attrs |= _decoded_by(variable, array) | variable.attrs
    return {name: attrs[name] for name in (*array.attrs, *attrs) if name in attrs}


def shown_attributes(array: VirtualArray) -> dict[str, Any]:
    """Attributes of the file, without names of an enumeration: xarray has them in the encoding."""
    made = array.enumeration is not None and not array.enumeration.own_flags
    return {name: value for name, value in array.attrs.items() if not (made and name in CF_FLAGS)}


_FILLS = ("_FillValue", "missing_value")


def _decoded_by(variable: xr.Variable, array: VirtualArray) -> dict[str, Any]:
    """The attributes that elements were decoded by.

    They are those of the file, unless others were assigned before `xarray.decode_cf`. What is in
    the encoding alone may be for files that are to be written.
    """
    layers = _layers(variable)
    functions = [each.func for each in layers if isinstance(each, _ElementwiseFunctionArray)]
    used = _arguments(functions)
    is_unsigned = any(getattr(function, "func", None) is np.asarray for function in functions)
    found: dict[str, Any] = {}
    for name in MEANING_ATTRIBUTES:
        stored, encoded, by = array.attrs.get(name), variable.encoding.get(name), used.get(name)
        if is_unsigned and name in (*_FILLS, "_Unsigned"):
            fitting = [stored, encoded]  # other numbers than the unsigned ones that were compared
        else:
            fitting = [each for each in (stored, encoded) if _are_among(each, by)]
            fitting += [stored] if _are_among(stored, encoded) else []
            fitting += [by] if name not in _FILLS else []  # where the encoding was dropped
        known = [each for each in fitting if each is not None]
        if known:
            found[name] = known[0]
    if not is_unsigned and variable.encoding.keys().isdisjoint(_FILLS):
        _add_fills(found, used.get("_FillValue", ()), array.dtype)
    return found


def _arguments(functions: Iterable[Any]) -> dict[str, Any]:
    """What xarray's functions decode by, by the names of the attributes."""
    used: dict[str, Any] = {}
    for function in functions:
        keywords = getattr(function, "keywords", {})
        named = {name: keywords[name] for name in MEANING_ATTRIBUTES if name in keywords}
        used |= {name: value for name, value in named.items() if value is not None}
        if "encoded_fill_values" in keywords:
            used |= {name: list(keywords["encoded_fill_values"]) for name in _FILLS}
    return used


def _add_fills(found: dict[str, Any], fills: Iterable[Any], dtype: np.dtype[Any]) -> None:
    """Add the fill values that were compared, and that no attribute states any more."""
    stated = [each for name in _FILLS for each in np.ravel(found.get(name, ())).tolist()]
    left = [each for each in fills if not _are_among(each, stated)]
    free = [name for name in _FILLS if name not in found]
    if left and free:
        found[free[0]] = np.array(left, dtype)


def _are_among(value: Any, others: Any) -> bool:
    """Whether all elements of an attribute are among others."""
    known = np.ravel(others).tolist()
    return all(any(a == b or (a != a and b != b) for b in known) for a in np.ravel(value).tolist())


# Compression of a source, in the terms of xarray's ``to_zarr``

_MOST_BLOSC_LEVEL = 9


class _Compressor(Picklable, dict[str, Any]):
    """A codec as Zarr v3 writes it, which Zarr v2 takes for one of numcodecs.

    Which format a dataset will be written to is not known, and `encoding` has one place for both.
    """

    codec_id: ClassVar[str]

    @classmethod
    def of(cls, **configuration: Any) -> Self:
        """The codec with these settings."""
        return cls(name=cls.codec_id, configuration=configuration)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The codec of a configuration as numcodecs writes it."""
        return cls.of(**{key: value for key, value in config.items() if key != "id"})

    def get_config(self) -> dict[str, Any]:
        """Its settings as numcodecs writes them."""
        return {"id": self.codec_id, **self["configuration"]}

    @cached_property
    def _codec(self) -> Any:
        return numcodecs.get_codec(self.get_config())

    def encode(self, buf: Any) -> Any:
        """Compress a buffer."""
        return self._codec.encode(buf)

    def decode(self, buf: Any, out: Any = None) -> Any:
        return self._codec.decode(buf, out)


class _Gzip(_Compressor):
    codec_id = "gzip"


class _Zstd(_Compressor):
    codec_id = "zstd"


class _Blosc(_Compressor):
    codec_id = "blosc"

    def get_config(self) -> dict[str, Any]:
        settings = super().get_config()
        return {**settings, "shuffle": BLOSC_SHUFFLES.index(settings["shuffle"])}


def zarr_compressors(encoding: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """What compresses a Zarr array as a variable of netCDF4 is; nothing where Zarr has no codec.

    Deflate is ``gzip`` in Zarr, and compression after a byte shuffle ``blosc``, which shuffles
    itself: Zarr readers know these codecs, and few know those of numcodecs' own names.

    Parameters
    ----------
    encoding
        netCDF4's words: ``zlib``, ``zstd``, ``blosc``, ``shuffle`` and ``complevel``.
    """
    level = encoding.get("complevel", 4)
    blosc = encoding.get("blosc")
    if blosc:
        name = blosc["compressor"].removeprefix("blosc_")
        return (_zarr_blosc("blosclz" if name == "lz" else name, level, blosc["shuffle"]),)
    for name, compressor in (
        ("zlib", _Gzip.of(level=level)),
        ("zstd", _Zstd.of(level=level, checksum=False)),
    ):
        if encoding.get(name):
            return (_zarr_blosc(name, level, 1) if encoding.get("shuffle") else compressor,)
    return ()


def _zarr_blosc(name: str, level: int, shuffle: int) -> _Compressor:
    clevel = min(level, _MOST_BLOSC_LEVEL)
    return _Blosc.of(cname=name, clevel=clevel, shuffle=BLOSC_SHUFFLES[shuffle], blocksize=0)


# ``Variable.encoding``, as xarray's netCDF engines fill it

DASK_CHUNK_BYTES = 128 * 2**20
"""Blocks above this size are given to dask in parts that follow their stored chunks."""


def variable_encoding(array: VirtualArray, source: str | None) -> dict[str, Any]:
    """What xarray takes over into files that are written from the array: chunks, filters, dtype.

    Compression, checksum and chunk lengths, as far as all blocks have them in common, the first
    in the words of both netCDF4 and Zarr: xarray passes over those of the other format.

    Parameters
    ----------
    source
        Address of its catalog; None for arrays in memory.
    """
    used = set(np.unique(array.blocks.encoding).tolist()) - {MISSING_BLOCK}
    encodings = [_filters(array.encodings[number]) for number in sorted(used)]
    encodings += [_layout(array, number) for number in sorted(used)]
    result: dict[str, Any] = {}
    for encoding in encodings:
        result = {**result, **encoding}
    common = {
        key: value
        for key, value in result.items()
        if all(encoding.get(key, value) == value for encoding in encodings)
    }
    compressors = zarr_compressors(common)
    if compressors:
        common["compressors"] = compressors
    chunks = _preferred_chunks(array, common)
    if chunks is not None:
        common["preferred_chunks"] = dict(zip(array.dims, chunks, strict=True))
    if source is not None:
        common["source"] = source
    return {**common, "original_shape": array.shape, "dtype": _dtype(array)}


def _dtype(array: VirtualArray) -> Any:
    """The dtype, and of an enumeration its name and members."""
    if array.dtype.kind == "T":
        # As xarray's netCDF engines say of text; decoding then makes strings of fixed length.
        return str
    enumeration = array.enumeration
    if enumeration is None:
        return array.dtype
    metadata = {"enum": dict(enumeration.members), "enum_name": enumeration.name}
    return np.dtype(array.dtype, metadata=metadata)


def _filters(encoding: Encoding) -> dict[str, Any]:
    """Which of netCDF4's filters are on, and how."""
    filters: dict[str, Any] = {
        **dict.fromkeys(("zlib", "szip", "zstd", "bzip2", "blosc", "shuffle"), False),
        "complevel": 0,
        "fletcher32": False,
    }
    for codec in encoding.split_codecs[2]:
        if codec.name in _FILTERS:
            # What a stranger's catalog says of compressing is not needed for decompressing.
            with suppress(LookupError, TypeError, ValueError, OverflowError):
                filters.update(_FILTERS[codec.name](codec))
    return filters


def _compressor(name: str) -> Callable[[Codec], dict[str, Any]]:
    return lambda codec: {name: True, "complevel": int(codec.configuration.get("level", 1))}


def _hdf5_bzip2(codec: Codec) -> dict[str, Any]:
    values = codec.configuration["cd_values"]
    return {"bzip2": True, "complevel": int(values[0]) if values else 1}


_SZIP_NEAREST_NEIGHBOUR = 32


def _szip(codec: Codec) -> dict[str, Any]:
    options, pixels = codec.configuration["cd_values"][:2]
    coding = "nn" if options & _SZIP_NEAREST_NEIGHBOUR else "ec"
    return {"szip": {"coding": coding, "pixels_per_block": pixels}}


_BLOSC_COMPRESSORS = {"blosclz": "lz"}


def _blosc(codec: Codec) -> dict[str, Any]:
    settings = codec.configuration
    compressor = _BLOSC_COMPRESSORS.get(settings["cname"], settings["cname"])
    shuffle = BLOSC_SHUFFLES.index(settings["shuffle"])
    return {
        "blosc": {"compressor": f"blosc_{compressor}", "shuffle": shuffle},
        "complevel": int(settings["clevel"]),
    }


_FILTERS: Mapping[str, Callable[[Codec], dict[str, Any]]] = {
    "numcodecs.zlib": _compressor("zlib"),
    "gzip": _compressor("zlib"),
    "numcodecs.gzip": _compressor("zlib"),
    "zstd": _compressor("zstd"),
    "numcodecs.zstd": _compressor("zstd"),
    "numcodecs.bz2": _compressor("bzip2"),
    "gridref.hdf5_bzip2": _hdf5_bzip2,
    "gridref.hdf5_szip": _szip,
    "blosc": _blosc,
    "numcodecs.shuffle": lambda _: {"shuffle": True},
    "numcodecs.fletcher32": lambda _: {"fletcher32": True},
}
"""What netCDF4 says of the filters that it knows."""


def _layout(array: VirtualArray, number: int) -> dict[str, Any]:
    """Chunk lengths of the blocks of an encoding, unless they are in their files in one piece."""
    encoding = array.encodings[number]
    stored = array.blocks.stored_shape[array.blocks.encoding == number]
    is_one_piece = encoding.edge is EdgePolicy.TRUNCATED or (stored == encoding.chunk_shape).all()
    if is_one_piece and not encoding.split_codecs[2]:
        # Where it is cut nevertheless, the length of the pieces is ours.
        return {"contiguous": True, "chunksizes": None}
    return {"contiguous": False, "chunksizes": encoding.chunk_shape}


def _preferred_chunks(
    array: VirtualArray, encoding: dict[str, Any]
) -> tuple[int | tuple[int, ...], ...] | None:
    """The stored chunks of a single file; of many, their blocks, cut where they are too large.

    Where all reads use an overlay, its shards, or its chunks if shards are too large.
    """
    if 0 in array.shape:
        return None
    if array.forced_overlay is not None:
        stored = array.forced_overlay.stored
        is_small = math.prod(stored.object_shape) * array.dtype.itemsize <= DASK_CHUNK_BYTES
        return stored.object_shape if is_small else stored.chunk_shape
    if array.n_blocks > 1:
        return block_chunks(array, DASK_CHUNK_BYTES)
    is_whole = not (array.blocks.origin.any() or (array.blocks.step != 1).any())
    chunks: tuple[int, ...] | None = encoding.get("chunksizes")
    return chunks if is_whole else block_chunks(array, DASK_CHUNK_BYTES)
