"""Who follows docs/extending.md gets a format and a codec that work."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.wheels import run_python, unpack

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


def blocks(section: str, language: str) -> list[str]:
    """The code blocks of one section."""
    (text,) = re.findall(rf"^## {section}$(.*?)^## ", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return re.findall(rf"^```{language}$\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def installed(folder: Path) -> Path:
    """The package of the walk, as it is when installed."""
    (scanner,) = blocks("Adding a format", "python")
    codec = blocks("Adding a codec", "python")[0]
    (project,) = blocks("Adding a codec", "toml")
    settings = tomllib.loads(project)["project"]
    files = {"bytegrid/__init__.py": scanner, "bytegrid/codec.py": codec}
    return unpack(
        folder / "site", settings["name"], files, settings["entry-points"], settings["version"]
    )


def test_the_walk_passes_the_conformance_suites(tmp_path: Path) -> None:
    site = installed(tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    (work / "test_bytegrid.py").write_text(blocks("Testing both", "python")[0])
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore", "--rootdir", str(work)]
    done = run_python(["-m", "pytest", *options], paths=[site], folder=work)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > 15
    assert "skipped" not in done.stdout


@pytest.mark.long
def test_the_command_line_reads_the_format(tmp_path: Path) -> None:
    site = installed(tmp_path)
    (tmp_path / "a.grid").write_bytes(b"GRID\x02\0\0\0\x03\0\0\0" + bytes(range(250, 256)))
    code = "from gridref.faces.cli import main; main()"
    done = run_python(
        ["-c", code, "build", "a.grid", "-o", "a.gridref"], paths=[site], folder=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    read = (
        "import xarray as xr, gridref\n"
        "print(xr.open_dataset('a.gridref', engine='gridref')['grid'].values.tolist())"
    )
    done = run_python(["-c", read], paths=[site], folder=tmp_path)
    assert done.stdout.strip() == "[[5, 4, 3], [2, 1, 0]]", done.stderr


@pytest.mark.long
def test_without_the_codec_the_suite_fails(tmp_path: Path) -> None:
    """The suite can fail: a codec that changes a byte is found out."""
    site = installed(tmp_path)
    codec = site / "bytegrid" / "codec.py"
    codec.write_text(codec.read_text().replace("~as_u1(raw)", "as_u1(raw) ^ 254"))
    (tmp_path / "test_bytegrid.py").write_text(blocks("Testing both", "python")[0])
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore", "--rootdir", str(tmp_path)]
    done = run_python(["-m", "pytest", *options, "test_bytegrid.py"], paths=[site], folder=tmp_path)
    failed = set(re.findall(r"FAILED \S+::(\w+::\w+)", done.stdout))
    assert {"TestByteGrid::test_values", "TestInverted::test_values"} <= failed
