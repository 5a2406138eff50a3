"""Describe catalogs, plans and files in the terminal: chunk grids, trees, layouts and tables.

Imported only when needed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from gridref.api.overlays import OverlayInfo, OverviewInfo, overlays_of, overviews_of
from gridref.catalog import CatalogGroup
from gridref.errors import (
    NotRepresentableError,
    number_of,
    problems_counted,
    problems_in_short,
    some_of,
)
from gridref.faces.cli.console import Console
from gridref.faces.cli.options import spelled
from gridref.faces.picture import (
    ChunkMap,
    bytes_in_objects,
    chunks_along,
    grid_in_words,
    human_bytes,
)
from gridref.model.array import VirtualArray, VirtualGroup, path_in
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.conventions import is_scaled
from gridref.model.grid import GridAxis
from gridref.model.manifest import ChunkState
from gridref.model.scan_report import LEFT_OUT, ScanReport
from gridref.secrets import shown_address
from gridref.serve.views import ArrayView, ViewOptions, show

if TYPE_CHECKING:
    from gridref.api.inspect import Inspection
    from gridref.combine import Combination
    from gridref.combine.report import Drift


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
    return number_of(count, "block")


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
    block_edges, chunk_edges = (
        set(np.rint(places).tolist()) for places in (ends, drawn.chunk_ends[0] * scale)
    )

    def line(left: str, block: str, chunk: str, right: str, inside: Sequence[str]) -> Text:
        """A line of the drawing; `inside` has the character of each cell, without edges."""
        drawn_line = Text()
        for column, cell in enumerate(cells):
            mark = chunk if column in chunk_edges else inside[cell]
            mark = block if column in block_edges else mark
            mark = {0: left, width - 1: right}.get(column, mark)
            drawn_line.append(mark, style=COLOURS[cell % len(COLOURS)])
        return drawn_line.append("\n")

    n_cells, n_rows = len(ends) + 1, 1 if down is None else chunks_along(array)[down]
    n_drawn = min(MAX_ROWS, n_rows)
    middles = (np.arange(n_drawn) + 0.5) / n_drawn * drawn.ends[1][-1]
    held_rows = drawn.present[np.searchsorted(drawn.ends[1][1:-1], middles, side="right")]
    rows = (np.where(held, " ", "·").tolist() for held in held_rows)
    rule = line("┠", "╂", "┼", "┨", "─" * n_cells)
    text.append(line("┏", "┳", "━", "┓", "━" * n_cells))
    text.append(rule.join([line("┃", "┃", "│", "┃", inside) for inside in rows]))
    text.append(line("┗", "┻", "━", "┛", "━" * n_cells))
    if n_rows > MAX_ROWS:
        text.append(f"({number_of(n_rows, 'row')} of chunks)\n", style="dim")
    return text


def _table(*titles: str) -> Table:
    """A table without lines, whose cells are folded where it is too wide."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


def describe_arrays(arrays: Mapping[str, VirtualArray], options: ViewOptions) -> Table:
    """A table of arrays, and how each is shown."""
    table = _table("array", "shape", "dtype", "blocks", "stored chunk", "codecs", "view")
    for path, array in arrays.items():
        table.add_row(
            path,
            " × ".join(map(str, array.shape)) or "scalar",
            str(array.dtype),
            *grid_in_words(array),
            _view_in_words(array, options),
        )
    return table


def _as_shown(array: VirtualArray, options: ViewOptions) -> ArrayView | NotRepresentableError:
    """How an array is shown, or why not; both have a reason."""
    try:
        return show(array, options)
    except NotRepresentableError as error:
        return error


def _view_in_words(array: VirtualArray, options: ViewOptions) -> str:
    """View and grid."""
    shown = _as_shown(array, options)
    if isinstance(shown, NotRepresentableError):
        return f"not {options.view}"
    words = f"{shown.view}, {shown.metadata.grid.to_json()['name']}"
    return (
        words
        if shown.shards is None
        else f"{words}, {number_of(shown.shards.grid.n_chunks, 'shard')}"
    )


