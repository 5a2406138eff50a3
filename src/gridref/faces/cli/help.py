"""How commands show their help: exactly as it is written, and rarely used options on request.

Typer renders help as Markdown, which takes stars and underscores out of ``*/2020/*.nc``.
"""

from __future__ import annotations

import copy
import re
from typing import Any

from typer.core import TyperCommand

MAKE, LOOK, CHANGE, SHARE = "Make catalogs", "Look at catalogs", "Change catalogs", "Share catalogs"

_LAYING_OUT = ("concat_dim", "stack", "pattern", "mosaic", "join", "overlap", "on_error")
COMMON = {
    "build": ("catalog", *_LAYING_OUT, "overwrite", "n_processes", "verify", "storage_options"),
    "plan": (*_LAYING_OUT, "expect", "as_json", "files_from", "storage_options"),
    "append": ("at", "amend", "concat_dim", "join", "overlap", "on_error", "storage_options"),
}
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
