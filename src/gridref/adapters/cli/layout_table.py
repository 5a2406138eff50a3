"""Which parts of which variables files hold: a table of variables by labels, with holes marked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from gridref.combine.places import label_text
from gridref.combine.values import inline_values
from gridref.model.array import MISSING_BLOCK, VirtualArray, VirtualGroup
from gridref.model.grid import GridAxis

__all__ = ["layout_table"]

_MOST_ROWS, _MOST_COLUMNS = 12, 48
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


def layout_table(group: VirtualGroup) -> Table | None:
    """Draw which blocks files hold; None where every variable is one block.

    Variables of which files hold the same parts share rows. A mark is a block, or several
    neighbours where there is no room for each: ``■`` all of it, ``▪`` some, ``·`` nothing.
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
    for key, drawn in maps.items():
        table.add_row(", ".join(names[key]), "", Text(drawn.across, style="dim"))
        for number, row in enumerate(drawn.rows[:_MOST_ROWS]):
            table.add_row("", row, _marks(drawn.held[number]))
        if len(drawn.rows) > _MOST_ROWS:
            table.add_row("", f"and {len(drawn.rows) - _MOST_ROWS} more", "")
    return table


def _laid(group: VirtualGroup) -> Iterator[tuple[str, VirtualArray, dict[str, VirtualArray]]]:
    """Variables of several blocks but for labels, each with the coordinates beside it."""
    for path, part in group.walk():
        labels = {name: array for name, array in part.arrays.items() if array.dims == (name,)}
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
