"""The sizes that keep the code readable: lines of functions, without docstrings, and of files."""

from __future__ import annotations

import ast
import statistics
from collections.abc import Iterator
from pathlib import Path

import gridref

SOURCE = Path(gridref.__file__).parent
MEDIAN_LINES, MOST_LINES_OF_NINE_IN_TEN, MOST_LINES = 7, 20, 50
MOST_LINES_OF_A_FILE = 450


def test_functions_fit_on_a_screen() -> None:
    sizes = dict(_function_sizes())
    tenths = statistics.quantiles(sizes.values(), n=10)
    too_long = {name: size for name, size in sizes.items() if size > MOST_LINES}
    assert not too_long
    assert statistics.median(sizes.values()) <= MEDIAN_LINES
    assert tenths[-1] <= MOST_LINES_OF_NINE_IN_TEN


def test_files_are_small() -> None:
    sizes = {str(path): len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    assert len(sizes) > 100
    assert not {path: size for path, size in sizes.items() if size > MOST_LINES_OF_A_FILE}


def _function_sizes() -> Iterator[tuple[str, int]]:
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                place = f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}"
                yield place, _lines(node) - _docstring_lines(node)


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _docstring_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return 0 if ast.get_docstring(function) is None else _lines(function.body[0])
