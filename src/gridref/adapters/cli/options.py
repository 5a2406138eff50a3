"""What the words of a command line mean."""

from __future__ import annotations

from typing import Any

import typer

from gridref.errors import InvalidRequestError

__all__ = ["parse_lengths", "parse_options", "parse_shards"]


def parse_options(entries: list[str] | None) -> dict[str, Any]:
    """Fsspec options from ``key=value`` entries; true, false and numbers are read as such."""
    options: dict[str, Any] = {}
    for entry in entries or []:
        key, separator, text = entry.partition("=")
        if not separator:
            raise typer.BadParameter(f"write KEY=VALUE, got {entry!r}")
        words = {"true": True, "false": False, "none": None}
        options[key] = words.get(text.lower(), int(text) if text.isdigit() else text)
    return options


def parse_shards(text: str | None) -> str | dict[str, int] | None:
    """What ``--shards`` means: a word, or lengths by dimension."""
    return text if text is None or "=" not in text else parse_lengths(text)


def parse_lengths(text: str) -> dict[str, int]:
    """Lengths by dimension out of ``time=24,lat=180``.

    Raises
    ------
    InvalidRequestError
        If the text is not of this form.
    """
    lengths = {}
    for part in text.split(","):
        dim, separator, length = part.strip().rpartition("=")
        if not separator or not dim or not length.isdecimal():
            raise InvalidRequestError(f"lengths are written like time=24,lat=180, got {text!r}")
        lengths[dim] = int(length)
    return lengths
