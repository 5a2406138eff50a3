"""Scanning the values of a catalog's chunks, and finding chunks by what is known of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.catalog.arrays import ParquetManifest
from gridref.catalog.commits import Base
from gridref.catalog.group import CatalogGroup
from gridref.catalog.parts import Part
from gridref.catalog.recording import WriteTable
from gridref.catalog.statistics import ChunkStatistics, write_statistics
from gridref.catalog.tables import ROW_GROUP_ROWS
from gridref.model.array import VirtualArray
from gridref.model.listing import NO_ROW, ChunkListing, ListedChunks
from gridref.options import check_names
from gridref.serve.reader import Reader
from gridref.workflows.decoding import decoded_values

__all__ = ["ValueScan"]

N_THREADS = 16
NUMBERS = "biuf"
"""Kinds of dtypes that are ordered as numbers."""

Progress = Callable[[int, int], None]


class ValueScan:
    """Reads chunks of which nothing is known yet, each once however often a commit is tried.

    Values are those that xarray shows without decoding of times: unpacked by ``scale_factor`` and
    ``add_offset``, and missing where they are ``_FillValue`` or NaN.

    Parameters
    ----------
    arrays
        Paths of arrays; None for all. Those that hold no numbers are passed over.
    n_threads
        Threads that read.
    progress
        Called with the number of chunks read, and of all to read.
    """

    def __init__(
        self,
        arrays: Collection[str] | None,
        reader: Reader,
        n_threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._arrays = None if arrays is None else {path.strip("/") for path in arrays}
        self._reader = reader
        self._n_threads = n_threads or N_THREADS
        self._progress = progress
        self._kept: dict[str, ChunkStatistics] = {}

    def of(self, base: Base) -> Mapping[int, WriteTable]:
        """Tables of statistics of all chunk rows of those parts that have some that are new."""
        parts = {part.blocks.address: part for part in base.group.parts}
        known = {address: self._known(part) for address, part in parts.items()}
        wanted = [
            piece
            for path, array in self._chosen(base.group).items()
            for piece in _unknown(path, array, known)
        ]
        total, done = sum(len(listed) for _, listed in wanted), 0
        for path, listed in wanted:
            found = self._measured(path, listed)
            for address, rows, mine in _rows_by_part(path, listed):
                known[address].widen(rows, found.take(mine))
                self._kept[address] = known[address]
            done += len(listed)
            if self._progress is not None:
                self._progress(done, total)
        numbered = enumerate(parts)
        return {
            number: partial(write_statistics, statistics=self._kept[address])
            for number, address in numbered
            if address in self._kept
        }

    def _chosen(self, group: CatalogGroup) -> dict[str, VirtualArray]:
        arrays = group.all_arrays()
        if self._arrays is not None:
            check_names("the catalog", self._arrays, arrays, kind="array")
            arrays = {path: arrays[path] for path in self._arrays}
        return {path: each for path, each in arrays.items() if each.dtype.kind in NUMBERS}

    def _known(self, part: Part) -> ChunkStatistics:
        kept = self._kept.get(part.blocks.address)
        n_rows = part.chunks.table.n_rows
        if kept is not None:
            return kept
        if part.statistics is None:
            return ChunkStatistics.unknown(n_rows)
        return part.statistics.take(np.arange(n_rows))

    def _measured(self, path: str, listed: ListedChunks) -> ChunkStatistics:
        array, (starts, stops) = listed.listing.array, listed.bounds

        def measure(i: int) -> Measured:
            box = tuple(map(slice, starts[i].tolist(), stops[i].tolist()))
            return measured(path, self._reader.read(array, box, name=path), array)

        threads = ThreadPoolExecutor(self._n_threads)
        try:
            columns = zip(*threads.map(measure, range(len(listed))), strict=True)
            return ChunkStatistics(*map(np.array, columns))
        finally:
            threads.shutdown(cancel_futures=True)


type Measured = tuple[int, float, float]
"""Number of valid elements, the least and the greatest of them."""


def measured(path: str, values: NDArray[Any], array: VirtualArray) -> Measured:
    """Statistics of elements, bounds rounded outward to float64."""
    shown = decoded_values(path.rpartition("/")[2], values, array, decode_times=False)
    if shown.dtype.kind not in NUMBERS:
        return -1, np.nan, np.nan
    valid = shown[~np.isnan(shown)] if shown.dtype.kind == "f" else shown.reshape(-1)
    if not valid.size:
        return 0, np.nan, np.nan
    return valid.size, _outward(valid.min(), -np.inf), _outward(valid.max(), np.inf)


def _outward(value: Any, direction: float) -> float:
    """A number as a float64 that is not nearer to the other numbers."""
    exact, rounded = value.item(), float(value)
    wrong = rounded > exact if direction < 0 else rounded < exact
    return float(np.nextafter(rounded, direction)) if wrong else rounded


def _unknown(
    path: str, array: VirtualArray, known: Mapping[str, ChunkStatistics]
) -> Iterator[tuple[str, ListedChunks]]:
    """The chunks of an array of which nothing is known, in pieces."""
    for listed in ChunkListing(array).pieces(ROW_GROUP_ROWS):
        is_known = np.ones(len(listed), bool)
        for part, rows, mine in _rows_by_part(path, listed):
            is_known[mine] = known[part].is_known[rows]
        if not is_known.all():
            yield path, listed.take(~is_known)


def _rows_by_part(
    path: str, listed: ListedChunks
) -> Iterator[tuple[str, NDArray[np.int64], NDArray[np.int64]]]:
    """By address of a part the rows of its chunk table, and which of the chunks they are."""
    array = listed.listing.array
    held = np.flatnonzero(listed.row != NO_ROW)
    manifest = array.blocks.manifest[listed.block[held]]
    for number in np.unique(manifest).tolist():
        of = array.manifests[number]
        assert isinstance(of, ParquetManifest)
        mine = held[manifest == number]
        yield of.part.blocks.address, listed.row[mine] + of.part.rows(path).first_chunk, mine
