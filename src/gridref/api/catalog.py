"""An opened catalog with its verbs: `append`, `declare`, `replace`, `verify`, `export` and others.

A method that changes the catalog computes the new snapshot, and `Keeper` commits it. If another
writer was first, both start again from the newest snapshot.
"""

from __future__ import annotations

import difflib
import inspect
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from numpy.typing import ArrayLike

from gridref.api.keeper import Keeper
from gridref.api.readable import Sources, readable, reader_for
from gridref.catalog import CatalogGroup
from gridref.catalog import open_catalog as read_catalog
from gridref.catalog.commit import Base, Change, Step, Wanted, read_base, recording
from gridref.catalog.commit import write_catalog as put_catalog
from gridref.catalog.document import CatalogReport, Commit, Pruned
from gridref.catalog.examining import CatalogChange, compare_catalogs
from gridref.catalog.growth import written
from gridref.catalog.history import (
    history,
    prune_plan,
    pruned,
    remove_sheets,
    rolled_back,
    tagged,
    untagged,
)
from gridref.catalog.opening import PendingPolicy, group_of
from gridref.catalog.overlays import OverlayPolicy
from gridref.catalog.sources import SourceRules
from gridref.errors import InvalidRequestError, Message, Option, Place
from gridref.formats import ScanOptions
from gridref.io import Allow
from gridref.model.array import VirtualGroup
from gridref.model.manifest import Identity
from gridref.model.scan_report import html_of
from gridref.options import check_choice, verb
from gridref.secrets import shown_address

if TYPE_CHECKING:
    import awkward as ak
    import pyarrow as pa
    import scipy.sparse
    import xarray as xr

    from gridref.api.changes import FileChanges, Vanished
    from gridref.api.copying import CopyReport
    from gridref.api.layout.layouts import AnyLayout, Order
    from gridref.api.overlays import OverlayInfo, OverviewInfo
    from gridref.api.places import At
    from gridref.api.scan import Address, Files, Progress, RunOptions
    from gridref.combine import CombineOptions

type ExportKind = Literal["kerchunk", "icechunk", "cf", "stac", "forecast"]
"""What a catalog can be exported to."""


# What verbs return


@dataclass(frozen=True)
class Difference:
    """A chunk, or a label of a file, for which gridref and the original reader disagree.

    A chunk that gridref cannot decode, although it knows all of its codecs, also counts. So does a
    file that cannot be read, or that changed since it was scanned.
    """

    place: Place
    message: str

    @property
    def is_file(self) -> bool:
        """Whether a file cannot be read; its place names nothing else."""
        return self.place.variable is None

    @property
    def is_label(self) -> bool:
        """Whether a file's labels differ, or what its values mean; its place names no chunk."""
        return self.place.chunk is None and not self.is_file

    def __str__(self) -> str:
        return f"{self.message} [{self.place}]"


@dataclass(frozen=True)
class Verification:
    """The outcome of a comparison.

    Attributes
    ----------
    n_arrays, n_chunks, n_values
        How much was compared.
    differences
        Every chunk that differs or cannot be decoded, every label of a file that differs, and every
        file that cannot be read.
    not_compared
        (path, reason) of what the original readers have no counterpart of.
    n_checksums
        Chunks whose checksums were recorded.
    n_labels
        Labels that were compared: values of coordinates, for each file.
    """

    n_arrays: int = 0
    n_chunks: int = 0
    n_values: int = 0
    differences: tuple[Difference, ...] = ()
    not_compared: tuple[tuple[str, str], ...] = ()
    n_checksums: int = 0
    n_labels: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return not self.differences

    def _repr_html_(self) -> str | None:
        return html_of(self)


@dataclass(frozen=True)
class Watch:
    """What watching has done so far.

    Attributes
    ----------
    snapshot
        Id of the last snapshot.
    appended
        Files of the last round that were appended.
    failed
        Files that cannot be appended as they are now, with the reasons; they are tried again in
        every round. And ``overlays of ARRAY``, where these could not be brought up to date.
    """

    snapshot: str
    appended: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Published:
    """What was written.

    Attributes
    ----------
    files
        Paths of files in the folder, without those of the catalog's copy.
    left_out
        Files that cannot be, with the reasons.
    """

    files: tuple[str, ...]
    left_out: Mapping[str, str]


