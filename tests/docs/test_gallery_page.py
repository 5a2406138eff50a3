"""The gallery is what `make gallery` writes, and all of its pictures are there."""

from __future__ import annotations

import re
import runpy

from tests.shared_data import ROOT


def test_the_page_is_what_the_tool_writes() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "draw_gallery.py"))
    text = (ROOT / "docs" / "gallery.md").read_text()
    assert text == tool["page"]()
    names = re.findall(r"\((images/gallery/[^)]+)\)", text)
    there = {path.name for path in (ROOT / "docs/images/gallery").iterdir()}
    assert len(names) >= 12
    assert {name.rpartition("/")[2] for name in names} == there
