"""Draw chunk grids, trees and layouts in the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from gridref.errors import NotRepresentableError
from gridref.faces.picture import ChunkMap, chunks_along, grid_in_words
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.grid import GridAxis
from gridref.serve.views import ViewOptions, show

# Chunk grids and trees

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
    """The chunk map of an array in characters: a row for each stored chunk down, up to `MAX_ROWS`.

    Blocks alternate in colour, and are dotted where no file holds them; ``┃`` is an edge between
    blocks, ``│`` one between stored chunks inside a block. Where there is no room for an edge of
    its own, edges share a column.
    """
    if array.ndim == 0 or array.size == 0:
        return Text(f"{name}: {'a scalar' if array.ndim == 0 else 'no elements'}\n")
    drawn = ChunkMap(array, name)
    across, down = drawn.axes
    text = Text(f"{name}: {array.dims[across]} → {array.shape[across]}")
    if down is not None:
        text.append(f", {array.dims[down]} ↓ {array.shape[down]}")
    text.append("\n")
    scale = (width - 1) / array.shape[across]
    ends = drawn.ends[0][1:-1] * scale
    cells = np.searchsorted(ends, np.arange(width), side="right").tolist()
    held = drawn.present.any(axis=0).tolist()
    block_edges, chunk_edges = (
        set(np.rint(places).tolist()) for places in (ends, drawn.chunk_ends[0] * scale)
    )

    def line(left: str, block: str, chunk: str, between: str, right: str) -> Text:
        """A line of the drawing; without a character for `between`, of what is inside chunks."""
        drawn_line = Text()
        for column, cell in enumerate(cells):
            mark = between or (" " if held[cell] else "·")
            mark = chunk if column in chunk_edges else mark
            mark = block if column in block_edges else mark
            mark = {0: left, width - 1: right}.get(column, mark)
            drawn_line.append(mark, style=COLOURS[cell % len(COLOURS)])
        return drawn_line.append("\n")

    n_rows = 1 if down is None else chunks_along(array)[down]
    chunk_row, rule = line("┃", "┃", "│", "", "┃"), line("┠", "╂", "┼", "─", "┨")
    text.append(line("┏", "┳", "┯", "━", "┓"))
    text.append(rule.join([chunk_row] * min(MAX_ROWS, n_rows)))
    text.append(line("┗", "┻", "┷", "━", "┛"))
    if n_rows > MAX_ROWS:
        text.append(f"({n_rows} rows of chunks in all)\n", style="dim")
    return text


def describe_arrays(arrays: Mapping[str, VirtualArray], options: ViewOptions) -> Table:
    """A table of arrays, and how each is shown."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("array", "shape", "dtype", "blocks", "stored chunk", "codecs", "view"):
        table.add_column(title, overflow="fold")
    for path, array in arrays.items():
        table.add_row(
            path,
            " × ".join(map(str, array.shape)) or "scalar",
            str(array.dtype),
            *grid_in_words(array),
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


# Layouts: a table of variables by labels, with holes marked

_MOST_ROWS, _MOST_COLUMNS, _MOST_NAMES, _MOST_MAPS = 12, 48, 7, 12
_ALL, _SOME, _NONE = "■", "▪", "·"


@dataclass(frozen=True, eq=False)
class _Map:
    """Blocks of an array along two dimensions: rows (of one row, where there is one only), columns.

    Attributes
    ----------
    held
        For each, the share of what files hold.
    rows, across
        What rows are called, and the dimension across with its first and last label.
    """

    held: NDArray[np.float64]
    rows: tuple[str, ...]
    across: str

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for variables that files hold the same parts of."""
        return self.held.shape, self.held.tobytes(), self.rows, self.across


def shortened(names: Sequence[str], n_shown: int) -> str:
    """Some names, and how many more there are."""
    more = f" and {len(names) - n_shown} more" if len(names) > n_shown else ""
    return ", ".join(names[:n_shown]) + more


def layout_table(group: VirtualGroup) -> Table | None:
    """Draw which blocks files hold; None if every variable is one block.

    Variables with the same held parts share rows. A mark is a block, or several neighbours where
    there is no room for each: ``■`` all of it, ``▪`` some, ``·`` nothing.
    """
    names: dict[tuple[Any, ...], list[str]] = {}
    maps: dict[tuple[Any, ...], _Map] = {}
    for path, array, labels in _laid(group):
        drawn = _map(array, labels)
        maps.setdefault(drawn.key, drawn)
        names.setdefault(drawn.key, []).append(path)
    if not maps:
        return None
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("variables", overflow="fold")
    table.add_column("", overflow="fold")
    table.add_column(f"parts: {_ALL} all, {_SOME} some, {_NONE} nothing", no_wrap=True)
    for key, drawn in [*maps.items()][:_MOST_MAPS]:
        named = shortened(names[key], _MOST_NAMES)
        table.add_row(named, "", Text(drawn.across, style="dim"))
        for number, row in enumerate(drawn.rows[:_MOST_ROWS]):
            table.add_row("", row, _marks(drawn.held[number]))
        if len(drawn.rows) > _MOST_ROWS:
            table.add_row("", f"and {len(drawn.rows) - _MOST_ROWS} more", "")
    if len(maps) > _MOST_MAPS:
        table.add_row(f"and {len(maps) - _MOST_MAPS} more of other parts", "", "")
    return table


def _laid(group: VirtualGroup) -> Iterator[tuple[str, VirtualArray, dict[str, VirtualArray]]]:
    """Variables of several blocks but for labels, each with the coordinates beside it."""
    known: dict[str, dict[str, VirtualArray]] = {"": {}}
    for path, part in group.walk():
        above = known[path.rpartition("/")[0]] if path else {}
        own = {name: array for name, array in part.arrays.items() if array.dims == (name,)}
        labels = known[path] = {**above, **own}
        for name, array in part.arrays.items():
            if array.n_blocks > 1 and name not in labels:
                yield (f"{path}/{name}" if path else name), array, labels


def _map(array: VirtualArray, labels: dict[str, VirtualArray]) -> _Map:
    counts = array.grid.grid_shape
    several = [axis for axis in range(array.ndim) if counts[axis] > 1]
    across = max(reversed(several), key=lambda axis: counts[axis])
    down = next((axis for axis in several if axis != across), None)
    held = (array.blocks.encoding != MISSING_BLOCK).reshape(counts).astype(float)
    kept = [axis for axis in (down, across) if axis is not None]
    others = tuple(axis for axis in range(array.ndim) if axis not in kept)
    shares = held.mean(axis=others)
    if down is None:
        shares = shares[np.newaxis]
    elif down > across:
        shares = shares.T
    texts = [
        _texts(array.dims[axis], array.grid.axes[axis], labels.get(array.dims[axis]))
        for axis in kept
    ]
    rows = (
        tuple(f"{array.dims[kept[0]]} {text}" for text in texts[0]) if down is not None else ("",)
    )
    span = f"{array.dims[across]} {texts[-1][0]} ... {texts[-1][-1]}"
    return _Map(shares, tuple(rows), span)


def _texts(dim: str, axis: GridAxis, labels: VirtualArray | None) -> list[str]:
    """The first label of each block, else its number."""
    from gridref.combine.labels import label_text
    from gridref.combine.values import inline_values

    starts = axis.starts(np.arange(axis.n_chunks))
    values = None if labels is None else inline_values(labels)
    if labels is None or values is None or len(values) < axis.extent:
        return [str(start) for start in starts.tolist()]
    return [label_text(values[start], labels.attrs) for start in starts.tolist()]


def _marks(shares: NDArray[np.float64]) -> Text:
    """A mark for each block, or for as many neighbours as have to share one."""
    step = math.ceil(len(shares) / _MOST_COLUMNS)
    text = Text()
    for start in range(0, len(shares), step):
        share = float(shares[start : start + step].mean())
        mark = _ALL if share == 1 else _SOME if share else _NONE
        text.append(mark, style="red" if mark == _NONE else "")
    return text
