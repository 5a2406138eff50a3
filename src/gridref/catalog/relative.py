"""Addresses of sources as seen from a catalog. Pure."""

from __future__ import annotations

import os
import posixpath
import re

from gridref.io import is_local

__all__ = ["relative_url", "resolved_url"]

_SERVER_AND_PATH = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^/]*)(/.*|)$")


def relative_url(url: str, folder: str) -> str:
    """The address of a source as seen from a folder; unchanged if they have no root in common."""
    if is_local(url) and is_local(folder):
        return os.path.relpath(url, folder).replace(os.sep, "/")
    of_url, of_folder = _SERVER_AND_PATH.match(url), _SERVER_AND_PATH.match(folder)
    if "::" in url or "::" in folder or of_url is None or of_folder is None:
        return url
    if of_url[1] != of_folder[1]:
        return url
    return posixpath.relpath(of_url[2] or "/", of_folder[2] or "/")


def resolved_url(url: str, folder: str) -> str:
    """The address of a source that is stored relative to a folder; others stay as they are."""
    if not is_local(url) or url.startswith("/") or os.path.isabs(url):
        return url
    if is_local(folder):
        return os.path.normpath(os.path.join(folder, url))
    of_folder = _SERVER_AND_PATH.match(folder)
    if of_folder is None:
        return url
    return of_folder[1] + posixpath.normpath(posixpath.join(of_folder[2] or "/", url))
