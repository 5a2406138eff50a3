"""Draw the picture of the README: python tools/draw_chunk_map.py docs/images/chunk-map.svg."""

from __future__ import annotations

import sys
from pathlib import Path

import gridref
from gridref.adapters.picture import chunk_map_svg

SAMPLES = Path(__file__).resolve().parents[1] / "sample_data"


def draw() -> str:
    """The blocks and stored chunks of the sample data's temperatures."""
    groups = [gridref.scan(path) for path in sorted(SAMPLES.glob("*.nc"))]
    return chunk_map_svg(gridref.concat([group.arrays["tas"] for group in groups], "time")) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw(), encoding="utf-8")
