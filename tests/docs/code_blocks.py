"""Find the code blocks of a Markdown page and run them, in order.

``python tests/docs/code_blocks.py PAGE`` runs the page in the current folder. The Python blocks of
a page share one namespace; each shell block is a bash of its own that stops at the first error.
A block without a language right behind one is what it prints; ``...`` stands for any text.
A block behind a line ``<!-- not run: reason -->`` is left out, and so is one behind
``<!-- needs: curl -->`` where there is no curl.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

PYTHON = {"python", "py"}
SHELL = {"bash", "sh", "shell", "console"}
# Blocks that must be one of the above, lest a page's examples go unchecked under another name.
NOT_ALLOWED = {"python3", "pycon", "ipython", "zsh", "shell-session"}

COMMAND_FOLDER = "GRIDREF_TESTS_COMMAND"
"""The environment variable of a folder that shells find `gridref` in, before that installed."""

AS_PRINTED = doctest.OutputChecker()
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

FENCE = re.compile(r"^(?P<indent>\s*)(?P<fence>`{3,}|~{3,})\s*(?P<language>[\w-]*)")
MARKER = re.compile(r"^\s*<!--\s*(?P<kind>not run|needs):\s*(?P<text>.*?)\s*-->\s*$")


@dataclass(frozen=True)
class CodeBlock:
    """One fenced block.

    Attributes
    ----------
    language
        The word behind the fence, in lower case.
    line
        Number of the block's first line of code, from 1.
    code
        Its text, without the fence's indentation.
    not_run
        The reason why it is not run, or None.
    needs
        The programs that it is not run without.
    output
        What the page says that it prints, or None.
    """

    language: str
    line: int
    code: str
    not_run: str | None = None
    needs: tuple[str, ...] = ()
    output: str | None = None


def find_blocks(text: str) -> list[CodeBlock]:
    """All Python and shell blocks of a page, in order."""
    blocks = []
    lines = text.splitlines()
    marks: dict[str, str] = {}
    follows = False  # nothing but empty lines since the last block of code
    i = 0
    while i < len(lines):
        opening = FENCE.match(lines[i])
        if opening is None:
            if marker := MARKER.match(lines[i]):
                marks[marker["kind"]] = marker["text"]
            elif lines[i].strip():
                marks = {}
                follows = False
            i += 1
            continue
        end = _closing_line(lines, i, opening["fence"])
        language = opening["language"].lower()
        if language in NOT_ALLOWED:
            raise ValueError(f"line {i + 1}: a block of {language}; use python, bash or console")
        indent = len(opening["indent"])
        code = "".join(
            line[min(indent, len(line) - len(line.lstrip())) :] + "\n"
            for line in lines[i + 1 : end]
        )
        if follows and not language:
            blocks[-1] = replace(blocks[-1], output=code)
        follows = language in PYTHON | SHELL
        if follows:
            needs = tuple(marks.get("needs", "").split())
            blocks.append(CodeBlock(language, i + 2, code, marks.get("not run"), needs))
        marks = {}
        i = end + 1
    return blocks


def _closing_line(lines: list[str], opening: int, fence: str) -> int:
    for i in range(opening + 1, len(lines)):
        line = lines[i].strip()
        if len(line) >= len(fence) and set(line) == {fence[0]}:
            return i
    raise ValueError(f"line {opening + 1}: the block never ends")


def shell_commands(block: CodeBlock) -> str:
    """What to give to bash: a console block's lines behind ``$ `` and ``> ``, else all of it."""
    if block.language != "console":
        return block.code
    commands = [line[2:] for line in block.code.splitlines() if line.startswith(("$ ", "> "))]
    if not commands:
        raise ValueError(f"line {block.line}: a console block without a line that starts with '$ '")
    return "\n".join(commands) + "\n"


def run_blocks(page: Path, blocks: list[CodeBlock]) -> None:
    """Run the blocks in the current folder; the first failure raises."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks:
        if block.not_run is not None or not all(map(shutil.which, block.needs)):
            continue
        print(f"--- {page.name}:{block.line} ({block.language})", flush=True)
        if block.language in PYTHON:
            tree = ast.parse(block.code, f"{page} (from line {block.line})")
            ast.increment_lineno(tree, block.line - 1)
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(tree, str(page), "exec"), namespace)
            got = printed.getvalue()
        else:
            got = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", shell_commands(block)],
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
            ).stdout
        print(got, flush=True)
        if block.output is not None and not AS_PRINTED.check_output(block.output, got, FLAGS):
            raise AssertionError(f"{page.name}:{block.line} says that it prints\n{block.output}")


if __name__ == "__main__":
    # Not resolved: inside a virtual environment the interpreter is a link.
    programs = str(Path(sys.executable).parent)
    first = [os.environ[COMMAND_FOLDER]] if COMMAND_FOLDER in os.environ else []
    os.environ["PATH"] = os.pathsep.join([*first, programs, os.environ["PATH"]])
    os.environ["COLUMNS"] = "250"  # long names of folders break no line of an output
    path = Path(sys.argv[1])
    run_blocks(path, find_blocks(path.read_text(encoding="utf-8")))
