"""The chunk map and the histogram of sizes of an array as files, where no server answers."""

from __future__ import annotations

import gzip
import itertools
import json
import math
from dataclasses import dataclass

from gridref.adapters.picture import chunks_along
from gridref.adapters.web.chunk_map import MOST_CHUNKS, MapAxes, chunk_map, count_sizes
from gridref.model.array import VirtualArray

__all__ = ["MapFiles", "map_files"]

MOST_MAPS = 64
"""Maps of one array; of one that needs more, or has very many chunks, there is the first."""


@dataclass(frozen=True)
class MapFiles:
    """The answers of a server, by the names that links give them.

    Attributes
    ----------
    files
        Maps, compressed, by the chunks along hidden axes that they are at; and the sizes.
    is_whole
        Whether there is a map of every chunk along the hidden axes; else they are at the first.
    """

    files: dict[str, bytes]
    is_whole: bool


def map_files(array: VirtualArray) -> MapFiles:
    """The files of an array that has a chunk map.

    Raises
    ------
    InvalidRequestError
        With the reason why it cannot be drawn.
    """
    hidden = [count for _, count in MapAxes.of(array).hidden]
    is_few = math.prod(hidden) <= MOST_MAPS and math.prod(chunks_along(array)) <= MOST_CHUNKS
    shown = hidden if is_few else [1] * len(hidden)
    files = {
        f"map{','.join(map(str, at))}.bin": gzip.compress(
            chunk_map(array, at).to_bytes(), compresslevel=6, mtime=0
        )
        for at in itertools.product(*map(range, shown))
    }
    files["sizes.json"] = json.dumps(count_sizes(array).to_json()).encode()
    return MapFiles(files, shown == hidden)
