"""What is asked before a tag is pushed: papers of one version, packages with known licences."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.shared_data import ROOT
from tools.release import current_tag, problems_of_sbom, problems_of_version

CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-12-01\n\n{}\n\n## [0.0.1]\n"


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    """Papers that agree on the version of the package."""
    for name in ("pyproject.toml", "CITATION.cff"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG.format("- A line of some words.\n" * 10))
    return tmp_path


def test_papers_that_agree_are_right(papers: Path) -> None:
    for tag in (None, "v0.1.0"):
        assert problems_of_version(tag, papers) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            lambda papers: (papers / "CHANGELOG.md").write_text(CHANGELOG.format("- Few.")),
            "nothing",
        ),
        (lambda papers: (papers / "CHANGELOG.md").write_text("# Changelog\n"), "no section"),
        (lambda papers: (papers / "CITATION.cff").write_text("version: 0.2.0\n"), "CITATION.cff"),
    ],
)
def test_papers_of_another_version_are_named(papers: Path, change: Any, problem: str) -> None:
    change(papers)
    (found,) = problems_of_version("v0.1.0", papers)
    assert problem in found


def test_a_tag_of_another_version_is_named(papers: Path) -> None:
    (found,) = problems_of_version("v0.2.0", papers)
    assert found == "the tag is v0.2.0, the version in pyproject.toml 0.1.0"


def test_the_tag_is_that_of_the_commit(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.invalid"]
        subprocess.run(["git", "-C", tmp_path, *who, *words], check=True, capture_output=True)

    git("init")
    git("commit", "--allow-empty", "-m", "first")
    assert current_tag(tmp_path) is None
    git("tag", "v0.1.0")
    assert current_tag(tmp_path) == "v0.1.0"
    git("commit", "--allow-empty", "-m", "second")
    assert current_tag(tmp_path) is None


def component(package: str, /, **licence: str) -> dict[str, Any]:
    return {"name": package, "version": "1", "licenses": [{"license": licence}]}


def test_packages_and_licences_are_asked_for() -> None:
    good = [component("numpy", id="BSD-3-Clause"), component("Zarr", name="MIT License")]
    assert problems_of_sbom({"bomFormat": "CycloneDX", "components": good}, ["numpy", "zarr"]) == []
    bad = [component("numpy", name="GNU Affero General Public License v3"), component("zarr")]
    problems = problems_of_sbom({"bomFormat": "CycloneDX", "components": bad}, ["numpy", "xarray"])
    assert problems == [
        "the list has no xarray",
        "numpy 1: licence 'GNU Affero General Public License v3'",
        "zarr 1: licence ''",
    ]
    assert problems_of_sbom({}, []) == ["the format is None"]


def test_the_text_of_a_licence_says_nothing_of_which_it_is() -> None:
    """A text may name others, like those that it is not."""
    told = component("one", name="GPL\nnot MIT")
    assert problems_of_sbom({"bomFormat": "CycloneDX", "components": [told]}, [])


def test_tests_of_the_smoke_suite_exist() -> None:
    script = (ROOT / "tools/check-package").read_text(encoding="utf-8")
    for folder, names in re.findall(r"(tests/[\w/]+/)test_\{([\w,]+)\}\.py", script):
        for name in names.split(","):
            assert (ROOT / f"{folder}test_{name}.py").is_file()
    assert "tests/smoke_installed.py" in script
