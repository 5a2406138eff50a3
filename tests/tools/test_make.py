"""The Makefile: what its targets run is there."""

from __future__ import annotations

import importlib.util
import re
import subprocess

from tests.programs import program
from tests.shared_data import ROOT


def test_targets_name_files_and_modules_that_exist() -> None:
    text = (ROOT / "Makefile").read_text()
    listed = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert listed is not None
    command = [program("make"), "--dry-run", "--always-make", *listed[1].split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    files = set(re.findall(r"\b(?:tests|tools)/[\w/-]+(?:\.py)?\b", done.stdout))
    modules = set(re.findall(r" -m ((?:tests|tools|benchmarks|gridref)[\w.]*)", done.stdout))
    assert len(files) > 20
    assert len(modules) > 8
    assert [file for file in sorted(files) if not (ROOT / file).exists()] == []
    assert [name for name in sorted(modules) if importlib.util.find_spec(name) is None] == []