# Layouts: a table of variables by labels, with holes marked

_MOST_ROWS, _MOST_COLUMNS, _MOST_NAMED, _MOST_MAPS = 12, 48, 7, 12
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
    table = _table("variables", "")
    table.add_column(f"parts: {_ALL} all, {_SOME} some, {_NONE} nothing", no_wrap=True)
    for key, drawn in [*maps.items()][:_MOST_MAPS]:
        named = some_of(names[key], _MOST_NAMED)
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
        own = {name: array for name, array in part.arrays.items() if array.is_index(name)}
        labels = known[path] = {**above, **own}
        for name, array in part.arrays.items():
            if array.n_blocks > 1 and name not in labels:
                yield path_in(path, name), array, labels


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
    texts = [_texts(array.grid.axes[axis], labels.get(array.dims[axis])) for axis in kept]
    rows = (
        tuple(f"{array.dims[kept[0]]} {text}" for text in texts[0]) if down is not None else ("",)
    )
    span = f"{array.dims[across]} {texts[-1][0]} ... {texts[-1][-1]}"
    return _Map(shares, tuple(rows), span)


def _texts(axis: GridAxis, labels: VirtualArray | None) -> list[str]:
    """The first label of each block, else its number."""
    from gridref.combine.columns import label_text
    from gridref.combine.values import inline_values

    starts = axis.starts(np.arange(axis.n_chunks))
    values = None if labels is None else inline_values(labels)
    if labels is None or values is None or is_scaled(labels.attrs) or len(values) != axis.extent:
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


type Arrays = Mapping[str, VirtualArray]


# Numbers about a virtual group, for people


def source_summary(group: CatalogGroup) -> list[str]:
    """Summarise arrays and their sources in lines of text. Reads the manifests."""
    sources = group.source_list  # of files: overviews and overlays have others
    counts = np.zeros(len(ChunkState), np.int64)
    stored = decoded = n_holes = 0
    for array in group.all_arrays().values():
        decoded += array.nbytes
        n_holes += int(np.count_nonzero(~array.held_blocks))
        for manifest in dict.fromkeys(array.manifests):
            rows = manifest.take(np.arange(manifest.n_rows))
            counts += np.bincount(rows.state, minlength=len(ChunkState))
            stored += rows.stored_bytes
    sizes = [source.size_bytes for source in sources if source.size_bytes is not None]
    states = ", ".join(f"{counts[state]} {state.name.lower()}" for state in ChunkState)
    lines = [
        f"{number_of(int(counts.sum()), 'stored chunk')}: {states}",
        f"{human_bytes(stored)} stored, {human_bytes(decoded)} decoded",
        f"{number_of(len(sources), 'source')}, {human_bytes(sum(sizes))}",
    ]
    if n_holes:
        lines.append(f"blocks in no file: {n_holes} (they read as the fill value)")
    urls = sorted(shown_address(source.url) for source in sources)
    shown = urls if len(urls) <= 4 else [*urls[:2], "…", urls[-1]]
    return lines + [f"  {url}" for url in shown]


def left_out(report: ScanReport) -> list[str]:
    """What is missing from a catalog, as its report lists it."""
    lines = []
    for row in report.drifts:
        if row["resolution"] == LEFT_OUT:
            named = row["first_file"] or "some files"
            more = f" and {row['n_files'] - 1} more" if row["n_files"] > 1 else ""
            lines.append(f"{row['variable'] or '/'}: {row['value']} [{named}{more}]")
    return lines


type _Beside = OverlayInfo | OverviewInfo


def lines_beside(group: CatalogGroup, arrays: Container[str]) -> list[str]:
    """The overlays and overviews of some arrays of a catalog, a line each."""
    every: list[_Beside] = [*overlays_of(group), *overviews_of(group)]
    return [_line_beside(each) for each in every if each.array in arrays]


