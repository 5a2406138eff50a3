"""Chunk maps: where blocks and stored chunks lie, as numbers, as SVG and in HTML."""

from __future__ import annotations

from html import escape

import numpy as np
from numpy.typing import NDArray

from gridref.model.array import MISSING_BLOCK, VirtualArray, VirtualGroup
from gridref.model.projection import project_progressions
from gridref.typing import Int64Array

__all__ = ["array_html", "chunk_map_svg", "group_html", "html_of", "map_axes", "stored_edges"]

Spans = list[tuple[float, float]]

FILLS = ("#8ecae6", "#ffd6a5")
MISSING_FILL = "#eeeeee"
INK = "#264653"
MAX_CELLS = (60, 8)
"""Most cells of blocks across and down; neighbouring blocks of longer axes share a cell."""
MAX_LINES = (180, 60)
"""Most lines between stored chunks across and down: more of them would be one grey area."""
MAX_LABELS = 40
MAX_GROUP_BYTES = 28_000
"""Most bytes of a group's HTML: every notebook that shows one keeps it."""
MAX_NAMES = 500
"""Most characters of a heading, which may list very many names."""


def html_of(shown: VirtualArray | VirtualGroup) -> str:
    """What notebooks show for an array or a group."""
    return array_html(shown) if isinstance(shown, VirtualArray) else group_html(shown)


def stored_edges(array: VirtualArray, axis: int) -> Int64Array:
    """Lengths of what the array shows of each stored chunk along an axis.

    Where blocks are cut differently beside each other, those at the start of the other axes count.
    """
    if not array.n_blocks:
        return np.zeros(0, np.int64)
    first: list[int | slice] = [0] * array.ndim
    first[axis] = slice(None)
    rows = np.arange(array.n_blocks).reshape(array.grid.grid_shape)[tuple(first)]
    owner, pieces = project_progressions(
        array.blocks.origin[rows, axis],
        array.blocks.step[rows, axis],
        array.grid.axes[axis].edges(),
        array.stored_chunk_shapes[rows, axis],
    )
    return pieces.count[np.lexsort((pieces.out_start, owner))]


def map_axes(array: VirtualArray) -> tuple[int, int | None]:
    """The axes that a map shows: across the one of most blocks, down that of most stored chunks."""
    across = int(np.argmax(array.grid.grid_shape))
    others = [axis for axis in range(array.ndim) if axis != across]
    down = max(others, key=lambda axis: len(stored_edges(array, axis)), default=None)
    return across, down


def chunk_map_svg(array: VirtualArray, width: int = 720) -> str:
    """Draw blocks and stored chunks; blocks alternate in colour, missing ones are grey.

    The drawing is of bounded size: blocks beyond `MAX_CELLS` share cells, and stored chunks beyond
    `MAX_LINES` have no lines.

    Raises
    ------
    ValueError
        For a scalar, or an array without elements.
    """
    if array.ndim == 0 or array.size == 0:
        raise ValueError("nothing to draw")
    across, down = map_axes(array)
    height = 28 if down is None else 132
    left, top = 8, 34
    edges = array.grid.axes[across].edges()
    heads = _cell_heads(len(edges), MAX_CELLS[0])
    columns = _spans(np.add.reduceat(edges, heads), left, width)
    rows = [(float(top), float(height))]
    row_heads = np.zeros(1, np.int64)
    if down is not None:
        row_edges = array.grid.axes[down].edges()
        row_heads = _cell_heads(len(row_edges), MAX_CELLS[1])
        rows = _spans(np.add.reduceat(row_edges, row_heads), top, height)
    present = _presence(array, across, down, heads, row_heads)
    lines = _inner_ends(stored_edges(array, across), left, width, MAX_LINES[0])
    paths = [f"M{x:g} {top}v{height}" for x in lines]
    if down is not None:
        lines = _inner_ends(stored_edges(array, down), top, height, MAX_LINES[1])
        paths += [f"M{left} {y:g}h{width}" for y in lines]
    blocks = [f"M{x:g} {top}v{height}" for x, _ in columns[1:]]
    blocks.append(f"M{left} {top}h{width}v{height}h-{width}z")
    size = f'width="{width + 16}" height="{top + height + 10}"'
    font = f'font-family="sans-serif" font-size="11" fill="{INK}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>',
            f'<text x="{left}" y="13">{escape(_caption(array, across, down))}</text>',
            *(_labels(edges, columns, top) if len(heads) == len(edges) else ()),
            *_cells(present, columns, rows),
            *_lines(paths, 0.4),
            *_lines(blocks, 1.6),
            "</svg>",
        ]
    )


def array_html(array: VirtualArray) -> str:
    """What notebooks show for an array."""
    head = f"<p><code>{escape(_shortened(repr(array)))}</code></p>"
    if array.ndim == 0 or array.size == 0:
        return head
    return f"{head}\n{chunk_map_svg(array)}"


