"""How ``gridref plan`` shows what combining would do."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gridref.adapters.cli.drawing import describe_arrays, draw_tree
from gridref.adapters.cli.inspecting import decoded_because
from gridref.adapters.cli.layout_table import layout_table
from gridref.adapters.cli.spelling import as_on_the_command_line
from gridref.combine import Combination
from gridref.serve.views import ViewOptions, show

__all__ = ["print_plan"]


def print_plan(console: Console, combination: Combination, *, as_json: bool) -> bool:
    """Print a combination that was tried; returns whether it has no problems."""
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
