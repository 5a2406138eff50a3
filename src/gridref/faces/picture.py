"""Chunk maps: blocks and stored chunks as numbers, SVG, PNG and in axes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gridref.catalog.folder import publish_file, write_errors_told
from gridref.errors import InvalidRequestError, number_of, some_of
from gridref.extras import needed_for
from gridref.io import absolute_url
from gridref.model.array import VirtualArray
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.listing import ChunkListing
from gridref.model.projection import project_progressions
from gridref.typing import Int64Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# Descriptions of arrays in few words

MAX_NAMES = 500
"""Most characters of what only names something."""


def grid_in_words(array: VirtualArray) -> tuple[str, str, str]:
    """Blocks along each dimension that has several, shapes of stored chunks, and codecs."""
    blocks = []
    for axis in array.grid.axes:
        if axis.n_chunks > 1:
            edges = axis.edges()
            low, high = int(edges.min()), int(edges.max())
            blocks.append(f"{axis.n_chunks} of {low}" + (f" to {high}" if high != low else ""))
    shapes = {" × ".join(map(str, encoding.chunk_shape)) or "1" for encoding in array.encodings}
    codecs = {
        " + ".join(
            codec.name.removeprefix("numcodecs.")
            for codec in encoding.codecs
            if codec.name != "bytes"
        )
        for encoding in array.encodings
    }
    named = {text or "none" for text in codecs}
    return (
        ", ".join(blocks) or str(array.n_blocks),
        some_of(sorted(shapes)) or "none",
        some_of(sorted(named)) or "none",
    )


def human_bytes(n_bytes: float) -> str:
    """A size as people write it, like ``1.2 MB``."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(n_bytes) < 1000 or unit == "TB":
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    raise AssertionError


def bytes_in_objects(n_bytes: int, n_objects: int) -> str:
    """A size in words: ``2 MB in 3 objects``."""
    return f"{human_bytes(n_bytes)} in {number_of(n_objects, 'object', form=',')}"


def sizes_in_words(array: VirtualArray) -> str:
    """Dimensions with their lengths, and the data type."""
    return f"{array.sizes_text} {array.dtype}"


def shortened(text: str, most: int = MAX_NAMES) -> str:
    """A text that is cut where it is very long."""
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


# Chunk maps: the drawing of blocks and stored chunks

FILLS = ("#8ecae6", "#ffd6a5")
MISSING_FILL = "#eeeeee"
INK = "#264653"
MAX_CELLS = (60, 8)
"""Most cells of blocks across and down; neighbouring blocks of longer axes share a cell."""
MAX_LINES = (180, 60)
"""Most lines between stored chunks across and down: more of them would be one grey area."""
MAX_LABELS = 40
"""Most characters of a caption, which may list very many names."""
LEFT, TOP = 8, 34
"""Where on the page a map begins, in pixels."""
THIN, THICK = 0.4, 1.6
"""Widths of the lines between stored chunks, and between blocks."""
DOTS_PER_INCH = 100
MOST_ALONG = 1 << 22
"""Of more stored chunks along a dimension no list of edges is made."""


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


def chunks_along(array: VirtualArray) -> list[int]:
    """Number of stored chunks along each axis; where blocks differ beside each other, the most.

    Worked out of blocks: chunks that refer to one row may be more than memory has room for.
    """
    counts = ChunkListing(array).n_chunks
    found = []
    for axis in range(array.ndim):
        beside = tuple(other for other in range(array.ndim) if other != axis)
        along = counts[:, axis].reshape(array.grid.grid_shape).max(axis=beside, initial=0)
        found.append(int(along.sum()))
    return found


def is_drawable(array: VirtualArray) -> bool:
    """Whether there are chunks to draw, and not too many along one axis to list their edges."""
    return bool(array.ndim and array.size) and max(chunks_along(array)) <= MOST_ALONG


def map_axes(array: VirtualArray) -> tuple[int, int | None]:
    """The axes that a map shows: across the one of most blocks, down that of most stored chunks."""
    across = int(np.argmax(array.grid.grid_shape))
    others = [axis for axis in range(array.ndim) if axis != across]
    return across, max(others, key=chunks_along(array).__getitem__, default=None)


