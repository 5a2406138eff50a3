"""What commands print of groups and plans. It is imported when there is something to print."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import groupby
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from gridref.combine import Combination
from gridref.errors import NotRepresentableError
from gridref.faces.cli.console import Console
from gridref.faces.cli.drawing import describe_arrays, draw_tree, layout_table
from gridref.faces.cli.options import as_on_the_command_line
from gridref.faces.picture import human_bytes
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.manifest import ChunkState, Source
from gridref.model.scan_report import LEFT_OUT, ScanReport
from gridref.secrets import shown_address
from gridref.serve.views import ViewOptions, show

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


def decoded_because(group: VirtualGroup, options: ViewOptions) -> dict[str, str]:
    """Why arrays are not shown in the native view: their paths by reason."""
    return _paths_by(group, lambda array: _shown(array, options)[0])


def unsharded_because(group: VirtualGroup, options: ViewOptions) -> dict[str, str]:
    """Why arrays are shown without the shards that were asked for: their paths by reason."""
    return _paths_by(group, lambda array: _shown(array, options)[1])


def _shown(array: VirtualArray, options: ViewOptions) -> tuple[str, str]:
    """Why an array is not native, and why it has no shards; empty where there is no reason."""
    try:
        shown = show(array, options)
    except NotRepresentableError as error:
        return error.reason, ""
    return shown.reason, shown.shard_reason


def _paths_by(group: VirtualGroup, reason_of: Callable[[VirtualArray], str]) -> dict[str, str]:
    paths: dict[str, list[str]] = {}
    for path, array in group.all_arrays().items():
        reason = reason_of(array)
        if reason:
            paths.setdefault(reason, []).append(path)
    return {reason: ", ".join(affected) for reason, affected in paths.items()}


# The output of ``gridref plan``


def print_plan(console: Console, combination: Combination, *, as_json: bool) -> bool:
    """Print a combination; return whether it has no problems."""
    if as_json:
        console.print_json(json.dumps(_document(combination)))
        return not combination.problems
    if combination.group is not None:
        console.print(draw_tree(combination.group, f"{len(combination.report.files)} files"))
        console.print()
        parts = layout_table(combination.group)
        if parts is not None:
            console.print(parts)
            console.print()
        console.print(describe_arrays(combination.group, ViewOptions()))
        for reason, paths in decoded_because(combination.group, ViewOptions()).items():
            console.print(Text(f"decoded on the way: {paths} ({reason})", style="dim"))
    if len(combination.report):
        console.print()
        console.print(_drifts(combination))
    for problem in combination.problems:
        message = as_on_the_command_line(str(problem))
        console.print(Text.assemble(("problem ", "bold red"), message))
    console.print(combination.summary)
    return not combination.problems


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
                as_on_the_command_line(drift.resolution) if cause == "layout" else drift.resolution,
            )
    return table


def _document(combination: Combination) -> dict[str, Any]:
    group = combination.group
    arrays = {} if group is None else group.all_arrays()
    views = {path: show(array, ViewOptions()) for path, array in arrays.items()}
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
        "arrays": {
            path: {
                "shape": list(array.shape),
                "dims": list(array.dims),
                "dtype": str(array.dtype),
                "blocks": array.n_blocks,
                "view": views[path].view,
                "reason": views[path].reason,
            }
            for path, array in arrays.items()
        },
    }
