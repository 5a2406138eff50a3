"""An opened catalog: the group that users get, with its tables and the calls that change it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol, override

import pyarrow as pa

from gridref.catalog.document import Commit, Pruned, Snapshot
from gridref.catalog.kept_report import CatalogReport
from gridref.catalog.listing import list_chunks, listed_sources, summed_statistics
from gridref.catalog.parts import Part
from gridref.catalog.sources import Trust
from gridref.catalog.statistics import boxes, parse_condition
from gridref.catalog.tables import open_at_once
from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.manifest import Source
from gridref.options import check_names

# The interface behind the calls that change a catalog


class CatalogKeeper[G](Protocol):
    """Changes a catalog that was opened."""

    def append(self, files: Any, **options: Any) -> G:
        """Add files."""
        ...

    def declare(self, dim: str, labels: Any) -> G:
        """Declare labels."""
        ...

    def replace(self, file: Any, by: Any = ..., *, progress: Any = ...) -> G:
        """Put a file in the place of another."""
        ...

    def remove(self, files: Any) -> G:
        """Leave files out."""
        ...

    def refresh(self, *, vanished: Any = ..., progress: Any = ...) -> G:
        """Scan again what has changed."""
        ...

    def scan_values(self, arrays: Any, n_threads: Any, progress: Any) -> G:
        """Look at values."""
        ...

    def amending(self, snapshot: str) -> CatalogKeeper[G]:
        """What takes the place of a snapshot."""
        ...

    def history(self) -> tuple[Commit, ...]:
        """The commits."""
        ...

    def tag(self, name: str, snapshot: str | None) -> G:
        """Name a snapshot."""
        ...

    def untag(self, name: str) -> G:
        """Take a name away."""
        ...

    def rollback(self, to: str | None) -> G:
        """Go back."""
        ...

    def prune(self, *, keep: int, grace_seconds: float, dry_run: bool) -> Pruned:
        """Remove snapshots."""
        ...


# The group that users get


@dataclass(frozen=True)
class CatalogInfo:
    """Facts about a catalog: address, snapshot, format and size.

    Attributes
    ----------
    url
        Its address.
    digest
        SHA-256 of its content, ``sha256:...``. It changes exactly when the content changes.
    format_version
        Version of its format.
    created_by
        Name and version of the program that wrote it.
    n_sources, n_blocks, n_chunks
        Number of files, blocks and stored chunks of the snapshot.
    table_bytes
        Size of its tables.
    extra
        JSON values of the application.
    snapshot
        Id of the snapshot that is shown.
    tags
        Tagged snapshots, by tag.
    n_checksums
        Number of stored chunks that reads compare with checksums.
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
        Facts about the catalog.
    snapshot
        The snapshot that is shown.
    parts
        Its parts.
    trust
        The sources that it may read.
    keeper
        Makes the changes. None if the catalog was opened for reading only.
    """

    info: CatalogInfo
    snapshot: Snapshot
    parts: tuple[Part, ...]
    trust: Trust
    keeper: CatalogKeeper[CatalogGroup] | None = None
    report: CatalogReport = field(default_factory=CatalogReport)

    def __post_init__(self) -> None:
        if not isinstance(self.report, CatalogReport):
            report = CatalogReport.of(self.report, self.snapshot.drifts)
            object.__setattr__(self, "report", report)

    def decided_trust(self) -> Trust:
        """The same trust, decided now, for a process on another machine."""
        return self.trust.decided(part.sources.stored for part in self.parts)

    def append(self, files: Any, **options: Any) -> CatalogGroup:
        """Add files, in one step. Files of the catalog are neither scanned nor written again.

        New files are combined with the catalog by the rules of `gridref.build`, with the options
        that the catalog was built with.

        Parameters
        ----------
        files
            Paths, URLs, globs or directories. Files that are in the catalog already are left out,
            and the report lists them.
        **options
            ``at="label"`` places files by the labels of their index coordinate: behind, before or
            between those of the catalog. ``at="start"`` and ``at="end"`` place them there.
            ``progress`` is called with the number of files scanned, and of all files. Options of
            `gridref.build` replace those that the catalog was built with.

        Returns
        -------
        CatalogGroup
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
        return self._kept().append(files, **options)

    def declare(self, dim: str, labels: Any) -> CatalogGroup:
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
        return self._kept().declare(dim, labels)

    def replace_file(self, file: Any, by: Any = None, **options: Any) -> CatalogGroup:
        """Replace a file by another one, or by its present version.

        Parameters
        ----------
        file
            A file of the catalog.
        by
            The file in its place. By default the same file is scanned again.
        **options
            ``progress``, as for `append`.

        Raises
        ------
        InvalidRequestError
            If the file is not in the catalog.
        CombineError
            If the new file does not fit. Nothing is written, and every problem is listed.
        """
        return self._kept().replace(file, by, **options)

    def remove(self, files: Any) -> CatalogGroup:
        """Remove files. Their elements are no longer part of the arrays.

        Raises
        ------
        InvalidRequestError
            If a file is not in the catalog, or no file would be left.
        """
        return self._kept().remove(files)

    def refresh(self, **options: Any) -> CatalogGroup:
        """Scan files again that have changed since they were scanned.

        Parameters
        ----------
        **options
            ``vanished="raise"`` makes missing files an error, ``"remove"`` removes them from the
            catalog; ``progress``, as for `append`.

        Raises
        ------
        SourceUnavailableError
            If files do not exist any more.
        CombineError
            If the changed files do not fit. Nothing is written, and every problem is listed.
        """
        return self._kept().refresh(**options)

    def scan_values(
        self,
        arrays: Collection[str] | None = None,
        *,
        n_threads: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> CatalogGroup:
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
        return self._kept().scan_values(arrays, n_threads, progress)

    def find(self, array: str, condition: str) -> list[dict[str, slice]]:
        """Find the chunks whose values may meet a condition, by the recorded statistics.

        Parameters
        ----------
        array
            Path of an array.
        condition
            ``"> 310"``, or several as ``">= 0 and < 1"``, for values as `scan_values` reads them.

        Returns
        -------
        list of dict
            Boxes of whole chunks, for ``isel``. There is no such value outside of the boxes. Chunks
            without statistics are included.

        Raises
        ------
        InvalidRequestError
            For an unknown array, a condition of another form, or if no chunk has statistics.
        """
        return list(boxes(self._array(array), parse_condition(condition)))

    def amend(self) -> CatalogGroup:
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
            raise InvalidRequestError(f"the snapshot is tagged {tags[0]!r}, and so it stays")
        return replace(self, keeper=self._kept().amending(self.info.snapshot))

    def history(self) -> tuple[Commit, ...]:
        """List the commits of the catalog, the last one first."""
        return self._kept().history()

    def tag(self, name: str, snapshot: str | None = None) -> CatalogGroup:
        """Tag a snapshot. Tagged snapshots can be opened by name and are never pruned.

        Parameters
        ----------
        name
            Letters, digits, dots, dashes and underscores. If another snapshot has this tag, the
            tag moves.
        snapshot
            Id of a snapshot, or a tag; by default the current one.
        """
        return self._kept().tag(name, snapshot)

    def untag(self, name: str) -> CatalogGroup:
        """Remove a tag from its snapshot."""
        return self._kept().untag(name)

    def rollback(self, to: str | None = None) -> CatalogGroup:
        """Return to an earlier snapshot. This is a commit, which can be rolled back too.

        Parameters
        ----------
        to
            Id or tag of a snapshot. By default the previous one.
        """
        return self._kept().rollback(to)

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
        """List the stored chunks, one row for each that a block shows, in the order of the blocks.

        Parameters
        ----------
        array
            Path of an array. None lists the chunks of all arrays.
        state
            Only chunks of this state, or of these states.
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
            For an unknown array, state or column.
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
        """List the rows of `chunks` in batches of at most 65,536, made while the caller reads."""
        arrays = self.all_arrays()
        if array is not None:
            arrays = {array.strip("/"): self._array(array)}
        return list_chunks(arrays, state, columns, self.snapshot.pending)

    def statistics(self) -> pa.Table:
        """List the statistics of the values of each array.

        Returns
        -------
        pyarrow.Table
            ``path``; ``n_chunks``, and ``n_known``, the chunks with statistics; ``n_valid``,
            ``min`` and ``max`` over these.
        """
        return summed_statistics(self.all_arrays())

    def _array(self, path: str) -> VirtualArray:
        arrays = self.all_arrays()
        check_names("the catalog", [path.strip("/")], arrays, kind="array")
        return arrays[path.strip("/")]

    def sources(self) -> pa.Table:
        """List the files that hold chunks, as they were when they were scanned.

        Returns
        -------
        pyarrow.Table
            ``url``, ``size_bytes``, ``mtime_ns`` and ``etag``; null if unknown.
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
        """Copy the group with some attributes replaced: a group in memory, not a catalog."""
        own = {part.name: getattr(self, part.name) for part in fields(VirtualGroup)}
        return VirtualGroup(**{**own, **changes})

    def __dask_tokenize__(self) -> tuple[str, ...]:
        return "gridref.CatalogGroup", self.info.url, self.info.digest

    @override
    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}; catalog: {self.info.url}>"
