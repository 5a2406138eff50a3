"""The workflows parse, and each of their jobs is a target of the Makefile that runs anywhere."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.shared_data import ROOT

FILES = sorted(ROOT.glob(".github/workflows/*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = {*re.findall(r"^([a-z0-9-]+):", MAKEFILE, re.MULTILINE)}
VARIABLES = {*re.findall(r"^([A-Z]+) \?=", MAKEFILE, re.MULTILINE)}
PYTHONS = {"3.12", "3.13", "3.14"}


def load(path: Path) -> Any:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    document["on"] = document.pop(True)  # YAML 1.1 takes the word for a boolean
    return document


def jobs() -> list[Any]:
    return [
        pytest.param(job, id=f"{path.stem}: {name}")
        for path in FILES
        for name, job in load(path)["jobs"].items()
    ]


def commands(job: Any) -> list[str]:
    """What a job runs, for each member of its matrix."""
    matrix = job.get("strategy", {}).get("matrix", {})
    chosen = [dict(zip(matrix, each, strict=True)) for each in itertools.product(*matrix.values())]
    runs = [step["run"] for step in job["steps"] if "run" in step]
    return [
        re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda found: values[found[1]], run)  # noqa: B023
        for values in chosen
        for run in runs
    ]


def test_there_is_a_workflow_for_each_purpose() -> None:
    assert {path.stem for path in FILES} >= {"tests", "newest", "docs", "release"}
    tests = load(ROOT / ".github/workflows/tests.yml")["jobs"]
    matrix = tests["test"]["strategy"]["matrix"]
    assert {*matrix["python"]} == PYTHONS
    assert {name.partition("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}
    assert "minimum" in tests


@pytest.mark.parametrize("job", jobs())
def test_a_job_calls_targets_that_exist(job: Any) -> None:
    for run in commands(job):
        program, *words = shlex.split(run)
        assert program == "make", f"not a target: {run}"
        settings = {word.partition("=")[0] for word in words if "=" in word}
        assert settings <= VARIABLES
        assert {word for word in words if "=" not in word} <= TARGETS


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_rights_are_given_job_by_job(path: Path) -> None:
    """Only what publishes may write, and that runs nothing of the repository."""
    workflow = load(path)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        writes = [name for name, level in job.get("permissions", {}).items() if level == "write"]
        if writes:
            assert not any("run" in step for step in job["steps"])
            assert not any("checkout" in step.get("uses", "") for step in job["steps"])


def test_a_tag_publishes_what_was_checked_with_provenance() -> None:
    release = load(ROOT / ".github/workflows/release.yml")
    assert release["on"] == {"push": {"tags": ["v*"]}}
    build, attest, publish = (release["jobs"][name] for name in ("build", "attest", "publish"))
    assert commands(build) == ["make release-check"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"] == "release"
    assert [attest["needs"], publish["needs"]] == ["build", "attest"]
    used = [step["uses"].partition("@")[0] for job in (attest, publish) for step in job["steps"]]
    assert {"actions/attest-sbom", "actions/attest-build-provenance"} <= {*used}
    assert used[-1] == "pypa/gh-action-pypi-publish"
    uploaded = {
        step["with"]["name"]: step["with"]["path"] for step in build["steps"]
        if "upload-artifact" in step.get("uses", "")
    }  # fmt: skip
    assert uploaded == {"dist": "build/dist", "sbom": "build/sbom.cdx.json"}


def test_pythons_are_those_of_the_package() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert {*re.findall(r"Python :: (3\.\d+)", project)} == PYTHONS


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_actions_are_pinned_to_a_commit_and_name_its_version(path: Path) -> None:
    for action in re.findall(r"uses: (.*)", path.read_text(encoding="utf-8")):
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)
