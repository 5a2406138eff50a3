"""Draw the picture of the README: python tools/draw_chunk_map.py docs/images/chunk-map.svg."""

from __future__ import annotations

import sys
from pathlib import Path

import gridref
from gridref.faces.picture import ChunkMap

SAMPLES = Path(__file__).resolve().parents[1] / "sample_data"


def draw() -> str:
    """The blocks and stored chunks of the sample data's temperatures."""
    groups = [gridref.scan(path) for path in sorted(SAMPLES.glob("*.nc"))]
    array = gridref.concat([group.arrays["tas"] for group in groups], "time")
    # Its lines are dark: it brings its paper for dark pages.
    return ChunkMap(array).to_svg().replace("<svg ", '<svg style="background:#fff" ', 1) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw(), encoding="utf-8")
