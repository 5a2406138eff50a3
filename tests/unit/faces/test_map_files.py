"""Chunk maps as files: every chunk that is absent is missing in one of them, and no other."""

from __future__ import annotations

import gzip
import json

import numpy as np

from gridref.faces.web.chunk_map import MOST_MAPS, map_files
from gridref.testing.builders import chunked_array
from tests.map_columns import map_columns

ABSENT = (3, 7, 22)


def test_the_maps_of_all_hidden_chunks_are_the_whole_array() -> None:
    values = np.arange(8 * 6 * 4, dtype="i4").reshape(8, 6, 4)  # 4 x 3 x 2 chunks
    found = map_files(chunked_array(values, (2, 2, 2), ("t", "y", "x"), absent=ABSENT))
    assert found.is_whole
    assert set(found.files) == {"map0.bin", "map1.bin", "sizes.json"}
    maps = [map_columns(gzip.decompress(found.files[f"map{x}.bin"])) for x in range(2)]
    assert [header["hidden_at"] for header, *_ in maps] == [[0], [2]]
    state = np.stack([state for *_, state in maps], -1).ravel()
    assert np.flatnonzero(state == 0).tolist() == list(ABSENT)
    stored = np.stack([stored for _, _, _, stored, _, _ in maps])
    assert stored.sum() == (24 - len(ABSENT)) * 8 * 4
    sizes = json.loads(found.files["sizes.json"])
    assert sizes["states"]["missing"] == len(ABSENT)
    assert sizes["sizes"] == [[32, 24 - len(ABSENT)]]


def test_too_many_maps_are_the_first_one() -> None:
    many = np.zeros((9, 9, 9, 9), "u1")  # 81 maps
    assert MOST_MAPS < 9 * 9
    found = map_files(chunked_array(many, (1,) * 4, "atyx", absent=(5,)))
    assert not found.is_whole
    assert set(found.files) == {"map0,0.bin", "sizes.json"}
    sizes = json.loads(found.files["sizes.json"])
    assert sum(sizes["states"].values()) == 9**4
