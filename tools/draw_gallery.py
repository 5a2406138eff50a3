"""Draw docs/gallery.md, pictures of real data in the viewer: python tools/draw_gallery.py docs.

Needs Chromium, playwright, pillow, the viewer (make assets) and the files of ``GRIDREF_TEST_DATA``.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gridref.faces.http import create_app
from gridref.model.array import VirtualGroup

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser.kinds import KINDS, Kind, Reference, global_model, scanned  # noqa: E402
from tests.browser.visits import chromium  # noqa: E402
from tests.uvicorn_server import running  # noqa: E402

PHONE = {"width": 390, "height": 760}
VISITORS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 860, "height": 760}},
    "dark": {"viewport": {"width": 860, "height": 760}, "color_scheme": "dark"},
    "phone": {"viewport": PHONE, "device_scale_factor": 2, "has_touch": True},
}
HEIGHT = 430
"""Of a picture, whose three parts are light, dark and a phone."""


def real(pattern: str) -> Callable[[Path, Path], tuple[VirtualGroup, Reference]]:
    """A file of the test data as a kind that is drawn only."""
    return lambda data, _: (scanned(min(data.glob(pattern))), Reference(None))


GALLERY = (
    *KINDS,
    Kind(
        "globe",
        "A globe",
        "*View: globe* of the climate model; dragging turns it.",
        "tas",
        global_model,
        "view=globe&centre=20,15",
    ),
    Kind(
        "regional-model",
        "A Lambert grid",
        "WRF over Tibet, with two-dimensional `XLAT` and `XLONG`. Its first row is southernmost.",
        "T2",
        real("families/wrf_tip_2domains/wrf_tip_d1.nc"),
    ),
    Kind(
        "ocean-radar",
        "Currents",
        "Eastward velocity by radar off Western Australia: colours lie about zero.",
        "UCUR",
        real("families/acorn_turq_hourly/*T000000Z*.nc"),
    ),
)
LIST = "catalogs"


def page() -> str:
    """The text of the page."""
    head = (
        "# Gallery\n\nWhat the [viewer](pages.md#the-viewer) shows when an array is opened, on a"
        " light and a dark page and on a phone. A text says what was chosen or computed; all other"
        " files are real.\n\nThe tests compare the first twelve with pictures that numpy and"
        " matplotlib draw. `make gallery` draws this page."
    )
    shown = [(each.name, each.title, each.told) for each in GALLERY]
    shown.append((LIST, "A list of catalogs", "All of these on one server, which is searched."))
    parts = [
        f"## {title}\n\n{told}\n\n![{title}: light, dark, phone](images/gallery/{name}.jpg)"
        for name, title, told in shown
    ]
    return "\n\n".join([head, *parts]) + "\n"


def draw(folder: Path) -> None:
    """Take all pictures, and write the page."""
    pictures = folder / "images" / "gallery"
    shutil.rmtree(pictures, ignore_errors=True)
    pictures.mkdir(parents=True)
    data = Path(os.environ["GRIDREF_TEST_DATA"])
    with tempfile.TemporaryDirectory() as t, chromium() as browser:
        served = {}
        for each in GALLERY:
            (Path(t) / each.name).mkdir()
            served[each.name], _ = each.make(data, Path(t) / each.name)
        addresses = {each.name: f"{each.name}/array/{each.path}#{each.state}" for each in GALLERY}
        with running(create_app(served, access_log=False)) as url:
            for name, address in {**addresses, LIST: ""}.items():
                taken = []
                for visitor, options in VISITORS.items():
                    tab = browser.new_context(**options).new_page()
                    tab.goto(f"{url}/{address}")
                    tab.locator(":is(#viewer, .preview)[data-ready]").first.wait_for()
                    tab.wait_for_timeout(1500 if name == LIST else 400)
                    taken.append(Path(t) / f"{visitor}.png")
                    tab.screenshot(path=taken[-1])
                    tab.context.close()
                _beside(taken, pictures / f"{name}.jpg")
    (folder / "gallery.md").write_text(page())


def _beside(pictures: list[Path], path: Path) -> None:
    from PIL import Image

    parts = []
    for picture in pictures:
        with Image.open(picture) as shown:
            whole = shown.convert("RGB")
            parts.append(
                whole.resize(
                    (whole.width * HEIGHT // whole.height, HEIGHT), Image.Resampling.LANCZOS
                )
            )
    joined = Image.new("RGB", (sum(part.width for part in parts), HEIGHT))
    left = 0
    for part in parts:
        joined.paste(part, (left, 0))
        left += part.width
    joined.save(path, quality=80, optimize=True)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
