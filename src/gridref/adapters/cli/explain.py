"""The command ``gridref explain``: the paragraphs of ``docs/errors.md``, without a network."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

import gridref
from gridref.errors import InvalidRequestError

__all__ = ["explain_command"]

_NAME = "errors.md"
_SECTION = re.compile(r"^### (\S+)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)


def explain_command(
    kind: Annotated[
        str | None,
        typer.Argument(help="Name of a kind of errors, or of a cause of problems in combining."),
    ] = None,
) -> None:
    """Say what an error means, and what helps. Without a name, list all kinds of errors.

    Examples
    --------
        gridref explain source-changed

        gridref explain labels-differ
    """
    sections = _sections()
    if kind is None:
        _list_kinds(sections)
    elif kind in sections:
        _print_markdown(f"## {kind}\n\n{sections[kind].strip()}\n")
    else:
        _print_markdown(_of_cause(sections, kind))


def _sections() -> dict[str, str]:
    """Text of each kind of errors, in the order of the page."""
    installed = Path(gridref.__file__).parent / _NAME
    page = installed if installed.is_file() else Path(__file__).parents[4] / "docs" / _NAME
    return dict(_SECTION.findall(page.read_text(encoding="utf-8")))


def _of_cause(sections: dict[str, str], cause: str) -> str:
    """The row of a cause of problems in combining."""
    head, line, *rows = [row for row in sections["combine"].splitlines() if row.startswith("|")]
    found = [row for row in rows if row.startswith(f"| `{cause}` |")]
    if not found:
        raise InvalidRequestError(
            f"no error is called {cause!r}: gridref explain lists them all, and gridref explain"
            " combine the causes of problems"
        )
    return (
        "\n".join((f"## {cause}\n", "A problem in combining files.\n", head, line, *found)) + "\n"
    )


def _list_kinds(sections: dict[str, str]) -> None:
    table = Table("kind", "class", "for example", box=None)
    for kind, text in sections.items():
        name, _, example = text.strip().partition("\n")[0].partition(": ")
        table.add_row(kind, name.strip("`"), example)
    Console().print(table)


def _print_markdown(text: str) -> None:
    if not sys.stdout.isatty():
        typer.echo(text, nl=False)
        return
    from rich.markdown import Markdown

    Console().print(Markdown(text))
