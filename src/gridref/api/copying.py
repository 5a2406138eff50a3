"""Copy all values of a catalog into a Zarr v3 hierarchy without references to files.

The chunks are written first, then the metadata of each array, then that of the root. A copy that
was not finished can therefore not be opened as one. `copy_targets` says where they go, and how the
same call goes on where an earlier one was killed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from gridref.api.copy_targets import FolderTarget, Target, spill_name
from gridref.api.opening import open_group
from gridref.api.readable import reader_for
from gridref.api.rewriting.plan import (
    BASE_BYTES,
    CODECS,
    Resources,
    RewritePlan,
    plan_rewrite,
    requests_for,
    shard_bytes_for,
    shard_shape_for,
    view_to_write,
)
from gridref.api.rewriting.writer import rewrite
from gridref.api.scan import Progress
from gridref.api.workers import Pool, is_here, pool_of
from gridref.catalog import CatalogGroup
from gridref.errors import (
    GridrefError,
    InvalidRequestError,
    Message,
    NotRepresentableError,
    Option,
    Place,
    number_of,
)
from gridref.extras import needed_for
from gridref.io import Allow, absolute_url
from gridref.model.array import VirtualArray, VirtualGroup, dims_of, path_in
from gridref.model.conventions import referred_names
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.model.zarr_metadata import attributes_to_json, group_document
from gridref.options import bytes_of, check_choice, check_names, verb
from gridref.serve.conventions import with_conventions
from gridref.serve.names import IN_ZARR, with_shown_names
from gridref.serve.objects import METADATA_KEY
from gridref.serve.views import ArrayView, View, ViewOptions, show, why_not_zarr

# The call `copy`, and what it returns

type Shards = Literal["auto", "none"] | Mapping[str, int]
"""How chunks are put together in objects; lengths are by dimension name."""


@dataclass(frozen=True)
class CopiedArray:
    """How an array was copied.

    Attributes
    ----------
    shape, chunks, shards
        Shape of the array, of its chunks, and of its shards. Uneven chunks, and arrays without
        shards, have None.
    n_objects
        Objects that it has: shards, or chunks. Those that hold only the fill value do not count.
    n_adopted
        How many of these an earlier run had written.
    n_bytes
        Size of the others.
    n_stored, n_decoded
        Number of chunks in its files, and how many were decoded: more, if some were decoded again.
    has_two_passes
        Whether it is written to intermediate files first, so that stored chunks are decoded once.
    seconds
        What it took.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...] | None
    shards: tuple[int, ...] | None
    n_objects: int
    n_adopted: int
    n_bytes: int
    n_stored: int
    n_decoded: int
    has_two_passes: bool
    seconds: float

    @property
    def decodes(self) -> float:
        """How often each stored chunk is decoded on average."""
        return self.n_decoded / self.n_stored if self.n_stored else 0.0


@dataclass(frozen=True)
class CopyReport:
    """What a copy took.

    Attributes
    ----------
    arrays
        How each array was copied, by path; or, of a dry run, would be.
    peak_bytes
        Most memory that was reckoned with.
    is_dry_run
        Whether nothing was written.
    """

    target: str
    arrays: Mapping[str, CopiedArray]
    peak_bytes: int
    seconds: float
    is_dry_run: bool = False

    @property
    def n_objects(self) -> int:
        """Objects of all arrays."""
        return sum(array.n_objects for array in self.arrays.values())

    @property
    def n_adopted(self) -> int:
        """Objects that an earlier run had written."""
        return sum(array.n_adopted for array in self.arrays.values())

    @property
    def n_bytes(self) -> int:
        """Bytes that were written."""
        return sum(array.n_bytes for array in self.arrays.values())


