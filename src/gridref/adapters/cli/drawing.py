"""Chunk grids and trees drawn in the terminal."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from gridref.adapters.describing import codecs_in_words, edges_in_words, several
from gridref.adapters.picture import MOST_ALONG, chunks_along, map_axes, stored_edges
from gridref.errors import NotRepresentableError
from gridref.model.array import MISSING_BLOCK, VirtualArray, VirtualGroup
from gridref.serve.views import ViewOptions, show

__all__ = ["describe_arrays", "draw_grid", "draw_tree"]

COLOURS = ("cyan", "magenta")
MAX_ROWS = 8


def draw_tree(group: VirtualGroup, name: str) -> Tree:
    """Groups and arrays with shapes and dtypes."""
    tree = Tree(Text(name, style="bold"))
    for array_name, array in group.arrays.items():
        label = Text(array_name, style="bold green")
        label.append(f"  {array.sizes_text}  {array.dtype}", style="default")
        label.append(f"  {_blocks(array)}", style="dim")
        tree.add(label)
    for group_name, member in group.groups.items():
        tree.add(draw_tree(member, group_name))
    return tree


def _blocks(array: VirtualArray) -> str:
    count = array.n_blocks
    return f"{count} block{'s' if count != 1 else ''}"


def draw_grid(array: VirtualArray, name: str, width: int = 72) -> Text:
    """Draw an array's blocks and stored chunks, the axis of most blocks across.

    Blocks alternate in colour; ``┃`` is an edge between blocks, ``│`` one between stored chunks
    inside a block. Where there is no room for an edge of its own, edges share a column.
    """
    text = Text()
    if array.ndim == 0 or array.size == 0:
        return text.append(f"{name}: {'a scalar' if array.ndim == 0 else 'no elements'}\n")
    across, down = map_axes(array)
    bar = _Bar(array, across, width)
    text.append(f"{name}: {array.dims[across]} → {array.shape[across]}")
    if down is not None:
        text.append(f", {array.dims[down]} ↓ {array.shape[down]}")
    text.append("\n")
    in_all = 1 if down is None else chunks_along(array)[down]
    rows = min(MAX_ROWS, in_all)
    text.append(bar.rule("┏", "┳", "┯", "━", "┓"))
    for row in range(rows):
        text.append(bar.cells())
        if row < rows - 1:
            text.append(bar.rule("┠", "╂", "┼", "─", "┨"))
    text.append(bar.rule("┗", "┻", "┷", "━", "┛"))
    if in_all > rows:
        text.append(f"({in_all} rows of chunks in all)\n", style="dim")
    return text


class _Bar:
    """Columns of a drawing: which hold an edge of blocks, which one of stored chunks."""

    def __init__(self, array: VirtualArray, axis: int, width: int) -> None:
        extent = array.shape[axis]
        scale = (width - 1) / extent
        self.block_edges = self._columns(np.cumsum(array.grid.axes[axis].edges()), scale)
        self.chunk_edges = set(range(width))
        if chunks_along(array)[axis] <= MOST_ALONG:
            self.chunk_edges = self._columns(np.cumsum(stored_edges(array, axis)), scale)
        self.width = width
        moved = np.moveaxis(
            (array.blocks.encoding != MISSING_BLOCK).reshape(array.grid.grid_shape), axis, 0
        )
        self.present = moved.reshape(len(moved), -1).any(axis=1)
        ends = np.cumsum(array.grid.axes[axis].edges()) * scale
        self.ends = ends

    @staticmethod
    def _columns(ends: NDArray[np.int64], scale: float) -> set[int]:
        return {round(float(end) * scale) for end in ends[:-1]}

    def _block_at(self, column: int) -> int:
        return min(int(np.searchsorted(self.ends, column, side="right")), len(self.ends) - 1)

    def rule(self, left: str, block: str, chunk: str, line: str, right: str) -> Text:
        """A horizontal line that meets the edges."""
        text = Text()
        for column in range(self.width):
            if column == 0:
                mark = left
            elif column == self.width - 1:
                mark = right
            elif column in self.block_edges:
                mark = block
            else:
                mark = chunk if column in self.chunk_edges else line
            text.append(mark, style=COLOURS[self._block_at(column) % len(COLOURS)])
        return text.append("\n")

    def cells(self) -> Text:
        """A row of chunks; blocks that no file holds are dotted."""
        text = Text()
        for column in range(self.width):
            block = self._block_at(column)
            if column in (0, self.width - 1) or column in self.block_edges:
                mark = "┃"
            elif column in self.chunk_edges:
                mark = "│"
            else:
                mark = " " if self.present[block] else "·"
            text.append(mark, style=COLOURS[block % len(COLOURS)])
        return text.append("\n")


def describe_arrays(group: VirtualGroup, options: ViewOptions) -> Table:
    """A table with what matters of every array, and how it is shown."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("array", "shape", "dtype", "blocks", "stored chunk", "codecs", "view"):
        table.add_column(title, overflow="fold")
    for path, array in group.all_arrays().items():
        table.add_row(
            path,
            " × ".join(map(str, array.shape)) or "scalar",
            str(array.dtype),
            edges_in_words(array),
            several({" × ".join(map(str, e.chunk_shape)) or "1" for e in array.encodings}),
            several({codecs_in_words(encoding.codecs) for encoding in array.encodings}),
            _shown(array, options),
        )
    return table


def _shown(array: VirtualArray, options: ViewOptions) -> str:
    """View and grid in words."""
    try:
        shown = show(array, options)
    except NotRepresentableError:
        return f"not {options.view}"
    words = f"{shown.view}, {shown.metadata.grid.to_json()['name']}"
    return words if shown.shards is None else f"{words}, {shown.shards.grid.n_chunks} shards"
