"""Help of commands, exactly as it is written, and the explanations of ``gridref --explain``.

Typer renders help as Markdown, which takes stars and underscores out of ``*/2020/*.nc``.
"""

from __future__ import annotations

import ast
import copy
import re
import sys
from pathlib import Path
from typing import Any

from rich.table import Table
from typer.core import TyperCommand

import gridref
from gridref.errors import InvalidRequestError, Message, Option
from gridref.faces.cli.console import Console, echo
from gridref.faces.cli.options import spelled

MAKE, LOOK, CHANGE, SHARE = "Make catalogs", "Look at catalogs", "Change catalogs", "Share catalogs"

_LAYING_OUT = ("concat_dim", "stack", "pattern", "mosaic", "join", "overlap", "on_error")
COMMON = {
    "build": ("catalog", *_LAYING_OUT, "overwrite", "executor", "verify", "storage_options"),
    "plan": (*_LAYING_OUT, "expect", "as_json", "files_from", "storage_options"),
    "append": ("at", "declare", "step", "amend", "concat_dim", "join", "overlap", "on_error",
               "storage_options"),
    "watch": ("events", "every", "settle", "once", "rechunk", "join", "overlap", "storage_options"),
    "info": ("output", "select", "as_json", "snapshot", "view", "shards", "chunks", "allow",
             "storage_options"),
    "rechunk": ("chunks", "where", "to", "shards", "codec", "memory", "executor", "update", "drop",
                "dry_run", "quiet", "storage_options"),
    "serve": ("port", "host", "workers", "allow", "allow_host", "allow_origin", "shards", "chunks",
              "storage_options"),
    "copy": ("to", "arrays", "chunks", "shards", "codec", "grid", "memory", "dry_run", "snapshot",
             "allow", "quiet", "storage_options"),
    "export": ("to", "zarr_format", "append_dim", "replace", "materialize", "collection", "after",
               "snapshot", "allow", "storage_options"),
}  # fmt: skip
"""Options that ``--help`` shows of the commands that have many; ``--help-all`` shows all."""

_MARKS = re.compile(r"([\\`*_{}\[\]<>#|])")


class Command(TyperCommand):
    """A command of gridref."""

    shows_all = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a line; ``--help-all`` is ``--help`` with all options."""
        self.shows_all = "--help-all" in args
        return super().parse_args(ctx, ["--help"] if self.shows_all else args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        whole, epilog = self.params, self.epilog
        shown = [each for each in whole if self._is_shown(each)]
        if len(shown) < len(whole):
            self.epilog = _plain(f"All options: gridref {self.name} --help-all")
        self.params = [_plain_parameter(each) for each in shown]
        try:
            super().format_help(ctx, formatter)
        finally:
            self.params, self.epilog = whole, epilog

    def _is_shown(self, parameter: Any) -> bool:
        common = COMMON.get(str(self.name))
        is_argument = parameter.param_type_name == "argument"
        return self.shows_all or common is None or is_argument or parameter.name in common


def _plain_parameter(parameter: Any) -> Any:
    plain = copy.copy(parameter)
    plain.help = _plain(parameter.help or "")
    return plain


def _plain(text: str) -> str:
    """A text as Markdown that shows all its characters."""
    return _MARKS.sub(r"\\\1", text)


# ``gridref --explain``: the paragraphs of ``docs/errors.md``, without a network

_NAME = "errors.md"
_SECTION = re.compile(r"^### (\S+)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)


def print_explanation(kind: str) -> None:
    """Print cause and remedy of a kind of errors, or of a cause of problems in combining.

    Parameters
    ----------
    kind
        Its name, or that of its class. ``all`` lists all kinds of errors.

    Raises
    ------
    InvalidRequestError
        If there is no such kind.
    """
    sections = {name: _for_commands(text) for name, text in _sections().items()}
    of_class = (name for name, text in sections.items() if text.startswith(f"\n`{kind}`"))
    kind = next(of_class, kind)
    if kind == "all":
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


_OPTION = re.compile(r"""\b([a-z_]+)=("[^"]*"|'[^']*'|\[\.{3}\]|[A-Z]\w*\([^)]*\)|True)?""")
_LINK = re.compile(r"\[([^]]*)\]\(([\w/-]+\.md)[^)]*\)")


def _for_commands(text: str) -> str:
    """A text of the page as commands spell options, with links as names of pages."""
    text = re.sub(r"`(?![\w.]+\()[^`]*`", lambda code: _OPTION.sub(_as_commands, code[0]), text)
    text = re.sub(r"(`[^`]*`)\s\(\1\)", r"\1", text)
    return _LINK.sub(r"\1 (docs/\2)", re.sub(rf"\({_LINK.pattern}\)", r"(docs/\2)", text))


def _as_commands(found: re.Match[str]) -> str:
    name, value = found.groups()
    if value is None or value == "[...]":
        written = spelled(Message(Option(name))).removesuffix(" ...")
    elif value.endswith(")"):
        call: Any = ast.parse(value.replace("...", "'...'"), mode="eval").body
        kind = getattr(gridref, call.func.id)
        given = {each.arg: ast.literal_eval(each.value) for each in call.keywords}
        written = spelled(Message(Option(name, kind(*map(ast.literal_eval, call.args), **given))))
    else:
        written = spelled(Message(Option(name, ast.literal_eval(value))))
    return written if written.startswith("-") else found[0]


def _of_cause(sections: dict[str, str], cause: str) -> str:
    """The row of a cause of problems in combining."""
    head, line, *rows = [row for row in sections["combine"].splitlines() if row.startswith("|")]
    found = [row for row in rows if row.startswith(f"| `{cause}` |")]
    if not found:
        raise InvalidRequestError(
            f"there is no error named {cause!r}: gridref --explain all lists the errors, and "
            "gridref --explain combine the causes of problems"
        )
    return (
        "\n".join((f"## {cause}\n", "A problem in combining files.\n", head, line, *found)) + "\n"
    )


def _list_kinds(sections: dict[str, str]) -> None:
    table = Table("kind", "class", "for example", box=None)
    for kind, text in sections.items():
        name, _, example = " ".join(text.partition("**")[0].split()).partition(": ")
        table.add_row(kind, name.strip("`"), example)
    Console().print(table)


def _print_markdown(text: str) -> None:
    if not sys.stdout.isatty():
        echo(text, nl=False)
        return
    from rich.markdown import Markdown

    Console().print(Markdown(text))
