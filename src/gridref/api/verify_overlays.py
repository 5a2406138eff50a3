"""Compare overlays with the files: the values of a sample of their chunks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gridref.errors import GridrefError, Place
from gridref.model.array import Overlay, VirtualArray, VirtualGroup
from gridref.model.overlay import Box, Cover
from gridref.serve.reader import Reader

SAMPLED_CHUNKS = 8
"""Chunks of each box of an overlay that are compared, if not all are."""


@dataclass(frozen=True, eq=False)
class ComparedChunk:
    """Elements of a chunk of an overlay, and what the files hold in their place.

    Attributes
    ----------
    place
        The array and the chunk.
    overlay
        Name of the overlay.
    got
        The elements, or why they cannot be read.
    expected
        Those of the files.
    """

    place: Place
    overlay: str
    got: NDArray[np.generic] | GridrefError
    expected: NDArray[np.generic]


def compared_chunks(
    group: VirtualGroup, reader: Reader, all_: bool, random: np.random.Generator
) -> Iterator[ComparedChunk]:
    """Read chunks of all overlays, and their elements in the files.

    Parameters
    ----------
    all_
        Whether to read every chunk, not only some.
    random
        Chooses the sample.
    """
    for path, array in group.all_arrays().items():
        for overlay in array.overlays:
            for cover in overlay.coverage:
                for coords in _coords(cover, overlay, all_, random):
                    yield _compared(path, array, overlay, cover, coords, reader)


def _coords(
    cover: Cover, overlay: Overlay, all_: bool, random: np.random.Generator
) -> Iterator[tuple[int, ...]]:
    """Coords of chunks of a sheet that a box holds any element of."""
    lengths = overlay.sheets[cover.sheet].encodings[0].chunk_shape
    firsts = [low // n for (low, _), n in zip(cover.sheet_box, lengths, strict=True)]
    counts = [
        -(-high // n) - first
        for (_, high), n, first in zip(cover.sheet_box, lengths, firsts, strict=True)
    ]
    n_chunks = math.prod(counts)
    numbers = (
        range(n_chunks)
        if all_ or n_chunks <= SAMPLED_CHUNKS
        else sorted({int(each) for each in random.integers(0, n_chunks, SAMPLED_CHUNKS)})
    )
    for number in numbers:
        at = np.unravel_index(number, counts)
        yield tuple(first + int(k) for first, k in zip(firsts, at, strict=True))


def _compared(
    path: str,
    array: VirtualArray,
    overlay: Overlay,
    cover: Cover,
    coords: tuple[int, ...],
    reader: Reader,
) -> ComparedChunk:
    sheet = overlay.sheets[cover.sheet]
    lengths = sheet.encodings[0].chunk_shape
    box: Box = tuple(
        (max(k * n, low), min((k + 1) * n, high))
        for k, n, (low, high) in zip(coords, lengths, cover.sheet_box, strict=True)
    )
    in_sheet = tuple(slice(low, high) for low, high in box)
    in_files = tuple(
        slice(low - by, high - by) for (low, high), by in zip(box, cover.shift, strict=True)
    )
    expected = reader.read(array.with_changes(overlays=()), in_files, name=path)
    got = read_or_why_not(reader, sheet, in_sheet, path)
    return ComparedChunk(Place(variable=path, chunk=coords), overlay.id, got, expected)


def read_or_why_not(
    reader: Reader, array: VirtualArray, place: tuple[slice, ...], path: str
) -> NDArray[np.generic] | GridrefError:
    """Elements of an array, or the error of reading them."""
    try:
        return reader.read(array, place, name=path)
    except GridrefError as error:
        return error
