"""Addresses of other viewers are such as they take."""

from __future__ import annotations

import json

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
