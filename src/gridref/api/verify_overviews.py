"""Compute the levels of overviews again from the files, and compare."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gridref.api.rewriting.coarsening import Coarsening
from gridref.api.rewriting.levels import tile_shape
from gridref.api.verify_overlays import SAMPLED_CHUNKS, ComparedChunk, read_or_why_not
from gridref.catalog.group import CatalogGroup
from gridref.catalog.overlays import is_current
from gridref.catalog.sheet_entries import OverviewEntry
from gridref.errors import Place
from gridref.model.array import VirtualArray
from gridref.model.conventions import MissingValues, meant_dtype
from gridref.model.overlay import Box, level_shape
from gridref.serve.reader import Reader


def compared_levels(
    group: CatalogGroup, reader: Reader, all_: bool, random: np.random.Generator
) -> Iterator[ComparedChunk]:
    """Read parts of all levels that are shown, and make them of the elements in the files.

    Parameters
    ----------
    all_
        Whether to compare everything, not only some parts.
    random
        Chooses the sample.
    """
    arrays = group.from_files().all_arrays()
    for entry in group.snapshot.overviews:
        array = arrays[entry.array].with_changes(overlays=())
        if not is_current(entry, array):
            continue
        levels = [group.levels.level(entry, n, array) for n in range(1, entry.n_levels + 1)]
        boxes = list(_boxes(array, entry))
        if not all_ and len(boxes) > SAMPLED_CHUNKS:
            chosen = sorted({int(n) for n in random.integers(0, len(boxes), SAMPLED_CHUNKS)})
            boxes = [boxes[number] for number in chosen]
        coarsening = Coarsening(
            entry.method,
            entry.factors,
            entry.n_levels,
            MissingValues.of(array),
            meant_dtype(array),
            levels[0].dtype,
        )
        for box in boxes:
            values = reader.read(array, tuple(itertools.starmap(slice, box)), name=entry.array)
            for number, expected in enumerate(coarsening.levels(values), 1):
                yield _compared(entry, number, levels[number - 1], box, expected, reader)


def _boxes(array: VirtualArray, entry: OverviewEntry) -> Iterator[Box]:
    """The boxes that levels are made of one by one."""
    tile = tile_shape(array.shape, array.dtype.itemsize, entry.factors, entry.n_levels)
    along = [
        [(low, min(low + n, extent)) for low in range(0, extent, n)]
        for n, extent in zip(tile, array.shape, strict=True)
    ]
    yield from itertools.product(*along)


def _compared(
    entry: OverviewEntry,
    number: int,
    level: VirtualArray,
    box: Box,
    expected: NDArray[np.generic],
    reader: Reader,
) -> ComparedChunk:
    windows = entry.windows(number)
    first = tuple(low // n for (low, _), n in zip(box, windows, strict=True))
    shape = level_shape([high - low for low, high in box], windows)
    place = tuple(slice(low, low + n) for low, n in zip(first, shape, strict=True))
    path = entry.paths[number - 1]
    got = read_or_why_not(reader, level, place, path)
    return ComparedChunk(Place(variable=path, chunk=first), entry.id, got, expected)
