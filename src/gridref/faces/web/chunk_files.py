"""Write the tables by which a browser reads an array without a server.

There are two files for each array. A JSON document describes how the array is made of blocks, as
`VirtualArray` does. A column of the block table is ``{"same": value}`` or ``{"each": [...]}``. The
other file has a record for each stored chunk, three little-endian float64: number of the source (-1
if the chunk is missing, -2 if it is inline), first byte, and number of bytes. Inline bytes follow
the records.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.codecs import encode_chunk
from gridref.errors import NotRepresentableError
from gridref.faces.exports.references import IN_ARCHIVE, INLINE_LIMIT_BYTES, is_nameable
from gridref.io.identity import tags_of
from gridref.model.array import VirtualArray
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.encoding import Codec, EdgePolicy, Encoding
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from gridref.model.zarr_metadata import attributes_to_json, data_type_to_json

VIEWED_TYPES = (
    *("bool", "string", "float16", "float32", "float64"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)
"""Data types of Zarr v3 that the viewer knows, and pictures, plots and lists are made of."""

_CODECS = frozenset(
    {
        "blosc",
        "bytes",
        "crc32c",
        "gridref.hdf5_bitshuffle",
        "gridref.hdf5_lz4",
        "gzip",
        "numcodecs.blosc",
        "numcodecs.fletcher32",
        "numcodecs.gzip",
        "numcodecs.lz4",
        "numcodecs.shuffle",
        "numcodecs.zlib",
        "numcodecs.zstd",
        "transpose",
        "vlen-utf8",
        "zstd",
    }
)
"""Codecs that the viewer decodes whatever their configuration is."""

_JPEG = frozenset({"gridref.hdf5_jpeg", "gridref.tiff_jpeg"})
_COLORS = (None, 2, 3)
"""Colour spaces of JPEG that browsers show as RGB, as tifffile counts them: RGB and YCbCr."""

_MOST_PARTS = 16
"""A coordinate in more chunks than this is read when the site is made, if it is small."""


@dataclass(frozen=True)
class ChunkFiles:
    """The two files of an array.

    Attributes
    ----------
    records
        The records, and the inline bytes behind them.
    is_exact
        Whether every browser shows the very values: not those of JPEG.
    """

    document: bytes
    records: bytes
    is_exact: bool


def chunk_files(array: VirtualArray, read: Callable[[VirtualArray], NDArray[Any]]) -> ChunkFiles:
    """The files of an array whose chunks a browser decodes.

    Parameters
    ----------
    array
        The array; its sources are on the web.
    read
        Reads all values of an array. Small arrays that a browser does not decode, or would read in
        many parts, are read now, and written into the files.

    Raises
    ------
    NotRepresentableError
        With the reason why a browser cannot read the array.
    """
    is_small = array.nbytes <= INLINE_LIMIT_BYTES
    reason = _why_not(array)
    n_rows = sum(manifest.n_rows for manifest in array.manifests)
    if is_small and (reason or (array.ndim == 1 and n_rows > _MOST_PARTS)):
        array = _written_out(array, read)
        reason = _why_not(array)
    if reason:
        raise NotRepresentableError(reason)
    rows = [manifest.take(np.arange(manifest.n_rows)) for manifest in array.manifests]
    manifest = ChunkManifest.concatenate(rows)
    first = np.cumsum([0, *(part.n_rows for part in rows)])
    document = json.dumps(_document(array, manifest, first), allow_nan=False)
    is_exact = not any(codec.name in _JPEG for each in array.encodings for codec in each.codecs)
    return ChunkFiles(document.encode(), _records(manifest), is_exact)


def _why_not(array: VirtualArray) -> str | None:
    """Why a browser cannot read an array from its sources; None if it can."""
    if data_type_to_json(array.dtype) not in VIEWED_TYPES:
        return f"its elements are {array.dtype}"
    if array.has_filter_masks:
        return "some of its chunks were stored without some of its filters"
    for encoding in array.encodings:
        if encoding.unpacking is not None or encoding.dtype != array.dtype:
            return "its files store the numbers in different ways"
        for codec in encoding.codecs:
            if not _is_decoded(codec, encoding):
                return f"its codec {codec.name} is not among those that they decode"
    no_rows = np.zeros(0, np.int64)
    sources = {source for each in array.manifests for source in each.take(no_rows).sources}
    return None if all(map(is_nameable, sources)) else IN_ARCHIVE


def _is_decoded(codec: Codec, encoding: Encoding) -> bool:
    config = codec.configuration
    if codec.name in _JPEG:
        spaces = (config.get("colorspace"), config.get("outcolorspace"))
        is_shown = all(space in _COLORS for space in spaces) and spaces[1] != 3
        return is_shown and encoding.dtype == np.uint8 and config.get("samples", 1) in (1, 3)
    if codec.name == "gridref.tiff_predictor":
        is_plain = config["predictor"] == 2 and config.get("distance", 1) == 1
        return is_plain and encoding.dtype.kind in "iu"
    return codec.name in _CODECS and config.get("cname") != "snappy"


def are_decoded(codecs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the viewer decodes a chain of codecs, as it is in a ``zarr.json``, exactly."""
    return all(
        codec["name"] in _CODECS and codec.get("configuration", {}).get("cname") != "snappy"
        for codec in codecs
    )


