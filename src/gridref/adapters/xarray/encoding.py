"""What xarray's netCDF engines keep in ``Variable.encoding``, of a virtual array.

Source: ``NetCDF4DataStore.open_store_variable`` in ``xarray/backends/netCDF4_.py``, and
``Variable.filters`` and ``Variable.chunking`` of netCDF4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gridref.adapters.xarray.zarr_compressors import zarr_compressors
from gridref.model.array import MISSING_BLOCK, VirtualArray
from gridref.model.encoding import Codec, EdgePolicy, Encoding
from gridref.serve.portable_grid import block_chunks

__all__ = ["variable_encoding"]

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
        filters.update(_FILTERS[codec.name](codec) if codec.name in _FILTERS else {})
    return filters


def _compressor(name: str) -> Callable[[Codec], dict[str, Any]]:
    return lambda codec: {name: True, "complevel": codec.configuration.get("level", 1)}


def _hdf5_bzip2(codec: Codec) -> dict[str, Any]:
    values = codec.configuration["cd_values"]
    return {"bzip2": True, "complevel": values[0] if values else 1}


_SZIP_NEAREST_NEIGHBOUR = 32


def _szip(codec: Codec) -> dict[str, Any]:
    options, pixels = codec.configuration["cd_values"][:2]
    coding = "nn" if options & _SZIP_NEAREST_NEIGHBOUR else "ec"
    return {"szip": {"coding": coding, "pixels_per_block": pixels}}


_BLOSC_COMPRESSORS = {"blosclz": "lz"}
_BLOSC_SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")


def _blosc(codec: Codec) -> dict[str, Any]:
    settings = codec.configuration
    compressor = _BLOSC_COMPRESSORS.get(settings["cname"], settings["cname"])
    shuffle = _BLOSC_SHUFFLES.index(settings["shuffle"])
    return {
        "blosc": {"compressor": f"blosc_{compressor}", "shuffle": shuffle},
        "complevel": settings["clevel"],
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
    """Chunk lengths of the blocks of an encoding, unless they lie in their files in one piece."""
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
    """The stored chunks of a single file; of many, their blocks, cut where they are too large."""
    if 0 in array.shape:
        return None
    if array.n_blocks > 1:
        return block_chunks(array, DASK_CHUNK_BYTES)
    is_whole = not (array.blocks.origin.any() or (array.blocks.step != 1).any())
    chunks: tuple[int, ...] | None = encoding.get("chunksizes")
    return chunks if is_whole else block_chunks(array, DASK_CHUNK_BYTES)
