"""docs/architecture.md names modules that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "gridref"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)


FORMATS = PAGE[PAGE.index("Formats:") : PAGE.index("Combining and building:")]


def missing(text: str, names: str = r"[a-z_0-9/]+(?:/|\.py|\.js)") -> list[str]:
    """The names in a text that are neither in the package or repository, nor beside another one."""
    places = re.findall(r"`([a-z_0-9/]+(?:/|\.py))`", text)
    bases = [base / place for base in (PACKAGE, ROOT) for place in places]
    folders = [
        PACKAGE,
        ROOT / "src",
        ROOT,
        *(base if base.is_dir() else base.parent for base in bases),
    ]
    return [
        name
        for name in re.findall(f"`({names})`", text)
        if not any((folder / name).exists() for folder in folders)
        and not any((folder / f"{name}.py").exists() for folder in folders)
    ]


def test_places_to_look_in_exist() -> None:
    assert len(ROWS) > 60
    assert {changed: lost for changed, where in ROWS if (lost := missing(where))} == {}


def test_modules_of_formats_exist() -> None:
    rows = re.findall(r"^\| .+? \| (`formats/.+) \|$", FORMATS, re.MULTILINE)
    assert len(rows) > 12
    assert {row: lost for row in rows if (lost := missing(row, "[a-z_0-9/]+"))} == {}


def test_modules_of_the_walks_exist() -> None:
    assert missing(PAGE[PAGE.index("### Building a catalog") :]) == []


@pytest.mark.parametrize(
    ("wanted", "place"),
    [
        ("NetCDF3", "formats/netcdf3.py"),
        ("the size of a cache", "cache.py"),
        ("an option, or a flag, of `build` and `plan`", "faces/cli/options.py"),
        ("a rule of drift", "combine/rules/"),
        ("a view", "serve/views.py"),
        ("an HTTP route", "faces/http/routes.py"),
        ("a codec", "codecs/"),
        ("a layout that users ask for", "api/layout/layouts.py"),
        ("an export", "faces/exports/"),
        ("a limit on what a file, server or client of strangers may cost", "limits.py"),
        ("an error kind", "errors.py"),
        ("a web page", "faces/web/"),
        ("how a read notices that a source changed", "io/identity.py"),
        ("requests to servers: how many at once, retries, waits", "io/faults.py"),
        ("which sources a catalog or references may read", "model/source_policy.py"),
        ("lists of files (`--files-from`, `--inventory`)", "api/layout/listings.py"),
        ("checksums and statistics of chunks", "api/each_chunk.py"),
    ],
)
def test_a_change_has_a_row(wanted: str, place: str) -> None:
    (where,) = [where for changed, where in ROWS if changed == wanted]
    assert f"`{place}" in where
