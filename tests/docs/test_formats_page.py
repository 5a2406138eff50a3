"""The table of formats on its page is what ``gridref formats`` lists."""

from __future__ import annotations

import re
from pathlib import Path

from gridref.formats.built_in import BUILT_IN
from gridref.formats.registry import known_formats

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"
HEAD = ["format", "names", "read", "refused", "codecs", "compared with", "native view read by"]


def rows_of(page: str) -> list[list[str]]:
    """The cells of the first table, without links and code marks."""
    lines = [line for line in page.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    table = rows[: next((n for n, row in enumerate(rows) if len(row) != len(rows[0])), None)]
    plain = [[re.sub(r"\[(.*?)\]\(.*?\)", r"\1", cell) for cell in row] for row in table]
    return [[cell.replace("`", "") for cell in row] for row in plain]


def test_the_table_is_that_of_the_command() -> None:
    own = [each for each in known_formats() if not each.package]
    assert len(own) == len(BUILT_IN)
    head, _, *rows = rows_of(PAGE.read_text("utf-8"))
    assert head == HEAD
    for row, each in zip(rows, own, strict=True):
        about = each.about
        names = " ".join(each.names) or "found by content"
        facts = [about.read, about.refused, about.codecs, about.oracle, about.native]
        assert all(facts)
        assert row == [each.name, names, *facts]