def lines_lost(before: CatalogGroup, after: CatalogGroup) -> list[str]:
    """The overlays and overviews that a change left with less than before, a line each."""
    covered = {each.id: each.covered for each in overlays_of(before)}
    shown = {each.array for each in overviews_of(before) if each.is_shown}
    less = [each for each in overlays_of(after) if each.covered < covered.get(each.id, 0)]
    hidden = [each for each in overviews_of(after) if each.array in shown and not each.is_shown]
    return [*map(_line_beside, less), *map(_line_beside, hidden)]


def _line_beside(each: _Beside) -> str:
    size = bytes_in_objects(each.n_bytes, each.n_objects)
    if isinstance(each, OverviewInfo):
        command = "gridref overviews"
        parts = [f"{each.array}: overview, {each.levels_in_words}", size]
        if not each.is_shown and not each.is_unfinished:
            parts.append(f"out of date and not shown: the same {command} mends it")
    else:
        command = "rechunk"
        parts = [f"{each.array}: overlay {each.number}, chunks {each.chunks_in_words}"]
        parts += filter(None, [each.where_in_words])
        parts += [f"{100 * each.covered:.3g} % covered", size]
    if each.is_unfinished:
        parts.append(f"unfinished: the same {command} goes on")
    return ", ".join(parts)


def costs_table(costs: Sequence[Mapping[str, Any]]) -> Table:
    """What a selection costs, a row for each layout."""
    table = Table(box=None, pad_edge=False)
    for name in ("layout", "chunks", "requests", "fetched", "decoded", "estimated"):
        table.add_column(name, justify="left" if name == "layout" else "right")
    table.add_column("")
    for row in costs:
        table.add_row(
            row["layout"],
            str(row["n_chunks"]),
            str(row["n_requests"]),
            human_bytes(row["stored_bytes"]),
            human_bytes(row["decoded_bytes"]),
            f"{row['seconds']:.2g} s",
            "chosen" if row["chosen"] else "",
        )
    return table


def decoded_because(arrays: Arrays, options: ViewOptions) -> dict[str, str]:
    """Why arrays are not shown in the native view: their paths by reason."""
    return _paths_by(arrays, lambda array: _as_shown(array, options).reason)


def unsharded_because(arrays: Arrays, options: ViewOptions) -> dict[str, str]:
    """Why arrays are shown without the shards that were asked for: their paths by reason."""
    return _paths_by(arrays, lambda array: getattr(_as_shown(array, options), "shard_reason", ""))


def _paths_by(arrays: Arrays, reason_of: Callable[[VirtualArray], str]) -> dict[str, str]:
    paths: dict[str, list[str]] = {}
    for path, array in arrays.items():
        reason = reason_of(array)
        if reason:
            paths.setdefault(reason, []).append(path)
    return {reason: ", ".join(affected) for reason, affected in paths.items()}


# The output of ``gridref plan``, and of ``--json``


_MOST_GROUPS, _MOST_NAMES, _SHOWN = 12, 4, 80


def print_plan(console: Console, combination: Combination, *, as_json: bool, every: bool) -> bool:
    """Print a combination, with `every` array, drift and problem; return whether it has none."""
    if as_json:
        console.print_json(json.dumps(_document(combination)))
        return not combination.problems
    if combination.group is not None and every:
        console.print(
            draw_tree(combination.group, number_of(len(combination.report.files), "file"))
        )
        console.print()
        print_outcome(console, combination.group)
        _print_arrays(console, combination.group)
    else:
        for layout in combination.layouts:
            console.print(Text(spelled(layout)), soft_wrap=True)
    if combination.group is not None and not every:
        console.print(_groups(combination.group))
        console.print()
        print_outcome(console, combination.group)
    drifts = _drifts(combination) if every else _kinds_of_drift(combination)
    if drifts.row_count:
        console.print(drifts)
    whole = [problem.whole for problem in combination.problems]
    if whole:
        console.print(Text(problems_counted(combination.problems), style="bold red"))
    for line in whole if every else problems_in_short(combination.problems):
        console.print(Text(f"- {spelled(line)}"), soft_wrap=True)
    console.print(combination.summary)
    return not combination.problems


