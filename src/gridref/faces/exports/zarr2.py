"""Write what is shown as Zarr v3 with the documents and keys of Zarr v2, for older readers.

Sources: Zarr storage specification v2; numcodecs' configurations; xarray's "Zarr Encoding
Specification" (``_ARRAY_DIMENSIONS``, and that the fill value of a v2 array is its ``_FillValue``).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from gridref.errors import InvalidRequestError, NotRepresentableError
from gridref.formats.metadata import attributes_from_json
from gridref.formats.zarr import ARRAY_FILTERS
from gridref.model.array import zero_of
from gridref.model.encoding import BLOSC_SHUFFLES, Codec, element_bytes
from gridref.model.zarr_metadata import ArrayMetadata, fill_value_to_json

type ByteOrder = Literal["<", ">"]

_SAME_NAME = ("zstd", "gzip", "crc32c", "vlen-utf8")


def group_documents(attrs: Mapping[str, Any]) -> dict[str, str]:
    """The documents of a group with these attributes, by key."""
    return {".zgroup": '{"zarr_format": 2}', ".zattrs": json.dumps(attrs)}


def array_documents(metadata: ArrayMetadata, is_complete: bool) -> dict[str, str]:
    """The documents of an array, by key.

    Parameters
    ----------
    metadata
        As it is shown in Zarr v3.
    is_complete
        Whether all its chunks are there.
    """
    attrs = {**metadata.attrs, "_ARRAY_DIMENSIONS": list(metadata.dims or ())}
    attrs.pop("_FillValue", None)
    try:
        # Members of compounds that are arrays are plain bytes in the document, as in Zarr v2.
        array = _array(ArrayMetadata.from_json(metadata.to_json()), is_complete)
    except InvalidRequestError as error:
        raise NotRepresentableError(error.reason) from error
    return {".zarray": json.dumps(array), ".zattrs": json.dumps(attrs)}


def chunk_key(coords: Sequence[int]) -> str:
    """The key of a chunk."""
    return ".".join(map(str, coords)) or "0"


def absent_chunk(metadata: ArrayMetadata) -> bytes | None:
    """What a chunk that is absent reads as; None where chunks are encoded."""
    if [codec.name for codec in metadata.codecs] != ["bytes"]:
        return None
    shape = metadata.grid.to_json()["configuration"]["chunk_shape"]
    is_big = metadata.codecs[0].configuration.get("endian") == "big"
    dtype = metadata.dtype.newbyteorder(">" if is_big else "<")
    return np.full(shape, metadata.fill_value, metadata.dtype).astype(dtype).tobytes()


def _array(metadata: ArrayMetadata, is_complete: bool) -> dict[str, Any]:
    """The ``.zarray`` of an array, complete or with missing chunks."""
    grid = metadata.grid.to_json()
    if grid["name"] != "regular":
        raise NotRepresentableError("its chunks are uneven")
    order, codecs = _order(metadata)
    endians = [c.configuration.get("endian") for c in codecs if c.name == "bytes"]
    byte_order: ByteOrder = ">" if "big" in endians else "<"
    filters = [_filter(codec, byte_order) for codec in codecs if codec.name != "bytes"]
    return {
        "zarr_format": 2,
        "shape": list(metadata.grid.shape),
        "chunks": list(grid["configuration"]["chunk_shape"]),
        "dtype": _dtype(metadata.dtype, byte_order),
        "compressor": None,
        "fill_value": _fill_value(metadata, is_complete),
        "order": order,
        "filters": filters or None,
        "dimension_separator": ".",
    }


def _order(metadata: ArrayMetadata) -> tuple[str, list[Codec]]:
    """The order of elements that the transpositions at the head of a chain mean, and the rest."""
    codecs, order = list(metadata.codecs), list(range(metadata.grid.ndim))
    while codecs[0].name == "transpose":
        order = [order[axis] for axis in codecs.pop(0).configuration["order"]]
    if order == sorted(order):
        return "C", codecs
    if order != sorted(order, reverse=True):
        raise NotRepresentableError(f"Zarr v2 does not have the order of axes {order}")
    return "F", codecs


def _filter(codec: Codec, byte_order: ByteOrder) -> dict[str, Any]:
    """The numcodecs configuration of a codec.

    Filters of arrays get the byte order of the stored elements: Zarr v2 has no other place for it.
    """
    settings = dict(codec.configuration)
    if codec.name == "blosc":
        shuffle = BLOSC_SHUFFLES.index(settings["shuffle"])
        kept = {name: settings[name] for name in ("cname", "clevel", "blocksize")}
        return {"id": "blosc", "shuffle": shuffle, **kept}
    name = codec.name.removeprefix("numcodecs.")
    if name == codec.name and name not in _SAME_NAME:
        raise NotRepresentableError(f"Zarr v2 has no codec {name}")
    for key in ARRAY_FILTERS.get(name, ()):
        if settings.get(key):
            settings[key] = np.dtype(settings[key]).newbyteorder(byte_order).str
    return {"id": name, **settings}


def _dtype(dtype: np.dtype[Any], byte_order: ByteOrder) -> Any:
    if dtype.kind == "T":
        return "|O"
    dtype = dtype.newbyteorder(byte_order)
    return dtype.str if dtype.names is None else np.lib.format.dtype_to_descr(dtype)


def _fill_value(metadata: ArrayMetadata, is_complete: bool) -> Any:
    """What readers take both for absent chunks and for ``_FillValue``: only where it is both.

    Without one, zarr reads absent chunks as zero.
    """
    dtype = metadata.dtype
    masked = attributes_from_json(metadata.attrs, dtype).get("_FillValue")
    absent = _to_json(metadata.fill_value, dtype)
    stated = None if masked is None else _to_json(masked, dtype)
    read_as = _to_json(zero_of(dtype), dtype) if stated is None else stated
    if not is_complete and json.dumps(read_as) != json.dumps(absent):  # 0.0 is not -0.0
        raise NotRepresentableError("absent chunks read as a value that is not its _FillValue")
    return stated


def _to_json(value: Any, dtype: np.dtype[Any]) -> Any:
    if dtype.kind in "SV":
        return base64.standard_b64encode(element_bytes(value, dtype)).decode()
    document = fill_value_to_json(value, dtype)
    return "NaN" if str(document).startswith("0x") else document
