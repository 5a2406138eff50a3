"""Draw the picture of the architecture page: python tools/draw_house.py docs/images/house.svg.

Its floors are the layers that the import linter holds the code to; each box says what the first
line of the package's docstring does, and which rooms it has.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "gridref"
WIDTH, GAP, MARGIN, LINE = 880, 12, 20, 15
STYLE = (
    "text{font-family:sans-serif;font-size:12px;fill:#222}"
    ".n{font-size:15px;font-weight:bold}.r{font-size:11px;fill:#555}"
)
COLOURS = ("#f2e8cf", "#dde5f4", "#e3f0e1", "#f4e1e1", "#ece4f5")


def draw() -> str:
    """The floors, top floor first, with a box for each package."""
    boxes, top = [], MARGIN
    for number, layer in enumerate(_layers()):
        names = [name.strip(" ()") for name in re.split("[|:]", layer)]
        floor, height = _floor(names, top, COLOURS[number % len(COLOURS)])
        boxes += floor
        top += height + GAP
    height = top + 24
    caption = _text("Imports point down. Boxes of one floor do not know each other.", 20, top + 12)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}"'
        f' role="img" aria-label="The packages of gridref, floor by floor"><style>{STYLE}</style>'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>{"".join(boxes)}{caption}</svg>\n'
    )


def _layers() -> list[str]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (found,) = [c for c in contracts["contracts"] if c["name"] == "Imports point one way"]
    return list(found["layers"])


def _floor(names: list[str], top: int, colour: str) -> tuple[list[str], int]:
    """The boxes of a floor, and its height."""
    width = (WIDTH - 2 * MARGIN - GAP * (len(names) - 1)) // len(names)
    texts = [
        [("", line) for line in textwrap.wrap(_says(name), width // 7)]
        + [("r", line) for line in textwrap.wrap(", ".join(_rooms(name)), width // 6)]
        for name in names
    ]
    height = 38 + LINE * max(map(len, texts))
    lefts = [MARGIN + number * (width + GAP) for number in range(len(names))]
    boxes = [
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="6" fill="{colour}"'
        f' stroke="#555"/>{_text(name, left + 10, top + 22, "n")}'
        + "".join(
            _text(line, left + 10, top + 40 + LINE * number, kind)
            for number, (kind, line) in enumerate(lines)
        )
        for name, left, lines in zip(names, lefts, texts, strict=True)
    ]
    return boxes, height


def _rooms(name: str) -> list[str]:
    """The packages and modules inside a package; its packages alone, where it has some."""
    folder = SOURCE / name
    packages = sorted(path.parent.name for path in folder.glob("*/__init__.py"))
    modules = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    return packages or modules


def _says(name: str) -> str:
    """The first line of a module's docstring."""
    package = SOURCE / name / "__init__.py"
    path = package if package.exists() else SOURCE / f"{name}.py"
    return (
        (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0].replace("``", "")
    )


def _text(words: str, x: int, y: int, kind: str = "") -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(words)}</text>'


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw(), encoding="utf-8")
