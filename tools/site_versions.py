"""Build the site of each released version beside that of the present one, in ``build/pages``.

Each version is a folder; ``dev`` is what is checked out. The theme's menu of versions reads
``versions.json``, and ``index.html`` leads to the newest release. Each version is built from its
own tag, with the environment that runs this.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parents[1]
DEV = "dev"

type Build = Callable[[Path, Path], None]
"""Builds the site of a checkout into a folder."""


def released(root: Path = ROOT) -> list[str]:
    """Versions that have a tag, the newest first; those before a release are left out."""
    listed = subprocess.run(
        ["git", "-C", root, "tag", "--list", "v*"], capture_output=True, text=True, check=True
    )
    versions = []
    for tag in listed.stdout.split():
        try:
            version = Version(tag[1:])
        except InvalidVersion:
            continue
        if not version.is_prerelease:
            versions.append(version)
    return [str(version) for version in sorted(versions, reverse=True)]


def listing(versions: Sequence[str]) -> list[dict[str, object]]:
    """What the theme's menu shows: the releases, and what is not released yet."""
    entries: list[dict[str, object]] = [
        {"version": version, "title": version, "aliases": ["latest"] if i == 0 else []}
        for i, version in enumerate(versions)
    ]
    return [*entries, {"version": DEV, "title": DEV, "aliases": []}]


def build_all(out: Path, build: Build, root: Path = ROOT) -> list[str]:
    """Build all versions into a folder, which is made anew; returns them, the newest first."""
    versions = released(root)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    build(root, out / DEV)
    for version in versions:
        with tempfile.TemporaryDirectory() as folder:
            checkout = Path(folder, "checkout")
            git = ["git", "-C", root, "worktree"]
            subprocess.run([*git, "add", "-q", "--detach", checkout, f"v{version}"], check=True)
            try:
                build(checkout, out / version)
            finally:
                subprocess.run([*git, "remove", "--force", checkout], check=True)
    (out / "versions.json").write_text(json.dumps(listing(versions)), encoding="utf-8")
    first = versions[0] if versions else DEV
    (out / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><title>gridref</title>'
        f'<meta http-equiv="refresh" content="0; url={first}/"><a href="{first}/">gridref</a>\n',
        encoding="utf-8",
    )
    return versions


def by_mkdocs(checkout: Path, folder: Path) -> None:
    """Build the site of a checkout."""
    paths = {"PYTHONPATH": str(checkout / "src"), "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder],
        cwd=checkout, env={**os.environ, **paths}, check=True,
    )  # fmt: skip


if __name__ == "__main__":
    done = build_all(ROOT / "build" / "pages", by_mkdocs)
    print(f"The site: build/pages/index.html, versions: {', '.join([*done, DEV])}")
