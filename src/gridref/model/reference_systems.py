"""What a coordinate reference system is called."""

from __future__ import annotations

import re

__all__ = ["authority_code"]

_CODE = re.compile(r'(?:ID|AUTHORITY)\["(\w+)",\s*"?(\w+)"?\]\s*\]\s*$')


def authority_code(wkt: str) -> tuple[str, str] | None:
    """Authority and code at the end of a WKT, like ``("EPSG", "32632")``; None if it has none.

    Sources: OGC 18-010r11 (WKT 2), "Identifier"; OGC 01-009 (WKT 1), "Authority".
    """
    found = _CODE.search(wkt)
    return None if found is None else (found[1], found[2])
