"""Opening a catalog: only ``gridref.json`` is read; rows follow when they are needed."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, override

import pyarrow as pa

from gridref.catalog.chunk_listing import list_chunks
from gridref.catalog.damage import refusing_damage
from gridref.catalog.document import (
    ROOT_FILE,
    ArrayEntry,
    CatalogDocument,
    GroupEntry,
    Interned,
)
from gridref.catalog.rows import ChunkTable, ParquetBlocks, ParquetManifest, SourceTable
from gridref.catalog.storage import Folder, open_folder
from gridref.catalog.table_file import TableFile
from gridref.catalog.tables import BLOCK_SCHEMA, CHUNK_SCHEMA, SOURCE_SCHEMA, sources_table
from gridref.catalog.values import attributes_from_json
from gridref.errors import CatalogCorruptError, Place
from gridref.io import absolute_url, catalog_options
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.options import check_names

__all__ = ["CatalogGroup", "CatalogInfo", "open_catalog"]

_SCHEMAS = {"sources": SOURCE_SCHEMA, "blocks": BLOCK_SCHEMA, "chunks": CHUNK_SCHEMA}


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
        Rows in its tables.
    table_bytes
        Size of its tables.
    extra
        JSON values of the application's own.
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


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class CatalogGroup(VirtualGroup):
    """The root group of a catalog.

    Attributes
    ----------
    info
        What the catalog says of itself.
    source_table
        Its sources.
    """

    info: CatalogInfo
    source_table: SourceTable

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
            ``array``, its path; ``chunk``, chunk coords, counted over all blocks; ``block``, coords
            of the block; ``start`` and ``stop``, the elements of the array that the chunk holds,
            half-open; ``state``: ``"range"``, ``"inline"``, ``"missing"`` or ``"pending"``;
            ``source``, ``offset`` and ``length`` of a range; ``stored_bytes``, 0 where nothing is
            stored; ``decoded_bytes``, null for strings of any length. A block that no file holds is
            one row.

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
            path = array.strip("/")
            check_names("the catalog", [path], arrays, kind="array")
            arrays = {path: arrays[path]}
        return list_chunks(arrays, state, columns)

    def sources(self) -> pa.Table:
        """All files that chunks lie in, as they were when they were scanned.

        Returns
        -------
        pyarrow.Table
            ``url``, ``size_bytes``, ``mtime_ns`` and ``etag``; null where it is not known.
        """
        files = self.source_table.sources
        return sources_table(files, [source.url for source in files])

    @override
    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}; catalog: {self.info.url}>"


def open_catalog(
    url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> CatalogGroup:
    """Open a catalog, whose arrays cannot be read yet: see `gridref.open_catalog`."""
    storage_options = catalog_options(storage_options)
    address = absolute_url(url).removesuffix(f"/{ROOT_FILE}")
    folder = open_folder(address, storage_options)
    document, digest = CatalogDocument.from_bytes(folder.read(ROOT_FILE), folder.address(ROOT_FILE))
    tables = _tables(folder, document, storage_options)
    sources = SourceTable(tables["sources"], folder.url)
    contents = _Contents(
        document.shared,
        tables["blocks"],
        ChunkTable(tables["chunks"], sources),
        folder.address(ROOT_FILE),
    )
    root = _group(document.root, contents, "")
    info = CatalogInfo(
        url=folder.url,
        digest=digest,
        format_version=document.format_version,
        created_by=document.created_by,
        n_sources=tables["sources"].n_rows,
        n_blocks=tables["blocks"].n_rows,
        n_chunks=tables["chunks"].n_rows,
        table_bytes=sum(table.n_bytes for table in document.tables.values()),
        extra=document.extra,
    )
    return CatalogGroup(
        arrays=root.arrays,
        groups=root.groups,
        attrs=root.attrs,
        unlimited_dims=root.unlimited_dims,
        info=info,
        source_table=sources,
    )


def _tables(
    folder: Folder, document: CatalogDocument, storage_options: Mapping[str, Any] | None
) -> dict[str, TableFile]:
    tables = {}
    for name, schema in _SCHEMAS.items():
        table = document.tables[name]
        if "/" in table.file or os.sep in table.file or table.file.startswith("."):
            raise CatalogCorruptError(
                f"the table {name} is not in the catalog: {table.file!r}", Place(source=folder.url)
            )
        address = folder.address(table.file)
        tables[name] = TableFile(address, table, schema.names, storage_options)
    return tables


@dataclass(frozen=True, eq=False)
class _Contents:
    """What the arrays of a catalog share."""

    shared: Interned
    blocks: TableFile
    chunks: ChunkTable
    address: str


class _LazyArrays(Mapping[str, VirtualArray]):
    """The arrays of a group, made when they are first asked for."""

    def __init__(self, entries: Mapping[str, ArrayEntry], contents: _Contents, path: str) -> None:
        self._entries = entries
        self._contents = contents
        self._path = path
        self._made: dict[str, VirtualArray] = {}

    @override
    def __getitem__(self, name: str) -> VirtualArray:
        made = self._made.get(name)
        if made is None:
            entry = self._entries[name]
            path = f"{self._path}/{name}" if self._path else name
            made = self._made.setdefault(name, _array(entry, self._contents, path))
        return made

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    @override
    def __len__(self) -> int:
        return len(self._entries)

    @override
    def __contains__(self, name: object) -> bool:
        return name in self._entries


def _group(entry: GroupEntry, contents: _Contents, path: str) -> VirtualGroup:
    groups = {
        name: _group(child, contents, f"{path}/{name}" if path else name)
        for name, child in entry.groups.items()
    }
    place = Place(source=contents.address, variable=path or "/")
    with refusing_damage("the attributes of a group", place):
        attrs = attributes_from_json(entry.attrs)
    arrays = _LazyArrays(entry.arrays, contents, path)
    return VirtualGroup(arrays, groups, attrs, unlimited_dims=entry.unlimited_dims)


def _array(entry: ArrayEntry, contents: _Contents, path: str) -> VirtualArray:
    place = Place(source=contents.address, variable=path)
    with refusing_damage("the description of an array", place):
        parts = entry.parts(contents.shared)
        blocks = ParquetBlocks(
            contents.blocks, entry.blocks, parts["grid"].ndim, len(parts["encodings"])
        )
        manifest = ParquetManifest(contents.chunks, entry.chunks, entry.counts)
        return VirtualArray(**parts, manifests=(manifest,), block_source=blocks)
