"""Options by name, as the command line and recipes spell them, for calls in Python."""

from __future__ import annotations

from typing import Any

from gridref.faces.cli.options import call_options


def by_name(**options: Any) -> dict[str, Any]:
    """What `gridref.build`, `gridref.plan` and `append` take for options by name.

    Tests keep options as pairs of names and values where the same ones go to commands, or where
    they are put together out of several.
    """
    own = {name: options.pop(name) for name in ("progress", "at") if name in options}
    return {**call_options(options), **own}
