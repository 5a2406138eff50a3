"""Addresses of other viewers are such as they take."""

from __future__ import annotations

import json
import subprocess
from urllib.parse import unquote

import numpy as np

from gridref.faces.web.array_page import GRIDLOOK, NEUROGLANCER, opened_by, snippets
from gridref.model.array import VirtualArray, VirtualGroup
from tests.programs import program


def test_addresses_of_viewers() -> None:
    *_, viewers = snippets("https://host/cube/portable", 'a "b"#100%|/tas')
    gridlook, neuroglancer = viewers.code.splitlines()
    assert gridlook == f"{GRIDLOOK}/#https://host/cube/portable"
    state = json.loads(unquote(neuroglancer.removeprefix(f"{NEUROGLANCER}/#!")))
    (layer,) = state["layers"]
    assert layer["name"] == 'a "b"#100%|/tas'
    assert layer["source"] == ("https://host/cube/portable/a%20%22b%22%23100%25%7C/tas/|zarr3:")
    for origin in (GRIDLOOK, NEUROGLANCER):
        assert f"--allow-origin {origin}" in viewers.note


def test_links_are_of_viewers_that_read_the_array() -> None:
    def degrees(name: str, units: str) -> VirtualArray:
        return VirtualArray.from_numpy(np.arange(2.0), (name,), {"units": units})

    group = VirtualGroup(
        {
            "lat": degrees("lat", "degrees_north"),
            "lon": degrees("lon", "degree_E"),
            "tas": VirtualArray.from_numpy(np.zeros((2, 2), "f4"), ("lat", "lon")),
            "precise": VirtualArray.from_numpy(np.zeros((2, 2), "f8"), ("lat", "lon")),
            "image": VirtualArray.from_numpy(np.zeros((2, 2), "u2"), ("y", "x")),
        }
    )
    found = {name: opened_by(group, name) for name in ("tas", "precise", "image", "lat")}
    assert found == {
        "tas": (GRIDLOOK, NEUROGLANCER),
        "precise": (GRIDLOOK,),
        "image": (NEUROGLANCER,),
        "lat": (),
    }


def test_r_takes_the_lines_apart() -> None:
    lines = {each.language: each.code for each in snippets("https://host/cube/portable", 'a$ "b"')}
    script = 'cat(eval(parse(file("stdin"))[[2]][[3]][[2]][[2]]))'
    command = [program("Rscript"), "-e", script]
    told = subprocess.run(command, input=lines["R"], capture_output=True, text=True, check=True)
    assert told.stdout == "https://host/cube/portable/a%24%20%22b%22"


def test_addresses_hold_for_clients_that_send_them_as_they_are() -> None:
    lines = {each.language: each.code for each in snippets("https://host/cube/portable", "a#b/ä ö")}
    address = '"https://host/cube/portable/a%23b/%C3%A4%20%C3%B6"'
    assert f"zopen({address})" in lines["Julia"]
    assert f"open_zarr({address})$root" in lines["R"]
