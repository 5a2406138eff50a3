"""Virtual objects: what answers for a key, and how any byte range of it is read.

A `KeySpace` turns the keys of a Zarr v3 hierarchy into virtual objects. The fsspec filesystem, the
Zarr store and HTTP are faces over it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.codecs import encode_chunk
from gridref.errors import GridrefError, Place
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.manifest import ChunkState, Source
from gridref.model.zarr_metadata import attributes_to_json, group_document
from gridref.serve.plan import is_missing_block, plan_read
from gridref.serve.reader import Reader, absent_value
from gridref.serve.views import ArrayView, View, ViewOptions, show

__all__ = [
    "DecodedSegment",
    "KeySpace",
    "LiteralSegment",
    "ObjectReader",
    "Segment",
    "SourceSegment",
    "VirtualObject",
]

METADATA_KEY = "zarr.json"
CHUNK_PREFIX = "c"


@dataclass(frozen=True)
class LiteralSegment:
    """Bytes that are at hand."""

    data: bytes = field(repr=False)

    @property
    def n_bytes(self) -> int:
        """Size in bytes."""
        return len(self.data)


@dataclass(frozen=True)
class SourceSegment:
    """A byte range of a source."""

    source: Source
    offset: int
    n_bytes: int


@dataclass(frozen=True, eq=False)
class DecodedSegment:
    """A chunk of the portable view, to be decoded and encoded on reading.

    `n_bytes` is None where compression makes the size unknown beforehand.
    """

    view: ArrayView
    coords: tuple[int, ...]
    n_bytes: int | None


Segment = LiteralSegment | SourceSegment | DecodedSegment


@dataclass(frozen=True, eq=False)
class VirtualObject:
    """What answers for one key.

    Attributes
    ----------
    segments
        What the object consists of, in order.
    etag
        Entity tag, without quotes: equal exactly if the content is equal, as far as sources tell.
    variable
        Path of the array, for messages.
    coords
        Chunk coords, for messages.
    """

    segments: tuple[Segment, ...]
    etag: str
    variable: str | None = None
    coords: tuple[int, ...] | None = None

    @property
    def n_bytes(self) -> int | None:
        """Size in bytes; None where it is known only after encoding."""
        sizes = [segment.n_bytes for segment in self.segments]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def place(self) -> Place:
        """Which array and chunk this is."""
        return Place(variable=self.variable, chunk=self.coords)


class KeySpace:
    """The keys of a virtual group shown as a Zarr v3 hierarchy.

    Parameters
    ----------
    group
        What is shown.
    options
        How.
    """

    def __init__(self, group: VirtualGroup, options: ViewOptions | None = None) -> None:
        self.group = group
        self.options = options or ViewOptions()
        self._views: dict[str, ArrayView] = {}

    @cached_property
    def _groups(self) -> dict[str, VirtualGroup]:
        return dict(self.group.walk())

    def array_view(self, path: str) -> ArrayView | None:
        """The view of the array at a path; None where there is no array."""
        view = self._views.get(path)
        if view is not None:
            return view
        parent, _, name = path.rpartition("/")
        group = self._groups.get(parent)
        if group is None or name not in group.arrays:
            return None
        try:
            view = show(group.arrays[name], self.options)
        except GridrefError as error:
            raise error.located(Place(variable=path)) from error
        return self._views.setdefault(path, view)

    def views(self) -> dict[str, ArrayView]:
        """The views of all arrays by path."""
        paths = [
            f"{path}/{name}" if path else name
            for path, group in self._groups.items()
            for name in group.arrays
        ]
        return {path: view for path in paths if (view := self.array_view(path)) is not None}

    def resolve(self, key: str) -> VirtualObject | None:
        """What answers for a key; None where nothing does (an unknown key or a missing chunk)."""
        parent, _, name = key.rpartition("/")
        if name == METADATA_KEY:
            return self._metadata(parent)
        found = self._split_chunk_key(key)
        if found is None:
            return None
        path, view, coords = found
        if view.view is View.NATIVE:
            return _native_object(path, view, coords)
        return _portable_object(path, view, coords)

    def list_dir(self, prefix: str) -> list[str]:
        """Names right below a path, without slash; those of absent chunks are not among them."""
        path = prefix.strip("/")
        group = self._groups.get(path)
        if group is not None:
            return [METADATA_KEY, *group.arrays, *group.groups]
        view = self.array_view(path)
        if view is not None:
            scalar = view.array.ndim == 0
            shown = not scalar or any(True for _ in self._chunk_keys(path, view))
            return [METADATA_KEY, CHUNK_PREFIX] if shown else [METADATA_KEY]
        below = self._chunk_directory(path)
        if below is None:
            return []
        array_path, view, fixed = below
        names = {
            key.split("/")[len(fixed) + 1]
            for key in self._chunk_keys(array_path, view, fixed, relative=True)
        }
        return sorted(names, key=int)

    def is_dir(self, prefix: str) -> bool:
        """Whether a path is a group, an array or a folder of chunks."""
        path = prefix.strip("/")
        if path in self._groups or self.array_view(path) is not None:
            return True
        return self._chunk_directory(path) is not None

    def keys(self, prefix: str = "") -> Iterator[str]:
        """All keys that begin with `prefix`, metadata before chunks."""
        for path in self._groups:
            yield from _if_prefixed(f"{path}/{METADATA_KEY}" if path else METADATA_KEY, prefix)
        for path, view in self.views().items():
            yield from _if_prefixed(f"{path}/{METADATA_KEY}", prefix)
            head = f"{path}/{CHUNK_PREFIX}"
            if head.startswith(prefix) or prefix.startswith(head):
                for key in self._chunk_keys(path, view):
                    yield from _if_prefixed(key, prefix)

    def document(self, path: str) -> dict[str, Any] | None:
        """The ``zarr.json`` of the node at a path."""
        group = self._groups.get(path)
        if group is None:
            view = self.array_view(path)
            return None if view is None else view.metadata.to_json()
        head = f"{path}/" if path else ""
        below: dict[str, Any] = {
            other[len(head) :]: group_document(attributes_to_json(member.attrs, None))
            for other, member in self._groups.items()
            if other.startswith(head) and other != path
        }
        for other, view in self.views().items():
            if other.startswith(head):
                below[other[len(head) :]] = view.metadata.to_json()
        return group_document(attributes_to_json(group.attrs, None), below)

    def _metadata(self, path: str) -> VirtualObject | None:
        document = self.document(path)
        if document is None:
            return None
        data = json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
        return VirtualObject((LiteralSegment(data),), _digest(data))

    def _split_chunk_key(self, key: str) -> tuple[str, ArrayView, tuple[int, ...]] | None:
        parts = key.split("/")
        for at, part in enumerate(parts):
            if part != CHUNK_PREFIX:
                continue
            path = "/".join(parts[:at])
            view = self.array_view(path)
            if view is None:
                continue
            coords = _coords(parts[at + 1 :])
            if coords is None or not view.chunk_exists_at(coords):
                return None
            return path, view, coords
        return None

    def _chunk_directory(self, path: str) -> tuple[str, ArrayView, tuple[int, ...]] | None:
        parts = path.split("/")
        for at, part in enumerate(parts):
            if part != CHUNK_PREFIX:
                continue
            array_path = "/".join(parts[:at])
            view = self.array_view(array_path)
            fixed = _coords(parts[at + 1 :])
            if view is None or fixed is None or len(fixed) >= view.array.ndim:
                continue
            if any(True for _ in self._chunk_keys(array_path, view, fixed)):
                return array_path, view, fixed
        return None

    def _chunk_keys(
        self,
        path: str,
        view: ArrayView,
        fixed: tuple[int, ...] = (),
        *,
        relative: bool = False,
    ) -> Iterator[str]:
        """Keys of the chunks that exist, in C order; `fixed` are leading coords."""
        grid_shape = view.metadata.grid.grid_shape
        if any(k >= n for k, n in zip(fixed, grid_shape, strict=False)):
            return
        for rest in np.ndindex(*grid_shape[len(fixed) :]):
            coords = (*fixed, *rest)
            if _exists(view, coords):
                key = view.metadata.chunk_key(coords)
                yield key if relative else f"{path}/{key}"


class ObjectReader:
    """Reads byte ranges of virtual objects.

    Parameters
    ----------
    reader
        Reader for decoded chunks; its I/O serves the source ranges too.
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def size(self, found: VirtualObject) -> int:
        """Size in bytes; encodes the chunk where there is no other way."""
        known = found.n_bytes
        return len(self.read(found)) if known is None else known

    def read(self, found: VirtualObject, start: int = 0, stop: int | None = None) -> bytes:
        """The bytes ``start:stop`` of an object, cut at its end.

        Raises
        ------
        ReadError
            Where a source cannot deliver, naming array, chunk, source and byte range.
        """
        try:
            if found.n_bytes is None:
                whole = b"".join(self._segment(segment, 0, None) for segment in found.segments)
                return whole[start:stop]
            return b"".join(self._ranges(found, start, stop))
        except GridrefError as error:
            raise error.located(found.place) from error.__cause__

    def _ranges(self, found: VirtualObject, start: int, stop: int | None) -> Iterator[bytes]:
        position = 0
        for segment in found.segments:
            assert segment.n_bytes is not None
            low = max(0, start - position)
            high = segment.n_bytes if stop is None else min(segment.n_bytes, stop - position)
            if low < high:
                yield self._segment(segment, low, high)
            position += segment.n_bytes

    def _segment(self, segment: Segment, low: int, high: int | None) -> bytes:
        if isinstance(segment, LiteralSegment):
            return segment.data[low:high]
        if isinstance(segment, DecodedSegment):
            data = portable_bytes(self.reader, segment.view, segment.coords)
            return data if low == 0 and high in (None, len(data)) else data[low:high]
        stop = segment.n_bytes if high is None else high
        (raw,) = self.reader.ranges.read_ranges(
            segment.source, np.array([segment.offset + low]), np.array([stop - low])
        )
        return bytes(raw)


