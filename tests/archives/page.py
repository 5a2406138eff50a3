"""Writes the sections of `docs/layouts.md`: what `gridref plan` says of each kind of archive.

Run with ``python -m tests.archives.page docs/layouts.md``.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.archives import KINDS, Archive
from tests.command import run_command

__all__ = ["page"]

MARK = "<!-- What follows is written by tests/archives/page.py. -->\n"


def page(before: str) -> str:
    """The page: what stands before the mark, and a section for each kind."""
    return "\n".join([before.partition(MARK)[0] + MARK, *map(_section, KINDS)])


def _section(kind: Callable[[Path], Archive]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        archive = kind(Path(folder))
        names = sorted(str(path.relative_to(folder)) for path in archive.files)
        drawing = "\n".join(_drawing(_plan(archive, folder)))
    title, _, more = (inspect.getdoc(kind) or "").partition(": ")
    flags = " ".join(f"'{flag}'" if "{" in flag else flag for flag in archive.flags)
    pattern = f"'{archive.pattern}'" if "**" in archive.pattern else archive.pattern
    return f"""\
## {title}

{more[:1].upper()}{more[1:]} {len(names)} files, like `{names[0]}`.

```text
$ gridref build {pattern} {flags + " " if flags else ""}-o {archive.name}.gridref

{drawing}
```
"""


def _plan(archive: Archive, folder: str) -> str:
    env = {**os.environ, "COLUMNS": "120"}
    done = run_command("plan", archive.pattern, *archive.flags, cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _drawing(printed: str) -> Iterator[str]:
    """The lines of the drawing."""
    lines = iter(printed.splitlines())
    for line in lines:
        if line.startswith("variables ") and "parts:" in line:
            yield line.rstrip()
            break
    for line in lines:
        if re.match(r"drift\s+variables|\d+ files,", line):
            return
        if line.strip():
            yield line.rstrip()


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(page(target.read_text()))
