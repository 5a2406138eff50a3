"""Calls that verbs of a catalog find by name: faces, which `api` does not import, and callers."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from gridref.options import check_choice

_HOMES = {
    "publish": "gridref.faces.web.publishing",
    "sql": "gridref.faces.duckdb",
    "verify": "gridref.api.verify",
    "watch": "gridref.api.watching",
}
_EXPORTS = {
    "cf": "gridref.faces.exports.cf_aggregation:to_cf_aggregation",
    "icechunk": "gridref.faces.exports.icechunk:to_icechunk",
    "kerchunk": "gridref.faces.exports.kerchunk:to_kerchunk",
    "stac": "gridref.faces.exports.stac:to_stac",
}
_BY_ENDING = {".nc": "cf", ".icechunk": "icechunk"}


def named_call(name: str) -> Callable[..., Any]:
    """The call of this name."""
    call: Callable[..., Any] = getattr(import_module(_HOMES[name]), name)
    return call


def exporter(path: str, to: str | None) -> Callable[..., Any]:
    """The call that writes an export, by its name or by the ending of the path.

    Raises
    ------
    InvalidRequestError
        If there is no such export.
    """
    if to is None:
        endings = (kind for ending, kind in _BY_ENDING.items() if path.rstrip("/").endswith(ending))
        to = next(endings, "kerchunk")
    check_choice("to", to, tuple(_EXPORTS))
    module, _, name = _EXPORTS[to].partition(":")
    call: Callable[..., Any] = getattr(import_module(module), name)
    return call
