"""The pictures of README and docs are what gridref and its code draw today."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("tool", "picture"), [("draw_chunk_map", "chunk-map"), ("draw_house", "house")]
)
def test_picture_is_current(tool: str, picture: str) -> None:
    spec = importlib.util.spec_from_file_location(tool, ROOT / "tools" / f"{tool}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shown = (ROOT / "docs" / "images" / f"{picture}.svg").read_text(encoding="utf-8")
    assert module.draw() == shown, f"make it anew: python tools/{tool}.py FILE"
