"""Manifests and blocks of a catalog's arrays, read from its parts when they are first looked at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.catalog.damage import refusing_damage
from gridref.catalog.entries import ChunkCounts
from gridref.catalog.parts import Part
from gridref.catalog.segments import Layout, Segment, whole
from gridref.catalog.statistics import ChunkStatistics
from gridref.catalog.table_file import open_at_once
from gridref.errors import CatalogCorruptError, InvalidRequestError, Place
from gridref.forks import new_lock
from gridref.model.array import BlockTable
from gridref.model.manifest import ChunkManifest
from gridref.typing import Int64Array

__all__ = ["ParquetBlocks", "ParquetManifest"]

_LOST_ROW = 2**62
"""The row of chunks of blocks that cannot be known, as their table is lost: no table has it."""
_LOST_EXTENT = 2**40
"""Extent of their stored arrays."""


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
        if int(wanted.max()) >= _LOST_ROW:
            raise self.part.lost_blocks(self.path)
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
    loading
        Held while blocks are read; the arrays of a catalog share one, as there can be many.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        layout: Layout,
        path: str,
        grid_shape: tuple[int, ...],
        n_encodings: int,
        loading: Lock | None = None,
    ) -> None:
        self._parts = parts
        self._layout = layout
        self._path = path
        self._grid_shape = grid_shape
        self._n_encodings = n_encodings
        self._loading = loading or new_lock()
        self._loaded: BlockTable | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        own = (self._parts, self._layout, self._path, self._grid_shape, self._n_encodings)
        return ParquetBlocks, own

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return math.prod(self._grid_shape)

    def within(self, box: Segment) -> ParquetBlocks:
        """The blocks in a box of them; tables of others are not read."""
        zeros = (0,) * len(box.shape)
        layout = replace(box, first=box.start, start=zeros).through(self._layout)
        return ParquetBlocks(self._parts, layout, self._path, box.shape, self._n_encodings)

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
        """All blocks; those of a part whose table is lost or damaged raise when they are read."""
        whole_part = self._layout == whole(0, self._grid_shape) != ()
        with suppress(CatalogCorruptError):
            if whole_part and self._parts[0].rows(self._path).grid_shape == self._grid_shape:
                return self._parts[0].block_rows(self._path, self._n_encodings)
        missing = BlockTable.missing(self.n_blocks, len(self._grid_shape))
        table = BlockTable(*(column.copy() for column in vars(missing).values()))
        used = [self._parts[number] for number in {segment.part for segment in self._layout}]
        open_at_once(part.blocks for part in used)
        read: dict[int, _Rows] = {}
        for segment in self._layout:
            if segment.part not in read:
                read[segment.part] = self._rows(self._parts[segment.part])
            self._copy(segment, read[segment.part], table)
        return table

    def _rows(self, part: Part) -> _Rows:
        try:
            return part.rows(self._path).grid_shape, part.block_rows(self._path, self._n_encodings)
        except CatalogCorruptError:
            return None

    def _copy(self, segment: Segment, rows: _Rows, table: BlockTable) -> None:
        """Put the blocks of a segment in their places."""
        if rows is None:
            rows = segment.shape, self._lost(segment.n_blocks)
            segment = replace(segment, first=(0,) * len(segment.shape))
        shape, source = rows
        segment.check_inside(shape, self._grid_shape)
        taken, box = segment.source_box, segment.box
        for name, column in vars(source).items():
            rest = column.shape[1:]
            boxed = column.reshape(*shape, *rest)[taken]
            getattr(table, name).reshape(*self._grid_shape, *rest)[box] = boxed
        table.manifest.reshape(self._grid_shape)[box] = segment.part

    def _lost(self, n_blocks: int) -> BlockTable:
        """Blocks of which nothing is known but where they are. An array without encodings has none.

        They seem to be one large chunk each, whose row cannot be had.
        """
        lost = BlockTable.missing(n_blocks, len(self._grid_shape))
        if not self._n_encodings:
            return lost
        return replace(
            lost,
            encoding=np.zeros_like(lost.encoding),
            first_row=np.full_like(lost.first_row, _LOST_ROW),
            stored_shape=np.full_like(lost.stored_shape, _LOST_EXTENT),
            step=np.ones_like(lost.step),
        )


type _Rows = tuple[tuple[int, ...], BlockTable] | None
"""Blocks of a part with the shape of their grid; None where they are lost."""
