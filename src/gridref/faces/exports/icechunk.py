"""Icechunk: repositories as groups, and groups written into repositories or appended to them.

An `Export` says what becomes a virtual reference and what is written by value. `to_icechunk` opens
a session, writes every array and commits. With `append_dim` only the new chunks are written;
references that are there stay as they are.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from itertools import batched
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.buffer import default_buffer_prototype
from zarr.core.sync import sync

from gridref.api.catalog import open_catalog
from gridref.api.readable import Sources, readable, reader_for
from gridref.errors import (
    InvalidRequestError,
    Message,
    NotRepresentableError,
    Option,
    ReadOnlyError,
)
from gridref.extras import needed_for
from gridref.faces.exports.references import (
    INLINE_LIMIT_BYTES,
    Announce,
    Coords,
    Export,
    Materialize,
    Target,
    as_zarr,
    refuse,
    why_not_named,
)
from gridref.formats import ScanOptions
from gridref.io import absolute_url, is_local
from gridref.io.identity import tags_of
from gridref.model.array import VirtualGroup, path_in
from gridref.model.conventions import MEANING_ATTRIBUTES
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.model.manifest import Source
from gridref.model.source_policy import common_folders
from gridref.model.zarr_metadata import ArrayMetadata, attributes_to_json, group_document
from gridref.options import options_of, verb
from gridref.serve.pages import ReferencePage, References
from gridref.serve.views import View, ViewOptions
from gridref.typing import Int64Array

with needed_for("Icechunk"):
    # isort: off
    from gridref.formats.icechunk import (  # quiets icechunk before it is imported
        chunk_access,
        location_of,
        open_session,
        repository_errors,
        scan_session,
        why_no_location,
    )
    import icechunk
    from gridref.api.icechunk_target import holds_nodes, opened_or_made
    # isort: on


@verb(ScanOptions)
def from_icechunk(
    session: icechunk.Session | str | os.PathLike[str],
    *,
    address: str | os.PathLike[str] | None = None,
    branch: str | None = None,
    tag: str | None = None,
    snapshot: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> VirtualGroup:
    """The arrays of an Icechunk repository, virtual and native ones, as a group.

    Parameters
    ----------
    session
        A session of Icechunk, or the address of a repository.
    address
        Where a session's repository is: its native chunks are referenced there. Without, they
        are read and kept in the group, up to ``max_inline_bytes`` an array.
    branch, tag, snapshot
        The version to read of a repository at an address; by default the branch ``main``.
    storage_options
        Options of fsspec's filesystems of the repository and of files, or of several by protocol.
    **options
        Fields of `ScanOptions`. References of a repository at an address may name files below
        ``allow`` only, and beside it; those of a session, which was opened already, all.

    Raises
    ------
    SourceFormatError, SourceUnavailableError
        If there is no such repository or snapshot, it is damaged or cannot be read.
    SourceChangedError
        If a file changed since it was referenced.
    SourceNotAllowedError
        If references name files that they may not read.
    UnsupportedFeatureError
        For what cannot be read faithfully, and native chunks of an unknown address.

    Examples
    --------
    >>> gridref.interchange.from_icechunk("cube.icechunk")  # doctest: +SKIP
    """
    given = {**options_of(ScanOptions, options), "storage_options": storage_options}
    if isinstance(session, icechunk.Session):
        where = None if address is None else os.fspath(address)
        group = scan_session(session, where, ScanOptions(**{"allow": "*", **given}))
    else:
        where = os.fspath(session)
        opened = open_session(
            where, branch=branch, tag=tag, snapshot=snapshot, storage_options=storage_options
        )
        group = scan_session(opened, where, ScanOptions(**given))
    return readable(group, Sources(storage_options))


_TARGET = Target(
    "Icechunk's virtual references",
    native=ViewOptions(View.NATIVE, grid="rectilinear"),
    decoded=ViewOptions(View.PORTABLE, grid="regular", compressor="zstd"),
    instead=Message("write them decoded with ", Option("materialize", True)),
    why_not=lambda source: why_not_named(source) or why_no_location(source.url),
)

# The call `to_icechunk`

type Destination = icechunk.Session | icechunk.Repository | str | os.PathLike[str]
"""A writable session; a repository; or the address of one, which is made if there is none."""


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
    announce: Announce | None = None,
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
    announce
        Called with the arrays that are written by value: each path with the reason.

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
    reader = reader_for(storage_options)
    export = Export.of(as_zarr(catalog, reader), _TARGET, reader, inline_limit, materialize)
    if materialize is not True:
        export.refuse()
    if announce is not None:
        announce(export.reasons)

    folders = common_folders([source.url for source in export.sources])
    prefixes = [location_of(f"{folder.rstrip('/')}/") for folder in folders]
    if isinstance(destination, icechunk.Session):
        _check_session(destination, prefixes)
        _Writer(destination.store, export, inline_limit).write(append_dim, replace)
        return None
    with _repository(destination, prefixes, storage_options) as repository:
        session = repository.writable_session(branch)
        _Writer(session.store, export, inline_limit).write(append_dim, replace)
        done = "written" if append_dim is None else f"appended along {append_dim}"
        return session.commit(message or f"{done} by gridref")


# Repositories and sessions, with access to the sources


@contextmanager
def _repository(
    destination: icechunk.Repository | str | os.PathLike[str],
    prefixes: Sequence[str],
    storage_options: Mapping[str, Any] | None,
) -> Iterator[icechunk.Repository]:
    """A repository that can hold references to files below some prefixes.

    A local repository that was made here is taken away again if something fails.
    """
    if isinstance(destination, icechunk.Repository):
        with repository_errors("icechunk"):
            yield _with_access(destination, prefixes, storage_options)
        return
    url = absolute_url(destination)
    with repository_errors(url):
        taken = InvalidRequestError(
            f"{url} exists and is not a repository, so nothing was written: choose another address"
        )
        repository, is_made = opened_or_made(url, storage_options, taken)
        try:
            yield _with_access(repository, prefixes, storage_options)
        except BaseException:
            if is_made and is_local(url):
                shutil.rmtree(url, ignore_errors=True)
            raise


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
    _, authorised = chunk_access(_containers(config), storage_options)
    opened = repository.reopen(config, authorize_virtual_chunk_access=authorised)
    if missing:
        opened.save_config()
    return opened


def _check_session(session: icechunk.Session, prefixes: Sequence[str]) -> None:
    if session.read_only:
        raise ReadOnlyError("the session is read-only: open repository.writable_session(branch)")
    missing = _uncovered(session.config, prefixes)
    if missing:
        raise InvalidRequestError(
            f"the repository has no virtual chunk containers for {', '.join(missing)}: pass the "
            "repository or its address instead of a session, and gridref adds them"
        )


def _uncovered(config: icechunk.RepositoryConfig, prefixes: Sequence[str]) -> list[str]:
    known = tuple(_containers(config))
    return [prefix for prefix in prefixes if not prefix.startswith(known)]


def _containers(config: icechunk.RepositoryConfig) -> list[str]:
    return [c.url_prefix for c in (config.virtual_chunk_containers or {}).values()]


# Groups, arrays and chunks, put into the store of a session

INLINE_CHUNK_BYTES = 512
"""Chunks up to this size are copied out of the files: Icechunk keeps them with its references."""
_MOST_COPIED = 1024
"""Most such chunks of an array."""
_CHUNKS_AT_A_TIME = 32
_FEW_A_CALL = 8
"""Chunks of a file from which on a call for them is quicker than handing over each."""

type Action = Callable[[], None]


@dataclass(frozen=True, eq=False)
class _Writer:
    """An export on its way into a writable session.

    Attributes
    ----------
    inline_limit
        Size in bytes of arrays whose small chunks are copied.
    """

    store: icechunk.IcechunkStore
    export: Export
    inline_limit: int

    def write(self, append_dim: str | None, replace: bool) -> None:
        """Append along a dimension, or write all into a store that is empty or to be replaced."""
        if append_dim is not None:
            self._append(append_dim)
            return
        if holds_nodes(self.store):
            if not replace:
                raise InvalidRequestError(
                    Message(
                        "the repository already holds arrays: ",
                        Option("replace", True),
                        " replaces them in a new commit; ",
                        Option("append_dim"),
                        " appends to them",
                    )
                )
            self.store.sync_clear()
        for path, group in self.export.space.group.walk():
            self._put_document(path, group_document(attributes_to_json(group.attrs, None)))
        for path, view in self.export.views.items():
            self._put_document(path, view.metadata.to_json())
            self._put_chunks(path, (0,) * view.array.ndim)

    def _document(self, path: str) -> dict[str, Any] | None:
        """The ``zarr.json`` at a path."""
        buffer = sync(self.store.get(path_in(path, "zarr.json"), default_buffer_prototype()))
        return None if buffer is None else dict(json.loads(buffer.to_bytes()))

    def _put_document(self, path: str, document: Mapping[str, Any]) -> None:
        self._put({path_in(path, "zarr.json"): json.dumps(document, allow_nan=False).encode()})

    def _put(self, values: Mapping[str, bytes]) -> None:
        """Write values of keys, several at a time."""
        buffer = default_buffer_prototype().buffer

        async def put() -> None:
            await asyncio.gather(
                *(self.store.set(key, buffer.from_bytes(value)) for key, value in values.items())
            )

        sync(put())

    def _put_chunks(self, path: str, offset: Coords) -> None:
        """Put the chunks of an array whose metadata is there.

        Its grid begins at `offset`, in chunks, in the grid of the array in the repository.
        """
        if path not in self.export.boxes:
            self._put_values(path, None, offset)
            return
        n_bytes = self.export.views[path].array.nbytes
        # Icechunk keeps whole seconds, and a file may be younger than its references by less.
        written = datetime.now(UTC) + timedelta(seconds=1)
        for box in self.export.boxes[path]:
            held = box.references
            in_file = held.present & (held.source >= 0)
            copied = held.present & ~in_file
            small = in_file & (held.length <= INLINE_CHUNK_BYTES)
            if n_bytes <= self.inline_limit and np.count_nonzero(small) <= _MOST_COPIED:
                copied |= small
            self._put_values(path, box.coords(np.flatnonzero(copied)), offset)
            self._put_references(path, box, np.flatnonzero(in_file & ~copied), offset, written)

    def _put_values(self, path: str, coords: Int64Array | None, offset: Coords) -> None:
        """Read chunks as they are shown, all or those of some coords, and write them."""
        metadata = self.export.views[path].metadata
        for some in batched(self.export.values(path, coords), _CHUNKS_AT_A_TIME):
            moved = (([a + b for a, b in zip(at, offset, strict=True)], data) for at, data in some)
            self._put({f"{path}/{metadata.chunk_key(at)}": data for at, data in moved})

    def _put_references(
        self, path: str, box: ReferencePage, rows: Int64Array, offset: Coords, written: datetime
    ) -> None:
        """Put references of some chunks of a box, all of them in files.

        Those of one checksum are put in one call, unless they are few or scattered. What else is in
        the least box around them stays as it is.
        """
        held = box.references
        urls = np.array([location_of(source.url) for source in held.sources] + [""], object)
        one_by_one: list[icechunk.VirtualChunkSpec] = []
        for checksum, alike in _by_checksum(held, rows, written):
            coords = box.coords(alike) + np.array(offset, np.int64)
            columns = held.source[alike], held.offset[alike], held.length[alike]
            low = coords.min(axis=0)
            counts = tuple((coords.max(axis=0) - low + 1).tolist())
            n_chunks = math.prod(counts)
            if len(alike) < _FEW_A_CALL or n_chunks > 2 * len(alike):
                etag = checksum if isinstance(checksum, str) else None
                moment = checksum if isinstance(checksum, datetime) else None
                one_by_one += [
                    icechunk.VirtualChunkSpec(at, urls[number], first, length, etag, moment)
                    for at, number, first, length in zip(
                        coords.tolist(), *(c.tolist() for c in columns), strict=True
                    )
                ]
                continue
            inside = np.ravel_multi_index(tuple((coords - low).T), counts)
            number, first, length = np.full(n_chunks, -1), *np.zeros((2, n_chunks), np.uint64)
            number[inside], first[inside], length[inside] = columns
            self.store.set_virtual_refs_arr(
                path,
                counts,
                urls[number].tolist(),
                first,
                length,
                validate_containers=False,
                arr_offset=tuple(low.tolist()),
                checksum=checksum,
            )
        if one_by_one:
            self.store.set_virtual_refs(path, one_by_one, validate_containers=False)

    def _append(self, dim: str) -> None:
        """Put the arrays behind those in the session.

        All is checked before anything is written.

        Raises
        ------
        NotRepresentableError
            Naming every array that cannot be appended, and why.
        InvalidRequestError
            If no array has the dimension.
        """
        views = self.export.views
        if not any(dim in view.array.dims for view in views.values()):
            raise InvalidRequestError(f"no array has a dimension {dim}")
        only_there = self._paths_along(dim) - views.keys()
        reasons = dict.fromkeys(only_there, "it is in the repository only")
        actions: list[Action] = []
        for path, view in views.items():
            try:
                document = self._document(path)
                if document is None or document.get("node_type") != "array":
                    raise NotRepresentableError("it is not in the repository")
                held = ArrayMetadata.from_json(document)
                if dim in view.array.dims:
                    actions.append(self._appending(path, held, view.array.dims.index(dim)))
                else:
                    self._check_same(path, held)
            except NotRepresentableError as error:
                reasons[path] = error.reason
        refuse(
            f"an append along {dim}",
            reasons,
            Message("write everything again with ", Option("replace", True)),
        )
        for act in actions:
            act()

    def _paths_along(self, dim: str) -> set[str]:
        """Paths of the arrays in the session that have a dimension."""
        with zarr.config.set({"array.rectilinear_chunks": True}):
            members = zarr.open_group(self.store, mode="r").members(max_depth=None)
            return {
                path
                for path, node in members
                if isinstance(node, zarr.Array) and dim in (node.metadata.dimension_names or ())  # type: ignore[union-attr]
            }

    def _appending(self, path: str, held: ArrayMetadata, axis: int) -> Action:
        """What is to be done to append an array; nothing is written yet.

        Its chunks are put behind those of before. Where that cannot be, its values are, if it may
        be written by value: a chunk that both share is written anew.
        """
        new = self.export.views[path].metadata
        _check_alike(held, new, axis)
        try:
            if held.codecs != new.codecs:
                raise NotRepresentableError("its chunks are encoded in another way")
            grid = _joined_grid(held.grid, new.grid, axis)
        except NotRepresentableError:
            if path not in self.export.decodable or not held.grid.is_regular:
                raise
            return partial(self._append_values, path, held.grid.shape[axis], axis)
        return partial(self._append_chunks, path, held, grid, axis)

    def _append_chunks(self, path: str, held: ArrayMetadata, grid: ChunkGrid, axis: int) -> None:
        joined = replace(held, grid=grid).to_json()
        changed = {name: joined[name] for name in ("shape", "chunk_grid")}
        self._put_document(path, {**(self._document(path) or {}), **changed})
        offset = [0] * grid.ndim
        offset[axis] = held.grid.axes[axis].n_chunks
        self._put_chunks(path, tuple(offset))

    def _append_values(self, path: str, start: int, axis: int) -> None:
        values = self._read(path)
        array = zarr.open_array(self.store, path=path, mode="r+")
        shape = list(array.shape)
        shape[axis] = start + values.shape[axis]
        array.resize(tuple(shape))
        region = [slice(None)] * len(shape)
        region[axis] = slice(start, None)
        array[tuple(region)] = values

    def _check_same(self, path: str, held: ArrayMetadata) -> None:
        """Refuse an array without the dimension that is another one than in the repository."""
        _check_alike(held, self.export.views[path].metadata, None)
        with zarr.config.set({"array.rectilinear_chunks": True}):
            before = zarr.open_array(self.store, path=path, mode="r")[...]
        if not _same(np.asarray(before), self._read(path)):
            raise NotRepresentableError("its values differ from those in the repository")

    def _read(self, path: str) -> NDArray[Any]:
        return self.export.reader.reader.read(self.export.views[path].array, name=path)


# What Icechunk compares a file with before it reads it

type Checksum = str | datetime
"""An entity tag, or a moment after which the file must not have been modified."""


def _checksum_of(source: Source, written: datetime) -> Checksum:
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


def _by_checksum(
    held: References, rows: Int64Array, written: datetime
) -> Iterator[tuple[Checksum, Int64Array]]:
    """Chunks in files by the checksum of their files, in C order."""
    if not len(rows):
        return
    checksums = [_checksum_of(source, written) for source in held.sources]
    numbers = {checksum: number for number, checksum in enumerate(dict.fromkeys(checksums))}
    kind = np.array([numbers[checksum] for checksum in checksums])[held.source[rows]]
    order = np.argsort(kind, kind="stable")
    kinds, starts = np.unique(kind[order], return_index=True)
    known = list(numbers)
    for number, alike in zip(kinds.tolist(), np.split(rows[order], starts[1:]), strict=True):
        yield known[number], alike


# What can be appended to what is there

_MEANING = (*MEANING_ATTRIBUTES, "flag_values", "flag_masks")
"""Attributes that say what stored values mean."""


def _joined_grid(before: ChunkGrid, new: ChunkGrid, axis: int) -> ChunkGrid:
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


def _check_alike(held: ArrayMetadata, new: ArrayMetadata, axis: int | None) -> None:
    """Refuse arrays that cannot be appended to each other; with no axis, arrays that differ."""
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


def _same(before: NDArray[Any], now: NDArray[Any]) -> bool:
    if before.dtype.kind in "OT" or now.dtype.kind == "T":
        return bool(before.astype(object).tolist() == now.astype(object).tolist())
    return before.tobytes() == now.astype(before.dtype, copy=False).tobytes()
