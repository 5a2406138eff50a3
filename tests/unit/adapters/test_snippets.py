"""Addresses of other viewers are such as they take."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from gridref.adapters.web.snippets import GRIDLOOK, NEUROGLANCER, snippets


def test_addresses_of_viewers() -> None:
    *_, viewers = snippets("https://host/cube/portable", 'a "b"/tas')
    gridlook, neuroglancer = viewers.code.splitlines()
    assert gridlook == f"{GRIDLOOK}/#https://host/cube/portable"
    state = json.loads(neuroglancer.removeprefix(f"{NEUROGLANCER}/#!"))
    (layer,) = state["layers"]
    assert layer["source"] == 'https://host/cube/portable/a "b"/tas/|zarr3:'
    for origin in (GRIDLOOK, NEUROGLANCER):
        assert f"--allow-origin {origin}" in viewers.note


@pytest.mark.skipif(shutil.which("Rscript") is None, reason="R is not installed")
def test_r_takes_the_lines_apart() -> None:
    lines = {each.language: each.code for each in snippets("https://host/cube/portable", 'a$ "b"')}
    script = 'cat(eval(parse(file("stdin"))[[2]][[3]][[2]]))'
    command = ["Rscript", "-e", script]
    told = subprocess.run(command, input=lines["R"], capture_output=True, text=True, check=True)
    assert told.stdout == 'https://host/cube/portable/a$ "b"'
