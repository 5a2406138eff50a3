"""Print contents of strangers' files to the terminal as text, never as terminal commands.

Names and attributes may have control characters, which clear the screen, set its title or turn the
direction of writing, and square brackets, which rich takes for styles.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import rich.console
import typer
from rich.segment import Segment
from rich.text import Text

if TYPE_CHECKING:
    from gridref.faces.cli.progress import ScanProgress

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Controls but tab and newline, of lines and directions in Unicode too, and lone surrogates."""


def printable(text: str) -> str:
    r"""The text with escapes, like ``\x1b``, for what a terminal would obey or cannot show."""
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text."""
    typer.echo(printable(text), err=err, nl=nl)


class Console(rich.console.Console):
    """A console that prints any text as it is, but for what `printable` escapes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Make a text of a string, with escapes before it is measured for a column."""
        return super().render_str(printable(text), **options)

    def render(self, *renderable: Any, **options: Any) -> Iterable[Segment]:
        """Render something, with escapes in its text; see `rich.console.Console.render`."""
        for segment in super().render(*renderable, **options):
            plain = segment.text if segment.control else printable(segment.text)
            yield segment._replace(text=plain)


def shown_progress(quiet: bool, unit: str = "files") -> ScanProgress:
    """A progress bar on standard error, for a ``with`` block."""
    from gridref.faces.cli.progress import ScanProgress  # much of rich

    return ScanProgress(Console(stderr=True), quiet, unit)
