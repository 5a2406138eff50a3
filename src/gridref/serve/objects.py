"""Virtual objects: find the object for a key.

`KeySpace` turns the keys of a Zarr v3 hierarchy into virtual objects. The faces use it: the Zarr
store, the fsspec filesystem, HTTP and exports of references. `object_reader` reads the bytes of
objects; selections of the direct view go to `reader` instead.

Some names cannot be a part of a key. zarr-python takes a backslash for a slash, and the name
``zarr.json`` for metadata. A client that puts a name into an address without quoting it drops what
follows ``#``, sends what follows ``?`` as a query, takes ``%20`` for a space, and leaves out line
breaks and tabs. It then asks for a key that does not exist, which reads as a missing chunk, or for
another object. So names of arrays, groups and dimensions are shown with such characters
percent-encoded (RFC 3986, section 2.1).
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np

from gridref.cache import LRU, cache_bytes
from gridref.codecs import encode_chunk
from gridref.errors import GridrefError, Place
from gridref.model.array import VirtualGroup, path_in
from gridref.model.shard import INDEX_CODECS, IndexLocation, PackedShard, ShardLayout
from gridref.model.zarr_metadata import attributes_to_json, group_document
from gridref.serve.pages import (
    DecodedPage,
    DecodedRunSegment,
    LiteralSegment,
    PackedSegment,
    ReferencePage,
    References,
    Segment,
    VirtualObject,
    digest_of,
    held_below,
    keys_present,
    native_references,
    page_coords_of,
    plan_page,
    view_identity,
)
from gridref.serve.reader import never_absent
from gridref.serve.views import ArrayView, ViewOptions, show, why_not_zarr
from gridref.typing import Int64Array

# The virtual object of a shard: its payloads and its emulated index


def shard_object(path: str, view: ArrayView, coords: tuple[int, ...]) -> VirtualObject | None:
    """The object for a shard; None if all its chunks are missing. Reads no source.

    Parameters
    ----------
    path
        Path of the array, for messages.
    coords
        Coords of the shard, inside the grid.
    """
    layout = view.shards
    assert layout is not None
    first, counts = layout.first_chunk(coords), layout.chunks_per_shard(coords)
    inside = tuple(
        min(n, n_chunks - low)
        for low, n, n_chunks in zip(first, counts, view.chunk_grid.grid_shape, strict=True)
    )
    segment: PackedSegment | DecodedRunSegment
    if view.as_stored:
        references = native_references(view, first, inside)
        packed, segment, identity = _native(layout, references, inside, counts)
    else:
        held, content = held_below(view, first, inside)
        numbers = _shard_numbers(inside, counts)[held.reshape(-1)]
        packed, segment = _portable(view, first, counts, numbers)
        identity = digest_of(content.encode(), view_identity(view))
    if not len(packed.order):
        return None
    index = LiteralSegment(encode_chunk(packed.index(), INDEX_CODECS))
    at_start = layout.location is IndexLocation.START
    segments: tuple[Segment, ...] = (index, segment) if at_start else (segment, index)
    etag = digest_of(identity.encode(), index.data, layout.location.encode())
    return VirtualObject(segments, etag, path, coords)


def _shard_numbers(inside: tuple[int, ...], counts: tuple[int, ...]) -> Int64Array:
    """Number in the shard of each chunk that is inside the array, in C order."""
    numbers = np.arange(math.prod(counts)).reshape(counts)
    return np.ascontiguousarray(numbers[tuple(slice(0, n) for n in inside)]).reshape(-1)


def _native(
    layout: ShardLayout, references: References, inside: tuple[int, ...], counts: tuple[int, ...]
) -> tuple[PackedShard, PackedSegment, str]:
    """Payloads in the order in which they are in the sources."""
    held = np.flatnonzero(references.present)
    order = held[np.lexsort((references.offset[held], references.source[held]))]
    numbers = _shard_numbers(inside, counts)[order]
    length = references.length[order]
    packed = PackedShard.pack(numbers, length, math.prod(counts), layout.location)
    return packed, _runs(references, order, packed), references.identity()


def _runs(references: References, order: Int64Array, packed: PackedShard) -> PackedSegment:
    """Payloads that follow each other in a source are one run."""
    source, offset = references.source[order], references.offset[order]
    stop = offset + references.length[order]
    follows = (source[1:] == source[:-1]) & (offset[1:] == stop[:-1])
    heads = np.flatnonzero(np.concatenate([[True], ~follows])) if len(order) else order
    start = np.append(packed.start[heads], packed.payload_bytes)
    return PackedSegment(
        references.sources, references.literals, source[heads], offset[heads], start
    )


def _portable(
    view: ArrayView, first: tuple[int, ...], counts: tuple[int, ...], numbers: Int64Array
) -> tuple[PackedShard, DecodedRunSegment]:
    """Payloads in C order, all of one size."""
    assert view.shards is not None
    n_bytes = math.prod(view.shards.chunk_shape) * view.metadata.dtype.itemsize
    sizes = np.full(len(numbers), n_bytes, np.int64)
    packed = PackedShard.pack(numbers, sizes, math.prod(counts), view.shards.location)
    return packed, DecodedRunSegment(view, first, counts, numbers, n_bytes)


# The keys of a virtual group

METADATA_KEY = "zarr.json"
CHUNK_PREFIX = "c"
_CHUNKS = f"/{CHUNK_PREFIX}/"


type Page = ReferencePage | DecodedPage


class KeySpace:
    """The keys of a virtual group shown as a Zarr v3 hierarchy.

    Parameters
    ----------
    exceptions
        Options of single arrays, by path.
    """

    def __init__(
        self,
        group: VirtualGroup,
        options: ViewOptions | None = None,
        exceptions: Mapping[str, ViewOptions] | None = None,
    ) -> None:
        self.group = group
        self.options = options or ViewOptions()
        self._exceptions = dict(exceptions or {})
        self._views: dict[str, ArrayView] = {}
        self._documents: dict[str, VirtualObject] = {}
        self._shards = LRU[VirtualObject](cache_bytes(), _layout_bytes, keeps_last=1)
        self._pages = LRU[Page](cache_bytes() // 4, attrgetter("n_bytes"), keeps_last=1)

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
            view = show(group.arrays[name], self._exceptions.get(path, self.options))
        except GridrefError as error:
            raise error.located(Place(variable=path)) from error
        return self._views.setdefault(path, view)

    def views(self) -> dict[str, ArrayView]:
        """The views of all arrays by path; without those of `left_out`."""
        paths = (path for path in self.group.all_arrays() if path not in self.left_out)
        return {path: view for path in paths if (view := self.array_view(path)) is not None}

    @cached_property
    def left_out(self) -> dict[str, str]:
        """Arrays of dtypes that Zarr does not have, by path, and why they cannot be shown.

        They are not listed, because readers could not open the others then. By path, they are
        refused.
        """
        reasons = {
            path: problem
            for path, array in self.group.all_arrays().items()
            if (problem := why_not_zarr(array)) is not None
        }
        for path, reason in reasons.items():
            warnings.warn(f"{path} is left out: {reason}", UserWarning, stacklevel=2)
        return reasons

    @never_absent()
    def resolve(self, key: str) -> VirtualObject | None:
        """The object for a key; None if there is none (an unknown key or a missing chunk)."""
        parent, _, name = key.rpartition("/")
        if name == METADATA_KEY:
            return self._metadata(parent)
        chunk_address = self._split_chunk_key(key)
        if chunk_address is None:
            return None
        path, view, coords = chunk_address
        if view.shards is not None:
            return self._shard(path, view, coords)
        return self._page(path, view, coords).chunk(path, coords)

    @never_absent()
    def chunk_of(self, key: str) -> tuple[str, ArrayView, tuple[int, ...]] | None:
        """Array path, view and coords that the key of a chunk names; None for any other key."""
        return self._split_chunk_key(key)

    def _shard(self, path: str, view: ArrayView, coords: tuple[int, ...]) -> VirtualObject | None:
        kept = self._shards.get((path, coords))
        if kept is not None:
            return kept
        shard = shard_object(path, view, coords)
        return None if shard is None else self._shards.put((path, coords), shard)

    def _page(self, path: str, view: ArrayView, coords: tuple[int, ...]) -> Page:
        page_coords = page_coords_of(view, coords)
        return self._pages.get_or_load((path, page_coords), lambda: plan_page(view, page_coords))

    @never_absent()
    def peek(self, key: str) -> VirtualObject | None:
        """What `resolve` says, if that is at hand without any work; else None."""
        parent, _, name = key.rpartition("/")
        if name == METADATA_KEY:
            return self._documents.get(parent)
        chunk_address = self._split_chunk_key(key, known_only=True)
        if chunk_address is None:
            return None
        path, view, coords = chunk_address
        if view.shards is not None:
            return self._shards.get((path, coords))
        page = self._pages.get((path, page_coords_of(view, coords)))
        return None if page is None else page.chunk(path, coords)

    def list_dir(self, prefix: str) -> list[str]:
        """Names right below a path, without slash; those of absent chunks are not among them."""
        path = prefix.strip("/")
        group = self._groups.get(path)
        if group is not None:
            head = f"{path}/" if path else ""
            arrays = [name for name in group.arrays if head + name not in self.left_out]
            return [METADATA_KEY, *arrays, *group.groups]
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
            yield from _if_prefixed(path_in(path, METADATA_KEY), prefix)
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
        if path in self._documents:
            return self._documents[path]
        document = self.document(path)
        if document is None:
            return None
        data = json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
        metadata = VirtualObject((LiteralSegment(data),), digest_of(data))
        return self._documents.setdefault(path, metadata)

    def _split_chunk_key(
        self, key: str, *, known_only: bool = False
    ) -> tuple[str, ArrayView, tuple[int, ...]] | None:
        """Path, view and coords of the key of a chunk; of views at hand, if `known_only`."""
        path, parts = _split_key(key)
        if path is None:
            return None
        view = self._views.get(path) if known_only else self.array_view(path)
        coords = _coords(parts)
        if view is None or coords is None or not view.chunk_exists_at(coords):
            return None
        return path, view, coords

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
        for coords in keys_present(view, fixed):
            key = view.metadata.chunk_key(coords)
            yield key if relative else f"{path}/{key}"


def _layout_bytes(shard: VirtualObject) -> int:
    size = 0
    for segment in shard.segments:
        if isinstance(segment, LiteralSegment):
            size += segment.n_bytes
        elif isinstance(segment, PackedSegment):
            size += segment.start.nbytes * 3 + sum(map(len, segment.literals))
        elif isinstance(segment, DecodedRunSegment):
            size += segment.numbers.nbytes
    return size


def _split_key(key: str) -> tuple[str | None, list[str]]:
    """Path of the array, and parts of the coords, of the key of a chunk; else no path."""
    path, separator, rest = key.rpartition(_CHUNKS)
    if separator:
        return path, rest.split("/")
    if key.endswith(_CHUNKS[:-1]):
        return key.removesuffix(_CHUNKS[:-1]), []
    return None, []


def _if_prefixed(key: str, prefix: str) -> Iterator[str]:
    if key.startswith(prefix):
        yield key


def _coords(parts: Sequence[str]) -> tuple[int, ...] | None:
    """Chunk coords of the parts of a key; None unless written as Zarr writes them."""
    for part in parts:
        if len(part) > 18 or not (part.isascii() and part.isdigit()) or part != str(int(part)):
            return None
    return tuple(int(part) for part in parts)
