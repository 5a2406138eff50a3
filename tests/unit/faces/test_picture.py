"""Chunk maps."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image, ImageColor

import gridref
from gridref.api.catalog import write_catalog
from gridref.errors import InvalidRequestError
from gridref.faces.cli.described import draw_grid
from gridref.faces.picture import (
    FILLS,
    MISSING_FILL,
    ChunkMap,
    chunks_along,
    map_axes,
    stored_edges,
)
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.blocks import MISSING_BLOCK, BlockTable
from gridref.model.encoding import Encoding, bytes_codec
from gridref.model.grid import ChunkGrid
from gridref.model.indexing import isel
from gridref.model.joining import concatenate
from gridref.model.manifest import ChunkManifest
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
    root = ET.fromstring(ChunkMap(array).to_svg())
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert texts[1:] == ["31", "28", "30"]
    assert "time 89" in str(texts[0])


def many_blocks(shape: tuple[int, ...]) -> VirtualArray:
    """Blocks of one element each, the first of which no file holds."""
    ndim = len(shape)
    n_blocks = int(np.prod(shape))
    blocks = BlockTable.missing(n_blocks, ndim)
    encoding = Encoding((1,) * ndim, np.dtype("f4"), (bytes_codec(np.dtype("f4")),))
    return VirtualArray(
        ChunkGrid.regular(shape, [1] * ndim),
        np.dtype("f4"),
        np.float32(0),
        tuple(f"dimension_{axis}" for axis in range(ndim)),
        {},
        (encoding,),
        (ChunkManifest.missing(n_blocks),),
        replace(
            blocks,
            encoding=np.minimum(np.arange(n_blocks, dtype=np.int32) - 1, 0),
            stored_shape=np.ones((n_blocks, ndim), np.int64),
        ),
    )


def test_missing_blocks_are_grey() -> None:
    assert MISSING_FILL in ChunkMap(many_blocks((5,))).to_svg()
    assert MISSING_FILL not in ChunkMap(months()).to_svg()


def test_cells_that_many_blocks_share_are_missing_if_all_are() -> None:
    array = many_blocks((600,))
    assert MISSING_FILL not in ChunkMap(array).to_svg()
    absent = np.where(np.arange(600) < 10, MISSING_BLOCK, 0).astype(np.int32)
    holed = array.with_changes(blocks=replace(array.blocks, encoding=absent))
    assert ChunkMap(holed).to_svg().count(MISSING_FILL) == 1


@pytest.mark.parametrize("shape", [(5,), (60, 8), (61, 9), (5000,), (300, 300), (20, 30, 40)])
def test_html_is_small(shape: tuple[int, ...]) -> None:
    array = many_blocks(shape)
    html = array._repr_html_()
    assert html is not None
    ET.fromstring(html[html.index("<svg") :])
    assert len(html.encode()) < 30_000


@pytest.mark.parametrize("n_arrays", [1, 6, 400])
def test_html_of_groups_is_small(n_arrays: int) -> None:
    array = many_blocks((60, 8))
    group = VirtualGroup({f"température {number}": array for number in range(n_arrays)})
    html = group._repr_html_()
    assert html is not None
    assert len(html.encode()) < 30_000
    assert "<svg" in html
    listed = html.count("<b>temp")
    more = re.search(r"and (\d+) more", html)
    assert listed + (int(more[1]) if more else 0) == n_arrays


def test_a_catalog_is_shown_like_a_group(tmp_path: Path) -> None:
    write_catalog(VirtualGroup({"tas": months()}), tmp_path / "a.gridref")
    catalog = gridref.open_catalog(tmp_path / "a.gridref")
    html = catalog._repr_html_()
    assert html is not None
    assert "CatalogInfo" not in html
    assert "<svg" in html
    assert repr(catalog) == (f"<Catalog arrays: tas; groups: none; catalog: {catalog.info.url}>")


def test_import_of_the_package_draws_in_notebooks() -> None:
    code = "import gridref; print(gridref.VirtualGroup()._repr_html_())"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("<p><code>&lt;VirtualGroup")


def test_html_escapes_names() -> None:
    array = chunked_array(np.zeros(3), (2,), ("<x>",))
    html = VirtualGroup({"<script>": array})._repr_html_()
    assert html is not None
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_a_map_is_saved_as_svg_and_png(tmp_path: Path) -> None:
    drawn = ChunkMap(months(), "tas", width=400)
    drawn.save(tmp_path / "map.svg")
    drawn.save(tmp_path / "map.png")
    assert "tas: time 89" in (tmp_path / "map.svg").read_text(encoding="utf-8")
    with Image.open(tmp_path / "map.png") as picture:
        assert picture.size == (400, 240)
        counts = {rgb: n for n, rgb in picture.convert("RGB").getcolors(1 << 20)}
    blocks = [counts[ImageColor.getrgb(fill)] for fill in FILLS]
    assert blocks[0] / blocks[1] == pytest.approx((31 + 30) / 28, rel=0.1)
    assert counts.get(ImageColor.getrgb(MISSING_FILL), 0) < 100  # some blend of others


def test_axes_count_elements() -> None:
    ax = ChunkMap(months(), "tas").plot(Figure().subplots())
    assert (ax.get_xlim(), ax.get_ylim()) == ((0, 89), (6, 0))
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("time", "x", "tas")
    cells, across, down = ax.collections
    assert [path.get_extents().x1 for path in cells.get_paths()] == [31, 59, 89]
    assert [line.vertices[0, 0] for line in across.get_paths()] == [
        *(10, 20, 30, 31, 41, 51, 59, 69, 79)
    ]
    assert [line.vertices[0, 1] for line in down.get_paths()] == [4]


def test_one_axis_is_drawn_as_one_row() -> None:
    ax = ChunkMap(many_blocks((5,))).plot(Figure().subplots())
    assert ax.get_ylim() == (1, 0)
    assert to_hex(ax.collections[0].get_facecolors()[0]) == MISSING_FILL


@pytest.mark.parametrize("shape", [(), (0, 3)])
def test_what_has_no_chunks_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidRequestError, match="nothing to draw"):
        ChunkMap(chunked_array(np.zeros(shape), (1,) * len(shape), ("y", "x")[: len(shape)]))


def test_an_unknown_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"ends in one of .*\.png"):
        ChunkMap(months()).save(tmp_path / "map.doc")


def test_a_map_that_is_too_wide_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="got 20000"):
        ChunkMap(months(), width=20_000)


def test_more_chunks_than_memory_has_room_for_are_drawn() -> None:
    """Chunks that refer to one row: a few bytes of a catalog say any number of them."""
    extent = 8 * 10**14
    dtype = np.dtype("i2")
    one = VirtualArray.of_one_block(
        (extent, 3),
        dtype,
        encoding=Encoding((1, 1), dtype, (bytes_codec(dtype),)),
        manifest=ChunkManifest.missing(1),
        dims=("t", "x"),
    )
    array = one.with_changes(blocks=replace(one.blocks, row_stride=np.zeros((1, 2), np.int64)))
    assert chunks_along(array) == [extent, 3]
    assert map_axes(array) == (0, 1)
    drawing = ChunkMap(array, "v")
    assert f"t {extent}" in drawing.caption
    assert len(drawing.to_svg()) < 20_000
    assert drawing.chunk_ends[0].size == 0
    assert drawing.chunk_ends[1].tolist() == [1, 2]
    assert f"v: t → {extent}" in draw_grid(array, "v").plain
