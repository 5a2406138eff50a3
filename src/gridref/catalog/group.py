"""A catalog as it is handed out: what it says of itself, what it lists, and what changes it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, override

import pyarrow as pa

from gridref.catalog.chunk_listing import list_chunks, listed_sources, summed_statistics
from gridref.catalog.finding import boxes, parse_condition
from gridref.catalog.keeper import CatalogKeeper
from gridref.catalog.kept_report import CatalogReport
from gridref.catalog.parts import Part
from gridref.catalog.snapshot import Commit, Pruned, Snapshot
from gridref.catalog.table_file import open_at_once
from gridref.catalog.trust import Trust
from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.manifest import Source
from gridref.options import check_names

__all__ = ["CatalogGroup", "CatalogInfo"]


@dataclass(frozen=True)
class CatalogInfo:
    """What a catalog says of itself.

    Attributes
    ----------
    url
        Its address.
    digest
        SHA-256 of its content, ``sha256:...``. It changes exactly when the catalog is rebuilt with
        another content.
    format_version
        Version of the format that it is written in.
    created_by
        Name and version of what wrote it.
    n_sources, n_blocks, n_chunks
        Files, blocks of all arrays, and stored chunks that the snapshot has.
    table_bytes
        Size of its tables.
    extra
        JSON values of the application's own.
    snapshot
        Name of the snapshot that is shown.
    tags
        Snapshots that have a name.
    n_checksums
        Stored chunks that are compared with checksums when they are read.
    """

    url: str
    digest: str
    format_version: int
    created_by: str
    n_sources: int
    n_blocks: int
    n_chunks: int
    table_bytes: int
    extra: Mapping[str, Any]
    snapshot: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    n_checksums: int = 0


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class CatalogGroup(VirtualGroup):
    """The root group of a catalog.

    Attributes
    ----------
    info
        What the catalog says of itself.
    snapshot
        The snapshot that is shown.
    parts
        Its parts.
    trust
        What it may read.
    keeper
        What changes the catalog; None where it was opened only to be read.
    """

    info: CatalogInfo
    snapshot: Snapshot
    parts: tuple[Part, ...]
    trust: Trust
    keeper: CatalogKeeper[CatalogGroup] | None = None
    report: CatalogReport = field(default_factory=CatalogReport)

    def __post_init__(self) -> None:
        report = CatalogReport.of(self.report, self.snapshot.drifts)
        object.__setattr__(self, "report", report)

    def decided_trust(self) -> Trust:
        """What it may read, for a process on another machine."""
        return self.trust.decided(part.sources.stored for part in self.parts)

    def append(self, files: Any, **options: Any) -> CatalogGroup:
        """Add files, in one step; what is there already is not scanned again, nor written.

        The rules of drift hold for the files and what is there, as in `gridref.build`, with the
        options that the catalog was built with.

        Parameters
        ----------
        files
            Paths, URLs, globs or directories. Those that are in the catalog are left out, and the
            report says so.
        **options
            ``at="label"`` puts files by the labels of their index coordinate: at the end, at the
            front, or between what is there; ``"start"`` and ``"end"`` say where. ``progress`` is
            called with the number of files scanned, and of all. Options of `gridref.build` change
            those that the catalog was built with.

        Returns
        -------
        CatalogGroup
            The catalog as it is then; this one goes on showing what it did.

        Raises
        ------
        CombineError
            If the files do not fit: all problems at once, and nothing is written.
        ScanError, SourceUnavailableError
            If a file cannot be described.
        SourceChangedError
            If a file is in the catalog and has changed since.
        CatalogConflictError
            If another writer's change makes this one impossible.
        CatalogError
            If the catalog cannot be written.
        """
        return self._kept().append(files, **options)

    def declare(self, dim: str, labels: Any) -> CatalogGroup:
        """Declare labels whose files are still to come, in any order.

        The arrays have the whole extent at once. What no file has brought yet reads as fill value,
        and is listed as ``"pending"``; `gridref.open_catalog` with ``pending="raise"`` refuses to
        read it. `append` puts files where their labels were declared.

        Parameters
        ----------
        dim
            The dimension along which the catalog grows. It has an index coordinate.
        labels
            Labels of that coordinate as xarray shows them. Those that are there already stay.

        Raises
        ------
        InvalidRequestError
            If there is no such coordinate, or its dtype cannot hold the labels.
        """
        return self._kept().declare(dim, labels)

    def replace_file(self, file: Any, by: Any = None, **options: Any) -> CatalogGroup:
        """Put a file in the place of another one, or of its former self.

        Parameters
        ----------
        file
            A file of the catalog.
        by
            What comes in its place; by default the file as it is now.
        **options
            ``progress``, as for `append`.

        Raises
        ------
        InvalidRequestError
            If the file is not one of those that the catalog is laid of.
        CombineError
            If what comes instead does not fit: all problems at once, and nothing is written.
        """
        return self._kept().replace(file, by, **options)

    def remove(self, files: Any) -> CatalogGroup:
        """Leave files out: what they hold is no longer part of the arrays.

        Raises
        ------
        InvalidRequestError
            If a file is not one of those that the catalog is laid of, or nothing would be left.
        """
        return self._kept().remove(files)

    def refresh(self, **options: Any) -> CatalogGroup:
        """Scan those files again that have changed since they were scanned.

        Parameters
        ----------
        **options
            ``vanished="raise"`` makes files that are gone an error, ``"remove"`` leaves them out;
            ``progress``, as for `append`.

        Raises
        ------
        SourceUnavailableError
            If files are gone.
        CombineError
            If what they are now does not fit: all problems at once, and nothing is written.
        """
        return self._kept().refresh(**options)

    def scan_values(
        self,
        arrays: Collection[str] | None = None,
        *,
        n_threads: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> CatalogGroup:
        """Read chunks of which nothing is known yet, and record what their values are.

        The least, the greatest, and how many are valid, as xarray shows them without decoding of
        times: unpacked, and without those that are missing. It is a commit, by which no array, and
        not the digest, changes. What is appended afterwards has to be looked at again.

        Parameters
        ----------
        arrays
            Paths of arrays; None for all that hold numbers.
        n_threads
            Threads that read, 16 by default.
        progress
            Called with the number of chunks read, and of all to read.

        Raises
        ------
        ReadError
            If a chunk cannot be read; nothing is recorded then.
        """
        return self._kept().scan_values(arrays, n_threads, progress)

    def find(self, array: str, condition: str) -> list[dict[str, slice]]:
        """Where values may lie that a condition asks for, as far as is known of chunks.

        Parameters
        ----------
        array
            Path of an array.
        condition
            ``"> 310"``, or several as ``">= 0 and < 1"``; of values as `scan_values` sees them.

        Returns
        -------
        list of dict
            Boxes of whole chunks, for ``isel``: nowhere else there is such a value, and somewhere
            in each there may be. Chunks of which nothing is known are among them.

        Raises
        ------
        InvalidRequestError
            For an array that there is not, a condition of another form, or if nothing is known of
            any chunk.
        """
        return list(boxes(self._array(array), parse_condition(condition)))

    def amend(self) -> CatalogGroup:
        """The same catalog, whose next change takes the place of the snapshot that it shows.

        The change begins with that snapshot, which is in no history afterwards.

        Raises
        ------
        InvalidRequestError
            If the snapshot has a tag.
        CatalogConflictError
            By the change, if the catalog has another snapshot by then.
        """
        tags = [tag for tag, snapshot in self.info.tags.items() if snapshot == self.info.snapshot]
        if tags:
            raise InvalidRequestError(f"the snapshot is tagged {tags[0]!r}, and so it stays")
        return replace(self, keeper=self._kept().amending(self.info.snapshot))

    def history(self) -> tuple[Commit, ...]:
        """The commits that led to the catalog as it is now, the last one first."""
        return self._kept().history()

    def tag(self, name: str, snapshot: str | None = None) -> CatalogGroup:
        """Give a snapshot a name, under which it opens, and which keeps it from being pruned.

        Parameters
        ----------
        name
            Letters, digits, dots, dashes and underscores. It may have been another snapshot's.
        snapshot
            Id of a snapshot, or a tag; by default the current one.
        """
        return self._kept().tag(name, snapshot)

    def untag(self, name: str) -> CatalogGroup:
        """Take a name from a snapshot."""
        return self._kept().untag(name)

    def rollback(self, to: str | None = None) -> CatalogGroup:
        """Make the catalog what it was, by a commit that can be rolled back too.

        Parameters
        ----------
        to
            Id or tag of a snapshot; by default the one before.
        """
        return self._kept().rollback(to)

    def prune(
        self, *, keep: int = 1, grace_seconds: float = 24 * 3600, dry_run: bool = False
    ) -> Pruned:
        """Remove snapshots, and the files that only they need.

        Parameters
        ----------
        keep
            How many of the last snapshots stay. Tagged ones always do.
        grace_seconds
            Nothing is removed that is younger, by the clock of where it lies: others may be
            writing, or reading, it.
        dry_run
            Say what would be removed, and remove nothing.
        """
        return self._kept().prune(keep=keep, grace_seconds=grace_seconds, dry_run=dry_run)

    def _kept(self) -> CatalogKeeper[CatalogGroup]:
        if self.keeper is None:
            raise InvalidRequestError("open the catalog by gridref.open_catalog to change it")
        return self.keeper

    def chunks(
        self,
        array: str | None = None,
        *,
        state: str | Collection[str] | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """The stored chunks, one row for each that a block shows, in the order of the blocks.

        Parameters
        ----------
        array
            Path of an array; None lists those of all arrays.
        state
            Only chunks of this state, or of these.
        columns
            Only these columns, in this order.

        Returns
        -------
        pyarrow.Table
            ``path`` of the array; ``chunk``, chunk coords, counted over all blocks; ``block``,
            coords of the block; ``start`` and ``stop``, the elements of the array that the chunk
            holds, half-open; ``state``: ``"range"``, ``"inline"``, ``"missing"`` or ``"pending"``;
            ``source``, ``offset`` and ``length`` of a range; ``stored_bytes``, 0 where nothing is
            stored; ``decoded_bytes``, null for strings of any length; ``n_valid``, ``min`` and
            ``max`` of the values, null unless `scan_values` has seen them. A block that no file
            holds is one row.

        Raises
        ------
        InvalidRequestError
            For an array, state or column that there is not.
        CatalogCorruptError
            If a table is damaged.
        """
        return self.chunk_batches(array, state=state, columns=columns).read_all()

    def chunk_batches(
        self,
        array: str | None = None,
        *,
        state: str | Collection[str] | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.RecordBatchReader:
        """The rows of `chunks` in batches of at most 65,536, made as one goes on reading."""
        arrays = self.all_arrays()
        if array is not None:
            arrays = {array.strip("/"): self._array(array)}
        return list_chunks(arrays, state, columns, self.snapshot.pending)

    def statistics(self) -> pa.Table:
        """What is known of the values of each array.

        Returns
        -------
        pyarrow.Table
            ``path``; ``n_chunks``, and ``n_known`` of these; ``n_valid``, ``min`` and ``max`` over
            those that are known.
        """
        return summed_statistics(self.all_arrays())

    def _array(self, path: str) -> VirtualArray:
        arrays = self.all_arrays()
        check_names("the catalog", [path.strip("/")], arrays, kind="array")
        return arrays[path.strip("/")]

    def sources(self) -> pa.Table:
        """All files that chunks lie in, as they were when they were scanned.

        Returns
        -------
        pyarrow.Table
            ``url``, ``size_bytes``, ``mtime_ns`` and ``etag``; null where it is not known.
        """
        return listed_sources(self.source_list)

    @property
    def source_list(self) -> Sequence[Source]:
        """The same files as `sources`, each once."""
        open_at_once(part.sources.table for part in self.parts)
        listed: dict[Source, None] = {}
        for entry, part in zip(self.snapshot.parts, self.parts, strict=True):
            unused = set(entry.unused)
            every = enumerate(part.sources.sources)
            listed.update((source, None) for i, source in every if i not in unused)
        return tuple(listed)

    @override
    def replace(self, **changes: Any) -> VirtualGroup:
        """A copy with some attributes replaced: a group in memory, no more that of a catalog."""
        own = {part.name: getattr(self, part.name) for part in fields(VirtualGroup)}
        return VirtualGroup(**{**own, **changes})

    def __dask_tokenize__(self) -> tuple[str, ...]:
        return "gridref.CatalogGroup", self.info.url, self.info.digest

    @override
    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}; catalog: {self.info.url}>"