def _written_out(array: VirtualArray, read: Callable[[VirtualArray], NDArray[Any]]) -> VirtualArray:
    values = read(array)
    if array.dtype.kind != "T":
        return VirtualArray.from_numpy(values, array.dims, array.attrs, array.fill_value)
    codecs = (Codec("vlen-utf8"),)
    return VirtualArray.of_one_block(
        array.shape,
        array.dtype,
        encoding=Encoding(tuple(max(1, n) for n in array.shape), array.dtype, codecs),
        manifest=ChunkManifest.from_inline([encode_chunk(values, codecs)] if values.size else []),
        dims=array.dims,
        attrs=array.attrs,
        fill_value=array.fill_value,
    )


def _document(array: VirtualArray, manifest: ChunkManifest, first: Any) -> dict[str, Any]:
    table = array.blocks
    first_row = table.first_row + np.where(
        table.encoding == MISSING_BLOCK, 0, first[table.manifest]
    )
    columns: dict[str, NDArray[Any]] = {
        "encoding": table.encoding,
        "first_row": first_row,
        "row_stride": table.row_stride,
        "stored_shape": table.stored_shape,
        "origin": table.origin,
        "step": table.step,
    }
    return {
        "shape": array.shape,
        "data_type": data_type_to_json(array.dtype),
        "fill_value": _fill(array.fill_value, array.dtype),
        "attributes": attributes_to_json(array.attrs, array.dtype),
        "edges": [axis.edges().tolist() for axis in array.grid.axes],
        "encodings": [_encoding(each) for each in array.encodings],
        "blocks": {name: _column(column) for name, column in columns.items()},
        "sources": [source.url for source in manifest.sources],
        "stated": [_stated(source) for source in manifest.sources],
        "n_records": manifest.n_rows,
    }


def _stated(source: Source) -> dict[str, Any]:
    """The identity of a file at the scan, which each answer has to match."""
    size = {} if source.size_bytes is None else {"size": source.size_bytes}
    return {**size, **(tags_of(source.etag) if source.told_by == "strict" else {})}


def _encoding(encoding: Encoding) -> dict[str, Any]:
    document = {
        "chunk_shape": encoding.chunk_shape,
        "codecs": [codec.to_json() for codec in encoding.codecs],
        "truncated": encoding.edge is EdgePolicy.TRUNCATED,
        "is_plain": [codec.name for codec in encoding.codecs] == ["bytes"] and not encoding.prefix,
        "item_bytes": encoding.dtype.itemsize,
        "prefix": _base64(encoding.prefix),
    }
    if encoding.fill is not None:
        fill = np.frombuffer(encoding.fill, encoding.dtype)[0]
        document["fill_value"] = _fill(fill, encoding.dtype)
    return document


def _fill(value: Any, dtype: np.dtype[Any]) -> str:
    """A fill value as text, or its little-endian bytes in base64: with all bits of a NaN."""
    if dtype.kind == "T":
        return str(value)
    return _base64(np.asarray(value, dtype.newbyteorder("<")).tobytes())


def _base64(data: bytes) -> str:
    return base64.standard_b64encode(data).decode()


def _column(values: NDArray[Any]) -> dict[str, Any]:
    if len(values) and (values == values[:1]).all():
        return {"same": values[0].tolist()}
    return {"each": values.tolist()}


def _records(manifest: ChunkManifest) -> bytes:
    records = np.zeros((manifest.n_rows, 3), "<f8")
    other = np.where(manifest.state == ChunkState.INLINE, -2, -1)
    records[:, 0] = np.where(manifest.state == ChunkState.RANGE, manifest.source, other)
    records[:, 1], records[:, 2] = manifest.offset, manifest.length
    return records.tobytes() + manifest.inline
