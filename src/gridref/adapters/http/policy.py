"""What a server tells of its errors."""

from __future__ import annotations

import re

from gridref.errors import GridrefError, SourceNotAllowedError
from gridref.io import absolute_url, is_local
from gridref.secrets import without_secrets

__all__ = ["public_text"]

_FOLDERS = re.compile(r"(?:file://|(?<![\w/:.]))/(?:[^/\s'\"]+/)+")
"""The folders of an absolute path, and not those of a URL."""


def public_text(error: Exception) -> str:
    """What a stranger may read of an error: no credentials, and no folders of this machine."""
    if isinstance(error, SourceNotAllowedError):
        return "this server does not read from there: see --allow"
    text = str(error)
    source = error.place.source if isinstance(error, GridrefError) else None
    for path in (source, getattr(error, "filename", None)):
        if isinstance(path, str) and is_local(absolute_url(path)):
            local = path.removeprefix("file://")
            text = text.replace(path, local).replace(local, local.rpartition("/")[2])
    return _FOLDERS.sub("", without_secrets(text))
