"""Converters to and from Icechunk, STAC, CF aggregations and VirtualiZarr.

They are imported when they are first used, as most need packages of the extra ``interchange``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gridref.faces.exports.cf_aggregation import to_cf_aggregation
    from gridref.faces.exports.icechunk import from_icechunk, to_icechunk
    from gridref.faces.exports.stac import to_stac
    from gridref.virtualizarr import from_virtualizarr, to_virtualizarr

_HOMES = {
    "from_icechunk": "gridref.faces.exports.icechunk",
    "from_virtualizarr": "gridref.virtualizarr",
    "to_cf_aggregation": "gridref.faces.exports.cf_aggregation",
    "to_icechunk": "gridref.faces.exports.icechunk",
    "to_stac": "gridref.faces.exports.stac",
    "to_virtualizarr": "gridref.virtualizarr",
}

__all__ = [
    "from_icechunk",
    "from_virtualizarr",
    "to_cf_aggregation",
    "to_icechunk",
    "to_stac",
    "to_virtualizarr",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'gridref.interchange' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
