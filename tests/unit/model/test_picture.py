"""Chunk maps."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np

from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.indexing import isel
from gridref.model.joining import concatenate
from gridref.model.picture import chunk_map_svg, map_axes, stored_edges
from gridref.testing.builders import chunked_array


def months() -> VirtualArray:
    parts = [
        chunked_array(np.zeros((length, 6)), (10, 4), ("time", "x")) for length in (31, 28, 30)
    ]
    return concatenate(parts, 0)


def test_stored_edges_follow_files_and_windows() -> None:
    array = months()
    assert stored_edges(array, 0).tolist() == [10, 10, 10, 1, 10, 10, 8, 10, 10, 10]
    assert stored_edges(array, 1).tolist() == [4, 2]
    window = isel(array, {"time": slice(5, 40)})
    assert stored_edges(window, 0).tolist() == [5, 10, 10, 1, 9]
    flipped = isel(array, {"time": slice(None, None, -1)})
    assert stored_edges(flipped, 0).tolist() == [10, 10, 10, 8, 10, 10, 1, 10, 10, 10]


def test_map_is_well_formed_and_shows_every_block() -> None:
    array = months()
    assert map_axes(array) == (0, 1)
    root = ET.fromstring(chunk_map_svg(array))
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert texts[1:] == ["31", "28", "30"]
    assert "time 89" in str(texts[0])


def test_html_escapes_names() -> None:
    array = chunked_array(np.zeros(3), (2,), ("<x>",))
    html = VirtualGroup({"<script>": array})._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
