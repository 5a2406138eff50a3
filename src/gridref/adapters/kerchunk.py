"""Kerchunk references of a group: one JSON document with Zarr v3 keys.

A reference is a byte range of one file, so only what the native view shows can be expressed. Small
arrays that it does not show are written into the document, decoded.

Format: https://fsspec.github.io/kerchunk/spec.html, version 1.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gridref.codecs import encode_chunk
from gridref.errors import GridrefError, NotRepresentableError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Encoding
from gridref.model.manifest import ChunkManifest, ChunkState
from gridref.model.zarr_attributes import attributes_to_json
from gridref.model.zarr_metadata import group_document
from gridref.serve.reader import Reader
from gridref.serve.views import ArrayView, View, ViewOptions, show
from gridref.workflows.opening import reader_for

__all__ = ["INLINE_LIMIT_BYTES", "to_kerchunk"]

INLINE_LIMIT_BYTES = 2**20
"""Largest array that is written into the references where they cannot point to its chunks."""

_NATIVE = ViewOptions(View.NATIVE, grid="rectilinear")
_PORTABLE = ViewOptions(View.PORTABLE)


def to_kerchunk(
    group: VirtualGroup,
    path: str | os.PathLike[str] | None = None,
    *,
    reader: Reader | None = None,
    inline_limit: int = INLINE_LIMIT_BYTES,
) -> dict[str, Any]:
    """Write a group as kerchunk references.

    Parameters
    ----------
    group
        The group.
    path
        Where the JSON goes; None writes nothing.
    reader
        Reads the arrays that are written into the document.
    inline_limit
        Largest size in bytes of such an array.

    Returns
    -------
    dict
        The document.

    Raises
    ------
    NotRepresentableError
        Naming every array that references cannot express, and why.
    """
    refs: dict[str, Any] = {}
    reasons = []
    reader = reader or reader_for()
    documents: dict[str, Any] = {}
    for name, array in group.all_arrays().items():
        try:
            view, found = _references(name, array, reader, inline_limit)
        except NotRepresentableError as error:
            reasons.append(f"{name}: {error.reason}")
            continue
        documents[name] = view.metadata.to_json()
        refs[f"{name}/zarr.json"] = json.dumps(documents[name], allow_nan=False)
        refs.update(found)
    if reasons:
        lines = "\n".join(f"  - {reason}" for reason in reasons)
        raise NotRepresentableError(
            f"kerchunk references cannot express {len(reasons)} arrays; write a catalog instead:\n"
            f"{lines}"
        )
    for group_path, part in group.walk():
        head = f"{group_path}/" if group_path else ""
        below = {
            key.removeprefix(head): doc for key, doc in documents.items() if key.startswith(head)
        }
        document = group_document(attributes_to_json(part.attrs, None), below)
        refs[f"{head}zarr.json"] = json.dumps(document, allow_nan=False)
    result = {"version": 1, "refs": refs}
    if path is not None:
        Path(os.fspath(path)).write_text(json.dumps(result), encoding="utf-8")
    return result


def _references(
    name: str, array: VirtualArray, reader: Reader, inline_limit: int
) -> tuple[ArrayView, dict[str, Any]]:
    try:
        view = show(array, _NATIVE)
        _refuse_inexpressible(array)
    except GridrefError as error:
        if array.nbytes > inline_limit or array.dtype.kind == "T":
            raise NotRepresentableError(getattr(error, "reason", str(error))) from error
        return _inlined(name, array, reader)
    return view, dict(_ranges(name, view))


def _refuse_inexpressible(array: VirtualArray) -> None:
    """Refuse what the native view can serve, but a byte range cannot say."""
    if array.has_filter_masks:
        raise NotRepresentableError("some chunks have filters switched off")
    if any(encoding.prefix for encoding in array.encodings):
        raise NotRepresentableError("bytes have to be put before each chunk")


def _ranges(name: str, view: ArrayView) -> Iterator[tuple[str, Any]]:
    """A reference for every chunk that is present."""
    array = view.array
    counts = view.chunk_grid.grid_shape
    if array.n_blocks == 0:
        return
    block, row = view.locate((0,) * len(counts), counts)
    keys = _keys(name, counts)
    manifests = array.blocks.manifest[block]
    for number in np.unique(manifests[row >= 0]).tolist():
        places = np.flatnonzero((manifests == number) & (row >= 0))
        rows = array.manifests[number].take(row[places])
        yield from _rows([keys[place] for place in places.tolist()], rows)


def _rows(keys: list[str], rows: ChunkManifest) -> Iterator[tuple[str, Any]]:
    urls = [source.url for source in rows.sources]
    columns = zip(
        keys,
        rows.state.tolist(),
        rows.source.tolist(),
        rows.offset.tolist(),
        rows.length.tolist(),
        strict=True,
    )
    for place, (key, state, source, offset, length) in enumerate(columns):
        if state == ChunkState.RANGE:
            yield key, [urls[source], offset, length]
        elif state == ChunkState.INLINE:
            yield key, _text(rows.inline_bytes(place))


def _keys(name: str, counts: tuple[int, ...]) -> list[str]:
    """Keys of all chunks in C order."""
    keys = [f"{name}/c"]
    for count in counts:
        keys = [f"{key}/{number}" for key in keys for number in range(count)]
    return keys


def _text(data: bytes) -> str:
    return "base64:" + base64.b64encode(data).decode()


def _inlined(name: str, array: VirtualArray, reader: Reader) -> tuple[ArrayView, dict[str, Any]]:
    """All values of a small array, as one chunk each of its portable view."""
    view = show(array, _PORTABLE)
    values = reader.read(array, name=name)
    found = {}
    grid = view.metadata.grid
    for coords in np.ndindex(*grid.grid_shape):
        shape = grid.chunk_shape(coords)
        chunk = np.full(shape, array.fill_value, array.dtype)
        part = values[view.region(coords)]
        chunk[tuple(slice(0, extent) for extent in part.shape)] = part
        encoding = Encoding(tuple(shape), array.dtype, view.metadata.codecs)
        key = "/".join([f"{name}/c", *map(str, coords)])
        found[key] = _text(bytes(encode_chunk(chunk, encoding.codecs)))
    return view, found
