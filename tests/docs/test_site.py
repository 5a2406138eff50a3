"""The site: its menu reaches every page in two clicks, and versions stand beside each other."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mkdocs.config import load_config

from tests.shared_data import ROOT
from tools import site_pages, site_versions


@pytest.fixture(scope="module")
def config() -> Any:
    """The settings of the site, with its menu complete."""
    return site_pages.on_config(load_config(str(ROOT / "mkdocs.yml")))


def entries(menu: list[Any], depth: int = 1) -> Iterator[tuple[str, int]]:
    """Each page of the menu, and how many clicks it takes."""
    for entry in menu:
        for value in entry.values():
            if isinstance(value, list):
                yield from entries(value, depth + 1)
            else:
                yield value, depth


def test_every_page_is_two_clicks_away(config: Any) -> None:
    """The menu is on each page: a click opens a section, another one the page."""
    clicks = dict(entries(config.nav))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    made = {"reference/command-line.md", *site_pages.BESIDE.values()}
    assert {*clicks} == pages | made
    assert max(clicks.values()) <= 2
    assert not any("More" in entry for entry in config.nav), "give each page a place in mkdocs.yml"


def test_it_can_be_searched_and_shows_the_gallery_and_versions(config: Any) -> None:
    assert "material/search" in config.plugins
    assert ("gallery.md", 2) in entries(config.nav)
    assert config.extra["version"] == {"provider": "mike", "default": "latest"}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Commits of which some have tags; the file ``page`` says which one it is."""
    folder = tmp_path / "repository"
    folder.mkdir()

    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.invalid"]
        subprocess.run(["git", "-C", folder, *who, *words], check=True, capture_output=True)

    git("init")
    for tag in ("v0.1.0", "v0.10.0", "v0.2.0", "v0.11.0rc1", "vnext", None):
        (folder / "page").write_text(tag or "now")
        git("add", "page")
        git("commit", "-m", "a commit")
        if tag:
            git("tag", tag)
    return folder


def test_versions_stand_beside_each_other(repository: Path, tmp_path: Path) -> None:
    def build(checkout: Path, folder: Path) -> None:
        folder.mkdir()
        (folder / "index.html").write_text((checkout / "page").read_text())

    out = tmp_path / "pages"
    assert site_versions.build_all(out, build, repository) == ["0.10.0", "0.2.0", "0.1.0"]
    shown = {path.parent.name: path.read_text() for path in out.glob("*/index.html")}
    assert shown == {"dev": "now", **{v: f"v{v}" for v in ("0.10.0", "0.2.0", "0.1.0")}}
    listed = json.loads((out / "versions.json").read_text())
    assert [each["version"] for each in listed] == ["0.10.0", "0.2.0", "0.1.0", "dev"]
    assert [each["aliases"] for each in listed] == [["latest"], [], [], []]
    assert "url=0.10.0/" in (out / "index.html").read_text()
    left = subprocess.run(
        ["git", "-C", repository, "worktree", "list"], capture_output=True, text=True, check=True
    )
    assert left.stdout.count("\n") == 1


def test_before_the_first_release_there_is_the_present_one(tmp_path: Path) -> None:
    assert [each["version"] for each in site_versions.listing([])] == ["dev"]
