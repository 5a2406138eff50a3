"""Options by name, as the command line and recipes spell them, for calls in Python."""

from __future__ import annotations

from typing import Any

from gridref.api.layout.ways import keywords_of

_OF_THE_CALL = {
    *("storage_options", "allow", "expect", "relative", "overwrite", "keep_secrets", "identity"),
    *("checksums", "progress", "at"),
}


def by_name(**options: Any) -> dict[str, Any]:
    """What `gridref.build`, `gridref.plan` and `append` take for options by name.

    Tests keep options as pairs of names and values where the same ones go to commands, or where
    they are put together out of several.
    """
    own = {name: value for name, value in options.items() if name in _OF_THE_CALL}
    return {**keywords_of({n: v for n, v in options.items() if n not in own}), **own}
