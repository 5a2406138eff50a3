"""Writing a catalog: tables first, the root file last, in one step."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pyarrow as pa

from gridref.catalog.chunk_rows import ChunkBatch, SourceIndex, chunk_batches
from gridref.catalog.document import (
    ROOT_FILE,
    ArrayEntry,
    CatalogDocument,
    ChunkCounts,
    GroupEntry,
    Interned,
    RowRange,
    SourceUrls,
    TableEntry,
    array_entry,
    attributes_to_json,
)
from gridref.catalog.layout import RowLayout, layout_rows
from gridref.catalog.storage import Folder, open_folder, relative_url
from gridref.catalog.tables import (
    BLOCK_SCHEMA,
    CHUNK_SCHEMA,
    SOURCE_SCHEMA,
    TableWriter,
    blocks_table,
    sources_table,
)
from gridref.errors import (
    CatalogError,
    CatalogNotFoundError,
    GridrefError,
    InvalidRequestError,
    Place,
)
from gridref.io import catalog_options
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.manifest import ChunkState

__all__ = ["write_catalog", "write_to_folder"]

_TABLE_FILE = re.compile(r"(sources|blocks|chunks)-[0-9a-f]+\.parquet$")
LEFT_OVER_SECONDS = 24 * 3600
"""Age from which on a table that no catalog names is taken for left over."""
_DRAFT_FILE = re.compile(rf"\.{re.escape(ROOT_FILE)}\.\d+\.tmp$")


def write_catalog(
    group: VirtualGroup,
    url: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    *,
    extra: Mapping[str, Any] | None = None,
    sources: SourceUrls = "absolute",
) -> str:
    """Write a catalog, or replace one in one step: see `gridref.write_catalog`.

    The tables are written under new names, then ``gridref.json``, which names them, is put in
    place, then the tables of the catalog that was there before are removed. A crash at any moment
    leaves the old catalog, or none where there was none. What crashes left behind more than a day
    ago is removed too.
    """
    if sources not in ("absolute", "relative"):
        raise InvalidRequestError(f'sources must be "absolute" or "relative", got {sources!r}')
    storage_options = catalog_options(storage_options)
    folder = open_folder(url, storage_options)
    try:
        return write_to_folder(group, folder, dict(extra or {}), sources)
    except OSError as error:
        if isinstance(error, GridrefError):
            raise
        raise CatalogError(
            f"the catalog cannot be written: {error.strerror or error}", Place(source=folder.url)
        ) from error


def write_to_folder(
    group: VirtualGroup, folder: Folder, extra: Mapping[str, Any], sources: SourceUrls
) -> str:
    """Write a catalog into a folder: see `write_catalog`."""
    _check_extra(extra)
    before = _to_be_replaced(folder)
    arrays = group.all_arrays()
    layouts = _layouts(arrays)
    generation = uuid.uuid4().hex[:16]
    shared = Interned()
    tables: dict[str, TableEntry] = {}
    index = SourceIndex()
    with _removed_on_failure(folder, generation):
        with _table(folder, f"chunks-{generation}.parquet", CHUNK_SCHEMA, tables) as chunks:
            counts = _write_chunks(chunks, list(zip(arrays.values(), layouts, strict=True)), index)
        with _table(folder, f"blocks-{generation}.parquet", BLOCK_SCHEMA, tables) as blocks:
            _write_blocks(blocks, arrays, layouts)
        with _table(folder, f"sources-{generation}.parquet", SOURCE_SCHEMA, tables) as writer:
            urls = [source.url for source in index.sources]
            if sources == "relative":
                urls = [relative_url(url, folder.url) for url in urls]
            writer.write(sources_table(index.sources, urls))
        entries = _entries(arrays, layouts, counts, shared)
        root = _group_entry(group, "", entries)
        document = CatalogDocument(root, shared, tables, sources, _created_by(), extra)
        folder.publish(ROOT_FILE, document.to_bytes())
    for name in before:
        folder.remove(name)
    return document.digest


def _check_extra(extra: Mapping[str, Any]) -> None:
    try:
        json.dumps(extra, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"extra must be strict JSON: {error}") from error


def _to_be_replaced(folder: Folder) -> list[str]:
    """Tables of the catalog in a folder, and what interrupted writes left there.

    Nothing in a folder that is not there, or empty. What is left over does not count as content.
    """
    names = folder.names()
    if names is None:
        return []
    ours = [name for name in names if _TABLE_FILE.match(name) or _DRAFT_FILE.match(name)]
    current = []
    if ROOT_FILE in names:
        current = _tables_named(folder)
    elif len(ours) < len(names):
        others = sorted(set(names) - set(ours))
        raise InvalidRequestError(
            f"not a catalog, and not empty (it holds {others[0]!r}): choose another place",
            Place(source=folder.url),
        )
    # Other files that were made lately may be tables that another process is writing right now.
    old = [n for n in ours if n not in current and (folder.age(n) or 0) > LEFT_OVER_SECONDS]
    return [*current, *old]


def _tables_named(folder: Folder) -> list[str]:
    """Tables that the catalog in a folder names."""
    try:
        content = folder.read(ROOT_FILE)
    except CatalogNotFoundError:
        return []
    document, _ = CatalogDocument.from_bytes(content, folder.address(ROOT_FILE))
    return [table.file for table in document.tables.values() if _TABLE_FILE.match(table.file)]


def _layouts(arrays: Mapping[str, VirtualArray]) -> list[RowLayout]:
    layouts = []
    for path, array in arrays.items():
        try:
            layouts.append(layout_rows(array))
        except GridrefError as error:
            raise error.located(Place(variable=path)) from None
    return layouts


@contextmanager
def _removed_on_failure(folder: Folder, generation: str) -> Iterator[None]:
    """Remove the tables of an attempt that fails."""
    try:
        yield
    except BaseException:
        for table in ("chunks", "blocks", "sources"):
            folder.remove(f"{table}-{generation}.parquet")
        raise


@contextmanager
def _table(
    folder: Folder, name: str, schema: pa.Schema, tables: dict[str, TableEntry]
) -> Iterator[TableWriter]:
    """A table to write, entered among `tables` when it is complete."""
    writer = TableWriter(folder.create(name), schema)
    try:
        yield writer
    except BaseException:
        writer.abandon()
        raise
    tables[name.partition("-")[0]] = writer.finish(name)


def _write_chunks(
    writer: TableWriter, arrays: list[tuple[VirtualArray, RowLayout]], index: SourceIndex
) -> list[ChunkCounts]:
    """Write all chunk rows, and count them for each array."""
    sums = np.zeros((len(arrays), 5), np.int64)
    for batch in chunk_batches(arrays, index):
        writer.write(batch.to_arrow())
        _add_counts(sums, batch)
    return [
        ChunkCounts(ranges, inline, missing, n_bytes, bool(masks))
        for ranges, inline, missing, n_bytes, masks in sums.tolist()
    ]


def _add_counts(sums: np.ndarray[Any, Any], batch: ChunkBatch) -> None:
    """Rows of one array follow each other, so sums over runs are sums over arrays."""
    heads = np.flatnonzero(np.concatenate([[True], batch.array[1:] != batch.array[:-1]]))
    columns = [
        batch.state == ChunkState.RANGE,
        batch.state == ChunkState.INLINE,
        batch.state == ChunkState.MISSING,
        batch.length,
        batch.filter_mask != 0,
    ]
    for position, column in enumerate(columns):
        sums[batch.array[heads], position] += np.add.reduceat(column.astype(np.int64), heads)


def _write_blocks(
    writer: TableWriter, arrays: Mapping[str, VirtualArray], layouts: list[RowLayout]
) -> None:
    parts = [
        blocks_table(array.blocks, layout.first_row)
        for array, layout in zip(arrays.values(), layouts, strict=True)
    ]
    if parts:
        writer.write(pa.concat_tables(parts))


def _entries(
    arrays: Mapping[str, VirtualArray],
    layouts: list[RowLayout],
    counts: list[ChunkCounts],
    shared: Interned,
) -> dict[str, ArrayEntry]:
    entries = {}
    n_blocks = n_chunks = 0
    for (path, array), layout, count in zip(arrays.items(), layouts, counts, strict=True):
        blocks, chunks = RowRange(n_blocks, array.n_blocks), RowRange(n_chunks, layout.n_rows)
        entries[path] = array_entry(array, path, shared, blocks, chunks, count)
        n_blocks += array.n_blocks
        n_chunks += layout.n_rows
    return entries


def _group_entry(group: VirtualGroup, path: str, entries: Mapping[str, ArrayEntry]) -> GroupEntry:
    def below(name: str) -> str:
        return f"{path}/{name}" if path else name

    return GroupEntry(
        attributes_to_json(group.attrs, path),
        {name: _group_entry(child, below(name), entries) for name, child in group.groups.items()},
        {name: entries[below(name)] for name in group.arrays},
        group.unlimited_dims,
    )


def _created_by() -> str:
    try:
        return f"gridref {version('gridref')}"
    except PackageNotFoundError:
        return "gridref"
