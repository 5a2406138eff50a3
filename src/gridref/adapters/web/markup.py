"""HTML out of values: whatever is not `Markup` already is escaped, in text and in attributes."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

__all__ = ["Content", "Markup", "markup", "tag"]

_VOID = frozenset({"link", "meta", "input", "br"})


class Markup(str):
    """Text that is HTML; only this module and drawings of our own make it."""

    __slots__ = ()


type Content = str | int | Iterable[Content] | None
"""What an element may hold; None is nothing."""


def markup(content: Content) -> Markup:
    """Content as HTML."""
    if content is None:
        return Markup()
    if isinstance(content, Markup):
        return content
    if isinstance(content, str | int):
        return Markup(escape(str(content)))
    return Markup("".join(map(markup, content)))


def tag(name: str, /, *children: Content, **attributes: str | int | bool | None) -> Markup:
    """An element.

    Parameters
    ----------
    name
        Its name.
    *children
        What it holds.
    **attributes
        Its attributes; ``class_`` stands for ``class``, ``data_of`` for ``data-of``. True is one
        without a value; those that are None or False are left out.
    """
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{markup(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    end = "" if name in _VOID else f"</{name}>"
    return Markup(f"<{name}{written}>{markup(children)}{end}")
