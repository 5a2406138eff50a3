"""Print descriptions of catalogs, plans and files. Imported only when needed."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table
from rich.text import Text

from gridref.api.overlays import OverlayInfo, OverviewInfo, overlays_of, overviews_of
from gridref.catalog import CatalogGroup
from gridref.errors import NotRepresentableError, problems_in_short
from gridref.faces.cli.console import Console
from gridref.faces.cli.drawing import describe_arrays, draw_tree, layout_table, shortened
from gridref.faces.cli.options import spelled
from gridref.faces.picture import bytes_in_objects, human_bytes
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.manifest import ChunkState, Source
from gridref.model.scan_report import LEFT_OUT, ScanReport
from gridref.secrets import shown_address
from gridref.serve.views import ViewOptions, show

if TYPE_CHECKING:
    from gridref.api.inspect import Inspection
    from gridref.combine import Combination
    from gridref.combine.report import Drift

type Arrays = Mapping[str, VirtualArray]


# Numbers about a virtual group, for people


def source_summary(group: VirtualGroup) -> list[str]:
    """Summarise arrays and their sources in lines of text. Reads the manifests."""
    sources: dict[Source, None] = {}
    counts = np.zeros(len(ChunkState), np.int64)
    stored = decoded = 0
    for array in group.all_arrays().values():
        decoded += array.nbytes
        for manifest in dict.fromkeys(array.manifests):
            rows = manifest.take(np.arange(manifest.n_rows))
            sources.update(dict.fromkeys(rows.sources))
            counts += np.bincount(rows.state, minlength=len(ChunkState))
            stored += rows.stored_bytes
    sizes = [source.size_bytes for source in sources if source.size_bytes is not None]
    states = ", ".join(f"{counts[state]} {state.name.lower()}" for state in ChunkState)
    lines = [
        f"{counts.sum()} stored chunks: {states}",
        f"{human_bytes(stored)} stored, {human_bytes(decoded)} decoded",
        f"{len(sources)} sources, {human_bytes(sum(sizes))}",
    ]
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
    return _paths_by(arrays, lambda array: _shown(array, options)[0])


def unsharded_because(arrays: Arrays, options: ViewOptions) -> dict[str, str]:
    """Why arrays are shown without the shards that were asked for: their paths by reason."""
    return _paths_by(arrays, lambda array: _shown(array, options)[1])


def _shown(array: VirtualArray, options: ViewOptions) -> tuple[str, str]:
    """Why an array is not native, and why it has no shards; empty where there is no reason."""
    try:
        shown = show(array, options)
    except NotRepresentableError as error:
        return error.reason, ""
    return shown.reason, shown.shard_reason


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
        console.print(draw_tree(combination.group, f"{len(combination.report.files)} files"))
        console.print()
        print_outcome(console, combination.group)
        _print_arrays(console, combination.group)
    elif combination.group is not None:
        for note in combination.report.of_cause("layout"):
            reasons = ", ".join(case.value for case in note.cases)
            console.print(Text(f"{spelled(note.resolution)} ({reasons})"), soft_wrap=True)
        console.print(_groups(combination.group))
        console.print()
        print_outcome(console, combination.group)
    drifts = _drifts(combination) if every else _kinds_of_drift(combination)
    if drifts.row_count:
        console.print(drifts)
    whole = [problem.whole for problem in combination.problems]
    if whole:
        console.print(Text("problems:", style="bold red"))
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
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("group", "dimensions", "arrays"):
        table.add_column(title, overflow="fold")
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
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("drift", "variables", "such as", "resolved"):
        table.add_column(title, overflow="fold")
    kinds: dict[tuple[str, str], list[Drift]] = {}
    for drift in sorted(combination.report, key=lambda drift: drift.cause):
        if drift.cause != "layout":
            kinds.setdefault((drift.cause, drift.resolution), []).append(drift)
    for (cause, resolution), drifts in kinds.items():
        names = dict.fromkeys(drift.variable or "/" for drift in drifts)
        case = drifts[0].cases[-1]
        told = f"{case.where(len(combination.report.files))}: {case.value}"
        shown = told if len(told) <= _SHOWN else f"{told[:_SHOWN]}..."
        table.add_row(cause, shortened([*names], _MOST_NAMES), shown, resolution)
    return table


def _drifts(combination: Combination) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("drift", "variable", "where", "resolved"):
        table.add_column(title, overflow="fold")
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
                spelled(drift.resolution) if cause == "layout" else drift.resolution,
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
        try:
            shown = show(array, options)
            view, reason = shown.view, shown.reason
        except NotRepresentableError as error:
            view, reason = None, error.reason
        described[path] = {
            "shape": list(array.shape),
            "dims": list(array.dims),
            "dtype": str(array.dtype),
            "blocks": array.n_blocks,
            "view": view,
            "reason": reason,
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
        f"{what}: {n_requests} requests, {human_bytes(n_bytes)}{_share(n_bytes, found.file_bytes)}"
        for what, n_requests, n_bytes in (
            ("a scan of it", found.n_requests, found.n_bytes),
            ("of one more like it", found.n_requests_alike, found.n_bytes_alike),
        )
    )
    if found.file_bytes:
        yield f"looked at: [{_map(found.metadata, found.file_bytes)}]"
    yield from (f"{name}: {value}" for name, value in found.facts.items())


def _share(n_bytes: int, file_bytes: int | None) -> str:
    return f" ({n_bytes / file_bytes:.1%} of the file)" if file_bytes else ""


def _map(pieces: tuple[tuple[int, int], ...], file_bytes: int) -> str:
    """A file from its first to its last byte, with # where something was looked at."""
    cells = ["."] * _MAP_CELLS
    for start, stop in pieces:
        for cell in range(start * _MAP_CELLS // file_bytes, -(-stop * _MAP_CELLS // file_bytes)):
            cells[cell] = "#"
    return "".join(cells)


def _stored_arrays(found: Inspection) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("array", "chunks", "of shape", "median", "small", "in all", "index"):
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
        console.print("nothing makes it slow")
    for advice in found.advice:
        text = Text.assemble(("slow ", "yellow"), advice.reason)
        console.print(text, soft_wrap=True)
        if advice.command:
            console.print(Text(f"  {advice.command}"), soft_wrap=True)
        if advice.gain:
            console.print(Text(f"  gives {advice.gain}"), soft_wrap=True)