@verb()
def copy(
    catalog: str | os.PathLike[str] | VirtualGroup,
    target: str | os.PathLike[str],
    *,
    to: Literal["zarr", "icechunk"] | None = None,
    arrays: Iterable[str] | None = None,
    chunks: Mapping[str, int] | None = None,
    shards: Shards = "auto",
    codec: str = "blosc",
    grid: Literal["regular", "rectilinear"] = "regular",
    memory: int | str = "1GB",
    spill: str | os.PathLike[str] | None = None,
    n_threads: int | None = None,
    executor: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    allow: Allow = None,
    snapshot: str | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> CopyReport:
    """Copy a catalog as a Zarr v3 hierarchy that needs neither gridref nor the files.

    Values, coordinates, attributes and groups are those that `gridref.open_store` shows. If the
    call is killed, at any moment, the same call goes on. The copy can be opened once it is whole.

    Parameters
    ----------
    catalog
        Address of a catalog, or an opened one or any group.
    target
        Address of the copy: a local folder, or one on an fsspec filesystem. It must not hold
        anything else.
    to
        ``"zarr"``: a folder. ``"icechunk"``: an Icechunk repository, which is made if there is
        none. By default an address that ends in ``.icechunk`` is a repository.
    arrays
        Paths of arrays to copy, with the coordinates that belong to them. By default all.
    chunks
        Chunk lengths by dimension name; -1 is the whole dimension. Dimensions that are not named
        have chunks like those in the files.
    shards
        ``"auto"`` puts chunks together in shards of up to 128 MiB, ``"none"`` makes each chunk an
        object. Lengths by dimension name (-1 is the whole dimension) have to be multiples of those
        of `chunks`; where chunks are like those in the files, they are rounded up.
    codec
        ``"blosc"`` (zstd and shuffle), ``"blosc-lz4"``, ``"zstd"``, ``"gzip"`` or ``"none"``, which
        all Zarr v3 readers decode; ``"shuffle-zstd"`` is smaller, and read by gridref, zarr-python
        and zarrs.
    grid
        ``"regular"`` makes chunks equal. ``"rectilinear"`` keeps them as uneven as they are in the
        files; few readers read such a grid.
    memory
        Bytes that the process may take, like ``"2GB"``; with an executor, each of its tasks. Where
        stored chunks would be decoded many times with that, they are written to intermediate files
        first.
    spill
        Local folder for intermediate files, which take about half of the memory that the elements
        of an array would. By default they are beside what is being copied, if that is local, else
        in the system's folder for temporary files.
    n_threads
        Threads that decode and that encode. By default one for each core; with an executor, one.
    executor
        What copies, as in `gridref.RunOptions`: a number of processes, the address of a Dask
        scheduler, a `distributed.Client`, a cluster or another pool. By default this process. The
        workers must reach files, target and `spill`. Into an Icechunk repository, each array is
        committed once it is whole; intermediate files are written if `spill` is given.
    storage_options
        Options of fsspec's filesystems of catalog, files and copy, or of several by protocol.
        `Catalog.copy` takes those that the catalog was opened with.
    allow, snapshot
        As for `gridref.open_catalog`.
    dry_run
        Only report what would be done: nothing is written.
    progress
        Called with the number of steps done, and of all.

    Returns
    -------
    CopyReport
        Objects, bytes, and how often stored chunks were decoded, by array.

    Raises
    ------
    NotRepresentableError
        Lists every array whose data type Zarr does not have. Nothing is written.
    InvalidRequestError
        For bad options, too little memory, or a target that holds something else.
    ReadError
        If a chunk cannot be read. What was copied is kept for the next call.

    Examples
    --------
    >>> gridref.copy("cube.gridref", "cube.zarr", chunks={"time": -1})  # doctest: +SKIP
    """
    begun = time.perf_counter()
    check_choice("codec", codec, tuple(CODECS))
    check_choice("grid", grid, ("regular", "rectilinear"))
    if to is not None:
        check_choice("to", to, ("zarr", "icechunk"))
    if isinstance(shards, str):
        check_choice("shards", shards, ("auto", "none"))
    group = open_group(catalog, storage_options, allow, snapshot)
    content = _content_of(group)
    read = reader_for(storage_options).read
    group = _chosen(with_conventions(with_shown_names(group, IN_ZARR), read), arrays)
    _refuse_foreign_types(group)
    url = absolute_url(target)
    place = _target_at(url, to, storage_options)
    is_shared = not is_here(executor)
    resources = Resources(
        bytes_of("memory", memory),
        n_threads=n_threads or (1 if is_shared else None),
        is_streamed=place.is_streamed,
        # Workers on other machines reach the target, or what the caller names.
        has_disk=not is_shared or place.is_near or spill is not None,
    )
    layout = _Layout(chunks or {}, shards, codec, grid)
    layout.check(group)
    plans = _plans(group, layout, resources)
    peak_bytes = max((plan.peak_bytes for plan in plans.values()), default=BASE_BYTES)
    if dry_run:
        foreseen = {path: _foreseen(plan) for path, plan in plans.items()}
        return CopyReport(url, foreseen, peak_bytes, time.perf_counter() - begun, is_dry_run=True)
    documents = _documents(group, {path: plan.view for path, plan in plans.items()})
    digest = hashlib.sha256(content.encode() + _dumped(documents)).hexdigest()
    objects = _named(documents)
    files = _spill_folder(place, spill, hashlib.sha256(f"{digest} {url}".encode()).hexdigest())
    if place.begin(digest, objects):  # what an earlier run could not clean up
        copied = {path: _adopted(plan) for path, plan in plans.items()}
    else:
        with pool_of(executor) as pool:
            copied = dict(_copied(plans, place, files, storage_options, progress, pool))
    place.finish(objects)
    shutil.rmtree(files, ignore_errors=True)
    place.close()
    return CopyReport(url, copied, peak_bytes, time.perf_counter() - begun)


def _target_at(url: str, to: str | None, storage_options: Mapping[str, Any] | None) -> Target:
    """The target at an address: a repository if that is asked for, or its name says so."""
    if to == "zarr" or (to is None and not url.rstrip("/").endswith(".icechunk")):
        return FolderTarget(url, storage_options)
    with needed_for("copying into Icechunk"):
        from gridref.api.icechunk_target import IcechunkTarget
    return IcechunkTarget(url, storage_options)


def _spill_folder(place: Target, spill: str | os.PathLike[str] | None, digest: str) -> str:
    """The folder for intermediate files: the one that was asked for, or that of the target."""
    if spill is None:
        return place.spill_folder(digest)
    return os.path.join(os.path.abspath(spill), spill_name(digest))


# What is copied


def _chosen(group: VirtualGroup, paths: Iterable[str] | None) -> VirtualGroup:
    """A group with some of its arrays, and the coordinates of these."""
    if paths is None:
        return group
    wanted = {path.strip("/") for path in ([paths] if isinstance(paths, str) else paths)}
    known = group.all_arrays()
    check_names("the catalog", wanted, known, kind="array")
    waiting = list(wanted)
    while waiting:
        path = waiting.pop()
        names = {*known[path].dims, *referred_names([known[path]])}
        head = path.rpartition("/")[0]
        while True:
            found = {path_in(head, name) for name in names} & known.keys()
            waiting += found - wanted
            wanted |= found
            if not head:
                break
            head = head.rpartition("/")[0]
    return _only(group, wanted, "")


def _only(group: VirtualGroup, wanted: set[str], head: str) -> VirtualGroup:
    """A group with the arrays of some paths, and the groups that these are in."""
    groups = {
        name: _only(below, wanted, f"{head}{name}/")
        for name, below in group.groups.items()
        if any(path.startswith(f"{head}{name}/") for path in wanted)
    }
    arrays = {name: each for name, each in group.arrays.items() if f"{head}{name}" in wanted}
    return VirtualGroup(arrays, groups, group.attrs)


def _refuse_foreign_types(group: VirtualGroup) -> None:
    """Raise if Zarr does not have the data type of an array."""
    reasons = {path: why_not_zarr(array) for path, array in sorted(group.all_arrays().items())}
    refused = [f"  - {path}: {reason}" for path, reason in reasons.items() if reason is not None]
    if refused:
        raise NotRepresentableError(
            Message(
                f"Zarr cannot express {number_of(len(refused), 'array')}; choose others with ",
                Option("arrays"),
                ":\n" + "\n".join(refused),
            )
        )


def _content_of(group: VirtualGroup) -> str:
    """A digest of the values of a group: that of its catalog, or of all references."""
    if isinstance(group, CatalogGroup):
        return group.shown
    digest = hashlib.sha256()
    for path, array in group.all_arrays().items():
        digest.update(repr((path, array.grid, array.encodings)).encode())
        for column in vars(array.blocks).values():
            digest.update(np.ascontiguousarray(column))
        for manifest in array.manifests:
            rows = manifest.take(np.arange(manifest.n_rows))
            digest.update(repr([source.identity for source in rows.sources]).encode())
            for column in (rows.source, rows.offset, rows.length, rows.state):
                digest.update(np.ascontiguousarray(column))
            digest.update(rows.inline)
    return f"sha256:{digest.hexdigest()}"


# How it is laid out


@dataclass(frozen=True)
class _Layout:
    """The options of `copy` that say how arrays are laid out."""

    chunks: Mapping[str, int]
    shards: Shards
    codec: str
    grid: Literal["regular", "rectilinear"]

    def check(self, group: VirtualGroup) -> None:
        """Refuse lengths along dimensions that no array has, and lengths that cannot be.

        Raises
        ------
        InvalidRequestError
            Naming the dimension.
        """
        known = dims_of(group.all_arrays().values())
        for name in ("chunks", "shards"):
            lengths = getattr(self, name)
            if not isinstance(lengths, Mapping):
                continue
            check_names("the catalog", lengths, known, kind="dimension")
            for dim, length in lengths.items():
                if length < 1 and length != -1:
                    raise InvalidRequestError(
                        f"length of {name} must be >= 1, or -1 for the whole dimension, got"
                        f" {length} (dimension {dim!r})"
                    )
        for dim, length in ({} if isinstance(self.shards, str) else self.shards).items():
            chunk = self.chunks.get(dim, 1)
            if length > 0 and chunk > 0 and length % chunk:
                raise InvalidRequestError(
                    f"a shard of {length} is not divisible by chunks of {chunk} (dimension {dim!r})"
                )

    def of(self, array: VirtualArray, resources: Resources) -> ArrayView:
        """The Zarr array that is written of an array."""
        asked = {d: _whole(n, array, d) for d, n in self.chunks.items() if d in array.dims}
        options = ViewOptions(View.PORTABLE, grid=self.grid, chunks=asked or None)
        chunks = _inside(show(array, options).metadata.grid)
        lengths = {} if isinstance(self.shards, str) else self.shards
        is_one = chunks.n_chunks <= 1 and not any(dim in lengths for dim in array.dims)
        if self.shards == "none" or is_one or not chunks.is_regular:
            return view_to_write(array, chunks, None, self.codec)
        most_bytes = shard_bytes_for(resources.memory)
        shard = list(shard_shape_for(chunks, max(1, array.dtype.itemsize), most_bytes))
        for number, (dim, axis) in enumerate(zip(array.dims, chunks.axes, strict=True)):
            if dim in lengths:
                n_chunks = -(-_whole(lengths[dim], array, dim) // axis.uniform_length)
                shard[number] = max(1, min(n_chunks, axis.n_chunks)) * axis.uniform_length
        return view_to_write(array, chunks, shard, self.codec)


def _whole(length: int, array: VirtualArray, dim: str) -> int:
    """A length, or for -1 that of the dimension."""
    return max(1, array.shape[array.dims.index(dim)]) if length == -1 else length


def _inside(grid: ChunkGrid) -> ChunkGrid:
    """The grid without what the chunks of an axis are longer than the axis."""
    return ChunkGrid(
        tuple(
            GridAxis.uniform(axis.extent, min(axis.uniform_length, max(1, axis.extent)))
            if axis.is_uniform
            else axis
            for axis in grid.axes
        )
    )


def _plans(group: VirtualGroup, layout: _Layout, resources: Resources) -> dict[str, RewritePlan]:
    """How each array is written, by path."""
    plans = {}
    for path, array in group.all_arrays().items():
        own = replace(resources, n_requests=requests_for(array))
        try:
            view = layout.of(array, resources)
            plans[path] = plan_rewrite(view, own)
        except GridrefError as error:
            raise error.located(Place(variable=path)) from error.__cause__
    return plans


# Metadata


def _documents(group: VirtualGroup, views: Mapping[str, ArrayView]) -> dict[str, dict[str, Any]]:
    """The ``zarr.json`` of every group and array by path; that of the root, first, has all."""
    below: dict[str, dict[str, Any]] = {
        path: group_document(attributes_to_json(each.attrs, None))
        for path, each in group.walk()
        if path
    }
    below |= {path: view.metadata.to_json() for path, view in views.items()}
    return {"": group_document(attributes_to_json(group.attrs, None), below), **below}


def _dumped(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()


def _named(documents: dict[str, dict[str, Any]]) -> list[tuple[str, bytes]]:
    """The documents as objects, the root last."""
    return [
        (path_in(path, METADATA_KEY), _dumped(document))
        for path, document in reversed(documents.items())
    ]


# Copying


def _copied(
    plans: Mapping[str, RewritePlan],
    place: Target,
    files: str,
    storage_options: Mapping[str, Any] | None,
    progress: Progress | None,
    pool: Pool | None,
) -> Iterator[tuple[str, CopiedArray]]:
    """Copy the arrays one after the other."""
    total, before = sum(plan.n_steps for plan in plans.values()), 0
    reader = reader_for(storage_options, cache_bytes=0)
    for number, (path, plan) in enumerate(plans.items()):

        def told(done: int, _of: int, before: int = before) -> None:
            if progress is not None:
                progress(before + done, total)

        begun = time.perf_counter()
        done = rewrite(
            plan,
            reader,
            place.sink,
            prefix=f"{path}/",
            path=path,
            spill=os.path.join(files, str(number)),
            progress=told,
            pool=pool,
        )
        place.keep(path)
        before += plan.n_steps
        yield (
            path,
            replace(
                _foreseen(plan),
                n_objects=len(done.objects),
                n_adopted=len(done.found),
                n_bytes=done.bytes_out,
                n_decoded=done.n_decoded,
                seconds=time.perf_counter() - begun,
            ),
        )


def _adopted(plan: RewritePlan) -> CopiedArray:
    """What is known of an array that an earlier run copied."""
    known = _foreseen(plan)
    return replace(known, n_adopted=known.n_objects, n_decoded=0)


def _foreseen(plan: RewritePlan) -> CopiedArray:
    """What is known of an array before it is copied."""
    grid = plan.view.chunk_grid
    return CopiedArray(
        shape=grid.shape,
        chunks=tuple(axis.uniform_length for axis in grid.axes) if grid.is_regular else None,
        shards=None
        if plan.view.shards is None
        else tuple(axis.uniform_length for axis in plan.view.shards.grid.axes),
        n_objects=math.prod(plan.view.metadata.grid.grid_shape),
        n_adopted=0,
        n_bytes=0,
        n_stored=plan.n_stored,
        n_decoded=plan.n_decoded,
        has_two_passes=plan.first is not None,
        seconds=0.0,
    )
