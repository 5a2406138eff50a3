"""The tables of docs/formats/hdf5.md."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "formats" / "hdf5.md"


def _rows() -> list[list[str]]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("|")
    ]


ROWS = _rows()


def _patterns() -> list[re.Pattern[str]]:
    section = PAGE.read_text(encoding="utf-8").partition("## What is refused")[2]
    reasons = re.findall(r"^\| `([^`]+)`", section, re.MULTILINE)
    return [
        re.compile(".*".join(map(re.escape, reason.split("…"))), re.DOTALL) for reason in reasons
    ]


PATTERNS = _patterns()


def is_documented(reason: str) -> bool:
    """Whether the page lists the reason of a refusal."""
    return any(pattern.fullmatch(reason) for pattern in PATTERNS)
