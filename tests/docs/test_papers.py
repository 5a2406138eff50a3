"""The papers beside the code: they agree with the package, lead somewhere, and name nobody."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.shared_data import ROOT

PAPERS = sorted([*ROOT.glob("*.md"), ROOT / "CITATION.cff"])
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MADE = {"docs/reference/command-line.md"}
"""Pages that only the site has."""
KEYS = {
    *("abstract", "authors", "cff-version", "commit", "contact", "date-released", "doi"),
    *("identifiers", "keywords", "license", "license-url", "message", "preferred-citation"),
    *("references", "repository", "repository-artifact", "repository-code", "title", "type"),
    *("url", "version"),
}
"""Of version 1.2.0 of the Citation File Format."""


def test_the_citation_agrees_with_the_package() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation.keys() <= KEYS
    assert citation["cff-version"] == "1.2.0"
    assert citation["message"]
    assert citation["type"] == "software"
    assert citation["authors"] == [{"name": "The gridref developers"}]
    for name in ("version", "license", "keywords"):
        assert citation[name] == PROJECT[name]
    assert citation["title"] == PROJECT["name"]


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: path.name)
def test_no_person_and_no_address_is_named(paper: Path) -> None:
    text = paper.read_text(encoding="utf-8")
    assert not re.findall(r"[\w.+-]+@[\w-]+\.\w+", text)
    assert "mailto:" not in text


def test_governance_takes_ten_lines() -> None:
    rules = re.findall(r"^\d+\. ", (ROOT / "GOVERNANCE.md").read_text("utf-8"), re.MULTILINE)
    assert len(rules) == 10


def slugs(page: Path) -> set[str]:
    """The anchors of a page's headings, as Markdown's `toc` makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    found: set[str] = set()
    for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title)
        slug = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", words).strip().lower())
        found.add(f"{slug}_1" if slug in found else slug)
    return found | {*re.findall(r'id="([\w-]+)"', text)}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere_in_the_repository(page: Path) -> None:
    """MkDocs sees to the links of the site; this one to those of a reader of the files."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.DOTALL)
    lost = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if target.relative_to(ROOT).as_posix() in MADE:
            continue
        if not target.exists() or (anchor and anchor not in slugs(target)):
            lost.append(link)
    assert not lost
