"""``docs/private-parts.md`` lists exactly the private parts of other packages that src uses."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"
PAGE = (SRC.parent / "docs/private-parts.md").read_text(encoding="utf-8")
INTERNAL = ("uvicorn.protocols", "xarray.core", "zarr.core")
"""Modules that their packages keep to themselves, though their names have no underscore."""


PUBLIC = {"_typeshed", "_exit", "_replace"}
"""Names that the standard library documents, of `os` and of named tuples, and of type checkers."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def own_attributes(nodes: list[ast.AST]) -> set[str]:
    """Names that a module sets itself: of its objects and classes."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr if ast.unparse(node.value) in ("self", "cls") else "")
        elif isinstance(node, ast.ClassDef):
            for part in node.body:
                targets = part.targets if isinstance(part, ast.Assign) else [part]
                names |= {getattr(getattr(t, "target", t), "id", "") for t in targets}
    return names


def used(tree: ast.AST) -> Iterator[str]:
    """Private names of others that a module imports or looks up."""
    nodes = [*ast.walk(tree)]
    own = own_attributes(nodes)
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            module = str(node.module)
            for alias in node.names:
                full = f"{module}.{alias.name}"
                hidden = any(map(is_private, full.split("."))) and not full.startswith("gridref.")
                if hidden or module.startswith(INTERNAL):
                    yield full
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if any(map(is_private, a.name.split("."))))
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            mine = node.attr in own or ast.unparse(node.value) in ("self", "cls", "super()")
            yield from () if mine else (node.attr,)


def overridden(module: str) -> Iterator[str]:
    """Private names of classes of others that classes of a module define anew."""
    for _, found in inspect.getmembers(importlib.import_module(module), inspect.isclass):
        bases = [b for b in found.__mro__[1:] if not b.__module__.startswith("gridref")]
        strangers = [b for b in bases if b.__module__.split(".")[0] not in sys.stdlib_module_names]
        if found.__module__ == module:
            for name in filter(is_private, vars(found)):
                # Metaclasses of others set some, which no line of ours names.
                theirs = any(name in vars(base) for base in strangers)
                if theirs and re.search(rf"\b{name}\b", inspect.getsource(found)):
                    yield name


def test_the_page_lists_what_is_used() -> None:
    found: dict[str, set[str]] = {}
    for path in sorted((SRC / "gridref").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        inner = path.relative_to(SRC).with_suffix("").as_posix()
        names = {name for name in used(ast.parse(text)) if name}
        if re.search(r"^class \w+\(", text, re.MULTILINE) and path.name != "__main__.py":
            names |= set(overridden(inner.removesuffix("/__init__").replace("/", ".")))
        if names:
            found[inner.removeprefix("gridref/")] = names
    listed: dict[str, set[str]] = {}
    for line in PAGE.splitlines():
        if match := re.match(r"\| `([\w/]+)` \| (.*?) \|", line):
            listed.setdefault(match[1], set()).update(re.findall(r"`([\w.]+)`", match[2]))
    assert listed == found