# The catalog


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Catalog(CatalogGroup):
    """An opened catalog: its root group, and the calls that change it.

    Changes return the catalog as it is then. This object still shows its snapshot.
    """

    _keeper: Keeper

    def _changed(self, base: Base, report: CatalogReport | None = None) -> Catalog:
        catalog = catalog_at(base, self._keeper)
        return catalog if report is None else replace(catalog, report=report)

    def _committed(self, change: Callable[[Base], Wanted]) -> Catalog:
        return self._changed(self._kept.commit(change))

    def append(
        self,
        files: Files,
        *,
        at: At = "label",
        concat_dim: str | Sequence[str] | None = None,
        order: Order = "label",
        layout: AnyLayout | None = None,
        combine: CombineOptions | None = None,
        scan: ScanOptions | None = None,
        run: RunOptions | None = None,
        progress: Progress | None = None,
    ) -> Catalog:
        """Append files, in one step. Files of the catalog are neither scanned nor written again.

        New files are combined with the catalog by the rules of `gridref.build`, with the options
        that the catalog was built with. If that was one file without such options, `append` finds
        the layout of all files, as `gridref.build` does.

        Parameters
        ----------
        files
            Paths, URLs, globs or directories. Files that are in the catalog already are left out,
            and the report lists them.
        at
            ``"label"`` places files by the labels of their index coordinate: after, before or
            between those of the catalog. ``"start"`` and ``"end"`` place them there.
        concat_dim, order, layout, combine, scan, run
            As for `gridref.build`. They replace the options that the catalog was built with.
        progress
            Called with the number of files scanned, and of all files.

        Returns
        -------
        Catalog
            The catalog with the new files. This object still shows the old snapshot.

        Raises
        ------
        CombineError
            If the files do not fit. Nothing is written, and every problem is listed.
        ScanError, SourceUnavailableError
            If a file cannot be described.
        SourceChangedError
            If a file of the catalog has changed since it was scanned.
        CatalogConflictError
            If another writer's change makes this one impossible.
        CatalogError
            If the catalog cannot be written.
        """
        from gridref.api.job import Job

        asked = Job(concat_dim, order, layout, combine, scan=scan, run=run)
        return self._changed(*self._file_changes(progress).append(files, asked, at))

    def declare(self, dim: str, labels: ArrayLike) -> Catalog:
        """Declare labels whose files are still to come, in any order.

        The arrays get their whole extent at once. Elements that no file holds yet read as the fill
        value and are listed as ``"pending"``. With `gridref.open_catalog` and ``pending="raise"``,
        reading them is an error. `append` puts files where their labels were declared.

        Parameters
        ----------
        dim
            The dimension along which the catalog grows. It needs an index coordinate.
        labels
            Labels of that coordinate as xarray shows them. Existing labels stay.

        Raises
        ------
        InvalidRequestError
            If there is no such coordinate, or its dtype cannot hold the labels.
        """
        return self._changed(self._file_changes().declare(dim, labels))

    def replace(
        self, file: Address, by: Address | None = None, *, progress: Progress | None = None
    ) -> Catalog:
        """Replace a file with another one, or with its current version.

        Parameters
        ----------
        file
            A file of the catalog.
        by
            The file in its place. By default the same file is scanned again.
        progress
            As for `append`.

        Raises
        ------
        InvalidRequestError
            If the file is not in the catalog.
        CombineError
            If the new file does not fit. Nothing is written, and every problem is listed.
        """
        return self._changed(*self._file_changes(progress).exchange("replace", {file: by or file}))

    def remove(self, files: Files) -> Catalog:
        """Remove files. Their elements are no longer part of the arrays.

        Raises
        ------
        InvalidRequestError
            If a file is not in the catalog, or no file would be left.
        """
        addresses = [files] if isinstance(files, str | os.PathLike) else list(files)
        return self._changed(*self._file_changes().exchange("remove", dict.fromkeys(addresses)))

    def refresh(self, *, vanished: Vanished = "raise", progress: Progress | None = None) -> Catalog:
        """Scan the files again that changed since their last scan.

        Parameters
        ----------
        vanished
            ``"raise"`` makes missing files an error, ``"skip"`` leaves them out of the catalog.
        progress
            As for `append`.

        Raises
        ------
        SourceUnavailableError
            If files do not exist any more.
        CombineError
            If the changed files do not fit. Nothing is written, and every problem is listed.
        """
        check_choice("vanished", vanished, ("raise", "skip"))
        return self._changed(*self._file_changes(progress).refresh(vanished))

    def scan_values(
        self,
        arrays: Collection[str] | None = None,
        *,
        n_threads: int | None = None,
        progress: Progress | None = None,
    ) -> Catalog:
        """Read chunks without statistics, and record the range of their values.

        Least and greatest value and the number of valid ones are recorded for each chunk. Values
        are as xarray shows them without decoding of times: unpacked, and without missing ones. This
        is a commit, but arrays and digest stay the same. Files that are appended later need another
        call.

        Parameters
        ----------
        arrays
            Paths of arrays. None takes all arrays of numbers.
        n_threads
            Threads that read, 16 by default.
        progress
            Called with the number of chunks read, and of all chunks to read.

        Raises
        ------
        ReadError
            If a chunk cannot be read. Nothing is recorded.
        """
        from gridref.api.each_chunk import ValueScan

        reader = reader_for(self._kept.storage_options, cache_bytes=0)
        scan = ValueScan(arrays, reader, n_threads, progress)
        message = "all arrays" if arrays is None else ", ".join(arrays)
        return self._committed(recording("statistics", scan.of, message))

    def amend(self) -> Catalog:
        """Return the same catalog, whose next change replaces the snapshot that it shows.

        The change starts from that snapshot, and the snapshot is no longer in the history.

        Raises
        ------
        InvalidRequestError
            If the snapshot has a tag.
        CatalogConflictError
            Raised by the change, if the catalog has a newer snapshot by then.
        """
        tags = [tag for tag, snapshot in self.info.tags.items() if snapshot == self.info.snapshot]
        if tags:
            raise InvalidRequestError(f"the snapshot cannot be amended: it is tagged {tags[0]!r}")
        return replace(self, _keeper=self._kept.updated(amends=self.info.snapshot))

    def rechunk(
        self,
        array: str,
        chunks: Mapping[str, int] | None = None,
        *,
        where: Mapping[str, slice] | None = None,
        to: str | os.PathLike[str] | None = None,
        shards: Mapping[str, int] | None = None,
        codec: str = "shuffle-zstd",
        memory: int | str = "1GB",
        n_threads: int | None = None,
        executor: Any = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Catalog:
        """Write an overlay: the same elements of an array with other chunks, which reads can use.

        The files stay as they are. Each read takes the cheaper of the files and the overlays, box
        by box. After a change of the catalog, an overlay covers only elements whose files are the
        same. The same call then writes what is missing. It also continues an interrupted call.

        Parameters
        ----------
        array
            Path of the array.
        chunks
            Chunk lengths by dimension: ``{"time": -1, "lat": 20, "lon": 20}``. -1 stands for the
            whole dimension. Dimensions left out get lengths that make chunks of about 8 MB. None
            brings all overlays of the array that are in the catalog's folder up to date.
        where
            Labels along some dimensions, as for `xarray.Dataset.sel`: ``{"lat": slice(40, 60)}``.
            Positions along dimensions without an index coordinate.
        to
            Folder for the overlay, by default ``overlays`` in the catalog's.
        shards
            Shard lengths by dimension, rounded up to whole chunks. By default shards are of at most
            128 MiB, decoded, and an eighth of `memory`.
        codec
            ``"shuffle-zstd"``, ``"blosc"``, ``"zstd"``, ``"gzip"`` or ``"none"``.
        memory
            Most memory that the process may take, or with an executor each of its tasks: bytes, or
            a text like ``"2GB"``.
        n_threads
            Threads that decode and encode, by default one for each core; with an executor, one.
        executor
            What writes, as in `gridref.RunOptions`: a number of processes, the address of a Dask
            scheduler, a `distributed.Client`, a cluster or another pool. By default this process.
            The workers must reach files and overlay.
        dry_run
            Only report what would be written.
        progress
            Called with the number of parts that are done, and of all.

        Returns
        -------
        Catalog
            The catalog with the overlay. Its report says what was written.

        Raises
        ------
        InvalidRequestError
            For an unknown array, dimension or codec, chunks of more than 64 MB, or too little
            memory.
        ReadError
            If a chunk of the files cannot be read. Nothing of the sheet is used.
        CatalogError, SourceUnavailableError
            If the catalog or the overlay cannot be written.
        """
        from gridref.api.rechunking import rechunk

        done = rechunk(
            self._kept.updated(amends=None),
            array,
            chunks,
            where=where,
            to=to,
            shards=shards,
            codec=codec,
            memory=memory,
            n_threads=n_threads,
            executor=executor,
            dry_run=dry_run,
            progress=progress,
        )
        return self._changed(*done)

    def overviews(
        self,
        array: str,
        *,
        factor: int = 2,
        levels: int | None = None,
        method: str = "mean",
        to: str | os.PathLike[str] | None = None,
        codec: str = "shuffle-zstd",
        memory: int | str = "1GB",
        n_threads: int | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Catalog:
        """Write coarser levels of an array, computed from windows along its last two dimensions.

        Level ``n`` is ``overview_n/ARRAY``. It is never used to read the array itself. After a
        change of the catalog, levels are shown only if all their files are the same. The same call
        then writes what is missing. It also continues an interrupted call.

        Parameters
        ----------
        array
            Path of the array.
        factor
            How much coarser each level is than the one before.
        levels
            Number of levels. By default, until no side is longer than 512.
        method
            ``"mean"``, ``"min"``, ``"max"``, ``"mode"`` or ``"nearest"``.
        to
            Folder for the levels, by default ``overlays`` in the catalog's.
        codec, memory, n_threads, dry_run, progress
            As for `rechunk`.

        Raises
        ------
        InvalidRequestError
            For an unknown array or method, categories to be averaged, levels that the files have,
            or too little memory.
        ReadError
            If a chunk of the files cannot be read.
        CatalogError, SourceUnavailableError
            If the catalog or the levels cannot be written.
        """
        from gridref.api.overviews import overviews

        done = overviews(
            self._kept.updated(amends=None),
            array,
            factor=factor,
            levels=levels,
            method=method,
            to=to,
            codec=codec,
            memory=memory,
            n_threads=n_threads,
            dry_run=dry_run,
            progress=progress,
        )
        return self._changed(*done)

    def drop_overviews(self, array: str) -> Catalog:
        """Remove the coarser levels of an array. This is a commit."""
        from gridref.api.overviews import drop

        return self._committed(lambda base: drop(base, array))

    def list_overviews(self) -> tuple[OverviewInfo, ...]:
        """List the coarser levels of arrays: their method, size, and whether they are shown."""
        from gridref.api.overlays import overviews_of

        return overviews_of(self)

    def overlays(self) -> tuple[OverlayInfo, ...]:
        """List the overlays of the arrays: chunks, the part that they cover, and their size."""
        from gridref.api.overlays import overlays_of

        return overlays_of(self)

    def drop_overlay(self, array: str, which: int | str) -> Catalog:
        """Remove an overlay, so that reads use the files again. This is a commit.

        Its files are removed by `prune`, once no snapshot names them.

        Parameters
        ----------
        array
            Path of the array.
        which
            Number of the overlay, or its id.

        Raises
        ------
        InvalidRequestError
            If the array has no such overlay.
        """
        from gridref.api.overlays import drop

        return self._committed(lambda base: drop(base, array, which))

    def explain(self, array: str, **selection: Any) -> pa.Table:
        """Estimate what reading a selection costs from the files and with each overlay.

        Nothing is read. The estimates are those by which reads choose.

        Parameters
        ----------
        array
            Path of the array.
        **selection
            Positions by dimension, as for `VirtualArray.read`: ``lat=7, time=slice(0, 24)``.

        Returns
        -------
        pyarrow.Table
            A row for the files, and for each overlay that covers any of the selection: ``layout``,
            ``n_chunks``, ``n_requests``, ``stored_bytes``, ``decoded_bytes``, ``seconds`` and
            whether it is ``chosen``. Parts that an overlay does not cover are counted from the
            files, or from other overlays if several are chosen.

        Raises
        ------
        InvalidRequestError
            For an unknown array or dimension, or a selection that does not fit.
        """
        from gridref.api.overlays import explained

        return explained(self, array.strip("/"), selection)

    def history(self) -> tuple[Commit, ...]:
        """List the commits of the catalog, the last one first."""
        base = read_base(self._kept.access())
        return tuple(history(base.folder, base.root))

    def tag(self, name: str, snapshot: str | None = None) -> Catalog:
        """Tag a snapshot. Tagged snapshots can be opened by name and are never pruned.

        Parameters
        ----------
        name
            Letters, digits, dots, dashes and underscores. If another snapshot has this tag, the
            tag moves.
        snapshot
            Id of a snapshot, or a tag; by default the current one.
        """
        return self._committed(lambda base: tagged(base, name, snapshot))

    def untag(self, name: str) -> Catalog:
        """Remove a tag from its snapshot."""
        return self._committed(lambda base: untagged(base, name))

    def rollback(self, to: str | None = None) -> Catalog:
        """Return to an earlier snapshot. This is itself a commit and can be rolled back.

        Parameters
        ----------
        to
            Id or tag of a snapshot. By default the previous one.
        """
        return self._committed(lambda base: rolled_back(base, to))

    def prune(
        self, *, keep: int = 1, grace_seconds: float = 24 * 3600, dry_run: bool = False
    ) -> Pruned:
        """Remove old snapshots, and the files that only they need.

        Parameters
        ----------
        keep
            Number of the last snapshots that stay. Tagged ones always stay.
        grace_seconds
            Younger snapshots and files stay, by the clock of their filesystem: others may be
            writing or reading them.
        dry_run
            Only report what would be removed.
        """
        if dry_run:
            return prune_plan(read_base(self._kept.access()), keep, grace_seconds)
        plans: list[Pruned] = []

        def change(base: Base) -> Step:
            plans.append(prune_plan(base, keep, grace_seconds))
            return pruned(base, plans[-1])

        self._kept.commit(change)
        access = self._kept.access()
        remove_sheets(access.folder, plans[-1].sheets, access.storage_options)
        return plans[-1]

    def take_checksums(self, *, progress: Progress | None = None) -> Catalog:
        """Read each stored chunk without a checksum, and record its CRC-32C. This is a commit.

        Later reads are compared with the checksums.

        Parameters
        ----------
        progress
            Called with the number of chunks read, and of all chunks to read.

        Raises
        ------
        ReadError
            If a chunk cannot be read. Nothing is recorded.
        """
        from gridref.api.each_chunk import ChecksumScan

        scan = ChecksumScan(self._kept.storage_options, progress)
        return self._committed(recording("checksums", scan.of, "all arrays"))

    def relocate(
        self, prefixes: Mapping[str, str] | None = None, *, identity: Identity | None = None
    ) -> Catalog:
        """Change the recorded location of the source files, or how they are checked.

        No source is read. This is a commit, which can be rolled back. To use new locations without
        writing them, give `gridref.open_catalog` the same `prefixes`.

        Parameters
        ----------
        prefixes
            Recorded folders with the new ones: ``{"s3://old/": "https://new/"}``. The longest
            folder that matches an address counts.
        identity
            How later reads check that a source is the file that was scanned, as in `build`: copies
            may have another time of change or ETag. By default as before.

        Raises
        ------
        InvalidRequestError
            For an unknown identity, a folder of `prefixes` without a source, or neither of them.
        CatalogError, SourceUnavailableError
            If the catalog cannot be read or written.
        """
        moved = prefixes or {}
        if not moved and identity is None:
            raise InvalidRequestError(
                Message("nothing to change: say where files are now, or give ", Option("identity"))
            )

        def change(base: Base) -> Change:
            access = base.access
            rules = SourceRules.of(identity or base.root.snapshot.identity, moved)
            group = group_of(base.root, access.folder, access.storage_options, access.trust, rules)
            if moved:
                _check_moved(base.group, group, moved)
            arrays = {path: written(array) for path, array in group.all_arrays().items()}
            said = ", ".join(f"{shown_address(a)} to {shown_address(b)}" for a, b in moved.items())
            own = {"identity": rules.identity}
            return Change(
                "relocate", said or f"identity {identity}", group, arrays, own, is_alike=True
            )

        return self._committed(change)

    def watch(
        self,
        files: Files | None = None,
        *,
        events: str | os.PathLike[str] | None = None,
        every_seconds: float = 60.0,
        settle_seconds: float = 0.0,
        once: bool = False,
        rechunk: bool = False,
        on_round: Callable[[Watch], object] | None = None,
        **options: Any,
    ) -> Watch:
        """Append new files as they arrive, until interrupted.

        Its only memory is the catalog. After any interruption, a new call continues.

        Parameters
        ----------
        files
            Paths, URLs, globs or directories to list in each round. They may be empty.
        events
            Instead of `files`, a local file to which lines are appended: paths or URLs of files, or
            JSON notifications of S3.
        every_seconds
            Time from the end of a round to the next.
        settle_seconds
            Local files that changed within this time are left for the next round.
        once
            End after one round.
        rechunk
            After files were appended, bring the overlays and overviews of all arrays up to date,
            except overviews that are not in the catalog's folder.
        on_round
            Called after each round.
        **options
            Options of `append`, like ``combine``.

        Returns
        -------
        Watch
            What the last round did. `gridref.open_catalog` opens the catalog as it is then.

        Raises
        ------
        InvalidRequestError
            Unless one of `files` and `events` is given.
        CatalogError
            If the catalog cannot be opened or written.
        """
        inspect.signature(self.append).bind((), **options)
        watching = _call_at("gridref.api.watching:Watching")(
            self._kept, files, events, settle_seconds, rechunk, options
        )
        while True:
            done: Watch = watching.one_round()
            if on_round is not None:
                on_round(done)
            if once:
                return done
            time.sleep(every_seconds)

    def to_xarray(self, group: str | None = None, **options: Any) -> xr.Dataset:
        """Open a group of the catalog as a lazy xarray dataset.

        Parameters
        ----------
        group
            Path of the group, by default the root.
        **options
            Options of `xarray.open_dataset`, like ``decode_times`` and ``chunks``.

        Raises
        ------
        GroupNotFoundError
            If there is no such group.
        """
        import xarray as xr

        shown: Any = self  # xarray names the inputs of its own engines only
        own = {"storage_options": self._keeper.storage_options, "group": group}
        return xr.open_dataset(shown, engine="gridref", **{**own, **options})

    def verify(
        self,
        *,
        all: bool = False,  # noqa: A002 - as on the command line
        seed: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> Verification:
        """Compare values and labels with what the original readers return.

        Parameters and errors are those of `gridref.verify`.
        """
        options = self._keeper.storage_options
        found: Verification = _call_at("gridref.api.verify:verify")(
            self, all=all, seed=seed, progress=progress, storage_options=options
        )
        return found

    def diff(self, other: str | os.PathLike[str] | CatalogGroup) -> tuple[CatalogChange, ...]:
        """List the changes from this catalog to another one. No source is read.

        Parameters
        ----------
        other
            Address of a catalog, or an opened catalog, such as an earlier snapshot of this one.

        Raises
        ------
        CatalogError, SourceUnavailableError
            If a catalog cannot be read.
        """
        options = self._keeper.storage_options
        after = other if isinstance(other, CatalogGroup) else read_catalog(other, options)
        return tuple(compare_catalogs(self, after))

    def sql(self, query: str) -> pa.Table:
        """Query the catalog in SQL with DuckDB; see `gridref.faces.duckdb.sql`."""
        options = self._keeper.storage_options
        found: pa.Table = _call_at("gridref.faces.duckdb:sql")(self, query, storage_options=options)
        return found

    def sparse(
        self, path: str = "X", *, rows: slice | None = None, columns: slice | None = None
    ) -> scipy.sparse.csr_array | scipy.sparse.csc_array:
        """Read a sparse matrix of AnnData or 10x, or a part of it.

        Parameters and errors are those of `gridref.faces.ragged.sparse`.
        """
        found: scipy.sparse.csr_array | scipy.sparse.csc_array
        found = _call_at("gridref.faces.ragged:sparse")(self, path, rows=rows, columns=columns)
        return found

    def awkward(self, path: str, *, rows: slice | None = None) -> ak.Array:
        """Read a variable with ragged rows as an Awkward Array.

        Parameters and errors are those of `gridref.faces.ragged.awkward`.
        """
        return _call_at("gridref.faces.ragged:awkward")(self, path, rows=rows)

    def forecast(
        self,
        *,
        after: str | None = None,
        offset: str | None = None,
        run: str | None = None,
        run_dim: str | None = None,
        step_dim: str | None = None,
    ) -> VirtualGroup:
        """Show a cube of forecasts along valid times: the best series, one offset, or one run.

        Parameters and errors are those of `gridref.api.layout.forecasts.forecast`.
        """
        from gridref.api.layout.forecasts import forecast

        return forecast(
            self,
            after=after,
            offset=offset,
            run=run,
            run_dim=run_dim,
            step_dim=step_dim,
            storage_options=self._keeper.storage_options,
        )

    def export(
        self,
        path: str | os.PathLike[str] | None,
        *,
        to: ExportKind | None = None,
        **options: Any,
    ) -> Any:
        """Write the catalog for other readers.

        Parameters
        ----------
        path
            What to write. With None, references and STAC documents are only returned.
        to
            ``"kerchunk"``: references, as JSON or (``.parq``) Parquet. ``"icechunk"``: an Icechunk
            repository. ``"cf"``: a NetCDF4 file of CF aggregation variables. ``"stac"``: a STAC
            Item or Collection. ``"forecast"``: a catalog that shows runs and steps along valid
            times. By default a path that ends in ``.icechunk`` or ``.nc`` says which, and any other
            gets kerchunk references.
        **options
            Options of the call that writes it: `to_kerchunk`, `to_icechunk`, `to_cf_aggregation`,
            `to_stac`, or those of `forecast` and ``name``, which adds the forecast as a group of
            the cube.

        Returns
        -------
        Any
            What that call returns.

        Raises
        ------
        InvalidRequestError
            If there is no such export, it has no such option, or the catalog was opened with the
            number of an overlay that there is not.
        NotRepresentableError
            Lists every array that the export cannot express, with the reason. Nothing is written.
        """
        policy = self.opener.policy
        if isinstance(policy, int) and policy not in {each.number for each in self.overlays()}:
            reason = " is of no array; `gridref info` lists the overlays"
            raise InvalidRequestError(Message(Option("overlay", policy), reason))
        own = {"storage_options": self._keeper.storage_options}
        call = _exporter(None if path is None else os.fspath(path), to, options)
        return call(self.from_files(), path, **{**own, **options})

    def copy(
        self, target: str | os.PathLike[str], *, progress: Progress | None = None, **options: Any
    ) -> CopyReport:
        """Copy all values as a Zarr v3 hierarchy that needs neither gridref nor the files.

        Options and errors are those of `gridref.copy`, without ``allow`` and ``snapshot``.

        Examples
        --------
        >>> catalog.copy("cube.zarr", chunks={"time": -1, "lat": 20})  # doctest: +SKIP
        """
        from gridref.api.copying import copy

        own = {"storage_options": self._keeper.storage_options}
        return copy(self, target, progress=progress, **{**own, **options})

    def publish(
        self,
        folder: str | os.PathLike[str],
        *,
        base_url: str,
        prefixes: Mapping[str, str] | None = None,
    ) -> Published:
        """Write the catalog as a web site of plain files, for any web server or bucket.

        Parameters and errors are those of `gridref.faces.web.publishing.publish`.
        """
        found: Published = _call_at("gridref.faces.web.publishing:publish")(
            self.info.url,
            folder,
            base_url=base_url,
            prefixes=prefixes,
            storage_options=self._keeper.storage_options,
            allow=self._keeper.allow,
            snapshot=self.info.snapshot,
        )
        return found

    def _file_changes(self, progress: Progress | None = None) -> FileChanges:
        from gridref.api.changes import FileChanges

        return FileChanges(self._kept, progress)

    @property
    def _kept(self) -> Keeper:
        if self._keeper.is_fixed:
            raise InvalidRequestError(
                Message(
                    "the catalog was opened with ",
                    Option("prefixes"),
                    " or ",
                    Option("pending", "raise"),
                    ", and cannot be changed; open it without them",
                ),
                Place(source=self.info.url),
            )
        return self._keeper


# Opening and writing


def catalog_at(base: Base, keeper: Keeper) -> Catalog:
    """The catalog as it is after a change, to be read, and changed by a keeper."""
    group = readable(base.group.levels.added(base.group), Sources(keeper.storage_options))
    return _changeable(group, keeper.updated(base=base, amends=None))


def _changeable(group: CatalogGroup, keeper: Keeper) -> Catalog:
    """The catalog behind a group that is read, which a keeper changes."""
    own = {part.name: getattr(group, part.name) for part in fields(CatalogGroup)}
    return Catalog(**own, _keeper=keeper)


@verb()
def open_catalog(
    catalog: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    allow: Allow = None,
    snapshot: str | None = None,
    identity: Identity | None = None,
    prefixes: Mapping[str, str] | None = None,
    pending: PendingPolicy = "fill",
    overlay: OverlayPolicy = "auto",
) -> Catalog:
    """Open a catalog.

    Only ``gridref.json`` is read, so the cost does not grow with the number of chunks. Arrays read
    their blocks, and blocks their chunks, when they are first needed.

    Parameters
    ----------
    catalog
        Address of the catalog's directory (or of the ``gridref.json`` in it).
    storage_options
        Options of fsspec's filesystem of the catalog and of its sources, or of several by protocol:
        ``{"s3": {"anon": True}, "https": {...}}``.
    allow
        Folders and URLs below which the catalog may read sources; ``"*"`` allows everything.
        Sources in its own folder are always allowed. By default, so is everything that
        ``GRIDREF_ALLOW`` in the environment names, and every source if this user built the catalog.
    snapshot
        Id of a former snapshot, or a tag, to open in place of the current one.
    identity
        How to check that a source is the file that was scanned: ``"strict"``, ``"size"`` or
        ``"content"``, as in `gridref.build`. By default as recorded in the catalog.
    prefixes
        Present locations of sources: recorded folders with the new ones, ``{"s3://old/":
        "https://new/"}``. The longest folder that matches an address counts.
    pending
        What to do when elements are read that were declared ahead and that no file holds yet.
        ``"fill"``: return the fill value. ``"raise"``: raise `BlockPendingError`.
    overlay
        Which overlays reads may use. ``"auto"``: those that are faster; local files that they
        answer for must be unchanged. ``"check"``: the same, and servers are asked too. ``"none"``:
        files only. A number: this overlay of each array, wherever it covers anything.

    Raises
    ------
    InvalidRequestError
        If there is no such snapshot, the identity is unknown, or a folder of `prefixes` has no
        source.
    CatalogNotFoundError
        If there is no catalog.
    CatalogVersionError
        If its format version is unknown.
    CatalogCorruptError
        If it is damaged. Damaged tables raise it later, when rows are read.
    SourceUnavailableError
        If it cannot be reached or read.
    """
    group = readable(
        read_catalog(
            catalog,
            storage_options,
            allow,
            snapshot,
            identity=identity,
            prefixes=prefixes,
            pending=pending,
            overlay=overlay,
        ),
        Sources(storage_options),
    )
    # What a changed view of the catalog writes would be written as if it lay there.
    is_fixed = bool(prefixes) or pending == "raise"
    return _changeable(group, Keeper(group.info.url, storage_options, allow, is_fixed=is_fixed))


@verb()
def write_catalog(
    group: VirtualGroup,
    catalog: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
    sources: Literal["absolute", "relative"] = "absolute",
    keep_secrets: bool = False,
) -> str:
    """Write a catalog, or replace one in one step.

    A crash at any moment leaves the old catalog, or none if there was none.

    Parameters
    ----------
    group
        What to write. It may be a catalog that was opened from the same address.
    catalog
        Address of the directory, local or on any fsspec filesystem that can be written to.
    storage_options
        Options of fsspec's filesystem of the catalog, or of several by protocol.
    extra
        JSON values of the application, kept as they are.
    sources
        ``"absolute"`` stores the addresses of the sources as they are. ``"relative"`` stores them
        relative to the catalog if both are on one filesystem. Both can then be moved together.
    keep_secrets
        Keep credentials and signatures in the addresses of files (``user:password@``, presigned
        queries). By default they are left out, and reading needs `storage_options`.

    Returns
    -------
    str
        The content digest of the catalog.

    Raises
    ------
    InvalidRequestError
        If the address holds something other than a catalog, or the group holds something that a
        catalog cannot store.
    CatalogVersionError, CatalogCorruptError
        If the address holds a catalog that cannot be read: remove it first.
    CatalogError
        If writing fails: no room, no permission.
    SourceUnavailableError
        If a remote filesystem cannot be reached or refuses.
    """
    return put_catalog(
        group, catalog, storage_options, extra=extra, sources=sources, keep_secrets=keep_secrets
    )


# How verbs are done


_EXPORTS = {
    "cf": "gridref.faces.exports.cf_aggregation:to_cf_aggregation",
    "icechunk": "gridref.faces.exports.icechunk:to_icechunk",
    "forecast": "gridref.api.layout.forecasts:to_forecast",
    "kerchunk": "gridref.faces.exports.kerchunk:to_kerchunk",
    "stac": "gridref.faces.exports.stac:to_stac",
}
_BY_ENDING = {".nc": "cf", ".icechunk": "icechunk"}


def _call_at(address: str) -> Callable[..., Any]:
    """The call of a module that imports this one, or is of a floor above."""
    module, _, name = address.partition(":")
    call: Callable[..., Any] = getattr(import_module(module), name)
    return call


def export_kind(path: str | None, to: str | None) -> str:
    """The kind of an export, by its name or by the ending of the path.

    Raises
    ------
    InvalidRequestError
        If there is no such export, or the ending is nearly that of another one.
    """
    if to is None:
        known = (*_BY_ENDING, ".json", ".parq", ".parquet")
        ending = os.path.splitext((path or "").rstrip("/"))[1]
        near = difflib.get_close_matches(ending.lower(), known, cutoff=0.8)
        if near and ending not in known:
            reason = f"no export ends in {ending!r}: write {near[0]!r}, or name the kind by "
            raise InvalidRequestError(Message(reason, Option("to")))
        return _BY_ENDING.get(ending, "kerchunk")
    check_choice("to", to, tuple(_EXPORTS))
    return to


def _exporter(path: str | None, to: str | None, options: Mapping[str, Any]) -> Callable[..., Any]:
    """The call that writes an export, which takes some options."""
    kind = export_kind(path, to)
    call = _call_at(_EXPORTS[kind])
    known = inspect.signature(call).parameters
    for option in options:
        if option not in known:
            raise InvalidRequestError(
                Message(
                    Option(option, options[option]),
                    f" is no option of an export to {kind}: the ending of the path"
                    f" ({', '.join(_BY_ENDING)}) or ",
                    Option("to"),
                    " to name the kind of export",
                )
            )
    return call


def _check_moved(before: CatalogGroup, after: CatalogGroup, prefixes: Mapping[str, str]) -> None:
    """Refuse prefixes by which no source is moved."""
    sources = before.source_list
    pairs = zip(sources, after.source_list, strict=True)
    if not any(old.url != new.url for old, new in pairs):
        raise InvalidRequestError(
            f"no source is in {' or '.join(map(repr, map(shown_address, prefixes)))};"
            f" there is {shown_address(sources[0].url)!r}"
            if sources
            else "the catalog has no sources"
        )