@dataclass(frozen=True, eq=False)
class ChunkMap:
    """A drawing of where an array's blocks and stored chunks are.

    Blocks alternate in colour, missing ones are grey; thin lines divide stored chunks. Of bounded
    size: blocks beyond `MAX_CELLS` share cells, and stored chunks beyond `MAX_LINES` have no lines.

    Attributes
    ----------
    array
        What is drawn: of one dimension at least, with elements.
    name
        Its name in the caption; may be empty.
    width
        Of the map, in pixels.
    """

    array: VirtualArray
    name: str = ""
    width: int = 720

    def __post_init__(self) -> None:
        if self.array.ndim == 0 or self.array.size == 0:
            raise InvalidRequestError(
                "nothing to draw: a scalar, or an array without elements, has no chunk grid"
            )
        if not 100 <= self.width <= 10_000:
            raise InvalidRequestError(f"width is 100 to 10000 pixels, got {self.width}")

    @cached_property
    def axes(self) -> tuple[int, int | None]:
        """The axes that are shown across and down."""
        return map_axes(self.array)

    @property
    def height(self) -> int:
        """Of the map, in pixels."""
        return 28 if self.axes[1] is None else 132

    @property
    def caption(self) -> str:
        """What is shown, in words."""
        array, (across, down) = self.array, self.axes
        text = f"{array.dims[across]} {array.shape[across]} \N{RIGHTWARDS ARROW}"
        if down is not None:
            text += f", {array.dims[down]} {array.shape[down]} \N{DOWNWARDS ARROW}"
        name = f"{self.name}: " if self.name else ""
        shown = f"{shortened(name + text)}: {array.n_blocks} blocks in turn in two colours"
        return f"{shown}, stored chunks in thin lines"

    @cached_property
    def ends(self) -> tuple[Int64Array, Int64Array]:
        """Where cells end, in elements across and down, from 0: neighbouring blocks share one."""
        return _ends(self._lengths[0], MAX_CELLS[0]), _ends(self._lengths[1], MAX_CELLS[1])

    @cached_property
    def present(self) -> NDArray[np.bool_]:
        """Whether any block of a cell is there, as (rows, columns)."""
        across, down = self.axes
        there = (self.array.blocks.encoding != MISSING_BLOCK).reshape(self.array.grid.grid_shape)
        hidden = tuple(axis for axis in range(self.array.ndim) if axis not in (across, down))
        shown = np.atleast_2d(there.any(axis=hidden))
        if down is not None and across < down:
            shown = shown.T
        rows, columns = (
            _heads(len(e), most)
            for e, most in zip(self._lengths[::-1], MAX_CELLS[::-1], strict=True)
        )
        return np.logical_or.reduceat(np.logical_or.reduceat(shown, rows, axis=0), columns, axis=1)

    @cached_property
    def chunk_ends(self) -> tuple[Int64Array, Int64Array]:
        """Where stored chunks end inside, in elements across and down; none if too many."""
        across, down = self.axes
        counts, none = chunks_along(self.array), np.zeros(0, np.int64)
        both = zip((across, down), MAX_LINES, strict=True)
        columns, rows = (
            none
            if axis is None or counts[axis] > most
            else np.cumsum(stored_edges(self.array, axis))[:-1]
            for axis, most in both
        )
        return columns, rows

    @property
    def labels(self) -> list[tuple[float, str]]:
        """Middle of each block across, in elements, and its length; none if there are too many."""
        lengths, ends = self._lengths[0], self.ends[0]
        if len(lengths) > min(MAX_LABELS, len(ends) - 1):
            return []
        return list(
            zip(((ends[1:] + ends[:-1]) / 2).tolist(), map(str, lengths.tolist()), strict=True)
        )

    @property
    def _lengths(self) -> tuple[Int64Array, Int64Array]:
        """Lengths of blocks across and down; where there is but one axis, one of 1 down."""
        across, down = self.axes
        axes = self.array.grid.axes
        return axes[across].edges(), np.ones(1, np.int64) if down is None else axes[down].edges()

    def cells(self) -> Iterator[tuple[str, tuple[int, int], tuple[int, int]]]:
        """Colour of each cell, and the elements at which it begins and ends, across and down."""
        columns, rows = (ends.tolist() for ends in self.ends)
        for i, (top, bottom) in enumerate(pairwise(rows)):
            for j, (left, right) in enumerate(pairwise(columns)):
                fill = FILLS[(i + j) % 2] if self.present[i, j] else MISSING_FILL
                yield fill, (left, top), (right, bottom)

    def to_svg(self) -> str:
        """The drawing as SVG."""
        size = f'width="{self.width + 16}" height="{TOP + self.height + 10}"'
        font = f'font-family="sans-serif" font-size="11" fill="{INK}"'
        across, down = f"h{self.width}", f"v{self.height}"
        ends = self._pixels(0, self.ends[0])
        columns, rows = (self._pixels(axis, self.chunk_ends[axis]) for axis in (0, 1))
        thin = [f"M{x:g} {TOP}{down}" for x in columns] + [f"M{LEFT} {y:g}{across}" for y in rows]
        thick = [f"M{x:g} {TOP}{down}" for x in ends[1:-1]]
        thick.append(f"M{LEFT} {TOP}{across}{down}h-{self.width}z")
        places = self._pixels(0, [middle for middle, _ in self.labels])
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>',
                f'<text x="{LEFT}" y="13">{escape(self.caption)}</text>',
                *(
                    f'<text x="{x:.2f}" y="{TOP - 4}" text-anchor="middle">{text}</text>'
                    for x, (_, text) in zip(places, self.labels, strict=True)
                ),
                *(f'<path fill="{fill}" d="{path}"/>' for fill, path in self._paths().items()),
                *_lines(thin, THIN),
                *_lines(thick, THICK),
                "</svg>",
            ]
        )

    def _pixels(self, axis: int, elements: Int64Array | list[float]) -> list[float]:
        """Where on the page elements are, across (0) or down (1)."""
        start, length = ((LEFT, self.width), (TOP, self.height))[axis]
        scaled = np.asarray(elements) * (length / int(self.ends[axis][-1]))
        return [round(place, 2) for place in (start + scaled).tolist()]

    def _paths(self) -> dict[str, str]:
        """One path for all cells of a colour."""
        columns, rows = (
            dict(zip(ends.tolist(), self._pixels(axis, ends), strict=True))
            for axis, ends in enumerate(self.ends)
        )
        paths: dict[str, str] = {}
        for fill, (left, top), (right, bottom) in self.cells():
            x, y = columns[left], rows[top]
            width, height = round(columns[right] - x, 2), round(rows[bottom] - y, 2)
            cell = f"M{x:g} {y:g}h{width:g}v{height:g}h-{width:g}z"
            paths[fill] = paths.get(fill, "") + cell
        return paths

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw into axes of matplotlib, which count elements as the array does.

        Parameters
        ----------
        ax
            The axes; those of a new figure by default.

        Raises
        ------
        MissingPackageError
            Without matplotlib, of the extra ``plot``.
        """
        with needed_for("plotting"):
            from matplotlib.collections import PolyCollection
        if ax is None:
            from matplotlib import pyplot as plt

            _, ax = plt.subplots(figsize=self._inches, layout="constrained")
        fills, corners = [], []
        for fill, (x, y), (end, below) in self.cells():
            fills.append(fill)
            corners.append([(x, y), (end, y), (end, below), (x, below)])
        cells = PolyCollection(corners, facecolors=fills, edgecolors=INK, linewidths=THICK)
        ax.add_collection(cells)
        (right, bottom), (across, down) = (int(ends[-1]) for ends in self.ends), self.axes
        ax.vlines(self.chunk_ends[0], 0, bottom, colors=INK, linewidths=THIN)
        ax.hlines(self.chunk_ends[1], 0, right, colors=INK, linewidths=THIN)
        ax.set(xlim=(0, right), ylim=(bottom, 0), xlabel=self.array.dims[across], title=self.name)
        if down is None:
            ax.set_yticks([])
        else:
            ax.set_ylabel(self.array.dims[down])
        return ax

    @property
    def _inches(self) -> tuple[float, float]:
        return self.width / DOTS_PER_INCH, 2.4

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write a file: SVG, or by matplotlib what the name ends in, like ``.png`` or ``.pdf``.

        Raises
        ------
        MissingPackageError
            Without matplotlib, of the extra ``plot``, where it is needed.
        InvalidRequestError
            For an ending that matplotlib does not know, or if the file cannot be written.
        """
        path = Path(file)
        if path.suffix.lower() == ".svg":
            publish_file("the picture", absolute_url(path), f"{self.to_svg()}\n".encode())
            return
        with needed_for("drawing other pictures than SVG"):
            from matplotlib.figure import Figure
        figure = Figure(self._inches, DOTS_PER_INCH, layout="constrained")
        self.plot(figure.subplots())
        known = figure.canvas.get_supported_filetypes()
        if path.suffix.lower().removeprefix(".") not in known:
            endings = ", ".join(f".{ending}" for ending in sorted(known))
            raise InvalidRequestError(f"a picture ends in one of {endings}, got {path.name!r}")
        with write_errors_told("the picture", str(path)):
            figure.savefig(path)


def _heads(n_blocks: int, most: int) -> Int64Array:
    """First block of each cell, where at most so many cells share all blocks evenly."""
    n_cells = min(n_blocks, most)
    return np.arange(n_cells, dtype=np.int64) * n_blocks // n_cells


def _ends(lengths: Int64Array, most: int) -> Int64Array:
    """0, and where each cell ends."""
    return np.cumsum([0, *np.add.reduceat(lengths, _heads(len(lengths), most)).tolist()])


def _lines(paths: list[str], width: float) -> list[str]:
    if not paths:
        return []
    return [f'<path fill="none" stroke="{INK}" stroke-width="{width}" d="{"".join(paths)}"/>']
