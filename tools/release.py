"""What ``tools/release-check`` asks of the papers and of the list of what an installation has.

``python -m tools.release version`` and ``python -m tools.release sbom FILE``.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

COMPATIBLE = re.compile(
    r"apache|bsd|\bmit\b|\bisc\b|python|psf|mpl|mozilla|unlicense|public domain|zlib|hpnd|cc0"
    r"|0bsd|boost|bsl",
    re.IGNORECASE,
)
"""Words of licences that an Apache 2.0 package may depend on: permissive ones, and the MPL's."""
READ = {
    "eccodeslib": "Apache-2.0",
    "eckitlib": "Apache-2.0",
    "gribberish": "MIT",
    "hdf5plugin": "MIT",
    "icechunk": "Apache-2.0",
    "partd": "BSD-3-Clause",
    "pyhdf": "MIT",
}
"""Licences that the metadata do not say, as their files or repositories do."""


def problems_of_version(tag: str | None, root: Path = ROOT) -> list[str]:
    """Where the version of the package is not the one that the papers, or a tag, tell of."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    version = project["version"]
    problems = []
    if tag is not None and tag != f"v{version}":
        problems.append(f"the tag is {tag}, the version in pyproject.toml {version}")
    told = _changes(version, (root / "CHANGELOG.md").read_text("utf-8"))
    if told is None:
        problems.append(f"CHANGELOG.md has no section '## [{version}]'")
    elif len(told.split()) < 20:
        problems.append(f"CHANGELOG.md says nothing of {version}")
    citation = (root / "CITATION.cff").read_text("utf-8")
    if not re.search(rf"^version: {re.escape(version)}$", citation, re.MULTILINE):
        problems.append(f"CITATION.cff is not of version {version}")
    return problems


def _changes(version: str, changelog: str) -> str | None:
    """What a changelog says of a version."""
    found = re.search(
        rf"^## \[{re.escape(version)}\][^\n]*$(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    return None if found is None else found[1]


def current_tag(root: Path = ROOT) -> str | None:
    """The tag of the commit that is checked out, if it has one of a version."""
    command = ["git", "-C", str(root), "tag", "--points-at", "HEAD", "--list", "v*"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    tags = done.stdout.split()
    return tags[0] if tags else None


def problems_of_sbom(sbom: Mapping[str, Any], required: Iterable[str]) -> list[str]:
    """What is wrong with a list of contents (CycloneDX): packages or licences that it lacks."""
    components = {each["name"].lower(): each for each in sbom.get("components", [])}
    problems = [f"the list has no {name}" for name in required if name.lower() not in components]
    if sbom.get("bomFormat") != "CycloneDX":
        problems.append(f"the format is {sbom.get('bomFormat')!r}")
    for name, component in sorted(components.items()):
        words = f"{_licences(component)} {READ.get(name, '')}".strip()
        if not COMPATIBLE.search(words):
            problems.append(f"{name} {component.get('version')}: licence {words!r}")
    return problems


def _licences(component: Mapping[str, Any]) -> str:
    """All that a component says of its licence, but not its text."""
    words = []
    for entry in component.get("licenses", []):
        licence = entry.get("license", {})
        words += [entry.get("expression", ""), licence.get("id", ""), licence.get("name", "")]
    return ", ".join(word.partition("\n")[0] for word in words if word)


def main(arguments: list[str]) -> int:
    """Run one of the checks; its problems go to standard error."""
    if arguments[0] == "version":
        tag = current_tag()
        problems = problems_of_version(tag)
        print(f"tag: {tag or 'none yet'}")
    else:
        sbom = json.loads(Path(arguments[1]).read_text("utf-8"))
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
        required = [re.split(r"[\[;>=]", line)[0] for line in project["dependencies"]]
        problems = problems_of_sbom(sbom, required)
        print(f"{len(sbom['components'])} packages")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