def print_outcome(console: Console, group: VirtualGroup) -> None:
    """Draw which parts of its variables files hold, where there are several parts."""
    parts = layout_table(group)
    if parts is not None:
        console.print(parts)
        console.print()


def _groups(group: VirtualGroup) -> Table:
    """A row for each group of arrays: its dimensions with their sizes, and how many it holds."""
    table = _table("group", "dimensions", "arrays")
    held = [(path, part.arrays) for path, part in group.walk() if part.arrays]
    for path, arrays in held[:_MOST_GROUPS]:
        sizes: dict[str, int] = {}
        for array in arrays.values():
            sizes.update(zip(array.dims, array.shape, strict=True))
        shown = ", ".join(f"{dim}: {extent}" for dim, extent in sizes.items())
        table.add_row(path or "/", shown, str(len(arrays)))
    if len(held) > _MOST_GROUPS:
        table.add_row(f"and {len(held) - _MOST_GROUPS} more", "", "")
    return table


def _print_arrays(console: Console, group: VirtualGroup) -> None:
    """How each array is stored and shown."""
    arrays = group.all_arrays()
    console.print(describe_arrays(arrays, ViewOptions()))
    for reason, paths in decoded_because(arrays, ViewOptions()).items():
        console.print(Text(f"decoded on the way: {paths} ({reason})", style="dim"))
    console.print()


def _kinds_of_drift(combination: Combination) -> Table:
    """A row for all drifts of one cause that are resolved alike, with a case of the first."""
    table = _table("drift", "variables", "such as", "resolved")
    kinds: dict[tuple[str, str], list[Drift]] = {}
    for drift in sorted(combination.report, key=lambda drift: drift.cause):
        if drift.cause != "layout":
            kinds.setdefault((drift.cause, drift.resolution), []).append(drift)
    for (cause, resolution), drifts in kinds.items():
        names = dict.fromkeys(drift.variable or "/" for drift in drifts)
        case = drifts[0].cases[-1]
        told = f"{case.where(len(combination.report.files))}: {case.value}"
        shown = told if len(told) <= _SHOWN else f"{told[:_SHOWN]}..."
        table.add_row(cause, some_of([*names], _MOST_NAMES), shown, spelled(resolution))
    return table


def _drifts(combination: Combination) -> Table:
    table = _table("drift", "variable", "where", "resolved")
    n_files = len(combination.report.files)
    ordered = sorted(combination.report, key=lambda drift: drift.cause)
    for cause, drifts in groupby(ordered, key=lambda drift: drift.cause):
        for number, drift in enumerate(drifts):
            cases = [f"{case.where(n_files)}: {case.value}" for case in drift.cases[:4]]
            if drift.n_cases > len(cases):
                cases.append(f"and {drift.n_cases - len(cases)} more values")
            table.add_row(
                "" if number else cause,
                drift.variable or "/",
                "\n".join(cases),
                spelled(drift.resolution),
            )
    return table


def _document(combination: Combination) -> dict[str, Any]:
    arrays = {} if combination.group is None else combination.group.all_arrays()
    return {
        "files": list(combination.report.files),
        "failed": [{"file": each.source, "reason": each.reason} for each in combination.failed],
        "drifts": [drift.to_json() for drift in combination.report],
        "problems": [
            {
                "cause": problem.cause,
                "variable": problem.variable,
                "message": problem.message,
                "files": list(problem.sources),
            }
            for problem in combination.problems
        ],
        "arrays": _arrays_as_json(arrays, ViewOptions()),
    }


