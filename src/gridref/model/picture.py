"""Chunk maps: where blocks and stored chunks lie, as numbers and as SVG."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gridref.model.projection import project_progressions

if TYPE_CHECKING:
    from gridref.model.array import VirtualArray, VirtualGroup

__all__ = ["array_html", "chunk_map_svg", "group_html", "map_axes", "stored_edges"]

Int64Array = NDArray[np.int64]

FILLS = ("#8ecae6", "#ffd6a5")
INK = "#264653"
MAX_LINES = 400
MAX_LABELS = 40


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
    """Draw blocks and stored chunks; blocks alternate in colour, missing ones are hatched.

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
    columns = _positions(array.grid.axes[across].edges(), left, width)
    rows = [(float(top), float(height))]
    if down is not None:
        rows = _positions(array.grid.axes[down].edges(), top, height)
    size = f'width="{width + 16}" height="{top + height + 10}"'
    font = f'font-family="sans-serif" font-size="11" fill="{INK}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>']
    parts.append(f'<text x="{left}" y="13">{escape(_caption(array, across, down))}</text>')
    parts += _labels(array.grid.axes[across].edges(), columns, top)
    parts += _blocks(array, across, down, columns, rows)
    for start, _ in _positions(stored_edges(array, across), left, width)[1:MAX_LINES]:
        parts.append(_line(start, top, start, top + height, 0.4))
    if down is not None:
        for start, _ in _positions(stored_edges(array, down), top, height)[1:MAX_LINES]:
            parts.append(_line(left, start, left + width, start, 0.4))
    for start, _ in columns[1:MAX_LINES]:
        parts.append(_line(start, top, start, top + height, 1.6))
    parts.append(
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none"'
        f' stroke="{INK}" stroke-width="1.6"/></svg>'
    )
    return "\n".join(parts)


def array_html(array: VirtualArray) -> str:
    """What notebooks show for an array."""
    head = f"<p><code>{escape(repr(array))}</code></p>"
    if array.ndim == 0 or array.size == 0:
        return head
    return f"{head}\n{chunk_map_svg(array)}"


def group_html(group: VirtualGroup) -> str:
    """What notebooks show for a group: its arrays, each folding open to its chunk map."""
    parts = [f"<p><code>{escape(repr(group))}</code></p>"]
    for path, array in group.all_arrays().items():
        sizes = ", ".join(f"{dim}: {n}" for dim, n in zip(array.dims, array.shape, strict=True))
        title = f"<b>{escape(path)}</b> ({escape(sizes)}) {escape(str(array.dtype))}"
        parts.append(f"<details><summary>{title}</summary>{array_html(array)}</details>")
    return "\n".join(parts)


def _caption(array: VirtualArray, across: int, down: int | None) -> str:
    text = f"{array.dims[across]} {array.shape[across]} \N{RIGHTWARDS ARROW}"
    if down is not None:
        text += f", {array.dims[down]} {array.shape[down]} \N{DOWNWARDS ARROW}"
    return f"{text}: {array.n_blocks} blocks in turn in two colours, stored chunks in thin lines"


def _positions(edges: Int64Array, start: float, length: float) -> list[tuple[float, float]]:
    """Start and length on the page, of each edge length."""
    ends = np.cumsum(edges) / max(1, int(edges.sum())) * length
    begins = np.concatenate([[0.0], ends[:-1]])
    return [
        (round(start + a, 2), round(b - a, 2))
        for a, b in zip(begins.tolist(), ends.tolist(), strict=True)
    ]


def _labels(edges: Int64Array, columns: list[tuple[float, float]], top: float) -> list[str]:
    if len(edges) > MAX_LABELS:
        return []
    return [
        f'<text x="{start + length / 2:.2f}" y="{top - 4}" text-anchor="middle">{count}</text>'
        for count, (start, length) in zip(edges.tolist(), columns, strict=True)
    ]


def _blocks(
    array: VirtualArray,
    across: int,
    down: int | None,
    columns: list[tuple[float, float]],
    rows: list[tuple[float, float]],
) -> list[str]:
    present = (array.blocks.encoding >= 0).reshape(array.grid.grid_shape)
    kept = tuple(axis for axis in range(array.ndim) if axis not in (across, down))
    shown = present.any(axis=kept)
    if down is None:
        shown = shown[np.newaxis]
    elif across < down:
        shown = shown.T
    parts = []
    for i, (y, height) in enumerate(rows[:MAX_LINES]):
        for j, (x, width) in enumerate(columns[:MAX_LINES]):
            fill = FILLS[(i + j) % 2] if shown[i, j] else "#eeeeee"
            parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}"/>')
    return parts


def _line(x1: float, y1: float, x2: float, y2: float, width: float) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{INK}" stroke-width="{width}"/>'