def group_html(group: VirtualGroup) -> str:
    """What notebooks show for a group: its arrays, each folding open to its chunk map.

    Of bounded size: where maps take too much room, further arrays have a line only, and the last
    ones are counted.
    """
    parts = [f"<p><code>{escape(_shortened(repr(group)))}</code></p>"]
    arrays = group.all_arrays()
    room = MAX_GROUP_BYTES - _n_bytes(parts[0])
    for n_shown, (path, array) in enumerate(arrays.items()):
        sizes = ", ".join(f"{dim}: {n}" for dim, n in zip(array.dims, array.shape, strict=True))
        kind = _shortened(f"({sizes}) {array.dtype}")
        title = f"<b>{escape(_shortened(path))}</b> {escape(kind)}"
        part = f"<p>{title}</p>"
        if room > MAX_GROUP_BYTES // 4:
            folded = f"<details><summary>{title}</summary>{array_html(array)}</details>"
            part = folded if _n_bytes(folded) < room - MAX_GROUP_BYTES // 8 else part
        room -= _n_bytes(part) + 1
        if room < 0:
            parts.append(f"<p>and {len(arrays) - n_shown} more</p>")
            break
        parts.append(part)
    return "\n".join(parts)


def _n_bytes(text: str) -> int:
    return len(text.encode(errors="replace"))


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_NAMES else f"{text[: MAX_NAMES - 1]}\N{HORIZONTAL ELLIPSIS}"


def _caption(array: VirtualArray, across: int, down: int | None) -> str:
    text = f"{array.dims[across]} {array.shape[across]} \N{RIGHTWARDS ARROW}"
    if down is not None:
        text += f", {array.dims[down]} {array.shape[down]} \N{DOWNWARDS ARROW}"
    shown = f"{_shortened(text)}: {array.n_blocks} blocks in turn in two colours"
    return f"{shown}, stored chunks in thin lines"


def _cell_heads(n_blocks: int, most: int) -> Int64Array:
    """First block of each cell, where at most so many cells share all blocks evenly."""
    n_cells = min(n_blocks, most)
    return np.arange(n_cells, dtype=np.int64) * n_blocks // n_cells


def _presence(
    array: VirtualArray, across: int, down: int | None, columns: Int64Array, rows: Int64Array
) -> NDArray[np.bool_]:
    """Whether any block of a cell is there, as (rows, columns) of the map."""
    present = (array.blocks.encoding != MISSING_BLOCK).reshape(array.grid.grid_shape)
    hidden = tuple(axis for axis in range(array.ndim) if axis not in (across, down))
    shown = present.any(axis=hidden)
    if down is None:
        shown = shown[np.newaxis]
    elif across < down:
        shown = shown.T
    return np.logical_or.reduceat(np.logical_or.reduceat(shown, rows, axis=0), columns, axis=1)


def _spans(edges: Int64Array, start: float, length: float) -> Spans:
    """Start and length on the page, of each edge length."""
    ends = np.cumsum(edges) / max(1, int(edges.sum())) * length
    begins = np.concatenate([[0.0], ends[:-1]])
    return [
        (round(start + a, 2), round(b - a, 2))
        for a, b in zip(begins.tolist(), ends.tolist(), strict=True)
    ]


def _inner_ends(edges: Int64Array, start: float, length: float, most: int) -> list[float]:
    """Where on the page one chunk ends and the next begins; nothing if there are too many."""
    return [] if len(edges) > most else [begin for begin, _ in _spans(edges, start, length)[1:]]


def _labels(edges: Int64Array, columns: Spans, top: float) -> list[str]:
    if len(edges) > MAX_LABELS:
        return []
    return [
        f'<text x="{start + length / 2:.2f}" y="{top - 4}" text-anchor="middle">{count}</text>'
        for count, (start, length) in zip(edges.tolist(), columns, strict=True)
    ]


def _cells(present: NDArray[np.bool_], columns: Spans, rows: Spans) -> list[str]:
    """One path for all cells of a colour."""
    paths: dict[str, str] = {}
    for i, (y, height) in enumerate(rows):
        for j, (x, width) in enumerate(columns):
            fill = FILLS[(i + j) % 2] if present[i, j] else MISSING_FILL
            paths[fill] = paths.get(fill, "") + f"M{x:g} {y:g}h{width:g}v{height:g}h-{width:g}z"
    return [f'<path fill="{fill}" d="{path}"/>' for fill, path in paths.items()]


def _lines(paths: list[str], width: float) -> list[str]:
    if not paths:
        return []
    return [f'<path fill="none" stroke="{INK}" stroke-width="{width}" d="{"".join(paths)}"/>']
