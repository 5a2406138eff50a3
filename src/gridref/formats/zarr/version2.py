"""Convert Zarr v2 array metadata to v3.

Source: Zarr v2 specification, "Metadata" and "Data type encoding"; numcodecs' configurations.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.damage import check_element_size
from gridref.model.array import zero_of
from gridref.model.encoding import Codec, bytes_codec, transpose_codec
from gridref.model.grid import ChunkGrid
from gridref.model.zarr_metadata import ArrayMetadata, scalar_of

_BYTES_FILTERS = {"shuffle", "fletcher32", "zlib", "gzip", "zstd", "blosc", "lz4", "bz2", "lzma"}
_BYTES_FILTERS.add("grib")  # kerchunk's, which asks eccodes
_ARRAY_FILTERS = {
    "delta": ("dtype", "astype"),
    "fixedscaleoffset": ("dtype", "astype"),
    "quantize": ("dtype", "astype"),
    "astype": ("decode_dtype", "encode_dtype"),
    "bitround": (),
    "packbits": (),
}
"""Filters of arrays: the names of their input and output dtypes."""
_BLOSC_SHUFFLE = ("noshuffle", "shuffle", "bitshuffle")


def array_metadata_v2(document: Mapping[str, Any], attrs: Mapping[str, Any]) -> ArrayMetadata:
    """The content of ``.zarray`` and ``.zattrs`` in the form of v3.

    The dtype may be a datetime64 or timedelta64. The fill value, if there is one, also becomes the
    attribute ``_FillValue``, as xarray does for a v2 array.

    Raises
    ------
    SourceFormatError
        If the document is not that of a Zarr v2 array.
    UnsupportedFeatureError
        For data types and filters that gridref cannot read.
    """
    if document.get("zarr_format") != 2:
        raise SourceFormatError(f"zarr_format {document.get('zarr_format')!r} in a .zarray")
    try:
        shape, chunks = list(document["shape"]), list(document["chunks"])
        filters = list(document.get("filters") or [])
        stored = _dtype(document["dtype"], filters)
        check_element_size(stored)
        codecs = _codecs(stored, filters, document.get("compressor"), document["order"], len(shape))
        dtype = stored.newbyteorder("=") if stored.kind != "T" else stored
        rest = dict(attrs)
        dims = rest.pop("_ARRAY_DIMENSIONS", None)
        fill = _fill_value(document.get("fill_value"), dtype)
        if document.get("fill_value") is not None and dtype.kind in "biufc":
            rest.setdefault("_FillValue", fill)
        separator = str(document.get("dimension_separator", "."))
        grid = ChunkGrid.regular(shape, [max(1, length) for length in chunks])
    except (KeyError, TypeError, ValueError) as error:
        raise SourceFormatError(f"bad Zarr v2 array metadata: {error!r}") from error
    names = None if dims is None else tuple(dims)
    return ArrayMetadata(dtype, grid, codecs, fill, names, rest, separator, "")


def _dtype(declared: Any, filters: list[Any]) -> np.dtype[Any]:
    if isinstance(declared, list):
        fields: Any = [(field[0], *map(_hashable, field[1:])) for field in declared]
        structure: np.dtype[Any] = np.dtype(fields)
        return structure
    dtype: np.dtype[Any] = np.dtype(declared)
    if dtype.kind != "O":
        return dtype
    if filters and filters[0]["id"] == "vlen-utf8":
        return np.dtype(np.dtypes.StringDType())
    ids = [codec["id"] for codec in filters]
    raise UnsupportedFeatureError(f"Python objects, encoded by the filters {ids}, are not read")


def _hashable(part: Any) -> Any:
    if isinstance(part, list) and part and isinstance(part[0], list):
        return [(field[0], *map(_hashable, field[1:])) for field in part]
    return tuple(part) if isinstance(part, list) else part


def _codecs(
    dtype: np.dtype[Any], filters: list[Any], compressor: Any, order: str, ndim: int
) -> tuple[Codec, ...]:
    chain = [transpose_codec(tuple(range(ndim))[::-1])] if order == "F" and ndim > 1 else []
    behind = [*filters, *([compressor] if compressor else [])]
    if dtype.kind == "T":
        chain.append(Codec("vlen-utf8"))
        behind = behind[1:]
    else:
        while behind and behind[0]["id"] in _ARRAY_FILTERS:
            codec, dtype = _array_codec(behind.pop(0), dtype)
            chain.append(codec)
        chain.append(bytes_codec(dtype, big_endian=_is_big_endian(dtype)))
    return (*chain, *(_bytes_codec(document, dtype) for document in behind))


def _array_codec(document: Mapping[str, Any], dtype: np.dtype[Any]) -> tuple[Codec, np.dtype[Any]]:
    """The v3 name of a filter that works on arrays, and its output dtype."""
    settings = {key: value for key, value in document.items() if key != "id"}
    name = str(document["id"])
    codec = Codec.of(f"numcodecs.{name}", **settings)
    if name == "packbits":
        return codec, np.dtype(np.uint8)
    if not _ARRAY_FILTERS[name]:
        return codec, dtype
    taken, made = _ARRAY_FILTERS[name]
    if np.dtype(settings[taken]) != dtype:
        raise UnsupportedFeatureError(
            f"the filter {name} of {settings[taken]} stands behind {dtype}"
        )
    return codec, np.dtype(settings.get(made) or settings[taken])


def _is_big_endian(dtype: np.dtype[Any]) -> bool:
    if dtype.names is None or dtype.fields is None:
        return dtype.subdtype[0].str[0] == ">" if dtype.subdtype else dtype.str[0] == ">"
    members = [dtype.fields[name][0] for name in dtype.names]
    orders = {_is_big_endian(member) for member in members if member.base.itemsize > 1}
    if len(orders) > 1:
        raise UnsupportedFeatureError("fields of both byte orders in one data type are not read")
    return orders == {True}


def _bytes_codec(document: Mapping[str, Any], dtype: np.dtype[Any]) -> Codec:
    """The v3 name of a filter or compressor that works on bytes."""
    settings = {key: value for key, value in document.items() if key != "id"}
    name = str(document["id"])
    if name == "gzip":
        return Codec.of("gzip", level=settings.get("level", 1))
    if name == "zstd":
        return Codec.of(
            "zstd", level=settings.get("level", 0), checksum=settings.get("checksum", False)
        )
    if name == "blosc":
        shuffle = settings.get("shuffle", 1)
        if shuffle == -1:
            shuffle = 2 if dtype.itemsize == 1 else 1
        return Codec.of(
            "blosc",
            cname=settings.get("cname", "lz4"),
            clevel=settings.get("clevel", 5),
            shuffle=_BLOSC_SHUFFLE[shuffle],
            typesize=max(1, dtype.itemsize),
            blocksize=settings.get("blocksize", 0),
        )
    if name not in _BYTES_FILTERS:
        raise UnsupportedFeatureError(f"the filter {name} is not read")
    return Codec.of(f"numcodecs.{name}", **settings)


def _fill_value(document: Any, dtype: np.dtype[Any]) -> Any:
    """The fill value; null, which leaves it undefined, becomes zero as in zarr-python."""
    if dtype.kind == "T":
        return "" if document in (None, 0) else str(document)
    if document is None:
        return zero_of(dtype)
    if dtype.kind in "SV":
        raw = base64.standard_b64decode(document) if isinstance(document, str) else b""
        if dtype.kind == "S":
            return np.asarray(raw, dtype)[()]
        return np.frombuffer(raw.ljust(dtype.itemsize, b"\0"), dtype)[0]
    if dtype.kind == "c" and isinstance(document, list):
        return dtype.type(complex(float(document[0]), float(document[1])))
    if dtype.kind in "mM":
        return np.asarray(int(document), np.int64).view(dtype)[()]
    if dtype.kind == "f" and isinstance(document, str):
        return dtype.type(float(document))
    return scalar_of(document, dtype)
