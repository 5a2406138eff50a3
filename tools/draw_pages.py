"""Take the pictures of the README from the served pages: python tools/draw_pages.py docs/images.

Needs Chromium, playwright, pillow and the viewer (make assets).
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import gridref
from gridref.faces.http import create_app

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from PIL import Image  # noqa: E402
from playwright.sync_api import Page, sync_playwright  # noqa: E402

from tests.uvicorn_server import running  # noqa: E402

NAMES = ("page.png", "chunk-map-page.png")
SIZE = {"width": 960, "height": 700}
PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)


def draw(folder: Path) -> None:
    """Take both pictures."""
    with tempfile.TemporaryDirectory() as place:
        catalog = Path(place) / "cube.gridref"
        gridref.build(sorted((ROOT / "sample_data").glob("*.nc")), catalog, "time")
        app = create_app([catalog], access_log=False)
        with running(app) as url, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox"])
            page = browser.new_page(viewport=SIZE)
            page.goto(f"{url}/cube/array/tas#at0=181")
            picture(page, folder / NAMES[0])
            page.locator("#colours").select_option("source")
            chunk_map(page, folder / NAMES[1])
            browser.close()
    for name in NAMES:
        with Image.open(folder / name) as shown:
            shown.convert("RGB").quantize(64).save(folder / name, optimize=True)


def picture(page: Page, path: Path) -> None:
    """The head of the page with the viewer, a point chosen and its series plotted."""
    page.locator("#viewer[data-ready='1']").wait_for()
    page.locator("#viewer-canvas").click(position={"x": 420, "y": 120})
    page.locator("#viewer-series .plot canvas").wait_for()
    page.get_by_text(", bytes ").wait_for()
    page.screenshot(path=path, clip={"x": 0, "y": 0, **SIZE, "height": 1262}, full_page=True)


def chunk_map(page: Page, path: Path) -> None:
    """The section of the chunk map, at one chunk."""
    page.locator("#chunk-map").focus()
    for _ in range(40):
        page.keyboard.press("ArrowRight")
    page.locator("#chunk-told").get_by_text(", bytes ").wait_for()
    page.locator("section", has=page.locator("#chunk-map")).screenshot(path=path)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