def _arrays_as_json(arrays: Arrays, options: ViewOptions) -> dict[str, Any]:
    described = {}
    for path, array in arrays.items():
        shown = _as_shown(array, options)
        described[path] = {
            "shape": list(array.shape),
            "dims": list(array.dims),
            "dtype": str(array.dtype),
            "blocks": array.n_blocks,
            "view": getattr(shown, "view", None),
            "reason": shown.reason,
        }
    return described


def catalog_as_json(group: CatalogGroup, arrays: Arrays, options: ViewOptions) -> dict[str, Any]:
    """What ``gridref info --json`` prints of a catalog."""
    return {
        "catalog": shown_address(group.info.url),
        "snapshot": group.info.snapshot,
        "n_sources": len(group.source_list),
        "n_checksums": group.info.n_checksums,
        "left_out": left_out(group.report),
        "overlays": [asdict(each) for each in overlays_of(group)],
        "overviews": [asdict(each) for each in overviews_of(group)],
        "arrays": _arrays_as_json(arrays, options),
    }


# What ``gridref info`` prints of a file

_MAP_CELLS = 60


def print_inspection(console: Console, found: Inspection) -> None:
    """Print what a scan of a file costs on a server, and what makes it slow."""
    for line in _file_lines(found):
        console.print(Text(line), soft_wrap=True)
    console.print(_stored_arrays(found))
    _print_advice(console, found)


def _file_lines(found: Inspection) -> Iterator[str]:
    size = "" if found.file_bytes is None else f", {human_bytes(found.file_bytes)}"
    yield f"{found.file}: {found.format}{size}"
    yield from (
        f"{what}: {number_of(n_requests, 'request')}, {human_bytes(n_bytes)}"
        f"{_share(n_bytes, found.file_bytes)}"
        for what, n_requests, n_bytes in (
            ("scanning this file", found.n_requests, found.n_bytes),
            ("scanning one more file like it", found.n_requests_alike, found.n_bytes_alike),
        )
    )
    if found.file_bytes:
        yield f"where the scan reads: [{_file_map(found.metadata, found.file_bytes)}]"
    facts = {name: value for name, value in found.facts.items() if value is not None}
    words = {True: "yes", False: "no"}
    yield from (
        f"{name}: {words[value] if isinstance(value, bool) else value}"
        for name, value in facts.items()
    )


def _share(n_bytes: int, file_bytes: int | None) -> str:
    return f" ({n_bytes / file_bytes:.1%} of the file)" if file_bytes else ""


def _file_map(pieces: tuple[tuple[int, int], ...], file_bytes: int) -> str:
    """A file from its first to its last byte, with # where something was looked at."""
    cells = ["."] * _MAP_CELLS
    for start, stop in pieces:
        for cell in range(start * _MAP_CELLS // file_bytes, -(-stop * _MAP_CELLS // file_bytes)):
            cells[cell] = "#"
    return "".join(cells)


def _stored_arrays(found: Inspection) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("array", "chunks", "of shape", "median", "small", "stored", "index"):
        table.add_column(title, justify="left" if title in ("array", "index") else "right")
    ordered = sorted(found.arrays, key=lambda array: -array.n_chunks)
    for array in ordered:
        table.add_row(
            array.path,
            str(array.n_chunks),
            "x".join(map(str, array.chunk_shape)) or "scalar",
            human_bytes(array.median_bytes),
            str(array.n_small),
            human_bytes(array.stored_bytes),
            array.index,
        )
    return table


def _print_advice(console: Console, found: Inspection) -> None:
    if not found.advice:
        console.print("nothing found that makes reading slow")
    for advice in found.advice:
        text = Text.assemble(("slow ", "yellow"), advice.reason)
        console.print(text, soft_wrap=True)
        if advice.command:
            console.print(Text(f"  {advice.command}"), soft_wrap=True)
        if advice.gain:
            console.print(Text(f"  gives {advice.gain}"), soft_wrap=True)
