"""Manifests and blocks of a catalog's arrays, read from its parts when they are first looked at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.catalog.damage import refusing_damage
from gridref.catalog.entries import ChunkCounts
from gridref.catalog.parts import Part
from gridref.catalog.segments import Layout, Segment, whole
from gridref.catalog.statistics import ChunkStatistics
from gridref.errors import InvalidRequestError, Place
from gridref.forks import new_lock
from gridref.model.array import BlockTable
from gridref.model.manifest import ChunkManifest
from gridref.typing import Int64Array

__all__ = ["ParquetBlocks", "ParquetManifest"]


@dataclass(frozen=True, eq=False)
class ParquetManifest:
    """The chunk rows of one array in one part: a `Manifest` whose rows are read on demand.

    Attributes
    ----------
    part
        The part.
    path
        Path of the array.
    has_filter_masks
        Whether any chunk of the array, in any part, has filters switched off.
    """

    part: Part
    path: str
    has_filter_masks: bool

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.part.rows(self.path).n_chunks

    @property
    def counts(self) -> ChunkCounts:
        """How many are ranges, inline and missing, and their stored bytes."""
        return self.part.rows(self.path).counts

    @property
    def stored_bytes(self) -> int:
        """Sum of the stored sizes of all chunks, in bytes."""
        return self.counts.stored_bytes

    def take(self, rows: NDArray[np.int64]) -> ChunkManifest:
        """The given rows, in the given order, in memory.

        Raises
        ------
        InvalidRequestError
            For rows that are not there.
        CatalogCorruptError
            If the table is damaged.
        """
        wanted = np.asarray(rows, np.int64)
        if wanted.size == 0:
            return ChunkManifest.missing(0)
        if int(wanted.min()) < 0 or int(wanted.max()) >= self.n_rows:
            raise InvalidRequestError(
                f"rows {int(wanted.min())}..{int(wanted.max())} of a manifest of {self.n_rows}"
            )
        return self.part.chunks.take(wanted + self.part.rows(self.path).first_chunk)

    def statistics(self, rows: Int64Array) -> ChunkStatistics:
        """What is known of the values in chunks."""
        table = self.part.statistics
        if table is None:
            return ChunkStatistics.unknown(len(rows))
        return table.take(rows + self.part.rows(self.path).first_chunk)


class ParquetBlocks:
    """The blocks of one array of a catalog, read when they are first asked for.

    A `gridref.model.array.BlockSource`. Thread-safe; a pickle holds no rows.

    Parameters
    ----------
    parts
        The parts that hold any of them, in the order of the array's manifests.
    layout
        Where they lie in these parts, which its numbers count into.
    grid_shape
        Number of blocks along each dimension.
    n_encodings
        Number of its encodings, which rows count into.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        layout: Layout,
        path: str,
        grid_shape: tuple[int, ...],
        n_encodings: int,
    ) -> None:
        self._parts = parts
        self._layout = layout
        self._path = path
        self._grid_shape = grid_shape
        self._n_encodings = n_encodings
        self._loading = new_lock()
        self._loaded: BlockTable | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        own = (self._parts, self._layout, self._path, self._grid_shape, self._n_encodings)
        return ParquetBlocks, own

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return math.prod(self._grid_shape)

    def load(self) -> BlockTable:
        """The blocks in memory.

        Raises
        ------
        CatalogCorruptError
            If the table is damaged.
        """
        if self._loaded is None:
            with self._loading:
                if self._loaded is None:
                    with refusing_damage("the layout of an array", Place(variable=self._path)):
                        self._loaded = self._read()
        return self._loaded

    def _read(self) -> BlockTable:
        whole_part = self._layout == whole(0, self._grid_shape) != ()
        if whole_part and self._parts[0].rows(self._path).grid_shape == self._grid_shape:
            return self._parts[0].block_rows(self._path, self._n_encodings)
        missing = BlockTable.missing(self.n_blocks, len(self._grid_shape))
        table = BlockTable(*(column.copy() for column in vars(missing).values()))
        read: dict[int, BlockTable] = {}
        for segment in self._layout:
            part = self._parts[segment.part]
            if segment.part not in read:
                read[segment.part] = part.block_rows(self._path, self._n_encodings)
            self._copy(segment, part, read[segment.part], table)
        return table

    def _copy(self, segment: Segment, part: Part, source: BlockTable, table: BlockTable) -> None:
        """Put the blocks of a segment in their places."""
        shape = part.rows(self._path).grid_shape
        segment.check_inside(shape, self._grid_shape)
        for field in fields(BlockTable):
            column, target = getattr(source, field.name), getattr(table, field.name)
            rest = column.shape[1:]
            boxed = column.reshape(*shape, *rest)[segment.source_box]
            target.reshape(*self._grid_shape, *rest)[segment.box] = boxed
        manifest = table.manifest.reshape(self._grid_shape)
        manifest[segment.box] = segment.part