def portable_bytes(reader: Reader, view: ArrayView, coords: tuple[int, ...]) -> bytes:
    """Encode one chunk of the portable view; what overhangs the array holds the fill value."""
    array, grid = view.array, view.metadata.grid
    values = reader.read(array, view.region(coords))
    shape = grid.chunk_shape(coords)
    if values.shape != shape:
        padded = np.empty(shape, values.dtype)
        padded[...] = array.fill_value
        padded[tuple(slice(0, extent) for extent in values.shape)] = values
        values = padded
    return encode_chunk(values, view.metadata.codecs)


def _native_object(path: str, view: ArrayView, coords: tuple[int, ...]) -> VirtualObject | None:
    block, row = view.locate(coords)
    if row < 0:
        return None
    manifest = view.array.manifests[int(view.array.blocks.manifest[block])]
    entry = manifest.take(np.array([row], np.int64))
    if entry.state[0] == ChunkState.MISSING:
        return None
    segment: Segment
    if entry.state[0] == ChunkState.INLINE:
        segment = LiteralSegment(entry.inline_bytes(0))
        return VirtualObject((segment,), _digest(segment.data), path, coords)
    source = entry.sources[int(entry.source[0])]
    segment = SourceSegment(source, int(entry.offset[0]), int(entry.length[0]))
    return VirtualObject((segment,), _digest(repr(segment).encode()), path, coords)


