"""Translate Zarr v3 keys and documents to Zarr v2, for older readers.

Sources: Zarr storage specification v2; numcodecs' configurations; xarray's "Zarr Encoding
Specification" (``_ARRAY_DIMENSIONS``, and that the fill value of a v2 array is its ``_FillValue``).
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from gridref.errors import InvalidRequestError, NotRepresentableError
from gridref.formats.kerchunk.references import as_text
from gridref.formats.zarr.arrays import attributes_from_json
from gridref.model.array import zero_of
from gridref.model.encoding import Codec, element_bytes
from gridref.model.zarr_metadata import ArrayMetadata, fill_value_to_json

_BLOSC_SHUFFLE = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}
_SAME_NAME = ("zstd", "gzip", "crc32c", "vlen-utf8")
_DOCUMENT = "zarr.json"


def as_version_2[Held](
    keys: Mapping[str, Held | str],
) -> tuple[dict[str, Held | str], dict[str, str]]:
    """The keys of a hierarchy as they are in Zarr v2.

    Parameters
    ----------
    keys
        What each key of a Zarr v3 hierarchy holds; of documents the text.

    Returns
    -------
    tuple
        What each key of the Zarr v2 hierarchy holds, and of arrays that Zarr v2 cannot express the
        reason, by path.
    """
    documents = {
        key.removesuffix(_DOCUMENT): json.loads(str(text))
        for key, text in keys.items()
        if key.rpartition("/")[2] == _DOCUMENT
    }
    chunks = {key: place for key in keys if (place := _split(key)) is not None}
    n_chunks = Counter(head for head, _ in chunks.values())
    written: dict[str, Held | str] = {}
    reasons: dict[str, str] = {}
    for head, document in documents.items():
        try:
            written |= _documents(head, document, n_chunks[head])
        except (NotRepresentableError, InvalidRequestError) as error:
            reasons[head.rstrip("/")] = error.reason
    for key, (head, coords) in chunks.items():
        written[f"{head}{coords}"] = keys[key]
    return written, reasons


def with_absent_chunks[Held](
    keys: Mapping[str, Held | str], names: Iterable[str]
) -> dict[str, Held | str]:
    """The keys of a hierarchy with the chunks of uncompressed arrays that were absent.

    Parameters
    ----------
    keys
        What each key of a Zarr v3 hierarchy holds; of documents the text.
    names
        Paths of the arrays that get them; those of other codecs stay as they are.
    """
    added: dict[str, str] = {}
    for name in names:
        metadata = ArrayMetadata.from_json(json.loads(str(keys[f"{name}/{_DOCUMENT}"])))
        if [codec.name for codec in metadata.codecs] != ["bytes"]:
            continue
        is_big = metadata.codecs[0].configuration.get("endian") == "big"
        shape = metadata.grid.to_json()["configuration"]["chunk_shape"]
        chunk = np.full(shape, metadata.fill_value, metadata.dtype).astype(
            metadata.dtype.newbyteorder(">" if is_big else "<")
        )
        for coords in np.ndindex(*metadata.grid.grid_shape):
            added[f"{name}/{metadata.chunk_key(coords)}"] = as_text(chunk.tobytes())
    return {**added, **keys}


def _split(key: str) -> tuple[str, str] | None:
    """The path of a chunk's array, and the name that Zarr v2 gives the chunk; None for others."""
    if key.rpartition("/")[2] == _DOCUMENT:
        return None
    head, _, coords = f"/{key}".rpartition("/c")
    return f"{head[1:]}/" if head else "", coords[1:].replace("/", ".") or "0"


def _documents(head: str, document: Mapping[str, Any], n_chunks: int) -> dict[str, str]:
    attrs = dict(document.get("attributes", {}))
    if document["node_type"] == "group":
        return {f"{head}.zgroup": '{"zarr_format": 2}', f"{head}.zattrs": json.dumps(attrs)}
    metadata = ArrayMetadata.from_json(document)
    attrs.pop("_FillValue", None)
    attrs["_ARRAY_DIMENSIONS"] = list(metadata.dims or ())
    array = json.dumps(_array(metadata, n_chunks == metadata.grid.n_chunks))
    return {f"{head}.zarray": array, f"{head}.zattrs": json.dumps(attrs)}


def _array(metadata: ArrayMetadata, is_complete: bool) -> dict[str, Any]:
    """The ``.zarray`` of an array, complete or with missing chunks."""
    grid = metadata.grid.to_json()
    if grid["name"] != "regular":
        raise NotRepresentableError("its chunks are uneven")
    order, dtype, filters = "C", metadata.dtype, []
    for codec in metadata.codecs:
        if codec.name == "transpose":
            order = _order(codec)
        elif codec.name == "bytes":
            big_endian = codec.configuration.get("endian") == "big"
            dtype = dtype.newbyteorder(">" if big_endian else "<")
        else:
            filters.append(_filter(codec))
    return {
        "zarr_format": 2,
        "shape": list(metadata.grid.shape),
        "chunks": list(grid["configuration"]["chunk_shape"]),
        "dtype": _dtype(dtype),
        "compressor": None,
        "fill_value": _fill_value(metadata, is_complete),
        "order": order,
        "filters": filters or None,
        "dimension_separator": ".",
    }


def _order(codec: Codec) -> str:
    order = list(codec.configuration["order"])
    if order != sorted(order, reverse=True):
        raise NotRepresentableError(f"Zarr v2 does not have the order of axes {order}")
    return "F"


def _filter(codec: Codec) -> dict[str, Any]:
    """The numcodecs configuration of a codec."""
    settings = dict(codec.configuration)
    if codec.name == "blosc":
        shuffle = _BLOSC_SHUFFLE[settings["shuffle"]]
        kept = {name: settings[name] for name in ("cname", "clevel", "blocksize")}
        return {"id": "blosc", "shuffle": shuffle, **kept}
    name = codec.name.removeprefix("numcodecs.")
    if name == codec.name and name not in _SAME_NAME:
        raise NotRepresentableError(f"Zarr v2 has no codec {name}")
    return {"id": name, **settings}


def _dtype(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "T":
        return "|O"
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
    if not is_complete and read_as != absent:
        raise NotRepresentableError("absent chunks read as a value that is not its _FillValue")
    return stated


def _to_json(value: Any, dtype: np.dtype[Any]) -> Any:
    if dtype.kind in "SV":
        return base64.standard_b64encode(element_bytes(value, dtype)).decode()
    document = fill_value_to_json(value, dtype)
    return "NaN" if str(document).startswith("0x") else document
