"""Pages of the documentation's site, in Chromium: nothing keeps a reader out."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config

from tests.browser.visits import Visit
from tests.shared_data import ROOT

PAGES = ("index", "compatibility", "catalog-format", "formats", "pages", "measurements")
"""Text with many links, code, and wide tables."""
CUT_OFF = """
    [...document.querySelectorAll("article table")]
        .filter((table) => table.getBoundingClientRect().right > innerWidth + 1)
        .filter((table) => {
            for (let each = table; each; each = each.parentElement) {
                if (["auto", "scroll"].includes(getComputedStyle(each).overflowX)) return false;
            }
            return true;
        })
        .map((table) => table.innerText.slice(0, 80))
"""
"""Tables that go on where nobody can scroll to."""
PAPERS = """
    [...document.querySelectorAll("article img[src$='.svg']")]
        .map((each) => getComputedStyle(each).backgroundColor)
"""
"""What is behind drawings."""


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder, and says nothing of it."""

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A few pages with the settings of the whole site, served."""
    folder = tmp_path_factory.mktemp("site")
    for page in PAGES:
        (folder / "docs").mkdir(exist_ok=True)
        shutil.copy(ROOT / "docs" / f"{page}.md", folder / "docs")
    shutil.copytree(ROOT / "docs" / "assets", folder / "docs" / "assets")
    shutil.copytree(ROOT / "docs" / "images", folder / "docs" / "images")
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    settings |= {"plugins": ["search"], "hooks": [], "validation": {}, "nav": None}
    settings |= {"docs_dir": str(folder / "docs"), "site_dir": str(folder / "built" / "dev")}
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    build(load_config(str(folder / "mkdocs.yml")))
    (folder / "built" / "versions.json").write_text("[]")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder / "built")))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/dev/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_have_no_barriers(browser: Any, site: str, scheme: str) -> None:
    visit = Visit(browser, color_scheme=scheme)
    try:
        for page in PAGES:
            visit.page.set_viewport_size({"width": 1280, "height": 720})
            address = site if page == "index" else f"{site}{page}/"
            visit.page.goto(address, wait_until="load")
            assert visit.barriers() == [], page
            for width in (1280, 390):
                visit.page.set_viewport_size({"width": width, "height": 720})
                assert visit.page.evaluate(CUT_OFF) == [], page
        visit.page.goto(site, wait_until="load")
        papers = visit.page.evaluate(PAPERS)
        assert papers
        if scheme == "dark":
            assert set(papers) == {"rgb(255, 255, 255)"}
        assert all(url.startswith((site, site[: -len("dev/")])) for url in visit.asked)
    finally:
        visit.close()