def _portable_object(path: str, view: ArrayView, coords: tuple[int, ...]) -> VirtualObject | None:
    held = _held_references(view, coords)
    if held is None:
        return None
    plain = len(view.metadata.codecs) == 1 and view.metadata.codecs[0].name == "bytes"
    size = int(np.prod(view.metadata.grid.chunk_shape(coords), dtype=np.int64))
    segment = DecodedSegment(view, coords, size * view.array.dtype.itemsize if plain else None)
    identity = [held, repr(coords), json.dumps(view.metadata.to_json())]
    return VirtualObject((segment,), _digest("\n".join(identity).encode()), path, coords)


def _exists(view: ArrayView, coords: tuple[int, ...]) -> bool:
    if view.view is View.NATIVE:
        return _native_object("", view, coords) is not None
    return _held_references(view, coords) is not None


def _held_references(view: ArrayView, coords: tuple[int, ...]) -> str | None:
    """What identifies the stored chunks under a portable chunk; None if all of them are absent.

    A missing chunk that reads as another value than the array's fill value counts as held.
    """
    array = view.array
    plan = plan_read(array, view.region(coords))
    identity = []
    held = False
    for cross in plan.crosses:
        for batch in cross.batches(65_536):
            present = np.flatnonzero(~is_missing_block(batch))
            for number in np.unique(batch.manifest[present]).tolist():
                members = present[batch.manifest[present] == number]
                rows = array.manifests[number].take(batch.row[members])
                stored = rows.state != ChunkState.MISSING
                held = held or bool(stored.any()) or _fills_differ(array, batch.encoding[members])
                identity += [repr(source) for source in rows.sources]
                columns: list[NDArray[Any]] = [rows.source, rows.offset, rows.length, rows.state]
                identity += [hashlib.blake2b(column.tobytes()).hexdigest() for column in columns]
                if (rows.state == ChunkState.INLINE).any():
                    identity.append(hashlib.blake2b(rows.inline).hexdigest())
    return "\n".join(identity) if held else None


def _fills_differ(array: VirtualArray, encodings: NDArray[np.int32]) -> bool:
    own = np.asarray(array.fill_value, array.dtype)
    for number in np.unique(encodings).tolist():
        other = np.asarray(absent_value(array, array.encodings[number]), array.dtype)
        if array.dtype.kind != "T" and own.tobytes() != other.tobytes():
            return True
    return False


def _if_prefixed(key: str, prefix: str) -> Iterator[str]:
    if key.startswith(prefix):
        yield key


def _coords(parts: Sequence[str]) -> tuple[int, ...] | None:
    """Chunk coords of the parts of a key; None unless written as Zarr writes them."""
    for part in parts:
        if len(part) > 18 or not (part.isascii() and part.isdigit()) or part != str(int(part)):
            return None
    return tuple(int(part) for part in parts)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
