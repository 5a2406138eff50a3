"""Find the tiles of a codestream.

The tile-parts of a tile may follow each other or not. They are found by the lengths in TLM segments
(ITU-T T.800, A.7.1), or else from SOT to SOT.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gridref.codecs.jpeg2000 import (
    LEAST_PART_BYTES,
    SOT_BYTES,
    TLM,
    CodestreamError,
    Header,
    Read,
    TilePart,
    tile_part,
    tile_parts,
)
from gridref.errors import UnsupportedFeatureError
from gridref.limits import beyond, limits

type Places = tuple[NDArray[np.int64], NDArray[np.int64]]
"""First byte and length of each tile."""

_EOC = b"\xff\xd9"


def places_of_tiles(
    header: Header, read: Read, start: int, stop: int, max_objects: int, *, all_at_hand: bool
) -> Places | None:
    """Where each tile is; None if the parts of one are apart from each other.

    Parameters
    ----------
    header
        The main header.
    start, stop
        Where the first tile-part begins, and where the codestream ends.
    all_at_hand
        Whether reading costs little, so that all that TLM states is checked. Else it is believed if
        it ends where the codestream does.

    Raises
    ------
    CodestreamError
        If a tile is missing or cut off.
    UnsupportedFeatureError
        If there are too many tile-parts.
    """
    n_tiles = math.prod(header.size.n_tiles)
    if n_tiles * LEAST_PART_BYTES > stop - start:
        raise CodestreamError(f"it states {n_tiles} tiles in {stop - start} bytes")
    parts = _listed(header, start, stop)
    if parts is None or not _are_there(parts if all_at_hand else parts[:1], read, stop):
        parts = list(_at_most(max_objects, tile_parts(read, start, stop)))
        all_at_hand = True
        if read(parts[-1].start + 6, 4) == bytes(4):  # it ends where the codestream does
            parts[-1] = replace(parts[-1], stop=stop - len(_EOC))
    if all_at_hand and read(parts[-1].stop, len(_EOC)) != _EOC:
        raise CodestreamError("its end is cut off")
    return _joined(parts, n_tiles)


def _at_most(max_objects: int, parts: Iterator[TilePart]) -> Iterator[TilePart]:
    for number, part in enumerate(parts):
        if number == max_objects:
            raise UnsupportedFeatureError(f"it has more than {max_objects} tile-parts")
        yield part


def _listed(header: Header, start: int, stop: int) -> list[TilePart] | None:
    """The tile-parts that TLM lists; None if these are not all."""
    entries: list[tuple[int, int]] = []
    segments = [segment for marker, segment in header.segments if marker == TLM]
    for segment in sorted(segments, key=lambda segment: segment[:1]):
        kind = segment[1] if len(segment) > 1 else 0x30
        number, length = {0: "", 1: "B", 2: "H"}.get(kind >> 4 & 3), "I" if kind & 64 else "H"
        if number is None or (len(segment) - 2) % struct.calcsize(f">{number}{length}"):
            return None
        for *named, n_bytes in struct.iter_unpack(f">{number}{length}", segment[2:]):
            entries.append((named[0] if named else len(entries), n_bytes))
    stops = np.cumsum([n_bytes for _, n_bytes in entries], dtype=np.int64) + start
    if not entries or stops[-1] != stop - len(_EOC) or min(n_bytes for _, n_bytes in entries) < 14:
        return None
    starts = [start, *stops[:-1].tolist()]
    return [
        TilePart(tile, first, last)
        for (tile, _), first, last in zip(entries, starts, stops.tolist(), strict=True)
    ]


def _are_there(parts: Sequence[TilePart], read: Read, stop: int) -> bool:
    """Whether tile-parts are where they are listed."""
    try:
        return all(
            tile_part(read(part.start, SOT_BYTES), part.start, stop) == part for part in parts
        )
    except CodestreamError:
        return False


def _joined(parts: Sequence[TilePart], n_tiles: int) -> Places | None:
    """The places of tiles, whose parts must follow each other; None if they do not."""
    offset, length = np.full(n_tiles, -1, np.int64), np.zeros(n_tiles, np.int64)
    apart, last = False, -1
    for part in parts:
        if part.tile >= n_tiles:
            raise CodestreamError(f"its tile {part.tile} is outside of the image")
        if offset[part.tile] < 0:
            offset[part.tile] = part.start
        apart |= length[part.tile] > 0 and part.tile != last
        length[part.tile] += part.stop - part.start
        last = part.tile
    if (offset < 0).any():
        raise CodestreamError(f"it lacks tile {int(np.argmin(offset))} of {n_tiles}")
    return None if apart else (offset, length)


def check_decoded_bytes(n_elements: int) -> None:
    """Refuse chunks that take too much memory to decode: OpenJPEG has four bytes an element."""
    if 4 * n_elements > limits().decoded_bytes:
        what = f"decoding a chunk of {n_elements} elements takes {4 * n_elements} bytes"
        raise UnsupportedFeatureError(beyond("decoded_bytes", what))
