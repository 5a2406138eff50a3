"""An opened catalog to read: a group with its tables. `gridref.Catalog` adds the changes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self, override

import pyarrow as pa

from gridref.catalog.document import CatalogReport, Snapshot
from gridref.catalog.listing import list_chunks, listed_sources, summed_statistics
from gridref.catalog.overlays import (
    OverlayOpener,
    OverlayPolicy,
    OverviewOpener,
    check_policy,
    without_overviews,
)
from gridref.catalog.parts import Part
from gridref.catalog.sources import Trust
from gridref.catalog.statistics import boxes, parse_condition
from gridref.catalog.tables import open_at_once
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.manifest import Source
from gridref.options import check_names


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


_OF_GRIDREF = frozenset(
    ("decided_trust", "holding", "levels", "opener", "parts", "shown", "with_overlays")
)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class CatalogGroup(VirtualGroup):
    """The root group of a catalog, to be read.

    Attributes
    ----------
    info
        Facts about the catalog.
    snapshot
        The snapshot that is shown.
    parts
        Its parts.
    opener
        Makes the overlays of its arrays.
    levels
        Makes their coarser levels.
    """

    info: CatalogInfo
    snapshot: Snapshot
    parts: tuple[Part, ...]
    opener: OverlayOpener
    levels: OverviewOpener
    _trust: Trust
    report: CatalogReport = field(default_factory=CatalogReport)

    def __post_init__(self) -> None:
        if not isinstance(self.report, CatalogReport):
            report = CatalogReport.of(self.report, self.snapshot.drifts)
            object.__setattr__(self, "report", report)

    def __dir__(self) -> list[str]:
        """The names for users, which shells offer: without what only gridref itself takes."""
        return [name for name in super().__dir__() if name not in _OF_GRIDREF]

    def with_overlays(self, policy: OverlayPolicy) -> Self:
        """The same snapshot, with the overlays that reads may use chosen anew.

        Raises
        ------
        InvalidRequestError
            If the policy says nothing about overlays.
        """
        check_policy(policy)
        opener = replace(self.opener, policy=policy)
        group = self.from_files() if policy == "none" else self
        return replace(group.with_each_array_lazily(opener.of), opener=opener)

    def from_files(self) -> Self:
        """The same catalog with the arrays of its files only, without coarser levels of them."""
        return without_overviews(self, self.snapshot)

    def decided_trust(self) -> Trust:
        """The sources that it may read, decided now, for a process on another machine."""
        return self._trust.decided(part.sources.stored for part in self.parts)

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
        arrays = self.from_files().all_arrays()
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
        return summed_statistics(self.from_files().all_arrays())

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

    def holding(self, files: Iterable[str]) -> list[str]:
        """Those of some files that hold chunks, or that are folders of such files (Zarr, N5)."""
        urls = [*sorted(source.url for source in self.source_list), ""]

        def first_from(start: str) -> str:
            return urls[bisect_left(urls, start, hi=len(urls) - 1)]

        return [f for f in files if first_from(f) == f or first_from(f"{f}/").startswith(f"{f}/")]

    @override
    def with_changes(self, **changes: Any) -> VirtualGroup:
        """Copy the group with some attributes replaced: a group in memory, not a catalog."""
        # Levels are kept true by the catalog, which a group in memory leaves.
        files = self.from_files()
        own = {part.name: getattr(files, part.name) for part in fields(VirtualGroup)}
        return VirtualGroup(**{**own, **changes})

    @property
    def shown(self) -> str:
        """What tells apart contents that are shown: the digest, and ids of the levels beside it."""
        ids = [each.name for entry in self.snapshot.overviews for each in entry.sheets]
        return "+".join([self.info.digest, *ids])

    def __dask_tokenize__(self) -> tuple[str, ...]:
        return "gridref.CatalogGroup", self.info.url, self.shown

    @override
    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}; catalog: {self.info.url}>"
