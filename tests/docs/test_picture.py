"""The README's picture is what gridref draws of the sample data."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_picture_is_current() -> None:
    spec = importlib.util.spec_from_file_location("draw", ROOT / "tools" / "draw_chunk_map.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shown = (ROOT / "docs" / "images" / "chunk-map.svg").read_text(encoding="utf-8")
    assert module.draw() == shown, "make it anew: python tools/draw_chunk_map.py FILE"
