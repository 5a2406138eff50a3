"""Messages, which spell options as Python does, as the command line spells them."""

from __future__ import annotations

import re

from gridref.adapters.cli.options import BUILD_OPTIONS, VIEW_OPTIONS

__all__ = ["as_on_the_command_line"]

_OPTION = re.compile(r"""\b([a-z_]+)=(?:"([^"]*)"|'([^']*)'|(True|False|None|\.\.\.|-?\d[\w.]*))""")
_LIST = re.compile(r"\b(allow|concat_dim)=\[('[^']*'(?:, '[^']*')*)\]")
_LABELS = re.compile(r"\blabels=\{('[^{}]*')\}")
_SPELLED_OTHERWISE = {"everything": "all"}
_KNOWN = {*BUILD_OPTIONS, *VIEW_OPTIONS, *_SPELLED_OTHERWISE, "format", "output", "zarr_format"}


def as_on_the_command_line(message: str) -> str:
    """A message of ours with options spelled as here: ``overlap="first"`` is ``--overlap first``.

    Messages spell options as in Python.
    """
    one_each = _LIST.sub(
        lambda match: f"{match[1]}={match[2].replace(', ', f' {match[1]}=')}", message
    )
    labels = _LABELS.sub(
        lambda match: f"labels='{match[1].replace(chr(39), '').replace(': ', '=')}'", one_each
    )
    return re.sub(r"(--[a-z-]+ [^\s,]+), (?=--)", r"\1 ", _OPTION.sub(_respelled, labels))


def _respelled(match: re.Match[str]) -> str:
    name = match[1]
    if name not in _KNOWN:
        return match[0]
    option = f"--{_SPELLED_OTHERWISE.get(name, name).replace('_', '-')}"
    value = next(text for text in match.groups()[1:] if text is not None)
    return option if value == "True" else f"{option} {value}"
