"""The viewer on published pages: it reads the sources themselves, behind a real nginx."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

import gridref
from tests.browser.test_viewer import READY, TOLD, cells, opened, rendered
from tests.browser.visits import Visit
from tests.nginx_server import nginx_serving


@pytest.fixture
def place(tmp_path: Path, sample_data: Path) -> Iterator[tuple[Path, str]]:
    """A folder that nginx serves, with nine months in `data/`, and its address."""
    folder = tmp_path / "www"
    (folder / "data").mkdir(parents=True)
    for month in sample_data.glob("daily_2023-0*.nc"):
        shutil.copy(month, folder / "data")
    with nginx_serving(folder, tmp_path) as url:
        yield folder, url


def published(place: tuple[Path, str], files: str) -> str:
    """The address of the site of some files."""
    folder, url = place
    catalog = folder.parent / "months.gridref"
    gridref.build(str(folder / "data" / files), catalog, "time")
    moved = {f"{folder}/data/": f"{url}/data/"}
    gridref.publish(catalog, folder / "site", base_url=f"{url}/site", prefixes=moved)
    return f"{url}/site"


def test_pictures_are_read_from_the_files(place: tuple[Path, str], visit: Visit) -> None:
    site = published(place, "*01.nc")
    asked = []
    visit.page.on("request", lambda r: asked.append((r.url, r.headers.get("range"))))
    page = opened(visit, f"{site}/array/tas.html", "coasts=0&at0=12")
    with h5py.File(place[0] / "data" / "daily_2023-01.nc") as file:
        values = file["tas"][12].astype("f8")
        stored = [
            file["tas"].id.get_chunk_info_by_coord((9, row, column))
            for row in (0, 12)
            for column in (0, 16, 32)
        ]
    expected = rendered(values, values.min(), values.max())[::-1]
    np.testing.assert_array_equal(cells(visit, values.shape, 1), expected)
    ranges = {f"bytes={s.byte_offset}-{s.byte_offset + s.size - 1}" for s in stored}
    shown = {r for url, r in asked if url.endswith("daily_2023-01.nc")}
    assert ranges <= shown
    assert len(shown - ranges) <= 3  # of the coordinates
    page.locator("#viewer-canvas").focus()
    page.keyboard.press("ArrowRight")
    first = stored[0]
    where = f"bytes {first.byte_offset} to {first.byte_offset + first.size}"
    visit.wait(f"{TOLD}.endsWith('; daily_2023-01.nc, {where}')")


def test_what_browsers_cannot_read_is_said(place: tuple[Path, str], visit: Visit) -> None:
    site = published(place, "*.nc")
    visit.page.goto(f"{site}/array/tas.html")
    assert visit.page.get_by_text("gridref serve shows them").count() == 1
    assert visit.page.evaluate(READY) is None
    inline = "const s = document.createElement('script'); s.text = 'window.ran = 1';"
    visit.page.evaluate(f"{inline} document.head.append(s)")
    assert visit.page.evaluate("window.ran") is None  # the page's own policy
    assert visit.page.evaluate("window.violations.splice(0).length") == 1
    visit.problems.clear()
    assert not visit.barriers()


def test_a_source_that_is_gone_is_said(place: tuple[Path, str], visit: Visit) -> None:
    site = published(place, "*01.nc")
    (place[0] / "data" / "daily_2023-01.nc").unlink()
    visit.page.goto(f"{site}/array/tas.html")
    visit.wait(f"{READY} == 'failed'")
    assert "daily_2023-01.nc" in visit.page.locator("#viewer").text_content()
    visit.problems.clear()  # of the browser itself: status 404
