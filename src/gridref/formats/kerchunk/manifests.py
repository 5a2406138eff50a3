"""VirtualiZarr's manifests, as references.

Source: VirtualiZarr's documentation, "Data structures" (2.8).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gridref.errors import Place, SourceFormatError
from gridref.formats.kerchunk.references import Reference
from gridref.model.grid import chunk_counts

__all__ = ["references_of_manifests"]

_DOCUMENT = "zarr.json"


def references_of_manifests(group: Any) -> dict[str, bytes | Reference]:
    """What each Zarr v3 key of a ``ManifestGroup`` holds, groups below it included.

    Raises
    ------
    SourceFormatError
        If a manifest has more or fewer chunks than its array.
    """
    return dict(_group(group, ""))


def _group(group: Any, head: str) -> Iterator[tuple[str, bytes | Reference]]:
    yield f"{head}{_DOCUMENT}", _document(group.metadata)
    for name, array in group.arrays.items():
        yield from _array(array, f"{head}{name}/")
    for name, below in group.groups.items():
        yield from _group(below, f"{head}{name}/")


def _array(array: Any, head: str) -> Iterator[tuple[str, bytes | Reference]]:
    metadata, manifest = array.metadata, array.manifest
    yield f"{head}{_DOCUMENT}", _document(metadata)
    expected = chunk_counts(metadata.shape, metadata.chunks)
    if manifest.dict() and tuple(manifest.shape_chunk_grid) != expected:
        raise SourceFormatError(
            f"its manifest is of {manifest.shape_chunk_grid} chunks, its array of {expected}",
            Place(variable=head.rstrip("/")),
        )
    for key, entry in manifest.dict().items():
        coords = tuple(map(int, key.split("."))) if metadata.shape else ()
        data = entry.get("data")
        held = Reference(entry["path"], entry["offset"], entry["length"]) if data is None else data
        yield f"{head}{metadata.encode_chunk_key(coords)}", held


def _document(metadata: Any) -> bytes:
    from zarr.core.buffer import default_buffer_prototype

    buffers = metadata.to_buffer_dict(default_buffer_prototype())
    document: bytes = buffers[_DOCUMENT].to_bytes()
    return document
