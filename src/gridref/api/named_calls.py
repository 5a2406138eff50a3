"""Calls that verbs of a catalog find by name: faces, which `api` does not import, and callers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from importlib import import_module
from typing import Any

from gridref.errors import InvalidRequestError
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
    "forecast": "gridref.api.layout.forecasts:to_forecast",
    "kerchunk": "gridref.faces.exports.kerchunk:to_kerchunk",
    "stac": "gridref.faces.exports.stac:to_stac",
}
_BY_ENDING = {".nc": "cf", ".icechunk": "icechunk"}


def named_call(name: str) -> Callable[..., Any]:
    """The call of this name."""
    call: Callable[..., Any] = getattr(import_module(_HOMES[name]), name)
    return call


def export_kind(path: str | None, to: str | None) -> str:
    """The kind of an export, by its name or by the ending of the path.

    Raises
    ------
    InvalidRequestError
        If there is no such export.
    """
    if to is None:
        endings = (kind for ending, kind in _BY_ENDING.items() if _ends(path, ending))
        return next(endings, "kerchunk")
    check_choice("to", to, tuple(_EXPORTS))
    return to


def exporter(path: str | None, to: str | None, options: Collection[str]) -> Callable[..., Any]:
    """The call that writes an export, which takes some options.

    Raises
    ------
    InvalidRequestError
        If there is no such export, or it has no such option.
    """
    kind = export_kind(path, to)
    module, _, name = _EXPORTS[kind].partition(":")
    call: Callable[..., Any] = getattr(import_module(module), name)
    known = inspect.signature(call).parameters
    for option in options:
        if option not in known:
            raise InvalidRequestError(
                f"{option} is no option of an export to {kind}: the ending of the path"
                f" ({', '.join(_BY_ENDING)}) or to= says which export it is"
            )
    return call


def _ends(path: str | None, ending: str) -> bool:
    return path is not None and path.rstrip("/").endswith(ending)
