"""Write groups into Icechunk repositories, or append to them.

`to_icechunk` plans what becomes a virtual reference and what is written by value, opens a session,
writes every array and commits. With `append_dim` only the new chunks are written; references that
are there stay as they are.

Icechunk takes one checksum for a box of chunks, and the chunks of one file are nearly always one
box. So there is one call per file, and no work for a single chunk. Where files are scattered over
the grid, references are written one by one.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cached_property
from itertools import batched
from typing import Any

import icechunk
import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.buffer import default_buffer_prototype
from zarr.core.sync import sync

from gridref.api.catalog import open_catalog
from gridref.api.opening import reader_for
from gridref.errors import (
    InvalidRequestError,
    Message,
    NotRepresentableError,
    Option,
    ReadOnlyError,
)
from gridref.faces.exports.references import (
    IN_ARCHIVE,
    INLINE_LIMIT_BYTES,
    is_nameable,
    is_small,
    refuse,
    why_not_referenced,
)
from gridref.formats.icechunk.access import (
    chunk_access,
    location_of,
    repository_storage,
    why_no_location,
)
from gridref.formats.icechunk.session import repository_errors
from gridref.io import absolute_url, is_local
from gridref.io.identity import tags_of
from gridref.model.array import VirtualGroup
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.model.manifest import Source
from gridref.model.source_policy import common_folders
from gridref.model.zarr_attributes import attributes_to_json
from gridref.model.zarr_metadata import ArrayMetadata, group_document
from gridref.serve.conventions import with_conventions
from gridref.serve.names import IN_ZARR, with_shown_names
from gridref.serve.object_reader import ObjectReader
from gridref.serve.objects import KeySpace
from gridref.serve.presence import References, keys_present, native_references
from gridref.serve.reader import Reader
from gridref.serve.views import ArrayView, View, ViewOptions
from gridref.typing import Int64Array

# Virtual references of an array, put into a session in columns

PIECE = 1 << 20
"""About the chunks whose references are looked up at a time."""
_FEW_A_CALL = 8
"""Chunks of a file from which on a call for them is quicker than handing over each."""

type Checksum = str | datetime
"""An entity tag, or a moment after which the file must not have been modified."""


@dataclass(frozen=True, eq=False)
class PlacedReferences:
    """References of a box of an array's chunks.

    Attributes
    ----------
    references
        In C order.
    first, counts
        Coords of the first chunk, and number of chunks along each axis.
    """

    references: References
    first: tuple[int, ...]
    counts: tuple[int, ...]


def placed_references(view: ArrayView) -> Iterator[PlacedReferences]:
    """The references of all chunks of a native view, in pieces along the first axis."""
    grid_shape = view.chunk_grid.grid_shape
    if not grid_shape:
        yield PlacedReferences(native_references(view, (), ()), (), ())
        return
    step = max(1, PIECE // max(1, math.prod(grid_shape[1:])))
    for low in range(0, grid_shape[0], step):
        first = (low, *(0 for _ in grid_shape[1:]))
        counts = (min(step, grid_shape[0] - low), *grid_shape[1:])
        if 0 not in counts:
            yield PlacedReferences(native_references(view, first, counts), first, counts)


def checksum_of(source: Source, written: datetime) -> Checksum:
    """What Icechunk compares a file with before it reads it.

    The entity tag; else the time of change, rounded up to the second, as Icechunk keeps no parts of
    one; else, where nothing is known but weak tags, the time at which the references are written.
    """
    if source.mtime_ns is not None:
        return datetime.fromtimestamp(-(-source.mtime_ns // 10**9), UTC)
    tags = tags_of(source.etag)
    etag = tags.pop("ETag", "W/")
    if not etag.startswith("W/"):
        # Icechunk takes a pair of quotes off. HTTP servers want the tag's own ones in If-Match.
        return f'"{etag}"' if source.url.startswith("http") else etag
    return next(filter(None, map(_moment, tags.values())), written)


def _moment(text: str) -> datetime | None:
    """A moment as servers write it; None if this is none."""
    try:
        iso = re.match(r"\d{4}-\d\d-\d\d", text)
        moment = datetime.fromisoformat(text) if iso else parsedate_to_datetime(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def put_references(
    store: icechunk.IcechunkStore,
    path: str,
    placed: PlacedReferences,
    offset: Sequence[int],
    written: datetime,
) -> None:
    """Put the references of a box into an array.

    Parameters
    ----------
    store
        A writable session's.
    path
        Of the array, whose metadata is there.
    placed
        The references. Chunks that are absent, or inline, are left out.
    offset
        Added to the coords of the chunks: where in the grid of the array the references begin.
    written
        For files without a known ETag or time: see `checksum_of`.
    """
    held = placed.references
    first = tuple(a + b for a, b in zip(placed.first, offset, strict=True))
    urls = np.array([location_of(source.url) for source in held.sources] + [""], object)
    box = _Box(store, path, held, urls, first, placed.counts)
    scattered: list[icechunk.VirtualChunkSpec] = []
    for checksum, rows in _by_checksum(held, written):
        if not box.put_together(rows, checksum):
            scattered += box.one_by_one(rows, checksum)
    if scattered:
        store.set_virtual_refs(path, scattered, validate_containers=False)


def _by_checksum(held: References, written: datetime) -> Iterator[tuple[Checksum, Int64Array]]:
    """The chunks that are in files, in C order, by the checksum of their files."""
    rows = np.flatnonzero(held.present & (held.source >= 0))
    if not len(rows):
        return
    numbers: dict[Checksum, int] = {}
    for source in held.sources:
        numbers.setdefault(checksum_of(source, written), len(numbers))
    checksums = [numbers[checksum_of(source, written)] for source in held.sources]
    kind = np.array(checksums, np.int64)[held.source[rows]]
    order = np.argsort(kind, kind="stable")
    names, starts = np.unique(kind[order], return_index=True)
    known = list(numbers)
    for number, group in zip(names.tolist(), np.split(rows[order], starts[1:]), strict=True):
        yield known[number], group


@dataclass(frozen=True, eq=False)
class _Box:
    """References of a box of chunks on their way into a store."""

    store: icechunk.IcechunkStore
    path: str
    held: References
    urls: NDArray[np.object_]
    first: tuple[int, ...]
    counts: tuple[int, ...]

    def put_together(self, rows: Int64Array, checksum: Checksum) -> bool:
        """Put references of one checksum in one call, unless they are few or are scattered.

        What else is in the least box around them stays as it is.
        """
        if len(rows) < _FEW_A_CALL:
            return False
        coords = self._coords(rows)
        low = coords.min(axis=1)
        counts = coords.max(axis=1) - low + 1
        n_chunks = math.prod(counts.tolist())
        if n_chunks > 2 * len(rows):
            return False
        inside = np.zeros(len(rows), np.int64)
        for at, start, count in zip(coords, low, counts, strict=True):
            inside = inside * count + (at - start)
        number = np.full(n_chunks, -1)
        offset, length = np.zeros(n_chunks, np.uint64), np.zeros(n_chunks, np.uint64)
        number[inside] = self.held.source[rows]
        offset[inside], length[inside] = self.held.offset[rows], self.held.length[rows]
        self.store.set_virtual_refs_arr(
            self.path,
            tuple(counts.tolist()),
            self.urls[number].tolist(),
            offset,
            length,
            validate_containers=False,
            arr_offset=tuple((low + self.first).tolist()),
            checksum=checksum,
        )
        return True

    def one_by_one(self, rows: Int64Array, checksum: Checksum) -> list[icechunk.VirtualChunkSpec]:
        """The references of some chunks, for a call that takes many checksums."""
        etag = checksum if isinstance(checksum, str) else None
        moment = checksum if isinstance(checksum, datetime) else None
        coords = (self._coords(rows).T + np.array(self.first, np.int64)).tolist()
        columns = (
            self.urls[self.held.source[rows]],
            self.held.offset[rows],
            self.held.length[rows],
        )
        return [
            icechunk.VirtualChunkSpec(at, url, offset, length, etag, moment)
            for at, url, offset, length in zip(coords, *(c.tolist() for c in columns), strict=True)
        ]

    def _coords(self, rows: Int64Array) -> Int64Array:
        """int64 (ndim, n), coords of chunks in the box."""
        if not self.counts:
            return np.zeros((0, len(rows)), np.int64)
        return np.array(np.unravel_index(rows, self.counts), np.int64)


# The plan: arrays that become references, and arrays that are written decoded

type Materialize = bool | Iterable[str]
"""Whether arrays are written decoded where they cannot be referenced; or paths of those that are
written decoded in any case."""

_NATIVE = ViewOptions(View.NATIVE, grid="rectilinear")
_DECODED = ViewOptions(View.PORTABLE, grid="regular", compressor="zstd")
_ICECHUNK = "Icechunk's virtual references"
_INSTEAD = Message("write them decoded with ", Option("materialize", True))

INLINE_CHUNK_BYTES = 512
"""Chunks up to this size are copied out of the files: Icechunk keeps them with its references."""
_MOST_COPIED = 1024
"""Most such chunks of an array."""


@dataclass(frozen=True, eq=False)
class WritePlan:
    """How each array of a group is written.

    Attributes
    ----------
    space
        The group as it is shown in the repository.
    references
        By path, of the arrays whose chunks are referenced.
    reader
        Reads what is written decoded.
    decodable
        Paths of arrays that are small enough to be written decoded unasked, and of those that were
        asked for.
    """

    space: KeySpace
    references: Mapping[str, list[PlacedReferences]]
    reader: ObjectReader
    decodable: frozenset[str]

    @cached_property
    def urls(self) -> list[str]:
        """Addresses of all files that are referenced."""
        return list(
            dict.fromkeys(
                source.url
                for pieces in self.references.values()
                for piece in pieces
                for source in piece.references.sources
            )
        )


def plan_writing(
    group: VirtualGroup, reader: Reader, materialize: Materialize, inline_limit: int
) -> WritePlan:
    """Decide about every array, before anything is written.

    Parameters
    ----------
    group
        What is written.
    reader
        Reads what is written decoded.
    materialize
        See `Materialize`.
    inline_limit
        Largest size in bytes of an array that is written decoded unasked.

    Raises
    ------
    NotRepresentableError
        Naming every array that cannot be referenced, and why.
    InvalidRequestError
        If `materialize` names an array that is not there.
    """
    group = with_conventions(with_shown_names(group, IN_ZARR))
    arrays = group.all_arrays()
    asked = _asked(materialize, arrays)
    reasons = why_not_referenced(group, _NATIVE)
    native = KeySpace(group, _NATIVE)
    references = {}
    for path in arrays.keys() - reasons.keys() - asked:
        view = native.array_view(path)
        assert view is not None
        pieces = list(placed_references(view))
        reason = _why_not_located(pieces)
        if reason is None:
            references[path] = pieces
        else:
            reasons[path] = reason
    decodable = asked | {path for path in arrays if is_small(group, path, inline_limit)}
    if materialize is not True:
        refuse(_ICECHUNK, {p: r for p, r in reasons.items() if p not in decodable}, _INSTEAD)
    space = KeySpace(group, _NATIVE, dict.fromkeys(reasons.keys() | asked, _DECODED))
    readable = frozenset(arrays if materialize is True else decodable)
    return WritePlan(space, references, ObjectReader(reader), readable)


def _asked(materialize: Materialize, arrays: Mapping[str, object]) -> set[str]:
    if isinstance(materialize, bool):
        return set()
    asked = {materialize} if isinstance(materialize, str) else set(materialize)
    unknown = asked - arrays.keys()
    if unknown:
        raise InvalidRequestError(
            f"materialize names {', '.join(sorted(unknown))}; there are {', '.join(sorted(arrays))}"
        )
    return asked


def _why_not_located(pieces: Iterable[PlacedReferences]) -> str | None:
    """Why Icechunk cannot reach the files of an array; None if it can."""
    sources = {source.url: source for piece in pieces for source in piece.references.sources}
    for url, source in sources.items():
        reason = why_no_location(url) if is_nameable(source) else IN_ARCHIVE
        if reason is not None:
            return reason
    return None


def inline_rows(placed: PlacedReferences, n_bytes: int, inline_limit: int) -> Int64Array:
    """The chunks, numbered as in the box, that are written by value: int64 (n,).

    Those that are kept in the manifest, and small ones of small arrays.
    """
    held = placed.references
    rows: Int64Array = np.flatnonzero(held.present & (held.source < 0))
    small = np.flatnonzero(held.present & (held.source >= 0) & (held.length <= INLINE_CHUNK_BYTES))
    if n_bytes <= inline_limit and len(small) <= _MOST_COPIED:
        rows = np.union1d(rows, small)
    return rows


def without(placed: PlacedReferences, rows: Int64Array) -> PlacedReferences:
    """The references without those of some chunks."""
    if not len(rows):
        return placed
    present = placed.references.present.copy()
    present[rows] = False
    return replace(placed, references=replace(placed.references, present=present))


# Sessions: opened, given access to the sources, and committed

type Destination = icechunk.Session | icechunk.Repository | str | os.PathLike[str]
"""A writable session; a repository; or the address of one, which is made if there is none."""


@contextmanager
def session_for(
    destination: Destination,
    urls: Iterable[str],
    *,
    branch: str,
    message: str,
    storage_options: Mapping[str, Any] | None,
) -> Iterator[_Writing]:
    """A session that can hold references to some files; its changes are committed at the end.

    Changes in a session that the caller gave are left to the caller. A repository that was made
    here is taken away again if something fails.

    Raises
    ------
    InvalidRequestError
        If a session's repository has no virtual chunk containers for the files.
    ReadOnlyError
        If a session cannot be written to.
    """
    prefixes = [location_of(f"{folder.rstrip('/')}/") for folder in common_folders(urls)]
    if isinstance(destination, icechunk.Session):
        yield _Writing(_checked(destination, prefixes))
        return
    made = None
    if isinstance(destination, icechunk.Repository):
        repository = _with_access(destination, prefixes, storage_options)
        shown = "icechunk"
    else:
        shown = absolute_url(destination)
        with repository_errors(shown):
            repository, is_new = _opened(shown, prefixes, storage_options)
        made = shown if is_new and is_local(shown) else None
    try:
        with repository_errors(shown):
            writing = _Writing(repository.writable_session(branch))
            yield writing
            writing.snapshot = writing.session.commit(message)
    except BaseException:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
        raise


@dataclass
class _Writing:
    """A session that is written to, and the snapshot that it became."""

    session: icechunk.Session
    snapshot: str | None = None


def _checked(session: icechunk.Session, prefixes: Sequence[str]) -> icechunk.Session:
    if session.read_only:
        raise ReadOnlyError("the session is read-only: open repository.writable_session(branch)")
    missing = _uncovered(session.config, prefixes)
    if missing:
        raise InvalidRequestError(
            f"the repository has no virtual chunk containers for {', '.join(missing)}: hand over"
            " the repository or its address in place of a session, and they are set up"
        )
    return session


def _uncovered(config: icechunk.RepositoryConfig, prefixes: Sequence[str]) -> list[str]:
    known = tuple(_prefixes(config))
    return [prefix for prefix in prefixes if not prefix.startswith(known)]


def _prefixes(config: icechunk.RepositoryConfig) -> list[str]:
    return [c.url_prefix for c in (config.virtual_chunk_containers or {}).values()]


def _with_access(
    repository: icechunk.Repository,
    prefixes: Sequence[str],
    storage_options: Mapping[str, Any] | None,
) -> icechunk.Repository:
    """The repository, authorised to read in its containers, and with one for each prefix."""
    config = repository.config
    missing = _uncovered(config, prefixes)
    containers, _ = chunk_access(missing, storage_options)
    for container in containers:
        config.set_virtual_chunk_container(container)
    _, authorised = chunk_access(_prefixes(config), storage_options)
    opened = repository.reopen(config, authorize_virtual_chunk_access=authorised)
    if missing:
        opened.save_config()
    return opened


def _opened(
    url: str, prefixes: Sequence[str], storage_options: Mapping[str, Any] | None
) -> tuple[icechunk.Repository, bool]:
    """The repository at an address, and whether it was made."""
    storage = repository_storage(url, storage_options)
    is_new = not icechunk.Repository.exists(storage)
    if is_new:
        if is_local(url) and os.path.exists(url) and (not os.path.isdir(url) or os.listdir(url)):
            raise InvalidRequestError(f"{url} is there, and is no repository: it is left alone")
        repository = icechunk.Repository.create(storage)
    else:
        repository = icechunk.Repository.open(storage)
    return _with_access(repository, prefixes, storage_options), is_new


def has_content(store: icechunk.IcechunkStore) -> bool:
    """Whether there are groups or arrays below the root."""

    async def any_below() -> bool:
        return any([name != "zarr.json" async for name in store.list_dir("")])

    return bool(sync(any_below()))


def get_document(store: icechunk.IcechunkStore, path: str) -> dict[str, Any] | None:
    """The ``zarr.json`` at a path."""
    buffer = sync(store.get(_document_key(path), default_buffer_prototype()))
    return None if buffer is None else dict(json.loads(buffer.to_bytes()))


def put_document(store: icechunk.IcechunkStore, path: str, document: Mapping[str, Any]) -> None:
    """Write the ``zarr.json`` at a path."""
    put_all(store, {_document_key(path): json.dumps(document, allow_nan=False).encode()})


def put_all(store: icechunk.IcechunkStore, values: Mapping[str, bytes]) -> None:
    """Write values of keys, several at a time."""
    buffer = default_buffer_prototype().buffer

    async def put() -> None:
        await asyncio.gather(
            *(store.set(key, buffer.from_bytes(value)) for key, value in values.items())
        )

    sync(put())


def _document_key(path: str) -> str:
    return f"{path}/zarr.json" if path else "zarr.json"


# The chunks of one array, by reference or by value

N_THREADS = 8
_CHUNKS_AT_A_TIME = 32

type Coords = tuple[int, ...]


def put_array(
    store: icechunk.IcechunkStore,
    plan: WritePlan,
    path: str,
    inline_limit: int,
    offset: Sequence[int] | None = None,
) -> None:
    """Put the chunks of an array whose metadata is there.

    Parameters
    ----------
    store
        A writable session's.
    plan, path
        Which array, and how it is written.
    inline_limit
        Size in bytes of arrays whose small chunks are copied.
    offset
        Added to the coords of the chunks.
    """
    view = plan.space.array_view(path)
    assert view is not None
    offset = offset or (0,) * view.array.ndim
    if path not in plan.references:
        _put_values(store, plan, path, keys_present(view), offset)
        return
    # Icechunk keeps whole seconds, and a file may be younger than its references by less than one.
    written = datetime.now(UTC) + timedelta(seconds=1)
    for placed in plan.references[path]:
        rows = inline_rows(placed, view.array.nbytes, inline_limit)
        if len(rows):
            at = np.unravel_index(rows, placed.counts) if placed.counts else ()
            columns = [(c + first).tolist() for c, first in zip(at, placed.first, strict=True)]
            coords = list(zip(*columns, strict=True)) if columns else [()]
            _put_values(store, plan, path, coords, offset)
        put_references(store, path, without(placed, rows), offset, written)


def _put_values(
    store: icechunk.IcechunkStore,
    plan: WritePlan,
    path: str,
    coords: Iterable[Coords],
    offset: Sequence[int],
) -> None:
    """Read chunks as they are shown, and write them."""
    view = plan.space.array_view(path)
    assert view is not None
    metadata = view.metadata

    def read(at: Coords) -> tuple[str, bytes]:
        held = plan.space.resolve(f"{path}/{metadata.chunk_key(at)}")
        assert held is not None
        key = metadata.chunk_key([k + first for k, first in zip(at, offset, strict=True)])
        return f"{path}/{key}", plan.reader.read(held)

    with ThreadPoolExecutor(N_THREADS) as threads:
        for some in batched(coords, _CHUNKS_AT_A_TIME):
            put_all(store, dict(threads.map(read, some)))


# Append: arrays put behind those of a repository, along a dimension

_MEANING = (
    *("units", "calendar", "scale_factor", "add_offset", "_FillValue", "missing_value"),
    *("_Unsigned", "flag_values", "flag_masks"),
)
"""Attributes that say what stored values mean."""

type Action = Callable[[], None]


def append(
    store: icechunk.IcechunkStore, plan: WritePlan, append_dim: str, inline_limit: int
) -> None:
    """Put the arrays of a plan behind those in a session.

    All is checked before anything is written.

    Raises
    ------
    NotRepresentableError
        Naming every array that cannot be appended, and why.
    InvalidRequestError
        If no array has the dimension.
    """
    views = plan.space.views()
    if not any(append_dim in view.array.dims for view in views.values()):
        raise InvalidRequestError(f"no array has a dimension {append_dim}")
    reasons = dict.fromkeys(
        _paths_along(store, append_dim) - views.keys(), "it is in the repository only"
    )
    actions: list[Action] = []
    for path, view in views.items():
        try:
            held = _held(store, path)
            if append_dim in view.array.dims:
                actions.append(_Appended(store, plan, path, inline_limit).action(held, append_dim))
            else:
                _check_same(store, path, view, held, plan)
        except NotRepresentableError as error:
            reasons[path] = error.reason
    refuse(
        f"an append along {append_dim}",
        reasons,
        Message("write the whole anew with ", Option("replace", True)),
    )
    for act in actions:
        act()


def _paths_along(store: icechunk.IcechunkStore, dim: str) -> set[str]:
    """Paths of the arrays in a session that have a dimension."""
    with zarr.config.set({"array.rectilinear_chunks": True}):
        members = zarr.open_group(store, mode="r").members(max_depth=None)
        return {
            path
            for path, node in members
            if isinstance(node, zarr.Array) and dim in (node.metadata.dimension_names or ())  # type: ignore[union-attr]
        }


def _held(store: icechunk.IcechunkStore, path: str) -> ArrayMetadata:
    document = get_document(store, path)
    if document is None or document.get("node_type") != "array":
        raise NotRepresentableError("it is not in the repository")
    return ArrayMetadata.from_json(document)


class _Appended:
    """One array, and how it is put behind another one."""

    def __init__(
        self, store: icechunk.IcechunkStore, plan: WritePlan, path: str, inline_limit: int
    ) -> None:
        self.store, self.plan, self.path = store, plan, path
        self.inline_limit = inline_limit
        view = plan.space.array_view(path)
        assert view is not None
        self.view: ArrayView = view

    def action(self, held: ArrayMetadata, dim: str) -> Action:
        """What is to be done; nothing is written yet."""
        axis = self.view.array.dims.index(dim)
        check_alike(held, self.view.metadata, axis)
        try:
            return self._referenced(held, axis)
        except NotRepresentableError:
            if self.path not in self.plan.decodable or not held.grid.is_regular:
                raise
        return lambda: self._put_values(held.grid.shape[axis], axis)

    def _referenced(self, held: ArrayMetadata, axis: int) -> Action:
        """Chunks put behind those of before, which stay as they are."""
        new = self.view.metadata
        if held.codecs != new.codecs:
            raise NotRepresentableError("its chunks are encoded in another way")
        grid = joined_grid(held.grid, new.grid, axis)
        offset = [0] * grid.ndim
        offset[axis] = held.grid.axes[axis].n_chunks

        def put() -> None:
            document = get_document(self.store, self.path) or {}
            joined = replace(held, grid=grid).to_json()
            changed = {name: joined[name] for name in ("shape", "chunk_grid")}
            put_document(self.store, self.path, {**document, **changed})
            put_array(self.store, self.plan, self.path, self.inline_limit, offset)

        return put

    def _put_values(self, start: int, axis: int) -> None:
        """Values put behind those of before: a chunk that both share is written anew."""
        values = self.plan.reader.reader.read(self.view.array, name=self.path)
        array = zarr.open_array(self.store, path=self.path, mode="r+")
        shape = list(array.shape)
        shape[axis] = start + values.shape[axis]
        array.resize(tuple(shape))
        region = [slice(None)] * len(shape)
        region[axis] = slice(start, None)
        array[tuple(region)] = values


def joined_grid(before: ChunkGrid, new: ChunkGrid, axis: int) -> ChunkGrid:
    """The grid of chunks of two grids, one behind the other along an axis.

    Raises
    ------
    NotRepresentableError
        If the last chunk of the first one overhangs, or they differ along the other axes.
    """
    axes = list(before.axes)
    for other, (a, b) in enumerate(zip(before.axes, new.axes, strict=True)):
        if other != axis and a != b:
            raise NotRepresentableError(f"its chunks are cut differently (dimension {other})")
    first, second = before.axes[axis], new.axes[axis]
    if not first.is_exact:
        raise NotRepresentableError(
            f"the last chunk in the repository overhangs its data (dimension {axis})"
        )
    axes[axis] = GridAxis.from_runs(
        np.concatenate([first.run_lengths, second.run_lengths]),
        np.concatenate([first.run_counts, second.run_counts]),
        first.extent + second.extent,
    )
    return ChunkGrid(tuple(axes))


def check_alike(held: ArrayMetadata, new: ArrayMetadata, axis: int | None) -> None:
    """Refuse arrays that cannot be appended to each other; with no axis, arrays that differ.

    Raises
    ------
    NotRepresentableError
        Saying in what they differ.
    """
    differing = [
        f"its {what} was {before!r}, now {now!r}"
        for what, before, now in (
            ("dtype", held.dtype, new.dtype),
            ("dimensions", held.dims, new.dims),
            ("fill value", _bytes(held.fill_value), _bytes(new.fill_value)),
            ("shape", *(_without(m.grid.shape, axis) for m in (held, new))),
            *((f"attribute {n}", held.attrs.get(n), new.attrs.get(n)) for n in _MEANING),
        )
        if before != now
    ]
    if differing:
        raise NotRepresentableError("; ".join(differing))


def _bytes(value: Any) -> bytes:
    return np.asarray(value).tobytes() if not isinstance(value, str) else value.encode()


def _without(shape: tuple[int, ...], axis: int | None) -> tuple[int, ...]:
    return shape if axis is None else (*shape[:axis], *shape[axis + 1 :])


def _check_same(
    store: icechunk.IcechunkStore, path: str, view: ArrayView, held: ArrayMetadata, plan: WritePlan
) -> None:
    """Refuse an array without the dimension that is another one than in the repository."""
    check_alike(held, view.metadata, None)
    with zarr.config.set({"array.rectilinear_chunks": True}):
        before = zarr.open_array(store, path=path, mode="r")[...]
    if not _same(np.asarray(before), plan.reader.reader.read(view.array, name=path)):
        raise NotRepresentableError("its values differ from those in the repository")


def _same(before: NDArray[Any], now: NDArray[Any]) -> bool:
    if before.dtype.kind in "OT" or now.dtype.kind == "T":
        return bool(before.astype(object).tolist() == now.astype(object).tolist())
    return before.tobytes() == now.astype(before.dtype, copy=False).tobytes()


# The call `to_icechunk`


def to_icechunk(
    catalog: VirtualGroup | str | os.PathLike[str],
    destination: Destination,
    *,
    append_dim: str | None = None,
    replace: bool = False,
    materialize: Materialize = False,
    inline_limit: int = INLINE_LIMIT_BYTES,
    branch: str = "main",
    message: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> str | None:
    """Write a group into an Icechunk repository, its chunks as virtual references.

    Before Icechunk reads from a file, it compares the file with the ETag or the time of change of
    the scan. Uneven chunks become a rectilinear grid, which zarr-python reads with
    ``zarr.config.set({"array.rectilinear_chunks": True})``.

    Parameters
    ----------
    catalog
        A group that was scanned, combined or opened, or the address of a catalog.
    destination
        A writable session, which is not committed; or a repository or its address, which is created
        if necessary. In a repository, containers for the files are set up, and there is one commit.
    append_dim
        Dimension along which to append the group to the repository. Arrays without this dimension
        have to be in the repository, with the same values.
    replace
        Whether to replace the content of the repository, in one commit. By default it has to be
        empty.
    materialize
        True decodes arrays that cannot be referenced and writes them as chunks of the repository.
        Paths name arrays that are always written so.
    inline_limit
        Largest array, in decoded bytes, that is written so by default.
    branch, message
        Branch and message of the commit.
    storage_options
        Options of fsspec's filesystems of catalog, files and repository, or of several by protocol.
        Credentials are not kept in the repository.

    Returns
    -------
    str or None
        The id of the snapshot; None for a session.

    Raises
    ------
    NotRepresentableError
        Lists every array that cannot be referenced or appended, with the reason.
    InvalidRequestError
        If the repository is not empty and neither `replace` nor `append_dim` is given; if a session
        lacks containers.
    SourceUnavailableError
        If the repository cannot be reached or written.

    Examples
    --------
    >>> gridref.interchange.to_icechunk("cube.gridref", "cube.icechunk")  # doctest: +SKIP
    """
    if append_dim is not None and replace:
        raise InvalidRequestError(
            Message(
                Option("append_dim"), " and ", Option("replace", True), " contradict each other"
            )
        )
    if not isinstance(catalog, VirtualGroup):
        catalog = open_catalog(catalog, storage_options=storage_options)
    plan = plan_writing(catalog, reader_for(storage_options), materialize, inline_limit)
    done = "written" if append_dim is None else f"appended along {append_dim}"
    with session_for(
        destination,
        plan.urls,
        branch=branch,
        message=message or f"{done} by gridref",
        storage_options=storage_options,
    ) as writing:
        store = writing.session.store
        if append_dim is not None:
            append(store, plan, append_dim, inline_limit)
        else:
            _write(store, plan, inline_limit, replace=replace)
    return writing.snapshot


def _write(
    store: icechunk.IcechunkStore, plan: WritePlan, inline_limit: int, *, replace: bool
) -> None:
    if has_content(store):
        if not replace:
            raise InvalidRequestError(
                Message(
                    "there are arrays in the repository: ",
                    Option("replace", True),
                    " puts these in their place, in a commit of its own; ",
                    Option("append_dim"),
                    " puts them behind",
                )
            )
        store.sync_clear()
    for path, group in plan.space.group.walk():
        put_document(store, path, group_document(attributes_to_json(group.attrs, None)))
    for path, view in plan.space.views().items():
        put_document(store, path, view.metadata.to_json())
        put_array(store, plan, path, inline_limit)
